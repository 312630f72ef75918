/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-wire.c - the map of a cluster into bytes and back
 *
 * The bytes come from other machines: nothing is read behind their end, and nothing in them is believed. Any thread.
 * Next to read: cluster-wire.h for the format, daemon/cluster-publish.c, client/cluster-connect.c.
 */
#include "cluster-wire.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "err.h"
#include "wire-bytes.h"

#define MAGIC          0x4d524154u /* "TARM" */
#define HEAD_BYTES     168u
#define NAME_BYTES     64u
#define MEMBER_BYTES   (8u + NAME_BYTES)
#define SHARD_BYTES    (2u + 8u + 8u)
#define MOVE_BYTES     6u
#define CHECKSUM_BYTES 8u
#define FLAG_CACHE     0x1u
#define FLAG_PLACED    0x2u

static_assert(NAME_BYTES == CLUSTER_NAME_MAX + 1, "names are zero padded");

uint64_t cluster_hash(const char *cluster)
{
	uint64_t hash = XXH3_64bits(cluster, strlen(cluster));

	return hash != 0 ? hash : 1;
}

uint64_t cluster_wire_checksum(const void *buffer, size_t bytes)
{
	struct reader r = {(const uint8_t *)buffer + bytes - CHECKSUM_BYTES};

	return get_uint(&r, CHECKSUM_BYTES);
}

/* ---- encode ---------------------------------------------------------------------------------- */

size_t cluster_wire_bytes(const struct cluster_map *map)
{
	size_t bytes = HEAD_BYTES + (size_t)map->shards * SHARD_BYTES +
		       (size_t)map->move_count * MOVE_BYTES + CHECKSUM_BYTES;

	for (uint32_t i = 0; i < map->member_count; i++) {
		bytes += MEMBER_BYTES;
		for (uint32_t j = 0; j < map->members[i].address_count; j++)
			bytes += 2 + strlen(map->members[i].addresses[j].text);
	}
	return bytes;
}

static void put_name(struct writer *w, const char *name)
{
	size_t length = strlen(name);

	put_bytes(w, name, length);
	put_zeros(w, NAME_BYTES - length);
}

static void put_head(struct writer *w, const struct cluster_map *map, size_t bytes)
{
	put_uint(w, MAGIC, 4);
	put_uint(w, CLUSTER_WIRE_FORMAT, 1);
	put_uint(w, (map->cache ? FLAG_CACHE : 0) | (map->placed ? FLAG_PLACED : 0), 1);
	put_uint(w, 1, 2);
	put_uint(w, bytes, 4);
	put_uint(w, map->shards, 4);
	put_uint(w, map->member_count, 4);
	put_uint(w, map->move_count, 4);
	put_uint(w, map->seed, 8);
	put_uint(w, map->epoch, 8);
	put_name(w, map->cluster);
	put_name(w, map->pool);
}

static void put_member(struct writer *w, const struct cluster_member *member)
{
	put_uint(w, member->number, 2);
	put_uint(w, member->state, 1);
	put_uint(w, member->address_count, 1);
	put_uint(w, member->weight, 4);
	put_name(w, member->name);
	for (uint32_t i = 0; i < member->address_count; i++) {
		const struct cluster_address *address = &member->addresses[i];
		size_t length = strlen(address->text);

		put_uint(w, address->shm, 1);
		put_uint(w, length, 1);
		put_bytes(w, address->text, length);
	}
}

int cluster_wire_encode(const struct cluster_map *map, void *buffer, size_t capacity,
			size_t *ret_bytes)
{
	size_t bytes = cluster_wire_bytes(map);
	struct writer w = {buffer};

	if (bytes > CLUSTER_WIRE_MAX_BYTES || bytes > capacity)
		return err_set(-E2BIG,
			       "the map of cluster %s has %zu bytes for clients: allowed are up to %zu; fewer "
			       "members or shorter addresses make it smaller",
			       map->cluster, bytes,
			       capacity < CLUSTER_WIRE_MAX_BYTES ? capacity
								 : CLUSTER_WIRE_MAX_BYTES);
	put_head(&w, map, bytes);
	for (uint32_t i = 0; i < map->member_count; i++)
		put_member(&w, &map->members[i]);
	for (uint32_t i = 0; i < map->shards; i++)
		put_uint(&w, map->owners[i], 2);
	for (uint32_t i = 0; i < map->shards; i++)
		put_uint(&w, map->since[i], 8);
	for (uint32_t i = 0; i < map->shards; i++)
		put_uint(&w, map->taken[i], 8);
	for (uint32_t i = 0; i < map->move_count; i++) {
		put_uint(&w, map->moves[i].shard, 4);
		put_uint(&w, map->moves[i].to, 2);
	}
	put_uint(&w, XXH3_64bits(buffer, bytes - CHECKSUM_BYTES), CHECKSUM_BYTES);
	assert(w.at == (uint8_t *)buffer + bytes);
	*ret_bytes = bytes;
	return 0;
}

/* ---- decode ---------------------------------------------------------------------------------- */

/* What is left in front of the checksum. */
struct source {
	struct reader r;
	const uint8_t *end;
};

