/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect.c - opening and closing a session: URI, credentials, handshake, superblock
 *
 * The transport carries the handshake's bytes; what they say is decided here. Runs on the caller's
 * thread. Next: fabric.h for the transports, session.c for what a session consists of.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth.h"
#include "clock.h"
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

struct handshake {
	const struct uri *uri;
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
		.flags = flags & TARN_READONLY ? WIRE_REQUEST_READONLY : 0,
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

static int refused(struct handshake *h, size_t bytes)
{
	struct wire_reject reject;
	int ret = wire_reject_decode(h->answer, bytes, &reject);

	if (ret < 0)
		return ret;
	if (reject.reason == WIRE_REASON_NO_POOL)
		return err_set(-TARN_ENOPOOL, "tarnd has no pool '%s': `tarn pools` lists them",
			       h->uri->pool);
	return err_set(wire_reason_code(reject.reason),
		       "tarnd refused the connection: %s (detail %llu)",
		       wire_reason_text(reject.reason), (unsigned long long)reject.detail);
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
	return 0;
}

static int read_superblock(struct fabric_endpoint *ep, uint64_t timeout_ns,
			   struct layout_superblock *ret_superblock)
{
	struct fabric_request r = {
		.opcode = FABRIC_READ, .length = sizeof(*ret_superblock), .local = ret_superblock};
	struct fabric_completion completion = {.status = 0};
	uint64_t limit = fabric_now(ep) + timeout_ns;
	int ret = ep->pool_bytes < sizeof(*ret_superblock) ? -EINVAL
							   : fabric_post(ep, &r, 1, ret_superblock);

	while (ret == 0 && fabric_now(ep) < limit && (ret = fabric_poll(ep, &completion, 1)) == 0)
		ep->ops->wait(ep, 1000000);
	if (ret == 0)
		return err_set(-TARN_ETIMEOUT, "the pool's superblock could not be read in time");
	if (ret < 0 || completion.status < 0)
		return err_set(-TARN_EPROTO, "the pool's superblock cannot be read");
	return 0;
}

static int attach(struct handshake *h, struct fabric_endpoint *ep,
		  const struct tarn_options *options, struct tarn_session **ret_session)
{
	struct layout_superblock superblock;
	struct layout_geometry geometry;
	struct session_identity identity = {
		.client_id = h->reply.client_id,
		.client_slot = h->reply.client_slot,
		.read_only = options->flags & TARN_READONLY,
	};
	int ret = read_superblock(ep, options->timeout_ms * 1000000ull, &superblock);

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
	return session_create(ep, &geometry, &identity, options, ret_session);
}

static int shake_hands(struct handshake *h, const struct tarn_options *options,
		       struct tarn_session **ret_session)
{
	struct fabric_address address = {.path = h->uri->path[0] ? h->uri->path : NULL,
					 .host = h->uri->host,
					 .port = h->uri->port};
	const struct fabric_transport *transport = fabric_transport_for(&address);
	struct fabric_endpoint *ep = NULL;
	size_t bytes;
	int ret;

	if (!transport)
		return err_set(-TARN_ENOTBUILT,
			       "host %s: access from other hosts (RDMA) is not built yet; on the "
			       "daemon's own host use "
			       "tarn:SOCKET-PATH?pool=%s",
			       h->uri->host, h->uri->pool);
	build_request(h, options->flags);
	ret = transport->connect(&address, h->request, sizeof(h->request),
				 options->timeout_ms * 1000000ull, h->answer, sizeof(h->answer),
				 &bytes, &ep);
	if (ret < 0)
		return ret;
	if (!ep)
		return bytes == WIRE_REPLY_BYTES
			       ? err_set(-TARN_EPROTO,
					 "tarnd answered without giving access to the pool")
			       : refused(h, bytes);
	ret = accepted(h, bytes, ep, options->flags);
	if (ret < 0) {
		ep->ops->close(ep);
		return ret;
	}
	return attach(h, ep, options, ret_session);
}

/* ---- public ---------------------------------------------------------------------------------- */

static int open_session(const struct uri *uri, const struct tarn_options *options,
			struct tarn_session **ret_session)
{
	struct handshake h = {.uri = uri};
	struct tarn_session *s;
	int ret = auth_init();

	if (ret == 0)
		ret = load_key(options->key_file, &h.key, &h.have_key);
	if (ret == 0)
		ret = shake_hands(&h, options, &s);
	explicit_bzero(&h.key, sizeof(h.key));
	if (ret < 0)
		return ret;
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

TARN_API int tarn_session_open(const char *uri_text, const struct tarn_options *options,
			       struct tarn_session **ret_session)
{
	struct tarn_options merged;
	struct uri *uri;
	int ret;

	if (!uri_text || !ret_session)
		return err_set(-EINVAL, "uri and ret_session must not be NULL");
	uri = malloc(sizeof(*uri));
	if (!uri)
		return err_set(-ENOMEM, "no memory for a session");
	ret = uri_parse(uri_text, uri);
	if (ret == 0)
		ret = merge_options(options, uri, &merged);
	if (ret == 0)
		ret = open_session(uri, &merged, ret_session);
	free(uri);
	return ret;
}

TARN_API void tarn_session_close(struct tarn_session *session)
{
	if (!session)
		return;
	/* in a forked child nothing of it is ours but the memory */
	if (session->fork_generation == session_fork_generation()) {
		if (!(session->flags & TARN_NO_THREAD))
			housekeeping_remove(session);
		if (!session->lost)
			session_run(session, process_start(session->process, true));
	}
	session_free(session);
}
