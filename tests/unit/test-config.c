/* SPDX-License-Identifier: BSD-2-Clause */
/* daemon/config*.c: what is read, what is refused, and in which words. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config.h"
#include "err.h"

#define LISTEN "[listen l]\npath = /run/t.sock\n"
#define POOL   "[pool main]\nsize = 1G\n"
/* may be offered at an RDMA listener */
#define OPEN_POOL POOL "allow_unauthenticated = yes\n"

static struct config *parse(const char *text, struct config_errors *errors)
{
	struct config *config = NULL;

	memset(errors, 0, sizeof(*errors));
	assert_int_equal(config_parse("t.conf", text, strlen(text), errors, &config), 0);
	assert_non_null(config);
	return config;
}

/* The text is right; the caller frees the config. */
static struct config *good(const char *text)
{
	struct config_errors errors;
	struct config *config = parse(text, &errors);

	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	return config;
}

/* The text is wrong in one way, and this is what is said of it. */
static void bad(const char *text, const char *begins, const char *holds)
{
	struct config_errors errors;
	struct config *config = parse(text, &errors);

	if (errors.count != 1 || strncmp(errors.texts[0], begins, strlen(begins)) != 0 ||
	    !strstr(errors.texts[0], holds)) {
		for (size_t i = 0; i < errors.count; i++)
			print_message("# %s\n", errors.texts[i]);
		fail_msg("expected one error, '%s...%s'; there are %zu", begins, holds,
			 errors.count);
	}
	config_errors_free(&errors);
	config_free(config);
}

static void test_minimal(void **state)
{
	struct config *config = good(LISTEN POOL "hugepages = prefer\n");
	const struct config_pool *pool = &config->pools[0];

	(void)state;
	assert_int_equal(config->listen_count, 1);
	assert_string_equal(config->listens[0].name, "l");
	assert_string_equal(config->listens[0].path.text, "/run/t.sock");
	assert_int_equal(config->listens[0].mode.number, 0660);
	assert_string_equal(config->listens[0].group.text, "");
	assert_int_equal(config->pool_count, 1);
	assert_string_equal(pool->name, "main");
	assert_true(pool->size.number == 1ll << 30);
	assert_int_equal(pool->size.line, 4);
	assert_int_equal(pool->hugepages.number, CONFIG_HUGEPAGES_PREFER);
	assert_int_equal(pool->deadline.number, 100000000);
	assert_int_equal(pool->epoch.number, 250000000);
	assert_int_equal(pool->grace.number, 500000000);
	assert_int_equal(pool->epoch.line, 0);
	assert_int_equal(pool->max_clients.number, 256);
	assert_int_equal(pool->numa_node.number, -1);
	assert_int_equal(pool->max_value.number, 64 << 20);
	assert_int_equal(pool->prefault.number, 1);
	assert_int_equal(config->daemon.log_level.number, 3);
	config_free(config);
}

static void test_everything(void **state)
{
	struct config *config =
		good("\xef\xbb\xbf# BOM, CRLF, blanks, comments\r\n[daemon] ; process\r\n  "
		     "log_level=debug\r\n\r\n"
		     "[ listen  a ]\npath:/a\nmode = 0600\ngroup = root\nbacklog = 7\n"
		     "   ; indented\n[pool p.1_X-y]\n\tsize = 8 M ; comment\n\thugepages = "
		     "off\nepoch = 1s\n"
		     "deadline = 900000us\ngrace = 1min\nprefault = no\nnuma_node = 0\nmax_value = "
		     "0\nkeys = 1000\n"
		     "auth = key\nkey_file = /k\n[listen b]\npath = /b");

	(void)state;
	assert_int_equal(config->daemon.log_level.number, 4);
	assert_int_equal(config->listen_count, 2);
	assert_int_equal(config->listens[0].mode.number, 0600);
	assert_string_equal(config->listens[0].group.text, "root");
	assert_string_equal(config->listens[1].path.text, "/b");
	assert_string_equal(config->pools[0].name, "p.1_X-y");
	assert_int_equal(config->pools[0].size.number, 8 << 20);
	assert_int_equal(config->pools[0].size.line, 12);
	assert_true(config->pools[0].grace.number == 60000000000);
	assert_true(config->pools[0].deadline.number == 900000000);
	assert_int_equal(config->pools[0].prefault.number, 0);
	assert_int_equal(config->pools[0].auth.number, CONFIG_AUTH_KEY);
	assert_string_equal(config->pools[0].key_file.text, "/k");
	config_free(config);
}

