/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * buffer-dmabuf.c - registered memory that is a dma-buf: a device's, as a GPU's
 *
 * It gets a range of the process's addresses, under which all calls know it: a mapping, or, where it can not
 * be mapped, addresses at which nothing is. Those go to the adapter alone; what the CPU would have to touch is
 * refused (buffer_check()). Runs on the session's owner. Next: buffer.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "buffer-internal.h"
#include "cluster.h"
#include "err.h"

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142 /* <linux/magic.h> since 5.3 */
#endif

/* A part of a dma-buf that is about to be registered. */
struct part {
	int fd;
	uint64_t offset;
	size_t bytes;
	bool writable;
	uint8_t *map;
	size_t mapped;
	int map_errno; /* why the CPU can not touch it; 0: it can */
};

static int check(const struct part *part)
{
	struct statfs kind;
	off_t size;

	if (fstatfs(part->fd, &kind) < 0)
		return err_set(-errno, "fd %d: %s", part->fd, strerror(errno));
	if ((uint64_t)kind.f_type != DMA_BUF_MAGIC)
		return err_set(-EINVAL, "fd %d is no dma-buf", part->fd);
	/* of a dma-buf this moves nothing */
	size = lseek(part->fd, 0, SEEK_END);
	if (size < 0)
		return err_set(-errno, "fd %d has no size: %s", part->fd, strerror(errno));
	if (part->bytes == 0 || part->offset > (uint64_t)size ||
	    part->bytes > (uint64_t)size - part->offset)
		return err_set(
			-EINVAL,
			"%zu bytes at offset %llu of a dma-buf of %lld bytes: must be at least 1 "
			"in it",
			part->bytes, (unsigned long long)part->offset, (long long)size);
	return 0;
}

/* An adapter wants the addresses to have the same place in a page as in the dma-buf. */
static int map(struct part *part)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), inside = part->offset % page;
	int protection = PROT_READ | (part->writable ? PROT_WRITE : 0);

	part->mapped = (inside + part->bytes + page - 1) / page * page;
	part->map = mmap(NULL, part->mapped, protection, MAP_SHARED, part->fd,
			 (off_t)(part->offset - inside));
	if (part->map != MAP_FAILED)
		return 0;
	part->map_errno = errno;
	part->map = mmap(NULL, part->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	return part->map != MAP_FAILED
		       ? 0
		       : err_set(-ENOMEM, "no addresses for a dma-buf of %zu bytes", part->bytes);
}

/* With addresses, in a session that is connected. */
static int enlist(struct tarn_session *s, const struct part *part, struct tarn_buffer **ret_buffer)
{
	struct registration wanted = {.memory = part->map +
						part->offset % (uint64_t)sysconf(_SC_PAGESIZE),
				      .bytes = part->bytes,
				      .writable = part->writable,
				      .dmabuf_offset = part->offset};
	struct tarn_buffer *b;
	int ret;

	if (part->map_errno &&
	    !(s->cluster ? cluster_buffer_dmabufs(s) : s->ep->ops->memory_add_dmabuf != NULL))
		return err_set(
			-EOPNOTSUPP,
			"the dma-buf can not be mapped (%s), and without an adapter this CPU "
			"would have to copy it: copy to memory of the process by the device",
			strerror(part->map_errno));
	/* the caller may close its own */
	wanted.dmabuf = fcntl(part->fd, F_DUPFD_CLOEXEC, 0);
	if (wanted.dmabuf < 0)
		return err_set(-errno, "fd %d can not be kept: %s", part->fd, strerror(errno));
	ret = buffer_create(s, &wanted, true, &b);
	if (ret < 0) {
		close(wanted.dmabuf);
		return ret;
	}
	b->map = part->map;
	b->mapped = part->mapped;
	b->unreachable = part->map_errno != 0;
	s->unreachable += b->unreachable;
	*ret_buffer = b;
	return buffer_share(b);
}

TARN_API int tarn_buffer_register_dmabuf(struct tarn_session *session, int fd, uint64_t offset,
					 size_t bytes, uint32_t flags, void **ret_memory,
					 struct tarn_buffer **ret_buffer)
{
	struct part part = {.fd = fd,
			    .offset = offset,
			    .bytes = bytes,
			    .writable = !(flags & TARN_BUFFER_SOURCE)};
	int ret;

	if (!session || !ret_memory || !ret_buffer)
		return err_set(-EINVAL, "session, ret_memory and ret_buffer must not be NULL");
	if (flags & ~TARN_BUFFER_SOURCE)
		return err_set(-EINVAL, "flags is 0x%x: may have TARN_BUFFER_SOURCE alone", flags);
	ret = check(&part);
	if (ret == 0)
		ret = map(&part);
	if (ret < 0)
		return ret;
	ret = session->cluster ? cluster_hold(session) : session_enter(session);
	if (ret == 0) {
		ret = enlist(session, &part, ret_buffer);
		if (ret == 0)
			*ret_memory = (*ret_buffer)->memory;
		buffer_leave(session);
	}
	if (ret < 0)
		munmap(part.map, part.mapped);
	return ret;
}
