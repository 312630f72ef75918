/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.c - a lock in a region, with lease and fencing token
 *
 * One word says all: token << 1 | held. To take it adds 2 to the token, to renew it 1, to release it clears
 * `held`. So no value ever comes back, a compare-and-swap that arrives late changes nothing, and (token + 1, held)
 * can only be one's own renewal. Each call is handlers (sync-call.c). Runs on the thread of the session. Next:
 * docs/sync.md, which says why it is right.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "mutation.h"
#include "sync-internal.h"

#define HELD 1ull

struct lock_memory {
	uint64_t config; /* parameters: the lease, ms */
	uint64_t sleeps;
	uint64_t word;
	uint64_t owner,
		owner_token; /* for people: who it was that took or renewed it with this token */
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct lock_memory) == TARN_LOCK_BYTES, "layout of a lock");

#define WORD_OFFSET  offsetof(struct lock_memory, word)
#define OWNER_OFFSET offsetof(struct lock_memory, owner)

struct tarn_lock {
	struct sync_call call; /* first */
	uint64_t offset, owner;
	uint64_t lease_ns;
	uint64_t token;    /* of what this handle holds; 0: nothing */
	uint64_t until_ns; /* the lease, by this process's clock */
	uint64_t highest;  /* token that was ever seen */
	uint64_t seen_word,
		seen_ns; /* the word has been so since then, at least; 0: not seen yet */
	uint64_t shown_until_ns; /* while an asynchronous call is under way, which has until_ns */
	/* the call under way */
	uint64_t word, next_token;
	uint64_t begun_ns; /* before what takes or renews the lock */
	uint64_t owner_words[2];
	unsigned tries;
	bool ambiguous; /* one of the tries */
	uint64_t *ret_token;
	struct tarn_lock **ret_lock;
	struct lock_memory memory; /* as it was read for ret_info */
	struct tarn_lock_info *ret_info;
};

static struct tarn_lock *lock_of(struct sync_call *call)
{
	return (struct tarn_lock *)call;
}

static void lock_free(struct sync_call *call)
{
	free(lock_of(call));
}

static uint64_t make_word(uint64_t token, uint64_t held)
{
	return token << 1 | held;
}

/* ---- making and opening ---------------------------------------------------------------------- */

int lock_init_begin(struct sync_init *init, struct tarn_region *region, uint64_t offset,
		    uint32_t lease_ms)
{
	int ret = sync_check_place(region, offset, TARN_LOCK_BYTES);

	if (ret == 0)
		ret = sync_check_lease(lease_ms);
	if (ret == 0)
		sync_init_begin(init, region, offset, TARN_LOCK_BYTES, SYNC_LOCK, lease_ms);
	return ret;
}

int tarn_lock_init(struct tarn_region *region, uint64_t offset, uint32_t lease_ms)
{
	struct sync_init init;
	int ret = lock_init_begin(&init, region, offset, lease_ms);

	return ret < 0 ? ret : sync_run(&init.call);
}

static enum sync_want opened(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);
	uint64_t lease_ms;
	enum sync_kind kind;
	int ret = sync_opened(call, lock->offset, &kind, &lease_ms);

	if (ret == 0 && kind != SYNC_LOCK)
		ret = sync_wrong_kind(kind, "a lock");
	else if (ret == 0 &&
		 (lease_ms < TARN_SYNC_LEASE_MIN_MS || lease_ms > TARN_SYNC_LEASE_MAX_MS))
		ret = err_set(-TARN_ECORRUPT, "the lock's lease is %llu ms",
			      (unsigned long long)lease_ms);
	if (ret < 0)
		return sync_end(call, ret);
	lock->lease_ns = lease_ms * 1000000;
	*lock->ret_lock = lock;
	return sync_open_end(call);
}

int lock_open_begin(struct tarn_region *region, uint64_t offset, uint64_t owner,
		    struct tarn_lock **ret_lock, struct sync_call **ret_call)
{
	struct tarn_lock *lock;
	int ret = sync_check_place(region, offset, TARN_LOCK_BYTES);

