/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tarn_session_open() over a fake NIC (fake-verbs.h): a connection that is lost right after it was
 * made, before the superblock is read, is not the end. The pool is real, its daemon answers
 * handshakes alone. Also here: registered memory, which takes such a session.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <tarn/tarn.h>
#include <unistd.h>

#include "fake-verbs.h"
#include "fixture.h"
#include "wire.h"

#define ADDRESS 0x700000000000ull

static struct {
	struct fixture pool;
	unsigned connects,
		lost; /* connections so far; how many of them are lost at their first READ */
} far;

static void far_connect(struct rdma_cm_id *id, const struct rdma_conn_param *param)
{
	const struct layout_geometry *g = &far.pool.geometry;
	struct wire_reply reply = {.version = 1,
				   .role = WIRE_ROLE_WRITE,
				   .atomics = LAYOUT_ATOMICS_NIC,
				   .incarnation = g->incarnation,
				   .boot_id = g->boot_id,
				   .client_id = far.connects + 1,
				   .client_slot = (uint16_t)far.connects,
				   .deadline_us = (uint32_t)(g->deadline_ns / 1000),
				   .epoch_us = (uint32_t)(g->epoch_ns / 1000),
				   .grace_us = (uint32_t)(g->grace_ns / 1000),
				   .layout_version = LAYOUT_VERSION,
				   .pool_bytes = far.pool.bytes,
				   .region_count = 1};
	uint8_t bytes[WIRE_REPLY_BYTES];
	struct wire_request request;

	assert_int_equal(wire_request_decode(param->private_data, WIRE_REQUEST_BYTES, &request), 0);
	reply.nonce = request.nonce;
	reply.regions[0] = (struct wire_region){
		.address = ADDRESS,
		.length = far.pool.bytes,
		.rkey = fake_remote(far.pool.base, far.pool.bytes, ADDRESS,
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_ATOMIC)};
	wire_reply_encode(&reply, bytes);
	if (far.connects++ < far.lost) {
		fake.wc_error_at = 1;
		fake.wc_error = IBV_WC_RETRY_EXC_ERR;
	}
	fake_event(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, bytes, sizeof(bytes));
}

static int open_with(unsigned lost, struct tarn_session **ret_session)
{
	struct tarn_options options = TARN_OPTIONS_INIT;

	options.flags = TARN_NO_THREAD;
	options.timeout_ms = 1000;
	far.connects = 0;
	far.lost = lost;
	return tarn_session_open("tarn://10.77.0.1/main", &options, ret_session);
}

static void test_lost_before_superblock(void **state)
{
	struct layout_plan plan = fixture_plan(8u << 20);
	struct tarn_session *s = NULL;
	struct tarn_item item = TARN_ITEM_INIT;
	char value[8];

	(void)state;
	fake_begin();
	fake.connect = far_connect;
	plan.atomics = LAYOUT_ATOMICS_NIC;
	assert_int_equal(fixture_create(&far.pool, &plan), 0);
	if (open_with(2, &s) < 0)
		fail_msg("%s", tarn_last_error_text());
	assert_int_equal(far.connects, 3);
	assert_int_equal(tarn_put(s, "k", 1, "v", 1, NULL, NULL), 0);
	assert_int_equal(tarn_get(s, "k", 1, value, sizeof(value), &item), 0);
	assert_int_equal(item.value_bytes, 1);
	tarn_session_close(s);
	/* again and again: not for longer than the caller has time, and what it was is said */
	assert_int_equal(open_with(UINT32_MAX, &s), -TARN_EREFUSED);
	assert_non_null(strstr(tarn_last_error_text(), "lost as soon as it was made"));
	assert_in_range(far.connects, 2, 200);
	fixture_destroy(&far.pool);
	fake_end();
}

/* ---- registered memory ----------------------------------------------------------------------- */

#define LARGE 300001u /* a value in two pieces, of no round length */

static uint8_t one[2 * LARGE], two[2 * LARGE];

