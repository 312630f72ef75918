/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv.c - operations on keys as state machines: the part that all of them share
 *
 * Begins, finds the key in the index, ends. Knows nothing of transports or of who drives it
 * (session.h). Runs on the session's owner. Next: kv-internal.h for the states, kv-read.c,
 * kv-write.c, kv-insert.c for what happens once the key was found or not; docs/protocol.md section
 * 4 for why.
 */
#include "kv-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "directory.h"
#include "engine.h"
#include "err.h"
#include "mutation.h"
#include "shard-put.h"

#define BACKOFF_BASE_NS   500u
#define BACKOFF_DOUBLINGS 9u
#define LATE_NS           500000u
#define LATE_DOUBLINGS    5u
#define OLD_MAX           6u /* doublings of D, and two */
/* in a row, before a header that does not fit the directory is no growth under way any more */
#define CONTRADICTIONS_MAX 100u

int kv_op_create(struct tarn_session *session, struct kv_op **ret_op)
{
	struct kv_op *op = aligned_alloc(_Alignof(struct kv_op), sizeof(*op));

	if (op) {
		memset(op, 0, sizeof(*op));
		op->session = session;
		op->image = aligned_alloc(64, LAYOUT_BLOCK_MAX);
		op->scratch = aligned_alloc(64, KV_SCRATCH_BYTES);
	}
	if (!op || !op->image || !op->scratch) {
		kv_op_free(op);
		return err_set(-ENOMEM, "no memory for an operation");
	}
	*ret_op = op;
	return 0;
}

void kv_op_free(struct kv_op *op)
{
	if (!op)
		return;
	free(op->image);
	free(op->scratch);
	free(op);
}

/* ---- ending and starting again --------------------------------------------------------------- */

static void count(struct kv_op *op, int result)
{
	struct tarn_session *s = op->session;
	uint64_t now;

	/* begun again elsewhere */
	if (result == -TARN_EMOVED)
		return;
	if (op->kind == KV_GET) {
		/* it has just looked at the clock (T1), and what came after that is short */
		session_count_get(s, op->now_ns - op->started_ns, op->now_ns, result);
		return;
	}
	now = session_now(s);
	s->put_latency[session_latency_bucket(now - op->started_ns)]++;
	s->last_call_ns = now;
	if (result < 0) {
		/* an unmet condition is an answer, not a failure */
		s->stats.errors += result != -TARN_ENOTFOUND && result != -TARN_EEXISTS &&
				   result != -TARN_ESTAMP;
		return;
	}
	s->stats.puts += op->kind == KV_PUT;
	s->stats.deletes += op->kind == KV_DELETE;
	s->stats.adds += op->kind == KV_ADD;
}

int kv_end(struct kv_op *op, int result)
{
	/* an add that may have counted and was not found again: whatever else went wrong since */
	if (op->faa_word && result < 0 && result != -TARN_ECONFLICT && result != -TARN_EAMBIGUOUS)
		result = err_set(-TARN_EAMBIGUOUS, "the add may or may not have counted: %s",
				 err_text());
	if (op->have_block || op->extents_taken)
		kv_drop_block(op);
	if (op->kind != KV_GET)
		alloc_settle(op->session->alloc);
	op->task.result = result;
	count(op, result);
	return KV_ENDED;
}

void kv_cut(struct kv_op *op)
{
	/* whether an add that was sent has counted only its answer tells */
	if (op->state == KV_ADD_RPC && op->posted && op->task.sent)
		return;
	op->limit_ns = op->task.limit_ns = 0;
}

/* Until then, or until the time is up. */
static int rest(struct kv_op *op, uint64_t until_ns)
{
	op->task.wake_ns = until_ns < op->limit_ns ? until_ns : op->limit_ns + 1;
	return KV_WAIT;
}

