/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * auth.h - proof that a client and a daemon know the same secret
 *
 * A keyed BLAKE2b (libsodium's crypto_generichash) of 16 bytes; the request's goes over its first
 * 40 bytes, the reply's over the whole request and the reply's first 180 bytes, so both sides prove
 * themselves and a reply can't be replayed. Secrets are 32 bytes. Key files (tarnd.conf(5), "Keys")
 * have one key a line: `ID ROLE SECRET`, ROLE read or write, SECRET 64 hex digits, behind them any of
 * keys=NUMBER, bytes=SIZE, pages=PERCENT%; # begins a comment. A client's file has one key.
 */
#ifndef TARN_AUTH_H
#define TARN_AUTH_H

#include <stdint.h>

#include "wire.h"

#define AUTH_SECRET_BYTES   32u
#define AUTH_TIME_WINDOW_MS 300000u /* how much the clocks of client and daemon may differ */
#define AUTH_KEYS_MAX       4096u   /* per file */
#define AUTH_QUOTA_MAX      (1ull << 50)

/* What a key's clients may use of the pool; 0: as much as there is. */
struct auth_quota {
	uint64_t keys;
	uint64_t bytes;         /* of keys and values */
	uint32_t pages_percent; /* of the pool's pages, that they own at a time */
};

struct auth_key {
	uint8_t id[WIRE_KEY_ID_BYTES]; /* as in struct wire_request */
	uint8_t role;                  /* enum wire_role */
	struct auth_quota quota;
	uint8_t secret[AUTH_SECRET_BYTES];
};

struct auth_keys {
	struct auth_key *keys; /* in the file's order */
	uint32_t count;
	const struct auth_key **by_id; /* sorted; NULL: not from a file, and few */
};

/* Once per process, before anything else here; any number of times, any thread. 0 or -ENOSYS. */
int auth_init(void);

/*
 * Reads a key file; refuses one that others can read (mode & 077), a malformed line (file:line), a
 * double id. The caller frees with auth_keys_free(), which wipes the secrets. 0, -errno, or -EINVAL
 * with a text.
 */
int auth_keys_load(const char *path, struct auth_keys *ret_keys);
void auth_keys_free(struct auth_keys *keys);
/* The key with this id, or NULL. */
const struct auth_key *auth_keys_find(const struct auth_keys *keys,
				      const uint8_t id[WIRE_KEY_ID_BYTES]);

/*
 * Writes / checks (in constant time) the last 16 bytes of an encoded request or reply. check: 0 or
 * -TARN_EAUTH.
 */
void auth_request_sign(const struct auth_key *key, uint8_t request[WIRE_REQUEST_BYTES]);
int auth_request_check(const struct auth_key *key, const uint8_t request[WIRE_REQUEST_BYTES]);
void auth_reply_sign(const struct auth_key *key, const uint8_t request[WIRE_REQUEST_BYTES],
		     uint8_t reply[WIRE_REPLY_BYTES]);
int auth_reply_check(const struct auth_key *key, const uint8_t request[WIRE_REQUEST_BYTES],
		     const uint8_t reply[WIRE_REPLY_BYTES]);

uint64_t auth_random(void);

#endif
