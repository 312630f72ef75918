/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `tarn stats`, `pools`, `clients`, `ping` and `version` show, as JSON ("schema": 1; fields
 * are only added). Main thread; the work is one look at the page table. Who may connect may ask;
 * nothing can be changed here. peer.c carries it. Names: bytes, ms, ns in the name; totals count
 * since the daemon's start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "clock.h"
#include "control.h"
#include "keeper.h"
#include "pool.h"
#include "wire.h"

/* jansson's integers are signed: what does not fit is told as text. */
static json_t *u64(uint64_t number)
{
	char text[24];

	if (number <= INT64_MAX)
		return json_integer((json_int_t)number);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	return json_string(text);
}

static void set_u64(json_t *object, const char *name, uint64_t number)
{
	json_object_set_new(object, name, u64(number));
}

/* A process chooses its own name: what is no UTF-8 is shown as question marks. */
static json_t *name_text(const char *name)
{
	json_t *text = json_string(name);
	char clean[64];
	size_t i;

	if (text)
		return text;
	for (i = 0; name[i] && i < sizeof(clean) - 1; i++)
		clean[i] = (char)(name[i] >= 0x20 && name[i] < 0x7f ? name[i] : '?');
	clean[i] = '\0';
	return json_string(clean);
}

/* ---- operations ---- */

/* The bucket's upper bound below which `share` of all counts lie; 0: no counts. */
static uint64_t quantile(const uint64_t *buckets, double share)
{
	double total = 0, sum = 0;

	for (unsigned int i = 0; i < LAYOUT_LATENCY_BUCKETS; i++)
		total += (double)buckets[i];
	for (unsigned int i = 0; total > 0 && i < LAYOUT_LATENCY_BUCKETS; i++) {
		sum += (double)buckets[i];
		if (sum >= share * total)
			return 1ull << i;
	}
	return 0;
}

static json_t *latency(const uint64_t *buckets)
{
	json_t *object = json_object();

	set_u64(object, "p50", quantile(buckets, 0.5));
	set_u64(object, "p99", quantile(buckets, 0.99));
	set_u64(object, "p999", quantile(buckets, 0.999));
	return object;
}

static json_t *operations(const struct layout_telemetry *t)
{
	json_t *object = json_object();

	set_u64(object, "gets", t->gets);
	set_u64(object, "hits", t->hits);
	set_u64(object, "puts", t->puts);
	set_u64(object, "deletes", t->deletes);
	set_u64(object, "adds", t->adds);
	set_u64(object, "errors", t->errors);
	set_u64(object, "retries", t->retries);
	set_u64(object, "round_trips", t->round_trips);
	set_u64(object, "posts", t->posts);
	set_u64(object, "requests", t->requests);
	set_u64(object, "rpcs", t->rpcs);
	set_u64(object, "cache_hits", t->cache_hits);
	set_u64(object, "cache_misses", t->cache_misses);
	set_u64(object, "bytes_read", t->bytes_read);
	set_u64(object, "bytes_written", t->bytes_written);
	json_object_set_new(object, "get_latency_below_ns", latency(t->get_latency));
	json_object_set_new(object, "put_latency_below_ns", latency(t->put_latency));
	return object;
}

/* ---- pools ---- */

static const char *atomics_name(const struct pool *pool)
{
	return pool->geometry.atomics == LAYOUT_ATOMICS_NIC ? "nic" : "cpu";
}

/* What a pool is, without looking into it. */
static json_t *pool_head(const struct pool *pool)
{
	json_t *object = json_object();

	json_object_set_new(object, "name", json_string(pool->name));
	set_u64(object, "bytes", pool->geometry.pool_bytes);
	set_u64(object, "hugepage_bytes", pool->memory.hugepage_bytes);
	json_object_set_new(object, "numa_node", json_integer(pool->numa_node));
	json_object_set_new(object, "atomics", json_string(atomics_name(pool)));
	json_object_set_new(object, "auth", json_string(pool->auth ? "key" : "none"));
	set_u64(object, "deadline_ms", pool->geometry.deadline_ns / 1000000);
	set_u64(object, "epoch_ms", pool->geometry.epoch_ns / 1000000);
	set_u64(object, "grace_ms", pool->geometry.grace_ns / 1000000);
	set_u64(object, "max_value_bytes", pool->geometry.max_value_bytes);
	set_u64(object, "max_clients", pool->geometry.max_clients);
	set_u64(object, "clients", pool->client_count);
	return object;
}

