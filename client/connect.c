/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect.c - opening and closing a session: URI, credentials, handshake, superblock
 *
 * The transport carries the handshake's bytes; what they say is decided here. A session's connector
 * keeps what is needed to do it again; each try has a nonce, a time and a proof of its own, since
 * the daemon takes none twice. Runs on the session's owner. Next: fabric.h for the transports,
 * reconnect.c for when to try again, session.c for what a session consists of.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth.h"
#include "clock.h"
#include "cluster.h"
#include "engine.h"
#include "err.h"
#include "session.h"
#include "uri.h"

#define TIMEOUT_MAX_MS  3600000u
#define CACHE_MAX_BYTES (1ull << 30)
#define FLAGS_KNOWN     (TARN_READONLY | TARN_NO_THREAD | TARN_NO_CACHE)

/* ---- what the caller wants ------------------------------------------------------------------- */

static int merge_options(const struct tarn_options *options, const struct uri *uri,
			 struct tarn_options *ret_options)
{
	struct tarn_options merged = TARN_OPTIONS_INIT;

	if (options) {
		if (options->size < 2 * sizeof(uint32_t))
			return err_set(-EINVAL, "options.size is %u: start from TARN_OPTIONS_INIT",
				       options->size);
		memcpy(&merged, options,
		       options->size < sizeof(merged) ? options->size : sizeof(merged));
	}
	if (merged.flags & ~FLAGS_KNOWN)
		return err_set(-EINVAL, "options.flags is 0x%x: known are 0x%x", merged.flags,
			       FLAGS_KNOWN);
	if (merged.timeout_ms > TIMEOUT_MAX_MS)
		return err_set(-EINVAL, "options.timeout_ms is %u: at most %u", merged.timeout_ms,
			       TIMEOUT_MAX_MS);
	if (merged.cache_bytes > CACHE_MAX_BYTES)
		return err_set(-EINVAL, "options.cache_bytes is %llu: at most 1 GiB",
			       (unsigned long long)merged.cache_bytes);
	if (merged.spin_us > URI_SPIN_MAX_US)
		return err_set(-EINVAL, "options.spin_us is %u: at most %u", merged.spin_us,
			       URI_SPIN_MAX_US);
	if (uri->read_only)
		merged.flags |= TARN_READONLY;
	if (!merged.timeout_ms)
		merged.timeout_ms = uri->timeout_ms ? uri->timeout_ms : 5000;
	if (!merged.key_file)
		merged.key_file = uri->key_file[0] ? uri->key_file : getenv("TARN_KEY_FILE");
	*ret_options = merged;
	return 0;
}

/* The client's key, if it has one. *ret_key is wiped by the caller. */
static int load_key(const char *file, struct auth_key *ret_key, bool *ret_have)
{
	struct auth_keys keys;
	int ret;

	*ret_have = false;
	if (!file || !*file)
		return 0;
	ret = auth_keys_load(file, &keys);
	if (ret < 0)
		return ret;
	if (keys.count == 1) {
		*ret_key = keys.keys[0];
		*ret_have = true;
	} else {
		ret = err_set(-TARN_EAUTH, "%s: has %u keys; a client's file has one", file,
			      keys.count);
	}
	auth_keys_free(&keys);
	return ret;
}

/* ---- the handshake --------------------------------------------------------------------------- */

/* What it takes to connect, again and again. */
struct connector {
	struct session_connector base;
	struct uri uri;
	struct tarn_options options;   /* merged; key_file is ours */
	struct fabric_address address; /* points into uri */
	bool cluster;    /* the pool has to be one of a cluster */
	uint64_t expect; /* cluster_hash() of that; 0: of any */
	const struct auth_key *key; /* a mover's, instead of a file's; only while it connects */
};

struct handshake {
	const struct uri *uri;
	const struct connector *connector;
	struct auth_key key;
	bool have_key;
	uint8_t request[WIRE_REQUEST_BYTES], answer[WIRE_REPLY_BYTES];
	uint64_t nonce;
	struct wire_reply reply;
};

