/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Key files and the MACs of the handshake. Any thread; the only state is libsodium's own, which
 * auth_init() sets up. Secrets are wiped when they are freed and appear in no text. wire.c packs
 * the messages that are signed here; daemon/handshake.c decides what a key may do.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>
#include <tarn/tarn.h>

#include "auth.h"
#include "err.h"

#define REQUEST_SIGNED (WIRE_REQUEST_BYTES - WIRE_MAC_BYTES)
#define REPLY_SIGNED   (WIRE_REPLY_BYTES - WIRE_MAC_BYTES)
/* Longest line of a key file: ID, "write", 64 digits, blanks, and a comment. */
#define LINE_BYTES   256
#define BUFFER_BYTES 8192

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

/* A number with K, M, G or T (powers of 1024) behind it, or none; from 1 to `maximum`. */
static bool number_parse(const char *text, const char *suffixes, uint64_t maximum,
			 uint64_t *ret_number)
{
	static const char all[] = "KMGT";
	unsigned long long number;
	const char *suffix;
	unsigned shift;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || errno || number == 0)
		return false;
	suffix = *end && strchr(suffixes, *end) ? strchr(all, *end) : NULL;
	shift = suffix ? 10 * (unsigned)(suffix - all + 1) : 0;
	if (end[suffix != NULL] || number > maximum >> shift)
		return false;
	*ret_number = (uint64_t)number << shift;
	return true;
}

/* keys=NUMBER, bytes=SIZE or pages=PERCENT%. */
static int quota_parse(const char *path, unsigned int number, const char *word, const char *id,
		       struct auth_quota *quota)
{
	uint64_t percent = 0;
	size_t length = strlen(word);
	char digits[8] = "";

	if ((strncmp(word, "keys=", 5) == 0 && quota->keys) ||
	    (strncmp(word, "bytes=", 6) == 0 && quota->bytes) ||
	    (strncmp(word, "pages=", 6) == 0 && quota->pages_percent))
		return err_set(-EINVAL, "%s:%u: '%.40s' of key '%s': such a quota is there twice",
			       path, number, word, id);
	if (strncmp(word, "keys=", 5) == 0 &&
	    number_parse(word + 5, "", AUTH_QUOTA_MAX, &quota->keys))
		return 0;
	if (strncmp(word, "bytes=", 6) == 0 &&
	    number_parse(word + 6, "KMGT", AUTH_QUOTA_MAX, &quota->bytes))
		return 0;
	if (strncmp(word, "pages=", 6) == 0 && word[length - 1] == '%' && length - 7 < 4) {
		memcpy(digits, word + 6, length - 7);
		if (number_parse(digits, "", 100, &percent)) {
			quota->pages_percent = (uint32_t)percent;
			return 0;
		}
	}
	return err_set(-EINVAL,
		       "%s:%u: '%.40s' of key '%s': behind the secret are allowed keys=NUMBER and "
		       "bytes=SIZE (1 to 2^50; SIZE with K, M, G or T), and pages=1%% to 100%%",
		       path, number, word, id);
}

/*
 * `ID ROLE SECRET` and quotas. The text names file, line and field, never what stands in a secret's
 * place.
 */
static int line_parse(const char *path, unsigned int number, char *line, struct auth_key *ret_key)
{
	static const char blanks[] = " \t\r\n";
	char *rest = NULL;
	const char *id = strtok_r(line, blanks, &rest);
	const char *role = strtok_r(NULL, blanks, &rest);
	const char *secret = strtok_r(NULL, blanks, &rest), *word;
	size_t length = 0;
	int rc = 0;

	if (!id || !role || !secret)
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
	while (rc == 0 && (word = strtok_r(NULL, blanks, &rest)))
		rc = quota_parse(path, number, word, id, &ret_key->quota);
	return rc;
}

static int by_id(const void *a, const void *b)
{
	const struct auth_key *const *first = a, *const *second = b;

	return memcmp((*first)->id, (*second)->id, WIRE_KEY_ID_BYTES);
}

/* Sorts, so that a key is found quickly among thousands; lines: of the keys, in the file's order. */
static int keys_sort(const char *path, struct auth_keys *keys, const unsigned int *lines)
{
	keys->by_id = calloc(keys->count, sizeof(struct auth_key *));
	if (!keys->by_id)
		return err_set(-ENOMEM, "out of memory");
	for (uint32_t i = 0; i < keys->count; i++)
		keys->by_id[i] = &keys->keys[i];
	qsort(keys->by_id, keys->count, sizeof(struct auth_key *), by_id);
	for (uint32_t i = 1; i < keys->count; i++) {
		const struct auth_key *key = keys->by_id[i], *other = keys->by_id[i - 1];
		const struct auth_key *last = key > other ? key : other;

		if (memcmp(key->id, other->id, WIRE_KEY_ID_BYTES) == 0)
			return err_set(-EINVAL, "%s:%u: key id '%.*s' is there twice", path,
				       lines[last - keys->keys], (int)WIRE_KEY_ID_BYTES,
				       (const char *)key->id);
	}
	return 0;
}

static int lines_read(const char *path, FILE *file, struct auth_keys *keys, unsigned int *lines)
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
		if (rc == 0 && keys->count >= AUTH_KEYS_MAX)
			rc = err_set(-EINVAL, "%s:%u: more than %u keys", path, number,
				     AUTH_KEYS_MAX);
		if (rc == 0) {
			lines[keys->count] = number;
			keys->keys[keys->count++] = key;
		}
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

/* Not as fopen() does it: that would wait for who opens the other end of a FIFO. */
static FILE *file_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (!file && fd >= 0)
		close(fd);
	return file;
}

static int file_read(const char *path, FILE *file, struct auth_keys *keys)
{
	unsigned int *lines = calloc(AUTH_KEYS_MAX, sizeof(*lines));
	int rc = -ENOMEM;

	keys->keys = calloc(AUTH_KEYS_MAX, sizeof(*keys->keys));
	if (lines && keys->keys)
		rc = lines_read(path, file, keys, lines);
	if (rc == 0)
		rc = keys_sort(path, keys, lines);
	free(lines);
	return rc == -ENOMEM ? err_set(rc, "out of memory") : rc;
}

int auth_keys_load(const char *path, struct auth_keys *ret_keys)
{
	struct auth_keys keys = {0};
	char buffer[BUFFER_BYTES]; /* our own: the secrets shall not linger in stdio's */
	FILE *file = file_open(path);
	int rc;

	if (!file)
		return err_set(-errno, "key file %s: %s", path, strerrordesc_np(errno));
	setvbuf(file, buffer, _IOFBF, sizeof(buffer));
	rc = mode_check(path, file);
	if (rc == 0)
		rc = file_read(path, file, &keys);
	fclose(file);
	sodium_memzero(buffer, sizeof(buffer));
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
	free(keys->by_id);
	*keys = (struct auth_keys){0};
}

const struct auth_key *auth_keys_find(const struct auth_keys *keys,
				      const uint8_t id[WIRE_KEY_ID_BYTES])
{
	struct auth_key wanted;
	const struct auth_key *key = &wanted, *const *found;

	memcpy(wanted.id, id, WIRE_KEY_ID_BYTES);
	if (keys->by_id) {
		found = bsearch(&key, keys->by_id, keys->count, sizeof(struct auth_key *), by_id);
		return found ? *found : NULL;
	}
	for (uint32_t i = 0; i < keys->count; i++)
		if (memcmp(keys->keys[i].id, id, WIRE_KEY_ID_BYTES) == 0)
			return &keys->keys[i];
	return NULL;
}
