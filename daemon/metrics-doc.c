/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes what is known of metrics.def: `metrics-doc --man` the lists in tarn-metrics(7), in mdoc;
 * `metrics-doc --schema` docs/stats.schema.json. Part of the build alone, one thread;
 * `make check-docs` compares its output with what is committed. Next to read: metrics.def.
 */
#include <stdio.h>
#include <string.h>

#include "events.h"
#include "metrics.h"
#include "roff.h"

/* ---- the manual page ---- */

/* The names of `reason="busy",a="b"`: reason,a. */
static void label_names(const char *labels, char *ret, size_t bytes)
{
	size_t used = 0;

	for (bool inside = false; *labels && used < bytes - 1; labels++) {
		if (*labels == '"')
			inside = !inside;
		else if (!inside && *labels != '=')
			ret[used++] = *labels;
	}
	ret[used] = '\0';
}

/* Labels of the subject's rows and of the item. */
static void man_labels(enum metrics_subject subject, const struct metrics_item *item)
{
	const char *first = metrics_subject_labels(subject);
	char own[128];

	label_names(item->labels, own, sizeof(own));
	if (*first || *own)
		printf("{%s%s%s}", first, *first && *own ? "," : "", own);
}

/* The first item of a family; NULL: none has it. */
static const struct metrics_item *family_item(int family, enum metrics_subject *ret_subject)
{
	for (int subject = 0; subject < METRICS_SUBJECT_COUNT; subject++) {
		size_t count;
		const struct metrics_item *items = metrics_items((enum metrics_subject)subject, &count);

		for (size_t i = 0; i < count; i++)
			if ((int)items[i].family == family) {
				*ret_subject = (enum metrics_subject)subject;
				return &items[i];
			}
	}
	return NULL;
}

static void man_members(int family)
{
	const char *between = "In JSON: ";

	for (int subject = 0; subject < METRICS_SUBJECT_COUNT; subject++) {
		size_t count;
		const struct metrics_item *items = metrics_items((enum metrics_subject)subject, &count);

		for (size_t i = 0; i < count; i++) {
			if ((int)items[i].family != family || !items[i].member)
				continue;
			printf("%s%s%s", between, metrics_subject_path((enum metrics_subject)subject), items[i].member);
			if (items[i].labels[0])
				printf(" (%s)", items[i].labels);
			between = ",\n";
			if (items[i].kind == METRICS_SPARSE) {
				/* one stands for all of them */
				fputs(" and so on, those that are not 0", stdout);
				break;
			}
		}
	}
	if (*between == ',')
		fputs(".\n", stdout);
}

static void man_families(void)
{
	static const char *const types[] = {"counter", "gauge", "histogram"};

	printf(".Bl -tag -width Ds\n");
	for (int family = 0; family < METRICS_FAMILY_COUNT; family++) {
		const struct metrics_family *known = metrics_family((enum metrics_family_id)family);
		enum metrics_subject subject;
		const struct metrics_item *item = family_item(family, &subject);

		if (!item)
			continue;
		printf(".It Li %s", known->name);
		man_labels(subject, item);
		printf(" Pq %s\n", types[known->type]);
		roff_sentences(known->help);
		man_members(family);
	}
	printf(".El\n");
}

static void man_json(void)
{
	printf(".Bl -tag -width Ds\n");
	for (int subject = 0; subject < METRICS_SUBJECT_COUNT; subject++) {
		size_t count;
		const struct metrics_item *items = metrics_items((enum metrics_subject)subject, &count);

		for (size_t i = 0; i < count; i++) {
			if (items[i].family != FAMILY_NONE || !items[i].member)
				continue;
			printf(".It Li %s%s\n", metrics_subject_path((enum metrics_subject)subject), items[i].member);
			roff_sentences(items[i].note);
		}
	}
	printf(".El\n");
}

static void man_events(void)
{
	printf(".Bl -tag -width Ds\n");
	for (int kind = 0; kind < EVENT_KINDS; kind++) {
		enum event_kind event = (enum event_kind)kind;

		printf(".It Li %s\n", events_kind_name(event));
		roff_sentences(events_kind_help(event));
		printf("Level %s,\n.Li MESSAGE_ID=%s .\n", log_level_name(events_kind_level(event)),
		       events_kind_id(event));
	}
	printf(".El\n");
}

static void man(void)
{
	printf(".Sh METRICS\n");
	man_families();
	printf(".Sh VALUES IN JSON ALONE\n");
	man_json();
	printf(".Sh EVENTS\nKinds of events:\n");
	man_events();
}

/* ---- the schema ---- */

static json_t *reference(const char *name)
{
	return json_pack("{s:o}", "$ref", json_sprintf("#/$defs/%s", name));
}

static json_t *or_null(json_t *schema)
{
	return json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
}