static void build_request(struct handshake *h, uint32_t flags)
{
	struct wire_request request = {
		.version_min = WIRE_VERSION_MIN,
		.version_max = WIRE_VERSION_MAX,
		.flags = (uint16_t)((flags & TARN_READONLY ? WIRE_REQUEST_READONLY : 0) |
				    (h->connector->cluster ? WIRE_REQUEST_CLUSTER : 0)),
		.pool = wire_pool_hash(h->uri->pool),
		.time_ms = clock_wall_ms(),
		.nonce = h->nonce = auth_random(),
	};

	if (h->have_key)
		memcpy(request.key_id, h->key.id, sizeof(request.key_id));
	wire_request_encode(&request, h->request);
	if (h->have_key)
		auth_request_sign(&h->key, h->request);
}

/* Does a refusal of this kind pass? */
static enum session_again refusal_again(const struct wire_reject *reject)
{
	switch ((enum wire_reason)reject->reason) {
	case WIRE_REASON_BUSY:
	case WIRE_REASON_SHUTDOWN:
		return reject->retry_after_ms ? SESSION_SOON : SESSION_LATER;
	/* made before the daemon's start, by its clock: the next one may be made after it */
	case WIRE_REASON_TIME:
		return reject->retry_after_ms ? SESSION_SOON : SESSION_NEVER;
	/* the places may be taken by what the daemon has not yet found to be dead: us, for one */
	case WIRE_REASON_CLIENTS:
	case WIRE_REASON_ADDRESS:
	case WIRE_REASON_INTERNAL:
		return SESSION_LATER;
	case WIRE_REASON_NONE:
	case WIRE_REASON_VERSION:
	case WIRE_REASON_NO_POOL:
	case WIRE_REASON_NO_KEY:
	case WIRE_REASON_UNKNOWN_KEY:
	case WIRE_REASON_BAD_MAC:
	case WIRE_REASON_ROLE:
	case WIRE_REASON_MALFORMED:
	case WIRE_REASON_REPLAY:
	case WIRE_REASON_TRANSPORT:
	case WIRE_REASON_CLUSTER:
		return SESSION_NEVER;
	}
	/* a reason of a later version */
	return reject->retry_after_ms ? SESSION_SOON : SESSION_NEVER;
}

/* And a failure without the daemon's word? */
static enum session_again failure_again(int code)
{
	switch (code) {
	case -EAGAIN: /* rejected by the connection manager, not by tarnd */
		return SESSION_SOON;
	case -TARN_EUNREACHABLE:
	case -TARN_ETIMEOUT:
	case -TARN_EPROTO: /* closed without an answer: it may have been killed just then */
	case -EACCES:      /* a daemon that starts sets the socket's permissions once it is there */
		return SESSION_LATER;
	default:
		return SESSION_NEVER;
	}
}

static int refused(struct handshake *h, size_t bytes, enum session_again *ret_again,
		   uint64_t *ret_wait_ns)
{
	struct wire_reject reject;
	int ret = wire_reject_decode(h->answer, bytes, &reject);

	if (ret < 0)
		return ret;
	*ret_again = refusal_again(&reject);
	*ret_wait_ns = reject.retry_after_ms * 1000000ull;
	if (reject.reason == WIRE_REASON_NO_POOL)
		return err_set(-TARN_ENOPOOL, "tarnd has no pool '%s': `tarn pools` lists them",
			       h->uri->pool);
	if (reject.reason == WIRE_REASON_CLIENTS || reject.reason == WIRE_REASON_ADDRESS)
		return err_set(wire_reason_code(reject.reason),
			       "tarnd refused the connection: %s (the limit is %llu)",
			       wire_reason_text(reject.reason), (unsigned long long)reject.detail);
	return err_set(wire_reason_code(reject.reason), "tarnd refused the connection: %s",
		       wire_reason_text(reject.reason));
}

