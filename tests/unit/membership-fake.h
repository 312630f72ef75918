/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * membership-fake.h - membership.h without etcd, for tests: members in one process, and a keeper of their map that is late, loses
 * writes, or does them without saying so, as a seed has it
 *
 * membership_write() and the others work with what fake_member_create() gives. Events come from the loop.
 */
#ifndef TARN_TESTS_MEMBERSHIP_FAKE_H
#define TARN_TESTS_MEMBERSHIP_FAKE_H

#include "membership-backend.h"

struct fake_keeper;

/* All zero: everything happens in the next turn of the loop. Of a hundred writes ... */
struct fake_faults {
	unsigned int late_ms;      /* each event and answer comes within so long */
	unsigned int lost;         /* are not done, and the answer is "unknown" */
	unsigned int done_unknown; /* are done, and the answer is "unknown" */
	unsigned int done_late;    /* the answer is "unknown", and behind it they are done if their condition still holds */
};

struct fake_keeper *fake_keeper_create(struct event_base *base, uint64_t seed);
/* After all members. */
void fake_keeper_free(struct fake_keeper *keeper);
void fake_keeper_faults(struct fake_keeper *keeper, const struct fake_faults *faults);
/* The epoch of its map; 0: none. */
uint64_t fake_keeper_epoch(const struct fake_keeper *keeper);

/* Has a lease at once, and `regained` is told. To be freed with membership_free(). */
struct membership *fake_member_create(struct fake_keeper *keeper, const struct membership_record *record,
				      const struct membership_events *events, void *arg, const struct log *log);
/* Its lease has ended: the record is gone, `lost` is told from here; and it gets another one. */
void fake_member_lose(struct membership *membership, const char *why);
void fake_member_regain(struct membership *membership);
/* Cut off from the keeper: it is told nothing, its map grows old, what it writes is lost and unknown; or that is over. */
void fake_member_cut(struct membership *membership, bool cut);

#endif
