/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `tarn members` and `tarn map show` show, and /v1/members and /v1/map, as JSON. Main thread; changes nothing. Next to
 * read: member-stats.c, which has the numbers; metrics.def, which has their names.
 */
#include "control-cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster-map-write.h"
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
