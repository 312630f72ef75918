/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint.c - the client's verbs endpoint against a server of this file's own, on real devices
 *
 *	endpoint [ADDRESS DOMAIN]...     DOMAIN: cpu or nic; default: 10.77.0.1 cpu 10.77.0.1 nic 10.78.0.1 cpu
 *
 * The server is a child process. The pool's memory is shared with it, so what arrived is looked at
 * directly. How the server behaves is said by the request's pool number (enum mode). Prints TAP.
 * Runs inside tests/rdma/rdma-vm. Next: common/fabric-verbs.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>

#include "clock.h"
#include "err.h"
#include "fabric.h"
#include "layout.h"
#include "tarn/tarn.h"
#include "verbs.h"
#include "wire.h"

#define SECOND 1000000000ull
/*
 * Ack timeout of 67 ms: soft-RoCE in a virtual machine on a busy host stands still for longer than
 * the default's 7 * 8.4 ms now and then.
 */
#define PATIENT 14

enum mode {
	MODE_CPU,
	MODE_NIC,
	MODE_READER,       /* role read */
	MODE_BAD_RKEY,     /* region 1 has a wrong one */
	MODE_BUSY,         /* a reject of Tarn's */
	MODE_REJECT,       /* one without a word */
	MODE_SILENT,       /* no answer at all */
	MODE_GARBAGE,      /* accepts with bytes that are no reply */
	MODE_MANY_REGIONS, /* six: two of them by RPC */
	MODE_MUTE,         /* no RPC is answered */
	MODE_REFUSE,       /* atomics by RPC get an error */
	MODE_HANG_UP,      /* ends the connection at the first RPC */
	MODE_FENCE,        /* QP to the error state at the first RPC, without a word */
	MODE_MTU_512       /* a path MTU has to be set on both sides */
};

/* ---- the pool: pieces of one mapping, with gaps ---------------------------------------------- */

#define REGIONS 6u
#define STRIDE  (1u << 20)
static const uint32_t region_lengths[REGIONS] = {200008, 65536, 1000, 900000, 262144, 1000008};

static uint8_t *pool; /* MAP_SHARED */

static uint64_t pool_bytes(unsigned regions)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < regions; i++)
		sum += region_lengths[i];
	return sum;
}

/* Four regions, or all six; the layout is the same as far as they go. */
static unsigned regions_of(enum mode mode)
{
	return mode == MODE_MANY_REGIONS ? REGIONS : 4;
}

static uint8_t *at(uint64_t offset)
{
	unsigned i = 0;

	while (offset >= region_lengths[i])
		offset -= region_lengths[i++];
	return pool + (size_t)i * STRIDE + 4096 + offset;
}

static uint64_t word_at(uint64_t offset)
{
	return __atomic_load_n((uint64_t *)(void *)at(offset), __ATOMIC_SEQ_CST);
}

static void set_word(uint64_t offset, uint64_t value)
{
	__atomic_store_n((uint64_t *)(void *)at(offset), value, __ATOMIC_SEQ_CST);
}

/* ---- the server ------------------------------------------------------------------------------ */

#define CONNECTIONS 64
#define RECVS       8
#define MESSAGE     WIRE_RPC_MAX_BYTES

struct connection {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mrs[REGIONS], *messages_mr;
	uint8_t messages[2 * RECVS][MESSAGE];
	unsigned next_reply;
	enum mode mode;
	bool hangs_up;
};

struct server {
	struct rdma_event_channel *channel;
	struct ibv_comp_channel *completions;
	struct connection *connections[CONNECTIONS];
	struct rdma_cm_id *silent; /* of MODE_SILENT, until the next request comes */
};

static void die(const char *what)
{
	fprintf(stderr, "# server: %s: %s (%s)\n", what, err_text(), strerror(errno));
	_exit(3);
}

static void server_recv(struct connection *c, unsigned index)
{
	struct ibv_sge sge = {.addr = (uintptr_t)c->messages[index],
			      .length = MESSAGE,
			      .lkey = c->messages_mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1};

	if (ibv_post_recv(c->qp, &wr, &bad))
		die("post_recv");
}

static void server_send(struct connection *c, const struct wire_rpc_reply *reply)
{
	unsigned index = RECVS + c->next_reply++ % RECVS;
	struct ibv_sge sge = {.addr = (uintptr_t)c->messages[index],
			      .length = WIRE_RPC_REPLY_BYTES,
			      .lkey = c->messages_mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = index,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED};

	wire_rpc_reply_encode(reply, c->messages[index]);
	if (ibv_post_send(c->qp, &wr, &bad))
		fprintf(stderr, "# server: post_send failed\n");
}

static uint64_t execute(const struct wire_rpc *rpc)
{
	uint64_t *word = (uint64_t *)(void *)at(rpc->slot_offset), expected = rpc->slot_word;

	if (rpc->type == WIRE_RPC_FAA)
		return __atomic_fetch_add(word, (uint64_t)rpc->delta, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(word, &expected, (uint64_t)rpc->delta, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return expected;
}

static void server_rpc(struct connection *c, const uint8_t *message, uint32_t bytes)
{
	struct wire_rpc rpc;
	struct wire_rpc_reply reply = {.status = 0};

	if (wire_rpc_decode(message, bytes, &rpc) < 0)
		die("rpc");
	reply.type = rpc.type;
	reply.tag = rpc.tag;
	if (c->mode == MODE_MUTE)
		return;
	if (c->mode == MODE_HANG_UP) {
		/* the first message may be here before the connection counts as established: then this says 0, too, and does nothing */
		rdma_disconnect(c->id);
		c->hangs_up = true;
		return;
	}
	if (c->mode == MODE_FENCE) {
		verbs_qp_fence(c->qp);
		return;
	}
	if (rpc.type == WIRE_RPC_CAS || rpc.type == WIRE_RPC_FAA) {
		if (c->mode == MODE_REFUSE)
			reply.status = -TARN_EREADONLY;
		else
			reply.value = (int64_t)execute(&rpc);
	} else if (rpc.type == WIRE_RPC_REGION && rpc.class < REGIONS) {
		reply.value = (int64_t)(uintptr_t)(pool + (size_t)rpc.class * STRIDE + 4096);
		reply.length = region_lengths[rpc.class];
		reply.number = c->mrs[rpc.class]->rkey;
	} else {
		reply.value = rpc.delta;
	}
	server_send(c, &reply);
}

static void connection_free(struct server *s, struct connection *c)
{
	rdma_disconnect(c->id);
	if (c->qp)
		ibv_destroy_qp(c->qp);
	if (c->cq)
		ibv_destroy_cq(c->cq);
	for (unsigned i = 0; i < REGIONS; i++)
		if (c->mrs[i])
			ibv_dereg_mr(c->mrs[i]);
	if (c->messages_mr)
		ibv_dereg_mr(c->messages_mr);
	if (c->pd)
		ibv_dealloc_pd(c->pd);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (s->connections[i] == c)
			s->connections[i] = NULL;
	rdma_destroy_id(c->id);
	free(c);
}

static void connection_resources(struct server *s, struct connection *c,
				 const struct verbs_device *device)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 16,
						.max_recv_wr = RECVS,
						.max_send_sge = 1,
						.max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};
	unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	if (!device->iwarp)
		access |= (unsigned)IBV_ACCESS_REMOTE_ATOMIC;
	if (!s->completions)
		s->completions = ibv_create_comp_channel(c->id->verbs);
	c->pd = ibv_alloc_pd(c->id->verbs);
	c->cq = ibv_create_cq(c->id->verbs, 64, c, s->completions, 0);
	for (unsigned i = 0; i < REGIONS; i++) {
		c->mrs[i] = ibv_reg_mr(c->pd, pool + (size_t)i * STRIDE + 4096, region_lengths[i],
				       access);
		if (!c->mrs[i])
			die("reg_mr");
	}
	c->messages_mr =
		ibv_reg_mr(c->pd, c->messages, sizeof(c->messages), IBV_ACCESS_LOCAL_WRITE);
	attr.send_cq = attr.recv_cq = c->cq;
	c->qp = ibv_create_qp(c->pd, &attr);
	if (!c->qp || !c->messages_mr || ibv_req_notify_cq(c->cq, 0))
		die("resources");
}

