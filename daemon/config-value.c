/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One value of tarnd.conf: text to number within its range, and the words for what is wrong with
 * it. Pure functions; config.c is their caller and the next file to read.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "err.h"

struct unit {
	const char *name;
	int64_t factor;
};

static const struct unit size_units[] = {
	{"", 1}, {"K", 1ll << 10}, {"M", 1ll << 20}, {"G", 1ll << 30}, {"T", 1ll << 40},
};
static const struct unit time_units[] = {
	{"us", 1000ll},
	{"ms", 1000000ll},
	{"s", 1000000000ll},
	{"min", 60ll * 1000000000ll},
	{"h", 3600ll * 1000000000ll},
};
static const struct unit no_units[] = {{"", 1}};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A decimal integer, then one of the units. -EINVAL: not that; -ERANGE: does not fit. */
static int scaled_parse(const char *text, const struct unit *units, size_t unit_count,
			int64_t *ret_number)
{
	char *end;
	long long number;
	int64_t scaled;

	/* strtoll would take blanks and a plus, too. */
	if (!((text[0] >= '0' && text[0] <= '9') ||
	      (text[0] == '-' && text[1] >= '0' && text[1] <= '9')))
		return -EINVAL;
	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno == ERANGE)
		return -ERANGE;
	while (*end == ' ')
		end++;
	for (size_t i = 0; i < unit_count; i++) {
		if (strcmp(end, units[i].name) != 0)
			continue;
		if (__builtin_mul_overflow(number, units[i].factor, &scaled))
			return -ERANGE;
		*ret_number = scaled;
		return 0;
	}
	return -EINVAL;
}

static int octal_parse(const char *text, int64_t *ret_number)
{
	char *end;
	unsigned long number;

	if (text[0] < '0' || text[0] > '7')
		return -EINVAL;
	errno = 0;
	number = strtoul(text, &end, 8);
	if (*end)
		return -EINVAL;
	if (errno == ERANGE || number > INT64_MAX)
		return -ERANGE;
	*ret_number = (int64_t)number;
	return 0;
}

static int bool_parse(const char *text, int64_t *ret_number)
{
	static const char *const yes[] = {"yes", "true", "on"}, *const no[] = {"no", "false",
									       "off"};

	for (size_t i = 0; i < COUNT(yes); i++) {
		if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
			*ret_number = strcmp(text, yes[i]) == 0;
			return 0;
		}
	}
	return -EINVAL;
}

/* The place of `text` in "a|b|c". */
static int choice_parse(const char *choices, const char *text, int64_t *ret_number)
{
	size_t length = strlen(text);

	for (int64_t i = 0;; i++) {
		size_t choice = strcspn(choices, "|");

		if (choice == length && length > 0 && memcmp(choices, text, length) == 0) {
			*ret_number = i;
			return 0;
		}
		if (!choices[choice])
			return -EINVAL;
		choices += choice + 1;
	}
}

static int number_parse(const struct config_key *key, const char *text, int64_t *ret_number)
{
	switch (key->type) {
	case CONFIG_TYPE_SIZE:
		return scaled_parse(text, size_units, COUNT(size_units), ret_number);
	case CONFIG_TYPE_TIME:
		return scaled_parse(text, time_units, COUNT(time_units), ret_number);
	case CONFIG_TYPE_NUMBER:
		return scaled_parse(text, no_units, COUNT(no_units), ret_number);
	case CONFIG_TYPE_OCTAL:
		return octal_parse(text, ret_number);
	case CONFIG_TYPE_BOOL:
		return bool_parse(text, ret_number);
	case CONFIG_TYPE_ENUM:
		return choice_parse(key->unit, text, ret_number);
	case CONFIG_TYPE_PATH:
	case CONFIG_TYPE_TEXT:
		break;
	}
	return -EINVAL;
}

static const char *expectation(const struct config_key *key)
{
	switch (key->type) {
	case CONFIG_TYPE_SIZE:
		return "is not a size: write a whole number and K, M, G or T, as in 512M";
	case CONFIG_TYPE_TIME:
		return "is not a time: write a whole number and us, ms, s, min or h, as in 250ms";
	case CONFIG_TYPE_NUMBER:
		return "is not a whole number";
	case CONFIG_TYPE_OCTAL:
		return "is not an octal number: write it as in 0660";
	case CONFIG_TYPE_BOOL:
		return "is neither yes nor no";
	case CONFIG_TYPE_ENUM:
		return "is none of the choices";
	case CONFIG_TYPE_PATH:
	case CONFIG_TYPE_TEXT:
		break;
	}
	return "is not allowed";
}

