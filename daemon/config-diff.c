/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the configuration that runs with the one of a reload, key by key, and makes of the two
 * the one that will run (config-diff.h). Main thread; pure functions on memory of their own, so
 * that a reload can be dropped at any point. reload.c calls them, and makes it take effect.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config-diff.h"
#include "err.h"

#define PLACE_BYTES 400u /* of config_listen_text() */

static int no_memory(void)
{
	return err_set(-ENOMEM, "out of memory");
}

/* ---- the list ---- */

void config_changes_free(struct config_changes *changes)
{
	for (size_t i = 0; i < changes->count; i++) {
		free(changes->list[i].from);
		free(changes->list[i].to);
	}
	free(changes->list);
	*changes = (struct config_changes){0};
}

/* Takes the texts over. */
static int add(struct config_changes *changes, const struct config_change *change)
{
	struct config_change *list =
		realloc(changes->list, (changes->count + 1) * sizeof(*changes->list));

	if (list)
		changes->list = list;
	if (!list || !change->from || !change->to) {
		free(change->from);
		free(change->to);
		return no_memory();
	}
	changes->list[changes->count++] = *change;
	return 0;
}

static int add_section(struct config_changes *changes, enum config_section section,
		       const char *name, enum config_action action, unsigned int line,
		       const char *from, const char *to)
{
	struct config_change change = {.section = section,
				       .action = action,
				       .restart = section == CONFIG_SECTION_POOL ||
						  section == CONFIG_SECTION_CLUSTER,
				       .line = line,
				       .from = strdup(from),
				       .to = strdup(to)};

	snprintf(change.name, sizeof(change.name), "%s", name);
	return add(changes, &change);
}

/* ---- values ---- */

static bool same(const struct config_key *key, const struct config_value *a,
		 const struct config_value *b)
{
	if (key->type == CONFIG_TYPE_PATH || key->type == CONFIG_TYPE_TEXT)
		return strcmp(a->text, b->text) == 0;
	return a->number == b->number;
}

/* Puts the running value in the new one's place. A default stays one, which config_check() lets pass. */
static int keep(const struct config_key *key, const struct config_value *running,
		struct config_value *next)
{
	bool text = key->type == CONFIG_TYPE_PATH || key->type == CONFIG_TYPE_TEXT;
	char *copy = text ? strdup(running->text) : NULL;

	if (text && !copy)
		return no_memory();
	free(next->text);
	*next = (struct config_value){.number = running->number,
				      .text = copy,
				      .line = running->line && next->line ? next->line
									  : running->line,
				      .kept = true};
	return 0;
}

static int keys_keep(enum config_section section, const void *running, void *next)
{
	size_t count;
	const struct config_key *keys = config_keys(section, &count);

	for (size_t i = 0; i < count; i++)
		if (keep(&keys[i], config_value_of(running, &keys[i]),
			 config_value_at(next, &keys[i])) < 0)
			return -ENOMEM;
	return 0;
}

/* All keys of a section that is in both; anew: nothing of the running one is kept. */
static int keys_merge(enum config_section section, const char *name, bool anew, const void *running,
		      void *next, struct config_changes *changes)
{
	size_t count;
	const struct config_key *keys = config_keys(section, &count);

	for (size_t i = 0; i < count; i++) {
		const struct config_key *key = &keys[i];
		const struct config_value *was = config_value_of(running, key);
		struct config_value *is = config_value_at(next, key);
		struct config_change change = {.section = section,
					       .action = CONFIG_CHANGED,
					       .key = key,
					       .restart = !key->reloadable && !anew,
					       .line = is->line};
		int rc;

		if (same(key, was, is))
			continue;
		snprintf(change.name, sizeof(change.name), "%s", name);
		change.from = config_value_text(key, was);
		change.to = config_value_text(key, is);
		rc = add(changes, &change);
		if (rc == 0 && change.restart)
			rc = keep(key, was, is);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- listeners ---- */

const struct config_listen *config_listen_find(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->listen_count; i++)
		if (strcmp(config->listens[i].name, name) == 0)
			return &config->listens[i];
	return NULL;
}

bool config_listen_moved(const struct config_listen *from, const struct config_listen *to)
{
	char was[PLACE_BYTES], is[PLACE_BYTES];

	return config_listen_rdma(from) != config_listen_rdma(to) ||
	       strcmp(config_listen_text(from, was, sizeof(was)),
		      config_listen_text(to, is, sizeof(is))) != 0;
}

static int listens_merge(const struct config *running, struct config *next,
			 struct config_changes *changes)
{
	char text[PLACE_BYTES];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < running->listen_count; i++) {
		const struct config_listen *listen = &running->listens[i];

		if (!config_listen_find(next, listen->name))
			rc = add_section(changes, CONFIG_SECTION_LISTEN, listen->name,
					 CONFIG_REMOVED, 0,
					 config_listen_text(listen, text, sizeof(text)), "");
	}
	for (size_t i = 0; rc == 0 && i < next->listen_count; i++) {
		struct config_listen *listen = &next->listens[i];
		const struct config_listen *was = config_listen_find(running, listen->name);

		if (was)
			rc = keys_merge(CONFIG_SECTION_LISTEN, listen->name,
					config_listen_moved(was, listen), was, listen, changes);
		else
			rc = add_section(changes, CONFIG_SECTION_LISTEN, listen->name, CONFIG_ADDED,
					 listen->line, "",
					 config_listen_text(listen, text, sizeof(text)));
	}
	return rc;
}

