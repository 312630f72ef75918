/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reloads of a daemon with RDMA listeners (reload-listen.c, listen-verbs.c) on a fake NIC
 * (fake-verbs.h): listeners that come, go, move and change, with clients on them, and a failure at
 * each call in between. The real daemon, without main(); its loop is driven by the tests.
 * test-reload.c has unix sockets.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/event.h>

#include "auth.h"
#include "config.h"
#include "daemon.h"
#include "device.h"
#include "err.h"
#include "fake-verbs.h"
#include "keeper.h"
#include "listen-verbs.h"
#include "log.h"
#include "peer-verbs.h"
#include "pool.h"
#include "rdma.h"
#include "registration.h"
#include "reload.h"
#include "wire.h"

#define MS 1000000ull

static struct config *config;
static struct log quiet;
static struct daemon *d;
static char folder[32];

#define LOCAL  "[listen l]\npath = @/l\n"
#define R      "[listen r]\naddress = 10.77.0.1\n"
#define S      "[listen s]\naddress = 10.77.0.2\n" /* the same device */
#define BASE   "[pool main]\nallow_unauthenticated = yes\nsize = 4M\nhugepages = off\nprefault = no\n"
#define POOL   BASE "max_clients = 8\n"
#define SECOND "[pool b]\nallow_unauthenticated = yes\nsize = 4M\nhugepages = off\nprefault = no\n"

/* ---- the daemon ------------------------------------------------------------------------------ */

/* The folder stands for @. */
static void configure(const char *text)
{
	char path[64], out[4096];
	size_t used = 0;
	int fd;

	for (; *text; text++)
		if (*text == '@')
			used += (size_t)snprintf(out + used, sizeof(out) - used, "%s", folder);
		else
			out[used++] = *text;
	snprintf(path, sizeof(path), "%s/conf", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && write(fd, out, used) == (ssize_t)used);
	close(fd);
}

