/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-internal.h - inside of libtarn: what locks, queues, barriers and epoch counters share
 *
 * Each is some memory of a region. Its first word is the configuration, which also says what it is:
 *
 *	bits 52..63 SYNC_MAGIC | 48..51 enum sync_kind | 0..47 parameters
 *
 * and is all that init writes, by one CAS: so it does not matter how many do it at once, or whether one of them
 * is killed. All other words begin as the zeros that a new region has. docs/sync.md has the layouts.
 */
#ifndef TARN_SYNC_INTERNAL_H
#define TARN_SYNC_INTERNAL_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <tarn/sync.h>

#define SYNC_MAGIC           0x7a5ull
#define SYNC_PARAMETERS_BITS 48
#define SYNC_WORD_MAX        (1ull << 60) /* what counts upwards never comes so far: more is damage */
#define SYNC_TRIES           4u           /* of what is ambiguous, before the caller is told so */
#define SYNC_TIMEOUT_MAX_MS  3600000u

enum sync_kind {
	SYNC_LOCK = 1,
	SYNC_QUEUE = 2,
	SYNC_QUEUE_SINGLE = 3, /* one producer */
	SYNC_BARRIER = 4,
	SYNC_EPOCH = 5
};

/* Offset of the word that says that somebody sleeps, the same for all kinds. Queues have a second one. */
#define SYNC_SLEEPS        8u
#define SYNC_SLEEPS_SECOND 16u

/* Is there room for `bytes` at the offset, a multiple of 8? */
int sync_check_place(const struct tarn_region *region, uint64_t offset, uint64_t bytes);
int sync_check_lease(uint32_t lease_ms);
/* -TARN_ENOTFOUND or -TARN_ECORRUPT for what was found in place of what was wanted. */
int sync_wrong_kind(enum sync_kind kind, const char *wanted);

/*
 * How long a waiter has to see the same word until its owner, whose clock is another one, knows for sure that the
 * lease is over: clocks that are wrong by 5 %, one too slow, the other too fast, ask for 1.05 / 0.95 = 1.106.
 */
static inline uint64_t sync_patience_ns(uint64_t lease_ns)
{
	return lease_ns + lease_ns / 8 + 1000000;
}

/* ---- sync-call.c: calls, as what has to be done step by step ---------------------------------- */

struct sync_call;

/* What has to be done before the call goes on. */
enum sync_want {
	SYNC_ENDED,  /* nothing: call->status is its result */
	SYNC_ACCESS, /* sync_batch() of call->ops */
	SYNC_NOTIFY, /* tarn_region_write_notify() of call->wake */
	SYNC_LISTEN, /* tarn_region_wait() from call->sequence on, for call->pause_ns */
	SYNC_SLEEP   /* nothing for call->pause_ns */
};

/* One state of a call: makes something of call->status, and says what is next. */
typedef enum sync_want sync_handler(struct sync_call *call);

#define SYNC_OPS   6u
#define SYNC_DEPTH 4u

/*
 * A handle begins with it: one call at a time. It knows neither who does what it wants nor whether somebody waits:
 * sync_run() for the blocking calls, sync-async.c for their twins.
 */
struct sync_call {
	struct tarn_region *region;
	uint64_t sequence; /* the last notification known of */
	uint64_t random;
	bool busy;   /* an asynchronous call on it has not been picked up */
	bool closed; /* nobody has the handle (any more, or yet): it is freed then */
	void (*free)(struct sync_call *call);

	sync_handler *next; /* goes on when it is done, with its status */
	sync_handler *back[SYNC_DEPTH];
	unsigned depth;
	enum sync_want want;
	int status;
	struct tarn_region_op ops[SYNC_OPS], wake;
	size_t count;
	uint64_t not_after_ns; /* of the access */
	uint64_t pause_ns;

	/* of one that waits: it tries, and calls sync_pause() as long as that does not work */
	sync_handler *again;
	uint64_t sleeps_offset; /* of the word that is 1 while somebody sleeps */
	uint64_t end_ns, backoff_ns;
	uint64_t due_ns; /* when something is to be done without being woken; 0: never */
	bool armed;
	bool cancelled;
	const char *what; /* what is waited for, for the error text */
	uint64_t sleeps;  /* that word, as it was read */
	uint64_t config;  /* the first word, as it was read to open it */