/* Is it the pool of a cluster's member, if one is asked for? A pool of none is given to anybody. */
static int check_cluster(const struct handshake *h)
{
	const char *where = h->uri->path[0] ? h->uri->path : h->uri->host;

	if (!h->connector->cluster)
		return 0;
	if (h->reply.cluster == 0)
		return err_set(-TARN_EURI,
			       "pool %s at %s belongs to no cluster, and the URI speaks of one: open it as "
			       "tarn://HOST/POOL or tarn:SOCKET-PATH?pool=NAME, without a comma",
			       h->uri->pool, where);
	if (h->connector->expect == 0 || h->reply.cluster == h->connector->expect)
		return 0;
	return err_set(-TARN_EPROTO, "pool %s at %s belongs to another cluster", h->uri->pool,
		       where);
}

static int accepted(struct handshake *h, size_t bytes, const struct fabric_endpoint *ep,
		    uint32_t flags)
{
	int ret = wire_reply_decode(h->answer, bytes, &h->reply);

	if (ret < 0)
		return ret;
	if (h->have_key && auth_reply_check(&h->key, h->request, h->answer) < 0)
		return -TARN_EAUTH;
	if (h->reply.nonce != h->nonce)
		return err_set(-TARN_EPROTO, "tarnd answered another request");
	if (h->reply.pool_bytes != ep->pool_bytes)
		return err_set(-TARN_EPROTO,
			       "tarnd speaks of a pool of %llu bytes and gave access to %llu",
			       (unsigned long long)h->reply.pool_bytes,
			       (unsigned long long)ep->pool_bytes);
	if (!(flags & TARN_READONLY) && (ep->read_only || h->reply.role != WIRE_ROLE_WRITE))
		return err_set(-TARN_EPROTO,
			       "tarnd gave access for reading only although writing was asked for");
	return check_cluster(h);
}

static int read_superblock(struct fabric_endpoint *ep, uint64_t limit_ns,
			   struct layout_superblock *ret_superblock)
{
	struct fabric_request r = {
		.opcode = FABRIC_READ, .length = sizeof(*ret_superblock), .local = ret_superblock};
	struct fabric_completion completion = {.status = 0};
	int ret = ep->pool_bytes < sizeof(*ret_superblock) ? -EINVAL
							   : fabric_post(ep, &r, 1, ret_superblock);

	while (ret == 0 && fabric_now(ep) < limit_ns &&
	       (ret = fabric_poll(ep, &completion, 1)) == 0)
		ep->ops->wait(ep, 1000000);
	if (ret == 0)
		return err_set(-TARN_ETIMEOUT,
			       "the pool's superblock could not be read in time: is an mtu set on "
			       "one side only (mtu in tarnd.conf's [listen], mtu= in the URI)? "
			       "Else the network loses packets: see `tarn doctor`");
	if (ret == -TARN_ESESSION || completion.status == -TARN_ESESSION)
		return err_set(-EAGAIN, "the connection was lost as soon as it was made: %s",
			       err_text());
	if (ret < 0 || completion.status < 0)
		return err_set(-TARN_EPROTO, "the pool's superblock cannot be read");
	return 0;
}

static int attach(struct handshake *h, struct fabric_endpoint *ep, uint32_t flags,
		  uint64_t limit_ns, struct session_link *ret_link)
{
	struct layout_superblock superblock;
	struct layout_geometry geometry;
	struct session_identity identity = {
		.client_id = h->reply.client_id,
		.client_slot = h->reply.client_slot,
		.read_only = flags & TARN_READONLY,
	};
	int ret;

	if (h->have_key) {
		identity.owner = layout_owner(h->key.id, sizeof(h->key.id));
		memcpy(identity.key_id, h->key.id, sizeof(h->key.id));
	}
	ret = read_superblock(ep, limit_ns, &superblock);

	if (ret == 0)
		ret = layout_superblock_check(&superblock, ep->pool_bytes, &geometry);
	if (ret == 0 &&
	    (geometry.incarnation != h->reply.incarnation || geometry.boot_id != h->reply.boot_id ||
	     identity.client_slot >= geometry.max_clients))
		ret = err_set(-TARN_EPROTO,
			      "tarnd's answer does not fit the pool that it gave access to");
	if (ret < 0) {
		ep->ops->close(ep);
		return ret;
	}
	*ret_link = (struct session_link){.ep = ep, .geometry = geometry, .identity = identity};
	return 0;
}

