/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One value of tarnd.conf: text to number within its range, or to an address, and the words for
 * what is wrong with it. Pure functions, but for config_address_socket(), which looks up an
 * interface; config.c is their caller and the next file to read.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
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

/* In the largest unit that leaves a whole number. */
static void scaled_text(int64_t number, const struct unit *units, size_t unit_count, char *buffer,
			size_t bytes)
{
	size_t i = unit_count - 1;

	while (i > 0 && (number == 0 || number % units[i].factor != 0))
		i--;
	snprintf(buffer, bytes, "%lld%s", (long long)(number / units[i].factor), units[i].name);
}

static void choice_text(const char *choices, int64_t number, char *buffer, size_t bytes)
{
	for (; number > 0; number--)
		choices += strcspn(choices, "|") + 1;
	snprintf(buffer, bytes, "%.*s", (int)strcspn(choices, "|"), choices);
}

char *config_value_text(const struct config_key *key, const struct config_value *value)
{
	char text[64];

	switch (key->type) {
	case CONFIG_TYPE_SIZE:
		scaled_text(value->number, size_units, COUNT(size_units), text, sizeof(text));
		break;
	case CONFIG_TYPE_TIME:
		scaled_text(value->number, time_units, COUNT(time_units), text, sizeof(text));
		break;
	case CONFIG_TYPE_NUMBER:
		snprintf(text, sizeof(text), "%lld", (long long)value->number);
		break;
	case CONFIG_TYPE_OCTAL:
		snprintf(text, sizeof(text), "%04llo", (unsigned long long)value->number);
		break;
	case CONFIG_TYPE_BOOL:
		return strdup(value->number ? "yes" : "no");
	case CONFIG_TYPE_ENUM:
		choice_text(key->unit, value->number, text, sizeof(text));
		break;
	case CONFIG_TYPE_PATH:
	case CONFIG_TYPE_TEXT:
		return strdup(value->text);
	}
	return strdup(text);
}

/* ---- addresses ---- */

#define ADDRESS_ALLOWED "allowed: 10.0.0.1, 10.0.0.1:7477, fd00::1, [fd00::1]:7477, fe80::1%%eth0"

static int address_wrong(const char *what)
{
	return err_set(-EINVAL, "%s; " ADDRESS_ALLOWED, what);
}

/* Cuts the port off; false if it is none. */
static bool port_cut(char *text, struct config_address *address)
{
	char *colon = strrchr(text, ':'), *close = strrchr(text, ']');
	size_t digits;
	unsigned long port;

	/* A second colon without brackets: they are all the address's. */
	if (!colon || (close && close > colon) || (!close && strchr(text, ':') != colon))
		return true;
	digits = strspn(colon + 1, "0123456789");
	port = strtoul(colon + 1, NULL, 10);
	if (digits < 1 || digits > 5 || colon[1 + digits] || port > 65535)
		return false;
	*colon = '\0';
	address->has_port = true;
	address->port = (uint16_t)port;
	return true;
}

/* `[...]` around it, and the scope behind it, are cut off; NULL when they are wrong. */
static char *host_cut(char *text, struct config_address *address)
{
	size_t length = strlen(text);
	char *percent;

	if (text[0] == '[') {
		if (text[length - 1] != ']')
			return NULL;
		text[length - 1] = '\0';
		text++;
		if (!strchr(text, ':'))
			return NULL;
	}
	percent = strchr(text, '%');
	if (!percent)
		return text;
	*percent++ = '\0';
	length = strlen(percent);
	if (length < 1 || length >= sizeof(address->scope) || !strchr(text, ':'))
		return NULL;
	memcpy(address->scope, percent, length + 1);
	return text;
}

static int address_parse(const char *text, bool any, struct config_address *ret_address)
{
	struct config_address address = {.family = AF_INET};
	struct in6_addr number = {0};
	char copy[256], *host;

	if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy) || !copy[0])
		return address_wrong("is no address");
	if (!port_cut(copy, &address))
		return address_wrong("does not end with a port of 0 to 65535");
	host = host_cut(copy, &address);
	if (!host)
		return address_wrong("is no address");
	if (strchr(host, ':'))
		address.family = AF_INET6;
	if (inet_pton(address.family, host, &number) != 1)
		return address_wrong("is no address; host names are not looked up: give an address "
				     "or a device");
	if (!any && IN6_IS_ADDR_UNSPECIFIED(&number)) /* an IPv4 one has zeros behind it */
		return address_wrong("stands for all addresses, and a listener has the memory "
				     "registered with one device: give the address of one, or "
				     "`device`");
	if (!address.scope[0] && address.family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&number))
		return address_wrong("is a link-local address: name its interface behind a %");
	inet_ntop(address.family, &number, address.host, sizeof(address.host));
	*ret_address = address;
	return 0;
}

int config_address_parse(const char *text, struct config_address *ret_address)
{
	return address_parse(text, false, ret_address);
}

int config_address_parse_any(const char *text, struct config_address *ret_address)
{
	return address_parse(text, true, ret_address);
}

int config_address_socket(const struct config_address *address, uint16_t port,
			  struct sockaddr_storage *ret_socket)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};

	if (address->scope[0]) {
		six.sin6_scope_id = if_nametoindex(address->scope);
		if (!six.sin6_scope_id)
			return err_set(-ENODEV,
				       "this host has no network interface %s; `ip link` lists "
				       "them",
				       address->scope);
	}
	memset(ret_socket, 0, sizeof(*ret_socket));
	if (address->family == AF_INET) {
		inet_pton(AF_INET, address->host, &four.sin_addr);
		memcpy(ret_socket, &four, sizeof(four));
	} else {
		inet_pton(AF_INET6, address->host, &six.sin6_addr);
		memcpy(ret_socket, &six, sizeof(six));
	}
	return 0;
}

uint16_t config_listen_port(const struct config_listen *listen)
{
	struct config_address address;

	if (listen->address.text[0] && config_address_parse(listen->address.text, &address) == 0 &&
	    address.has_port)
		return address.port;
	return (uint16_t)listen->port.number;
}

const char *config_listen_text(const struct config_listen *listen, char *buffer, size_t bytes)
{
	struct config_address address;
	uint16_t port = config_listen_port(listen);

	if (!config_listen_rdma(listen))
		snprintf(buffer, bytes, "%s", listen->path.text);
	else if (!listen->address.text[0] ||
		 config_address_parse(listen->address.text, &address) < 0)
		snprintf(buffer, bytes, "%s:%u", listen->device.text, port);
	else if (address.family == AF_INET)
		snprintf(buffer, bytes, "%s:%u", address.host, port);
	else
		snprintf(buffer, bytes, "[%s%s%s]:%u", address.host, address.scope[0] ? "%" : "",
			 address.scope, port);
	return buffer;
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
