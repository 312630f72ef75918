/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/config-cluster.c, and [cluster] in a reload: what is taken, what is refused, and in which words. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config-cluster.h"
#include "config-diff.h"
#include "err.h"

#define BEGIN  "[listen l]\npath = /run/t.sock\n[pool main]\nsize = 1G\n[cluster]\n"
#define MEMBER "name = c\nmember = m\n"
#define STATIC BEGIN MEMBER "map = /m\n"
#define ETCD   BEGIN MEMBER "membership = etcd\n"
#define ONE    ETCD "etcd_endpoints = http://e:1\n"

static struct config *parse(const char *text, struct config_errors *errors)
{
	struct config *config = NULL;

	memset(errors, 0, sizeof(*errors));
	assert_int_equal(config_parse("t.conf", text, strlen(text), errors, &config), 0);
	return config;
}

static struct config *good(const char *text)
{
	struct config_errors errors;
	struct config *config = parse(text, &errors);

	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	return config;
}

static void test_static(void **state)
{
	struct config *config = good(STATIC);
	const struct config_cluster *cluster = &config->cluster;
	char name[CONFIG_NAME_MAX + 1];

	(void)state;
	assert_string_equal(cluster->name.text, "c");
	assert_int_equal(cluster->membership.number, CONFIG_MEMBERSHIP_STATIC);
	assert_int_equal(cluster->weight.number, 100);
	assert_int_equal(cluster->map_bound.number, 5000000000);
	assert_int_equal(cluster->lease.number, 10000000000);
	assert_string_equal(cluster->etcd_prefix.text, "/tarn");
	assert_ptr_equal(config_cluster_pool(config), &config->pools[0]);
	assert_int_equal(config_member_name(cluster, name), 0);
	assert_string_equal(name, "m");
	config_free(config);
	config = good("[listen l]\npath = /run/t.sock\n[pool main]\nsize = 1G\n");
	assert_int_equal(config->cluster.line, 0);
	assert_null(config_cluster_pool(config));
	config_free(config);
}

static void test_endpoints(void **state)
{
	static const struct config_endpoint expected[] = {
		{false, "10.0.0.1", 2379}, {true, "etcd-1.example.org", 77}, {false, "fd00::1", 2380}, {true, "::1", 2379},
		{false, "host", 2379}};
	struct config *config = good(ETCD "etcd_endpoints = http://10.0.0.1 , https://etcd-1.example.org:77,[fd00::1]:2380,"
					  "https://[::1]/,host:2379\n");
	struct config_endpoint endpoint;

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(config_endpoint(&config->cluster, i, &endpoint), 0);
		assert_int_equal(endpoint.tls, expected[i].tls);
		assert_string_equal(endpoint.host, expected[i].host);
		assert_int_equal(endpoint.port, expected[i].port);
	}
	assert_int_equal(config_endpoint(&config->cluster, 5, &endpoint), -ENOENT);
	config_free(config);
}

