/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * top-look.c - `tarn top`: what has happened between two answers of the daemon, as JSON
 *
 * Names are those of metrics.def; a counter's rate is NAME_per_second. Pure functions; the command's
 * thread. Next to read: top-view.c, which draws it.
 */
#include <stdlib.h>
#include <string.h>

#include "top.h"
#include "writer.h"

#define EPOCHS_PATIENCE 4

static const char *const sort_names[TOP_SORTS] = {
	[TOP_OPERATIONS] = "operations", [TOP_GETS] = "gets",     [TOP_PUTS] = "puts",
	[TOP_DELETES] = "deletes",       [TOP_ADDS] = "adds",     [TOP_ERRORS] = "errors",
	[TOP_RETRIES] = "retries",       [TOP_BYTES] = "bytes",   [TOP_NAME] = "name",
};

const char *top_sort_name(enum top_sort sort)
{
	return sort_names[sort];
}

void top_answers_free(struct top_answers *answers)
{
	json_decref(answers->stats);
	json_decref(answers->clients);
	json_decref(answers->events);
	*answers = (struct top_answers){0};
}

/* "outer.inner", or a member alone; NULL: it is not there. */
static json_t *find(json_t *object, const char *path)
{
	const char *dot = strchr(path, '.');
	char outer[32];

	if (dot == NULL)
		return json_object_get(object, path);
	if ((size_t)(dot - path) >= sizeof(outer))
		return NULL;
	memcpy(outer, path, (size_t)(dot - path));
	outer[dot - path] = '\0';
	return json_object_get(json_object_get(object, outer), dot + 1);
}

static void put(json_t *object, const char *name, json_t *value)
{
	json_object_set_new(object, name, value != NULL ? value : json_null());
}

/* Members that are taken over as they are. */
static void copy(json_t *object, json_t *from, const char *const *names)
{
	for (; *names != NULL; names++)
		put(object, *names, json_incref(json_object_get(from, *names)));
}

/* A counter's growth, or -1: it is not known, or it has gone back, as after a restart. */
static double growth(json_t *before, json_t *now, const char *path)
{
	json_t *old = find(before, path), *new = find(now, path);
	double grown;

	if (!json_is_number(old) || !json_is_number(new))
		return -1;
	/* As integers: a difference of two large ones is exact. */
	grown = json_is_integer(old) && json_is_integer(new)
			? (double)(json_integer_value(new) - json_integer_value(old))
			: json_number_value(new) - json_number_value(old);
	return grown >= 0 ? grown : -1;
}

static json_t *rate(json_t *before, json_t *now, const char *path, double seconds)
{
	double grown = growth(before, now, path);

	return grown < 0 || seconds <= 0 ? json_null() : json_real(grown / seconds);
}

struct rate_name {
	const char *name, *path;
};

static void put_rates(json_t *object, const struct rate_name *names, json_t *before, json_t *now,
		      double seconds)
{
	for (; names->name != NULL; names++)
		put(object, names->name, rate(before, now, names->path, seconds));
}

/* ---- operations ---- */

static const struct rate_name operation_rates[] = {
	{"gets_per_second", "operations.gets"},
	{"puts_per_second", "operations.puts"},
	{"deletes_per_second", "operations.deletes"},
	{"adds_per_second", "operations.adds"},
	{"errors_per_second", "operations.errors"},
	{"retries_per_second", "operations.retries"},
	{"bytes_read_per_second", "operations.bytes_read"},
	{"bytes_written_per_second", "operations.bytes_written"},
	{NULL, NULL},
};

static void put_operations(json_t *object, json_t *before, json_t *now, double seconds)
{
	double gets = growth(before, now, "operations.gets"),
	       hits = growth(before, now, "operations.hits");

	put_rates(object, operation_rates, before, now, seconds);
	/* A report may come between the reads of the two counters. */
	put(object, "hit_percent",
	    gets <= 0 || hits < 0 ? json_null() : json_real(hits < gets ? 100 * hits / gets : 100));
	put(object, "get_latency_below_ns",
	    json_incref(find(now, "operations.get_latency_below_ns")));
	put(object, "put_latency_below_ns",
	    json_incref(find(now, "operations.put_latency_below_ns")));
}