const char *config_range_text(const struct config_key *key, char *buffer, size_t bytes)
{
	size_t used = 0;

	switch (key->type) {
	case CONFIG_TYPE_SIZE:
	case CONFIG_TYPE_TIME:
	case CONFIG_TYPE_NUMBER:
	case CONFIG_TYPE_OCTAL:
		snprintf(buffer, bytes, "%s to %s", key->minimum, key->maximum);
		return buffer;
	case CONFIG_TYPE_PATH:
	case CONFIG_TYPE_TEXT:
		snprintf(buffer, bytes, "%s%s to %s bytes",
			 key->type == CONFIG_TYPE_PATH ? "an absolute path of " : "", key->minimum,
			 key->maximum);
		return buffer;
	case CONFIG_TYPE_BOOL:
	case CONFIG_TYPE_ENUM:
		break;
	}
	for (const char *c = key->unit; *c && used + 5 < bytes; c++) {
		if (*c == '|')
			used += (size_t)snprintf(buffer + used, bytes - used, "%s",
						 strchr(c + 1, '|') ? ", " : " or ");
		else
			buffer[used++] = *c;
	}
	buffer[used] = '\0';
	return buffer;
}

static int wrong(const struct config_key *key, const char *what)
{
	char range[128];

	return err_set(-EINVAL, "%s; allowed: %s", what,
		       config_range_text(key, range, sizeof(range)));
}

static int text_parse(const struct config_key *key, const char *text,
		      struct config_value *ret_value)
{
	size_t length = strlen(text), minimum = strtoul(key->minimum, NULL, 10),
	       maximum = strtoul(key->maximum, NULL, 10);
	char what[128];
	char *copy;

	if (length < minimum || length > maximum) {
		snprintf(what, sizeof(what), "has %zu bytes%s", length,
			 length > maximum && key->type == CONFIG_TYPE_PATH && maximum < 108
				 ? ", which does not fit a socket's address: choose a shorter "
				   "path, as /run/tarn/tarn.sock"
				 : "");
		return wrong(key, what);
	}
	if (key->type == CONFIG_TYPE_PATH && length > 0 && text[0] != '/')
		return wrong(key, "does not begin with a /");
	/* inih takes only ; as the beginning of a comment behind a value. */
	if (strstr(text, " #"))
		return wrong(key, "holds a #: a comment needs a line of its own");
	copy = strdup(text);
	if (!copy)
		return err_set(-ENOMEM, "out of memory");
	free(ret_value->text);
	ret_value->text = copy;
	return 0;
}

int config_value_parse(const struct config_key *key, const char *text,
		       struct config_value *ret_value)
{
	int64_t number, bound;
	int rc;

	if (key->type == CONFIG_TYPE_PATH || key->type == CONFIG_TYPE_TEXT)
		return text_parse(key, text, ret_value);
	rc = number_parse(key, text, &number);
	if (rc == -EINVAL)
		return wrong(key, expectation(key));
	if (rc == -ERANGE)
		return wrong(key, "is out of range");
	if (key->type != CONFIG_TYPE_BOOL && key->type != CONFIG_TYPE_ENUM) {
		if (number_parse(key, key->minimum, &bound) < 0 || number < bound)
			return wrong(key, "is too small");
		if (number_parse(key, key->maximum, &bound) < 0 || number > bound)
			return wrong(key, "is too large");
	}
	ret_value->number = number;
	return 0;
}

/* ---- suggestions ---- */

#define WORD_MAX 64u

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t low = a < b ? a : b;

	return low < c ? low : c;
}

/* Levenshtein's distance; words longer than WORD_MAX are as far from all others as can be. */
static size_t distance(const char *a, const char *b)
{
	size_t row[WORD_MAX + 1], a_length = strlen(a), b_length = strlen(b);

	if (a_length > WORD_MAX || b_length > WORD_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= b_length; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t above = row[j];

			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[b_length];
}

const char *config_suggest(const char *word, const char *const *candidates, size_t count)
{
	const char *best = NULL;
	size_t best_distance = SIZE_MAX;

	for (size_t i = 0; i < count; i++) {
		size_t d = distance(word, candidates[i]);

		/* A third of the word may be wrong, else it is another word. */
		if (d < best_distance && d <= (strlen(candidates[i]) + 2) / 3) {
			best = candidates[i];
			best_distance = d;
		}
	}
	return best;
}
