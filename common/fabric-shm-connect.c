/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-shm-connect.c - an endpoint on shared memory: the unix socket, and the pool's memory that comes
 * over it
 *
 * The caller's thread. Next: fabric-shm.c, daemon/listen-shm.c for the other end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "fabric-shm.h"
#include "tarn/tarn.h"

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

/*
 * Can nobody take the memory away under us? It is sealed against shrinking; or a file, which only the
 * daemon's own user and root may write to.
 */
bool fabric_shm_memory_stays(int socket, int memory, const struct stat *st)
{
	int seals = fcntl(memory, F_GET_SEALS);
	struct ucred daemon = {0};
	socklen_t bytes = sizeof(daemon);

	if (seals >= 0 && (seals & F_SEAL_SHRINK))
		return true;
	return S_ISREG(st->st_mode) && (st->st_mode & 0022) == 0 &&
	       getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &daemon, &bytes) == 0 &&
	       (st->st_uid == daemon.uid || st->st_uid == 0);
}

/* Maps the pool, if nobody can take it away under us. */
static int map_memory(int socket, int memory, struct shm_endpoint *s)
{
	int mode = fcntl(memory, F_GETFL);
	struct stat st;

	if (mode < 0 || fstat(memory, &st) < 0 || st.st_size <= 0 ||
	    !fabric_shm_memory_stays(socket, memory, &st))
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
	s->ep.near = s->base;
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
	ret = map_memory(fd, memory, s);
	if (ret < 0) {
		s->ep.ops->close(&s->ep);
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
	if (ret == 0 && *ret_ep)
		shm(*ret_ep)->spin_ns = address->settings.spin_us * 1000ull;
	if (memory >= 0)
		close(memory);
	if (!*ret_ep)
		close(fd);
	return ret;
}

const struct fabric_transport fabric_shm_transport = {.name = "shm", .connect = shm_connect};
