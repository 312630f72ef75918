/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hostile.c - an RDMA client that says and does what no library would, for run-inside.py
 *
 *	hostile ADDRESS PORT [--OPTION VALUE]... [STEP ARGUMENT...]...
 *
 * Speaks librdmacm and libibverbs itself; of Tarn it uses only the encoding of messages. It sends a
 * handshake as the options say, prints what came back, then does the steps in order. Each prints one
 * line of JSON. Exit code 0 also when everything was refused; 2: wrong usage; 1: this machine.
 *
 * Options: --pool NAME, --versions MIN-MAX, --flags N, --magic N, --key FILE, --time MS, --nonce N,
 * --spoil OFFSET (flips a bit of the request there), --bytes N (of the request; iWARP sends just
 * these), --data HEX (instead of the request), --silent 1 (never answers the daemon's reply),
 * --rkey N and --address N (instead of the reply's first region), --depth N (READs in flight).
 *
 * Steps: read OFFSET BYTES, write OFFSET WORD, cas OFFSET COMPARE WORD, faa OFFSET DELTA, send HEX,
 * rpc TYPE OFFSET WORD DELTA, flood COUNT (RPCs, without looking at the replies), recv, wait MS, hold (until
 * standard input ends), imm OFFSET BYTES (a WRITE with immediate data), echo OFFSET BYTES COUNT (WRITE and READ back in one post, compared), ended MS (waits until the other side has disconnected).
 */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "auth.h"
#include "clock.h"
#include "wire.h"

#define PATIENCE_MS 20000
#define ENDED_MS    3000 /* for requests after the other side has disconnected: an answer would come at once */
#define RECVS       16u
#define BUFFER      65536u
#define MESSAGE     256u /* bytes of a RECV; longer ones fail on this side */
#define DATA_MAX    255u

struct hostile {
	struct wire_request request;
	const char *key_file, *address, *port;
	uint32_t magic;
	long spoil; /* byte whose lowest bit is flipped; -1: none */
	uint8_t data[DATA_MAX + 1];
	size_t bytes;
	bool raw, silent, have_rkey, have_address, ended;
	uint32_t rkey;
	uint64_t remote;
	uint8_t depth;

	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffer; /* first half: RECVs; second half: the rest */
	unsigned recvs_done;
	uint8_t received[MESSAGE];
	uint32_t received_bytes;
	int received_status; /* -1: nothing yet */
};

static void die(const char *what)
{
	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value =
		text[0] == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);

	if (*end || !*text) {
		fprintf(stderr, "hostile: '%s' is not a number\n", text);
		exit(2);
	}
	return value;
}

static size_t unhex(const char *text, uint8_t *to, size_t capacity)
{
	size_t n = 0;

	for (; text[0] && text[1] && n < capacity; text += 2) {
		unsigned byte;

		if (sscanf(text, "%2x", &byte) != 1)
			exit(2);
		to[n++] = (uint8_t)byte;
	}
	return n;
}

/* ---- options --------------------------------------------------------------------------------- */

static void set_option(struct hostile *h, const char *name, const char *value)
{
	if (!strcmp(name, "--pool")) {
		h->request.pool = wire_pool_hash(value);
	} else if (!strcmp(name, "--versions")) {
		unsigned low, high;

		if (sscanf(value, "%u-%u", &low, &high) != 2)
			exit(2);
		h->request.version_min = (uint8_t)low;
		h->request.version_max = (uint8_t)high;
	} else if (!strcmp(name, "--flags")) {
		h->request.flags = (uint16_t)number(value);
	} else if (!strcmp(name, "--magic")) {
		h->magic = (uint32_t)number(value);
	} else if (!strcmp(name, "--key")) {
		h->key_file = value;
	} else if (!strcmp(name, "--time")) {
		h->request.time_ms = number(value);
	} else if (!strcmp(name, "--nonce")) {
		h->request.nonce = number(value);
	} else if (!strcmp(name, "--spoil")) {
		h->spoil = (long)number(value);
	} else if (!strcmp(name, "--bytes")) {
		h->bytes = number(value) <= DATA_MAX ? number(value) : DATA_MAX;
	} else if (!strcmp(name, "--data")) {
		h->raw = true;
		h->bytes = unhex(value, h->data, DATA_MAX);
	} else if (!strcmp(name, "--silent")) {
		h->silent = number(value) != 0;
	} else if (!strcmp(name, "--rkey")) {
		h->have_rkey = true;
		h->rkey = (uint32_t)number(value);
	} else if (!strcmp(name, "--address")) {
		h->have_address = true;
		h->remote = number(value);
	} else if (!strcmp(name, "--depth")) {
		h->depth = (uint8_t)number(value);
	} else {
		fprintf(stderr, "hostile: unknown option %s\n", name);
		exit(2);
	}
}

static void make_request(struct hostile *h)
{
	struct auth_keys keys = {0};

	if (h->raw)
		return;
	if (h->key_file) {
		if (auth_init() < 0 || auth_keys_load(h->key_file, &keys) < 0 || keys.count != 1)
			die(h->key_file);
		memcpy(h->request.key_id, keys.keys[0].id, WIRE_KEY_ID_BYTES);
	}
	wire_request_encode(&h->request, h->data);
	for (unsigned i = 0; i < 4; i++)
		h->data[i] = (uint8_t)(h->magic >> 8 * i);
	if (h->key_file)
		auth_request_sign(&keys.keys[0], h->data);
	auth_keys_free(&keys);
	if (h->spoil >= 0 && h->spoil <= (long)DATA_MAX)
		h->data[h->spoil] ^= 1;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* The next event within this time, or NULL. To be acknowledged by the caller. */
static struct rdma_cm_event *next_event(struct hostile *h, int timeout_ms)
{
	struct pollfd fd = {.fd = h->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	if (poll(&fd, 1, timeout_ms) != 1 || rdma_get_cm_event(h->channel, &event))
		return NULL;
	return event;
}

/* Waits for a step of the connecting; false when another event came, which is printed. */
static bool expect(struct hostile *h, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(h, PATIENCE_MS);
	bool right = event && event->event == wanted;

	if (!right)
		printf("{\"answer\":\"error\",\"event\":\"%s\",\"status\":%d}\n",
		       event ? rdma_event_str(event->event) : "none", event ? event->status : 0);
	if (event)
		rdma_ack_cm_event(event);
	return right;
}

static bool resolve(struct hostile *h)
{
	uint8_t ack_timeout = 13;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *info;

	h->channel = rdma_create_event_channel();
	if (!h->channel || rdma_create_id(h->channel, &h->id, h, RDMA_PS_TCP))
		die("rdma_create_id");
	if (getaddrinfo(h->address, h->port, &hints, &info))
		die("getaddrinfo");
	if (rdma_resolve_addr(h->id, NULL, info->ai_addr, 5000))
		die("rdma_resolve_addr");
	freeaddrinfo(info);
	if (!expect(h, RDMA_CM_EVENT_ADDR_RESOLVED))
		return false;
	/* Else a request that nobody answers fails only after many seconds. */
	rdma_set_option(h->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
			sizeof(ack_timeout));
	if (rdma_resolve_route(h->id, 5000))
		die("rdma_resolve_route");
	return expect(h, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void post_recv(struct hostile *h, unsigned index)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(h->buffer + index * MESSAGE),
			      .length = MESSAGE,
			      .lkey = h->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1000 + index, .sg_list = &sge, .num_sge = 1}, *bad;

	if (ibv_post_recv(h->qp, &wr, &bad))
		die("ibv_post_recv");
}

static void make_queues(struct hostile *h)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.sq_sig_all = 1,
					.cap = {.max_send_wr = 64,
						.max_recv_wr = RECVS,
						.max_send_sge = 1,
						.max_recv_sge = 1}};

	h->buffer = aligned_alloc(4096, 2 * (size_t)BUFFER);
	h->pd = ibv_alloc_pd(h->id->verbs);
	h->cq = ibv_create_cq(h->id->verbs, 256, NULL, NULL, 0);
	if (!h->buffer || !h->pd || !h->cq)
		die("queues");
	memset(h->buffer, 0, 2 * (size_t)BUFFER);
	h->mr = ibv_reg_mr(h->pd, h->buffer, 2 * (size_t)BUFFER, IBV_ACCESS_LOCAL_WRITE);
	if (!h->mr)
		die("ibv_reg_mr");
	init.send_cq = init.recv_cq = h->cq;
	if (h->silent) {
		/* librdmacm would answer by itself for a queue pair that it knows. */
		h->qp = ibv_create_qp(h->pd, &init);
		if (!h->qp)
			die("ibv_create_qp");
		return;
	}
	if (rdma_create_qp(h->id, h->pd, &init))
		die("rdma_create_qp");
	h->qp = h->id->qp;
	for (unsigned i = 0; i < RECVS; i++)
		post_recv(h, i);
}

static void print_accept(struct hostile *h, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	struct wire_reply reply = {0};
	int ret = wire_reply_decode(param->private_data,
				    param->private_data_len < WIRE_REPLY_BYTES
					    ? param->private_data_len
					    : WIRE_REPLY_BYTES,
				    &reply);

	printf("{\"answer\":\"accept\",\"bytes\":%u,\"decoded\":%d,\"role\":%u,\"atomics\":%u,"
	       "\"client_id\":%" PRIu32 ",\"slot\":%u,\"boot_id\":%" PRIu64
	       ",\"regions\":%u,\"address\":%" PRIu64 ",\"length\":%" PRIu64 ",\"rkey\":%" PRIu32
	       ",\"pool_bytes\":%" PRIu64 ",\"depth\":%u,\"resources\":%u}\n",
	       param->private_data_len, ret, reply.role, reply.atomics, reply.client_id,
	       reply.client_slot, reply.boot_id, reply.region_count, reply.regions[0].address,
	       reply.regions[0].length, reply.regions[0].rkey, reply.pool_bytes,
	       param->initiator_depth, param->responder_resources);
	if (!h->have_rkey)
		h->rkey = reply.regions[0].rkey;
	if (!h->have_address)
		h->remote = reply.regions[0].address;
}

static void print_reject(const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	struct wire_reject reject = {0};
	int ret = param->private_data_len >= WIRE_REJECT_BYTES
			  ? wire_reject_decode(param->private_data, WIRE_REJECT_BYTES, &reject)
			  : -1;

	printf("{\"answer\":\"reject\",\"status\":%d,\"bytes\":%u,\"decoded\":%d,\"reason\":%u,"
	       "\"detail\":%" PRIu64 ",\"retry_ms\":%" PRIu32 "}\n",
	       event->status, param->private_data_len, ret, reject.reason, reject.detail,
	       reject.retry_after_ms);
}

static bool handshake(struct hostile *h)
{
	struct rdma_conn_param param = {.private_data = h->data,
					.private_data_len = (uint8_t)h->bytes,
					.initiator_depth = h->depth,
					.responder_resources = h->depth,
					.retry_count = 7,
					.rnr_retry_count = 6};
	struct rdma_cm_event *event;
	bool accepted;

	if (h->silent)
		param.qp_num = h->qp->qp_num;
	if (rdma_connect(h->id, &param)) {
		printf("{\"answer\":\"error\",\"event\":\"rdma_connect\",\"status\":%d}\n", errno);
		return false;
	}
	event = next_event(h, PATIENCE_MS);
	if (!event) {
		printf("{\"answer\":\"error\",\"event\":\"none\",\"status\":0}\n");
		return false;
	}
	accepted = event->event == RDMA_CM_EVENT_ESTABLISHED ||
		   event->event == RDMA_CM_EVENT_CONNECT_RESPONSE;
	if (accepted)
		print_accept(h, event);
	else if (event->event == RDMA_CM_EVENT_REJECTED)
		print_reject(event);
	else
		printf("{\"answer\":\"error\",\"event\":\"%s\",\"status\":%d}\n",
		       rdma_event_str(event->event), event->status);
	rdma_ack_cm_event(event);
	return accepted;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Takes one completion; what a RECV brought is kept for the step recv. False: nothing came. */
static bool take(struct hostile *h, bool *ret_send, int *ret_status)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(h->cq, 1, &wc) != 1)
		return false;
	*ret_send = wc.wr_id < 1000;
	*ret_status = (int)wc.status;
	if (*ret_send)
		return true;
	h->received_status = (int)wc.status;
	if (wc.status == IBV_WC_SUCCESS) {
		unsigned index = (unsigned)(wc.wr_id - 1000);

		h->received_bytes = wc.byte_len < MESSAGE ? wc.byte_len : MESSAGE;
		memcpy(h->received, h->buffer + index * MESSAGE, h->received_bytes);
		post_recv(h, index);
	}
	return true;
}

