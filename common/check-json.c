/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * check-json.c - a check's findings and totals as JSON
 *
 * Linked into the daemon and the command, not into the library, which has no JSON. Fields are only
 * added. Next: cli/pool-check.c and daemon/control-check.c, which use it.
 */
#include "check-json.h"

#include <stdio.h>

/* jansson's integers are signed: what does not fit is told as text. */
static void set_u64(json_t *object, const char *name, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	json_object_set_new(object, name,
			    number <= INT64_MAX ? json_integer((json_int_t)number)
						: json_string(text));
}

json_t *check_json_finding(const struct check_finding *finding)
{
	json_t *object = json_object();

	json_object_set_new(object, "effect",
			    json_string(check_effect_name(check_code_effect(finding->code))));
	json_object_set_new(object, "code", json_string(check_code_name(finding->code)));
	set_u64(object, "offset", finding->offset);
	json_object_set_new(object, "text", json_string(finding->text));
	json_object_set_new(object, "meaning", json_string(check_code_meaning(finding->code)));
	json_object_set_new(object, "repair",
			    finding->repair ? json_string(finding->repair) : json_null());
	json_object_set_new(object, "repaired", json_boolean(finding->repaired));
	return object;
}

static json_t *effects(const struct check_totals *t)
{
	json_t *object = json_object();

	for (unsigned i = 0; i < CHECK_EFFECTS; i++)
		set_u64(object, check_effect_name((enum check_effect)i), t->by_effect[i]);
	return object;
}

static json_t *codes(const struct check_totals *t)
{
	json_t *object = json_object();

	for (unsigned i = 1; i < CHECK_CODE_COUNT; i++)
		if (t->findings[i])
			set_u64(object, check_code_name((enum check_code)i), t->findings[i]);
	return object;
}

static const char *const state_names[LAYOUT_PAGE_STATES] = {
	[LAYOUT_PAGE_FREE] = "free",       [LAYOUT_PAGE_INDEX] = "index",
	[LAYOUT_PAGE_SLAB] = "slab",       [LAYOUT_PAGE_FULL] = "full",
	[LAYOUT_PAGE_PARTIAL] = "partial", [LAYOUT_PAGE_ORPHAN] = "orphan",
};

static json_t *pages(const struct check_totals *t)
{
	json_t *object = json_object();

	set_u64(object, "total", t->pages);
	for (unsigned i = 0; i < LAYOUT_PAGE_STATES; i++)
		set_u64(object, state_names[i], t->by_state[i]);
	return object;
}

/* Classes that have a page. */
static json_t *classes(const struct check_totals *t)
{
	json_t *array = json_array();

	for (uint32_t class = 0; class < LAYOUT_CLASSES; class ++) {
		const uint64_t *by_state = t->by_class[class];
		json_t *object;

		if (!(by_state[LAYOUT_PAGE_SLAB] | by_state[LAYOUT_PAGE_FULL] |
		      by_state[LAYOUT_PAGE_PARTIAL] | by_state[LAYOUT_PAGE_ORPHAN]))
			continue;
		object = json_object();
		set_u64(object, "class", class);
		set_u64(object, "block_bytes", layout_class_bytes(class));
		for (unsigned i = LAYOUT_PAGE_SLAB; i < LAYOUT_PAGE_STATES; i++)
			set_u64(object, state_names[i], by_state[i]);
		json_array_append_new(array, object);
	}
	return array;
}

static void set_keys(json_t *object, const struct check_totals *t)
{
	set_u64(object, "keys", t->keys);
	set_u64(object, "counters", t->counters);
	set_u64(object, "large_values", t->large);
	set_u64(object, "expired", t->expired);
	set_u64(object, "key_bytes", t->key_bytes);
	set_u64(object, "value_bytes", t->value_bytes);
	set_u64(object, "blocks", t->blocks);
	set_u64(object, "block_bytes", t->block_bytes);
}

static void set_index(json_t *object, const struct check_totals *t)
{
	set_u64(object, "depth", t->depth);
	set_u64(object, "subtables", t->subtables);
	set_u64(object, "slots", t->slots);
	set_u64(object, "slots_pending", t->pending);
	set_u64(object, "slots_frozen", t->frozen);
	set_u64(object, "slots_moved", t->moved);
	set_u64(object, "index_load_percent", t->slots ? 100 * t->keys / t->slots : 0);
}

json_t *check_json_totals(const struct check_totals *t, bool online)
{
	json_t *object = json_object();

	json_object_set_new(object, "clean", json_boolean(check_clean(t)));
	json_object_set_new(object, "findings_by_effect", effects(t));
	json_object_set_new(object, "findings_by_code", codes(t));
	set_u64(object, "repaired", t->repaired);
	set_keys(object, t);
	set_index(object, t);
	set_u64(object, "blocks_in_use", t->blocks_in_use);
	set_u64(object, "blocks_retired", t->blocks_retired);
	set_u64(object, "blocks_aged", t->blocks_aged);
	/* online they may be in a client's hands, or were written meanwhile */
	set_u64(object, online ? "candidate_blocks" : "leaked_blocks", t->leaked_blocks);
	set_u64(object, online ? "candidate_bytes" : "leaked_bytes", t->leaked_bytes);
	set_u64(object, "clients", t->clients);
	if (online)
		set_u64(object, "unsettled", t->unsettled);
	json_object_set_new(object, "pages", pages(t));
	json_object_set_new(object, "classes", classes(t));
	return object;
}