static struct tarn_session *open_far(void)
{
	struct layout_plan plan = fixture_plan(16u << 20);
	struct tarn_session *s = NULL;

	fake_begin();
	fake.connect = far_connect;
	plan.atomics = LAYOUT_ATOMICS_NIC;
	assert_int_equal(fixture_create(&far.pool, &plan), 0);
	if (open_with(0, &s) < 0)
		fail_msg("%s", tarn_last_error_text());
	for (unsigned i = 0; i < sizeof(one); i++)
		one[i] = (uint8_t)(i * 7 + i / 251);
	return s;
}

static void close_far(struct tarn_session *s)
{
	tarn_session_close(s);
	fixture_destroy(&far.pool);
	fake_end();
}

/* How many bytes of values were copied since it was asked last. */
static uint64_t copied(struct tarn_session *s)
{
	struct tarn_session_stats stats = {.size = sizeof(stats)};
	static uint64_t before;
	uint64_t since;

	assert_int_equal(tarn_session_get_stats(s, &stats), 0);
	since = stats.bytes_copied - before;
	before = stats.bytes_copied;
	return since;
}

static void put(struct tarn_session *s, const void *value)
{
	if (tarn_put(s, "k", 1, value, LARGE, NULL, NULL) < 0)
		fail_msg("%s", tarn_last_error_text());
}

static void get(struct tarn_session *s, void *buffer)
{
	struct tarn_item item = TARN_ITEM_INIT;

	memset(buffer, 0, LARGE);
	if (tarn_get(s, "k", 1, buffer, LARGE, &item) < 0)
		fail_msg("%s", tarn_last_error_text());
	assert_int_equal(item.value_bytes, LARGE);
}

/* At any alignment, in any part of it; what is not registered works as well, and is copied. */
static void test_registered(void **state)
{
	struct tarn_session *s = open_far();
	struct tarn_buffer *source, *target, *same, *part;
	long mrs = fake.live[FAKE_MR];

	(void)state;
	copied(s);
	put(s, one);
	get(s, two);
	assert_memory_equal(one, two, LARGE);
	assert_int_equal(copied(s), 2 * LARGE);
	assert_int_equal(tarn_buffer_register(s, one, sizeof(one), TARN_BUFFER_SOURCE, &source), 0);
	assert_int_equal(tarn_buffer_register(s, two, sizeof(two), 0, &target), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs + 2);
	for (unsigned at = 0; at < 20; at += 3) {
		put(s, one + at);
		get(s, two + LARGE - 2 * at);
		assert_memory_equal(one + at, two + LARGE - 2 * at, LARGE);
	}
	assert_int_equal(copied(s), 0);
	/* only puts come from there; and what only begins inside is not inside */
	get(s, one);
	assert_int_equal(copied(s), LARGE);
	get(s, two + sizeof(two) - LARGE);
	assert_int_equal(copied(s), 0);
	/* the same memory again costs nothing; a part of it is registered by itself, and outlives the whole */
	assert_int_equal(tarn_buffer_register(s, two, sizeof(two), 0, &same), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs + 2);
	assert_int_equal(tarn_buffer_register(s, two + 100, LARGE, 0, &part), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs + 3);
	assert_int_equal(tarn_buffer_deregister(target), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs + 3);
	assert_int_equal(tarn_buffer_deregister(same), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs + 2);
	get(s, two + 100);
	assert_int_equal(copied(s), 0);
	get(s, two + 200);
	assert_true(copied(s) > 0);
	assert_int_equal(tarn_buffer_deregister(part), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs + 1);
	get(s, two);
	assert_int_equal(copied(s), LARGE);
	assert_int_equal(tarn_buffer_deregister(NULL), 0);
	/* the rest ends with the session */
	close_far(s);
}