/* ---- HTTP ---- */

/* Without the section all keys have their defaults. */
static int http_merge(const struct config *running, struct config *next,
		      struct config_changes *changes)
{
	const struct config_http *was = &running->http, *is = &next->http;

	if (!was->line == !is->line)
		return keys_merge(CONFIG_SECTION_HTTP, "", false, was, &next->http, changes);
	if (is->line)
		return add_section(changes, CONFIG_SECTION_HTTP, "", CONFIG_ADDED, is->line, "", is->listen.text);
	return add_section(changes, CONFIG_SECTION_HTTP, "", CONFIG_REMOVED, 0, was->listen.text, "");
}

/* ---- the cluster ---- */

/* A daemon joins a cluster when it starts, and leaves it when it stops. */
static int cluster_merge(const struct config *running, struct config *next, struct config_changes *changes)
{
	const struct config_cluster *was = &running->cluster;
	struct config_cluster *is = &next->cluster;
	int rc;

	if (!was->line == !is->line)
		return keys_merge(CONFIG_SECTION_CLUSTER, "", false, was, is, changes);
	rc = is->line ? add_section(changes, CONFIG_SECTION_CLUSTER, "", CONFIG_ADDED, is->line, "", is->name.text)
		      : add_section(changes, CONFIG_SECTION_CLUSTER, "", CONFIG_REMOVED, 0, was->name.text, "");
	is->line = was->line;
	return rc < 0 ? rc : keys_keep(CONFIG_SECTION_CLUSTER, was, is);
}

/* ---- pools ---- */

static struct config_pool *pool_find(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->pool_count; i++)
		if (strcmp(config->pools[i].name, name) == 0)
			return &config->pools[i];
	return NULL;
}

/* A pool that the new file does not have stays as it is. */
static int pool_copy(const struct config_pool *running, struct config_pool *ret_pool)
{
	memcpy(ret_pool->name, running->name, sizeof(ret_pool->name));
	ret_pool->line = running->line;
	return keys_keep(CONFIG_SECTION_POOL, running, ret_pool);
}

/* One pool of the result: from the new file, if it is there, else from the running one. */
static int pool_merge(const struct config_pool *running, struct config *next,
		      struct config_pool *ret_pool, struct config_changes *changes)
{
	struct config_pool *is = pool_find(next, running->name);
	int rc;

	if (!is) {
		rc = add_section(changes, CONFIG_SECTION_POOL, running->name, CONFIG_REMOVED, 0, "",
				 "");
		return rc < 0 ? rc : pool_copy(running, ret_pool);
	}
	*ret_pool = *is;
	memset(is, 0, sizeof(*is)); /* its texts belong to the result now */
	return keys_merge(CONFIG_SECTION_POOL, running->name, false, running, ret_pool, changes);
}

static int pools_merge(const struct config *running, struct config *next,
		       struct config_changes *changes)
{
	struct config_pool *pools = calloc(running->pool_count + 1, sizeof(*pools));
	int rc = pools ? 0 : no_memory();

	for (size_t i = 0; rc == 0 && i < next->pool_count; i++)
		if (!pool_find(running, next->pools[i].name))
			rc = add_section(changes, CONFIG_SECTION_POOL, next->pools[i].name,
					 CONFIG_ADDED, next->pools[i].line, "", "");
	for (size_t i = 0; rc == 0 && i < running->pool_count; i++)
		rc = pool_merge(&running->pools[i], next, &pools[i], changes);
	if (!pools)
		return rc;
	for (size_t i = 0; i < next->pool_count; i++)
		config_section_free(CONFIG_SECTION_POOL, &next->pools[i]);
	free(next->pools);
	next->pools = pools;
	next->pool_count = running->pool_count;
	return rc;
}

int config_merge(const struct config *running, struct config *next,
		 struct config_changes *ret_changes)
{
	struct config_changes changes = {0};
	int rc = keys_merge(CONFIG_SECTION_DAEMON, "", false, &running->daemon, &next->daemon,
			    &changes);

	if (rc == 0)
		rc = listens_merge(running, next, &changes);
	if (rc == 0)
		rc = http_merge(running, next, &changes);
	if (rc == 0)
		rc = cluster_merge(running, next, &changes);
	if (rc == 0)
		rc = pools_merge(running, next, &changes);
	if (rc < 0) {
		config_changes_free(&changes);
		return rc;
	}
	*ret_changes = changes;
	return 0;
}

/* ---- for people ---- */

const char *config_action_name(enum config_action action)
{
	switch (action) {
	case CONFIG_ADDED:
		return "added";
	case CONFIG_REMOVED:
		return "removed";
	case CONFIG_CHANGED:
		return "changed";
	}
	return "";
}

const char *config_change_text(const struct config_change *change, char *buffer, size_t bytes)
{
	const char *section = config_section_name(change->section), *gap = *change->name ? " " : "",
		   *to = *change->to ? change->to : "(not set)",
		   *from = *change->from ? change->from : "not set",
		   *place = *change->to ? change->to : change->from;

	if (change->key)
		snprintf(buffer, bytes, "[%s%s%s] %s = %s %s%s)", section, gap, change->name,
			 change->key->name, to,
			 change->restart ? "needs a restart of tarnd (kept: " : "(was ", from);
	else
		snprintf(buffer, bytes, "[%s%s%s] %s%s%s%s", section, gap, change->name,
			 config_action_name(change->action), *place ? ": " : "", place,
			 change->restart ? ": needs a restart of tarnd" : "");
	return buffer;
}
