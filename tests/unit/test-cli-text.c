/* SPDX-License-Identifier: BSD-2-Clause */
/* cli/text.h: escapes both ways for every byte, UTF-8, numbers, times, sizes, the nearest word. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/text.h"

static void check_escape(const char *bytes, size_t n, const char *expected)
{
	char text[256];

	assert_int_equal(text_escape(bytes, n, text), strlen(expected));
	assert_string_equal(text, expected);
}

static void test_escape(void **state)
{
	(void)state;
	check_escape("", 0, "");
	check_escape("plain /path-1.c", 15, "plain /path-1.c");
	check_escape("a\\b\n\r\t", 6, "a\\\\b\\n\\r\\t");
	check_escape("\0\x7f\x1b[0m", 6, "\\x00\\x7f\\x1b[0m");
	check_escape("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9,
		     "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
	/* cut, overlong, surrogate, beyond the last character */
	check_escape("\xc3", 1, "\\xc3");
	check_escape("\xc0\xaf", 2, "\\xc0\\xaf");
	check_escape("\xed\xa0\x80", 3, "\\xed\\xa0\\x80");
	check_escape("\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80");
	/* invisible ones: a C1 control, right-to-left override, zero width, byte order mark */
	check_escape("\xc2\x9b", 2, "\\xc2\\x9b");
	check_escape("\xe2\x80\xae", 3, "\\xe2\\x80\\xae");
	check_escape("\xe2\x80\x8b", 3, "\\xe2\\x80\\x8b");
	check_escape("\xef\xbb\xbf", 3, "\\xef\\xbb\\xbf");
}

/*
 * What is escaped is one printable line and comes back, for random bytes with a bent for the
 * difficult ones.
 */
static void test_round_trip(void **state)
{
	static const char odd[] = "\\xnrt0\n\r\t\0\x7f\xc3\xa9\xe2\x82\xac\xf0\x9f";
	unsigned int seed = 1;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		unsigned char bytes[24], back[4 * sizeof(bytes)];
		char text[TEXT_ESCAPED_BYTES(sizeof(bytes))];
		size_t n = (size_t)rand_r(&seed) % sizeof(bytes), back_n = 0, length;

		for (size_t i = 0; i < n; i++)
			bytes[i] =
				rand_r(&seed) % 2
					? (unsigned char)rand_r(&seed)
					: (unsigned char)odd[(size_t)rand_r(&seed) % sizeof(odd)];
		length = text_escape(bytes, n, text);
		assert_int_equal(length, strlen(text));
		assert_true(text_is_utf8(text, strlen(text)));
		for (size_t i = 0; text[i] != '\0'; i++)
			assert_true((unsigned char)text[i] >= ' ' && text[i] != 0x7f);
		assert_int_equal(text_unescape(text, back, &back_n), 0);
		assert_int_equal(back_n, n);
		assert_memory_equal(back, bytes, n);
	}
}