static void test_values(void **state)
{
	(void)state;
	bad(LISTEN "[pool p]\nsize = 1X\n", "t.conf:4: [pool p] size = 1X: is not a size",
	    "4M to 2T");
	bad(LISTEN "[pool p]\nsize = 1M\n", "t.conf:4: [pool p] size = 1M: is too small",
	    "4M to 2T");
	bad(LISTEN "[pool p]\nsize = 7M\nmode = cache\n",
	    "t.conf:4: [pool p] size = 7340032: is too small with mode = cache", "8M or more");
	bad(LISTEN "[pool p]\nsize = 3T\n", "t.conf:4: [pool p] size = 3T: is too large",
	    "4M to 2T");
	bad(LISTEN "[pool p]\nsize = 99999999999999999999\n", "t.conf:4:", "out of range");
	bad(LISTEN "[pool p]\nsize = 9999999T\n", "t.conf:4:", "out of range");
	bad(LISTEN "[pool p]\nsize = -1G\n", "t.conf:4:", "too small");
	bad(LISTEN "[pool p]\nsize = +1G\n", "t.conf:4:", "not a size");
	bad(LISTEN "[pool p]\nsize =\n", "t.conf:4: [pool p] size = : is not a size", "4M to 2T");
	bad(LISTEN POOL "epoch = 250\n", "t.conf:5: [pool main] epoch = 250: is not a time",
	    "2ms to 60s");
	bad(LISTEN POOL "prefault = maybe\n",
	    "t.conf:5: [pool main] prefault = maybe: is neither yes nor no", "yes or no");
	bad(LISTEN POOL "hugepages = perfer\n", "t.conf:5:", "require, prefer or off");
	bad(LISTEN POOL "hugepages = prefer|off\n", "t.conf:5:", "require, prefer or off");
	bad(LISTEN POOL "numa_node = -2\n", "t.conf:5:", "-1 to 1023");
	bad(LISTEN POOL "max_clients = 0\n", "t.conf:5:", "1 to 65535");
	bad(LISTEN "mode = 0888\n" POOL, "t.conf:3: [listen l] mode = 0888: is not an octal number",
	    "0600 to 0777");
	bad(LISTEN "mode = 1777\n" POOL, "t.conf:3:", "too large");
	bad("[listen l]\npath = t.sock\n" POOL,
	    "t.conf:2: [listen l] path = t.sock: does not begin with a /", "absolute");
	bad("[listen l]\npath = /t.sock # here\n" POOL, "t.conf:2:", "line of its own");
	bad("[listen l]\npath = "
	    "/1234567890123456789012345678901234567890123456789012345678901234567890123456789012345"
	    "678901234567"
	    "89012345678\n" POOL,
	    "t.conf:2:", "109 bytes");
}

