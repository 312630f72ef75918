/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-shm-space.c - regions of applications on shared memory: mapped as the pool is
 *
 * The daemon passes a descriptor for each. Behind a region's bytes, on the last page, stands a word that the
 * daemon clears when the region is destroyed; the memory stays mapped until it is closed here. The caller's
 * thread. Next: fabric-shm.c, daemon/region.c for the other side.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "atomics.h"
#include "err.h"
#include "fabric-shm.h"
#include "tarn/tarn.h"
#include "wire.h"

static int spaces_make(struct shm_endpoint *s)
{
	if (s->spaces)
		return 0;
	s->spaces = calloc(FABRIC_SPACES, sizeof(*s->spaces));
	if (!s->spaces)
		return err_set(-ENOMEM, "no memory for a region");
	for (unsigned i = 0; i < FABRIC_SPACES; i++)
		s->spaces[i].passed = -1;
	return 0;
}

void fabric_shm_space_passed(struct shm_endpoint *s, const void *message, size_t bytes, int fd)
{
	struct wire_region_reply reply;
	struct shm_space *it;

	if (wire_region_reply_decode(message, bytes, &reply) < 0 || reply.handle == 0 ||
	    reply.handle > FABRIC_SPACES || spaces_make(s) < 0) {
		close(fd);
		return;
	}
	it = &s->spaces[reply.handle - 1];
	if (it->passed >= 0)
		close(it->passed);
	it->passed = fd;
}

/* What the descriptor gives access to has to be what the daemon says of it. */
static int check(const struct shm_endpoint *s, struct shm_space *space)
{
	int mode = fcntl(space->passed, F_GETFL);
	struct stat st;

	if (mode < 0 || fstat(space->passed, &st) < 0 || st.st_size < FABRIC_SPACE_TAIL_BYTES ||
	    st.st_size % FABRIC_SPACE_TAIL_BYTES ||
	    space->bytes > (uint64_t)st.st_size - FABRIC_SPACE_TAIL_BYTES ||
	    (!space->read_only && (mode & O_ACCMODE) != O_RDWR) ||
	    !fabric_shm_memory_stays(s->socket, space->passed, &st))
		return err_set(-TARN_EPROTO, "tarnd sent other memory than that of the region");
	space->mapped_bytes = (uint64_t)st.st_size;
	return 0;
}

static int map(struct shm_space *space)
{
	space->base =
		mmap(NULL, space->mapped_bytes, PROT_READ | (space->read_only ? 0 : PROT_WRITE),
		     MAP_SHARED, space->passed, 0);
	if (space->base == MAP_FAILED) {
		space->base = NULL;
		return err_set(-errno, "cannot map the region (%llu bytes): %s",
			       (unsigned long long)space->mapped_bytes, strerror(errno));
	}
	/* as the pool's, fabric-shm-connect.c */
	madvise(space->base, space->mapped_bytes, MADV_DONTFORK);
	madvise(space->base, space->mapped_bytes, MADV_DONTDUMP);
	madvise(space->base, space->mapped_bytes, MADV_HUGEPAGE);
	space->tail = (const uint64_t *)(const void *)(space->base + space->mapped_bytes -
						       FABRIC_SPACE_TAIL_BYTES);
	return 0;
}

int fabric_shm_space_add(struct fabric_endpoint *ep, unsigned space,
			 const struct wire_region *pieces, unsigned count, uint64_t bytes,
			 bool read_only)
{
	struct shm_endpoint *s = shm(ep);
	struct shm_space *it = s->spaces ? &s->spaces[space - 1] : NULL;
	int ret;

	(void)pieces;
	if (!it || it->passed < 0 || count > 0)
		return err_set(-TARN_EPROTO, "tarnd sent no memory for the region");
	if (it->base)
		munmap(it->base, it->mapped_bytes);
	*it = (struct shm_space){.bytes = bytes, .read_only = read_only, .passed = it->passed};
	ret = check(s, it);
	if (ret == 0)
		ret = map(it);
	close(it->passed);
	it->passed = -1;
	return ret;
}

void fabric_shm_space_remove(struct fabric_endpoint *ep, unsigned space)
{
	struct shm_space *it = shm(ep)->spaces ? &shm(ep)->spaces[space - 1] : NULL;

	if (!it)
		return;
	if (it->base)
		munmap(it->base, it->mapped_bytes);
	if (it->passed >= 0)
		close(it->passed);
	*it = (struct shm_space){.passed = -1};
}

bool fabric_shm_space_alive(struct fabric_endpoint *ep, unsigned space)
{
	const struct shm_space *it = &shm(ep)->spaces[space - 1];

	/* acquire: pairs with the release in daemon/region.c, which comes before the memory is given back */
	return it->base && word_load_acquire(it->tail) != 0;
}

void fabric_shm_spaces_free(struct shm_endpoint *s, bool ours)
{
	for (unsigned i = 0; s->spaces && i < FABRIC_SPACES; i++) {
		/* a forked child does not have the mapping */
		if (!ours)
			s->spaces[i].base = NULL;
		fabric_shm_space_remove(&s->ep, i + 1);
	}
	free(s->spaces);
}
