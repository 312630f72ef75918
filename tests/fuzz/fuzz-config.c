/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes tarnd.conf's parser (daemon/config.c). What it accepts must be complete and within the
 * table's limits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct config *config)
{
	if (config->listen_count == 0 || config->pool_count == 0)
		abort();
	for (size_t i = 0; i < config->listen_count; i++)
		if (config->listens[i].path.text[0] != '/' ||
		    strlen(config->listens[i].path.text) > 107)
			abort();
	for (size_t i = 0; i < config->pool_count; i++) {
		const struct config_pool *pool = &config->pools[i];

		if (pool->size.number < 4 << 20 || pool->size.number > 1ll << 41 ||
		    pool->max_clients.number < 1 || pool->epoch.number <= pool->deadline.number ||
		    pool->grace.number < 2 * pool->epoch.number || !pool->name[0] ||
		    (pool->auth.number == CONFIG_AUTH_KEY && !pool->key_file.text[0]))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config_errors errors = {0};
	struct config *config = NULL;

	if (size > 65536)
		return 0;
	if (config_parse("fuzz", data, size, &errors, &config) < 0)
		return 0;
	if (errors.count == 0)
		check(config);
	config_errors_free(&errors);
	config_free(config);
	return 0;
}
