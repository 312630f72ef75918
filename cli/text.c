/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * text.c - bytes to text and back
 *
 * Keys are any bytes, and what a terminal does with some of them is not what their owner sees in a
 * file name: so all that is not visible is escaped, whatever the locale says. Pure functions;
 * nothing here allocates or prints. Next to read: writer.c, which uses them for all output.
 */
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_WORD_BYTES 64 /* longer words are not compared */

/* ---- UTF-8 ---- */

/*
 * Decodes one character; returns its length, or 0 if the bytes are not UTF-8 (overlong, surrogate,
 * too large, cut).
 */
static size_t utf8_decode(const unsigned char *s, size_t n, uint32_t *ret_point)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = s[0] < 0x80       ? 1
			: s[0] >> 5 == 6  ? 2
			: s[0] >> 4 == 14 ? 3
			: s[0] >> 3 == 30 ? 4
					  : 0;
	uint32_t point;

	if (length == 0 || length > n)
		return 0;
	point = length == 1 ? s[0] : s[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		point = point << 6 | (s[i] & 0x3fu);
	}
	if (point < least[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
		return 0;
	*ret_point = point;
	return length;
}

bool text_is_utf8(const void *bytes, size_t n)
{
	const unsigned char *s = bytes;
	uint32_t point;

	for (size_t i = 0, length; i < n; i += length) {
		length = utf8_decode(s + i, n - i, &point);
		if (length == 0)
			return false;
	}
	return true;
}

/*
 * Has it a shape of its own? Controls have not; marks that turn the line around or have no width
 * would hide a name.
 */
static bool is_visible(uint32_t point)
{
	static const struct {
		uint32_t first, last;
	} hidden[] = {
		{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},       {0x34f, 0x34f},
		{0x61c, 0x61c},   {0x115f, 0x1160}, {0x17b4, 0x17b5},   {0x180b, 0x180f},
		{0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},   {0x3164, 0x3164},
		{0xe000, 0xf8ff}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
		{0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0x1bca0, 0x1bca3}, {0xe0000, 0x10ffff},
	};

	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (point >= hidden[i].first && point <= hidden[i].last)
			return false;
	return true;
}

/* ---- escapes ---- */

static char short_escape(unsigned char c)
{
	switch (c) {
	case '\\':
		return '\\';
	case '\n':
		return 'n';
	case '\r':
		return 'r';
	case '\t':
		return 't';
	}
	return 0;
}

static char *escape_byte(unsigned char c, char *out)
{
	static const char digits[] = "0123456789abcdef";

	*out++ = '\\';
	if (short_escape(c) != 0) {
		*out++ = short_escape(c);
		return out;
	}
	*out++ = 'x';
	*out++ = digits[c >> 4];
	*out++ = digits[c & 15];
	return out;
}

/*
 * Copies what is visible, escapes the rest, and backslashes too if they are to be told from
 * escapes.
 */
static size_t escape(const void *bytes, size_t n, bool backslashes, char *ret_text)
{
	const unsigned char *s = bytes;
	char *out = ret_text;

	for (size_t i = 0; i < n;) {
		uint32_t point = 0;
		size_t length = utf8_decode(s + i, n - i, &point);

		if (length == 0 || !is_visible(point) || (point == '\\' && backslashes)) {
			/*
			 * An invisible character of several bytes: its first byte now, and the rest
			 * is no UTF-8 then.
			 */
			out = escape_byte(s[i++], out);
			continue;
		}
		memcpy(out, s + i, length);
		out += length;
		i += length;
	}
	*out = '\0';
	return (size_t)(out - ret_text);
}

size_t text_escape(const void *bytes, size_t n, char *ret_text)
{
	return escape(bytes, n, true, ret_text);
}

size_t text_clean(const void *bytes, size_t n, char *ret_text)
{
	return escape(bytes, n, false, ret_text);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Reads what follows a backslash; returns how many characters that were, or 0. */
static size_t unescape_one(const char *s, unsigned char *ret_byte)
{
	/* bytes[4], the string's end, is what \0 stands for */
	static const char names[] = "\\nrt0", bytes[] = "\\\n\r\t";
	const char *name = *s != '\0' ? strchr(names, *s) : NULL;

	if (name != NULL) {
		*ret_byte = (unsigned char)bytes[name - names];
		return 1;
	}
	if (*s != 'x' || hex_digit(s[1]) < 0 || hex_digit(s[2]) < 0)
		return 0;
	*ret_byte = (unsigned char)(hex_digit(s[1]) << 4 | hex_digit(s[2]));
	return 3;
}

int text_unescape(const char *text, void *ret_bytes, size_t *ret_n)
{
	unsigned char *out = ret_bytes;

	while (*text != '\0') {
		size_t used;

		if (*text != '\\') {
			*out++ = (unsigned char)*text++;
			continue;
		}
		used = unescape_one(text + 1, out);
		if (used == 0)
			return -EINVAL;
		out++;
		text += used + 1;
	}
	*ret_n = (size_t)(out - (unsigned char *)ret_bytes);
	return 0;
}

/* ---- numbers ---- */

int text_parse_u64(const char *text, uint64_t max, uint64_t *ret_value)
{
	bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	uintmax_t value;
	char *end;

	/* strtoumax() would take a sign and leading space. */
	if (hex ? hex_digit(text[2]) < 0 : text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	value = strtoumax(text, &end, hex ? 16 : 10);
	if (*end != '\0')
		return -EINVAL;
	if (errno == ERANGE || value > max)
		return -ERANGE;
	*ret_value = value;
	return 0;
}

int text_parse_i64(const char *text, int64_t *ret_value)
{
	bool negative = text[0] == '-';
	uint64_t value;
	int status = text_parse_u64(text + (negative || text[0] == '+'),
				    (uint64_t)INT64_MAX + negative, &value);

	if (status == 0)
		*ret_value = negative ? (int64_t)(0 - value) : (int64_t)value;
	return status;
}

int text_parse_ms(const char *text, uint64_t max_ms, uint64_t *ret_ms)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
	char digits[24];
	size_t length = strspn(text, "0123456789");
	uint64_t value;

	if (length == 0)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(text + length, units[i].name) != 0)
			continue;
		if (length >= sizeof(digits))
			return -ERANGE;
		memcpy(digits, text, length);
		digits[length] = '\0';
		if (text_parse_u64(digits, max_ms / units[i].ms, &value) < 0)
			return -ERANGE;
		*ret_ms = value * units[i].ms;
		return 0;
	}
	return -EINVAL;
}

