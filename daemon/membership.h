/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * membership.h - which members a cluster has, and its map: the one interface to whoever keeps them (docs/protocol.md,
 * section 11)
 *
 * Main thread alone, in the daemon's loop; nothing here blocks but for reading local files in _create() and _reload(), and _free() for
 * half a second at most. Nobody is told anything from within a call of this interface: events come from the loop. All calls but _free()
 * are allowed in them.
 *
 *	static	membership-static.c: a file; nobody has a lease, nothing can be written
 *	etcd	membership-etcd.c
 *
 * **Epochs of what is written.** The epoch of a map in etcd is the revision in which it was written, which the writer can
 * not know. So it writes the document with an epoch that is one more than that of the map it began with, and `since` and
 * `taken` of the shards that it changes are the same number. Who reads the map puts the revision in the place of all these:
 * no earlier epoch can be that number. (With a file an epoch is just what the file says.)
 */
#ifndef TARN_DAEMON_MEMBERSHIP_H
#define TARN_DAEMON_MEMBERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>

#include "cluster-map.h"
#include "config.h"
#include "log.h"

#define MEMBERSHIP_VERSION_MAX 31u
#define MEMBERSHIP_TEXT_MAX    255u

struct membership;

enum membership_outcome {
	MEMBERSHIP_WRITTEN, /* the new map will be told by `map`, if that has not happened already */
	MEMBERSHIP_REFUSED, /* nothing was written, and nothing will be: another epoch or boot id, or the text says why */
	MEMBERSHIP_UNKNOWN, /* nothing may be done until a newer map has been read */
};

/* One that is alive: what it says of itself, bound to its lease. */
struct membership_record {
	char name[CLUSTER_NAME_MAX + 1];
	uint16_t number; /* in the map; 0: it does not know yet */
	uint64_t boot_id; /* not 0: another one each time that it starts */
	/*
	 * 0, or the boot id of this member's last run, in one's own record alone: a record with it is from before the
	 * restart and is replaced. Any other one's is somebody else with the same name.
	 */
	uint64_t previous_boot_id;
	uint32_t weight;
	uint32_t address_count;
	struct cluster_address addresses[CLUSTER_ADDRESSES_MAX];
	char version[MEMBERSHIP_VERSION_MAX + 1]; /* printable ASCII */
};

struct membership_events {
	/*
	 * A newer map than before; owned by membership until the next call. NULL: it is known that there is none, so somebody
	 * may write the first one.
	 */
	void (*map)(void *arg, const struct cluster_map *map);
	/* Who is alive, all of them, by name; until the next call. Static membership knows of nobody and never tells. */
	void (*records)(void *arg, const struct membership_record *records, unsigned int count);
	/* Fence, now: by this machine's clock, before the lease can have ended; or it has ended, as etcd says. */
	void (*lost)(void *arg, const char *why);
	/* There is a lease and this member's record is in place; also the first time. Static: at the beginning. */
	void (*regained)(void *arg);
};

/* For statistics; texts are valid until the loop goes on. */
struct membership_state {
	const char *backend;  /* "static", "etcd" */
	const char *endpoint; /* that is asked now, "http://10.0.0.1:2379"; static: the file */
	bool connected;       /* the last question was answered */
	bool held;            /* the lease; static: always */
	uint64_t lease_ns;    /* how long it is; 0: no leases */
	uint64_t lease_left_ns;   /* until this member would fence itself */
	uint64_t confirmed_ns;    /* as of membership_map(); 0: never */
	uint64_t revision;        /* the last one of etcd that was seen */
	uint64_t requests, failures; /* to etcd */
	uint64_t fenced;          /* how often */
	const char *error;        /* the last one; "": none since the last answer */
};

/*
 * As [cluster] says; `self` is copied. Reads the map (static) or certificates and password; etcd is asked from the loop on. 0,
 * or a negative code with a text that begins with the key that is wrong. The log, the base and `arg` must outlive it.
 */
int membership_create(const struct config_cluster *config, struct event_base *base, const struct membership_record *self,
		      const struct membership_events *events, void *arg, const struct log *log,
		      struct membership **ret_membership);
/* Gives the lease back, so that others know at once, and waits for that, but not for long. NULL is fine. */
void membership_free(struct membership *membership);

/*
 * The newest map, or NULL. *ret_confirmed_ns: when, by CLOCK_BOOTTIME, the question was sent that was answered with it; 0:
 * never.
 */
const struct cluster_map *membership_map(const struct membership *membership, uint64_t *ret_confirmed_ns);

/*
 * Is the lease held, by the clock as it is now? A process that has been stopped must not serve anybody before its fencing timer
 * comes round: if the time is over, `lost` is called from here, the one exception to the rule above.
 */
bool membership_held(struct membership *membership);

/*
 * Writes the next map if the epoch is still if_epoch (0: there is none yet) and, with if_member, if that member's record has this
 * boot id. `next` has the epoch if_epoch + 1, is copied, and `done` comes once, from the loop; after
 * membership_free() no more. 0, or a negative code with a text and `done` does not come: -EINVAL (the map is none, or its
 * epoch another), -E2BIG, -ENOMEM.
 */
int membership_write(struct membership *membership, const struct cluster_map *next, uint64_t if_epoch,
		     const char *if_member, uint64_t if_boot_id,
		     void (*done)(void *arg, enum membership_outcome outcome, const char *text), void *arg);

/*
 * Another configuration, or another record of this member (its number is known now); boot id and name stay. Static: the file is read again.
 * 0, or a negative code with a text, and all is as before.
 */
int membership_reload(struct membership *membership, const struct config_cluster *config,
		      const struct membership_record *self);

/*
 * Static: the map that a reload would read, checked by itself; the caller frees it. 0, or a negative code with a text that begins with
 * the key.
 */
int membership_static_load(const struct config_cluster *config, const char *member, struct cluster_map **ret_map);

void membership_state(const struct membership *membership, struct membership_state *ret_state);

/* tarnd -t: are the files of [cluster] right? */
void membership_check(const struct config *config, struct config_errors *errors);

#endif
