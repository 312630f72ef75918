/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handover-target.c - this member as the target: what the source asks, by numbers of shards or in few words
 *
 * docs/protocol.md section 11, step 1. One thread, no I/O. Next to read: handover.c, which makes shards ready.
 */
#include <xxhash.h>

#include "handover-internal.h"
#include "mutation.h"

uint32_t handover_place(uint32_t at, uint32_t shards)
{
	uint32_t shard = 0;

	for (uint32_t bit = 1; bit < shards; bit <<= 1) {
		shard = shard << 1 | (at & 1);
		at >>= 1;
	}
	return shard;
}

enum handover_answer handover_asked(struct handover *h, const struct handover_ask *ask)
{
	if (h->first || h->fenced || ask->to != h->options.self || ask->count == 0 ||
	    ask->count > HANDOVER_BATCH)
		return HANDOVER_WAIT;
	for (uint32_t i = 0; i < ask->count; i++) {
		const struct handover_shard *s;

		if (ask->shards[i] >= h->options.shards)
			return HANDOVER_WAIT;
		s = &h->shards[ask->shards[i]];
		if (s->stage != STAGE_READY || s->taking || s->owner != ask->from)
			return HANDOVER_WAIT;
		/* a question that is late, or our map is */
		if (s->key != ask->since[i] && !MUTATED(MUTATION_READYSINCE))
			return HANDOVER_WAIT;
	}
	for (uint32_t i = 0; i < ask->count; i++) {
		struct handover_shard *s = &h->shards[ask->shards[i]];

		s->mover = ask->from;
		if (ask->number > s->number)
			s->number = ask->number;
	}
	return HANDOVER_READY;
}

/* In the order of the shards' places: the same at both. */
static uint64_t hash_of(const struct handover_ask *ask)
{
	return XXH3_64bits_withSeed(ask->since, ask->count * sizeof(ask->since[0]),
				    XXH3_64bits(ask->shards, ask->count * sizeof(ask->shards[0])));
}

void handover_question(const struct handover_ask *ask, uint32_t shards, struct handover_question *ret_question)
{
	uint32_t first = handover_place(ask->shards[0], shards),
		 last = handover_place(ask->shards[ask->count - 1], shards);

	*ret_question = (struct handover_question){
		.from = ask->from,
		.to = ask->to,
		.number = ask->number,
		.first = first,
		.places = ((last - first) & (shards - 1)) + 1,
		.hash = hash_of(ask),
	};
}

enum handover_answer handover_questioned(struct handover *h, const struct handover_question *question)
{
	struct handover_ask *ask = &h->question;

	*ask = (struct handover_ask){.from = question->from, .to = question->to, .number = question->number};
	if (ask->to != h->options.self || question->places > h->options.shards)
		return HANDOVER_WAIT;
	for (uint32_t i = 0; i < question->places; i++) {
		uint32_t shard = handover_place((question->first + i) & (h->options.shards - 1), h->options.shards);
		const struct handover_shard *s = &h->shards[shard];

		if (s->owner != ask->from || s->to != ask->to)
			continue;
		if (ask->count == HANDOVER_BATCH)
			return HANDOVER_WAIT;
		ask->shards[ask->count] = shard;
		ask->since[ask->count++] = s->key;
	}
	if (ask->count == 0 || (hash_of(ask) != question->hash && !MUTATED(MUTATION_READYSINCE)))
		return HANDOVER_WAIT;
	return handover_asked(h, ask);
}

bool handover_admits(const struct handover *h, uint16_t from, uint64_t number)
{
	if (h->first || h->fenced)
		return false;
	for (uint32_t i = 0; i < h->options.shards; i++) {
		const struct handover_shard *s = &h->shards[i];

		if (s->stage == STAGE_READY && s->mover == from && s->number == number)
			return true;
	}
	return false;
}
