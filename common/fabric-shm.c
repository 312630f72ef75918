/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-shm.c - one-sided access by load and store: the pool's memory is mapped into this process
 *
 * Every post takes effect on the spot, or, when posts are held, all of them one after the other, so that
 * their cache misses overlap. The unix socket over which the memory came stays open: it
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

#include "clock.h"
#include "err.h"
#include "fabric-near.h"
#include "fabric-shm.h"
#include "tarn/tarn.h"
#include "wire.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static inline uint8_t *address_of(const struct shm_endpoint *s, const struct fabric_request *r)
{
	return (r->space ? s->spaces[r->space - 1].base : s->base) + r->offset;
}

/* Starts the cache misses of a post's requests all at once: one post, one memory latency. */
static inline void prefetch_post(const struct shm_endpoint *s,
				 const struct fabric_request *requests, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++)
		near_hint(address_of(s, &requests[i]), requests[i].length);
}

static void shm_hint(struct fabric_endpoint *ep, uint64_t offset, uint32_t length)
{
	if (offset < ep->pool_bytes)
		near_hint(shm(ep)->base + offset, length);
}

static inline void write_words(uint8_t *to, const void *from, size_t bytes)
{
	const uint8_t *in = from;

	for (; bytes && (uintptr_t)to % 8; bytes--)
		byte_store_relaxed(to++, *in++);
	near_copy_wide(&to, &in, &bytes);
	for (; bytes >= 8; bytes -= 8, to += 8, in += 8) {
		uint64_t word;

		memcpy(&word, in, 8);
		word_store_relaxed((uint64_t *)to, word);
	}
	for (; bytes; bytes--)
		byte_store_relaxed(to++, *in++);
}

/* What is posted to a region; as request_check(). */
static int space_check(const struct shm_endpoint *s, const struct fabric_request *r)
{
	const struct shm_space *space = s->spaces && r->space <= FABRIC_SPACES
						? &s->spaces[r->space - 1]
						: NULL;

	if (!space || !space->base || r->offset > space->bytes ||
	    r->length > space->bytes - r->offset)
		return -EINVAL;
	if (r->opcode == FABRIC_READ)
		return 0;
	if (space->read_only)
		return -TARN_EREADONLY;
	return r->opcode >= FABRIC_CAS && (r->offset % 8 || r->length != 8) ? -EINVAL : 0;
}

