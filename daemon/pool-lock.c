/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks on ranges of a pool's memory; see pool-memory.h. Main thread. They belong to open file
 * descriptions (F_OFD_SETLK): each client that may write gets one of its own, on which we have set the
 * lock before it is sent. A mapping holds the description, so the kernel drops the lock when the client
 * has unmapped the pool or its process is gone, also when no daemon is there to see it
 * (docs/protocol.md section 7). pool-open.c asks for them after a restart.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "err.h"
#include "pool-memory.h"

static int set(int fd, uint64_t offset, uint64_t bytes)
{
	struct flock lock = {.l_type = F_WRLCK,
			     .l_whence = SEEK_SET,
			     .l_start = (off_t)offset,
			     .l_len = (off_t)bytes};

	return fcntl(fd, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}

int pool_lock_daemon(const struct pool_memory *memory)
{
	const char *name = memory->path ? memory->path : "the kept memory";
	int rc = set(memory->fd, 0, LAYOUT_SUPERBLOCK_BYTES);

	if (rc == -EAGAIN || rc == -EACCES)
		return err_set(
			-EBUSY,
			"%s is in use by another tarnd, or by `tarn pool check`: stop it, or "
			"name another file",
			name);
	return rc < 0 ? err_set(rc, "%s can not be locked: %s", name, strerrordesc_np(-rc)) : 0;
}

int pool_lock_client(const struct pool_memory *memory, const struct layout_geometry *g,
		     uint32_t slot, int *ret_fd)
{
	char path[64];
	int fd, rc;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return err_set(-errno, "%s can not be opened for a client: %s", path,
			       strerrordesc_np(errno));
	rc = set(fd, layout_client_offset(g, slot), LAYOUT_CLIENT_BYTES);
	if (rc == 0) {
		*ret_fd = fd;
		return 0;
	}
	close(fd);
	if (rc == -EAGAIN || rc == -EACCES)
		return err_set(-EBUSY,
			       "the client that had slot %u before has closed its connection and "
			       "still has the pool mapped",
			       slot);
	return err_set(rc, "locking a client's slot: %s", strerrordesc_np(-rc));
}

bool pool_lock_held(const struct pool_memory *memory, const struct layout_geometry *g,
		    uint32_t slot, uint32_t count)
{
	struct flock lock = {.l_type = F_WRLCK,
			     .l_whence = SEEK_SET,
			     .l_start = (off_t)layout_client_offset(g, slot),
			     .l_len = (off_t)((uint64_t)count * LAYOUT_CLIENT_BYTES)};

	/* who can't be asked for is taken to be there */
	return fcntl(memory->fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}
