/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The unix socket (SOCK_SEQPACKET) at which clients of shared memory connect, and the command tarn.
 * Main thread. Each connection goes to peer.c. Nothing here trusts the path: it may name a live
 * daemon's socket, a dead one's, or something else altogether.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "err.h"
#include "listen.h"
#include "peer.h"

#define BATCH 16 /* connections before others get their turn */
#define RETRY_MS \
	200 /* after an error of accept() as EMFILE: the connection stays in the backlog and the \
	       socket readable */

struct listener_shm {
	struct listener listener; /* first */
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int fd;
	dev_t device; /* of the file that we have made */
	ino_t inode;
	struct event *acceptable, *retry;
	bool paused;
};

static int address_fill(const char *path, struct sockaddr_un *ret_address)
{
	size_t length = strlen(path), limit = sizeof(ret_address->sun_path) - 1;

	if (length == 0 || length > limit)
		return err_set(-ENAMETOOLONG,
			       "path %s has %zu bytes, a unix socket's has 1 to %zu: choose a "
			       "shorter one, as "
			       "/run/tarn/tarn.sock",
			       path, length, limit);
	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	memcpy(ret_address->sun_path, path, length);
	return 0;
}

/* Somebody answers at the path: who? */
static int in_use(const char *path, int fd)
{
	struct ucred cred = {0};
	socklen_t length = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0 && cred.pid > 0)
		return err_set(
			-EADDRINUSE,
			"%s is in use by a running tarnd (pid %d): stop it or choose another path",
			path, (int)cred.pid);
	return err_set(-EADDRINUSE,
		       "%s is in use by a running daemon: stop it or choose another path", path);
}