static void test_structure(void **state)
{
	(void)state;
	bad(LISTEN POOL "hugepage = off\n", "t.conf:5: [pool main] hugepage = off: unknown key",
	    "did you mean hugepages?");
	bad(LISTEN POOL "qqqqq = 1\n", "t.conf:5: [pool main] qqqqq = 1: unknown key",
	    "tarnd.conf(5)");
	bad(LISTEN POOL "[deamon]\nlog_level = 9\n", "t.conf:5: [deamon]: unknown section",
	    "did you mean [daemon]?");
	bad(LISTEN POOL "[pols x]\n", "t.conf:5: [pols x]: unknown section",
	    "did you mean [pool NAME]?");
	bad(LISTEN POOL "size = 2G\n",
	    "t.conf:5: [pool main] size = 2G: the key is there already, in line 4", "remove one");
	bad(LISTEN POOL "[pool main]\nsize = 2G\n",
	    "t.conf:5: [pool main]: this section is there already, in line 3", "");
	bad("[daemon]\n" LISTEN POOL "[daemon]\n",
	    "t.conf:6: [daemon]: this section is there already, in line 1", "");
	bad(LISTEN POOL "[daemon x]\n", "t.conf:5: [daemon x]: this section has no name",
	    "[daemon]");
	bad(LISTEN POOL "[pool]\nsize = 1G\n", "t.conf:5: [pool]: the name '' is not valid",
	    "a-zA-Z0-9._-");
	bad(LISTEN POOL "[pool a/b]\nsize = 1G\n",
	    "t.conf:5: [pool a/b]: the name 'a/b' is not valid", "");
	bad(LISTEN POOL "[pool a\n", "t.conf:5: [pool a: a section ends with ]", "");
	bad(LISTEN POOL "[pool a] b\nsize = 1G\n", "t.conf:5: [pool a]: something follows", "b");
	bad(LISTEN POOL "what\n", "t.conf:5: what: is neither", "key = value");
	bad("size = 1G\n" LISTEN POOL, "t.conf:1: size = 1G: stands before the first section", "");
	bad(LISTEN, "t.conf: there is no pool", "[pool main]");
	bad(POOL, "t.conf: there is no listener", "[listen local]");
	bad("[listen l]\n" POOL, "t.conf:1: [listen l] path: is missing", "path = ");
	bad(LISTEN "[pool p]\n", "t.conf:3: [pool p] size: is missing", "size = 1G");
	bad(LISTEN "[listen m]\npath = /run/t.sock\n" POOL,
	    "t.conf:4: [listen m] path = /run/t.sock:", "the same path in line 2");
}

static void test_between_settings(void **state)
{
	(void)state;
	bad(LISTEN POOL "deadline = 250ms\n",
	    "t.conf:5: [pool main] epoch = 250ms: is not more than the deadline",
	    "more than 250ms");
	bad(LISTEN POOL "low_water = 9\n", "t.conf:5: [pool main] high_water = 8: is less than the low_water of 9",
	    "9 to 50");
	bad(LISTEN POOL "mode = lru\n", "t.conf:5: [pool main] mode = lru", "store or cache");
	bad(LISTEN POOL "grace = 499ms\n",
	    "t.conf:5: [pool main] grace = 499ms: is less than two epochs", "500ms or more");
	bad(LISTEN POOL "epoch = 251ms\n",
	    "t.conf:5: [pool main] grace = 500ms: is less than two epochs", "502ms or more");
	bad(LISTEN POOL "auth = key\n", "t.conf:5: [pool main] auth = key: needs a key_file",
	    "key_file = ");
	bad(LISTEN POOL "key_file = /k\n", "t.conf:5: [pool main] key_file = /k: is not used",
	    "auth = key");
	bad(LISTEN POOL "keys = 1000000000\n",
	    "t.conf:5: [pool main] keys = 1000000000: their index", "raise size");
	bad(LISTEN "[pool p]\nsize = 8M\nmax_clients = 65535\n",
	    "t.conf:5: [pool p] max_clients = 65535:", "1 to 2048");
	bad(LISTEN POOL "max_value = 1G\n",
	    "t.conf:5: [pool main] max_value = 1073741824:", "does not fit");
}

