/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What can be wrong between settings that are right each for itself: missing ones, time rules that
 * don't fit each other, an index larger than its pool, listeners that a pool can't have. Pure;
 * config.c calls it when all lines are read. Each error names the line that is best changed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config-check.h"
#include "config-cluster.h"
#include "err.h"
#include "http-listen.h"
#include "layout.h"
#include "verbs.h"

static void missing(const struct config *config, struct config_errors *errors, const char *section,
		    const char *name, unsigned int line, const char *key, const char *example)
{
	config_error(errors, "%s:%u: [%s %s] %s: is missing: add a line as `%s = %s`", config->file,
		     line, section, name, key, key, example);
}

/* ---- listeners ---- */

/* Exactly one of path, address and device. */
static bool place_check(const struct config *config, const struct config_listen *listen,
			struct config_errors *errors)
{
	const struct {
		const char *article, *name;
		const struct config_value *value;
	} places[] = {{"a", "path", &listen->path},
		      {"an", "address", &listen->address},
		      {"a", "device", &listen->device}};
	int found = -1;

	for (int i = 0; i < 3; i++) {
		if (!places[i].value->line)
			continue;
		if (found >= 0) {
			config_error(errors,
				     "%s:%u: [listen %s] %s = %s: this listener has %s %s already, "
				     "in line %u; allowed: one of path, address and device; give "
				     "each a section of its own",
				     config->file, places[i].value->line, listen->name,
				     places[i].name, places[i].value->text, places[found].article,
				     places[found].name, places[found].value->line);
			return false;
		}
		found = i;
	}
	if (found >= 0)
		return true;
	config_error(errors,
		     "%s:%u: [listen %s] path: is missing: add a line as `path = "
		     "/run/tarn/tarn.sock`, or for RDMA `address = 10.0.0.1` or `device = mlx5_0`",
		     config->file, listen->line, listen->name);
	return false;
}

/* Keys that this kind of listener doesn't have. */
static void kind_check(const struct config *config, const struct config_listen *listen,
		       struct config_errors *errors)
{
	bool rdma = config_listen_rdma(listen);
	enum config_kind other = rdma ? CONFIG_KIND_UNIX : CONFIG_KIND_RDMA;
	size_t count;
	const struct config_key *keys = config_keys(CONFIG_SECTION_LISTEN, &count);

	for (size_t i = 0; i < count; i++)
		if (keys[i].kind == other && config_value_of(listen, &keys[i])->line)
			config_error(errors,
				     "%s:%u: [listen %s] %s: is for %s listeners, and this one has "
				     "%s in line %u; remove it",
				     config->file, config_value_of(listen, &keys[i])->line,
				     listen->name, keys[i].name, rdma ? "unix" : "RDMA",
				     !rdma                  ? "a path"
				     : listen->address.line ? "an address"
							    : "a device",
				     !rdma                  ? listen->path.line
				     : listen->address.line ? listen->address.line
							    : listen->device.line);
}

static void address_check(const struct config *config, const struct config_listen *listen,
			  struct config_errors *errors)
{
	struct config_address address;

	if (!listen->address.text[0])
		return;
	if (config_address_parse(listen->address.text, &address) < 0)
		config_error(errors, "%s:%u: [listen %s] address = %s: %s", config->file,
			     listen->address.line, listen->name, listen->address.text, err_text());
	else if (address.has_port && listen->port.line && address.port != listen->port.number)
		config_error(errors,
			     "%s:%u: [listen %s] port = %lld: the address in line %u has another "
			     "port, %u; remove one",
			     config->file, listen->port.line, listen->name,
			     (long long)listen->port.number, listen->address.line, address.port);
}