static inline int request_check(const struct shm_endpoint *s, const struct fabric_request *r)
{
	if (r->space)
		return space_check(s, r);
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

/*
 * A READ of a region comes behind the WRITEs before it for everybody else, too (tarn/region.h): no processor sees to
 * that by itself. (Of the pool nobody needs it.) Where CAS and FAA are such a barrier themselves, they clear `stored`.
 */
static inline void space_order(struct shm_endpoint *s, const struct fabric_request *r)
{
	if (r->opcode != FABRIC_READ) {
#if defined(__x86_64__)
		s->stored = r->opcode == FABRIC_WRITE;
#else
		s->stored = true;
#endif
		return;
	}
	if (!s->stored)
		return;
#ifdef __SANITIZE_THREAD__
	(void)word_faa(&(uint64_t){0}, 1); /* it knows no fences */
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
	s->stored = false;
}

static inline void request_execute(struct shm_endpoint *s, const struct fabric_request *r)
{
	uint8_t *at = address_of(s, r);

	if (r->space)
		space_order(s, r);
	switch ((enum fabric_opcode)r->opcode) {
	case FABRIC_READ:
		near_read(r->local, at, r->length);
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

static void held_execute(struct shm_endpoint *s)
{
	struct held *h = &s->held;
	const struct fabric_request *r = h->requests;

	for (unsigned i = 0; i < h->posts_used; i++) {
		for (unsigned n = 0; n < h->posts[i].count && !s->lost; n++)
			request_execute(s, &r[n]);
		r += h->posts[i].count;
		near_done();
		h->done[h->done_tail++ % DONE] = (struct fabric_completion){
			.cookie = h->posts[i].cookie, .status = s->lost ? -TARN_ESESSION : 0};
	}
	h->posts_used = h->requests_used = 0;
}

static void shm_hold(struct fabric_endpoint *ep, int on)
{
	struct shm_endpoint *s = shm(ep);

	s->held.on = on;
	if (!on)
		held_execute(s);
}

/* A post of so many requests is not kept: its own cache misses overlap. */
#define HOLD_MAX 16u

/* False: it can not be kept. */
static bool hold_post(struct shm_endpoint *s, const struct fabric_request *requests, unsigned count,
		      void *cookie)
{
	struct held *h = &s->held;

	bool room = cookie && h->done_tail - h->done_head + h->posts_used < DONE;

	if (!room)
		return false;
	if (h->posts_used == HELD_POSTS || h->requests_used + count > HELD_REQUESTS)
		held_execute(s);
	memcpy(&h->requests[h->requests_used], requests, count * sizeof(*requests));
	h->requests_used += count;
	h->posts[h->posts_used].count = count;
	h->posts[h->posts_used++].cookie = cookie;
	return true;
}

static int shm_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		    unsigned count, void *cookie)
{
	struct shm_endpoint *s = shm(ep);
	unsigned i;

	if (s->lost)
		return -TARN_ESESSION;
	for (i = 0; i < count; i++) {
		int ret = request_check(s, &requests[i]);

		if (ret < 0)
			return ret;
	}
	if (count > 1 || requests[0].length > 64 || s->held.on)
		prefetch_post(s, requests, count);
	if (s->held.on && count < HOLD_MAX && hold_post(s, requests, count, cookie))
		return 0;
	if (s->held.posts_used)
		held_execute(s);
	for (i = 0; i < count; i++)
		request_execute(s, &requests[i]);
	near_done();
	return 1;
}

/* ---- the socket ------------------------------------------------------------------------------ */

static int lose(struct shm_endpoint *s)
{
	s->lost = true;
	s->ep.near = NULL;
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

/* One packet, and the descriptor that may come along. */
static ssize_t packet_take(struct shm_endpoint *s, uint8_t packet[WIRE_RPC_MAX_BYTES])
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = packet, .iov_len = WIRE_RPC_MAX_BYTES};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	struct cmsghdr *header;
	ssize_t bytes;
	int fd;

	do {
		bytes = recvmsg(s->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (bytes < 0 && errno == EINTR);
	header = bytes > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(sizeof(int)))
		return bytes;
	memcpy(&fd, CMSG_DATA(header), sizeof(int));
	fabric_shm_space_passed(s, packet, (size_t)bytes, fd);
	return bytes;
}

static bool is_notice(const uint8_t *packet, ssize_t bytes)
{
	struct wire_rpc_reply reply;

	return packet[0] == WIRE_RPC_NOTICE &&
	       wire_rpc_reply_decode(packet, (size_t)bytes, &reply) == 0;
}

/*
 * One packet off the socket, in the order of the requests. 1: the reply; 0: nothing there;
 * RECEIVED_OTHER: a reply that nobody waits for any more, dropped, or a notice; or -TARN_ESESSION.
 */
#define RECEIVED_OTHER 2
static int receive(struct shm_endpoint *s, struct fabric_completion *ret_completion)
{
	uint8_t packet[WIRE_RPC_MAX_BYTES];
	ssize_t bytes = packet_take(s, packet);

	if (bytes < 0 && errno == EAGAIN)
		return 0;
	if (bytes > 0 && is_notice(packet, bytes)) {
		s->ep.notices++;
		return RECEIVED_OTHER;
	}
	if (bytes <= 0 || (!s->stale && !s->rpc_busy))
		return lose(s);
	if (s->stale) {
		s->stale--;
		return RECEIVED_OTHER;
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
	struct held *h = &s->held;
	unsigned n = 0;
	int ret;

	while (n < max && h->done_head != h->done_tail)
		ret_completions[n++] = h->done[h->done_head++ % DONE];
	if (n > 0 || max == 0)
		return (int)n;
	/* an answer that nobody waits for would keep the socket readable */
	if (!s->rpc_busy && (s->lost || (!s->stale && !s->ep.listening)))
		return s->lost ? -TARN_ESESSION : 0;
	do {
		ret = s->lost ? -TARN_ESESSION : receive(s, ret_completions);
	} while (ret == RECEIVED_OTHER);
	if (ret >= 0 || !s->rpc_busy)
		return ret;
	s->rpc_busy = false;
	*ret_completions =
		(struct fabric_completion){.cookie = s->rpc_cookie, .status = -TARN_ESESSION};
	return 1;
}

static int shm_wait(struct fabric_endpoint *ep, uint64_t timeout_ns)
{
	struct shm_endpoint *s = shm(ep);
	struct pollfd p = {.fd = s->socket, .events = POLLIN};
	struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
	uint64_t begin = clock_now_ns(), spin = timeout_ns < s->spin_ns ? timeout_ns : s->spin_ns;

	while (s->socket >= 0 && clock_now_ns() - begin < spin)
		if (poll(&p, 1, 0) != 0)
			return 0;
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

	fabric_shm_spaces_free(s, s->mapped == getpid());
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
	.hold = shm_hold,
	.hint = shm_hint,
	.space_add = fabric_shm_space_add,
	.space_remove = fabric_shm_space_remove,
	.space_alive = fabric_shm_space_alive,
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
		.ops = &shm_ops,
		.pool_bytes = bytes,
		.features = FABRIC_NEAR,
		.read_only = (uint32_t)read_only,
		.near = base};
	s->base = base;
	s->socket = -1;
	*ret_ep = &s->ep;
	return 0;
}
