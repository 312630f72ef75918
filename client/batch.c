/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * batch.c - many operations in one blocking call
 *
 * The items go through the engine beside whatever else is under way, as many at a time as it has
 * lanes. Runs on the application's thread. Next: engine.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "arguments.h"
#include "batch.h"
#include "cluster.h"
#include "engine.h"
#include "err.h"
#include "near.h"

#define LOOK_NS   10000000u          /* at the longest; then it is looked at the time */
#define BATCH_MAX (4 * ENGINE_LANES) /* items of a batch that are under way or wait for a lane */

/* One call. */
struct batch {
	struct tarn_session *session;
	size_t count, begun, ended;
	unsigned under_way;
	bool progress;        /* an item has ended by itself since progress_ns was set */
	uint64_t progress_ns;
	bool given_up;
	/* Is item i done before the others are begun? NULL: none is. */
	bool (*done)(const struct batch *batch, size_t i);
	/* Fills the operation of item i; a negative code: the item is wrong. */
	int (*fill)(struct batch *batch, size_t i, struct op *op);
	/* What has come of item i; of one that was not begun: completion.status alone is set. */
	void (*take)(struct batch *batch, size_t i, const struct tarn_completion *completion);
	void *items;
};

static void item_ended(struct op *op)
{
	struct batch *b = op->batch;

	b->take(b, (size_t)(uintptr_t)op->completion.cookie, &op->completion);
	if (!b->given_up && op->completion.status != -TARN_ETIMEOUT &&
	    op->completion.status != -TARN_ESESSION)
		b->progress = true;
	b->ended++;
	b->under_way--;
	engine_op_free(b->session->engine, op);
}

static void refuse(struct batch *b, size_t i, int status)
{
	const struct tarn_completion completion = {.status = status};

	b->take(b, i, &completion);
	b->ended++;
}

/* As many as there are lanes, and as many more that are ready for them. */
static void begin_some(struct batch *b)
{
	struct engine *e = b->session->engine;
	uint64_t limit_ns;

	if (b->begun == b->count || b->under_way == BATCH_MAX || b->session->lost)
		return;
	limit_ns = session_now(b->session) + b->session->timeout_ns;
	while (b->begun < b->count && b->under_way < BATCH_MAX) {
		struct op *op;
		size_t i = b->begun;
		int ret;

		if (b->done && b->done(b, i)) {
			b->begun++;
			b->ended++;
			continue;
		}
		op = engine_op(e);
		/* all places may be taken by calls that nobody picks up */
		if (!op && b->under_way)
			return;
		if (!op) {
			refuse(b, b->begun++, -TARN_EBUSY);
			continue;
		}
		ret = b->fill(b, i, op);
		if (ret == 0)
			ret = engine_op_check(b->session, op);
		b->begun++;
		if (ret < 0) {
			engine_op_free(e, op);
			refuse(b, i, ret);
			continue;
		}
		op->limit_ns = limit_ns;
		op->completion.cookie = (void *)(uintptr_t)i;
		op->ended = item_ended;
		op->batch = b;
		b->under_way++;
		engine_submit(e, op);
	}
}

/* What is not begun, or waits, has nothing to wait for. */
static void give_up(struct batch *b, int status)
{
	b->given_up = true;
	for (; b->begun < b->count; b->begun++) {
		if (b->done && b->done(b, b->begun))
			b->ended++;
		else
			refuse(b, b->begun, status);
	}
	engine_refuse_all(b->session->engine, b, status);
}

/* When nothing has ended for as long as the time limit, or there is no connection to be had. */
static void look_at_time(struct batch *b)
{
	struct tarn_session *s = b->session;
	int status = 0;

	/* not at each item: a look at the clock costs as much as a small get */
	if (b->progress)
		b->progress_ns = session_now(s);
	b->progress = false;
	if (s->lost && !engine_busy(s->engine) && s->front)
		status = session_lost(s);
	else if (s->lost && !engine_busy(s->engine))
		status = session_reconnect(s, b->progress_ns + s->timeout_ns);
	else if (session_now(s) > b->progress_ns + s->timeout_ns)
		status = -TARN_ETIMEOUT;
	if (status < 0)
		give_up(b, status);
}

