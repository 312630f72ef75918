/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tarn/sync.h - locks, queues, barriers and epoch counters in regions
 *
 * Each stands at an offset of a region (tarn/region.h), a multiple of 8 (better of 64), and many fit into one
 * region. All parties reach it by one-sided operations, over every transport; none of them is special,
 * and each may be killed at any step. docs/sync.md has the layouts and the protocols.
 *
 *	struct tarn_lock *lock;
 *	uint64_t token;
 *
 *	if (tarn_lock_init(region, 0, 1000) < 0 || tarn_lock_open(region, 0, getpid(), &lock) < 0 ||
 *	    tarn_lock_acquire(lock, 60000, &token) < 0)
 *		errx(1, "%s", tarn_last_error_text());
 *
 * Making
 *	tarn_..._init() makes one in memory of zeros, as a new region is. Everybody may call it before opening, also
 *	at the same time and again: it is made once, and a second call with the same parameters does nothing.
 *	-TARN_EEXISTS: there is something else, or one with other parameters. To begin anew, destroy the region.
 *	tarn_..._open() gives a handle, or -TARN_ENOTFOUND (nothing was made there), -TARN_ETYPE (something else was), -ENOMEM.
 *	A handle belongs to its session: one thread at a time, and is closed before the region is. To close frees it,
 *	and reaches no memory of the region.
 *
 * Waiting
 *	Calls that wait have a @timeout_ms, 0 to 3600000; 0: only try. When it is over they return -TARN_ETIMEOUT, and
 *	nothing was changed. A waiter first tries again and again, with growing pauses that are partly chance, then it
 *	sleeps until it is notified. Each access to the region may itself take up to the time limit of the session, if
 *	its connection is lost.
 *
 * Errors that all calls may return: those of tarn/region.h, and
 *	-EINVAL          an argument is NULL or out of its range, or it is not inside the region; the text says which
 *	-TARN_ECORRUPT   what is in the region can not be: it was damaged or written over. Destroy it
 *	-TARN_EAMBIGUOUS the connection was lost, and could not be made again to find out what has happened. Where it can
 *	                 it is found out, and calls go on; so this is rare
 */
#ifndef TARN_SYNC_H
#define TARN_SYNC_H

#include <tarn/region.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_SYNC_LEASE_MIN_MS 10u
#define TARN_SYNC_LEASE_MAX_MS 3600000u

/** @defgroup lock Locks @{ */
/*
 * A lock with lease and fencing token. Its owner has it for `lease_ms` from the moment at which it acquired or last
 * renewed it, by the owner's own clock: tarn_lock_left_ms(). Who waits, and has seen no change of the lock for an
 * eighth longer by a clock of its own, takes it over. No clocks are compared; they may be wrong by 5 %.
 *
 * What a lease can not do: an owner that is stopped (SIGSTOP, a machine that swaps, a virtual machine that is moved)
 * behind its look at tarn_lock_left_ms() goes on afterwards as if it had the lock. Whatever must never be written by
 * two has to refuse the older one: that is what the token is for. It only ever goes up: each acquire and each
 * renewal has a higher one than all before. Keep it in the word that is to be protected and write that by
 * tarn_region_cas(), or send it along, and have the other side refuse a lower one than it has seen. Then it does
 * not matter how late the old owner comes. examples/lock.c does so.
 */
struct tarn_lock;

#define TARN_LOCK_BYTES 64u

/**
 * Makes a lock. @lease_ms: TARN_SYNC_LEASE_MIN_MS to TARN_SYNC_LEASE_MAX_MS, the same for all: how long a lock stays
 * with an owner that was killed. Over RDMA 1000 or more.
 */
TARN_API TARN_MUST_CHECK int tarn_lock_init(struct tarn_region *region, uint64_t offset,
					    uint32_t lease_ms);

/** Opens it. @owner: any number, what tarn_lock_stat() shows to others. */
TARN_API TARN_MUST_CHECK int tarn_lock_open(struct tarn_region *region, uint64_t offset,
					    uint64_t owner, struct tarn_lock **ret_lock);

/** NULL is fine. A lock that is held stays so until its lease is over: release it before. */
TARN_API void tarn_lock_close(struct tarn_lock *lock);

