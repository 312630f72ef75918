/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * admission.h - who of many that connect at once comes in now, who waits, and who is refused
 *
 * Knows no transport and does nothing itself: the listener tells it who arrives and leaves, and
 * asks who is next. Main thread.
 */
#ifndef TARN_DAEMON_ADMISSION_H
#define TARN_DAEMON_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "wire.h"

#define ADMISSION_BUCKETS 256u

struct admission_limits {
	uint32_t handshakes;  /* at once */
	uint32_t waiting;     /* besides those */
	uint32_t connections; /* waiting and handshakes included */
	uint32_t per_address; /* of the connections */
};

enum admission_state { ADMISSION_OUT, ADMISSION_WAITING, ADMISSION_HANDSHAKE, ADMISSION_IN };

/* One who connects; part of the caller's struct. */
struct admission_entry {
	TAILQ_ENTRY(admission_entry) link; /* while waiting */
	LIST_ENTRY(admission_entry) same;  /* of the same bucket of addresses */
	enum admission_state state;
	uint8_t address[16]; /* IPv6, or IPv4 mapped into it */
};

struct admission {
	struct admission_limits limits;
	TAILQ_HEAD(, admission_entry) queue;
	LIST_HEAD(, admission_entry) addresses[ADMISSION_BUCKETS];
	uint32_t waiting, handshakes, connections;
};

struct admission_refusal {
	enum wire_reason reason;
	uint64_t detail;
	uint32_t retry_after_ms;
};

void admission_init(struct admission *admission, const struct admission_limits *limits);
/*
 * Somebody connects. 1: its handshake may begin; 0: it waits for its turn; -EBUSY and the reason
 * why it is refused. The entry belongs to the admission until admission_leave(), unless refused.
 */
int admission_arrive(struct admission *admission, struct admission_entry *entry,
		     struct admission_refusal *ret_refusal);
/* The longest waiting one whose handshake may begin now, or NULL. */
struct admission_entry *admission_next(struct admission *admission);
/* Its handshake is done: it is connected. */
void admission_done(struct admission *admission, struct admission_entry *entry);
/* It is gone, from whatever state; also when it never arrived. */
void admission_leave(struct admission *admission, struct admission_entry *entry);

#endif
