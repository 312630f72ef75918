/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handle.h - inside of libtarn: the end of what the application has a pointer to
 *
 * In a debug build (configure's --enable-debug) the last HANDLES_KEPT sessions, walks and buffers that were closed are
 * kept, marked as such: who uses one gets -EINVAL, not somebody else's memory. Else they are freed.
 */
#ifndef TARN_HANDLE_H
#define TARN_HANDLE_H

#include <stdlib.h>

#define HANDLES_KEPT 64u

#if TARN_DEBUG
/* Any thread. */
void handle_free(void *handle);
#else
static inline void handle_free(void *handle)
{
	free(handle);
}
#endif

#endif
