/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster-map-json.c - reads the map of a cluster: each error names the place in the document, what is
 * there, and what is allowed
 *
 * The document comes from a file or from other machines. Nothing in it is believed, and what is not
 * known is an error: a misspelt name must not become a default. Any thread. Next to read:
 * cluster-map.c, cluster-place.c; docs/protocol.md, section 11.
 */
#include "cluster-map.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* "members[2].weight is 20000: allowed are ..." */
static int wrong(const char *path, const char *name, json_t *value, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int wrong(const char *path, const char *name, json_t *value, const char *format, ...)
{
	char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	const char *dot = *path != '\0' && *name != '\0' ? "." : "";
	char allowed[256];
	va_list list;
	int status;

	if (*path == '\0' && *name == '\0')
		path = "the document";
	va_start(list, format);
	vsnprintf(allowed, sizeof(allowed), format, list);
	va_end(list);
	if (value == NULL)
		status = err_set(-EINVAL, "%s%s%s is missing: allowed are %s", path, dot, name,
				 allowed);
	else
		status = err_set(-EINVAL, "%s%s%s is %.60s%s: allowed are %s", path, dot, name,
				 text != NULL ? text : "?",
				 text != NULL && strlen(text) > 60 ? "..." : "", allowed);
	free(text);
	return status;
}

/* Of an object, all that it may have; `allowed` is "name, number", with a final comma. */
static int only(const char *path, json_t *object, const char *allowed)
{
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return wrong(path, "", object, "an object with %.*s", (int)strlen(allowed) - 1,
			     allowed);
	json_object_foreach(object, name, value)
	{
		const char *at = name[strcspn(name, ", ")] == '\0' && *name != '\0'
					 ? strstr(allowed, name)
					 : NULL;

		while (at != NULL && ((at != allowed && at[-1] != ' ') || at[strlen(name)] != ','))
			at = strstr(at + 1, name);
		if (at == NULL)
			return err_set(-EINVAL, "%s%s%.60s is not known: allowed are %.*s", path,
				       *path != '\0' ? "." : "", name, (int)strlen(allowed) - 1,
				       allowed);
	}
	return 0;
}

static int get_number(const char *path, json_t *object, const char *name, uint64_t min,
		      uint64_t max, uint64_t *ret_number)
{
	json_t *value = json_object_get(object, name);

	if (!json_is_integer(value) || json_integer_value(value) < (json_int_t)min ||
	    json_integer_value(value) > (json_int_t)max)
		return wrong(path, name, value, min == max ? "%llu alone" : "%llu to %llu",
			     (unsigned long long)min, (unsigned long long)max);
	*ret_number = (uint64_t)json_integer_value(value);
	return 0;
}

static int get_name(const char *path, json_t *object, const char *name, char *ret_text)
{
	json_t *value = json_object_get(object, name);

	if (!json_is_string(value) ||
	    strlen(json_string_value(value)) != json_string_length(value) ||
	    !cluster_name_valid(json_string_value(value)))
		return wrong(path, name, value, "1 to %u of a-z, A-Z, 0-9, '.', '_', '-'",
			     CLUSTER_NAME_MAX);
	strcpy(ret_text, json_string_value(value));
	return 0;
}

/* One of some words: its place. */
static int get_word(const char *path, json_t *object, const char *name, const char *const *words,
		    unsigned int count, const char *allowed, unsigned int *ret_place)
{
	json_t *value = json_object_get(object, name);

	for (unsigned int i = 0; i < count && json_is_string(value); i++) {
		if (strcmp(json_string_value(value), words[i]) == 0) {
			*ret_place = i;
			return 0;
		}
	}
	return wrong(path, name, value, "%s", allowed);
}

static int get_seed(json_t *document, uint64_t *ret_seed)
{
	json_t *value = json_object_get(document, "seed");
	const char *text = json_string_value(value);

	if (text == NULL || json_string_length(value) != 16 ||
	    strspn(text, "0123456789abcdef") != 16)
		return wrong("", "seed", value, "16 digits of 0-9, a-f, as text");
	*ret_seed = strtoull(text, NULL, 16);
	return 0;
}

/* An array of min to max. */
static int get_array(const char *path, json_t *object, const char *name, size_t min, size_t max,
		     json_t **ret_array)
{
	json_t *value = json_object_get(object, name);
	size_t n = json_array_size(value);

	if (json_is_array(value) && (n < min || n > max))
		return err_set(-EINVAL,
			       min == max ? "%s%s%s has %zu elements: allowed are %zu alone"
					  : "%s%s%s has %zu elements: allowed are %zu to %zu",
			       path, *path != '\0' ? "." : "", name, n, min, max);
	if (!json_is_array(value))
		return wrong(path, name, value,
			     min == max ? "an array of %zu elements"
					: "an array of %zu to %zu elements",
			     min, max);
	*ret_array = value;
	return 0;
}

/* ---- members --------------------------------------------------------------------------------- */

static int parse_address(const char *path, json_t *object, struct cluster_address *address)
{
	static const char *const fabrics[] = {"verbs", "shm"};
	json_t *text = json_object_get(object, "address");
	unsigned int fabric = 0;
	int status = only(path, object, "fabric, address,");

	if (status == 0)
		status =
			get_word(path, object, "fabric", fabrics, 2, "\"verbs\", \"shm\"", &fabric);
	if (status < 0)
		return status;
	if (!json_is_string(text) || json_string_length(text) == 0 ||
	    json_string_length(text) > CLUSTER_ADDRESS_MAX ||
	    strlen(json_string_value(text)) != json_string_length(text))
		return wrong(path, "address", text, "1 to %u bytes of text", CLUSTER_ADDRESS_MAX);
	address->shm = fabric == 1;
	strcpy(address->text, json_string_value(text));
	return 0;
}

static int parse_addresses(const char *path, json_t *object, struct cluster_member *member)
{
	json_t *array, *value;
	size_t i;
	int status = get_array(path, object, "addresses", 1, CLUSTER_ADDRESSES_MAX, &array);

	if (status < 0)
		return status;
	member->addresses = calloc(json_array_size(array), sizeof(*member->addresses));
	if (member->addresses == NULL)
		return err_set(-ENOMEM, "no memory for the map's addresses");
	member->address_count = (uint32_t)json_array_size(array);
	json_array_foreach(array, i, value)
	{
		char where[64];

		snprintf(where, sizeof(where), "%s.addresses[%zu]", path, i);
		status = parse_address(where, value, &member->addresses[i]);
		if (status < 0)
			return status;
	}
	return 0;
}

static int parse_member(const char *path, json_t *object, struct cluster_member *member)
{
	const char *states[CLUSTER_STATES];
	uint64_t number = 0, weight = CLUSTER_WEIGHT_DEFAULT;
	unsigned int state = 0;
	int status = only(path, object, "name, number, state, weight, addresses,");

	for (unsigned int i = 0; i < CLUSTER_STATES; i++)
		states[i] = cluster_state_name((enum cluster_state)i);
	if (status == 0)
		status = get_name(path, object, "name", member->name);
	if (status == 0)
		status = get_number(path, object, "number", 1, CLUSTER_MEMBERS_MAX, &number);
	if (status == 0)
		status = get_word(path, object, "state", states, CLUSTER_STATES,
				  "\"up\", \"draining\", \"down\", \"left\"", &state);
	if (status == 0)
		status = get_number(path, object, "weight", 0, CLUSTER_WEIGHT_MAX, &weight);
	if (status == 0)
		status = parse_addresses(path, object, member);
	member->number = (uint16_t)number;
	member->weight = (uint32_t)weight;
	member->state = (enum cluster_state)state;
	return status;
}

/* Names and numbers are those of one member each. */
static int check_twice(const struct cluster_map *map, uint32_t i)
{
	for (uint32_t j = 0; j < i; j++) {
		if (strcmp(map->members[i].name, map->members[j].name) == 0)
			return err_set(-EINVAL,
				       "members[%u].name is \"%s\", as that of members[%u]: each "
				       "member needs a name of its own",
				       i, map->members[i].name, j);
		if (map->members[i].number == map->members[j].number)
			return err_set(-EINVAL,
				       "members[%u].number is %u, as that of members[%u]: each "
				       "member needs a number of its own",
				       i, map->members[i].number, j);
	}
	return 0;
}

static int parse_members(struct cluster_map *map, json_t *document)
{
	json_t *array, *value;
	size_t i;
	int status = get_array("", document, "members", 1, CLUSTER_MEMBERS_MAX, &array);

	if (status < 0)
		return status;
	map->members = calloc(json_array_size(array), sizeof(*map->members));
	if (map->members == NULL)
		return err_set(-ENOMEM, "no memory for the map's members");
	map->member_count = (uint32_t)json_array_size(array);
	json_array_foreach(array, i, value)
	{
		char path[32];

		snprintf(path, sizeof(path), "members[%zu]", i);
		status = parse_member(path, value, &map->members[i]);
		if (status == 0)
			status = check_twice(map, (uint32_t)i);
		if (status < 0)
			return status;
	}
	return 0;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* One that may own or get shards, or CLUSTER_NOBODY. */
static uint16_t member_of_number(const struct cluster_map *map, json_t *value)
{
	for (uint16_t i = 0; i < map->member_count && json_is_integer(value); i++)
		if (map->members[i].number == json_integer_value(value) &&
		    map->members[i].state != CLUSTER_LEFT)
			return i;
	return CLUSTER_NOBODY;
}

/* Each element is a list: of nobody, or of the owner. */
static int parse_owners(struct cluster_map *map, json_t *document)
{
	json_t *array, *value;
	size_t i;
	int status = get_array("", document, "owners", map->shards, map->shards, &array);

	if (status < 0)
		return status;
	json_array_foreach(array, i, value)
	{
		char path[32];

		snprintf(path, sizeof(path), "owners[%zu]", i);
		if (!json_is_array(value) || json_array_size(value) > 1)
			return wrong(path, "", value, "an array of no or one member's number");
		map->owners[i] = member_of_number(map, json_array_get(value, 0));
		if (json_array_size(value) == 1 && map->owners[i] == CLUSTER_NOBODY)
			return wrong(path, "", value,
				     "[] and the number of a member that has not left");
	}
	return 0;
}

static int parse_epochs(struct cluster_map *map, json_t *document, const char *name, uint64_t min,
			const uint64_t *max, uint64_t *epochs)
{
	json_t *array, *value;
	size_t i;
	int status = get_array("", document, name, map->shards, map->shards, &array);

	if (status < 0)
		return status;
	json_array_foreach(array, i, value)
	{
		uint64_t most = max != NULL ? max[i] : map->epoch;
		char path[32];

		snprintf(path, sizeof(path), "%s[%zu]", name, i);
		if (!json_is_integer(value) || json_integer_value(value) < (json_int_t)min ||
		    json_integer_value(value) > (json_int_t)most)
			return wrong(path, "", value, "%llu to %llu", (unsigned long long)min,
				     (unsigned long long)most);
		epochs[i] = (uint64_t)json_integer_value(value);
	}
	return 0;
}

static int parse_move(struct cluster_map *map, size_t i, json_t *object)
{
	struct cluster_move *move = &map->moves[i];
	uint64_t shard = 0, first = i > 0 ? (uint64_t)map->moves[i - 1].shard + 1 : 0;
	char path[32];
	int status;

	snprintf(path, sizeof(path), "moves[%zu]", i);
	status = only(path, object, "shard, to,");
	/* ascending: none comes twice */
	if (status == 0)
		status = get_number(path, object, "shard", first, map->shards - 1, &shard);
	if (status < 0)
		return status;
	move->shard = (uint32_t)shard;
	move->to = member_of_number(map, json_object_get(object, "to"));
	if (move->to == CLUSTER_NOBODY || map->members[move->to].state != CLUSTER_UP ||
	    move->to == map->owners[shard] || map->owners[shard] == CLUSTER_NOBODY)
		return wrong(path, "to", json_object_get(object, "to"),
			     "the number of a member that is up and not the owner of shard %u, "
			     "which has to have one",
			     move->shard);
	return 0;
}

static int parse_moves(struct cluster_map *map, json_t *document)
{
	json_t *array, *value;
	size_t i;
	int status = get_array("", document, "moves", 0, map->shards, &array);

	if (status < 0)
		return status;
	map->moves = calloc(json_array_size(array) + 1, sizeof(*map->moves));
	if (map->moves == NULL)
		return err_set(-ENOMEM, "no memory for the map's moves");
	map->move_count = (uint32_t)json_array_size(array);
	json_array_foreach(array, i, value)
	{
		status = parse_move(map, i, value);
		if (status < 0)
			return status;
	}
	return 0;
}

static int parse_shards(struct cluster_map *map, json_t *document)
{
	bool none = json_object_get(document, "owners") == NULL;
	int status;

	map->owners = calloc(map->shards, sizeof(*map->owners));
	map->since = calloc(map->shards, sizeof(*map->since));
	map->taken = calloc(map->shards, sizeof(*map->taken));
	if (map->owners == NULL || map->since == NULL || map->taken == NULL)
		return err_set(-ENOMEM, "no memory for %u shards", map->shards);
	map->placed = none;
	if (none && (json_object_get(document, "since") != NULL ||
		     json_object_get(document, "taken") != NULL ||
		     json_object_get(document, "moves") != NULL))
		return wrong("", "owners", NULL,
			     "an array for each shard; or none of owners, since, taken, moves");
	if (none) {
		for (uint32_t i = 0; i < map->shards; i++)
			map->since[i] = map->epoch;
		return cluster_place(map, map->owners);
	}
	status = parse_owners(map, document);
	if (status == 0)
		status = parse_epochs(map, document, "since", 1, NULL, map->since);
	if (status == 0 && json_object_get(document, "taken") != NULL)
		status = parse_epochs(map, document, "taken", 0, map->since, map->taken);
	if (status == 0 && json_object_get(document, "moves") != NULL)
		status = parse_moves(map, document);
	return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int parse_head(struct cluster_map *map, json_t *document)
{
	static const char *const modes[] = {"store", "cache"};
	uint64_t number = 0;
	unsigned int mode = 0;
	int status = only("", document,
			  "format, cluster, pool, mode, seed, epoch, shards, members, owners, "
			  "since, taken, moves,");

	if (status == 0)
		status = get_number("", document, "format", CLUSTER_MAP_FORMAT, CLUSTER_MAP_FORMAT,
				    &number);
	if (status == 0)
		status = get_name("", document, "cluster", map->cluster);
	if (status == 0)
		status = get_name("", document, "pool", map->pool);
	if (status == 0)
		status = get_word("", document, "mode", modes, 2, "\"store\", \"cache\"", &mode);
	if (status == 0)
		status = get_seed(document, &map->seed);
	if (status == 0)
		status = get_number("", document, "epoch", 1, CLUSTER_EPOCH_MAX, &map->epoch);
	if (status == 0)
		status = get_number("", document, "shards", CLUSTER_SHARDS_MIN, CLUSTER_SHARDS_MAX,
				    &number);
	if (status == 0 && (number & (number - 1)) != 0)
		status = wrong("", "shards", json_object_get(document, "shards"),
			       "powers of two, %u to %u", CLUSTER_SHARDS_MIN, CLUSTER_SHARDS_MAX);
	map->cache = mode == 1;
	map->shards = (uint32_t)number;
	return status;
}

int cluster_map_parse(const char *text, size_t bytes, struct cluster_map **ret_map)
{
	struct cluster_map *map;
	json_error_t error;
	json_t *document;
	int status;

	if (bytes > CLUSTER_MAP_MAX_BYTES)
		return err_set(-E2BIG, "the map has %zu bytes: allowed are up to %u", bytes,
			       CLUSTER_MAP_MAX_BYTES);
	document = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	if (document == NULL)
		return err_set(-EINVAL, "line %d, column %d: %s", error.line, error.column,
			       error.text);
	map = calloc(1, sizeof(*map));
	status = map == NULL ? err_set(-ENOMEM, "no memory for a map") : parse_head(map, document);
	if (status == 0)
		status = parse_members(map, document);
	if (status == 0)
		status = parse_shards(map, document);
	json_decref(document);
	if (status < 0)
		cluster_map_free(map);
	else
		*ret_map = map;
	return status;
}
