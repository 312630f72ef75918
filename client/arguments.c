/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * arguments.c - what a caller gives is checked here; see arguments.h. Any thread.
 */
#include "arguments.h"

#include <string.h>

#define EXPIRY_MAX_MS (100ull * 366 * 24 * 3600 * 1000)

int arguments_writable(const struct tarn_session *session)
{
	if (session->identity.read_only)
		return err_set(-TARN_EREADONLY, "the session is open for reading only");
	return 0;
}

int arguments_put(const void *value, size_t value_bytes, const struct tarn_put_options *options,
		  struct tarn_put_options *ret_options)
{
	if (!value && value_bytes)
		return err_set(-EINVAL, "value is NULL but has %zu bytes", value_bytes);
	if (!options)
		return 0;
	if (options->size < 4 * sizeof(uint32_t))
		return err_set(-EINVAL, "options.size is %u: start from TARN_PUT_INIT",
			       options->size);
	if (options->flags & ~(TARN_PUT_IF_ABSENT | TARN_PUT_IF_STAMP | TARN_PUT_COUNTER) ||
	    (options->flags & TARN_PUT_IF_ABSENT && options->flags & TARN_PUT_IF_STAMP))
		return err_set(-EINVAL,
			       "options.flags is 0x%x: TARN_PUT_IF_ABSENT or TARN_PUT_IF_STAMP or "
			       "none of them, and TARN_PUT_COUNTER or not",
			       options->flags);
	if (options->flags & TARN_PUT_COUNTER && value_bytes != sizeof(int64_t))
		return err_set(-TARN_EVALUESIZE, "the value has %zu bytes: a counter has 8",
			       value_bytes);
	*ret_options = (struct tarn_put_options)TARN_PUT_INIT;
	memcpy(ret_options, options,
	       options->size < sizeof(*ret_options) ? options->size : sizeof(*ret_options));
	if (ret_options->expiry_ms > EXPIRY_MAX_MS)
		return err_set(-EINVAL, "options.expiry_ms is %llu: at most 100 years",
			       (unsigned long long)ret_options->expiry_ms);
	return 0;
}
