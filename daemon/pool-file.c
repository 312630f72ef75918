/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file that a pool's memory is in ([pool] file); see pool-memory.h. Main thread, before the loop
 * runs. A new one is made beside its place, FILE.new, and gets its name when a whole pool is in it, so
 * that what is found under the name is a pool or not ours. Its size is allocated before it is mapped: a
 * page that the file system could not give would be a SIGBUS later, and so would a file that somebody
 * cuts off: only a file that is ours and that nobody else may write is taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "err.h"
#include "pool-memory.h"

#define PATH_BYTES 4096u
#define MIB        (1024.0 * 1024)

#ifndef CEPH_SUPER_MAGIC
#define CEPH_SUPER_MAGIC 0x00c36400
#endif
#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xff534d42
#endif
#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xfe534d42
#endif
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

/* ---- file systems ---- */

/* NULL: it can be used. */
static const char *file_system_wrong(const struct statfs *fs)
{
	switch ((uint64_t)fs->f_type & 0xffffffff) {
	case NFS_SUPER_MAGIC:
	case CEPH_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case V9FS_MAGIC:
	case AFS_SUPER_MAGIC:
	case FUSE_SUPER_MAGIC:
		return "a network's or FUSE's, where memory is not shared as it must be";
	default:
		return NULL;
	}
}

/*
 * What the kernel shows as files (/proc, /sys, cgroups, devpts ...) has no room for any. Of those that
 * have, these alone may say 0 of it: they take what memory there is.
 */
static bool file_system_shown(const struct statfs *fs)
{
	return fs->f_blocks == 0 && fs->f_type != TMPFS_MAGIC && fs->f_type != RAMFS_MAGIC &&
	       fs->f_type != HUGETLBFS_MAGIC;
}

/* Before anything else is asked of the path: there each other answer is misleading. */
static int place_check(const char *path)
{
	char folder[PATH_BYTES];
	struct statfs fs;

	snprintf(folder, sizeof(folder), "%s", path);
	if ((statfs(path, &fs) < 0 && statfs(dirname(folder), &fs) < 0) || !file_system_shown(&fs))
		return 0;
	return err_set(-EINVAL,
		       "file = %s: is where the kernel shows its own things, and no file can be made "
		       "there: name one on tmpfs (/dev/shm), hugetlbfs, DAX or a local disk",
		       path);
}

static int file_system_check(const char *path, const struct statfs *fs,
			     const struct config_pool *config)
{
	const char *wrong = file_system_wrong(fs);

	if (wrong)
		return err_set(-EINVAL,
			       "file = %s: its file system is %s: use tmpfs (/dev/shm), hugetlbfs, "
			       "DAX or a local disk",
			       path, wrong);
	if (config->hugepages.number == CONFIG_HUGEPAGES_REQUIRE && fs->f_type != HUGETLBFS_MAGIC)
		return err_set(-EINVAL,
			       "file = %s: hugepages = require, and its file system is not "
			       "hugetlbfs: name a file on one (mount -t hugetlbfs), or choose "
			       "hugepages = prefer",
			       path);
	return 0;
}

static void memory_fill(const struct statfs *fs, const struct config_pool *config,
			struct pool_memory *memory)
{
	uint64_t unit;

	memory->hugetlb = fs->f_type == HUGETLBFS_MAGIC;
	memory->hugepage_bytes =
		memory->hugetlb ? (uint64_t)fs->f_bsize : (uint64_t)sysconf(_SC_PAGESIZE);
	memory->durable =
		!memory->hugetlb && fs->f_type != TMPFS_MAGIC && fs->f_type != RAMFS_MAGIC;
	unit = memory->hugepage_bytes > LAYOUT_PAGE_BYTES ? memory->hugepage_bytes
							  : LAYOUT_PAGE_BYTES;
	memory->bytes = ((uint64_t)config->size.number + unit - 1) / unit * unit;
}

/* ---- the file ---- */

static int no_file(const char *path, int code)
{
	struct stat st;

	switch (code) {
	case -ELOOP:
		return err_set(code, "file = %s: is a symbolic link: name the file itself", path);
	case -EACCES:
	case -EPERM:
		return err_set(code,
			       "file = %s: no permission: give the file and its folder to the "
			       "user of tarnd (uid %u)",
			       path, geteuid());
	case -ENOENT:
	case -ENOTDIR:
		return err_set(code,
			       "file = %s: its folder does not exist: make it (`install -d`) or "
			       "choose another path",
			       path);
	case -EROFS:
		return err_set(code,
			       "file = %s: its file system is mounted read-only: remount it for "
			       "writing, or choose another path",
			       path);
	case -EISDIR:
		return err_set(code, "file = %s: is a directory: name a file in it", path);
	case -ENXIO:
		if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
			return err_set(-EINVAL,
				       "file = %s: is not a regular file: choose another "
				       "path",
				       path);
		break;
	default:
		break;
	}
	return err_set(code, "file = %s: %s", path, strerrordesc_np(-code));
}

