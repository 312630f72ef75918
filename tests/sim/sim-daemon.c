/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim-daemon.c - as much of the daemon as a schedule needs: RPCs, and a keeper that recycles
 *
 * Each step is one change of shared memory, so that it mixes with the clients' words. The epoch is
 * sim_advance()'s. The keeper does not free what a dead client left: that would need the sweep.
 * Next: docs/protocol.md sections 4 (counter add) and 6.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric-sim.h"
#include "tarn/tarn.h"

#define WATCH_MAX  16u
#define BLOCKS_MAX 64u

enum keeper_state { KEEPER_SCAN, KEEPER_PUSH };

/* A page that the keeper looks after. */
struct watch {
	uint32_t page, blocks;
	uint64_t seen_ns[BLOCKS_MAX]; /* when "retired" was first seen; 0: is not */
	uint64_t seen_epoch[BLOCKS_MAX];
	uint64_t seen_counts[BLOCKS_MAX][SIM_CLIENTS]; /* the clients' quiescence counts then */
};

struct sim_daemon {
	struct sim *sim;
	struct watch watches[WATCH_MAX];
	uint32_t count;
	uint64_t next_ns; /* of the next scan */
	enum keeper_state state;
	uint32_t at;    /* the page that is scanned or pushed */
	uint32_t class; /* of the page that is pushed */
};

struct sim_daemon *sim_daemon_create(struct sim *sim)
{
	struct sim_daemon *d = calloc(1, sizeof(*d));

	if (d)
		d->sim = sim;
	return d;
}

void sim_daemon_free(struct sim_daemon *daemon)
{
	free(daemon);
}

void sim_daemon_reset(struct sim_daemon *d)
{
	d->count = 0;
	d->state = KEEPER_SCAN;
	d->at = 0;
	d->next_ns = d->sim->now_ns;
}

void sim_daemon_watch(struct sim_daemon *d, uint32_t page, uint32_t blocks)
{
	if (d->count == WATCH_MAX)
		return;
	memset(d->watches[d->count].seen_ns, 0, sizeof(d->watches[0].seen_ns));
	d->watches[d->count].page = page;
	d->watches[d->count++].blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
}

/* ---- the keeper ----------------------------------------------------------------------------- */

void sim_ring_push(struct sim *sim, uint32_t class, uint32_t page)
{
	uint64_t ring = layout_ring_offset(&sim->geometry, class);
	uint64_t head = sim_word(sim, ring + LAYOUT_RING_HEAD),
		 tail = sim_word(sim, ring + LAYOUT_RING_TAIL);
	uint64_t ticket = head > tail ? head : tail;

	if (ticket - head >= sim->geometry.ring_entries)
		return;
	sim_set_word(sim,
		     ring + LAYOUT_RING_ENTRIES + 8 * (ticket & (sim->geometry.ring_entries - 1)),
		     layout_ring_make(ticket, page));
	sim_set_word(sim, ring + LAYOUT_RING_TAIL, ticket + 1);
}

static uint64_t quiescence(const struct sim *sim, unsigned client)
{
	return sim_word(sim, layout_client_offset(&sim->geometry, client) +
				     offsetof(struct layout_client, quiescence));
}

/*
 * Counters only: has every connection raised its count twice, so that no FAA on this block can be
 * on its way? Who has ended would go on raising it if there were housekeeping; who is dead or cut
 * off is fenced.
 */
static bool all_quiescent(const struct sim *sim, const struct watch *w, uint32_t block)
{
	for (unsigned i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_endpoint *ep = &sim->endpoints[i];

		if (ep->open && !ep->dead && !ep->broken && !(ep->idle && !ep->count) &&
		    quiescence(sim, i) < w->seen_counts[block][i] + 2)
			return false;
	}
	return true;
}

