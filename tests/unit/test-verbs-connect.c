/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * common/fabric-verbs*.c and verbs.c on a fake NIC (fake-verbs.h): connecting, with every failure
 * on the way, hostile answers, and the data path, with every way in which it ends.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include <tarn/tarn.h>

#include "err.h"
#include "fabric.h"
#include "fake-verbs.h"
#include "layout.h"
#include "verbs.h"
#include "wire.h"

#define TIMEOUT_NS  2000000000u
#define REGIONS_MAX 8u
#define POOL_BYTES  (6u << 20)
#define ADDRESS     0x700000000000ull /* of region 0; a GiB between two */

/* ---- the daemon's side ----------------------------------------------------------------------- */

static struct daemon {
	uint8_t *memory; /* POOL_BYTES */
	unsigned region_count;
	struct wire_region regions[REGIONS_MAX];
	uint64_t starts[REGIONS_MAX];
	struct wire_reply reply;
	uint8_t bytes[WIRE_REPLY_BYTES];
	uint8_t byte_count;
	uint8_t request[WIRE_REQUEST_BYTES];
	bool mute;     /* answers no RPC; what came last is in `rpc` */
	unsigned rpcs; /* that came */
	struct wire_rpc rpc;
	/* changes an answer; false: none is sent */
	bool (*garble)(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count);
} far;

static struct fabric_address address;
static struct fabric_endpoint *ep;

static void *memory_at(uint64_t offset)
{
	return far.memory + offset;
}

static void rpc_answer(const struct wire_rpc *rpc, struct wire_rpc_reply *reply)
{
	uint64_t word;

	*reply = (struct wire_rpc_reply){.type = rpc->type, .tag = rpc->tag};
	switch (rpc->type) {
	case WIRE_RPC_CAS:
	case WIRE_RPC_FAA:
		memcpy(&word, memory_at(rpc->slot_offset), 8);
		reply->value = (int64_t)word;
		if (rpc->type == WIRE_RPC_FAA)
			word += (uint64_t)rpc->delta;
		else if (word == rpc->slot_word)
			word = (uint64_t)rpc->delta;
		memcpy(memory_at(rpc->slot_offset), &word, 8);
		break;
	case WIRE_RPC_REGION:
		if (rpc->class >= far.region_count) {
			reply->status = -TARN_EPROTO;
			break;
		}
		reply->number = far.regions[rpc->class].rkey;
		reply->value = (int64_t)far.regions[rpc->class].address;
		reply->length = far.regions[rpc->class].length;
		break;
	case WIRE_RPC_PING:
	case WIRE_RPC_PAGE:
	case WIRE_RPC_ADD:
	case WIRE_RPC_NUMBER:
	case WIRE_RPC_GROW:
		reply->number = 4711;
		break;
	}
}

static void far_send(struct ibv_qp *qp, const void *bytes, uint32_t count)
{
	uint8_t answer[WIRE_RPC_MAX_BYTES * 2];
	uint32_t answer_bytes = WIRE_RPC_REPLY_BYTES;
	struct wire_rpc_reply reply;

	assert_int_equal(wire_rpc_decode(bytes, count, &far.rpc), 0);
	far.rpcs++;
	if (far.mute)
		return;
	rpc_answer(&far.rpc, &reply);
	wire_rpc_reply_encode(&reply, answer);
	if (!far.garble || far.garble(&far.rpc, answer, &answer_bytes))
		fake_deliver(qp, answer, answer_bytes);
}

static void far_connect(struct rdma_cm_id *id, const struct rdma_conn_param *param)
{
	bool iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;

	assert_int_equal(param->private_data_len, WIRE_REQUEST_BYTES);
	memcpy(far.request, param->private_data, WIRE_REQUEST_BYTES);
	fake_event(id, iwarp ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE, 0,
		   far.bytes, far.byte_count);
}

static void far_encode(void)
{
	wire_reply_encode(&far.reply, far.bytes);
	far.byte_count = WIRE_REPLY_BYTES;
}

/* Regions of these lengths, the last one takes the rest. */
static void far_regions(unsigned count, const uint64_t *lengths)
{
	uint64_t start = 0;

	far.region_count = count;
	far.reply.region_count = (uint8_t)(count < WIRE_REGIONS ? count : WIRE_REGIONS);
	memset(far.reply.regions, 0, sizeof(far.reply.regions));
	for (unsigned i = 0; i < count; i++) {
		struct wire_region *region = &far.regions[i];

		region->length = i == count - 1 ? POOL_BYTES - start : lengths[i];
		region->address = ADDRESS + ((uint64_t)i << 30);
		region->rkey = fake_remote(far.memory + start, region->length, region->address,
					   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
						   IBV_ACCESS_REMOTE_ATOMIC);
		far.starts[i] = start;
		start += region->length;
		if (i < WIRE_REGIONS)
			far.reply.regions[i] = *region;
	}
	far_encode();
}

static void begin(void)
{
	static const uint64_t lengths[] = {1u << 20, 2u << 20};

	fake_begin();
	fake.connect = far_connect;
	fake.send = far_send;
	memset(&far, 0, sizeof(far));
	far.memory = calloc(1, POOL_BYTES);
	assert_non_null(far.memory);
	far.reply = (struct wire_reply){.version = 1,
					.role = WIRE_ROLE_WRITE,
					.atomics = LAYOUT_ATOMICS_NIC,
					.incarnation = 1,
					.boot_id = 2,
					.client_id = 3,
					.deadline_us = 100000,
					.epoch_us = 250000,
					.grace_us = 500000,
					.layout_version = LAYOUT_VERSION,
					.pool_bytes = POOL_BYTES,
					.nonce = 77};
	far_regions(3, lengths);
	address = (struct fabric_address){.host = "10.77.0.1", .settings = FABRIC_SETTINGS_INIT};
	ep = NULL;
	err_clear();
}

static void end(void)
{
	if (ep)
		ep->ops->close(ep);
	ep = NULL;
	free(far.memory);
	fake_end();
}

static uint8_t got[WIRE_REPLY_BYTES];
static size_t got_bytes;

static int connect_now(void)
{
	struct wire_request request = {.version_min = 1, .version_max = 1, .nonce = 77};
	uint8_t bytes[WIRE_REQUEST_BYTES];

	wire_request_encode(&request, bytes);
	got_bytes = 0;
	ep = NULL;
	err_clear();
	return fabric_verbs_transport.connect(&address, bytes, sizeof(bytes), TIMEOUT_NS, got,
					      sizeof(got), &got_bytes, &ep);
}

static void open_endpoint(void)
{
	begin();
	if (connect_now() < 0)
		fail_msg("%s", err_text());
	assert_non_null(ep);
}

