/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handle.c - in debug builds: what was closed is kept for a while (handle.h)
 *
 * The list is the process's, for a session's memory outlives the session here. Any thread.
 */
#include "handle.h"

#if TARN_DEBUG
#include <pthread.h>

static struct {
	pthread_mutex_t lock;
	void *kept[HANDLES_KEPT];
	unsigned next;
} closed = {.lock = PTHREAD_MUTEX_INITIALIZER};

void handle_free(void *handle)
{
	void *oldest;

	pthread_mutex_lock(&closed.lock);
	oldest = closed.kept[closed.next];
	closed.kept[closed.next] = handle;
	closed.next = (closed.next + 1) % HANDLES_KEPT;
	pthread_mutex_unlock(&closed.lock);
	free(oldest);
}
#endif
