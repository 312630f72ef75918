/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's side of regions, on shared memory: what is made and unmade, what a client may ask for and what it may
 * not, who is woken, and what is used again after a restart. What is registered is test-verbs-listen's.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include <tarn/region.h>

#include "clock.h"
#include "device.h"
#include "fabric.h"
#include "fdstore.h"
#include "pool-fixture.h"
#include "region.h"
#include "rpc.h"

#define MORE "region_memory = 4M\n"

struct world {
	struct fixture f;
	struct rpc_client client, other;
	int fd; /* of the last answer */
};

static unsigned notices;

static void on_notice(struct rpc_client *client)
{
	(void)client;
	notices++;
}

static void world_open(struct world *w)
{
	fixture_open(&w->f, MORE);
	rpc_client_init(&w->client, 0, false);
	rpc_client_init(&w->other, 1, false);
	w->client.notice = w->other.notice = on_notice;
	notices = 0;
}

static void world_close(struct world *w)
{
	rpc_client_end(&w->client);
	rpc_client_end(&w->other);
	fixture_close(&w->f);
}

static struct wire_region_reply ask(struct world *w, struct rpc_client *client,
				    struct wire_region_request request, const char *name)
{
	uint8_t bytes[WIRE_REGION_BYTES];
	struct wire_region_reply reply;
	struct rpc_answer answer;

	request.tag = 77;
	if (name)
		memcpy(request.name, name, strlen(name));
	wire_region_request_encode(&request, bytes);
	assert_int_equal(rpc_handle(w->f.pool, client, bytes, sizeof(bytes), &answer), 0);
	assert_int_equal(wire_region_reply_decode(answer.bytes, answer.length, &reply), 0);
	assert_int_equal(reply.tag, 77);
	assert_int_equal(reply.call, request.call);
	w->fd = answer.fd;
	return reply;
}