static int check_left(const struct source *s, size_t bytes)
{
	if ((size_t)(s->end - s->r.at) >= bytes)
		return 0;
	return err_set(-TARN_EPROTO, "a cluster's map that ends too early");
}

static int get_name(struct source *s, const char *what, char *ret_name)
{
	get_bytes(&s->r, ret_name, NAME_BYTES);
	if (ret_name[NAME_BYTES - 1] == 0 && cluster_name_valid(ret_name) &&
	    all_zero((const uint8_t *)ret_name + strlen(ret_name), NAME_BYTES - strlen(ret_name)))
		return 0;
	return err_set(-TARN_EPROTO,
		       "a cluster's map with a %s that is not 1 to %u of a-z, A-Z, 0-9, '.', '_', '-'",
		       what, CLUSTER_NAME_MAX);
}

/* The first bytes and the checksum: is it a map, a whole one, and one that this build knows? */
static int check_bytes(const uint8_t *buffer, size_t bytes)
{
	struct reader r = {buffer};
	uint32_t magic, format, owners, all;

	if (bytes < HEAD_BYTES + CHECKSUM_BYTES || bytes > CLUSTER_WIRE_MAX_BYTES)
		return err_set(-TARN_EPROTO, "a cluster's map of %zu bytes: allowed are %u to %u",
			       bytes, HEAD_BYTES + CHECKSUM_BYTES, CLUSTER_WIRE_MAX_BYTES);
	magic = get32(&r);
	format = get8(&r);
	skip(&r, 1);
	owners = get16(&r);
	all = get32(&r);
	if (magic != MAGIC || all != bytes)
		return err_set(-TARN_EPROTO,
			       "a cluster's map that begins with 0x%08x and has %u bytes, of %zu: not "
			       "with 0x%08x and all of them",
			       magic, all, bytes, MAGIC);
	if (XXH3_64bits(buffer, bytes - CHECKSUM_BYTES) != cluster_wire_checksum(buffer, bytes))
		return err_set(-TARN_EPROTO, "a cluster's map with a wrong checksum");
	if (format != CLUSTER_WIRE_FORMAT || owners != 1)
		return err_set(-TARN_EPROTO,
			       "a cluster's map of format %u with %u owners of a shard: this build knows "
			       "format %u with one: upgrade the client",
			       format, owners, CLUSTER_WIRE_FORMAT);
	return 0;
}

static int decode_head(struct source *s, struct cluster_map *map)
{
	uint8_t flags;
	int rc;

	skip(&s->r, 5);
	flags = get8(&s->r);
	skip(&s->r, 6);
	map->shards = get32(&s->r);
	map->member_count = get32(&s->r);
	map->move_count = get32(&s->r);
	map->seed = get_uint(&s->r, 8);
	map->epoch = get_uint(&s->r, 8);
	map->cache = flags & FLAG_CACHE;
	map->placed = flags & FLAG_PLACED;
	rc = get_name(s, "cluster", map->cluster);
	if (rc == 0)
		rc = get_name(s, "pool", map->pool);
	if (rc < 0)
		return rc;
	if (flags & ~(FLAG_CACHE | FLAG_PLACED) || map->shards < CLUSTER_SHARDS_MIN ||
	    map->shards > CLUSTER_SHARDS_MAX || (map->shards & (map->shards - 1)) != 0 ||
	    map->member_count == 0 || map->member_count > CLUSTER_MEMBERS_MAX ||
	    map->move_count > map->shards || map->epoch == 0 || map->epoch > CLUSTER_EPOCH_MAX)
		return err_set(-TARN_EPROTO,
			       "a cluster's map with %u shards, %u members, %u moves, epoch %llu, flags "
			       "0x%x: not what such a map can have",
			       map->shards, map->member_count, map->move_count,
			       (unsigned long long)map->epoch, flags);
	return 0;
}

static int decode_addresses(struct source *s, struct cluster_member *member, uint32_t count)
{
	if (count == 0 || count > CLUSTER_ADDRESSES_MAX)
		return err_set(-TARN_EPROTO, "a cluster's map: member %s has %u addresses",
			       member->name, count);
	member->addresses = calloc(count, sizeof(*member->addresses));
	if (!member->addresses)
		return err_set(-ENOMEM, "no memory for the map's addresses");
	member->address_count = count;
	for (uint32_t i = 0; i < count; i++) {
		struct cluster_address *address = &member->addresses[i];
		uint8_t fabric, length;
		int rc = check_left(s, 2);

		if (rc < 0)
			return rc;
		fabric = get8(&s->r);
		length = get8(&s->r);
		rc = check_left(s, length);
		if (rc < 0)
			return rc;
		get_bytes(&s->r, address->text, length);
		if (fabric > 1 || length == 0 || strlen(address->text) != length)
			return err_set(-TARN_EPROTO,
				       "a cluster's map: address %u of member %s is no text, or of an "
				       "unknown fabric",
				       i, member->name);
		address->shm = fabric == 1;
	}
	return 0;
}

