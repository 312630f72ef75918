/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire.h - handshake, RPC and control messages: what they say, bounded encode and decode
 *
 * Little-endian, packed by hand, fixed sizes; no struct is ever sent as it stands in memory. The
 * handshake's messages are the same on every transport: they fit rdma_cm's private data (56 bytes
 * in a request, 196 in a reply, 148 in a reject). On the unix socket (SOCK_SEQPACKET) each message
 * is one packet. A decoder gets bytes from a stranger: it checks length, magic, version and every
 * range, and returns 0 or -TARN_EPROTO (or -TARN_EVERSION) with a text.
 *
 * The first packet of a connection says what it is: a handshake request (WIRE_MAGIC) or a control
 * request (WIRE_CONTROL_MAGIC).
 */
#ifndef TARN_WIRE_H
#define TARN_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC         0x4e524154u /* "TARN" */
#define WIRE_CONTROL_MAGIC 0x43524154u /* "TARC" */
#define WIRE_VERSION_MIN   1u
#define WIRE_VERSION_MAX   1u

#define WIRE_REQUEST_BYTES 56u
#define WIRE_REPLY_BYTES   196u
#define WIRE_REJECT_BYTES  32u
#define WIRE_MAC_BYTES     16u
#define WIRE_KEY_ID_BYTES  8u
#define WIRE_REGIONS       4u
#define WIRE_POOL_NAME_MAX 63u /* [a-zA-Z0-9._-]+ */

/* ---- handshake ------------------------------------------------------------------------------- */

#define WIRE_REQUEST_READONLY 0x1u /* the client will only read */
/* it knows shard words (docs/protocol.md section 11): only with this is a pool of a cluster given */
#define WIRE_REQUEST_CLUSTER 0x2u

/*
 * 56 bytes: magic 4, version_min 1, version_max 1, flags 2, pool 8, key_id 8, time 8, nonce 8, mac
 * 16
 */
struct wire_request {
	uint8_t version_min, version_max;
	uint16_t flags;
	uint64_t pool; /* wire_pool_hash(name) */
	/* 1 to 8 bytes of [a-zA-Z0-9._-], zero padded; all zero: no authentication */
	uint8_t key_id[WIRE_KEY_ID_BYTES];
	uint64_t time_ms;            /* client's wall clock */
	uint64_t nonce;              /* random */
	uint8_t mac[WIRE_MAC_BYTES]; /* auth.h; over the 40 bytes before it; zero without a key */
};

struct wire_region {
	/* of the pool's first byte in this region at the daemon; 0 for shared memory */
	uint64_t address;
	uint64_t length; /* regions follow each other in the pool */
	uint32_t rkey;   /* 0 for shared memory */
	uint32_t flags;  /* 0 */
};

/*
 * 196 bytes: magic 4, version 1, region_count 1, role 1, atomics 1, incarnation 8, boot_id 8,
 * client_id 4, client_slot 2, reserved 2, regions 4 x 24, deadline_us 4, epoch_us 4, grace_us 4,
 * layout_version 4, pool_bytes 8, nonce 8, map_epoch 8, cluster 8, reserved 4, mac 16
 */
enum wire_role { WIRE_ROLE_READ = 1, WIRE_ROLE_WRITE = 2 };
struct wire_reply {
	uint8_t version;
	uint8_t region_count; /* 1 to WIRE_REGIONS */
	uint8_t role;         /* enum wire_role */
	uint8_t atomics;      /* enum layout_atomics */
	uint64_t incarnation, boot_id;
	uint32_t client_id;
	uint16_t client_slot;
	struct wire_region regions[WIRE_REGIONS];
	uint32_t deadline_us, epoch_us, grace_us; /* D, E, G */
	uint32_t layout_version;
	/* sum of the regions' lengths; when there are WIRE_REGIONS of them, more may follow by RPC */
	uint64_t pool_bytes;
	uint64_t nonce; /* the request's */
	/* of a pool of a cluster: the epoch of the map that the daemon has (0: none), and cluster_hash(); else 0 */
	uint64_t map_epoch, cluster;
	/*
	 * over the request's 56 bytes and the reply's first 180: the daemon knows the secret, too
	 */
	uint8_t mac[WIRE_MAC_BYTES];
};

