/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One connection on a unix socket, from accept() to its end. Main thread; every send and receive is
 * non-blocking, and who does not take its answers is dropped. The first packet decides:
 * handshake.c, then messages for rpc.c; or control.c.
 *
 * A client that we are done with is not dead yet: its process still has the pool mapped and may be
 * in the middle of a write. So it is *expelled*: it is told by the end of the connection, and its
 * slot and pages are kept until its end of the socket is gone (docs/protocol.md section 7).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "control.h"
#include "err.h"
#include "events.h"
#include "handshake.h"
#include "peer.h"
#include "region.h"
#include "rpc.h"
#include "wire.h"

#define HANDSHAKE_MS 5000
#define CONTROL_MS   60000 /* for the next question, or for taking a part of the answer */
#define EXPELLED_MS  100   /* how often to look whether the other end has gone */
#define BATCH        32u   /* packets before others get their turn */
#define PACKET_MAX   (WIRE_CONTROL_HEADER + WIRE_CONTROL_REQUEST_MAX)

enum peer_state { PEER_NEW, PEER_CONTROL, PEER_CLIENT, PEER_EXPELLED };

struct peer {
	TAILQ_ENTRY(peer) link;
	struct daemon *daemon;
	enum peer_state state;
	int fd;
	struct event *readable, *writable, *timer;
	struct pool_client who;
	struct pool *pool; /* PEER_CLIENT and PEER_EXPELLED */
	struct rpc_client rpc;
	char *answer; /* PEER_CONTROL: being sent; NULL when not */
	size_t answer_bytes, answer_sent;
};

static void timer_set(struct peer *peer, int ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};

	event_add(peer->timer, &tv);
}

static void peer_free(struct peer *peer)
{
	TAILQ_REMOVE(&peer->daemon->peers, peer, link);
	if (peer->readable)
		event_free(peer->readable);
	if (peer->writable)
		event_free(peer->writable);
	if (peer->timer)
		event_free(peer->timer);
	close(peer->fd);
	if (peer->state == PEER_NEW || peer->state == PEER_CONTROL)
		daemon_guest_remove(peer->daemon);
	rpc_client_end(&peer->rpc);
	free(peer->answer);
	free(peer);
}

/* ---- the end ---- */

/* The client's end of the socket is gone, and with it (as far as the kernel can tell) the process.
 */
static void client_gone(struct peer *peer)
{
	pool_client_end_told(peer->pool, peer->rpc.slot, peer->who.name, "it has disconnected");
	peer_free(peer);
}

/* POLLHUP: the other end is closed. */
static bool other_end_gone(const struct peer *peer)
{
	struct pollfd pfd = {.fd = peer->fd, .events = POLLRDHUP};

	return poll(&pfd, 1, 0) > 0 && (pfd.revents & (POLLHUP | POLLERR));
}

static void expel(struct peer *peer)
{
	peer->daemon->expelled++;
	peer->state = PEER_EXPELLED;
	peer->pool->clients[peer->rpc.slot].cut = NULL; /* it can't be any more */
	event_del(peer->readable);
	shutdown(peer->fd, SHUT_WR);
	timer_set(peer, EXPELLED_MS);
}

/* Ends a connection that does not keep to the rules; err_text() says which. */
static void peer_end(struct peer *peer)
{
	if (daemon_may_log(peer->daemon))
		log_warning(peer->daemon->log, "connection of pid %u %s (uid %u): %s; closing it",
			    peer->who.pid, peer->who.name, peer->who.uid, err_text());
	if (peer->state != PEER_CLIENT)
		peer_free(peer);
	else
		expel(peer);
}

/* struct pool_client's cut: the key is revoked, or somebody has asked for it. */
static void client_cut(void *arg, const char *why)
{
	struct peer *peer = arg;

	if (peer->state != PEER_CLIENT)
		return;
	events_tell(
		peer->daemon->events, EVENT_client_cut,
		EVENT_FIELDS(.pool = peer->pool->name, .peer = peer->who.name,
			     .client = peer->pool->clients[peer->rpc.slot].client_id),
		"pool %s: client %u (slot %u, pid %u %s) is cut off: %s; the pool's memory stays "
		"mapped in it until its process ends or closes the session: end it (kill %u) to be "
		"sure",
		peer->pool->name, peer->pool->clients[peer->rpc.slot].client_id, peer->rpc.slot,
		peer->who.pid, peer->who.name, why, peer->who.pid);
	expel(peer);
}

