/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * near.c - blocking gets where the pool's memory is near (fabric.h), without the engine
 *
 * There a get takes less time than all that an operation of the engine costs besides: a place, queues, a
 * completion. So groups are filled and run here, straight from the caller's list. What a group leaves alone
 * goes the usual way. Runs on the application's thread, in a call that owns the session. Next: group.h.
 */
#include "near.h"

#include <string.h>

#include "arguments.h"

/* Empty; NULL: no memory. */
static struct group *group_of(struct tarn_session *s)
{
	if (!s->near && group_create(s, &s->near) < 0)
		return NULL;
	group_clear(s->near);
	return s->near;
}

int near_get(struct tarn_session *s, const void *key, size_t key_bytes, void *buffer, size_t bytes,
	     bool exists_only, struct tarn_item *ret_item)
{
	struct group *group = group_of(s);
	struct group_get *get;
	int status;

	if (!group)
		return NEAR_LEFT;
	group_begin_near(group, 1);
	get = group_add(group, key, key_bytes);
	get->buffer = buffer;
	get->bytes = bytes;
	get->exists_only = exists_only;
	get->ret_status = &status;
	get->ret_item = ret_item;
	return group_end_near(group) == 0 ? status : NEAR_LEFT;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Its arguments are good; else its status says why not. */
static inline bool check(const struct tarn_session *s, struct tarn_mget *item)
{
	int ret = arguments_key(s, item->key, item->key_bytes);

	if (ret == 0)
		ret = arguments_buffer(item->buffer, item->buffer_bytes);
	if (ret == 0)
		ret = buffer_check(s, item->buffer, item->buffer_bytes, true, false);
	if (ret == 0)
		return true;
	item->status = ret;
	memset(&item->item, 0, sizeof(item->item));
	return false;
}

static void add(struct group *group, struct tarn_mget *item)
{
	struct group_get *get = group_add(group, item->key, item->key_bytes);

	get->buffer = item->buffer;
	get->bytes = item->buffer_bytes;
	get->exists_only = false;
	get->ret_status = &item->status;
	get->ret_item = &item->item;
	get->owner = item;
	group_added(group);
}

static void mark_left(struct group *group)
{
	for (unsigned i = 0; i < group_count(group); i++) {
		void *owner;

		if (!group_ended(group, i, &owner))
			((struct tarn_mget *)owner)->status = NEAR_LEFT;
	}
}

/* As many as a group takes, from *at on. Returns how many of them are left. */
static size_t some(struct tarn_session *s, struct group *group, struct tarn_mget *items,
		   size_t count, size_t *at)
{
	size_t left;

	group_clear(group);
	group_begin_near(group, count - *at < GROUP_OPS ? (unsigned)(count - *at) : GROUP_OPS);
	for (; *at < count && group_count(group) < GROUP_OPS; ++*at)
		if (check(s, &items[*at]))
			add(group, &items[*at]);
	left = group_end_near(group);
	if (left)
		mark_left(group);
	return left;
}

#define CLASH_MAX 256u

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	uintptr_t a_begin = (uintptr_t)a, b_begin = (uintptr_t)b;

	return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

/* Debug builds: may one of them get into another one's memory? The engine finds out, and says so. */
static bool may_clash(const struct tarn_session *s, const struct tarn_mget *items, size_t count)
{
	if (count > CLASH_MAX)
		return true;
	for (size_t i = 0; i < count; i++) {
		const struct tarn_mget *a = &items[i];

		if (s->engine && engine_uses(s->engine, a->buffer, a->buffer_bytes))
			return true;
		for (size_t j = 0; j < count; j++)
			if (overlap(a->buffer, a->buffer_bytes, items[j].key, items[j].key_bytes) ||
			    (i != j && overlap(a->buffer, a->buffer_bytes, items[j].buffer,
					       items[j].buffer_bytes)))
				return true;
	}
	return false;
}

size_t near_mget(struct tarn_session *s, struct tarn_mget *items, size_t count)
{
	struct group *group = TARN_DEBUG && may_clash(s, items, count) ? NULL : group_of(s);
	size_t at = 0, left = 0;

	while (group && at < count && near_may(s)) {
		left += some(s, group, items, count, &at);
		session_process_wanted(s);
	}
	left += count - at;
	for (; at < count; at++)
		items[at].status = NEAR_LEFT;
	return left;
}
