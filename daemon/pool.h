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
#include "recover.h"
#include "self.h"
#include "wire.h"

#define POOL_NONE UINT32_MAX

enum pool_transport { POOL_SHM, POOL_VERBS };

/* A client-table slot as the daemon knows it. */
struct pool_client {
	uint32_t state; /* enum layout_client_state */
	uint32_t client_id;
	uint32_t first_id; /* client_id when it connected: names the connection, as client_id may change */
	/*
	 * Gone (state is free), but pages may still name its slot: that rests until the page table has
	 * been gone over.
	 */
	bool settling;
	uint64_t settle_pass; /* recycle.c's walk whose end settles it */
	uint32_t left_pages;  /* orphans that were found meanwhile */
	uint32_t pid, uid, gid;
	bool read_only;
	char name[32]; /* of the process, or verbs: its address and port */
	uint64_t connected_ms;
	enum pool_transport transport;
	const struct config_listen *listener; /* where it came in */
	uint8_t key_id[WIRE_KEY_ID_BYTES];    /* all zero: none */
	/*
	 * A shared-memory client of the daemon before this one: it has the pool mapped and may go on
	 * working in it, though it has no connection. Live until the kernel has dropped its lock; what
	 * else is known of it comes from the client table, as the pool's clients have left it.
	 */
	bool unfenced;
	/* Ends the connection at once, because of `why` (revoked, killed). Set by the peer. */
	void (*cut)(void *peer, const char *why);
	void *peer;
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

/* cluster-publish.h */
struct cluster_published {
	uint64_t epoch;        /* 0: there is none */
	uint64_t cluster;      /* cluster_hash(); stays while there is no map */
	uint64_t confirmed_ns; /* CLOCK_BOOTTIME; UINT64_MAX: always just now */
	uint64_t offset, checksum;
	uint32_t bytes;
	uint16_t number; /* this member's */
};

struct events;
struct fabric_endpoint;
struct fdstore;
struct keeper;
struct regions;

/* What is decided by looking at the listeners' devices, before the pool is made. */
struct pool_place {
	enum layout_atomics atomics;
	int numa_node; /* -1: any */
	struct events *events; /* told of the pool's; NULL: nobody is */
	struct fdstore *kept; /* memory that systemd has kept; NULL: none */
	uint32_t shards; /* of the cluster that the pool belongs to; 0: none, and then hash_seed is not looked at */
	uint64_t hash_seed; /* the cluster's */
	char why[160]; /* these atomics and no others, for people; "": nothing was decided */
};

struct pool {
	char name[CONFIG_NAME_MAX + 1];
	uint64_t hash; /* wire_pool_hash(name) */
	const struct config_pool *config;
	struct pool_memory memory;
	/*
	 * In a nic domain: the connection through which self.c does atomics. NULL: by the CPU, also
	 * in a nic domain whose device is gone: then nobody else can reach the words. Owned by who
	 * sets it (registration.c).
	 */
	struct fabric_endpoint *self;
	/*
	 * Set by self.c when `self` has failed: until its owner clears it, CAS and FAA of the daemon
	 * do nothing (self.h).
	 */
	bool self_lost;
	uint64_t self_words[SELF_CHANGES_MAX]; /* what requests of `self` read into */
	const struct log *log;
	struct events *events; /* NULL: nobody is told */
	struct layout_geometry geometry; /* of the superblock as it was formatted */
	uint64_t created_ms;
	int numa_node;
	char atomics_why[160]; /* pool_place.why */
	bool auth;             /* auth = key */
	struct auth_keys keys;
	struct pool_client *clients; /* geometry.max_clients */
	uint32_t client_count;       /* live ones */
	uint32_t settling_count;     /* slots that rest */
	bool lazy_ends;              /* as in a pool of very many pages, see pool_client_end() */
	uint64_t connections_ended;  /* of clients */
	uint32_t slot_cursor;        /* where the search for a free slot goes on */
	uint32_t last_client_id;
	uint32_t reserved_client_id; /* the superblock's last_client_id: ids up to it may be given out */
	uint32_t unfenced_count;     /* of the live ones */
	uint64_t unfenced_due_ns;    /* when they are looked at again */
	bool open;                   /* the memory is a whole pool, and ours */
	bool cut_off;                /* its file has been cut off: it is of no use any more */
	struct recover_report recovered; /* of a pool that was there before: what had to be finished */
	uint32_t page_cursor;                /* where the search for a page goes on */
	uint64_t full_until[LAYOUT_CLASSES]; /* clock_now_ns(): searching for a page again is
						useless before */
	uint64_t full_pass[LAYOUT_CLASSES]; /* rpc.c: the keeper's walks that were complete then */
	struct pool_counters counters;
	struct layout_telemetry ended; /* sum of what ended clients have reported last */
	struct keeper *keeper;
	/* The keeper has something to do that will not wait: asks for its step. NULL: nobody to ask. */
	void (*wake)(void *arg);
	void *wake_arg;
	struct regions *regions; /* of applications: region.h */
	/*
	 * Of a pool of a cluster: answers WIRE_RPC_READY of the client in that slot (member-mover.c). NULL: nobody is ever
	 * ready.
	 */
	void (*ready)(void *arg, uint32_t slot, const struct wire_rpc *rpc, struct wire_rpc_reply *reply);
	void *ready_arg;
	struct cluster_published published; /* of a pool of a cluster: what clients are told of the map */
};

/* Which start of this host's kernel it is; zeros when it does not say. */
void pool_host_boot_id(uint8_t ret_id[16]);
/*
 * A pool whose memory was kept (a file, or place->kept) is opened as it is, any other formatted. 0, or
 * a negative code with a text that does not name the pool. The config must outlive it.
 * pool-open.c.
 */
int pool_create(const struct config_pool *config, const struct pool_place *place,
		const struct log *log, struct pool **ret_pool);
/* The orderly end, also of the memory: it can be opened again, if it is kept. */
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
/* Are there clients of the daemon before this one which can still write to the pool? */
static inline bool pool_unfenced(const struct pool *pool)
{
	return pool->unfenced_count > 0;
}
/* Has somebody cut the pool's file off? Then its clients are ended, and the log says so once. */
void pool_cut_off_check(struct pool *pool);
/* Ends those of them that are gone; asks the kernel only now and then, with UINT64_MAX at once. */
void pool_unfenced_poll(struct pool *pool, uint64_t now_ns);
/*
 * The client is gone, and fenced: its pages become orphans, their number is returned. In a pool of very
 * many pages that is left to recycle.c's walk, or to pool_client_add() when no other slot is free: 0 is
 * returned, and the log tells what was found.
 */
uint32_t pool_client_end(struct pool *pool, uint32_t slot);
/* The same, and tells of it. `peer`: the process' name or the address. */
void pool_client_end_told(struct pool *pool, uint32_t slot, const char *peer, const char *why);
void pool_client_tell_connected(const struct pool *pool, uint32_t slot, const char *peer);
#define POOL_WHO_TEXT 128
/* For people: the process and its user, or the address. Returns text. */
const char *pool_who_text(const struct pool_client *client, const char *peer,
			  char text[POOL_WHO_TEXT]);
/* recycle.c's walk number `pass` over all pages is complete. */
void pool_clients_settle(struct pool *pool, uint64_t pass);
/* Makes an orphan of a slab page if no live client owns it; returns the page word as it is now. */
uint64_t pool_orphan_page(struct pool *pool, uint32_t page, uint64_t word);
/* The client has never got access: gives its slot back. */
void pool_client_withdraw(struct pool *pool, uint32_t slot);

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