static void reply_fill(const struct connection *c, const struct wire_request *request,
		       uint8_t buffer[WIRE_REPLY_BYTES])
{
	unsigned regions = regions_of(c->mode);
	struct wire_reply reply = {
		.version = 1,
		.region_count = (uint8_t)(regions < WIRE_REGIONS ? regions : WIRE_REGIONS),
		.role = c->mode == MODE_READER ? WIRE_ROLE_READ : WIRE_ROLE_WRITE,
		.atomics = c->mode == MODE_NIC ? LAYOUT_ATOMICS_NIC : LAYOUT_ATOMICS_CPU,
		.client_id = 7,
		.deadline_us = 100000,
		.epoch_us = 250000,
		.grace_us = 10500000, /* T3 then allows what PATIENT needs */
		.layout_version = 1,
		.pool_bytes = pool_bytes(regions),
		.nonce = request->nonce,
	};

	for (unsigned i = 0; i < reply.region_count; i++)
		reply.regions[i] = (struct wire_region){
			.address = (uintptr_t)(pool + (size_t)i * STRIDE + 4096),
			.length = region_lengths[i],
			.rkey = c->mrs[i]->rkey +
				(c->mode == MODE_BAD_RKEY && i == 1 ? 0x1235 : 0)};
	wire_reply_encode(&reply, buffer);
	if (c->mode == MODE_GARBAGE)
		memset(buffer, 0x5a, 40);
}

static void refuse(struct server *s, struct rdma_cm_id *id, enum mode mode)
{
	struct wire_reject reject = {.version_min = 1,
				     .version_max = 1,
				     .reason = WIRE_REASON_BUSY,
				     .retry_after_ms = 50};
	uint8_t buffer[WIRE_REJECT_BYTES];

	wire_reject_encode(&reject, buffer);
	if (mode == MODE_BUSY)
		rdma_reject(id, buffer, sizeof(buffer));
	else if (mode == MODE_REJECT)
		rdma_reject(id, NULL, 0);
	if (mode == MODE_SILENT)
		s->silent = id;
}

static void server_accept(struct server *s, struct rdma_cm_id *id,
			  const struct wire_request *request, uint8_t depth)
{
	struct fabric_settings settings = FABRIC_SETTINGS_INIT;
	struct connection *c = calloc(1, sizeof(*c));
	struct verbs_device device;
	struct verbs_link link = {PATIENT, VERBS_RETRIES, depth, 16};
	uint8_t reply[WIRE_REPLY_BYTES];
	struct rdma_conn_param param = {.private_data = reply,
					.private_data_len = sizeof(reply),
					.responder_resources = 16,
					.initiator_depth = depth,
					.rnr_retry_count = 6};
	unsigned i = 0;

	c->id = id;
	c->mode = (enum mode)request->pool;
	settings.mtu = c->mode == MODE_MTU_512 ? 512 : 0;
	id->context = c;
	while (s->connections[i] && i + 1 < CONNECTIONS)
		i++;
	s->connections[i] = c;
	if (verbs_device_query(id->verbs, id->port_num, &device) < 0)
		die("query");
	connection_resources(s, c, &device);
	if (verbs_qp_init(id, c->qp,
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				  (device.iwarp ? 0u : (unsigned)IBV_ACCESS_REMOTE_ATOMIC),
			  &settings) < 0 ||
	    (!device.iwarp && verbs_qp_connect(id, c->qp, &link, &settings) < 0))
		die("qp");
	for (i = 0; i < RECVS; i++)
		server_recv(c, i);
	reply_fill(c, request, reply);
	param.qp_num = c->qp->qp_num;
	if (rdma_accept(id, &param))
		die("accept");
}

static void server_event(struct server *s, const struct rdma_cm_event *e)
{
	struct rdma_cm_id *id = e->id;
	struct wire_request request;
	uint8_t depth;

	switch (e->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		if (wire_request_decode(e->param.conn.private_data, WIRE_REQUEST_BYTES, &request))
			die("request");
		depth = e->param.conn.responder_resources < 16 ? e->param.conn.responder_resources
							       : 16;
		if (request.pool >= MODE_BUSY && request.pool <= MODE_SILENT)
			refuse(s, id, (enum mode)request.pool);
		else
			server_accept(s, id, &request, depth);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (id->context && ((struct connection *)id->context)->hangs_up)
			rdma_disconnect(id);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		if (id->context)
			((struct connection *)id->context)->mode |= 0x100; /* to be freed */
		break;
	default:
		break;
	}
}

/* Events are acknowledged before the id goes. */
static void server_events(struct server *s)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(s->channel, &event) == 0) {
		struct rdma_cm_id *id = event->id, *silent = s->silent;
		bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		struct connection *c = request ? NULL : id->context;

		server_event(s, event);
		rdma_ack_cm_event(event);
		if (c && c->mode & 0x100)
			connection_free(s, c);
		if (!request)
			continue;
		if (silent) {
			rdma_destroy_id(silent);
			s->silent = s->silent == silent ? NULL : s->silent;
		}
		if (!id->context && id != s->silent)
			rdma_destroy_id(id); /* refused */
	}
}

