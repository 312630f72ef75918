/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * map.c - `tarn map ...`: looks at the map of a cluster, in a file or the daemon's, and what a change of
 * its members would move
 *
 * The command's thread. Next to read: common/cluster-map.h, docs/protocol.md section
 * 11.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster-map.h"
#include "control.h"
#include "err.h"
#include "verbs.h"

enum { MAP_ADD, MAP_REMOVE, MAP_CLUSTER, MAP_KEY, MAP_SHARDS };

static const struct option_spec map_options[] = {
	[MAP_ADD] = {"add", 0, "NAME[=WEIGHT]",
		     "show: what would move if this member were there (weight: 100)"},
	[MAP_REMOVE] = {"remove", 0, "NAME", "show: what would move if it were not"},
	[MAP_CLUSTER] = {"cluster", 0, "NAME", "refuse the map of another cluster"},
	[MAP_KEY] = {"key", 0, "KEY", "show: only the shard and the member of this key"},
	[MAP_SHARDS] = {"shards", 0, NULL, "show: each shard, too"},
	{0},
};

/* ---- the file -------------------------------------------------------------------------------- */

/* A byte more than is allowed, so that what is too large is seen. */
static int read_file(const char *path, char **ret_text, size_t *ret_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), status = 0;
	char *text = malloc(CLUSTER_MAP_MAX_BYTES + 1);
	size_t n = 0;
	ssize_t got = 1;

	if (fd < 0 || text == NULL)
		status = err_set(fd < 0 ? -errno : -ENOMEM, "%s",
				 fd < 0 ? strerror(errno) : "no memory to read it");
	while (status == 0 && got > 0 && n <= CLUSTER_MAP_MAX_BYTES) {
		got = read(fd, text + n, CLUSTER_MAP_MAX_BYTES + 1 - n);
		if (got < 0 && errno == EINTR)
			got = 1;
		else if (got < 0)
			status = err_set(-errno, "%m");
		else
			n += (size_t)got;
	}
	if (fd >= 0)
		close(fd);
	if (status < 0) {
		free(text);
		return status;
	}
	*ret_text = text;
	*ret_bytes = n;
	return 0;
}

/* What it is called in messages. */
static const char *name_of(const struct arguments *args)
{
	return args->count > 1 ? args->operands[1] : "the daemon's map";
}

/* That of the daemon. 0, or an exit code after complaining. */
static int ask_map(struct cli *cli, char **ret_text, size_t *ret_bytes)
{
	json_t *answer, *map;
	int status = control_ask(cli, "{\"get\":\"map\"}", &answer);

	if (status != CLI_OK)
		return status;
	map = json_object_get(answer, "map");
	if (json_is_object(map)) {
		*ret_text = json_dumps(map, JSON_COMPACT);
		if (*ret_text != NULL)
			*ret_bytes = strlen(*ret_text);
		else
			status = cli_fail_system(cli, -ENOMEM, NULL);
	} else {
		status = cli_fail(cli, -ENOENT, NULL,
				  "the daemon is in no cluster: its configuration has no [cluster]");
	}
	json_decref(answer);
	return status;
}

/* 0, or an exit code after complaining. A map that is wrong is a finding: 6. */
static int open_map(struct cli *cli, const struct arguments *args, struct cluster_map **ret_map)
{
	const char *path = name_of(args), *cluster = args->own.values[MAP_CLUSTER];
	struct cluster_map *map;
	size_t bytes = 0;
	char *text = NULL;
	int status;

	if (args->count < 2) {
		status = ask_map(cli, &text, &bytes);
		if (status != CLI_OK)
			return status;
	} else {
		status = read_file(path, &text, &bytes);
		if (status < 0)
			return cli_fail(cli, status, path, "%s", err_text());
	}
	status = cluster_map_parse(text, bytes, &map);
	free(text);
	if (status == 0 && cluster != NULL) {
		status = cluster_map_expect(map, cluster);
		if (status < 0)
			cluster_map_free(map);
	}
	if (status == 0) {
		*ret_map = map;
		return CLI_OK;
	}
	cli_fail(cli, status, path, "%s", err_text());
	return status == -ENOMEM ? CLI_REFUSED : CLI_UNHEALTHY;
}

/* ---- show ------------------------------------------------------------------------------------ */

