/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv.h - inside of libtarn: get, put, delete and add as tasks
 *
 * The states are those of docs/protocol.md section 4. A kv_op is reused for one operation after the
 * other: kv_get() and its sisters prepare it and return its task, whose step() is called by whoever
 * drives it (session.h). Arguments have been checked by the caller; key, value and buffer must live
 * until the task has ended.
 */
#ifndef TARN_KV_H
#define TARN_KV_H

#include "session.h"

int kv_op_create(struct tarn_session *session, struct kv_op **ret_op);
void kv_op_free(struct kv_op *op);

/* An operation under way has no time left: it ends with -TARN_ETIMEOUT as soon as it can. */
void kv_cut(struct kv_op *op);

/*
 * buffer NULL with buffer_bytes 0 and exists_only: the value is not looked at. Results as of
 * tarn_get().
 */
struct task *kv_get(struct kv_op *op, const void *key, size_t key_bytes, void *buffer,
		    size_t buffer_bytes, bool exists_only);
/* Valid after a get that ended with 0 or -TARN_ETOOSMALL. */
const struct tarn_item *kv_item(const struct kv_op *op);

struct task *kv_put(struct kv_op *op, const void *key, size_t key_bytes, const void *value,
		    size_t value_bytes, const struct tarn_put_options *options /* may be NULL */);
/* The stamp that a put writes; valid from kv_put() on. */
uint64_t kv_stamp(const struct kv_op *op);

struct task *kv_delete(struct kv_op *op, const void *key, size_t key_bytes);

struct task *kv_add(struct kv_op *op, const void *key, size_t key_bytes, int64_t delta);
/* The counter after an add that ended with 0. */
int64_t kv_added(const struct kv_op *op);

#endif