static json_t *pages(const struct pool *pool, const struct pool_pages *count)
{
	json_t *object = json_object();

	set_u64(object, "total", pool->geometry.npages);
	set_u64(object, "free", count->by_state[LAYOUT_PAGE_FREE]);
	set_u64(object, "index", count->by_state[LAYOUT_PAGE_INDEX]);
	set_u64(object, "slab", count->by_state[LAYOUT_PAGE_SLAB]);
	set_u64(object, "full", count->by_state[LAYOUT_PAGE_FULL]);
	set_u64(object, "partial", count->by_state[LAYOUT_PAGE_PARTIAL]);
	set_u64(object, "orphan", count->by_state[LAYOUT_PAGE_ORPHAN]);
	set_u64(object, "damaged", count->damaged);
	return object;
}

/* Classes that have a page. */
static json_t *classes(const struct pool_pages *count, const struct keeper_stats *keeper)
{
	json_t *array = json_array();

	for (uint32_t class = 0; class < LAYOUT_CLASSES; class++) {
		const uint64_t *by_state = count->by_class[class];
		json_t *object;

		if (!by_state[LAYOUT_PAGE_SLAB] && !by_state[LAYOUT_PAGE_FULL] &&
		    !by_state[LAYOUT_PAGE_PARTIAL] && !by_state[LAYOUT_PAGE_ORPHAN])
			continue;
		object = json_object();
		set_u64(object, "class", class);
		set_u64(object, "block_bytes", layout_class_bytes(class));
		json_object_set_new(object, "counters",
				    json_boolean(layout_class_is_counter(class)));
		set_u64(object, "slab", by_state[LAYOUT_PAGE_SLAB]);
		set_u64(object, "full", by_state[LAYOUT_PAGE_FULL]);
		set_u64(object, "partial", by_state[LAYOUT_PAGE_PARTIAL]);
		set_u64(object, "orphan", by_state[LAYOUT_PAGE_ORPHAN]);
		set_u64(object, "blocks_in_use", keeper->blocks[class].in_use);
		set_u64(object, "blocks_retired", keeper->blocks[class].retired);
		set_u64(object, "blocks_aged", keeper->blocks[class].aged);
		json_array_append_new(array, object);
	}
	return array;
}

static const char *reason_name(uint16_t reason)
{
	static const char *const names[WIRE_REASON_LAST + 1] = {
		[WIRE_REASON_NONE] = "none",
		[WIRE_REASON_VERSION] = "version",
		[WIRE_REASON_NO_POOL] = "no_pool",
		[WIRE_REASON_NO_KEY] = "no_key",
		[WIRE_REASON_UNKNOWN_KEY] = "unknown_key",
		[WIRE_REASON_BAD_MAC] = "bad_mac",
		[WIRE_REASON_TIME] = "time",
		[WIRE_REASON_ROLE] = "role",
		[WIRE_REASON_CLIENTS] = "clients",
		[WIRE_REASON_SHUTDOWN] = "shutdown",
		[WIRE_REASON_MALFORMED] = "malformed",
		[WIRE_REASON_INTERNAL] = "internal",
	};

	return names[reason];
}

static json_t *refused(const uint64_t *counts)
{
	json_t *object = json_object();

	for (uint16_t reason = 1; reason <= WIRE_REASON_LAST; reason++)
		if (counts[reason])
			set_u64(object, reason_name(reason), counts[reason]);
	return object;
}

