/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `tarn stats`, `pools`, `clients`, `ping` and `version` show, and the same over HTTP, as JSON
 * ("schema": 1; fields are only added). The values are those of metrics.def; here is how its subjects
 * stand in each other. Main thread; the work is one look at the page table. Who may connect may ask; to
 * change something, which is to end a client, to have a pool checked (control-check.c), or to reload the
 * configuration (control-config.c), is for root and the daemon's own user, and by the unix socket alone.
 * peer.c and http.c carry it. Totals count since the daemon's start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "clock.h"
#include "control.h"
#include "control-check.h"
#include "control-cluster.h"
#include "control-config.h"
#include "control-rdma.h"
#include "events.h"
#include "http.h"
#include "keeper.h"
#include "metrics-views.h"
#include "metrics-write.h"
#include "metrics.h"
#include "pool.h"
#include "process-stats.h"
#include "reload-keys.h"
#include "wire.h"

/* ---- pools ---- */

/* Where it is offered. */
static json_t *listeners(const struct daemon *daemon, const struct pool *pool)
{
	const struct config *config = daemon->config;
	json_t *array = json_array();

	for (size_t i = 0; i < config->listen_count; i++)
		if (config_pool_offered(pool->config, &config->listens[i]))
			json_array_append_new(array, json_string(config->listens[i].name));
	return array;
}

/* What a pool is, without its keeper. */
static json_t *pool_head(const struct daemon *daemon, const struct metrics_pool *view)
{
	json_t *object = metrics_object(SUBJECT_POOL_HEAD, view);

	json_object_set_new(object, "listeners", listeners(daemon, view->pool));
	json_object_set_new(object, "registrations", control_regions(daemon, view->pool));
	return object;
}

/* Classes that have a page. */
static json_t *classes(const struct metrics_pool *pool)
{
	json_t *array = json_array();
	struct metrics_class view;

	for (uint32_t class = 0; class < LAYOUT_CLASSES; class++)
		if (metrics_class_view(pool, class, &view))
			json_array_append_new(array, metrics_object(SUBJECT_CLASS, &view));
	return array;
}

static json_t *used_up(uint64_t limits)
{
	json_t *array = json_array();

	if (limits & LAYOUT_LIMIT_KEYS)
		json_array_append_new(array, json_string("keys"));
	if (limits & LAYOUT_LIMIT_BYTES)
		json_array_append_new(array, json_string("bytes"));
	if (limits & LAYOUT_LIMIT_PAGES)
		json_array_append_new(array, json_string("pages"));
	return array;
}

static json_t *access_keys(const struct keeper_stats *keeper)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < keeper->quota_count; i++) {
		json_t *object = metrics_object(SUBJECT_ACCESS_KEY, &keeper->quotas[i]);

		json_object_set_new(object, "used_up", used_up(keeper->quotas[i].limits));
		json_array_append_new(array, object);
	}
	return array;
}

static json_t *pool_stats(const struct daemon *daemon, const struct pool *pool, uint64_t now)
{
	struct metrics_pool view;
	json_t *object;

	metrics_pool_view(pool, now, &view);
	object = pool_head(daemon, &view);
	metrics_json_view(object, SUBJECT_POOL, &view);
	json_object_set_new(object, "classes", classes(&view));
	json_object_set_new(object, "operations", metrics_object(SUBJECT_OPERATIONS, &view.operations));
	if (view.keeper.sweep.waits_for_client)
		json_object_set_new(json_object_get(object, "sweep"), "waits_for",
				    metrics_object(SUBJECT_WAITER, &view.keeper.sweep));
	if (pool->geometry.mode == LAYOUT_MODE_CACHE)
		json_object_set_new(object, "eviction", metrics_object(SUBJECT_EVICTION, &view.keeper.evict));
	json_object_set_new(object, "access_keys", access_keys(&view.keeper));
	return object;
}

/* ---- the answers ---- */