static void server_completions(struct server *s)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	if (ibv_get_cq_event(s->completions, &cq, &context))
		return;
	ibv_ack_cq_events(cq, 1);
	ibv_req_notify_cq(cq, 0);
	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		struct connection *c = context;

		if (wc.status != IBV_WC_SUCCESS || wc.wr_id >= RECVS)
			continue;
		server_rpc(c, c->messages[wc.wr_id], wc.byte_len);
		server_recv(c, (unsigned)wc.wr_id);
	}
}

static void serve(const char *address, int ready)
{
	struct server s = {.channel = rdma_create_event_channel()};
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct rdma_cm_id *listener = NULL;
	uint16_t port;

	inet_pton(AF_INET, address, &in.sin_addr);
	if (!s.channel || rdma_create_id(s.channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&in) || rdma_listen(listener, 16))
		die("listen");
	fcntl(s.channel->fd, F_SETFL, O_NONBLOCK);
	port = ntohs(rdma_get_src_port(listener));
	if (write(ready, &port, sizeof(port)) != sizeof(port))
		die("ready");
	for (;;) {
		struct pollfd fds[2] = {
			{.fd = s.channel->fd, .events = POLLIN},
			{.fd = s.completions ? s.completions->fd : -1, .events = POLLIN}};

		poll(fds, 2, -1);
		if (fds[1].revents)
			server_completions(&s);
		if (fds[0].revents)
			server_events(&s);
	}
}

static pid_t server_start(const char *address, uint16_t *ret_port)
{
	int fds[2];
	pid_t pid;

	if (pipe(fds) < 0)
		abort();
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		serve(address, fds[1]);
	}
	close(fds[1]);
	if (read(fds[0], ret_port, sizeof(*ret_port)) != sizeof(*ret_port))
		*ret_port = 0;
	close(fds[0]);
	return pid;
}

static void server_stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- TAP ------------------------------------------------------------------------------------- */

struct run {
	const char *address, *domain;
	enum mode mode; /* CPU or NIC */
	uint16_t port;
	uint16_t mortal_port; /* of the server that test_server_gone() kills */
	pid_t mortal;
	bool failed;
	unsigned tests, failures;
};

__attribute__((format(printf, 4, 5))) static bool check(struct run *r, bool good, int line,
							const char *fmt, ...)
{
	va_list args;

	if (good)
		return true;
	r->failed = true;
	printf("# line %d: ", line);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf(" [%s]\n", err_text());
	return false;
}
#define CHECK(condition) check(r, condition, __LINE__, "%s", #condition)
#define EQUAL(a, b)      equal(r, (long long)(a), (long long)(b), __LINE__, #a)

static bool equal(struct run *r, long long a, long long b, int line, const char *what)
{
	return check(r, a == b, line, "%s is %lld, not %lld", what, a, b);
}

/* ---- the client's side ----------------------------------------------------------------------- */

static int open_address(const struct fabric_address *address, enum mode mode, uint64_t timeout_ns,
			size_t *ret_bytes, struct fabric_endpoint **ret_ep)
{
	struct wire_request request = {
		.version_min = 1, .version_max = 1, .pool = mode, .nonce = 42};
	uint8_t bytes[WIRE_REQUEST_BYTES], answer[WIRE_REPLY_BYTES];

	*ret_ep = NULL;
	*ret_bytes = 0;
	err_clear();
	wire_request_encode(&request, bytes);
	return fabric_transport_for(address)->connect(address, bytes, sizeof(bytes), timeout_ns,
						      answer, sizeof(answer), ret_bytes, ret_ep);
}

static int open_at(const char *host, uint16_t port, enum mode mode, uint64_t timeout_ns,
		   size_t *ret_bytes, struct fabric_endpoint **ret_ep)
{
	struct fabric_address address = {
		.host = host, .port = port, .settings = FABRIC_SETTINGS_INIT};

	address.settings.ack_timeout = PATIENT;
	return open_address(&address, mode, timeout_ns, ret_bytes, ret_ep);
}

static struct fabric_endpoint *open_mode(struct run *r, enum mode mode)
{
	struct fabric_endpoint *ep;
	size_t bytes;
	int ret = open_at(r->address, r->port, mode, 5 * SECOND, &bytes, &ep);

	EQUAL(ret, 0);
	check(r, ep != NULL, __LINE__, "no endpoint in mode %d", mode);
	return ep;
}

static void close_ep(struct fabric_endpoint *ep)
{
	if (ep)
		ep->ops->close(ep);
}

/* Waits for one completion. */
static int await(struct run *r, struct fabric_endpoint *ep, struct fabric_completion *completion)
{
	uint64_t limit = clock_now_ns() + 10 * SECOND;
	int ret;

	while ((ret = ep->ops->poll(ep, completion, 1)) == 0 && clock_now_ns() < limit)
		ep->ops->wait(ep, SECOND);
	check(r, ret != 0, __LINE__, "no completion in ten seconds");
	return ret;
}

static int sync_post(struct run *r, struct fabric_endpoint *ep,
		     const struct fabric_request *requests, unsigned count)
{
	struct fabric_completion c = {.status = 0};
	int ret = fabric_post(ep, requests, count, ep);

	if (ret < 0)
		return ret;
	ret = await(r, ep, &c);
	return ret < 0 ? ret : ret == 1 && c.cookie == ep ? c.status : -ENOMSG;
}

static struct fabric_request write_of(uint64_t offset, const void *from, uint32_t bytes)
{
	return (struct fabric_request){.opcode = FABRIC_WRITE,
				       .length = bytes,
				       .offset = offset,
				       .local = (void *)(uintptr_t)from};
}

static struct fabric_request cas_of(uint64_t offset, uint64_t *old, uint64_t compare,
				    uint64_t value)
{
	return (struct fabric_request){.opcode = FABRIC_CAS,
				       .length = 8,
				       .offset = offset,
				       .local = old,
				       .compare = compare,
				       .operand = value};
}

