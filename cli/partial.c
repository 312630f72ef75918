/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * partial.c - a file that is written as FILE.partial and named FILE when it is whole and on disk
 *
 * Nothing half-written ever has the final name: the name is given by rename(2) behind fsync(2). One
 * process writes a FILE.partial at a time: it holds a lock on it. Main thread. Next to read:
 * snapshot-write.c and region-copy.c, which write such files.
 */
#include "partial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"
#include "output.h"

/* ---- names ----------------------------------------------------------------------------------- */

static int open_folder(struct partial *file)
{
	const char *slash = strrchr(file->wish.path, '/'),
		   *name = slash != NULL ? slash + 1 : file->wish.path;
	size_t n = slash != NULL ? (size_t)(slash - file->wish.path) + 1 : 0;

	if (*name == '\0' || strlen(name) + strlen(".partial") > NAME_MAX)
		return err_set(-EINVAL, "the name of a file of 1 to %zu bytes is needed",
			       NAME_MAX - strlen(".partial"));
	snprintf(file->name, sizeof(file->name), "%s", name);
	snprintf(file->partial, sizeof(file->partial), "%s.partial", name);
	file->folder_path = n > 0 ? strndup(file->wish.path, n) : strdup(".");
	if (file->folder_path == NULL)
		return err_set(-ENOMEM, "no memory for a path");
	file->folder = open(file->folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return file->folder < 0
		       ? err_set(-errno, "its folder %s: %s", file->folder_path, strerror(errno))
		       : 0;
}

/* May FILE get its name in the end? */
static int check_name(const struct partial *file)
{
	struct stat st;

	if (fstatat(file->folder, file->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_set(-errno, "%s", strerror(errno));
	if (S_ISDIR(st.st_mode))
		return err_set(-EISDIR, "is a directory: a file is needed");
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return err_set(-EINVAL, "is a device, pipe or socket: a regular file is needed");
	if (!file->wish.force)
		return err_set(-EEXIST, "is there already: --force replaces it");
	return 0;
}

/* Ours alone, and still what has the name. */
static int lock_partial(const struct partial *file)
{
	struct stat st, named;

	if (fstat(file->fd, &st) < 0)
		return err_set(-errno, "%s: %s", file->partial, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(-EINVAL, "%s is no regular file: remove it", file->partial);
	if (flock(file->fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(-errno, "%s: %s", file->partial,
			       errno == EWOULDBLOCK ? "another tarn is writing it"
						    : strerror(errno));
	if (fstatat(file->folder, file->partial, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
	    named.st_ino != st.st_ino || named.st_dev != st.st_dev)
		return err_set(-EBUSY, "%s was renamed meanwhile: another tarn was writing it",
			       file->partial);
	return 0;
}

/* *ret_new: it was not there, or is to be begun anew. */
static int open_partial(struct partial *file, bool *ret_new)
{
	const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	bool there = false;

	/* What a pool holds is nobody else's business. */
	file->fd = openat(file->folder, file->partial, flags | O_CREAT | O_EXCL, 0600);
	if (file->fd < 0 && errno == EEXIST) {
		if (!file->wish.force && !file->wish.resume)
			return err_set(-EEXIST,
				       "%s is there, of a run that was interrupted: %s--force "
				       "begins anew",
				       file->partial,
				       file->wish.resumable ? "--resume goes on with it, " : "");
		there = true;
		file->fd = openat(file->folder, file->partial, flags);
	}
	if (file->fd < 0)
		return err_set(-errno, "%s: %s", file->partial, strerror(errno));
	*ret_new = !there || !file->wish.resume;
	return lock_partial(file);
}

int partial_open(struct partial *file, const struct partial_wish *wish, bool *ret_new)
{
	int status;

	*file = (struct partial){.wish = *wish, .folder = -1, .fd = -1};
	status = open_folder(file);
	if (status == 0)
		status = check_name(file);
	if (status == 0)
		status = open_partial(file, ret_new);
	/* What another one is writing is not ours, to be discarded. */
	if (status < 0)
		partial_close(file);
	return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

int partial_truncate(struct partial *file)
{
	if (ftruncate(file->fd, 0) < 0 || lseek(file->fd, 0, SEEK_SET) < 0)
		return err_set(-errno, "%s: %s", file->partial, strerror(errno));
	return 0;
}

/* What it says of a limit is the limit's: how large a file this process may write. */
static int too_large(const struct partial *file, uint64_t at, uint64_t n)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

	(void)getrlimit(RLIMIT_FSIZE, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		return err_set(-EFBIG,
			       "%s: byte %" PRIu64 ": %s: its file system allows no larger file",
			       file->partial, at, strerror(EFBIG));
	return err_set(-EFBIG,
		       "%s: byte %" PRIu64 ": %s: this process may write files of %" PRIu64
		       " bytes, and at least %" PRIu64 " are needed: raise `ulimit -f`",
		       file->partial, at, strerror(EFBIG), (uint64_t)limit.rlim_cur, at + n);
}

int partial_reserve(struct partial *file, uint64_t bytes)
{
	if (bytes == 0 || fallocate(file->fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP)
		return 0;
	if (errno == EFBIG)
		return too_large(file, 0, bytes);
	return err_set(-errno, "%s: %" PRIu64 " bytes: %s", file->partial, bytes, strerror(errno));
}

int partial_write(struct partial *file, const void *bytes, size_t n)
{
	off_t from = lseek(file->fd, 0, SEEK_CUR), at;
	int status = output_write_all(file->fd, bytes, n);

	if (status == 0)
		return 0;
	at = lseek(file->fd, 0, SEEK_CUR);
	if (status == -EFBIG)
		return too_large(file, (uint64_t)at, n - (size_t)(at - from));
	return err_set(status, "%s: byte %" PRIu64 ": %s", file->partial, (uint64_t)at,
		       strerror(-status));
}

/* ---- the end --------------------------------------------------------------------------------- */

static int give_name(struct partial *file)
{
	const unsigned flags = file->wish.force ? 0 : RENAME_NOREPLACE;
	int status = renameat2(file->folder, file->partial, file->folder, file->name, flags);

	/* A file system that knows no such flag: looked at a moment ago is the best there is. */
	if (status < 0 && (errno == EINVAL || errno == ENOSYS) && flags != 0) {
		status = check_name(file);
		if (status < 0)
			return status;
		status = renameat(file->folder, file->partial, file->folder, file->name);
	}
	if (status < 0)
		return err_set(-errno, "%s can not be renamed: %s", file->partial,
			       errno == EEXIST ? "somebody has made the file meanwhile; --force "
						 "replaces it"
					       : strerror(errno));
	if (fsync(file->folder) < 0)
		return err_set(-errno, "its folder %s: %s", file->folder_path, strerror(errno));
	return 0;
}

int partial_finish(struct partial *file)
{
	if (fsync(file->fd) < 0)
		return err_set(-errno, "%s: %s", file->partial, strerror(errno));
	return give_name(file);
}

void partial_discard(struct partial *file)
{
	if (file->fd >= 0)
		(void)unlinkat(file->folder, file->partial, 0);
}

void partial_close(struct partial *file)
{
	if (file->fd >= 0)
		close(file->fd);
	if (file->folder >= 0)
		close(file->folder);
	free(file->folder_path);
	*file = (struct partial){.folder = -1, .fd = -1};
}
