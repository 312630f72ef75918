/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.h - one pool: its memory, its clients, what is known of it
 *
 * The daemon decides by what stands in this struct. What stands in the pool itself can be written
 * by any client with write access, and is only told or counted. Main thread.
 */
#ifndef TARN_DAEMON_POOL_H
#define TARN_DAEMON_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "auth.h"
#include "config.h"
#include "layout.h"
#include "log.h"
#include "pool-memory.h"
#include "wire.h"

#define POOL_NONE UINT32_MAX

/* A client-table slot as the daemon knows it. */
struct pool_client {
	uint32_t state; /* enum layout_client_state */
	uint32_t client_id;
	uint32_t pid, uid, gid;
	bool read_only;
	char name[32];
	uint64_t connected_ms;
};

struct pool_counters {
	uint64_t handshakes_accepted;
	uint64_t handshakes_refused[WIRE_REASON_LAST + 1]; /* by enum wire_reason */
	uint64_t clients_ended_clean;                      /* owned no page */
	uint64_t clients_ended_dead;                       /* left pages behind */
	uint64_t rpcs[WIRE_RPC_LAST + 1];
};

struct pool_pages { /* by state and class; free and index pages have no class */
	uint64_t by_state[LAYOUT_PAGE_STATES];
	uint64_t by_class[LAYOUT_CLASSES][LAYOUT_PAGE_STATES];
	uint64_t damaged; /* words with an impossible state or class */
};

struct keeper;

struct pool {
	char name[CONFIG_NAME_MAX + 1];
	uint64_t hash; /* wire_pool_hash(name) */
	struct pool_memory memory;
	struct layout_geometry geometry; /* of the superblock as it was formatted */
	uint64_t created_ms;
	int numa_node;
	bool auth; /* auth = key */
	struct auth_keys keys;
	struct pool_client *clients; /* geometry.max_clients */
	uint32_t client_count;       /* live ones */
	uint32_t slot_cursor;        /* where the search for a free slot goes on */
	uint32_t last_client_id;
	uint32_t page_cursor;                /* where the search for a page goes on */
	uint64_t full_until[LAYOUT_CLASSES]; /* clock_now_ns(): searching for a page again is
						useless before */
	struct pool_counters counters;
	struct layout_telemetry ended; /* sum of what ended clients have reported last */
	struct keeper *keeper;
};

/* 0, or a negative code with a text that does not name the pool. */
int pool_create(const struct config_pool *config, const struct log *log, struct pool **ret_pool);
void pool_free(struct pool *pool);

/* A new client id: never the same twice in the life of the pool. 0 when all 2^32 are used up. */
uint32_t pool_client_id(struct pool *pool);
/*
 * Takes a client-table slot for a client and fills it in; `client` has all but state and client_id.
 * 0; -EBUSY when no slot is free; -EOVERFLOW when no client id is left.
 */
int pool_client_add(struct pool *pool, const struct pool_client *client, uint32_t *ret_slot);
/* Gives a live client another id. 0 or -EOVERFLOW. */
int pool_client_renumber(struct pool *pool, uint32_t slot, uint32_t *ret_client_id);
/* The client is gone, and fenced: its pages become orphans, their number is returned. */
uint32_t pool_client_end(struct pool *pool, uint32_t slot);

/* What a client reports of itself, clamped to what a sum can take; false when it has never
 * reported. */
bool pool_client_telemetry(const struct pool *pool, uint32_t slot,
			   struct layout_telemetry *ret_telemetry);
void pool_telemetry_add(struct layout_telemetry *sum, const struct layout_telemetry *add);

/* Goes through the whole page table. */
void pool_count_pages(const struct pool *pool, struct pool_pages *ret_pages);
/* A page that a client may try to claim for this class: a partial one, else a free one; POOL_NONE:
 * there is none. */
uint32_t pool_find_page(struct pool *pool, uint32_t class);

uint64_t pool_load_page_word(const struct pool *pool, uint32_t page);
bool pool_cas_page_word(struct pool *pool, uint32_t page, uint64_t compare, uint64_t value);

#endif