/* Would one of the two find its place taken? */
static bool same_place(const struct config_listen *a, const struct config_listen *b)
{
	struct config_address first, second;

	if (config_listen_rdma(a) != config_listen_rdma(b))
		return false;
	if (!config_listen_rdma(a))
		return a->path.text[0] && strcmp(a->path.text, b->path.text) == 0;
	if (config_listen_port(a) != config_listen_port(b) || config_listen_port(a) == 0)
		return false;
	if (a->device.text[0] && b->device.text[0])
		return strcmp(a->device.text, b->device.text) == 0;
	return a->address.text[0] && b->address.text[0] &&
	       config_address_parse(a->address.text, &first) == 0 &&
	       config_address_parse(b->address.text, &second) == 0 &&
	       strcmp(first.host, second.host) == 0 && strcmp(first.scope, second.scope) == 0;
}

static unsigned int place_line(const struct config_listen *listen)
{
	if (listen->path.line)
		return listen->path.line;
	return listen->address.line ? listen->address.line : listen->device.line;
}

static void listen_check(const struct config *config, const struct config_listen *listen,
			 struct config_errors *errors)
{
	bool rdma = config_listen_rdma(listen);

	if (!place_check(config, listen, errors))
		return;
	kind_check(config, listen, errors);
	address_check(config, listen, errors);
	for (const struct config_listen *other = config->listens; other < listen; other++)
		if (same_place(listen, other))
			config_error(errors,
				     "%s:%u: [listen %s] %s = %s: [listen %s] has the same %s "
				     "in line %u: each listener needs its own",
				     config->file, place_line(listen), listen->name,
				     !rdma                  ? "path"
				     : listen->address.line ? "address"
							    : "device",
				     !rdma                  ? listen->path.text
				     : listen->address.line ? listen->address.text
							    : listen->device.text,
				     other->name, rdma ? "place and port" : "path",
				     place_line(other));
}

/* ---- [http] ---- */

/* What is told by HTTP is not for everybody who can reach the host. */
static void http_secrets_check(const struct config *config, struct config_errors *errors)
{
	const struct config_http *http = &config->http;
	unsigned int line = http->listen.line ? http->listen.line : http->line;
	struct config_address address;

	for (size_t i = 0; http_address(http, i, &address) == 0; i++)
		if (!http_address_local(&address) && (!http->certificate.text[0] || !http->token_file.text[0]))
			config_error(errors,
				     "%s:%u: [http] listen = %s: %s is not on loopback: other addresses need certificate, "
				     "private_key and token_file, since what is told there is not for everybody: add them, or "
				     "listen at 127.0.0.1 and have a proxy or an ssh tunnel in front",
				     config->file, line, http->listen.text, address.host);
	if (!http->certificate.text[0] != !http->private_key.text[0])
		config_error(errors, "%s:%u: [http] %s: needs %s, too: add it, or remove this", config->file,
			     http->certificate.text[0] ? http->certificate.line : http->private_key.line,
			     http->certificate.text[0] ? "certificate" : "private_key",
			     http->certificate.text[0] ? "private_key" : "certificate");
}

static void http_section_check(const struct config *config, struct config_errors *errors)
{
	const struct config_http *http = &config->http;
	unsigned int line = http->listen.line ? http->listen.line : http->line;
	struct config_address address;
	size_t count = 0;
	int rc;

	while ((rc = http_address(http, count, &address)) == 0)
		count++;
	if (rc != -ENOENT)
		config_error(errors, "%s:%u: [http] listen = %s: %s", config->file, line, http->listen.text,
			     err_text());
	else if (count == 0 || count > HTTP_ADDRESSES_MAX)
		config_error(errors, "%s:%u: [http] listen = %s: has %zu addresses; allowed: 1 to %u", config->file, line,
			     http->listen.text, count, HTTP_ADDRESSES_MAX);
	else
		http_secrets_check(config, errors);
}

/* ---- pools ---- */

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