/**
 * Takes the lock, or waits for it. Not by a handle that holds it (-EINVAL). No order among those who wait.
 *
 * @ret_token: the fencing token; may be NULL.
 */
TARN_API TARN_MUST_CHECK int tarn_lock_acquire(struct tarn_lock *lock, uint32_t timeout_ms,
					       uint64_t *ret_token);

/**
 * Begins the lease anew. Call it at a third of the lease, say. Does not wait.
 *
 * @ret_token: the token, which is higher than before; may be NULL.
 *
 * Errors: -TARN_EOVERTAKEN: too late, another one has taken the lock; this handle does not hold it any more. (Too late
 * is only who was overtaken; a lease that is over can be renewed as long as nobody wants the lock.)
 */
TARN_API TARN_MUST_CHECK int tarn_lock_renew(struct tarn_lock *lock, uint64_t *ret_token);

/**
 * Releases it. Does not wait. Errors: -TARN_EOVERTAKEN as tarn_lock_renew(): what was done under the lock since the
 * lease was over was not protected by it. After -TARN_EAMBIGUOUS the lease ends it, if it is not released; any other
 * error leaves it held.
 */
TARN_API TARN_MUST_CHECK int tarn_lock_release(struct tarn_lock *lock);

/** How much of the lease is left, milliseconds; 0: nothing, or not held. Look before what the lock protects. */
TARN_API uint32_t tarn_lock_left_ms(const struct tarn_lock *lock);

/** What is known of a lock. Set `size` before; a later version may know more. */
struct tarn_lock_info {
	uint32_t size;  /* sizeof(struct tarn_lock_info) */
	uint32_t held;  /* 1: it is; its owner may have been killed */
	uint64_t token; /* the last one that was given */
	uint64_t owner; /* as it has said; 0 if it is not known (yet) */
	uint32_t lease_ms;
	uint32_t reserved; /* 0 */
};

/** What is known of the lock now. */
TARN_API TARN_MUST_CHECK int tarn_lock_stat(struct tarn_lock *lock,
					    struct tarn_lock_info *ret_info);
/** @} */

/** @defgroup queue Ring queues @{ */
/*
 * A queue of messages of up to `message_bytes`, in order, with a place for `slots` of them. It has any number of
 * producers, or with TARN_QUEUE_SINGLE one at a time, for which a message is one round trip instead of two.
 *
 * What is promised, with any party killed or stopped at any step, and connections lost:
 *	- A message of which tarn_queue_send() has returned 0 is in the queue, once, and whole. One of which it has
 *	  returned an error is not and never will be; after -TARN_EAMBIGUOUS, or if the producer was killed in the
 *	  call, it is there whole and once, or not at all.
 *	- Messages of one producer come in the order in which they were sent; and what was sent after another send had
 *	  returned comes after that.
 *	- A message is given to one consumer. tarn_queue_receive() takes it out first: if the consumer is killed then it is
 *	  lost (at most once). tarn_queue_peek() leaves it there until tarn_queue_consume(): if the consumer is killed in between
 *	  the next one gets it again (at least once). Where the queue stands is in the region, so a new consumer goes on.
 *	- A producer that is killed or stopped between reserving a place and publishing the message holds up those
 *	  behind it for the lease, and an eighth. Then the place is skipped, its message was not sent, and the slot
 *	  rests for 16 times as long.
 *	- Never is a message given out that is not whole and what was sent: each has a checksum.
 *
 * What is not: a producer that stood still for longer than those 16 leases in the midst of writing, and goes on, may
 * destroy a message that has come to stand there (-TARN_ECORRUPT for the consumer, who goes on behind it). (Having no
 * connection is no such thing: who has not begun to write in half of the lease takes another place.) So may two
 * producers of a queue that is made for one; over RDMA also a new one that begins before the pool's deadline
 * (tarnd.conf(5)) since the end of the former is over. If several consumers use one queue at a time each message is
 * still given to one of them; only one who loses the connection at the moment at which it takes one may be given what
 * another one has taken.
 */
struct tarn_queue;

#define TARN_QUEUE_MESSAGE_MAX (1u << 20)
#define TARN_QUEUE_SINGLE      0x1u