/* Waits for a send's completion, or for a received message. */
static int wait_completion(struct hostile *h, bool send)
{
	uint64_t end = clock_now_ns() + (h->ended ? ENDED_MS : PATIENCE_MS) * 1000000ull;
	int status = -1;
	bool is_send;

	while (clock_now_ns() < end) {
		if (!send && h->received_status >= 0)
			return h->received_status;
		if (!take(h, &is_send, &status))
			usleep(200);
		else if (send && is_send)
			return status;
	}
	return -1;
}

static void one_sided(struct hostile *h, const char *name, enum ibv_wr_opcode opcode, char **argv)
{
	uint8_t *local = h->buffer + BUFFER;
	uint64_t offset = number(argv[0]), word = 0;
	uint32_t length = opcode == IBV_WR_RDMA_READ ? (uint32_t)number(argv[1]) : 8;
	struct ibv_sge sge = {.addr = (uintptr_t)local, .length = length, .lkey = h->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
	int ret, status = -1;

	if (opcode == IBV_WR_RDMA_WRITE) {
		word = number(argv[1]);
		memcpy(local, &word, 8);
	}
	wr.wr.rdma.remote_addr = h->remote + offset;
	wr.wr.rdma.rkey = h->rkey;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = h->remote + offset;
		wr.wr.atomic.rkey = h->rkey;
		wr.wr.atomic.compare_add = number(argv[1]);
		wr.wr.atomic.swap = opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? number(argv[2]) : 0;
	}
	ret = ibv_post_send(h->qp, &wr, &bad);
	if (ret == 0)
		status = wait_completion(h, true);
	memcpy(&word, local, 8);
	printf("{\"step\":\"%s\",\"post\":%d,\"status\":%d,\"text\":\"%s\",\"word\":%" PRIu64 "}\n",
	       name, ret, status,
	       status < 0 ? "none" : ibv_wc_status_str((enum ibv_wc_status)status), word);
}