static json_t *pool_rpcs(const struct pool *pool)
{
	json_t *object = json_object();

	set_u64(object, "ping", pool->counters.rpcs[WIRE_RPC_PING]);
	set_u64(object, "page", pool->counters.rpcs[WIRE_RPC_PAGE]);
	set_u64(object, "add", pool->counters.rpcs[WIRE_RPC_ADD]);
	set_u64(object, "number", pool->counters.rpcs[WIRE_RPC_NUMBER]);
	return object;
}

static json_t *recycling(const struct keeper_stats *keeper)
{
	json_t *object = json_object();

	set_u64(object, "passes", keeper->passes);
	set_u64(object, "blocks_aged", keeper->blocks_aged);
	set_u64(object, "pages_partial", keeper->pages_partial);
	set_u64(object, "pages_freed", keeper->pages_freed);
	set_u64(object, "pages_pushed", keeper->pages_pushed);
	set_u64(object, "damaged", keeper->damaged);
	return object;
}

/* Live clients and ended ones. */
static void sum_operations(const struct pool *pool, struct layout_telemetry *ret_sum,
			   uint64_t *ret_silent)
{
	struct layout_telemetry telemetry;

	*ret_sum = pool->ended;
	*ret_silent = 0;
	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++) {
		if (pool->clients[slot].state != LAYOUT_CLIENT_LIVE)
			continue;
		if (pool_client_telemetry(pool, slot, &telemetry))
			pool_telemetry_add(ret_sum, &telemetry);
		else
			++*ret_silent;
	}
}

static json_t *pool_stats(const struct pool *pool, uint64_t now)
{
	json_t *object = pool_head(pool);
	struct layout_telemetry sum;
	struct keeper_stats keeper;
	struct pool_pages count;
	uint64_t silent;

	pool_count_pages(pool, &count);
	keeper_get_stats(pool->keeper, now, &keeper);
	sum_operations(pool, &sum, &silent);
	set_u64(object, "epoch", keeper.epoch);
	json_object_set_new(object, "keys", keeper.key_counts ? u64(keeper.keys) : json_null());
	json_object_set_new(object, "keys_counted_ms_ago",
			    keeper.key_counts ? u64(keeper.keys_age_ns / 1000000) : json_null());
	json_object_set_new(object, "pages", pages(pool, &count));
	json_object_set_new(object, "classes", classes(&count, &keeper));
	json_object_set_new(object, "operations", operations(&sum));
	set_u64(object, "clients_not_reporting", silent);
	set_u64(object, "handshakes_accepted", pool->counters.handshakes_accepted);
	json_object_set_new(object, "handshakes_refused",
			    refused(pool->counters.handshakes_refused));
	set_u64(object, "clients_ended_clean", pool->counters.clients_ended_clean);
	set_u64(object, "clients_ended_dead", pool->counters.clients_ended_dead);
	set_u64(object, "orphan_pages", count.by_state[LAYOUT_PAGE_ORPHAN]);
	json_object_set_new(object, "rpcs", pool_rpcs(pool));
	json_object_set_new(object, "recycling", recycling(&keeper));
	return object;
}

/* ---- the answers ---- */

static json_t *daemon_head(const struct daemon *daemon, uint64_t now)
{
	json_t *object = json_object();

	json_object_set_new(object, "version", json_string(PACKAGE_VERSION));
	set_u64(object, "pid", (uint64_t)getpid());
	set_u64(object, "uptime_seconds", (now - daemon->started_ns) / 1000000000);
	set_u64(object, "started_ms", daemon->started_ms);
	return object;
}

static void answer_stats(const struct daemon *daemon, json_t *answer)
{
	uint64_t now = clock_now_ns();
	json_t *head = daemon_head(daemon, now), *array = json_array();

	set_u64(head, "guests", daemon->guests);
	set_u64(head, "accept_errors", daemon->accept_errors);
	set_u64(head, "clients_expelled", daemon->expelled);
	json_object_set_new(head, "handshakes_refused", refused(daemon->refused));
	json_object_set_new(answer, "daemon", head);
	for (size_t i = 0; i < daemon->pool_count; i++)
		json_array_append_new(array, pool_stats(daemon->pools[i], now));
	json_object_set_new(answer, "pools", array);
}

