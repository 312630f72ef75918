/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-async.h - inside of libtarn: a call of tarn/sync.h as an operation of the engine
 *
 * The handle has the call (struct sync_call), the lane the task that makes its accesses. With the session held.
 */
#ifndef TARN_SYNC_ASYNC_H
#define TARN_SYNC_ASYNC_H

#include "region-task.h"

struct sync_call;

/* Prepares the task, also to go on on another connection. */
struct task *sync_task(struct region_task *task, struct sync_call *call);
/* It was cancelled: it waits no more, and does not begin another try. */
void sync_cut(struct region_task *task);
/* Until when the access that was not made for want of a connection can be made again. */
uint64_t sync_limit_ns(const struct sync_call *call);
/* It has ended, or gets no turn any more: then its status is changed to what has become of it. */
void sync_op_ended(struct sync_call *call, struct tarn_completion *completion);
void sync_picked_up(struct sync_call *call);

#endif