/* Several pieces of memory, one in the other: what lies in any of them is found. */
static void test_registered_overlapping(void **state)
{
	struct tarn_session *s = open_far();
	struct tarn_buffer *small, *large, *between;

	(void)state;
	assert_int_equal(tarn_buffer_register(s, two + 1000, 5000, 0, &small), 0);
	assert_int_equal(tarn_buffer_register(s, two + 500, LARGE + 2000, 0, &large), 0);
	assert_int_equal(tarn_buffer_register(s, two + LARGE, LARGE, 0, &between), 0);
	put(s, one);
	copied(s);
	get(s, two + 2000);
	assert_int_equal(copied(s), 0);
	get(s, two + LARGE);
	assert_int_equal(copied(s), 0);
	/* ends one byte behind the second, and begins before the third: its last piece */
	get(s, two + 2501);
	assert_int_equal(copied(s), LARGE % LAYOUT_PAGE_BYTES);
	get(s, two);
	assert_int_equal(copied(s), LAYOUT_PAGE_BYTES);
	close_far(s);
}

static void test_registered_refused(void **state)
{
	struct tarn_session *s = open_far();
	struct tarn_buffer *b;
	void *memory;

	(void)state;
	assert_int_equal(tarn_buffer_register(s, NULL, 1, 0, &b), -EINVAL);
	assert_int_equal(tarn_buffer_register(NULL, one, 1, 0, &b), -EINVAL);
	assert_int_equal(tarn_buffer_register(s, one, 0, 0, &b), -EINVAL);
	assert_int_equal(tarn_buffer_register(s, one, SIZE_MAX, 0, &b), -EINVAL);
	assert_int_equal(tarn_buffer_register(s, one, 1, 2, &b), -EINVAL);
	fake.fail_at = fake.calls + 1;
	fake.fail_errno = ENOMEM;
	assert_int_equal(tarn_buffer_register(s, one, sizeof(one), 0, &b), -ENOMEM);
	assert_non_null(strstr(tarn_last_error_text(), "locked memory"));
	fake.fail_at = fake.calls + 1;
	fake.fail_errno = EFAULT;
	assert_int_equal(tarn_buffer_register(s, one, sizeof(one), 0, &b), -EFAULT);
	assert_non_null(strstr(tarn_last_error_text(), "no memory of this process"));
	assert_int_equal(tarn_alloc(s, 0, &memory), -EINVAL);
	assert_int_equal(tarn_alloc(s, SIZE_MAX, &memory), -EINVAL);
	fake.fail_at = fake.calls + 1;
	fake.fail_errno = ENOMEM;
	assert_int_equal(tarn_alloc(s, 1000, &memory), -ENOMEM);
	assert_int_equal(tarn_free(s, one), -EINVAL);
	assert_int_equal(tarn_free(s, NULL), 0);
	/* as many as there can be */
	for (unsigned i = 0; i < 1024; i++)
		assert_int_equal(tarn_buffer_register(s, one + i, 2, 0, &b), 0);
	assert_int_equal(tarn_buffer_register(s, two, 1, 0, &b), -ENOSPC);
	close_far(s);
}

static void test_alloc(void **state)
{
	struct tarn_session *s = open_far();
	long mrs = fake.live[FAKE_MR];
	struct tarn_buffer *part;
	void *memory, *other;

	(void)state;
	assert_int_equal(tarn_alloc(s, LARGE, &memory), 0);
	assert_int_equal(tarn_alloc(s, 1, &other), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs + 2);
	put(s, one);
	copied(s);
	get(s, memory);
	assert_memory_equal(one, memory, LARGE);
	assert_int_equal(copied(s), 0);
	/* not while somebody has registered a part of it */
	assert_int_equal(tarn_buffer_register(s, (char *)memory + 5, 10, 0, &part), 0);
	assert_int_equal(tarn_free(s, memory), -TARN_EBUSY);
	assert_int_equal(tarn_buffer_deregister(part), 0);
	assert_int_equal(tarn_free(s, memory), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs + 1);
	close_far(s);
}

