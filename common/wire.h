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
 * layout_version 4, pool_bytes 8, nonce 8, reserved 20, mac 16
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
	uint64_t pool_bytes; /* = sum of the regions' lengths */
	uint64_t nonce;      /* the request's */
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
	WIRE_REASON_TIME = 6,     /* clocks differ too much; detail: the daemon's wall clock, ms */
	WIRE_REASON_ROLE = 7,     /* the key may only read: open with readonly */
	WIRE_REASON_CLIENTS = 8,  /* max_clients reached; detail: max_clients */
	WIRE_REASON_SHUTDOWN = 9, /* the daemon is stopping */
	WIRE_REASON_MALFORMED = 10, /* the request could not be decoded */
	WIRE_REASON_INTERNAL = 11,  /* the daemon's log says more */
	WIRE_REASON_LAST = 11
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
	WIRE_RPC_LAST = 4
};

/*
 * 40 bytes: type 1, reserved 3, tag 4, then by type: class 4 | slot_offset 8, slot_word 8, delta 8
 */
struct wire_rpc {
	uint8_t type;
	uint32_t tag;   /* comes back in the reply */
	uint32_t class; /* PAGE */
	uint64_t slot_offset,
		slot_word; /* ADD: the slot and the committed word that the client found there */
	int64_t delta;     /* ADD */
};
#define WIRE_RPC_BYTES 40u

/* 32 bytes: type 1, reserved 3, tag 4, status 4, number 4, value 8, reserved 8 */
struct wire_rpc_reply {
	uint8_t type;
	uint32_t tag;
	/*
	 * 0, or a negative TARN_E*: PAGE -TARN_EPOOLFULL; ADD -TARN_ESTAMP: the slot holds another
	 * word, nothing was added, find again; -TARN_ECONFLICT: it changed while adding;
	 * -TARN_ETYPE: not a counter; any -TARN_EPROTO: the request makes no sense; -TARN_EREADONLY
	 */
	int32_t status;
	/* PAGE with -TARN_EPOOLFULL: 1: memory for the class rests, ask again in a while; 0: none does */
	uint32_t number; /* PAGE: the page; NUMBER: the client id */
	int64_t value;   /* ADD: the counter after the add */
};
#define WIRE_RPC_REPLY_BYTES 32u

void wire_rpc_encode(const struct wire_rpc *rpc, uint8_t buffer[WIRE_RPC_BYTES]);
int wire_rpc_decode(const void *buffer, size_t bytes, struct wire_rpc *ret_rpc);
void wire_rpc_reply_encode(const struct wire_rpc_reply *reply,
			   uint8_t buffer[WIRE_RPC_REPLY_BYTES]);
int wire_rpc_reply_decode(const void *buffer, size_t bytes, struct wire_rpc_reply *ret_reply);

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