static uint32_t owned(const struct cluster_map *map, const uint16_t *owners, uint32_t member)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < map->shards; i++)
		n += owners[i] == member;
	return n;
}

static json_t *address_text(const struct cluster_member *member)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < member->address_count; i++)
		json_array_append_new(array,
				      json_pack("{s:s, s:o}", "fabric",
						member->addresses[i].shm ? "shm" : "verbs",
						"address", writer_text(member->addresses[i].text)));
	return array;
}

/* after: NULL, or the owners as they would be. */
static void show_members(struct cli *cli, const struct cluster_map *map, const uint16_t *after)
{
	writer_list_begin(cli->writer, WRITER_TABLE, "members");
	for (uint32_t i = 0; i < map->member_count; i++) {
		const struct cluster_member *member = &map->members[i];
		bool added = member->number > CLUSTER_MEMBERS_MAX;
		json_t *row = json_pack(
			"{s:s, s:o, s:s, s:I, s:I}", "member", member->name, "number",
			added ? json_null() : json_integer(member->number), "state",
			cluster_state_name(member->state), "weight", (json_int_t)member->weight,
			"shards", (json_int_t)owned(map, map->owners, i));

		if (after != NULL)
			json_object_set_new(row, "shards_after",
					    json_integer((json_int_t)owned(map, after, i)));
		if (writer_is_json(cli->writer))
			json_object_set_new(row, "addresses", address_text(member));
		else
			json_object_set_new(row, "address",
					    added ? json_null()
						  : writer_text(member->addresses->text));
		writer_row(cli->writer, row);
	}
	writer_list_end(cli->writer);
}

static json_t *owner_name(const struct cluster_map *map, uint16_t owner)
{
	return owner == CLUSTER_NOBODY ? json_null() : json_string(map->members[owner].name);
}

/* The member that a move under way goes to. */
static json_t *move_name(const struct cluster_map *map, uint32_t shard)
{
	for (uint32_t i = 0; i < map->move_count; i++)
		if (map->moves[i].shard == shard)
			return owner_name(map, map->moves[i].to);
	return json_null();
}

static void show_shards(struct cli *cli, const struct cluster_map *map, const uint16_t *after)
{
	writer_list_begin(cli->writer, WRITER_TABLE, "shard_owners");
	for (uint32_t i = 0; i < map->shards; i++) {
		json_t *row = json_pack("{s:I, s:o, s:o, s:o, s:o}", "shard", (json_int_t)i,
					"owner", owner_name(map, map->owners[i]), "since",
					writer_u64(map->since[i]), "taken",
					writer_u64(map->taken[i]), "moves_to", move_name(map, i));

		if (after != NULL)
			json_object_set_new(row, "owner_after", owner_name(map, after[i]));
		writer_row(cli->writer, row);
	}
	writer_list_end(cli->writer);
}

/* How many shards would go from whom to whom. Returns how many in all. */
static uint32_t show_moves(struct cli *cli, const struct cluster_map *map, const uint16_t *after)
{
	uint32_t n = map->member_count, total = 0;
	uint32_t *counts = calloc((size_t)(n + 1) * n, sizeof(*counts)); /* the last row: nobody */

	writer_list_begin(cli->writer, WRITER_TABLE, "moves");
	for (uint32_t i = 0; counts != NULL && i < map->shards; i++) {
		uint32_t from = map->owners[i] == CLUSTER_NOBODY ? n : map->owners[i];

		if (from == after[i])
			continue;
		counts[(size_t)from * n + after[i]]++;
		total++;
	}
	for (uint32_t i = 0; counts != NULL && i < (n + 1) * n; i++) {
		uint16_t from = CLUSTER_NOBODY;

		if (i / n < n)
			from = (uint16_t)(i / n);
		if (counts[i] > 0)
			writer_row(cli->writer,
				   json_pack("{s:o, s:s, s:I}", "from", owner_name(map, from), "to",
					     map->members[i % n].name, "shards",
					     (json_int_t)counts[i]));
	}
	/* no memory: the writer says so at the end */
	if (counts == NULL)
		writer_row(cli->writer, NULL);
	writer_list_end(cli->writer);
	free(counts);
	return total;
}