/* A large value that needs no room in the ring is no reason to hear nothing of it for long. */
static void test_registered_signals(void **state)
{
	struct tarn_session *s = open_far();
	uint64_t silent = 0, most = 0;
	void *memory;

	(void)state;
	assert_int_equal(tarn_alloc(s, 4u << 20, &memory), 0);
	assert_int_equal(tarn_put(s, "k", 1, memory, 4u << 20, NULL, NULL), 0);
	fake.wr_count = 0;
	assert_int_equal(tarn_get(s, "k", 1, memory, 4u << 20, NULL), 0);
	for (size_t i = 0; i < fake.wr_count; i++) {
		silent += fake.wrs[i].length;
		most = silent > most ? silent : most;
		if (fake.wrs[i].flags & IBV_SEND_SIGNALED)
			silent = 0;
	}
	/* a quarter of the ring's size, and the piece that fills it up */
	assert_in_range(most, 1, (1u << 20) / 4 + LAYOUT_PAGE_BYTES);
	close_far(s);
}

/* What a call uses is the library's until it has been picked up. */
static void test_registered_busy(void **state)
{
	struct tarn_session *s = open_far();
	struct tarn_completion completion;
	struct tarn_buffer *b;
	size_t count;
	void *memory;

	(void)state;
	put(s, one);
	assert_int_equal(tarn_buffer_register(s, two, sizeof(two), 0, &b), 0);
	assert_int_equal(tarn_alloc(s, LARGE, &memory), 0);
	for (unsigned i = 0; i < 2; i++) {
		void *buffer = i ? memory : two + 7;

		assert_int_equal(tarn_get_async(s, "k", 1, buffer, LARGE, NULL, NULL), 0);
		for (unsigned ended = 0; ended < 2; ended++) {
			assert_int_equal(i ? tarn_free(s, memory) : tarn_buffer_deregister(b),
					 -TARN_EBUSY);
			assert_int_equal(tarn_session_wait(s, 1000), 1);
		}
		assert_int_equal(tarn_session_poll(s, &completion, 1, &count), 1);
		assert_int_equal(completion.status, 0);
		assert_memory_equal(one, buffer, LARGE);
		assert_int_equal(i ? tarn_free(s, memory) : tarn_buffer_deregister(b), 0);
	}
	close_far(s);
}

/* A lost connection takes the registration along before anybody is told; the next one has it again. */
static void test_registered_reconnect(void **state)
{
	struct tarn_session *s = open_far();
	struct tarn_buffer *b;
	long mrs;

	(void)state;
	assert_int_equal(tarn_buffer_register(s, two, sizeof(two), 0, &b), 0);
	put(s, one);
	mrs = fake.live[FAKE_MR];
	copied(s);
	fake.wc_error_at = 3;
	fake.wc_error = IBV_WC_RETRY_EXC_ERR;
	get(s, two);
	assert_memory_equal(one, two, LARGE);
	assert_int_equal(far.connects, 2);
	assert_int_equal(fake.live[FAKE_MR], mrs);
	assert_int_equal(copied(s), 0);
	assert_int_equal(tarn_buffer_deregister(b), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs - 1);
	close_far(s);
}

/* A connection that can not register it, for there is no such memory any more, or too much: it is copied. */
static void test_registered_no_more(void **state)
{
	struct tarn_session *s = open_far();
	struct tarn_buffer *b;
	void *memory;

	(void)state;
	assert_int_equal(tarn_alloc(s, 4u << 20, &memory), 0);
	assert_int_equal(tarn_buffer_register(s, two, sizeof(two), 0, &b), 0);
	put(s, one);
	fake.devices[0].attr.max_mr_size = 3u << 20;
	copied(s);
	for (unsigned i = 0; i < 2; i++) {
		fake.wc_error_at = 1;
		fake.wc_error = IBV_WC_RETRY_EXC_ERR;
		get(s, memory);
		assert_memory_equal(one, memory, LARGE);
		assert_true(copied(s) >= LARGE);
		get(s, two);
		assert_int_equal(copied(s), 0);
	}
	assert_int_equal(far.connects, 3);
	assert_int_equal(tarn_buffer_deregister(b), 0);
	/* the next one can again */
	fake.devices[0].attr.max_mr_size = UINT64_MAX;
	fake.wc_error_at = 1;
	fake.wc_error = IBV_WC_RETRY_EXC_ERR;
	get(s, memory);
	copied(s);
	get(s, memory);
	assert_int_equal(copied(s), 0);
	assert_int_equal(tarn_free(s, memory), 0);
	close_far(s);
}