/** What a queue takes, bytes; 0 if tarn_queue_init() does not allow such a one. */
TARN_API uint64_t tarn_queue_bytes(uint64_t slots, uint32_t message_bytes);

/**
 * Makes a queue. @slots: a power of two, 4 to 16777216; some more than there are producers. @message_bytes: 1 to
 * TARN_QUEUE_MESSAGE_MAX, rounded up to 8. @lease_ms: how long a message may take from reserving to publishing,
 * TARN_SYNC_LEASE_MIN_MS to TARN_SYNC_LEASE_MAX_MS; over RDMA 1000 or more. @flags: 0 or TARN_QUEUE_SINGLE.
 */
TARN_API TARN_MUST_CHECK int tarn_queue_init(struct tarn_region *region, uint64_t offset,
					     uint64_t slots, uint32_t message_bytes,
					     uint32_t lease_ms, uint32_t flags);

/** Opens it, as producer, consumer, or both. -ENOMEM. */
TARN_API TARN_MUST_CHECK int tarn_queue_open(struct tarn_region *region, uint64_t offset,
					     struct tarn_queue **ret_queue);

/** NULL is fine. */
TARN_API void tarn_queue_close(struct tarn_queue *queue);

/**
 * Sends a message; waits while the queue is full. @bytes: 0 is a message, too.
 *
 * Errors: -TARN_EVALUESIZE: more than message_bytes; -TARN_ETIMEOUT: full; -TARN_EOVERTAKEN: there is another
 * producer in a queue that is made for one, and the message may be in it or not.
 */
TARN_API TARN_MUST_CHECK int tarn_queue_send(struct tarn_queue *queue, const void *data,
					     size_t bytes, uint32_t timeout_ms);

/**
 * Takes the next message out; waits for one. @ret_bytes: its length, also after -TARN_ETOOSMALL.
 *
 * Errors: -TARN_ETOOSMALL: @buffer_bytes are not enough, the message stays; -TARN_ETIMEOUT: empty; -TARN_ECORRUPT
 * with "is dropped" in the text: a message was damaged, the next call goes on behind it; -TARN_EAMBIGUOUS: the
 * message is in @buffer, and may still be in the queue, too.
 */
TARN_API TARN_MUST_CHECK int tarn_queue_receive(struct tarn_queue *queue, void *buffer,
						size_t buffer_bytes, uint32_t timeout_ms,
						size_t *ret_bytes);

/** The next message, as tarn_queue_receive(), but it stays. @ret_position: for tarn_queue_consume(). */
TARN_API TARN_MUST_CHECK int tarn_queue_peek(struct tarn_queue *queue, void *buffer,
					     size_t buffer_bytes, uint32_t timeout_ms,
					     size_t *ret_bytes, uint64_t *ret_position);

/**
 * Takes out what the last call of this handle, tarn_queue_peek(), has shown. Does not wait; may be called again after
 * -TARN_EAMBIGUOUS. Errors: -TARN_EOVERTAKEN: another consumer has taken it.
 */
TARN_API TARN_MUST_CHECK int tarn_queue_consume(struct tarn_queue *queue, uint64_t position);

/** What is known of a queue. Set `size` before; a later version may know more. */
struct tarn_queue_info {
	uint32_t size;  /* sizeof(struct tarn_queue_info) */
	uint32_t flags; /* TARN_QUEUE_SINGLE */
	uint64_t slots;
	uint32_t message_bytes; /* rounded up */
	uint32_t lease_ms;
	uint64_t head; /* so many positions were consumed or skipped */
	uint64_t tail; /* so many were reserved */
};

/** What is known of the queue now. */
TARN_API TARN_MUST_CHECK int tarn_queue_stat(struct tarn_queue *queue,
					     struct tarn_queue_info *ret_info);
/** @} */

/** @defgroup barrier Barriers @{ */
/*
 * A barrier of n parties: each waits until all have come, round after round. Parties have numbers; one that was killed
 * comes back under its own number and goes on where it stood.
 */
struct tarn_barrier;

#define TARN_BARRIER_PARTIES_MAX 1024u