static void test_unescape(void **state)
{
	static const char *const wrong[] = {"\\",   "a\\",   "\\q",   "\\x",
					    "\\x1", "\\xg0", "\\x0g", "\\X41"};
	char bytes[32];
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(text_unescape(wrong[i], bytes, &n), -EINVAL);
	assert_int_equal(text_unescape("\\x41\\xfF\\0\\\\x", bytes, &n), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(bytes, "A\xff\0\\x", 5);
}

static void test_clean(void **state)
{
	char text[64];

	(void)state;
	text_clean("a\\b\x1b\n", 5, text);
	assert_string_equal(text, "a\\b\\x1b\\n");
}

static void test_numbers(void **state)
{
	static const char *const wrong[] = {"",   " 1", "+1",  "-1", "1 ",
					    "1x", "0x", "0xg", "x",  "1.0"};
	uint64_t value = 0;
	int64_t number = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(text_parse_u64(wrong[i], UINT64_MAX, &value), -EINVAL);
	assert_int_equal(text_parse_u64("18446744073709551615", UINT64_MAX, &value), 0);
	assert_true(value == UINT64_MAX);
	assert_int_equal(text_parse_u64("18446744073709551616", UINT64_MAX, &value), -ERANGE);
	assert_int_equal(text_parse_u64("0xff", 255, &value), 0);
	assert_int_equal(value, 255);
	assert_int_equal(text_parse_u64("256", 255, &value), -ERANGE);
	assert_int_equal(text_parse_u64("010", 255, &value), 0);
	assert_int_equal(value, 10);

	assert_int_equal(text_parse_i64("-9223372036854775808", &number), 0);
	assert_true(number == INT64_MIN);
	assert_int_equal(text_parse_i64("9223372036854775807", &number), 0);
	assert_true(number == INT64_MAX);
	assert_int_equal(text_parse_i64("+5", &number), 0);
	assert_int_equal(number, 5);
	assert_int_equal(text_parse_i64("9223372036854775808", &number), -ERANGE);
	assert_int_equal(text_parse_i64("-9223372036854775809", &number), -ERANGE);
	assert_int_equal(text_parse_i64("--5", &number), -EINVAL);
	assert_int_equal(text_parse_i64("-", &number), -EINVAL);
	assert_int_equal(text_parse_i64("", &number), -EINVAL);
}

static void test_times(void **state)
{
	static const char *const wrong[] = {"",     "5",  "s",    "5 s", "-5s",
					    "5sec", "5m", "1.5s", "5ss"};
	uint64_t ms = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(text_parse_ms(wrong[i], UINT64_MAX, &ms), -EINVAL);
	assert_int_equal(text_parse_ms("250ms", 1000, &ms), 0);
	assert_int_equal(ms, 250);
	assert_int_equal(text_parse_ms("30s", 30000, &ms), 0);
	assert_int_equal(ms, 30000);
	assert_int_equal(text_parse_ms("31s", 30999, &ms), -ERANGE);
	assert_int_equal(text_parse_ms("5min", UINT64_MAX, &ms), 0);
	assert_int_equal(ms, 300000);
	assert_int_equal(text_parse_ms("2h", UINT64_MAX, &ms), 0);
	assert_int_equal(text_parse_ms("1d", UINT64_MAX, &ms), 0);
	assert_int_equal(ms, 86400000);
	assert_int_equal(text_parse_ms("99999999999999999999999999s", UINT64_MAX, &ms), -ERANGE);
	assert_int_equal(text_parse_ms("18446744073709551615s", UINT64_MAX, &ms), -ERANGE);
}

static void check_bytes(const char *text, uint64_t expected)
{
	uint64_t bytes = 0;

	assert_int_equal(text_parse_bytes(text, UINT64_MAX, &bytes), 0);
	assert_int_equal(bytes, expected);
}

static void test_bytes(void **state)
{
	static const char *const wrong[] = {"",     "K",    "x",    "-1",    "1.5G", "5 ",  "5  ",
					    "4k",   "4KB",  "4Ki",  "4KiBx", "4K ",  " 4K", "0x",
					    "0x4K", "4E",   "4\tK", "+4",    "4KiB4"};
	static const char *const large[] = {"18446744073709551616", "16777216T", "16777216 TiB",
					    "99999999999999999999999999K"};
	uint64_t bytes = 7;

	(void)state;
	check_bytes("0", 0);
	check_bytes("4096", 4096);
	check_bytes("0x1000", 4096);
	check_bytes("512 B", 512);
	check_bytes("4K", 4096);
	check_bytes("4KiB", 4096);
	check_bytes("4 KiB", 4096);
	check_bytes("3M", 3 << 20);
	check_bytes("1GiB", 1 << 30);
	check_bytes("2T", 2ull << 40);
	check_bytes("16777215TiB", 16777215ull << 40);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(text_parse_bytes(wrong[i], UINT64_MAX, &bytes), -EINVAL);
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
		assert_int_equal(text_parse_bytes(large[i], UINT64_MAX, &bytes), -ERANGE);
	assert_int_equal(text_parse_bytes("4K", 4095, &bytes), -ERANGE);
	assert_int_equal(bytes, 7);
	assert_int_equal(text_parse_bytes("4K", 4096, &bytes), 0);
}

static void test_human(void **state)
{
	char text[TEXT_HUMAN_BYTES];

	(void)state;
	assert_string_equal(text_human_size(0, text), "0 B");
	assert_string_equal(text_human_size(1023, text), "1023 B");
	assert_string_equal(text_human_size(1024, text), "1 KiB");
	assert_string_equal(text_human_size(1536, text), "1.50 KiB");
	assert_string_equal(text_human_size(1048575, text), "1.00 MiB");
	assert_string_equal(text_human_size(64 << 20, text), "64 MiB");
	assert_string_equal(text_human_size(UINT64_MAX, text), "16 EiB");
	assert_string_equal(text_human_ns(0, text), "0 ns");
	assert_string_equal(text_human_ns(999, text), "999 ns");
	assert_string_equal(text_human_ns(1234, text), "1.23 us");
	assert_string_equal(text_human_ns(12345678, text), "12.3 ms");
	assert_string_equal(text_human_ns(1000000000, text), "1 s");
	assert_string_equal(text_human_ns(90000000000, text), "1.50 min");
}

static void test_nearest(void **state)
{
	static const char *const words[] = {"import", "export", "put",    "get",   "del",
					    "add",    "keys",   "exists", "stats", NULL};

	(void)state;
	assert_string_equal(text_nearest("improt", words), "import");
	assert_string_equal(text_nearest("exprt", words), "export");
	assert_string_equal(text_nearest("kyes", words), "keys");
	assert_string_equal(text_nearest("gett", words), "get");
	assert_string_equal(text_nearest("stat", words), "stats");
	assert_string_equal(text_nearest("imp", words), "import");
	assert_null(text_nearest("ex", words));
	assert_null(text_nearest("wibble", words));
	assert_null(text_nearest("", words));
	assert_null(text_nearest(
		"a-very-long-word-a-very-long-word-a-very-long-word-a-very-long-word-a", words));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_escape),   cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_unescape), cmocka_unit_test(test_clean),
		cmocka_unit_test(test_numbers),  cmocka_unit_test(test_times),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_human),    cmocka_unit_test(test_nearest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