static struct fabric_request faa_of(uint64_t offset, uint64_t *old, uint64_t add)
{
	return (struct fabric_request){
		.opcode = FABRIC_FAA, .length = 8, .offset = offset, .local = old, .operand = add};
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void pattern(uint8_t *bytes, size_t count, uint32_t seed)
{
	for (size_t i = 0; i < count; i++) {
		seed = seed * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(seed >> 24);
	}
}

static void transfer(struct run *r, struct fabric_endpoint *ep, uint64_t offset, uint32_t bytes)
{
	uint8_t *out = malloc(bytes), *in = calloc(1, bytes);
	uint8_t before = *at(offset - 1), after = *at(offset + bytes);
	struct fabric_request w = write_of(offset, out, bytes), rd = fabric_read(offset, in, bytes);
	uint32_t wrong = 0;

	pattern(out, bytes, bytes + (uint32_t)offset);
	EQUAL(sync_post(r, ep, &w, 1), 0);
	for (uint32_t i = 0; i < bytes; i++)
		wrong += *at(offset + i) != out[i];
	check(r, wrong == 0, __LINE__, "%u of %u bytes at %llu are wrong in the pool", wrong, bytes,
	      (unsigned long long)offset);
	CHECK(*at(offset - 1) == before && *at(offset + bytes) == after);
	EQUAL(sync_post(r, ep, &rd, 1), 0);
	check(r, memcmp(in, out, bytes) == 0, __LINE__, "%u bytes at %llu read back wrong", bytes,
	      (unsigned long long)offset);
	free(out);
	free(in);
}

static void test_transfers(struct run *r)
{
	static const uint32_t sizes[] = {1,     7,     8,     63,     64,     65,      79,  80,
					 81,    255,   256,   257,    511,    512,     513, 4096,
					 65535, 65536, 65537, 131073, 200001, 1u << 20};
	struct fabric_endpoint *ep = open_mode(r, r->mode);

	if (!ep)
		return;
	EQUAL(ep->pool_bytes, pool_bytes(4));
	EQUAL(ep->features & FABRIC_COUNTER_FAA, r->mode == MODE_NIC ? FABRIC_COUNTER_FAA : 0);
	EQUAL(ep->read_only, 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !r->failed; i++) {
		transfer(r, ep, 4097, sizes[i]);
		/* over the border of the first two regions, and of three */
		if (sizes[i] / 2 < 200000)
			transfer(r, ep, 200008 - sizes[i] / 2 - 1, sizes[i]);
	}
	transfer(r, ep, 200008 + 65536 - 3, 1010);
	close_ep(ep);
}

static void test_many_regions(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, MODE_MANY_REGIONS);

	if (!ep)
		return;
	EQUAL(ep->pool_bytes, pool_bytes(6));
	transfer(r, ep, pool_bytes(4) - 5, 300000);
	transfer(r, ep, pool_bytes(5) - 1, 3);
	close_ep(ep);
}

static void test_sixty_four(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode);
	struct fabric_request q[64];
	uint64_t out[32], in[32] = {0};
	uint8_t *big;

	if (!ep)
		return;
	for (unsigned i = 0; i < 32; i++) {
		out[i] = 0x1000 + i;
		q[i] = write_of(8192 + 100 * i, &out[i], 8);
		q[32 + i] = fabric_read(8192 + 100 * i, &in[i], 8);
	}
	EQUAL(sync_post(r, ep, q, 64), 0);
	CHECK(memcmp(in, out, sizeof(in)) == 0);
	/* more bytes than the ring has, and no bytes */
	big = calloc(64, 50000);
	for (unsigned i = 0; i < 64; i++)
		q[i] = fabric_read(300000 + 100 * i, big + (size_t)50000 * i, i == 63 ? 0 : 50000);
	EQUAL(sync_post(r, ep, q, 64), 0);
	for (unsigned i = 0; i < 63; i++)
		CHECK(memcmp(big + (size_t)50000 * i, at(300000 + 100 * i), 50000) == 0);
	q[0].length = 0;
	EQUAL(sync_post(r, ep, q, 1), 0);
	free(big);
	close_ep(ep);
}

static void test_atomics(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode), *other;
	uint64_t block[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, in[12] = {0};
	uint64_t old = 99, old2 = 99, word = 0;
	struct fabric_request q[5];

	if (!ep)
		return;
	set_word(1024, 5);
	q[0] = write_of(2048, block, sizeof(block));
	q[1] = cas_of(1024, &old, 5, 77);
	q[2] = fabric_read(1024, &word, 8);
	q[3] = fabric_read(2048, in, sizeof(in));
	EQUAL(sync_post(r, ep, q, 4), 0);
	EQUAL(old, 5);
	EQUAL(word, 77);
	CHECK(memcmp(in, block, sizeof(in)) == 0);
	EQUAL(word_at(1024), 77);
	/* one that fails, two in one post, an FAA over 2^63 */
	q[0] = cas_of(1024, &old, 5, 6);
	q[1] = cas_of(1024, &old2, 77, 78);
	q[2] = faa_of(1024, &word, ~0ull - 7);
	EQUAL(sync_post(r, ep, q, 3), 0);
	EQUAL(old, 77);
	EQUAL(old2, 77);
	EQUAL(word, 78);
	EQUAL(word_at(1024), 70);
	/* two endpoints on one word */
	other = open_mode(r, r->mode);
	set_word(1032, 0);
	for (unsigned i = 0; other && i < 200; i++) {
		q[0] = faa_of(1032, &word, 1);
		EQUAL(fabric_post(ep, q, 1, ep), 0);
		q[0] = faa_of(1032, &old, 1);
		EQUAL(sync_post(r, other, q, 1), 0);
		struct fabric_completion c = {.status = 0};

		EQUAL(await(r, ep, &c), 1);
		EQUAL(c.status, 0);
		CHECK(word != old && (word ^ old) < 1024);
	}
	EQUAL(word_at(1032), 400);
	close_ep(other);
	close_ep(ep);
}

static void test_fire_and_forget(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode);
	uint64_t in = 0;
	uint8_t big[600];
	struct fabric_request q;

	if (!ep)
		return;
	memset(big, 7, sizeof(big));
	for (uint64_t i = 0; i < 3000 && !r->failed; i++) {
		uint64_t value = i;

		q = write_of(1040 + 8 * (i % 8), &value, 8);
		q.flags = FABRIC_INLINE;
		CHECK(fabric_post(ep, &q, 1, NULL) >= 0);
		if (i % 4 == 0) {
			q = write_of(20000 + i, big, sizeof(big));
			CHECK(fabric_post(ep, &q, 1, NULL) >= 0);
		}
		value = ~0ull;
	}
	q = fabric_read(1040 + 56, &in, 8);
	EQUAL(sync_post(r, ep, &q, 1), 0);
	EQUAL(in, 2999);
	for (uint64_t i = 0; i < 8; i++)
		EQUAL(word_at(1040 + 8 * i), 2992 + i);
	close_ep(ep);
}

/* Many posts under way: each completion once, in order, with its data. */
static void test_pipeline(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode);
	struct fabric_completion done[32];
	static uint64_t in[400];
	unsigned posted = 0, completed = 0;
	uint64_t limit = clock_now_ns() + 20 * SECOND;

	if (!ep)
		return;
	for (unsigned i = 0; i < 400; i++)
		set_word(2048 + 8 * i, 0xabc000 + i);
	while (completed < 400 && clock_now_ns() < limit && !r->failed) {
		int n;

		while (posted < 400 && posted - completed < 300) {
			struct fabric_request q = fabric_read(2048 + 8 * posted, &in[posted], 8);

			EQUAL(fabric_post(ep, &q, 1, &in[posted]), 0);
			posted++;
		}
		n = ep->ops->poll(ep, done, 32);
		if (n == 0)
			ep->ops->wait(ep, SECOND);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++, completed++) {
			EQUAL(done[i].status, 0);
			CHECK(done[i].cookie == &in[completed]);
			EQUAL(in[completed], 0xabc000 + completed);
		}
	}
	EQUAL(completed, 400);
	close_ep(ep);
}