/* A WRITE that takes a receive of the daemon, but brings no message. */
static void step_imm(struct hostile *h, char **argv)
{
	struct ibv_sge sge = {.addr = (uintptr_t)(h->buffer + BUFFER),
			      .length = (uint32_t)number(argv[1]),
			      .lkey = h->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM},
			   *bad;

	wr.wr.rdma.remote_addr = h->remote + number(argv[0]);
	wr.wr.rdma.rkey = h->rkey;
	printf("{\"step\":\"imm\",\"status\":%d}\n",
	       ibv_post_send(h->qp, &wr, &bad) ? -1 : wait_completion(h, true));
}

static int send_message(struct hostile *h, const void *bytes, size_t count)
{
	uint8_t *local = h->buffer + BUFFER;
	struct ibv_sge sge = {
		.addr = (uintptr_t)local, .length = (uint32_t)count, .lkey = h->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
			   *bad;

	memcpy(local, bytes, count);
	return ibv_post_send(h->qp, &wr, &bad) ? -1 : wait_completion(h, true);
}

/*
 * Writes a pattern and reads it back in the same post, as Tarn's endpoint does: what is the
 * machine's fault shows here without it.
 */
static void step_echo(struct hostile *h, char **argv)
{
	uint8_t *from = h->buffer + BUFFER, *to = h->buffer + BUFFER / 2;
	uint64_t offset = number(argv[0]), count = number(argv[2]), done = 0, different = 0;
	uint32_t length = (uint32_t)number(argv[1]);
	struct ibv_sge source = {(uintptr_t)from, length, h->mr->lkey},
		       target = {(uintptr_t)to, length, h->mr->lkey};
	struct ibv_send_wr second = {.wr_id = 1,
				     .sg_list = &target,
				     .num_sge = 1,
				     .opcode = IBV_WR_RDMA_READ},
			   first = {.next = &second,
				    .wr_id = 1,
				    .sg_list = &source,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_WRITE},
			   *bad;
	int status = 0;

	if (length > BUFFER / 2)
		exit(2);
	first.wr.rdma.remote_addr = second.wr.rdma.remote_addr = h->remote + offset;
	first.wr.rdma.rkey = second.wr.rdma.rkey = h->rkey;
	for (; status == 0 && done < count; done++) {
		for (uint32_t i = 0; i < length; i++)
			from[i] = (uint8_t)((i / 64 * 7 + i + done * 31) % 251);
		memset(to, 0xee, length);
		status = ibv_post_send(h->qp, &first, &bad) ? -1 : wait_completion(h, true);
		if (status == 0)
			status = wait_completion(h, true);
		different += status == 0 && memcmp(from, to, length) != 0;
	}
	printf("{\"step\":\"echo\",\"status\":%d,\"done\":%" PRIu64 ",\"different\":%" PRIu64 "}\n",
	       status, done, different);
}

static void step_send(struct hostile *h, const char *hex)
{
	static uint8_t message[BUFFER];

	printf("{\"step\":\"send\",\"status\":%d}\n",
	       send_message(h, message, unhex(hex, message, sizeof(message))));
}

static void step_rpc(struct hostile *h, char **argv)
{
	struct wire_rpc rpc = {.type = (uint8_t)number(argv[0]),
			       .tag = 7,
			       .slot_offset = number(argv[1]),
			       .slot_word = number(argv[2]),
			       .delta = (int64_t)number(argv[3])};
	uint8_t message[WIRE_RPC_BYTES];

	wire_rpc_encode(&rpc, message);
	printf("{\"step\":\"rpc\",\"status\":%d}\n", send_message(h, message, sizeof(message)));
}

static void step_recv(struct hostile *h)
{
	int status = wait_completion(h, false);
	struct wire_rpc_reply reply = {0};
	int ret = status == 0 ? wire_rpc_reply_decode(h->received, h->received_bytes, &reply) : -1;

	h->received_status = -1;
	printf("{\"step\":\"recv\",\"status\":%d,\"bytes\":%" PRIu32
	       ",\"decoded\":%d,\"type\":%u,\"tag\":%" PRIu32 ",\"reply\":%" PRId32
	       ",\"value\":%" PRId64 "}\n",
	       status, h->received_bytes, ret, reply.type, reply.tag, reply.status, reply.value);
}

static void step_flood(struct hostile *h, uint64_t count)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PING};
	uint8_t message[WIRE_RPC_BYTES];
	struct rdma_cm_event *event = NULL;
	uint64_t sent = 0, done = 0, failed = 0, end = clock_now_ns() + PATIENCE_MS * 1000000ull;
	struct ibv_sge sge = {.addr = (uintptr_t)(h->buffer + BUFFER),
			      .length = sizeof(message),
			      .lkey = h->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
			   *bad;

	wire_rpc_encode(&rpc, message);
	memcpy(h->buffer + BUFFER, message, sizeof(message));
	while (done < count && clock_now_ns() < end) {
		bool is_send;
		int status;

		while (sent < count && sent - done < 60 && ibv_post_send(h->qp, &wr, &bad) == 0)
			sent++;
		while (take(h, &is_send, &status))
			if (is_send) {
				done++;
				failed += status != 0;
			}
		event = failed ? next_event(h, 5000) : next_event(h, 0);
		if (event || failed)
			break;
	}
	if (!event)
		event = next_event(h, 2000);
	printf("{\"step\":\"flood\",\"sent\":%" PRIu64 ",\"failed\":%" PRIu64
	       ",\"event\":\"%s\"}\n",
	       sent, failed, event ? rdma_event_str(event->event) : "none");
	if (event)
		rdma_ack_cm_event(event);
}

