/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looks at a subject once, for the values that metrics.def takes from it. Main thread; changes nothing.
 * Next to read: metrics-views.h.
 */
#include <string.h>

#include "clock.h"
#include "device.h"
#include "health.h"
#include "layout.h"
#include "metrics-views.h"
#include "registration.h"

void metrics_daemon_view(const struct daemon *daemon, struct metrics_daemon *ret_view)
{
	*ret_view = (struct metrics_daemon){
		.daemon = daemon, .now_ns = clock_now_ns(), .ready = health_ready(daemon, NULL)};
}

/* Live clients and ended ones. */
static void sum_operations(struct metrics_pool *view)
{
	const struct pool *pool = view->pool;
	struct layout_telemetry telemetry;

	view->operations = pool->ended;
	view->reporting = view->silent = 0;
	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++) {
		if (pool->clients[slot].state != LAYOUT_CLIENT_LIVE)
			continue;
		if (pool_client_telemetry(pool, slot, &telemetry)) {
			pool_telemetry_add(&view->operations, &telemetry);
			view->reporting++;
		} else {
			view->silent++;
		}
	}
}

void metrics_pool_view(const struct pool *pool, uint64_t now_ns, struct metrics_pool *ret_view)
{
	ret_view->pool = pool;
	pool_count_pages(pool, &ret_view->pages);
	keeper_get_stats(pool->keeper, now_ns, &ret_view->keeper);
	sum_operations(ret_view);
}

void metrics_client_view(const struct pool *pool, uint32_t slot, struct metrics_client *ret_view)
{
	*ret_view = (struct metrics_client){.pool = pool, .known = &pool->clients[slot], .slot = slot};
	memcpy(ret_view->key_id, ret_view->known->key_id, WIRE_KEY_ID_BYTES); /* wire.c: ASCII */
	ret_view->reporting = pool_client_telemetry(pool, slot, &ret_view->telemetry);
}

bool metrics_class_view(const struct metrics_pool *pool, uint32_t class, struct metrics_class *ret_view)
{
	const uint64_t *pages = pool->pages.by_class[class];

	*ret_view =
		(struct metrics_class){.class = class, .pages = pages, .blocks = &pool->keeper.recycle.blocks[class]};
	return pages[LAYOUT_PAGE_SLAB] || pages[LAYOUT_PAGE_FULL] || pages[LAYOUT_PAGE_PARTIAL] ||
	       pages[LAYOUT_PAGE_ORPHAN];
}

void metrics_device_view(const struct device *device, struct metrics_device *ret_view)
{
	const struct registration *reg;

	*ret_view = (struct metrics_device){.device = device};
	ret_view->has_port = device->verbs.context &&
			     ibv_query_port(device->verbs.context, device->verbs.port, &ret_view->port) == 0;
	TAILQ_FOREACH (reg, &device->registrations, link) {
		ret_view->registered_bytes += registration_memory_done(&reg->memory);
		ret_view->regions += 2ull * reg->memory.count;
		ret_view->connections += reg->peer_count;
		ret_view->queue_pairs += reg->peer_count + (reg->pool->self ? 2 : 0);
		ret_view->messages += reg->receives;
		ret_view->probes += reg->probes;
		ret_view->shared = ret_view->shared || reg->srq;
	}
}

/* ---- in words ---- */

uint64_t metrics_used_bytes(const struct metrics_pool *pool)
{
	const uint64_t *pages = pool->pages.by_state;

	return (pages[LAYOUT_PAGE_SLAB] + pages[LAYOUT_PAGE_FULL] + pages[LAYOUT_PAGE_PARTIAL] +
		pages[LAYOUT_PAGE_ORPHAN]) *
	       LAYOUT_PAGE_BYTES;
}

/* The index's pages, and what stands in front of the pages. */
uint64_t metrics_reserved_bytes(const struct metrics_pool *pool)
{
	const struct layout_geometry *g = &pool->pool->geometry;

	return g->pool_bytes - (g->npages - pool->pages.by_state[LAYOUT_PAGE_INDEX]) * (uint64_t)LAYOUT_PAGE_BYTES;
}

const char *metrics_sweep_state(enum sweep_state state)
{
	static const char *const states[] = {
		[SWEEP_IDLE] = "idle",     [SWEEP_PAGES] = "pages",  [SWEEP_WALK] = "index",
		[SWEEP_SAMPLE] = "counts", [SWEEP_WAIT] = "waiting", [SWEEP_FREE] = "freeing",
	};

	return states[state];
}

const char *metrics_listener_state(enum listener_verbs_state state)
{
	switch (state) {
	case LISTENER_DOWN:
		return "down";
	case LISTENER_BOUND:
		return "starting";
	case LISTENER_REGISTERING:
		return "registering";
	case LISTENER_UP:
		return "up";
	}
	return "down";
}

const char *metrics_transport(const struct verbs_device *device)
{
	if (device->iwarp)
		return "iwarp";
	return device->port_attr.link_layer == IBV_LINK_LAYER_INFINIBAND ? "infiniband" : "roce";
}

const char *metrics_atomics(enum ibv_atomic_cap cap)
{
	switch (cap) {
	case IBV_ATOMIC_NONE:
		return "none";
	case IBV_ATOMIC_HCA:
		return "hca";
	case IBV_ATOMIC_GLOB:
		return "glob";
	}
	return "none";
}