/* More than the staging ring holds, nobody waiting in between; then READs before a WRITE. */
static void test_bulk(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode);
	const uint32_t bytes = 20003, count = 50;
	uint8_t *out = malloc((size_t)bytes * count), *in = malloc((size_t)bytes * count);
	struct fabric_request q[64];
	uint64_t word = 1;

	for (uint32_t round = 0; ep && round < 6 && !r->failed; round++) {
		pattern(out, (size_t)bytes * count, round);
		for (uint32_t i = 0; i < count; i++) {
			q[0] = write_of(100 + bytes * i, out + (size_t)bytes * i, bytes);
			CHECK(fabric_post(ep, q, 1, NULL) >= 0);
		}
		q[0] = fabric_read(1, in, 1);
		EQUAL(sync_post(r, ep, q, 1), 0);
		for (uint32_t i = 0; i < count; i++) {
			for (uint32_t j = 0; j < bytes; j++)
				if (*at(100 + bytes * i + j) != out[(size_t)bytes * i + j]) {
					check(r, false, __LINE__,
					      "round %u: WRITE %u is wrong at %u", round, i, j);
					break;
				}
			q[i] = fabric_read(100 + bytes * i, in + (size_t)bytes * i, bytes);
		}
		q[count] = write_of(1024000, &word, 8);
		memset(in, 0, (size_t)bytes * count);
		EQUAL(sync_post(r, ep, q, count + 1), 0);
		CHECK(memcmp(in, out, (size_t)bytes * count) == 0);
	}
	/* a post that ends with a WRITE is complete when the WRITE has arrived */
	for (uint64_t i = 0; ep && i < 300 && !r->failed; i++) {
		q[0] = fabric_read(1, in, 4000);
		q[1] = write_of(1024000, &i, 8);
		EQUAL(sync_post(r, ep, q, 2), 0);
		EQUAL(word_at(1024000), i);
	}
	free(out);
	free(in);
	close_ep(ep);
}

static int ping(struct fabric_endpoint *ep, uint32_t tag, uint32_t number, void *reply,
		size_t capacity, void *cookie)
{
	/* of all types the one that carries a number and is answered with one */
	struct wire_rpc rpc = {.type = WIRE_RPC_ADD, .tag = tag, .delta = number};
	uint8_t message[WIRE_RPC_BYTES];

	wire_rpc_encode(&rpc, message);
	return ep->ops->rpc(ep, message, sizeof(message), reply, capacity, cookie);
}

static void test_rpc(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode);
	uint8_t bytes[WIRE_RPC_MAX_BYTES];
	struct wire_rpc_reply reply = {.tag = 0};
	struct fabric_completion c = {.status = 0};
	int x, y;

	if (!ep)
		return;
	EQUAL(ping(ep, 0x12345678, 3, bytes, sizeof(bytes), &x), 0);
	EQUAL(ping(ep, 1, 3, bytes, sizeof(bytes), &y), -EBUSY);
	EQUAL(await(r, ep, &c), 1);
	CHECK(c.cookie == &x && c.status == 0);
	EQUAL(c.length, WIRE_RPC_REPLY_BYTES);
	EQUAL(wire_rpc_reply_decode(bytes, c.length, &reply), 0);
	EQUAL(reply.tag, 0x12345678);
	EQUAL(reply.value, 3);
	/* given up, at once and after the answer has come; then others come through */
	for (unsigned i = 0; i < 20; i++) {
		EQUAL(ping(ep, i, 100, bytes, sizeof(bytes), &y), 0);
		if (i % 2) {
			clock_sleep_ns(20000000);
			CHECK(ep->ops->check(ep) == 0);
		}
		ep->ops->rpc_cancel(ep);
		EQUAL(ping(ep, i, i, bytes, sizeof(bytes), &x), 0);
		EQUAL(await(r, ep, &c), 1);
		CHECK(c.cookie == &x && c.status == 0);
		EQUAL(wire_rpc_reply_decode(bytes, c.length, &reply), 0);
		EQUAL(reply.value, i);
		EQUAL(reply.tag, i);
	}
	EQUAL(ep->ops->poll(ep, &c, 1), 0);
	close_ep(ep);
}

static void test_rpc_mute(struct run *r)
{
	struct fabric_endpoint *ep;
	struct fabric_request q;
	uint8_t bytes[WIRE_RPC_MAX_BYTES];
	size_t unused;
	uint64_t old = 1, began;
	unsigned i;

	if (open_at(r->address, r->port, MODE_MUTE, SECOND, &unused, &ep) < 0) {
		check(r, false, __LINE__, "cannot connect");
		return;
	}
	/* more than a few unanswered are not sent */
	for (i = 0; i < 20 && ping(ep, i, i, bytes, sizeof(bytes), &old) == 0; i++)
		ep->ops->rpc_cancel(ep);
	CHECK(i >= 2 && i < 8);
	q = cas_of(1024, &old, 1, 2);
	began = clock_now_ns();
	EQUAL(sync_post(r, ep, &q, 1), -TARN_ESESSION);
	CHECK(strstr(err_text(), "has not answered"));
	CHECK(clock_now_ns() - began > SECOND / 2 && clock_now_ns() - began < 3 * SECOND);
	close_ep(ep);
	ep = open_mode(r, MODE_REFUSE);
	if (!ep)
		return;
	EQUAL(sync_post(r, ep, &q, 1), -TARN_ESESSION);
	CHECK(strstr(err_text(), "refused a CAS at offset 1024"));
	close_ep(ep);
}

static void test_requests_checked(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode);
	uint64_t word;
	struct fabric_request q[2];

	if (!ep)
		return;
	set_word(1024, 3);
	word = 9;
	q[0] = write_of(1024, &word, 8);
	q[1] = fabric_read(ep->pool_bytes - 7, &word, 8);
	EQUAL(fabric_post(ep, q, 2, ep), -EINVAL);
	q[1] = fabric_read(~0ull - 3, &word, 8);
	EQUAL(fabric_post(ep, q, 2, ep), -EINVAL);
	q[1] = cas_of(1028, &word, 1, 2);
	EQUAL(fabric_post(ep, q, 2, ep), -EINVAL);
	q[1] = faa_of(1024, &word, 1);
	q[1].length = 4;
	EQUAL(fabric_post(ep, q, 2, ep), -EINVAL);
	EQUAL(word_at(1024), 3);
	close_ep(ep);

	ep = open_mode(r, MODE_READER);
	if (!ep)
		return;
	EQUAL(ep->read_only, 1);
	EQUAL(fabric_post(ep, q, 1, ep), -TARN_EREADONLY);
	q[0] = cas_of(1024, &word, 3, 4);
	EQUAL(fabric_post(ep, q, 1, ep), -TARN_EREADONLY);
	q[0] = fabric_read(1024, &word, 8);
	EQUAL(sync_post(r, ep, q, 1), 0);
	EQUAL(word, 3);
	close_ep(ep);
}