int kv_restart(struct kv_op *op, bool backoff)
{
	struct tarn_session *s = op->session;
	uint64_t now = session_now(s);
	unsigned doublings = op->attempts < BACKOFF_DOUBLINGS ? op->attempts : BACKOFF_DOUBLINGS;
	uint64_t window = (uint64_t)BACKOFF_BASE_NS << doublings;

	if (now > op->limit_ns)
		return kv_end(op, err_set(op->faa_word ? -TARN_EAMBIGUOUS : -TARN_ETIMEOUT,
					  "no result within %llu ms, after %u attempts%s",
					  (unsigned long long)(s->timeout_ns / 1000000u),
					  op->attempts + 1, op->why));
	op->attempts++;
	s->stats.retries++;
	/* with an old date its slot word could be one that somebody knew before: a fresh block */
	if (op->have_block && now - op->prepared_ns > (s->geometry.epoch_ns << LAYOUT_GEN_BITS) / 4)
		kv_drop_block(op);
	op->state = KV_BEGIN;
	op->posted = false;
	op->use_cache = false;
	op->split = op->filled = false;
	if (op->congested)
		window = s->geometry.deadline_ns << (op->too_old - 2);
	else if (!backoff)
		return KV_GO_ON;
	op->congested = false;
	return rest(op, now + session_random(s) % window + 1);
}

int kv_restart_late(struct kv_op *op)
{
	int next = kv_restart(op, true);
	uint64_t wait = (uint64_t)LATE_NS << op->late;

	if (op->late < LATE_DOUBLINGS)
		op->late++;
	return next == KV_WAIT ? rest(op, session_now(op->session) + wait +
						  session_random(op->session) % wait)
			       : next;
}

int kv_contradiction(struct kv_op *op)
{
	directory_forget(op->session->directory, op->hash);
	op->refresh = true;
	if (++op->contradictions > CONTRADICTIONS_MAX)
		return kv_end(op, err_set(-TARN_ECORRUPT,
					  "the directory and the bucket headers at pool "
					  "offset %llu contradict each "
					  "other: the pool's memory is damaged there",
					  (unsigned long long)op->pair_offsets[0]));
	return kv_restart(op, op->contradictions > 2);
}

bool kv_too_old(struct kv_op *op)
{
	op->now_ns = session_now(op->session);
	if (MUTATED(MUTATION_DEADLINE) ||
	    op->now_ns - op->first_read_ns <= op->session->geometry.deadline_ns)
		return false;
	/*
	 * Once, that may be a pause of this process. Again, it is more work under way than gets done within
	 * D, and it would stay so for ever if all began again at once.
	 */
	op->session->too_old++;
	op->congested = op->too_old > 0;
	if (op->too_old < OLD_MAX)
		op->too_old++;
	return true;
}

int kv_post(struct kv_op *op, const struct fabric_request *requests, unsigned request_count)
{
	int ret = session_post(op->session, requests, request_count, &op->task);

	if (ret < 0)
		return kv_end(op, ret);
	op->posted = true;
	return ret;
}

/* The connection broke with a post in flight. */
static int connection_lost(struct kv_op *op)
{
	const struct tarn_session *s = op->session;
	/*
	 * Whatever else was on its way changes nothing that anybody can see: blocks that no slot
	 * names, pending slots, pages. The call may be made again, as another client.
	 */
	bool decisive = op->state == KV_UPDATE || op->state == KV_CACHED_PUT ||
			op->state == KV_COMMIT || op->state == KV_ADD_FAA ||
			op->state == KV_ADD_RPC || op->faa_word;

	if (decisive)
		return kv_end(op,
			      err_set(-TARN_EAMBIGUOUS,
				      "the connection to tarnd broke while the write was on its "
				      "way: it may or may not have taken effect%s%s",
				      s->loss[0] ? "; " : "", s->loss));
	return kv_end(op, session_lost(s));
}

/* ---- the beginning --------------------------------------------------------------------------- */

static bool needs_block(const struct kv_op *op)
{
	return !op->have_block && (op->kind == KV_PUT || op->creating);
}

/* The key's buckets, as far as the directory is known. */
static void locate(struct kv_op *op)
{
	const struct tarn_session *s = op->session;
	uint64_t subtable = directory_find(s->directory, op->hash);
	unsigned i;

	if (!subtable)
		return;
	found_pair_offsets(s, op->hash, subtable, op->pair_offsets);
	/*
	 * while the location cache is being looked at the buckets come nearer: its slot, too, is one
	 * of theirs
	 */
	for (i = 0; i < 2 && op->use_cache; i++)
		fabric_hint(s->ep, op->pair_offsets[i], LAYOUT_PAIR_BYTES);
}

