/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * api.c - the public functions on keys that block: the work is done by kv.c
 *
 * A call whose connection broke before it can have changed anything is made again on a new one
 * (session_again()). Runs on the application's thread. tarn.h is the manual. Next: kv.h.
 */
#include <errno.h>
#include <string.h>

#include "arguments.h"
#include "cluster.h"
#include "err.h"
#include "kv.h"
#include "near.h"
#include "wire.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

TARN_API const char *tarn_strerror(int code)
{
	return err_string(code);
}

TARN_API const char *tarn_error_name(int code)
{
	return err_name(code);
}

TARN_API const char *tarn_last_error_text(void)
{
	return err_text();
}

TARN_API const char *tarn_version(void)
{
	return PACKAGE_VERSION;
}

/* A caller compiled against an older header has a smaller struct. */
void session_copy_item(struct tarn_item *ret_item, const struct tarn_item *item)
{
	uint32_t size = ret_item->size < sizeof(*item) ? ret_item->size : (uint32_t)sizeof(*item);

	if (size <= sizeof(item->size))
		return;
	memcpy((uint8_t *)ret_item + sizeof(item->size), (const uint8_t *)item + sizeof(item->size),
	       size - sizeof(item->size));
}

/* ---- keys and values ------------------------------------------------------------------------- */

static void describe_get(const struct tarn_item *item, int ret, size_t buffer_bytes)
{
	if (ret == -TARN_ENOTFOUND)
		err_set(ret, "no such key");
	else if (ret == -TARN_ETOOSMALL)
		err_set(ret, "the value has %llu bytes, the buffer %zu",
			(unsigned long long)item->value_bytes, buffer_bytes);
}

/* With the session. *ret_item: of whom is found. */
static int get_once(struct tarn_session *session, const void *key, size_t key_bytes, void *buffer,
		    size_t buffer_bytes, bool exists_only, struct tarn_item *ret_item)
{
	int ret = buffer_check(session, buffer, buffer_bytes, true, false);

	if (ret < 0)
		return ret;
	ret = NEAR_LEFT;
	if (near_may(session))
		ret = near_get(session, key, key_bytes, buffer, buffer_bytes, exists_only, ret_item);
	if (ret != NEAR_LEFT)
		return ret;
	ret = session_run(session, kv_get(session->op, key, key_bytes, buffer, buffer_bytes,
					  exists_only));
	*ret_item = *kv_item(session->op);
	return ret;
}

static int get(struct tarn_session *session, const void *key, size_t key_bytes, void *buffer,
	       size_t buffer_bytes, bool exists_only, struct tarn_item *ret_item);

/* What is asked for, for a member of a cluster. */
struct get_call {
	const void *key;
	size_t key_bytes;
	void *buffer;
	size_t buffer_bytes;
	bool exists_only;
	struct tarn_item *ret_item;
};

static int get_at(struct tarn_session *member, void *arg)
{
	const struct get_call *c = arg;

	return get(member, c->key, c->key_bytes, c->buffer, c->buffer_bytes, c->exists_only,
		   c->ret_item);
}

static int get(struct tarn_session *session, const void *key, size_t key_bytes, void *buffer,
	       size_t buffer_bytes, bool exists_only, struct tarn_item *ret_item)
{
	struct get_call call = {key, key_bytes, buffer, buffer_bytes, exists_only, ret_item};
	struct tarn_item item = {0};
	int ret;

	if (session->cluster)
		return cluster_call(session, CLUSTER_READ, key, key_bytes, get_at, &call);
	ret = session_enter(session);
	if (ret < 0)
		return ret;
	do
		ret = get_once(session, key, key_bytes, buffer, buffer_bytes, exists_only, &item);
	while (session_again(session, &ret));
	if (ret_item && (ret == 0 || ret == -TARN_ETOOSMALL))
		session_copy_item(ret_item, &item);
	if (ret < 0)
		describe_get(&item, ret, buffer_bytes);
	session_leave(session);
	return ret;
}

TARN_API int tarn_get(struct tarn_session *session, const void *key, size_t key_bytes, void *buffer,
		      size_t buffer_bytes, struct tarn_item *ret_item)
{
	int ret = arguments_key(session, key, key_bytes);

	if (ret < 0)
		return ret;
	ret = arguments_buffer(buffer, buffer_bytes);
	if (ret < 0)
		return ret;
	return get(session, key, key_bytes, buffer, buffer_bytes, false, ret_item);
}

TARN_API int tarn_exists(struct tarn_session *session, const void *key, size_t key_bytes,
			 struct tarn_item *ret_item)
{
	int ret = arguments_key(session, key, key_bytes);

