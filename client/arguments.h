/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * arguments.h - inside of libtarn: what a caller gives is checked here, for the blocking calls, their
 * asynchronous twins and the batches. Each returns 0, or a negative code with a text.
 */
#ifndef TARN_ARGUMENTS_H
#define TARN_ARGUMENTS_H

#include <errno.h>
#include <stddef.h>

#include "err.h"
#include "layout.h"
#include "session.h"

static inline int arguments_key(const struct tarn_session *session, const void *key,
				size_t key_bytes)
{
	if (__builtin_expect(!session || !key, 0))
		return err_set(-EINVAL, "session and key must not be NULL");
	if (__builtin_expect(key_bytes == 0 || key_bytes > LAYOUT_MAX_KEY_BYTES, 0))
		return err_set(-TARN_EKEYSIZE, "the key has %zu bytes: it must have 1 to %u",
			       key_bytes, LAYOUT_MAX_KEY_BYTES);
	return 0;
}

static inline int arguments_buffer(const void *buffer, size_t buffer_bytes)
{
	if (__builtin_expect(!buffer && buffer_bytes, 0))
		return err_set(-EINVAL, "buffer is NULL but has %zu bytes", buffer_bytes);
	return 0;
}

int arguments_writable(const struct tarn_session *session);
/* Of a put. `options` may be NULL; *ret_options: those that this library knows, if they are not. */
int arguments_put(const void *value, size_t value_bytes, const struct tarn_put_options *options,
		  struct tarn_put_options *ret_options);

#endif