/* Decides what comes first. Comes back here after EPOCH and PREPARE. */
static int begin(struct kv_op *op)
{
	struct tarn_session *s = op->session;
	/* a put may have waited for its block meanwhile; a get has not waited for anything */
	uint64_t now = op->kind == KV_GET ? op->now_ns : session_now(s);
	/* over a quota of bytes the old value's length has to be known */
	bool cacheable =
		op->kind == KV_GET || (op->kind == KV_PUT && !op->put_flags && !op->extents_taken &&
				       !(s->limits.limits & LAYOUT_LIMIT_BYTES));

	if (__builtin_expect(op->cluster && !op->since, 0))
		return kv_shard_elsewhere(op);
	if (op->kind != KV_GET && session_epoch_stale(s, now) && !op->have_block)
		op->state = KV_EPOCH;
	else if (needs_block(op))
		op->state =
			op->kind == KV_PUT && layout_value_is_large(op->key_length, op->value_bytes)
				? KV_EXTENTS
				: KV_PREPARE;
	else if (op->use_cache && cacheable && !session_epoch_stale(s, now) &&
		 cache_find(s->cache, op->hash, s->epoch, &op->slot, &op->word))
		op->state = op->kind == KV_GET ? KV_CACHED_GET : KV_CACHED_PUT;
	else if (op->refresh || !directory_find(s->directory, op->hash))
		op->state = KV_DIRECTORY;
	else
		op->state = KV_BUCKETS;
	return KV_GO_ON;
}

static int read_epoch(struct kv_op *op)
{
	struct fabric_request r = fabric_read(LAYOUT_EPOCH_OFFSET, &op->epoch, 8);

	if (!op->posted) {
		op->first_read_ns = session_now(op->session);
		return kv_post(op, &r, 1);
	}
	op->posted = false;
	session_epoch_learn(op->session, op->epoch, op->first_read_ns);
	/* on a path where the READ alone takes E / 2 the epoch is always too old: not for ever */
	if (session_now(op->session) > op->limit_ns)
		return kv_end(op,
			      err_set(-TARN_ETIMEOUT,
				      "the pool's clock could not be read within the time limit"));
	op->state = KV_BEGIN;
	return KV_GO_ON;
}

static int read_directory(struct kv_op *op)
{
	struct directory *d = op->session->directory;
	struct fabric_request requests[] = {
		fabric_read(LAYOUT_GLOBAL_DEPTH_OFFSET, &op->depth, 8),
		fabric_read(directory_where(d, op->hash), &op->entry, 8),
	};
	int ret;

	if (!op->posted)
		return kv_post(op, requests, 2);
	op->posted = false;
	ret = directory_learn(d, op->hash, op->depth, op->entry);
	if (ret < 0)
		return kv_end(op, ret);
	if (ret == 0) {
		op->refresh = false;
		op->state = KV_BUCKETS;
	} else if (session_now(op->session) > op->limit_ns) {
		return kv_restart(op, false);
	}
	return KV_GO_ON;
}

/* ---- the index ------------------------------------------------------------------------------- */

/* The visible slots of this fingerprint are candidates. */
static inline void collect(void *arg, unsigned pair, unsigned bucket, uint64_t slot, uint64_t word)
{
	struct kv_op *op = arg;
	uint32_t state = layout_slot_state(word);

	(void)pair;
	(void)bucket;
	if (layout_slot_fp(word) != op->fp || state == LAYOUT_SLOT_EMPTY)
		return;
	if (state == LAYOUT_SLOT_MOVED)
		op->moved |= found_tombstone_counts(op->hash, word);
	else if (state == LAYOUT_SLOT_COMMITTED || state == LAYOUT_SLOT_FROZEN ||
		 MUTATED(MUTATION_PENDING_VISIBLE))
		op->candidates[op->candidate_count++] =
			(struct kv_candidate){.slot = slot, .word = word};
}