/* Name of a subject in the schema, "port_counter". */
static const char *subject_name(enum metrics_subject subject)
{
	static const char *const names[] = {
#define BEGIN(subject, view, labels, path) #subject,
#include "metrics.def"
	};
	static char lower[32];
	size_t i;

	for (i = 0; names[subject][i] && i < sizeof(lower) - 1; i++)
		lower[i] = (char)(names[subject][i] >= 'A' && names[subject][i] <= 'Z' ? names[subject][i] + 32
										       : names[subject][i]);
	lower[i] = '\0';
	return lower;
}

static json_t *part_schema(const struct metrics_item *item)
{
	switch (item->shape) {
	case METRICS_ONE:
		return reference(subject_name(item->part));
	case METRICS_ONE_OR_NULL:
		return or_null(reference(subject_name(item->part)));
	case METRICS_MANY:
		return json_pack("{s:s, s:o}", "type", "array", "items", reference(subject_name(item->part)));
	case METRICS_NAMES:
		return json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string");
	}
	return NULL;
}

static json_t *value_schema(const struct metrics_item *item)
{
	switch (item->kind) {
	case METRICS_NUMBER:
	case METRICS_SPARSE:
		return reference("u64");
	case METRICS_MAYBE:
		return or_null(reference("u64"));
	case METRICS_REAL:
		return json_pack("{s:[s, s]}", "type", "number", "null");
	case METRICS_SIGNED:
		return json_pack("{s:s}", "type", "integer");
	case METRICS_FLAG:
		return json_pack("{s:s}", "type", "boolean");
	case METRICS_TEXT:
		return json_pack("{s:[s, s]}", "type", "string", "null");
	case METRICS_BUCKETS:
		return reference("percentiles");
	case METRICS_PART:
		return part_schema(item);
	}
	return NULL;
}

static json_t *object_schema(void)
{
	return json_pack("{s:s, s:{}, s:[]}", "type", "object", "properties", "required");
}

static void require(json_t *schema, const char *name)
{
	json_array_append_new(json_object_get(schema, "required"), json_string(name));
}

/* The schema of "outer" in "outer.inner", made when it is not there. */
static json_t *outer_schema(json_t *schema, const char **inout_member)
{
	const char *dot = strchr(*inout_member, '.');
	json_t *properties = json_object_get(schema, "properties"), *inner;
	char outer[40];

	if (!dot)
		return schema;
	snprintf(outer, sizeof(outer), "%.*s", (int)(dot - *inout_member), *inout_member);
	*inout_member = dot + 1;
	inner = json_object_get(properties, outer);
	if (inner)
		return inner;
	inner = object_schema();
	json_object_set_new(properties, outer, inner);
	require(schema, outer);
	return inner;
}

/* Adds a subject's members. `always`: are they there in each object? */
static void members_add(json_t *schema, enum metrics_subject subject, bool always)
{
	size_t count;
	const struct metrics_item *items = metrics_items(subject, &count);

	for (size_t i = 0; i < count; i++) {
		const char *member = items[i].member;
		json_t *outer, *value;

		if (!member)
			continue;
		if (!always && strchr(member, '.') == NULL) {
			json_object_set_new(json_object_get(schema, "properties"), member, value_schema(&items[i]));
			continue;
		}
		outer = outer_schema(schema, &member);
		value = value_schema(&items[i]);
		json_object_set_new(
			value, "description",
			json_string(items[i].note[0] ? items[i].note : metrics_family(items[i].family)->help));
		json_object_set_new(json_object_get(outer, "properties"), member, value);
		if (always && items[i].kind != METRICS_SPARSE)
			require(outer, member);
	}
}

/* What stands where several subjects are one object. */
static json_t *subjects_schema(enum metrics_subject first, int second)
{
	json_t *schema = object_schema();

	members_add(schema, first, true);
	if (second >= 0)
		members_add(schema, (enum metrics_subject)second, true);
	return schema;
}

static json_t *listener_schema(void)
{
	json_t *schema = subjects_schema(SUBJECT_LISTENER, -1);

	members_add(schema, SUBJECT_LISTENER_UNIX, false);
	members_add(schema, SUBJECT_LISTENER_RDMA, false);
	/* "refused" is there of RDMA listeners alone */
	for (size_t i = 0; i < json_array_size(json_object_get(schema, "required")); i++)
		if (strcmp(json_string_value(json_array_get(json_object_get(schema, "required"), i)), "refused") == 0)
			json_array_remove(json_object_get(schema, "required"), i);
	return schema;
}

/* {"schema": 1, NAME: ...} */
static json_t *document_schema(void)
{
	json_t *schema = object_schema();

	json_object_set_new(json_object_get(schema, "properties"), "schema", json_pack("{s:i}", "const", 1));
	require(schema, "schema");
	return schema;
}

static void document_member(json_t *schema, const char *name, json_t *value)
{
	json_object_set_new(json_object_get(schema, "properties"), name, value);
	require(schema, name);
}

static json_t *list_of(const char *name)
{
	return json_pack("{s:s, s:o}", "type", "array", "items", reference(name));
}