/* ---- memory of devices ----------------------------------------------------------------------- */

#define DMABUF_BYTES (4u * LARGE / 4096 * 4096)
#define AT           4999u /* where the part begins: of no round place */

/* A dma-buf, whose bytes the device sees at *ret_device. */
static int dmabuf(uint8_t **ret_device)
{
	int fd = memfd_create("device", MFD_CLOEXEC);

	fake.dmabufs = true;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, DMABUF_BYTES), 0);
	*ret_device = mmap(NULL, DMABUF_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(*ret_device, MAP_FAILED);
	return fd;
}

/* The same one, of which no writable mapping can be made. */
static int unmappable(int fd)
{
	char path[40];
	int other;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(other >= 0);
	return other;
}

/* Values go from and to the device by its addresses, on each connection. */
static void test_dmabuf(void **state)
{
	struct tarn_session *s = open_far();
	long mrs = fake.live[FAKE_MR];
	struct tarn_buffer *b, *part;
	uint8_t *device;
	void *memory;
	int fd = dmabuf(&device);

	(void)state;
	if (tarn_buffer_register_dmabuf(s, fd, AT, 2 * LARGE, 0, &memory, &b) < 0)
		fail_msg("%s", tarn_last_error_text());
	close(fd);
	assert_int_equal(fake.live[FAKE_MR], mrs + 1);
	put(s, one);
	copied(s);
	get(s, (uint8_t *)memory + 7);
	assert_memory_equal(device + AT + 7, one, LARGE);
	memcpy(device + AT + 100, one + 5, LARGE);
	put(s, (uint8_t *)memory + 100);
	fake.wc_error_at = 3;
	fake.wc_error = IBV_WC_RETRY_EXC_ERR;
	get(s, (uint8_t *)memory + LARGE);
	assert_memory_equal(device + AT + LARGE, one + 5, LARGE);
	assert_int_equal(far.connects, 2);
	assert_int_equal(copied(s), 0);
	/* small ones as well, by copying */
	assert_int_equal(tarn_put(s, "small", 5, memory, 100, NULL, NULL), 0);
	assert_int_equal(tarn_get(s, "small", 5, (uint8_t *)memory + 200, 100, NULL), 0);
	assert_memory_equal(device + AT, device + AT + 200, 100);
	/* a part of it that was registered by itself, and memory that tarn_free() is not for */
	assert_int_equal(tarn_free(s, memory), -EINVAL);
	assert_int_equal(tarn_buffer_register(s, memory, 10, 0, &part), 0);
	assert_int_equal(tarn_buffer_deregister(b), -TARN_EBUSY);
	assert_int_equal(tarn_buffer_deregister(part), 0);
	assert_int_equal(tarn_buffer_deregister(b), 0);
	assert_int_equal(fake.live[FAKE_MR], mrs);
	munmap(device, DMABUF_BYTES);
	close_far(s);
}

static int post(struct tarn_session *s, uint8_t opcode, void *local, uint32_t bytes)
{
	struct fabric_request r = {.opcode = opcode,
				   .flags = FABRIC_DIRECT,
				   .length = bytes,
				   .offset = far.pool.geometry.pages_offset,
				   .local = local};

	return session_sync(s, &r, 1);
}