static json_t *daemon_head(const struct daemon *daemon)
{
	struct metrics_daemon view = {.daemon = daemon, .now_ns = clock_now_ns()};

	return metrics_object(SUBJECT_HEAD, &view);
}

static void answer_stats(struct daemon *daemon, json_t *answer)
{
	struct process_stats process;
	struct metrics_daemon view;
	json_t *head, *array = json_array();

	metrics_daemon_view(daemon, &view);
	head = metrics_object(SUBJECT_HEAD, &view);
	metrics_json_view(head, SUBJECT_DAEMON, &view);
	json_object_set_new(answer, "daemon", head);
	process_stats_get(&process);
	json_object_set_new(answer, "process", metrics_object(SUBJECT_PROCESS, &process));
	json_object_set_new(answer, "http",
			    daemon->http ? metrics_object(SUBJECT_HTTP, http_stats(daemon->http)) : json_null());
	json_object_set_new(answer, "cluster", control_cluster(daemon->member));
	json_object_set_new(answer, "devices", control_devices(daemon));
	json_object_set_new(answer, "listeners", control_listeners(daemon));
	for (size_t i = 0; i < daemon->pool_count; i++)
		json_array_append_new(array, pool_stats(daemon, daemon->pools[i], view.now_ns));
	json_object_set_new(answer, "pools", array);
}

static void answer_pools(struct daemon *daemon, json_t *answer)
{
	json_t *array = json_array();

	for (size_t i = 0; i < daemon->pool_count; i++) {
		struct metrics_pool view = {.pool = daemon->pools[i]};
		json_t *object = pool_head(daemon, &view);

		pool_count_pages(view.pool, &view.pages);
		metrics_json_view(object, SUBJECT_POOL_LIST, &view);
		json_array_append_new(array, object);
	}
	json_object_set_new(answer, "pools", array);
}

static json_t *client(const struct pool *pool, uint32_t slot)
{
	struct metrics_client view;
	json_t *object;

	metrics_client_view(pool, slot, &view);
	object = metrics_object(SUBJECT_CLIENT, &view);
	json_object_set_new(object, "connection", control_connection(view.known));
	if (view.reporting)
		json_object_set_new(object, "operations", metrics_object(SUBJECT_OPERATIONS, &view.telemetry));
	return object;
}

/* client() as text: there may be very many. */
static void write_part(struct metrics_writer *writer, const char *name, void *arg)
{
	const struct metrics_client *view = arg;

	if (strcmp(name, "operations") == 0 && view->reporting)
		metrics_write_view(writer, SUBJECT_OPERATIONS, &view->telemetry, NULL, NULL);
	else if (strcmp(name, "connection") == 0 && view->known->transport == POOL_VERBS && view->known->peer)
		metrics_write_view(writer, SUBJECT_CONNECTION, view->known->peer, NULL, NULL);
	else
		metrics_write_text(writer, "null");
}

static void write_clients(const struct pool *pool, struct metrics_writer *writer, const char **inout_comma)
{
	struct metrics_client view;

	for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++) {
		if (pool->clients[slot].state != LAYOUT_CLIENT_LIVE)
			continue;
		metrics_client_view(pool, slot, &view);
		metrics_write_text(writer, *inout_comma);
		metrics_write_view(writer, SUBJECT_CLIENT, &view, write_part, &view);
		*inout_comma = ",";
	}
}

static char *clients_text(const struct daemon *daemon)
{
	struct metrics_writer writer = {0};
	const char *comma = "";

	metrics_write_text(&writer, "{\"schema\":1,\"clients\":[");
	for (size_t i = 0; i < daemon->pool_count; i++)
		write_clients(daemon->pools[i], &writer, &comma);
	metrics_write_text(&writer, "]}");
	metrics_write_end(&writer);
	if (!writer.failed)
		return writer.text;
	free(writer.text);
	return NULL;
}

static void answer_events(struct daemon *daemon, json_t *answer)
{
	json_t *array = json_array();
	const struct event_entry *entry;

	for (size_t i = 0; (entry = events_at(daemon->events, i)); i++)
		json_array_append_new(array, metrics_object(SUBJECT_EVENT, entry));
	json_object_set_new(answer, "events", array);
}

