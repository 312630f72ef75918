/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * quiescence.h - has every connection done what it owed at some moment? docs/protocol.md section 6
 *
 * A client raises its count in the client table when all that it owed at the last raise has been
 * posted, and requests of one connection take effect in order: once it has raised the count twice
 * since a sample, what it owed at the sample has taken effect. A connection that is gone was fenced
 * before and owes nothing any more, nor does one that can only read. Main thread.
 *
 * A count is believed against its owner alone: one that goes down or stands still holds up what waits
 * for it; one that jumps lets its owner's own late WRITEs hit memory that somebody else has by then,
 * which a client with write access can do without any count.
 */
#ifndef TARN_DAEMON_QUIESCENCE_H
#define TARN_DAEMON_QUIESCENCE_H

#include <stdbool.h>
#include <stdint.h>

struct pool;
struct quiescence;

struct quiescence *quiescence_create(const struct pool *pool); /* NULL: no memory */
void quiescence_free(struct quiescence *quiescence);

/* Begins a new sample; what has been asked to wait for the old one is forgotten. */
void quiescence_begin(struct quiescence *quiescence);
/* Takes a bounded part of the sample; true: it is complete. */
bool quiescence_take(struct quiescence *quiescence);
/*
 * Has every connection of the complete sample raised its count twice, or gone? Bounded: it may have
 * to be asked again although all have.
 */
bool quiescence_passed(struct quiescence *quiescence);
/* The client-table slot of one that has not, as of the last question; POOL_NONE: nobody. */
uint32_t quiescence_waits_for(const struct quiescence *quiescence);

#endif
