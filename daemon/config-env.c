/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this machine says to a configuration: memory, hugepages, NUMA nodes, groups, key files. Main
 * thread, for `tarnd -t`; at a start the same questions are asked where the things are made.
 * Nothing is changed. A socket's path is not tested: under systemd its directory is made just
 * before the start, and a running daemon may well have it.
 */
#include "auth.h"
#include "config.h"
#include "err.h"
#include "listen.h"
#include "pool-memory.h"

static void pool_check(const struct config *config, const struct config_pool *pool,
		       struct pool_memory_claims *claims, struct config_errors *errors)
{
	struct auth_keys keys = {0};
	bool hugetlb;

	if (pool->size.number && pool_memory_check(pool, claims, &hugetlb) < 0)
		config_error(errors, "%s:%u: [pool %s] size = %lld: %s", config->file,
			     pool->size.line, pool->name, (long long)pool->size.number, err_text());
	if (pool->auth.number != CONFIG_AUTH_KEY || !pool->key_file.text[0])
		return;
	if (auth_keys_load(pool->key_file.text, &keys) < 0)
		config_error(errors, "%s:%u: [pool %s] key_file = %s: %s", config->file,
			     pool->key_file.line, pool->name, pool->key_file.text, err_text());
	auth_keys_free(&keys);
}

void config_check_environment(const struct config *config, struct config_errors *errors)
{
	struct pool_memory_claims claims = {.whole_machine = true};
	uint32_t gid;

	for (size_t i = 0; i < config->listen_count; i++)
		if (listener_group(&config->listens[i], &gid) < 0)
			config_error(errors, "%s:%u: [listen %s] group = %s: %s", config->file,
				     config->listens[i].group.line, config->listens[i].name,
				     config->listens[i].group.text, err_text());
	for (size_t i = 0; i < config->pool_count; i++)
		pool_check(config, &config->pools[i], &claims, errors);
}