/* It has failed as it should: a code, a text, and nothing left. */
static void refused(int ret, const char *what)
{
	if (ret >= 0)
		fail_msg("%s: connect succeeded", what);
	if (!err_text()[0])
		fail_msg("%s: %s without a text", what, err_name(ret));
	assert_null(ep);
	fake_nothing_left(what);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void test_connect(void **state)
{
	const struct ibv_qp_attr *attr;
	struct fake_record *record;
	struct ibv_qp *qp;

	(void)state;
	open_endpoint();
	record = fake_last_record();
	qp = fake_nth_qp(0);
	attr = fake_qp_attr(qp);
	assert_int_equal(got_bytes, WIRE_REPLY_BYTES);
	assert_memory_equal(got, far.bytes, sizeof(got));
	assert_int_equal(ep->pool_bytes, POOL_BYTES);
	assert_int_equal(ep->read_only, 0);
	assert_int_equal(record->connected, 1);
	assert_int_equal(record->established, 1);
	assert_int_equal(record->param.qp_num, qp->qp_num);
	assert_in_range(record->param.initiator_depth, 2, 16);
	assert_int_equal(attr->qp_state, IBV_QPS_RTS);
	/* for the daemon's requests of no bytes; there is nothing that it could reach */
	assert_int_equal(attr->qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	for (unsigned i = 0; fake_nth_mr(i); i++)
		assert_int_equal(fake_nth_mr_access(i) & ~(unsigned)IBV_ACCESS_LOCAL_WRITE, 0);
	assert_int_equal(attr->timeout, VERBS_ACK_TIMEOUT);
	assert_int_equal(attr->retry_cnt, VERBS_RETRIES);
	assert_int_equal(attr->rnr_retry, VERBS_RNR_RETRIES);
	assert_in_range(attr->max_rd_atomic, 2, 16);
	ep->ops->close(ep);
	ep = NULL;
	assert_int_equal(record->disconnected, 1);
	end();
}

static void test_connect_iwarp(void **state)
{
	uint64_t word = 0;
	struct fabric_request r = fabric_read(64, &word, 8);
	struct fabric_completion done;

	(void)state;
	begin();
	fake_iwarp(&fake.devices[0]);
	far.reply.atomics = LAYOUT_ATOMICS_CPU;
	far_encode();
	assert_int_equal(connect_now(), 0);
	assert_int_equal(fake_last_record()->established, 0);
	memcpy(memory_at(64), "iwarp...", 8);
	assert_int_equal(fabric_post(ep, &r, 1, &r), 0);
	assert_int_equal(fabric_poll(ep, &done, 1), 1);
	assert_ptr_equal(done.cookie, &r);
	assert_memory_equal(&word, "iwarp...", 8);
	end();
}

static void test_describe(void **state)
{
	struct verbs_description d;

	(void)state;
	open_endpoint();
	assert_int_equal(fabric_verbs_describe(ep, &d), 0);
	assert_string_equal(d.device, "fake0");
	assert_int_equal(d.port, 1);
	assert_int_equal(d.ack_timeout, VERBS_ACK_TIMEOUT);
	assert_int_equal(d.retries, VERBS_RETRIES);
	assert_int_equal(d.mtu_bytes, 1024);
	assert_int_equal(d.gid_index, 2);
	assert_true(d.roce_v2);
	assert_int_equal(d.gid.raw[12], 10);
	assert_int_equal(d.regions, 3);
	assert_false(d.atomics_by_rpc);
	fake.fail_at = fake.calls + 1;
	err_clear();
	assert_int_equal(fabric_verbs_describe(ep, &d), -EIO);
	assert_string_not_equal(err_text(), "");
	end();
}

/* Those may fail: there is another way. */
static bool survivable(const char *name)
{
	static const char *const names[] = {"ibv_alloc_td", "ibv_alloc_parent_domain",
					    "rdma_disconnect", "rdma_set_option(ack timeout)"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/*
 * The request was sent, and the connection ended while this side was busy with its queue pair
 * (EINVAL), or when it was to be completed: it is worth another try.
 */
static bool ended_just_then(int error)
{
	const struct fake_record *record = fake.record_count ? fake_last_record() : NULL;

	if (!record || !record->connected)
		return false;
	return !strcmp(fake.failed, "rdma_establish") ||
	       (error == EINVAL && !strcmp(fake.failed, "rdma_init_qp_attr"));
}

/* Each call that connecting makes fails once. */
static void setup_failures(int error, bool iwarp)
{
	unsigned long n = 0;
	unsigned again = 0;
	char what[80];
	int ret;

	do {
		begin();
		if (iwarp) {
			fake_iwarp(&fake.devices[0]);
			far.reply.atomics = LAYOUT_ATOMICS_CPU;
			far_encode();
		}
		address.settings.tos = 8;
		address.source = "10.77.0.2";
		fake.memory = true;
		fake.fail_errno = error;
		fake.fail_at = ++n;
		ret = connect_now();
		snprintf(what, sizeof(what), "call %lu, %s, %s", n, fake.failed, strerror(error));
		if (ret < 0 && (ret == -EAGAIN) != ended_just_then(error))
			fail_msg("%s: %s", what, err_name(ret));
		again += ret == -EAGAIN;
		if (ret < 0)
			refused(ret, what);
		else if (fake.failed[0] && !survivable(fake.failed) &&
			 /* tried again with less inline data */
			 (strcmp(fake.failed, "ibv_create_qp") != 0 || error == ENOMEM))
			fail_msg("%s: connect succeeded", what);
		if (fake.live[FAKE_ID] == 0 && fake.live[FAKE_QP] != 0)
			fail_msg("%s: a queue pair without a connection", what);
		fake.fail_at = 0;
		ret = fake.failed[0] != 0;
		end();
	} while (ret);
	assert_in_range(n, 20, 200);
	/* RTR, RTS and the end of it */
	assert_int_equal(again, iwarp ? 0 : error == EINVAL ? 3 : 1);
}

static void test_setup_failures(void **state)
{
	static const int errors[] = {EIO, ENOMEM, EACCES, EPERM, EINVAL};

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		setup_failures(errors[i], false);
	setup_failures(ENOMEM, true);
}

static struct fake_answer *stage(unsigned n)
{
	struct fake_answer *stages[] = {&fake.on_resolve_addr, &fake.on_resolve_route,
					&fake.on_connect};

	if (n == 2)
		fake.connect = NULL;
	return stages[n];
}

/* Any event instead of the one that is waited for. */
static void test_events_in_setup(void **state)
{
	static const enum rdma_cm_event_type good[] = {RDMA_CM_EVENT_ADDR_RESOLVED,
						       RDMA_CM_EVENT_ROUTE_RESOLVED,
						       RDMA_CM_EVENT_CONNECT_RESPONSE};
	char what[80];

	(void)state;
	for (unsigned s = 0; s < 3; s++) {
		for (unsigned type = 0; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
			struct fake_answer *answer;

			/* they carry another id, or none: cannot come for this one */
			if (type == good[s] || type == RDMA_CM_EVENT_CONNECT_REQUEST)
				continue;
			begin();
			answer = stage(s);
			answer->event = (enum rdma_cm_event_type)type;
			answer->status = -ETIMEDOUT;
			snprintf(what, sizeof(what), "%s at stage %u",
				 verbs_event_name(answer->event), s);
			refused(connect_now(), what);
			end();
		}
	}
}

static bool comes_late(struct rdma_cm_id *id, enum rdma_cm_event_type what)
{
	(void)id;
	if (what == RDMA_CM_EVENT_ADDR_RESOLVED)
		fake_pass_ns(TIMEOUT_NS);
	return false;
}

/* The address is found when the time is over: that is what it is, and no invalid argument. */
static void test_late(void **state)
{
	int ret;

	(void)state;
	begin();
	fake.event_hook = comes_late;
	ret = connect_now();
	assert_int_equal(ret, -TARN_ETIMEOUT);
	refused(ret, "too late");
	end();
}

/* Nothing comes. */
static void test_silence(void **state)
{
	(void)state;
	for (unsigned s = 0; s < 3; s++) {
		uint64_t from;
		int ret;

		begin();
		stage(s)->silent = true;
		from = fake.now_ns;
		ret = connect_now();
		refused(ret, "silence");
		assert_true(ret == -TARN_ETIMEOUT || ret == -TARN_EUNREACHABLE);
		assert_in_range(fake.now_ns - from, TIMEOUT_NS / 2, TIMEOUT_NS + TIMEOUT_NS / 4);
		end();
	}
}

static void test_no_device(void **state)
{
	(void)state;
	begin();
	fake.fail_at = 1;
	fake.fail_errno = ENODEV;
	assert_true(connect_now() < 0);
	assert_string_not_equal(err_text(), "");
	end();
}

static void test_bad_addresses(void **state)
{
	static const char *const hosts[] = {"", "10.77.0.1.1", "::zz", "10.77.0.1:7477"};

	(void)state;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		begin();
		address.host = hosts[i];
		refused(connect_now(), hosts[i]);
		end();
	}
	begin();
	address.source = "nonsense..";
	refused(connect_now(), "source");
	end();
}

/* ---- what the daemon answers ----------------------------------------------------------------- */

static void hostile(const char *what)
{
	refused(connect_now(), what);
	end();
}

static void test_replies_of_wrong_length(void **state)
{
	(void)state;
	for (unsigned count = 0; count < WIRE_REPLY_BYTES; count += count < 60 ? 1 : 17) {
		begin();
		far.byte_count = (uint8_t)count;
		hostile("a reply that is cut short");
	}
}

/* Each byte of the magic, version, counts and regions set to the extremes. */
static void test_replies_garbled(void **state)
{
	static const uint8_t values[] = {0x00, 0xff};
	unsigned accepted = 0;

	(void)state;
	for (unsigned at = 0; at < WIRE_REPLY_BYTES; at++) {
		for (unsigned v = 0; v < sizeof(values); v++) {
			bool same;

			begin();
			same = far.bytes[at] == values[v];
			far.bytes[at] = values[v];
			if (connect_now() < 0)
				refused(-1, "a garbled reply");
			else if (at < 6 && !same) /* magic, version, number of regions */
				fail_msg("byte %u = 0x%x is accepted", at, values[v]);
			else
				accepted++; /* of no concern to the transport: ids, nonce, MAC */
			end();
		}
	}
	assert_in_range(accepted, 1, WIRE_REPLY_BYTES * sizeof(values) - 12);
}

static void test_replies_hostile(void **state)
{
	(void)state;
	begin();
	far.bytes[0] ^= 1;
	hostile("wrong magic");

	begin();
	far.reply.region_count = 0;
	far_encode();
	hostile("no region");

	begin();
	far.reply.region_count = 5;
	far_encode();
	hostile("five regions");

	begin();
	far.reply.regions[1].length += 8;
	far_encode();
	hostile("regions larger than the pool");

	begin();
	far.reply.regions[1].length -= 8;
	far_encode();
	hostile("regions smaller than the pool");

	begin();
	far.reply.regions[0].length = UINT64_MAX - 7;
	far.reply.regions[1].length += (1u << 20) + 8;
	far_encode();
	hostile("a sum that overflows");

	begin();
	far.reply.regions[1].address = UINT64_MAX - 64;
	far_encode();
	hostile("a region across the end of the address space");

	begin();
	far.reply.regions[0].length -= 4;
	far.reply.regions[1].length += 4;
	far_encode();
	hostile("words across the border of regions");

	begin();
	far.reply.role = 7;
	far_encode();
	hostile("an unknown role");

	begin();
	far.reply.atomics = 9;
	far_encode();
	hostile("an unknown atomic domain");

	begin();
	far.reply.grace_us = far.reply.deadline_us = 1;
	far_encode();
	hostile("times that no setting keeps");
}

static bool garble_status(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)count;
	memset(bytes + 8, 0xff, 4);
	return true;
}

static bool garble_type(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)count;
	bytes[0] = WIRE_RPC_PING;
	return true;
}

static bool garble_tag(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)count;
	bytes[4] ^= 0xff;
	return true;
}

static bool garble_short(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)bytes;
	*count = 31;
	return true;
}

static bool garble_long(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)bytes;
	*count = WIRE_RPC_MAX_BYTES + 1;
	return true;
}

static bool garble_length(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)count;
	memset(bytes + 24, 0xff, 8);
	return true;
}

static bool garble_length_zero(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)count;
	memset(bytes + 24, 0, 8);
	return true;
}

static bool garble_odd(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)count;
	bytes[24] = 4;
	return true;
}

static bool garble_silence(const struct wire_rpc *rpc, uint8_t *bytes, uint32_t *count)
{
	(void)rpc;
	(void)bytes;
	(void)count;
	return false;
}

static const uint64_t seven_lengths[] = {1u << 20, 1u << 19, 1u << 20, 1u << 18,
					 1u << 20, 1u << 20, 0};

static void test_more_regions(void **state)
{
	static bool (*const garbles[])(const struct wire_rpc *, uint8_t *, uint32_t *) = {
		garble_status, garble_type, garble_tag,         garble_short,  garble_long,
		garble_length, garble_odd,  garble_length_zero, garble_silence};

	(void)state;
	begin();
	far_regions(7, seven_lengths);
	assert_int_equal(connect_now(), 0);
	assert_int_equal(far.rpcs, 3);
	end();
	for (size_t i = 0; i < sizeof(garbles) / sizeof(garbles[0]); i++) {
		char what[40];

		begin();
		far_regions(7, seven_lengths);
		far.garble = garbles[i];
		snprintf(what, sizeof(what), "answer %zu to REGION", i);
		hostile(what);
	}
}

/* Failures while regions are asked for, too. */
static void test_more_regions_failures(void **state)
{
	unsigned long n = 0;
	int more;

	(void)state;
	do {
		int ret;

		begin();
		far_regions(7, seven_lengths);
		fake.fail_at = ++n;
		ret = connect_now();
		if (ret < 0)
			refused(ret, fake.failed);
		more = fake.failed[0];
		fake.fail_at = 0;
		end();
	} while (more);
}

/* Rejects: with our message, padded or not; with something else; with nothing. */
static void test_rejects(void **state)
{
	struct wire_reject reject = {
		.version_min = 1, .version_max = 1, .reason = WIRE_REASON_NO_POOL};
	uint8_t bytes[148] = {0};
	int ret;

	(void)state;
	for (unsigned count = WIRE_REJECT_BYTES; count <= 148; count += 116) {
		begin();
		fake.connect = NULL;
		wire_reject_encode(&reject, bytes);
		fake.on_connect = (struct fake_answer){.event = RDMA_CM_EVENT_REJECTED,
						       .status = 28,
						       .bytes = bytes,
						       .byte_count = (uint8_t)count};
		assert_int_equal(connect_now(), 0);
		assert_null(ep);
		assert_in_range(got_bytes, WIRE_REJECT_BYTES, 148);
		assert_memory_equal(got, bytes, WIRE_REJECT_BYTES);
		assert_int_equal(wire_reject_decode(got, WIRE_REJECT_BYTES, &reject), 0);
		fake_nothing_left("a reject");
		end();
	}
	for (unsigned count = 0; count <= 148; count += 4) {
		begin();
		fake.connect = NULL;
		memset(bytes, 0x5a, sizeof(bytes));
		fake.on_connect = (struct fake_answer){.event = RDMA_CM_EVENT_REJECTED,
						       .status = count ? 28 : 8,
						       .bytes = bytes,
						       .byte_count = (uint8_t)count};
		ret = connect_now();
		if (ret < 0)
			refused(ret, "a reject that is not ours");
		else
			assert_null(ep); /* the caller decodes it and fails */
		fake_nothing_left("a reject that is not ours");
		end();
	}
}