static void marks_check(const struct config *config, const struct config_pool *pool,
			struct config_errors *errors)
{
	if (pool->high_water.number < pool->low_water.number)
		config_error(errors,
			     "%s:%u: [pool %s] high_water = %lld: is less than the low_water of %lld; "
			     "allowed: %lld to 50; raise high_water or lower low_water",
			     config->file, line_of(&pool->high_water, &pool->low_water, pool->line),
			     pool->name, (long long)pool->high_water.number,
			     (long long)pool->low_water.number, (long long)pool->low_water.number);
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

/* A network is no place for a pool without keys, unless somebody has written that down. */
static void open_check(const struct config *config, const struct config_pool *pool,
		       const struct config_listen *listen, struct config_errors *errors)
{
	const char *address = listen->address.text;

	if (pool->auth.number == CONFIG_AUTH_KEY || pool->allow_unauthenticated.number ||
	    !config_listen_rdma(listen))
		return;
	if (strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
	    strncmp(address, "[::1]", 5) == 0)
		return;
	config_error(
		errors,
		"%s:%u: [pool %s] auth = none: is offered at [listen %s], where whoever reaches "
		"the address could read and write it: set auth = key and key_file, or "
		"allow_unauthenticated = yes, or name other listeners in listen",
		config->file, line_of(&pool->auth, &pool->listen, pool->line), pool->name,
		listen->name);
}

/* The next name of a list; NULL at its end. */
static const char *name_next(const char **list, size_t *ret_length)
{
	const char *name = *list + strspn(*list, " \t");
	size_t length = strcspn(name, ",");

	if (!**list)
		return NULL;
	*list = name + length + (name[length] == ',');
	while (length > 0 && (name[length - 1] == ' ' || name[length - 1] == '\t'))
		length--;
	*ret_length = length;
	return name;
}

bool config_pool_offered(const struct config_pool *pool, const struct config_listen *listen)
{
	const char *list = pool->listen.text, *name;
	size_t length;

	if (!*list)
		return true;
	while ((name = name_next(&list, &length)))
		if (strlen(listen->name) == length && memcmp(listen->name, name, length) == 0)
			return true;
	return false;
}

static bool listener_known(const struct config *config, const char *name, size_t length)
{
	for (size_t i = 0; i < config->listen_count; i++)
		if (strlen(config->listens[i].name) == length &&
		    memcmp(config->listens[i].name, name, length) == 0)
			return true;
	return false;
}

/* Does the name stand in the list before this place? */
static bool named_before(const char *list, const char *place, size_t place_length)
{
	const char *name;
	size_t length;

	while ((name = name_next(&list, &length)) && name < place)
		if (length == place_length && memcmp(name, place, length) == 0)
			return true;
	return false;
}

static void pool_listen_check(const struct config *config, const struct config_pool *pool,
			      struct config_errors *errors)
{
	const char *list = pool->listen.text, *name, *what, *near = NULL;
	const char *names[CONFIG_SECTIONS_MAX];
	char word[CONFIG_NAME_MAX + 1];
	size_t length;

