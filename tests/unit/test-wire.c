/* SPDX-License-Identifier: BSD-2-Clause */
/* wire.c: what is encoded is decoded; every byte is where wire.h says; what is malformed is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tarn/tarn.h>

#include "err.h"
#include "wire.h"

static struct wire_request request_example(void)
{
	return (struct wire_request){.version_min = 1,
				     .version_max = 3,
				     .flags = WIRE_REQUEST_READONLY,
				     .pool = 0x1122334455667788,
				     .key_id = "ada",
				     .time_ms = 1234567890123,
				     .nonce = 0xfedcba9876543210,
				     .mac = {1, 2, 3}};
}

static struct wire_reply reply_example(void)
{
	return (struct wire_reply){
		.version = 1,
		.region_count = 2,
		.role = WIRE_ROLE_WRITE,
		.atomics = 1,
		.incarnation = 11,
		.boot_id = 12,
		.client_id = 13,
		.client_slot = 14,
		.regions = {{.address = 15, .length = 4096, .rkey = 16}, {.length = 8192}},
		.deadline_us = 100000,
		.epoch_us = 250000,
		.grace_us = 500000,
		.layout_version = 1,
		.pool_bytes = 12288,
		.nonce = 17,
		.map_epoch = 18,
		.cluster = 1ull << 63 | 19,
		.mac = {9}};
}

static void test_request(void **state)
{
	struct wire_request in = request_example(), out;
	uint8_t bytes[WIRE_REQUEST_BYTES];

	(void)state;
	memset(&out, 0, sizeof(out));
	wire_request_encode(&in, bytes);
	assert_memory_equal(bytes,
			    "TARN\x01\x03\x01\x00\x88\x77\x66\x55\x44\x33\x22\x11"
			    "ada\0\0\0\0\0",
			    24);
	assert_memory_equal(bytes + 32, "\x10\x32\x54\x76\x98\xba\xdc\xfe\x01\x02\x03\x00", 12);
	assert_int_equal(wire_request_decode(bytes, sizeof(bytes), &out), 0);
	assert_int_equal(out.version_min, 1);
	assert_int_equal(out.version_max, 3);
	assert_int_equal(out.flags, in.flags);
	assert_true(out.pool == in.pool && out.time_ms == in.time_ms && out.nonce == in.nonce);
	assert_memory_equal(out.key_id, in.key_id, sizeof(in.key_id));
	assert_memory_equal(out.mac, in.mac, sizeof(in.mac));
}

static int request_with(size_t at, uint8_t value)
{
	struct wire_request in = request_example(), out;
	uint8_t bytes[WIRE_REQUEST_BYTES];

	wire_request_encode(&in, bytes);
	bytes[at] = value;
	return wire_request_decode(bytes, sizeof(bytes), &out);
}

static void test_request_malformed(void **state)
{
	struct wire_request in = request_example(), out;
	uint8_t bytes[WIRE_REQUEST_BYTES + 1] = {0};

	(void)state;
	wire_request_encode(&in, bytes);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(wire_request_decode(bytes, length, &out),
				 length == WIRE_REQUEST_BYTES ? 0 : -TARN_EPROTO);
	assert_int_equal(request_with(0, 'X'), -TARN_EPROTO); /* magic */
	assert_int_equal(request_with(4, 2), -TARN_EVERSION); /* 2 to 3: too new */
	assert_int_equal(request_with(4, 9), -TARN_EPROTO);   /* 9 to 3 */
	assert_int_equal(request_with(5, 0), -TARN_EPROTO);
	assert_int_equal(request_with(6, 2), 0); /* flags: WIRE_REQUEST_CLUSTER */
	assert_int_equal(request_with(6, 4), -TARN_EPROTO);
	assert_int_equal(request_with(7, 1), -TARN_EPROTO);
	assert_int_equal(request_with(17, ' '), -TARN_EPROTO); /* key id */
	assert_int_equal(request_with(17, 0), -TARN_EPROTO);   /* a hole in it */
	in.key_id[0] = in.key_id[1] = in.key_id[2] = 0;
	wire_request_encode(&in, bytes);
	assert_int_equal(wire_request_decode(bytes, WIRE_REQUEST_BYTES, &out),
			 -TARN_EPROTO); /* a MAC of no key */
	assert_true(strlen(err_text()) > 10);
	/* An unknown version is told from garbage even if it is longer or shorter. */
	bytes[4] = bytes[5] = 7;
	assert_int_equal(wire_request_decode(bytes, 40, &out), -TARN_EVERSION);
}

