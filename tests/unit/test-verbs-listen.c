/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's RDMA side (listen-verbs.c, peer-verbs.c, registration*.c, device.c, rdma.c) on a fake
 * NIC (fake-verbs.h): start, handshakes, messages, and every way in which a connection or a device
 * ends. The real daemon, without main(); its loop is driven by the tests.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <event2/event.h>

#include <tarn/tarn.h>

#include "auth.h"
#include "config.h"
#include "daemon.h"
#include "device.h"
#include "err.h"
#include "fake-verbs.h"
#include "layout.h"
#include "listen-verbs.h"
#include "log.h"
#include "peer-verbs.h"
#include "pool.h"
#include "rdma.h"
#include "registration.h"
#include "verbs.h"
#include "wire.h"

#define MS 1000000ull

static struct config *config;
static struct log quiet;
static struct daemon *d;

/* ---- the daemon ------------------------------------------------------------------------------ */

#define LISTEN "[listen r]\naddress = 10.77.0.1\n"
#define OPEN   "allow_unauthenticated = yes\n"
#define POOL   "[pool main]\n" OPEN "size = 4M\nhugepages = off\nmax_clients = 8\nprefault = no\n"
#define LARGE  "[pool main]\n" OPEN "size = 4M\nhugepages = off\nmax_clients = 256\nprefault = no\n"

