/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rest of the system for unit tests (fake-verbs.h), wrapped by the linker. Time passes when
 * somebody looks at the clock, sleeps, or waits in vain; poll() never sleeps. Memory runs out when
 * fake.fail_at says so.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "clock.h"
#include "err.h"
#include "fake-verbs.h"
#include "verbs.h"

/* ---- time ---- */

#define IDLE_MAX 100000ul /* waiting more often than this in one test is an endless loop */

void *__wrap_calloc(size_t count, size_t bytes);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_fstatfs(int fd, struct statfs *ret);
int __wrap_fstatfs(int fd, struct statfs *ret);
int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret);
int __wrap_verbs_available(void);
uint64_t __wrap_clock_now_slow_ns(void);
uint64_t __wrap_clock_wall_ms(void);
void __wrap_clock_sleep_ns(uint64_t ns);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);

void fake_pass_ns(uint64_t ns)
{
	uint64_t ms = (fake.now_ns + ns) / 1000000 - fake.now_ns / 1000000;

	fake.now_ns += ns;
	fake.wall_ms += ms;
}

/* clock_now_ns() is inline and comes here as long as the counter was never measured. */
uint64_t __wrap_clock_now_slow_ns(void)
{
	fake_pass_ns(fake.tick_ns);
	return fake.now_ns;
}

uint64_t __wrap_clock_wall_ms(void)
{
	return fake.wall_ms;
}

static void idle(void)
{
	if (++fake.polls_idle > IDLE_MAX)
		fail_msg("waits without end");
	if (fake.idle)
		fake.idle();
}

void __wrap_clock_sleep_ns(uint64_t ns)
{
	idle();
	fake_pass_ns(ns);
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	int n = __real_poll(fds, count, 0);

	if (n || timeout_ms == 0)
		return n;
	idle();
	n = __real_poll(fds, count, 0);
	if (n)
		return n;
	if (timeout_ms < 0)
		fail_msg("poll: waits for ever");
	fake_pass_ns((uint64_t)timeout_ms * 1000000);
	return 0;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	int n = __real_poll(fds, count, 0);

	(void)mask;
	if (n || (timeout && !timeout->tv_sec && !timeout->tv_nsec))
		return n;
	idle();
	n = __real_poll(fds, count, 0);
	if (n)
		return n;
	if (!timeout)
		fail_msg("ppoll: waits for ever");
	fake_pass_ns((uint64_t)timeout->tv_sec * 1000000000 + (uint64_t)timeout->tv_nsec);
	return 0;
}

/* ---- memory ---- */

void *__wrap_calloc(size_t count, size_t bytes)
{
	return fake.memory && fake_refuses("calloc") ? NULL : __real_calloc(count, bytes);
}

void *__wrap_malloc(size_t bytes)
{
	return fake.memory && fake_refuses("malloc") ? NULL : __real_malloc(bytes);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return fake.memory && fake_refuses("mmap")
		       ? MAP_FAILED
		       : __real_mmap(at, bytes, protection, flags, fd, offset);
}

/* Few machines have a dma-buf; a memfd is as good, but for its kind. */
int __wrap_fstatfs(int fd, struct statfs *ret)
{
	int failed = __real_fstatfs(fd, ret);

	if (!failed && fake.dmabufs && ret->f_type == TMPFS_MAGIC)
		ret->f_type = DMA_BUF_MAGIC;
	return failed;
}

/* ---- names and devices ---- */

/* Asks no server. */
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret)
{
	struct addrinfo numeric = *hints;

	if (fake_refuses("getaddrinfo"))
		return EAI_MEMORY;
	numeric.ai_flags |= AI_NUMERICHOST;
	return __real_getaddrinfo(host, service, &numeric, ret);
}

/* This machine need not have any. */
int __wrap_verbs_available(void)
{
	return fake_refuses("verbs_available") ? err_set(-ENODEV, "no RDMA device") : 0;
}
