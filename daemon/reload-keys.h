/* SPDX-License-Identifier: BSD-2-Clause */
/* reload-keys.h - the key files of a reload, and clients that may not stay */
#ifndef TARN_DAEMON_RELOAD_KEYS_H
#define TARN_DAEMON_RELOAD_KEYS_H

#include "auth.h"
#include "daemon.h"

/* What is different between two sets of keys. */
struct reload_keys {
	uint32_t added, removed, changed;
	char text[224]; /* "2 keys added (ada, bob), 1 removed (eve)"; "": nothing */
};

void reload_keys_compare(const struct auth_keys *old_keys, const struct auth_keys *new_keys,
			 struct reload_keys *ret);

/* What decides about a pool's clients. */
struct reload_access {
	bool auth;
	const struct auth_keys *keys;
};

/*
 * Why a client that came in with the old rules may not stay with the new ones; NULL: it may. Its
 * `listener` is the new one, NULL: removed; offered: the pool is still offered there.
 */
const char *reload_verdict(const struct reload_access *was, const struct reload_access *is,
			   bool offered, const struct pool_client *client);
/* Cuts a client off, if that has not been done already. */
void reload_cut(struct pool_client *client, const char *why);
/* Cuts off who may not stay in a pool, which has the new rules. Returns how many. */
uint32_t reload_cut_all(struct pool *pool, const struct reload_access *was);

#endif
