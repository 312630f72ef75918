/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * top-view.c - `tarn top`: a look, as top-look.c has made it, drawn on a screen
 *
 * Node, pools, keepers and devices are always there; clients and events share the lines that are left.
 * Pure functions; the command's thread. Next to read: top-screen.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text.h"
#include "top.h"

#define NEARLY_FULL_PERCENT 90 /* as in docs/prometheus */
#define FULL_PERCENT        98
#define CLIENTS_LEAST       3 /* lines that events leave to the clients */

struct cells {
	char texts[TOP_COLUMNS_MAX][TOP_CELL_BYTES];
	const char *pointers[TOP_COLUMNS_MAX];
	size_t n;
};

/* ---- values ---- */

static json_t *get(json_t *object, const char *name)
{
	return json_object_get(object, name);
}

static uint64_t number(json_t *object, const char *name)
{
	return (uint64_t)json_integer_value(get(object, name));
}

static char *next(struct cells *cells)
{
	size_t i = cells->n < TOP_COLUMNS_MAX - 1 ? cells->n++ : cells->n;

	cells->pointers[i] = cells->texts[i];
	return cells->texts[i];
}

/* "-" for what is not known. Whatever stands in it becomes visible text. */
static void put_text(struct cells *cells, json_t *value)
{
	const char *text = json_string_value(value);
	char clean[TEXT_ESCAPED_BYTES(TOP_CELL_BYTES)];
	char *cell = next(cells);

	if (text == NULL) {
		strcpy(cell, "-");
		return;
	}
	text_clean(text, strnlen(text, TOP_CELL_BYTES), clean);
	snprintf(cell, TOP_CELL_BYTES, "%.*s", TOP_CELL_BYTES - 1, clean);
}

static void put_number(struct cells *cells, json_t *value)
{
	char *cell = next(cells);

	if (json_is_integer(value))
		snprintf(cell, TOP_CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_string(value)) /* above 2^63 - 1 */
		snprintf(cell, TOP_CELL_BYTES, "%.20s", json_string_value(value));
	else
		strcpy(cell, "-");
}

/* Three digits are what an eye follows. */
static void put_rate(struct cells *cells, json_t *value)
{
	static const char *const units[] = {"", "k", "M", "G", "T"};
	double rate = json_number_value(value);
	char *cell = next(cells);
	size_t unit = 0;

	if (!json_is_number(value)) {
		strcpy(cell, "-");
		return;
	}
	while (rate >= (unit == 0 ? 9999.5 : 999.5) && unit + 1 < sizeof(units) / sizeof(units[0])) {
		rate /= 1000;
		unit++;
	}
	snprintf(cell, TOP_CELL_BYTES, "%.*f%s",
		 rate > 0 && rate < 9.995 ? (unit > 0 || rate < 0.995 ? 2 : 1) : unit > 0 && rate < 99.95, rate,
		 units[unit]);
}

static void put_percent(struct cells *cells, json_t *value)
{
	char *cell = next(cells);

	if (json_is_number(value))
		snprintf(cell, TOP_CELL_BYTES, "%.1f", json_number_value(value));
	else
		strcpy(cell, "-");
}

static void put_size(struct cells *cells, json_t *value)
{
	char human[TEXT_HUMAN_BYTES];

	if (json_is_number(value))
		snprintf(next(cells), TOP_CELL_BYTES, "%s",
			 text_human_size((uint64_t)json_number_value(value), human));
	else
		strcpy(next(cells), "-");
}

static void put_ns(struct cells *cells, json_t *value)
{
	char human[TEXT_HUMAN_BYTES];

	/* 0: there were none */
	if (json_is_integer(value) && json_integer_value(value) > 0)
		snprintf(next(cells), TOP_CELL_BYTES, "%s",
			 text_human_ns((uint64_t)json_integer_value(value), human));
	else
		strcpy(next(cells), "-");
}

static void format_clock(uint64_t ms, const char *format, char *ret_text, size_t bytes)
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;

	if (localtime_r(&seconds, &tm) == NULL || strftime(ret_text, bytes, format, &tm) == 0)
		snprintf(ret_text, bytes, "%" PRIu64, ms);
}

/* ---- the node ---- */

