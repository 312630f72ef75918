/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * buffer.c - memory of the application that the adapter reaches by itself
 *
 * A buffer names a registration; several buffers of the same memory share one. A registration outlives
 * connections: each new one is told of it, and where that fails, values are copied as they would be
 * without. Runs on the session's owner. Next: buffer-dmabuf.c for memory of devices;
 * common/fabric-verbs-memory.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "buffer-internal.h"
#include "cluster.h"
#include "engine.h"
#include "err.h"
#include "handle.h"

#define ALLOC_ALIGN (2u << 20)
#define HUGE_2MB \
	(21 << 26) /* MAP_HUGE_2MB of <linux/mman.h>: not the default size, which may be 1 GiB */

/* ---- registrations --------------------------------------------------------------------------- */

static int tell(struct tarn_session *s, struct registration *r)
{
	const struct fabric_ops *ops = s->ep->ops;
	int ret;

	if (!ops->memory_add)
		return 0;
	ret = r->dmabuf < 0 ? ops->memory_add(s->ep, r->memory, r->bytes, r->writable)
			    : ops->memory_add_dmabuf(s->ep, r->dmabuf, r->dmabuf_offset, r->memory,
						     r->bytes, r->writable);
	r->live = ret == 0;
	return ret;
}

/* Of exactly this; NULL: there is none. A wider one would have to go with the buffer that it is for. */
static struct registration *find(struct tarn_session *s, const struct registration *wanted)
{
	struct registration *r;

	LIST_FOREACH (r, &s->registrations, link)
		if (r->memory == wanted->memory && r->bytes == wanted->bytes &&
		    r->writable == wanted->writable)
			return r;
	return NULL;
}

static int registration_get(struct tarn_session *s, const struct registration *wanted, bool must,
			    struct registration **ret_registration)
{
	struct registration *r = find(s, wanted);
	int ret;

	if (!r) {
		r = malloc(sizeof(*r));
		if (!r)
			return err_set(-ENOMEM, "no memory for a buffer");
		*r = *wanted;
		r->users = 0;
		r->live = false;
		ret = tell(s, r);
		if (ret < 0 && must) {
			free(r);
			return ret;
		}
		LIST_INSERT_HEAD(&s->registrations, r, link);
	}
	r->users++;
	*ret_registration = r;
	return 0;
}

static void registration_free(struct registration *r)
{
	LIST_REMOVE(r, link);
	if (r->dmabuf >= 0)
		close(r->dmabuf);
	free(r);
}

static void registration_put(struct tarn_session *s, struct registration *r)
{
	if (--r->users)
		return;
	if (r->live)
		s->ep->ops->memory_remove(s->ep, r->memory, r->bytes, r->writable);
	registration_free(r);
}

void buffer_connected(struct tarn_session *s)
{
	struct registration *r;

	LIST_FOREACH (r, &s->registrations, link)
		(void)tell(s, r);
}

void buffer_lost(struct tarn_session *s)
{
	struct registration *r;

	LIST_FOREACH (r, &s->registrations, link)
		r->live = false;
}

static void buffer_free(struct tarn_buffer *b)
{
	b->session = NULL;
	handle_free(b);
}

void buffer_free_all(struct tarn_session *s)
{
	bool child = session_fork_generation() != s->fork_generation;
	struct tarn_buffer *b;
	struct registration *r;

	while ((b = LIST_FIRST(&s->buffers)) != NULL) {
		LIST_REMOVE(b, link);
		/* memory of tarn_alloc() was left behind by the fork: something else may be there */
		if (b->map && !b->of && !(child && b->registration->dmabuf < 0))
			munmap(b->map, b->mapped);
		buffer_free(b);
	}
	while ((r = LIST_FIRST(&s->registrations)) != NULL)
		registration_free(r);
}

void buffer_count(struct tarn_session *s, const struct fabric_request *r)
{
	if (s->ep->ops->memory_has &&
	    !s->ep->ops->memory_has(s->ep, r->local, r->length, r->opcode == FABRIC_READ))
		s->stats.bytes_copied += r->length;
}

int buffer_check_memory(const struct tarn_session *s, const void *memory, size_t bytes,
			bool writable, bool direct)
{
	const uint8_t *begin = memory;
	const struct tarn_buffer *b;

	if (bytes == 0)
		return 0;
	LIST_FOREACH (b, &s->buffers, link) {
		if (!b->unreachable || begin >= b->map + b->mapped || b->map >= begin + bytes)
			continue;
		if (!direct)
			return err_set(
				-EOPNOTSUPP,
				"%p is memory of a dma-buf that can not be mapped, and the "
				"checksums of values are the CPU's: use memory of the process",
				memory);
		if (!s->ep->ops->memory_has ||
		    !s->ep->ops->memory_has(s->ep, memory, bytes, writable))
			return err_set(-EOPNOTSUPP,
				       "%zu bytes at %p are not all in a dma-buf that the adapter "
				       "reaches on this connection%s",
				       bytes, memory, writable ? " and may write to" : "");
	}
	return 0;
}

/* ---- the public functions -------------------------------------------------------------------- */

int buffer_hold(struct tarn_session *s)
{
	return s && s->cluster ? cluster_hold(s) : session_hold(s);
}

void buffer_leave(struct tarn_session *s)
{
	if (s->cluster)
		cluster_leave(s);
	else
		session_leave(s);
}

void buffer_remove(struct tarn_buffer *b)
{
	if (b->session->cluster)
		cluster_buffer_end(b);
	registration_put(b->session, b->registration);
	LIST_REMOVE(b, link);
	b->session->unreachable -= b->unreachable;
	buffer_free(b);
}