static void test_reply(void **state)
{
	struct wire_reply in = reply_example(), out;
	uint8_t bytes[WIRE_REPLY_BYTES];

	(void)state;
	wire_reply_encode(&in, bytes);
	assert_memory_equal(
		bytes,
		"TARN\x01\x02\x02\x01\x0b\0\0\0\0\0\0\0\x0c\0\0\0\0\0\0\0\x0d\0\0\0\x0e\0\0\0", 32);
	assert_memory_equal(bytes + 32, "\x0f\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\x10\0\0\0\0\0\0\0",
			    24);
	assert_memory_equal(bytes + 160, "\x12\0\0\0\0\0\0\0\x13\0\0\0\0\0\0\x80\0\0\0\0", 20);
	assert_memory_equal(bytes + 180, "\x09\0\0", 3); /* MAC */
	assert_int_equal(wire_reply_decode(bytes, sizeof(bytes), &out), 0);
	assert_int_equal(out.client_id, 13);
	assert_int_equal(out.client_slot, 14);
	assert_true(out.regions[1].length == 8192 && out.pool_bytes == 12288 && out.nonce == 17);
	assert_int_equal(out.grace_us, 500000);
	assert_true(out.map_epoch == in.map_epoch && out.cluster == in.cluster);
}

static int reply_decode(const struct wire_reply *in)
{
	uint8_t bytes[WIRE_REPLY_BYTES];
	struct wire_reply out;

	wire_reply_encode(in, bytes);
	return wire_reply_decode(bytes, sizeof(bytes), &out);
}

#define REFUSED(code, field, value)                             \
	do {                                                    \
		struct wire_reply changed = reply_example();    \
		changed.field = value;                          \
		assert_int_equal(reply_decode(&changed), code); \
	} while (0)

static void test_reply_malformed(void **state)
{
	struct wire_reply in = reply_example(), out;
	uint8_t bytes[WIRE_REPLY_BYTES + 1] = {0};

	(void)state;
	wire_reply_encode(&in, bytes);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(wire_reply_decode(bytes, length, &out),
				 length == WIRE_REPLY_BYTES ? 0 : -TARN_EPROTO);
	REFUSED(-TARN_EVERSION, version, 2);
	REFUSED(-TARN_EVERSION, version, 0);
	REFUSED(-TARN_EPROTO, region_count, 0);
	REFUSED(-TARN_EPROTO, region_count, 1); /* the second one is filled */
	REFUSED(-TARN_EPROTO, region_count, 3);
	REFUSED(-TARN_EPROTO, region_count, 5);
	REFUSED(-TARN_EPROTO, role, 0);
	REFUSED(-TARN_EPROTO, role, 3);
	REFUSED(-TARN_EPROTO, atomics, 2);
	REFUSED(-TARN_EPROTO, client_id, 0);
	REFUSED(-TARN_EPROTO, deadline_us, 0);
	REFUSED(-TARN_EPROTO, deadline_us, 250000);
	REFUSED(-TARN_EPROTO, epoch_us, 250001);
	REFUSED(-TARN_EPROTO, epoch_us, UINT32_MAX);
	REFUSED(-TARN_EPROTO, pool_bytes, 0);
	REFUSED(-TARN_EPROTO, pool_bytes, 12287);
	REFUSED(-TARN_EPROTO, pool_bytes, UINT64_MAX);
	REFUSED(-TARN_EPROTO, regions[0].length, UINT64_MAX - 8191); /* a sum that would overflow */
	REFUSED(-TARN_EPROTO, regions[0].flags, 1);
}

