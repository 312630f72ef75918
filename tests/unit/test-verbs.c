/* SPDX-License-Identifier: BSD-2-Clause */
/* The time rule T3 and the texts of common/verbs.h. No device is needed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "verbs.h"

#define MS 1000000ull

static int choose(int16_t ack_timeout, int16_t retries, uint64_t room_ns, unsigned *ret_ack_timeout,
		  unsigned *ret_retries)
{
	struct fabric_settings settings = FABRIC_SETTINGS_INIT;

	settings.ack_timeout = ack_timeout;
	settings.retries = retries;
	*ret_ack_timeout = *ret_retries = 99;
	err_clear();
	return verbs_timeout_choose(&settings, 100 * MS, 100 * MS + room_ns, ret_ack_timeout,
				    ret_retries);
}

static void test_late(void **state)
{
	(void)state;
	/* 4 * 4.096 us * 2^11 * 8 */
	assert_int_equal(verbs_late_ns(11, 7), 268435456);
	assert_int_equal(verbs_late_ns(1, 0), 32768);
	assert_int_equal(verbs_late_ns(31, 7), (4ull * 4096 * 8) << 31);
}

static void test_defaults(void **state)
{
	unsigned ack_timeout, retries;

	(void)state;
	assert_int_equal(choose(0, -1, 400 * MS, &ack_timeout, &retries), 0);
	assert_int_equal(ack_timeout, VERBS_ACK_TIMEOUT);
	assert_int_equal(retries, VERBS_RETRIES);
	/* less room: first the timeout, then the retries */
	assert_int_equal(choose(0, -1, 100 * MS, &ack_timeout, &retries), 0);
	assert_int_equal(ack_timeout, 9);
	assert_int_equal(retries, VERBS_RETRIES);
	assert_int_equal(choose(0, -1, 100000, &ack_timeout, &retries), 0);
	assert_int_equal(ack_timeout, 1);
	assert_int_equal(retries, 2);
	assert_int_equal(choose(0, -1, 32768, &ack_timeout, &retries), -EINVAL);
	assert_non_null(strstr(err_text(), "grace"));
	assert_int_equal(ack_timeout, 99);
	assert_int_equal(choose(0, -1, 0, &ack_timeout, &retries), -EINVAL);
}

static void test_given(void **state)
{
	unsigned ack_timeout, retries;

	(void)state;
	assert_int_equal(choose(12, -1, 400 * MS, &ack_timeout, &retries), 0);
	assert_int_equal(ack_timeout, 12);
	assert_int_equal(retries, 4); /* 5 would be 402 ms */
	assert_int_equal(choose(0, 3, 400 * MS, &ack_timeout, &retries), 0);
	assert_int_equal(ack_timeout, VERBS_ACK_TIMEOUT);
	assert_int_equal(retries, 3);
	assert_int_equal(choose(14, 0, 400 * MS, &ack_timeout, &retries), 0);
	assert_int_equal(ack_timeout, 14);
	assert_int_equal(retries, 0);
	/* exactly the room is too much: "before", not "at" */
	assert_int_equal(choose(11, 6, 234881024, &ack_timeout, &retries), -EINVAL);
	assert_int_equal(choose(11, 6, 234881025, &ack_timeout, &retries), 0);
}

/* The text names value, rule, and what would do. */
static void test_refused(void **state)
{
	unsigned ack_timeout, retries;

	(void)state;
	assert_int_equal(choose(14, 6, 400 * MS, &ack_timeout, &retries), -EINVAL);
	assert_non_null(strstr(err_text(), "ack_timeout 14 with 6 retries"));
	assert_non_null(strstr(err_text(), "ack_timeout 11 at most"));
	assert_non_null(strstr(err_text(), "400000 us"));
	assert_int_equal(choose(31, -1, 400 * MS, &ack_timeout, &retries), -EINVAL);
	assert_non_null(strstr(err_text(), "ack_timeout 14 at most"));
	assert_int_equal(choose(32, -1, 400 * MS, &ack_timeout, &retries), -EINVAL);
	assert_non_null(strstr(err_text(), "1 to 31"));
	assert_int_equal(choose(-1, -1, 400 * MS, &ack_timeout, &retries), -EINVAL);
	assert_int_equal(choose(0, 7, 400 * MS, &ack_timeout, &retries), -EINVAL);
	assert_non_null(strstr(err_text(), "0 to 6"));
	assert_int_equal(choose(0, -2, 400 * MS, &ack_timeout, &retries), -EINVAL);
}