/* ---- before the handshake ---- */

static int send_packet(int fd, const void *bytes, size_t count)
{
	if (send(fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return -errno;
}

static int send_with_fd(int fd, const void *bytes, size_t count, int passed)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = count};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	struct cmsghdr *header;

	memset(&control, 0, sizeof(control));
	header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &passed, sizeof(int));
	if (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return -errno;
}

/*
 * The memory for a client: for one that may write a descriptor of its own, with its lock, so that the
 * kernel knows how long it has the pool mapped. -1: refused, and err_text() says why.
 */
static int client_memory(struct handshake *shake)
{
	const struct pool *pool = shake->pool;
	int fd = -1, rc = 0;

	if (pool->clients[shake->slot].read_only) {
		fd = fcntl(pool->memory.fd_read_only, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			rc = err_set(-errno, "no descriptor for a client: %s", strerrordesc_np(errno));
	} else {
		rc = pool_lock_client(&pool->memory, &pool->geometry, shake->slot, &fd);
	}
	if (rc < 0)
		handshake_refuse(shake, rc == -EBUSY ? WIRE_REASON_BUSY : WIRE_REASON_INTERNAL);
	return fd;
}

/* struct rpc_client's. Who does not take it has no room for answers either, and hears of that then. */
static void on_notice(struct rpc_client *rpc)
{
	struct peer *peer = (struct peer *)(void *)((char *)rpc - offsetof(struct peer, rpc));
	uint8_t bytes[WIRE_RPC_REPLY_BYTES];

	rpc_notice(bytes);
	if (peer->state == PEER_CLIENT)
		(void)send_packet(peer->fd, bytes, sizeof(bytes));
}

/* False: the peer is no more. */
static bool on_handshake(struct peer *peer, const void *packet, size_t bytes)
{
	struct handshake shake;
	const struct pool_client *client;
	int rc, memory = -1;

	handshake(peer->daemon, packet, bytes, &peer->who, &shake);
	if (shake.pool)
		memory = client_memory(&shake);
	if (!shake.pool) {
		handshake_tell_refused(&shake, &peer->who, peer->who.name);
		(void)send_packet(peer->fd, shake.answer, shake.answer_bytes);
		peer_free(peer); /* what has been sent stays to be read */
		return false;
	}
	handshake_accept(&shake, &(struct wire_region){.length = shake.pool->geometry.pool_bytes},
			 1);
	client = &shake.pool->clients[shake.slot];
	rc = send_with_fd(peer->fd, shake.answer, shake.answer_bytes, memory);
	close(memory);
	if (rc < 0) {
		pool_client_end_told(shake.pool, shake.slot, peer->who.name,
				     "it did not take the handshake's answer");
		err_set(rc, "the handshake's reply could not be sent: %s", strerrordesc_np(-rc));
		peer_end(peer);
		return false;
	}
	pool_client_tell_connected(shake.pool, shake.slot, peer->who.name);
	peer->state = PEER_CLIENT;
	peer->pool = shake.pool;
	rpc_client_init(&peer->rpc, shake.slot, client->read_only);
	peer->rpc.notice = on_notice;
	event_del(peer->timer);
	daemon_guest_remove(peer->daemon);
	return true;
}

/* ---- clients ---- */

/*
 * An answer with a region's descriptor. Those that are on their way and have not been read count against our limit of
 * open ones: as long as they are too many, nobody can open a region.
 */
static int answer_with_fd(struct peer *peer, struct rpc_answer *answer)
{
	int rc = send_with_fd(peer->fd, answer->bytes, answer->length, answer->fd);

	if (rc != -ETOOMANYREFS)
		return rc;
	if (daemon_may_log(peer->daemon))
		log_warning(peer->daemon->log,
			    "pool %s: pid %u %s can not open a region now: too many descriptors are on "
			    "their way to clients that do not read their answers: raise LimitNOFILE",
			    peer->pool->name, peer->who.pid, peer->who.name);
	region_rpc_refuse(&peer->rpc, answer->bytes);
	return send_packet(peer->fd, answer->bytes, answer->length);
}

static bool on_rpc(struct peer *peer, const void *packet, size_t bytes)
{
	struct rpc_answer answer;
	int rc = rpc_handle(peer->pool, &peer->rpc, packet, bytes, &answer);

	if (rc < 0) {
		peer_end(peer);
		return false;
	}
	rc = answer.fd >= 0 ? answer_with_fd(peer, &answer)
			    : send_packet(peer->fd, answer.bytes, answer.length);
	if (rc == 0 || rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN)
		return true; /* gone is what the next recv() says */
	if (rc == -EAGAIN || rc == -EWOULDBLOCK || rc == -ENOBUFS)
		err_set(rc, "does not read the replies to its messages");
	else
		err_set(rc, "the reply to its message could not be sent: %s", strerrordesc_np(-rc));
	peer_end(peer);
	return false;
}

/* ---- control ---- */

/* Sends as much of the answer as the socket takes. False: the peer is no more. */
static bool answer_send(struct peer *peer)
{
	uint8_t packet[WIRE_CONTROL_HEADER + WIRE_CONTROL_CHUNK];

	while (peer->answer) {
		size_t left = peer->answer_bytes - peer->answer_sent,
		       part = left < WIRE_CONTROL_CHUNK ? left : WIRE_CONTROL_CHUNK;
		int rc;

		wire_control_encode(part == left ? WIRE_CONTROL_LAST : 0, packet);
		memcpy(packet + WIRE_CONTROL_HEADER, peer->answer + peer->answer_sent, part);
		rc = send_packet(peer->fd, packet, WIRE_CONTROL_HEADER + part);
		if (rc == -EAGAIN || rc == -EWOULDBLOCK || rc == -ENOBUFS) {
			event_add(peer->writable, NULL);
			return true;
		}
		if (rc < 0) {
			peer_free(peer);
			return false;
		}
		timer_set(peer, CONTROL_MS);
		peer->answer_sent += part;
		if (part == left) {
			free(peer->answer);
			peer->answer = NULL;
		}
	}
	event_del(peer->writable);
	event_add(peer->readable, NULL);
	return true;
}

static bool on_control(struct peer *peer, const void *packet, size_t bytes)
{
	const char *text;
	uint8_t flags;
	size_t length;
	int rc = wire_control_decode(packet, bytes, &flags, &text, &length);

	if (rc < 0) {
		peer_end(peer);
		return false;
	}
	peer->state = PEER_CONTROL;
	peer->answer =
		control_answer(peer->daemon, peer->who.uid, text, length, &peer->answer_bytes);
	peer->answer_sent = 0;
	if (!peer->answer) {
		err_set(-ENOMEM, "no memory for the answer to its question");
		peer_end(peer);
		return false;
	}
	event_del(peer->readable); /* one question at a time */
	return answer_send(peer);
}

/* ---- events ---- */

static bool on_packet(struct peer *peer, const void *packet, size_t bytes)
{
	uint32_t magic = 0;

	if (peer->state == PEER_CLIENT)
		return on_rpc(peer, packet, bytes);
	if (peer->state == PEER_CONTROL)
		return on_control(peer, packet, bytes);
	if (bytes >= sizeof(magic))
		memcpy(&magic, packet, sizeof(magic)); /* little-endian, as we are (layout.h) */
	return magic == WIRE_CONTROL_MAGIC ? on_control(peer, packet, bytes)
					   : on_handshake(peer, packet, bytes);
}

/* recv() gave 0 or an error: the end, or an empty packet. */
static void on_end(struct peer *peer, int error)
{
	if (error == 0 && !other_end_gone(peer)) {
		err_set(-EPROTO, "sent an empty packet or closed one direction only");
		peer_end(peer);
		return;
	}
	if (peer->state == PEER_CLIENT)
		client_gone(peer);
	else
		peer_free(peer);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct peer *peer = arg;
	uint64_t packet[PACKET_MAX / 8 + 1];

	(void)what;
	for (unsigned int i = 0; i < BATCH; i++) {
		/* MSG_TRUNC: the packet's true length; descriptors that come along are closed by
		 * the kernel */
		ssize_t bytes = recv(fd, packet, PACKET_MAX, MSG_DONTWAIT | MSG_TRUNC);

		if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return;
		if (bytes <= 0) {
			on_end(peer, bytes < 0 ? errno : 0);
			return;
		}
		if ((size_t)bytes > PACKET_MAX) {
			err_set(-EPROTO, "sent a packet of %zd bytes, allowed are up to %u", bytes,
				PACKET_MAX);
			peer_end(peer);
			return;
		}
		if (!on_packet(peer, packet, (size_t)bytes) || peer->answer)
			return;
	}
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)answer_send(arg);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct peer *peer = arg;

	(void)fd;
	(void)what;
	if (peer->state == PEER_EXPELLED) {
		if (other_end_gone(peer))
			client_gone(peer);
		else
			timer_set(peer, EXPELLED_MS);
		return;
	}
	if (peer->state == PEER_NEW)
		err_set(-ETIMEDOUT, "sent no handshake within %d s", HANDSHAKE_MS / 1000);
	else
		err_set(-ETIMEDOUT, "was idle for %d s", CONTROL_MS / 1000);
	peer_end(peer);
}

