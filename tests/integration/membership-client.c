/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member by itself, for test-membership.py: `membership-client CONF BOOT_ID [PREVIOUS_BOOT_ID]`. What it is told
 * comes out as lines of JSON, what it is to do comes in as lines: first, next, next-at EPOCH, next-if MEMBER BOOT_ID, weight N,
 * reload, state, block MS, quit. It ends with its input.
 */
#include <err.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>

#include "config-cluster.h"
#include "err.h"
#include "membership.h"

#define SHARDS 64u

struct client {
	const char *file;
	struct config *config;
	struct event_base *base;
	struct log log;
	struct membership *membership;
	struct membership_record self;
	struct evbuffer *input;
};

static void say(json_t *json)
{
	char *text = json_dumps(json, JSON_COMPACT);

	if (!text || puts(text) < 0 || fflush(stdout) != 0)
		errx(1, "can not say what there is to say");
	free(text);
	json_decref(json);
}

static json_t *hex(uint64_t number)
{
	return json_sprintf("%016" PRIx64, number);
}

/* ---- what is told ---- */

static void on_map(void *arg, const struct cluster_map *map)
{
	(void)arg;
	if (map)
		say(json_pack("{s:s, s:I, s:I, s:I, s:i}", "event", "map", "epoch", (json_int_t)map->epoch, "since_0",
			      (json_int_t)map->since[0], "since_1", (json_int_t)map->since[1], "members",
			      (int)map->member_count));
	else
		say(json_pack("{s:s, s:n}", "event", "map", "epoch"));
}

static void on_records(void *arg, const struct membership_record *records, unsigned int count)
{
	json_t *all = json_object();

	(void)arg;
	for (unsigned int i = 0; i < count; i++)
		json_object_set_new(all, records[i].name,
				    json_pack("{s:o, s:i, s:s}", "boot_id", hex(records[i].boot_id), "weight",
					      (int)records[i].weight, "address", records[i].addresses[0].text));
	say(json_pack("{s:s, s:o}", "event", "records", "records", all));
}

static void on_lost(void *arg, const char *why)
{
	(void)arg;
	say(json_pack("{s:s, s:s}", "event", "lost", "why", why));
}

static void on_regained(void *arg)
{
	(void)arg;
	say(json_pack("{s:s}", "event", "regained"));
}

static const struct membership_events events = {on_map, on_records, on_lost, on_regained};

static void on_written(void *arg, enum membership_outcome outcome, const char *text)
{
	static const char *const names[] = {"written", "refused", "unknown"};

	(void)arg;
	say(json_pack("{s:s, s:s, s:s}", "event", "write", "outcome", names[outcome], "text", text));
}

/* ---- what is asked ---- */

static struct cluster_map *first_map(const struct client *client)
{
	struct cluster_map *map = NULL;
	char text[1024];

	snprintf(text, sizeof(text),
		 "{\"format\":1,\"cluster\":\"%s\",\"pool\":\"main\",\"mode\":\"store\",\"seed\":\"00000000000000a5\",\"epoch\":1,"
		 "\"shards\":%u,\"members\":[{\"name\":\"%s\",\"number\":1,\"state\":\"up\",\"weight\":100,\"addresses\":"
		 "[{\"fabric\":\"shm\",\"address\":\"/run/t.sock\"}]}]}",
		 client->config->cluster.name.text, SHARDS, client->self.name);
	if (cluster_map_parse(text, strlen(text), &map) < 0)
		errx(1, "%s", err_text());
	return map;
}

/* The map with another epoch, in which shard 0 becomes somebody's: the caller gives that back. */
static void write_next(struct client *client, uint64_t if_epoch, const char *member, uint64_t boot_id)
{
	uint64_t confirmed;
	const struct cluster_map *map = membership_map(client->membership, &confirmed);
	struct cluster_map next;
	uint64_t since[SHARDS];

	if (!map)
		errx(1, "there is no map to change");
	next = *map;
	memcpy(since, map->since, sizeof(since));
	next.since = since;
	next.epoch = if_epoch + 1;
	since[0] = next.epoch;
	for (unsigned int i = 0; i < SHARDS; i++)
		since[i] = since[i] > next.epoch ? next.epoch : since[i];
	if (membership_write(client->membership, &next, if_epoch, member, boot_id, on_written, client) < 0)
		errx(1, "%s", err_text());
}

static void write_first(struct client *client)
{
	struct cluster_map *map = first_map(client);

	if (membership_write(client->membership, map, 0, NULL, 0, on_written, client) < 0)
		errx(1, "%s", err_text());
	cluster_map_free(map);
}

