/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * claim.c - getting more pages: from the ready ring, from the page cursor, or named by the
 * daemon
 *
 * The page's own word decides; ring, cursor and daemon only say where to look. Runs inside the task
 * that needs a block, on the session's owner. Next: docs/protocol.md section 5;
 * tests/model/claim.pml.
 */
#include "claim.h"

#include <string.h>

#include "alloc.h"
#include "engine.h"
#include "err.h"
#include "mutation.h"

#define RING_TRIES   8u        /* tickets drawn in vain before the cursor is tried */
#define CURSOR_TRIES 16u       /* pages of the cursor before the daemon is asked */
#define RESTING_NS   20000000u /* between two questions to a pool whose blocks rest */
#define GIVE_AFTER   2u        /* such questions, then pages of other sizes are handed back */
#define RPC_TRIES    16u       /* pages named by the daemon that somebody else took first */

static int post(struct claim *c, const struct fabric_request *requests, unsigned count)
{
	int ret = session_post(c->session, requests, count, c->task);

	c->posted = ret >= 0;
	return ret;
}

/* Draws as many as are tried together. */
static struct fabric_request faa_of(const struct claim *c, uint64_t offset, uint64_t *local)
{
	return (struct fabric_request){.opcode = FABRIC_FAA,
				       .length = 8,
				       .offset = offset,
				       .local = local,
				       .operand = c->count};
}

static uint32_t at_most(const struct claim *c, uint64_t count)
{
	return count < c->wanted ? (uint32_t)count : c->wanted;
}

/* Each handler returns 1: go on in claim->state, 0: posted, negative: ended with this code. */

static int look(struct claim *c)
{
	uint64_t ring = layout_ring_offset(&c->session->geometry, c->class);
	struct fabric_request requests[] = {
		fabric_read(ring, c->ring, sizeof(c->ring)),
		fabric_read(LAYOUT_CURSOR_OFFSET, &c->cursor, 8),
		/*
		 * what is written into the page must be dated later than what was in it
		 * (generations)
		 */
		fabric_read(LAYOUT_EPOCH_OFFSET, &c->epoch, 8),
		fabric_read(layout_client_offset(&c->session->geometry,
						 c->session->identity.client_slot) +
				    SESSION_LIMITS_OFFSET,
			    &c->limits, sizeof(c->limits)),
		{0},
	};
	unsigned n = 4;

	if (!c->posted) {
		c->posted_ns = session_now(c->session);
		/*
		 * What is waited for may rest with the dead until a sweep, and that waits for our
		 * count. The new block is named nowhere yet: nothing is owed.
		 */
		if (c->rested > 0 && engine_may_raise(c->session->engine, c->task))
			requests[n++] = process_raise(c->session->process);
		return post(c, requests, n);
	}
	c->posted = false;
	session_epoch_learn(c->session, c->epoch, c->posted_ns);
	c->session->limits = c->limits;
	/* blocks that this session has retired in its own pages may have rested for long enough */
	if (alloc_has(c->session->alloc, c->class))
		return 2;
	if (c->limits.limits & LAYOUT_LIMIT_PAGES)
		return session_over_quota(c->session, LAYOUT_LIMIT_PAGES);
	if (c->tries < RING_TRIES && c->ring[0] < c->ring[LAYOUT_RING_TAIL / 8]) {
		c->count = at_most(c, c->ring[LAYOUT_RING_TAIL / 8] - c->ring[0]);
		c->state = CLAIM_TICKET;
	} else if (c->tries < RING_TRIES + CURSOR_TRIES &&
		   c->cursor < c->session->geometry.npages) {
		c->count = at_most(c, c->session->geometry.npages - c->cursor);
		c->state = CLAIM_CURSOR;
	} else {
		c->state = CLAIM_RPC;
	}
	return 1;
}