static void test_reject(void **state)
{
	struct wire_reject in = {.version_min = 1,
				 .version_max = 1,
				 .reason = WIRE_REASON_CLIENTS,
				 .detail = 256,
				 .retry_after_ms = 1000},
			   out;
	uint8_t bytes[WIRE_REJECT_BYTES + 1] = {0};

	(void)state;
	wire_reject_encode(&in, bytes);
	assert_memory_equal(bytes, "TARN\x01\x01\x08\x00\x00\x01\0\0\0\0\0\0\xe8\x03", 18);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(wire_reject_decode(bytes, length, &out),
				 length == WIRE_REJECT_BYTES ? 0 : -TARN_EPROTO);
	assert_int_equal(wire_reject_decode(bytes, WIRE_REJECT_BYTES, &out), 0);
	assert_int_equal(out.reason, WIRE_REASON_CLIENTS);
	assert_int_equal(out.detail, 256);
	bytes[4] = bytes[5] = 9; /* another version's reject can be read */
	bytes[6] = 200;
	assert_int_equal(wire_reject_decode(bytes, WIRE_REJECT_BYTES, &out), 0);
	assert_int_equal(out.reason, 200);
	bytes[6] = 0;
	assert_int_equal(wire_reject_decode(bytes, WIRE_REJECT_BYTES, &out), -TARN_EPROTO);
}

static void test_reasons(void **state)
{
	(void)state;
	for (unsigned int reason = 0; reason < 300; reason++) {
		assert_non_null(wire_reason_text((uint16_t)reason));
		assert_true(wire_reason_code((uint16_t)reason) <= -1000);
	}
	assert_int_equal(wire_reason_code(WIRE_REASON_VERSION), -TARN_EVERSION);
	assert_int_equal(wire_reason_code(WIRE_REASON_NO_POOL), -TARN_ENOPOOL);
	assert_int_equal(wire_reason_code(WIRE_REASON_BAD_MAC), -TARN_EAUTH);
	assert_int_equal(wire_reason_code(WIRE_REASON_SHUTDOWN), -TARN_EREFUSED);
	assert_int_equal(wire_reason_code(WIRE_REASON_REPLAY), -TARN_EAUTH);
	assert_int_equal(wire_reason_code(WIRE_REASON_BUSY), -TARN_EREFUSED);
	assert_int_equal(wire_reason_code(WIRE_REASON_ADDRESS), -TARN_EREFUSED);
	assert_int_equal(wire_reason_code(WIRE_REASON_TRANSPORT), -TARN_EREFUSED);
	assert_int_equal(wire_reason_code(999), -TARN_EREFUSED);
	for (unsigned int reason = 1; reason <= WIRE_REASON_LAST; reason++)
		assert_string_not_equal(wire_reason_text((uint16_t)reason), wire_reason_text(999));
}

static void test_rpc(void **state)
{
	struct wire_rpc add = {.type = WIRE_RPC_ADD,
			       .tag = 7,
			       .slot_offset = 4096,
			       .slot_word = 0x123456789abcdef0,
			       .delta = -5};
	struct wire_rpc page = {.type = WIRE_RPC_PAGE, .tag = 8, .class = 31}, out;
	struct wire_rpc grow = {.type = WIRE_RPC_GROW,
				.tag = 10,
				.class = 3,
				.slot_offset = 0x1122334455667788,
				.slot_word = 0xfedcba9876543210};
	uint8_t bytes[WIRE_RPC_MAX_BYTES] = {0};

	(void)state;
	wire_rpc_encode(&add, bytes);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(wire_rpc_decode(bytes, length, &out),
				 length == WIRE_RPC_BYTES ? 0 : -TARN_EPROTO);
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), 0);
	assert_true(out.tag == 7 && out.slot_offset == 4096 && out.slot_word == add.slot_word &&
		    out.delta == -5);
	wire_rpc_encode(&page, bytes);
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), 0);
	assert_true(out.class == 31 && out.slot_offset == 0 && out.delta == 0);
	wire_rpc_encode(&grow, bytes);
	assert_memory_equal(bytes, "\x08\0\0\0\x0a\0\0\0\x03\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11", 20);
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), 0);
	assert_true(out.class == 3 && out.slot_offset == grow.slot_offset &&
		    out.slot_word == grow.slot_word && out.delta == 0);
	wire_rpc_encode(&page, bytes);
	bytes[8] = 32; /* a class too many */
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), -TARN_EPROTO);
	bytes[0] = WIRE_RPC_LAST + 1;
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), -TARN_EPROTO);
	bytes[0] = 0;
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), -TARN_EPROTO);
}

