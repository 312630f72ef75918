/* SPDX-License-Identifier: BSD-2-Clause */
/* replay.h - signed handshake requests that have been used, so that each is used only once */
#ifndef TARN_DAEMON_REPLAY_H
#define TARN_DAEMON_REPLAY_H

#include <stdint.h>

#include "wire.h"

#define REPLAY_ENTRIES 262144u /* with the usual window: 870 handshakes a second */

enum replay_result {
	REPLAY_NEW,  /* and is remembered from now on */
	REPLAY_SEEN, /* has been used */
	REPLAY_OLD,  /* so old that it may be among those that have been forgotten */
	REPLAY_FULL, /* all that is remembered is still needed: try again later */
};

struct replay;

/*
 * Remembers up to `entries` (a power of two) requests, each until the window has passed since the
 * time that is in it. NULL without memory.
 */
struct replay *replay_create(uint32_t entries, uint64_t window_ms);
void replay_free(struct replay *replay);
/* All times by the wall clock. The MAC has been checked: who has no key fills no table. */
enum replay_result replay_remember(struct replay *replay, const uint8_t key_id[WIRE_KEY_ID_BYTES],
				   uint64_t nonce, uint64_t time_ms, uint64_t now_ms);

#endif