static int ticket(struct claim *c)
{
	struct fabric_request r =
		faa_of(c, layout_ring_offset(&c->session->geometry, c->class) + LAYOUT_RING_HEAD,
		       &c->ticket);

	if (!c->posted)
		return post(c, &r, 1);
	c->posted = false;
	c->state = CLAIM_ENTRY;
	return 1;
}

/* A READ for each run of words that stand side by side. */
static int post_words(struct claim *c, const uint64_t *offsets, uint64_t *words)
{
	struct fabric_request requests[CLAIM_PAGES];
	unsigned n = 0;

	for (uint32_t i = 0; i < c->count; i++) {
		if (i && offsets[i] == offsets[i - 1] + 8)
			requests[n - 1].length += 8;
		else
			requests[n++] = fabric_read(offsets[i], words + i, 8);
	}
	return post(c, requests, n);
}

static int entry(struct claim *c)
{
	const struct layout_geometry *g = &c->session->geometry;
	uint64_t entries = layout_ring_offset(g, c->class) + LAYOUT_RING_ENTRIES;
	uint64_t offsets[CLAIM_PAGES];
	uint32_t drawn = c->count;

	if (!c->posted) {
		for (uint32_t i = 0; i < drawn; i++)
			offsets[i] = entries + 8 * ((c->ticket + i) & (g->ring_entries - 1));
		return post_words(c, offsets, c->entries);
	}
	c->posted = false;
	c->source = CLAIM_ENTRY;
	c->tries++;
	c->count = 0;
	for (uint32_t i = 0; i < drawn; i++) {
		uint32_t page = layout_ring_page(c->entries[i]);

		/* an entry counts only for the ticket that it carries */
		if ((layout_ring_ticket(c->entries[i]) == (uint32_t)(c->ticket + i) ||
		     MUTATED(MUTATION_TICKET)) &&
		    page < g->npages)
			c->pages[c->count++] = page;
	}
	c->state = c->count ? CLAIM_PAGE : CLAIM_LOOK;
	return 1;
}

static int cursor(struct claim *c)
{
	struct fabric_request r = faa_of(c, LAYOUT_CURSOR_OFFSET, &c->cursor);
	uint64_t drawn = c->count, npages = c->session->geometry.npages;

	if (!c->posted)
		return post(c, &r, 1);
	c->posted = false;
	c->tries = c->tries < RING_TRIES ? RING_TRIES : c->tries + 1;
	c->source = CLAIM_CURSOR;
	c->count = 0;
	for (uint64_t i = 0; i < drawn && c->cursor < npages && c->cursor + i < npages; i++)
		c->pages[c->count++] = (uint32_t)(c->cursor + i);
	c->state = c->count ? CLAIM_PAGE : CLAIM_LOOK;
	return 1;
}

bool claim_full_is_sure(const struct wire_rpc_reply *reply, uint64_t *pass)
{
	/* what it waits for may be gone when it is asked again: that is to be seen by a later pass */
	if (reply->number == 1)
		*pass = 0;
	else if (*pass == 0)
		*pass = (uint64_t)reply->value;
	return *pass != 0 && reply->length >= *pass;
}

#define RESTING 1 /* ask again later */

/*
 * What was deleted or replaced less than G ago is not lost, it only rests: it is waited for. So is what
 * was deleted a moment ago, of which the daemon does not know yet. RESTING, or the error.
 */
static int full(struct claim *c, const struct wire_rpc_reply *reply)
{
	bool sure = claim_full_is_sure(reply, &c->full_pass);
	bool rests = reply->number == 1 || alloc_rests(c->session->alloc, c->class);

	/* it may as well be in pages of ours, of other sizes: then it counts from now on */
	if (!rests && !c->gave && alloc_hand_back_others(c->session->alloc, c->class))
		c->gave = rests = true;
	else if (!rests)
		rests = !sure;
	if (!rests)
		return err_set(reply->status,
			       "the pool has no page left for blocks of %u bytes: delete keys, or "
			       "enlarge the pool (size)",
			       layout_class_bytes(c->class));
	if (session_now(c->session) + RESTING_NS < c->task->limit_ns)
		return RESTING;
	return err_set(
		reply->status,
		"the pool has no page for blocks of %u bytes: what is deleted or evicted rests "
		"for a while (grace), and what came back within the time limit was not enough: "
		"try again, or enlarge the pool (size)",
		layout_class_bytes(c->class));
}

