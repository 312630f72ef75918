/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue-internal.h - inside of libtarn: a ring queue's memory, and what a handle knows of it
 *
 * Messages have positions 0, 1, 2, ...; position p is in slot p % slots, in lap p / slots. A slot's state is
 * lap << 2 | enum slot_state, and only ever goes up:
 *
 *	FREE(lap) --publish--> FULL(lap) --consume--> FREE(lap + 1)
 *	FREE(lap) ---skip----> DEAD(lap) --pass--> DEAD(later lap) --revive--> FREE(later lap + 1)
 *
 * `tail` is the next position to be reserved, `head` the next to be consumed; they only go up, too. docs/sync.md has
 * the rules and why they are right.
 */
#ifndef TARN_QUEUE_INTERNAL_H
#define TARN_QUEUE_INTERNAL_H

#include "sync-internal.h"

struct queue_memory {
	uint64_t config;
	uint64_t consumer_sleeps; /* SYNC_SLEEPS */
	uint64_t producers_sleep; /* SYNC_SLEEPS_SECOND */
	uint64_t reserved[5];
	uint64_t tail, reserved2[7];
	uint64_t head, reserved3[7];
};
_Static_assert(sizeof(struct queue_memory) == 192, "layout of a queue");

struct queue_slot {
	uint64_t state;
	uint64_t checksum; /* of position, length and data: queue_checksum() */
	uint64_t bytes;
	uint8_t data[];
};
_Static_assert(sizeof(struct queue_slot) == 24, "layout of a queue's slot");

enum slot_state { SLOT_FREE = 0, SLOT_FULL = 1, SLOT_DEAD = 2 };

#define QUEUE_SLOTS_MIN  4u
#define QUEUE_SLOTS_MAX  (1u << 24)
#define QUEUE_UNKNOWN    UINT64_MAX
#define QUEUE_DEAD_KNOWN 16u   /* dead slots whose time a consumer keeps */
#define QUEUE_ROUNDS     1024u /* positions that one try passes over: then it looks at the clock */
#define QUEUE_QUARANTINE 16u   /* patiences until a dead slot is used again */

struct queue_dead {
	uint64_t slot, state, since_ns; /* since_ns 0: not in use */
};

/* A message on its way. */
struct sending {
	const void *data;
	uint64_t bytes;
	uint64_t position;
	uint64_t head[2]; /* checksum and bytes, as they stand in the slot */
	uint64_t state;   /* of its slot, or of the next one */
	uint64_t begun_ns;
};

/* A message that is looked for. */
struct receiving {
	void *buffer;
	size_t buffer_bytes;
	size_t *ret_bytes;
	uint64_t *ret_position;
	sync_handler *found; /* it is in queue->slot */
	unsigned taken;      /* so many times another consumer was faster */
	uint64_t state;      /* of the head's slot, as it was read, and the head then */
	uint64_t head;
	uint64_t position; /* that is consumed */
};

struct tarn_queue {
	struct sync_call call; /* first */
	uint64_t offset, lease_ns;
	uint64_t slots, stride;
	uint32_t slots_log2, message_bytes;
	bool single;
	/* As last seen. What is there now is not lower. */
	uint64_t head, tail;
	/* a producer's */
	uint64_t ready; /* single: the slot of this position is known to be free for it */
	uint64_t unclosed; /* a position of an earlier call, of which that is not known */
	/* a consumer's */
	uint64_t pending,
		pending_ns; /* this position is reserved and not published since then, at least */
	uint64_t peeked;    /* what tarn_queue_consume() may consume */
	uint64_t ambiguous; /* this one may have been consumed by this handle */
	struct queue_dead dead[QUEUE_DEAD_KNOWN];
	struct queue_slot *slot; /* one slot's room */
	/* the call under way */
	struct queue_memory looked;
	uint64_t first;        /* head, before tail was read */
	unsigned round, tries; /* of what is begun again */
	struct sending s;
	struct receiving r;
	uint64_t before; /* what a CAS of the slot in front of that of the head has found */
	bool with_slot;  /* there is one, in call.ops[0] */
	struct tarn_queue **ret_queue;
	struct tarn_queue_info *ret_info;
};

static inline struct tarn_queue *queue_of(struct sync_call *call)
{
	return (struct tarn_queue *)call;
}

static inline uint64_t queue_lap(const struct tarn_queue *queue, uint64_t position)
{
	return position >> queue->slots_log2;
}
static inline uint64_t queue_state(uint64_t lap, enum slot_state state)
{
	return lap << 2 | state;
}
static inline uint64_t queue_slot_offset(const struct tarn_queue *queue, uint64_t position)
{
	return queue->offset + sizeof(struct queue_memory) +
	       (position & (queue->slots - 1)) * queue->stride;
}
/* Of position's lap or an earlier one. */
static inline bool queue_is_dead(uint64_t state, uint64_t lap)
{
	return (state & 3) == SLOT_DEAD && state >> 2 <= lap;
}

uint64_t queue_checksum(uint64_t position, const void *data, uint64_t bytes);
/* Reads head and tail, and checks them: a part of a call, for sync_sub(). */
sync_handler queue_look;
int queue_corrupt(const struct tarn_queue *queue, uint64_t position, uint64_t state);
int queue_check(const struct tarn_queue *queue);

#endif
