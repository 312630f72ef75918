/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * region.c - regions as objects: making, finding, opening and unmaking them, by asking the daemon
 *
 * The public calls that access memory are in region-access.c. Runs on the application's thread.
 * tarn/region.h is the manual. Next: region-task.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "clock.h"
#include "engine.h"
#include "err.h"
#include "handle.h"
#include "region-task.h"

#define LOOK_MIN_NS 1000000u /* between two looks whether a region is ready */
#define LOOK_MAX_NS 50000000u
#define ROUND_BYTES 4096u /* of a region's size, by the daemon */

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

/* One question as a call of its own. Is it one that can not be asked twice, it may end with -TARN_EAMBIGUOUS. */
static int call(struct tarn_session *s, const struct wire_region_request *request,
		struct wire_region_reply *ret_reply)
{
	bool once = request->call == WIRE_REGION_CREATE;
	int ret = session_enter(s);

	if (ret < 0)
		return ret;
	do
		ret = region_ask(s, request, ret_reply);
	while (!once && session_again(s, &ret));
	if (once && ret == -TARN_ESESSION)
		ret = err_set(-TARN_EAMBIGUOUS,
			      "the connection was lost: region %s may have been made; "
			      "tarn_region_stat() tells",
			      request->name);
	session_leave(s);
	return ret;
}

static int request_named(struct tarn_session *s, const char *name, enum wire_region_call which,
			 struct wire_region_request *ret_request)
{
	int ret;

	if (!s || !name)
		return err_set(-EINVAL, "session and name must not be NULL");
	ret = wire_region_name_check(name);
	if (ret < 0)
		return ret;
	*ret_request = (struct wire_region_request){.call = (uint8_t)which};
	memcpy(ret_request->name, name, strlen(name));
	return 0;
}

static int no_region(const char *name, int code)
{
	return code == -TARN_ENOREGION
		       ? err_set(code,
				 "there is no region %s: tarn_region_list() has those of the pool",
				 name)
		       : code;
}

/* ---- stat and list --------------------------------------------------------------------------- */

static void info_fill(const char *name, const struct wire_region_reply *reply,
		      struct tarn_region_info *info)
{
	*info = (struct tarn_region_info){
		.size = sizeof(*info),
		.state = reply->state,
		.id = reply->id,
		.bytes = reply->bytes,
		.ready_bytes = reply->value,
		.ready_of_bytes = reply->length,
		.created_ms = reply->created_ms,
		.opens = reply->number,
	};
	memcpy(info->name, name, strlen(name));
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

static void info_copy(const struct tarn_region_info *from, struct tarn_region_info *to)
{
	size_t size = to->size < sizeof(*from) ? to->size : sizeof(*from);

	memcpy((uint8_t *)to + sizeof(uint32_t), (const uint8_t *)from + sizeof(uint32_t),
	       size - sizeof(uint32_t));
}

static int stat_region(struct tarn_session *s, const char *name, struct tarn_region_info *ret_info)
{
	struct wire_region_request request;
	struct wire_region_reply reply;
	int ret = request_named(s, name, WIRE_REGION_STAT, &request);

	if (ret == 0)
		ret = call(s, &request, &reply);
	if (ret == 0)
		info_fill(name, &reply, ret_info);
	return ret;
}

TARN_API int tarn_region_stat(struct tarn_session *session, const char *name,
			      struct tarn_region_info *ret_info)
{
	struct tarn_region_info info;
	int ret = info_check(ret_info);

	if (ret == 0)
		ret = no_region(name, stat_region(session, name, &info));
	if (ret == 0)
		info_copy(&info, ret_info);
	return ret;
}

TARN_API int tarn_region_list(struct tarn_session *session, uint64_t *cursor,
			      struct tarn_region_info *ret_info)
{
	struct wire_region_request request = {.call = WIRE_REGION_LIST};
	struct wire_region_reply reply;
	struct tarn_region_info info;
	int ret = info_check(ret_info);