static int decode_member(struct source *s, struct cluster_map *map, uint32_t i)
{
	struct cluster_member *member = &map->members[i];
	uint8_t state, addresses;
	int rc = check_left(s, MEMBER_BYTES);

	if (rc < 0)
		return rc;
	member->number = get16(&s->r);
	state = get8(&s->r);
	addresses = get8(&s->r);
	member->weight = get32(&s->r);
	rc = get_name(s, "member", member->name);
	if (rc < 0)
		return rc;
	if (member->number == 0 || member->number > CLUSTER_MEMBERS_MAX ||
	    state >= CLUSTER_STATES || member->weight > CLUSTER_WEIGHT_MAX)
		return err_set(-TARN_EPROTO,
			       "a cluster's map: member %s has number %u, state %u, weight %u",
			       member->name, member->number, state, member->weight);
	member->state = (enum cluster_state)state;
	for (uint32_t j = 0; j < i; j++)
		if (map->members[j].number == member->number ||
		    strcmp(map->members[j].name, member->name) == 0)
			return err_set(-TARN_EPROTO,
				       "a cluster's map with two members of name %s or number %u",
				       member->name, member->number);
	return decode_addresses(s, member, addresses);
}

/* Whether it is a place in the members at all, of one that may own shards. */
static bool may_own(const struct cluster_map *map, uint16_t place)
{
	return place < map->member_count && map->members[place].state != CLUSTER_LEFT;
}

static int decode_shards(struct source *s, struct cluster_map *map)
{
	int rc = check_left(s, (size_t)map->shards * SHARD_BYTES);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < map->shards; i++)
		map->owners[i] = get16(&s->r);
	for (uint32_t i = 0; i < map->shards; i++)
		map->since[i] = get_uint(&s->r, 8);
	for (uint32_t i = 0; i < map->shards; i++)
		map->taken[i] = get_uint(&s->r, 8);
	for (uint32_t i = 0; i < map->shards; i++)
		if ((map->owners[i] != CLUSTER_NOBODY && !may_own(map, map->owners[i])) ||
		    map->since[i] == 0 || map->since[i] > map->epoch ||
		    map->taken[i] > map->since[i])
			return err_set(-TARN_EPROTO,
				       "a cluster's map: shard %u has member %u of %u, since %llu, taken "
				       "%llu, in epoch %llu",
				       i, map->owners[i], map->member_count,
				       (unsigned long long)map->since[i],
				       (unsigned long long)map->taken[i],
				       (unsigned long long)map->epoch);
	return 0;
}

static int decode_moves(struct source *s, struct cluster_map *map)
{
	uint32_t next = 0;
	int rc = check_left(s, (size_t)map->move_count * MOVE_BYTES);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < map->move_count; i++) {
		struct cluster_move *move = &map->moves[i];

		move->shard = get32(&s->r);
		move->to = get16(&s->r);
		if (move->shard < next || move->shard >= map->shards ||
		    move->to >= map->member_count || map->members[move->to].state != CLUSTER_UP ||
		    map->owners[move->shard] == CLUSTER_NOBODY ||
		    map->owners[move->shard] == move->to)
			return err_set(-TARN_EPROTO,
				       "a cluster's map: move %u, of shard %u to member %u of %u, is none",
				       i, move->shard, move->to, map->member_count);
		next = move->shard + 1;
	}
	return 0;
}

static int decode(struct source *s, struct cluster_map *map)
{
	int rc = decode_head(s, map);
	uint32_t count = map->member_count;

	if (rc < 0) {
		map->member_count = 0;
		return rc;
	}
	map->members = calloc(count, sizeof(*map->members));
	map->owners = calloc(map->shards, sizeof(*map->owners));
	map->since = calloc(map->shards, sizeof(*map->since));
	map->taken = calloc(map->shards, sizeof(*map->taken));
	map->moves = calloc((size_t)map->move_count + 1, sizeof(*map->moves));
	if (!map->members || !map->owners || !map->since || !map->taken || !map->moves) {
		map->member_count = map->members ? count : 0;
		return err_set(-ENOMEM, "no memory for a cluster's map");
	}
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = decode_member(s, map, i);
	if (rc == 0)
		rc = decode_shards(s, map);
	if (rc == 0)
		rc = decode_moves(s, map);
	if (rc == 0 && s->r.at != s->end)
		rc = err_set(-TARN_EPROTO, "a cluster's map with %zu bytes behind its end",
			     (size_t)(s->end - s->r.at));
	return rc;
}

int cluster_wire_decode(const void *buffer, size_t bytes, struct cluster_map **ret_map)
{
	int rc = check_bytes(buffer, bytes);
	struct cluster_map *map;
	struct source s;

	if (rc < 0)
		return rc;
	map = calloc(1, sizeof(*map));
	if (!map)
		return err_set(-ENOMEM, "no memory for a cluster's map");
	s.r.at = buffer;
	s.end = (const uint8_t *)buffer + bytes - CHECKSUM_BYTES;
	rc = decode(&s, map);
	if (rc < 0) {
		cluster_map_free(map);
		return rc;
	}
	*ret_map = map;
	return 0;
}