/* Who is it? The name is for people: a process can choose it. */
static void who_fill(struct peer *peer)
{
	struct ucred cred = {.pid = 0, .uid = UINT32_MAX, .gid = UINT32_MAX};
	socklen_t length = sizeof(cred);
	char path[64];
	ssize_t got = 0;
	int fd;

	(void)getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &cred, &length);
	peer->who.pid = (uint32_t)cred.pid;
	peer->who.uid = cred.uid;
	peer->who.gid = cred.gid;
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)cred.pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = read(fd, peer->who.name, sizeof(peer->who.name) - 1);
		close(fd);
	}
	peer->who.name[got > 0 ? got : 0] = '\0';
	peer->who.name[strcspn(peer->who.name, "\n")] = '\0';
}

void peer_accept(struct daemon *daemon, const struct config_listen *listener, int fd)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (!peer) {
		close(fd);
		return;
	}
	peer->daemon = daemon;
	peer->fd = fd;
	peer->state = PEER_NEW;
	TAILQ_INSERT_TAIL(&daemon->peers, peer, link);
	daemon_guest_add(daemon);
	who_fill(peer);
	peer->who.transport = POOL_SHM;
	peer->who.listener = listener;
	peer->who.cut = client_cut;
	peer->who.peer = peer;
	peer->readable = event_new(daemon->base, fd, EV_READ | EV_PERSIST, on_readable, peer);
	peer->writable = event_new(daemon->base, fd, EV_WRITE, on_writable, peer);
	peer->timer = evtimer_new(daemon->base, on_timer, peer);
	if (!peer->readable || !peer->writable || !peer->timer ||
	    event_add(peer->readable, NULL) < 0) {
		err_set(-ENOMEM, "out of memory");
		peer_end(peer);
		return;
	}
	timer_set(peer, HANDSHAKE_MS);
}

void peers_relisten(struct daemon *daemon, const struct config_listen *old,
		    const struct config_listen *const *now)
{
	struct peer *peer, *next;

	for (peer = TAILQ_FIRST(&daemon->peers); peer; peer = next) {
		next = TAILQ_NEXT(peer, link);
		if (!peer->who.listener)
			continue;
		peer->who.listener = now[peer->who.listener - old];
		if (!peer->who.listener && peer->state == PEER_NEW)
			peer_free(peer);
	}
}

void peers_free(struct daemon *daemon)
{
	struct peer *peer;

	while ((peer = TAILQ_FIRST(&daemon->peers)))
		peer_free(peer);
}