/* What the CPU can not touch is refused where it would have to, and reached where it has not to. */
static void test_dmabuf_unreachable(void **state)
{
	struct tarn_session *s = open_far();
	struct tarn_mget item = {.key = "k", .key_bytes = 1, .buffer_bytes = LARGE};
	struct tarn_buffer *b;
	uint8_t *device, *memory, *pool = (uint8_t *)far.pool.base + far.pool.geometry.pages_offset;
	void *address;
	int fd = dmabuf(&device), other = unmappable(fd);

	(void)state;
	if (tarn_buffer_register_dmabuf(s, other, AT, LARGE, 0, &address, &b) < 0)
		fail_msg("%s", tarn_last_error_text());
	close(other);
	close(fd);
	memory = item.buffer = address;
	assert_int_equal(tarn_put(s, "k", 1, "v", 1, NULL, NULL), 0);
	assert_int_equal(tarn_get(s, "k", 1, memory, LARGE, NULL), -EOPNOTSUPP);
	assert_non_null(strstr(tarn_last_error_text(), "can not be mapped"));
	assert_int_equal(tarn_get(s, "k", 1, memory + LARGE - 1, 1, NULL), -EOPNOTSUPP);
	assert_int_equal(tarn_get(s, "k", 1, memory - 1, 2, NULL), -EOPNOTSUPP);
	assert_int_equal(tarn_put(s, "k", 1, memory, 1, NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(tarn_put(s, "k", 1, memory, 0, NULL, NULL), 0);
	assert_int_equal(tarn_get_async(s, "k", 1, memory, LARGE, NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(tarn_put_async(s, "k", 1, memory, 1, NULL, NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(tarn_mget(s, &item, 1), 0);
	assert_int_equal(item.status, -EOPNOTSUPP);
	assert_int_equal(tarn_get(s, "k", 1, one, LARGE, NULL), 0);
	/* as a region does it */
	assert_int_equal(buffer_check(s, memory, LARGE, true, true), 0);
	assert_int_equal(buffer_check(s, memory + LARGE - 1, 2, true, true), -EOPNOTSUPP);
	assert_int_equal(buffer_check(s, one, LARGE, true, false), 0);
	memcpy(device + AT, "from the device", 16);
	assert_int_equal(post(s, FABRIC_WRITE, memory, 16), 0);
	assert_memory_equal(pool, "from the device", 16);
	assert_int_equal(post(s, FABRIC_READ, memory + 1000, 16), 0);
	assert_memory_equal(device + AT + 1000, "from the device", 16);
	/* the next connection's adapter can not: nothing is copied instead */
	fake.devices[0].no_dmabuf = true;
	fake.wc_error_at = 1;
	fake.wc_error = IBV_WC_RETRY_EXC_ERR;
	assert_int_equal(tarn_get(s, "k", 1, one, LARGE, NULL), 0);
	assert_int_equal(far.connects, 2);
	assert_int_equal(buffer_check(s, memory, LARGE, true, true), -EOPNOTSUPP);
	assert_int_equal(tarn_buffer_deregister(b), 0);
	munmap(device, DMABUF_BYTES);
	close_far(s);
}

static int refuse(struct tarn_session *s, int fd, uint64_t offset, size_t bytes, const char *text)
{
	struct tarn_buffer *b = NULL;
	void *memory = NULL;
	int ret = tarn_buffer_register_dmabuf(s, fd, offset, bytes, 0, &memory, &b);

	assert_null(b);
	assert_null(memory);
	if (!strstr(tarn_last_error_text(), text))
		fail_msg("%s", tarn_last_error_text());
	return ret;
}

static void test_dmabuf_refused(void **state)
{
	struct tarn_session *s = open_far();
	long mrs = fake.live[FAKE_MR];
	struct tarn_buffer *b;
	uint8_t *device;
	void *memory;
	int fd = dmabuf(&device), next = dup(fd);

	(void)state;
	close(next);
	assert_int_equal(tarn_buffer_register_dmabuf(NULL, fd, 0, 1, 0, &memory, &b), -EINVAL);
	assert_int_equal(tarn_buffer_register_dmabuf(s, fd, 0, 1, 0, NULL, &b), -EINVAL);
	assert_int_equal(tarn_buffer_register_dmabuf(s, fd, 0, 1, 0, &memory, NULL), -EINVAL);
	assert_int_equal(tarn_buffer_register_dmabuf(s, fd, 0, 1, 2, &memory, &b), -EINVAL);
	assert_int_equal(refuse(s, -1, 0, 1, "fd -1: Bad file descriptor"), -EBADF);
	assert_int_equal(refuse(s, fd, 0, 0, "0 bytes at offset 0"), -EINVAL);
	assert_int_equal(refuse(s, fd, 0, DMABUF_BYTES + 1, "a dma-buf of"), -EINVAL);
	assert_int_equal(refuse(s, fd, 1, DMABUF_BYTES, "a dma-buf of"), -EINVAL);
	assert_int_equal(refuse(s, fd, UINT64_MAX, 2, "a dma-buf of"), -EINVAL);
	assert_int_equal(refuse(s, fd, 0, SIZE_MAX, "a dma-buf of"), -EINVAL);
	fake.dmabufs = false;
	assert_int_equal(refuse(s, fd, 0, 1, "is no dma-buf"), -EINVAL);
	fake.dmabufs = true;
	fake.fail_at = fake.calls + 1;
	fake.fail_errno = ENOMEM;
	assert_int_equal(refuse(s, fd, 0, DMABUF_BYTES, "locked memory"), -ENOMEM);
	fake.devices[0].no_dmabuf = true;
	assert_int_equal(refuse(s, fd, 0, DMABUF_BYTES, "can not register a dma-buf"), -EOPNOTSUPP);
	/* nothing is left of any */
	assert_int_equal(fake.live[FAKE_MR], mrs);
	assert_int_equal(dup(fd), next);
	close(next);
	close(fd);
	munmap(device, DMABUF_BYTES);
	close_far(s);
}

/* Without an adapter it is the mapping, or nothing. */
static void test_dmabuf_shm(void **state)
{
	struct layout_plan plan = fixture_plan(16u << 20);
	struct tarn_session *s;
	struct tarn_buffer *b;
	uint8_t *device;
	void *memory;
	int fd, other;

	(void)state;
	fake_begin();
	assert_int_equal(fixture_create(&far.pool, &plan), 0);
	s = fixture_session(&far.pool, TARN_NO_THREAD);
	fd = dmabuf(&device);
	other = unmappable(fd);
	assert_int_equal(refuse(s, other, AT, LARGE, "can not be mapped"), -EOPNOTSUPP);
	assert_int_equal(tarn_buffer_register_dmabuf(s, fd, AT, LARGE, 0, &memory, &b), 0);
	put(s, one);
	get(s, memory);
	assert_memory_equal(device + AT, one, LARGE);
	assert_int_equal(tarn_buffer_deregister(b), 0);
	assert_int_equal(
		tarn_buffer_register_dmabuf(s, fd, AT, LARGE, TARN_BUFFER_SOURCE, &memory, &b), 0);
	put(s, memory);
	close(fd);
	close(other);
	/* the rest ends with the session */
	tarn_session_close(s);
	munmap(device, DMABUF_BYTES);
	fixture_destroy(&far.pool);
	fake_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lost_before_superblock),
		cmocka_unit_test(test_registered),
		cmocka_unit_test(test_registered_overlapping),
		cmocka_unit_test(test_registered_refused),
		cmocka_unit_test(test_alloc),
		cmocka_unit_test(test_registered_signals),
		cmocka_unit_test(test_registered_busy),
		cmocka_unit_test(test_registered_reconnect),
		cmocka_unit_test(test_registered_no_more),
		cmocka_unit_test(test_dmabuf),
		cmocka_unit_test(test_dmabuf_unreachable),
		cmocka_unit_test(test_dmabuf_refused),
		cmocka_unit_test(test_dmabuf_shm),
	};

	return cmocka_run_group_tests_name("verbs-open", tests, NULL, NULL);
}