static void test_lines(void **state)
{
	char text[1000];
	struct config_errors errors;
	struct config *config;

	(void)state;
	/* A comment may have any length; another line has what inih can take. */
	snprintf(text, sizeof(text), LISTEN "#%0400d\n" POOL, 1);
	config_free(good(text));
	snprintf(text, sizeof(text), LISTEN POOL "key_file = /%0400d\n", 1);
	bad(text, "t.conf:5: key_file = /", "the line has 412 bytes");
	/* Names up to 63 bytes, which inih would cut. */
	snprintf(text, sizeof(text), LISTEN "[pool %063d]\nsize = 1G\n", 1);
	config = good(text);
	assert_int_equal(strlen(config->pools[0].name), 63);
	config_free(config);
	snprintf(text, sizeof(text), LISTEN POOL "[pool %064d]\nsize = 1G\n", 1);
	bad(text, "t.conf:5:", "is not valid");
	memset(&errors, 0, sizeof(errors));
	assert_int_equal(config_parse("t.conf", LISTEN POOL "a\0b\n",
				      sizeof(LISTEN POOL "a\0b\n") - 1, &errors, &config),
			 0);
	assert_int_equal(errors.count, 1);
	assert_non_null(strstr(errors.texts[0], "0 byte"));
	config_errors_free(&errors);
	config_free(config);
}

/* All errors at once, in the order of the lines. */
static void test_many_errors(void **state)
{
	struct config_errors errors;
	struct config *config = parse(
		"[listen l]\npath = x\nmod = 1\n[pool p]\nsize = 1\nepoch = 1\n[wat]\n", &errors);

	(void)state;
	assert_int_equal(errors.count, 5);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(errors.texts[i][7], "235"[i]);
	config_errors_free(&errors);
	config_free(config);
}

static void test_error_limit(void **state)
{
	char *text = calloc(1, 40001);
	struct config_errors errors;
	struct config *config;

	(void)state;
	for (int i = 0; i < 10000; i++)
		memcpy(text + 4 * (size_t)i, "a=b\n", 4);
	config = parse(text, &errors);
	assert_in_range(errors.count, 2, 1000);
	assert_non_null(strstr(errors.texts[errors.count - 1], "too many"));
	config_errors_free(&errors);
	config_free(config);
	free(text);
}

/* The table itself: its limits and defaults can be read and fit each other. */
static void test_table(void **state)
{
	(void)state;
	for (int section = 0; section < CONFIG_SECTIONS; section++) {
		size_t count;
		const struct config_key *keys = config_keys((enum config_section)section, &count);

		for (size_t i = 0; i < count; i++) {
			struct config_value value = {0};
			bool text = keys[i].type == CONFIG_TYPE_PATH ||
				    keys[i].type == CONFIG_TYPE_TEXT;
			bool choice = keys[i].type == CONFIG_TYPE_BOOL ||
				      keys[i].type == CONFIG_TYPE_ENUM;

			assert_true(strlen(keys[i].help) > 10);
			if (keys[i].preset && *keys[i].preset &&
			    config_value_parse(&keys[i], keys[i].preset, &value) < 0)
				fail_msg("%s: %s", keys[i].name, err_text());
			if (!text && !choice &&
			    (config_value_parse(&keys[i], keys[i].minimum, &value) < 0 ||
			     config_value_parse(&keys[i], keys[i].maximum, &value) < 0))
				fail_msg("%s: %s", keys[i].name, err_text());
			free(value.text);
		}
	}
}

static void test_load(void **state)
{
	struct config_errors errors = {0};
	struct config *config;

	(void)state;
	assert_int_equal(config_load("/nowhere/tarnd.conf", &errors, &config), -ENOENT);
	assert_non_null(strstr(err_text(), "can not be read"));
	assert_int_equal(config_load("/tmp", &errors, &config), -EINVAL);
	assert_int_equal(config_load("/dev/zero", &errors, &config), -EINVAL);
	assert_int_equal(errors.count, 0);
	config_free(NULL);
}

/* ---- listeners ---- */

#define RDMA "[listen r]\naddress = 10.0.0.1\n"