static void test_wrong(void **state)
{
	static const struct {
		const char *text, *begins, *holds;
	} cases[] = {
		{BEGIN "member = m\nmap = /m\n", "t.conf:5: [cluster] name: is missing", "`name = prod`"},
		{BEGIN "name = a b\nmember = m\nmap = /m\n", "t.conf:6: [cluster] name = a b: is not a name", "1 to 63"},
		{BEGIN MEMBER, "t.conf:5: [cluster] map: is missing", "or choose membership = etcd"},
		{BEGIN "name = c\nmember = m/1\nmap = /m\n", "t.conf:7: [cluster] member = m/1: is not a name", ""},
		{STATIC "pool = other\n", "t.conf:9: [cluster] pool = other: there is no such pool", "[pool other]"},
		{STATIC "[pool b]\nsize = 1G\n", "t.conf:5: [cluster] pool: is missing", "`pool = main`"},
		{STATIC "etcd_user = u\n", "t.conf:9: [cluster] etcd_user: is for membership = etcd",
		 "add a line `membership = etcd`"},
		{STATIC "lease = 5s\n", "t.conf:9: [cluster] lease: is for membership = etcd", ""},
		{STATIC "weight = 10001\n", "t.conf:9: [cluster] weight = 10001: is too large", "0 to 10000"},
		{STATIC "map_bound = 10ms\n", "t.conf:9: [cluster] map_bound = 10ms: is too small", "1s to 5min"},
		{STATIC "membership = raft\n", "t.conf:9: [cluster] membership = raft", "static or etcd"},
		{STATIC "wieght = 1\n", "t.conf:9: [cluster] wieght = 1: unknown key", "did you mean weight?"},
		{ETCD, "t.conf:5: [cluster] etcd_endpoints: is missing", "etcd_endpoints = http://"},
		{ETCD "etcd_endpoints = http://e, ftp://f\n", "t.conf:9: [cluster] etcd_endpoints", "neither http:// nor"},
		{ETCD "etcd_endpoints = http://e:0\n", "t.conf:9: [cluster] etcd_endpoints", "port of 1 to 65535"},
		{ETCD "etcd_endpoints = http://e:1x\n", "t.conf:9: [cluster] etcd_endpoints", "port of 1 to 65535"},
		{ETCD "etcd_endpoints = http://e/v3\n", "t.conf:9: [cluster] etcd_endpoints", "or something behind it"},
		{ETCD "etcd_endpoints = http://u:p@e\n", "t.conf:9: [cluster] etcd_endpoints", "port of 1 to 65535"},
		{ETCD "etcd_endpoints = http://[e]\n", "t.conf:9: [cluster] etcd_endpoints", "no IPv6 address"},
		{ETCD "etcd_endpoints = http://[::1\n", "t.conf:9: [cluster] etcd_endpoints", "lacks the ]"},
		{ETCD "etcd_endpoints = http://\n", "t.conf:9: [cluster] etcd_endpoints", "no host's name"},
		{ETCD "etcd_endpoints = a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q\n", "t.conf:9: [cluster] etcd_endpoints: has 17",
		 "1 to 16"},
		{ONE "map = /m\n", "t.conf:10: [cluster] map: is for membership = static", ""},
		{ONE "lease = 2500ms\n", "t.conf:10: [cluster] lease = 2.5s", "whole seconds"},
		{ONE "etcd_ca = /ca\n", "t.conf:10: [cluster] etcd_ca: is for TLS", "https://"},
		{ONE "etcd_user = u\n", "t.conf:10: [cluster] etcd_user: needs etcd_password_file", ""},
		{ONE "etcd_password_file = /p\n", "t.conf:10: [cluster] etcd_password_file: needs etcd_user", ""},
		{ETCD "etcd_endpoints = https://e\netcd_key = /k\n", "t.conf:10: [cluster] etcd_key: needs etcd_cert", ""},
		{ONE "etcd_prefix = /tarn/\n", "t.conf:10: [cluster] etcd_prefix = /tarn/: is not a prefix", "as in /tarn"},
		{ONE "etcd_prefix = t arn\n", "t.conf:10: [cluster] etcd_prefix = t arn: is not a prefix", ""},
		{STATIC "[cluster]\n", "t.conf:9: [cluster]: this section is there already", "line 5"},
		{"[clustre]\n" STATIC, "t.conf:1: [clustre]: unknown section", "did you mean [cluster]?"},
		{"[cluster a]\n" BEGIN MEMBER "map = /m\n", "t.conf:1: [cluster a]: this section has no name", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config_errors errors;
		struct config *config = parse(cases[i].text, &errors);

		if (errors.count != 1 || strncmp(errors.texts[0], cases[i].begins, strlen(cases[i].begins)) != 0 ||
		    !strstr(errors.texts[0], cases[i].holds))
			fail_msg("case %zu: %zu errors, the first: %s", i, errors.count,
				 errors.count ? errors.texts[0] : "");
		config_errors_free(&errors);
		config_free(config);
	}
}

static void test_notices(void **state)
{
	struct config *config = good(ETCD "etcd_endpoints = http://127.0.0.1, https://e\netcd_user = u\netcd_password_file = /p\n");
	struct config_errors notices = {0};

	(void)state;
	config_cluster_notices(config, &notices);
	assert_int_equal(notices.count, 0);
	config_free(config);
	config = good(ONE "etcd_user = u\netcd_password_file = /p\n");
	config_cluster_notices(config, &notices);
	assert_int_equal(notices.count, 1);
	assert_non_null(strstr(notices.texts[0], "t.conf:9: [cluster] etcd_endpoints: the password of etcd_user goes to e"));
	config_errors_free(&notices);
	config_free(config);
}

/* Merges `text` into what runs, and says what became of it. */
static struct config *merged(const char *running_text, const char *text, struct config_changes *ret_changes)
{
	struct config *running = good(running_text), *next = good(text);
	struct config_errors errors = {0};

	assert_int_equal(config_merge(running, next, ret_changes), 0);
	config_cluster_check(next, &errors);
	if (next->cluster.line)
		assert_int_equal(errors.count, 0);
	config_errors_free(&errors);
	config_free(running);
	return next;
}

static void test_reload(void **state)
{
	static const char none[] = "[listen l]\npath = /run/t.sock\n[pool main]\nsize = 1G\n";
	struct config_changes changes;
	struct config *config = merged(STATIC, STATIC "weight = 7\nmap_bound = 8s\n", &changes);

	(void)state;
	assert_int_equal(changes.count, 2);
	assert_false(changes.list[0].restart);
	assert_true(changes.list[1].restart);
	assert_int_equal(config->cluster.weight.number, 7);
	assert_int_equal(config->cluster.map_bound.number, 5000000000);
	config_changes_free(&changes);
	config_free(config);
	/* it stays a member until the restart, or none */
	config = merged(STATIC, none, &changes);
	assert_true(changes.count == 1 && changes.list[0].restart && config->cluster.line);
	assert_string_equal(config->cluster.name.text, "c");
	config_changes_free(&changes);
	config_free(config);
	config = merged(none, ONE, &changes);
	assert_true(changes.count == 1 && changes.list[0].restart && !config->cluster.line);
	assert_string_equal(config->cluster.name.text, "");
	config_changes_free(&changes);
	config_free(config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_static),
		cmocka_unit_test(test_endpoints),
		cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_notices),
		cmocka_unit_test(test_reload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