/* Blocks that have been "retired" for G and two epochs become "aged". Returns how many are aged. */
static uint32_t age_blocks(struct sim_daemon *d, struct watch *w, uint32_t class)
{
	struct sim *sim = d->sim;
	uint64_t map =
		layout_free_map_offset(&sim->geometry, layout_page_offset(&sim->geometry, w->page));
	uint32_t units = layout_class_bytes(class) / LAYOUT_UNIT,
		 blocks = layout_class_blocks(class), aged = 0;

	for (uint32_t i = 0; i < w->blocks && i < blocks; i++) {
		const uint8_t now_aged = LAYOUT_FREE_AGED;
		uint64_t byte = map + (uint64_t)i * units;

		if (sim->pool[byte] != LAYOUT_FREE_RETIRED) {
			w->seen_ns[i] = 0;
		} else if (!w->seen_ns[i]) {
			w->seen_ns[i] = sim->now_ns;
			w->seen_epoch[i] = sim->epoch;
			for (unsigned c = 0; c < SIM_CLIENTS; c++)
				w->seen_counts[i][c] = quiescence(sim, c);
		} else if (sim->now_ns - w->seen_ns[i] >= sim->geometry.grace_ns &&
			   sim->epoch >= w->seen_epoch[i] + 2 &&
			   (!layout_class_is_counter(class) || all_quiescent(sim, w, i))) {
			sim_write(sim, byte, &now_aged, 1);
			w->seen_ns[i] = 0;
		}
		aged += sim->pool[byte] == LAYOUT_FREE_AGED;
	}
	return aged;
}

/* Does the ready ring still have an entry for this page? */
static bool in_ring(const struct sim *sim, uint32_t class, uint32_t page)
{
	uint64_t ring = layout_ring_offset(&sim->geometry, class);
	uint64_t head = sim_word(sim, ring + LAYOUT_RING_HEAD),
		 tail = sim_word(sim, ring + LAYOUT_RING_TAIL);

	for (; head < tail; head++) {
		uint64_t index = head & (sim->geometry.ring_entries - 1);
		uint64_t entry = sim_word(sim, ring + LAYOUT_RING_ENTRIES + 8 * index);

		if (layout_ring_page(entry) == page && layout_ring_ticket(entry) == (uint32_t)head)
			return true;
	}
	return false;
}

static bool has_retired(const struct sim *sim, const struct watch *w, uint32_t class)
{
	uint64_t page = layout_page_offset(&sim->geometry, w->page);

	for (uint32_t i = 0; i < w->blocks && i < layout_class_blocks(class); i++) {
		uint64_t block = page + (uint64_t)i * layout_class_bytes(class);

		if (sim->pool[layout_free_map_offset(&sim->geometry, block)] == LAYOUT_FREE_RETIRED)
			return true;
	}
	return false;
}

/*
 * Full pages are aged; partial ones are taken back when they have something to age, or named again
 * when nothing names them.
 */
static void scan_page(struct sim_daemon *d, struct watch *w)
{
	struct sim *sim = d->sim;
	uint64_t at = layout_page_word_offset(&sim->geometry, w->page), word = sim_word(sim, at);
	uint32_t class = layout_page_class(word);

	d->class = class;
	if (layout_page_state(word) == LAYOUT_PAGE_FULL && age_blocks(d, w, class)) {
		sim_tracef(sim, "keeper: page %u is partial", w->page);
		sim_set_word(sim, at, layout_page_next(word, LAYOUT_PAGE_PARTIAL, class, 0));
		d->state = KEEPER_PUSH;
	} else if (layout_page_state(word) == LAYOUT_PAGE_PARTIAL && has_retired(sim, w, class)) {
		sim_tracef(sim, "keeper: page %u is full", w->page);
		sim_set_word(sim, at, layout_page_next(word, LAYOUT_PAGE_FULL, class, 0));
	} else if (layout_page_state(word) == LAYOUT_PAGE_PARTIAL &&
		   !in_ring(sim, class, w->page)) {
		d->state = KEEPER_PUSH;
	}
}

uint64_t sim_keeper_next(const struct sim_daemon *d)
{
	uint64_t from =
		d->next_ns > d->sim->daemon_stopped_ns ? d->next_ns : d->sim->daemon_stopped_ns;

	return d->count ? from : SIM_NEVER;
}

bool sim_keeper_ready(const struct sim_daemon *d)
{
	return sim_keeper_next(d) <= d->sim->now_ns;
}

void sim_keeper_step(struct sim_daemon *d)
{
	if (d->state == KEEPER_PUSH) {
		sim_ring_push(d->sim, d->class, d->watches[d->at].page);
		d->state = KEEPER_SCAN;
	} else {
		scan_page(d, &d->watches[d->at]);
		if (d->state == KEEPER_PUSH)
			return;
	}
	if (++d->at < d->count)
		return;
	d->at = 0;
	d->next_ns = d->sim->now_ns + d->sim->geometry.epoch_ns;
}

/* ---- RPCs ----------------------------------------------------------------------------------- */

uint64_t sim_rpc_ready(const struct sim_endpoint *ep)
{
	uint64_t ready = ep->rpc.ready_ns;

	if (ep->rpc.state == SIM_RPC_NONE || ep->dead)
		return SIM_NEVER;
	return ready > ep->sim->daemon_stopped_ns ? ready : ep->sim->daemon_stopped_ns;
}