	if (ret < 0)
		return ret;
	if (!session || !cursor)
		return err_set(-EINVAL, "session and cursor must not be NULL");
	request.number = *cursor;
	/* one may go between being listed and being looked at */
	do {
		ret = call(session, &request, &reply);
		if (ret == -TARN_ENOREGION)
			return 0;
		if (ret < 0)
			return ret;
		if (reply.id <= request.number || wire_region_name_check(reply.name) < 0)
			return err_set(-TARN_EPROTO, "tarnd's list of regions makes no sense");
		request.number = reply.id;
		ret = stat_region(session, reply.name, &info);
	} while (ret == -TARN_ENOREGION);
	if (ret < 0)
		return ret;
	*cursor = request.number;
	info_copy(&info, ret_info);
	return 1;
}

/* ---- create, resize, destroy ----------------------------------------------------------------- */

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

/* Waits as long as it gets on. 0: it is ready, and *ret_info says how large. */
static int wait_ready(struct tarn_session *s, const char *name, struct tarn_region_info *ret_info)
{
	uint64_t seen = 0, pause = LOOK_MIN_NS, limit = clock_now_ns() + s->timeout_ns;
	int ret;

	for (;;) {
		ret = stat_region(s, name, ret_info);
		if (ret < 0)
			return no_region(name, ret);
		if (ret_info->state == TARN_REGION_READY || ret_info->state == TARN_REGION_FAILED)
			return 0;
		if (ret_info->state == TARN_REGION_DESTROYING)
			return err_set(-TARN_ENOREGION, "somebody has destroyed region %s", name);
		if (ret_info->ready_bytes != seen)
			limit = clock_now_ns() + s->timeout_ns;
		seen = ret_info->ready_bytes;
		if (clock_now_ns() > limit)
			return err_set(-TARN_ETIMEOUT,
				       "region %s is not ready yet (%llu of %llu bytes of work are "
				       "done): tarnd goes on with it",
				       name, (unsigned long long)ret_info->ready_bytes,
				       (unsigned long long)ret_info->ready_of_bytes);
		clock_sleep_ns(pause);
		pause = pause * 2 < LOOK_MAX_NS ? pause * 2 : LOOK_MAX_NS;
	}
}

static int no_memory(const char *name)
{
	return err_set(-TARN_EPOOLFULL,
		       "region %s: the node could not get the memory for it, or register it; "
		       "tarnd's log says why",
		       name);
}

static int explain(const char *name, uint64_t bytes, int code)
{
	switch (code) {
	case -TARN_EEXISTS:
		return err_set(code, "there is a region %s already", name);
	case -TARN_EQUOTA:
		return err_set(code,
			       "region %s of %llu bytes: that is more than region_memory in the "
			       "pool's section of tarnd.conf leaves (or there are 4096 regions)",
			       name, (unsigned long long)bytes);
	case -TARN_EPOOLFULL:
		return no_memory(name);
	case -TARN_EBUSY:
		return err_set(
			code,
			"region %s is open, being made or destroyed, or has failed: it can not be "
			"resized now (tarn_region_stat() tells)",
			name);
	default:
		return no_region(name, code);
	}
}

/* Has it made or resized. 1: it is ready, and *ret_info says what it is; 0: begun in the background. */
static int make(struct tarn_session *s, const char *name, uint64_t bytes, uint32_t flags,
		enum wire_region_call which, struct tarn_region_info *ret_info)
{
	struct wire_region_request request;
	struct wire_region_reply reply;
	int ret = request_named(s, name, which, &request);