static void answer_members(struct daemon *daemon, json_t *answer)
{
	control_members(daemon->member, answer);
}

static void answer_daemon(struct daemon *daemon, json_t *answer)
{
	json_object_set_new(answer, "daemon", daemon_head(daemon));
}

static const struct {
	const char *name;
	void (*answer)(struct daemon *daemon, json_t *answer);
} questions[] = {
	{"stats", answer_stats}, {"pools", answer_pools},   {"events", answer_events},
	{"ping", answer_daemon}, {"version", answer_daemon}, {"members", answer_members},
};

/* False: there is no such question. */
static bool get(struct daemon *daemon, const char *what, json_t *answer)
{
	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
		if (strcmp(what, questions[i].name) != 0)
			continue;
		questions[i].answer(daemon, answer);
		return true;
	}
	return false;
}

static json_t *document(void)
{
	json_t *object = json_object();

	json_object_set_new(object, "schema", json_integer(1));
	return object;
}

/* Takes it over. Whatever could not be allocated in it is missing, and so the text, most likely, is NULL, too. */
static char *document_text(json_t *object)
{
	char *text = json_dumps(object, METRICS_JSON_FORM);

	json_decref(object);
	return text;
}

/* Answers that are written as text, since there may be very much of it. */
static bool is_large(const char *what)
{
	return strcmp(what, "clients") == 0 || strcmp(what, "map") == 0;
}

/* NULL: without memory, or it is none of these. */
static char *large_text(struct daemon *daemon, const char *what)
{
	if (strcmp(what, "clients") == 0)
		return clients_text(daemon);
	return strcmp(what, "map") == 0 ? control_map(daemon->member) : NULL;
}

char *control_get(struct daemon *daemon, const char *what)
{
	json_t *object;
	char *text = large_text(daemon, what);

	if (text || is_large(what))
		return text;
	object = document();
	(void)get(daemon, what, object);
	return document_text(object);
}

/* ---- kill ---- */

static void answer_error(json_t *answer, const char *name, const char *text)
{
	json_object_set_new(answer, "error", json_pack("{s:s, s:s}", "name", name, "text", text));
}

/* The live clients with this id; client ids are each pool's own. */
static unsigned int find_clients(const struct daemon *daemon, const char *pool_name, json_int_t id,
				 struct pool **ret_pool, uint32_t *ret_slot)
{
	unsigned int found = 0;

	for (size_t i = 0; i < daemon->pool_count; i++) {
		struct pool *pool = daemon->pools[i];

		if (pool_name && strcmp(pool->name, pool_name) != 0)
			continue;
		for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++) {
			if (pool->clients[slot].state != LAYOUT_CLIENT_LIVE ||
			    pool->clients[slot].client_id != id || !pool->clients[slot].cut)
				continue;
			found++;
			*ret_pool = pool;
			*ret_slot = slot;
		}
	}
	return found;
}

static void answer_kill(struct daemon *daemon, uint32_t uid, const json_t *asked, json_t *answer)
{
	const json_t *id = json_object_get(asked, "client"), *name = json_object_get(asked, "pool");
	struct pool *pool = NULL;
	unsigned int found;
	uint32_t slot = 0;
	char why[64];

	if (uid != 0 && uid != geteuid()) {
		answer_error(answer, "EPERM",
			     "only root and the daemon's own user may end clients: use sudo");
		return;
	}
	if (!json_is_integer(id) || (name && !json_is_string(name))) {
		answer_error(answer, "EINVAL",
			     "to end a client is {\"kill\": {\"pool\": NAME, \"client\": NUMBER}}");
		return;
	}
	found = find_clients(daemon, json_string_value(name), json_integer_value(id), &pool, &slot);
	if (found != 1) {
		answer_error(answer, found ? "EINVAL" : "ENOENT",
			     found ? "several pools have a client of this number: say which by "
				     "--pool"
				   : "there is no such client: `tarn clients` lists them");
		return;
	}
	json_object_set_new(answer, "killed", client(pool, slot));
	snprintf(why, sizeof(why), "uid %u has asked for it", uid);
	reload_cut(&pool->clients[slot], why);
}