static void begin(const char *text)
{
	struct config_errors errors = {0};

	fake_begin();
	fake_event_end();
	assert_int_equal(auth_init(), 0);
	assert_int_equal(config_parse("test", text, strlen(text), &errors, &config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	/* everything is written, so that everything is formatted */
	log_init(&quiet, open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_LEVEL_DEBUG);
	d = NULL;
}

static int start(void)
{
	int rc;

	err_clear();
	rc = daemon_create(config, &quiet, &d);
	if (rc == 0)
		event_del(
			d->keeper_timer); /* it has no part in this, and wakes every millisecond */
	return rc;
}

static void open_daemon(const char *text)
{
	begin(text);
	if (start() < 0)
		fail_msg("%s", err_text());
	fake_loop(d->base, 0);
}

static void end(void)
{
	fake.fail_at = 0;
	daemon_free(d);
	config_free(config);
	close(quiet.fd);
	fake_event_end();
	fake_end();
}

static void loop(uint64_t ns)
{
	fake_loop(d->base, ns);
}

static struct listener_verbs *listener(void)
{
	return TAILQ_FIRST(&d->rdma->listeners);
}

static struct device *device(void)
{
	return TAILQ_FIRST(&d->rdma->devices);
}

static struct pool *pool(void)
{
	return d->pools[0];
}

static long live[FAKE_KINDS];

static void remember_live(void)
{
	memcpy(live, fake.live, sizeof(live));
}

/* What a connection has taken is given back. */
static void live_as_before(const char *what)
{
	for (int kind = 0; kind < FAKE_KINDS; kind++)
		if (fake.live[kind] != live[kind])
			fail_msg("%s: %ld %s, before it were %ld", what, fake.live[kind],
				 fake_kind_name((enum fake_kind)kind), live[kind]);
}

/* ---- a client -------------------------------------------------------------------------------- */

static uint64_t next_nonce = 1;

struct client {
	struct rdma_cm_id *id; /* the daemon's */
	struct fake_record *record;
	struct wire_reply reply;
	struct wire_reject reject;
	struct ibv_qp *qp; /* the daemon's */
	uint8_t request[WIRE_REQUEST_BYTES];
};

static struct wire_request request_of(const char *name, uint16_t flags)
{
	return (struct wire_request){.version_min = 1,
				     .version_max = 1,
				     .flags = flags,
				     .pool = wire_pool_hash(name),
				     .time_ms = fake.wall_ms,
				     .nonce = next_nonce++};
}

/* Looks at what has come of it. */
static void client_look(struct client *c)
{
	if (c->record->accepted) {
		assert_int_equal(c->record->byte_count, WIRE_REPLY_BYTES);
		assert_int_equal(wire_reply_decode(c->record->bytes, WIRE_REPLY_BYTES, &c->reply),
				 0);
		c->qp = fake_qp(c->record->param.qp_num);
	}
	if (c->record->rejected && c->record->byte_count)
		assert_int_equal(
			wire_reject_decode(c->record->bytes, c->record->byte_count, &c->reject), 0);
}

static void client_bytes(struct client *c, unsigned n, const uint8_t *bytes, uint8_t count)
{
	memset(c, 0, sizeof(*c));
	if (count)
		memcpy(c->request, bytes, count < sizeof(c->request) ? count : sizeof(c->request));
	c->id = fake_request(fake_listener(0), 0, n, bytes, count);
	c->record = fake_record(c->id);
	loop(0);
	client_look(c);
}

static void client_connect(struct client *c, unsigned n, const char *name, uint16_t flags)
{
	struct wire_request request = request_of(name, flags);
	uint8_t bytes[WIRE_REQUEST_BYTES];

	wire_request_encode(&request, bytes);
	client_bytes(c, n, bytes, sizeof(bytes));
}

static void client_open(struct client *c, unsigned n)
{
	client_connect(c, n, "main", 0);
	if (!c->record->accepted)
		fail_msg("not accepted, reason %u", c->reject.reason);
	assert_non_null(c->qp);
}

/* It has gone, and so has all that it had. */
static void is_gone(const struct client *c, const char *what)
{
	if (c->record->id)
		fail_msg("%s: the id is still there", what);
	if (c->record->param.qp_num && fake_qp(c->record->param.qp_num))
		fail_msg("%s: the queue pair is still there", what);
	live_as_before(what);
}

static void client_leave(struct client *c)
{
	fake_event(c->id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	loop(0);
}

/* Answers that came, as the client sees them. */
static struct {
	unsigned count;
	struct wire_rpc_reply last;
	uint32_t qp_num;
} answers;

static void on_send(struct ibv_qp *qp, const void *bytes, uint32_t count)
{
	assert_int_equal(wire_rpc_reply_decode(bytes, count, &answers.last), 0);
	answers.qp_num = qp->qp_num;
	answers.count++;
}

static bool client_say(struct client *c, const struct wire_rpc *rpc)
{
	uint8_t bytes[WIRE_RPC_BYTES];

	fake.send = on_send;
	wire_rpc_encode(rpc, bytes);
	return fake_deliver(c->qp, bytes, sizeof(bytes));
}

static struct wire_rpc_reply client_ask(struct client *c, struct wire_rpc rpc)
{
	unsigned before = answers.count;

	rpc.tag = (uint32_t)next_nonce++;
	assert_true(client_say(c, &rpc));
	loop(0);
	assert_int_equal(answers.count, before + 1);
	assert_int_equal(answers.qp_num, c->qp->qp_num);
	assert_int_equal(answers.last.tag, rpc.tag);
	return answers.last;
}

static void client_works(struct client *c)
{
	assert_int_equal(client_ask(c, (struct wire_rpc){.type = WIRE_RPC_PING}).status, 0);
}

/* ---- start ----------------------------------------------------------------------------------- */

static void test_start(void **state)
{
	unsigned both = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_ATOMIC;
	unsigned writable = 0, readable = 0, other = 0;

	(void)state;
	open_daemon(LISTEN POOL);
	assert_non_null(fake_listener(0));
	assert_int_equal(listener()->state, LISTENER_UP);
	assert_int_equal(pool()->geometry.atomics, LAYOUT_ATOMICS_NIC);
	assert_non_null(pool()->self);
	for (unsigned i = 0; fake_nth_mr(i); i++) {
		if (fake_nth_mr(i)->addr != pool()->memory.base)
			other += (fake_nth_mr_access(i) & both) != IBV_ACCESS_LOCAL_WRITE;
		else if (fake_nth_mr_access(i) == both)
			writable++;
		else if (fake_nth_mr_access(i) == IBV_ACCESS_REMOTE_READ)
			readable++;
	}
	assert_int_equal(writable, 1);
	assert_int_equal(readable, 1);
	assert_int_equal(other, 0);
	end();
}

/* Those may fail: there is another way. */
static bool survivable(const char *name)
{
	static const char *const names[] = {"ibv_alloc_td", "ibv_alloc_parent_domain",
					    "rdma_set_option", "ibv_poll_cq"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

static void start_failures(const char *text, int error, void (*change)(void))
{
	unsigned long n = 0;
	bool more;

	do {
		int rc;

		begin(text);
		if (change)
			change();
		fake.memory = true;
		fake.fail_errno = error;
		fake.fail_at = ++n;
		rc = start();
		fake.fail_at = 0;
		more = fake.failed[0];
		if (rc < 0) {
			if (!err_text()[0] && n > 1) /* there it says so in the log alone */
				fail_msg("call %lu, %s: no text", n, fake.failed);
			d = NULL;
			fake_nothing_left(fake.failed);
		} else if (more && !survivable(fake.failed)) {
			/* a smaller queue pair, fewer inline bytes: tried again */
			if (strcmp(fake.failed, "ibv_create_qp") != 0 || error == ENOMEM)
				fail_msg("call %lu, %s: started", n, fake.failed);
		}
		end();
	} while (more);
	assert_in_range(n, 20, 2000);
}

static void no_srq(void)
{
	fake.devices[0].attr.max_srq = 0;
	fake.devices[0].no_srq = true;
}

static void iwarp(void)
{
	fake_iwarp(&fake.devices[0]);
}

static void small_regions(void)
{
	fake.devices[0].attr.max_mr_size = 2u << 20;
}

static void test_start_failures_nic(void **state)
{
	(void)state;
	start_failures(LISTEN "tos = 8\n" POOL, ENOMEM, NULL);
}

static void test_start_failures_error(void **state)
{
	(void)state;
	start_failures(LISTEN POOL, EINVAL, no_srq);
}

static void test_start_failures_iwarp(void **state)
{
	(void)state;
	start_failures(LISTEN POOL, EACCES, iwarp);
}

static void test_start_failures_regions(void **state)
{
	(void)state;
	start_failures(LISTEN POOL "atomics = cpu\n", EPERM, small_regions);
}

static void refuses_to_start(const char *text, const char *says)
{
	int rc;

	begin(text);
	rc = start();
	if (rc >= 0)
		fail_msg("started: %s", text);
	d = NULL;
	if (!strstr(err_text(), says))
		fail_msg("'%s' does not say '%s'", err_text(), says);
	fake_nothing_left(says);
	end();
}

static void test_start_refused(void **state)
{
	(void)state;
	refuses_to_start("[listen r]\naddress = 10.1.2.3\n" POOL, "no address of an RDMA device");
	refuses_to_start("[listen r]\ndevice = mlx5_7\n" POOL, "no such RDMA device");

	begin(LISTEN POOL);
	fake.devices[0].attr.max_mr_size = 4096;
	assert_true(start() < 0);
	d = NULL;
	assert_non_null(strstr(err_text(), "max_mr_size"));
	fake_nothing_left("max_mr_size");
	end();

	begin(LISTEN POOL "atomics = nic\n");
	fake_iwarp(&fake.devices[0]);
	assert_int_equal(start(), -EINVAL);
	d = NULL;
	end();

	/* the fake has three */
	begin(LISTEN "gid_index = 3\n" POOL);
	assert_int_equal(start(), -EINVAL);
	d = NULL;
	assert_non_null(strstr(err_text(), "gid_index = 3: fake0 port 1 has no such GID"));
	fake_nothing_left("gid_index");
	end();
}

/* The start fails when this call does, and says so. */
static void fails_at(const char *call, int error, const char *says, const char *advises)
{
	unsigned long n = 0;
	int rc;

	do {
		begin(LISTEN POOL);
		fake.fail_errno = error;
		fake.fail_at = ++n;
		rc = start();
		fake.fail_at = 0;
		if (rc < 0)
			d = NULL;
		if (strcmp(fake.failed, call) == 0)
			break;
		if (!fake.failed[0])
			fail_msg("%s is not called", call);
		end();
	} while (true);
	assert_int_equal(rc, -error);
	if (!strstr(err_text(), says) || !strstr(err_text(), advises))
		fail_msg("'%s' does not say '%s' and '%s'", err_text(), says, advises);
	fake_nothing_left(call);
	end();
}

/* What is wrong with an address is told apart. */
static void test_address_refused(void **state)
{
	(void)state;
	fails_at("rdma_bind_addr", EADDRINUSE, "10.77.0.1:7477 is taken", "choose another port");
	fails_at("rdma_listen", EADDRINUSE, "10.77.0.1:7477 is taken", "choose another port");
	fails_at("rdma_bind_addr", EACCES, "no permission to use RDMA there", "group rdma");
	fails_at("rdma_bind_addr", EADDRNOTAVAIL, "is no address of an RDMA device of this host", "there are: ");
}

/* The kernel locks no file on a disk: where the pool may be is said, and nothing is left. */
static void test_file_that_is_not_registered(void **state)
{
	char folder[PATH_MAX], text[PATH_MAX + 256];
	struct statfs fs;
	unsigned long n = 0;

	(void)state;
	assert_non_null(getcwd(folder, sizeof(folder)));
	if (statfs(folder, &fs) < 0 || fs.f_type == TMPFS_MAGIC)
		skip();
	snprintf(text, sizeof(text), "%s%sfile = %s/test-verbs-listen.pool\n", LISTEN, POOL, folder);
	do {
		begin(text);
		fake.memory = true;
		fake.fail_errno = EFAULT;
		fake.fail_at = ++n;
		if (start() < 0)
			d = NULL;
		if (strcmp(fake.failed, "ibv_reg_mr") == 0)
			break;
		assert_true(n < 200);
		end();
	} while (true);
	assert_null(d);
	assert_non_null(strstr(err_text(), "/test-verbs-listen.pool on tmpfs or hugetlbfs"));
	fake_nothing_left("ibv_reg_mr");
	end();
	snprintf(text, sizeof(text), "%s/test-verbs-listen.pool", folder);
	unlink(text);
}

static void test_gid_index(void **state)
{
	struct client c;

	(void)state;
	open_daemon(LISTEN "gid_index = 1\n" POOL);
	client_open(&c, 1);
	assert_int_equal(fake_qp_attr(c.qp)->ah_attr.grh.sgid_index, 1);
	client_works(&c);
	end();
	/* iWARP has no use for it */
	begin(LISTEN "gid_index = 3\n" POOL);
	fake_iwarp(&fake.devices[0]);
	assert_int_equal(start(), 0);
	end();
}

static void test_start_by_device(void **state)
{
	struct client c;

	(void)state;
	open_daemon("[listen r]\ndevice = fake0\nport = 0\n" POOL);
	assert_string_equal(listener()->text, "10.77.0.1:43210");
	client_open(&c, 1);
	client_works(&c);
	end();
}

/* Memory is registered once for all listeners on a device. */
static void test_registered_once(void **state)
{
	unsigned pieces = 0;

	(void)state;
	open_daemon(LISTEN "[listen s]\naddress = 10.77.0.2\n[listen t]\naddress = "
			   "10.77.0.3\n" POOL);
	for (unsigned i = 0; fake_nth_mr(i); i++)
		pieces += fake_nth_mr(i)->addr == pool()->memory.base;
	assert_int_equal(pieces, 2);
	assert_int_equal(device()->counters.removed, 0);
	assert_non_null(fake_listener(2));
	/* keys have gone up by one for each registration that was ever made */
	assert_in_range(fake_nth_mr(0)->lkey, 0, 0x1000 + 0x101 * 2);
	end();
}

/* ---- handshakes ------------------------------------------------------------------------------ */

static void test_accept(void **state)
{
	struct client writer, reader;
	const struct ibv_qp_attr *attr;

	(void)state;
	open_daemon(LISTEN POOL);
	remember_live();
	client_open(&writer, 1);
	attr = fake_qp_attr(writer.qp);
	assert_int_equal(writer.reply.role, WIRE_ROLE_WRITE);
	assert_int_equal(writer.reply.region_count, 1);
	assert_int_equal(writer.reply.regions[0].length, pool()->memory.bytes);
	assert_int_equal(attr->qp_state, IBV_QPS_RTS);
	assert_int_equal(attr->qp_access_flags, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
							IBV_ACCESS_REMOTE_ATOMIC);
	assert_int_equal(fake_mr_access(writer.reply.regions[0].rkey),
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_ATOMIC);
	assert_int_equal(writer.record->param.initiator_depth, 16);
	assert_int_equal(writer.record->param.responder_resources, 16);
	assert_int_equal(attr->max_dest_rd_atomic, 16);
	assert_true(verbs_late_ns(attr->timeout, attr->retry_cnt) <
		    pool()->geometry.grace_ns - pool()->geometry.deadline_ns);
	assert_int_equal(attr->rnr_retry, VERBS_RNR_RETRIES);

	client_connect(&reader, 2, "main", WIRE_REQUEST_READONLY);
	assert_int_equal(reader.record->accepted, 1);
	assert_int_equal(reader.reply.role, WIRE_ROLE_READ);
	assert_int_equal(fake_qp_access(reader.qp), IBV_ACCESS_REMOTE_READ);
	assert_int_equal(fake_mr_access(reader.reply.regions[0].rkey), IBV_ACCESS_REMOTE_READ);
	client_works(&writer);
	client_works(&reader);
	assert_int_equal(client_ask(&reader, (struct wire_rpc){.type = WIRE_RPC_PAGE}).status,
			 -TARN_EREADONLY);
	client_leave(&writer);
	client_leave(&reader);
	is_gone(&writer, "disconnected");
	is_gone(&reader, "disconnected");
	assert_int_equal(pool()->client_count, 0);
	end();
}

static void test_accept_cpu(void **state)
{
	struct client c, reader;
	struct wire_rpc_reply reply;

	(void)state;
	open_daemon(LISTEN POOL "atomics = cpu\n");
	remember_live();
	client_open(&c, 1);
	assert_int_equal(c.reply.atomics, LAYOUT_ATOMICS_CPU);
	assert_int_equal(fake_qp_access(c.qp), IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	assert_false(fake_mr_access(c.reply.regions[0].rkey) & IBV_ACCESS_REMOTE_ATOMIC);
	reply = client_ask(&c, (struct wire_rpc){.type = WIRE_RPC_FAA,
						 .slot_offset = LAYOUT_CURSOR_OFFSET,
						 .delta = 1});
	assert_int_equal(reply.status, 0);
	client_connect(&reader, 2, "main", WIRE_REQUEST_READONLY);
	reply = client_ask(&reader, (struct wire_rpc){.type = WIRE_RPC_FAA,
						      .slot_offset = LAYOUT_CURSOR_OFFSET,
						      .delta = 1});
	assert_int_equal(reply.status, -TARN_EREADONLY);
	client_leave(&c);
	client_leave(&reader);
	is_gone(&c, "disconnected");
	end();
}

static void test_accept_iwarp(void **state)
{
	struct client c;
	size_t before;

	(void)state;
	begin(LISTEN POOL);
	fake_iwarp(&fake.devices[0]);
	assert_int_equal(start(), 0);
	remember_live();
	assert_int_equal(pool()->geometry.atomics, LAYOUT_ATOMICS_CPU);
	client_open(&c, 1);
	/* the client sends first: the daemon says nothing at once */
	loop(1500 * MS);
	assert_int_equal(fake.wr_count, 0);
	client_works(&c);
	before = fake.wr_count;
	loop(6000 * MS);
	assert_true(fake.wr_count > before + 2);
	/* a WRITE would be complete when TCP has it */
	for (size_t i = before; i < fake.wr_count; i++) {
		assert_int_equal(fake.wrs[i].opcode, IBV_WR_RDMA_READ);
		assert_int_equal(fake.wrs[i].length, 0);
	}
	assert_non_null(c.record->id);
	client_leave(&c);
	is_gone(&c, "disconnected");
	/* there lengths are exact: others are refused */
	for (uint8_t count = 0; count < WIRE_REQUEST_BYTES; count++) {
		static const uint8_t bytes[WIRE_REQUEST_BYTES];

		client_bytes(&c, 1, bytes, count);
		assert_int_equal(c.record->rejected, 1);
		assert_int_equal(c.reject.reason, WIRE_REASON_MALFORMED);
		is_gone(&c, "a short request");
	}
	end();
}

/* Every region, the later ones by RPC, with the keys of the role. */
static void test_regions(void **state)
{
	struct client clients[2];

	(void)state;
	begin("[listen r]\naddress = 10.77.0.1\n[pool main]\n" OPEN "size = 16M\nhugepages = off\n"
	      "max_clients = 8\n");
	small_regions();
	assert_int_equal(start(), 0);
	for (unsigned i = 0; i < 2; i++) {
		uint64_t sum = 0, address = (uintptr_t)pool()->memory.base;

		client_connect(&clients[i], i, "main", i ? WIRE_REQUEST_READONLY : 0);
		assert_int_equal(clients[i].reply.region_count, WIRE_REGIONS);
		for (uint32_t r = 0; sum < clients[i].reply.pool_bytes; r++) {
			struct wire_rpc_reply reply =
				client_ask(&clients[i],
					   (struct wire_rpc){.type = WIRE_RPC_REGION, .class = r});

			assert_int_equal(reply.status, 0);
			assert_true((uint64_t)reply.value == address + sum);
			if (r < WIRE_REGIONS) {
				assert_int_equal(reply.number, clients[i].reply.regions[r].rkey);
				assert_int_equal(reply.length, clients[i].reply.regions[r].length);
			}
			assert_int_equal(!!(fake_mr_access(reply.number) & IBV_ACCESS_REMOTE_WRITE),
					 i == 0);
			sum += reply.length;
		}
		assert_int_equal(sum, clients[i].reply.pool_bytes);
	}
	end();
}

static void refused(struct client *c, enum wire_reason reason)
{
	if (!c->record->rejected || c->reject.reason != reason)
		fail_msg("rejected %u times, reason %u instead of %u", c->record->rejected,
			 c->reject.reason, reason);
	assert_int_equal(c->record->accepted, 0);
	is_gone(c, wire_reason_text((uint16_t)reason));
	assert_int_equal(pool()->client_count, 0);
}

static void test_refusals(void **state)
{
	struct wire_request request;
	uint8_t bytes[WIRE_REQUEST_BYTES] = {0};
	struct client c;

	(void)state;
	open_daemon(LISTEN POOL "[listen other]\naddress = 10.77.0.9\n[pool elsewhere]\n" OPEN
				"size = "
				"4M\nhugepages = off\nlisten = other\n");
	remember_live();
	client_connect(&c, 1, "nowhere", 0);
	refused(&c, WIRE_REASON_NO_POOL);
	client_connect(&c, 1, "elsewhere", 0);
	refused(&c, WIRE_REASON_TRANSPORT);
	client_bytes(&c, 1, bytes, sizeof(bytes));
	refused(&c, WIRE_REASON_MALFORMED);
	request = request_of("main", 0);
	request.version_min = request.version_max = 77;
	wire_request_encode(&request, bytes);
	client_bytes(&c, 1, bytes, sizeof(bytes));
	refused(&c, WIRE_REASON_VERSION);
	assert_int_equal(c.reject.detail, WIRE_VERSION_MIN | WIRE_VERSION_MAX << 8);
	d->stopping = true;
	client_connect(&c, 1, "main", 0);
	refused(&c, WIRE_REASON_SHUTDOWN);
	d->stopping = false;
	client_open(&c, 1);
	assert_int_equal(listener()->refused[WIRE_REASON_NO_POOL], 1);
	assert_int_equal(listener()->refused[WIRE_REASON_MALFORMED], 1);
	assert_int_equal(listener()->accepted, 1);
	end();
}

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void key_file(char path[32])
{
	static const char text[] = "writer write " SECRET "\nreader read " SECRET "\n";
	int fd;

	strcpy(path, "/tmp/tarn-keys.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	close(fd);
}

static struct auth_key key_of(const char *id, uint8_t role)
{
	struct auth_key key = {.role = role};

	memcpy(key.id, id, strlen(id));
	for (unsigned i = 0; i < AUTH_SECRET_BYTES; i++)
		key.secret[i] = (uint8_t)(0x11 * (i % 16));
	return key;
}

static void signed_request(const struct auth_key *key, uint16_t flags,
			   uint8_t bytes[WIRE_REQUEST_BYTES])
{
	struct wire_request request = request_of("main", flags);

	memcpy(request.key_id, key->id, sizeof(request.key_id));
	wire_request_encode(&request, bytes);
	auth_request_sign(key, bytes);
}

static void test_keys(void **state)
{
	struct auth_key writer = key_of("writer", WIRE_ROLE_WRITE),
			reader = key_of("reader", WIRE_ROLE_READ), wrong = writer;
	uint8_t bytes[WIRE_REQUEST_BYTES], old[WIRE_REQUEST_BYTES];
	char path[32], text[512];
	struct client c;

	(void)state;
	key_file(path);
	snprintf(text, sizeof(text), LISTEN POOL "auth = key\nkey_file = %s\n", path);
	open_daemon(text);
	unlink(path); /* has been read */
	remember_live();
	loop(10 * MS);
	client_connect(&c, 1, "main", 0);
	refused(&c, WIRE_REASON_NO_KEY);
	wrong.secret[0] ^= 1;
	signed_request(&wrong, 0, bytes);
	client_bytes(&c, 1, bytes, sizeof(bytes));
	refused(&c, WIRE_REASON_BAD_MAC);
	signed_request(&writer, 0, bytes);
	for (unsigned i = 0; i < WIRE_REQUEST_BYTES; i++) { /* each byte of it is signed */
		uint8_t changed[WIRE_REQUEST_BYTES];

		memcpy(changed, bytes, sizeof(changed));
		changed[i] ^= 0x10;
		client_bytes(&c, 1, changed, sizeof(changed));
		assert_int_equal(c.record->accepted, 0);
		is_gone(&c, "a changed byte");
	}
	signed_request(&reader, 0, bytes);
	client_bytes(&c, 1, bytes, sizeof(bytes));
	refused(&c, WIRE_REASON_ROLE);
	signed_request(&reader, WIRE_REQUEST_READONLY, bytes);
	client_bytes(&c, 1, bytes, sizeof(bytes));
	assert_int_equal(c.record->accepted, 1);
	assert_int_equal(fake_qp_access(c.qp), IBV_ACCESS_REMOTE_READ);
	assert_int_equal(auth_reply_check(&reader, bytes, c.record->bytes), 0);
	client_leave(&c);
	signed_request(&writer, 0, old);
	client_bytes(&c, 1, old, sizeof(old));
	assert_int_equal(c.record->accepted, 1);
	client_leave(&c);
	client_bytes(&c, 1, old, sizeof(old));
	refused(&c, WIRE_REASON_REPLAY);
	loop(1000 * MS);
	client_bytes(&c, 1, old, sizeof(old));
	refused(&c, WIRE_REASON_REPLAY);
	end();
}

/* ---- admission ------------------------------------------------------------------------------- */

static void test_max_connections(void **state)
{
	struct client clients[5];

	(void)state;
	open_daemon("[listen r]\naddress = 10.77.0.1\nmax_connections = 3\n" POOL);
	remember_live();
	for (unsigned i = 0; i < 3; i++)
		client_open(&clients[i], i);
	client_connect(&clients[3], 3, "main", 0);
	assert_int_equal(clients[3].reject.reason, WIRE_REASON_CLIENTS);
	assert_int_equal(clients[3].reject.detail, 3);
	assert_true(clients[3].reject.retry_after_ms > 0);
	client_leave(&clients[1]);
	client_open(&clients[4], 4);
	client_leave(&clients[0]);
	client_leave(&clients[2]);
	client_leave(&clients[4]);
	live_as_before("all have left");
	end();
}

static void test_max_per_address(void **state)
{
	struct client clients[4];

	(void)state;
	open_daemon("[listen r]\naddress = 10.77.0.1\nmax_per_address = 2\n" POOL);
	client_open(&clients[0], 1);
	client_open(&clients[1], 1);
	client_connect(&clients[2], 1, "main", 0);
	assert_int_equal(clients[2].reject.reason, WIRE_REASON_ADDRESS);
	client_open(&clients[3], 2);
	client_leave(&clients[0]);
	client_open(&clients[2], 1);
	end();
}

static void test_max_clients(void **state)
{
	struct client clients[10];

	(void)state;
	open_daemon(LISTEN POOL);
	remember_live();
	for (unsigned i = 0; i < 8; i++)
		client_open(&clients[i], i);
	client_connect(&clients[8], 8, "main", 0);
	assert_int_equal(clients[8].reject.reason, WIRE_REASON_CLIENTS);
	for (unsigned i = 0; i < 8; i++)
		client_works(&clients[i]);
	for (unsigned i = 0; i < 8; i++)
		client_leave(&clients[i]);
	live_as_before("all have left");
	end();
}

/* A storm: served in order, a few at a time; who finds the queue full is told. */
static void test_storm(void **state)
{
	enum { STORM = 60 };
	static struct client clients[STORM];
	unsigned waiting = 0, busy = 0, open = 0;

	(void)state;
	open_daemon("[listen r]\naddress = 10.77.0.1\nbacklog = 10\n" LARGE);
	remember_live();
	fake.on_accept.silent = true;
	for (unsigned i = 0; i < STORM; i++)
		client_connect(&clients[i], i, "main", 0);
	for (unsigned i = 0; i < STORM; i++) {
		open += clients[i].record->accepted;
		busy += clients[i].record->rejected;
		if (clients[i].record->rejected) {
			assert_int_equal(clients[i].reject.reason, WIRE_REASON_BUSY);
			assert_true(clients[i].reject.retry_after_ms > 0);
		} else if (!clients[i].record->accepted) {
			waiting++;
		}
	}
	assert_int_equal(waiting, 10);
	assert_int_equal(open + waiting + busy, STORM);
	/* one is done: the one who has waited longest comes in, and nobody else */
	for (unsigned done = 0; done < waiting; done++) {
		fake_event(clients[done].id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
		loop(0);
		assert_int_equal(clients[open + done].record->accepted, 1);
		if (open + done + 1 < open + waiting)
			assert_int_equal(clients[open + done + 1].record->accepted, 0);
	}
	/* the others never answer, and are given up */
	loop(12000 * MS);
	for (unsigned i = 0; i < waiting; i++)
		client_leave(&clients[i]);
	for (unsigned i = 0; i < STORM; i++)
		is_gone(&clients[i], "after the storm");
	end();
}

/* ---- the end of connections ------------------------------------------------------------------ */

/* Brings a client to a state: waiting, connecting, connected. */
static void client_in(struct client *c, enum peer_verbs_state where)
{
	fake.on_accept.silent = where != PEER_VERBS_CLIENT;
	client_connect(c, 7, "main", 0);
	fake.on_accept.silent = false;
}

static void test_events(void **state)
{
	(void)state;
	for (unsigned type = 0; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
		for (unsigned where = PEER_VERBS_CONNECTING; where <= PEER_VERBS_CLIENT; where++) {
			bool ends = type == RDMA_CM_EVENT_DISCONNECTED ||
				    type == RDMA_CM_EVENT_REJECTED ||
				    type == RDMA_CM_EVENT_CONNECT_ERROR ||
				    type == RDMA_CM_EVENT_UNREACHABLE ||
				    type == RDMA_CM_EVENT_ADDR_CHANGE;
			struct client c, second;

			if (type == RDMA_CM_EVENT_CONNECT_REQUEST ||
			    type == RDMA_CM_EVENT_DEVICE_REMOVAL)
				continue;
			open_daemon(LISTEN POOL);
			remember_live();
			client_in(&c, (enum peer_verbs_state)where);
			assert_int_equal(c.record->accepted, 1);
			fake_event(c.id, (enum rdma_cm_event_type)type, -5, NULL, 0);
			/* and whatever comes after it */
			if (type % 2)
				fake_event(c.id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0);
			loop(0);
			if (ends) {
				is_gone(&c, verbs_event_name((enum rdma_cm_event_type)type));
				assert_int_equal(pool()->client_count, 0);
			} else {
				assert_non_null(c.record->id);
				assert_int_equal(pool()->client_count, 1);
			}
			client_open(&second, 8);
			client_works(&second);
			end();
		}
	}
}

/* Events of the listener's own id that make no sense. */
static void test_listener_events(void **state)
{
	struct client c;

	(void)state;
	open_daemon(LISTEN POOL);
	for (unsigned type = 0; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++)
		if (type != RDMA_CM_EVENT_CONNECT_REQUEST && type != RDMA_CM_EVENT_DEVICE_REMOVAL)
			fake_event(fake_listener(0), (enum rdma_cm_event_type)type, 0, NULL, 0);
	loop(3000 * MS);
	client_open(&c, 1);
	client_works(&c);
	end();
}

/* ESTABLISHED never comes. */
static void test_never_established(void **state)
{
	struct client c;

	(void)state;
	open_daemon(LISTEN POOL);
	remember_live();
	fake.on_accept.silent = true;
	client_connect(&c, 1, "main", 0);
	assert_int_equal(c.record->accepted, 1);
	loop(4500 * MS);
	assert_non_null(c.record->id);
	loop(1500 * MS);
	is_gone(&c, "not established");
	assert_int_equal(pool()->client_count, 0);
	end();
}

/* A message comes before ESTABLISHED: the connection is up. */
static void test_message_first(void **state)
{
	struct client c;

	(void)state;
	open_daemon(LISTEN POOL);
	remember_live();
	fake.on_accept.silent = true;
	client_connect(&c, 1, "main", 0);
	fake_async(0, IBV_EVENT_COMM_EST, c.qp);
	client_works(&c);
	assert_int_equal(c.record->notified, 1);
	fake_event(c.id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	loop(10000 * MS);
	client_works(&c);
	client_leave(&c);
	is_gone(&c, "disconnected");
	end();
}

/* A client that has gone while it was still waiting for its turn. */
static void test_gone_while_waiting(void **state)
{
	enum { MANY = 40 };
	static struct client clients[MANY];

	(void)state;
	open_daemon("[listen r]\naddress = 10.77.0.1\nbacklog = 100\n" LARGE);
	remember_live();
	fake.on_accept.silent = true;
	for (unsigned i = 0; i < MANY; i++)
		client_connect(&clients[i], i, "main", 0);
	assert_int_equal(clients[MANY - 1].record->accepted, 0);
	for (unsigned i = MANY; i-- > 0;)
		fake_event(clients[i].id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	loop(0);
	for (unsigned i = 0; i < MANY; i++)
		is_gone(&clients[i], "gone while waiting");
	end();
}

/* One that dies before it is connected makes room for the next, too. */
static void test_turn_after_death(void **state)
{
	enum { MANY = 40 };
	static struct client clients[MANY];
	unsigned open = 0;

	(void)state;
	open_daemon("[listen r]\naddress = 10.77.0.1\nbacklog = 100\n" LARGE);
	fake.on_accept.silent = true;
	for (unsigned i = 0; i < MANY; i++)
		client_connect(&clients[i], i, "main", 0);
	while (open < MANY && clients[open].record->accepted)
		open++;
	assert_in_range(open, 1, MANY - 5);
	for (unsigned i = 0; i < 5; i++) {
		fake_event(clients[i].id, RDMA_CM_EVENT_UNREACHABLE, -110, NULL, 0);
		loop(0);
		assert_int_equal(clients[open + i].record->accepted, 1);
	}
	end();
}

static void test_each_completion_status(void **state)
{
	(void)state;
	for (unsigned status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; status++) {
		struct client c, second;

		open_daemon(LISTEN POOL);
		remember_live();
		client_open(&c, 1);
		fake.wc_error_at = 1; /* the probe, a second later */
		fake.wc_error = (enum ibv_wc_status)status;
		loop(2500 * MS);
		assert_int_equal(fake.wc_error_at, 0);
		is_gone(&c, verbs_status_name((enum ibv_wc_status)status));
		assert_int_equal(c.record->disconnected, 1);
		assert_int_equal(pool()->client_count, 0);
		client_open(&second, 2);
		client_works(&second);
		end();
	}
}

/* Who speaks is not asked whether it lives; who is silent is, once a second, and one at a time. */
static void test_probes(void **state)
{
	struct client c;
	size_t before;

	(void)state;
	open_daemon(LISTEN POOL);
	client_open(&c, 1);
	loop(1000 * MS);
	before = fake.wr_count;
	loop(10000 * MS);
	assert_in_range(fake.wr_count - before, 9, 11);
	for (size_t i = before; i < fake.wr_count; i++) {
		assert_int_equal(fake.wrs[i].opcode, IBV_WR_RDMA_WRITE);
		assert_int_equal(fake.wrs[i].length, 0);
		assert_true(fake.wrs[i].flags & IBV_SEND_SIGNALED);
	}
	fake.hold_qp_num = c.qp->qp_num;
	before = fake.wr_count;
	loop(3000 * MS);
	assert_in_range(fake.wr_count - before, 1, 1);
	fake.hold_qp_num = 0;
	loop(0);
	before = fake.wr_count;
	for (unsigned i = 0; i < 50; i++) {
		client_works(&c);
		loop(200 * MS);
	}
	for (size_t i = before; i < fake.wr_count; i++)
		assert_int_equal(fake.wrs[i].opcode, IBV_WR_SEND);
	end();
}

/* No answer and no error either: not waited for without end. */
static void test_probe_unanswered(void **state)
{
	static void (*const changes[])(void) = {NULL, no_srq, iwarp};

	(void)state;
	for (unsigned how = 0; how < 3; how++) {
		struct client c;

		begin(LISTEN POOL);
		if (changes[how])
			changes[how]();
		assert_int_equal(start(), 0);
		loop(0);
		remember_live();
		client_open(&c, 1);
		client_works(&c);
		fake.hold_qp_num = c.qp->qp_num;
		loop(15000 * MS);
		is_gone(&c, "no answer");
		assert_int_equal(pool()->client_count, 0);
		end();
	}
}

static void test_garbage(void **state)
{
	static const uint32_t lengths[] = {0, 1, 8, 39, 40, 41, 63, 64, 65, 200};
	static uint8_t bytes[200];

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (int value = 0; value < 256; value += 85) {
			struct client c, second;

			open_daemon(LISTEN POOL);
			client_open(&second, 2);
			remember_live();
			client_open(&c, 1);
			memset(bytes, value, sizeof(bytes));
			fake_deliver(c.qp, bytes, lengths[i]);
			loop(0);
			is_gone(&c, "garbage");
			assert_int_equal(c.record->disconnected, 1);
			client_works(&second);
			end();
		}
	}
}

static struct client *late;

static void says_late(struct ibv_cq *cq)
{
	if (!late || cq != late->qp->recv_cq)
		return;
	client_say(late, &(struct wire_rpc){.type = WIRE_RPC_PING});
	late = NULL;
}

/* A message that comes right before the queue is armed makes no event, and is not left lying. */
static void test_arming(void **state)
{
	struct client c;
	unsigned before;

	(void)state;
	open_daemon(LISTEN POOL);
	client_open(&c, 1);
	fake.arming = says_late;
	for (unsigned i = 0; i < 10; i++) {
		before = answers.count;
		late = &c;
		client_say(&c, &(struct wire_rpc){.type = WIRE_RPC_PING});
		loop(0);
		assert_int_equal(answers.count, before + 2);
	}
	end();
}

/* A client that never takes its answers is cut off; others are not harmed. */
static void test_flood(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PING};
	struct client c, second;

	(void)state;
	for (int srq = 0; srq < 2; srq++) {
		unsigned said = 0;

		begin(LISTEN POOL);
		if (!srq)
			no_srq();
		assert_int_equal(start(), 0);
		client_open(&second, 2);
		remember_live();
		client_open(&c, 1);
		fake.hold_qp_num = c.qp->qp_num;
		fake.rnr_is_fatal = false;
		while (said < 1000 && client_say(&c, &rpc))
			said++;
		loop(0);
		is_gone(&c, "a flood");
		client_works(&second);
		end();
	}
}

/* Up to eight unanswered messages are served. */
static void test_no_flood(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PING};
	struct client c;
	unsigned before;

	(void)state;
	for (int srq = 0; srq < 2; srq++) {
		begin(LISTEN POOL);
		if (!srq)
			no_srq();
		assert_int_equal(start(), 0);
		client_open(&c, 1);
		for (unsigned round = 0; round < 50; round++) {
			before = answers.count;
			for (unsigned i = 0; i < 8; i++)
				assert_true(client_say(&c, &rpc));
			loop(0);
			assert_int_equal(answers.count, before + 8);
		}
		end();
	}
}

/* Asks again as soon as it is answered, so that the completion queue is never empty. */
static struct {
	struct client *client;
	unsigned left, left_at_turn;
	int pipe[2];
} load;

static void says_again(struct ibv_qp *qp, const void *bytes, uint32_t count)
{
	on_send(qp, bytes, count);
	if (load.left == 15000)
		assert_int_equal(write(load.pipe[1], "x", 1), 1);
	if (load.left && load.left--) {
		client_say(load.client, &(struct wire_rpc){.type = WIRE_RPC_PING});
		fake.send = says_again;
	}
}

static void others_turn(evutil_socket_t fd, short what, void *arg)
{
	char byte;

	(void)what;
	(void)arg;
	assert_int_equal(read(fd, &byte, 1), 1);
	load.left_at_turn = load.left;
}

/* Clients that keep the daemon busy without end do not keep other events from their turn. */
static void test_turns(void **state)
{
	struct client c;
	struct event *other;

	(void)state;
	open_daemon(LISTEN POOL);
	client_open(&c, 1);
	assert_int_equal(pipe(load.pipe), 0);
	other = event_new(d->base, load.pipe[0], EV_READ, others_turn, NULL);
	assert_int_equal(event_add(other, NULL), 0);
	load.client = &c;
	load.left = 20000;
	load.left_at_turn = 0;
	for (unsigned i = 0; i < 4; i++)
		client_say(&c, &(struct wire_rpc){.type = WIRE_RPC_PING});
	fake.send = says_again;
	loop(0);
	assert_int_equal(load.left, 0);
	assert_in_range(load.left_at_turn, 10000, 15000);
	event_free(other);
	close(load.pipe[0]);
	close(load.pipe[1]);
	end();
}

/* What comes by a WRITE with immediate data is no message: its buffer holds an old one. */
static void test_immediate(void **state)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS,
			    .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
			    .byte_len = WIRE_RPC_BYTES};
	uint8_t bytes[WIRE_RPC_BYTES];
	struct client c;
	unsigned before;

	(void)state;
	open_daemon(LISTEN POOL);
	remember_live();
	client_open(&c, 1);
	client_works(&c);
	before = answers.count;
	wire_rpc_encode(&(struct wire_rpc){.type = WIRE_RPC_PING}, bytes);
	peer_verbs_completion(TAILQ_FIRST(&listener()->peers), &wc, bytes);
	loop(0);
	assert_int_equal(answers.count, before);
	is_gone(&c, "immediate data");
	end();
}

static void test_without_srq(void **state)
{
	struct client clients[8];

	(void)state;
	begin(LISTEN POOL);
	no_srq();
	assert_int_equal(start(), 0);
	remember_live();
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 8; i++)
			client_open(&clients[i], i);
		for (unsigned k = 0; k < 30; k++)
			for (unsigned i = 0; i < 8; i++)
				client_works(&clients[i]);
		for (unsigned i = 0; i < 8; i += 2)
			client_leave(&clients[i]);
		for (unsigned i = 0; i < 8; i += 2)
			client_open(&clients[i], i);
		for (unsigned i = 0; i < 8; i++)
			client_works(&clients[i]);
		for (unsigned i = 0; i < 8; i++)
			client_leave(&clients[i]);
		live_as_before("all have left");
	}
	end();
}

/* tarn clients kill, or a revoked key. */
static void test_cut(void **state)
{
	struct pool_client *slot;
	struct client c;

	(void)state;
	for (unsigned where = PEER_VERBS_CONNECTING; where <= PEER_VERBS_CLIENT; where++) {
		open_daemon(LISTEN POOL);
		remember_live();
		client_in(&c, (enum peer_verbs_state)where);
		slot = &pool()->clients[c.reply.client_slot];
		slot->cut(slot->peer, "killed");
		/* at once: before anything else is done for it */
		assert_int_equal(fake_qp_state(c.qp), IBV_QPS_ERR);
		slot->cut(slot->peer, "killed again");
		loop(0);
		is_gone(&c, "killed");
		end();
	}
}

/* ---- asynchronous events --------------------------------------------------------------------- */

static void test_async(void **state)
{
	(void)state;
	for (unsigned type = 0; type <= IBV_EVENT_WQ_FATAL + 3; type++) {
		for (unsigned about = 0; about < 3; about++) {
			struct client c, second;
			void *element = NULL;

			open_daemon(LISTEN POOL);
			client_open(&c, 1);
			client_open(&second, 2);
			switch (type) {
			case IBV_EVENT_CQ_ERR:
				element = c.qp->send_cq;
				break;
			case IBV_EVENT_SRQ_ERR:
			case IBV_EVENT_SRQ_LIMIT_REACHED:
				element = c.qp->srq;
				break;
			case IBV_EVENT_QP_FATAL:
			case IBV_EVENT_QP_REQ_ERR:
			case IBV_EVENT_QP_ACCESS_ERR:
			case IBV_EVENT_COMM_EST:
			case IBV_EVENT_SQ_DRAINED:
			case IBV_EVENT_PATH_MIG:
			case IBV_EVENT_PATH_MIG_ERR:
			case IBV_EVENT_QP_LAST_WQE_REACHED:
				/* a client's, or one of the pool's connection to itself */
				element = about == 2 ? (void *)fake_nth_qp(0) : c.qp;
				break;
			default:
				break;
			}
			if (about == 1) /* it is about to be destroyed */
				fake_event(c.id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
			fake_async(0, (enum ibv_event_type)type, element);
			loop(0);
			loop(5000 * MS);
			client_open(&c, 3);
			client_works(&c);
			end();
		}
	}
}

/* ---- devices that go and come ---------------------------------------------------------------- */

static void device_gone(bool by_event)
{
	fake.gone[0] = true;
	if (by_event)
		fake_event(fake_listener(0), RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	else
		fake_async(0, IBV_EVENT_DEVICE_FATAL, NULL);
	loop(0);
}

static void nothing_on_device(const char *what)
{
	static const enum fake_kind kinds[] = {FAKE_PD,  FAKE_PARENT_PD,    FAKE_TD,
					       FAKE_MR,  FAKE_CQ,           FAKE_QP,
					       FAKE_SRQ, FAKE_COMP_CHANNEL, FAKE_ID};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (fake.live[kinds[i]])
			fail_msg("%s: %s left on the device", what, fake_kind_name(kinds[i]));
}

static void removal(const char *text, void (*change)(void), bool by_event)
{
	struct client clients[3], c;
	unsigned posts;
	uint64_t word;

	begin(text);
	if (change)
		change();
	assert_int_equal(start(), 0);
	client_open(&clients[0], 1);
	client_open(&clients[1], 2);
	fake.on_accept.silent = true;
	client_connect(&clients[2], 3, "main", 0);
	fake.on_accept.silent = false;
	remember_live();
	memcpy(&word, pool()->memory.base, 8);
	/* everybody's id is told, too */
	fake_event(clients[0].id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	posts = fake.posts;
	device_gone(by_event);
	assert_int_equal(fake.posts, posts); /* nobody answers there any more */
	nothing_on_device("removal");
	for (unsigned i = 0; i < 3; i++)
		assert_null(clients[i].record->id);
	assert_int_equal(pool()->client_count, 0);
	assert_null(pool()->self);
	assert_int_equal(device()->counters.removed, 1);
	loop(20000 * MS);
	nothing_on_device("still away");
	fake.gone[0] = false;
	loop(2500 * MS);
	assert_int_equal(listener()->state, LISTENER_UP);
	assert_memory_equal(pool()->memory.base, &word, 8);
	client_open(&c, 4);
	client_works(&c);
	end();
}

static void test_device_removal(void **state)
{
	(void)state;
	removal(LISTEN POOL, NULL, true);
	removal(LISTEN POOL, NULL, false);
	removal(LISTEN POOL, no_srq, true);
	removal(LISTEN POOL, iwarp, true);
	removal(LISTEN POOL "atomics = cpu\n", small_regions, true);
}

/* It goes again while its memory is being registered, and while the daemon stops. */
static void test_removal_while_registering(void **state)
{
	(void)state;
	for (unsigned how = 0; how < 3; how++) {
		struct client c;

		open_daemon(LISTEN POOL);
		device_gone(true);
		fake.gone[0] = false;
		fake.hold_threads = true;
		loop(2500 * MS);
		assert_int_equal(listener()->state, LISTENER_REGISTERING);
		if (how == 1) {
			device_gone(false);
			assert_int_equal(device()->busy, 1);
		}
		if (how < 2) {
			fake_thread_run();
			fake.hold_threads = false;
			loop(0);
		}
		if (how == 1) {
			nothing_on_device("gone while registering");
			fake.gone[0] = false;
			loop(5000 * MS);
		}
		if (how < 2) {
			client_open(&c, 1);
			client_works(&c);
		}
		end(); /* how 2: stops while the thread is at it */
	}
}

/* Coming back, with every call failing once: it is tried again until it works. */
static void test_return_failures(void **state)
{
	unsigned long n = 0;
	bool more;

	(void)state;
	do {
		struct client c;

		open_daemon(LISTEN POOL);
		client_open(&c, 1);
		fake.memory = true;
		fake.fail_errno = ENOMEM;
		device_gone(true);
		fake.gone[0] = false;
		fake.failed[0] = '\0';
		fake.calls = 0;
		fake.fail_at = ++n;
		loop(2100 * MS);
		more = fake.failed[0];
		fake.fail_at = 0;
		fake.memory = false;
		loop(10000 * MS);
		if (listener()->state != LISTENER_UP)
			fail_msg("call %lu, %s: the listener stays down", n, fake.failed);
		client_open(&c, 2);
		client_works(&c);
		end();
	} while (more);
	assert_in_range(n, 20, 2000);
}

/* The address goes to another device, or away, and comes back. */
static void test_address_change(void **state)
{
	struct client c, second;

	(void)state;
	open_daemon(LISTEN POOL);
	client_open(&c, 1);
	fake.gone[0] = true;
	fake_event(fake_listener(0), RDMA_CM_EVENT_ADDR_CHANGE, 0, NULL, 0);
	loop(1000 * MS);
	assert_int_equal(listener()->state, LISTENER_DOWN);
	client_works(&c); /* who is connected stays so */
	fake.gone[0] = false;
	fake_async(0, IBV_EVENT_GID_CHANGE, NULL);
	loop(500 * MS);
	assert_int_equal(listener()->state, LISTENER_UP);
	client_open(&second, 2);
	client_works(&second);
	client_works(&c);
	end();
}

/*
 * While the port is down nothing is said to the other side, and ids wait for it; they go with the
 * port's return, the device or the daemon.
 */
static void test_port_down(void **state)
{
	(void)state;
	for (unsigned how = 0; how < 4; how++) {
		struct client c, second;

		open_daemon(LISTEN POOL);
		remember_live();
		client_open(&c, 1);
		fake_async_port(0, IBV_EVENT_PORT_ERR, how == 3 ? 2 : 1);
		loop(0);
		fake.wc_error_at = 1;
		fake.wc_error = IBV_WC_RETRY_EXC_ERR;
		loop(2000 * MS);
		assert_int_equal(pool()->client_count, 0);
		assert_null(fake_qp(c.record->param.qp_num));
		if (how == 3) { /* another port's affair */
			assert_int_equal(c.record->disconnected, 1);
			is_gone(&c, "the other port");
		} else {
			assert_int_equal(c.record->disconnected, 0);
			assert_non_null(c.record->id);
			fake_event(c.id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
			loop(0);
		}
		if (how == 0) {
			fake_async(0, IBV_EVENT_PORT_ACTIVE, NULL);
			loop(0);
			is_gone(&c, "the port is back");
			client_open(&second, 2);
			client_works(&second);
		} else if (how == 1) {
			device_gone(false);
			nothing_on_device("gone with the port down");
		}
		end();
	}
}

/* A device that has room for few completions or receives: fewer clients, and no overrun. */
static void test_small_device(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_PING};

	(void)state;
	for (unsigned how = 0; how < 3; how++) {
		struct client clients[8];
		unsigned open = 0;

		begin(LISTEN POOL "atomics = cpu\n");
		fake.devices[0].attr.max_cqe = how == 2 ? 65 : 130;
		if (how == 1)
			fake.devices[0].attr.max_srq_wr = 20;
		if (how == 2)
			no_srq();
		assert_int_equal(start(), 0);
		fake.rnr_is_fatal = false;
		for (unsigned i = 0; i < 8; i++) {
			client_connect(&clients[open], i, "main", 0);
			if (clients[open].record->accepted)
				open++;
			else
				assert_int_equal(clients[open].reject.reason, WIRE_REASON_CLIENTS);
		}
		assert_in_range(open, 2, how == 1 ? 8 : 7);
		for (unsigned i = 0; i < open; i++)
			for (unsigned k = 0; k < 8; k++)
				client_say(&clients[i], &rpc);
		loop(3000 * MS);
		for (unsigned i = 0; i < open; i++)
			client_works(&clients[i]);
		end();
	}

	begin(LISTEN POOL "atomics = cpu\n");
	fake.devices[0].attr.max_cqe = 20;
	assert_true(start() < 0);
	d = NULL;
	assert_non_null(strstr(err_text(), "completion queues"));
	fake_nothing_left("max_cqe 20");
	end();
}

/* ---- failures while it runs ------------------------------------------------------------------ */

/* Each call of taking a client in fails once: the client is refused or ended, the next comes in. */
static void accept_failures(const char *text, void (*change)(void))
{
	unsigned long n = 0;
	bool more;

	do {
		struct client c, next;

		begin(text);
		if (change)
			change();
		assert_int_equal(start(), 0);
		loop(0);
		remember_live();
		fake.memory = true;
		fake.fail_errno = ENOMEM;
		fake.failed[0] = '\0';
		fake.calls = 0;
		fake.fail_at = ++n;
		client_connect(&c, 1, "main", 0);
		if (c.record->id && c.qp)
			client_say(&c, &(struct wire_rpc){.type = WIRE_RPC_PING});
		loop(1500 * MS);
		more = fake.failed[0];
		fake.fail_at = 0;
		fake.memory = false;
		if (c.record->id)
			fake_event(c.id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
		loop(8000 * MS);
		is_gone(&c, fake.failed);
		assert_int_equal(pool()->client_count, 0);
		client_open(&next, 2);
		client_works(&next);
		end();
	} while (more);
	assert_in_range(n, 10, 1000);
}

static void test_accept_failures(void **state)
{
	(void)state;
	accept_failures(LISTEN POOL, NULL);
	accept_failures(LISTEN POOL, no_srq);
	accept_failures(LISTEN POOL, iwarp);
}

/* The pool's connection to itself breaks: clients are fenced, it is made again, they come back. */
static void test_self_breaks(void **state)
{
	struct client c, second;

	(void)state;
	open_daemon(LISTEN POOL);
	client_open(&c, 1);
	fake_break(fake_nth_qp(0));
	fake_break(fake_nth_qp(1));
	client_open(&second, 2);
	client_leave(&second); /* its end needs the connection */
	loop(3000 * MS);
	assert_null(c.record->id);
	assert_int_equal(pool()->client_count, 0);
	assert_non_null(pool()->self);
	assert_false(pool()->self_lost);
	client_open(&c, 3);
	client_works(&c);
	end();
}

/* When the pool's connection to itself is to answer; and since when it is waited for. */
static uint64_t answer_ns, asked_ns;

static void answer_in_time(void)
{
	if (!asked_ns)
		asked_ns = fake.now_ns;
	if (fake.now_ns - asked_ns >= answer_ns)
		fake.hold_qp_num = 0;
}

/* A client's end needs an answer of the pool's connection to itself, which takes so long. */
static void leave_with_slow_self(struct client *leaves, uint64_t ns)
{
	fake.hold_qp_num = fake_nth_qp(0)->qp_num;
	fake.idle = answer_in_time;
	answer_ns = ns;
	asked_ns = 0;
	client_leave(leaves);
	fake.idle = NULL;
	fake.hold_qp_num = 0;
}

/* A device that is slow costs a wait; one that is too slow costs the clients their connections. */
static void test_self_is_slow(void **state)
{
	struct client c, stays;
	uint64_t begin_ns;

	(void)state;
	open_daemon(LISTEN POOL);
	client_open(&stays, 1);
	client_open(&c, 2);
	begin_ns = fake.now_ns;
	leave_with_slow_self(&c, 2400 * MS);
	assert_in_range(fake.now_ns - begin_ns, 2400 * MS, 2500 * MS);
	assert_non_null(stays.record->id);
	client_works(&stays);
	client_open(&c, 3);
	begin_ns = fake.now_ns;
	leave_with_slow_self(&c, 60000 * MS);
	assert_in_range(fake.now_ns - begin_ns, 2500 * MS, 2600 * MS);
	assert_null(stays.record->id);
	loop(3000 * MS);
	client_open(&c, 4);
	client_works(&c);
	end();
}

/* What was left to be ended when others had their turn. */
static unsigned left_at_turn;

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct peer_verbs *peer;

	(void)fd;
	(void)what;
	(void)arg;
	left_at_turn = 0;
	TAILQ_FOREACH (peer, &d->rdma->closing, closing)
		left_at_turn++;
}

/* Many end at once, and each end takes 2 ms: after 5 ms it is somebody else's turn. */
static void test_many_ends(void **state)
{
	struct client c[8];
	struct event *turn;

	(void)state;
	open_daemon(LISTEN POOL);
	remember_live();
	for (unsigned i = 0; i < 8; i++)
		client_open(&c[i], i + 1);
	turn = evtimer_new(d->base, on_turn, NULL);
	for (unsigned i = 0; i < 8; i++)
		fake_event(c[i].id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	left_at_turn = 99;
	event_add(turn, &(struct timeval){0});
	fake.tick_ns = 700000;
	loop(0);
	assert_in_range(left_at_turn, 1, 7);
	/* and all of them end, without another event */
	loop(50 * MS);
	fake.tick_ns = 1000;
	assert_int_equal(pool()->client_count, 0);
	event_free(turn);
	for (unsigned i = 0; i < 8; i++)
		is_gone(&c[i], "one of many");
	end();
}

/* The daemon stops with everything under way. */
static void test_stop(void **state)
{
	(void)state;
	for (unsigned how = 0; how < 4; how++) {
		struct client clients[6];

		begin("[listen r]\naddress = 10.77.0.1\n[listen s]\naddress = 10.77.0.2\n" POOL);
		if (how == 1)
			no_srq();
		if (how == 2)
			iwarp();
		assert_int_equal(start(), 0);
		loop(0);
		client_open(&clients[0], 0);
		client_open(&clients[1], 1);
		fake.on_accept.silent = true;
		client_connect(&clients[2], 2, "main", 0);
		fake.hold = true;
		loop(1500 * MS); /* a probe is under way */
		client_say(&clients[0], &(struct wire_rpc){.type = WIRE_RPC_PING});
		fake_event(clients[1].id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
		fake_async(0, IBV_EVENT_QP_FATAL, clients[2].qp);
		fake_async(0, IBV_EVENT_PORT_ERR, NULL);
		fake_request(fake_listener(0), 0, 9, clients[0].request, WIRE_REQUEST_BYTES);
		if (how == 3)
			fake_event(fake_listener(1), RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
		fake.hold = false;
		end();
	}
}

/* ---- all of it at once ----------------------------------------------------------------------- */

static uint64_t seed;

static uint64_t any(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

#define CROWD 12u

static void crowd_message(struct client *c)
{
	uint8_t bytes[80];
	struct wire_rpc rpc = {.type = (uint8_t)(1 + any(WIRE_RPC_LAST)),
			       .tag = (uint32_t)any(UINT32_MAX),
			       .class = (uint32_t)any(4),
			       .slot_offset = any(2) ? 8 * any(10000) : any(UINT64_MAX)};

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)any(256);
	if (any(8))
		client_say(c, &rpc);
	else
		fake_deliver(c->qp, bytes, (uint32_t)any(sizeof(bytes)));
}

static void crowd_async(const struct client *c)
{
	static const enum ibv_event_type of_qp[] = {
		IBV_EVENT_QP_FATAL,     IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
		IBV_EVENT_COMM_EST,     IBV_EVENT_PATH_MIG,   IBV_EVENT_QP_LAST_WQE_REACHED,
		IBV_EVENT_PATH_MIG_ERR,
	};
	static const enum ibv_event_type of_port[] = {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE,
						      IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE};

	if (any(2))
		fake_async(0, of_qp[any(7)], c->qp);
	else
		fake_async(0, of_port[any(4)], NULL);
}

/* One thing that may happen to this client. */
static void crowd_step(struct client *c, unsigned n)
{
	struct wire_request request;

	if (c->record && !c->record->id)
		c->record = NULL;
	if (c->record && c->record->accepted)
		c->qp = fake_qp(c->record->param.qp_num);
	if (!c->record) {
		if (!fake_listener(0))
			return;
		request = request_of(any(8) ? "main" : "nowhere", (uint16_t)any(2));
		wire_request_encode(&request, c->request);
		c->request[any(56)] ^= (uint8_t)(any(10) == 0);
		c->id = fake_request(fake_listener(0), 0, n % 4, c->request, WIRE_REQUEST_BYTES);
		c->record = fake_record(c->id);
		c->qp = NULL;
		return;
	}
	switch (any(c->qp ? 10 : 3)) {
	case 0:
		fake_event(c->id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
		break;
	case 1:
		fake_event(c->id, (enum rdma_cm_event_type)(RDMA_CM_EVENT_CONNECT_ERROR + any(3)),
			   3, NULL, 0);
		break;
	case 2:
		fake_event(c->id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
		if (any(2))
			fake_event(c->id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0);
		break;
	case 3:
		fake_break(c->qp);
		break;
	case 4:
		crowd_async(c);
		break;
	case 5:
		fake.hold_qp_num = c->qp->qp_num;
		break;
	case 6:
		fake.wc_error_at = 1 + any(4);
		fake.wc_error = (enum ibv_wc_status)(IBV_WC_LOC_LEN_ERR + any(20));
		break;
	default:
		crowd_message(c);
	}
}

static void crowd_place(void)
{
	switch (any(60)) {
	case 0:
		fake.gone[0] = true;
		if (fake_listener(0) && any(2))
			fake_event(fake_listener(0), RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
		else
			fake_async(0, IBV_EVENT_DEVICE_FATAL, NULL);
		break;
	case 1:
		if (fake_listener(0))
			fake_event(fake_listener(0), RDMA_CM_EVENT_ADDR_CHANGE, 0, NULL, 0);
		break;
	case 2:
		fake.fail_at = fake.calls + 1 + any(200);
		fake.fail_errno = any(2) ? ENOMEM : EIO;
		break;
	case 3:
		for (uint32_t i = 0; i < pool()->geometry.max_clients; i++)
			if (pool()->clients[i].cut && any(2) &&
			    pool()->clients[i].state == LAYOUT_CLIENT_LIVE)
				pool()->clients[i].cut(pool()->clients[i].peer, "killed");
		break;
	case 4:
		fake.hold_threads = !fake.hold_threads;
		break;
	case 5:
		fake_thread_run();
		break;
	case 6:
		fake.hold_qp_num = 0;
		break;
	default:
		break;
	}
	if (fake.gone[0] && any(10) == 0)
		fake.gone[0] = false;
}

/* All is well again: whoever is left goes, a new client comes in, and nothing has been lost. */
static void crowd_ends(struct client *crowd)
{
	struct client last;

	fake.fail_at = 0;
	fake.wc_error_at = 0;
	fake.gone[0] = false;
	fake.hold_threads = false;
	fake.hold_qp_num = 0;
	fake.on_accept.silent = false;
	fake_thread_run();
	fake_async(0, IBV_EVENT_PORT_ACTIVE, NULL);
	loop(10000 * MS);
	for (unsigned i = 0; i < CROWD; i++)
		if (crowd[i].record && crowd[i].record->id)
			fake_event(crowd[i].id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	loop(10000 * MS);
	if (listener()->state != LISTENER_UP)
		fail_msg("seed %llu: the listener stays down", (unsigned long long)seed);
	assert_int_equal(pool()->client_count, 0);
	assert_int_equal(listener()->peer_count, 0);
	live_as_before("the crowd has gone");
	client_open(&last, 30);
	client_works(&last);
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
	static void (*const changes[])(void) = {NULL, no_srq, iwarp, small_regions};

	unsigned first = number("TARN_TEST_FIRST", 0), rounds = number("TARN_TEST_ROUNDS", 60);

	(void)state;
	for (unsigned round = first; round < first + rounds; round++) {
		struct client crowd[CROWD] = {0};

		crowd_at = round + 1;
		seed = 1000 + round;
		begin("[listen r]\naddress = 10.77.0.1\nbacklog = 3\nmax_per_address = 4\n" POOL);
		if (changes[round % 4])
			changes[round % 4]();
		fake.devices[0].no_td = true; /* one that is refused once is not missed */
		assert_int_equal(start(), 0);
		loop(0);
		remember_live();
		fake.send = on_send;
		fake.rnr_is_fatal = false;
		fake.on_accept.silent = any(2);
		for (unsigned i = 0; i < 800 && fake.record_count < FAKE_RECORDS - 100; i++) {
			unsigned n = (unsigned)any(CROWD);

			crowd_step(&crowd[n], n);
			crowd_place();
			if (any(3) == 0)
				loop(any(4) ? 0 : any(1000 * MS));
		}
		if (round % 3)
			crowd_ends(crowd);
		end(); /* or in the middle of it */
	}
	crowd_at = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_start_failures_nic),
		cmocka_unit_test(test_start_failures_error),
		cmocka_unit_test(test_start_failures_iwarp),
		cmocka_unit_test(test_start_failures_regions),
		cmocka_unit_test(test_start_refused),
		cmocka_unit_test(test_address_refused),
		cmocka_unit_test(test_file_that_is_not_registered),
		cmocka_unit_test(test_gid_index),
		cmocka_unit_test(test_start_by_device),
		cmocka_unit_test(test_registered_once),
		cmocka_unit_test(test_accept),
		cmocka_unit_test(test_accept_cpu),
		cmocka_unit_test(test_accept_iwarp),
		cmocka_unit_test(test_regions),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_max_connections),
		cmocka_unit_test(test_max_per_address),
		cmocka_unit_test(test_max_clients),
		cmocka_unit_test(test_storm),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_listener_events),
		cmocka_unit_test(test_never_established),
		cmocka_unit_test(test_message_first),
		cmocka_unit_test(test_gone_while_waiting),
		cmocka_unit_test(test_turn_after_death),
		cmocka_unit_test(test_each_completion_status),
		cmocka_unit_test(test_probes),
		cmocka_unit_test(test_probe_unanswered),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_arming),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_no_flood),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_immediate),
		cmocka_unit_test(test_without_srq),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_async),
		cmocka_unit_test(test_device_removal),
		cmocka_unit_test(test_removal_while_registering),
		cmocka_unit_test(test_return_failures),
		cmocka_unit_test(test_address_change),
		cmocka_unit_test(test_port_down),
		cmocka_unit_test(test_small_device),
		cmocka_unit_test(test_accept_failures),
		cmocka_unit_test(test_self_breaks),
		cmocka_unit_test(test_self_is_slow),
		cmocka_unit_test(test_many_ends),
		cmocka_unit_test(test_stop),
		cmocka_unit_test_teardown(test_crowd, crowd_failed),
	};

	return cmocka_run_group_tests_name("verbs-listen", tests, NULL, NULL);
}
