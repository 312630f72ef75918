/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-session.c - what is not about keys, of a cluster's session: who is inside, housekeeping, statistics
 *
 * Runs on the session's owner, which is the housekeeping thread in cluster_look_after(). Next to read: cluster.h.
 */
#include <string.h>

#include "atomics.h"
#include "clock.h"
#include "cluster.h"
#include "err.h"

int cluster_hold(struct tarn_session *s)
{
	return session_hold_front(s);
}

void cluster_leave(struct tarn_session *s)
{
	/* relaxed: as in session_leave() */
	if (__builtin_expect(atomic_load_explicit(&s->wanted, memory_order_relaxed), 0)) {
		uint64_t budget_ns = 0; /* a call does not wait for who is not there */
		char text[ERR_TEXT_BYTES];

		atomic_store_explicit(&s->wanted, 0, memory_order_relaxed);
		strcpy(text, err_text());
		cluster_look_after(s, &budget_ns);
		err_set(0, "%s", text);
	}
	if (__builtin_expect(s->event_fd >= 0, 0))
		cluster_watch(s);
	atomic_store_explicit(&s->owner, SESSION_IDLE, memory_order_release);
}

/* The newest map within a second, whatever the application does. */
static void ask(struct tarn_session *s, uint64_t budget_ns)
{
	struct cluster *c = s->cluster;
	uint64_t now = clock_now_ns();

	if (now - c->asked_ns < CLUSTER_ASK_NS)
		return;
	c->asked_ns = now;
	cluster_refresh(s, now + budget_ns);
}

void cluster_look_after(struct tarn_session *s, uint64_t *budget_ns)
{
	struct cluster *c = s->cluster;

	struct tarn_session *m = NULL;

	cluster_prune(c);
	while ((m = cluster_session_next(c, m)) != NULL)
		housekeeping_visit(m, budget_ns);
	cluster_async_turn(c);
	/* who answers does so at once */
	ask(s, *budget_ns > SESSION_TRY_NS / 4 ? *budget_ns : SESSION_TRY_NS / 4);
	cluster_watch(s);
}

int cluster_process(struct tarn_session *s)
{
	uint64_t budget_ns = SESSION_TRY_NS;
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	cluster_look_after(s, &budget_ns);
	if (!cluster_fresh(s->cluster))
		ret = cluster_refresh(s, clock_now_ns() + SESSION_TRY_NS);
	cluster_leave(s);
	return ret;
}

int cluster_set_timeout(struct tarn_session *s, uint32_t timeout_ms)
{
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	s->timeout_ns = timeout_ms * 1000000ull;
	cluster_leave(s);
	return 0;
}

int cluster_stats(struct tarn_session *s, struct tarn_session_stats *ret_stats)
{
	uint64_t *sum = (uint64_t *)ret_stats;
	struct cluster *c = s->cluster;
	struct tarn_session *m = NULL;
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	*ret_stats = c->gone;
	while ((m = cluster_session_next(c, m)) != NULL) {
		const uint64_t *more = (const uint64_t *)&m->stats;

		for (size_t n = 1; n < sizeof(*ret_stats) / sizeof(*sum); n++)
			sum[n] += more[n];
	}
	ret_stats->client_id = 0; /* each member has given another one */
	cluster_leave(s);
	return 0;
}

/* Of the members that there is a session with; what differs is that of the last one, or the least. */
int cluster_pool_info(struct tarn_session *s, struct tarn_pool_info *ret_info)
{
	struct cluster *c = s->cluster;
	struct tarn_pool_info info = {.size = sizeof(info)};
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	info.read_only = s->identity.read_only;
	strcpy(info.transport, "none");
	for (uint32_t i = 0; i < c->map->member_count; i++) {
		const struct tarn_session *m = c->nodes[i].session;

		if (!m)
			continue;
		info.pool_bytes += m->geometry.pool_bytes;
		if (!info.max_value_bytes || m->geometry.max_value_bytes < info.max_value_bytes)
			info.max_value_bytes = m->geometry.max_value_bytes;
		if (m->geometry.epoch_ns > info.epoch_ns)
			info.epoch_ns = m->geometry.epoch_ns;
		strncpy(info.transport, m->transport, sizeof(info.transport) - 1);
		strncpy(info.atomics,
			m->geometry.atomics == LAYOUT_ATOMICS_NIC ? "nic" : "cpu",
			sizeof(info.atomics) - 1);
	}
	cluster_leave(s);
	*ret_info = info;
	return 0;
}

/* A member that can be reached, and its CPU. */
int cluster_ping(struct tarn_session *s, uint64_t *ret_ns)
{
	struct cluster *c = s->cluster;
	struct tarn_session *m = NULL;
	uint64_t limit_ns;
	int ret = cluster_hold(s);

	if (ret < 0)
		return ret;
	limit_ns = clock_now_ns() + s->timeout_ns;
	for (uint32_t i = 0; !m && i < c->map->member_count; i++) {
		uint32_t place = (c->asked + i) % c->map->member_count;

		if (c->map->members[place].state != CLUSTER_LEFT &&
		    cluster_node_session(s, place, limit_ns, &m) < 0)
			m = NULL;
	}
	if (m) {
		m->timeout_ns = s->timeout_ns;
		ret = tarn_session_ping(m, ret_ns);
	} else {
		ret = err_set(-TARN_ESESSION, "no member of cluster %s can be reached; the last one: %s",
			      c->map->cluster, err_text());
	}
	cluster_leave(s);
	return ret;
}