static void test_addresses(void **state)
{
	static const struct {
		const char *text, *host, *scope;
		int family;
		int port; /* -1: none */
	} good_ones[] = {
		{"10.0.0.1", "10.0.0.1", "", AF_INET, -1},
		{"10.0.0.1:7477", "10.0.0.1", "", AF_INET, 7477},
		{"10.0.0.1:0", "10.0.0.1", "", AF_INET, 0},
		{"fd00::1", "fd00::1", "", AF_INET6, -1},
		{"[fd00::1]", "fd00::1", "", AF_INET6, -1},
		{"[fd00::1]:65535", "fd00::1", "", AF_INET6, 65535},
		{"FD00:0::0001", "fd00::1", "", AF_INET6, -1},
		{"fe80::1%eth0", "fe80::1", "eth0", AF_INET6, -1},
		{"[fe80::1%eth0]:1", "fe80::1", "eth0", AF_INET6, 1},
		{"::1", "::1", "", AF_INET6, -1},
	};
	static const struct {
		const char *text, *says;
	} bad_ones[] = {
		{"", "no address"},
		{"host", "host names are not looked up"},
		{"host.example.org:7477", "host names are not looked up"},
		{"10.0.0", "host names"},
		{"10.0.0.256", "host names"},
		{"10.0.0.1:", "port"},
		{"10.0.0.1:65536", "port"},
		{"10.0.0.1:99999999999999999999", "port"},
		{"10.0.0.1:7477x", "port"},
		{"10.0.0.1:-1", "port"},
		{"[fd00::1]:", "port"},
		{"[fd00::1", "no address"},
		{"[]", "no address"},
		{"[", "no address"},
		{"]:1", "host names"},
		{"[10.0.0.1]:1", "no address"},
		{"fd00::1::2", "host names"},
		{"0.0.0.0", "stands for all"},
		{"[::]:7477", "stands for all"},
		{"fe80::1", "name its interface"},
		{"fe80::1%", "no address"},
		{"fe80::1%an-interface-name-too-long", "no address"},
		{"10.0.0.1%eth0", "no address"},
	};
	struct sockaddr_storage socket;
	struct config_address address;

	(void)state;
	for (size_t i = 0; i < sizeof(good_ones) / sizeof(good_ones[0]); i++) {
		if (config_address_parse(good_ones[i].text, &address) < 0)
			fail_msg("%s: %s", good_ones[i].text, err_text());
		assert_int_equal(address.family, good_ones[i].family);
		assert_string_equal(address.host, good_ones[i].host);
		assert_string_equal(address.scope, good_ones[i].scope);
		assert_int_equal(address.has_port ? address.port : -1, good_ones[i].port);
	}
	for (size_t i = 0; i < sizeof(bad_ones) / sizeof(bad_ones[0]); i++) {
		err_clear();
		if (config_address_parse(bad_ones[i].text, &address) != -EINVAL ||
		    !strstr(err_text(), bad_ones[i].says) || !strstr(err_text(), "allowed: "))
			fail_msg("%s: %s", bad_ones[i].text, err_text());
	}
	assert_int_equal(config_address_parse("[::1]:7", &address), 0);
	assert_int_equal(config_address_socket(&address, 9, &socket), 0);
	assert_int_equal(socket.ss_family, AF_INET6);
	assert_int_equal(config_address_parse("fe80::1%nowhere", &address), 0);
	assert_int_equal(config_address_socket(&address, 9, &socket), -ENODEV);
	assert_non_null(strstr(err_text(), "nowhere"));
}