static void answer_check(struct daemon *daemon, uint32_t uid, const json_t *asked, json_t *answer)
{
	const char *name, *text = control_check(daemon, uid, asked, answer, &name);

	if (text)
		answer_error(answer, name, text);
}

static void answer_reload(struct daemon *daemon, uint32_t uid, json_t *answer)
{
	const char *name, *text = control_reload(daemon, uid, answer, &name);

	if (text)
		answer_error(answer, name, text);
}

static void answer_diff(struct daemon *daemon, uint32_t uid, json_t *answer)
{
	const char *name, *text = control_config_diff(daemon, uid, answer, &name);

	if (text)
		answer_error(answer, name, text);
}

static void answer_wish(struct daemon *daemon, uint32_t uid, const json_t *asked, json_t *answer)
{
	const char *name, *text = control_wish(daemon->member, uid, asked, answer, &name);

	if (text)
		answer_error(answer, name, text);
}

static void answer_question(struct daemon *daemon, uint32_t uid, const json_t *asked,
			    json_t *answer)
{
	const char *what = json_string_value(json_object_get(asked, "get"));

	if (json_is_object(json_object_get(asked, "kill")))
		answer_kill(daemon, uid, json_object_get(asked, "kill"), answer);
	else if (json_is_object(json_object_get(asked, "check")))
		answer_check(daemon, uid, json_object_get(asked, "check"), answer);
	else if (json_is_object(json_object_get(asked, "cluster")))
		answer_wish(daemon, uid, json_object_get(asked, "cluster"), answer);
	else if (json_is_object(json_object_get(asked, "reload")))
		answer_reload(daemon, uid, answer);
	else if (what && strcmp(what, "config") == 0)
		control_config_show(daemon, answer); /* names files: not over HTTP */
	else if (what && strcmp(what, "config_diff") == 0)
		answer_diff(daemon, uid, answer);
	else if (!what || !get(daemon, what, answer))
		answer_error(
			answer, "EINVAL",
			"unknown question: it is {\"get\": \"stats\"}, pools, clients, events, members, map, "
			"config, config_diff, ping or version, or {\"kill\": {\"pool\": NAME, "
			"\"client\": NUMBER}}, or {\"check\": {\"pool\": NAME}}, or "
			"{\"reload\": {}}");
}

/* What is asked for, if it is one of the large ones, else NULL. */
static const char *asks_large(const json_t *asked)
{
	const char *what = json_string_value(json_object_get(asked, "get"));
	bool other = json_is_object(json_object_get(asked, "kill")) || json_is_object(json_object_get(asked, "check")) ||
		     json_is_object(json_object_get(asked, "cluster")) || json_is_object(json_object_get(asked, "reload"));

	return what && is_large(what) && !other ? what : NULL;
}

char *control_answer(struct daemon *daemon, uint32_t uid, const char *question, size_t bytes,
		     size_t *ret_bytes)
{
	json_error_t error;
	/* Its depth is limited by jansson, its length by the packet. */
	json_t *asked = json_loadb(question, bytes, JSON_REJECT_DUPLICATES, &error);
	json_t *answer = document();
	char *text;

	if (asks_large(asked)) {
		json_decref(answer);
		text = large_text(daemon, asks_large(asked));
	} else {
		if (!json_is_object(asked))
			answer_error(answer, "EINVAL", "the question is not a JSON object");
		else
			answer_question(daemon, uid, asked, answer);
		text = document_text(answer);
	}
	json_decref(asked);
	if (text && strlen(text) > WIRE_CONTROL_REPLY_MAX) {
		free(text);
		return NULL;
	}
	if (text)
		*ret_bytes = strlen(text);
	return text;
}
