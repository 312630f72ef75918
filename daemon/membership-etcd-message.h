/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * membership-etcd-message.h - requests to etcd's JSON gateway, and its answers, as text
 *
 * Keys and values are base64 in it, 64-bit numbers are texts, and what is zero or false is left out. Pure, any thread.
 */
#ifndef TARN_DAEMON_MEMBERSHIP_ETCD_MESSAGE_H
#define TARN_DAEMON_MEMBERSHIP_ETCD_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_ANSWER_MAX (16u << 20) /* bytes; the map and 1,023 records, in base64, are less than half of it */
#define ETCD_KVS_MAX    4096u

/* gRPC's codes, those that mean something to us */
enum etcd_code { ETCD_OK = 0, ETCD_UNKNOWN = 2, ETCD_INVALID = 3, ETCD_TIMEOUT = 4, ETCD_NOT_FOUND = 5, ETCD_DENIED = 7,
		 ETCD_EXHAUSTED = 8, ETCD_PRECONDITION = 9, ETCD_UNAVAILABLE = 14, ETCD_UNAUTHENTICATED = 16 };

struct etcd_kv {
	char *key;   /* with a 0 behind it; never with one inside */
	char *value; /* with a 0 behind it; NULL: none */
	size_t bytes;
	uint64_t create_revision, mod_revision, lease;
	bool deleted; /* an event */
};

/* All kinds of answers in one; what an answer does not have is zero. */
struct etcd_answer {
	uint64_t code; /* an error: enum etcd_code */
	char error[200];
	uint64_t cluster, revision;
	bool succeeded;         /* a transaction */
	bool created, canceled; /* a watch */
	uint64_t compact_revision;
	uint64_t lease, ttl;
	char *token;
	/* of a range, of the first range in a transaction, or a watch's events */
	struct etcd_kv *kvs;
	size_t count;
};

/* 0, -EINVAL with a text: it is none, or -ENOMEM. An error that etcd tells is an answer. */
int etcd_answer_parse(const char *text, size_t bytes, struct etcd_answer *ret_answer);
void etcd_answer_free(struct etcd_answer *answer);

struct etcd_compare {
	const char *key;
	bool create; /* its create_revision, else its mod_revision */
	uint64_t revision; /* 0: there is no such key */
};

/* The caller frees what these return; NULL: no memory. `end`: the first key behind the range; NULL: the key alone. */
char *etcd_range(const char *key, const char *end, bool keys_only);
char *etcd_watch(const char *key, const char *end, uint64_t from);
char *etcd_grant(uint64_t seconds);
char *etcd_lease(uint64_t lease);
char *etcd_authenticate(const char *user, const char *password);
/* If all of these hold the key is written, bound to the lease (0: none), else otherwise_key (NULL: none) is read. */
char *etcd_transaction(const struct etcd_compare *compares, size_t count, const char *key, const char *value,
		       size_t bytes, uint64_t lease, const char *otherwise_key);
/* The first key behind all that begin like this, which does not end with byte 255. */
char *etcd_prefix_end(const char *prefix);

#endif