	if (ret == 0 && !ret_lock)
		ret = err_set(-EINVAL, "ret_lock must not be NULL");
	if (ret < 0)
		return ret;
	lock = calloc(1, sizeof(*lock));
	if (!lock)
		return err_set(-ENOMEM, "no memory for a lock");
	lock->offset = offset;
	lock->owner = owner;
	lock->ret_lock = ret_lock;
	sync_open_begin(&lock->call, region, offset, lock_free, opened);
	*ret_call = &lock->call;
	return 0;
}

int tarn_lock_open(struct tarn_region *region, uint64_t offset, uint64_t owner,
		   struct tarn_lock **ret_lock)
{
	struct sync_call *call;
	int ret = lock_open_begin(region, offset, owner, ret_lock, &call);

	return ret < 0 ? ret : sync_open_run(call);
}

void tarn_lock_close(struct tarn_lock *lock)
{
	if (lock)
		sync_close(&lock->call);
}

static int check_word(struct tarn_lock *lock, uint64_t word)
{
	uint64_t token = word >> 1;

	if (token < lock->highest || token > SYNC_WORD_MAX || word == HELD)
		return err_set(-TARN_ECORRUPT,
			       "the lock's word is 0x%llx, after token %llu: its memory is damaged",
			       (unsigned long long)word, (unsigned long long)lock->highest);
	lock->highest = token;
	return 0;
}

/* The time is taken after the word was read: it may be older than it seems, never younger. */
static void observe(struct tarn_lock *lock, uint64_t word)
{
	if (lock->seen_ns && lock->seen_word == word)
		return;
	lock->seen_word = word;
	lock->seen_ns = clock_now_ns();
}

static int check_lock(const struct tarn_lock *lock)
{
	return lock ? sync_check_free(&lock->call) : err_set(-EINVAL, "lock must not be NULL");
}

/* ---- acquire --------------------------------------------------------------------------------- */

static enum sync_want owner_written(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);

	if (call->status < 0)
		err_clear();
	if (lock->ret_token)
		*lock->ret_token = lock->token;
	return sync_end(call, 0);
}

/* Held until then. The owner is only for tarn_lock_stat(): the lock is held, whatever becomes of that. */
static enum sync_want hold(struct tarn_lock *lock)
{
	lock->until_ns = lock->begun_ns + lock->lease_ns;
	lock->owner_words[0] = lock->owner;
	lock->owner_words[1] = lock->token;
	lock->call.ops[0] = sync_op_write(lock->offset + OWNER_OFFSET, lock->owner_words,
					  sizeof(lock->owner_words));
	return sync_access(&lock->call, 1, owner_written);
}

static sync_handler acquire_seen, acquire_tried;

static enum sync_want acquire_look(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);

	call->ops[0] = sync_op_read(lock->offset + WORD_OFFSET, &lock->word, 8);
	return sync_access(call, 1, acquire_seen);
}

/* due_ns: when the lease is over, if nothing happens. */
static enum sync_want acquire_seen(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);
	uint64_t word = lock->word, now, patience = sync_patience_ns(lock->lease_ns);
	int ret = call->status;

	if (ret == 0)
		ret = check_word(lock, word);
	if (ret < 0)
		return sync_end(call, ret);
	observe(lock, word);
	now = clock_now_ns();
	if (MUTATED(MUTATION_LOCK_PATIENCE))
		patience = lock->lease_ns / 2;
	call->due_ns = word & HELD ? lock->seen_ns + patience : 0;
	if (word & HELD && now <= lock->seen_ns + patience)
		return sync_pause(call, acquire_look);
	lock->begun_ns = now;
	lock->next_token = (word >> 1) + (MUTATED(MUTATION_LOCK_TOKEN) ? 0 : 2);
	call->ops[0] =
		sync_op_cas(lock->offset + WORD_OFFSET, word, make_word(lock->next_token, HELD));
	return sync_access(call, 1, acquire_tried);
}

static enum sync_want acquire_tried(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);
	uint64_t before = call->ops[0].before;
	int ret = call->status;

	/* Taken without knowing it: it is nobody's then, and free after the lease like that of a dead one. */
	if (ret == -TARN_EAMBIGUOUS && !MUTATED(MUTATION_LOCK_AMBIGUOUS))
		return sync_pause(call, acquire_look);
	if (ret == -TARN_EAMBIGUOUS)
		before = lock->word, ret = 0;
	if (ret == 0 && before != lock->word) {
		ret = check_word(lock, before);
		observe(lock, before);
	}
	if (ret < 0)
		return sync_end(call, ret);
	if (before != lock->word)
		return sync_pause(call, acquire_look);
	lock->token = lock->highest = lock->next_token;
	return hold(lock);
}

