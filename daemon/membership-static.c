/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Static membership: the map is a file, which the operator gives to all members; read at the start and by a reload, as a
 * whole. Main thread. Nobody has a lease, nothing is written here, and the map is as fresh as the question, since nobody
 * else can change it. Whether the members' addresses are our listeners' is the caller's affair.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"
#include "membership-backend.h"

/* A write that waits for the loop to be refused. */
struct refusal {
	STAILQ_ENTRY(refusal) link;
	void (*done)(void *arg, enum membership_outcome outcome, const char *text);
	void *arg;
};

struct membership_static {
	struct membership membership;
	char member[CLUSTER_NAME_MAX + 1], cluster[CLUSTER_NAME_MAX + 1];
	char *file;
	struct cluster_map *map, *old; /* old: the caller has it until it was told of the new one */
	struct event *turn; /* what the loop is to do */
	bool regained;
	STAILQ_HEAD(, refusal) refusals;
};

static struct membership_static *of(const struct membership *membership)
{
	return (struct membership_static *)(void *)(uintptr_t)membership;
}

/* ---- the file ---- */

static int file_read(int fd, char **ret_text, size_t *ret_bytes)
{
	char *text = malloc(CLUSTER_MAP_MAX_BYTES + 1);
	size_t used = 0;
	ssize_t got = 1;

	if (!text)
		return err_set(-ENOMEM, "out of memory");
	while (got > 0 && used <= CLUSTER_MAP_MAX_BYTES) {
		got = read(fd, text + used, CLUSTER_MAP_MAX_BYTES + 1 - used);
		if (got > 0)
			used += (size_t)got;
	}
	if (got < 0) {
		int error = errno;

		free(text);
		return err_set(-error, "can not be read: %s", strerrordesc_np(error));
	}
	*ret_text = text;
	*ret_bytes = used;
	return 0;
}

static int file_parse(const char *path, struct cluster_map **ret_map)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char *text = NULL;
	size_t bytes = 0;
	struct stat st;
	int rc;

	if (fd < 0)
		return err_set(-errno, "can not be read: %s", strerrordesc_np(errno));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		rc = err_set(-EINVAL, "can not be read: it is not a regular file");
	else
		rc = file_read(fd, &text, &bytes);
	close(fd);
	if (rc == 0)
		rc = cluster_map_parse(text, bytes, ret_map);
	free(text);
	return rc;
}

/* Is it a map that this member can use? */
static int map_check(const struct cluster_map *map, const char *cluster, const char *member)
{
	int place, rc = cluster_map_expect(map, cluster);

	if (rc < 0)
		return rc;
	place = cluster_map_find(map, member);
	if (place < 0)
		return err_set(-EINVAL,
			       "there is no member '%s', which this one is (`member`): add it to the map, or give this one "
			       "the name that it has there",
			       member);
	if (map->members[place].state == CLUSTER_LEFT)
		return err_set(-EINVAL, "member '%s', which this one is, has left the cluster: its state is \"left\"",
			       member);
	return 0;
}

static int map_load(const char *path, const char *cluster, const char *member, struct cluster_map **ret_map)
{
	struct cluster_map *map = NULL;
	char text[ERR_TEXT_BYTES];
	int rc = file_parse(path, &map);

	if (rc == 0)
		rc = map_check(map, cluster, member);
	if (rc == 0) {
		*ret_map = map;
		return 0;
	}
	cluster_map_free(map);
	snprintf(text, sizeof(text), "%s", err_text());
	return err_set(rc, "map = %s: %s", path, text);
}

/* What never changes, and the epoch. */
static int successor_check(const struct cluster_map *map, const struct cluster_map *next, const char *file)
{
	char text[ERR_TEXT_BYTES];

	if (membership_follows(map, next) < 0) {
		snprintf(text, sizeof(text), "%s", err_text());
		return err_set(-EINVAL, "map = %s: %s", file, text);
	}
	if (next->epoch > map->epoch)
		return 0;
	return err_set(-EINVAL,
		       "map = %s: it is another map, but its epoch, %llu, is not higher than that of the one in use, %llu: "
		       "raise it with each change",
		       file, (unsigned long long)next->epoch, (unsigned long long)map->epoch);
}

static bool members_same(const struct cluster_member *a, const struct cluster_member *b)
{
	if (strcmp(a->name, b->name) != 0 || a->number != b->number || a->state != b->state || a->weight != b->weight ||
	    a->address_count != b->address_count)
		return false;
	for (uint32_t i = 0; i < a->address_count; i++)
		if (a->addresses[i].shm != b->addresses[i].shm ||
		    strcmp(a->addresses[i].text, b->addresses[i].text) != 0)
			return false;
	return true;
}

/* The file was not changed: nothing to do, and nothing to complain about. */
static bool maps_same(const struct cluster_map *a, const struct cluster_map *b)
{
	if (strcmp(a->pool, b->pool) != 0 || a->cache != b->cache || a->seed != b->seed || a->epoch != b->epoch ||
	    a->shards != b->shards || a->member_count != b->member_count || a->move_count != b->move_count ||
	    memcmp(a->owners, b->owners, a->shards * sizeof(*a->owners)) != 0 ||
	    memcmp(a->since, b->since, a->shards * sizeof(*a->since)) != 0 ||
	    memcmp(a->taken, b->taken, a->shards * sizeof(*a->taken)) != 0)
		return false;
	for (uint32_t i = 0; i < a->move_count; i++)
		if (a->moves[i].shard != b->moves[i].shard || a->moves[i].to != b->moves[i].to)
			return false;
	for (uint32_t i = 0; i < a->member_count; i++)
		if (!members_same(&a->members[i], &b->members[i]))
			return false;
	return true;
}