int text_parse_bytes(const char *text, uint64_t max, uint64_t *ret_bytes)
{
	static const struct {
		const char *name;
		unsigned shift;
	} units[] = {{"B", 0},    {"K", 10},   {"M", 20},   {"G", 30},  {"T", 40},
		     {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
	char digits[24];
	size_t length = strspn(text, "0123456789"), blanks = strspn(text + length, " ");
	const char *unit = text + length + blanks;
	uint64_t value;

	if (*unit == '\0' || text[length] == 'x' || text[length] == 'X')
		return text_parse_u64(text, max, ret_bytes);
	for (size_t i = 0; length > 0 && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(unit, units[i].name) != 0)
			continue;
		if (length >= sizeof(digits))
			return -ERANGE;
		memcpy(digits, text, length);
		digits[length] = '\0';
		if (text_parse_u64(digits, max >> units[i].shift, &value) < 0)
			return -ERANGE;
		*ret_bytes = value << units[i].shift;
		return 0;
	}
	return -EINVAL;
}

/* ---- for people ---- */

/* Up to three digits that matter: 1.25, 12.5, 125. */
static char *human(double value, const char *unit, char *ret_text)
{
	int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;

	snprintf(ret_text, TEXT_HUMAN_BYTES, "%.*f %s", decimals, value, unit);
	return ret_text;
}

char *text_human_size(uint64_t bytes, char ret_text[TEXT_HUMAN_BYTES])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	size_t unit = 0;

	/* 1023.5 of a unit would be shown as 1024. */
	while (value >= 1023.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	/* "64 MiB" when it is exactly that. */
	if ((double)(uint64_t)value == value)
		snprintf(ret_text, TEXT_HUMAN_BYTES, "%" PRIu64 " %s", (uint64_t)value,
			 units[unit]);
	else
		human(value, units[unit], ret_text);
	return ret_text;
}

char *text_human_ns(uint64_t ns, char ret_text[TEXT_HUMAN_BYTES])
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {
		{"ns", 1},     {"us", 1e3},   {"ms", 1e6},    {"s", 1e9},
		{"min", 60e9}, {"h", 3600e9}, {"d", 86400e9},
	};
	size_t unit = 0;
	double value;

	while (unit + 1 < sizeof(units) / sizeof(units[0]) &&
	       (double)ns >= units[unit + 1].ns * 0.9995)
		unit++;
	value = (double)ns / units[unit].ns;
	if ((double)(uint64_t)value == value)
		snprintf(ret_text, TEXT_HUMAN_BYTES, "%" PRIu64 " %s", (uint64_t)value,
			 units[unit].name);
	else
		human(value, units[unit].name, ret_text);
	return ret_text;
}

/* ---- the nearest word ---- */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Edits from a to b: insert, delete, replace, swap two neighbours (optimal string alignment). */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][TEXT_WORD_BYTES + 1], n = strlen(a), m = strlen(b);

	if (n > TEXT_WORD_BYTES || m > TEXT_WORD_BYTES)
		return SIZE_MAX;
	for (size_t j = 0; j <= m; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t *row = rows[i % 3], *above = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= m; j++) {
			row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]),
				       least(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], before[j - 2] + 1);
		}
	}
	return rows[n % 3][m];
}

const char *text_nearest(const char *text, const char *const *words)
{
	const char *best = NULL, *begun = NULL;
	size_t best_distance = SIZE_MAX, begun_count = 0;

	for (; *words != NULL; words++) {
		size_t d = distance(text, *words);

		if (d <= 2 && d * 2 < strlen(*words) && d < best_distance) {
			best = *words;
			best_distance = d;
		}
		if (strncmp(text, *words, strlen(text)) == 0) {
			begun = *words;
			begun_count++;
		}
	}
	if (begun_count == 1 && *text != '\0' && best_distance > 1)
		return begun;
	return best;
}
