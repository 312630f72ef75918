/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-connect.c - members of a cluster as URI and map name them: connecting, asking for the map, reading it
 *
 * Runs on the cluster's session's owner. Next to read: cluster.h, connect.c, daemon/cluster-publish.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cluster-wire.h"
#include "cluster.h"
#include "err.h"

#define CHUNK_BYTES     65536u /* of one READ */
#define CACHE_MIN_BYTES (1u << 20)
#define READS           3u /* of a map that changes meanwhile */

struct source {
	struct cluster_source base;
	struct uri uri;
	struct tarn_options options; /* merged; key_file is ours */
};

/* ---- connecting ------------------------------------------------------------------------------ */

/* Members share the location cache's memory, as they share the keys. */
static void member_options(const struct source *s, uint32_t members, uint64_t timeout_ns,
			   struct tarn_options *ret_options)
{
	uint64_t ms = timeout_ns / 1000000u;

	*ret_options = s->options;
	ret_options->flags |= TARN_NO_THREAD;
	ret_options->timeout_ms = ms ? (uint32_t)ms : 1;
	if (members > 1) {
		uint64_t cache = (ret_options->cache_bytes ? ret_options->cache_bytes : 8u << 20) /
				 members;

		ret_options->cache_bytes = cache > CACHE_MIN_BYTES ? cache : CACHE_MIN_BYTES;
	}
}

/* How many there are is not known yet; the cache is that of one of a few. */
static int open_seed(struct cluster_source *base, unsigned i, uint64_t timeout_ns,
		struct tarn_session **ret_session)
{
	struct source *s = (struct source *)base;
	struct tarn_options options;
	struct uri uri;
	int ret = uri_node(&s->uri, i, &uri);

	if (ret < 0)
		return ret;
	member_options(s, 4, timeout_ns, &options);
	ret = session_open_member(&uri, &options, 0, ret_session);
	/* not among the codes that end the list */
	return ret == -ENOENT ? -TARN_EUNREACHABLE : ret;
}

static int address_uri(const struct source *s, const struct cluster_map *map,
		       const struct cluster_address *address, struct uri *ret_uri)
{
	*ret_uri = s->uri;
	strcpy(ret_uri->pool, map->pool);
	return address->shm ? uri_set_path(ret_uri, address->text)
			    : uri_set_host(ret_uri, address->text);
}

/* A path may be another member's on this host, and a name lead elsewhere. */
static int open_address(struct source *s, const struct cluster_map *map,
			const struct cluster_member *member, const struct uri *uri,
			const struct tarn_options *options, struct tarn_session **ret_session)
{
	uint64_t timeout_ns = options->timeout_ms * 1000000ull;
	struct cluster_answer answer;
	struct tarn_session *m;
	int ret = session_open_member(uri, options, cluster_hash(map->cluster), &m);

	if (ret < 0)
		return ret;
	ret = s->base.ask(&s->base, m, timeout_ns, &answer);
	if (ret == 0 && answer.number != member->number)
		ret = err_set(-TARN_EPROTO,
			      "at %s is the member of number %u, not %s, of number %u: the map's addresses are "
			      "wrong, or a name leads to another host",
			      uri->path[0] ? uri->path : uri->host, answer.number, member->name,
			      member->number);
	if (ret < 0) {
		tarn_session_close(m);
		return ret;
	}
	*ret_session = m;
	return 0;
}

static int open_member(struct cluster_source *base, const struct cluster_map *map,
		  const struct cluster_member *member, uint64_t timeout_ns,
		  struct tarn_session **ret_session)
{
	struct source *s = (struct source *)base;
	const struct cluster_address *address;
	struct tarn_options options;
	uint32_t at = 0;
	int ret = err_set(-TARN_EUNREACHABLE, "member %s has no address that leads here",
			  member->name);

	member_options(s, map->member_count, timeout_ns, &options);
	while ((address = cluster_address_next(member->addresses, member->address_count, &at))) {
		struct uri uri;

		ret = address_uri(s, map, address, &uri);
		if (ret == 0)
			ret = open_address(s, map, member, &uri, &options, ret_session);
		if (ret == 0)
			return 0;
	}
	return ret;
}

/* ---- the map --------------------------------------------------------------------------------- */

/* With the session held. */
static int ask_one(struct tarn_session *m, uint32_t what, uint64_t limit_ns,
		   struct wire_rpc_reply *ret_reply)
{
	const struct wire_rpc rpc = {.type = WIRE_RPC_MAP, .class = what};
	int ret;

	m->limit_ns = limit_ns;
	ret = session_ask(m, &rpc, ret_reply);
	m->limit_ns = 0;
	if (ret == -TARN_ENOTFOUND)
		return err_set(-TARN_EREFUSED,
			       "the member has no map yet, or has lost its lease");
	return ret;
}

