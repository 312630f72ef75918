/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes tarnd.conf's parser (daemon/config.c) and what a reload makes of it (config-diff.c). What
 * is accepted must be complete and within the table's limits; each value as text gives itself
 * again; and against a configuration that runs, what needs a restart and nothing else is kept.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "config-diff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_listen(const struct config_listen *listen)
{
	struct config_address address;
	struct sockaddr_storage socket;
	char text[400];

	if (strlen(config_listen_text(listen, text, sizeof(text))) >= sizeof(text) - 1)
		abort();
	if (!config_listen_rdma(listen)) {
		if (listen->path.text[0] != '/' || strlen(listen->path.text) > 107)
			abort();
		return;
	}
	if (listen->path.text[0] || !listen->address.text[0] == !listen->device.text[0])
		abort();
	if (listen->device.text[0])
		return;
	if (config_address_parse(listen->address.text, &address) < 0 ||
	    (address.has_port && config_listen_port(listen) != address.port) ||
	    strlen(address.host) >= sizeof(address.host) ||
	    (!address.scope[0] && config_address_socket(&address, 1, &socket) < 0))
		abort();
}

static void check(const struct config *config)
{
	if (config->listen_count == 0 || config->pool_count == 0)
		abort();
	for (size_t i = 0; i < config->listen_count; i++)
		check_listen(&config->listens[i]);
	for (size_t i = 0; i < config->pool_count; i++) {
		const struct config_pool *pool = &config->pools[i];

		if (pool->size.number < 4 << 20 || pool->size.number > 1ll << 41 ||
		    pool->max_clients.number < 1 || pool->epoch.number <= pool->deadline.number ||
		    pool->grace.number < 2 * pool->epoch.number || !pool->name[0] ||
		    (pool->auth.number == CONFIG_AUTH_KEY && !pool->key_file.text[0]))
			abort();
	}
}

/* ---- as text and back ---- */

static void text_check(enum config_section section, const void *values)
{
	size_t count;
	const struct config_key *keys = config_keys(section, &count);

	for (size_t i = 0; i < count; i++) {
		const struct config_value *value = config_value_of(values, &keys[i]);
		struct config_value again = {0};
		char *text = config_value_text(&keys[i], value);

		/* "" is what is not set, which can not always be said */
		if (!text || (*text && (config_value_parse(&keys[i], text, &again) < 0 ||
					again.number != value->number ||
					(again.text && strcmp(again.text, value->text) != 0))))
			abort();
		free(again.text);
		free(text);
	}
}

static void texts_check(const struct config *config)
{
	text_check(CONFIG_SECTION_DAEMON, &config->daemon);
	for (size_t i = 0; i < config->listen_count; i++)
		text_check(CONFIG_SECTION_LISTEN, &config->listens[i]);
	for (size_t i = 0; i < config->pool_count; i++)
		text_check(CONFIG_SECTION_POOL, &config->pools[i]);
}

/* ---- a reload ---- */

static const char running_text[] =
	"[listen local]\npath = /run/tarn/tarn.sock\n[listen rdma]\naddress = 10.0.0.1\nmtu = "
	"1024\n"
	"[pool main]\nsize = 1G\nallow_unauthenticated = yes\nfile = /dev/shm/main\nlow_water = 6\n"
	"[http]\nlisten = 127.0.0.1:7000\n"
	"[pool b]\nsize = 64M\nlisten = local\n";

static struct config *parsed(const void *bytes, size_t count)
{
	struct config_errors errors = {0};
	struct config *config = NULL;

	if (config_parse("fuzz", bytes, count, &errors, &config) < 0)
		return NULL;
	if (errors.count) {
		config_free(config);
		config = NULL;
	}
	config_errors_free(&errors);
	return config;
}

static void merged_check(const struct config *running, const struct config *merged)
{
	size_t count;
	const struct config_key *keys = config_keys(CONFIG_SECTION_POOL, &count);

	if (merged->pool_count != running->pool_count)
		abort();
	for (size_t i = 0; i < running->pool_count; i++) {
		if (strcmp(merged->pools[i].name, running->pools[i].name) != 0)
			abort();
		for (size_t j = 0; j < count; j++) {
			const struct config_value *was = config_value_of(&running->pools[i],
									 &keys[j]),
						  *is = config_value_of(&merged->pools[i],
									&keys[j]);

			if (!keys[j].reloadable &&
			    (was->number != is->number ||
			     (was->text && strcmp(was->text, is->text) != 0)))
				abort();
		}
	}
}

/* Merged twice, the second time nothing but what needs a restart is left. */
static void reload_check(const uint8_t *data, size_t size)
{
	struct config *running = parsed(running_text, sizeof(running_text) - 1),
		      *next = parsed(data, size), *again = parsed(data, size);
	struct config_changes changes, rest;
	char text[1024];

	if (!running)
		abort();
	if (next && again && config_merge(running, next, &changes) == 0) {
		for (size_t i = 0; i < changes.count; i++)
			if (!*config_change_text(&changes.list[i], text, sizeof(text)))
				abort();
		merged_check(running, next);
		if (config_merge(next, again, &rest) < 0)
			abort();
		for (size_t i = 0; i < rest.count; i++)
			if (!rest.list[i].restart)
				abort();
		config_changes_free(&changes);
		config_changes_free(&rest);
	}
	config_free(running);
	config_free(next);
	config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config_errors errors = {0};
	struct config *config = NULL;

	if (size > 65536)
		return 0;
	if (config_parse("fuzz", data, size, &errors, &config) < 0)
		return 0;
	if (errors.count == 0) {
		check(config);
		texts_check(config);
		reload_check(data, size);
	}
	config_errors_free(&errors);
	config_free(config);
	return 0;
}