enum wire_reason {
	WIRE_REASON_NONE = 0,        /* never sent */
	WIRE_REASON_VERSION = 1,     /* no version in common; detail: the daemon's min | max << 8 */
	WIRE_REASON_NO_POOL = 2,     /* unknown pool */
	WIRE_REASON_NO_KEY = 3,      /* the pool wants authentication and the client has none */
	WIRE_REASON_UNKNOWN_KEY = 4, /* key id unknown */
	WIRE_REASON_BAD_MAC = 5,     /* wrong secret, or altered */
	/*
	 * clocks differ too much; detail: the daemon's wall clock, ms. With retry_after_ms: signed
	 * before the daemon has started
	 */
	WIRE_REASON_TIME = 6,
	WIRE_REASON_ROLE = 7,     /* the key may only read: open with readonly */
	WIRE_REASON_CLIENTS = 8,  /* max_clients reached; detail: max_clients */
	WIRE_REASON_SHUTDOWN = 9, /* the daemon is stopping */
	WIRE_REASON_MALFORMED = 10, /* the request could not be decoded */
	WIRE_REASON_INTERNAL = 11,  /* the daemon's log says more */
	WIRE_REASON_BUSY = 12,      /* too many connects at once: try again after retry_after_ms */
	WIRE_REASON_REPLAY = 13,    /* the key's request with this nonce has been used before */
	WIRE_REASON_ADDRESS = 14,   /* too many connections from this address; detail: the limit */
	WIRE_REASON_TRANSPORT = 15, /* the pool is not offered at this listener, or not for writing */
	WIRE_REASON_CLUSTER = 16,   /* the pool is a part of a cluster's, and the client does not know of clusters */
	WIRE_REASON_LAST = 16
};
/*
 * 32 bytes: magic 4, version_min 1, version_max 1, reason 2, detail 8, retry_after_ms 4, reserved
 * 12
 */
struct wire_reject {
	uint8_t version_min, version_max;
	uint16_t reason; /* enum wire_reason; a number this build does not know is kept */
	uint64_t detail;
	uint32_t retry_after_ms; /* 0: trying again is useless */
};

uint64_t wire_pool_hash(const char *name); /* XXH3 64 of the name */
void wire_request_encode(const struct wire_request *request, uint8_t buffer[WIRE_REQUEST_BYTES]);
int wire_request_decode(const void *buffer, size_t bytes, struct wire_request *ret_request);
void wire_reply_encode(const struct wire_reply *reply, uint8_t buffer[WIRE_REPLY_BYTES]);
int wire_reply_decode(const void *buffer, size_t bytes, struct wire_reply *ret_reply);
void wire_reject_encode(const struct wire_reject *reject, uint8_t buffer[WIRE_REJECT_BYTES]);
int wire_reject_decode(const void *buffer, size_t bytes, struct wire_reject *ret_reject);
/* The reason in words, with remedy; never NULL. */
const char *wire_reason_text(uint16_t reason);
/* The TARN_E* (negative) that a client returns for a reason. */
int wire_reason_code(uint16_t reason);

/* ---- RPC, after the handshake ---------------------------------------------------------------- */

#define WIRE_RPC_MAX_BYTES 64u /* requests and replies */

enum wire_rpc_type {
	WIRE_RPC_PING = 1,
	WIRE_RPC_PAGE = 2,   /* a page to claim for a size class */
	WIRE_RPC_ADD = 3,    /* add to a counter in a cpu domain */
	WIRE_RPC_NUMBER = 4, /* a new client id: the sequence numbers of the old one are used up */
	WIRE_RPC_CAS = 5,    /* in a cpu domain, for those who cannot do it themselves */
	WIRE_RPC_FAA = 6,    /* likewise */
	WIRE_RPC_REGION =
		7, /* the region of this index, when there are more than the reply holds */
	WIRE_RPC_GROW = 8, /* no slot for a key: its subtable is to be split */
	WIRE_RPC_REGION_CALL = 9, /* about applications' regions: struct wire_region_request */
	/* from the daemon, unasked: somebody has notified a region that this client waits for */
	WIRE_RPC_NOTICE = 10,
	WIRE_RPC_MAP = 11, /* the cluster's map: how new it is, and where it is */
	WIRE_RPC_READY = 12, /* of a member that moves a shard to here: may it be copied? */
	WIRE_RPC_LAST = 12
};