/* Field by field: what lies between them is anything. */
static void assert_same_rpc(const struct wire_rpc *a, const struct wire_rpc *b)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->tag, b->tag);
	assert_int_equal(a->class, b->class);
	assert_true(a->slot_offset == b->slot_offset && a->slot_word == b->slot_word);
	assert_true(a->delta == b->delta);
}

/* CAS, FAA and REGION: each byte where wire.h says. */
static void test_rpc_atomics(void **state)
{
	struct wire_rpc cas = {.type = WIRE_RPC_CAS,
			       .tag = 9,
			       .slot_offset = 0x1122334455667788,
			       .slot_word = 0xfedcba9876543210,
			       .delta = INT64_MIN,
			       .class = 60};
	struct wire_rpc faa = {
		.type = WIRE_RPC_FAA, .tag = 9, .slot_offset = 8, .slot_word = 5, .delta = -1};
	struct wire_rpc region = {.type = WIRE_RPC_REGION, .tag = 1, .class = UINT32_MAX}, out;
	uint8_t bytes[WIRE_RPC_BYTES + 1] = {0};

	(void)state;
	wire_rpc_encode(&cas, bytes);
	assert_memory_equal(bytes, "\x05\0\0\0\x09\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11", 16);
	assert_memory_equal(bytes + 16, "\x10\x32\x54\x76\x98\xba\xdc\xfe\0\0\0\0\0\0\0\x80\x3c\0\0\0", 20);
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), 0);
	assert_same_rpc(&out, &cas);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(wire_rpc_decode(bytes, length, &out),
				 length == WIRE_RPC_BYTES ? 0 : -TARN_EPROTO);
	wire_rpc_encode(&faa, bytes);
	assert_int_equal(bytes[0], 6);
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), 0);
	assert_true(out.slot_offset == 8 && out.delta == -1 && out.class == 0);
	cas.type = WIRE_RPC_READY;
	wire_rpc_encode(&cas, bytes);
	assert_memory_equal(bytes, "\x0c\0\0\0\x09\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11", 16);
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), 0);
	assert_same_rpc(&out, &cas);
	memset(bytes, 0, sizeof(bytes));
	region.type = WIRE_RPC_MAP;
	wire_rpc_encode(&region, bytes);
	assert_memory_equal(bytes, "\x0b\0\0\0\x01\0\0\0\xff\xff\xff\xff\0\0\0\0", 16);
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), 0);
	assert_true(out.class == UINT32_MAX && out.slot_offset == 0);
	region.type = WIRE_RPC_REGION;
	wire_rpc_encode(&region, bytes);
	assert_memory_equal(bytes, "\x07\0\0\0\x01\0\0\0\xff\xff\xff\xff\0\0\0\0", 16);
	assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out), 0);
	assert_true(out.class == UINT32_MAX && out.slot_offset == 0);
	memset(bytes, 0xff, sizeof(bytes));
	for (unsigned int type = 0; type < 256; type++) {
		bytes[0] = (uint8_t)type;
		assert_int_equal(wire_rpc_decode(bytes, WIRE_RPC_BYTES, &out),
				 ((type >= WIRE_RPC_PING && type <= WIRE_RPC_GROW) ||
				  type == WIRE_RPC_MAP || type == WIRE_RPC_READY) &&
						 type != WIRE_RPC_PAGE /* class 2^32 - 1 */
					 ? 0
					 : -TARN_EPROTO);
	}
}

