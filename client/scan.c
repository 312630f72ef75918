/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scan.c - walks over all keys, as the application sees them: from their opening to their end
 *
 * An asynchronous call on a walk is async.c's; until it is picked up no other call can be made on the walk, and its memory
 * stays. Runs on the application's thread. Next: scan-walk.c for how a key is found.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "engine.h"
#include "err.h"
#include "handle.h"
#include "scan-internal.h"

static int hold(struct tarn_session *s)
{
	return s && s->cluster ? cluster_hold(s) : session_hold(s);
}

static void leave(struct tarn_session *s)
{
	if (s->cluster)
		cluster_leave(s);
	else
		session_leave(s);
}

static void scan_free(struct tarn_scan *scan)
{
	cluster_scan_free(scan->cluster);
	scan->cluster = NULL;
	free(scan->prefix);
	free(scan->words);
	scan->prefix = NULL;
	scan->words = NULL;
	scan->session = NULL;
	scan->closed = true;
	handle_free(scan);
}

/* With the session held; `position` is of a walk over a cluster, or NULL. */
static int attach(struct tarn_scan *scan, const void *position, size_t position_bytes)
{
	struct tarn_session *s = scan->session;
	int ret = s->cluster ? cluster_scan_create(scan) : 0;

	if (ret == 0 && s->cluster && position)
		ret = cluster_scan_load(scan, position, position_bytes);
	if (ret == 0)
		LIST_INSERT_HEAD(&s->scans, scan, link);
	return ret;
}

static int open_scan(struct tarn_session *session, const void *prefix, size_t prefix_bytes,
		     const void *position, size_t position_bytes, struct tarn_scan **ret_scan)
{
	struct tarn_scan *scan;
	int ret;

	if (!session || !ret_scan || (!prefix && prefix_bytes))
		return err_set(-EINVAL,
			       "session and ret_scan must not be NULL, nor prefix with a length");
	if (prefix_bytes > LAYOUT_MAX_KEY_BYTES)
		return err_set(-TARN_EKEYSIZE, "the prefix has %zu bytes: a key has 1 to %u",
			       prefix_bytes, LAYOUT_MAX_KEY_BYTES);
	scan = calloc(1, sizeof(*scan));
	if (scan)
		scan->prefix = malloc(prefix_bytes + 1);
	if (!scan || !scan->prefix) {
		free(scan);
		return err_set(-ENOMEM, "no memory for a scan");
	}
	if (prefix_bytes)
		memcpy(scan->prefix, prefix, prefix_bytes);
	scan->prefix_bytes = prefix_bytes;
	scan->session = session;
	ret = hold(session);
	if (ret == 0) {
		ret = attach(scan, position, position_bytes);
		leave(session);
	}
	if (ret < 0) {
		scan_free(scan);
		return ret;
	}
	*ret_scan = scan;
	return 0;
}

TARN_API int tarn_scan_open(struct tarn_session *session, const void *prefix, size_t prefix_bytes,
			    struct tarn_scan **ret_scan)
{
	return open_scan(session, prefix, prefix_bytes, NULL, 0, ret_scan);
}

TARN_API int tarn_scan_open_at(struct tarn_session *session, const void *prefix,
			       size_t prefix_bytes, const void *position, size_t position_bytes,
			       struct tarn_scan **ret_scan)
{
	struct scan_cursor cursor;
	struct tarn_scan *scan;
	uint64_t incarnation;
	uint32_t groups;
	int ret;

	if (!position)
		return err_set(-EINVAL, "position must not be NULL");
	if (session && session->cluster)
		return open_scan(session, prefix, prefix_bytes, position, position_bytes, ret_scan);
	ret = scan_cursor_load(&cursor, position, position_bytes, &incarnation, &groups);
	if (ret == 0)
		ret = tarn_scan_open(session, prefix, prefix_bytes, &scan);
	if (ret < 0)
		return ret;
	/* a walk that had not begun has no pool yet */
	scan->resumed = groups != 0;
	scan->cursor = cursor;
	scan->incarnation = incarnation;
	scan->groups = groups;
	*ret_scan = scan;
	return 0;
}

