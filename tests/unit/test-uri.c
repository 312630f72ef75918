/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-uri.c - what is a pool's URI and what is not
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "tarn/tarn.h"
#include "uri.h"

static void test_local(void **state)
{
	struct uri u;

	(void)state;
	assert_int_equal(uri_parse("tarn:/run/tarn/tarn.sock?pool=main", &u), 0);
	assert_string_equal(u.path, "/run/tarn/tarn.sock");
	assert_string_equal(u.pool, "main");
	assert_false(u.read_only);
	assert_int_equal(
		uri_parse("tarn:a%20b%3f?pool=x.y-z_1&readonly=1&timeout=250&key=/etc/k%26", &u),
		0);
	assert_string_equal(u.path, "a b?");
	assert_string_equal(u.key_file, "/etc/k&");
	assert_true(u.read_only);
	assert_int_equal(u.timeout_ms, 250);
}

static void test_remote(void **state)
{
	struct uri u;

	(void)state;
	assert_int_equal(uri_parse("tarn://node1/main", &u), 0);
	assert_string_equal(u.host, "node1");
	assert_int_equal(u.port, 0);
	assert_string_equal(u.path, "");
	assert_int_equal(uri_parse("tarn://node1:4567/main?readonly=0", &u), 0);
	assert_int_equal(u.port, 4567);
	assert_int_equal(uri_parse("tarn://[fe80::1%25eth0]:340/main", &u), 0);
	assert_string_equal(u.host, "fe80::1%eth0");
	assert_int_equal(u.port, 340);
	assert_int_equal(uri_parse("tarn://[::1]/main", &u), 0);
	assert_string_equal(u.host, "::1");
	assert_int_equal(u.port, 0);
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"tarn",
		"tarn:",
		"redis:/x?pool=a",
		"tarn:/x",
		"tarn:/x?pool=",
		"tarn:/x?pool=a/b",
		"tarn:/x?pool=a&pool=b",
		"tarn:/x?pool=a&color=red",
		"tarn:/x?pool",
		"tarn:/x?pool=a&readonly=2",
		"tarn:/x?pool=a&timeout=0",
		"tarn:/x?pool=a&timeout=3600001",
		"tarn:/x?pool=a&timeout=1s",
		"tarn:/x%?pool=a",
		"tarn:/x%4?pool=a",
		"tarn:/x%00?pool=a",
		"tarn:/x%zz?pool=a",
		"tarn:/x?pool=a&key=",
		"tarn://",
		"tarn://h",
		"tarn:///p",
		"tarn://h:/p",
		"tarn://h:0/p",
		"tarn://h:65536/p",
		"tarn://h:1x/p",
		"tarn://::1/p",
		"tarn://[::1/p",
		"tarn://[::1]x/p",
		"tarn://[]/p",
		"tarn://h/",
		"tarn://h/a b",
		"tarn:/x?pool=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	};
	char *longest = malloc(10000);
	struct uri u;
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err_clear();
		if (uri_parse(bad[i], &u) != -TARN_EURI)
			fail_msg("accepted: %s", bad[i]);
		assert_true(strlen(err_text()) > 5);
	}
	memset(longest, 'x', 9999);
	longest[9999] = 0;
	memcpy(longest, "tarn:", 5);
	assert_int_equal(uri_parse(longest, &u), -TARN_EURI);
	free(longest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_remote),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("uri", tests, NULL, NULL);
}