static void answer_pools(const struct daemon *daemon, json_t *answer)
{
	json_t *array = json_array();

	for (size_t i = 0; i < daemon->pool_count; i++) {
		const struct pool *pool = daemon->pools[i];
		json_t *object = pool_head(pool);
		struct pool_pages count;

		pool_count_pages(pool, &count);
		set_u64(object, "pages", pool->geometry.npages);
		set_u64(object, "pages_free", count.by_state[LAYOUT_PAGE_FREE]);
		json_array_append_new(array, object);
	}
	json_object_set_new(answer, "pools", array);
}

static json_t *client(const struct pool *pool, uint32_t slot)
{
	const struct pool_client *known = &pool->clients[slot];
	json_t *object = json_object();
	struct layout_telemetry telemetry;
	bool reporting = pool_client_telemetry(pool, slot, &telemetry);

	json_object_set_new(object, "pool", json_string(pool->name));
	set_u64(object, "client_id", known->client_id);
	set_u64(object, "slot", slot);
	set_u64(object, "pid", known->pid);
	set_u64(object, "uid", known->uid);
	set_u64(object, "gid", known->gid);
	json_object_set_new(object, "name", name_text(known->name));
	json_object_set_new(object, "read_only", json_boolean(known->read_only));
	set_u64(object, "connected_ms", known->connected_ms);
	json_object_set_new(object, "reporting", json_boolean(reporting));
	set_u64(object, "reports", telemetry.reports);
	json_object_set_new(object, "operations", reporting ? operations(&telemetry) : json_null());
	return object;
}

static void answer_clients(const struct daemon *daemon, json_t *answer)
{
	json_t *array = json_array();

	for (size_t i = 0; i < daemon->pool_count; i++)
		for (uint32_t slot = 0; slot < daemon->pools[i]->geometry.max_clients; slot++)
			if (daemon->pools[i]->clients[slot].state == LAYOUT_CLIENT_LIVE)
				json_array_append_new(array, client(daemon->pools[i], slot));
	json_object_set_new(answer, "clients", array);
}

static void answer_question(const struct daemon *daemon, const char *what, json_t *answer)
{
	if (what && strcmp(what, "stats") == 0)
		answer_stats(daemon, answer);
	else if (what && strcmp(what, "pools") == 0)
		answer_pools(daemon, answer);
	else if (what && strcmp(what, "clients") == 0)
		answer_clients(daemon, answer);
	else if (what && (strcmp(what, "ping") == 0 || strcmp(what, "version") == 0))
		json_object_set_new(answer, "daemon", daemon_head(daemon, clock_now_ns()));
	else
		json_object_set_new(answer, "error",
				    json_string("unknown question: it is {\"get\": \"stats\"}, "
						"pools, clients, ping or version"));
}

char *control_answer(struct daemon *daemon, const char *question, size_t bytes, size_t *ret_bytes)
{
	json_error_t error;
	/* Its depth is limited by jansson, its length by the packet. */
	json_t *asked = json_loadb(question, bytes, JSON_REJECT_DUPLICATES, &error);
	json_t *answer = json_object();
	char *text;

	json_object_set_new(answer, "schema", json_integer(1));
	if (!json_is_object(asked))
		json_object_set_new(answer, "error",
				    json_string("the question is not a JSON object"));
	else
		answer_question(daemon, json_string_value(json_object_get(asked, "get")), answer);
	/* Whatever could not be allocated above is missing in it, and so the text, most likely, is
	 * NULL, too. */
	text = json_dumps(answer, JSON_COMPACT);
	json_decref(asked);
	json_decref(answer);
	if (text && strlen(text) > WIRE_CONTROL_REPLY_MAX) {
		free(text);
		return NULL;
	}
	if (text)
		*ret_bytes = strlen(text);
	return text;
}
