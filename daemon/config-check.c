/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What can be wrong between settings that are right each for itself: missing ones, time rules that
 * don't fit each other, an index larger than its pool. Pure; config.c calls it when all lines are
 * read. Each error names the line that is best changed.
 */
#include <string.h>

#include "config-check.h"
#include "layout.h"

static void missing(const struct config *config, struct config_errors *errors, const char *section,
		    const char *name, unsigned int line, const char *key, const char *example)
{
	config_error(errors, "%s:%u: [%s %s] %s: is missing: add a line as `%s = %s`", config->file,
		     line, section, name, key, key, example);
}

static void listen_check(const struct config *config, const struct config_listen *listen,
			 struct config_errors *errors)
{
	if (!listen->path.line) {
		missing(config, errors, "listen", listen->name, listen->line, "path",
			"/run/tarn/tarn.sock");
		return;
	}
	for (const struct config_listen *other = config->listens; other < listen; other++)
		if (listen->path.text[0] && strcmp(other->path.text, listen->path.text) == 0)
			config_error(errors,
				     "%s:%u: [listen %s] path = %s: [listen %s] has the same path "
				     "in line %u: each "
				     "listener needs its own",
				     config->file, listen->path.line, listen->name,
				     listen->path.text, other->name, other->path.line);
}

/* The line of the first of the two that was written down: a default is not what the reader will
 * look for. */
static unsigned int line_of(const struct config_value *first, const struct config_value *second,
			    unsigned int otherwise)
{
	if (first->line)
		return first->line;
	return second->line ? second->line : otherwise;
}

#define MS(value) ((double)(value).number / 1e6)

static void times_check(const struct config *config, const struct config_pool *pool,
			struct config_errors *errors)
{
	if (pool->epoch.number <= pool->deadline.number)
		config_error(errors,
			     "%s:%u: [pool %s] epoch = %gms: is not more than the deadline of "
			     "%gms; allowed: more than "
			     "%gms; raise epoch or lower deadline",
			     config->file, line_of(&pool->epoch, &pool->deadline, pool->line),
			     pool->name, MS(pool->epoch), MS(pool->deadline), MS(pool->deadline));
	if (pool->grace.number < 2 * pool->epoch.number)
		config_error(errors,
			     "%s:%u: [pool %s] grace = %gms: is less than two epochs of %gms; "
			     "allowed: %gms or more; raise "
			     "grace or lower epoch",
			     config->file, line_of(&pool->grace, &pool->epoch, pool->line),
			     pool->name, MS(pool->grace), MS(pool->epoch), 2 * MS(pool->epoch));
}

static void keys_check(const struct config *config, const struct config_pool *pool,
		       struct config_errors *errors)
{
	/* half of the pool at most, as layout_format() has it */
	uint64_t keys = (uint64_t)pool->keys.number;
	uint64_t subtables = 1ull << layout_index_depth(keys, LAYOUT_MAX_GROUPS);

	if (subtables * LAYOUT_PAGE_BYTES > (uint64_t)pool->size.number / 2)
		config_error(errors,
			     "%s:%u: [pool %s] keys = %lld: their index of %lld MiB takes more "
			     "than half of the pool of "
			     "%lld MiB; raise size or lower keys",
			     config->file, pool->keys.line, pool->name, (long long)keys,
			     (long long)(subtables * LAYOUT_PAGE_BYTES >> 20),
			     (long long)(pool->size.number >> 20));
}

static void auth_check(const struct config *config, const struct config_pool *pool,
		       struct config_errors *errors)
{
	if (pool->auth.number == CONFIG_AUTH_KEY && !pool->key_file.text[0])
		config_error(errors,
			     "%s:%u: [pool %s] auth = key: needs a key_file: add a line as "
			     "`key_file = /etc/tarn/keys`",
			     config->file, pool->auth.line, pool->name);
	if (pool->auth.number == CONFIG_AUTH_NONE && pool->key_file.text[0])
		config_error(errors,
			     "%s:%u: [pool %s] key_file = %s: is not used without auth = key: add "
			     "that or remove this",
			     config->file, pool->key_file.line, pool->name, pool->key_file.text);
}

static void pool_check(const struct config *config, const struct config_pool *pool,
		       struct config_errors *errors)
{
	if (!pool->size.line)
		missing(config, errors, "pool", pool->name, pool->line, "size", "1G");
	times_check(config, pool, errors);
	auth_check(config, pool, errors);
	if (pool->size.number == 0) /* missing or wrong, and said */
		return;
	if (pool->keys.number)
		keys_check(config, pool, errors);
	if (pool->max_clients.number * (int64_t)LAYOUT_CLIENT_BYTES > pool->size.number / 4)
		config_error(errors,
			     "%s:%u: [pool %s] max_clients = %lld: their table takes more than a "
			     "quarter of the pool; "
			     "allowed with this size: 1 to %lld; raise size or lower max_clients",
			     config->file, line_of(&pool->max_clients, &pool->size, pool->line),
			     pool->name, (long long)pool->max_clients.number,
			     (long long)(pool->size.number / 4 / (int64_t)LAYOUT_CLIENT_BYTES));
	if (pool->max_value.line && pool->max_value.number >= pool->size.number)
		config_error(errors,
			     "%s:%u: [pool %s] max_value = %lld: such a value does not fit the "
			     "pool of %lld bytes; lower "
			     "max_value or raise size",
			     config->file, pool->max_value.line, pool->name,
			     (long long)pool->max_value.number, (long long)pool->size.number);
}

void config_check(const struct config *config, struct config_errors *errors)
{
	if (config->listen_count == 0)
		config_error(
			errors,
			"%s: there is no listener: add a section as [listen local] with `path = "
			"/run/tarn/tarn.sock`",
			config->file);
	if (config->pool_count == 0)
		config_error(errors,
			     "%s: there is no pool: add a section as [pool main] with `size = 1G`",
			     config->file);
	for (size_t i = 0; i < config->listen_count; i++)
		listen_check(config, &config->listens[i], errors);
	for (size_t i = 0; i < config->pool_count; i++)
		pool_check(config, &config->pools[i], errors);
}