/* Each byte where wire.h says; a name has its end and nothing behind it. */
static void test_region_request(void **state)
{
	struct wire_region_request in = {.call = WIRE_REGION_CREATE,
					 .flags = 0x1234,
					 .tag = 9,
					 .handle = 3,
					 .index = 0x01020304,
					 .number = 0x1122334455667788,
					 .name = "board"},
				   out;
	uint8_t bytes[WIRE_REGION_BYTES + 1] = {0};

	(void)state;
	wire_region_request_encode(&in, bytes);
	assert_memory_equal(bytes, "\x09\x01\x34\x12\x09\0\0\0\x03\0\0\0\x04\x03\x02\x01", 16);
	assert_memory_equal(bytes + 16, "\x88\x77\x66\x55\x44\x33\x22\x11" "board\0\0", 15);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(wire_region_request_decode(bytes, length, &out),
				 length == WIRE_REGION_BYTES ? 0 : -TARN_EPROTO);
	assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out), 0);
	assert_true(out.call == in.call && out.flags == in.flags && out.tag == in.tag &&
		    out.handle == in.handle && out.index == in.index && out.number == in.number);
	assert_string_equal(out.name, "board");
	for (unsigned int call = 0; call < 256; call++) {
		bytes[1] = (uint8_t)call;
		assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out),
				 call >= WIRE_REGION_CREATE && call <= WIRE_REGION_LAST ? 0 : -TARN_EPROTO);
	}
	bytes[1] = WIRE_REGION_OPEN;
	bytes[40] = 'x'; /* behind the name's end */
	assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out), -TARN_EPROTO);
	memset(bytes + 24, 'x', WIRE_REGION_NAME_BYTES);
	assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out), -TARN_EPROTO);
	bytes[63] = 0;
	assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out), 0);
	bytes[30] = '/';
	assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out), -TARN_EPROTO);
	memset(bytes + 24, 0, WIRE_REGION_NAME_BYTES);
	assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out), -TARN_EPROTO);
	bytes[1] = WIRE_REGION_WAIT; /* needs none */
	assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out), 0);
	bytes[0] = WIRE_RPC_PING;
	assert_int_equal(wire_region_request_decode(bytes, WIRE_REGION_BYTES, &out), -TARN_EPROTO);
}

static void test_region_reply(void **state)
{
	struct wire_region_reply in = {.call = WIRE_REGION_STAT,
				       .state = 2,
				       .tag = 7,
				       .handle = 5,
				       .id = 11,
				       .bytes = 4096,
				       .value = 1,
				       .length = UINT64_MAX,
				       .created_ms = 12,
				       .number = 3},
				 list = {.call = WIRE_REGION_LIST, .id = 4, .name = "a"}, out;
	uint8_t bytes[WIRE_REGION_BYTES + 1] = {0};

	(void)state;
	wire_region_reply_encode(&in, bytes);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(wire_region_reply_decode(bytes, length, &out),
				 length == WIRE_REGION_BYTES ? 0 : -TARN_EPROTO);
	assert_int_equal(wire_region_reply_decode(bytes, WIRE_REGION_BYTES, &out), 0);
	assert_true(out.call == in.call && out.state == 2 && out.tag == 7 && out.handle == 5 &&
		    out.id == 11 && out.bytes == 4096 && out.value == 1 &&
		    out.length == UINT64_MAX && out.created_ms == 12 && out.number == 3);
	bytes[8] = 1; /* a positive status */
	assert_int_equal(wire_region_reply_decode(bytes, WIRE_REGION_BYTES, &out), -TARN_EPROTO);
	wire_region_reply_encode(&list, bytes);
	assert_int_equal(wire_region_reply_decode(bytes, WIRE_REGION_BYTES, &out), 0);
	assert_true(out.id == 4 && strcmp(out.name, "a") == 0);
	memset(bytes + 24, 'a', WIRE_REGION_NAME_BYTES);
	assert_int_equal(wire_region_reply_decode(bytes, WIRE_REGION_BYTES, &out), -TARN_EPROTO);
	bytes[1] = 0;
	assert_int_equal(wire_region_reply_decode(bytes, WIRE_REGION_BYTES, &out), -TARN_EPROTO);
}