static bool iwarp(const struct run *r)
{
	return strncmp(r->address, "10.78.", 6) == 0;
}

static void test_bad_rkey(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, MODE_BAD_RKEY);
	struct fabric_completion c[8];
	uint8_t buffer[64], untouched[64];
	struct fabric_request good = fabric_read(64, buffer, 64),
			      bad = fabric_read(200100, buffer, 64);
	int n = 0, ret, x[5];

	if (!ep)
		return;
	EQUAL(sync_post(r, ep, &good, 1), 0);
	memset(buffer, 0x77, sizeof(buffer));
	memcpy(untouched, buffer, sizeof(buffer));
	EQUAL(fabric_post(ep, &bad, 1, &x[0]), 0);
	for (int i = 1; i < 5; i++) {
		ret = fabric_post(ep, &bad, 1, &x[i]);
		CHECK(ret == 0 || ret == -TARN_ESESSION);
		n += ret == 0;
	}
	for (int i = 0; i <= n; i++) {
		EQUAL(await(r, ep, c), 1);
		EQUAL(c[0].status, -TARN_ESESSION);
		CHECK(c[0].cookie == &x[i]);
	}
	CHECK(memcmp(buffer, untouched, sizeof(buffer)) == 0);
	EQUAL(ep->ops->poll(ep, c, 8), -TARN_ESESSION);
	check(r,
	      strstr(err_text(),
		     iwarp(r) ? "connection lost" : "READ of 64 bytes at offset 200100") &&
		      (iwarp(r) || strstr(err_text(), "REM_ACCESS_ERR")),
	      __LINE__, "the text does not say what happened");
	EQUAL(fabric_post(ep, &good, 1, ep), -TARN_ESESSION);
	EQUAL(ep->ops->check(ep), -TARN_ESESSION);
	close_ep(ep);
}

/* The other side ends the connection, in words and without. */
static void test_hung_up(struct run *r)
{
	static const enum mode modes[] = {MODE_HANG_UP, MODE_FENCE};

	for (unsigned i = 0; i < 2; i++) {
		struct fabric_endpoint *ep = open_mode(r, modes[i]);
		struct fabric_completion c = {.status = 0};
		struct fabric_request q;
		uint8_t bytes[WIRE_RPC_MAX_BYTES];
		uint64_t began = clock_now_ns(), word;
		int x;

		if (!ep)
			return;
		q = fabric_read(0, &word, 8);
		EQUAL(ping(ep, 1, 1, bytes, sizeof(bytes), &x), 0);
		if (modes[i] == MODE_FENCE) {
			clock_sleep_ns(50000000);
			CHECK(fabric_post(ep, &q, 1, NULL) >= -TARN_ESESSION);
		}
		EQUAL(await(r, ep, &c), 1);
		EQUAL(c.status, -TARN_ESESSION);
		CHECK(c.cookie == &x);
		CHECK(clock_now_ns() - began < 2 * SECOND);
		EQUAL(ep->ops->poll(ep, &c, 1), -TARN_ESESSION);
		/* soft-RoCE loses the first request of a connection now and then, for ever */
		CHECK(strstr(err_text(), modes[i] == MODE_HANG_UP ? "DISCONNECTED" : "lost") ||
		      strstr(err_text(), "no request has completed"));
		printf("# %s\n", err_text());
		close_ep(ep);
	}
}

static void test_server_gone(struct run *r)
{
	struct fabric_endpoint *idle, *sleeper;
	uint16_t old = r->port;
	struct pollfd fd = {.events = POLLIN};
	struct fabric_completion c;
	uint64_t began;

	r->port = r->mortal_port;
	idle = open_mode(r, r->mode);
	sleeper = open_mode(r, r->mode);
	r->port = old;
	if (!idle || !sleeper)
		return;
	EQUAL(idle->ops->check(idle), 0);
	fd.fd = sleeper->ops->fd(sleeper);
	CHECK(poll(&fd, 1, 20) == 0);
	server_stop(r->mortal);
	r->mortal = 0;
	began = clock_now_ns();
	EQUAL(poll(&fd, 1, 2000), 1);
	EQUAL(sleeper->ops->poll(sleeper, &c, 1), -TARN_ESESSION);
	while (idle->ops->check(idle) == 0 && clock_now_ns() - began < 5 * SECOND)
		clock_sleep_ns(10000000);
	CHECK(clock_now_ns() - began < SECOND);
	EQUAL(idle->ops->check(idle), -TARN_ESESSION);
	printf("# %s\n", err_text());
	close_ep(idle);
	close_ep(sleeper);
}

static void test_fd(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode);
	struct pollfd fd = {.events = POLLIN};
	struct fabric_completion c = {.status = 0};
	uint64_t word = 0, old;

	if (!ep)
		return;
	fd.fd = ep->ops->fd(ep);
	CHECK(fd.fd >= 0 && fd.fd == ep->ops->fd(ep));
	for (unsigned i = 0; i < 50 && !r->failed; i++) {
		struct fabric_request q[2] = {cas_of(1024, &old, i, i + 1),
					      fabric_read(1024, &word, 8)};
		int n = 0;

		set_word(1024, i);
		EQUAL(poll(&fd, 1, 0), 0);
		EQUAL(fabric_post(ep, q, 2, &word), 0);
		while ((n = ep->ops->poll(ep, &c, 1)) == 0 && !r->failed)
			EQUAL(poll(&fd, 1, 2000), 1);
		EQUAL(n, 1);
		EQUAL(c.status, 0);
		EQUAL(word, i + 1);
		EQUAL(ep->ops->poll(ep, &c, 1), 0);
	}
	close_ep(ep);
}

static void refused_with(struct run *r, const char *host, uint16_t port, enum mode mode, int code,
			 const char *words)
{
	struct fabric_endpoint *ep;
	size_t bytes;
	uint64_t began = clock_now_ns();
	int ret = open_at(host, port, mode, 2 * SECOND, &bytes, &ep);

	EQUAL(ret, code);
	CHECK(!ep);
	check(r, strstr(err_text(), words) != NULL, __LINE__, "the text does not say '%s'", words);
	/* an iWARP connect that is under way cannot be abandoned: the kernel waits for MPA's timer */
	CHECK(clock_now_ns() - began < (iwarp(r) ? 15 : 4) * SECOND);
	printf("# %s\n", err_text());
	close_ep(ep);
}

