/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer-memcached.c - memcached over its unix socket, or loopback TCP (a port's number instead of a path): one connection,
 * one request at a time
 *
 * The meta protocol (memcached's doc/protocol.txt): `mg KEY v` is answered by `VA SIZE`, the value,
 * or `EN`. Loading is pipelined: `ms` with q has no answer, `mn` answers once for all before it.
 * Next: peer.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "err.h"
#include "peer.h"

#define BUFFER_BYTES (17u << 20) /* the largest value and its head */
#define FLUSH_BYTES  (64u << 10)

struct peer {
	int fd;
	size_t filled;
	char buffer[BUFFER_BYTES];
};

static int connect_tcp(const char *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)atoi(port)),
				      .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	return -1;
}

static int connect_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	return -1;
}

static int memcached_open(const char *where, uint64_t bytes, struct peer **ret_peer)
{
	struct peer *peer = malloc(sizeof(*peer));

	(void)bytes;
	if (!peer)
		return err_set(-ENOMEM, "no memory for a buffer");
	peer->filled = 0;
	if (strlen(where) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		free(peer);
		return err_set(-ENAMETOOLONG, "%s: too long for a socket's path", where);
	}
	peer->fd = where[0] == '/' ? connect_unix(where) : connect_tcp(where);
	if (peer->fd < 0) {
		int error = errno;

		free(peer);
		return err_set(-error, "%s: %s", where, strerror(error));
	}
	*ret_peer = peer;
	return 0;
}

static int send_all(struct peer *peer, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t sent = send(peer->fd, data, size, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			return err_set(-errno, "send: %s", strerror(errno));
		if (sent > 0) {
			data += sent;
			size -= (size_t)sent;
		}
	}
	return 0;
}

/* Receives behind what the buffer holds already. */
static int receive(struct peer *peer, size_t *inout_held)
{
	ssize_t got;

	do {
		got = recv(peer->fd, peer->buffer + *inout_held, BUFFER_BYTES - *inout_held, 0);
	} while (got < 0 && errno == EINTR);
	if (got <= 0)
		return err_set(-ECONNRESET, "memcached closed the connection");
	*inout_held += (size_t)got;
	return 0;
}

static int memcached_flush(struct peer *peer)
{
	size_t held = 0;
	int ret = send_all(peer, peer->buffer, peer->filled);

	peer->filled = 0;
	if (ret == 0)
		ret = send_all(peer, "mn\r\n", 4);
	while (ret == 0 && held < 4)
		ret = receive(peer, &held);
	if (ret == 0 && memcmp(peer->buffer, "MN\r\n", 4) != 0)
		ret = err_set(-EPROTO, "memcached answered '%.*s'",
			      (int)strcspn(peer->buffer, "\r"), peer->buffer);
	return ret;
}

static int memcached_load(struct peer *peer, const void *key, size_t key_size, const void *value,
			  size_t value_size)
{
	char *at = peer->buffer + peer->filled;

	at += sprintf(at, "ms %.*s %zu q\r\n", (int)key_size, (const char *)key, value_size);
	memcpy(at, value, value_size);
	memcpy(at + value_size, "\r\n", 2);
	peer->filled = (size_t)(at + value_size + 2 - peer->buffer);
	return peer->filled < FLUSH_BYTES ? 0 : memcached_flush(peer);
}

static int64_t memcached_get(struct peer *peer, const void *key, size_t key_size, void *ret_value,
			     size_t capacity)
{
	char request[1100], *line;
	size_t held = 0, value_size;
	int ret;

	memcpy(request, "mg ", 3);
	memcpy(request + 3, key, key_size);
	memcpy(request + 3 + key_size, " v\r\n", 4);
	ret = send_all(peer, request, key_size + 7);
	do {
		if (ret == 0)
			ret = receive(peer, &held);
		if (ret < 0)
			return ret;
		line = memchr(peer->buffer, '\n', held);
	} while (!line);
	if (memcmp(peer->buffer, "EN\r\n", 4) == 0)
		return -ENOENT;
	value_size = strtoul(peer->buffer + 3, NULL, 10);
	if (memcmp(peer->buffer, "VA ", 3) != 0 || value_size > capacity)
		return err_set(-EPROTO, "memcached answered '%.*s'", (int)(line - peer->buffer),
			       peer->buffer);
	while (held < (size_t)(line + 1 - peer->buffer) + value_size + 2) {
		ret = receive(peer, &held);
		if (ret < 0)
			return ret;
	}
	memcpy(ret_value, line + 1, value_size);
	return (int64_t)value_size;
}

static void memcached_close(struct peer *peer)
{
	close(peer->fd);
	free(peer);
}

const struct peer_ops peer_ops = {
	.name = "memcached",
	.open = memcached_open,
	.load = memcached_load,
	.flush = memcached_flush,
	.get = memcached_get,
	.close = memcached_close,
};
