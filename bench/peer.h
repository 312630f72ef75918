/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.h - the frame of the programs that tarn-bench is compared with: peer-memcached.c and
 * peer-lmdb.c
 *
 * peer.c has main(): options, the same keys and values as tarn-bench (workload.h), the same clock,
 * the same check of each value; a peer only says how to open, load and get. One run prints one line
 * of JSON; bench/vs-peers repeats runs in turns.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct peer;

struct peer_ops {
	const char *name;
	/* `where`: a socket or a directory. Returns 0, or a negative code with a text (err.h), as
	 * all of these. */
	int (*open)(const char *where, uint64_t bytes, struct peer **ret_peer);
	/* Adds a value while loading; may take effect only with flush(). */
	int (*load)(struct peer *peer, const void *key, size_t key_size, const void *value,
		    size_t value_size);
	int (*flush)(struct peer *peer);
	/* Copies the value out. Its size, -ENOENT, or another negative code with a text. */
	int64_t (*get)(struct peer *peer, const void *key, size_t key_size, void *ret_value,
		       size_t capacity);
	void (*close)(struct peer *peer);
};

extern const struct peer_ops peer_ops;