static void test_refused(struct run *r)
{
	struct fabric_endpoint *ep;
	size_t bytes = 0;

	EQUAL(open_at(r->address, r->port, MODE_BUSY, 2 * SECOND, &bytes, &ep), 0);
	CHECK(!ep);
	EQUAL(bytes, WIRE_REJECT_BYTES);
	refused_with(r, r->address, r->port, MODE_REJECT,
		     strncmp(r->address, "10.78.", 6) ? -EAGAIN : -TARN_EUNREACHABLE,
		     "listens there");
	refused_with(r, r->address, r->port, MODE_GARBAGE, -TARN_EPROTO, "does not speak Tarn");
	refused_with(r, r->address, r->port, MODE_SILENT, -TARN_ETIMEOUT, "no answer in time");
	refused_with(r, r->address, 4, MODE_CPU, -TARN_EUNREACHABLE, "nobody listens");
	refused_with(r, "127.0.0.1", r->port, MODE_CPU, -TARN_EUNREACHABLE, "127.0.0.1");
	refused_with(r, "192.0.2.1", r->port, MODE_CPU, -TARN_EUNREACHABLE, "192.0.2.1");
	refused_with(r, "fe80::1", r->port, MODE_CPU, -TARN_EUNREACHABLE, "ADDRESS%INTERFACE");
	refused_with(r, "no-such-host.invalid", r->port, MODE_CPU, -TARN_EUNREACHABLE,
		     "no-such-host");
}

static void opens_not(struct run *r, const struct fabric_address *address, int code,
		      const char *words)
{
	struct fabric_endpoint *ep;
	size_t bytes;

	EQUAL(open_address(address, r->mode, 3 * SECOND, &bytes, &ep), code);
	CHECK(!ep);
	check(r, strstr(err_text(), words) != NULL, __LINE__, "the text does not say '%s'", words);
	close_ep(ep);
}

/* What can be said of a connection arrives at its queue pair, or is refused. */
static void test_settings(struct run *r)
{
	const struct fabric_address plain = {.host = r->address,
					     .port = r->port,
					     .source = r->address,
					     .settings = FABRIC_SETTINGS_INIT};
	struct fabric_address address = plain;
	struct verbs_description d = {.port = 0};
	struct fabric_endpoint *ep;
	size_t bytes;

	address.settings.tos = 96;
	address.settings.ack_timeout = 12;
	address.settings.retries = 3;
	address.settings.mtu = 512;
	EQUAL(open_address(&address, MODE_MTU_512, 3 * SECOND, &bytes, &ep), 0);
	if (ep) {
		EQUAL(fabric_verbs_describe(ep, &d), 0);
		EQUAL(d.iwarp, iwarp(r));
		EQUAL(d.ack_timeout, iwarp(r) ? 0 : 12);
		EQUAL(d.retries, iwarp(r) ? 0 : 3);
		EQUAL(d.traffic_class, iwarp(r) ? 0 : 96);
		if (!iwarp(r))
			EQUAL(d.mtu_bytes, 512);
		transfer(r, ep, 3001, 10000);
	}
	close_ep(ep);

	address.settings.tos = 256;
	opens_not(r, &address, -EINVAL, "0 to 255");
	address = plain;
	address.source = "::1";
	opens_not(r, &address, -TARN_EUNREACHABLE, "same family");
	address.source = "192.0.2.9";
	opens_not(r, &address, -TARN_EUNREACHABLE, "ADDR_ERROR");
	address.source = r->address;
	if (iwarp(r))
		return;
	address.settings.mtu = 1000;
	opens_not(r, &address, -EINVAL, "allowed are 256");
	address.settings.mtu = 0;
	address.settings.ack_timeout = 20;
	opens_not(r, &address, -EINVAL, "ack_timeout 19 at most");
	address.settings.ack_timeout = 0;
	address.settings.gid_index = 200;
	opens_not(r, &address, -ENODATA, "GID"); /* rxe's errno */
}

/* After fork the child may free its copy, but not open its own; the parent's goes on. */
static void test_fork(struct run *r)
{
	struct fabric_endpoint *ep = open_mode(r, r->mode);
	int status = -1;
	pid_t pid;

	if (!ep)
		return;
	ep->ops->fd(ep);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct fabric_endpoint *own;
		size_t bytes;

		close_ep(ep);
		_exit(open_at(r->address, r->port, r->mode, SECOND, &bytes, &own) != -EOPNOTSUPP);
	}
	waitpid(pid, &status, 0);
	EQUAL(status, 0);
	transfer(r, ep, 5001, 100000);
	close_ep(ep);
}

/* ---- leaks ----------------------------------------------------------------------------------- */

static unsigned count_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Lines of `rdma resource`; "" when there is no such command. */
static void resources(char *text, size_t bytes)
{
	FILE *pipe = popen("rdma resource show 2>/dev/null", "r");
	size_t n = 0;

	if (pipe) {
		n = fread(text, 1, bytes - 1, pipe);
		pclose(pipe);
	}
	text[n] = 0;
}

static void leak_check(struct run *r, const char *before, unsigned fds)
{
	char after[1024];
	uint64_t limit = clock_now_ns() + 3 * SECOND;

	do {
		resources(after, sizeof(after));
		if (strcmp(before, after) != 0)
			clock_sleep_ns(50000000);
	} while (strcmp(before, after) != 0 && clock_now_ns() < limit);
	CHECK(before[0] != 0);
	check(r, strcmp(before, after) == 0, __LINE__, "resources were\n%sand are\n%s", before,
	      after);
	EQUAL(count_fds(), fds);
}

static void test_cycles(struct run *r)
{
	for (unsigned i = 0; i < 30 && !r->failed; i++) {
		struct fabric_endpoint *ep = open_mode(r, r->mode);
		uint64_t word;
		struct fabric_request q = fabric_read(8, &word, 8);

		if (!ep)
			return;
		/* also with something under way */
		if (i % 2)
			EQUAL(sync_post(r, ep, &q, 1), 0);
		else
			EQUAL(fabric_post(ep, &q, 1, &word), 0);
		close_ep(ep);
	}
}

/*
 * More queues of one process on one device than soft-iWARP serves without help: verbs_context_hold().
 */
#define AT_ONCE 40u

