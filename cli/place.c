/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * place.c - files beneath a directory, under names that nobody has checked
 *
 * A key may be "../../etc/passwd", and a directory that others write to may have a symbolic link
 * where this process expects a directory. So a path is opened component by component from the
 * root's descriptor, never through a link, and ".." is not a name. The file gets a temporary name
 * and is renamed when it is complete: readers see the old one or the new one. Next to read:
 * export.c.
 */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"

#define PLACE_TEMP_TRIES 16
#define PLACE_TEMP_BYTES 32

static const char *component_refusal(const char *name, size_t n)
{
	if (n == 0)
		return "a component of the path is empty";
	if (n == 1 && name[0] == '.')
		return "a component of the path is '.'";
	if (n == 2 && name[0] == '.' && name[1] == '.')
		return "a component of the path is '..'";
	if (n > NAME_MAX)
		return "a component of the path is longer than a file name can be";
	return NULL;
}

const char *place_refusal(const char *path, size_t n)
{
	const char *refusal = NULL;

	if (n == 0)
		return "nothing is left for a file name";
	if (memchr(path, '\0', n) != NULL)
		return "a file name can not have a NUL byte";
	if (path[0] == '/')
		return "the path is absolute";
	if (path[n - 1] == '/')
		return "the path ends with '/'";
	while (refusal == NULL) {
		const char *slash = memchr(path, '/', n);
		size_t length = slash != NULL ? (size_t)(slash - path) : n;

		refusal = component_refusal(path, length);
		if (slash == NULL)
			break;
		path += length + 1;
		n -= length + 1;
	}
	return refusal;
}

/* Opens the directory name in parent, makes it if it is not there. A descriptor or -errno. */
static int open_directory(int parent, const char *name, const char **ret_why)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(parent, name, flags);

	if (fd < 0 && errno == ENOENT) {
		if (mkdirat(parent, name, 0777) < 0 && errno != EEXIST) {
			*ret_why = "can not make a directory for it";
			return -errno;
		}
		fd = openat(parent, name, flags);
	}
	if (fd >= 0)
		return fd;
	*ret_why = errno == ENOTDIR || errno == ELOOP
			   ? "a file or symbolic link is where it needs a directory"
			   : "can not open its directory";
	return -errno;
}

/*
 * Opens all directories of a path; *ret_name is its last component. A descriptor, which may be root
 * itself, or -errno.
 */
static int open_parent(int root, const char *path, size_t n, char ret_name[NAME_MAX + 1],
		       const char **ret_why)
{
	int fd = root;

	for (;;) {
		const char *slash = memchr(path, '/', n);
		size_t length = slash != NULL ? (size_t)(slash - path) : n;
		int next;

		memcpy(ret_name, path, length);
		ret_name[length] = '\0';
		if (slash == NULL)
			return fd;
		next = open_directory(fd, ret_name, ret_why);
		if (fd != root)
			close(fd);
		if (next < 0)
			return next;
		fd = next;
		path += length + 1;
		n -= length + 1;
	}
}

static int open_temporary(int parent, mode_t mode, char ret_name[PLACE_TEMP_BYTES])
{
	for (int i = 0; i < PLACE_TEMP_TRIES; i++) {
		uint64_t random;
		int fd;

		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -errno;
		snprintf(ret_name, PLACE_TEMP_BYTES, ".tarn-%016" PRIx64, random);
		/* Nobody else reads it before it has its own mode. */
		fd = openat(parent, ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    mode != 0 ? 0600 : 0666);
		if (fd >= 0)
			return fd;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

static int fill(int fd, const void *bytes, size_t n, mode_t mode)
{
	int status = output_write_all(fd, bytes, n);

	if (status == 0 && mode != 0 && fchmod(fd, mode) < 0)
		status = -errno;
	if (close(fd) < 0 && status == 0)
		status = -errno;
	return status;
}

static int write_in(int parent, const char *name, const void *bytes, size_t n, mode_t mode,
		    const char **ret_why)
{
	char temporary[PLACE_TEMP_BYTES];
	int fd = open_temporary(parent, mode, temporary), status;

	*ret_why = "can not write it";
	if (fd < 0)
		return fd;
	status = fill(fd, bytes, n, mode);
	if (status == 0 && renameat(parent, temporary, parent, name) < 0) {
		status = -errno;
		if (status == -EISDIR)
			*ret_why = "a directory is where it would go";
	}
	if (status < 0)
		unlinkat(parent, temporary, 0);
	return status;
}

int place_write(int root, const char *path, size_t n, const void *bytes, size_t value_bytes,
		mode_t mode, const char **ret_why)
{
	char name[NAME_MAX + 1];
	int parent = open_parent(root, path, n, name, ret_why), status;

	if (parent < 0)
		return parent;
	status = write_in(parent, name, bytes, value_bytes, mode, ret_why);
	if (parent != root)
		close(parent);
	return status;
}
