/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions on RDMA devices (region.c, region-job.c, registration.c) on a fake NIC (fake-verbs.h): each is registered by itself,
 * with keys of its own; those end when it does, and when the device does; a failure at each call leaves nothing behind.
 * The real daemon, without main(). test-region.c has what is the same on shared memory.
 */
#include <fcntl.h>
#include <unistd.h>

#include <event2/event.h>

#include "auth.h"
#include "config.h"
#include "daemon.h"
#include "device.h"
#include "err.h"
#include "fake-verbs.h"
#include "log.h"
#include "pool.h"
#include "rdma.h"
#include "region.h"
#include "registration.h"
#include "rpc.h"
#include "wire.h"

#define CONFIG(more)                                                                            \
	"[listen r]\naddress = 10.77.0.1\n" more                                                \
	"[pool main]\nallow_unauthenticated = yes\nsize = 4M\nhugepages = off\nprefault = no\n" \
	"max_clients = 8\nregion_memory = 16M\n"

static struct config *config;
static struct log quiet;
static struct daemon *d;
static struct rpc_client client, reader;

static void begin(const char *text)
{
	struct config_errors errors = {0};

	fake_begin();
	fake_event_end();
	assert_int_equal(auth_init(), 0);
	assert_int_equal(config_parse("t", text, strlen(text), &errors, &config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	log_init(&quiet, open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_LEVEL_DEBUG);
	if (daemon_create(config, &quiet, &d) < 0)
		fail_msg("%s", err_text());
	event_del(d->keeper_timer);
	fake_loop(d->base, 0);
	rpc_client_init(&client, 0, false);
	rpc_client_init(&reader, 1, true);
	client.registration = reader.registration =
		TAILQ_FIRST(&TAILQ_FIRST(&d->rdma->devices)->registrations);
}

static void end(void)
{
	fake.fail_at = 0;
	rpc_client_end(&client);
	rpc_client_end(&reader);
	daemon_free(d);
	config_free(config);
	close(quiet.fd);
	fake_event_end();
	fake_end();
}

static struct regions *regions(void)
{
	return d->pools[0]->regions;
}

static struct wire_region_reply ask(struct rpc_client *who, struct wire_region_request request,
				    const char *name)
{
	uint8_t bytes[WIRE_REGION_BYTES];
	struct wire_region_reply reply;
	struct rpc_answer answer;

	if (name)
		memcpy(request.name, name, strlen(name));
	wire_region_request_encode(&request, bytes);
	assert_int_equal(rpc_handle(d->pools[0], who, bytes, sizeof(bytes), &answer), 0);
	assert_int_equal(answer.fd, -1); /* over RDMA there are none */
	assert_int_equal(wire_region_reply_decode(answer.bytes, answer.length, &reply), 0);
	return reply;
}

#define ASK(who, call_, name, ...) \
	ask(&who, (struct wire_region_request){.call = WIRE_REGION_##call_, __VA_ARGS__}, name)

static void make(const char *name, uint64_t bytes)
{
	assert_int_equal(ASK(client, CREATE, name, .number = bytes).status, 0);
	assert_int_equal(ASK(client, STAT, name).state, TARN_REGION_READY);
}

static void destroy(const char *name)
{
	assert_int_equal(ASK(client, DESTROY, name).status, 0);
	assert_int_equal(ASK(client, STAT, name).status, -TARN_ENOREGION);
}

/* Keys of its own, for writers and for readers, and none of what stands behind its bytes. */
static void test_keys(void **state)
{
	struct wire_region_reply open, write, read, other;
	long before;

	(void)state;
	begin(CONFIG(""));
	before = fake.live[FAKE_MR];
	make("a", 12288);
	make("b", 4096);
	assert_int_equal(fake.live[FAKE_MR], before + 4);
	open = ASK(client, OPEN, "a", .handle = 5);
	assert_true(open.status == 0 && open.number == 1 && open.bytes == 12288 &&
		    open.handle == 5);
	write = ASK(client, MEMORY, NULL, .handle = 5);
	assert_int_equal(write.status, 0);
	assert_int_equal(write.length, 12288);
	assert_true(write.value == (uint64_t)(uintptr_t)regions_find(regions(), "a")->memory.base);
	assert_int_equal(ASK(client, MEMORY, NULL, .handle = 5, .index = 1).status, -TARN_EPROTO);
	assert_int_equal(ASK(reader, OPEN, "a", .handle = 1).status, 0);
	read = ASK(reader, MEMORY, NULL, .handle = 1);
	assert_int_equal(ASK(client, OPEN, "b", .handle = 6).status, 0);
	other = ASK(client, MEMORY, NULL, .handle = 6);
	assert_true(read.number != write.number && other.number != write.number &&
		    other.number != read.number);
	assert_true(read.value == write.value && other.value != write.value);
	/* a writer that opens it for reading has the reader's */
	assert_int_equal(
		ASK(client, OPEN, "a", .handle = 7, .flags = WIRE_REGION_OPEN_READONLY).status, 0);
	assert_int_equal(ASK(client, MEMORY, NULL, .handle = 7).number, read.number);
	destroy("a");
	assert_int_equal(fake.live[FAKE_MR], before + 2);
	assert_int_equal(ASK(client, MEMORY, NULL, .handle = 5).status, -TARN_ENOREGION);
	destroy("b");
	assert_int_equal(fake.live[FAKE_MR], before);
	end();
}

/* As the pool, in pieces of what device and configuration allow. */
static void test_pieces(void **state)
{
	uint64_t sum = 0;

	(void)state;
	begin(CONFIG("max_region = 2M\n"));
	make("a", 5 << 20);
	assert_int_equal(ASK(client, OPEN, "a", .handle = 1).number, 3);
	for (uint32_t i = 0; i < 3; i++) {
		struct wire_region_reply piece = ASK(client, MEMORY, NULL, .handle = 1, .index = i);

		assert_int_equal(piece.status, 0);
		sum += piece.length;
	}
	assert_int_equal(sum, 5 << 20);
	end();
}

/* The memory is another one then, and so are the keys. */
static void test_resize(void **state)
{
	uint32_t before;
	long live;

	(void)state;
	begin(CONFIG(""));
	make("a", 8192);
	live = fake.live[FAKE_MR];
	memcpy(regions_find(regions(), "a")->memory.base, "here", 4);
	ASK(client, OPEN, "a", .handle = 1);
	before = ASK(client, MEMORY, NULL, .handle = 1).number;
	assert_int_equal(ASK(client, RESIZE, "a", .number = 1 << 20).status, -TARN_EBUSY);
	ASK(client, CLOSE, NULL, .handle = 1);
	assert_int_equal(ASK(client, RESIZE, "a", .number = 1 << 20).status, 0);
	assert_int_equal(ASK(client, STAT, "a").bytes, 1 << 20);
	assert_int_equal(fake.live[FAKE_MR], live);
	ASK(client, OPEN, "a", .handle = 1);
	assert_true(ASK(client, MEMORY, NULL, .handle = 1).number != before);
	assert_memory_equal(regions_find(regions(), "a")->memory.base, "here", 4);
	end();
}

/* At each call of the fake NIC and the system: the region has failed or is there, and nothing is left when it goes. */
static void test_failures(void **state)
{
	bool failed = true;

	(void)state;
	for (unsigned at = 1; failed; at++) {
		struct wire_region_reply reply;
		long live;

		assert_true(at < 100);
		begin(CONFIG("max_region = 2M\n"));
		live = fake.live[FAKE_MR];
		fake.fail_at = at;
		reply = ASK(client, CREATE, "a", .number = 5 << 20);
		failed = fake.fail_at == 0 || reply.status < 0;
		fake.fail_at = 0;
		if (reply.status == 0) {
			reply = ASK(client, STAT, "a");
			assert_true(reply.state == TARN_REGION_READY ||
				    reply.state == TARN_REGION_FAILED);
			failed = reply.state == TARN_REGION_FAILED;
			if (failed)
				assert_int_equal(ASK(client, OPEN, "a", .handle = 1).status,
						 -TARN_EPOOLFULL);
			destroy("a");
		}
		assert_int_equal(fake.live[FAKE_MR], live);
		assert_int_equal(regions()->bytes, 0);
		assert_int_equal(regions()->count, 0);
		end();
	}
}

/* A device that goes takes its registrations with it; one that comes back gets them again. */
static void test_device(void **state)
{
	struct registration *registration;

	(void)state;
	begin(CONFIG(""));
	make("a", 4096);
	rpc_client_end(&client);
	registration = (struct registration *)client.registration;
	assert_non_null(region_mapping_find(regions_find(regions(), "a"), registration));
	regions_registration_removed(regions(), registration);
	assert_null(region_mapping_find(regions_find(regions(), "a"), registration));
	assert_int_equal(ASK(client, OPEN, "a", .handle = 1).status, -TARN_EBUSY);
	/* its state, and what is in it, stay */
	assert_int_equal(ASK(client, STAT, "a").state, TARN_REGION_READY);
	regions_registration_added(regions(), registration);
	regions_poll(regions());
	assert_int_equal(ASK(client, OPEN, "a", .handle = 1).status, 0);
	assert_int_equal(ASK(client, MEMORY, NULL, .handle = 1).status, 0);
	end();
}

/* While a thread is at it: nobody has it, it can be destroyed, and the daemon can end. */
static void test_under_way(void **state)
{
	long live;

	(void)state;
	for (int how = 0; how < 3; how++) {
		begin(CONFIG(""));
		live = fake.live[FAKE_MR];
		fake.hold_threads = true;
		assert_int_equal(ASK(client, CREATE, "a", .number = 4096).status, 0);
		assert_int_equal(ASK(client, STAT, "a").state, TARN_REGION_CREATING);
		assert_int_equal(ASK(client, OPEN, "a", .handle = 1).status, -TARN_EBUSY);
		if (how == 1) {
			assert_int_equal(ASK(client, DESTROY, "a").status, 0);
			assert_int_equal(ASK(client, OPEN, "a", .handle = 1).status,
					 -TARN_ENOREGION);
		}
		fake.hold_threads = false;
		if (how < 2) {
			fake_thread_run();
			regions_poll(regions());
			regions_poll(regions());
		}
		if (how == 0)
			assert_int_equal(ASK(client, OPEN, "a", .handle = 1).status, 0);
		if (how == 1)
			assert_true(fake.live[FAKE_MR] == live && regions()->count == 0);
		end();
	}
}

/* A WRITE with immediate data notifies what its client has opened, and nothing else. */
static void test_immediate(void **state)
{
	uint8_t bytes[WIRE_REGION_BYTES];
	struct wire_region_reply reply;

	(void)state;
	begin(CONFIG(""));
	make("a", 4096);
	ASK(client, OPEN, "a", .handle = 3);
	ASK(reader, OPEN, "a", .handle = 3);
	assert_int_equal(region_notified(&client, wire_notify_immediate(3, 0x1123456), bytes), 0);
	assert_int_equal(wire_region_reply_decode(bytes, sizeof(bytes), &reply), 0);
	assert_true(reply.status == 0 && reply.value == 1 && reply.tag == 0x123456);
	assert_int_equal(region_notified(&reader, wire_notify_immediate(3, 1), bytes), 0);
	assert_int_equal(wire_region_reply_decode(bytes, sizeof(bytes), &reply), 0);
	assert_int_equal(reply.status, -TARN_EREADONLY);
	for (uint32_t handle = 0; handle < 256; handle++)
		if (handle != 3)
			assert_int_equal(
				region_notified(&client, wire_notify_immediate(handle, 1), bytes),
				-TARN_EPROTO);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),      cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_resize),    cmocka_unit_test(test_failures),
		cmocka_unit_test(test_device),    cmocka_unit_test(test_under_way),
		cmocka_unit_test(test_immediate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
