/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/quota.c and the client's part of it: what is used up is told, heeded, and given free again. */
#include <errno.h>
#include <fcntl.h>

#include "keeper-fixture.h"
#include "reload-keys.h"

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static const char *cut_why;

static void key_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void open_with(struct kept *k, const char *keys)
{
	char path[] = "/tmp/tarn-test-quota-XXXXXX", more[128];
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	key_file(path, keys);
	snprintf(more, sizeof(more), "auth = key\nkey_file = %s\n", path);
	kept_open(k, more);
	unlink(path);
	session_free(k->session);
	k->session = kept_session(k, "app");
}

static void told(struct kept *k)
{
	kept_pass(k, 3000);
	kept_process(k->session);
}

static int load(const char *text, struct auth_keys *ret_keys)
{
	char path[] = "/tmp/tarn-test-quota-XXXXXX";
	int fd = mkstemp(path), rc;

	close(fd);
	key_file(path, text);
	rc = auth_keys_load(path, ret_keys);
	unlink(path);
	return rc;
}

static void test_file(void **state)
{
	static const char *const wrong[] = {"keys=0",   "keys=1K",  "keys=",	"bytes=4X",
					    "pages=50", "pages=0%", "pages=101%", "pages=%",
					    "bytes=2000T", "keys=-1", "more=1",  "pages=1000000000%",
					    "keys=5 keys=6", "bytes=1G bytes=1G", "pages=1% pages=2%"};
	struct auth_keys keys;
	const char *word;
	char line[160];

	(void)state;
	assert_int_equal(load("app write " SECRET " keys=1000 bytes=4G pages=25% # ours\n"
			      "other read " SECRET "\n",
			      &keys),
			 0);
	assert_int_equal(keys.keys[0].quota.keys, 1000);
	assert_int_equal(keys.keys[0].quota.bytes, 4ull << 30);
	assert_int_equal(keys.keys[0].quota.pages_percent, 25);
	assert_int_equal(keys.keys[1].quota.keys, 0);
	auth_keys_free(&keys);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(line, sizeof(line), "app write " SECRET " %s\n", wrong[i]);
		assert_int_equal(load(line, &keys), -EINVAL);
		/* of two words it is the last one that is wrong */
		word = strrchr(wrong[i], ' ');
		assert_non_null(strstr(err_text(), word ? word + 1 : wrong[i]));
	}
}

static void test_keys(void **state)
{
	struct kept k;

	(void)state;
	open_with(&k, "app write " SECRET " keys=50\nother write " SECRET "\n");
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(kept_put(k.session, i, 100, 0), 0);
	told(&k);
	assert_int_equal(kept_stats(&k).quotas[0].used.keys, 50);
	assert_int_equal(kept_stats(&k).quotas[0].limits, LAYOUT_LIMIT_KEYS);
	assert_int_equal(kept_put(k.session, 50, 100, 0), -TARN_EQUOTA);
	assert_non_null(strstr(err_text(), "app"));
	assert_non_null(strstr(err_text(), "50 of 50"));
	assert_int_equal(tarn_add(k.session, "counter", 7, 1, NULL), -TARN_EQUOTA);
	assert_int_equal(kept_put(k.session, 1, 200, 0), 0); /* also larger: bytes are no affair */
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(tarn_delete(k.session, i ? "key1" : "key0", 4), 0);
	told(&k);
	assert_int_equal(kept_put(k.session, 50, 100, 0), -TARN_EQUOTA); /* a sixteenth at least */
	for (unsigned i = 2; i < 4; i++)
		assert_int_equal(tarn_delete(k.session, i == 2 ? "key2" : "key3", 4), 0);
	told(&k);
	assert_int_equal(kept_put(k.session, 50, 100, 0), 0);
	assert_int_equal(kept_stats(&k).quotas[1].used.keys, 0);
	kept_close(&k);
}

static void test_bytes(void **state)
{
	struct kept k;

	(void)state;
	open_with(&k, "app write " SECRET " bytes=10K\n");
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(kept_put(k.session, i, 1020, 0), 0);
	told(&k);
	assert_int_equal(kept_stats(&k).quotas[0].used.bytes, 10240);
	assert_int_equal(kept_put(k.session, 10, 1, 0), -TARN_EQUOTA);
	assert_int_equal(kept_put(k.session, 3, 1021, 0), -TARN_EQUOTA);
	assert_int_equal(kept_put(k.session, 3, 1020, 0), 0);
	assert_int_equal(kept_put(k.session, 3, 10, 0), 0);
	told(&k);
	assert_int_equal(kept_put(k.session, 10, 1, 0), 0);
	kept_close(&k);
}

static void cut(void *peer, const char *why)
{
	(void)peer;
	cut_why = why;
}

/* 8 MiB have about 30 pages. */
static void test_pages(void **state)
{
	struct pool_client *client;
	uint32_t slot;
	struct kept k;

	(void)state;
	open_with(&k, "app write " SECRET " pages=1%\n");
	slot = k.session->identity.client_slot;
	client = &k.pool->clients[slot];
	client->cut = cut;
	assert_int_equal(kept_put(k.session, 1, 100, 0), 0);
	kept_pass(&k, 1000);
	assert_int_equal(kept_stats(&k).quotas[0].quota.pages, 1);
	assert_int_equal(kept_stats(&k).quotas[0].used.pages, 1);
	assert_int_equal(kept_put(k.session, 2, 3000, 0), -TARN_EQUOTA); /* seen when it claims */
	assert_non_null(strstr(err_text(), "1 of 1"));
	assert_int_equal(kept_put(k.session, 2, 100, 0), 0); /* has a page for that */
	kept_process(k.session);                             /* gives it back */
	kept_pass(&k, 1000);
	assert_int_equal(kept_put(k.session, 2, 3000, 0), 0);
	cut_why = NULL;
	kept_pass(&k, 10000);
	assert_null(cut_why); /* one page is what it may have */
	for (uint32_t page = 10; page < 30; page++)
		fixture_page(k.pool, page, LAYOUT_PAGE_SLAB, 10, slot);
	kept_pass(&k, 4000);
	assert_null(cut_why); /* some time to obey */
	kept_pass(&k, 4000);
	assert_non_null(cut_why);
	kept_close(&k);
}

/* SIGHUP: other numbers, the same counts; a key that is new. */
static void test_reload(void **state)
{
	struct quota *quota;
	struct auth_keys keys;
	struct kept k;

	(void)state;
	open_with(&k, "app write " SECRET " keys=10\n");
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(kept_put(k.session, i, 100, 0), 0);
	told(&k);
	assert_int_equal(kept_put(k.session, 10, 100, 0), -TARN_EQUOTA);
	assert_int_equal(load("new write " SECRET " keys=1\napp write " SECRET " keys=20\n", &keys),
			 0);
	auth_keys_free(&k.pool->keys);
	k.pool->keys = keys;
	assert_int_equal(keeper_keys_prepare(k.pool->keeper, &k.pool->keys, &quota), 0);
	keeper_keys_commit(k.pool->keeper, quota);
	assert_int_equal(kept_stats(&k).quota_count, 2);
	assert_int_equal(kept_stats(&k).quotas[1].used.keys, 10);
	told(&k);
	assert_int_equal(kept_put(k.session, 10, 100, 0), 0);
	kept_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),  cmocka_unit_test(test_keys),
		cmocka_unit_test(test_bytes), cmocka_unit_test(test_pages),
		cmocka_unit_test(test_reload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
