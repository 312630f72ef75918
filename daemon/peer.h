/* SPDX-License-Identifier: BSD-2-Clause */
/* peer.h - one connection on a unix socket: before its handshake, a client, or a question of the
 * command tarn */
#ifndef TARN_DAEMON_PEER_H
#define TARN_DAEMON_PEER_H

#include "daemon.h"

/* A connection that came in at this listener. Takes the descriptor, also when it fails. */
void peer_accept(struct daemon *daemon, const struct config_listen *listener, int fd);
/*
 * The configurations of the listeners have moved: the one that was old[i] is now[i], NULL: removed.
 * Who came in at such a one may finish its questions, and can not become a client any more.
 */
void peers_relisten(struct daemon *daemon, const struct config_listen *old,
		    const struct config_listen *const *now);
/* All of them: the daemon stops. Pages of clients stay what they are; the pool ends, too. */
void peers_free(struct daemon *daemon);

#endif