static int post_buckets(struct kv_op *op)
{
	struct tarn_session *s = op->session;
	struct fabric_request requests[6];
	unsigned i, n = kv_add_block_writes(op, requests);

	s->stats.cache_misses += op->use_cache;
	op->use_cache = false;
	locate(op);
	/*
	 * What the daemon is waited for (a page for a larger index) may rest with the dead until a
	 * sweep, and that waits for our count. The block is named nowhere, or by a slot that was
	 * withdrawn: nothing is owed.
	 */
	if (__builtin_expect(op->late > 0 || op->too_old > 1, 0) && engine_may_raise(s->engine, &op->task))
		requests[n++] = process_raise(s->process);
	for (i = 0; i < 2; i++)
		requests[n++] = fabric_read(op->pair_offsets[i], op->pairs[i], LAYOUT_PAIR_BYTES);
	op->first_read_ns = op->now_ns = session_now(s);
	op->seen_epoch = s->epoch;
	op->shard_seen = false;
	op->epoch = 0;
	if (session_epoch_stale(s, op->first_read_ns))
		requests[n++] = fabric_read(LAYOUT_EPOCH_OFFSET, &op->epoch, 8);
	return kv_post(op, requests, n);
}

static int buckets(struct kv_op *op)
{
	uint64_t splitting = 0;

	if (!op->posted)
		return post_buckets(op);
	op->posted = false;
	if (op->epoch)
		session_epoch_learn(op->session, op->epoch, op->first_read_ns);
	switch (found_headers(op->pairs[0], 4, op->hash, &splitting)) {
	case HEADERS_FIT:
		break;
	case HEADERS_OTHER_SUBTABLE:
		return kv_contradiction(op);
	case HEADERS_FILLED:
		/* of the slots some may be from before that: another READ shows all */
		op->filled = !op->filled;
		if (op->filled)
			return KV_GO_ON;
		break;
	case HEADERS_SPLITTING:
		return kv_split(op, splitting);
	}
	op->filled = false;
	op->contradictions = 0;
	op->candidate_count = 0;
	return kv_collected(op);
}

int kv_collected(struct kv_op *op)
{
	op->moved = false;
	found_each_slot(op, op->pair_offsets, op->pairs, collect);
	/* a split began behind the READ of the headers, and they do not say so */
	if (op->moved) {
		op->refresh = true;
		return kv_restart(op, true);
	}
	op->batch_begin = 0;
	op->state = KV_CANDIDATES;
	if (op->candidate_count)
		return KV_GO_ON;
	/*
	 * T1; with candidates the clock is looked at once their blocks are there, which is before
	 * anything is made of what was read
	 */
	return kv_too_old(op) ? kv_restart(op, false) : kv_absent(op);
}

void kv_split_collect(struct kv_op *op)
{
	op->candidate_count = 0;
	/* its tombstones say what the headers have said already */
	found_each_slot(op, op->old_offsets, op->old_pairs, collect);
}

/* ---- candidates ------------------------------------------------------------------------------ */

int kv_post_candidates(struct kv_op *op)
{
	const struct layout_geometry *g = &op->session->geometry;
	struct fabric_request requests[FABRIC_POST_MAX];
	uint32_t used = 0;
	unsigned i, n = 0;

	for (i = op->batch_begin; i < op->candidate_count; i++) {
		struct kv_candidate *c = &op->candidates[i];
		uint32_t class = layout_slot_class(c->word);

		c->bad = !layout_block_place_valid(g, layout_slot_offset(c->word), class);
		if (c->bad)
			continue;
		if (used + layout_class_bytes(class) > KV_SCRATCH_BYTES || n == FABRIC_POST_MAX)
			break;
		c->scratch = used;
		requests[n++] = fabric_read(layout_slot_offset(c->word), op->scratch + used,
					    layout_class_bytes(class));
		used += layout_class_bytes(class);
	}
	op->batch_end = i;
	if (n)
		return kv_post(op, requests, n);
	/* all of them garbage: nothing to read */
	op->posted = true;
	return KV_GO_ON;
}

int kv_bad(struct kv_op *op, uint64_t slot, uint64_t word)
{
	if (op->bad_slot != slot || op->bad_word != word) {
		op->bad_slot = slot;
		op->bad_word = word;
		op->bad_count = 0;
	}
	if (++op->bad_count >= KV_BAD_TRIES)
		return kv_end(
			op,
			err_set(-TARN_ECORRUPT,
				"the block at pool offset %llu, named by the slot at %llu, does "
				"not match its "
				"checksum, generation or place: the pool's memory is damaged there",
				(unsigned long long)layout_slot_offset(word),
				(unsigned long long)slot));
	return kv_restart(op, true);
}

