/* SPDX-License-Identifier: BSD-2-Clause */
/* peer.h - one connection on a unix socket: before its handshake, a client, or a question of the
 * command tarn */
#ifndef TARN_DAEMON_PEER_H
#define TARN_DAEMON_PEER_H

#include "daemon.h"

/* Takes the descriptor, also when it fails. */
void peer_accept(struct daemon *daemon, int fd);
/* All of them: the daemon stops. Pages of clients stay what they are; the pool ends, too. */
void peers_free(struct daemon *daemon);

#endif
