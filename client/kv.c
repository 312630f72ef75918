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
#include "err.h"
#include "mutation.h"

#define BACKOFF_BASE_NS   500u
#define BACKOFF_DOUBLINGS 9u
/* attempts, before a header that does not fit the directory is no growth under way any more */
#define CONTRADICTIONS_MAX 100u

int kv_op_create(struct tarn_session *session, struct kv_op **ret_op)
{
	struct kv_op *op = calloc(1, sizeof(*op));

	if (op) {
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

static unsigned latency_bucket(uint64_t ns)
{
	unsigned bucket = ns ? 64 - (unsigned)__builtin_clzll(ns) : 0;

	return bucket < LAYOUT_LATENCY_BUCKETS ? bucket : LAYOUT_LATENCY_BUCKETS - 1;
}

static void count(struct kv_op *op, int result)
{
	struct tarn_session *s = op->session;
	/* a get has just looked at the clock (T1), and what came after that is short */
	uint64_t now = op->kind == KV_GET ? op->now_ns : session_now(s);

	(op->kind == KV_GET ? s->get_latency
			    : s->put_latency)[latency_bucket(now - op->started_ns)]++;
	s->last_call_ns = now;
	if (op->kind == KV_GET &&
	    (result == 0 || result == -TARN_ETOOSMALL || result == -TARN_ENOTFOUND)) {
		s->stats.gets++;
		s->stats.hits += result != -TARN_ENOTFOUND;
		return;
	}
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
	if (op->have_block || op->extents_taken)
		kv_drop_block(op);
	if (op->kind != KV_GET)
		alloc_settle(op->session->alloc);
	op->task.result = result;
	count(op, result);
	return KV_ENDED;
}

int kv_restart(struct kv_op *op, bool backoff)
{
	struct tarn_session *s = op->session;
	uint64_t now = session_now(s);
	unsigned doublings = op->attempts < BACKOFF_DOUBLINGS ? op->attempts : BACKOFF_DOUBLINGS;

	if (now > op->limit_ns)
		return kv_end(op, err_set(op->faa_word ? -TARN_EAMBIGUOUS : -TARN_ETIMEOUT,
					  "no result within %llu ms, after %u attempts",
					  (unsigned long long)(s->timeout_ns / 1000000u),
					  op->attempts + 1));
	op->attempts++;
	s->stats.retries++;
	/* with an old date its slot word could be one that somebody knew before: a fresh block */
	if (op->have_block && now - op->prepared_ns > (s->geometry.epoch_ns << LAYOUT_GEN_BITS) / 4)
		kv_drop_block(op);
	op->state = KV_BEGIN;
	op->posted = false;
	op->use_cache = false;
	if (!backoff)
		return KV_GO_ON;
	op->task.wake_ns = now + session_random(s) % ((uint64_t)BACKOFF_BASE_NS << doublings) + 1;
	return KV_WAIT;
}

bool kv_too_old(struct kv_op *op)
{
	op->now_ns = session_now(op->session);
	return !MUTATED(MUTATION_DEADLINE) &&
	       op->now_ns - op->first_read_ns > op->session->geometry.deadline_ns;
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
	bool decisive = op->state == KV_UPDATE || op->state == KV_CACHED_PUT ||
			op->state == KV_COMMIT || op->state == KV_ADD_FAA ||
			op->state == KV_ADD_RPC || op->faa_word;

	if (decisive)
		return kv_end(op,
			      err_set(-TARN_EAMBIGUOUS, "the connection to tarnd broke while the "
							"write was on its way: it may or may "
							"not have taken effect"));
	return kv_end(op, session_lost());
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

	for (i = 0; i < 2 && subtable; i++) {
		op->pair_offsets[i] = subtable + layout_hash_pair(op->hash, i, s->geometry.groups);
		/*
		 * while the location cache is being looked at the buckets come nearer: its slot,
		 * too, is one of theirs
		 */
		if (op->use_cache)
			fabric_hint(s->ep, op->pair_offsets[i], LAYOUT_PAIR_BYTES);
	}
}

/* Decides what comes first. Comes back here after EPOCH and PREPARE. */
static int begin(struct kv_op *op)
{
	struct tarn_session *s = op->session;
	/* a put may have waited for its block meanwhile; a get has not waited for anything */
	uint64_t now = op->kind == KV_GET ? op->now_ns : session_now(s);
	bool cacheable =
		op->kind == KV_GET || (op->kind == KV_PUT && !op->put_flags && !op->extents_taken);

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
	else if (!directory_find(s->directory, op->hash))
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
	if (ret == 0)
		op->state = KV_BUCKETS;
	return KV_GO_ON;
}

/* ---- the index ------------------------------------------------------------------------------- */

enum headers { HEADERS_FIT, HEADERS_OTHER_SUBTABLE, HEADERS_SPLITTING };

static enum headers check_headers(const struct kv_op *op)
{
	uint32_t suffix = layout_hash_suffix(op->hash);
	unsigned i;

	for (i = 0; i < 4; i++) {
		uint64_t header = op->pairs[i / 2][i % 2].header;

		if (layout_header_suffix(header) !=
		    layout_suffix(suffix, layout_header_depth(header)))
			return HEADERS_OTHER_SUBTABLE;
		if (layout_header_split(header))
			return HEADERS_SPLITTING;
	}
	return HEADERS_FIT;
}

/* The visible slots of this fingerprint are candidates. */
static inline void collect(struct kv_op *op, unsigned pair, unsigned bucket, uint64_t slot,
			   uint64_t word)
{
	uint32_t state = layout_slot_state(word);

	(void)pair;
	(void)bucket;
	if (layout_slot_fp(word) != op->fp || state == LAYOUT_SLOT_EMPTY)
		return;
	if (state == LAYOUT_SLOT_MOVED)
		op->moved = true;
	else if (state == LAYOUT_SLOT_COMMITTED || state == LAYOUT_SLOT_FROZEN ||
		 MUTATED(MUTATION_PENDING_VISIBLE))
		op->candidates[op->candidate_count++] =
			(struct kv_candidate){.slot = slot, .word = word};
}

static int post_buckets(struct kv_op *op)
{
	struct tarn_session *s = op->session;
	struct fabric_request requests[5];
	unsigned i, n = kv_add_block_writes(op, requests);

	op->use_cache = false;
	locate(op);
	for (i = 0; i < 2; i++)
		requests[n++] = fabric_read(op->pair_offsets[i], op->pairs[i], LAYOUT_PAIR_BYTES);
	op->first_read_ns = op->now_ns = session_now(s);
	op->seen_epoch = s->epoch;
	op->epoch = 0;
	if (session_epoch_stale(s, op->first_read_ns))
		requests[n++] = fabric_read(LAYOUT_EPOCH_OFFSET, &op->epoch, 8);
	return kv_post(op, requests, n);
}

static int buckets(struct kv_op *op)
{
	if (!op->posted)
		return post_buckets(op);
	op->posted = false;
	if (op->epoch)
		session_epoch_learn(op->session, op->epoch, op->first_read_ns);
	switch (check_headers(op)) {
	case HEADERS_FIT:
		break;
	case HEADERS_OTHER_SUBTABLE:
		directory_forget(op->session->directory, op->hash);
		if (op->attempts > CONTRADICTIONS_MAX)
			return kv_end(op, err_set(-TARN_ECORRUPT,
						  "the directory and the bucket headers at pool "
						  "offset %llu contradict each "
						  "other: the pool's memory is damaged there",
						  (unsigned long long)op->pair_offsets[0]));
		return kv_restart(op, op->attempts > 2);
	case HEADERS_SPLITTING:
		/* growth is not built yet: no daemon of this version sets the flag */
		return kv_restart(op, true);
	}
	op->candidate_count = 0;
	op->moved = false;
	kv_each_slot(op, op->pairs, collect);
	if (op->moved) {
		directory_forget(op->session->directory, op->hash);
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

/* ---- candidates ------------------------------------------------------------------------------ */

int kv_post_candidates(struct kv_op *op)
{
	const struct layout_geometry *g = &op->session->geometry;
	struct fabric_request requests[2 * KV_SLOTS];
	uint32_t used = 0;
	unsigned i, n = 0;

	for (i = op->batch_begin; i < op->candidate_count; i++) {
		struct kv_candidate *c = &op->candidates[i];
		uint32_t class = layout_slot_class(c->word);

		c->bad = !layout_block_place_valid(g, layout_slot_offset(c->word), class);
		if (c->bad)
			continue;
		if (used + layout_class_bytes(class) > KV_SCRATCH_BYTES)
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

int kv_block_match(const struct kv_op *op, const struct layout_block *block, uint64_t word)
{
	uint64_t offset = layout_slot_offset(word);

	if (!layout_block_valid(block, layout_class_bytes(layout_slot_class(word)), offset))
		return -1;
	if ((block->generation & LAYOUT_GEN_MASK) != layout_slot_gen(word) &&
	    !MUTATED(MUTATION_GENERATION))
		return -1;
	if (MUTATED(MUTATION_KEY_COMPARE))
		return 1;
	return block->key_length == op->key_length &&
	       memcmp(layout_block_key(block), op->key, op->key_length) == 0;
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

static int found(struct kv_op *op)
{
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
			return found(op);
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
		[KV_ADD_FAA] = kv_add_faa,
		[KV_ADD_RPC] = kv_add_rpc,
	};
	struct kv_op *op = (struct kv_op *)task;
	int next;

	task->wake_ns = 0;
	if (task->status < 0 && op->posted && op->state != KV_CLAIM && op->state != KV_ADD_RPC)
		return connection_lost(op) == KV_ENDED;
	do {
		next = handlers[op->state](op);
	} while (next == KV_GO_ON);
	return next == KV_ENDED;
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
	op->key = key;
	op->key_length = (uint32_t)key_bytes;
	op->hash = layout_hash_key(key, key_bytes, s->geometry.hash_seed);
	op->fp = layout_hash_fp(op->hash);
	op->started_ns = op->now_ns = session_now(s);
	op->limit_ns = op->started_ns + s->timeout_ns;
	op->task.limit_ns = op->limit_ns;
	op->attempts = 0;
	op->put_flags = 0;
	op->have_block = op->written = op->named = op->creating = false;
	op->extents_taken = op->extents_written = 0;
	op->yield_word = 0;
	op->bad_count = 0;
	op->faa_word = 0;
	if (op->use_cache)
		locate(op);
	return &op->task;
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

int64_t kv_added(const struct kv_op *op)
{
	return op->added;
}
