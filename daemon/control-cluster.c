/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `tarn members` and `tarn map show` show, and /v1/members and /v1/map, as JSON; and what `tarn drain` and the like ask for, which
 * HTTP can not. Main thread. Next to read: member-stats.c, which has the numbers; metrics.def, which has their names; member-etcd.c.
 */
#include "control-cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster-map-write.h"
#include "err.h"
#include "metrics.h"

json_t *control_cluster(const struct member *member)
{
	struct member_stats stats;

	if (!member)
		return json_null();
	member_get_stats(member, &stats);
	return metrics_object(SUBJECT_CLUSTER, &stats);
}

static json_t *peer(const struct member_peer_stats *stats)
{
	json_t *object = metrics_object(SUBJECT_MEMBER, stats), *addresses = json_array();

	for (uint32_t i = 0; i < stats->member->address_count; i++)
		json_array_append_new(addresses,
				      metrics_object(SUBJECT_MEMBER_ADDRESS, &stats->member->addresses[i]));
	json_object_set_new(object, "addresses", addresses);
	return object;
}

void control_members(const struct member *member, json_t *answer)
{
	json_t *members = json_array();
	struct member_peer_stats stats;

	for (size_t i = 0; member && member_get_peer(member, i, &stats); i++)
		json_array_append_new(members, peer(&stats));
	json_object_set_new(answer, "cluster", control_cluster(member));
	json_object_set_new(answer, "members", members);
}

/* The document is text already: it is not read again. */
char *control_map(const struct member *member)
{
	static const char begin[] = "{\"schema\":1,\"map\":", none[] = "{\"schema\":1,\"map\":null}";
	char *map = NULL, *text;
	size_t bytes = 0;

	if (!member)
		return strdup(none);
	if (cluster_map_write(member_map(member), &map, &bytes) < 0)
		return NULL;
	text = malloc(sizeof(begin) + bytes + 1);
	if (text) {
		memcpy(text, begin, sizeof(begin) - 1);
		memcpy(text + sizeof(begin) - 1, map, bytes);
		memcpy(text + sizeof(begin) - 1 + bytes, "}", 2);
	}
	free(map);
	return text;
}

/* ---- wishes ---- */

static const char *const verbs[] = {
	[MEMBER_DRAIN] = "drain",
	[MEMBER_UNDRAIN] = "undrain",
	[MEMBER_REBALANCE] = "rebalance",
	[MEMBER_FORGET] = "forget",
};

static const char *wrong(const char **ret_name)
{
	*ret_name = "EINVAL";
	return "it is {\"cluster\": {\"do\": \"drain\", \"member\": NAME}}, undrain or forget, {\"do\": \"rebalance\"}, or "
	       "{\"wish\": NUMBER}";
}

static const char *wish_state(const struct member_wish *wish)
{
	if (!wish->done)
		return "waiting";
	switch (wish->outcome) {
	case HANDOVER_WRITTEN:
		return "written";
	case HANDOVER_REFUSED:
		return "refused";
	case HANDOVER_UNKNOWN:
		break;
	}
	return "unknown";
}

static const char *show_wish(const struct member *member, json_int_t number, json_t *answer, const char **ret_name)
{
	const struct member_wish *wish = number > 0 ? member_wish_find(member, (uint64_t)number) : NULL;

	if (!wish) {
		*ret_name = "ENOENT";
		return "what has become of that wish is not known any more: `tarn members` shows how it is now";
	}
	json_object_set_new(answer, "wish",
			    json_pack("{s:I, s:s, s:o}", "number", number, "state", wish_state(wish), "text",
				      metrics_json_text(wish->text)));
	return NULL;
}

static const char *begin_wish(struct member *member, const json_t *asked, json_t *answer, const char **ret_name)
{
	const char *what = json_string_value(json_object_get(asked, "do")),
		   *name = json_string_value(json_object_get(asked, "member"));
	struct member_wish_begun begun = {0};
	size_t verb = 0;
	int rc;

	while (what && verb < sizeof(verbs) / sizeof(verbs[0]) && strcmp(what, verbs[verb]) != 0)
		verb++;
	if (!what || verb == sizeof(verbs) / sizeof(verbs[0]) || (verb != MEMBER_REBALANCE && !name))
		return wrong(ret_name);
	rc = member_wish(member, (enum member_verb)verb, name, json_is_true(json_object_get(asked, "dry_run")), &begun);
	if (rc < 0) {
		*ret_name = err_name(rc);
		return err_text();
	}
	json_object_set_new(answer, "wish",
			    json_pack("{s:I, s:s, s:I, s:I}", "number", (json_int_t)begun.number, "state",
				      rc == 0 ? "nothing" : begun.number ? "waiting" : "dry", "epoch",
				      (json_int_t)begun.epoch, "moving", (json_int_t)begun.moving));
	return NULL;
}

const char *control_wish(struct member *member, uint32_t uid, const json_t *asked, json_t *answer, const char **ret_name)
{
	const json_t *number = json_object_get(asked, "wish");

	if (!member) {
		*ret_name = "ENOENT";
		return "the daemon is in no cluster: its configuration has no [cluster]";
	}
	if (json_is_integer(number))
		return show_wish(member, json_integer_value(number), answer, ret_name);
	if (uid != 0 && uid != geteuid()) {
		*ret_name = "EPERM";
		return "only root and the daemon's own user may change the cluster: use sudo";
	}
	return begin_wish(member, asked, answer, ret_name);
}