int kv_found(struct kv_op *op)
{
	if (layout_slot_state(op->word) == LAYOUT_SLOT_FROZEN && kv_shard_owed(op))
		return kv_shard_look(op, true);
	switch (op->kind) {
	case KV_GET:
		return kv_get_found(op);
	case KV_PUT:
		return kv_put_found(op);
	case KV_DELETE:
		return kv_delete_found(op);
	case KV_ADD:
		return kv_add_found(op);
	}
	return KV_ENDED;
}

static int candidates(struct kv_op *op)
{
	unsigned i;

	if (!op->posted)
		return kv_post_candidates(op);
	op->posted = false;
	if (kv_too_old(op))
		return kv_restart(op, false);
	for (i = op->batch_begin; i < op->batch_end; i++) {
		struct kv_candidate *c = &op->candidates[i];
		int match = c->bad ? -1 : kv_block_match(op, kv_candidate_block(op, c), c->word);

		c->bad = match < 0;
		if (match > 0) {
			op->slot = c->slot;
			op->word = c->word;
			op->found = kv_candidate_block(op, c);
			return kv_found(op);
		}
	}
	op->batch_begin = op->batch_end;
	if (op->batch_begin < op->candidate_count)
		return KV_GO_ON;
	/* a block that cannot be read might be the key's */
	for (i = 0; i < op->candidate_count; i++)
		if (op->candidates[i].bad)
			return kv_bad(op, op->candidates[i].slot, op->candidates[i].word);
	return kv_absent(op);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static int kv_step(struct task *task)
{
	static int (*const handlers[KV_STATES])(struct kv_op *) = {
		[KV_BEGIN] = begin,
		[KV_EPOCH] = read_epoch,
		[KV_CLAIM] = kv_claim,
		[KV_EXTENTS] = kv_extents,
		[KV_PREPARE] = kv_prepare,
		[KV_CACHED_GET] = kv_cached_get,
		[KV_CACHED_PUT] = kv_cached_put,
		[KV_DIRECTORY] = read_directory,
		[KV_BUCKETS] = buckets,
		[KV_CANDIDATES] = candidates,
		[KV_GET_EXTENTS] = kv_get_extents,
		[KV_RENEW] = kv_renew,
		[KV_UPDATE] = kv_update,
		[KV_INSERT] = kv_insert,
		[KV_RIVALS] = kv_rivals,
		[KV_KILL] = kv_kill,
		[KV_REREAD] = kv_reread,
		[KV_COMMIT] = kv_commit,
		[KV_WITHDRAW] = kv_withdraw,
		[KV_GROW] = kv_grow,
		[KV_SPLIT_ENTRIES] = kv_split_entries,
		[KV_SPLIT_OLD] = kv_split_old,
		[KV_SPLIT_NEW] = kv_split_new,
		[KV_REREAD_OLD] = kv_reread_old,
		[KV_ADD_FAA] = kv_add_faa,
		[KV_ADD_RPC] = kv_add_rpc,
		[KV_SHARD] = kv_shard,
		[KV_SHARD_KEY] = kv_shard_key,
	};
	struct kv_op *op = (struct kv_op *)task;
	int next;

	task->wake_ns = 0;
	if (task->status < 0 && op->posted && op->state != KV_CLAIM && op->state != KV_ADD_RPC &&
	    op->state != KV_GROW)
		return connection_lost(op) == KV_ENDED;
	do {
		next = handlers[op->state](op);
	} while (next == KV_GO_ON);
	return next == KV_ENDED;
}

void kv_set_key(struct kv_op *op, const void *key, uint32_t key_length)
{
	op->key = key;
	op->key_length = key_length;
	op->hash = session_hash(op->session, key, key_length);
	op->fp = layout_hash_fp(op->hash);
}

/* What every operation begins with. */
static struct task *start(struct kv_op *op, enum kv_kind kind, const void *key, size_t key_bytes)
{
	struct tarn_session *s = op->session;

	op->task.step = kv_step;
	op->task.status = 0;
	op->task.wake_ns = 0;
	op->kind = kind;
	op->state = KV_BEGIN;
	op->posted = false;
	op->use_cache = s->cache != NULL;
	kv_set_key(op, key, (uint32_t)key_bytes);
	op->frozen = false;
	op->owner = s->identity.owner;
	op->cluster = s->since != NULL;
	if (op->cluster)
		kv_shard_begin(op);
	op->started_ns = op->now_ns = session_now(s);
	op->limit_ns = session_limit(s, op->started_ns);
	op->task.limit_ns = op->limit_ns;
	op->full_pass = 0;
	op->attempts = op->too_old = 0;
	op->congested = false;
	op->why = "";
	op->refresh = op->split = op->filled = false;
	op->contradictions = 0;
	op->asked_ns = 0;
	op->late = 0;
	op->put_flags = 0;
	op->have_block = op->written = op->named = op->creating = op->larger = false;
	op->claim_looks = 0;
	op->extents_taken = op->extents_written = 0;
	op->yield_word = 0;
	op->bad_count = 0;
	op->faa_word = 0;
	if (op->use_cache)
		locate(op);
	return &op->task;
}

struct task *shard_put(struct kv_op *op, const struct shard_put *put)
{
	struct task *task = start(op, KV_PUT, put->key, put->key_bytes);

	op->frozen = true;
	op->replaced_word = 0;
	op->use_cache = false;
	op->owner = put->owner;
	op->value = put->value;
	op->value_bytes = put->value_bytes;
	op->put_flags = put->counter ? TARN_PUT_COUNTER : 0;
	op->user_flags = put->user_flags;
	op->expiry_ms = put->expiry_ms;
	op->stamp = put->stamp;
	if (put->counter)
		memcpy(&op->delta, put->value, sizeof(op->delta));
	return task;
}

struct task *kv_get(struct kv_op *op, const void *key, size_t key_bytes, void *buffer,
		    size_t buffer_bytes, bool exists_only)
{
	op->buffer = buffer;
	op->buffer_bytes = buffer_bytes;
	op->exists_only = exists_only;
	return start(op, KV_GET, key, key_bytes);
}

const struct tarn_item *kv_item(const struct kv_op *op)
{
	return &op->item;
}

struct task *kv_put(struct kv_op *op, const void *key, size_t key_bytes, const void *value,
		    size_t value_bytes, const struct tarn_put_options *options)
{
	struct task *task = start(op, KV_PUT, key, key_bytes);

	op->value = value;
	op->value_bytes = value_bytes;
	op->put_flags = options ? options->flags : 0;
	op->user_flags = options ? options->user_flags : 0;
	op->expiry_ms = options ? options->expiry_ms : 0;
	op->if_stamp = options ? options->stamp : 0;
	if (op->put_flags & TARN_PUT_COUNTER)
		memcpy(&op->delta, value, sizeof(op->delta));
	op->stamp = session_stamp(op->session);
	return task;
}

uint64_t kv_stamp(const struct kv_op *op)
{
	return op->stamp;
}

struct task *kv_delete(struct kv_op *op, const void *key, size_t key_bytes)
{
	return start(op, KV_DELETE, key, key_bytes);
}

struct task *kv_add(struct kv_op *op, const void *key, size_t key_bytes, int64_t delta)
{
	struct task *task = start(op, KV_ADD, key, key_bytes);

	op->delta = delta;
	op->user_flags = 0;
	op->expiry_ms = 0;
	op->stamp = session_stamp(op->session);
	return task;
}

struct task *shard_delete(struct kv_op *op, uint64_t word, uint64_t hash)
{
	struct task *task = start(op, KV_DELETE, "", 0);

	op->frozen = true;
	op->only_word = word;
	op->only_hash = hash;
	op->state = KV_SHARD_KEY;
	return task;
}

void shard_placed(const struct kv_op *op, uint64_t *ret_slot, uint64_t *ret_word,
		  uint64_t *ret_replaced)
{
	*ret_slot = op->placed_slot;
	*ret_word = op->new_word;
	*ret_replaced = op->replaced_word;
}

int64_t kv_added(const struct kv_op *op)
{
	return op->added;
}