/* Is it ours, and ours alone? Who else could write to it could cut it off, which kills its users. */
static int ours(const char *path, const struct stat *st)
{
	if (S_ISDIR(st->st_mode))
		return no_file(path, -EISDIR);
	if (!S_ISREG(st->st_mode))
		return err_set(-EINVAL, "file = %s: is not a regular file: choose another path",
			       path);
	if (st->st_uid != geteuid())
		return err_set(
			-EPERM,
			"file = %s: belongs to uid %u, and tarnd runs as uid %u: chown it, or "
			"choose another path",
			path, st->st_uid, geteuid());
	if (st->st_mode & 0077)
		return err_set(
			-EPERM,
			"file = %s: has mode %04o; allowed is 0600, since clients get it from "
			"tarnd alone: `chmod 600 %s`",
			path, st->st_mode & 07777, path);
	return 0;
}

static int size_check(const char *path, const struct stat *st, const struct config_pool *config,
		      const struct pool_memory *memory)
{
	if ((uint64_t)st->st_size == memory->bytes)
		return 0;
	return err_set(
		-EINVAL,
		"file = %s: has %llu bytes, and size = %lld wants %llu: set size back, or remove "
		"the file to begin with an empty pool (`tarn snapshot` and `tarn restore` carry "
		"the keys over)",
		path, (unsigned long long)st->st_size, (long long)config->size.number,
		(unsigned long long)memory->bytes);
}

/* Nothing is in an empty file: it is as good as none. */
static bool is_empty(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_size == 0;
}

static int new_path(const char *path, char *ret_path)
{
	return (size_t)snprintf(ret_path, PATH_BYTES, "%s.new", path) < PATH_BYTES
		       ? 0
		       : err_set(-ENAMETOOLONG, "file = %s: is too long: choose a shorter path",
				 path);
}

/* Every page of it, now. */
static int allocate(const char *path, const struct pool_memory *memory)
{
	struct statvfs fs = {0};
	int code;

	if (fallocate(memory->fd, 0, 0, (off_t)memory->bytes) == 0)
		return 0;
	code = -errno;
	if (code != -ENOSPC && code != -ENOMEM && code != -EDQUOT)
		return err_set(code, "file = %s: allocating %llu bytes: %s%s", path,
			       (unsigned long long)memory->bytes, strerrordesc_np(-code),
			       code == -EOPNOTSUPP ? ": use tmpfs, hugetlbfs, ext4 or xfs" : "");
	(void)fstatvfs(memory->fd, &fs);
	return err_set(
		-ENOSPC,
		"file = %s: needs %.1f MiB, %.1f MiB are free in its file system%s: lower size, "
		"or make room",
		path, (double)memory->bytes / MIB, (double)fs.f_bavail * (double)fs.f_frsize / MIB,
		memory->hugetlb ? " (of hugepages: vm.nr_hugepages, and the mount's size)" : "");
}