	if (ret == 0)
		ret = bytes_check(bytes, flags);
	if (ret == 0)
		ret = arguments_writable(s);
	if (ret < 0)
		return ret;
	request.number = bytes;
	ret = explain(name, bytes, call(s, &request, &reply));
	if (ret < 0 || flags & TARN_REGION_BACKGROUND)
		return ret;
	ret = wait_ready(s, name, ret_info);
	return ret < 0 ? ret : 1;
}

TARN_API int tarn_region_create(struct tarn_session *session, const char *name, uint64_t bytes,
				uint32_t flags)
{
	struct wire_region_request request;
	struct wire_region_reply reply;
	struct tarn_region_info info;
	int ret = make(session, name, bytes, flags, WIRE_REGION_CREATE, &info);

	if (ret <= 0 || info.state != TARN_REGION_FAILED)
		return ret < 0 ? ret : 0;
	ret = request_named(session, name, WIRE_REGION_DESTROY, &request);
	if (ret == 0)
		(void)call(session, &request, &reply);
	return no_memory(name);
}

TARN_API int tarn_region_resize(struct tarn_session *session, const char *name, uint64_t bytes,
				uint32_t flags)
{
	struct tarn_region_info info;
	int ret = make(session, name, bytes, flags, WIRE_REGION_RESIZE, &info);

	if (ret > 0 && (info.bytes < bytes || info.bytes - bytes >= ROUND_BYTES))
		return no_memory(name);
	return ret < 0 ? ret : 0;
}

/* Until nobody has access any more. */
static int wait_gone(struct tarn_session *s, const char *name, uint64_t id)
{
	uint64_t pause = LOOK_MIN_NS, limit = clock_now_ns() + s->timeout_ns;
	struct tarn_region_info info;

	for (;;) {
		int ret = stat_region(s, name, &info);

		if (ret == -TARN_ENOREGION || (ret == 0 && info.id != id))
			return 0;
		if (ret < 0)
			return ret;
		if (clock_now_ns() > limit)
			return err_set(-TARN_ETIMEOUT,
				       "region %s is still being destroyed: tarnd goes on with it",
				       name);
		clock_sleep_ns(pause);
		pause = pause * 2 < LOOK_MAX_NS ? pause * 2 : LOOK_MAX_NS;
	}
}

TARN_API int tarn_region_destroy(struct tarn_session *session, const char *name)
{
	struct wire_region_request request;
	struct wire_region_reply reply;
	struct tarn_region_info info;
	int ret = request_named(session, name, WIRE_REGION_DESTROY, &request);

	if (ret == 0)
		ret = arguments_writable(session);
	if (ret == 0)
		ret = no_region(name, stat_region(session, name, &info));
	if (ret < 0)
		return ret;
	ret = call(session, &request, &reply);
	/* the answer was lost, and it was asked again */
	if (ret < 0 && ret != -TARN_ENOREGION)
		return ret;
	return wait_gone(session, name, info.id);
}

/* ---- open and close -------------------------------------------------------------------------- */

/* A number that no other region of the session has; 0: all are in use. */
static unsigned space_free(const struct tarn_session *s)
{
	uint64_t used = 0;
	const struct tarn_region *region;

	LIST_FOREACH (region, &s->regions, link)
		used |= 1ull << region->space;
	for (unsigned space = 1; space <= TARN_REGION_OPEN_MAX; space++)
		if (!(used & 1ull << space))
			return space;
	return 0;
}

static int attach(struct tarn_session *s, struct tarn_region *region)
{
	struct region_task task;
	int ret;

	do
		ret = session_run(s, region_task(&task, region, REGION_ATTACH, NULL, 0));
	while (session_again(s, &ret));
	return ret == -TARN_EPOOLFULL ? no_memory(region->name) : no_region(region->name, ret);
}

/* The daemon may have opened it before something else went wrong. */
static void open_failed(struct tarn_session *s, struct tarn_region *region, int code)
{
	const struct wire_region_request request = {.call = WIRE_REGION_CLOSE,
						    .handle = region->space};
	char text[ERR_TEXT_BYTES];
	struct wire_region_reply reply;

	snprintf(text, sizeof(text), "%s", err_text());
	if (region->id && !s->lost && code != -TARN_ETIMEOUT)
		(void)region_ask(s, &request, &reply);
	(void)err_set(code, "%s", text);
	free(region);
}

TARN_API int tarn_region_open(struct tarn_session *session, const char *name, uint32_t flags,
			      struct tarn_region **ret_region)
{
	struct wire_region_request request;
	struct tarn_region *region;
	int ret = request_named(session, name, WIRE_REGION_OPEN, &request);

	if (ret == 0 && (!ret_region || flags & ~TARN_REGION_READONLY))
		ret = err_set(-EINVAL, "flags is 0x%x: known are 0x%x; ret_region must not be NULL",
			      flags, TARN_REGION_READONLY);
	if (ret < 0)
		return ret;
	region = calloc(1, sizeof(*region));
	if (!region)
		return err_set(-ENOMEM, "no memory for a region");
	ret = session_enter(session);
	if (ret < 0) {
		free(region);
		return ret;
	}
	region->session = session;
	memcpy(region->name, request.name, sizeof(region->name));
	region->read_only = session->identity.read_only || flags & TARN_REGION_READONLY;
	region->space = space_free(session);
	ret = region->space ? attach(session, region)
			    : err_set(-ENOSPC, "a session may have %u regions open",
				      TARN_REGION_OPEN_MAX);
	if (ret == 0)
		LIST_INSERT_HEAD(&session->regions, region, link);
	else
		open_failed(session, region, ret);
	session_leave(session);
	if (ret == 0)
		*ret_region = region;
	return ret;
}

/* Asynchronous calls that are under way or have not been picked up. */
static bool in_use(const struct tarn_region *region)
{
	const struct engine *e = region->session->engine;

	for (unsigned i = 0; e && i < ENGINE_OPS; i++)
		if (e->ops[i].state != OP_FREE && e->ops[i].region == region)
			return true;
	return false;
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
	ret = session_hold(s);
	if (ret < 0)
		return ret;
	if (in_use(region)) {
		session_leave(s);
		return err_set(-TARN_EBUSY,
			       "asynchronous calls on region %s are under way or not picked up",
			       region->name);
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
	session_leave(s);
	return 0;
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
