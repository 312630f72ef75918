/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-life.c - which member's a kept pool was, and under which boot id; see pool-life.h
 *
 * It stands in the superblock, beside a number that is made of what must be the same: host, file, cluster, member.
 * A file that somebody has copied, or brought to another host, says nothing: its first owner may be alive.
 * Main thread. Next to read: member.c, membership-etcd-lease.c.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "cluster-map.h"
#include "fdstore.h"
#include "pool-life.h"
#include "pool-memory.h"
#include "pool.h"
#include "self.h"

#define LIFE_SEED 0x6c696665u

/* Never 0. */
static uint64_t place_of(int fd, const char *cluster, const char *member)
{
	struct {
		uint8_t host[16];
		uint64_t device, inode;
		char cluster[CLUSTER_NAME_MAX + 1], member[CLUSTER_NAME_MAX + 1];
	} place;
	struct stat st;
	uint64_t hash;

	memset(&place, 0, sizeof(place));
	if (fstat(fd, &st) < 0)
		return 1;
	pool_host_boot_id(place.host);
	place.device = st.st_dev;
	place.inode = st.st_ino;
	snprintf(place.cluster, sizeof(place.cluster), "%s", cluster);
	snprintf(place.member, sizeof(place.member), "%s", member);
	hash = XXH3_64bits_withSeed(&place, sizeof(place), LIFE_SEED);
	return hash ? hash : 1;
}

/* With the lock that a daemon has as long as it lives: so its last life is over, and what it has written stays. */
static uint64_t read_locked(int fd, const char *path, const char *cluster, const char *member)
{
	const struct pool_memory memory = {.fd = fd, .path = path};
	struct layout_superblock sb;
	struct layout_geometry geometry;
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || pool_lock_daemon(&memory) < 0 ||
	    pread(fd, &sb, sizeof(sb), 0) != sizeof(sb) ||
	    layout_superblock_check(&sb, (uint64_t)st.st_size, &geometry) < 0)
		return 0;
	return sb.member_place == place_of(fd, cluster, member) ? sb.member_boot_id : 0;
}

uint64_t pool_life_read(const struct config_pool *config, const struct fdstore *store, const char *cluster,
			const char *member)
{
	const char *path = config->file.text;
	uint64_t life;
	int fd;

	if (!path[0]) {
		fd = store && config->keep.number ? fdstore_find(store, config->name) : -1;
		return fd < 0 ? 0 : read_locked(fd, NULL, cluster, member);
	}
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return 0;
	life = read_locked(fd, path, cluster, member);
	close(fd);
	return life;
}

void pool_life_write(struct pool *pool, const char *cluster, const char *member, uint64_t boot_id)
{
	self_store(pool, offsetof(struct layout_superblock, member_place), 0);
	self_store(pool, offsetof(struct layout_superblock, member_boot_id), boot_id);
	self_store(pool, offsetof(struct layout_superblock, member_place),
		   place_of(pool->memory.fd, cluster, member));
}