static void test_rpc_reply(void **state)
{
	struct wire_rpc_reply in = {.type = WIRE_RPC_ADD,
				    .tag = 7,
				    .status = -TARN_ECONFLICT,
				    .number = 3,
				    .value = INT64_MIN,
				    .length = UINT64_MAX - 1},
			      out;
	uint8_t bytes[WIRE_RPC_MAX_BYTES] = {0};

	(void)state;
	wire_rpc_reply_encode(&in, bytes);
	for (size_t length = 0; length <= sizeof(bytes); length++)
		assert_int_equal(wire_rpc_reply_decode(bytes, length, &out),
				 length == WIRE_RPC_REPLY_BYTES ? 0 : -TARN_EPROTO);
	assert_int_equal(wire_rpc_reply_decode(bytes, WIRE_RPC_REPLY_BYTES, &out), 0);
	assert_true(out.status == -TARN_ECONFLICT && out.number == 3 && out.value == INT64_MIN &&
		    out.length == UINT64_MAX - 1);
	assert_memory_equal(bytes + 24, "\xfe\xff\xff\xff\xff\xff\xff\xff", 8);
	in.status = 1;
	wire_rpc_reply_encode(&in, bytes);
	assert_int_equal(wire_rpc_reply_decode(bytes, WIRE_RPC_REPLY_BYTES, &out), -TARN_EPROTO);
}

static void test_control(void **state)
{
	char bytes[WIRE_CONTROL_HEADER + 2];
	const char *text;
	uint8_t flags;
	size_t length;

	(void)state;
	wire_control_encode(WIRE_CONTROL_LAST, (uint8_t *)bytes);
	memcpy(bytes + WIRE_CONTROL_HEADER, "{}", 2);
	assert_memory_equal(bytes, "TARC\x01\0\0\0{}", 10);
	assert_int_equal(wire_control_decode(bytes, sizeof(bytes), &flags, &text, &length), 0);
	assert_true(flags == WIRE_CONTROL_LAST && text == bytes + WIRE_CONTROL_HEADER &&
		    length == 2);
	assert_int_equal(wire_control_decode(bytes, WIRE_CONTROL_HEADER, &flags, &text, &length),
			 0);
	assert_int_equal(length, 0);
	for (size_t bad = 0; bad < WIRE_CONTROL_HEADER; bad++)
		assert_int_equal(wire_control_decode(bytes, bad, &flags, &text, &length),
				 -TARN_EPROTO);
	bytes[4] = 2;
	assert_int_equal(wire_control_decode(bytes, sizeof(bytes), &flags, &text, &length),
			 -TARN_EPROTO);
	bytes[0] = 'X';
	assert_int_equal(wire_control_decode(bytes, sizeof(bytes), &flags, &text, &length),
			 -TARN_EPROTO);
}

static void test_pool_hash(void **state)
{
	(void)state;
	assert_true(wire_pool_hash("main") == wire_pool_hash("main"));
	assert_true(wire_pool_hash("main") != wire_pool_hash("Main"));
	/* Both sides must agree for ever. */
	assert_true(wire_pool_hash("") == 0x2d06800538d394c2ull);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request),   cmocka_unit_test(test_request_malformed),
		cmocka_unit_test(test_reply),     cmocka_unit_test(test_reply_malformed),
		cmocka_unit_test(test_reject),    cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_rpc),       cmocka_unit_test(test_rpc_atomics),
		cmocka_unit_test(test_rpc_reply),
		cmocka_unit_test(test_region_request),
		cmocka_unit_test(test_region_reply), cmocka_unit_test(test_control),
		cmocka_unit_test(test_pool_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