static int shake_hands(struct connector *c, struct handshake *h, uint64_t timeout_ns,
		       struct session_link *ret_link, enum session_again *ret_again,
		       uint64_t *ret_wait_ns)
{
	const struct fabric_transport *transport = fabric_transport_for(&c->address);
	uint64_t limit_ns = clock_now_ns() + timeout_ns;
	struct fabric_endpoint *ep = NULL;
	size_t bytes;
	int ret;

	if (!transport)
		return err_set(-TARN_ENOTBUILT,
			       "host %s: this library has no transport to other hosts (it was "
			       "built without RDMA); on the daemon's own host use "
			       "tarn:SOCKET-PATH?pool=%s",
			       h->uri->host, h->uri->pool);
	build_request(h, c->options.flags);
	ret = transport->connect(&c->address, h->request, sizeof(h->request), timeout_ns, h->answer,
				 sizeof(h->answer), &bytes, &ep);
	if (ret == 0 && !ep && bytes != WIRE_REPLY_BYTES) {
		*ret_again = SESSION_NEVER;
		return refused(h, bytes, ret_again, ret_wait_ns);
	}
	if (ret == 0 && !ep)
		ret = err_set(-TARN_EPROTO, "tarnd answered without giving access to the pool");
	if (ret == 0) {
		ret = accepted(h, bytes, ep, c->options.flags);
		if (ret < 0)
			ep->ops->close(ep);
	}
	if (ret == 0)
		ret = attach(h, ep, c->options.flags, limit_ns, ret_link);
	*ret_again = failure_again(ret);
	return ret;
}

/* ---- the connector --------------------------------------------------------------------------- */

/* One try. The key file is read each time: it may have been changed. */
static int connector_connect(struct session_connector *base, uint64_t timeout_ns,
			     struct session_link *ret_link, enum session_again *ret_again,
			     uint64_t *ret_wait_ns)
{
	struct connector *c = (struct connector *)base;
	struct handshake h = {.uri = &c->uri, .connector = c};
	int ret = 0;

	if (c->key) {
		h.key = *c->key;
		h.have_key = true;
	} else {
		ret = load_key(c->options.key_file, &h.key, &h.have_key);
	}
	*ret_again = SESSION_NEVER;
	if (ret == 0)
		ret = shake_hands(c, &h, timeout_ns, ret_link, ret_again, ret_wait_ns);
	explicit_bzero(&h.key, sizeof(h.key));
	return ret;
}

static void connector_free(struct session_connector *base)
{
	struct connector *c = (struct connector *)base;

	free((char *)c->options.key_file);
	free(c);
}

static void set_address(struct connector *c)
{
	const struct uri *uri = &c->uri;

	c->address = (struct fabric_address){
		.path = uri->path[0] ? uri->path : NULL,
		.host = uri->path[0] ? NULL : uri->host,
		.port = uri->port,
		.source = uri->source[0] ? uri->source : NULL,
		.settings = uri->settings,
	};
	if (c->options.spin_us)
		c->address.settings.spin_us = c->options.spin_us;
}

/* options: merged ones. */
static int connector_new(const struct uri *uri, const struct tarn_options *options,
			 struct connector **ret_connector)
{
	struct connector *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(-ENOMEM, "no memory for a session");
	c->base.connect = connector_connect;
	c->base.free = connector_free;
	c->uri = *uri;
	c->options = *options;
	/* the caller's text, or the environment's: it has to outlive them */
	if (options->key_file)
		c->options.key_file = strdup(options->key_file);
	if (options->key_file && !c->options.key_file) {
		free(c);
		return err_set(-ENOMEM, "no memory for a session");
	}
	set_address(c);
	*ret_connector = c;
	return 0;
}