/* With the session. */
static int drive(struct batch *b)
{
	struct tarn_session *s = b->session;
	int ret = engine_create(s);

	b->progress_ns = session_now(s);
	while (ret == 0 && b->ended < b->count) {
		begin_some(b);
		if (engine_turn_loud(s->engine) || b->ended == b->count)
			continue;
		if (!b->given_up)
			look_at_time(b);
		if (b->ended < b->count)
			engine_sleep(s->engine, session_now(s) + LOOK_NS);
	}
	return ret;
}

static int run(struct batch *b)
{
	int ret = session_enter(b->session);

	if (ret < 0)
		return ret;
	ret = drive(b);
	session_leave(b->session);
	return ret;
}

static int begin(struct tarn_session *session, const void *items, size_t count)
{
	if (!session || (!items && count))
		return err_set(-EINVAL, "session must not be NULL, nor the list of %zu items",
			       count);
	return 0;
}

/* ---- get ------------------------------------------------------------------------------------- */

static int get_fill(struct batch *b, size_t i, struct op *op)
{
	const struct tarn_mget *item = &((struct tarn_mget *)b->items)[i];
	int ret = arguments_key(b->session, item->key, item->key_bytes);

	op->kind = TARN_OP_GET;
	op->key = item->key;
	op->key_bytes = item->key_bytes;
	op->buffer = item->buffer;
	op->bytes = item->buffer_bytes;
	return ret < 0 ? ret : arguments_buffer(item->buffer, item->buffer_bytes);
}

static void get_take(struct batch *b, size_t i, const struct tarn_completion *completion)
{
	struct tarn_mget *item = &((struct tarn_mget *)b->items)[i];

	item->status = completion->status;
	item->item = completion->item;
}

static bool get_done(const struct batch *b, size_t i)
{
	return ((const struct tarn_mget *)b->items)[i].status != NEAR_LEFT;
}

/* Some have ended, so the call has not failed: the others have. */
static int refuse_left(struct batch *b, int status)
{
	for (size_t i = 0; i < b->count; i++)
		if (!b->done(b, i))
			refuse(b, i, status);
	return 0;
}

TARN_API int tarn_mget(struct tarn_session *session, struct tarn_mget *items, size_t count)
{
	struct batch b = {.session = session,
			  .count = count,
			  .items = items,
			  .fill = get_fill,
			  .take = get_take};
	int ret = begin(session, items, count);

	if (ret == 0 && session->cluster)
		return cluster_mget(session, items, count);
	if (ret == 0)
		ret = session_enter(session);
	if (ret < 0)
		return ret;
	if (near_may(session)) {
		b.done = get_done;
		count = near_mget(session, items, count);
	}
	if (count)
		ret = drive(&b);
	if (ret < 0 && b.done)
		ret = refuse_left(&b, ret);
	session_leave(session);
	return ret;
}

/* ---- put ------------------------------------------------------------------------------------- */

static int put_fill(struct batch *b, size_t i, struct op *op)
{
	const struct tarn_mput *item = &((struct tarn_mput *)b->items)[i];
	int ret = arguments_key(b->session, item->key, item->key_bytes);

	op->kind = TARN_OP_PUT;
	op->key = item->key;
	op->key_bytes = item->key_bytes;
	op->value = item->value;
	op->bytes = item->value_bytes;
	op->with_options = item->options != NULL;
	return ret < 0 ? ret
		       : arguments_put(item->value, item->value_bytes, item->options, &op->options);
}

static void put_take(struct batch *b, size_t i, const struct tarn_completion *completion)
{
	struct tarn_mput *item = &((struct tarn_mput *)b->items)[i];

	item->status = completion->status;
	item->stamp = completion->stamp;
}

TARN_API int tarn_mput(struct tarn_session *session, struct tarn_mput *items, size_t count)
{
	struct batch b = {.session = session,
			  .count = count,
			  .items = items,
			  .fill = put_fill,
			  .take = put_take};
	int ret = begin(session, items, count);

	if (ret == 0)
		ret = arguments_writable(session);
	if (ret == 0 && session->cluster)
		return cluster_mput(session, items, count);
	return ret < 0 ? ret : run(&b);
}

