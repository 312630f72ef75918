/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-shm.c - one-sided access by load and store: the pool's memory is mapped into this process
 *
 * Every post takes effect on the spot. The unix socket over which the memory came stays open: it
 * carries RPCs, and its end tells either side that the other is gone. One thread at a time per
 * endpoint. Next: fabric.h for the promises, daemon/listen-shm.c for the other end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "atomics.h"
#include "clock.h"
#include "err.h"
#include "fabric.h"
#include "tarn/tarn.h"
#include "wire.h"

struct shm_endpoint {
	struct fabric_endpoint ep;
	uint8_t *base;
	int socket;   /* -1: attached to memory only */
	pid_t mapped; /* the process whose mapping `base` is ours to unmap; 0: none */
	bool lost;
	uint32_t stale; /* replies to RPCs that were given up: to be dropped */
	/* the RPC in flight */
	bool rpc_busy;
	void *rpc_cookie, *rpc_reply;
	size_t rpc_capacity;
};

static struct shm_endpoint *shm(struct fabric_endpoint *ep)
{
	return (struct shm_endpoint *)ep;
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define PREFETCH_LINES 8u

static inline void prefetch(const uint8_t *from, uint32_t length)
{
	unsigned lines = (length + 63) / 64, line;

	for (line = 0; line < lines && line < PREFETCH_LINES; line++)
		__builtin_prefetch(from + (size_t)line * 64);
}

/* Starts the cache misses of a post's requests all at once: one post, one memory latency. */
static inline void prefetch_post(const struct shm_endpoint *s,
				 const struct fabric_request *requests, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++)
		prefetch(s->base + requests[i].offset, requests[i].length);
}

static void shm_hint(struct fabric_endpoint *ep, uint64_t offset, uint32_t length)
{
	if (offset < ep->pool_bytes)
		prefetch(shm(ep)->base + offset, length);
}

/*
 * 16 bytes at a time where the processor reads and writes each of the two words of an aligned 16
 * whole (x86-64 does). `volatile` keeps the compiler from doing it in any other way. The thread
 * sanitizer needs the atomics below.
 */
#if defined(__SANITIZE_THREAD__)
#define WIDE_COPY 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WIDE_COPY 0
#endif
#endif
#if !defined(WIDE_COPY) && defined(__SSE2__)
#define WIDE_COPY 1
static inline void copy_wide(uint8_t **to, const uint8_t **from, size_t *bytes)
{
	/*
	 * the shared side is aligned to 8 already; on the private side unaligned stores and loads
	 * do no harm
	 */
	for (; *bytes >= 16; *bytes -= 16, *to += 16, *from += 16) {
		__m128i_u words = *(const volatile __m128i_u *)*from;

		*(volatile __m128i_u *)*to = words;
	}
}
#else
static inline void copy_wide(uint8_t **to, const uint8_t **from, size_t *bytes)
{
	(void)to;
	(void)from;
	(void)bytes;
}
#endif

/*
 * Relaxed accesses: what orders them is named at fabric_post's callers (T1, the slot word read
 * first) and in shm_post.
 */
static inline void read_words(void *to, const uint8_t *from, size_t bytes)
{
	uint8_t *out = to;

	for (; bytes && (uintptr_t)from % 8; bytes--)
		*out++ = byte_load_relaxed(from++);
	copy_wide(&out, &from, &bytes);
	for (; bytes >= 8; bytes -= 8, from += 8, out += 8) {
		uint64_t word = word_load_relaxed((const uint64_t *)from);

		memcpy(out, &word, 8);
	}
	for (; bytes; bytes--)
		*out++ = byte_load_relaxed(from++);
}

static inline void write_words(uint8_t *to, const void *from, size_t bytes)
{
	const uint8_t *in = from;

	for (; bytes && (uintptr_t)to % 8; bytes--)
		byte_store_relaxed(to++, *in++);
	copy_wide(&to, &in, &bytes);
	for (; bytes >= 8; bytes -= 8, to += 8, in += 8) {
		uint64_t word;

		memcpy(&word, in, 8);
		word_store_relaxed((uint64_t *)to, word);
	}
	for (; bytes; bytes--)
		byte_store_relaxed(to++, *in++);
}