/* ---- settings -------------------------------------------------------------------------------- */

static void test_settings(void **state)
{
	const struct ibv_qp_attr *attr;

	(void)state;
	begin();
	address.settings.ack_timeout = 9;
	address.settings.retries = 3;
	address.settings.tos = 104;
	address.settings.service_level = 5;
	address.settings.gid_index = 1;
	address.settings.mtu = 512;
	assert_int_equal(connect_now(), 0);
	attr = fake_qp_attr(fake_nth_qp(0));
	assert_int_equal(attr->timeout, 9);
	assert_int_equal(attr->retry_cnt, 3);
	assert_int_equal(attr->ah_attr.sl, 5);
	assert_int_equal(attr->ah_attr.grh.sgid_index, 1);
	assert_int_equal(attr->path_mtu, IBV_MTU_512);
	assert_int_equal(fake_last_record()->tos, 104);
	end();
}

static void test_settings_refused(void **state)
{
	(void)state;
	begin();
	address.settings.ack_timeout =
		15; /* 134 ms, T3 allows 400 ms in all, and a quarter of it */
	hostile("ack_timeout 15");
	begin();
	address.settings.ack_timeout = 14; /* without a retry it would do */
	address.settings.retries = 1;
	hostile("ack_timeout 14, retries 1");
	begin();
	address.settings.mtu = 4096; /* the port has 1024 */
	hostile("mtu 4096");
	begin();
	address.settings.mtu = 1000;
	hostile("mtu 1000");
	begin();
	address.settings.tos = 256;
	hostile("tos 256");
	begin();
	address.settings.service_level = 16;
	hostile("service_level 16");
	begin();
	address.settings.gid_index = 256;
	hostile("gid_index 256");
	begin();
	address.settings.ack_timeout = 32;
	hostile("ack_timeout 32");
	begin();
	address.settings.retries = 8;
	hostile("retries 8");
	begin();
	address.host = "fe80::1";
	hostile("a link-local address without its interface");
	begin(); /* a device without atomics, in a nic domain: only to read */
	fake.devices[0].attr.atomic_cap = IBV_ATOMIC_NONE;
	hostile("no atomics");
	begin();
	fake.devices[0].attr.atomic_cap = IBV_ATOMIC_NONE;
	far.reply.role = WIRE_ROLE_READ;
	far_encode();
	assert_int_equal(connect_now(), 0);
	end();
}

/* For every D and G: what is chosen keeps T3, or it is refused. */
static void test_t3(void **state)
{
	struct fabric_settings settings = FABRIC_SETTINGS_INIT;

	(void)state;
	for (int t = 0; t <= 31; t++) {
		for (int r = -1; r <= (int)VERBS_RETRIES_MAX; r++) {
			for (uint64_t room = 1; room < 1ull << 40; room *= 3) {
				unsigned ack_timeout = 99, retries = 99;
				int ret;

				settings.ack_timeout = (int16_t)t;
				settings.retries = (int16_t)r;
				ret = verbs_timeout_choose(&settings, 1000, 1000 + room,
							   &ack_timeout, &retries);
				if (ret < 0) {
					assert_int_equal(ret, -EINVAL);
					assert_int_equal(ack_timeout, 99);
					if (r > (int)VERBS_RETRIES_MAX)
						continue;
					/* even the smallest would not do */
					assert_true(verbs_late_ns(t ? (unsigned)t : 1,
								  r >= 0 ? (unsigned)r : 0) >=
						    room);
					continue;
				}
				assert_true(verbs_late_ns(ack_timeout, retries) < room);
				assert_in_range(ack_timeout, 1, 31);
				assert_in_range(retries, 0, VERBS_RETRIES_MAX);
				assert_true(t == 0 || (unsigned)t == ack_timeout);
				assert_true(r < 0 || (unsigned)r == retries);
			}
		}
	}
}

/* ---- moving data ----------------------------------------------------------------------------- */

static uint64_t seed = 88172645463325252ull;

