/* SPDX-License-Identifier: BSD-2-Clause */
/* auth.c: MACs of the handshake and key files. */
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

#include <tarn/tarn.h>

#include "auth.h"
#include "err.h"

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define OTHER  "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static const struct auth_key ada = {.id = "ada", .role = WIRE_ROLE_WRITE, .secret = {1, 2, 3}};

static void test_request_mac(void **state)
{
	struct auth_key other = ada;
	uint8_t bytes[WIRE_REQUEST_BYTES] = {7};

	(void)state;
	auth_request_sign(&ada, bytes);
	assert_int_equal(auth_request_check(&ada, bytes), 0);
	for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(auth_request_check(&ada, bytes), -TARN_EAUTH);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	other.secret[31] = 1;
	assert_int_equal(auth_request_check(&other, bytes), -TARN_EAUTH);
}

static void test_reply_mac(void **state)
{
	uint8_t request[WIRE_REQUEST_BYTES] = {1}, reply[WIRE_REPLY_BYTES] = {2};

	(void)state;
	auth_reply_sign(&ada, request, reply);
	assert_int_equal(auth_reply_check(&ada, request, reply), 0);
	for (size_t bit = 0; bit < 8 * sizeof(reply); bit++) {
		reply[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(auth_reply_check(&ada, request, reply), -TARN_EAUTH);
		reply[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	request[40] ^= 1; /* a reply to another request */
	assert_int_equal(auth_reply_check(&ada, request, reply), -TARN_EAUTH);
}

/* Loads a key file with this text. */
static int load(const char *text, mode_t mode, struct auth_keys *ret_keys)
{
	char path[] = "/tmp/tarn-test-auth-XXXXXX";
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	rc = auth_keys_load(path, ret_keys);
	unlink(path);
	return rc;
}

static void test_keys(void **state)
{
	const uint8_t bob[WIRE_KEY_ID_BYTES] = "bob",
		      long_id[WIRE_KEY_ID_BYTES] = {'1', '2', '3', '4', '5', '6', '7', '8'};
	const uint8_t nobody[WIRE_KEY_ID_BYTES] = "bo";
	struct auth_keys keys;

	(void)state;
	assert_int_equal(load("# keys\n\nbob\tread " SECRET " # Bob's\r\n12345678 write " OTHER,
			      0600, &keys),
			 0);
	assert_int_equal(keys.count, 2);
	assert_int_equal(auth_keys_find(&keys, bob)->role, WIRE_ROLE_READ);
	assert_int_equal(auth_keys_find(&keys, bob)->secret[31], 0x1f);
	assert_int_equal(auth_keys_find(&keys, long_id)->secret[0], 0xff);
	assert_null(auth_keys_find(&keys, nobody));
	auth_keys_free(&keys);
	auth_keys_free(&keys);
	auth_keys_free(NULL);
}

static void test_keys_malformed(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"", "no key"},
		{"# nothing\n", "no key"},
		{"bob read\n", ":1:"},
		{"a read " SECRET "\nbob read " SECRET " more\n", ":2:"},
		{"bob admin " SECRET "\n", "role 'admin'"},
		{"123456789 read " SECRET "\n", "key id '123456789'"},
		{"b/b read " SECRET "\n", "key id 'b/b'"},
		{"bob read " SECRET "00\n", "not 64 hex digits"},
		{"bob read 0001\n", "not 64 hex digits"},
		{"bob read x" SECRET "\n", "not 64 hex digits"},
		{"bob read " SECRET "\nbob write " OTHER "\n", ":2: key id 'bob' is there twice"},
		/* the second of them in the file, not in the order of the ids */
		{"z read " SECRET "\n\na read " SECRET "\nz read " OTHER "\nb read " SECRET "\n",
		 ":4: key id 'z' is there twice"},
	};
	struct auth_keys keys;
	char text[600];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(load(bad[i].text, 0600, &keys), -EINVAL);
		if (!strstr(err_text(), bad[i].says))
			fail_msg("'%s' does not say '%s'", err_text(), bad[i].says);
		assert_null(strstr(err_text(), "0001020304")); /* never a secret */
	}
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(load(text, 0600, &keys), -EINVAL);
	assert_non_null(strstr(err_text(), "at most"));
}

static void test_keys_file(void **state)
{
	struct auth_keys keys;
	char path[64];

	(void)state;
	assert_int_equal(load("bob read " SECRET "\n", 0640, &keys), -EINVAL);
	assert_non_null(strstr(err_text(), "chmod 600"));
	assert_int_equal(load("bob read " SECRET "\n", 0604, &keys), -EINVAL);
	assert_int_equal(load("bob read " SECRET "\n", 0400, &keys), 0);
	auth_keys_free(&keys);
	assert_int_equal(auth_keys_load("/nowhere/keys", &keys), -ENOENT);
	assert_non_null(strstr(err_text(), "/nowhere/keys"));
	assert_int_equal(auth_keys_load("/tmp", &keys), -EINVAL);
	/* it is not waited for somebody to open the other end */
	snprintf(path, sizeof(path), "/tmp/tarn-test-auth-%d", (int)getpid());
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(auth_keys_load(path, &keys), -EINVAL);
	assert_non_null(strstr(err_text(), "not a regular file"));
	unlink(path);
}

/* As many as a file may have, in no order: each is found, and one more is refused. */
static void test_keys_many(void **state)
{
	char *text = malloc((AUTH_KEYS_MAX + 1) * 100);
	struct auth_keys keys;
	size_t used = 0;

	(void)state;
	for (unsigned i = 0; i < AUTH_KEYS_MAX; i++)
		used += (size_t)sprintf(text + used, "k%u read " SECRET "\n", i * 2053u % AUTH_KEYS_MAX);
	assert_int_equal(load(text, 0600, &keys), 0);
	assert_int_equal(keys.count, AUTH_KEYS_MAX);
	for (unsigned i = 0; i < AUTH_KEYS_MAX; i++) {
		uint8_t id[WIRE_KEY_ID_BYTES + 1] = {0};

		sprintf((char *)id, "k%u", i);
		assert_memory_equal(auth_keys_find(&keys, id)->id, id, WIRE_KEY_ID_BYTES);
	}
	assert_null(auth_keys_find(&keys, (const uint8_t *)"k4096\0\0"));
	assert_memory_equal(keys.keys[1].id, "k2053", 5); /* the file's order stays */
	auth_keys_free(&keys);
	sprintf(text + used, "more read " SECRET "\n");
	assert_int_equal(load(text, 0600, &keys), -EINVAL);
	assert_non_null(strstr(err_text(), "more than 4096 keys"));
	free(text);
}

static void test_random(void **state)
{
	(void)state;
	assert_true(auth_random() != auth_random());
}

static int setup(void **state)
{
	(void)state;
	return auth_init();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request_mac), cmocka_unit_test(test_reply_mac),
		cmocka_unit_test(test_keys),        cmocka_unit_test(test_keys_malformed),
		cmocka_unit_test(test_keys_file),   cmocka_unit_test(test_keys_many),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
