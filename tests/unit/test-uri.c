/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-uri.c - what is a pool's URI and what is not
 */
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

/* Some members of a cluster; a comma behind one says so, too. */
static void test_cluster(void **state)
{
	struct uri u, node;

	(void)state;
	assert_int_equal(uri_parse("tarn://node1/main", &u), 0);
	assert_false(u.cluster);
	assert_int_equal(uri_node(&u, 0, &node), 0);
	assert_string_equal(node.host, "node1");
	assert_int_equal(uri_node(&u, 1, &node), -ENOENT);
	assert_int_equal(uri_parse("tarn://node1:4567,node2,[::1]:8/main?map_bound=1500&timeout=9", &u), 0);
	assert_true(u.cluster);
	assert_int_equal(u.node_count, 3);
	assert_int_equal(u.map_bound_ms, 1500);
	assert_string_equal(u.host, "node1");
	assert_int_equal(u.port, 4567);
	assert_int_equal(uri_node(&u, 1, &node), 0);
	assert_string_equal(node.host, "node2");
	assert_int_equal(node.port, 0);
	assert_string_equal(node.pool, "main");
	assert_int_equal(node.timeout_ms, 9);
	assert_int_equal(uri_node(&u, 2, &node), 0);
	assert_string_equal(node.host, "::1");
	assert_int_equal(node.port, 8);
	assert_int_equal(uri_node(&u, 3, &node), -ENOENT);
	assert_int_equal(uri_parse("tarn://node1,/main", &u), 0);
	assert_true(u.cluster);
	assert_int_equal(u.node_count, 1);
	assert_int_equal(uri_parse("tarn://,node1/main", &u), 0);
	assert_string_equal(u.host, "node1");
	assert_int_equal(uri_parse("tarn://node1/main?cluster=1", &u), 0);
	assert_true(u.cluster);
	assert_int_equal(uri_node(&u, 0, &node), 0);
	assert_int_equal(uri_parse("tarn:/run/a.sock,/run/b%2c.sock?pool=main", &u), 0);
	assert_true(u.cluster);
	assert_string_equal(u.path, "/run/a.sock");
	assert_int_equal(uri_node(&u, 1, &node), 0);
	assert_string_equal(node.path, "/run/b,.sock");
	assert_string_equal(node.host, "");
	assert_int_equal(uri_parse("tarn:/run/a%2cb?pool=main", &u), 0);
	assert_false(u.cluster);
	assert_int_equal(uri_parse("tarn://,/main", &u), -TARN_EURI);
	assert_int_equal(uri_parse("tarn:,?pool=main", &u), -TARN_EURI);
	assert_int_equal(uri_parse("tarn://node1,node2:0/main", &u), -TARN_EURI);
	assert_int_equal(uri_parse("tarn://node1,::1/main", &u), -TARN_EURI);
	assert_int_equal(uri_parse("tarn://node1/main?map_bound=1500", &u), -TARN_EURI);
	assert_non_null(strstr(err_text(), "for clusters"));
	assert_int_equal(uri_parse("tarn://node1,/main?map_bound=99", &u), -TARN_EURI);
	assert_int_equal(uri_parse("tarn://node1,/main?cluster=2", &u), -TARN_EURI);
	assert_int_equal(uri_parse("tarn:/run/a.sock,?pool=main&mtu=1024", &u), -TARN_EURI);
}

