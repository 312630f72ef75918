/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Key files and the MACs of the handshake. Any thread; the only state is libsodium's own, which
 * auth_init() sets up. Secrets are wiped when they are freed and appear in no text. wire.c packs
 * the messages that are signed here; daemon/handshake.c decides what a key may do.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <sodium.h>
#include <tarn/tarn.h>

#include "auth.h"
#include "err.h"

#define REQUEST_SIGNED (WIRE_REQUEST_BYTES - WIRE_MAC_BYTES)
#define REPLY_SIGNED   (WIRE_REPLY_BYTES - WIRE_MAC_BYTES)
/* Longest line of a key file: ID, "write", 64 digits, blanks, and a comment. */
#define LINE_BYTES 256

int auth_init(void)
{
	if (sodium_init() < 0)
		return err_set(-ENOSYS,
			       "libsodium can not be initialised: is there no /dev/urandom?");
	return 0;
}

uint64_t auth_random(void)
{
	uint64_t number;

	randombytes_buf(&number, sizeof(number));
	return number;
}

/* ---- MACs ---- */

static void mac(const struct auth_key *key, const void *first, size_t first_bytes,
		const void *second, size_t second_bytes, uint8_t ret_mac[WIRE_MAC_BYTES])
{
	crypto_generichash_state state;

	crypto_generichash_init(&state, key->secret, AUTH_SECRET_BYTES, WIRE_MAC_BYTES);
	crypto_generichash_update(&state, first, first_bytes);
	if (second_bytes)
		crypto_generichash_update(&state, second, second_bytes);
	crypto_generichash_final(&state, ret_mac, WIRE_MAC_BYTES);
	sodium_memzero(&state, sizeof(state));
}

void auth_request_sign(const struct auth_key *key, uint8_t request[WIRE_REQUEST_BYTES])
{
	mac(key, request, REQUEST_SIGNED, NULL, 0, request + REQUEST_SIGNED);
}

int auth_request_check(const struct auth_key *key, const uint8_t request[WIRE_REQUEST_BYTES])
{
	uint8_t expected[WIRE_MAC_BYTES];

	mac(key, request, REQUEST_SIGNED, NULL, 0, expected);
	if (sodium_memcmp(expected, request + REQUEST_SIGNED, WIRE_MAC_BYTES) == 0)
		return 0;
	return err_set(-TARN_EAUTH,
		       "the request's MAC is wrong: the secrets of client and daemon differ");
}

/* Over the request, too: a reply fits one request only. */
void auth_reply_sign(const struct auth_key *key, const uint8_t request[WIRE_REQUEST_BYTES],
		     uint8_t reply[WIRE_REPLY_BYTES])
{
	mac(key, request, WIRE_REQUEST_BYTES, reply, REPLY_SIGNED, reply + REPLY_SIGNED);
}

int auth_reply_check(const struct auth_key *key, const uint8_t request[WIRE_REQUEST_BYTES],
		     const uint8_t reply[WIRE_REPLY_BYTES])
{
	uint8_t expected[WIRE_MAC_BYTES];

	mac(key, request, WIRE_REQUEST_BYTES, reply, REPLY_SIGNED, expected);
	if (sodium_memcmp(expected, reply + REPLY_SIGNED, WIRE_MAC_BYTES) == 0)
		return 0;
	return err_set(-TARN_EAUTH, "the daemon could not prove that it knows the key's secret: is "
				    "this the right daemon?");
}

/* ---- key files ---- */

static bool id_valid(const char *id)
{
	size_t length = strlen(id);

	return length >= 1 && length <= WIRE_KEY_ID_BYTES &&
	       strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
		       length;
}

static int role_parse(const char *text)
{
	if (strcmp(text, "read") == 0)
		return WIRE_ROLE_READ;
	if (strcmp(text, "write") == 0)
		return WIRE_ROLE_WRITE;
	return 0;
}