static void step_hold(void)
{
	char byte;

	printf("{\"step\":\"hold\"}\n");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
}

static void step_ended(struct hostile *h, int timeout_ms)
{
	uint64_t begin = clock_now_ns();
	struct rdma_cm_event *event = next_event(h, timeout_ms);

	printf("{\"step\":\"ended\",\"event\":\"%s\",\"ms\":%" PRIu64 "}\n",
	       event ? rdma_event_str(event->event) : "none", (clock_now_ns() - begin) / 1000000);
	h->ended = event != NULL;
	if (event)
		rdma_ack_cm_event(event);
}

/* Does one step; returns how many arguments it took, its name included. */
static int step(struct hostile *h, int argc, char **argv)
{
	static const struct {
		const char *name;
		int arguments;
	} steps[] = {{"read", 2},  {"write", 2}, {"cas", 3},  {"faa", 2},  {"send", 1},
		     {"rpc", 4},   {"flood", 1}, {"recv", 0}, {"wait", 1}, {"hold", 0},
		     {"ended", 1}, {"echo", 3},  {"imm", 2}};
	unsigned i;

	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (!strcmp(steps[i].name, argv[0]))
			break;
	if (i == sizeof(steps) / sizeof(steps[0]) || argc <= steps[i].arguments) {
		fprintf(stderr, "hostile: no step %s, or too few arguments\n", argv[0]);
		exit(2);
	}
	switch (i) {
	case 0:
		one_sided(h, "read", IBV_WR_RDMA_READ, argv + 1);
		break;
	case 1:
		one_sided(h, "write", IBV_WR_RDMA_WRITE, argv + 1);
		break;
	case 2:
		one_sided(h, "cas", IBV_WR_ATOMIC_CMP_AND_SWP, argv + 1);
		break;
	case 3:
		one_sided(h, "faa", IBV_WR_ATOMIC_FETCH_AND_ADD, argv + 1);
		break;
	case 4:
		step_send(h, argv[1]);
		break;
	case 5:
		step_rpc(h, argv + 1);
		break;
	case 6:
		step_flood(h, number(argv[1]));
		break;
	case 7:
		step_recv(h);
		break;
	case 8:
		usleep((useconds_t)number(argv[1]) * 1000);
		break;
	case 9:
		step_hold();
		break;
	case 12:
		step_imm(h, argv + 1);
		break;
	case 11:
		step_echo(h, argv + 1);
		break;
	case 10:
		step_ended(h, (int)number(argv[1]));
		break;
	}
	fflush(stdout);
	return steps[i].arguments + 1;
}

