/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region.c - regions as objects: the public calls that make, find, open, close and unmake them, and their twins
 *
 * What they ask the daemon is region-control.c's; the public calls that access memory are in region-access.c. Runs on
 * the application's thread. tarn/region.h is the manual. Next: region-control.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "clock.h"
#include "cluster.h"
#include "engine.h"
#include "err.h"
#include "handle.h"
#include "region-control.h"

/* ---- asking the daemon ----------------------------------------------------------------------- */

int region_ask_reply(struct tarn_session *s, int status, const void *answer, uint32_t length,
		     struct wire_region_reply *ret_reply)
{
	struct wire_region_reply reply;
	int ret = session_ask_status(s, status);

	if (ret == 0)
		ret = wire_region_reply_decode(answer, length, &reply);
	if (ret == 0 && reply.status < 0)
		ret = err_set(reply.status, "tarnd refused: %s", err_string(reply.status));
	if (ret == 0)
		*ret_reply = reply;
	return ret;
}

int region_ask(struct tarn_session *s, const struct wire_region_request *request,
	       struct wire_region_reply *ret_reply)
{
	uint8_t message[WIRE_REGION_BYTES], answer[WIRE_REGION_BYTES];
	uint32_t length = 0;
	int status;

	wire_region_request_encode(request, message);
	status = session_ask_bytes(s, message, sizeof(message), answer, sizeof(answer), &length);
	return region_ask_reply(s, status, answer, length, ret_reply);
}

/* ---- how a call runs ------------------------------------------------------------------------- */

/* To its end. Between two looks at what the daemon is doing the session is free. */
static int run(struct region_control *c)
{
	struct tarn_session *s = c->session;
	int ret;

	c->blocking = c->patient = true;
	if (c->search.front)
		return cluster_region_run(c);
	for (;;) {
		ret = session_enter(s);
		if (ret < 0)
			break;
		do
			ret = session_run(s, region_control_task(c));
		while (session_again(s, &ret));
		if (!c->pause_ns)
			region_control_end(c);
		session_leave(s);
		if (!c->pause_ns)
			return ret;
		clock_sleep_ns(c->pause_ns);
	}
	/* not connected, or not to be entered: then it has opened nothing */
	free(c->region);
	return ret;
}