int buffer_create(struct tarn_session *s, const struct registration *wanted, bool must,
		  struct tarn_buffer **ret_buffer)
{
	struct tarn_buffer *b = calloc(1, sizeof(*b));
	int ret;

	if (!b)
		return err_set(-ENOMEM, "no memory for a buffer");
	b->session = s;
	b->memory = wanted->memory;
	b->bytes = wanted->bytes;
	ret = registration_get(s, wanted, must, &b->registration);
	if (ret < 0) {
		free(b);
		return ret;
	}
	LIST_INSERT_HEAD(&s->buffers, b, link);
	*ret_buffer = b;
	return 0;
}

int buffer_share(struct tarn_buffer *b)
{
	int ret = b->session->cluster ? cluster_buffer_share(b) : 0;

	if (ret < 0)
		buffer_remove(b);
	return ret;
}

TARN_API int tarn_buffer_register(struct tarn_session *session, void *memory, size_t bytes,
				  uint32_t flags, struct tarn_buffer **ret_buffer)
{
	const struct registration wanted = {.memory = memory,
					    .bytes = bytes,
					    .writable = !(flags & TARN_BUFFER_SOURCE),
					    .dmabuf = -1};
	struct tarn_buffer *b;
	int ret;

	if (!session || !memory || !ret_buffer)
		return err_set(-EINVAL, "session, memory and ret_buffer must not be NULL");
	if (bytes == 0 || (uintptr_t)memory + bytes < (uintptr_t)memory)
		return err_set(-EINVAL,
			       "a buffer of %zu bytes at %p: must have at least 1, in memory",
			       bytes, memory);
	if (flags & ~TARN_BUFFER_SOURCE)
		return err_set(-EINVAL, "flags is 0x%x: may have TARN_BUFFER_SOURCE alone", flags);
	ret = buffer_hold(session);
	if (ret < 0)
		return ret;
	ret = buffer_create(session, &wanted, true, &b);
	if (ret == 0)
		ret = buffer_share(b);
	if (ret == 0)
		*ret_buffer = b;
	buffer_leave(session);
	return ret;
}

/* Memory of the library is about to go: does another buffer lie in it? */
static bool built_upon(const struct tarn_buffer *b)
{
	const struct tarn_buffer *other;

	LIST_FOREACH (other, &b->session->buffers, link)
		if (other != b && other->memory < b->map + b->mapped &&
		    b->map < other->memory + other->bytes)
			return true;
	return false;
}

static int buffer_end(struct tarn_buffer *b)
{
	struct tarn_session *s = b->session;
	uint8_t *map = b->map;
	size_t mapped = b->mapped;
	int ret = s ? buffer_hold(s)
		    : err_set(-EINVAL, "the buffer was deregistered, or its session closed");

	if (ret < 0)
		return ret;
	if (b->map && built_upon(b)) {
		buffer_leave(s);
		return err_set(-TARN_EBUSY,
			       "a part of the memory is registered: deregister it first");
	}
	if (s->cluster ? cluster_buffer_in_use(b)
		       : s->engine && engine_uses(s->engine, b->memory, b->bytes)) {
		buffer_leave(s);
		return err_set(-TARN_EBUSY, "an asynchronous call that has not been picked up uses "
					    "the buffer");
	}
	buffer_remove(b);
	buffer_leave(s);
	if (map)
		munmap(map, mapped);
	return 0;
}

TARN_API int tarn_buffer_deregister(struct tarn_buffer *buffer)
{
	return buffer ? buffer_end(buffer) : 0;
}

/* Huge pages where there are some: the adapter has fewer addresses to look up then. */
static uint8_t *map(size_t bytes)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	uint8_t *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB | HUGE_2MB, -1, 0);

	if (memory == MAP_FAILED) {
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (memory == MAP_FAILED)
			return NULL;
		madvise(memory, bytes, MADV_HUGEPAGE);
	}
	/* a fork would make the process's pages copies, while the adapter goes on with the old */
	madvise(memory, bytes, MADV_DONTFORK);
	return memory;
}

TARN_API int tarn_alloc(struct tarn_session *session, size_t bytes, void **ret_memory)
{
	size_t mapped = (bytes + ALLOC_ALIGN - 1) & ~(size_t)(ALLOC_ALIGN - 1);
	struct registration wanted = {.bytes = mapped, .writable = true, .dmabuf = -1};
	struct tarn_buffer *b = NULL;
	int ret;

	if (!session || !ret_memory || bytes == 0 || mapped < bytes)
		return err_set(-EINVAL,
			       "session and ret_memory must not be NULL, bytes (%zu) at least 1",
			       bytes);
	ret = buffer_hold(session);
	if (ret < 0)
		return ret;
	wanted.memory = map(mapped);
	ret = wanted.memory ? buffer_create(session, &wanted, true, &b)
			    : err_set(-ENOMEM, "no memory for a buffer of %zu bytes", bytes);
	if (ret == 0) {
		b->map = wanted.memory;
		b->mapped = mapped;
		ret = buffer_share(b);
	}
	buffer_leave(session);
	if (ret < 0) {
		if (wanted.memory)
			munmap(wanted.memory, mapped);
		return ret;
	}
	*ret_memory = wanted.memory;
	return 0;
}

TARN_API int tarn_free(struct tarn_session *session, void *memory)
{
	struct tarn_buffer *b;
	int ret;

	if (!memory)
		return 0;
	ret = buffer_hold(session);
	if (ret < 0)
		return ret;
	LIST_FOREACH (b, &session->buffers, link)
		if (b->map && b->registration->dmabuf < 0 && b->memory == memory)
			break;
	buffer_leave(session);
	return b ? buffer_end(b)
		 : err_set(-EINVAL, "%p is not of this session's tarn_alloc()", memory);
}