/* Is there nothing at the path, or only a dead daemon's socket, which is removed if `remove`? */
static int make_room(const struct log *log, const struct sockaddr_un *address, bool remove)
{
	const char *path = address->sun_path;
	struct stat st;
	int fd, rc = 0;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0
				       : err_set(-errno, "%s: %s", path, strerrordesc_np(errno));
	if (!S_ISSOCK(st.st_mode))
		return err_set(-EADDRINUSE,
			       "%s is there already and is not a socket: move it away or choose "
			       "another path",
			       path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(-errno, "socket: %s", strerrordesc_np(errno));
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
		rc = in_use(path, fd);
	else if (errno == EAGAIN)
		rc = err_set(-EADDRINUSE,
			     "%s is in use by a running daemon (its backlog is full): stop it or "
			     "choose another path",
			     path);
	else if (errno == EPROTOTYPE)
		rc = err_set(-EADDRINUSE,
			     "%s is in use by another program than tarnd: choose another path",
			     path);
	else if (errno != ECONNREFUSED)
		rc = err_set(
			-errno,
			"%s is there already, and whether it is in use can not be found out: %s",
			path, strerrordesc_np(errno));
	close(fd);
	if (rc < 0 || !remove)
		return rc;
	if (unlink(path) < 0)
		return err_set(-errno, "%s: a stale socket that can not be removed: %s", path,
			       strerrordesc_np(errno));
	log_notice(log, "removed the stale socket %s: nobody listened on it", path);
	return 0;
}

int listener_group(const struct config_listen *config, uint32_t *ret_gid)
{
	const struct group *group;

	if (!config->group.text[0]) {
		*ret_gid = UINT32_MAX;
		return 0;
	}
	group = getgrnam(config->group.text);
	if (!group)
		return err_set(-EINVAL,
			       "there is no group %s on this machine: `groupadd -r %s`, or name "
			       "another one",
			       config->group.text, config->group.text);
	*ret_gid = group->gr_gid;
	return 0;
}

/* Nobody can connect before listen(), so nobody finds the socket with wrong permissions. */
static int permissions_set(const struct config_listen *config, const char *path)
{
	uint32_t gid = UINT32_MAX;
	int rc = listener_group(config, &gid);

	if (rc < 0)
		return rc;
	if (gid != UINT32_MAX && chown(path, (uid_t)-1, gid) < 0)
		return err_set(-errno, "%s can not be given to group %s: %s", path,
			       config->group.text, strerrordesc_np(errno));
	if (chmod(path, (mode_t)config->mode.number) < 0)
		return err_set(-errno, "%s: chmod: %s", path, strerrordesc_np(errno));
	return 0;
}

static int no_directory(const char *path)
{
	return err_set(-ENOENT,
		       "%s: its directory does not exist: make it (`install -d`) or choose another "
		       "path",
		       path);
}

static int bind_failed(const char *path)
{
	int code = -errno;

	if (code == -ENOENT)
		return no_directory(path);
	if (code == -EROFS)
		return err_set(code,
			       "%s: its file system is mounted read-only: choose a path below /run, or remount it "
			       "for writing",
			       path);
	return err_set(code, "%s: bind: %s", path, strerrordesc_np(-code));
}

static int directory_check(const char *path)
{
	char directory[sizeof(((struct sockaddr_un *)0)->sun_path)];
	const char *slash = strrchr(path, '/');
	struct stat st;

	if (!slash || slash == path)
		return 0;
	memcpy(directory, path, (size_t)(slash - path));
	directory[slash - path] = '\0';
	if (stat(directory, &st) < 0) {
		int code = -errno;

		return code == -ENOENT ? no_directory(path)
				       : err_set(code, "%s: its directory: %s", path,
						 strerrordesc_np(-code));
	}
	if (!S_ISDIR(st.st_mode))
		return err_set(-ENOTDIR, "%s: %s is not a directory: choose another path", path,
			       directory);
	return 0;
}

static int check(const struct log *log, const struct config_listen *config)
{
	struct sockaddr_un address;
	int rc = address_fill(config->path.text, &address);

	if (rc == 0)
		rc = directory_check(address.sun_path);
	return rc < 0 ? rc : make_room(log, &address, false);
}

static int socket_open(const struct config_listen *config, struct listener_shm *listener)
{
	struct sockaddr_un address;
	struct stat st;
	int rc = address_fill(config->path.text, &address);

	if (rc == 0)
		rc = make_room(listener->listener.daemon->log, &address, true);
	if (rc < 0)
		return rc;
	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return err_set(-errno, "socket: %s", strerrordesc_np(errno));
	if (bind(listener->fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return bind_failed(address.sun_path);
	if (lstat(address.sun_path, &st) == 0) {
		strcpy(listener->path, address.sun_path); /* from now on it is ours to remove */
		listener->device = st.st_dev;
		listener->inode = st.st_ino;
	}
	rc = permissions_set(config, address.sun_path);
	if (rc < 0)
		return rc;
	if (listen(listener->fd, (int)config->backlog.number) < 0)
		return err_set(-errno, "%s: listen: %s", address.sun_path, strerrordesc_np(errno));
	return 0;
}

static void accept_failed(struct listener_shm *listener, int error)
{
	struct timeval tv = {.tv_usec = RETRY_MS * 1000};

	listener->listener.daemon->accept_errors++;
	if (daemon_may_log(listener->listener.daemon))
		log_error(listener->listener.daemon->log, "%s: accept: %s%s", listener->path,
			  strerrordesc_np(error),
			  error == EMFILE ? ": raise LimitNOFILE (ulimit -n)" : "");
	event_del(listener->acceptable);
	event_add(listener->retry, &tv);
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg)
{
	struct listener_shm *listener = arg;

	(void)what;
	for (int i = 0; i < BATCH && !listener->paused; i++) {
		int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (peer >= 0) {
			peer_accept(listener->listener.daemon, listener->listener.config, peer);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			accept_failed(listener, errno);
		else if (errno == ECONNABORTED || errno == EINTR)
			continue;
		return;
	}
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct listener_shm *listener = arg;

	(void)fd;
	(void)what;
	if (!listener->paused)
		event_add(listener->acceptable, NULL);
}

/* ---- the kind ---- */

/* Is the file at its path the one that we have made? */
static bool path_ours(const struct listener_shm *listener)
{
	struct stat st;

	return listener->path[0] && lstat(listener->path, &st) == 0 &&
	       st.st_dev == listener->device && st.st_ino == listener->inode;
}

static struct listener_shm *of(struct listener *base)
{
	return (struct listener_shm *)(void *)base;
}

static int kind_bind(struct daemon *daemon, const struct config_listen *config,
		     struct listener **ret_listener)
{
	struct listener_shm *listener = calloc(1, sizeof(*listener));

	if (!listener)
		return err_set(-ENOMEM, "out of memory");
	listener->listener =
		(struct listener){.kind = &listener_shm_kind, .daemon = daemon, .config = config};
	listener->fd = -1;
	*ret_listener = &listener->listener;
	return 0;
}

static int kind_open(struct listener *base)
{
	struct listener_shm *listener = of(base);
	struct event_base *events = base->daemon->base;
	int rc = socket_open(base->config, listener);

	if (rc < 0)
		return rc;
	listener->acceptable =
		event_new(events, listener->fd, EV_READ | EV_PERSIST, on_acceptable, listener);
	listener->retry = evtimer_new(events, on_retry, listener);
	if (!listener->acceptable || !listener->retry || event_add(listener->acceptable, NULL) < 0)
		return err_set(-ENOMEM, "out of memory");
	log_info(base->daemon->log, "listening on %s", listener->path);
	return 0;
}

static void kind_close(struct listener *base)
{
	struct listener_shm *listener = of(base);

	if (listener->acceptable)
		event_free(listener->acceptable);
	if (listener->retry)
		event_free(listener->retry);
	if (path_ours(listener))
		unlink(listener->path);
	if (listener->fd >= 0)
		close(listener->fd);
	free(listener);
}

static void kind_pause(struct listener *base, bool pause)
{
	struct listener_shm *listener = of(base);

	listener->paused = pause;
	if (!listener->acceptable) /* not open yet, or it has failed to open */
		return;
	if (pause)
		event_del(listener->acceptable);
	else if (!evtimer_pending(listener->retry, NULL))
		event_add(listener->acceptable, NULL);
}

/* "Not set" is the daemon's own group, also where another one was set before. */
static int permissions_change(const struct listener_shm *listener,
			      const struct config_listen *config)
{
	const char *path = listener->path;

	if (!path_ours(listener))
		return err_set(-ENOENT,
			       "%s is not the socket any more that tarnd has made: restart it",
			       path);
	/* no group shall have, not even for a moment, what is meant for another one */
	if (chmod(path, 0600) < 0)
		return err_set(-errno, "%s: chmod: %s", path, strerrordesc_np(errno));
	if (!config->group.text[0] && chown(path, (uid_t)-1, getegid()) < 0)
		return err_set(-errno, "%s can not be given back to the daemon's group: %s", path,
			       strerrordesc_np(errno));
	return permissions_set(config, path);
}

static int kind_adjust(struct listener *base, const struct config_listen *config)
{
	const struct listener_shm *listener = of(base);
	const struct config_listen *was = base->config;
	int rc = 0;

	/* with the old one it is to be undone, however far it has come */
	if (config == was || config->mode.number != was->mode.number ||
	    strcmp(config->group.text, was->group.text) != 0)
		rc = permissions_change(listener, config);
	if (rc == 0 && listen(listener->fd, (int)config->backlog.number) < 0)
		rc = err_set(-errno, "%s: listen: %s", listener->path, strerrordesc_np(errno));
	return rc;
}

const struct listener_kind listener_shm_kind = {
	.name = "unix",
	.check = check,
	.bind = kind_bind,
	.open = kind_open,
	.close = kind_close,
	.pause = kind_pause,
	.adjust = kind_adjust,
	.remove = kind_close,
};