static void reply(struct sim_endpoint *ep, int status, uint32_t number, int64_t value)
{
	struct wire_rpc_reply r = {.type = ep->rpc.rpc.type,
				   .tag = ep->rpc.rpc.tag,
				   .status = status,
				   .number = number,
				   .value = value};
	uint8_t bytes[WIRE_RPC_REPLY_BYTES];
	size_t length = sizeof(bytes) < ep->rpc.capacity ? sizeof(bytes) : ep->rpc.capacity;

	ep->rpc.state = SIM_RPC_NONE;
	sim_tracef(ep->sim, "daemon: rpc %u of c%u: status %d, page %u, value %lld%s", r.type,
		   ep->client, status, number, (long long)value,
		   ep->rpc.cancelled ? ", nobody waits for it" : "");
	if (ep->rpc.cancelled)
		return;
	wire_rpc_reply_encode(&r, bytes);
	memcpy(ep->rpc.reply, bytes, length);
	sim_complete(ep, &(struct fabric_completion){.cookie = ep->rpc.cookie,
						     .length = (uint32_t)length});
}

/* A page that can be claimed, if there is one. */
static void name_page(struct sim_endpoint *ep)
{
	const struct sim *sim = ep->sim;

	for (uint32_t page = 0; page < sim->geometry.npages; page++) {
		uint64_t word = sim_word(sim, layout_page_word_offset(&sim->geometry, page));

		if (layout_page_state(word) == LAYOUT_PAGE_FREE ||
		    (layout_page_state(word) == LAYOUT_PAGE_PARTIAL &&
		     layout_page_class(word) == ep->rpc.rpc.class)) {
			reply(ep, 0, page, 0);
			return;
		}
	}
	reply(ep, -TARN_EPOOLFULL, 0, 0);
}

/*
 * The counter's value is where the slot's block says; the block is checked as everything that is
 * read from a pool.
 */
static void find_counter(struct sim_endpoint *ep)
{
	struct sim *sim = ep->sim;
	uint64_t word = ep->rpc.rpc.slot_word, offset = layout_slot_offset(word);
	const struct layout_block *block = (const void *)(sim->pool + offset);

	if (ep->rpc.rpc.slot_offset % 8 || ep->rpc.rpc.slot_offset > sim->bytes - 8 ||
	    layout_slot_state(word) != LAYOUT_SLOT_COMMITTED ||
	    !layout_block_place_valid(&sim->geometry, offset, layout_slot_class(word))) {
		reply(ep, -TARN_EPROTO, 0, 0);
	} else if (sim_word(sim, ep->rpc.rpc.slot_offset) != word) {
		reply(ep, -TARN_ESTAMP, 0, 0);
	} else if (block->kind != LAYOUT_KIND_COUNTER ||
		   !layout_block_valid(block, layout_class_bytes(layout_slot_class(word)),
				       offset)) {
		reply(ep, -TARN_ETYPE, 0, 0);
	} else {
		ep->rpc.value_offset = offset + layout_value_offset(block->key_length);
		ep->rpc.state = SIM_RPC_ADDING;
	}
}

void sim_rpc_step(struct sim_endpoint *ep)
{
	struct sim *sim = ep->sim;

	switch (ep->rpc.state) {
	case SIM_RPC_NONE:
		return;
	case SIM_RPC_ASKED:
		if (wire_rpc_decode(ep->rpc.message, ep->rpc.bytes, &ep->rpc.rpc) < 0)
			reply(ep, -TARN_EPROTO, 0, 0);
		else if (ep->rpc.rpc.type == WIRE_RPC_PAGE)
			name_page(ep);
		else if (ep->rpc.rpc.type == WIRE_RPC_ADD)
			find_counter(ep);
		else
			reply(ep, 0, 0, 0);
		return;
	case SIM_RPC_ADDING:
		ep->rpc.value = (int64_t)(sim_word(sim, ep->rpc.value_offset) +
					  (uint64_t)ep->rpc.rpc.delta);
		sim_set_word(sim, ep->rpc.value_offset, (uint64_t)ep->rpc.value);
		ep->rpc.state = SIM_RPC_ADDED;
		return;
	case SIM_RPC_ADDED:
		if (sim_word(sim, ep->rpc.rpc.slot_offset) == ep->rpc.rpc.slot_word)
			reply(ep, 0, 0, ep->rpc.value);
		else
			reply(ep, -TARN_ECONFLICT, 0, 0);
		return;
	}
}