/* ---- pools and keepers ---- */

static const char *const pool_members[] = {
	"name",       "mode",    "bytes",       "keys",
	"stored_bytes", "clients", "max_clients", "clients_not_reporting",
	NULL,
};

static const struct rate_name keeper_rates[] = {
	{"recycling_passes_per_second", "recycling.passes"},
	{"blocks_aged_per_second", "recycling.blocks_aged"},
	{"splits_per_second", "index.splits"},
	{"expired_per_second", "expiry.expired"},
	{"evicted_per_second", "eviction.evicted"},
	{"waits_per_second", "eviction.waits"},
	{NULL, NULL},
};

/* Words that can not be, found by any part of the keeper. */
static json_t *damaged(json_t *pool)
{
	static const char *const parts[] = {"recycling.damaged", "index.damaged", "expiry.damaged",
					    "pages.damaged", NULL};
	json_int_t sum = 0;

	for (const char *const *part = parts; *part != NULL; part++)
		sum += json_integer_value(find(pool, *part));
	return json_integer(sum);
}

/* Has the epoch not moved, for so long that the daemon must hang? */
static json_t *stands(json_t *before, json_t *now, double seconds)
{
	double epoch_s = (double)json_integer_value(json_object_get(now, "epoch_ms")) / 1e3;

	return seconds < EPOCHS_PATIENCE * epoch_s ? NULL : json_boolean(growth(before, now, "epoch") <= 0);
}

static json_t *keeper(json_t *before, json_t *now, double seconds)
{
	json_t *object = json_object();

	put(object, "epoch", json_incref(json_object_get(now, "epoch")));
	put(object, "epoch_per_second", rate(before, now, "epoch", seconds));
	put(object, "stands", before != NULL ? stands(before, now, seconds) : NULL);
	put_rates(object, keeper_rates, before, now, seconds);
	put(object, "load_permille", json_incref(find(now, "index.load_permille")));
	put(object, "orphan_pages", json_incref(json_object_get(now, "orphan_pages")));
	put(object, "sweep", json_incref(find(now, "sweep.state")));
	put(object, "sweep_waiting_ms", json_incref(find(now, "sweep.waiting_ms")));
	put(object, "sweep_waits_for", json_incref(find(now, "sweep.waits_for")));
	put(object, "damaged", damaged(now));
	return object;
}

/* The element of a list whose members `keys` are those of `like`. */
static json_t *same(json_t *list, json_t *like, const char *const *keys)
{
	json_t *element;
	size_t i;

	json_array_foreach(list, i, element)
	{
		const char *const *key = keys;

		while (*key != NULL &&
		       json_equal(json_object_get(element, *key), json_object_get(like, *key)))
			key++;
		if (*key == NULL)
			return element;
	}
	return NULL;
}

static const char *const by_name[] = {"name", NULL};

static json_t *pools(json_t *before, json_t *now, double seconds)
{
	json_t *array = json_array(), *pool;
	size_t i;

	json_array_foreach(json_object_get(now, "pools"), i, pool)
	{
		json_t *old = same(json_object_get(before, "pools"), pool, by_name);
		json_t *object = json_object();

		copy(object, pool, pool_members);
		put(object, "used_bytes", json_incref(find(pool, "memory.used_bytes")));
		put(object, "free_bytes", json_incref(find(pool, "memory.free_bytes")));
		put(object, "reserved_bytes", json_incref(find(pool, "memory.reserved_bytes")));
		put_operations(object, old, pool, seconds);
		put(object, "keeper", keeper(old, pool, seconds));
		json_array_append_new(array, object);
	}
	return array;
}

/* ---- devices ---- */

static const char *const device_members[] = {
	"name",        "present",      "port_state",  "active_mtu_bytes", "registered_bytes",
	"connections", "queue_errors", "port_errors", NULL,
};

