/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-connect.c - client/connect.c with a daemon that refuses, goes away and comes back: a stub of one, on a real socket
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "fixture.h"
#include "wire.h"

#define MIB  (1ull << 20)
#define MSEC 1000000ull

struct stub {
	struct fixture pool;
	int memory, listener;
	char folder[32], path[64], uri[128];
	pthread_t thread;
	/* reasons of the refusals to come, 0: let it in, -1: close without an answer */
	const int *script;
	unsigned length, at;
	uint64_t nonces[64];
	unsigned requests;
	int accepted[64]; /* connections let in */
	unsigned accepted_count;
};

static void stub_answer(struct stub *d, int fd, const struct wire_request *request)
{
	int reason = d->at < d->length ? d->script[d->at++] : 0;
	uint8_t answer[WIRE_REPLY_BYTES];
	struct wire_reject reject = {.version_min = 1,
				     .version_max = 1,
				     .reason = (uint16_t)reason,
				     .retry_after_ms = 20};
	struct wire_reply reply = {
		.version = 1,
		.region_count = 1,
		.role = request->flags & WIRE_REQUEST_READONLY ? WIRE_ROLE_READ : WIRE_ROLE_WRITE,
		.atomics = (uint8_t)d->pool.geometry.atomics,
		.incarnation = d->pool.geometry.incarnation,
		.boot_id = d->pool.geometry.boot_id,
		.client_id = ++d->pool.clients,
		.deadline_us = 100000,
		.epoch_us = 250000,
		.grace_us = 500000,
		.layout_version = LAYOUT_VERSION,
		.pool_bytes = d->pool.bytes,
		.nonce = request->nonce,
	};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {{0}};
	struct iovec iov = {answer, reason ? WIRE_REJECT_BYTES : WIRE_REPLY_BYTES};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	reply.regions[0].length = d->pool.bytes;
	if (reason < 0) {
		close(fd);
		return;
	}
	if (reason) {
		wire_reject_encode(&reject, answer);
	} else {
		wire_reply_encode(&reply, answer);
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &d->memory, sizeof(int));
	}
	sendmsg(fd, &message, MSG_NOSIGNAL);
	if (reason)
		close(fd);
	else
		d->accepted[d->accepted_count++] = fd;
}

static void *stub_run(void *arg)
{
	struct stub *d = arg;
	uint8_t packet[WIRE_REQUEST_BYTES];
	struct wire_request request;
	ssize_t bytes;
	int fd;

	while ((fd = accept(d->listener, NULL, NULL)) >= 0) {
		bytes = recv(fd, packet, sizeof(packet), 0);
		if (bytes < 0 || wire_request_decode(packet, (size_t)bytes, &request) < 0 ||
		    d->requests == 64) {
			close(fd);
			continue;
		}
		d->nonces[d->requests++] = request.nonce;
		stub_answer(d, fd, &request);
	}
	return NULL;
}

static void stub_listen(struct stub *d, const int *script, unsigned length)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	d->script = script;
	d->length = length;
	d->at = d->requests = d->accepted_count = 0;
	strcpy(address.sun_path, d->path);
	d->listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	assert_true(d->listener >= 0);
	assert_int_equal(bind(d->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(d->listener, 64), 0);
	assert_int_equal(pthread_create(&d->thread, NULL, stub_run, d), 0);
}

/* The stub is gone, and with it its connections. */
static void stub_end(struct stub *d)
{
	shutdown(d->listener, SHUT_RDWR);
	pthread_join(d->thread, NULL);
	close(d->listener);
	while (d->accepted_count)
		close(d->accepted[--d->accepted_count]);
	unlink(d->path);
}

