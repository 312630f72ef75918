/* SPDX-License-Identifier: BSD-2-Clause */
/* err.h: texts per thread, long texts, and that every code of tarn.h has words and a symbol. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tarn/tarn.h>

#include "err.h"

static void test_set(void **state)
{
	(void)state;
	err_clear();
	assert_string_equal(err_text(), "");
	errno = EPIPE;
	assert_int_equal(err_set(-TARN_ENOPOOL, "no pool '%s' (%d known)", "x", 3), -TARN_ENOPOOL);
	assert_int_equal(errno, EPIPE);
	assert_string_equal(err_text(), "no pool 'x' (3 known)");
	assert_int_equal(err_set(-ENOMEM, "again: %s", err_text()), -ENOMEM);
	assert_string_equal(err_text(), "again: no pool 'x' (3 known)");
	err_clear();
	assert_string_equal(err_text(), "");
}

/* What is said aside does not reach the text that was there, and is not left either. */
static void test_aside(void **state)
{
	(void)state;
	err_set(-EPIPE, "of the call");
	assert_false(err_aside(true));
	assert_int_equal(err_set(-ENOMEM, "beside %s", "it"), -ENOMEM);
	assert_string_equal(err_text(), "beside it");
	assert_true(err_aside(true));
	err_clear();
	assert_true(err_aside(false));
	assert_string_equal(err_text(), "of the call");
}

static void test_long(void **state)
{
	char longer[2 * ERR_TEXT_BYTES];

	(void)state;
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	err_set(-EINVAL, "%s", longer);
	assert_int_equal(strlen(err_text()), ERR_TEXT_BYTES - 1);
	assert_memory_equal(err_text(), longer, ERR_TEXT_BYTES - 1);
}

static void *other_thread(void *arg)
{
	if (strcmp(err_text(), "") != 0)
		return arg;
	err_set(-EIO, "the other's");
	return strcmp(err_text(), "the other's") == 0 ? NULL : arg;
}

static void test_threads(void **state)
{
	pthread_t thread;
	void *failed;
	int dummy;

	(void)state;
	err_set(-EINVAL, "mine");
	assert_int_equal(pthread_create(&thread, NULL, other_thread, &dummy), 0);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_string_equal(err_text(), "mine");
}

/* The codes are read out of tarn.h itself: the test can not forget one. */
static void test_all_codes(void **state)
{
	const char *source = getenv("TARN_SRCDIR");
	char path[4096], line[512], name[64];
	unsigned int codes = 0;
	FILE *header;
	int code;

	(void)state;
	snprintf(path, sizeof(path), "%s/client/include/tarn/tarn.h", source ? source : ".");
	header = fopen(path, "re");
	if (!header)
		fail_msg("can not open %s: set TARN_SRCDIR", path);
	while (fgets(line, sizeof(line), header)) {
		if (sscanf(line, " TARN_%60[A-Z] = %d,", name, &code) != 2)
			continue;
		codes++;
		memmove(name + 5, name, sizeof(name) - 5);
		memcpy(name, "TARN_", 5);
		name[sizeof(name) - 1] = '\0';
		assert_true(code > 1000);
		assert_string_equal(err_name(-code), name);
		assert_string_equal(err_name(code), name);
		assert_string_not_equal(err_string(-code), "unknown error");
		assert_string_equal(err_string(code), err_string(-code));
	}
	fclose(header);
	assert_true(codes >= 24);
}

static void test_system_codes(void **state)
{
	(void)state;
	assert_string_equal(err_string(-ENOENT), "No such file or directory");
	assert_string_equal(err_name(-ENOENT), "ENOENT");
	assert_string_equal(err_name(EACCES), "EACCES");
	assert_string_equal(err_name(0), "OK");
	assert_non_null(err_string(0));
}

static void test_unknown_codes(void **state)
{
	static const int odd[] = {-999999, 999999, -1000, -1299, INT_MIN, INT_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		assert_string_equal(err_string(odd[i]), "unknown error");
		assert_string_equal(err_name(odd[i]), "UNKNOWN");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),	     cmocka_unit_test(test_aside),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_threads),	     cmocka_unit_test(test_all_codes),
		cmocka_unit_test(test_system_codes), cmocka_unit_test(test_unknown_codes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