/* What READY is answered with. */
enum wire_ready {
	WIRE_READY_NOT_YET = 0,
	WIRE_READY_NOW = 1,
	WIRE_READY_ANOTHER = 2, /* who answers is not the member that is asked */
};

/*
 * 40 bytes: type 1, reserved 3, tag 4, then by type: class 4 | slot_offset 8, slot_word 8, delta 8,
 * CAS, FAA and READY: class 4 | GROW: class 4, slot_offset 8, slot_word 8
 */
struct wire_rpc {
	uint8_t type;
	uint32_t tag;   /* comes back in the reply */
	/*
	 * PAGE: size class. REGION: index. GROW: depth of the subtable. CAS, FAA: space (fabric.h). MAP: 0: how
	 * new it is; 1: where it is. READY: shard; of several, the first one's place (handover.h)
	 */
	uint32_t class;
	/*
	 * ADD: the slot and the committed word that the client found there. CAS, FAA: offset of the
	 * word; CAS: the word expected. GROW: the key's hash, low and high half. READY: the shard's `since` in the
	 * asker's map, and the number of its attempt; of several, the hash in place of `since`
	 */
	uint64_t slot_offset, slot_word;
	/* ADD, FAA: what to add. CAS: the new word. READY: the asking member's number, << 16 that of who is asked, << 32 the places; 0: one shard */
	int64_t delta;
};
#define WIRE_RPC_BYTES 40u

/* 32 bytes: type 1, reserved 3, tag 4, status 4, number 4, value 8, length 8 */
struct wire_rpc_reply {
	uint8_t type;
	uint32_t tag;
	/*
	 * 0, or a negative TARN_E*: PAGE -TARN_EPOOLFULL; GROW -TARN_EPOOLFULL: no page for a
	 * subtable, -TARN_EINDEXFULL: max_depth is reached; ADD -TARN_ESTAMP: the slot holds
	 * another word, nothing was added, find again; -TARN_ECONFLICT: it changed while adding;
	 * -TARN_ETYPE: not a counter; MAP -TARN_ENOTFOUND: it has none that it may give; any -TARN_EPROTO: the
	 * request makes no sense; -TARN_EREADONLY
	 */
	int32_t status;
	/*
	 * PAGE and GROW with -TARN_EPOOLFULL: 1: memory for the class, or whole pages, rest: ask again
	 * in a while; 0: none does, as of the daemon's last walk over the pages. Then `length` is how
	 * many walks are complete, `value` the number of the one behind which 0 is the last word: it
	 * has not begun yet, so it sees all that was deleted before the question.
	 */
	/*
	 * PAGE: the page; NUMBER: the client id; REGION: rkey. MAP 0: the member's number; 1: bytes of the
	 * map (cluster-wire.h). READY: enum wire_ready
	 */
	uint32_t number;
	/*
	 * ADD: the counter after the add. CAS, FAA: the word as it was before. REGION: address. MAP 0: the
	 * epoch; 1: the map's place in the pool. READY: the process' boot id, as in its member record; of another
	 * member than is asked: its number
	 */
	int64_t value;
	/* REGION: bytes. MAP 0: nanoseconds since that epoch was known to be the newest; 1: the map's checksum */
	uint64_t length;
};
#define WIRE_RPC_REPLY_BYTES 32u

void wire_rpc_encode(const struct wire_rpc *rpc, uint8_t buffer[WIRE_RPC_BYTES]);
int wire_rpc_decode(const void *buffer, size_t bytes, struct wire_rpc *ret_rpc);
void wire_rpc_reply_encode(const struct wire_rpc_reply *reply,
			   uint8_t buffer[WIRE_RPC_REPLY_BYTES]);
int wire_rpc_reply_decode(const void *buffer, size_t bytes, struct wire_rpc_reply *ret_reply);

/* ---- applications' regions (tarn/region.h), wire-region.c ------------------------------------ */

#define WIRE_REGION_BYTES      64u /* a request, and a reply */
#define WIRE_REGION_NAME_BYTES 40u /* zero padded; the last one is 0 */