	return ret < 0 ? ret : get(session, key, key_bytes, NULL, 0, true, ret_item);
}

static int put(struct tarn_session *session, const void *key, size_t key_bytes, const void *value,
	       size_t value_bytes, const struct tarn_put_options *options, uint64_t *ret_stamp);

struct put_call {
	const void *key;
	size_t key_bytes;
	const void *value;
	size_t value_bytes;
	const struct tarn_put_options *options;
	uint64_t *ret_stamp;
};

static int put_at(struct tarn_session *member, void *arg)
{
	const struct put_call *c = arg;

	return put(member, c->key, c->key_bytes, c->value, c->value_bytes, c->options,
		   c->ret_stamp);
}

static int put(struct tarn_session *session, const void *key, size_t key_bytes, const void *value,
	       size_t value_bytes, const struct tarn_put_options *options, uint64_t *ret_stamp)
{
	struct put_call call = {key, key_bytes, value, value_bytes, options, ret_stamp};
	int ret;

	if (session->cluster)
		return cluster_call(session, CLUSTER_WRITE, key, key_bytes, put_at, &call);
	ret = session_enter(session);
	if (ret < 0)
		return ret;
	do {
		ret = session_check_value(session, value_bytes);
		if (ret == 0)
			ret = buffer_check(session, value, value_bytes, false, false);
		if (ret == 0)
			ret = session_renew_stamps(session);
		if (ret == 0)
			ret = session_run(session, kv_put(session->op, key, key_bytes, value,
							  value_bytes, options));
	} while (session_again(session, &ret));
	if (ret_stamp && (ret == 0 || ret == -TARN_EAMBIGUOUS))
		*ret_stamp = kv_stamp(session->op);
	if (ret == -TARN_EEXISTS)
		err_set(ret, "the key is there already");
	else if (ret == -TARN_ESTAMP)
		err_set(ret, "the key has another stamp: it was written meanwhile");
	else if (ret == -TARN_ENOTFOUND)
		err_set(ret, "no such key, so it cannot have the stamp");
	session_leave(session);
	return ret;
}

TARN_API int tarn_put(struct tarn_session *session, const void *key, size_t key_bytes,
		      const void *value, size_t value_bytes, const struct tarn_put_options *options,
		      uint64_t *ret_stamp)
{
	struct tarn_put_options known;
	int ret = arguments_key(session, key, key_bytes);

	if (ret == 0)
		ret = arguments_writable(session);
	if (ret == 0)
		ret = arguments_put(value, value_bytes, options, &known);
	if (ret < 0)
		return ret;
	return put(session, key, key_bytes, value, value_bytes, options ? &known : NULL, ret_stamp);
}

struct write_call {
	const void *key;
	size_t key_bytes;
	int64_t delta, *ret_value;
};

static int delete_at(struct tarn_session *session, void *arg)
{
	const struct write_call *c = arg;

	return tarn_delete(session, c->key, c->key_bytes);
}

TARN_API int tarn_delete(struct tarn_session *session, const void *key, size_t key_bytes)
{
	struct write_call call = {.key = key, .key_bytes = key_bytes};
	int ret = arguments_key(session, key, key_bytes);

	if (ret == 0)
		ret = arguments_writable(session);
	if (ret == 0 && session->cluster)
		return cluster_call(session, CLUSTER_WRITE, key, key_bytes, delete_at, &call);
	if (ret == 0)
		ret = session_enter(session);
	if (ret < 0)
		return ret;
	do
		ret = session_run(session, kv_delete(session->op, key, key_bytes));
	while (session_again(session, &ret));
	if (ret == -TARN_ENOTFOUND)
		err_set(ret, "no such key");
	session_leave(session);
	return ret;
}

static int add_at(struct tarn_session *session, void *arg)
{
	const struct write_call *c = arg;

	return tarn_add(session, c->key, c->key_bytes, c->delta, c->ret_value);
}

TARN_API int tarn_add(struct tarn_session *session, const void *key, size_t key_bytes,
		      int64_t delta, int64_t *ret_value)
{
	struct write_call call = {key, key_bytes, delta, ret_value};
	int ret = arguments_key(session, key, key_bytes);

	if (ret == 0)
		ret = arguments_writable(session);
	if (ret == 0 && session->cluster)
		return cluster_call(session, CLUSTER_WRITE, key, key_bytes, add_at, &call);
	if (ret == 0)
		ret = session_enter(session);
	if (ret < 0)
		return ret;
	do {
		ret = session_renew_stamps(session);
		if (ret == 0)
			ret = session_run(session, kv_add(session->op, key, key_bytes, delta));
	} while (session_again(session, &ret));
	if (ret == 0 && ret_value)
		*ret_value = kv_added(session->op);
	session_leave(session);
	return ret;
}