/* 0: c->pages[0] is named; RESTING; or an error. */
static int rpc_result(struct claim *c)
{
	struct wire_rpc_reply reply;
	int ret = c->task->status < 0 ? c->task->status
				      : wire_rpc_reply_decode(c->reply, c->task->length, &reply);

	if (ret == -TARN_ETIMEOUT)
		return err_set(ret,
			       "tarnd did not name a page in time: it is stopped or overloaded, or "
			       "all free memory still rests after deletes (grace): try again");
	if (ret == -TARN_ESESSION)
		return session_lost(c->session);
	if (ret < 0)
		return ret;
	if (reply.status == -TARN_EPOOLFULL)
		return full(c, &reply);
	if (reply.status < 0)
		return err_set(reply.status, "tarnd names no page: %s", err_string(reply.status));
	if (reply.number >= c->session->geometry.npages)
		return err_set(-TARN_EPROTO, "tarnd named page %u of %u", reply.number,
			       c->session->geometry.npages);
	c->pages[0] = reply.number;
	c->count = 1;
	return 0;
}

/* Begins again in a while. Who waits keeps nothing from others that wait: pages it has no use for now. */
static int rest(struct claim *c)
{
	if (++c->rested == GIVE_AFTER)
		alloc_hand_back_others(c->session->alloc, c->class);
	c->task->wake_ns = session_now(c->session) + RESTING_NS;
	c->tries = 0;
	c->state = CLAIM_LOOK;
	return 0;
}

/* There are pages, but others are always faster: not for ever. */
static int outrun(struct claim *c)
{
	if (session_now(c->session) + RESTING_NS < c->task->limit_ns)
		return rest(c);
	return err_set(-TARN_EPOOLFULL,
		       "other clients took every page that tarnd named: the pool is all but full");
}

static int rpc(struct claim *c)
{
	struct wire_rpc message = {.type = WIRE_RPC_PAGE, .class = c->class};
	int ret;

	if (!c->posted) {
		wire_rpc_encode(&message, c->message);
		ret = session_rpc(c->session, c->message, sizeof(c->message), c->reply,
				  sizeof(c->reply), c->task);
		c->posted = ret == 0;
		return ret;
	}
	c->posted = false;
	ret = rpc_result(c);
	if (ret == RESTING && alloc_larger(c->session->alloc, c->class) != c->class) {
		c->larger = true;
		return 2;
	}
	if (ret == RESTING)
		return rest(c);
	if (ret < 0)
		return ret;
	c->tries = c->tries < RING_TRIES + CURSOR_TRIES ? RING_TRIES + CURSOR_TRIES : c->tries + 1;
	if (c->tries > RING_TRIES + CURSOR_TRIES + RPC_TRIES)
		return outrun(c);
	c->source = CLAIM_RPC;
	c->state = CLAIM_PAGE;
	return 1;
}

/* None of them could be had. */
static int again(struct claim *c)
{
	c->state = c->source == CLAIM_RPC ? CLAIM_RPC : CLAIM_LOOK;
	return 1;
}