static inline int request_check(const struct shm_endpoint *s, const struct fabric_request *r)
{
	if (r->offset > s->ep.pool_bytes || r->length > s->ep.pool_bytes - r->offset)
		return -EINVAL;
	if (r->opcode == FABRIC_READ)
		return 0;
	if (s->ep.read_only)
		return -TARN_EREADONLY;
	if (r->opcode >= FABRIC_CAS && (r->offset % 8 || r->length != 8))
		return -EINVAL;
	return 0;
}

static inline void request_execute(const struct shm_endpoint *s, const struct fabric_request *r)
{
	uint8_t *at = s->base + r->offset;

	switch ((enum fabric_opcode)r->opcode) {
	case FABRIC_READ:
		read_words(r->local, at, r->length);
		break;
	case FABRIC_WRITE:
		write_words(at, r->local, r->length);
		break;
	case FABRIC_CAS:
		/* seq_cst: releases the WRITEs before it, and no later READ passes it */
		*(uint64_t *)r->local = word_cas((uint64_t *)at, r->compare, r->operand);
		break;
	case FABRIC_FAA:
		*(uint64_t *)r->local = word_faa((uint64_t *)at, r->operand);
		break;
	}
}

static int shm_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		    unsigned count, void *cookie)
{
	const struct shm_endpoint *s = shm(ep);
	unsigned i;

	(void)cookie;
	if (s->lost)
		return -TARN_ESESSION;
	for (i = 0; i < count; i++) {
		int ret = request_check(s, &requests[i]);

		if (ret < 0)
			return ret;
	}
	if (count > 1 || requests[0].length > 64)
		prefetch_post(s, requests, count);
	for (i = 0; i < count; i++)
		request_execute(s, &requests[i]);
		/*
	 * What the next post reads must not be older than what this one read. Pairs with the
	 * seq_cst CAS that published it. A plain compiler barrier on x86.
	 */
#ifndef __SANITIZE_THREAD__
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
	return 1;
}

/* ---- the socket ------------------------------------------------------------------------------ */

static int lose(struct shm_endpoint *s)
{
	s->lost = true;
	return -TARN_ESESSION;
}

static int shm_rpc(struct fabric_endpoint *ep, const void *message, size_t bytes, void *reply,
		   size_t capacity, void *cookie)
{
	struct shm_endpoint *s = shm(ep);
	ssize_t sent;

	if (s->socket < 0)
		return -EOPNOTSUPP;
	if (s->rpc_busy)
		return -EBUSY;
	if (s->lost)
		return -TARN_ESESSION;
	do {
		sent = send(s->socket, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	if (sent != (ssize_t)bytes)
		return errno == EAGAIN ? -EAGAIN : lose(s);
	s->rpc_busy = true;
	s->rpc_cookie = cookie;
	s->rpc_reply = reply;
	s->rpc_capacity = capacity;
	return 0;
}

static void shm_rpc_cancel(struct fabric_endpoint *ep)
{
	struct shm_endpoint *s = shm(ep);

	if (s->rpc_busy)
		s->stale++;
	s->rpc_busy = false;
}

/*
 * One packet off the socket, in the order of the requests. 1: the reply; 0: nothing there;
 * RECEIVED_STALE: a reply that nobody waits for any more, dropped; or -TARN_ESESSION.
 */
#define RECEIVED_STALE 2
static int receive(struct shm_endpoint *s, struct fabric_completion *ret_completion)
{
	uint8_t packet[WIRE_RPC_MAX_BYTES];
	ssize_t bytes;

	do {
		bytes = recv(s->socket, packet, sizeof(packet), MSG_DONTWAIT);
	} while (bytes < 0 && errno == EINTR);
	if (bytes < 0 && errno == EAGAIN)
		return 0;
	if (bytes <= 0 || (!s->stale && !s->rpc_busy))
		return lose(s);
	if (s->stale) {
		s->stale--;
		return RECEIVED_STALE;
	}
	memcpy(s->rpc_reply, packet,
	       (size_t)bytes < s->rpc_capacity ? (size_t)bytes : s->rpc_capacity);
	s->rpc_busy = false;
	*ret_completion =
		(struct fabric_completion){.cookie = s->rpc_cookie, .length = (uint32_t)bytes};
	return 1;
}

static int shm_poll(struct fabric_endpoint *ep, struct fabric_completion *ret_completions,
		    unsigned max)
{
	struct shm_endpoint *s = shm(ep);
	int ret;

	if (max == 0)
		return 0;
	if (!s->rpc_busy)
		return s->lost ? -TARN_ESESSION : 0;
	do {
		ret = s->lost ? -TARN_ESESSION : receive(s, ret_completions);
	} while (ret == RECEIVED_STALE);
	if (ret >= 0)
		return ret;
	s->rpc_busy = false;
	*ret_completions =
		(struct fabric_completion){.cookie = s->rpc_cookie, .status = -TARN_ESESSION};
	return 1;
}

static int shm_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	struct pollfd p = {.fd = shm(ep)->socket, .events = POLLIN};
	struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	ppoll(&p, 1, &t, NULL);
	return 0;
}

static int shm_check(struct fabric_endpoint *ep)
{
	struct shm_endpoint *s = shm(ep);
	char byte;
	ssize_t bytes;

	if (s->lost)
		return -TARN_ESESSION;
	if (s->socket < 0)
		return 0;
	bytes = recv(s->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR))
		return lose(s);
	return 0;
}