/* The twin: it has the task in memory of its own until it is picked up. */
static int begin(const struct region_control *asked, const struct tarn_async *async,
		 uint64_t *ret_op)
{
	struct op op = {.kind = TARN_OP_REGION_CONTROL, .control = malloc(sizeof(*asked))};
	int ret;

	if (!op.control) {
		free(asked->region);
		return err_set(-ENOMEM, "no memory for an asynchronous call");
	}
	*op.control = *asked;
	op.control->patient = !async || !async->timeout_ms;
	if (asked->ret_info) {
		op.buffer = asked->ret_info;
		op.bytes = asked->ret_info->size;
	}
	ret = async_begin(asked->session, &op, async, ret_op);
	if (ret < 0) {
		free(asked->region);
		free(op.control);
	}
	return ret;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static int named(struct tarn_session *s, const char *name, enum control_stage call,
		 struct region_control *ret)
{
	int code;

	if (!s || !name)
		return err_set(-EINVAL, "session and name must not be NULL");
	*ret = (struct region_control){.session = s, .call = call, .stage = call};
	if (s->cluster)
		return cluster_region_name(s, name, ret);
	code = wire_region_name_check(name);
	if (code == 0)
		memcpy(ret->name, name, strlen(name));
	return code;
}

static int info_check(const struct tarn_region_info *info)
{
	if (!info)
		return err_set(-EINVAL, "ret_info must not be NULL");
	if (info->size < 2 * sizeof(uint32_t))
		return err_set(-EINVAL, "ret_info->size is %u: set it to the size of the struct",
			       info->size);
	return 0;
}

static int stat_ask(struct tarn_session *s, const char *name, struct tarn_region_info *info,
		    struct region_control *ret)
{
	int code = info_check(info);

	if (code == 0)
		code = named(s, name, CONTROL_STAT, ret);
	if (code == 0)
		ret->ret_info = info;
	return code;
}

static int list_ask(struct tarn_session *s, uint64_t *cursor, struct tarn_region_info *info,
		    struct region_control *ret)
{
	int code = info_check(info);

	if (code < 0)
		return code;
	if (!s || !cursor)
		return err_set(-EINVAL, "session and cursor must not be NULL");
	*ret = (struct region_control){.session = s,
				       .call = CONTROL_LIST,
				       .stage = CONTROL_LIST,
				       .number = *cursor,
				       .ret_cursor = cursor,
				       .ret_info = info};
	if (s->cluster)
		cluster_region_list(s, ret);
	return 0;
}

static int bytes_check(uint64_t bytes, uint32_t flags)
{
	if (bytes == 0 || bytes > TARN_REGION_BYTES_MAX)
		return err_set(-EINVAL, "a region of %llu bytes: it may have 1 to %llu (1 TiB)",
			       (unsigned long long)bytes,
			       (unsigned long long)TARN_REGION_BYTES_MAX);
	if (flags & ~TARN_REGION_BACKGROUND)
		return err_set(-EINVAL, "flags is 0x%x: known are 0x%x", flags,
			       TARN_REGION_BACKGROUND);
	return 0;
}

static int make_ask(struct tarn_session *s, const char *name, uint64_t bytes, uint32_t flags,
		    enum control_stage call, struct region_control *ret)
{
	int code = named(s, name, call, ret);

	if (code == 0)
		code = bytes_check(bytes, flags);
	if (code == 0)
		code = arguments_writable(s);
	if (code < 0)
		return code;
	ret->number = bytes;
	ret->background = flags & TARN_REGION_BACKGROUND;
	return 0;
}

static int destroy_ask(struct tarn_session *s, const char *name, struct region_control *ret)
{
	int code = named(s, name, CONTROL_STAT, ret);

	if (code == 0)
		code = arguments_writable(s);
	if (code == 0)
		ret->call = CONTROL_DESTROY;
	return code;
}

static int open_ask(struct tarn_session *s, const char *name, uint32_t flags,
		    struct tarn_region **ret_region, struct region_control *ret)
{
	int code = named(s, name, CONTROL_OPEN, ret);

	if (code == 0 && (!ret_region || flags & ~TARN_REGION_READONLY))
		code = err_set(-EINVAL,
			       "flags is 0x%x: known are 0x%x; ret_region must not be NULL", flags,
			       TARN_REGION_READONLY);
	if (code < 0)
		return code;
	ret->region = calloc(1, sizeof(*ret->region));
	if (!ret->region)
		return err_set(-ENOMEM, "no memory for a region");
	ret->region->read_only = flags & TARN_REGION_READONLY;
	ret->ret_region = ret_region;
	return 0;
}

/* ---- the calls and their twins --------------------------------------------------------------- */

TARN_API int tarn_region_stat(struct tarn_session *session, const char *name,
			      struct tarn_region_info *ret_info)
{
	struct region_control control;
	int ret = stat_ask(session, name, ret_info, &control);

	return ret < 0 ? ret : run(&control);
}

TARN_API int tarn_region_stat_async(struct tarn_session *session, const char *name,
				    struct tarn_region_info *ret_info,
				    const struct tarn_async *async, uint64_t *ret_op)
{
	struct region_control control;
	int ret = stat_ask(session, name, ret_info, &control);

	return ret < 0 ? ret : begin(&control, async, ret_op);
}

TARN_API int tarn_region_list(struct tarn_session *session, uint64_t *cursor,
			      struct tarn_region_info *ret_info)
{
	struct region_control control;
	int ret = list_ask(session, cursor, ret_info, &control);

	return ret < 0 ? ret : run(&control);
}

TARN_API int tarn_region_list_async(struct tarn_session *session, uint64_t *cursor,
				    struct tarn_region_info *ret_info,
				    const struct tarn_async *async, uint64_t *ret_op)
{
	struct region_control control;
	int ret = list_ask(session, cursor, ret_info, &control);

	return ret < 0 ? ret : begin(&control, async, ret_op);
}

TARN_API int tarn_region_create(struct tarn_session *session, const char *name, uint64_t bytes,
				uint32_t flags)
{
	struct region_control control;
	int ret = make_ask(session, name, bytes, flags, CONTROL_CREATE, &control);

	return ret < 0 ? ret : run(&control);
}

TARN_API int tarn_region_create_async(struct tarn_session *session, const char *name,
				      uint64_t bytes, uint32_t flags,
				      const struct tarn_async *async, uint64_t *ret_op)
{
	struct region_control control;
	int ret = make_ask(session, name, bytes, flags, CONTROL_CREATE, &control);

	return ret < 0 ? ret : begin(&control, async, ret_op);
}

TARN_API int tarn_region_resize(struct tarn_session *session, const char *name, uint64_t bytes,
				uint32_t flags)
{
	struct region_control control;
	int ret = make_ask(session, name, bytes, flags, CONTROL_RESIZE, &control);

	return ret < 0 ? ret : run(&control);
}

TARN_API int tarn_region_resize_async(struct tarn_session *session, const char *name,
				      uint64_t bytes, uint32_t flags,
				      const struct tarn_async *async, uint64_t *ret_op)
{
	struct region_control control;
	int ret = make_ask(session, name, bytes, flags, CONTROL_RESIZE, &control);

	return ret < 0 ? ret : begin(&control, async, ret_op);
}

TARN_API int tarn_region_destroy(struct tarn_session *session, const char *name)
{
	struct region_control control;
	int ret = destroy_ask(session, name, &control);

	return ret < 0 ? ret : run(&control);
}

TARN_API int tarn_region_destroy_async(struct tarn_session *session, const char *name,
				       const struct tarn_async *async, uint64_t *ret_op)
{
	struct region_control control;
	int ret = destroy_ask(session, name, &control);

	return ret < 0 ? ret : begin(&control, async, ret_op);
}

TARN_API int tarn_region_open(struct tarn_session *session, const char *name, uint32_t flags,
			      struct tarn_region **ret_region)
{
	struct region_control control;
	int ret = open_ask(session, name, flags, ret_region, &control);

	return ret < 0 ? ret : run(&control);
}

TARN_API int tarn_region_open_async(struct tarn_session *session, const char *name, uint32_t flags,
				    struct tarn_region **ret_region, const struct tarn_async *async,
				    uint64_t *ret_op)
{
	struct region_control control;
	int ret = open_ask(session, name, flags, ret_region, &control);

	return ret < 0 ? ret : begin(&control, async, ret_op);
}

/* ---- close ----------------------------------------------------------------------------------- */

/* Asynchronous calls that are under way or have not been picked up. */
static bool in_use(const struct tarn_region *region)
{
	const struct engine *e = region->session->engine;

	if (region->session->front)
		return cluster_region_in_use(region);
	for (unsigned i = 0; e && i < ENGINE_OPS; i++)
		if (e->ops[i].state != OP_FREE && e->ops[i].region == region)
			return true;
	return false;
}

/* With the session held: 0, or it can not be closed. */
static int close_check(const struct tarn_region *region)
{
	return in_use(region)
		       ? err_set(-TARN_EBUSY,
				 "asynchronous calls on region %s are under way or not picked up",
				 region->name)
		       : 0;
}

TARN_API int tarn_region_close(struct tarn_region *region)
{
	struct wire_region_request request = {.call = WIRE_REGION_CLOSE};
	struct wire_region_reply reply;
	struct tarn_session *s;
	int ret;

	if (!region)
		return 0;
	if (region->closed)
		return err_set(-EINVAL, "the region was closed before");
	s = region->session;
	ret = region_hold(region);
	if (ret < 0)
		return ret;
	ret = close_check(region);
	if (ret < 0) {
		region_leave(s);
		return ret;
	}
	request.handle = region->space;
	/* also when attaching it had failed half way; what is not heard of ends with the connection */
	if (!s->lost)
		(void)region_ask(s, &request, &reply);
	if (!s->lost && region_attached(region))
		s->ep->ops->space_remove(s->ep, region->space);
	LIST_REMOVE(region, link);
	region->closed = true;
	handle_free(region);
	region_leave(s);
	return 0;
}

TARN_API int tarn_region_close_async(struct tarn_region *region, const struct tarn_async *async,
				     uint64_t *ret_op)
{
	struct op op = {.kind = TARN_OP_REGION_CONTROL};
	struct tarn_session *s;
	int ret;

	if (!region || region->closed)
		return err_set(-EINVAL, region ? "the region was closed before"
					       : "region must not be NULL");
	s = region->session;
	ret = region_hold(region);
	if (ret < 0)
		return ret;
	ret = close_check(region);
	region_leave(s);
	if (ret < 0)
		return ret;
	op.control = malloc(sizeof(*op.control));
	if (!op.control)
		return err_set(-ENOMEM, "no memory for an asynchronous call");
	*op.control = (struct region_control){.session = s,
					      .call = CONTROL_CLOSE,
					      .stage = CONTROL_CLOSE,
					      .patient = !async || !async->timeout_ms,
					      .region = region};
	/* before: it may end at once */
	region->closed = true;
	ret = async_begin(s, &op, async, ret_op);
	if (ret < 0) {
		region->closed = false;
		free(op.control);
	}
	return ret;
}

void region_free_all(struct tarn_session *s)
{
	struct tarn_region *region;

	while ((region = LIST_FIRST(&s->regions)) != NULL) {
		LIST_REMOVE(region, link);
		region->closed = true;
		handle_free(region);
	}
}

TARN_API uint64_t tarn_region_bytes(const struct tarn_region *region)
{
	return region && !region->closed ? region->bytes : 0;
}