static void state(struct client *client)
{
	struct membership_state now;
	struct timespec time;
	uint64_t confirmed;
	const struct cluster_map *map = membership_map(client->membership, &confirmed);
	double age;

	clock_gettime(CLOCK_BOOTTIME, &time);
	age = confirmed ? (double)time.tv_sec + (double)time.tv_nsec / 1e9 - (double)confirmed / 1e9 : -1;
	membership_state(client->membership, &now);
	say(json_pack("{s:s, s:s, s:b, s:b, s:f, s:f, s:s, s:I, s:I}", "event", "state", "endpoint", now.endpoint,
		      "connected", now.connected, "held", membership_held(client->membership), "confirmed_age", age,
		      "lease_left", (double)now.lease_left_ns / 1e9, "error", now.error, "epoch",
		      (json_int_t)(map ? map->epoch : 0), "fenced", (json_int_t)now.fenced));
}

static struct config *configuration(const struct client *client)
{
	struct config_errors errors = {0};
	struct config *config = NULL;

	if (config_load(client->file, &errors, &config) < 0)
		errx(1, "%s", err_text());
	if (errors.count)
		errx(1, "%s", errors.texts[0]);
	return config;
}

static void reload(struct client *client)
{
	struct config *config = configuration(client);
	int rc = membership_reload(client->membership, &config->cluster, &client->self);

	say(json_pack("{s:s, s:b, s:s}", "event", "reload", "ok", rc == 0, "text", rc < 0 ? err_text() : ""));
	config_free(rc < 0 ? config : client->config);
	client->config = rc < 0 ? client->config : config;
}

/* As a process that stands still: nothing happens, timers are late. */
static void block(unsigned int ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	nanosleep(&time, NULL);
}

static void command(struct client *client, const char *line)
{
	uint64_t confirmed, number = 0;
	char name[64] = "";
	const struct cluster_map *map = membership_map(client->membership, &confirmed);

	if (strcmp(line, "first") == 0)
		write_first(client);
	else if (strcmp(line, "next") == 0)
		write_next(client, map ? map->epoch : 0, NULL, 0);
	else if (sscanf(line, "next-at %" SCNu64, &number) == 1)
		write_next(client, number, NULL, 0);
	else if (sscanf(line, "next-if %63s %" SCNx64, name, &number) == 2)
		write_next(client, map ? map->epoch : 0, name, number);
	else if (sscanf(line, "weight %" SCNu64, &number) == 1) {
		client->self.weight = (uint32_t)number;
		reload(client);
	} else if (strcmp(line, "reload") == 0)
		reload(client);
	else if (strcmp(line, "state") == 0)
		state(client);
	else if (sscanf(line, "block %" SCNu64, &number) == 1)
		block((unsigned int)number);
	else if (strcmp(line, "quit") == 0)
		event_base_loopbreak(client->base);
	else
		errx(2, "%s: no such command", line);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
	struct client *client = arg;
	char *line;

	(void)what;
	if (evbuffer_read(client->input, fd, -1) <= 0)
		event_base_loopbreak(client->base);
	while ((line = evbuffer_readln(client->input, NULL, EVBUFFER_EOL_LF))) {
		command(client, line);
		free(line);
	}
}

int main(int argc, char **argv)
{
	struct client client = {.self = {.number = 1, .weight = 100, .address_count = 1, .version = "test"}};
	struct event *input;

	if (argc < 3)
		errx(2, "usage: membership-client CONF BOOT_ID [PREVIOUS_BOOT_ID]");
	client.file = argv[1];
	client.self.boot_id = strtoull(argv[2], NULL, 16);
	client.self.previous_boot_id = argc > 3 ? strtoull(argv[3], NULL, 16) : 0;
	client.self.addresses[0].shm = true;
	strcpy(client.self.addresses[0].text, "/run/t.sock");
	log_init(&client.log, STDERR_FILENO, LOG_LEVEL_DEBUG);
	client.config = configuration(&client);
	client.base = event_base_new();
	client.input = evbuffer_new();
	if (config_member_name(&client.config->cluster, client.self.name) < 0 || !client.base || !client.input)
		errx(1, "%s", err_text());
	if (membership_create(&client.config->cluster, client.base, &client.self, &events, &client, &client.log,
			      &client.membership) < 0)
		errx(1, "%s", err_text());
	input = event_new(client.base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, &client);
	event_add(input, NULL);
	event_base_dispatch(client.base);
	membership_free(client.membership);
	event_free(input);
	evbuffer_free(client.input);
	(void)event_base_loop(client.base, EVLOOP_NONBLOCK); /* as in member_close() */
	event_base_free(client.base);
	config_free(client.config);
	libevent_global_shutdown();
	return 0;
}