static void test_many_at_once(struct run *r)
{
	struct fabric_endpoint *eps[AT_ONCE] = {NULL};
	uint64_t word;
	struct fabric_request q = fabric_read(8, &word, 8);

	for (unsigned i = 0; i < AT_ONCE && !r->failed; i++)
		eps[i] = open_mode(r, r->mode);
	for (unsigned i = 0; i < AT_ONCE && !r->failed; i++)
		EQUAL(sync_post(r, eps[i], &q, 1), 0);
	for (unsigned i = 0; i < AT_ONCE; i++)
		close_ep(eps[i]);
}

/* ---- the daemon's pair ----------------------------------------------------------------------- */

static struct ibv_context *device_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (unsigned i = 0; list && list[i]; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

static void pair_use(struct run *r, struct fabric_endpoint *ep)
{
	uint64_t old = 1, word = 0;
	struct fabric_request q[3] = {cas_of(8, &old, 0, 5), faa_of(8, &word, 10)};

	set_word(8, 0);
	EQUAL(sync_post(r, ep, q, 2), 0);
	EQUAL(old, 0);
	EQUAL(word, 5);
	EQUAL(word_at(8), 15);
	transfer(r, ep, 200008 - 301, 5000);
	for (unsigned i = 0; i < 500; i++) {
		q[0] = faa_of(16, &old, 1);
		EQUAL(sync_post(r, ep, q, 1), 0);
	}
	EQUAL(ping(ep, 1, 1, &old, sizeof(old), &old), -EOPNOTSUPP);
	EQUAL(ep->ops->check(ep), 0);
}

static void test_pair(struct run *r)
{
	struct ibv_context *context = device_open("rxe0");
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct wire_region regions[2];
	struct fabric_endpoint *ep = NULL;
	struct verbs_device device;
	struct ibv_mr *mrs[2] = {NULL};

	if (!CHECK(pd != NULL) || !CHECK(verbs_device_query(context, 1, &device) == 0))
		return;
	CHECK(device.atomics && !device.iwarp);
	for (unsigned i = 0; i < 2; i++) {
		void *start = pool + (size_t)i * STRIDE + 4096;

		mrs[i] = ibv_reg_mr(pd, start, region_lengths[i],
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
		if (!CHECK(mrs[i] != NULL))
			return;
		regions[i] = (struct wire_region){.address = (uintptr_t)start,
						  .length = region_lengths[i],
						  .rkey = mrs[i]->rkey};
	}
	set_word(16, 0);
	EQUAL(fabric_verbs_pair(&device, pd, regions, 2, &ep), 0);
	if (ep) {
		pair_use(r, ep);
		EQUAL(word_at(16), 500);
	}
	close_ep(ep);
	for (unsigned i = 0; i < 2; i++)
		EQUAL(ibv_dereg_mr(mrs[i]), 0);
	EQUAL(ibv_dealloc_pd(pd), 0);
	EQUAL(ibv_close_device(context), 0);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const struct test {
	const char *name;
	void (*run)(struct run *r);
} tests[] = {
	{"transfers of 1 byte to 1 MiB, over regions' borders", test_transfers},
	{"regions that come by RPC", test_many_regions},
	{"64 requests in a post, more than the ring holds", test_sixty_four},
	{"CAS and FAA, in order with WRITE and READ", test_atomics},
	{"posts that nobody waits for", test_fire_and_forget},
	{"many posts under way", test_pipeline},
	{"bulk", test_bulk},
	{"RPCs, given up ones, too", test_rpc},
	{"RPCs and atomics without an answer", test_rpc_mute},
	{"requests are checked before they are posted", test_requests_checked},
	{"a wrong rkey loses the connection, with the reason", test_bad_rkey},
	{"the other side hangs up", test_hung_up},
	{"the descriptor wakes", test_fd},
	{"refusals", test_refused},
	{"settings", test_settings},
	{"fork", test_fork},
	{"connect and close, again and again", test_cycles},
	{"many connections at once", test_many_at_once},
};

static void run_one(struct run *r, const struct test *test)
{
	uint64_t began = clock_now_ns();

	r->failed = false;
	err_clear();
	test->run(r);
	r->failures += r->failed;
	printf("%sok %u - %s, %s: %s # %llu ms\n", r->failed ? "not " : "", ++r->tests, r->address,
	       r->domain, test->name, (unsigned long long)((clock_now_ns() - began) / 1000000));
	fflush(stdout);
}

/* An address with its servers. */
struct place {
	const char *address, *domain;
	uint16_t port, mortal_port;
	pid_t server, mortal;
};

static void run_place(struct run *r, const struct place *place)
{
	static const struct test gone = {"the other side is killed", test_server_gone};
	char before[1024];
	unsigned fds;

	r->address = place->address;
	r->domain = place->domain;
	r->mode = strcmp(place->domain, "nic") == 0 ? MODE_NIC : MODE_CPU;
	r->port = place->port;
	r->mortal = place->mortal;
	r->mortal_port = place->mortal_port;
	/* takes its server's resources along; librdmacm's own, which stay, are made by this one */
	run_one(r, &gone);
	clock_sleep_ns(300000000);
	resources(before, sizeof(before));
	fds = count_fds();
	for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		run_one(r, &tests[i]);
	r->failed = false;
	leak_check(r, before, fds);
	r->failures += r->failed;
	printf("%sok %u - %s, %s: nothing has leaked\n", r->failed ? "not " : "", ++r->tests,
	       place->address, place->domain);
	server_stop(place->server);
	if (r->mortal)
		server_stop(r->mortal);
}

#define PLACES 8

int main(int argc, char **argv)
{
	static const struct test pair = {"the daemon's pair", test_pair};
	static char *all[] = {"", "10.77.0.1", "cpu", "10.77.0.1", "nic", "10.78.0.1", "cpu"};
	char **arguments = argc < 3 ? all : argv;
	unsigned count = (unsigned)(argc < 3 ? 3 : (argc - 1) / 2);
	struct place places[PLACES] = {{.port = 0}};
	struct run r = {.address = "rxe0", .domain = "nic"};

	setvbuf(stdout, NULL, _IOLBF, 0);
	pool = mmap(NULL, (size_t)REGIONS * STRIDE + 8192, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pool == MAP_FAILED || count > PLACES)
		return 1;
	/* before the first use of verbs here: a forked process cannot use inherited contexts */
	for (unsigned i = 0; i < count; i++) {
		places[i].address = arguments[1 + 2 * i];
		places[i].domain = arguments[2 + 2 * i];
		places[i].server = server_start(places[i].address, &places[i].port);
		places[i].mortal = server_start(places[i].address, &places[i].mortal_port);
	}
	for (unsigned i = 0; i < count; i++)
		run_place(&r, &places[i]);
	if (argc < 3) {
		r.address = "rxe0";
		run_one(&r, &pair);
	}
	printf("1..%u\n", r.tests);
	return r.failures != 0;
}
