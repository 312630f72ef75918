/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.c - a lock in a region, with lease and fencing token
 *
 * One word says all: token << 1 | held. To take it adds 2 to the token, to renew it 1, to release it clears
 * `held`. So no value ever comes back, a compare-and-swap that arrives late changes nothing, and (token + 1, held)
 * can only be one's own renewal. Runs on the application's thread. Next: docs/sync.md, which says why it is right.
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
	struct tarn_region *region;
	uint64_t offset, owner;
	uint64_t lease_ns;
	uint64_t token;    /* of what this handle holds; 0: nothing */
	uint64_t until_ns; /* the lease, by this process's clock */
	uint64_t highest;  /* token that was ever seen */
	uint64_t seen_word,
		seen_ns; /* the word has been so since then, at least; 0: not seen yet */
	uint64_t sequence, random;
};

static uint64_t make_word(uint64_t token, uint64_t held)
{
	return token << 1 | held;
}

int tarn_lock_init(struct tarn_region *region, uint64_t offset, uint32_t lease_ms)
{
	int ret = sync_check_place(region, offset, TARN_LOCK_BYTES);

	if (ret == 0)
		ret = sync_check_lease(lease_ms);
	return ret < 0 ? ret : sync_init(region, offset, TARN_LOCK_BYTES, SYNC_LOCK, lease_ms);
}

int tarn_lock_open(struct tarn_region *region, uint64_t offset, uint64_t owner,
		   struct tarn_lock **ret_lock)
{
	uint64_t lease_ms;
	enum sync_kind kind;
	struct tarn_lock *lock;
	int ret = sync_check_place(region, offset, TARN_LOCK_BYTES);

	if (ret == 0 && !ret_lock)
		ret = err_set(-EINVAL, "ret_lock must not be NULL");
	if (ret == 0)
		ret = sync_open(region, offset, &kind, &lease_ms);
	if (ret < 0)
		return ret;
	if (kind != SYNC_LOCK)
		return sync_wrong_kind(kind, "a lock");
	if (lease_ms < TARN_SYNC_LEASE_MIN_MS || lease_ms > TARN_SYNC_LEASE_MAX_MS)
		return err_set(-TARN_ECORRUPT, "the lock's lease is %llu ms",
			       (unsigned long long)lease_ms);
	lock = calloc(1, sizeof(*lock));
	if (!lock)
		return err_set(-ENOMEM, "no memory for a lock");
	lock->region = region;
	lock->offset = offset;
	lock->owner = owner;
	lock->lease_ns = lease_ms * 1000000;
	*ret_lock = lock;
	return 0;
}

