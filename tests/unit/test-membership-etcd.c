/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/membership-etcd-message.c: what etcd's gateway is asked, and what is made of its answers. The answers are as etcd 3.4 gives
 * them; tests/integration/test-membership.py has the rest of membership by etcd, with real ones.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "err.h"
#include "membership-etcd-client.h"
#include "membership-etcd-message.h"

#define HEADER "\"header\":{\"cluster_id\":\"14841639068965178418\",\"member_id\":\"1\",\"revision\":\"505\",\"raft_term\":\"2\"}"
/* "/tarn/c/map" -> "{}" */
#define KV "{\"key\":\"L3Rhcm4vYy9tYXA=\",\"create_revision\":\"2\",\"mod_revision\":\"504\",\"version\":\"3\",\"value\":\"e30=\"}"

static struct etcd_answer parsed(const char *text)
{
	struct etcd_answer answer;

	if (etcd_answer_parse(text, strlen(text), &answer) < 0)
		fail_msg("%s: %s", text, err_text());
	return answer;
}

static void test_range(void **state)
{
	struct etcd_answer answer = parsed("{" HEADER ",\"kvs\":[" KV "],\"count\":\"1\"}");

	(void)state;
	assert_true(answer.cluster == 14841639068965178418u); /* beyond JSON's integers */
	assert_int_equal(answer.revision, 505);
	assert_int_equal(answer.code, ETCD_OK);
	assert_int_equal(answer.count, 1);
	assert_string_equal(answer.kvs[0].key, "/tarn/c/map");
	assert_string_equal(answer.kvs[0].value, "{}");
	assert_int_equal(answer.kvs[0].bytes, 2);
	assert_int_equal(answer.kvs[0].create_revision, 2);
	assert_int_equal(answer.kvs[0].mod_revision, 504);
	assert_false(answer.kvs[0].deleted);
	etcd_answer_free(&answer);
	answer = parsed("{" HEADER "}"); /* nothing there */
	assert_int_equal(answer.count, 0);
	etcd_answer_free(&answer);
}

static void test_transaction(void **state)
{
	struct etcd_answer answer = parsed("{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{" HEADER "}}]}");

	(void)state;
	assert_true(answer.succeeded);
	etcd_answer_free(&answer);
	/* false is left out */
	answer = parsed("{" HEADER ",\"responses\":[{\"response_range\":{" HEADER ",\"kvs\":[" KV "],\"count\":\"1\"}}]}");
	assert_false(answer.succeeded);
	assert_int_equal(answer.count, 1);
	assert_int_equal(answer.kvs[0].mod_revision, 504);
	etcd_answer_free(&answer);
}

static void test_lease(void **state)
{
	struct etcd_answer answer = parsed("{" HEADER ",\"ID\":\"7587857329361223435\",\"TTL\":\"10\"}");

	(void)state;
	assert_true(answer.lease == 7587857329361223435u);
	assert_int_equal(answer.ttl, 10);
	etcd_answer_free(&answer);
	answer = parsed("{\"result\":{" HEADER ",\"ID\":\"5\",\"TTL\":\"10\"}}");
	assert_int_equal(answer.ttl, 10);
	etcd_answer_free(&answer);
	answer = parsed("{\"result\":{" HEADER ",\"ID\":\"5\"}}"); /* it has ended */
	assert_int_equal(answer.ttl, 0);
	etcd_answer_free(&answer);
}

static void test_watch(void **state)
{
	struct etcd_answer answer = parsed("{\"result\":{" HEADER ",\"created\":true}}");

	(void)state;
	assert_true(answer.created && answer.count == 0);
	etcd_answer_free(&answer);
	answer = parsed("{\"result\":{" HEADER ",\"events\":[{\"kv\":" KV "},{\"type\":\"DELETE\",\"kv\":"
			"{\"key\":\"eA==\",\"mod_revision\":\"505\"}}]}}");
	assert_int_equal(answer.count, 2);
	assert_false(answer.kvs[0].deleted);
	assert_true(answer.kvs[1].deleted);
	assert_string_equal(answer.kvs[1].key, "x");
	assert_null(answer.kvs[1].value);
	etcd_answer_free(&answer);
	answer = parsed("{\"result\":{" HEADER ",\"canceled\":true,\"compact_revision\":\"400\"}}");
	assert_true(answer.canceled && answer.compact_revision == 400);
	etcd_answer_free(&answer);
}

static void test_errors(void **state)
{
	struct etcd_answer answer =
		parsed("{\"error\":\"etcdserver: no leader\",\"message\":\"etcdserver: no leader\",\"code\":14}");

	(void)state;
	assert_int_equal(answer.code, ETCD_UNAVAILABLE);
	assert_string_equal(answer.error, "etcdserver: no leader");
	etcd_answer_free(&answer);
	answer = parsed("{\"error\":{\"grpc_code\":16,\"http_code\":401,\"message\":\"etcdserver: invalid auth token\"}}");
	assert_int_equal(answer.code, ETCD_UNAUTHENTICATED);
	assert_string_equal(answer.error, "etcdserver: invalid auth token");
	etcd_answer_free(&answer);
	answer = parsed("{\"error\":{}}"); /* never taken for success */
	assert_int_equal(answer.code, ETCD_UNKNOWN);
	etcd_answer_free(&answer);
}