static int connector_create(const char *uri_text, const struct tarn_options *options,
			    struct connector **ret_connector)
{
	struct tarn_options merged;
	struct uri uri;
	int ret = uri_parse(uri_text, &uri);

	if (ret == 0)
		ret = merge_options(options, &uri, &merged);
	return ret < 0 ? ret : connector_new(&uri, &merged, ret_connector);
}

/* ---- public ---------------------------------------------------------------------------------- */

/* Takes the connector over. */
static int open_session(struct connector *c, struct tarn_session **ret_session)
{
	uint64_t limit_ns = clock_now_ns() + c->options.timeout_ms * 1000000ull;
	struct session_link link;
	struct tarn_session *s;
	int ret = auth_init();

	if (ret == 0)
		ret = session_connect(&c->base, limit_ns, &link);
	if (ret == 0)
		ret = session_create(link.ep, &link.geometry, &link.identity, &c->options, &s);
	if (ret < 0) {
		connector_free(&c->base);
		return ret;
	}
	s->connector = &c->base;
	if (!(s->flags & TARN_NO_THREAD)) {
		ret = housekeeping_add(s);
		if (ret < 0) {
			session_free(s);
			return ret;
		}
	}
	*ret_session = s;
	return 0;
}

int session_open_member(const struct uri *uri, const struct tarn_options *options,
			uint64_t cluster, struct tarn_session **ret_session)
{
	struct connector *c = NULL;
	int ret = connector_new(uri, options, &c);

	if (ret < 0)
		return ret;
	c->cluster = true;
	c->expect = cluster;
	return open_session(c, ret_session);
}

/* Its end is to be final: what is written through another connection would not be known to be of this one. */
int session_open_mover(const struct uri *uri, const struct tarn_options *options, uint64_t cluster,
		       const struct auth_key *key, struct tarn_session **ret_session)
{
	struct connector *c = NULL;
	int ret = connector_new(uri, options, &c);

	if (ret < 0)
		return ret;
	c->cluster = true;
	c->expect = cluster;
	c->key = key;
	ret = open_session(c, ret_session);
	if (ret < 0)
		return ret;
	(*ret_session)->connector = NULL;
	connector_free(&c->base);
	return 0;
}

TARN_API int tarn_session_open(const char *uri, const struct tarn_options *options,
			       struct tarn_session **ret_session)
{
	struct connector *c = NULL;
	int ret;

	if (!uri || !ret_session)
		return err_set(-EINVAL, "uri and ret_session must not be NULL");
	ret = connector_create(uri, options, &c);
	if (ret < 0 || !c->uri.cluster)
		return ret < 0 ? ret : open_session(c, ret_session);
	ret = cluster_connect(&c->uri, &c->options, ret_session);
	connector_free(&c->base);
	return ret;
}

static void close_cluster(struct tarn_session *session)
{
	if (session->fork_generation == session_fork_generation()) {
		if (session_hold_front(session) < 0)
			return;
		if (!(session->flags & TARN_NO_THREAD))
			housekeeping_remove(session);
	}
	cluster_close(session);
}

TARN_API void tarn_session_close(struct tarn_session *session)
{
	if (!session)
		return;
	if (session->cluster) {
		close_cluster(session);
		return;
	}
	/* in a forked child nothing of it is ours but the memory */
	if (session->fork_generation == session_fork_generation()) {
		if (session_hold(session) < 0)
			return;
		if (!(session->flags & TARN_NO_THREAD))
			housekeeping_remove(session);
		if (!session->lost && session->engine)
			engine_stop(session->engine);
		if (!session->lost)
			session_run(session, process_start(session->process, true));
	}
	session_free(session);
}