int lock_acquire_begin(struct tarn_lock *lock, uint32_t timeout_ms, uint64_t *ret_token)
{
	int ret = check_lock(lock);

	if (ret < 0)
		return ret;
	if (lock->token)
		return err_set(-EINVAL, "the lock is held already, with token %llu: release it",
			       (unsigned long long)lock->token);
	ret = sync_wait_begin(&lock->call, timeout_ms, lock->offset + SYNC_SLEEPS,
			      "the lock is held by another one");
	if (ret < 0)
		return ret;
	lock->ret_token = ret_token;
	lock->shown_until_ns = 0;
	sync_begin(&lock->call, acquire_look);
	return 0;
}

int tarn_lock_acquire(struct tarn_lock *lock, uint32_t timeout_ms, uint64_t *ret_token)
{
	int ret = lock_acquire_begin(lock, timeout_ms, ret_token);

	return ret < 0 ? ret : sync_run(&lock->call);
}

/* ---- renew and release ----------------------------------------------------------------------- */

/* It is somebody else's; what was ambiguous before may have been the release. */
static int overtaken(struct tarn_lock *lock, uint64_t word, bool ambiguous)
{
	uint64_t token = lock->token;
	int ret = check_word(lock, word);

	lock->token = 0;
	if (ret < 0)
		return ret;
	if (ambiguous)
		return err_set(-TARN_EAMBIGUOUS, "the lock was released, or the lease was over");
	return err_set(-TARN_EOVERTAKEN,
		       "the lease was over: token %llu was overtaken, the lock's is %llu now",
		       (unsigned long long)token, (unsigned long long)(word >> 1));
}

static int check_held(const struct tarn_lock *lock)
{
	int ret = check_lock(lock);

	if (ret == 0 && !lock->token)
		ret = err_set(-EINVAL, "the lock is not held by this handle: acquire it");
	return ret;
}

/*
 * What a CAS that expected (token, held) has found there. 1: that, so it has worked. 0: (token + 1, held), a renewal
 * of which it was not known whether it had worked: once more. Or an error.
 */
static int found(struct tarn_lock *lock, uint64_t before, bool ambiguous)
{
	if (before == make_word(lock->token, HELD))
		return 1;
	if (MUTATED(MUTATION_LOCK_OVERTAKEN))
		return 1;
	if (before != make_word(lock->token + 1, HELD))
		return overtaken(lock, before, ambiguous);
	lock->highest = ++lock->token;
	return 0;
}

static sync_handler renew_tried, release_tried;

static enum sync_want renew_try(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);

	lock->begun_ns = clock_now_ns();
	call->ops[0] = sync_op_cas(lock->offset + WORD_OFFSET, make_word(lock->token, HELD),
				   make_word(lock->token + 1, HELD));
	return sync_access(call, 1, renew_tried);
}

static enum sync_want renew_tried(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);
	int ret = call->status;

	if (ret == 0)
		ret = found(lock, call->ops[0].before, false);
	if (ret < 0 && ret != -TARN_EAMBIGUOUS)
		return sync_end(call, ret);
	if (ret != 1 && ++lock->tries < SYNC_TRIES)
		return renew_try(call);
	if (ret != 1)
		return sync_end(call, -TARN_EAMBIGUOUS);
	lock->highest = ++lock->token;
	return hold(lock);
}

int lock_renew_begin(struct tarn_lock *lock, uint64_t *ret_token)
{
	int ret = check_held(lock);

	if (ret < 0)
		return ret;
	lock->tries = 0;
	lock->ret_token = ret_token;
	lock->shown_until_ns = lock->until_ns;
	sync_begin(&lock->call, renew_try);
	return 0;
}

int tarn_lock_renew(struct tarn_lock *lock, uint64_t *ret_token)
{
	int ret = lock_renew_begin(lock, ret_token);

	return ret < 0 ? ret : sync_run(&lock->call);
}