static int page(struct claim *c)
{
	uint64_t offsets[CLAIM_PAGES];
	uint32_t named = c->count;

	if (!c->posted) {
		for (uint32_t i = 0; i < named; i++)
			offsets[i] =
				layout_page_word_offset(&c->session->geometry, c->pages[i]);
		return post_words(c, offsets, c->words);
	}
	c->posted = false;
	c->count = 0;
	for (uint32_t i = 0; i < named; i++) {
		uint64_t word = c->words[i];
		uint32_t state = layout_page_state(word);

		if (state != LAYOUT_PAGE_FREE &&
		    (state != LAYOUT_PAGE_PARTIAL || layout_page_class(word) != c->class))
			continue;
		c->pages[c->count] = c->pages[i];
		c->words[c->count++] = word;
	}
	if (c->count == 0)
		return again(c);
	c->state = CLAIM_CAS;
	return 1;
}

static uint64_t mine(const struct claim *c, uint32_t i)
{
	return layout_page_next(c->words[i], LAYOUT_PAGE_SLAB, c->class,
				c->session->identity.client_slot);
}

/* a free page is aged all over */
static bool was_free(const struct claim *c, uint32_t i)
{
	return layout_page_state(c->words[i]) == LAYOUT_PAGE_FREE;
}

/*
 * The map is READ behind the CAS, which keeps its place (two READs would not): once the page is
 * ours its map changes no more, but for blocks that others retire. If the CAS fails, what was read
 * is nothing to us.
 */
static int post_cas(struct claim *c)
{
	const struct layout_geometry *g = &c->session->geometry;
	struct fabric_request requests[2 * CLAIM_PAGES];
	unsigned n = 0;

	for (uint32_t i = 0; i < c->count; i++) {
		requests[n++] =
			(struct fabric_request){.opcode = FABRIC_CAS,
						.length = 8,
						.offset = layout_page_word_offset(g, c->pages[i]),
						.local = &c->seen[i],
						.compare = c->words[i],
						.operand = mine(c, i)};
		if (!was_free(c, i))
			requests[n++] = fabric_read(
				layout_free_map_offset(g, layout_page_offset(g, c->pages[i])),
				c->map + i,
				layout_class_blocks(c->class) == 1 ? 1 : sizeof(c->map));
	}
	return post(c, requests, n);
}

static int cas(struct claim *c)
{
	uint32_t got = 0;
	int ret;

	if (!c->posted)
		return post_cas(c);
	c->posted = false;
	for (uint32_t i = 0; i < c->count; i++) {
		if (c->seen[i] != c->words[i])
			continue;
		ret = alloc_adopt(c->session->alloc, c->pages[i], mine(c, i),
				  was_free(c, i) ? NULL : c->map + i);
		if (ret < 0)
			return ret;
		got++;
	}
	if (!got)
		return again(c);
	/* a page whose blocks were all taken between scan and claim: the next one */
	c->state = CLAIM_LOOK;
	return 2;
}

void claim_start(struct claim *c, struct tarn_session *session, struct task *task, uint32_t class,
		 uint32_t wanted)
{
	c->session = session;
	c->task = task;
	c->class = class;
	c->wanted = wanted;
	c->state = CLAIM_LOOK;
	c->posted = false;
	c->tries = 0;
	c->larger = false;
	c->rested = 0;
	c->gave = false;
	c->full_pass = 0;
}

int claim_step(struct claim *c, int *ret_result)
{
	static int (*const handlers[])(struct claim *) = {
		[CLAIM_LOOK] = look,     [CLAIM_TICKET] = ticket, [CLAIM_ENTRY] = entry,
		[CLAIM_CURSOR] = cursor, [CLAIM_RPC] = rpc,       [CLAIM_PAGE] = page,
		[CLAIM_CAS] = cas,
	};
	int ret;

	if (c->posted && c->task->status < 0 && c->state != CLAIM_RPC) {
		*ret_result = session_lost(c->session);
		return 1;
	}
	do {
		/*
		 * 1 also from a post that is complete in place: the handler is called again with
		 * `posted` set
		 */
		ret = handlers[c->state](c);
	} while (ret == 1);
	if (ret == 0)
		return 0;
	*ret_result = ret == 2 ? 0 : ret;
	return 1;
}