enum wire_region_call {
	WIRE_REGION_CREATE = 1,
	WIRE_REGION_OPEN = 2,
	WIRE_REGION_MEMORY = 3, /* one of the pieces in which an open region is registered */
	WIRE_REGION_CLOSE = 4,
	WIRE_REGION_STAT = 5,
	WIRE_REGION_LIST = 6, /* the one with the next id */
	WIRE_REGION_RESIZE = 7,
	WIRE_REGION_DESTROY = 8,
	WIRE_REGION_NOTIFY = 9, /* wakes who waits */
	WIRE_REGION_WAIT = 10,  /* tells the sequence; one NOTICE when there is a later one */
	WIRE_REGION_LAST = 10
};
#define WIRE_REGION_OPEN_READONLY 0x1u
/*
 * NOTIFY where the transport has WRITEs with immediate data: the last bytes are written so, and the answer is the
 * same. The immediate, in network byte order: handle 8 bits, the answer's tag 24 bits.
 */
#define WIRE_NOTIFY_TAG_MASK 0xffffffu
static inline uint32_t wire_notify_immediate(uint32_t handle, uint32_t tag)
{
	return handle << 24 | (tag & WIRE_NOTIFY_TAG_MASK);
}

/* type 1, call 1, flags 2, tag 4, handle 4, index 4, number 8, name 40 */
struct wire_region_request {
	uint8_t call; /* enum wire_region_call */
	uint16_t flags;
	uint32_t tag;
	/* OPEN: 1 to TARN_REGION_OPEN_MAX, the client's choice: what it has open there is closed; it is the
	 * space of fabric.h. MEMORY, CLOSE, NOTIFY, WAIT: that one */
	uint32_t handle;
	uint32_t index;  /* MEMORY */
	uint64_t number; /* CREATE, RESIZE: bytes. LIST: an id. WAIT: the sequence that is known */
	char name[WIRE_REGION_NAME_BYTES];
};

/*
 * type 1, call 1, state 1, reserved 1, tag 4, status 4, handle 4, id 8, then LIST: name 40; else bytes 8,
 * value 8, length 8, created_ms 8, number 4, reserved 4
 */
struct wire_region_reply {
	uint8_t call, state; /* enum tarn_region_state */
	uint32_t tag;
	int32_t status;
	uint32_t handle; /* OPEN: the request's */
	uint64_t id;
	uint64_t bytes;  /* OPEN, STAT, CREATE, RESIZE */
	uint64_t value;  /* MEMORY: address. STAT: bytes ready. NOTIFY, WAIT: the sequence */
	uint64_t length; /* MEMORY. STAT: how many ready bytes it takes */
	uint64_t created_ms;
	uint32_t number; /* OPEN: pieces; 0: a descriptor comes along. MEMORY: rkey. STAT: opens */
	char name[WIRE_REGION_NAME_BYTES];
};

void wire_region_request_encode(const struct wire_region_request *request,
				uint8_t buffer[WIRE_REGION_BYTES]);
int wire_region_request_decode(const void *buffer, size_t bytes,
			       struct wire_region_request *ret_request);
void wire_region_reply_encode(const struct wire_region_reply *reply,
			      uint8_t buffer[WIRE_REGION_BYTES]);
int wire_region_reply_decode(const void *buffer, size_t bytes, struct wire_region_reply *ret_reply);
/* 0, or -EINVAL with a text: not 1 to 39 bytes of [a-zA-Z0-9._-]. */
int wire_region_name_check(const char *name);

/* ---- control: JSON questions of the command `tarn`, on the unix socket only ------------------ */

/*
 * A control packet: magic 4, flags 1, reserved 3, then text. The request is one packet whose text
 * is JSON ({"get":"stats"}); the reply's text, also JSON, comes in packets of up to
 * WIRE_CONTROL_CHUNK bytes of text, WIRE_CONTROL_LAST on the last one. A connection may ask again
 * after that.
 */
#define WIRE_CONTROL_HEADER      8u
#define WIRE_CONTROL_LAST        0x1u
#define WIRE_CONTROL_CHUNK       32768u
#define WIRE_CONTROL_REQUEST_MAX 4096u
#define WIRE_CONTROL_REPLY_MAX   (64u * 1024u * 1024u)

/* Writes the header of a control packet. */
void wire_control_encode(uint8_t flags, uint8_t buffer[WIRE_CONTROL_HEADER]);
/* Checks a control packet; *ret_text points into it. */
int wire_control_decode(const void *buffer, size_t bytes, uint8_t *ret_flags, const char **ret_text,
			size_t *ret_text_bytes);

#endif