/* ---- the interface ---- */

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct membership_static *self = arg;
	const struct membership_events *events = self->membership.events;
	struct cluster_map *old = self->old;
	struct refusal *refusal;

	(void)fd;
	(void)what;
	self->old = NULL;
	if (old || !self->regained)
		events->map(self->membership.arg, self->map);
	cluster_map_free(old);
	if (!self->regained)
		events->regained(self->membership.arg);
	self->regained = true;
	while ((refusal = STAILQ_FIRST(&self->refusals))) {
		STAILQ_REMOVE_HEAD(&self->refusals, link);
		refusal->done(refusal->arg, MEMBERSHIP_REFUSED,
			      "static: the map is a file, which nobody but the operator changes; shards move by etcd only");
		free(refusal);
	}
}

static void turn_soon(struct membership_static *self)
{
	event_active(self->turn, EV_TIMEOUT, 0);
}

static void static_free(struct membership *membership)
{
	struct membership_static *self = of(membership);
	struct refusal *refusal;

	while ((refusal = STAILQ_FIRST(&self->refusals))) {
		STAILQ_REMOVE_HEAD(&self->refusals, link);
		free(refusal);
	}
	if (self->turn)
		event_free(self->turn);
	cluster_map_free(self->map);
	cluster_map_free(self->old);
	free(self->file);
	free(self);
}

static bool static_held(struct membership *membership)
{
	(void)membership;
	return true;
}

static const struct cluster_map *static_map(const struct membership *membership, uint64_t *ret_confirmed_ns)
{
	*ret_confirmed_ns = membership_now_ns();
	return of(membership)->old ? of(membership)->old : of(membership)->map;
}

static int static_write(struct membership *membership, const struct cluster_map *next, uint64_t if_epoch,
			const char *if_member, uint64_t if_boot_id,
			void (*done)(void *arg, enum membership_outcome outcome, const char *text), void *arg)
{
	struct refusal *refusal = malloc(sizeof(*refusal));

	(void)next;
	(void)if_epoch;
	(void)if_member;
	(void)if_boot_id;
	if (!refusal)
		return err_set(-ENOMEM, "out of memory");
	refusal->done = done;
	refusal->arg = arg;
	STAILQ_INSERT_TAIL(&of(membership)->refusals, refusal, link);
	turn_soon(of(membership));
	return 0;
}

static int static_reload(struct membership *membership, const struct config_cluster *config,
			 const struct membership_record *record)
{
	struct membership_static *self = of(membership);
	char *file = strdup(config->map.text);
	struct cluster_map *next = NULL;
	bool same = false;
	int rc = file ? map_load(file, self->cluster, self->member, &next) : err_set(-ENOMEM, "out of memory");

	(void)record;
	if (rc == 0) {
		same = maps_same(self->map, next);
		rc = same ? 0 : successor_check(self->map, next, file);
	}
	if (rc < 0) {
		cluster_map_free(next);
		free(file);
		return rc;
	}
	free(self->file);
	self->file = file;
	if (same) {
		cluster_map_free(next);
		return 0;
	}
	/* Two reloads in one turn: the caller still has the first of the three. */
	if (self->old)
		cluster_map_free(self->map);
	else
		self->old = self->map;
	self->map = next;
	turn_soon(self);
	return 0;
}

static void static_state(const struct membership *membership, struct membership_state *ret_state)
{
	ret_state->backend = "static";
	ret_state->endpoint = of(membership)->file;
	ret_state->connected = true;
	ret_state->held = true;
	ret_state->confirmed_ns = membership_now_ns();
	ret_state->revision = of(membership)->map->epoch;
}

static const struct membership_backend static_backend = {
	static_free, static_held, static_map, static_write, static_reload, static_state,
};

int membership_static_create(const struct config_cluster *config, const struct membership *begin,
			     const struct membership_record *record, struct membership **ret_membership)
{
	struct membership_static *self = calloc(1, sizeof(*self));
	int rc;

	if (!self)
		return err_set(-ENOMEM, "out of memory");
	self->membership = *begin;
	self->membership.backend = &static_backend;
	STAILQ_INIT(&self->refusals);
	snprintf(self->member, sizeof(self->member), "%s", record->name);
	snprintf(self->cluster, sizeof(self->cluster), "%s", config->name.text);
	self->file = strdup(config->map.text);
	self->turn = evtimer_new(begin->base, on_turn, self);
	if (!self->file || !self->turn)
		rc = err_set(-ENOMEM, "out of memory");
	else
		rc = map_load(self->file, self->cluster, self->member, &self->map);
	if (rc < 0) {
		static_free(&self->membership);
		return rc;
	}
	turn_soon(self);
	*ret_membership = &self->membership;
	return 0;
}

int membership_static_load(const struct config_cluster *config, const char *member, struct cluster_map **ret_map)
{
	return map_load(config->map.text, config->name.text, member, ret_map);
}

int membership_static_check(const struct config_cluster *config, const char *member)
{
	struct cluster_map *map = NULL;
	int rc = membership_static_load(config, member, &map);

	if (rc == 0)
		cluster_map_free(map);
	return rc;
}