/** What a barrier takes, bytes; 0 if tarn_barrier_init() does not allow such a one. */
TARN_API uint64_t tarn_barrier_bytes(uint32_t parties);

/** Makes a barrier. @parties: 1 to TARN_BARRIER_PARTIES_MAX. */
TARN_API TARN_MUST_CHECK int tarn_barrier_init(struct tarn_region *region, uint64_t offset,
					       uint32_t parties);

/**
 * Opens it as one of the parties. @party: 0 to parties - 1, used by one at a time. If that party had arrived in a round
 * that is not over yet, the first tarn_barrier_wait() waits for the end of that one. -ENOMEM.
 */
TARN_API TARN_MUST_CHECK int tarn_barrier_open(struct tarn_region *region, uint64_t offset,
					       uint32_t party, struct tarn_barrier **ret_barrier);

/** NULL is fine. */
TARN_API void tarn_barrier_close(struct tarn_barrier *barrier);

/**
 * Arrives, and waits for the others. After -TARN_ETIMEOUT, or another error, this party has arrived, or not yet; the
 * next call goes on with the same round.
 *
 * @ret_round: which round is over, the first one is 1; may be NULL.
 */
TARN_API TARN_MUST_CHECK int tarn_barrier_wait(struct tarn_barrier *barrier, uint32_t timeout_ms,
					       uint64_t *ret_round);
/** @} */

/** @defgroup epoch Epoch counters @{ */
/* A counter that only goes up, and that one can wait for. It begins at 0. */
struct tarn_epoch;

#define TARN_EPOCH_BYTES   64u
#define TARN_EPOCH_MAX     (1ull << 60)
#define TARN_EPOCH_ADD_MAX (1ull << 32)

/** Makes a counter. */
TARN_API TARN_MUST_CHECK int tarn_epoch_init(struct tarn_region *region, uint64_t offset);

/** Opens it. -ENOMEM. */
TARN_API TARN_MUST_CHECK int tarn_epoch_open(struct tarn_region *region, uint64_t offset,
					     struct tarn_epoch **ret_epoch);

/** NULL is fine. */
TARN_API void tarn_epoch_close(struct tarn_epoch *epoch);

/** The value now. */
TARN_API TARN_MUST_CHECK int tarn_epoch_read(struct tarn_epoch *epoch, uint64_t *ret_value);

/**
 * Adds, and wakes those who wait. @add: 1 to TARN_EPOCH_ADD_MAX. @ret_value: the value afterwards; may be NULL.
 *
 * Errors: -TARN_EAMBIGUOUS: it was added or not, and that can not be found out: where that matters, use
 * tarn_epoch_raise().
 */
TARN_API TARN_MUST_CHECK int tarn_epoch_add(struct tarn_epoch *epoch, uint64_t add,
					    uint64_t *ret_value);

/** Makes it at least @value, up to TARN_EPOCH_MAX; does nothing if it is. May always be called again. */
TARN_API TARN_MUST_CHECK int tarn_epoch_raise(struct tarn_epoch *epoch, uint64_t value);

/** Waits until it is at least @at_least. @ret_value: what it is; may be NULL. */
TARN_API TARN_MUST_CHECK int tarn_epoch_wait(struct tarn_epoch *epoch, uint64_t at_least,
					     uint32_t timeout_ms, uint64_t *ret_value);
/** @} */