static void begin(const char *text)
{
	struct config_errors errors = {0};
	char path[64];

	fake_begin();
	fake_event_end();
	snprintf(folder, sizeof(folder), "/tmp/tarn-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
	configure(text);
	snprintf(path, sizeof(path), "%s/conf", folder);
	assert_int_equal(auth_init(), 0);
	assert_int_equal(config_load(path, &errors, &config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	log_init(&quiet, open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_LEVEL_DEBUG);
	err_clear();
	if (daemon_create(config, &quiet, &d) < 0)
		fail_msg("%s", err_text());
	event_del(d->keeper_timer);
	fake_loop(d->base, 0);
}

static void end(void)
{
	char command[64];

	fake.fail_at = 0;
	daemon_free(d);
	config_free(config);
	close(quiet.fd);
	fake_event_end();
	fake_end();
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

static void loop(uint64_t ns)
{
	fake_loop(d->base, ns);
}

static struct pool *pool(void)
{
	return d->pools[0];
}

/* By its name; NULL: the daemon has no such one. */
static struct listener_verbs *listener(const char *name)
{
	for (size_t i = 0; i < d->listener_count; i++)
		if (strcmp(d->listeners[i]->config->name, name) == 0)
			return listener_verbs_of(d->listeners[i]);
	return NULL;
}

static uint32_t applies(const char *text)
{
	struct reload_report report;
	uint32_t cut;

	configure(text);
	if (reload(d, &report) < 0)
		fail_msg("%s", report.errors.count ? report.errors.texts[0] : "no text");
	cut = report.clients_cut;
	reload_report_free(&report);
	return cut;
}

static void refused(const char *text, const char *expected)
{
	const struct config *running = d->config;
	struct reload_report report;
	size_t listeners = d->listener_count;
	long ids = fake.live[FAKE_ID], regions = fake.live[FAKE_MR];

	configure(text);
	assert_int_equal(reload(d, &report), -EINVAL);
	assert_true(report.errors.count > 0);
	if (!strstr(report.errors.texts[0], expected))
		fail_msg("'%s' is not in '%s'", expected, report.errors.texts[0]);
	reload_report_free(&report);
	assert_ptr_equal(d->config, running);
	assert_int_equal(d->listener_count, listeners);
	assert_int_equal(fake.live[FAKE_ID], ids);
	assert_int_equal(fake.live[FAKE_MR], regions);
}

/* ---- a client -------------------------------------------------------------------------------- */

static uint64_t next_nonce = 1;

struct client {
	struct rdma_cm_id *id;
	struct fake_record *record;
	struct ibv_qp *qp; /* the daemon's */
};

/* Through the nth listener that there is; asks for nothing yet. */
static void client_ask(struct client *c, unsigned nth, unsigned n, const char *name)
{
	struct wire_request request = {.version_min = 1,
				       .version_max = 1,
				       .pool = wire_pool_hash(name),
				       .time_ms = fake.wall_ms,
				       .nonce = next_nonce++};
	uint8_t bytes[WIRE_REQUEST_BYTES];

	wire_request_encode(&request, bytes);
	memset(c, 0, sizeof(*c));
	c->id = fake_request(fake_listener(nth), 0, n, bytes, sizeof(bytes));
	c->record = fake_record(c->id);
}

static void client_open(struct client *c, unsigned nth, unsigned n, const char *name)
{
	client_ask(c, nth, n, name);
	loop(0);
	if (!c->record->accepted)
		fail_msg("client %u at listener %u is not accepted: %s", n, nth, err_text());
	c->qp = fake_qp(c->record->param.qp_num);
	assert_non_null(c->qp);
}

static bool client_refused(unsigned nth, const char *name, enum wire_reason *ret_reason)
{
	struct wire_reject reject = {0};
	struct client c;

	client_ask(&c, nth, 9, name);
	loop(0);
	if (!c.record->rejected)
		return false;
	assert_int_equal(wire_reject_decode(c.record->bytes, c.record->byte_count, &reject), 0);
	*ret_reason = (enum wire_reason)reject.reason;
	return true;
}

static bool fenced(const struct client *c)
{
	return !fake_qp(c->record->param.qp_num) || fake_qp_state(c->qp) == IBV_QPS_ERR;
}

/* ---- listeners that go and come -------------------------------------------------------------- */

static void test_remove_and_add(void **state)
{
	long regions, queues, ids;
	struct client a, b;

	(void)state;
	begin(LOCAL R S POOL);
	assert_int_equal(pool()->geometry.atomics, LAYOUT_ATOMICS_CPU);
	regions = fake.live[FAKE_MR];
	queues = fake.live[FAKE_QP];
	ids = fake.live[FAKE_ID];
	for (unsigned round = 0; round < 3; round++) {
		client_open(&a, 0, 1, "main");
		client_open(&b, 1, 2, "main");
		assert_int_equal(applies(LOCAL S POOL), 1);
		/* at once: before the loop goes on */
		assert_true(fenced(&a) && !fenced(&b));
		assert_null(listener("r"));
		loop(0);
		assert_null(a.record->id);
		assert_int_equal(pool()->client_count, 1);
		/* nothing has to be registered anew */
		assert_int_equal(applies(LOCAL R S POOL), 0);
		assert_int_equal(listener("r")->state, LISTENER_UP);
		assert_int_equal(fake.live[FAKE_MR], regions);
		assert_true(!fenced(&b));
		fake_event(b.id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
		loop(0);
		assert_int_equal(fake.live[FAKE_QP], queues);
		assert_int_equal(fake.live[FAKE_ID], ids);
		/* now the other one is the first */
		client_open(&a, 0, 1, "main");
		fake_event(a.id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
		loop(0);
		applies(LOCAL POOL);
		loop(0);
		assert_int_equal(fake.live[FAKE_ID], ids - 2);
		applies(LOCAL R S POOL);
	}
	end();
}

/* A daemon that had no RDMA before: the memory is registered by a thread, beside the clients. */
static void test_first(void **state)
{
	struct client a;

	(void)state;
	begin(LOCAL POOL);
	assert_null(d->rdma);
	fake.hold_threads = true;
	assert_int_equal(applies(LOCAL R POOL), 0);
	assert_int_equal(listener("r")->state, LISTENER_REGISTERING);
	loop(0);
	/* it can not be waited for the thread's end in the loop */
	refused(LOCAL POOL, "can not be removed while memory is being registered");
	refused(LOCAL "[listen r]\naddress = 10.77.0.1\nport = 8\n" POOL, "can not be removed");
	applies(LOCAL R "backlog = 9\n" POOL);
	fake_thread_run();
	fake.hold_threads = false;
	loop(0);
	assert_int_equal(listener("r")->state, LISTENER_UP);
	assert_int_equal(listener("r")->admission.limits.waiting, 9);
	client_open(&a, 0, 1, "main");
	applies(LOCAL POOL);
	end(); /* while it has not been swept */
}

static void test_moved(void **state)
{
	struct client a;

	(void)state;
	begin(LOCAL R POOL);
	client_open(&a, 0, 1, "main");
	assert_int_equal(applies(LOCAL "[listen r]\naddress = 10.77.0.1\nport = 8000\n" POOL), 1);
	assert_true(fenced(&a));
	loop(0);
	assert_null(a.record->id);
	assert_non_null(strstr(listener("r")->text, ":8000"));
	assert_int_equal(listener("r")->state, LISTENER_UP);
	client_open(&a, 0, 1, "main");
	/* the same place, written in another way */
	assert_int_equal(applies(LOCAL "[listen r]\naddress = 10.77.0.1:8000\n" POOL), 0);
	assert_true(!fenced(&a));
	/* from RDMA to a unix socket of the same name */
	assert_int_equal(applies(LOCAL "[listen r]\npath = @/r\n" POOL), 1);
	assert_true(fenced(&a));
	assert_null(listener("r"));
	end();
}

/* Who waits for his turn when the listener goes. */
static void test_waiting(void **state)
{
	struct client clients[60];
	long ids;

	(void)state;
	begin(LOCAL R BASE "max_clients = 64\n");
	ids = fake.live[FAKE_ID];
	fake.on_accept.silent = true;
	for (unsigned i = 0; i < 60; i++)
		client_ask(&clients[i], 0, i, "main");
	loop(0);
	assert_true(listener("r")->admission.waiting > 0 &&
		    listener("r")->admission.handshakes > 0);
	applies(LOCAL BASE "max_clients = 64\n");
	loop(0);
	for (unsigned i = 0; i < 60; i++)
		assert_null(clients[i].record->id);
	assert_int_equal(fake.live[FAKE_ID], ids - 1);
	assert_int_equal(pool()->client_count, 0);
	end();
}

/* ---- what changes of one that stays ---------------------------------------------------------- */

static void test_limits(void **state)
{
	enum wire_reason reason;
	struct client a, b;

	(void)state;
	begin(LOCAL R POOL);
	client_open(&a, 0, 1, "main");
	client_open(&b, 0, 2, "main");
	assert_int_equal(applies(LOCAL R "max_connections = 1\ntos = 96\nretries = 2\n" POOL), 0);
	assert_true(!fenced(&a) && !fenced(&b)); /* who is there stays */
	assert_true(client_refused(0, "main", &reason) && reason == WIRE_REASON_CLIENTS);
	assert_int_equal(listener("r")->settings.tos, 96);
	assert_int_equal(listener("r")->settings.retries, 2);
	applies(LOCAL R POOL);
	client_open(&a, 0, 3, "main");
	assert_int_equal(listener("r")->settings.tos, -1);
	end();
}

/* `listen` of a pool: what is newly offered is registered, and who came in where it is not any more goes. */
static void test_offered(void **state)
{
	enum wire_reason reason;
	struct client a, b;
	long regions;

	(void)state;
	begin(LOCAL R POOL SECOND "listen = l\n");
	regions = fake.live[FAKE_MR];
	client_open(&a, 0, 1, "main");
	assert_true(client_refused(0, "b", &reason) && reason == WIRE_REASON_TRANSPORT);
	fake.hold_threads = true;
	assert_int_equal(applies(LOCAL R POOL SECOND), 0);
	assert_int_equal(listener("r")->state, LISTENER_REGISTERING);
	fake_thread_run();
	fake.hold_threads = false;
	loop(0);
	assert_int_equal(listener("r")->state, LISTENER_UP);
	assert_true(fake.live[FAKE_MR] > regions && !fenced(&a));
	client_open(&b, 0, 2, "b");
	assert_int_equal(applies(LOCAL R POOL SECOND "listen = l\n"), 1);
	assert_true(fenced(&b) && !fenced(&a));
	loop(0);
	assert_true(client_refused(0, "b", &reason) && reason == WIRE_REASON_TRANSPORT);
	end();
}

/* A pool comes to a listener while a thread makes a region of another pool: that has nothing to do with it. */
static void test_offered_with_regions(void **state)
{
	struct device *device;

	(void)state;
	begin(LOCAL R POOL SECOND "listen = l\n");
	device = TAILQ_FIRST(&d->rdma->devices);
	device->busy++; /* as region-job.c does */
	fake.hold_threads = true;
	assert_int_equal(applies(LOCAL R POOL SECOND), 0);
	assert_int_equal(listener("r")->state, LISTENER_REGISTERING);
	fake_thread_run();
	fake.hold_threads = false;
	loop(0);
	assert_int_equal(listener("r")->state, LISTENER_UP);
	device->busy--;
	end();
}

/* Two reloads while one thread registers: the second one's pool is not forgotten. */
static void test_offered_meanwhile(void **state)
{
	struct client a;

	(void)state;
	begin(LOCAL POOL SECOND "listen = l\n");
	fake.hold_threads = true;
	applies(LOCAL R POOL SECOND "listen = l\n");
	assert_int_equal(listener("r")->state, LISTENER_REGISTERING);
	applies(LOCAL R POOL SECOND);
	assert_int_equal(listener("r")->state, LISTENER_REGISTERING);
	fake_thread_run();
	fake.hold_threads = false;
	loop(0);
	fake_thread_run();
	loop(0);
	assert_int_equal(listener("r")->state, LISTENER_UP);
	client_open(&a, 0, 1, "b");
	end();
}

/* Atomics of the device: there is no second way to the pool but by a restart. */
static void test_atomics(void **state)
{
	struct client a;

	(void)state;
	begin(R POOL);
	fake.device_count = 2; /* the second one has 10.78.0.1 */
	assert_int_equal(pool()->geometry.atomics, LAYOUT_ATOMICS_NIC);
	client_open(&a, 0, 1, "main");
	refused(LOCAL R POOL, "are done by an RDMA device");
	refused(R "[listen z]\naddress = 10.78.0.1\n" POOL, "are done by an RDMA device");
	refused("[listen r]\naddress = 10.78.0.1\n" POOL, "are done by an RDMA device");
	/* where it is not offered they may be */
	applies(LOCAL R S POOL "listen = r\n");
	assert_true(!fenced(&a));
	/* the same device */
	applies(LOCAL R S POOL "listen = r, s\n");
	assert_true(!fenced(&a));
	refused(LOCAL R S POOL, "are done by an RDMA device");
	end();
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Each call that may fail fails once: refused, and nothing is left of it, or it comes up later. */
static void failures(const char *before, const char *after, const char *what)
{
	unsigned long n = 0;
	unsigned refusals = 0;
	bool more;

	do {
		struct reload_report report;
		struct client c, old;
		long ids;
		int rc;

		begin(before);
		if (listener("s"))
			client_open(&old, 0, 7, "main");
		ids = fake.live[FAKE_ID];
		configure(after);
		fake.memory = true;
		fake.fail_errno = ENOMEM;
		fake.failed[0] = '\0';
		fake.calls = 0;
		fake.fail_at = ++n;
		rc = reload(d, &report);
		fake.fail_at = 0;
		fake.memory = false;
		more = fake.failed[0];
		reload_report_free(&report);
		if (rc < 0) {
			refusals++;
			if (d->config != config || listener("r") || fake.live[FAKE_ID] != ids)
				fail_msg("%s: call %lu, %s: something is left", what, n,
					 fake.failed);
			if (listener("s"))
				assert_true(!fenced(&old));
			applies(after);
		}
		loop(10000 * MS);
		if (listener("r")->state != LISTENER_UP)
			fail_msg("%s: call %lu, %s: the listener stays down", what, n, fake.failed);
		client_open(&c, listener("s") ? 1 : 0, 1, "main");
		end();
	} while (more);
	print_message("# %s: %lu calls, %u refusals\n", what, n, refusals);
	assert_in_range(n, 10, 2000);
	assert_true(refusals > 3);
}

static void test_failures(void **state)
{
	(void)state;
	failures(LOCAL POOL, LOCAL R POOL, "the first one");
	failures(LOCAL S POOL, LOCAL S R POOL "high_water = 11\n", "one more");
}

/* Keys and quotas: the new ones or the old ones, and always those that belong together. */
static void test_keys_without_memory(void **state)
{
#define LINE  " write 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define KEYED LOCAL R POOL "auth = key\nkey_file = @/keys\n"
	unsigned long n = 0;
	unsigned refusals = 0;
	char path[64];
	bool more;

	(void)state;
	do {
		struct reload_report report;
		struct keeper_stats stats;
		int rc, fd;

		begin(LOCAL R POOL);
		snprintf(path, sizeof(path), "%s/keys", folder);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(dprintf(fd, "ada" LINE "bob" LINE) > 0);
		close(fd);
		configure(KEYED);
		fake.memory = true;
		fake.fail_errno = ENOMEM;
		fake.failed[0] = '\0';
		fake.calls = 0;
		fake.fail_at = ++n;
		rc = reload(d, &report);
		fake.fail_at = 0;
		fake.memory = false;
		more = fake.failed[0];
		refusals += rc < 0;
		assert_true(rc == 0 || more);
		keeper_get_stats(pool()->keeper, 0, &stats);
		assert_int_equal(stats.quota_count, rc < 0 ? 0 : 2);
		assert_int_equal(pool()->keys.count, rc < 0 ? 0 : 2);
		assert_int_equal(pool()->auth, rc == 0);
		assert_ptr_equal(d->config, rc < 0 ? config : d->reloaded);
		reload_report_free(&report);
		end();
	} while (more);
	print_message("# keys: %lu calls, %u refusals\n", n, refusals);
	assert_true(refusals > 8);
}

static void test_taken(void **state)
{
	struct client a;

	(void)state;
	begin(LOCAL R POOL);
	client_open(&a, 0, 1, "main");
	refused(LOCAL R "[listen z]\naddress = 10.77.0.1\n" POOL, "");
	refused(LOCAL "[listen z]\naddress = 10.77.0.1\n" POOL, "[listen r] of the running tarnd");
	refused("[listen z]\npath = @/z\n" LOCAL "[listen y]\naddress = 192.0.2.1\n" R POOL,
		"[listen y]");
	assert_true(!fenced(&a));
	end();
}

/* No device at all now: as at a start it comes when the device does. */
static void test_later(void **state)
{
	struct client a;

	(void)state;
	begin(LOCAL R POOL);
	fake.gone[0] = true;
	fake_event(fake_listener(0), RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	loop(0);
	assert_int_equal(listener("r")->state, LISTENER_DOWN);
	/* one that is down is changed, and removed */
	applies(LOCAL R "backlog = 7\n" POOL);
	applies(LOCAL POOL);
	loop(5000 * MS);
	fake.gone[0] = false;
	loop(5000 * MS);
	applies(LOCAL R POOL);
	loop(5000 * MS);
	client_open(&a, 0, 1, "main");
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_remove_and_add),
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_waiting),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_offered),
		cmocka_unit_test(test_offered_meanwhile),
		cmocka_unit_test(test_offered_with_regions),
		cmocka_unit_test(test_atomics),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_keys_without_memory),
		cmocka_unit_test(test_later),
	};

	return cmocka_run_group_tests_name("verbs-reload", tests, NULL, NULL);
}