	/* ---- of sync-async.c ---- */
	bool asked; /* what is wanted is under way */
	bool lost;  /* it was not done: the connection was lost */
	uint64_t limit_ns; /* of what is wanted */
	/* what the completion tells: one of the first two is 0 */
	uint64_t value;
	size_t bytes;
	uint64_t position;
};

/* -TARN_EBUSY if an asynchronous call on the handle has not been picked up. */
int sync_check_free(const struct sync_call *call);
/* The call begins with `first`. */
void sync_begin(struct sync_call *call, sync_handler *first);
/* It can wait, until timeout_ms from now. */
int sync_wait_begin(struct sync_call *call, uint32_t timeout_ms, uint64_t sleeps_offset,
		    const char *what);
/* To its end. Blocks. */
int sync_run(struct sync_call *call);
/* Its end without another access to the region, each of which ends with this status. Returns its result. */
int sync_abort(struct sync_call *call, int status);
/* The handle is not used any more. */
void sync_close(struct sync_call *call);

static inline enum sync_want sync_end(struct sync_call *call, int result)
{
	call->status = result;
	return SYNC_ENDED;
}
/* The first `count` of call->ops. */
static inline enum sync_want sync_access(struct sync_call *call, size_t count, sync_handler *next)
{
	call->count = count;
	call->not_after_ns = 0;
	call->next = next;
	return SYNC_ACCESS;
}
/* One that must not be begun later; then its status is SYNC_LATE. */
static inline enum sync_want sync_access_until(struct sync_call *call, size_t count,
					       sync_handler *next, uint64_t not_after_ns)
{
	enum sync_want want = sync_access(call, count, next);

	call->not_after_ns = not_after_ns;
	return want;
}
/* A part that several use: it comes back to `back` by sync_back(), with a status; without one the call ends so. */
static inline enum sync_want sync_sub(struct sync_call *call, sync_handler *sub, sync_handler *back)
{
	call->back[call->depth++] = back;
	return sub(call);
}
static inline enum sync_want sync_back(struct sync_call *call, int status)
{
	call->status = status;
	return call->depth ? call->back[--call->depth](call) : SYNC_ENDED;
}
/* Goes on with `again` after a pause, or ends with -TARN_ETIMEOUT, or another error. */
enum sync_want sync_pause(struct sync_call *call, sync_handler *again);
/* Wakes those who sleep, if call->sleeps (as it was read after the change) says that there are some. Status 0 then. */
enum sync_want sync_wake(struct sync_call *call, uint64_t sleeps_offset, sync_handler *next);

/* ---- sync.c: making and opening --------------------------------------------------------------- */

#define SYNC_INIT_WORDS 24u

/* A call without a handle. */
struct sync_init {
	struct sync_call call; /* first */
	uint64_t offset, config;
	size_t bytes;
	unsigned tries;
	bool ambiguous;  /* one of them */
	uint64_t before; /* the first word, where there is something already */
	uint64_t words[SYNC_INIT_WORDS]; /* those behind it */
};

/* To make it; `bytes`: how much of it has to be zeros. Fine if it is there already, with the same parameters. */
void sync_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset,
		     size_t bytes, enum sync_kind kind, uint64_t parameters);
/* To open it, with a new handle, which is freed at the end of the call, but for sync_open_end(). */
void sync_open_begin(struct sync_call *call, struct tarn_region *region, uint64_t offset,
		     void (*free_handle)(struct sync_call *call), sync_handler *opened);
/* In `opened`: what it is, and its parameters. */
int sync_opened(const struct sync_call *call, uint64_t offset, enum sync_kind *ret_kind,
		uint64_t *ret_parameters);
/* The caller has the handle now. */
static inline enum sync_want sync_open_end(struct sync_call *call)
{
	call->closed = false;
	return sync_end(call, 0);
}
/* As sync_run(). Blocks. */
int sync_open_run(struct sync_call *call);

