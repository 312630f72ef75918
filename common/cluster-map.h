/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-map.h - the map of a cluster (docs/protocol.md, section 11): a JSON document, checked, as
 * a struct; and which member a shard should have
 *
 * cluster_map_parse() is in cluster-map-json.c, which is linked into command and daemon alone: the library has no JSON,
 * and gets the map as cluster-wire.h describes it. No globals, nothing printed, any thread.
 * docs/cluster-map.schema.json describes the document; what a schema can not say is checked here, too.
 */
#ifndef TARN_CLUSTER_MAP_H
#define TARN_CLUSTER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLUSTER_MAP_FORMAT     1
#define CLUSTER_MAP_MAX_BYTES  (1024u * 1024u) /* etcd refuses requests of more than 1.5 MiB */
#define CLUSTER_NAME_MAX       63u             /* [a-zA-Z0-9._-]+ */
#define CLUSTER_ADDRESS_MAX    255u            /* bytes of one */
#define CLUSTER_ADDRESSES_MAX  8u              /* of a member */
#define CLUSTER_MEMBERS_MAX    1023u
#define CLUSTER_WEIGHT_MAX     10000u
#define CLUSTER_WEIGHT_DEFAULT 100u
#define CLUSTER_SHARDS_MIN     64u
#define CLUSTER_SHARDS_MAX     16384u
#define CLUSTER_EPOCH_MAX      (UINT64_C(1) << 60) /* a shard's word has 61 bits for it */
#define CLUSTER_NOBODY         UINT16_MAX          /* in `owners` */

enum cluster_state { CLUSTER_UP, CLUSTER_DRAINING, CLUSTER_DOWN, CLUSTER_LEFT };
#define CLUSTER_STATES 4u

struct cluster_address {
	bool shm; /* else verbs */
	char text[CLUSTER_ADDRESS_MAX + 1];
};

struct cluster_member {
	char name[CLUSTER_NAME_MAX + 1];
	uint16_t number; /* 1 to CLUSTER_MEMBERS_MAX; never given to another one */
	enum cluster_state state;
	uint32_t weight;
	uint32_t address_count;
	struct cluster_address *addresses;
};

struct cluster_move {
	uint32_t shard;
	uint16_t to; /* place in `members` */
};

struct cluster_map {
	char cluster[CLUSTER_NAME_MAX + 1], pool[CLUSTER_NAME_MAX + 1];
	bool cache; /* the pool's mode; else store */
	uint64_t seed, epoch;
	uint32_t shards; /* a power of two */
	uint32_t member_count, move_count;
	struct cluster_member *members;
	uint16_t *owners;        /* per shard: a place in `members`, or CLUSTER_NOBODY */
	uint64_t *since, *taken; /* per shard: epochs */
	struct cluster_move *moves;
	bool placed; /* the document has no owners: they are those of cluster_place() */
};

/*
 * Reads a document. 0; -EINVAL with a text that names the place in the document,
 * what is there and what is allowed; -E2BIG if it is larger than CLUSTER_MAP_MAX_BYTES; -ENOMEM. The
 * caller frees *ret_map with cluster_map_free().
 */
int cluster_map_parse(const char *text, size_t bytes, struct cluster_map **ret_map);
void cluster_map_free(struct cluster_map *map);

/* 0, or -EINVAL with a text: it is the map of another cluster. */
int cluster_map_expect(const struct cluster_map *map, const char *cluster);

const char *cluster_state_name(enum cluster_state state);

/* The place in `members` of this name, or -ENOENT with a text. */
int cluster_map_find(const struct cluster_map *map, const char *name);

/*
 * A member's addresses in the order in which they are tried: shared memory first, which is left out where its path is
 * not there, since it is so on the member's own host alone. *at is 0 at the beginning; NULL: there are no more.
 */
const struct cluster_address *cluster_address_next(const struct cluster_address *addresses, uint32_t count, uint32_t *at);

/*
 * The place of the member that is the rank-th (from 0) to be asked for the region of this name, when nothing says with which member it is.
 * Rank 0 is where it is made. CLUSTER_NOBODY: there are not so many. cluster-place.c.
 */
uint16_t cluster_map_region(const struct cluster_map *map, const char *name, uint32_t rank);

/* [a-zA-Z0-9._-]{1,63} */
bool cluster_name_valid(const char *name);

/*
 * The owners that each shard should have, map->shards places in `members`: by weighted rendezvous
 * hashing of the members that are up; one that has more than its weight's share and a fiftieth
 * leaves the rest to the next best. The same for everybody who has the same members, on any
 * machine. 0, or -EINVAL with a text if no member that is up has a weight.
 */
int cluster_place(const struct cluster_map *map, uint16_t *ret_owners);

/* Which shard a key is in: by the hash that the pool's directory uses (layout.h). */
uint32_t cluster_map_shard(const struct cluster_map *map, const void *key, size_t bytes);

#endif