/* What a daemon has left that was killed while it made one is removed; but not what one makes just now. */
static int leftover_remove(const char *path, const char *temporary)
{
	struct pool_memory other = {.path = path, .fd_read_only = -1};
	struct stat st;
	int rc;

	other.fd = open(temporary, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (other.fd < 0)
		return 0; /* nothing there; else to make ours fails */
	rc = pool_lock_daemon(&other);
	if (rc == 0 && fstat(other.fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
		(void)unlink(temporary);
	close(other.fd);
	return rc;
}

static int file_new(const struct config_pool *config, struct pool_memory *memory)
{
	const char *path = config->file.text;
	char temporary[PATH_BYTES];
	struct statfs fs;
	int rc = new_path(path, temporary);

	if (rc == 0)
		rc = leftover_remove(path, temporary);
	if (rc < 0)
		return rc;
	memory->fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (memory->fd < 0 && errno == EEXIST)
		return err_set(-EEXIST, "file = %s: %s is in the way: remove it", path, temporary);
	if (memory->fd < 0)
		return no_file(path, -errno);
	memory->unpublished = true;
	if (fstatfs(memory->fd, &fs) < 0 || fchmod(memory->fd, 0600) < 0)
		return no_file(path, -errno);
	rc = file_system_check(path, &fs, config);
	if (rc < 0)
		return rc;
	memory_fill(&fs, config, memory);
	rc = pool_lock_daemon(memory);
	if (rc < 0)
		return rc;
	if (ftruncate(memory->fd, (off_t)memory->bytes) < 0)
		return no_file(path, -errno);
	return allocate(path, memory);
}

static int file_old(const struct config_pool *config, const struct stat *st,
		    struct pool_memory *memory)
{
	const char *path = config->file.text;
	struct statfs fs;
	int rc = ours(path, st);

	if (rc < 0)
		return rc;
	if (fstatfs(memory->fd, &fs) < 0)
		return no_file(path, -errno);
	rc = file_system_check(path, &fs, config);
	if (rc < 0)
		return rc;
	memory_fill(&fs, config, memory);
	rc = pool_lock_daemon(memory); /* before its size is believed */
	if (rc == 0)
		rc = size_check(path, st, config, memory);
	if (rc == 0)
		rc = allocate(path, memory);
	if (rc == 0)
		memory->kept = true;
	return rc;
}

int pool_file_open(const struct config_pool *config, const struct log *log,
		   struct pool_memory *memory)
{
	const char *path = config->file.text;
	struct stat st;
	int rc = place_check(path);

	if (rc < 0)
		return rc;
	memory->path = path;
	/* O_NONBLOCK: a FIFO must not hold us up */
	memory->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (memory->fd < 0 && errno != ENOENT)
		return no_file(path, -errno);
	if (memory->fd >= 0 && fstat(memory->fd, &st) < 0)
		return no_file(path, -errno);
	if (memory->fd >= 0 && !is_empty(&st)) {
		rc = file_old(config, &st, memory);
	} else {
		if (memory->fd >= 0)
			close(memory->fd);
		rc = file_new(config, memory);
	}
	if (rc == 0 && memory->durable)
		log_notice(
			log,
			"pool %s: %s is on a disk: the kernel goes on writing what changes, which "
			"slows down and wears; RDMA devices may refuse to register it",
			config->name, path);
	return rc;
}

/* ---- its name ---- */

static int folder_sync(const char *path)
{
	char copy[PATH_BYTES];
	int fd, rc;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = fsync(fd) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

/* Over nothing, or over an empty file; not over a pool that another daemon has made meanwhile. */
static int rename_new(const char *temporary, const char *path)
{
	struct stat st;

	if (lstat(path, &st) == 0 && !is_empty(&st))
		return err_set(-EBUSY,
			       "file = %s: has appeared meanwhile: does another tarnd use it?",
			       path);
	return rename(temporary, path) < 0 ? no_file(path, -errno) : 0;
}

int pool_file_publish(const struct pool_memory *memory)
{
	char temporary[PATH_BYTES];
	int rc = new_path(memory->path, temporary);

	if (rc == 0)
		rc = pool_memory_sync(memory, 0, memory->bytes);
	if (rc < 0)
		return rc;
	rc = rename_new(temporary, memory->path);
	if (rc < 0)
		return rc;
	rc = memory->durable ? folder_sync(memory->path) : 0;
	return rc < 0 ? no_file(memory->path, rc) : 0;
}

void pool_file_remove(const struct pool_memory *memory)
{
	char temporary[PATH_BYTES];

	if (new_path(memory->path, temporary) == 0)
		(void)unlink(temporary);
}

/* ---- before it is needed ---- */

/* There is no such file yet: could one be made? */
static int folder_check(const struct config_pool *config)
{
	const char *path = config->file.text;
	struct pool_memory memory = {0};
	char copy[PATH_BYTES];
	const char *folder;
	struct statfs fs;
	double available;
	int rc;

	snprintf(copy, sizeof(copy), "%s", path);
	folder = dirname(copy);
	if (statfs(folder, &fs) < 0)
		return no_file(path, -errno);
	if (access(folder, W_OK | X_OK) < 0)
		return no_file(path, -errno);
	rc = file_system_check(path, &fs, config);
	if (rc < 0)
		return rc;
	memory_fill(&fs, config, &memory);
	available = (double)fs.f_bavail * (double)fs.f_bsize;
	if ((double)memory.bytes > available && fs.f_blocks > 0)
		return err_set(
			-ENOSPC,
			"file = %s: needs %.1f MiB, %.1f MiB are free in its file system: lower "
			"size, or make room",
			path, (double)memory.bytes / MIB, available / MIB);
	return 0;
}

int pool_file_check(const struct config_pool *config)
{
	const char *path = config->file.text;
	struct pool_memory memory = {0};
	struct statfs fs;
	struct stat st;
	int rc = place_check(path);

	if (rc < 0)
		return rc;
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? folder_check(config) : no_file(path, -errno);
	if (S_ISLNK(st.st_mode))
		return no_file(path, -ELOOP);
	if (is_empty(&st))
		return folder_check(config);
	rc = ours(path, &st);
	if (rc < 0)
		return rc;
	if (access(path, R_OK | W_OK) < 0 || statfs(path, &fs) < 0)
		return no_file(path, -errno);
	rc = file_system_check(path, &fs, config);
	if (rc < 0)
		return rc;
	memory_fill(&fs, config, &memory);
	return size_check(path, &st, config, &memory);
}