/* Says more than the name, and is not the text of a value that is unknown. */
static void check_text(const char *text, const char *unknown)
{
	assert_non_null(text);
	assert_true(strlen(text) >= 4);
	assert_string_not_equal(text, unknown);
}

static void test_status_texts(void **state)
{
	const char *name = verbs_status_name((enum ibv_wc_status)4711);
	const char *text = verbs_status_text((enum ibv_wc_status)4711);

	(void)state;
	assert_string_equal(name, "UNKNOWN");
	assert_true(strlen(text) > 10);
	for (int i = IBV_WC_SUCCESS; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++) {
		check_text(verbs_status_name((enum ibv_wc_status)i), name);
		check_text(verbs_status_text((enum ibv_wc_status)i), text);
		for (int j = 0; j < i; j++)
			assert_string_not_equal(verbs_status_name((enum ibv_wc_status)i),
						verbs_status_name((enum ibv_wc_status)j));
	}
	assert_string_equal(verbs_status_name(IBV_WC_RETRY_EXC_ERR), "RETRY_EXC_ERR");
}

/* Text without line breaks. */
static void unfold(char *text)
{
	for (; *text; text++)
		if (text[0] == '\n' && text[1] != '\n' && text[1] != '#' && text[1] != '\0')
			*text = ' ';
}

/* The operator's guide has each status, in the words of the messages. */
static void test_guide(void **state)
{
	const char *source = getenv("TARN_SRCDIR");
	char path[4096], page[32768], entry[1024];
	FILE *file;

	(void)state;
	snprintf(path, sizeof(path), "%s/docs/guide/troubleshooting.md", source ? source : ".");
	file = fopen(path, "r");
	assert_non_null(file);
	page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
	fclose(file);
	unfold(page);
	for (int i = IBV_WC_SUCCESS + 1; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++) {
		/* unfold() has made a blank of the second of two newlines */
		snprintf(entry, sizeof(entry), "### %s\n %s\n",
			 verbs_status_name((enum ibv_wc_status)i),
			 verbs_status_text((enum ibv_wc_status)i));
		if (!strstr(page, entry))
			fail_msg("docs/guide/troubleshooting.md does not have:\n%s", entry);
	}
}

static void test_event_texts(void **state)
{
	const char *name = verbs_event_name((enum rdma_cm_event_type)4711);
	const char *text = verbs_event_text((enum rdma_cm_event_type)4711);

	(void)state;
	assert_string_equal(name, "UNKNOWN");
	assert_true(strlen(text) > 10);
	for (int i = RDMA_CM_EVENT_ADDR_RESOLVED; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; i++) {
		check_text(verbs_event_name((enum rdma_cm_event_type)i), name);
		check_text(verbs_event_text((enum rdma_cm_event_type)i), text);
	}
	assert_string_equal(verbs_event_name(RDMA_CM_EVENT_ROUTE_ERROR), "ROUTE_ERROR");
}

static void test_async_texts(void **state)
{
	const char *text = verbs_async_text((enum ibv_event_type)4711);

	(void)state;
	assert_true(strlen(text) > 10);
	for (int i = IBV_EVENT_CQ_ERR; i <= IBV_EVENT_WQ_FATAL; i++)
		check_text(verbs_async_text((enum ibv_event_type)i), text);
}

static void test_reject_texts(void **state)
{
	(void)state;
	for (int i = -200; i < 200; i++) {
		assert_true(strlen(verbs_reject_text(i, false)) > 10);
		assert_true(strlen(verbs_reject_text(i, true)) > 10);
	}
	assert_non_null(strstr(verbs_reject_text(8, false), "nobody listens"));
	assert_non_null(strstr(verbs_reject_text(-ECONNREFUSED, true), "nobody listens"));
}

/* Whatever this machine has: an answer, and with a refusal its reason. */
static void test_available(void **state)
{
	int ret;

	(void)state;
	err_clear();
	ret = verbs_available();
	assert_true(ret == 0 || ret == -ENODEV || ret == -EACCES || ret == -ENOSYS);
	assert_true((ret == 0) == (err_text()[0] == 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),         cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_given),        cmocka_unit_test(test_refused),
		cmocka_unit_test(test_status_texts), cmocka_unit_test(test_event_texts),
		cmocka_unit_test(test_async_texts),  cmocka_unit_test(test_reject_texts),
		cmocka_unit_test(test_available),    cmocka_unit_test(test_guide),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