/* Of the driver's counters those that have grown. */
static json_t *growing(json_t *device, json_t *before, double seconds)
{
	json_t *array = json_array(), *counter;
	size_t i;

	json_array_foreach(json_object_get(device, "counters"), i, counter)
	{
		json_t *old = same(json_object_get(before, "counters"), counter, by_name);
		double grown = growth(old, counter, "count");

		if (grown > 0 && seconds > 0)
			json_array_append_new(
				array, json_pack("{s:O, s:f, s:O?}", "name",
						 json_object_get(counter, "name"), "per_second",
						 grown / seconds, "meaning",
						 json_object_get(counter, "meaning")));
	}
	return array;
}

static json_t *devices(json_t *before, json_t *now, double seconds)
{
	json_t *array = json_array(), *device;
	size_t i;

	json_array_foreach(json_object_get(now, "devices"), i, device)
	{
		json_t *old = same(json_object_get(before, "devices"), device, by_name);
		json_t *object = json_object();

		copy(object, device, device_members);
		put(object, "messages_per_second", rate(old, device, "messages", seconds));
		put(object, "counters_growing", growing(device, old, seconds));
		json_array_append_new(array, object);
	}
	return array;
}

/* ---- clients ---- */

static const char *const client_members[] = {
	"pool", "client_id", "name", "transport", "pid", "read_only", "reporting", "connected_ms", NULL,
};
static const char *const client_keys[] = {"pool", "client_id", "connected_ms", NULL};

struct sorted {
	json_t *client;
	double value;
	const char *name;
};

static double known(json_t *client, const char *name)
{
	return json_number_value(json_object_get(client, name)); /* 0: null */
}

static double sort_value(json_t *client, enum top_sort sort)
{
	switch (sort) {
	case TOP_OPERATIONS:
		return known(client, "operations_per_second");
	case TOP_GETS:
		return known(client, "gets_per_second");
	case TOP_PUTS:
		return known(client, "puts_per_second");
	case TOP_DELETES:
		return known(client, "deletes_per_second");
	case TOP_ADDS:
		return known(client, "adds_per_second");
	case TOP_ERRORS:
		return known(client, "errors_per_second");
	case TOP_RETRIES:
		return known(client, "retries_per_second");
	case TOP_BYTES:
		return known(client, "bytes_read_per_second") +
		       known(client, "bytes_written_per_second");
	case TOP_NAME:
	case TOP_SORTS:
		break;
	}
	return 0;
}

/* The busiest first; by name those that are equally busy, so that lines do not jump. */
static int compare(const void *a, const void *b)
{
	const struct sorted *one = a, *other = b;
	int order;

	if (one->value > other->value || one->value < other->value)
		return one->value > other->value ? -1 : 1;
	order = strcmp(one->name, other->name);
	return order != 0 ? order
			  : (known(one->client, "client_id") > known(other->client, "client_id")) -
				    (known(one->client, "client_id") <
				     known(other->client, "client_id"));
}

static json_t *client(json_t *before, json_t *now, double seconds)
{
	static const char *const operations[] = {"operations.gets", "operations.puts",
						 "operations.deletes", "operations.adds", NULL};
	json_t *object = json_object();
	double sum = 0;

	copy(object, now, client_members);
	for (const char *const *path = operations; *path != NULL && sum >= 0; path++) {
		double grown = growth(before, now, *path);

		sum = grown < 0 ? -1 : sum + grown;
	}
	put(object, "operations_per_second", sum < 0 || seconds <= 0 ? NULL : json_real(sum / seconds));
	put_operations(object, before, now, seconds);
	return object;
}

/* Lists of clients are long: the old one is looked up by pool, number and time. */
static json_t *index_clients(json_t *list)
{
	json_t *index = json_object(), *element;
	size_t i;

	json_array_foreach(list, i, element)
	{
		char *key = NULL;
		json_t *keys = json_array();

		for (const char *const *name = client_keys; *name != NULL; name++)
			json_array_append(keys, json_object_get(element, *name));
		key = json_dumps(keys, JSON_COMPACT);
		if (key != NULL)
			json_object_set(index, key, element);
		free(key);
		json_decref(keys);
	}
	return index;
}