#define ASK(w, client, call_, name, ...) \
	ask((w), &(w)->client,           \
	    (struct wire_region_request){.call = WIRE_REGION_##call_, __VA_ARGS__}, (name))

/* Until nothing is under way. */
static void settle(struct world *w)
{
	struct regions *regions = w->f.pool->regions;
	struct region *region;
	bool busy = true;

	for (unsigned i = 0; busy; i++) {
		assert_true(i < 10000);
		regions_poll(regions);
		busy = false;
		TAILQ_FOREACH (region, &regions->list, link)
			busy |= region->job != NULL;
		clock_sleep_ns(1000000);
	}
}

static void make(struct world *w, const char *name, uint64_t bytes)
{
	assert_int_equal(ASK(w, client, CREATE, name, .number = bytes).status, 0);
	settle(w);
	assert_int_equal(ASK(w, client, STAT, name).state, TARN_REGION_READY);
}

static void test_make(void **state)
{
	struct wire_region_reply reply;
	struct world w;

	(void)state;
	world_open(&w);
	assert_int_equal(ASK(&w, client, CREATE, "a", .number = 0).status, -TARN_EPROTO);
	assert_int_equal(ASK(&w, client, CREATE, "a", .number = UINT64_MAX).status, -TARN_EPROTO);
	assert_int_equal(ASK(&w, client, CREATE, "a", .number = 4 << 20).status, -TARN_EQUOTA);
	assert_int_equal(ASK(&w, client, CREATE, "a", .number = 5000).status, 0);
	assert_int_equal(ASK(&w, client, CREATE, "a", .number = 5000).status, -TARN_EEXISTS);
	/* being made, it counts, and can not be opened or resized */
	assert_int_equal(w.f.pool->regions->bytes, LAYOUT_PAGE_BYTES);
	reply = ASK(&w, client, STAT, "a");
	if (reply.state == TARN_REGION_CREATING) {
		assert_int_equal(ASK(&w, client, OPEN, "a", .handle = 1).status, -TARN_EBUSY);
		assert_int_equal(ASK(&w, client, RESIZE, "a", .number = 4096).status, -TARN_EBUSY);
	}
	settle(&w);
	reply = ASK(&w, client, STAT, "a");
	assert_int_equal(reply.status, 0);
	assert_int_equal(reply.state, TARN_REGION_READY);
	assert_int_equal(reply.bytes, 8192);
	assert_int_equal(ASK(&w, client, STAT, "b").status, -TARN_ENOREGION);
	make(&w, "b", 1 << 20);
	assert_true(ASK(&w, client, STAT, "b").id > reply.id);
	reply = ASK(&w, client, LIST, NULL, .number = reply.id);
	assert_string_equal(reply.name, "b");
	assert_int_equal(ASK(&w, client, LIST, NULL, .number = reply.id).status, -TARN_ENOREGION);
	assert_int_equal(ASK(&w, client, RESIZE, "b", .number = 3 << 20).status, -TARN_EQUOTA);
	assert_int_equal(ASK(&w, client, RESIZE, "b", .number = 2 << 20).status, 0);
	settle(&w);
	assert_int_equal(ASK(&w, client, STAT, "b").bytes, 2 << 20);
	assert_int_equal(ASK(&w, client, DESTROY, "b").status, 0);
	assert_int_equal(ASK(&w, client, DESTROY, "a").status, 0);
	settle(&w);
	assert_int_equal(ASK(&w, client, DESTROY, "a").status, -TARN_ENOREGION);
	assert_int_equal(w.f.pool->regions->bytes, 0);
	assert_int_equal(w.f.pool->regions->count, 0);
	world_close(&w);
}

/* What a client says is not believed. */
static void test_hostile(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_FAA, .class = 3, .slot_offset = 8, .delta = 1};
	const uint32_t handles[] = {0, 1, 2, 59, 60, 61, UINT32_MAX};
	int64_t before;
	struct world w;

	(void)state;
	world_open(&w);
	make(&w, "a", 8192);
	for (unsigned i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
		assert_int_equal(ASK(&w, client, MEMORY, NULL, .handle = handles[i]).status,
				 -TARN_EPROTO);
		assert_int_equal(ASK(&w, client, NOTIFY, NULL, .handle = handles[i]).status,
				 -TARN_EPROTO);
		assert_int_equal(ASK(&w, client, WAIT, NULL, .handle = handles[i]).status,
				 -TARN_EPROTO);
		assert_int_equal(ASK(&w, client, CLOSE, NULL, .handle = handles[i]).status, 0);
	}
	assert_int_equal(ASK(&w, client, OPEN, "a", .handle = 0).status, -TARN_EPROTO);
	assert_int_equal(ASK(&w, client, OPEN, "a", .handle = 61).status, -TARN_EPROTO);
	assert_int_equal(ASK(&w, client, OPEN, "b", .handle = 3).status, -TARN_ENOREGION);
	assert_int_equal(region_atomic(&w.client, &rpc, &before), -TARN_EPROTO);
	assert_int_equal(ASK(&w, client, OPEN, "a", .handle = 3).status, 0);
	assert_int_equal(w.fd, regions_find(w.f.pool->regions, "a")->memory.fd);
	/* again: closes the first one */
	assert_int_equal(ASK(&w, client, OPEN, "a", .handle = 3).status, 0);
	assert_int_equal(ASK(&w, client, STAT, "a").number, 1);
	/* shared memory has no pieces */
	assert_int_equal(ASK(&w, client, MEMORY, NULL, .handle = 3).status, -TARN_EPROTO);
	assert_int_equal(region_atomic(&w.client, &rpc, &before), 0);
	assert_int_equal(region_atomic(&w.client, &rpc, &before), 0);
	assert_int_equal(before, 1);
	for (unsigned i = 0; i < 4; i++) {
		static const uint64_t offsets[] = {4, 8192, 8188, UINT64_MAX - 7};

		rpc.slot_offset = offsets[i];
		assert_int_equal(region_atomic(&w.client, &rpc, &before), -TARN_EPROTO);
	}
	rpc.slot_offset = 8;
	w.f.pool->geometry.atomics = LAYOUT_ATOMICS_NIC;
	assert_int_equal(region_atomic(&w.client, &rpc, &before), -TARN_EPROTO);
	world_close(&w);
}

static void test_rights(void **state)
{
	struct wire_rpc rpc = {.type = WIRE_RPC_CAS, .class = 1};
	struct world w;
	int64_t before;

	(void)state;
	world_open(&w);
	make(&w, "a", 4096);
	/* opened for reading: the descriptor is, too */
	assert_int_equal(
		ASK(&w, client, OPEN, "a", .handle = 1, .flags = WIRE_REGION_OPEN_READONLY).status,
		0);
	assert_int_equal(fcntl(w.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, w.fd, 0), MAP_FAILED);
	assert_int_equal(ASK(&w, client, NOTIFY, NULL, .handle = 1).status, -TARN_EREADONLY);
	assert_int_equal(region_atomic(&w.client, &rpc, &before), -TARN_EREADONLY);
	/* a client that may only read changes nothing, and opens for reading whatever it says */
	w.other.read_only = true;
	assert_int_equal(ASK(&w, other, CREATE, "b", .number = 1).status, -TARN_EREADONLY);
	assert_int_equal(ASK(&w, other, RESIZE, "a", .number = 1).status, -TARN_EREADONLY);
	assert_int_equal(ASK(&w, other, DESTROY, "a").status, -TARN_EREADONLY);
	assert_int_equal(ASK(&w, other, OPEN, "a", .handle = 60).status, 0);
	assert_int_equal(fcntl(w.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(ASK(&w, other, NOTIFY, NULL, .handle = 60).status, -TARN_EREADONLY);
	assert_int_equal(ASK(&w, other, WAIT, NULL, .handle = 60).status, 0);
	assert_int_equal(ASK(&w, other, STAT, "a").number, 2);
	rpc_client_end(&w.other);
	assert_int_equal(ASK(&w, client, STAT, "a").number, 1);
	assert_int_equal(ASK(&w, client, RESIZE, "a", .number = 8192).status, -TARN_EBUSY);
	world_close(&w);
}

/* The descriptor could not be sent: it has nothing open, and knows that it may ask again. */
static void test_refused(void **state)
{
	struct wire_region_request request = {
		.call = WIRE_REGION_OPEN, .tag = 5, .handle = 9, .name = "a"};
	struct wire_region_reply reply;
	uint8_t bytes[WIRE_REGION_BYTES];
	struct rpc_answer answer;
	struct world w;

	(void)state;
	world_open(&w);
	make(&w, "a", 4096);
	wire_region_request_encode(&request, bytes);
	assert_int_equal(rpc_handle(w.f.pool, &w.client, bytes, sizeof(bytes), &answer), 0);
	assert_true(answer.fd >= 0);
	assert_int_equal(ASK(&w, client, STAT, "a").number, 1);
	region_rpc_refuse(&w.client, answer.bytes);
	assert_int_equal(wire_region_reply_decode(answer.bytes, answer.length, &reply), 0);
	assert_true(reply.call == WIRE_REGION_OPEN && reply.tag == 5 && reply.id == 0);
	assert_int_equal(reply.status, -TARN_EBUSY);
	assert_int_equal(ASK(&w, client, STAT, "a").number, 0);
	assert_int_equal(ASK(&w, client, NOTIFY, NULL, .handle = 9).status, -TARN_EPROTO);
	world_close(&w);
}

/* The log says of a client with a region that was destroyed under it that this may be why. */
static void test_fault_text(void **state)
{
	struct world w;

	(void)state;
	world_open(&w);
	make(&w, "a", 4096);
	ASK(&w, client, OPEN, "a", .handle = 60);
	ASK(&w, other, OPEN, "a", .handle = 1);
	assert_string_equal(region_fault_text(&w.client, "else"), "else");
	ASK(&w, other, CLOSE, NULL, .handle = 1);
	assert_int_equal(ASK(&w, other, DESTROY, "a").status, 0);
	assert_non_null(strstr(region_fault_text(&w.client, "else"), "was destroyed"));
	assert_string_equal(region_fault_text(&w.other, "else"), "else");
	/* it has heard of it */
	ASK(&w, client, CLOSE, NULL, .handle = 60);
	assert_string_equal(region_fault_text(&w.client, "else"), "else");
	settle(&w);
	world_close(&w);
}

/* One notice, until the client asks again. */
static void test_notices(void **state)
{
	struct world w;

	(void)state;
	world_open(&w);
	make(&w, "a", 4096);
	make(&w, "b", 4096);
	ASK(&w, client, OPEN, "a", .handle = 1);
	ASK(&w, client, OPEN, "b", .handle = 2);
	ASK(&w, other, OPEN, "a", .handle = 1);
	assert_int_equal(ASK(&w, client, WAIT, NULL, .handle = 1, .number = 0).value, 0);
	assert_int_equal(ASK(&w, client, WAIT, NULL, .handle = 2, .number = 0).value, 0);
	assert_int_equal(ASK(&w, other, NOTIFY, NULL, .handle = 1).value, 1);
	assert_int_equal(notices, 1);
	assert_int_equal(ASK(&w, other, NOTIFY, NULL, .handle = 1).value, 2);
	region_notify(regions_find(w.f.pool->regions, "b"));
	assert_int_equal(notices, 1); /* it has not asked since */
	/* what it does not know is told at once, and no notice is owed */
	assert_int_equal(ASK(&w, client, WAIT, NULL, .handle = 2, .number = 0).value, 1);
	assert_int_equal(ASK(&w, client, WAIT, NULL, .handle = 1, .number = 0).value, 2);
	ASK(&w, other, NOTIFY, NULL, .handle = 1);
	assert_int_equal(notices, 1);
	assert_int_equal(ASK(&w, client, WAIT, NULL, .handle = 1, .number = 3).value, 3);
	ASK(&w, other, NOTIFY, NULL, .handle = 1);
	assert_int_equal(notices, 2);
	/* who waits for one that goes is told */
	assert_int_equal(ASK(&w, client, WAIT, NULL, .handle = 1, .number = 4).value, 4);
	assert_int_equal(ASK(&w, other, DESTROY, "a").status, 0);
	assert_int_equal(notices, 3);
	assert_int_equal(ASK(&w, client, WAIT, NULL, .handle = 1, .number = 4).status,
			 -TARN_ENOREGION);
	assert_int_equal(ASK(&w, client, NOTIFY, NULL, .handle = 1).status, -TARN_ENOREGION);
	settle(&w);
	world_close(&w);
}

/* The memory of one that is destroyed is empty, and its last page says so, for who still has it mapped. */
static void test_destroyed_memory(void **state)
{
	struct region *region;
	struct world w;
	uint64_t *memory, *tail, bytes;

	(void)state;
	world_open(&w);
	make(&w, "a", 8192);
	region = regions_find(w.f.pool->regions, "a");
	bytes = region->memory.bytes;
	assert_int_equal(ASK(&w, client, OPEN, "a", .handle = 1).status, 0);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w.fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	tail = memory + (bytes - FABRIC_SPACE_TAIL_BYTES) / 8;
	assert_true(*tail != 0);
	memory[0] = memory[1023] = 5;
	assert_int_equal(ASK(&w, client, DESTROY, "a").status, 0);
	assert_int_equal(*tail, 0);
	settle(&w);
	assert_true(memory[0] == 0 && memory[1023] == 0);
	munmap(memory, bytes);
	world_close(&w);
}

/* Until its thread is done; nobody has taken note of that. */
static void wait_done(const struct region *region)
{
	for (unsigned i = 0; !region_job_done(region->job); i++) {
		assert_true(i < 10000);
		clock_sleep_ns(1000000);
	}
}

/* A device comes while a region is made, and then that is to be destroyed: nothing is registered any more. */
static void test_destroyed_at_once(void **state)
{
	struct device device = {.name = "new"};
	struct registration registration = {.device = &device};
	struct regions *regions;
	struct region *region;
	struct world w;

	(void)state;
	world_open(&w);
	regions = w.f.pool->regions;
	device.verbs.attr.max_mr_size = UINT64_MAX;
	assert_int_equal(ASK(&w, client, CREATE, "a", .number = 8192).status, 0);
	region = regions_find(regions, "a");
	wait_done(region);
	regions_registration_added(regions, &registration);
	assert_int_equal(region_destroy(region), 0);
	regions_poll(regions);
	assert_int_equal(device.busy, 0);
	settle(&w);
	assert_int_equal(regions->count, 0);
	regions_registration_removed(regions, &registration);
	world_close(&w);
}

/* ---- after a restart ---- */

/* What is in memory that somebody else has, too. */
static bool whole(int fd, uint64_t bytes)
{
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint64_t alive;
	bool kept;

	assert_ptr_not_equal(memory, MAP_FAILED);
	memcpy(&alive, memory + bytes - FABRIC_SPACE_TAIL_BYTES, sizeof(alive));
	kept = alive == REGION_ALIVE && memcmp(memory, "kept", 4) == 0;
	if (!kept)
		assert_int_equal(alive, 0); /* who finds it does not take it for the region */
	munmap(memory, bytes);
	close(fd);
	return kept;
}

/* The daemon ends while a region is resized, at any moment: its bytes are in the old memory or the new one. */
static void test_end_while_resized(void **state)
{
	struct region *region;
	struct world w;
	uint64_t bytes, new_bytes;
	int fd, new_fd;

	(void)state;
	world_open(&w);
	make(&w, "a", 8192);
	region = regions_find(w.f.pool->regions, "a");
	memcpy(region->memory.base, "kept", 4);
	fd = fcntl(region->memory.fd, F_DUPFD_CLOEXEC, 0);
	bytes = region->memory.bytes;
	assert_int_equal(ASK(&w, client, RESIZE, "a", .number = 1 << 20).status, 0);
	wait_done(region);
	new_fd = fcntl(region->job->memory.fd, F_DUPFD_CLOEXEC, 0);
	new_bytes = region->job->memory.bytes;
	world_close(&w);
	assert_false(whole(fd, bytes));
	assert_true(whole(new_fd, new_bytes));
}

static struct fdstore *store_of(struct world *w, const char *name, int fd)
{
	struct fdstore *store;

	assert_int_equal(fdstore_create(&w->f.log, &store), 0);
	assert_int_equal(fdstore_add_region(
				 store, (struct fdstore_region){.pool = "main", .name = name}, fd),
			 0);
	return store;
}

/* A region's memory as systemd would hand it to the next daemon, after somebody has been at its last page. */
static int kept(struct region_tail **ret_tail, struct region_tail *ret_before)
{
	struct region *region;
	struct world w;
	uint64_t bytes;
	int fd;

	world_open(&w);
	make(&w, "a", 8192);
	region = regions_find(w.f.pool->regions, "a");
	memcpy(region->memory.base, "kept", 4);
	fd = fcntl(region->memory.fd, F_DUPFD_CLOEXEC, 0);
	bytes = region->memory.bytes;
	world_close(&w);
	*ret_tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(bytes - 4096));
	assert_ptr_not_equal(*ret_tail, MAP_FAILED);
	*ret_before = **ret_tail;
	return fd;
}

static void test_adopt(void **state)
{
	struct region_tail *tail, before;
	struct wire_region_reply reply;
	struct fdstore *store;
	struct world w;
	int fd;

	(void)state;
	fd = kept(&tail, &before);
	world_open(&w);
	store = store_of(&w, "a", fd);
	regions_adopt(w.f.pool->regions, store);
	reply = ASK(&w, client, STAT, "a");
	assert_int_equal(reply.status, 0);
	assert_true(reply.id == before.id && reply.bytes == 8192 &&
		    reply.created_ms == before.created_ms);
	assert_memory_equal(regions_find(w.f.pool->regions, "a")->memory.base, "kept", 4);
	/* who waited before hears of it: the sequence is a later one */
	assert_int_equal(ASK(&w, client, OPEN, "a", .handle = 1).status, 0);
	assert_true(ASK(&w, client, WAIT, NULL, .handle = 1, .number = 1000).value > 1000000);
	assert_int_equal(w.f.pool->regions->bytes, LAYOUT_PAGE_BYTES);
	/* the next one has a later id */
	make(&w, "b", 1);
	assert_true(ASK(&w, client, STAT, "b").id > before.id);
	munmap(tail, 4096);
	fdstore_free(store);
	world_close(&w);
}

static void test_adopt_damaged(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct region_tail *tail, before;
		struct fdstore *store;
		struct world w;
		int fd = kept(&tail, &before);

		if (i == 0)
			tail->alive = 0;
		if (i == 1)
			tail->id = 0;
		if (i == 2)
			tail->id = UINT64_MAX - 1;
		if (i == 3)
			tail->bytes = 0;
		if (i == 4)
			tail->bytes = UINT64_MAX - 4095;
		if (i == 5)
			tail->bytes = 8193;
		if (i == 6)
			memset(tail->name, 'a', sizeof(tail->name));
		if (i == 7)
			tail->bytes = LAYOUT_PAGE_BYTES;
		world_open(&w);
		store = store_of(&w, "a", fd);
		regions_adopt(w.f.pool->regions, store);
		assert_int_equal(w.f.pool->regions->count, 0);
		assert_int_equal(ASK(&w, client, STAT, "a").status, -TARN_ENOREGION);
		munmap(tail, 4096);
		fdstore_free(store);
		world_close(&w);
	}
}

/* A descriptor of something else, and two of one name. */
static void test_adopt_other(void **state)
{
	struct region_tail *tail, before;
	struct fdstore *store;
	struct world w;
	int fd;

	(void)state;
	world_open(&w);
	store = store_of(&w, "a", open("/dev/null", O_RDWR | O_CLOEXEC));
	fd = kept(&tail, &before);
	/* its tail says a */
	assert_int_equal(
		fdstore_add_region(store, (struct fdstore_region){.pool = "main", .name = "b"}, fd), 0);
	assert_int_equal(fdstore_add_region(store,
					    (struct fdstore_region){.pool = "other", .name = "a"},
					    memfd_create("x", MFD_CLOEXEC)),
			 0);
	regions_adopt(w.f.pool->regions, store);
	assert_int_equal(w.f.pool->regions->count, 0);
	munmap(tail, 4096);
	fdstore_free(store);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_make),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_rights),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_fault_text),
		cmocka_unit_test(test_notices),
		cmocka_unit_test(test_destroyed_memory),
		cmocka_unit_test(test_destroyed_at_once),
		cmocka_unit_test(test_end_while_resized),
		cmocka_unit_test(test_adopt),
		cmocka_unit_test(test_adopt_damaged),
		cmocka_unit_test(test_adopt_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