static void show_head(struct cli *cli, const struct cluster_map *map)
{
	struct writer *w = cli->writer;

	writer_field(w, WRITER_TABLE, "cluster", json_string(map->cluster));
	writer_field(w, WRITER_TABLE, "pool", json_string(map->pool));
	writer_field(w, WRITER_TABLE, "mode", json_string(map->cache ? "cache" : "store"));
	writer_field(w, WRITER_TABLE, "epoch", writer_u64(map->epoch));
	writer_field(w, WRITER_TABLE, "shards", json_integer((json_int_t)map->shards));
	writer_field(w, WRITER_TABLE, "shards_moving", json_integer((json_int_t)map->move_count));
	writer_field(w, WRITER_TABLE, "owners_computed", json_boolean(map->placed));
}

/* ---- a change -------------------------------------------------------------------------------- */

/* The map with one member more: NAME or NAME=WEIGHT. */
static int add_member(struct cluster_map *map, const char *operand)
{
	const char *equals = strchr(operand, '=');
	size_t n = equals != NULL ? (size_t)(equals - operand) : strlen(operand);
	struct cluster_member *members,
		member = {.state = CLUSTER_UP, .weight = CLUSTER_WEIGHT_DEFAULT};
	char *end = NULL;

	if (n <= CLUSTER_NAME_MAX)
		memcpy(member.name, operand, n);
	if (!cluster_name_valid(member.name))
		return err_set(-EINVAL,
			       "--add %s: a member's name has 1 to %u of a-z, A-Z, 0-9, '.', '_', "
			       "'-'",
			       operand, CLUSTER_NAME_MAX);
	if (equals != NULL) {
		unsigned long weight = strtoul(equals + 1, &end, 10);

		if (equals[1] < '0' || equals[1] > '9' || *end != '\0' || weight == 0 ||
		    weight > CLUSTER_WEIGHT_MAX)
			return err_set(-EINVAL, "--add %s: a weight is 1 to %u", operand,
				       CLUSTER_WEIGHT_MAX);
		member.weight = (uint32_t)weight;
	}
	if (cluster_map_find(map, member.name) >= 0)
		return err_set(-EINVAL, "--add %s: the map has a member of this name", operand);
	if (map->member_count == CLUSTER_MEMBERS_MAX)
		return err_set(-EINVAL, "--add %s: the map has %u members, and no more are allowed",
			       operand, CLUSTER_MEMBERS_MAX);
	members = realloc(map->members, (map->member_count + 1) * sizeof(*members));
	if (members == NULL)
		return err_set(-ENOMEM, "no memory for a member");
	map->members = members;
	/* number and addresses come with its joining; behind all others until then */
	member.number = UINT16_MAX;
	map->members[map->member_count++] = member;
	return 0;
}

static int remove_member(struct cluster_map *map, const char *name)
{
	int i = cluster_map_find(map, name);

	if (i < 0)
		return err_set(-EINVAL, "--remove %s: the map of cluster '%s' has no such member",
			       name, map->cluster);
	map->members[i].state = CLUSTER_DRAINING;
	return 0;
}

/* The owners behind the change. 0, or an exit code after complaining. */
static int change(struct cli *cli, const struct arguments *args, struct cluster_map *map,
		  uint16_t *after)
{
	const char *add = args->own.values[MAP_ADD], *remove = args->own.values[MAP_REMOVE];
	int status = 0;

	if (add != NULL)
		status = add_member(map, add);
	if (status == 0 && remove != NULL)
		status = remove_member(map, remove);
	if (status == 0)
		status = cluster_place(map, after);
	return status < 0 ? cli_fail(cli, status, name_of(args), "%s", err_text()) : CLI_OK;
}

/* ---- the parts ------------------------------------------------------------------------------- */

static int check(struct cli *cli, const struct arguments *args)
{
	struct cluster_map *map;
	json_t *text, *file;
	int status = open_map(cli, args, &map);

	if (status != CLI_OK)
		return status;
	writer_field(cli->writer, WRITER_HIDDEN, "file", writer_text(name_of(args)));
	writer_field(cli->writer, WRITER_HIDDEN, "ok", json_true());
	writer_field(cli->writer, WRITER_HIDDEN, "cluster", json_string(map->cluster));
	writer_field(cli->writer, WRITER_HIDDEN, "epoch", writer_u64(map->epoch));
	file = writer_text(name_of(args)); /* what it is called, safe for a terminal */
	text = json_sprintf("%s: ok, cluster %s, epoch %llu, %u members, %u shards\n",
			    json_string_value(file), map->cluster, (unsigned long long)map->epoch,
			    map->member_count, map->shards);
	if (text != NULL && !cli->quiet)
		writer_raw(cli->writer, json_string_value(text), json_string_length(text));
	json_decref(text);
	json_decref(file);
	cluster_map_free(map);
	return CLI_OK;
}