static void clean_up(struct hostile *h)
{
	if (h->id && h->id->qp)
		rdma_destroy_qp(h->id);
	else if (h->qp)
		ibv_destroy_qp(h->qp);
	if (h->mr)
		ibv_dereg_mr(h->mr);
	if (h->cq)
		ibv_destroy_cq(h->cq);
	if (h->pd)
		ibv_dealloc_pd(h->pd);
	if (h->id)
		rdma_destroy_id(h->id);
	if (h->channel)
		rdma_destroy_event_channel(h->channel);
	free(h->buffer);
}

int main(int argc, char **argv)
{
	struct hostile h = {.magic = WIRE_MAGIC,
			    .spoil = -1,
			    .bytes = WIRE_REQUEST_BYTES,
			    .depth = 4,
			    .received_status = -1};
	bool accepted;
	int i = 3;

	if (argc < 3)
		return 2;
	h.address = argv[1];
	h.port = argv[2];
	h.request = (struct wire_request){.version_min = WIRE_VERSION_MIN,
					  .version_max = WIRE_VERSION_MAX,
					  .pool = wire_pool_hash("main"),
					  .time_ms = clock_wall_ms(),
					  .nonce = (uint64_t)getpid() << 32 ^ clock_now_ns()};
	for (; i + 1 < argc && argv[i][0] == '-'; i += 2)
		set_option(&h, argv[i], argv[i + 1]);
	make_request(&h);
	accepted = resolve(&h);
	if (accepted) {
		make_queues(&h);
		accepted = handshake(&h);
	}
	fflush(stdout);
	while (accepted && i < argc)
		i += step(&h, argc - i, argv + i);
	clean_up(&h);
	return 0;
}
