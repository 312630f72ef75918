/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Key files of a reload: what is different in them, and whose connections end by it: a key that is
 * gone, has another secret, or may only read now; a listener that was removed or does not offer the
 * pool any more. Main thread. How a connection is cut is its peer's affair (struct pool_client,
 * cut). reload.c is the caller; handshake.c asks for the keys, peer.c and peer-verbs.c do the cut.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pool.h"
#include "reload-keys.h"

#define NAMES 4u /* that are told of each kind */

/* ---- what is different ---- */

enum difference { ADDED, REMOVED, CHANGED, DIFFERENCES };

struct comparison {
	uint32_t counts[DIFFERENCES];
	char names[DIFFERENCES][NAMES * (WIRE_KEY_ID_BYTES + 2) + 8];
};

static void note(struct comparison *c, enum difference what, const struct auth_key *key)
{
	char *names = c->names[what];
	size_t used = strlen(names), bytes = sizeof(c->names[what]);

	if (c->counts[what]++ < NAMES)
		snprintf(names + used, bytes - used, "%s%.*s", used ? ", " : "",
			 (int)WIRE_KEY_ID_BYTES, (const char *)key->id);
	else if (c->counts[what] == NAMES + 1)
		snprintf(names + used, bytes - used, ", ...");
}

static bool same(const struct auth_key *a, const struct auth_key *b)
{
	return a->role == b->role && a->quota.keys == b->quota.keys &&
	       a->quota.bytes == b->quota.bytes &&
	       a->quota.pages_percent == b->quota.pages_percent &&
	       memcmp(a->secret, b->secret, sizeof(a->secret)) == 0;
}

void reload_keys_compare(const struct auth_keys *old_keys, const struct auth_keys *new_keys,
			 struct reload_keys *ret)
{
	static const char *const words[DIFFERENCES] = {"added", "removed", "changed"};
	struct comparison c = {0};
	size_t used = 0;

	for (uint32_t i = 0; i < new_keys->count; i++) {
		const struct auth_key *is = &new_keys->keys[i],
				      *was = auth_keys_find(old_keys, is->id);

		if (!was)
			note(&c, ADDED, is);
		else if (!same(was, is))
			note(&c, CHANGED, is);
	}
	for (uint32_t i = 0; i < old_keys->count; i++)
		if (!auth_keys_find(new_keys, old_keys->keys[i].id))
			note(&c, REMOVED, &old_keys->keys[i]);
	*ret = (struct reload_keys){.added = c.counts[ADDED],
				    .removed = c.counts[REMOVED],
				    .changed = c.counts[CHANGED]};
	for (int i = 0; i < DIFFERENCES; i++)
		if (c.counts[i] && used < sizeof(ret->text))
			used += (size_t)snprintf(ret->text + used, sizeof(ret->text) - used,
						 "%s%u key%s %s (%s)", used ? ", " : "",
						 c.counts[i], c.counts[i] == 1 ? "" : "s", words[i],
						 c.names[i]);
}

/* ---- who may not stay ---- */

static const char *key_verdict(const struct auth_key *was, const struct auth_key *is,
			       const struct pool_client *client)
{
	if (!is)
		return "its key is not in the key file any more";
	if (!was || memcmp(was->secret, is->secret, sizeof(is->secret)) != 0)
		return "its key has another secret now";
	if (is->role != WIRE_ROLE_WRITE && !client->read_only)
		return "its key may only read now";
	return NULL;
}

const char *reload_verdict(const struct reload_access *was, const struct reload_access *is,
			   bool offered, const struct pool_client *client)
{
	if (!client->listener)
		return "its listener was removed";
	if (!offered)
		return "the pool is not offered at its listener any more";
	if (!is->auth)
		return NULL;
	if (!was->auth)
		return "the pool wants a key now";
	return key_verdict(auth_keys_find(was->keys, client->key_id),
			   auth_keys_find(is->keys, client->key_id), client);
}

void reload_cut(struct pool_client *client, const char *why)
{
	void (*cut)(void *peer, const char *why) = client->cut;

	client->cut = NULL; /* once; and it may be gone afterwards */
	if (cut)
		cut(client->peer, why);
}

uint32_t reload_cut_all(struct pool *pool, const struct reload_access *was)
{
	const struct reload_access is = {pool->auth, &pool->keys};
	uint32_t count = 0;

	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++) {
		struct pool_client *client = &pool->clients[slot];
		const char *why;

		if (client->state != LAYOUT_CLIENT_LIVE || !client->cut)
			continue;
		why = reload_verdict(was, &is,
				     client->listener &&
					     config_pool_offered(pool->config, client->listener),
				     client);
		if (!why)
			continue;
		count++;
		reload_cut(client, why);
	}
	return count;
}
