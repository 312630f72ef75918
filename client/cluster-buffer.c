/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-buffer.c - registered memory of a cluster's session: each session with a member has it, too
 *
 * The application's buffer is the cluster's session's, which has no connection and so registers nothing; each member's session has one like
 * it, from when the application registers, or from when that session is made. Runs on the session's owner. Next to read: buffer.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "buffer-internal.h"
#include "cluster-async.h"
#include "err.h"

/* `must`: that the connection does not take it is an error. */
static int mirror(struct tarn_session *m, struct tarn_buffer *b, bool must)
{
	const struct registration *r = b->registration;
	struct registration wanted = {.memory = r->memory,
				      .bytes = r->bytes,
				      .writable = r->writable,
				      .dmabuf = r->dmabuf,
				      .dmabuf_offset = r->dmabuf_offset};
	struct tarn_buffer *mirrored;
	int ret;

	if (r->dmabuf >= 0) {
		wanted.dmabuf = fcntl(r->dmabuf, F_DUPFD_CLOEXEC, 0);
		if (wanted.dmabuf < 0)
			return err_set(-errno, "the dma-buf can not be kept: %s", strerror(errno));
	}
	ret = buffer_create(m, &wanted, must, &mirrored);
	if (ret < 0) {
		if (wanted.dmabuf >= 0)
			close(wanted.dmabuf);
		return ret;
	}
	mirrored->of = b;
	mirrored->map = b->map;
	mirrored->mapped = b->mapped;
	mirrored->unreachable = b->unreachable;
	m->unreachable += b->unreachable;
	return 0;
}

int cluster_buffer_share(struct tarn_buffer *b)
{
	struct cluster *c = b->session->cluster;
	struct tarn_session *m = NULL;
	int ret = 0;

	while (ret == 0 && (m = cluster_session_next(c, m)) != NULL)
		ret = mirror(m, b, true);
	if (ret < 0)
		cluster_buffer_end(b);
	return ret;
}

int cluster_buffer_adopt(struct tarn_session *m)
{
	struct tarn_buffer *b;
	int ret = 0;

	LIST_FOREACH (b, &m->front->buffers, link)
		if (ret == 0)
			ret = mirror(m, b, false);
	return ret;
}

void cluster_buffer_end(struct tarn_buffer *b)
{
	struct tarn_session *m = NULL;
	struct tarn_buffer *mirrored;

	while ((m = cluster_session_next(b->session->cluster, m)) != NULL) {
		LIST_FOREACH (mirrored, &m->buffers, link)
			if (mirrored->of == b)
				break;
		if (mirrored)
			buffer_remove(mirrored);
	}
}

bool cluster_buffer_in_use(const struct tarn_buffer *b)
{
	const struct cluster_async *a = b->session->cluster->async;

	for (unsigned i = 0; a && i < ENGINE_OPS; i++)
		if (a->ops[i].state != CALL_FREE &&
		    engine_op_uses(&a->ops[i].asked, b->memory, b->bytes))
			return true;
	return false;
}

bool cluster_buffer_dmabufs(const struct tarn_session *s)
{
	const struct tarn_session *m = NULL;

	while ((m = cluster_session_next(s->cluster, m)) != NULL)
		if (!m->ep->ops->memory_add_dmabuf)
			return false;
	return true;
}