static json_t *find_client(json_t *index, json_t *like)
{
	json_t *keys = json_array(), *found = NULL;
	char *key;

	for (const char *const *name = client_keys; *name != NULL; name++)
		json_array_append(keys, json_object_get(like, *name));
	key = json_dumps(keys, JSON_COMPACT);
	if (key != NULL)
		found = json_object_get(index, key);
	free(key);
	json_decref(keys);
	return found;
}

static json_t *clients(json_t *before, json_t *now, double seconds, enum top_sort sort, size_t max)
{
	json_t *list = json_object_get(now, "clients"), *array = json_array(), *element,
	       *index = index_clients(json_object_get(before, "clients"));
	size_t i, count = json_array_size(list);
	struct sorted *sorted = calloc(count + 1, sizeof(*sorted));

	if (sorted == NULL)
		goto out;
	json_array_foreach(list, i, element)
	{
		const char *name = json_string_value(json_object_get(element, "name"));

		sorted[i].client = client(find_client(index, element), element, seconds);
		sorted[i].value = sort_value(sorted[i].client, sort);
		sorted[i].name = name != NULL ? name : "";
	}
	qsort(sorted, count, sizeof(*sorted), compare);
	for (i = 0; i < count; i++) {
		if (i < max)
			json_array_append(array, sorted[i].client);
		json_decref(sorted[i].client);
	}
out:
	free(sorted);
	json_decref(index);
	return array;
}

/* ---- the whole ---- */

/* The last ones, the newest first. */
static json_t *events(json_t *answer, size_t max)
{
	json_t *list = json_object_get(answer, "events"), *array = json_array();

	for (size_t i = json_array_size(list); i > 0 && json_array_size(array) < max; i--)
		json_array_append(array, json_array_get(list, i - 1));
	return array;
}

bool top_restarted(const struct top_answers *before, const struct top_answers *now)
{
	return !json_equal(find(before->stats, "daemon.pid"), find(now->stats, "daemon.pid")) ||
	       !json_equal(find(before->stats, "daemon.started_ms"),
			   find(now->stats, "daemon.started_ms"));
}

static json_t *daemon_part(json_t *before, json_t *now, double seconds)
{
	static const char *const members[] = {"version", "pid",   "uptime_seconds",
					      "started_ms", "ready", "guests", NULL};
	json_t *object = json_object();
	double cpu = growth(before, now, "process.cpu_seconds");

	copy(object, json_object_get(now, "daemon"), members);
	put(object, "cpu_percent", cpu < 0 || seconds <= 0 ? NULL : json_real(100 * cpu / seconds));
	put(object, "resident_bytes", json_incref(find(now, "process.resident_bytes")));
	return object;
}

json_t *top_look(const struct top_answers *before, const struct top_answers *now, enum top_sort sort,
		 size_t max_clients, size_t max_events)
{
	bool restarted = before != NULL && top_restarted(before, now);
	json_t *old = NULL, *old_clients = NULL, *look = json_object();
	double seconds = 0;

	if (before != NULL && !restarted) {
		old = before->stats;
		old_clients = before->clients;
		seconds = (double)(now->time_ns - before->time_ns) / 1e9;
	}
	put(look, "time_ms", writer_u64(now->time_ms));
	put(look, "interval_ms", old == NULL ? NULL : json_integer((json_int_t)(seconds * 1e3)));
	put(look, "restarted", json_boolean(restarted));
	put(look, "daemon", daemon_part(old, now->stats, seconds));
	put(look, "pools", pools(old, now->stats, seconds));
	put(look, "devices", devices(old, now->stats, seconds));
	put(look, "clients_connected",
	    writer_u64(json_array_size(json_object_get(now->clients, "clients"))));
	put(look, "sort", json_string(top_sort_name(sort)));
	put(look, "clients", clients(old_clients, now->clients, seconds, sort, max_clients));
	put(look, "events", events(now->events, max_events));
	return look;
}