static int ask_map(struct cluster_source *base, struct tarn_session *m, uint64_t timeout_ns,
	       struct cluster_answer *ret_answer)
{
	struct wire_rpc_reply reply;
	int ret = session_hold(m);

	(void)base;
	if (ret < 0)
		return ret;
	ret = ask_one(m, 0, session_now(m) + timeout_ns, &reply);
	session_leave(m);
	if (ret == 0 && (reply.value <= 0 || (uint64_t)reply.value > CLUSTER_EPOCH_MAX))
		return err_set(-TARN_EPROTO, "the member speaks of a map of epoch %lld",
			       (long long)reply.value);
	if (ret < 0)
		return ret;
	*ret_answer = (struct cluster_answer){.epoch = (uint64_t)reply.value,
					      .age_ns = reply.length,
					      .number = (uint16_t)reply.number};
	return 0;
}

/* With the session held. */
static int read_bytes(struct tarn_session *m, uint64_t offset, uint8_t *to, size_t bytes)
{
	int ret = 0;

	for (size_t at = 0; ret == 0 && at < bytes; at += CHUNK_BYTES) {
		size_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
		struct fabric_request r = fabric_read(offset + at, to + at, (uint32_t)n);

		ret = session_sync(m, &r, 1);
	}
	return ret;
}

/* One try. -EAGAIN with a text: it was changed meanwhile. */
static int read_map(struct tarn_session *m, uint64_t limit_ns, struct cluster_map **ret_map)
{
	struct wire_rpc_reply where;
	uint64_t offset, bytes;
	uint8_t *buffer;
	int ret = ask_one(m, 1, limit_ns, &where);

	if (ret < 0)
		return ret;
	offset = (uint64_t)where.value;
	bytes = (where.number + 7ull) & ~7ull;
	if (where.number < 16 || bytes > CLUSTER_WIRE_MAX_BYTES || offset % 8 != 0 ||
	    offset > m->geometry.pool_bytes || bytes > m->geometry.pool_bytes - offset)
		return err_set(-TARN_EPROTO,
			       "the member says that its map has %u bytes at %llu of a pool of %llu", where.number,
			       (unsigned long long)offset,
			       (unsigned long long)m->geometry.pool_bytes);
	buffer = malloc(bytes);
	if (!buffer)
		return err_set(-ENOMEM, "no memory for a cluster's map");
	ret = read_bytes(m, offset, buffer, bytes);
	/* the daemon's word counts, not what anybody may have written there */
	if (ret == 0 && cluster_wire_checksum(buffer, where.number) != where.length)
		ret = err_set(-EAGAIN, "the member's map was changed while it was read");
	if (ret == 0)
		ret = cluster_wire_decode(buffer, where.number, ret_map);
	free(buffer);
	return ret;
}

static int fetch_map(struct cluster_source *base, struct tarn_session *m, uint64_t timeout_ns,
		 struct cluster_map **ret_map)
{
	uint64_t limit_ns;
	int ret = session_hold(m);

	(void)base;
	if (ret < 0)
		return ret;
	limit_ns = session_now(m) + timeout_ns;
	ret = -EAGAIN;
	for (unsigned i = 0; ret == -EAGAIN && i < READS; i++)
		ret = read_map(m, limit_ns, ret_map);
	session_leave(m);
	return ret;
}

static uint64_t boottime(struct cluster_source *base)
{
	(void)base;
	return clock_boottime_ns();
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void source_free(struct cluster_source *base)
{
	struct source *s = (struct source *)base;

	free((char *)s->options.key_file);
	free(s);
}

int cluster_source_create(const struct uri *uri, const struct tarn_options *options,
			  struct cluster_source **ret_source)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(-ENOMEM, "no memory for a session");
	s->base = (struct cluster_source){.seed = open_seed,
					  .member = open_member,
					  .ask = ask_map,
					  .fetch = fetch_map,
					  .boottime = boottime,
					  .free = source_free};
	s->uri = *uri;
	s->options = *options;
	if (options->key_file)
		s->options.key_file = strdup(options->key_file);
	if (options->key_file && !s->options.key_file) {
		free(s);
		return err_set(-ENOMEM, "no memory for a session");
	}
	*ret_source = &s->base;
	return 0;
}

int cluster_connect(const struct uri *uri, const struct tarn_options *options,
		    struct tarn_session **ret_session)
{
	uint64_t bound_ns = uri->map_bound_ms ? uri->map_bound_ms * 1000000ull : CLUSTER_BOUND_NS;
	struct cluster_source *source;
	int ret = cluster_source_create(uri, options, &source);

	return ret < 0 ? ret : cluster_open(source, options, bound_ns, ret_session);
}