/*
 * ---- each call, but for who runs it: 0, and it has begun, or an error --------------------------
 *
 * Those that open: *ret_call is the new handle's, and theirs is set at a good end.
 */

int lock_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset,
		    uint32_t lease_ms);
int queue_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset,
		     uint64_t slots, uint32_t message_bytes, uint32_t lease_ms, uint32_t flags);
int barrier_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset,
		       uint32_t parties);
int epoch_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset);
int lock_open_begin(struct tarn_region *region, uint64_t offset, uint64_t owner,
		    struct tarn_lock **ret_lock, struct sync_call **ret_call);
int queue_open_begin(struct tarn_region *region, uint64_t offset, struct tarn_queue **ret_queue,
		     struct sync_call **ret_call);
int barrier_open_begin(struct tarn_region *region, uint64_t offset, uint32_t party,
		       struct tarn_barrier **ret_barrier, struct sync_call **ret_call);
int epoch_open_begin(struct tarn_region *region, uint64_t offset, struct tarn_epoch **ret_epoch,
		     struct sync_call **ret_call);
int lock_stat_begin(struct tarn_lock *lock, struct tarn_lock_info *ret_info);
int queue_stat_begin(struct tarn_queue *queue, struct tarn_queue_info *ret_info);
int lock_acquire_begin(struct tarn_lock *lock, uint32_t timeout_ms, uint64_t *ret_token);
int lock_renew_begin(struct tarn_lock *lock, uint64_t *ret_token);
int lock_release_begin(struct tarn_lock *lock);
int queue_send_begin(struct tarn_queue *queue, const void *data, size_t bytes, uint32_t timeout_ms);
int queue_receive_begin(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
			uint32_t timeout_ms, size_t *ret_bytes);
int queue_peek_begin(struct tarn_queue *queue, void *buffer, size_t buffer_bytes,
		     uint32_t timeout_ms, size_t *ret_bytes, uint64_t *ret_position);
int queue_consume_begin(struct tarn_queue *queue, uint64_t position);
int barrier_wait_begin(struct tarn_barrier *barrier, uint32_t timeout_ms, uint64_t *ret_round);
int epoch_read_begin(struct tarn_epoch *epoch, uint64_t *ret_value);
int epoch_add_begin(struct tarn_epoch *epoch, uint64_t add, uint64_t *ret_value);
int epoch_raise_begin(struct tarn_epoch *epoch, uint64_t value);
int epoch_wait_begin(struct tarn_epoch *epoch, uint64_t at_least, uint32_t timeout_ms,
		     uint64_t *ret_value);

/* ---- accesses -------------------------------------------------------------------------------- */

/* cluster-region.c: what a call on a region has ended with: that the member is not there is said of it. Else `ret`, with its text. */
int region_result(const struct tarn_region *region, int ret);
/*
 * region-access.c: tarn_region_batch(), which waits for a connection, and for the region to be attached to it; but if it
 * is later than `not_after_ns` (of clock_now_ns(); 0: at any time) when the first access is to be posted, nothing is: SYNC_LATE.
 */
int sync_batch(struct tarn_region *region, struct tarn_region_op *ops, size_t count,
	       uint64_t not_after_ns);
#define SYNC_LATE (-ETIME)

static inline struct tarn_region_op sync_op_read(uint64_t offset, void *buffer, uint64_t bytes)
{
	return (struct tarn_region_op){
		.kind = TARN_REGION_READ, .offset = offset, .buffer = buffer, .bytes = bytes};
}

/* A write does not change what it is given, but the member can not be const. */
static inline struct tarn_region_op sync_op_write(uint64_t offset, const void *data, uint64_t bytes)
{
	return (struct tarn_region_op){.kind = TARN_REGION_WRITE,
				       .offset = offset,
				       .buffer = (void *)(uintptr_t)data,
				       .bytes = bytes};
}

static inline struct tarn_region_op sync_op_cas(uint64_t offset, uint64_t compare, uint64_t swap)
{
	return (struct tarn_region_op){
		.kind = TARN_REGION_CAS, .offset = offset, .compare = compare, .operand = swap};
}

#endif