/* ---- delete ---------------------------------------------------------------------------------- */

static int delete_fill(struct batch *b, size_t i, struct op *op)
{
	const struct tarn_mdelete *item = &((struct tarn_mdelete *)b->items)[i];

	op->kind = TARN_OP_DELETE;
	op->key = item->key;
	op->key_bytes = item->key_bytes;
	return arguments_key(b->session, item->key, item->key_bytes);
}

static void delete_take(struct batch *b, size_t i, const struct tarn_completion *completion)
{
	((struct tarn_mdelete *)b->items)[i].status = completion->status;
}

TARN_API int tarn_mdelete(struct tarn_session *session, struct tarn_mdelete *items, size_t count)
{
	struct batch b = {.session = session,
			  .count = count,
			  .items = items,
			  .fill = delete_fill,
			  .take = delete_take};
	int ret = begin(session, items, count);

	if (ret == 0)
		ret = arguments_writable(session);
	if (ret == 0 && session->cluster)
		return cluster_mdelete(session, items, count);
	return ret < 0 ? ret : run(&b);
}

/* ---- of several sessions side by side -------------------------------------------------------- */

#define SIDE_NS 50000u /* sleep for one of several */

static void part_fill(struct batch *b, enum batch_kind kind, const struct batch_part *part)
{
	*b = (struct batch){.session = part->session, .count = part->count, .items = part->items};
	switch (kind) {
	case BATCH_GET:
		b->fill = get_fill;
		b->take = get_take;
		break;
	case BATCH_PUT:
		b->fill = put_fill;
		b->take = put_take;
		break;
	case BATCH_DELETE:
		b->fill = delete_fill;
		b->take = delete_take;
		break;
	}
}

/* With the session held. 0, or a negative code: none of its items was begun. */
static int part_open(struct batch *b)
{
	int ret = session_hold(b->session);

	if (ret < 0)
		return ret;
	ret = engine_create(b->session);
	if (ret < 0)
		session_leave(b->session);
	else
		b->progress_ns = session_now(b->session);
	return ret;
}

/* What is near needs no turns beside the others. */
static void part_near(struct batch *b)
{
	if (b->fill != get_fill || !near_may(b->session))
		return;
	b->done = get_done;
	if (near_mget(b->session, b->items, b->count) == 0)
		b->begun = b->ended = b->count;
}

/* A turn of each. Returns how many have not ended, and one of those. */
static unsigned turn_all(struct batch *all, unsigned count, bool *ret_moved, struct batch **ret_one)
{
	unsigned left = 0;

	*ret_moved = false;
	for (unsigned i = 0; i < count; i++) {
		struct batch *b = &all[i];

		if (b->ended == b->count)
			continue;
		begin_some(b);
		if (engine_turn(b->session->engine))
			*ret_moved = true;
		else if (!b->given_up && b->ended < b->count)
			look_at_time(b);
		left += b->ended < b->count;
		if (b->ended < b->count)
			*ret_one = b;
	}
	return left;
}

int batch_run(enum batch_kind kind, struct batch_part *parts, unsigned count)
{
	struct batch *all = calloc(count, sizeof(*all)), *one = NULL;
	unsigned opened = 0, left;
	bool moved;
	int ret = all ? 0 : err_set(-ENOMEM, "no memory for a batch");

	while (ret == 0 && opened < count) {
		part_fill(&all[opened], kind, &parts[opened]);
		ret = part_open(&all[opened]);
		opened += ret == 0;
	}
	for (unsigned i = 0; ret == 0 && i < count; i++)
		part_near(&all[i]);
	while (ret == 0 && (left = turn_all(all, count, &moved, &one)) > 0)
		if (!moved)
			engine_sleep(one->session->engine,
				     session_now(one->session) + (left == 1 ? LOOK_NS : SIDE_NS));
	for (unsigned i = 0; i < opened; i++)
		session_leave(all[i].session);
	free(all);
	return ret;
}