static void test_rdma(void **state)
{
	static const char *const mtus[] = {"256", "512", "1024", "2048", "4096"};
	char text[128];
	struct uri u;
	unsigned i;

	(void)state;
	/* nothing said: everything is chosen */
	assert_int_equal(uri_parse("tarn://h/p", &u), 0);
	assert_string_equal(u.source, "");
	assert_int_equal(u.settings.ack_timeout, 0);
	assert_int_equal(u.settings.retries, -1);
	assert_int_equal(u.settings.tos, -1);
	assert_int_equal(u.settings.service_level, -1);
	assert_int_equal(u.settings.gid_index, -1);
	assert_int_equal(u.settings.mtu, 0);
	assert_int_equal(u.settings.spin_us, FABRIC_SPIN_US);
	assert_int_equal(uri_parse("tarn://h/p?source=10.0.0.1&ack_timeout=14&retries=0&tos=106&"
				   "sl=3&gid=5&mtu=4096&spin=0",
				   &u),
			 0);
	assert_string_equal(u.source, "10.0.0.1");
	assert_int_equal(u.settings.ack_timeout, 14);
	assert_int_equal(u.settings.retries, 0);
	assert_int_equal(u.settings.tos, 106);
	assert_int_equal(u.settings.service_level, 3);
	assert_int_equal(u.settings.gid_index, 5);
	assert_int_equal(u.settings.mtu, 4096);
	assert_int_equal(u.settings.spin_us, 0);
	/* the ends of the ranges */
	assert_int_equal(uri_parse("tarn://h/p?ack_timeout=31&retries=6&tos=255&sl=15&gid=255&"
				   "spin=1000000",
				   &u),
			 0);
	assert_int_equal(u.settings.tos, 255);
	assert_int_equal(u.settings.gid_index, 255);
	assert_int_equal(u.settings.spin_us, 1000000);
	assert_int_equal(uri_parse("tarn://h/p?ack_timeout=0&tos=0&sl=0&gid=0", &u), 0);
	assert_int_equal(u.settings.tos, 0);
	assert_int_equal(u.settings.service_level, 0);
	assert_int_equal(u.settings.gid_index, 0);
	assert_int_equal(uri_parse("tarn://h/p?source=[fe80::1%25eth0]", &u), 0);
	assert_string_equal(u.source, "fe80::1%eth0");
	for (i = 0; i < 5; i++) {
		snprintf(text, sizeof(text), "tarn://h/p?mtu=%s", mtus[i]);
		assert_int_equal(uri_parse(text, &u), 0);
		assert_int_equal(u.settings.mtu, 256 << i);
	}
	/* a wait on shared memory spins, too */
	assert_int_equal(uri_parse("tarn:/x?pool=a&spin=50", &u), 0);
	assert_int_equal(u.settings.spin_us, 50);
}

/* What is wrong, what it was, and what it may be. */
static void test_texts(void **state)
{
	static const struct {
		const char *uri, *words[3];
	} cases[] = {
		{"tarn://h/p?ack_timeout=32", {"ack_timeout=32", "0 to 31", "0 to 31"}},
		{"tarn://h/p?retries=7", {"retries=7", "0 to 6", "0 to 6"}},
		{"tarn://h/p?tos=256", {"tos=256", "0 to 255", "0 to 255"}},
		{"tarn://h/p?sl=16", {"sl=16", "0 to 15", "0 to 15"}},
		{"tarn://h/p?gid=-1", {"gid=-1", "0 to 255", "0 to 255"}},
		{"tarn://h/p?spin=1000001", {"spin=1000001", "0 to 1000000", "spin"}},
		{"tarn://h/p?mtu=1500", {"mtu=1500", "256", "4096"}},
		{"tarn:/x?pool=a&mtu=1024", {"mtu=1024", "tarn://HOST/POOL", "unix socket"}},
		{"tarn:/x?pool=a&source=::1", {"source=::1", "tarn://HOST/POOL", "unix socket"}},
		{"tarn:/x?pool=a&retries=3", {"retries=3", "tarn://HOST/POOL", "unix socket"}},
	};
	struct uri u;
	unsigned i, j;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(uri_parse(cases[i].uri, &u), -TARN_EURI);
		for (j = 0; j < 3; j++)
			if (!strstr(err_text(), cases[i].words[j]))
				fail_msg("%s: %s", cases[i].uri, err_text());
	}
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
		"tarn://h/p?source=",
		"tarn://h/p?source=[]",
		"tarn://h/p?ack_timeout=",
		"tarn://h/p?ack_timeout=1x",
		"tarn://h/p?retries=%2d1",
		"tarn://h/p?mtu=0",
		"tarn://h/p?mtu=04096",
		"tarn://h/p?spin=",
		"tarn://h/p?ack_timeoutt=1",
		"tarn:/x?pool=a&ack_timeout=3",
		"tarn:/x?pool=a&tos=3",
		"tarn:/x?pool=a&sl=3",
		"tarn:/x?pool=a&gid=3",
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
	memcpy(longest, "tarn://h/p?source=", 18);
	longest[18 + URI_HOST_MAX] = 0;
	assert_int_equal(uri_parse(longest, &u), -TARN_EURI);
	longest[18 + URI_HOST_MAX - 1] = 0;
	assert_int_equal(uri_parse(longest, &u), 0);
	free(longest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_local),   cmocka_unit_test(test_remote),
		cmocka_unit_test(test_cluster),
		cmocka_unit_test(test_rdma),    cmocka_unit_test(test_texts),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("uri", tests, NULL, NULL);
}