static uint64_t any(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

/* Until so many completions have come; each must be good. */
static void finish(unsigned count)
{
	struct fabric_completion done[16];
	unsigned rounds = 0;

	while (count) {
		int n = fabric_poll(ep, done, 16);

		if (n < 0)
			fail_msg("%s", err_text());
		for (int i = 0; i < n; i++)
			assert_int_equal(done[i].status, 0);
		assert_true((unsigned)n <= count);
		count -= (unsigned)n;
		if (++rounds > 10000)
			fail_msg("%u completions do not come", count);
	}
}

static void one(struct fabric_request r)
{
	int ret = fabric_post(ep, &r, 1, &r);

	assert_int_equal(ret, 0);
	finish(1);
}

static struct fabric_request write_of(uint64_t offset, void *local, uint32_t length)
{
	return (struct fabric_request){
		.opcode = FABRIC_WRITE, .length = length, .offset = offset, .local = local};
}

static struct fabric_request cas_of(uint64_t offset, uint64_t *local, uint64_t compare,
				    uint64_t operand)
{
	return (struct fabric_request){.opcode = FABRIC_CAS,
				       .length = 8,
				       .offset = offset,
				       .local = local,
				       .compare = compare,
				       .operand = operand};
}

static struct fabric_request faa_of(uint64_t offset, uint64_t *local, uint64_t operand)
{
	return (struct fabric_request){.opcode = FABRIC_FAA,
				       .length = 8,
				       .offset = offset,
				       .local = local,
				       .operand = operand};
}

/* Everywhere, at the regions' borders above all, in all sizes, larger than the ring. */
static void read_and_write(bool iwarp)
{
	static uint8_t out[POOL_BYTES], in[POOL_BYTES], model[POOL_BYTES];

	begin();
	if (iwarp) {
		fake_iwarp(&fake.devices[0]);
		far.reply.atomics = LAYOUT_ATOMICS_CPU;
		far_encode();
	}
	assert_int_equal(connect_now(), 0);
	for (size_t i = 0; i < sizeof(model); i++)
		model[i] = (uint8_t)any(256);
	memcpy(out, model, sizeof(out));
	one(write_of(0, out, POOL_BYTES));
	assert_memory_equal(far.memory, model, POOL_BYTES);
	memset(in, 0, sizeof(in));
	one(fabric_read(0, in, POOL_BYTES));
	assert_memory_equal(in, model, POOL_BYTES);
	for (unsigned i = 0; i < 2000; i++) {
		uint32_t length = (uint32_t)(1 + any(1u << any(18)));
		uint64_t border = far.starts[any(3)],
			 offset = any(2) ? any(POOL_BYTES - length)
					 : border - (border > length ? any(length + 1) : 0);

		if (any(2)) {
			for (uint32_t k = 0; k < length && k < 64; k++)
				out[k] = (uint8_t)any(256);
			memcpy(model + offset, out, length);
			one(write_of(offset, out, length));
		} else {
			one(fabric_read(offset, in, length));
			assert_memory_equal(in, model + offset, length);
		}
	}
	assert_memory_equal(far.memory, model, POOL_BYTES);
	end();
}

static void test_read_and_write(void **state)
{
	(void)state;
	read_and_write(false);
}

static void test_read_and_write_iwarp(void **state)
{
	(void)state;
	read_and_write(true);
}

/*
 * Posts of 1 to 64 requests of all kinds, several under way, while the NIC carries out some now and
 * then. What each must find is known, since they take effect in order.
 */
#define SPAN      4096u /* bytes of the pool, across the border of regions 0 and 1 */
#define BEGIN     ((1u << 20) - SPAN / 2)
#define BUFFER    512u
#define UNDER_WAY 6u

struct expectation {
	unsigned count;
	struct fabric_request requests[FABRIC_POST_MAX];
	uint8_t buffers[FABRIC_POST_MAX][BUFFER], expected[FABRIC_POST_MAX][BUFFER];
};

static struct expectation expectations[UNDER_WAY];
static uint8_t model[SPAN];

static void expect_access(struct expectation *e, unsigned k)
{
	uint32_t length = 1 + (uint32_t)any(any(4) ? 64 : BUFFER);
	uint64_t at = any(SPAN - length + 1);
	struct fabric_request *r = &e->requests[k];

	if (any(2)) {
		*r = fabric_read(BEGIN + at, e->buffers[k], length);
		memcpy(e->expected[k], model + at, length);
	} else {
		*r = write_of(BEGIN + at, e->buffers[k], length);
		for (uint32_t i = 0; i < length; i++)
			e->buffers[k][i] = (uint8_t)any(256);
		memcpy(model + at, e->buffers[k], length);
		memcpy(e->expected[k], e->buffers[k], length);
	}
	if (any(3) == 0)
		r->flags |= FABRIC_FENCE;
}

static void expect_atomic(struct expectation *e, unsigned k)
{
	uint64_t at = 8 * any(SPAN / 8), operand = any(UINT64_MAX), word;
	uint64_t *local = (uint64_t *)(void *)e->buffers[k];

	memcpy(&word, model + at, 8);
	memcpy(e->expected[k], &word, 8);
	if (any(2)) {
		e->requests[k] = faa_of(BEGIN + at, local, operand);
		word += operand;
	} else {
		uint64_t compare = any(2) ? word : any(UINT64_MAX);

		e->requests[k] = cas_of(BEGIN + at, local, compare, operand);
		word = word == compare ? operand : word;
	}
	memcpy(model + at, &word, 8);
}

static void expect_post(struct expectation *e)
{
	e->count = 1 + (unsigned)any(any(3) ? 4 : FABRIC_POST_MAX);
	memset(e->buffers, 0, sizeof(e->buffers));
	for (unsigned k = 0; k < e->count; k++) {
		if (any(4) == 0)
			expect_atomic(e, k);
		else
			expect_access(e, k);
	}
}

static void expect_met(const struct expectation *e)
{
	for (unsigned k = 0; k < e->count; k++)
		assert_memory_equal(e->buffers[k], e->expected[k], e->requests[k].length);
}

static void nic_goes_on(void)
{
	fake_run(fake_nth_qp(0), 1 + (unsigned)any(20));
}

static void run_expectations(unsigned posts)
{
	unsigned posted = 0, completed = 0;
	struct fabric_completion done[4];

	fake.hold = true;
	fake.idle = nic_goes_on;
	memcpy(model, far.memory + BEGIN, SPAN);
	while (completed < posts) {
		int n;

		if (posted < posts && posted - completed < UNDER_WAY && any(3)) {
			struct expectation *e = &expectations[posted++ % UNDER_WAY];

			expect_post(e);
			assert_int_equal(fabric_post(ep, e->requests, e->count, e), 0);
		}
		if (any(2))
			nic_goes_on();
		n = fabric_poll(ep, done, 1 + (unsigned)any(4));
		if (n < 0)
			fail_msg("%s", err_text());
		for (int i = 0; i < n; i++) {
			assert_int_equal(done[i].status, 0);
			assert_ptr_equal(done[i].cookie, &expectations[completed % UNDER_WAY]);
			expect_met(&expectations[completed++ % UNDER_WAY]);
		}
	}
	assert_memory_equal(far.memory + BEGIN, model, SPAN);
	fake.hold = false;
	fake.idle = NULL;
}

static void test_order_nic(void **state)
{
	(void)state;
	open_endpoint();
	run_expectations(2000);
	assert_int_equal(far.rpcs, 0);
	end();
}

static void test_order_cpu(void **state)
{
	(void)state;
	begin();
	far.reply.atomics = LAYOUT_ATOMICS_CPU;
	far_encode();
	assert_int_equal(connect_now(), 0);
	run_expectations(2000);
	assert_true(far.rpcs > 100);
	for (size_t i = 0; i < fake.wr_count; i++)
		assert_true(fake.wrs[i].opcode == IBV_WR_SEND ||
			    fake.wrs[i].opcode == IBV_WR_RDMA_READ ||
			    fake.wrs[i].opcode == IBV_WR_RDMA_WRITE);
	end();
}

static void test_order_iwarp(void **state)
{
	(void)state;
	begin();
	fake_iwarp(&fake.devices[0]);
	far.reply.atomics = LAYOUT_ATOMICS_CPU;
	far_encode();
	assert_int_equal(connect_now(), 0);
	run_expectations(2000);
	/* a WRITE's completion says nothing of its effect there: never waited for */
	for (size_t i = 0; i < fake.wr_count; i++)
		if (fake.wrs[i].opcode == IBV_WR_RDMA_WRITE)
			assert_false(fake.wrs[i].flags & IBV_SEND_SIGNALED);
	end();
}

/* A small send queue, as a poor adapter has one. */
static void test_order_small_device(void **state)
{
	(void)state;
	begin();
	fake.devices[0].attr.max_qp_wr = 16;
	fake.devices[0].attr.max_cqe = 64;
	fake.devices[0].max_inline = 0;
	if (connect_now() < 0) {
		assert_string_not_equal(err_text(), "");
	} else {
		run_expectations(300);
	}
	end();
}

/* ---- how it is posted ------------------------------------------------------------------------ */

static struct fake_wr *wr(size_t n)
{
	assert_true(n < fake.wr_count);
	return &fake.wrs[n];
}

/* One post is one doorbell; inline, fence and signal stand where they should. */
static void test_flags(void **state)
{
	uint8_t small[32] = {1}, large[2000] = {2};
	uint64_t word = 0;
	struct fabric_request requests[5];

	(void)state;
	open_endpoint();
	requests[0] = write_of(0, large, sizeof(large));
	requests[1] = fabric_read(8, &word, 8);
	requests[2] = write_of(4096, small, sizeof(small));
	requests[2].flags = FABRIC_INLINE | FABRIC_FENCE;
	requests[3] = cas_of(8192, &word, 0, 1);
	requests[4] = fabric_read(8200, &word, 8);
	fake.hold = true;
	assert_int_equal(fabric_post(ep, requests, 5, &word), 0);
	memset(small, 9, sizeof(small)); /* is the caller's again */
	assert_int_equal(fake.posts, 1);
	assert_int_equal(fake.wr_count, 5);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(!!(wr(i)->flags & IBV_SEND_FENCE), i == 2);
		assert_int_equal(!!(wr(i)->flags & IBV_SEND_SIGNALED), i == 4);
		assert_int_equal(wr(i)->post, 1);
	}
	assert_false(wr(0)->flags & IBV_SEND_INLINE);
	assert_true(wr(2)->flags & IBV_SEND_INLINE);
	assert_int_equal(wr(0)->opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(wr(3)->opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
	fake.hold = false;
	finish(1);
	assert_int_equal(far.memory[4096], 1);
	end();
}

/* Pieces: 64 KiB at most, none across the border of regions, all bytes exactly once. */
static void test_pieces(void **state)
{
	static uint8_t bytes[600000];
	uint64_t at = (1u << 20) - 100001, end_at = at + sizeof(bytes);
	unsigned posts;

	(void)state;
	open_endpoint();
	one(write_of(at, bytes, sizeof(bytes)));
	posts = fake.posts;
	for (size_t i = 0; i < fake.wr_count; i++) {
		uint64_t region = at < far.starts[1] ? 0 : 1;

		assert_in_range(wr(i)->length, 1, 64u << 10);
		assert_int_equal(wr(i)->remote,
				 far.regions[region].address + at - far.starts[region]);
		assert_int_equal(wr(i)->rkey, far.regions[region].rkey);
		at += wr(i)->length;
		assert_true(at <= far.starts[1] || region == 1);
	}
	assert_int_equal(at, end_at);
	assert_in_range(posts, 1, 3);
	end();
}

/* However long nobody waits for anything: at least every half send queue is signaled. */
static void signaled(bool iwarp)
{
	uint64_t words[FABRIC_POST_MAX];
	unsigned since = 0, half;

	begin();
	if (iwarp) {
		fake_iwarp(&fake.devices[0]);
		far.reply.atomics = LAYOUT_ATOMICS_CPU;
		far_encode();
	}
	assert_int_equal(connect_now(), 0);
	half = fake_qp_init(fake_nth_qp(0))->cap.max_send_wr / 2;
	for (unsigned i = 0; i < 100; i++) {
		struct fabric_request requests[FABRIC_POST_MAX];
		unsigned count = 1 + (unsigned)any(FABRIC_POST_MAX);

		for (unsigned k = 0; k < count; k++)
			requests[k] = any(2) ? fabric_read(8 * k, &words[k], 8)
					     : write_of(8 * k, &words[k], 8);
		assert_int_equal(fabric_post(ep, requests, count, NULL), 0);
		if (any(8) == 0)
			finish(0);
	}
	one(fabric_read(0, words, 8));
	for (size_t i = 0; i < fake.wr_count; i++) {
		since = wr(i)->flags & IBV_SEND_SIGNALED ? 0 : since + 1;
		assert_in_range(since, 0, half);
		/* there a WRITE's completion says nothing of its effect */
		if (iwarp && wr(i)->opcode == IBV_WR_RDMA_WRITE)
			assert_false(wr(i)->flags & IBV_SEND_SIGNALED);
	}
	end();
}

static void test_signaled(void **state)
{
	(void)state;
	signaled(false);
	signaled(true);
}

/* Many posts larger together than the staging ring, none carried out: poll brings them on. */
static void test_ring_wraps(void **state)
{
	enum { POSTS = 60, BYTES = 150001 };
	static uint8_t out[POSTS][BYTES], in[BYTES];
	uint64_t last = 0;

	(void)state;
	open_endpoint();
	fake.hold = true;
	fake.idle = nic_goes_on;
	for (unsigned i = 0; i < POSTS; i++) {
		struct fabric_request r;

		last = any(POOL_BYTES - BYTES);
		r = write_of(last, out[i], BYTES);

		memset(out[i], (int)i, BYTES);
		assert_int_equal(fabric_post(ep, &r, 1, out[i]), 0);
	}
	fake.hold = false;
	finish(POSTS);
	one(fabric_read(last, in, BYTES));
	assert_memory_equal(in, out[POSTS - 1], BYTES);
	end();
}

/* CAS and FAA in a cpu domain: nothing behind one is posted until its answer is there. */
static void test_rpc_atomics_order(void **state)
{
	uint64_t before = 99, word = 5, read = 0;
	struct fabric_request requests[3] = {write_of(64, &word, 8), cas_of(64, &before, 5, 6),
					     fabric_read(64, &read, 8)};
	struct fabric_completion done;

	(void)state;
	begin();
	far.reply.atomics = LAYOUT_ATOMICS_CPU;
	far_encode();
	assert_int_equal(connect_now(), 0);
	far.mute = true;
	assert_int_equal(fabric_post(ep, requests, 3, &done), 0);
	assert_int_equal(fabric_poll(ep, &done, 1), 0);
	assert_int_equal(fake.wr_count, 2);
	assert_int_equal(wr(0)->opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(wr(1)->opcode, IBV_WR_SEND);
	assert_int_equal(wr(0)->post, wr(1)->post);
	assert_int_equal(far.rpc.type, WIRE_RPC_CAS);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(fabric_poll(ep, &done, 1), 0);
	assert_int_equal(fake.wr_count, 2);
	{
		struct wire_rpc_reply reply;
		uint8_t bytes[WIRE_RPC_REPLY_BYTES];

		rpc_answer(&far.rpc, &reply);
		wire_rpc_reply_encode(&reply, bytes);
		assert_true(fake_deliver(fake_nth_qp(0), bytes, sizeof(bytes)));
	}
	finish(1);
	assert_int_equal(fake.wr_count, 3);
	assert_int_equal(before, 5);
	assert_int_equal(read, 6);
	end();
}

/* What is outside of the pool, or odd, is refused before anything is posted. */
static void test_refused_requests(void **state)
{
	static uint8_t bytes[4096];
	uint64_t word = 0;
	struct fabric_request bad[] = {
		fabric_read(POOL_BYTES, bytes, 1),
		fabric_read(POOL_BYTES - 1, bytes, 2),
		fabric_read(UINT64_MAX, bytes, 2),
		fabric_read(1, bytes, UINT32_MAX),
		write_of(POOL_BYTES - 8, bytes, 9),
		cas_of(12, &word, 0, 1),
		cas_of(POOL_BYTES, &word, 0, 1),
		faa_of(POOL_BYTES - 4, &word, 1),
		{.opcode = 7, .length = 8, .local = bytes},
		{.opcode = FABRIC_CAS, .length = 4, .local = &word},
		{.opcode = FABRIC_WRITE,
		 .flags = FABRIC_INLINE,
		 .length = FABRIC_INLINE_BYTES + 1,
		 .local = bytes},
	};

	(void)state;
	open_endpoint();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fabric_request requests[2] = {write_of(0, bytes, 8), bad[i]};

		assert_int_equal(fabric_post(ep, requests, 2, &word), -EINVAL);
	}
	assert_int_equal(fake.wr_count, 0);
	end();
}

static void test_read_only(void **state)
{
	uint64_t word = 0;
	struct fabric_request bad[] = {write_of(0, &word, 8), cas_of(0, &word, 0, 1),
				       faa_of(0, &word, 1)};

	(void)state;
	begin();
	far.reply.role = WIRE_ROLE_READ;
	far_encode();
	assert_int_equal(connect_now(), 0);
	assert_int_equal(ep->read_only, 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(fabric_post(ep, &bad[i], 1, NULL), -TARN_EREADONLY);
	one(fabric_read(0, &word, 8));
	end();
}

/* A post of nothing, and requests of no bytes, still have their completion. */
static void test_no_bytes(void **state)
{
	uint64_t word = 1;
	struct fabric_request requests[3] = {fabric_read(8, &word, 0), write_of(16, &word, 8),
					     write_of(24, &word, 0)};

	(void)state;
	open_endpoint();
	assert_int_equal(fabric_post(ep, requests, 3, &word), 0);
	finish(1);
	assert_int_equal(fabric_post(ep, requests, 1, &word), 0);
	finish(1);
	assert_int_equal(far.memory[16], 1);
	end();
}

/* ---- RPC ------------------------------------------------------------------------------------- */

static int rpc_send(uint32_t tag, void *reply, size_t capacity, void *cookie)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PING, .tag = tag};
	uint8_t bytes[WIRE_RPC_BYTES];

	wire_rpc_encode(&rpc, bytes);
	return ep->ops->rpc(ep, bytes, sizeof(bytes), reply, capacity, cookie);
}

static void test_rpc(void **state)
{
	uint8_t reply[WIRE_RPC_REPLY_BYTES];
	struct fabric_completion done;
	struct wire_rpc_reply decoded;

	(void)state;
	open_endpoint();
	far.mute = true;
	assert_int_equal(rpc_send(0x01020304, reply, sizeof(reply), reply), 0);
	assert_int_equal(rpc_send(1, reply, sizeof(reply), reply), -EBUSY);
	far.mute = false;
	assert_int_equal(fabric_poll(ep, &done, 1), 1);
	assert_ptr_equal(done.cookie, reply);
	assert_int_equal(done.status, 0);
	assert_int_equal(done.length, WIRE_RPC_REPLY_BYTES);
	assert_int_equal(wire_rpc_reply_decode(reply, sizeof(reply), &decoded), 0);
	assert_int_equal(decoded.tag, 0x01020304);
	assert_int_equal(decoded.number, 4711);
	/* cut at the capacity */
	memset(reply, 0x77, sizeof(reply));
	assert_int_equal(rpc_send(1, reply, 5, reply), 0);
	finish(1);
	assert_int_equal(reply[5], 0x77);
	end();
}

static void answer_late(uint32_t tag)
{
	struct wire_rpc_reply reply = {.type = WIRE_RPC_PING, .tag = tag};
	uint8_t bytes[WIRE_RPC_REPLY_BYTES];

	wire_rpc_reply_encode(&reply, bytes);
	assert_true(fake_deliver(fake_nth_qp(0), bytes, sizeof(bytes)));
}

/* One that was given up: no completion, its reply is dropped, the next one's is not. */
static void test_rpc_cancel(void **state)
{
	uint8_t reply[WIRE_RPC_REPLY_BYTES] = {0}, second[WIRE_RPC_REPLY_BYTES];
	struct fabric_completion done;
	uint32_t first;

	(void)state;
	open_endpoint();
	ep->ops->rpc_cancel(ep); /* nothing to give up */
	for (unsigned i = 0; i < 30; i++) {
		far.mute = true;
		assert_int_equal(rpc_send(i, reply, sizeof(reply), reply), 0);
		assert_int_equal(fabric_poll(ep, &done, 1), 0);
		first = far.rpc.tag;
		ep->ops->rpc_cancel(ep);
		far.mute = false;
		assert_int_equal(rpc_send(1000 + i, second, sizeof(second), second), 0);
		answer_late(first);
		assert_int_equal(fabric_poll(ep, &done, 1), 1);
		assert_ptr_equal(done.cookie, second);
		assert_int_equal(fabric_poll(ep, &done, 1), 0);
		assert_int_equal(reply[0], 0);
	}
	end();
}

/* Given up when its reply is there already, but has not been polled. */
static void test_rpc_cancel_answered(void **state)
{
	uint8_t reply[WIRE_RPC_REPLY_BYTES] = {0};
	uint64_t words[2] = {0};
	struct fabric_request r = fabric_read(0, &words[0], 8);
	struct fabric_completion done[4];

	(void)state;
	open_endpoint();
	for (unsigned i = 0; i < 30; i++) {
		assert_int_equal(fabric_post(ep, &r, 1, &words[0]), 0);
		assert_int_equal(rpc_send(i, reply, sizeof(reply), reply), 0);
		assert_int_equal(fabric_post(ep, &r, 1, &words[1]), 0);
		assert_int_equal(ep->ops->check(ep), 0);
		ep->ops->rpc_cancel(ep);
		assert_int_equal(fabric_poll(ep, done, 4), 2);
		assert_ptr_equal(done[0].cookie, &words[0]);
		assert_ptr_equal(done[1].cookie, &words[1]);
		assert_int_equal(fabric_poll(ep, done, 4), 0);
		assert_int_equal(rpc_send(i, reply, sizeof(reply), reply), 0);
		finish(1);
	}
	end();
}

/* A daemon that answers nothing any more: the receive buffers stay enough for what may come. */
static void test_rpc_stale(void **state)
{
	uint8_t reply[WIRE_RPC_REPLY_BYTES];
	struct fabric_completion done;
	uint32_t tags[32];
	unsigned sent = 0;
	int ret = 0;

	(void)state;
	open_endpoint();
	far.mute = true;
	while (sent < 32) {
		ret = rpc_send(sent, reply, sizeof(reply), reply);
		if (ret < 0)
			break;
		assert_int_equal(fabric_poll(ep, &done, 1), 0);
		tags[sent++] = far.rpc.tag;
		ep->ops->rpc_cancel(ep);
	}
	assert_int_equal(ret, -EAGAIN);
	assert_in_range(sent, 1, 8);
	for (unsigned i = 0; i < sent; i++)
		answer_late(tags[i]);
	assert_int_equal(fabric_poll(ep, &done, 1), 0);
	far.mute = false;
	assert_int_equal(rpc_send(1, reply, sizeof(reply), reply), 0);
	finish(1);
	end();
}

/* Given up before it could be sent, behind an atomic that is not answered. */
static void test_rpc_cancel_unsent(void **state)
{
	uint8_t reply[WIRE_RPC_REPLY_BYTES];
	uint64_t before = 0;
	struct fabric_request r = faa_of(0, &before, 1);
	struct fabric_completion done;

	(void)state;
	begin();
	far.reply.atomics = LAYOUT_ATOMICS_CPU;
	far_encode();
	assert_int_equal(connect_now(), 0);
	far.mute = true;
	assert_int_equal(fabric_post(ep, &r, 1, &before), 0);
	assert_int_equal(fabric_poll(ep, &done, 1), 0);
	assert_int_equal(rpc_send(1, reply, sizeof(reply), reply), 0);
	assert_int_equal(fabric_poll(ep, &done, 1), 0);
	assert_int_equal(far.rpcs, 1);
	ep->ops->rpc_cancel(ep);
	far.mute = false;
	{
		struct wire_rpc_reply answer;
		uint8_t bytes[WIRE_RPC_REPLY_BYTES];

		rpc_answer(&far.rpc, &answer);
		wire_rpc_reply_encode(&answer, bytes);
		assert_true(fake_deliver(fake_nth_qp(0), bytes, sizeof(bytes)));
	}
	finish(1);
	assert_int_equal(fabric_poll(ep, &done, 1), 0);
	assert_int_equal(far.rpcs, 1);
	end();
}

/* ---- the end of a connection ----------------------------------------------------------------- */

#define POSTS 40u

struct cookie {
	unsigned ended;
	int status;
};

static struct cookie cookies[POSTS + 1];
static uint64_t scratch[POSTS][4];

static void take(int n, const struct fabric_completion *done)
{
	for (int i = 0; i < n; i++) {
		struct cookie *cookie = done[i].cookie;

		assert_in_range(cookie - cookies, 0, POSTS);
		cookie->ended++;
		cookie->status = done[i].status;
		assert_true(cookie->status == 0 || cookie->status == -TARN_ESESSION);
	}
}

/* Posts of several requests and an RPC, as far as the endpoint takes them. Returns their number. */
static unsigned post_all(bool *posted)
{
	static uint8_t reply[64];
	unsigned n = 0;

	memset(cookies, 0, sizeof(cookies));
	memset(posted, 0, (POSTS + 1) * sizeof(*posted));
	for (unsigned i = 0; i < POSTS; i++) {
		struct fabric_request requests[] = {write_of(64 * i, scratch[i], 8),
						    cas_of(64 * i, &scratch[i][1], 0, 1),
						    faa_of(64 * i + 8, &scratch[i][2], 1),
						    fabric_read(64 * i, &scratch[i][3], 8)};

		posted[i] = fabric_post(ep, requests, 4, &cookies[i]) == 0;
		n += posted[i];
		if (i == POSTS / 2) {
			posted[POSTS] = rpc_send(1, reply, sizeof(reply), &cookies[POSTS]) == 0;
			n += posted[POSTS];
		}
	}
	return n;
}

/* Until the endpoint says that nothing more will come, or all have ended. */
static int take_all(unsigned count)
{
	struct fabric_completion done[3];
	unsigned ended = 0;

	for (unsigned i = 0; i < 5000; i++) {
		int n = fabric_poll(ep, done, 3);

		if (n < 0) {
			assert_int_equal(n, -TARN_ESESSION);
			assert_string_not_equal(err_text(), "");
			return n;
		}
		take(n, done);
		ended += (unsigned)n;
		if (ended == count && n == 0 && i > 100)
			return 0;
		if (n == 0 && i % 20 == 19)
			ep->ops->wait(ep, 1000000);
	}
	return 0;
}

static void each_ended_once(const bool *posted)
{
	for (unsigned i = 0; i <= POSTS; i++)
		if (cookies[i].ended != posted[i])
			fail_msg("post %u has ended %u times", i, cookies[i].ended);
}

/* The state of a lost endpoint: it stays so, and says why. */
static void is_lost(const char *why)
{
	uint64_t word;
	struct fabric_request r = fabric_read(0, &word, 8);
	struct fabric_completion done;
	unsigned posts = fake.posts;

	assert_int_equal(fabric_poll(ep, &done, 1), -TARN_ESESSION);
	if (!strstr(err_text(), why))
		fail_msg("'%s' does not say '%s'", err_text(), why);
	err_clear();
	assert_int_equal(ep->ops->check(ep), -TARN_ESESSION);
	assert_non_null(strstr(err_text(), why));
	assert_int_equal(fabric_post(ep, &r, 1, &r), -TARN_ESESSION);
	assert_int_equal(rpc_send(1, &word, 8, &word), -TARN_ESESSION);
	assert_int_equal(ep->ops->wait(ep, 1000000000), 0);
	assert_int_equal(fabric_poll(ep, &done, 1), -TARN_ESESSION);
	assert_int_equal(fake.posts, posts);
	if (fake_nth_qp(0))
		assert_int_equal(fake_qp_state(fake_nth_qp(0)), IBV_QPS_ERR);
}

/* Each status at each work request: what is unfinished ends with ESESSION, what was good stays. */
/* An atomic is done, says the NIC, and not what it found: nobody may take old bytes for that. */
static void test_result_missing(void **state)
{
	static const uint8_t opcodes[] = {FABRIC_CAS, FABRIC_FAA};
	struct fabric_completion done;
	uint64_t found;

	(void)state;
	for (size_t i = 0; i < sizeof(opcodes); i++) {
		struct fabric_request r = {.opcode = opcodes[i],
					   .length = 8,
					   .offset = 64,
					   .local = &found,
					   .compare = 0,
					   .operand = 7};

		open_endpoint();
		found = 4711;
		assert_int_equal(fabric_post(ep, &r, 1, &r), 0);
		assert_int_equal(fabric_poll(ep, &done, 1), 1);
		assert_int_equal(done.status, 0);
		assert_int_equal(found, 0);
		fake.atomics_mute = true;
		r.compare = 7;
		assert_int_equal(fabric_post(ep, &r, 1, &r), 0);
		assert_int_equal(fabric_poll(ep, &done, 1), 1);
		assert_ptr_equal(done.cookie, &r);
		assert_int_equal(done.status, -TARN_ESESSION);
		assert_int_equal(found, 0);
		assert_non_null(strstr(err_text(), "not what it found there"));
		end();
	}
}

static void test_completion_errors(void **state)
{
	(void)state;
	for (unsigned status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; status++) {
		for (unsigned at = 1; at < 4 * POSTS; at += 1 + (unsigned)any(25)) {
			bool posted[POSTS + 1], failed = false;
			unsigned count;

			open_endpoint();
			fake.wc_error_at = at;
			fake.wc_error = (enum ibv_wc_status)status;
			count = post_all(posted);
			assert_int_equal(take_all(count), -TARN_ESESSION);
			each_ended_once(posted);
			for (unsigned i = 0; i < POSTS; i++) {
				if (cookies[i].status)
					failed = true;
				else
					assert_false(failed); /* in order */
			}
			assert_true(failed);
			is_lost(verbs_status_name((enum ibv_wc_status)status));
			end();
		}
	}
}

static void test_completion_errors_cpu(void **state)
{
	(void)state;
	for (unsigned at = 1; at < 4 * POSTS; at++) {
		bool posted[POSTS + 1];
		unsigned count;

		begin();
		far.reply.atomics = LAYOUT_ATOMICS_CPU;
		far_encode();
		assert_int_equal(connect_now(), 0);
		fake.wc_error_at = at;
		fake.wc_error = IBV_WC_RETRY_EXC_ERR;
		count = post_all(posted);
		assert_int_equal(take_all(count), -TARN_ESESSION);
		each_ended_once(posted);
		is_lost("RETRY_EXC_ERR");
		end();
	}
}

/* A completion that fails later does not replace the first one's status in the text. */
static void test_first_status_counts(void **state)
{
	bool posted[POSTS + 1];
	unsigned count;

	(void)state;
	open_endpoint();
	fake.hold = true;
	count = post_all(posted);
	fake.wc_error_at = 9;
	fake.wc_error = IBV_WC_REM_ACCESS_ERR;
	fake_run(fake_nth_qp(0), 1000); /* the error, and all the flushes, stand in the queue */
	fake.hold = false;
	assert_int_equal(take_all(count), -TARN_ESESSION);
	each_ended_once(posted);
	is_lost("REM_ACCESS_ERR");
	end();
}

/* Any call may fail at any time: all posts end exactly once, nothing is left. */
static void runtime_failures(bool cpu, bool iwarp, int error)
{
	unsigned long n = 0;
	int more;

	do {
		bool posted[POSTS + 1];
		unsigned count;
		int ret;

		begin();
		if (iwarp)
			fake_iwarp(&fake.devices[0]);
		far.reply.atomics = cpu ? LAYOUT_ATOMICS_CPU : LAYOUT_ATOMICS_NIC;
		far_encode();
		address.settings.spin_us = 5;
		assert_int_equal(connect_now(), 0);
		fake.calls = 0;
		fake.failed[0] = '\0';
		n += n < 100 ? 1 : 3;
		fake.fail_at = n;
		fake.fail_errno = error;
		if (n % 2)
			assert_true(ep->ops->fd(ep) >= 0 || fake.failed[0]);
		count = post_all(posted);
		ep->ops->check(ep);
		ep->ops->wait(ep, 2000000);
		ret = take_all(count);
		each_ended_once(posted);
		if (ret == 0)
			for (unsigned i = 0; i < POSTS; i++)
				assert_true(!posted[i] || cookies[i].status == 0);
		more = fake.failed[0];
		fake.fail_at = 0;
		end();
	} while (more);
	assert_in_range(n, 20, 2000);
}

static void test_runtime_failures(void **state)
{
	(void)state;
	runtime_failures(false, false, EIO);
	runtime_failures(true, false, ENOMEM);
	runtime_failures(true, true, EINVAL);
}

/* siw says -22, others say 22: the text has the words either way. */
static void test_post_fails(void **state)
{
	(void)state;
	for (int negative = 0; negative < 2; negative++) {
		uint64_t word = 0;
		struct fabric_request r = fabric_read(0, &word, 8);
		struct fabric_completion done = {0};

		open_endpoint();
		fake.devices[0].negative_errno = negative;
		fake.fail_at = fake.calls + 1;
		fake.fail_errno = EINVAL;
		assert_int_equal(fabric_post(ep, &r, 1, &word), 0);
		assert_string_equal(fake.failed, "ibv_post_send");
		assert_int_equal(fabric_poll(ep, &done, 1), 1);
		assert_ptr_equal(done.cookie, &word);
		assert_int_equal(done.status, -TARN_ESESSION);
		is_lost("Invalid argument");
		end();
	}
}

/* Whatever the connection manager says while it works; each event is acknowledged (fake_end). */
static void test_events_while_connected(void **state)
{
	(void)state;
	for (unsigned type = 0; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
		bool ends = type == RDMA_CM_EVENT_DISCONNECTED ||
			    type == RDMA_CM_EVENT_DEVICE_REMOVAL ||
			    type == RDMA_CM_EVENT_ADDR_CHANGE ||
			    type == RDMA_CM_EVENT_TIMEWAIT_EXIT ||
			    type == RDMA_CM_EVENT_CONNECT_ERROR ||
			    type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_REJECTED;
		const char *name = verbs_event_name((enum rdma_cm_event_type)type);
		uint64_t word = 0;

		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		for (unsigned how = 0; how < 3; how++) {
			struct fabric_completion done;
			struct fake_record *record;

			open_endpoint();
			record = fake_last_record();
			if (how == 2)
				assert_true(ep->ops->fd(ep) >= 0);
			fake_event(record->id, (enum rdma_cm_event_type)type, 0, NULL, 0);
			if (how == 0)
				ep->ops->check(ep);
			else if (how == 1)
				ep->ops->wait(ep, 10000000);
			else
				fabric_poll(ep, &done, 1);
			assert_int_equal(fake_pending_events(record->id->channel), 0);
			if (ends)
				is_lost(name);
			else
				one(fabric_read(0, &word, 8));
			end();
		}
	}
}

/* A busy client that only polls learns of the end, too. */
static void test_event_found_by_polling(void **state)
{
	struct fabric_completion done;
	unsigned polls = 0;

	(void)state;
	open_endpoint();
	fake_event(fake_last_record()->id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	while (fabric_poll(ep, &done, 1) == 0)
		assert_true(++polls < 100000);
	is_lost("DISCONNECTED");
	end();
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void nic_runs(void)
{
	fake_run(fake_nth_qp(0), 1000);
}

/* Sleeps on the channel; each event is acknowledged exactly once (the fake counts). */
static void test_wait(void **state)
{
	struct fabric_completion done;

	(void)state;
	begin();
	address.settings.spin_us = 0;
	assert_int_equal(connect_now(), 0);
	for (unsigned i = 0; i < 200; i++) {
		uint64_t word = 0, from;
		struct fabric_request r = fabric_read(0, &word, 8);

		fake.hold = true;
		fake.idle = nic_runs;
		assert_int_equal(fabric_post(ep, &r, 1, &word), 0);
		from = fake.now_ns;
		assert_int_equal(ep->ops->wait(ep, 1000000000), 0);
		assert_in_range(fake.now_ns - from, 0, 20000000);
		assert_int_equal(fabric_poll(ep, &done, 1), 1);
		/* nothing comes: it does not return early for ever */
		fake.idle = NULL;
		from = fake.now_ns;
		for (unsigned k = 0; k < 20 && fake.now_ns - from < 100000000; k++)
			assert_int_equal(ep->ops->wait(ep, 100000000), 0);
		assert_in_range(fake.now_ns - from, 100000000, 300000000);
	}
	end();
}

/* Did the wait for a READ that completes in its sleep poll first? */
static bool wait_polls(void)
{
	struct fabric_completion done;
	uint64_t word = 0;
	struct fabric_request r = fabric_read(0, &word, 8);
	unsigned long before;

	fake.hold = true;
	fake.idle = nic_runs;
	assert_int_equal(fabric_post(ep, &r, 1, &word), 0);
	before = fake.cq_polls;
	assert_int_equal(ep->ops->wait(ep, 1000000000), 0);
	assert_int_equal(fabric_poll(ep, &done, 1), 1);
	return fake.cq_polls - before > 16;
}

/* Polling that was in vain some times in a row is left out, and tried now and then. */
static void test_vain_spin(void **state)
{
	unsigned polled = 0;

	(void)state;
	begin();
	fake.tick_ns = 1000;
	address.settings.spin_us = 200;
	assert_int_equal(connect_now(), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_true(wait_polls());
	for (unsigned i = 0; i < 80; i++)
		polled += wait_polls();
	assert_int_equal(polled, 10);
	end();
}

static bool readable(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	return poll(&pfd, 1, 0) > 0;
}

/* The descriptor is readable when poll has something, and not for ever. */
static void test_fd(void **state)
{
	struct fabric_completion done;
	uint64_t word = 0;
	struct fabric_request r = fabric_read(0, &word, 8);
	int fd;

	(void)state;
	open_endpoint();
	fd = ep->ops->fd(ep);
	assert_true(fd >= 0);
	assert_int_equal(ep->ops->fd(ep), fd);
	fake.hold = true;
	for (unsigned i = 0; i < 100; i++) {
		assert_false(readable(fd));
		assert_int_equal(fabric_post(ep, &r, 1, &word), 0);
		assert_int_equal(fabric_poll(ep, &done, 1), 0);
		assert_false(readable(fd));
		nic_runs();
		assert_true(readable(fd));
		assert_int_equal(fabric_poll(ep, &done, 1), 1);
		assert_int_equal(fabric_poll(ep, &done, 1), 0);
		assert_false(readable(fd));
	}
	fake_event(fake_last_record()->id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	assert_true(readable(fd));
	is_lost("DISCONNECTED");
	end();
}

static void nic_runs_before(struct ibv_cq *cq)
{
	(void)cq;
	nic_runs();
}

/* A completion that comes between the last look and the arming makes no event: it is found all the
 * same, before anybody sleeps. */
static void test_arming(void **state)
{
	struct fabric_completion done;
	uint64_t word = 0, from;
	struct fabric_request r = fabric_read(0, &word, 8);

	(void)state;
	for (unsigned how = 0; how < 2; how++) {
		begin();
		address.settings.spin_us = 0;
		assert_int_equal(connect_now(), 0);
		if (how == 1)
			assert_true(ep->ops->fd(ep) >= 0);
		fake.hold = true;
		for (unsigned i = 0; i < 20; i++) {
			assert_int_equal(fabric_post(ep, &r, 1, &word), 0);
			if (how == 1) /* takes the event of before, if there is one, and arms */
				nic_runs();
			else
				fake.arming = nic_runs_before;
			from = fake.now_ns;
			assert_int_equal(ep->ops->wait(ep, 1000000000), 0);
			assert_in_range(fake.now_ns - from, 0, 10000000);
			assert_int_equal(fabric_poll(ep, &done, 1), 1);
			/* the next one comes when the poll above has armed, or before it does */
			fake.arming = nic_runs_before;
			assert_int_equal(fabric_post(ep, &r, 1, &word), 0);
			if (fabric_poll(ep, &done, 1) == 0) {
				nic_runs();
				if (how == 1)
					assert_true(readable(ep->ops->fd(ep)));
				assert_int_equal(fabric_poll(ep, &done, 1), 1);
			}
			fake.arming = NULL;
			assert_int_equal(fabric_poll(ep, &done, 1), 0);
		}
		end();
	}
}

/* An atomic by RPC that is not answered is not waited for without end; nothing is posted again. */
static void test_rpc_atomic_never_answered(void **state)
{
	uint64_t before = 0;
	struct fabric_request r = faa_of(0, &before, 1);
	struct fabric_completion done = {0};
	unsigned waits = 0;

	(void)state;
	begin();
	far.reply.atomics = LAYOUT_ATOMICS_CPU;
	far_encode();
	assert_int_equal(connect_now(), 0);
	far.mute = true;
	assert_int_equal(fabric_post(ep, &r, 1, &before), 0);
	while (fabric_poll(ep, &done, 1) == 0) {
		ep->ops->wait(ep, 100000000);
		assert_true(++waits < 1000);
	}
	assert_int_equal(done.status, -TARN_ESESSION);
	assert_int_equal(far.rpcs, 1);
	is_lost("has not answered");
	end();
}

/*
 * The message has arrived and its answer never comes, for the connection is dead: the NIC has nothing
 * under way that could fail. Found out long before the call's time limit.
 */
static void test_asking_the_dead(void **state)
{
	uint8_t reply[WIRE_RPC_REPLY_BYTES];
	struct fabric_completion done = {0};
	uint64_t from;

	(void)state;
	open_endpoint();
	far.mute = true;
	assert_int_equal(rpc_send(1, reply, sizeof(reply), reply), 0);
	from = fake.now_ns;
	while (fake.now_ns - from < 3000000000) {
		assert_int_equal(fabric_poll(ep, &done, 1), 0); /* it answers no RPC, but READs */
		ep->ops->wait(ep, 100000000);
	}
	fake.wc_error_at = 1;
	fake.wc_error = IBV_WC_RETRY_EXC_ERR;
	from = fake.now_ns;
	while (fabric_poll(ep, &done, 1) == 0)
		ep->ops->wait(ep, 100000000);
	assert_in_range(fake.now_ns - from, 1, 1000000000);
	assert_ptr_equal(done.cookie, reply);
	assert_int_equal(done.status, -TARN_ESESSION);
	is_lost("RETRY_EXC_ERR");
	end();
}

/* iWARP has no ack timeout: what does not get on is given up before G - D is over. */
static void stall(bool iwarp, uint64_t least_ns, uint64_t most_ns)
{
	uint64_t word = 0, from;
	struct fabric_request r = fabric_read(0, &word, 8);
	struct fabric_completion done = {0};

	begin();
	if (iwarp) {
		fake_iwarp(&fake.devices[0]);
		far.reply.atomics = LAYOUT_ATOMICS_CPU;
	}
	far_encode();
	assert_int_equal(connect_now(), 0);
	fake_pass_ns(10000000000); /* idle for long: not a stall */
	fake.hold = true;
	assert_int_equal(fabric_post(ep, &r, 1, &word), 0);
	assert_int_equal(fabric_poll(ep, &done, 1), 0);
	from = fake.now_ns;
	while (fabric_poll(ep, &done, 1) == 0)
		ep->ops->wait(ep, 10000000);
	assert_in_range(fake.now_ns - from, least_ns, most_ns);
	assert_int_equal(done.status, -TARN_ESESSION);
	is_lost("no request has completed");
	end();
}

/* Nothing else bounds TCP's retries; and a NIC that neither completes nor fails a request. */
static void test_stall(void **state)
{
	(void)state;
	stall(true, 100000000, 600000000);
	stall(false, 1000000000, 2000000000);
}

/* ---- all of it at once ----------------------------------------------------------------------- */

#define CROWD 64u

static struct {
	unsigned owed;
	uint64_t words[FABRIC_POST_MAX];
} crowd[CROWD];
static bool rpc_owed;
static uint8_t crowd_reply[WIRE_RPC_MAX_BYTES];

static void crowd_take(int n, const struct fabric_completion *done)
{
	for (int i = 0; i < n; i++) {
		if (done[i].cookie == crowd_reply) {
			assert_true(rpc_owed);
			rpc_owed = false;
			continue;
		}
		for (unsigned k = 0; k < CROWD; k++) {
			if (done[i].cookie != &crowd[k])
				continue;
			if (crowd[k].owed != 1)
				fail_msg("post %u has ended too often", k);
			crowd[k].owed = 0;
		}
	}
}

static void crowd_post(void)
{
	struct fabric_request requests[FABRIC_POST_MAX];
	unsigned k = (unsigned)any(CROWD), count = 1 + (unsigned)any(any(2) ? 4 : FABRIC_POST_MAX);

	if (crowd[k].owed)
		return;
	for (unsigned i = 0; i < count; i++) {
		uint64_t at = 8 * any(POOL_BYTES / 8);

		switch (any(4)) {
		case 0:
			requests[i] = fabric_read(at, &crowd[k].words[i], 8);
			break;
		case 1:
			requests[i] = write_of(at, &crowd[k].words[i], 8);
			requests[i].flags = (uint8_t)any(4);
			break;
		case 2:
			requests[i] = cas_of(at, &crowd[k].words[i], any(2), any(2));
			break;
		default:
			requests[i] = faa_of(at, &crowd[k].words[i], 1);
		}
	}
	crowd[k].owed = fabric_post(ep, requests, count, &crowd[k]) == 0;
}

static void crowd_trouble(void)
{
	switch (any(300)) {
	case 0:
		fake.wc_error_at = 1 + any(100);
		fake.wc_error = (enum ibv_wc_status)(IBV_WC_LOC_LEN_ERR + any(20));
		break;
	case 1:
		fake.fail_at = fake.calls + 1 + any(100);
		break;
	case 2:
		fake_event(fake_last_record()->id, (enum rdma_cm_event_type)(9 + any(7)), 0, NULL,
			   0);
		break;
	case 3:
		far.garble = any(2) ? garble_status : garble_short;
		break;
	case 4:
		fake_break(fake_nth_qp(0));
		break;
	default:
		far.mute = any(20) == 0;
	}
}

static void crowd_step(void)
{
	struct fabric_completion done[8];

	switch (any(8)) {
	case 0:
	case 1:
		crowd_post();
		break;
	case 2:
		if (!rpc_owed)
			rpc_owed = rpc_send((uint32_t)any(UINT32_MAX), crowd_reply,
					    sizeof(crowd_reply), crowd_reply) == 0;
		break;
	case 3:
		if (any(4) == 0) {
			ep->ops->rpc_cancel(ep);
			rpc_owed = false;
		}
		break;
	case 4:
		ep->ops->wait(ep, any(3000000));
		break;
	case 5:
		if (any(20) == 0)
			assert_true(ep->ops->fd(ep) >= 0);
		ep->ops->check(ep);
		break;
	default:
		crowd_take(fabric_poll(ep, done, 1 + (unsigned)any(8)), done);
	}
}

/* Whatever happens: each post ends once, an RPC once or, given up, not at all. */
static void crowd_round(unsigned round)
{
	struct fabric_completion done[8];
	unsigned long waits = 0;
	int n;

	begin();
	if (round % 3 == 2)
		fake_iwarp(&fake.devices[0]);
	far.reply.atomics = round % 3 ? LAYOUT_ATOMICS_CPU : LAYOUT_ATOMICS_NIC;
	far_encode();
	address.settings.spin_us = 3;
	assert_int_equal(connect_now(), 0);
	memset(crowd, 0, sizeof(crowd));
	rpc_owed = false;
	fake.rnr_is_fatal = false;
	fake.hold = any(2);
	fake.idle = nic_goes_on;
	for (unsigned i = 0; i < 1500; i++) {
		crowd_step();
		if (round % 4)
			crowd_trouble();
		if (any(3) == 0)
			nic_goes_on();
	}
	far.mute = false;
	ep->ops->rpc_cancel(ep); /* its answer may be one that was not given */
	rpc_owed = false;
	while ((n = fabric_poll(ep, done, 8)) >= 0 && waits++ < 500) {
		crowd_take(n, done);
		ep->ops->wait(ep, 100000000);
	}
	for (unsigned k = 0; k < CROWD; k++)
		if (crowd[k].owed)
			fail_msg("round %u: post %u never ends", round, k);
	end();
}

/* TARN_TEST_ROUNDS=N: more of them; TARN_TEST_FIRST=N: from there. */
static unsigned number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static unsigned crowd_at;

static int crowd_failed(void **state)
{
	(void)state;
	if (crowd_at)
		print_error("it was TARN_TEST_FIRST=%u TARN_TEST_ROUNDS=1\n", crowd_at - 1);
	return 0;
}

static void test_crowd(void **state)
{
	unsigned first = number("TARN_TEST_FIRST", 0), rounds = number("TARN_TEST_ROUNDS", 96);

	(void)state;
	for (unsigned round = first; round < first + rounds; round++) {
		crowd_at = round + 1;
		seed = 5000 + round;
		crowd_round(round);
	}
	crowd_at = 0;
}

/* ---- hostile messages ------------------------------------------------------------------------ */

static void test_hostile_messages(void **state)
{
	static const uint8_t bytes[WIRE_RPC_MAX_BYTES * 2];
	static const uint32_t lengths[] = {0, 1, 7, 8, 32, 64, 65, 128};

	(void)state;
	for (unsigned busy = 0; busy < 3; busy++) {
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			uint8_t reply[8];
			uint64_t before = 0;
			struct fabric_request r = faa_of(0, &before, 1);
			struct fabric_completion done[2];
			int n;

			begin();
			far.reply.atomics = LAYOUT_ATOMICS_CPU;
			far_encode();
			assert_int_equal(connect_now(), 0);
			far.mute = true;
			if (busy == 1)
				assert_int_equal(rpc_send(1, reply, sizeof(reply), reply), 0);
			if (busy == 2)
				assert_int_equal(fabric_post(ep, &r, 1, &before), 0);
			assert_int_equal(fabric_poll(ep, done, 2), 0);
			assert_true(fake_deliver(fake_nth_qp(0), bytes, lengths[i]));
			n = fabric_poll(ep, done, 2);
			if (busy) {
				assert_int_equal(n, 1);
				assert_int_equal(done[0].status, -TARN_ESESSION);
			}
			is_lost("");
			end();
		}
	}
}

static void test_atomic_refused(void **state)
{
	static bool (*const garbles[])(const struct wire_rpc *, uint8_t *,
				       uint32_t *) = {garble_status, garble_type, garble_short};

	(void)state;
	for (size_t i = 0; i < sizeof(garbles) / sizeof(garbles[0]); i++) {
		uint64_t before = 0;
		struct fabric_request r = cas_of(0, &before, 0, 1);
		struct fabric_completion done = {0};

		begin();
		far.reply.atomics = LAYOUT_ATOMICS_CPU;
		far_encode();
		assert_int_equal(connect_now(), 0);
		far.garble = garbles[i];
		assert_int_equal(fabric_post(ep, &r, 1, &before), 0);
		assert_int_equal(fabric_poll(ep, &done, 1), 1);
		assert_int_equal(done.status, -TARN_ESESSION);
		is_lost("given up");
		end();
	}
}

/* More posts than the endpoint can remember: -EAGAIN, and nothing is forgotten. */
static void test_too_many_posts(void **state)
{
	struct fabric_completion done[16];
	uint64_t word = 0;
	struct fabric_request r = fabric_read(0, &word, 8);
	unsigned posted = 0;
	int ret;

	(void)state;
	open_endpoint();
	while ((ret = fabric_post(ep, &r, 1, &word)) == 0)
		assert_true(++posted < 100000);
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(fabric_poll(ep, done, 16), 16);
	assert_int_equal(fabric_post(ep, &r, 1, &word), 0);
	finish(posted - 16 + 1);
	end();
}

/* ---- what a device says of itself ------------------------------------------------------------ */

/* soft-RoCE registers less at once than it says; with others their word counts, soft-RoCE's own if it is less. */
static void test_device_regions(void **state)
{
	struct ibv_device_attr *attr = &fake.devices[0].attr;
	struct verbs_device device;

	(void)state;
	begin();
	attr->max_mr_size = UINT64_MAX;
	attr->vendor_id = 0x2c9;
	assert_int_equal(verbs_device_query(fake_context(0), 1, &device), 0);
	assert_true(device.attr.max_mr_size == UINT64_MAX);
	attr->vendor_id = 0xffffff;
	assert_int_equal(verbs_device_query(fake_context(0), 1, &device), 0);
	assert_true(device.attr.max_mr_size == 512ull << 20);
	attr->max_mr_size = 64u << 20;
	assert_int_equal(verbs_device_query(fake_context(0), 1, &device), 0);
	assert_true(device.attr.max_mr_size == 64u << 20);
	fake_nothing_left("a device that was asked");
	end();
}

/* ---- the daemon's pair ----------------------------------------------------------------------- */

static uint8_t pair_memory[8192];

/* 0 or a negative code; all that is made here is gone again then. */
static int pair_open(struct ibv_pd **ret_pd, struct ibv_mr **ret_mr)
{
	struct verbs_device device;
	struct wire_region region;
	int ret = verbs_device_query(fake_context(0), 1, &device);

	ep = NULL;
	if (ret < 0)
		return ret;
	fake.fail_at += fake.fail_at ? 2 : 0; /* the test's own two calls */
	*ret_pd = ibv_alloc_pd(fake_context(0));
	*ret_mr = ibv_reg_mr(*ret_pd, pair_memory, sizeof(pair_memory),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	region = (struct wire_region){.address = (uintptr_t)pair_memory,
				      .length = sizeof(pair_memory),
				      .rkey = (*ret_mr)->rkey};
	ret = fabric_verbs_pair(&device, *ret_pd, &region, 1, &ep);
	if (ret < 0) {
		ibv_dereg_mr(*ret_mr);
		ibv_dealloc_pd(*ret_pd);
	}
	return ret;
}

static void test_pair(void **state)
{
	uint64_t words[3] = {0}, value = 40;
	struct fabric_request requests[] = {write_of(64, &value, 8), faa_of(64, &words[0], 2),
					    cas_of(64, &words[1], 42, 43),
					    fabric_read(64, &words[2], 8)};
	struct fabric_completion done;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	(void)state;
	begin();
	assert_int_equal(pair_open(&pd, &mr), 0);
	assert_int_equal(fabric_post(ep, requests, 4, &value), 0);
	finish(1);
	assert_int_equal(words[0], 40);
	assert_int_equal(words[1], 42);
	assert_int_equal(words[2], 43);
	assert_int_equal(ep->ops->rpc(ep, words, 8, words, 8, words), -EOPNOTSUPP);
	assert_int_equal(ep->ops->check(ep), 0);
	assert_int_equal(ep->ops->wait(ep, 1000000), 0);
	/* the initiator side may be written to by nobody */
	for (unsigned i = 0; i < 2; i++)
		if (fake_qp_init(fake_nth_qp(i))->cap.max_send_wr > 1)
			assert_int_equal(fake_qp_access(fake_nth_qp(i)), 0);
	/* found out when it is used */
	fake_break(fake_nth_qp(0));
	fake_break(fake_nth_qp(1));
	assert_int_equal(fabric_post(ep, requests, 1, &value), 0);
	assert_int_equal(fabric_poll(ep, &done, 1), 1);
	assert_int_equal(done.status, -TARN_ESESSION);
	assert_int_equal(fabric_poll(ep, &done, 1), -TARN_ESESSION);
	assert_non_null(strstr(err_text(), "WR_FLUSH_ERR"));
	ep->ops->close(ep);
	ep = NULL;
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	end();
}

/* As many CAS as a post can have: all are done, in this order, before the one completion. */
static void test_pair_many(void **state)
{
	struct fabric_request requests[FABRIC_POST_MAX];
	uint64_t words[FABRIC_POST_MAX], first = 40;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	(void)state;
	begin();
	assert_int_equal(pair_open(&pd, &mr), 0);
	memcpy(pair_memory + 64, &first, sizeof(first));
	for (unsigned i = 0; i < FABRIC_POST_MAX; i++)
		requests[i] = cas_of(64, &words[i], 40 + i, 41 + i);
	for (unsigned round = 0; round < 3; round++) {
		memcpy(pair_memory + 64, &first, sizeof(first));
		memset(words, 0, sizeof(words));
		assert_int_equal(fabric_post(ep, requests, FABRIC_POST_MAX, words), 0);
		finish(1);
		for (unsigned i = 0; i < FABRIC_POST_MAX; i++)
			assert_int_equal(words[i], 40 + i);
	}
	ep->ops->close(ep);
	ep = NULL;
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	end();
}

static void test_pair_failures(void **state)
{
	unsigned long n = 0;
	int more;

	(void)state;
	do {
		struct ibv_pd *pd;
		struct ibv_mr *mr;
		int ret;

		begin();
		fake.memory = true;
		fake.fail_errno = ENOMEM;
		fake.fail_at = ++n;
		ret = pair_open(&pd, &mr);
		more = fake.failed[0];
		if (ret < 0) {
			refused(ret, fake.failed);
		} else {
			if (more && !survivable(fake.failed))
				fail_msg("%s: succeeded", fake.failed);
			ep->ops->close(ep);
			ep = NULL;
			ibv_dereg_mr(mr);
			ibv_dealloc_pd(pd);
		}
		fake.fail_at = 0;
		end();
	} while (more);
	assert_in_range(n, 10, 100);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void test_texts(void **state)
{
	(void)state;
	for (int i = -1; i <= 40; i++) {
		assert_string_not_equal(verbs_status_name((enum ibv_wc_status)i), "");
		assert_string_not_equal(verbs_status_text((enum ibv_wc_status)i), "");
		assert_string_not_equal(verbs_event_name((enum rdma_cm_event_type)i), "");
		assert_string_not_equal(verbs_event_text((enum rdma_cm_event_type)i), "");
		assert_string_not_equal(verbs_async_text((enum ibv_event_type)i), "");
		assert_string_not_equal(verbs_reject_text(i, false), "");
		assert_string_not_equal(verbs_reject_text(-i, true), "");
	}
	assert_string_equal(verbs_status_name(IBV_WC_RETRY_EXC_ERR), "RETRY_EXC_ERR");
	assert_string_equal(verbs_event_name(RDMA_CM_EVENT_ROUTE_ERROR), "ROUTE_ERROR");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_connect_iwarp),
		cmocka_unit_test(test_describe),
		cmocka_unit_test(test_setup_failures),
		cmocka_unit_test(test_events_in_setup),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_no_device),
		cmocka_unit_test(test_bad_addresses),
		cmocka_unit_test(test_replies_of_wrong_length),
		cmocka_unit_test(test_replies_garbled),
		cmocka_unit_test(test_replies_hostile),
		cmocka_unit_test(test_more_regions),
		cmocka_unit_test(test_more_regions_failures),
		cmocka_unit_test(test_rejects),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_settings_refused),
		cmocka_unit_test(test_t3),
		cmocka_unit_test(test_read_and_write),
		cmocka_unit_test(test_read_and_write_iwarp),
		cmocka_unit_test(test_order_nic),
		cmocka_unit_test(test_order_cpu),
		cmocka_unit_test(test_order_iwarp),
		cmocka_unit_test(test_order_small_device),
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_signaled),
		cmocka_unit_test(test_ring_wraps),
		cmocka_unit_test(test_rpc_atomics_order),
		cmocka_unit_test(test_refused_requests),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_no_bytes),
		cmocka_unit_test(test_rpc),
		cmocka_unit_test(test_rpc_cancel),
		cmocka_unit_test(test_rpc_cancel_answered),
		cmocka_unit_test(test_rpc_stale),
		cmocka_unit_test(test_rpc_cancel_unsent),
		cmocka_unit_test(test_result_missing),
		cmocka_unit_test(test_completion_errors),
		cmocka_unit_test(test_completion_errors_cpu),
		cmocka_unit_test(test_first_status_counts),
		cmocka_unit_test(test_runtime_failures),
		cmocka_unit_test(test_post_fails),
		cmocka_unit_test(test_events_while_connected),
		cmocka_unit_test(test_event_found_by_polling),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_vain_spin),
		cmocka_unit_test(test_fd),
		cmocka_unit_test(test_arming),
		cmocka_unit_test(test_rpc_atomic_never_answered),
		cmocka_unit_test(test_asking_the_dead),
		cmocka_unit_test(test_stall),
		cmocka_unit_test_teardown(test_crowd, crowd_failed),
		cmocka_unit_test(test_hostile_messages),
		cmocka_unit_test(test_atomic_refused),
		cmocka_unit_test(test_too_many_posts),
		cmocka_unit_test(test_device_regions),
		cmocka_unit_test(test_pair),
		cmocka_unit_test(test_pair_many),
		cmocka_unit_test(test_pair_failures),
		cmocka_unit_test(test_texts),
	};

	return cmocka_run_group_tests_name("verbs-connect", tests, NULL, NULL);
}