static json_t *stats_schema(void)
{
	json_t *schema = document_schema();

	document_member(schema, "daemon", reference("daemon"));
	document_member(schema, "process", reference("process"));
	document_member(schema, "http", or_null(reference("http")));
	document_member(schema, "cluster", or_null(reference("cluster")));
	document_member(schema, "devices", list_of("device"));
	document_member(schema, "listeners", list_of("listener"));
	document_member(schema, "pools", list_of("pool"));
	return schema;
}

static json_t *list_schema(const char *name, const char *of)
{
	json_t *schema = document_schema();

	document_member(schema, name, list_of(of));
	return schema;
}

static json_t *members_schema(void)
{
	json_t *schema = list_schema("members", "member");

	document_member(schema, "cluster", or_null(reference("cluster")));
	return schema;
}

/* The map has a schema of its own. */
static json_t *map_schema(void)
{
	json_t *schema = document_schema();

	document_member(schema, "map",
			or_null(json_pack("{s:s, s:s}", "type", "object", "description",
					  "As docs/cluster-map.schema.json describes it.")));
	return schema;
}

static json_t *ready_schema(void)
{
	json_t *schema = document_schema();

	document_member(schema, "ready", json_pack("{s:s}", "type", "boolean"));
	document_member(schema, "reasons", json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string"));
	return schema;
}

static json_t *health_schema(void)
{
	json_t *schema = document_schema();

	document_member(schema, "healthy", json_pack("{s:b}", "const", 1));
	return schema;
}

static json_t *error_schema(void)
{
	json_t *schema = document_schema(), *error = object_schema();

	document_member(error, "status", json_pack("{s:s}", "type", "integer"));
	document_member(error, "name", json_pack("{s:s}", "type", "string"));
	document_member(error, "text", json_pack("{s:s}", "type", "string"));
	document_member(schema, "error", error);
	return schema;
}

static json_t *percentiles_schema(void)
{
	json_t *schema = object_schema();

	document_member(schema, "p50", reference("u64"));
	document_member(schema, "p99", reference("u64"));
	document_member(schema, "p999", reference("u64"));
	return schema;
}

static void definitions_add(json_t *all)
{
	static const enum metrics_subject plain[] = {
		SUBJECT_HTTP,   SUBJECT_PROCESS,      SUBJECT_EVENT,        SUBJECT_OPERATIONS, SUBJECT_EVICTION,
		SUBJECT_WAITER, SUBJECT_CLASS,        SUBJECT_ACCESS_KEY,   SUBJECT_CLIENT,     SUBJECT_CONNECTION,
		SUBJECT_DEVICE, SUBJECT_PORT_COUNTER, SUBJECT_REGISTRATION, SUBJECT_CLUSTER, SUBJECT_MEMBER,
		SUBJECT_MEMBER_ADDRESS,
	};

	json_object_set_new(all, "u64",
			    json_pack("{s:s, s:[{s:s, s:i}, {s:s, s:s}]}", "description",
				      "A number; as text when it is 2^63 or more.", "anyOf", "type", "integer",
				      "minimum", 0, "type", "string", "pattern", "^[0-9]+$"));
	json_object_set_new(all, "percentiles", percentiles_schema());
	json_object_set_new(all, "daemon", subjects_schema(SUBJECT_HEAD, SUBJECT_DAEMON));
	json_object_set_new(all, "pool", subjects_schema(SUBJECT_POOL_HEAD, SUBJECT_POOL));
	json_object_set_new(all, "pool_short", subjects_schema(SUBJECT_POOL_HEAD, SUBJECT_POOL_LIST));
	json_object_set_new(all, "listener", listener_schema());
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		json_object_set_new(all, subject_name(plain[i]), subjects_schema(plain[i], -1));
}

static void documents_add(json_t *all)
{
	json_object_set_new(all, "/v1/stats", stats_schema());
	json_object_set_new(all, "/v1/pools", list_schema("pools", "pool_short"));
	json_object_set_new(all, "/v1/clients", list_schema("clients", "client"));
	json_object_set_new(all, "/v1/events", list_schema("events", "event"));
	json_object_set_new(all, "/v1/members", members_schema());
	json_object_set_new(all, "/v1/map", map_schema());
	json_object_set_new(all, "/readyz", ready_schema());
	json_object_set_new(all, "/healthz", health_schema());
	json_object_set_new(all, "error", error_schema());
}

static void schema(void)
{
	json_t *root = json_object(), *all = json_object();

	json_object_set_new(root, "$schema", json_string("https://json-schema.org/draft/2020-12/schema"));
	json_object_set_new(root, "title", json_string("Tarn's statistics"));
	json_object_set_new(root, "description",
			    json_string("What tarnd answers over HTTP, by path, and `tarn --json stats`, pools and "
					"clients. Members are only added while \"schema\" is 1. Generated from "
					"daemon/metrics.def by `make update-docs`."));
	documents_add(all);
	definitions_add(all);
	json_object_set_new(root, "$defs", all);
	json_dumpf(root, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(root);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--man") == 0)
		man();
	else if (argc == 2 && strcmp(argv[1], "--schema") == 0)
		schema();
	else {
		fprintf(stderr, "Usage: metrics-doc --man | --schema\n");
		return 2;
	}
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