static int shm_fd(struct fabric_endpoint *ep)
{
	return shm(ep)->socket;
}

static uint64_t shm_now(struct fabric_endpoint *ep)
{
	(void)ep;
	return clock_now_ns();
}

static void shm_close(struct fabric_endpoint *ep)
{
	struct shm_endpoint *s = shm(ep);

	/* a forked child does not have the mapping: something else may stand there */
	if (s->mapped == getpid()) {
		munmap(s->base, ep->pool_bytes);
		/* also when a forked child holds a copy of the descriptor: we are gone */
		if (s->socket >= 0)
			shutdown(s->socket, SHUT_RDWR);
	}
	if (s->socket >= 0)
		close(s->socket);
	free(s);
}

static const struct fabric_ops shm_ops = {
	.name = "shm",
	.post = shm_post,
	.rpc = shm_rpc,
	.rpc_cancel = shm_rpc_cancel,
	.hint = shm_hint,
	.poll = shm_poll,
	.wait = shm_wait,
	.check = shm_check,
	.fd = shm_fd,
	.now = shm_now,
	.close = shm_close,
};

int fabric_shm_attach(void *base, uint64_t bytes, int read_only, struct fabric_endpoint **ret_ep)
{
	struct shm_endpoint *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(-ENOMEM, "no memory for an endpoint");
	s->ep = (struct fabric_endpoint){
		.ops = &shm_ops, .pool_bytes = bytes, .read_only = (uint32_t)read_only};
	s->base = base;
	s->socket = -1;
	*ret_ep = &s->ep;
	return 0;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int remaining_ms(uint64_t deadline)
{
	uint64_t now = clock_now_ns();

	return now >= deadline ? 0 : (int)((deadline - now) / 1000000u + 1);
}

static int connect_error(const char *path, int error)
{
	struct stat st;

	switch (error) {
	case ENOENT:
		return err_set(-TARN_EUNREACHABLE,
			       "%s: no such socket: is tarnd running, and does its [listen] "
			       "section have this path?",
			       path);
	case ECONNREFUSED:
		if (stat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
			return err_set(-TARN_EUNREACHABLE, "%s: is not a socket: check the path",
				       path);
		return err_set(-TARN_EUNREACHABLE,
			       "%s: nobody listens: the socket was left by a tarnd that is gone; "
			       "start tarnd",
			       path);
	case EACCES:
		return err_set(-EACCES,
			       "%s: no permission: join the socket's group, or set mode and group "
			       "in the [listen] section",
			       path);
	case EPROTOTYPE:
		return err_set(-TARN_EUNREACHABLE, "%s: not a tarn socket (another type of socket)",
			       path);
	default:
		return err_set(-TARN_EUNREACHABLE, "%s: connect: %s", path, strerror(error));
	}
}

/*
 * A unix socket's connect() does not wait when the backlog is full: try again until the time is up.
 */
static int connect_socket(const char *path, uint64_t deadline, int *ret_socket)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return err_set(
			-TARN_EURI,
			"socket path has %zu bytes, the system allows %zu: use a shorter one",
			strlen(path), sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(-errno, "socket: %s", strerror(errno));
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int error = errno;

		if ((error == EAGAIN || error == EINTR) && remaining_ms(deadline) > 0) {
			clock_sleep_ns(1000000);
			continue;
		}
		close(fd);
		if (error == EAGAIN)
			return err_set(-TARN_ETIMEOUT,
				       "%s: tarnd is too busy to accept connections", path);
		return connect_error(path, error);
	}
	*ret_socket = fd;
	return 0;
}

/* The daemon's answer and the descriptor that came with it (-1: none). */
static int receive_reply(int fd, uint64_t deadline, void *reply, size_t capacity, size_t *ret_bytes,
			 int *ret_memory)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = {reply, capacity};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct cmsghdr *c;
	int memory = -1;
	ssize_t bytes;

	for (;;) {
		bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (bytes >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
		if (remaining_ms(deadline) == 0)
			return err_set(-TARN_ETIMEOUT,
				       "tarnd accepted the connection but did not answer in time");
		poll(&p, 1, remaining_ms(deadline));
	}
	if (bytes <= 0)
		return err_set(-TARN_EPROTO,
			       "tarnd closed the connection without an answer; its log says why");
	for (c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		int fds[4];
		size_t n = 0, i;

		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), (n < 4 ? n : 4) * sizeof(int));
		for (i = 0; i < n && i < 4; i++) {
			if (memory < 0)
				memory = fds[i];
			else
				close(fds[i]);
		}
	}
	*ret_bytes = (size_t)bytes;
	*ret_memory = memory;
	return 0;
}