static void test_listeners(void **state)
{
	struct config *config = good(RDMA "[listen d]\ndevice = rxe0\nport = 0\n" LISTEN OPEN_POOL
					  "listen = r , d\n");
	char text[80];

	(void)state;
	assert_true(config_listen_rdma(&config->listens[0]) &&
		    config_listen_rdma(&config->listens[1]) &&
		    !config_listen_rdma(&config->listens[2]));
	assert_int_equal(config_listen_port(&config->listens[0]), 7477);
	assert_int_equal(config_listen_port(&config->listens[1]), 0);
	assert_true(config_pool_offered(&config->pools[0], &config->listens[0]) &&
		    config_pool_offered(&config->pools[0], &config->listens[1]) &&
		    !config_pool_offered(&config->pools[0], &config->listens[2]));
	assert_string_equal(config_listen_text(&config->listens[0], text, sizeof(text)),
			    "10.0.0.1:7477");
	assert_string_equal(config_listen_text(&config->listens[1], text, sizeof(text)), "rxe0:0");
	assert_string_equal(config_listen_text(&config->listens[2], text, sizeof(text)),
			    "/run/t.sock");
	config_free(config);
	config = good(
		"[listen r]\naddress = [fd00::1]:8000\nport = 8000\nack_timeout = 11\n" OPEN_POOL);
	assert_int_equal(config_listen_port(&config->listens[0]), 8000);
	assert_true(config_pool_offered(&config->pools[0], &config->listens[0]));
	assert_string_equal(config_listen_text(&config->listens[0], text, sizeof(text)),
			    "[fd00::1]:8000");
	config_free(config);
}