static void draw_head(json_t *look, struct top_screen *screen)
{
	json_t *daemon = get(look, "daemon"), *ready = get(daemon, "ready");
	uint64_t up = number(daemon, "uptime_seconds");
	char now[32], days[32] = "";
	struct cells cells = {.n = 0};

	format_clock(number(look, "time_ms"), "%H:%M:%S", now, sizeof(now));
	if (up >= 86400)
		snprintf(days, sizeof(days), "%" PRIu64 " d ", up / 86400);
	put_text(&cells, get(daemon, "version"));
	put_percent(&cells, get(daemon, "cpu_percent"));
	put_size(&cells, get(daemon, "resident_bytes"));
	top_screen_format(screen, json_is_true(ready) ? TOP_PLAIN : TOP_BAD,
			  "%s  tarnd %s  %s  up %s%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64
			  "  pid %" PRIu64 "  cpu %s%%  resident %s  guests %" PRIu64,
			  now, cells.texts[0], json_is_true(ready) ? "ready" : "NOT READY", days,
			  up / 3600 % 24, up / 60 % 60, up % 60, number(daemon, "pid"),
			  cells.texts[1], cells.texts[2], number(daemon, "guests"));
}

/* ---- pools ---- */

static const struct top_column pool_columns[] = {
	{"pool", true, 0},      {"mode", true, 8},       {"bytes", false, 3},    {"used", false, 0},
	{"used%", false, 0},    {"keys", false, 2},      {"clients", false, 2},  {"gets/s", false, 0},
	{"puts/s", false, 0},   {"deletes/s", false, 1}, {"adds/s", false, 6},   {"hit%", false, 1},
	{"errors/s", false, 4}, {"retries/s", false, 6}, {"get_p50", false, 5},  {"get_p99", false, 3},
	{"put_p50", false, 5},  {"put_p99", false, 4},   {"read/s", false, 7},   {"written/s", false, 7},
	{NULL, false, 0},
};

static enum top_style pool_style(double used_percent, json_t *pool)
{
	/* A full cache works. */
	bool cache = json_is_string(get(pool, "mode")) &&
		     strcmp(json_string_value(get(pool, "mode")), "cache") == 0;

	if (cache || used_percent < NEARLY_FULL_PERCENT)
		return TOP_PLAIN;
	return used_percent < FULL_PERCENT ? TOP_WARN : TOP_BAD;
}

static void pool_row(struct top_table *table, json_t *pool)
{
	json_t *gets = get(pool, "get_latency_below_ns"), *puts = get(pool, "put_latency_below_ns");
	double bytes = (double)(number(pool, "bytes") - number(pool, "reserved_bytes"));
	double used = bytes > 0 ? 100 * (double)number(pool, "used_bytes") / bytes : 0;
	json_t *percent = json_real(used);
	struct cells cells = {.n = 0};

	put_text(&cells, get(pool, "name"));
	put_text(&cells, get(pool, "mode"));
	put_size(&cells, get(pool, "bytes"));
	put_size(&cells, get(pool, "used_bytes"));
	put_percent(&cells, percent);
	put_number(&cells, get(pool, "keys"));
	put_number(&cells, get(pool, "clients"));
	put_rate(&cells, get(pool, "gets_per_second"));
	put_rate(&cells, get(pool, "puts_per_second"));
	put_rate(&cells, get(pool, "deletes_per_second"));
	put_rate(&cells, get(pool, "adds_per_second"));
	put_percent(&cells, get(pool, "hit_percent"));
	put_rate(&cells, get(pool, "errors_per_second"));
	put_rate(&cells, get(pool, "retries_per_second"));
	put_ns(&cells, get(gets, "p50"));
	put_ns(&cells, get(gets, "p99"));
	put_ns(&cells, get(puts, "p50"));
	put_ns(&cells, get(puts, "p99"));
	put_size(&cells, get(pool, "bytes_read_per_second"));
	put_size(&cells, get(pool, "bytes_written_per_second"));
	top_table_row(table, pool_style(used, pool), cells.pointers);
	json_decref(percent);
}

/* ---- keepers ---- */

static const struct top_column keeper_columns[] = {
	{"keeper", true, 0},      {"epoch/s", false, 0},   {"passes/s", false, 3}, {"aged/s", false, 4},
	{"load%", false, 2},      {"splits/s", false, 6},  {"expired/s", false, 3}, {"evicted/s", false, 1},
	{"waits/s", false, 5},    {"orphan_pages", false, 2}, {"sweep", true, 0},  {"waiting", false, 1},
	{"damaged", false, 0},    {NULL, false, 0},
};