static void stub_create(struct stub *d)
{
	struct layout_plan plan = fixture_plan(8 * MIB);

	memset(d, 0, sizeof(*d));
	strcpy(d->folder, "/tmp/tarn-unit-XXXXXX");
	assert_non_null(mkdtemp(d->folder));
	snprintf(d->path, sizeof(d->path), "%s/sock", d->folder);
	snprintf(d->uri, sizeof(d->uri), "tarn:%s?pool=main", d->path);
	d->memory = memfd_create("stub", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(d->memory, (off_t)plan.pool_bytes), 0);
	assert_int_equal(fcntl(d->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	d->pool.bytes = plan.pool_bytes;
	d->pool.base =
		mmap(NULL, plan.pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, d->memory, 0);
	assert_true(d->pool.base != MAP_FAILED);
	assert_int_equal(layout_format(d->pool.base, &plan), 0);
	assert_int_equal(layout_superblock_check(d->pool.base, d->pool.bytes, &d->pool.geometry),
			 0);
}

static void stub_destroy(struct stub *d)
{
	fixture_destroy(&d->pool);
	close(d->memory);
	rmdir(d->folder);
}

static void test_open(void **state)
{
	static const int busy[] = {WIRE_REASON_BUSY, WIRE_REASON_SHUTDOWN, WIRE_REASON_BUSY};
	static const int full[] = {WIRE_REASON_CLIENTS, WIRE_REASON_CLIENTS};
	static const int gone[] = {-1, WIRE_REASON_CLIENTS, WIRE_REASON_INTERNAL, WIRE_REASON_BUSY};
	static const int no_pool[] = {WIRE_REASON_NO_POOL}, no_key[] = {WIRE_REASON_UNKNOWN_KEY};
	struct tarn_options options = TARN_OPTIONS_INIT;
	struct tarn_session *s;
	struct stub d;
	uint64_t begin;
	unsigned i, j;

	(void)state;
	stub_create(&d);
	options.flags = TARN_NO_THREAD;
	options.timeout_ms = 5000;

	/* each try is another request: the daemon takes none twice */
	stub_listen(&d, busy, 3);
	assert_int_equal(tarn_session_open(d.uri, &options, &s), 0);
	assert_int_equal(d.requests, 4);
	for (i = 0; i < 4; i++)
		for (j = 0; j < i; j++)
			assert_true(d.nonces[i] != d.nonces[j]);
	assert_int_equal(tarn_put(s, "k", 1, "v", 1, NULL, NULL), 0);
	stub_end(&d);

	/* the daemon is away */
	assert_int_equal(tarn_session_process(s), -TARN_ESESSION);
	assert_int_equal(tarn_session_set_timeout(s, 200), 0);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), -TARN_ESESSION);
	assert_non_null(strstr(tarn_last_error_text(), "no such socket"));
	assert_int_equal(tarn_session_set_timeout(s, 5000), 0);

	/* it is there again, and takes a while to let its client in */
	stub_listen(&d, gone, 4);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), 0);
	assert_int_equal(d.requests, 5);
	stub_end(&d);

	/* what does not pass by itself is said at once, as what it is */
	begin = clock_now_ns();
	stub_listen(&d, no_pool, 1);
	assert_int_equal(tarn_session_process(s), -TARN_ESESSION);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), -TARN_ENOPOOL);
	stub_end(&d);
	stub_listen(&d, no_key, 1);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), -TARN_EAUTH);
	assert_int_equal(d.requests, 1);
	assert_true(clock_now_ns() - begin < 2000 * MSEC);
	assert_int_equal(tarn_exists(s, "k", 1, NULL), 0);
	stub_end(&d);
	tarn_session_close(s);

	/* no place: said at once */
	stub_listen(&d, full, 2);
	begin = clock_now_ns();
	assert_int_equal(tarn_session_open(d.uri, &options, &s), -TARN_EREFUSED);
	assert_true(clock_now_ns() - begin < 2000 * MSEC);
	assert_int_equal(d.requests, 1);
	stub_end(&d);
	stub_destroy(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
	};

	return cmocka_run_group_tests_name("connect", tests, NULL, NULL);
}