/* ---- the session ----------------------------------------------------------------------------- */

TARN_API int tarn_session_process(struct tarn_session *session)
{
	int ret;

	if (session && session->cluster)
		return cluster_process(session);
	ret = session_hold(session);
	if (ret < 0)
		return ret;
	if (session->lost)
		ret = session_reconnect_try(session, SESSION_TRY_NS);
	if (ret == 0)
		ret = session_process(session);
	session_leave(session);
	return ret;
}

TARN_API int tarn_session_set_timeout(struct tarn_session *session, uint32_t timeout_ms)
{
	int ret;

	if (!session || timeout_ms == 0 || timeout_ms > 3600000)
		return err_set(-EINVAL, "timeout_ms is %u: must be 1 to 3600000, of a session",
			       timeout_ms);
	if (session->cluster)
		return cluster_set_timeout(session, timeout_ms);
	ret = session_hold(session);
	if (ret < 0)
		return ret;
	session->timeout_ns = timeout_ms * 1000000ull;
	session_leave(session);
	return 0;
}

/* Copies what fits behind the size field, which stays the caller's. */
static int copy_sized(void *to, uint32_t to_size, const void *from, size_t from_size)
{
	size_t size = to_size < from_size ? to_size : from_size;

	if (to_size < 2 * sizeof(uint32_t))
		return err_set(-EINVAL, "size is %u: set it to the size of the struct", to_size);
	memcpy((uint8_t *)to + sizeof(uint32_t), (const uint8_t *)from + sizeof(uint32_t),
	       size - sizeof(uint32_t));
	return 0;
}

TARN_API int tarn_session_get_stats(struct tarn_session *session,
				    struct tarn_session_stats *ret_stats)
{
	struct tarn_session_stats sum;
	int ret;

	if (!session || !ret_stats)
		return err_set(-EINVAL, "session and ret_stats must not be NULL");
	if (session->cluster) {
		ret = cluster_stats(session, &sum);
		return ret < 0 ? ret
			       : copy_sized(ret_stats, ret_stats->size, &sum, sizeof(sum));
	}
	ret = session_hold(session);
	if (ret < 0)
		return ret;
	ret = copy_sized(ret_stats, ret_stats->size, &session->stats, sizeof(session->stats));
	session_leave(session);
	return ret;
}

TARN_API int tarn_session_get_pool_info(struct tarn_session *session,
					struct tarn_pool_info *ret_info)
{
	struct tarn_pool_info info = {.size = sizeof(info)};
	int ret;

	if (!session || !ret_info)
		return err_set(-EINVAL, "session and ret_info must not be NULL");
	if (session->cluster) {
		ret = cluster_pool_info(session, &info);
		return ret < 0 ? ret : copy_sized(ret_info, ret_info->size, &info, sizeof(info));
	}
	ret = session_hold(session);
	if (ret < 0)
		return ret;
	info.read_only = session->identity.read_only;
	info.pool_bytes = session->geometry.pool_bytes;
	info.max_value_bytes = session->geometry.max_value_bytes;
	info.epoch_ns = session->geometry.epoch_ns;
	info.boot_id = session->geometry.boot_id;
	strncpy(info.transport, session->transport, sizeof(info.transport) - 1);
	strncpy(info.atomics, session->geometry.atomics == LAYOUT_ATOMICS_NIC ? "nic" : "cpu",
		sizeof(info.atomics) - 1);
	info.incarnation = session->geometry.incarnation;
	session_leave(session);
	return copy_sized(ret_info, ret_info->size, &info, sizeof(info));
}

TARN_API int tarn_session_ping(struct tarn_session *session, uint64_t *ret_ns)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PING};
	struct wire_rpc_reply reply;
	uint64_t begin;
	int ret;

	if (!session)
		return err_set(-EINVAL, "session must not be NULL");
	if (session->cluster)
		return cluster_ping(session, ret_ns);
	ret = session_enter(session);
	if (ret < 0)
		return ret;
	do {
		begin = session_now(session);
		ret = session_ask(session, &rpc, &reply);
	} while (session_again(session, &ret));
	if (ret == 0 && ret_ns)
		*ret_ns = session_now(session) - begin;
	session_leave(session);
	return ret;
}