static void keeper_row(struct top_table *table, json_t *pool)
{
	json_t *keeper = get(pool, "keeper"), *load = get(keeper, "load_permille"),
	       *waiting = get(keeper, "sweep_waiting_ms"), *epoch = get(keeper, "epoch_per_second"),
	       *percent = json_is_integer(load) ? json_real((double)json_integer_value(load) / 10)
						: json_null(),
	       *waiting_ns = json_integer(json_integer_value(waiting) * 1000000);
	bool stands = json_is_true(get(keeper, "stands"));
	struct cells cells = {.n = 0};

	put_text(&cells, get(pool, "name"));
	put_rate(&cells, epoch);
	put_rate(&cells, get(keeper, "recycling_passes_per_second"));
	put_rate(&cells, get(keeper, "blocks_aged_per_second"));
	put_percent(&cells, percent);
	put_rate(&cells, get(keeper, "splits_per_second"));
	put_rate(&cells, get(keeper, "expired_per_second"));
	put_rate(&cells, get(keeper, "evicted_per_second"));
	put_rate(&cells, get(keeper, "waits_per_second"));
	put_number(&cells, get(keeper, "orphan_pages"));
	put_text(&cells, get(keeper, "sweep"));
	put_ns(&cells, waiting_ns);
	put_number(&cells, get(keeper, "damaged"));
	top_table_row(table,
		      stands || number(keeper, "damaged") > 0    ? TOP_BAD
		      : json_is_object(get(keeper, "sweep_waits_for")) ? TOP_WARN
								 : TOP_PLAIN,
		      cells.pointers);
	json_decref(percent);
	json_decref(waiting_ns);
}

/* ---- devices ---- */

static const struct top_column device_columns[] = {
	{"device", true, 0},       {"port_state", true, 0},   {"mtu", false, 3},
	{"connections", false, 1}, {"messages/s", false, 2},  {"registered", false, 4},
	{"queue_errors", false, 1}, {"port_errors", false, 2}, {"counters that grow", true, 0},
	{NULL, false, 0},
};

/* "rx_icrc 3.0/s, ..." */
static void put_growing(struct cells *cells, json_t *counters)
{
	char text[TOP_CELL_BYTES] = "";
	json_t *counter;
	size_t i, n = 0;

	json_array_foreach(counters, i, counter)
	{
		struct cells parts = {.n = 0};
		int done;

		put_text(&parts, get(counter, "name"));
		put_rate(&parts, get(counter, "per_second"));
		done = snprintf(text + n, sizeof(text) - n, "%s%s %s/s", i > 0 ? ", " : "",
				parts.texts[0], parts.texts[1]);
		if (done < 0 || (size_t)done >= sizeof(text) - n)
			break;
		n += (size_t)done;
	}
	snprintf(next(cells), TOP_CELL_BYTES, "%s", *text != '\0' ? text : "-");
}

static void device_row(struct top_table *table, json_t *device)
{
	json_t *state = get(device, "port_state");
	struct cells cells = {.n = 0};
	bool up = json_is_string(state) && strstr(json_string_value(state), "ACTIVE") != NULL;

	put_text(&cells, get(device, "name"));
	put_text(&cells, state);
	put_number(&cells, get(device, "active_mtu_bytes"));
	put_number(&cells, get(device, "connections"));
	put_rate(&cells, get(device, "messages_per_second"));
	put_size(&cells, get(device, "registered_bytes"));
	put_number(&cells, get(device, "queue_errors"));
	put_number(&cells, get(device, "port_errors"));
	put_growing(&cells, get(device, "counters_growing"));
	top_table_row(table,
		      !up                                                   ? TOP_BAD
		      : json_array_size(get(device, "counters_growing")) > 0 ? TOP_WARN
									    : TOP_PLAIN,
		      cells.pointers);
}

/* ---- clients and events ---- */

static const struct top_column client_columns[] = {
	{"client_id", false, 0}, {"name", true, 0},       {"pool", true, 3},      {"transport", true, 5},
	{"operations/s", false, 0}, {"gets/s", false, 1}, {"puts/s", false, 1},   {"deletes/s", false, 4},
	{"adds/s", false, 6},    {"hit%", false, 5},      {"errors/s", false, 2}, {"retries/s", false, 4},
	{"get_p99", false, 3},   {"put_p99", false, 4},   {"read/s", false, 7},   {"written/s", false, 7},
	{NULL, false, 0},
};

