/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-shm.h - inside of the endpoint on shared memory
 *
 * fabric-shm.c moves data and carries RPCs, fabric-shm-space.c maps regions, fabric-shm-connect.c makes
 * an endpoint.
 */
#ifndef TARN_FABRIC_SHM_H
#define TARN_FABRIC_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fabric.h"

#define HELD_REQUESTS 256u
#define HELD_POSTS    128u
#define DONE          256u /* completions that poll has not given yet; a power of two */

/* Posts that were kept back. */
struct held {
	bool on;
	unsigned requests_used, posts_used;
	struct fabric_request requests[HELD_REQUESTS];
	struct {
		unsigned count;
		void *cookie;
	} posts[HELD_POSTS];
	struct fabric_completion done[DONE];
	unsigned done_head, done_tail; /* free running */
};

/* A region's memory: its bytes, and behind them, at `tail`, the daemon's page. */
struct shm_space {
	uint8_t *base; /* NULL: there is none */
	uint64_t bytes, mapped_bytes;
	const uint64_t *tail;
	bool read_only;
	int passed; /* the descriptor that the daemon has sent for it; -1: none */
};

struct shm_endpoint {
	struct fabric_endpoint ep;
	uint8_t *base;
	struct shm_space *spaces; /* FABRIC_SPACES; NULL: there were none */
	bool stored;              /* to one of them, and it may not have left the processor yet */
	int socket;               /* -1: attached to memory only */
	pid_t mapped;             /* the process whose mapping `base` is ours to unmap; 0: none */
	bool lost;
	uint64_t spin_ns; /* how long a wait polls before it sleeps */
	uint32_t stale;   /* replies to RPCs that were given up: to be dropped */
	/* the RPC in flight */
	bool rpc_busy;
	void *rpc_cookie, *rpc_reply;
	size_t rpc_capacity;
	struct held held;
};

static inline struct shm_endpoint *shm(struct fabric_endpoint *ep)
{
	return (struct shm_endpoint *)ep;
}

/* ---- fabric-shm-connect.c ---- */

/* Can nobody make this memory, which came over that socket, smaller under us? */
bool fabric_shm_memory_stays(int socket, int memory, const struct stat *st);

/* ---- fabric-shm-space.c: see struct fabric_ops ---- */

int fabric_shm_space_add(struct fabric_endpoint *ep, unsigned space,
			 const struct wire_region *pieces, unsigned count, uint64_t bytes,
			 bool read_only);
void fabric_shm_space_remove(struct fabric_endpoint *ep, unsigned space);
bool fabric_shm_space_alive(struct fabric_endpoint *ep, unsigned space);
/* A descriptor came with this message; takes it over. */
void fabric_shm_space_passed(struct shm_endpoint *s, const void *message, size_t bytes, int fd);
/* The endpoint ends. `ours`: the mappings are this process's. */
void fabric_shm_spaces_free(struct shm_endpoint *s, bool ours);

#endif