static void test_listeners_wrong(void **state)
{
	static const struct {
		const char *text, *begins, *holds;
	} cases[] = {
		{LISTEN "address = 10.0.0.1\n" OPEN_POOL,
		 "t.conf:3: [listen l] address = 10.0.0.1: this listener has a path already, in "
		 "line 2",
		 "one of path, address and device"},
		{RDMA "device = rxe0\n" OPEN_POOL,
		 "t.conf:3: [listen r] device = rxe0: this listener has an address already, in "
		 "line 2",
		 "section of its own"},
		{RDMA "mode = 0600\n" OPEN_POOL, "t.conf:3: [listen r] mode: is for unix listeners",
		 "an address in line 2"},
		{LISTEN "retries = 3\n" OPEN_POOL,
		 "t.conf:3: [listen l] retries: is for RDMA listeners", "a path in line 2"},
		{LISTEN "port = 3\n" OPEN_POOL, "t.conf:3: [listen l] port: is for RDMA", ""},
		{"[listen d]\ndevice = rxe0\ngroup = rdma\n" OPEN_POOL,
		 "t.conf:3: [listen d] group: is for unix", "a device in line 2"},
		{"[listen r]\naddress = host\n" OPEN_POOL,
		 "t.conf:2: [listen r] address = host: is no address",
		 "give an address or a device"},
		{"[listen r]\naddress = 10.0.0.1:5\nport = 6\n" OPEN_POOL,
		 "t.conf:3: [listen r] port = 6: the address in line 2 has another port, 5", ""},
		{"[listen r]\naddress =\n" OPEN_POOL,
		 "t.conf:2: [listen r] address = : has 0 bytes", ""},
		{RDMA "[listen s]\naddress = 10.0.0.1:7477\n" OPEN_POOL,
		 "t.conf:4: [listen s] address = 10.0.0.1:7477: [listen r] has the same place and "
		 "port in "
		 "line 2",
		 ""},
		{"[listen a]\ndevice = rxe0\n[listen b]\ndevice = rxe0\n" OPEN_POOL,
		 "t.conf:4: [listen b] device = rxe0: [listen a] has the same", "line 2"},
		{LISTEN OPEN_POOL "listen = m\n",
		 "t.conf:6: [pool main] listen: 'm': there is no such listener", "[listen NAME]"},
		{LISTEN "[listen other]\npath = /o\n" OPEN_POOL "listen = l,othr\n",
		 "t.conf:8: [pool main] listen: 'othr'", "did you mean other?"},
		{LISTEN OPEN_POOL "listen = l, l\n",
		 "t.conf:6: [pool main] listen: 'l': is there twice", ""},
		{LISTEN OPEN_POOL "file = /f\n[pool b]\nsize = 4M\nfile = /f\n",
		 "t.conf:9: [pool b] file = /f: is the file of [pool main], too", "another one"},
		{LISTEN OPEN_POOL "listen = l,,\n",
		 "t.conf:6: [pool main] listen: '': there is no such", ""},
		{LISTEN RDMA OPEN_POOL "atomics = nic\n",
		 "t.conf:8: [pool main] atomics = nic: the pool is offered at the unix socket of "
		 "[listen l]",
		 "name RDMA listeners alone in `listen`"},
		{RDMA "ack_timeout = 12\n" OPEN_POOL,
		 "t.conf:3: [listen r] ack_timeout = 12: with 6 retries a request may be 469.762ms "
		 "late",
		 "grace - deadline of [pool main] is 400ms; allowed here: up to 11"},
		{RDMA "ack_timeout = 31\nretries = 0\n" OPEN_POOL,
		 "t.conf:3: [listen r] ack_timeout = 31", "up to 14"},
		{RDMA "ack_timeout = 11\n[pool p]\nallow_unauthenticated = yes\nsize = 1G\ngrace = "
		      "300ms\nepoch = 150ms\ndeadline = "
		      "100ms\n",
		 "t.conf:3: [listen r] ack_timeout = 11",
		 "[pool p] is 200ms; allowed here: up to 10"},
		/* nobody offers memory to a network by oversight */
		{RDMA POOL,
		 "t.conf:3: [pool main] auth = none: is offered at [listen r], where whoever "
		 "reaches "
		 "the address could read and write it",
		 "allow_unauthenticated = yes"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		bad(cases[i].text, cases[i].begins, cases[i].holds);
	/* where the pool is not offered, its times don't matter, nor what the others are */
	config_free(good(RDMA "ack_timeout = 31\n" LISTEN OPEN_POOL "listen = l\n"));
	config_free(good(LISTEN RDMA OPEN_POOL "atomics = nic\nlisten = r\n"));
	config_free(good("[listen r]\naddress = 127.0.0.1:7\n" POOL));
	config_free(good(LISTEN RDMA POOL "listen = l\n"));
	config_free(good(RDMA POOL "auth = key\nkey_file = /k\n"));
	config_free(good(
		"[listen a]\naddress = 10.0.0.1:0\n[listen b]\naddress = 10.0.0.1:0\n" OPEN_POOL));
}

/* What is said of an RDMA listener on a machine that has nothing of it. */
static void test_listeners_environment(void **state)
{
	struct config *config = good("[listen a]\ndevice = no-such-device\n[listen b]\naddress = "
				     "192.0.2.77\n[pool p]\nallow_unauthenticated = yes\nsize = "
				     "8M\nhugepages = off\nlisten = a\n");
	struct config_errors errors = {0}, notices = {0};
	bool device = false, address = false;

	(void)state;
	config_check_environment(config, &errors);
	for (size_t i = 0; i < errors.count; i++) {
		device = device ||
			 strstr(errors.texts[i], "t.conf:2: [listen a] device = no-such-device");
		address = address || strstr(errors.texts[i], "this machine has no such address");
	}
	assert_true(device && address);
	config_notices(config, &notices);
	assert_int_equal(notices.count, 2);
	assert_non_null(strstr(notices.texts[0], "t.conf:3: [listen b]: no pool is offered here"));
	assert_non_null(strstr(notices.texts[1], "there is no unix listener"));
	config_errors_free(&errors);
	config_errors_free(&notices);
	config_free(config);
}

static void test_suggest(void **state)
{
	static const char *const words[] = {"size", "hugepages", "hugepage_size"};

	(void)state;
	assert_string_equal(config_suggest("sise", words, 3), "size");
	assert_string_equal(config_suggest("huge_pages", words, 3), "hugepages");
	assert_string_equal(config_suggest("hugepage_sizes", words, 3), "hugepage_size");
	assert_null(config_suggest("color", words, 3));
	assert_null(config_suggest("", words, 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_minimal),
		cmocka_unit_test(test_everything),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_structure),
		cmocka_unit_test(test_between_settings),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_many_errors),
		cmocka_unit_test(test_error_limit),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_load),
		cmocka_unit_test(test_suggest),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_listeners),
		cmocka_unit_test(test_listeners_wrong),
		cmocka_unit_test(test_listeners_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