static void client_row(struct top_table *table, json_t *client)
{
	struct cells cells = {.n = 0};

	put_number(&cells, get(client, "client_id"));
	put_text(&cells, get(client, "name"));
	put_text(&cells, get(client, "pool"));
	put_text(&cells, get(client, "transport"));
	put_rate(&cells, get(client, "operations_per_second"));
	put_rate(&cells, get(client, "gets_per_second"));
	put_rate(&cells, get(client, "puts_per_second"));
	put_rate(&cells, get(client, "deletes_per_second"));
	put_rate(&cells, get(client, "adds_per_second"));
	put_percent(&cells, get(client, "hit_percent"));
	put_rate(&cells, get(client, "errors_per_second"));
	put_rate(&cells, get(client, "retries_per_second"));
	put_ns(&cells, get(get(client, "get_latency_below_ns"), "p99"));
	put_ns(&cells, get(get(client, "put_latency_below_ns"), "p99"));
	put_size(&cells, get(client, "bytes_read_per_second"));
	put_size(&cells, get(client, "bytes_written_per_second"));
	top_table_row(table, TOP_PLAIN, cells.pointers);
}

static const struct top_column event_columns[] = {
	{"time", true, 0}, {"event", true, 0}, {"subject", true, 2}, {"text", true, 0}, {NULL, false, 0}};

static void event_row(struct top_table *table, json_t *event)
{
	struct cells cells = {.n = 0};

	format_clock(number(event, "time_ms"), "%m-%d %H:%M:%S", next(&cells), TOP_CELL_BYTES);
	put_text(&cells, get(event, "kind"));
	put_text(&cells, get(event, "subject"));
	put_text(&cells, get(event, "text"));
	top_table_row(table, TOP_PLAIN, cells.pointers);
}

/* ---- the whole ---- */

static void draw_list(struct top_screen *screen, const struct top_column *columns, json_t *list,
		      void (*add_row)(struct top_table *, json_t *), size_t max_rows)
{
	struct top_table table = {.columns = columns};
	json_t *element;
	size_t i;

	if (json_array_size(list) == 0 || max_rows == 0)
		return;
	if (!screen->escapes)
		top_screen_line(screen, TOP_PLAIN, "");
	json_array_foreach(list, i, element)
	{
		if (i < max_rows)
			add_row(&table, element);
	}
	top_table_draw(&table, screen, max_rows);
}

/* Clients first, which are what changes; events get a third at most. */
static void share(const struct top_screen *screen, size_t bottom, size_t clients, size_t events,
		  size_t *ret_clients, size_t *ret_events)
{
	size_t used = screen->lines + bottom,
	       left = screen->height > used ? screen->height - used : 0, least;

	*ret_clients = clients;
	*ret_events = events;
	if (screen->height == 0 || clients + events + 2 <= left)
		return;
	least = left / 3 > 1 ? left / 3 - 1 : 0;
	if (*ret_events > least)
		*ret_events = least;
	if (left < CLIENTS_LEAST + 2)
		*ret_events = 0;
	left -= *ret_events > 0 ? *ret_events + 1 : 0;
	*ret_clients = left > 1 ? left - 1 : 0;
}

void top_view_draw(const struct top_view *view, json_t *look, struct top_screen *screen)
{
	json_t *clients = get(look, "clients"), *events = get(look, "events");
	size_t max_clients, max_events;

	top_screen_clear(screen);
	draw_head(look, screen);
	if (view->notice != NULL) {
		char clean[TEXT_ESCAPED_BYTES(512)];

		text_clean(view->notice, strnlen(view->notice, 512), clean);
		top_screen_line(screen, view->bad ? TOP_BAD : TOP_WARN, clean);
	}
	draw_list(screen, pool_columns, get(look, "pools"), pool_row, SIZE_MAX);
	draw_list(screen, keeper_columns, get(look, "pools"), keeper_row, SIZE_MAX);
	draw_list(screen, device_columns, get(look, "devices"), device_row, SIZE_MAX);
	share(screen, view->keys ? 1 : 0, json_array_size(clients), json_array_size(events),
	      &max_clients, &max_events);
	draw_list(screen, client_columns, clients, client_row, max_clients);
	draw_list(screen, event_columns, events, event_row, max_events);
	if (!view->keys)
		return;
	/* At the bottom, whatever is above. */
	while (screen->height > 0 && screen->lines + 1 < screen->height)
		top_screen_line(screen, TOP_PLAIN, "");
	top_screen_format(screen, TOP_TITLE,
			  "q quit  sort: o g p d a e r b n (%s)  every %.4g s  %" PRIu64
			  " clients connected",
			  top_sort_name(view->sort), view->interval,
			  number(look, "clients_connected"));
}