/* `ID ROLE SECRET`. The text names file, line and field, never what stands in a secret's place. */
static int line_parse(const char *path, unsigned int number, char *line, struct auth_key *ret_key)
{
	static const char blanks[] = " \t\r\n";
	char *rest = NULL;
	const char *id = strtok_r(line, blanks, &rest);
	const char *role = strtok_r(NULL, blanks, &rest);
	const char *secret = strtok_r(NULL, blanks, &rest);
	size_t length = 0;

	if (!id || !role || !secret || strtok_r(NULL, blanks, &rest))
		return err_set(-EINVAL, "%s:%u: a key's line is `ID ROLE SECRET`", path, number);
	if (!id_valid(id))
		return err_set(-EINVAL, "%s:%u: key id '%s': 1 to %u of [a-zA-Z0-9._-] are allowed",
			       path, number, id, WIRE_KEY_ID_BYTES);
	memset(ret_key, 0, sizeof(*ret_key));
	memcpy(ret_key->id, id, strlen(id));
	ret_key->role = (uint8_t)role_parse(role);
	if (!ret_key->role)
		return err_set(-EINVAL, "%s:%u: role '%s' of key '%s': it is `read` or `write`",
			       path, number, role, id);
	if (strlen(secret) != 2 * AUTH_SECRET_BYTES ||
	    sodium_hex2bin(ret_key->secret, AUTH_SECRET_BYTES, secret, strlen(secret), NULL,
			   &length, NULL) != 0 ||
	    length != AUTH_SECRET_BYTES)
		return err_set(-EINVAL,
			       "%s:%u: the secret of key '%s' is not %u hex digits: `openssl rand "
			       "-hex %u` makes one",
			       path, number, id, 2 * AUTH_SECRET_BYTES, AUTH_SECRET_BYTES);
	return 0;
}

static int keys_add(const char *path, unsigned int number, struct auth_keys *keys,
		    const struct auth_key *key)
{
	if (auth_keys_find(keys, key->id))
		return err_set(-EINVAL, "%s:%u: key id '%.*s' is there twice", path, number,
			       (int)WIRE_KEY_ID_BYTES, (const char *)key->id);
	if (keys->count >= AUTH_KEYS_MAX)
		return err_set(-EINVAL, "%s:%u: more than %u keys", path, number, AUTH_KEYS_MAX);
	keys->keys[keys->count++] = *key;
	return 0;
}

static int lines_read(const char *path, FILE *file, struct auth_keys *keys)
{
	char line[LINE_BYTES];
	struct auth_key key;
	unsigned int number = 0;
	int rc = 0;

	while (rc == 0 && fgets(line, sizeof(line), file)) {
		number++;
		if (!strchr(line, '\n') && !feof(file)) {
			rc = err_set(-EINVAL, "%s:%u: a line has at most %u bytes", path, number,
				     LINE_BYTES - 2);
			break;
		}
		line[strcspn(line, "#")] = '\0';
		if (line[strspn(line, " \t\r\n")] == '\0')
			continue;
		rc = line_parse(path, number, line, &key);
		if (rc == 0)
			rc = keys_add(path, number, keys, &key);
	}
	if (rc == 0 && ferror(file))
		rc = err_set(-EIO, "%s: can not be read: %s", path, strerrordesc_np(errno));
	if (rc == 0 && keys->count == 0)
		rc = err_set(-EINVAL, "%s: there is no key in it; a key's line is `ID ROLE SECRET`",
			     path);
	sodium_memzero(line, sizeof(line));
	sodium_memzero(&key, sizeof(key));
	return rc;
}

static int mode_check(const char *path, FILE *file)
{
	struct stat st;

	if (fstat(fileno(file), &st) < 0)
		return err_set(-errno, "%s: %s", path, strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(-EINVAL, "%s: is not a regular file", path);
	if (st.st_mode & 077)
		return err_set(-EINVAL, "%s: mode %04o lets others at the secrets: chmod 600 %s",
			       path, (unsigned int)(st.st_mode & 07777), path);
	return 0;
}

int auth_keys_load(const char *path, struct auth_keys *ret_keys)
{
	struct auth_keys keys = {0};
	/* e: O_CLOEXEC. A FIFO would block here, but who can place one there can do worse. */
	FILE *file = fopen(path, "re");
	int rc;

	if (!file)
		return err_set(-errno, "key file %s: %s", path, strerrordesc_np(errno));
	/* The secrets shall not linger in stdio's buffer. */
	setvbuf(file, NULL, _IONBF, 0);
	rc = mode_check(path, file);
	if (rc == 0) {
		keys.keys = calloc(AUTH_KEYS_MAX, sizeof(*keys.keys));
		rc = keys.keys ? lines_read(path, file, &keys) : -ENOMEM;
	}
	fclose(file);
	if (rc < 0) {
		auth_keys_free(&keys);
		return rc;
	}
	*ret_keys = keys;
	return 0;
}

void auth_keys_free(struct auth_keys *keys)
{
	if (!keys || !keys->keys)
		return;
	sodium_memzero(keys->keys, keys->count * sizeof(*keys->keys));
	free(keys->keys);
	keys->keys = NULL;
	keys->count = 0;
}

const struct auth_key *auth_keys_find(const struct auth_keys *keys,
				      const uint8_t id[WIRE_KEY_ID_BYTES])
{
	for (uint32_t i = 0; i < keys->count; i++)
		if (memcmp(keys->keys[i].id, id, WIRE_KEY_ID_BYTES) == 0)
			return &keys->keys[i];
	return NULL;
}