static void test_strange(void **state)
{
	static const char *const texts[] = {
		"", "garbage", "[]", "\"x\"", "{", "{\"header\":{\"revision\":\"-1\"}}", "{\"header\":{\"revision\":\"1x\"}}",
		"{\"header\":{\"revision\":\"99999999999999999999\"}}", "{\"header\":{\"cluster_id\":1.5}}", "{\"TTL\":true}",
		"{\"kvs\":[{\"key\":\"!\"}]}", "{\"kvs\":[{}]}", "{\"kvs\":[1]}", "{\"kvs\":[{\"key\":\"YQBi\"}]}",
		"{\"kvs\":[{\"key\":\"eA==\",\"value\":7}]}", "{\"kvs\":[{\"key\":\"eA==\",\"value\":\"e30\"}]}",
		"{\"result\":{\"events\":[{\"type\":\"DELETE\"}]}}", "{\"token\":\"a\\r\\nHost: b\"}",
	};
	struct etcd_answer answer;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		err_clear();
		if (etcd_answer_parse(texts[i], strlen(texts[i]), &answer) != -EINVAL)
			fail_msg("%s was taken", texts[i]);
		assert_non_null(strstr(err_text(), "the answer is not one of etcd"));
	}
	assert_int_equal(etcd_answer_parse("{}", (size_t)ETCD_ANSWER_MAX + 1, &answer), -EINVAL);
}

static void same(char *text, const char *expected)
{
	assert_string_equal(text, expected);
	free(text);
}

static void test_requests(void **state)
{
	const struct etcd_compare compares[] = {{"x", true, 0}, {"y", false, 77}};

	(void)state;
	same(etcd_range("x", NULL, true), "{\"key\":\"eA==\",\"keys_only\":true}");
	same(etcd_range("x", "y", false), "{\"key\":\"eA==\",\"range_end\":\"eQ==\"}");
	same(etcd_watch("x", "y", 506),
	     "{\"create_request\":{\"key\":\"eA==\",\"range_end\":\"eQ==\",\"start_revision\":\"506\",\"progress_notify\":true}}");
	same(etcd_grant(10), "{\"TTL\":\"10\"}");
	same(etcd_lease(7587857329361223435u), "{\"ID\":\"7587857329361223435\"}");
	same(etcd_authenticate("u", "a\"b"), "{\"name\":\"u\",\"password\":\"a\\\"b\"}");
	same(etcd_transaction(compares, 2, "x", "{}", 2, 5, "z"),
	     "{\"compare\":[{\"target\":\"CREATE\",\"result\":\"EQUAL\",\"key\":\"eA==\",\"create_revision\":\"0\"},"
	     "{\"target\":\"MOD\",\"result\":\"EQUAL\",\"key\":\"eQ==\",\"mod_revision\":\"77\"}],"
	     "\"success\":[{\"request_put\":{\"key\":\"eA==\",\"value\":\"e30=\",\"lease\":\"5\"}}],"
	     "\"failure\":[{\"request_range\":{\"key\":\"eg==\"}}]}");
	same(etcd_transaction(compares, 1, "x", "", 0, 0, NULL),
	     "{\"compare\":[{\"target\":\"CREATE\",\"result\":\"EQUAL\",\"key\":\"eA==\",\"create_revision\":\"0\"}],"
	     "\"success\":[{\"request_put\":{\"key\":\"eA==\",\"value\":\"\"}}],\"failure\":[]}");
	same(etcd_prefix_end("/tarn/c/"), "/tarn/c0");
}

/* ---- settings ---- */

static struct config *config_of(const char *more)
{
	struct config_errors errors = {0};
	struct config *config = NULL;
	char text[1024];

	snprintf(text, sizeof(text),
		 "[listen l]\npath = /l\n[pool main]\nsize = 8M\n[cluster]\nname = c\nmember = m\nmembership = etcd\n%s", more);
	assert_int_equal(config_parse("t.conf", text, strlen(text), &errors, &config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	return config;
}

static void refused(const char *more, const char *text)
{
	struct config *config = config_of(more);
	struct etcd_settings settings;

	assert_true(etcd_settings_load(&config->cluster, &settings) < 0);
	if (strncmp(err_text(), text, strlen(text)) != 0)
		fail_msg("'%s' does not begin with '%s'", err_text(), text);
	config_free(config);
}

static void test_settings(void **state)
{
	char path[] = "/tmp/tarn-test-password-XXXXXX", more[256];
	struct etcd_settings settings;
	struct config *config;
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(write(fd, "pass word\nrest", 14), 14);
	snprintf(more, sizeof(more), "etcd_endpoints = http://a, b\netcd_user = u\netcd_password_file = %s\n", path);
	config = config_of(more);
	assert_int_equal(etcd_settings_load(&config->cluster, &settings), 0);
	assert_int_equal(settings.count, 2);
	assert_null(settings.tls);
	assert_string_equal(settings.user, "u");
	assert_string_equal(settings.password, "pass word");
	etcd_settings_free(&settings);
	config_free(config);
	fchmod(fd, 0644);
	refused(more, "etcd_password_file = /tmp/tarn-test-password-");
	assert_non_null(strstr(err_text(), "chmod 600"));
	fchmod(fd, 0600);
	assert_int_equal(ftruncate(fd, 0), 0);
	refused(more, "etcd_password_file = /tmp/tarn-test-password-");
	assert_non_null(strstr(err_text(), "a password of 1 to 512 bytes"));
	close(fd);
	unlink(path);
	refused("etcd_endpoints = https://a\netcd_ca = /no/ca\n", "etcd_ca = /no/ca: can not be read: No such file");
	refused("etcd_endpoints = https://a\netcd_ca = /etc/passwd\n", "etcd_ca = /etc/passwd: ");
	assert_non_null(strstr(err_text(), "it has to hold certificates in PEM"));
	refused("etcd_endpoints = https://a\netcd_cert = /etc/passwd\netcd_key = /no/key\n",
		"etcd_key = /no/key: can not be read");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_transaction),
		cmocka_unit_test(test_lease),
		cmocka_unit_test(test_watch),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_strange),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_settings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