static enum sync_want released(struct sync_call *call)
{
	return sync_end(call, 0);
}

static enum sync_want release_try(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);

	call->ops[0] = sync_op_cas(lock->offset + WORD_OFFSET, make_word(lock->token, HELD),
				   make_word(lock->token, 0));
	call->ops[1] = sync_op_read(lock->offset + SYNC_SLEEPS, &call->sleeps, 8);
	return sync_access(call, 2, release_tried);
}

/* As found(). */
static int release_found(struct tarn_lock *lock)
{
	uint64_t before = lock->call.ops[0].before;

	if (lock->call.status < 0)
		return lock->call.status;
	if (lock->ambiguous && before == make_word(lock->token, 0))
		return 1;
	return found(lock, before, lock->ambiguous);
}

static enum sync_want release_tried(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);
	int ret = release_found(lock);

	if (ret == 1) {
		lock->token = 0;
		return sync_wake(call, lock->offset + SYNC_SLEEPS, released);
	}
	if (ret == -TARN_EAMBIGUOUS && lock->token)
		lock->ambiguous = true;
	else if (ret < 0 && !(lock->ambiguous && call->status < 0))
		return sync_end(call, ret);
	/* other errors of the access: this try has done nothing, but the one before may have */
	if ((ret == 0 || ret == -TARN_EAMBIGUOUS) && ++lock->tries < SYNC_TRIES)
		return release_try(call);
	lock->token = 0;
	return sync_end(call, err_set(-TARN_EAMBIGUOUS, "the lock may be released or not: if not, "
							"the lease ends it"));
}

int lock_release_begin(struct tarn_lock *lock)
{
	int ret = check_held(lock);

	if (ret < 0)
		return ret;
	lock->tries = 0;
	lock->ambiguous = false;
	lock->shown_until_ns = 0;
	sync_begin(&lock->call, release_try);
	return 0;
}

int tarn_lock_release(struct tarn_lock *lock)
{
	int ret = lock_release_begin(lock);

	return ret < 0 ? ret : sync_run(&lock->call);
}

/* ---- what is known of it --------------------------------------------------------------------- */

uint32_t tarn_lock_left_ms(const struct tarn_lock *lock)
{
	uint64_t now = clock_now_ns(), until;

	if (!lock)
		return 0;
	if (lock->call.busy)
		until = lock->shown_until_ns;
	else
		until = lock->token ? lock->until_ns : 0;
	return now < until ? (uint32_t)((until - now) / 1000000) : 0;
}

static enum sync_want stat_read(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);
	const struct lock_memory *m = &lock->memory;
	struct tarn_lock_info info = {.lease_ms = (uint32_t)(lock->lease_ns / 1000000)};
	int ret = call->status;

	if (ret == 0)
		ret = check_word(lock, m->word);
	if (ret < 0)
		return sync_end(call, ret);
	info.size = lock->ret_info->size;
	info.held = m->word & HELD ? 1 : 0;
	info.token = m->word >> 1;
	if (info.held && m->owner_token == info.token)
		info.owner = m->owner;
	memcpy(lock->ret_info, &info, info.size < sizeof(info) ? info.size : sizeof(info));
	return sync_end(call, 0);
}

static enum sync_want stat_look(struct sync_call *call)
{
	struct tarn_lock *lock = lock_of(call);

	call->ops[0] = sync_op_read(lock->offset, &lock->memory, sizeof(lock->memory));
	return sync_access(call, 1, stat_read);
}

int lock_stat_begin(struct tarn_lock *lock, struct tarn_lock_info *ret_info)
{
	int ret = check_lock(lock);

	if (ret == 0 && (!ret_info || ret_info->size < 2 * sizeof(uint32_t)))
		ret = err_set(-EINVAL, "ret_info must not be NULL, and its size the struct's");
	if (ret < 0)
		return ret;
	lock->ret_info = ret_info;
	lock->shown_until_ns = lock->token ? lock->until_ns : 0;
	sync_begin(&lock->call, stat_look);
	return 0;
}

int tarn_lock_stat(struct tarn_lock *lock, struct tarn_lock_info *ret_info)
{
	int ret = lock_stat_begin(lock, ret_info);

	return ret < 0 ? ret : sync_run(&lock->call);
}