/* Maps the pool, if nobody can take it away under us. */
static int map_memory(int memory, struct shm_endpoint *s)
{
	int seals = fcntl(memory, F_GET_SEALS), mode = fcntl(memory, F_GETFL);
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || mode < 0 || fstat(memory, &st) < 0 ||
	    st.st_size <= 0)
		return err_set(-TARN_EPROTO,
			       "tarnd sent memory that is not sealed against shrinking");
	s->ep.pool_bytes = (uint64_t)st.st_size;
	s->ep.read_only = (mode & O_ACCMODE) == O_RDONLY;
	s->base = mmap(NULL, s->ep.pool_bytes, PROT_READ | (s->ep.read_only ? 0 : PROT_WRITE),
		       MAP_SHARED, memory, 0);
	if (s->base == MAP_FAILED)
		return err_set(-errno, "cannot map the pool (%llu bytes): %s",
			       (unsigned long long)s->ep.pool_bytes, strerror(errno));
	s->mapped = getpid();
	/*
	 * a child that wrote to the pool would be a client that nobody fences; a core dump must not
	 * hold the pool
	 */
	madvise(s->base, s->ep.pool_bytes, MADV_DONTFORK);
	madvise(s->base, s->ep.pool_bytes, MADV_DONTDUMP);
	madvise(s->base, s->ep.pool_bytes, MADV_HUGEPAGE);
	return 0;
}

static int endpoint_create(int fd, int memory, struct fabric_endpoint **ret_ep)
{
	struct shm_endpoint *s;
	int ret = fabric_shm_attach(NULL, 0, 0, ret_ep);

	if (ret < 0)
		return ret;
	s = shm(*ret_ep);
	ret = map_memory(memory, s);
	if (ret < 0) {
		shm_close(&s->ep);
		*ret_ep = NULL;
		return ret;
	}
	s->socket = fd;
	return 0;
}

static int shm_connect(const struct fabric_address *address, const void *request,
		       size_t request_bytes, uint64_t timeout_ns, void *reply,
		       size_t reply_capacity, size_t *ret_bytes, struct fabric_endpoint **ret_ep)
{
	uint64_t deadline = clock_now_ns() + timeout_ns;
	int fd = -1, memory = -1;
	int ret = connect_socket(address->path, deadline, &fd);

	if (ret < 0)
		return ret;
	*ret_ep = NULL;
	if (send(fd, request, request_bytes, MSG_NOSIGNAL) != (ssize_t)request_bytes)
		ret = err_set(-TARN_EUNREACHABLE, "%s: send: %s", address->path, strerror(errno));
	else
		ret = receive_reply(fd, deadline, reply, reply_capacity, ret_bytes, &memory);
	if (ret == 0 && memory >= 0)
		ret = endpoint_create(fd, memory, ret_ep);
	if (memory >= 0)
		close(memory);
	if (!*ret_ep)
		close(fd);
	return ret;
}

const struct fabric_transport fabric_shm_transport = {.name = "shm", .connect = shm_connect};

const struct fabric_transport *fabric_transport_for(const struct fabric_address *address)
{
	return address->path ? &fabric_shm_transport : NULL;
}
