/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine-writes.c - writes of one session to one key, when several are under way
 *
 * Side by side they would only fail each other's CAS, and push each other's pending slots out. So one runs,
 * and the others wait behind it, in the order in which they came. A put without a condition ("blind") goes
 * over one that waits last: nobody can tell that from both having been written one right after the other,
 * for all of them are under way at the same time. Adds that are one-sided do not take part: they do not
 * contend. Runs on the session's owner, from engine.c.
 */
#include <string.h>

#include "engine.h"
#include "layout.h"

static struct op **list_of(struct engine *e, const struct op *op)
{
	return &e->writes[op->hash % ENGINE_KEYS];
}

static bool same_key(const struct op *a, const struct op *b)
{
	return a->hash == b->hash && a->key_bytes == b->key_bytes &&
	       memcmp(a->key, b->key, a->key_bytes) == 0;
}

/* The place in the table where the first one of this key is named, or NULL. */
static struct op **find(struct engine *e, const struct op *op)
{
	struct op **at;

	for (at = list_of(e, op); *at; at = &(*at)->next)
		if (same_key(*at, op))
			return at;
	return NULL;
}

/* The last of a chain that waits goes under a new one. */
static void go_over(struct op *first, struct op *op)
{
	struct op *over = first->last, *before = first;

	while (before->behind != over)
		before = before->behind;
	over->state = OP_UNDER;
	over->next = over->under;
	over->under = NULL;
	op->under = over;
	before->behind = op;
}

bool writes_enter(struct engine *e, struct op *op)
{
	struct op **at, *first;

	op->hash = layout_hash_key(op->key, op->key_bytes, e->session->geometry.hash_seed).low;
	op->behind = op->under = op->next = NULL;
	op->last = op;
	at = find(e, op);
	if (!at) {
		at = list_of(e, op);
		op->next = *at;
		*at = op;
		return false;
	}
	first = *at;
	if (first->last != first && first->last->blind && op->blind)
		go_over(first, op);
	else
		first->last->behind = op;
	first->last = op;
	op->state = OP_BEHIND;
	return true;
}

struct op *writes_leave(struct engine *e, struct op *op)
{
	struct op **at = find(e, op), *next = op->behind;

	op->behind = NULL;
	if (!next) {
		*at = op->next;
		return NULL;
	}
	next->next = op->next;
	next->last = op->last;
	*at = next;
	return next;
}

/* The latest of those under an operation comes out, with the others under it. */
static struct op *inherit(struct op *op)
{
	struct op *heir = op->under;

	op->under = NULL;
	heir->state = OP_BEHIND;
	heir->under = heir->next;
	heir->next = NULL;
	return heir;
}

void writes_inherit(struct op *first)
{
	struct op *heir = inherit(first);

	heir->behind = first->behind;
	first->behind = heir;
	if (first->last == first)
		first->last = heir;
}

/* One that waits in the chain goes, not the first one; the latest of those under it takes its place. */
static void withdraw(struct op *first, struct op *before)
{
	struct op *op = before->behind, *heir = op->under ? inherit(op) : NULL;

	if (heir)
		heir->behind = op->behind;
	before->behind = heir ? heir : op->behind;
	if (first->last == op)
		first->last = heir ? heir : before;
	op->behind = NULL;
}

/* Takes it out of the list of those under `over`. False: it is not there. */
static bool take_out(struct op *over, struct op *op)
{
	struct op **at;

	for (at = &over->under; *at; at = &(*at)->next) {
		if (*at != op)
			continue;
		*at = op->next;
		return true;
	}
	return false;
}

void writes_remove(struct engine *e, struct op *op)
{
	struct op *first = *find(e, op), *at = first;

	if (op->state == OP_UNDER) {
		while (at && !take_out(at, op))
			at = at->behind;
	} else {
		while (at->behind != op)
			at = at->behind;
		withdraw(first, at);
	}
	op->next = NULL;
}

static struct op *late_under(const struct op *over, uint64_t now)
{
	struct op *op = over->under;

	while (op && now < op->limit_ns)
		op = op->next;
	return op;
}

struct op *writes_late(struct engine *e, uint64_t now)
{
	for (unsigned i = 0; i < ENGINE_KEYS; i++)
		for (struct op *first = e->writes[i]; first; first = first->next)
			for (struct op *op = first; op; op = op->behind) {
				struct op *late = op != first && now >= op->limit_ns
							  ? op
							  : late_under(op, now);

				if (late)
					return late;
			}
	return NULL;
}