int scan_check(const struct tarn_scan *scan)
{
	if (scan->closed)
		return err_set(-EINVAL, "the walk was closed");
	if (!scan->session)
		return err_set(-EINVAL, "the walk's session was closed: close the walk, too");
	if (scan->op)
		return err_set(-TARN_EBUSY, "an asynchronous call on the walk has not been picked "
					    "up: tarn_session_poll() does that");
	return 0;
}

TARN_API int tarn_scan_position(const struct tarn_scan *scan, void *ret_position,
				size_t *ret_position_bytes)
{
	int ret;

	if (!scan || !ret_position || !ret_position_bytes)
		return err_set(-EINVAL,
			       "scan, ret_position and ret_position_bytes must not be NULL");
	ret = scan_check(scan);
	if (ret < 0)
		return ret;
	static_assert(TARN_SCAN_POSITION_BYTES == SCAN_POSITION_BYTES, "tarn.h");
	if (scan->cluster) {
		/* housekeeping changes the map */
		ret = hold(scan->session);
		if (ret == 0) {
			*ret_position_bytes = cluster_scan_save(scan, ret_position);
			leave(scan->session);
		}
		return ret;
	}
	*ret_position_bytes =
		scan_cursor_save(&scan->cursor, scan->incarnation, scan->groups, ret_position);
	return 0;
}

TARN_API uint32_t tarn_scan_progress(const struct tarn_scan *scan)
{
	uint32_t progress = 0;

	if (!scan)
		return 0;
	/* housekeeping drives asynchronous calls, too */
	if ((scan->op || scan->cluster) && hold(scan->session) < 0)
		return 0;
	if (scan->cluster)
		progress = cluster_scan_progress(scan);
	else if (scan->groups)
		progress = scan_cursor_progress(&scan->cursor, scan->groups);
	if (scan->op || scan->cluster)
		leave(scan->session);
	return progress;
}

TARN_API int tarn_scan_next(struct tarn_scan *scan, const void **ret_key, size_t *ret_key_bytes,
			    struct tarn_item *ret_item)
{
	struct tarn_session *s;
	int ret;

	if (!scan || !ret_key || !ret_key_bytes)
		return err_set(-EINVAL, "scan, ret_key and ret_key_bytes must not be NULL");
	ret = scan_check(scan);
	if (ret < 0)
		return ret;
	s = scan->session;
	if (scan->cluster)
		return cluster_scan_next(scan, ret_key, ret_key_bytes, ret_item);
	ret = session_enter(s);
	if (ret < 0)
		return ret;
	do
		ret = session_run(s, scan_next(scan));
	while (session_again(s, &ret));
	if (ret > 0) {
		*ret_key = scan_key(scan, ret_key_bytes);
		if (ret_item)
			scan_item(scan, ret_item);
	}
	session_leave(s);
	return ret;
}

/* ---- the end --------------------------------------------------------------------------------- */

void scan_picked_up(struct tarn_scan *scan)
{
	scan->op = NULL;
	if (scan->closed)
		scan_free(scan);
}

void scan_detach_all(struct tarn_session *s)
{
	struct tarn_scan *scan;

	while ((scan = LIST_FIRST(&s->scans)) != NULL) {
		LIST_REMOVE(scan, link);
		scan->session = NULL;
	}
}

/* The call under way is cancelled; what it has found goes with the walk. */
static void call_end(struct tarn_scan *scan)
{
	struct op *op = scan->op;

	scan->closed = true;
	if (scan->cluster) {
		cluster_async_scan_closed(scan);
	} else if (op->state == OP_ENDED) {
		op->completion.status = -TARN_ECANCELED;
		op->completion.key = NULL;
		op->completion.key_bytes = 0;
	} else {
		engine_cancel(scan->session->engine, op);
	}
}

TARN_API void tarn_scan_close(struct tarn_scan *scan)
{
	struct tarn_session *s;
	bool child;

	if (!scan || scan->closed)
		return;
	s = scan->session;
	if (!s) {
		scan_free(scan);
		return;
	}
	/* in a forked child there is nobody to wait for, and nothing to be cancelled */
	child = session_fork_generation() != s->fork_generation;
	if (!child && hold(s) < 0)
		return;
	LIST_REMOVE(scan, link);
	if (child && scan->op)
		scan->closed = true;
	else if (scan->op)
		call_end(scan);
	else
		scan_free(scan);
	if (!child)
		leave(s);
}