	for (size_t i = 0; i < config->listen_count; i++)
		names[i] = config->listens[i].name;
	while ((name = name_next(&list, &length))) {
		what = NULL;
		snprintf(word, sizeof(word), "%.*s", (int)(length < 64 ? length : 63), name);
		near = NULL;
		if (!listener_known(config, name, length)) {
			what = "there is no such listener; allowed: names of [listen NAME] "
			       "sections, separated by commas";
			near = config_suggest(word, names, config->listen_count);
		} else if (named_before(pool->listen.text, name, length)) {
			what = "is there twice: remove one";
		}
		if (what)
			config_error(errors, "%s:%u: [pool %s] listen: '%s': %s%s%s%s",
				     config->file, pool->listen.line, pool->name, word, what,
				     near ? "; did you mean " : "", near ? near : "",
				     near ? "?" : "");
	}
}

/* T3 of docs/protocol.md section 3. */
static uint64_t late_ns(int64_t ack_timeout, int64_t retries)
{
	return verbs_late_ns((unsigned)ack_timeout, (unsigned)retries);
}

static void late_check(const struct config *config, const struct config_pool *pool,
		       const struct config_listen *listen, struct config_errors *errors)
{
	uint64_t room = (uint64_t)(pool->grace.number - pool->deadline.number);
	int64_t timeout = listen->ack_timeout.number, allowed = timeout;

	if (!listen->ack_timeout.line || timeout == 0 || pool->grace.number < pool->deadline.number)
		return;
	while (allowed > 0 && late_ns(allowed, listen->retries.number) >= room)
		allowed--;
	if (allowed == timeout)
		return;
	config_error(errors,
		     "%s:%u: [listen %s] ack_timeout = %lld: with %lld retries a request may be "
		     "%gms late (4 * 4.096us * 2^%lld * %lld), and grace - deadline of [pool %s] "
		     "is %gms; allowed here: up to %lld; lower it or retries, or raise grace",
		     config->file, listen->ack_timeout.line, listen->name, (long long)timeout,
		     (long long)listen->retries.number,
		     (double)late_ns(timeout, listen->retries.number) / 1e6, (long long)timeout,
		     (long long)listen->retries.number + 1, pool->name, (double)room / 1e6,
		     (long long)allowed);
}

/* Whether the RDMA listeners are all on one device that has atomics is seen at the start alone. */
static void atomics_check(const struct config *config, const struct config_pool *pool,
			  const struct config_listen *listen, struct config_errors *errors)
{
	if (pool->atomics.number == CONFIG_ATOMICS_NIC && !config_listen_rdma(listen))
		config_error(
			errors,
			"%s:%u: [pool %s] atomics = nic: the pool is offered at the unix socket "
			"of [listen %s] too, and a device's atomics are not atomic against "
			"those of a CPU; name RDMA listeners alone in `listen`, or choose auto "
			"or cpu",
			config->file, pool->atomics.line, pool->name, listen->name);
}

/* A file is one pool's. */
static void file_check(const struct config *config, const struct config_pool *pool,
		       struct config_errors *errors)
{
	for (const struct config_pool *other = config->pools; other < pool && pool->file.text[0]; other++)
		if (strcmp(other->file.text, pool->file.text) == 0)
			config_error(errors,
				     "%s:%u: [pool %s] file = %s: is the file of [pool %s], too; name "
				     "another one",
				     config->file, pool->file.line, pool->name, pool->file.text, other->name);
}

/*
 * What a put replaces or evicts rests, and each client that puts owns a page for each size of value: in
 * fewer pages than this clients wait for each other longer than their calls may take.
 */
#define CACHE_MIN_BYTES (8ll << 20)

static void cache_check(const struct config *config, const struct config_pool *pool,
			struct config_errors *errors)
{
	if (pool->mode.number != CONFIG_MODE_CACHE || pool->size.number >= CACHE_MIN_BYTES)
		return;
	config_error(errors,
		     "%s:%u: [pool %s] size = %lld: is too small with mode = cache, where each client "
		     "takes a page of %u KiB for each size of its values and what is evicted rests for "
		     "a while (grace): a put would wait beyond its time limit; allowed: %lldM or more; "
		     "raise size or choose mode = store",
		     config->file, pool->size.line, pool->name, (long long)pool->size.number,
		     LAYOUT_PAGE_BYTES >> 10, CACHE_MIN_BYTES >> 20);
}

static void pool_check(const struct config *config, const struct config_pool *pool,
		       struct config_errors *errors)
{
	if (!pool->size.line)
		missing(config, errors, "pool", pool->name, pool->line, "size", "1G");
	times_check(config, pool, errors);
	marks_check(config, pool, errors);
	auth_check(config, pool, errors);
	pool_listen_check(config, pool, errors);
	file_check(config, pool, errors);
	for (size_t i = 0; i < config->listen_count; i++) {
		if (!config_pool_offered(pool, &config->listens[i]))
			continue;
		atomics_check(config, pool, &config->listens[i], errors);
		late_check(config, pool, &config->listens[i], errors);
		open_check(config, pool, &config->listens[i], errors);
	}
	if (pool->size.number == 0) /* missing or wrong, and said */
		return;
	cache_check(config, pool, errors);
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
	if (config->http.line)
		http_section_check(config, errors);
	if (config->cluster.line)
		config_cluster_check(config, errors);
	for (size_t i = 0; i < config->listen_count; i++)
		listen_check(config, &config->listens[i], errors);
	for (size_t i = 0; i < config->pool_count; i++)
		pool_check(config, &config->pools[i], errors);
}