/** @defgroup sync_async Asynchronous calls on them @{ */
/**
 * The asynchronous twins: see above for the arguments, and "Asynchronous calls and batches" in tarn.h. The deadline
 * (async->timeout_ms; 0: the session's time limit) takes the place of @timeout_ms: when it is over the status is
 * -TARN_ETIMEOUT. In the completion `kind` is TARN_OP_SYNC, `value` what the blocking call tells: acquire and renew the
 * token, receive and peek the message's length (also with -TARN_ETOOSMALL), barrier the round, epoch the value (of
 * raise 0); `stamp` is the position of a message that was peeked at. Message and buffer are the library's until the
 * completion was picked up.
 *
 * Those of open set their handle (@ret_lock and so on), and those of stat fill in *@ret_info, with status 0; both are
 * the library's until the completion was picked up. A handle that was opened, and whose completion nobody has picked up
 * when the session is closed, is closed by the caller all the same.
 *
 * A handle has one call at a time: until it has been picked up, each other one with it is -TARN_EBUSY, but
 * tarn_lock_left_ms(), which tells what is known without it (0 while the lock is acquired or released). A handle that is
 * closed before goes with the completion: cancel the call, or it goes on. Its region can not be closed meanwhile.
 *
 * To cancel ends a call that waits, with -TARN_ECANCELED: nothing was changed (barrier: as after -TARN_ETIMEOUT). What it is
 * just trying comes to its end, and may work; if that waits for a connection, the status is -TARN_ESESSION, -TARN_ETIMEOUT
 * or -TARN_EBUSY, and nothing was changed. A call that does not wait (init, open, stat, renew, release, consume, read, add,
 * raise) goes to its end once it has begun; if the daemon does not answer soon then, that may be -TARN_EAMBIGUOUS.
 *
 * An access that was not made because the connection was lost is made on the next one, up to the session's time limit
 * after it was begun, as with blocking calls; so an end may come so much later than the deadline.
 *
 * Errors at once: what the blocking call says of its arguments (-EINVAL, -TARN_EVALUESIZE); -TARN_EBUSY: another call with
 * this handle, or 64 calls that wait (acquire, send, receive, peek, the barrier's and the counter's wait; with those
 * of tarn/region.h that may take any time), or TARN_ASYNC_MAX are under way; -TARN_EINUSE; -ENOMEM.
 */
TARN_API TARN_MUST_CHECK int tarn_lock_init_async(struct tarn_region *region, uint64_t offset,
						  uint32_t lease_ms,
						  const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_lock_open_async(struct tarn_region *region, uint64_t offset,
						  uint64_t owner, struct tarn_lock **ret_lock,
						  const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int
tarn_lock_acquire_async(struct tarn_lock *lock, const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int
tarn_lock_renew_async(struct tarn_lock *lock, const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int
tarn_lock_release_async(struct tarn_lock *lock, const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_lock_stat_async(struct tarn_lock *lock,
						  struct tarn_lock_info *ret_info,
						  const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_queue_init_async(struct tarn_region *region, uint64_t offset,
						   uint64_t slots, uint32_t message_bytes,
						   uint32_t lease_ms, uint32_t flags,
						   const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_queue_open_async(struct tarn_region *region, uint64_t offset,
						   struct tarn_queue **ret_queue,
						   const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_queue_send_async(struct tarn_queue *queue, const void *data,
						   size_t bytes, const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_queue_receive_async(struct tarn_queue *queue, void *buffer,
						      size_t buffer_bytes,
						      const struct tarn_async *async,
						      uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_queue_peek_async(struct tarn_queue *queue, void *buffer,
						   size_t buffer_bytes,
						   const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_queue_consume_async(struct tarn_queue *queue, uint64_t position,
						      const struct tarn_async *async,
						      uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_queue_stat_async(struct tarn_queue *queue,
						   struct tarn_queue_info *ret_info,
						   const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_barrier_init_async(struct tarn_region *region, uint64_t offset,
						     uint32_t parties,
						     const struct tarn_async *async,
						     uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_barrier_open_async(struct tarn_region *region, uint64_t offset,
						     uint32_t party,
						     struct tarn_barrier **ret_barrier,
						     const struct tarn_async *async,
						     uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_barrier_wait_async(struct tarn_barrier *barrier,
						     const struct tarn_async *async,
						     uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_epoch_init_async(struct tarn_region *region, uint64_t offset,
						   const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_epoch_open_async(struct tarn_region *region, uint64_t offset,
						   struct tarn_epoch **ret_epoch,
						   const struct tarn_async *async,
						   uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int
tarn_epoch_read_async(struct tarn_epoch *epoch, const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_epoch_add_async(struct tarn_epoch *epoch, uint64_t add,
						  const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_epoch_raise_async(struct tarn_epoch *epoch, uint64_t value,
						    const struct tarn_async *async,
						    uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_epoch_wait_async(struct tarn_epoch *epoch, uint64_t at_least,
						   const struct tarn_async *async,
						   uint64_t *ret_op);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