void tarn_lock_close(struct tarn_lock *lock)
{
	free(lock);
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

/* Only for tarn_lock_stat(): the lock is held, whatever becomes of this. */
static void write_owner(struct tarn_lock *lock)
{
	uint64_t words[2] = {lock->owner, lock->token};

	if (tarn_region_write(lock->region, lock->offset + OWNER_OFFSET, words, sizeof(words)) < 0)
		err_clear();
}

/* 1: taken. 0: not yet; *ret_due_ns: when the lease is over, if nothing happens, else 0. */
static int try_take(struct tarn_lock *lock, uint64_t *ret_due_ns)
{
	uint64_t word, before, now, patience = sync_patience_ns(lock->lease_ns), token;
	int ret = tarn_region_read(lock->region, lock->offset + WORD_OFFSET, &word, 8);

	if (ret == 0)
		ret = check_word(lock, word);
	if (ret < 0)
		return ret;
	observe(lock, word);
	now = clock_now_ns();
	if (MUTATED(MUTATION_LOCK_PATIENCE))
		patience = lock->lease_ns / 2;
	*ret_due_ns = word & HELD ? lock->seen_ns + patience : 0;
	if (word & HELD && now <= lock->seen_ns + patience)
		return 0;
	token = (word >> 1) + (MUTATED(MUTATION_LOCK_TOKEN) ? 0 : 2);
	ret = tarn_region_cas(lock->region, lock->offset + WORD_OFFSET, word,
			      make_word(token, HELD), &before);
	/* Taken without knowing it: it is nobody's then, and free after the lease like that of a dead one. */
	if (ret == -TARN_EAMBIGUOUS && !MUTATED(MUTATION_LOCK_AMBIGUOUS))
		return 0;
	if (ret == -TARN_EAMBIGUOUS)
		before = word, ret = 0;
	if (ret == 0 && before != word) {
		ret = check_word(lock, before);
		observe(lock, before);
	}
	if (ret < 0 || before != word)
		return ret;
	lock->token = lock->highest = token;
	lock->until_ns = now + lock->lease_ns;
	write_owner(lock);
	return 1;
}

static int check_lock(const struct tarn_lock *lock)
{
	return lock ? 0 : err_set(-EINVAL, "lock must not be NULL");
}

int tarn_lock_acquire(struct tarn_lock *lock, uint32_t timeout_ms, uint64_t *ret_token)
{
	struct sync_wait wait = {.what = "the lock is held by another one"};
	int ret = check_lock(lock);

	if (ret < 0)
		return ret;
	if (lock->token)
		return err_set(-EINVAL, "the lock is held already, with token %llu: release it",
			       (unsigned long long)lock->token);
	wait.region = lock->region;
	wait.sleeps_offset = lock->offset + SYNC_SLEEPS;
	wait.sequence = &lock->sequence;
	wait.random = &lock->random;
	ret = sync_wait_begin(&wait, timeout_ms);
	while (ret == 0) {
		ret = try_take(lock, &wait.due_ns);
		if (ret == 0)
			ret = sync_pause(&wait);
	}
	if (ret < 0)
		return ret;
	if (ret_token)
		*ret_token = lock->token;
	return 0;
}

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

int tarn_lock_renew(struct tarn_lock *lock, uint64_t *ret_token)
{
	uint64_t before, begun_ns = 0;
	int ret = check_held(lock);

	if (ret < 0)
		return ret;
	for (unsigned i = 0; i < SYNC_TRIES; i++) {
		begun_ns = clock_now_ns();
		ret = tarn_region_cas(lock->region, lock->offset + WORD_OFFSET,
				      make_word(lock->token, HELD),
				      make_word(lock->token + 1, HELD), &before);
		if (ret == 0)
			ret = found(lock, before, false);
		if (ret != 0 && ret != -TARN_EAMBIGUOUS)
			break;
	}
	if (ret <= 0)
		return ret < 0 ? ret : -TARN_EAMBIGUOUS;
	lock->highest = ++lock->token;
	lock->until_ns = begun_ns + lock->lease_ns;
	write_owner(lock);
	if (ret_token)
		*ret_token = lock->token;
	return 0;
}

/* One try; as found(). */
static int try_release(struct tarn_lock *lock, bool ambiguous)
{
	uint64_t sleeps = 0;
	struct tarn_region_op ops[] = {
		sync_op_cas(lock->offset + WORD_OFFSET, make_word(lock->token, HELD),
			    make_word(lock->token, 0)),
		sync_op_read(lock->offset + SYNC_SLEEPS, &sleeps, 8),
	};
	int ret = tarn_region_batch(lock->region, ops, 2);

	if (ret < 0)
		return ret;
	if (!ambiguous || ops[0].before != make_word(lock->token, 0)) {
		ret = found(lock, ops[0].before, ambiguous);
		if (ret <= 0)
			return ret;
	}
	lock->token = 0;
	sync_wake(lock->region, lock->offset + SYNC_SLEEPS, sleeps);
	return 1;
}

int tarn_lock_release(struct tarn_lock *lock)
{
	bool ambiguous = false;
	int ret = check_held(lock);

	for (unsigned i = 0; ret == 0 && i < SYNC_TRIES; i++) {
		ret = try_release(lock, ambiguous);
		if (ret == -TARN_EAMBIGUOUS && lock->token) {
			ambiguous = true;
			ret = 0;
		}
	}
	if (ret != 0)
		return ret < 0 ? ret : 0;
	lock->token = 0;
	return err_set(-TARN_EAMBIGUOUS,
		       "the lock may be released or not: if not, the lease ends it");
}

uint32_t tarn_lock_left_ms(const struct tarn_lock *lock)
{
	uint64_t now = clock_now_ns();

	if (!lock || !lock->token || now >= lock->until_ns)
		return 0;
	return (uint32_t)((lock->until_ns - now) / 1000000);
}

int tarn_lock_stat(struct tarn_lock *lock, struct tarn_lock_info *ret_info)
{
	struct tarn_lock_info info = {.lease_ms = 0};
	struct lock_memory memory;
	int ret = check_lock(lock);

	if (ret == 0 && (!ret_info || ret_info->size < 2 * sizeof(uint32_t)))
		ret = err_set(-EINVAL, "ret_info must not be NULL, and its size the struct's");
	if (ret == 0)
		ret = tarn_region_read(lock->region, lock->offset, &memory, sizeof(memory));
	if (ret == 0)
		ret = check_word(lock, memory.word);
	if (ret < 0)
		return ret;
	info.size = ret_info->size;
	info.held = memory.word & HELD ? 1 : 0;
	info.token = memory.word >> 1;
	info.lease_ms = (uint32_t)(lock->lease_ns / 1000000);
	if (info.held && memory.owner_token == info.token)
		info.owner = memory.owner;
	memcpy(ret_info, &info, info.size < sizeof(info) ? info.size : sizeof(info));
	return 0;
}