static int show_key(struct cli *cli, const struct cluster_map *map, const char *operand)
{
	struct cli_key key;
	uint32_t shard;
	int status = cli_key_parse(cli, operand, false, &key);

	if (status != CLI_OK)
		return status;
	shard = cluster_map_shard(map, key.bytes, key.n);
	writer_key(cli->writer, key.bytes, key.n);
	writer_field(cli->writer, WRITER_TABLE, "shard", json_integer((json_int_t)shard));
	writer_field(cli->writer, WRITER_TABLE, "owner", owner_name(map, map->owners[shard]));
	writer_field(cli->writer, WRITER_TABLE, "since", writer_u64(map->since[shard]));
	writer_field(cli->writer, WRITER_TABLE, "moves_to", move_name(map, shard));
	cli_key_free(&key);
	return CLI_OK;
}

static int show_change(struct cli *cli, const struct arguments *args, struct cluster_map *map)
{
	uint16_t *after = calloc(map->shards, sizeof(*after));
	int status =
		after == NULL ? cli_fail_system(cli, -ENOMEM, NULL) : change(cli, args, map, after);

	if (status == CLI_OK) {
		uint32_t moving;

		show_head(cli, map);
		show_members(cli, map, after);
		if (args->own.values[MAP_SHARDS] != NULL)
			show_shards(cli, map, after);
		moving = show_moves(cli, map, after);
		writer_field(cli->writer, WRITER_TABLE, "shards_to_move",
			     json_integer((json_int_t)moving));
		writer_field(cli->writer, WRITER_TABLE, "percent_to_move",
			     json_real(100.0 * moving / map->shards));
	}
	free(after);
	return status;
}

static int show(struct cli *cli, const struct arguments *args)
{
	struct cluster_map *map;
	int status = open_map(cli, args, &map);

	if (status != CLI_OK)
		return status;
	if (args->own.values[MAP_KEY] != NULL) {
		status = show_key(cli, map, args->own.values[MAP_KEY]);
	} else if (args->own.values[MAP_ADD] != NULL || args->own.values[MAP_REMOVE] != NULL) {
		status = show_change(cli, args, map);
	} else {
		show_head(cli, map);
		show_members(cli, map, NULL);
		if (args->own.values[MAP_SHARDS] != NULL)
			show_shards(cli, map, NULL);
	}
	cluster_map_free(map);
	return status;
}

static int run_map(struct cli *cli, const struct arguments *args)
{
	const char *what = args->operands[0];
	bool checks = strcmp(what, "check") == 0;

	if (!checks && strcmp(what, "show") != 0)
		return cli_fail_usage(cli, "'%s': write `tarn map check [FILE]` or `show [FILE]`",
				      what);
	for (size_t i = 0; checks && map_options[i].name != NULL; i++)
		if (i != MAP_CLUSTER && args->own.values[i] != NULL)
			return cli_fail_usage(cli, "--%s is for `tarn map show`",
					      map_options[i].name);
	for (size_t i = 0; args->own.values[MAP_KEY] != NULL && map_options[i].name != NULL; i++)
		if (i != MAP_CLUSTER && i != MAP_KEY && args->own.values[i] != NULL)
			return cli_fail_usage(cli, "--key shows one shard alone, without --%s",
					      map_options[i].name);
	return checks ? check(cli, args) : show(cli, args);
}

const struct verb verb_map = {
	.name = "map",
	.operands = "check | show [FILE]",
	.help = "the map of a cluster, and what a change of members would move",
	.details = "Without FILE the map is that which the daemon uses. `check` looks whether it is a map as docs/cluster-map.schema.json and "
		   "docs/protocol.md (section 11) want it; the exit code is 6 if it is not. `show` "
		   "prints its members and their shards; with --add or --remove also what such a "
		   "change would move, and changes nothing. Without \"owners\" in the file, the "
		   "owners "
		   "are those that the members' weights give.",
	.options = map_options,
	.min_operands = 1,
	.max_operands = 2,
	.run = run_map,
};
