/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the decoders of common/wire.c: the input's first byte picks one, the rest is the message.
 * What is accepted must come out of the encoder and in again as the same: a decoder that reads
 * beyond its input, or accepts what it can't say, dies here.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Decode, encode, decode, encode: both encodings must be equal. (The first input may have other
 * reserved bytes.) */
#define ROUND_TRIP(type, name, BYTES)                             \
	do {                                                      \
		type first, second;                               \
		uint8_t one[BYTES], two[BYTES];                   \
		if (name##_decode(data, size, &first) < 0)        \
			break;                                    \
		name##_encode(&first, one);                       \
		if (name##_decode(one, sizeof(one), &second) < 0) \
			abort();                                  \
		name##_encode(&second, two);                      \
		if (memcmp(one, two, BYTES) != 0)                 \
			abort();                                  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text;
	uint8_t which, flags;
	size_t bytes;

	if (size == 0)
		return 0;
	which = *data++;
	size--;
	switch (which % 8) {
	case 0:
		ROUND_TRIP(struct wire_request, wire_request, WIRE_REQUEST_BYTES);
		break;
	case 1:
		ROUND_TRIP(struct wire_reply, wire_reply, WIRE_REPLY_BYTES);
		break;
	case 2:
		ROUND_TRIP(struct wire_reject, wire_reject, WIRE_REJECT_BYTES);
		break;
	case 3:
		ROUND_TRIP(struct wire_rpc, wire_rpc, WIRE_RPC_BYTES);
		break;
	case 4:
		ROUND_TRIP(struct wire_rpc_reply, wire_rpc_reply, WIRE_RPC_REPLY_BYTES);
		break;
	case 6:
		ROUND_TRIP(struct wire_region_request, wire_region_request, WIRE_REGION_BYTES);
		break;
	case 7:
		ROUND_TRIP(struct wire_region_reply, wire_region_reply, WIRE_REGION_BYTES);
		break;
	case 5:
		if (wire_control_decode(data, size, &flags, &text, &bytes) == 0 &&
		    (text < (const char *)data || text + bytes != (const char *)data + size))
			abort();
		break;
	}
	return 0;
}
