/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A keeper of a cluster's map in the test's own process, and members that ask it: what etcd does, but on a seed, in milliseconds, and as
 * unkindly as the test wants. What a member is told is always the newest that there is then, as a watch's reader has it that comes late.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "cluster-map-write.h"
#include "err.h"
#include "membership-fake.h"

#define MEMBERS_MAX 64u
#define LOOK_MS     5u /* members ask so often, too: what they were not told they see then */

struct fake_member {
	struct membership membership; /* the first */
	TAILQ_ENTRY(fake_member) link;
	struct fake_keeper *keeper;
	struct membership_record record;
	struct cluster_map *map;
	uint64_t confirmed_ns, records_seen, fenced;
	bool held, cut, none_told, regained_due;
	struct event *look;
};

/* A write under way. */
struct fake_write {
	TAILQ_ENTRY(fake_write) link;
	struct fake_member *member;
	struct fake_keeper *keeper;
	struct event *turn;
	char *text;
	uint64_t if_epoch, if_boot_id;
	char if_member[CLUSTER_NAME_MAX + 1];
	bool answered;
	void (*done)(void *arg, enum membership_outcome outcome, const char *text);
	void *arg;
};

struct fake_keeper {
	struct event_base *base;
	uint64_t random, revision, epoch, records_revision;
	struct fake_faults faults;
	char *text; /* the map; NULL: none */
	TAILQ_HEAD(, fake_member) members;
	TAILQ_HEAD(, fake_write) writes;
};

static struct fake_member *of(const struct membership *membership)
{
	return (struct fake_member *)(void *)(uintptr_t)membership;
}

/* ---- chance and time ---- */

/* Below `count`, which is not 0. */
static unsigned int chance(struct fake_keeper *keeper, unsigned int count)
{
	keeper->random = keeper->random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(keeper->random >> 33) % count;
}

static void within(struct fake_keeper *keeper, struct event *event, unsigned int ms)
{
	unsigned int us = ms ? chance(keeper, ms * 1000) : 0;

	event_add(event, &(struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000});
}

static void tell_all(struct fake_keeper *keeper)
{
	struct fake_member *member;

	TAILQ_FOREACH (member, &keeper->members, link)
		within(keeper, member->look, keeper->faults.late_ms);
}

/* ---- the keeper ---- */

struct fake_keeper *fake_keeper_create(struct event_base *base, uint64_t seed)
{
	struct fake_keeper *keeper = calloc(1, sizeof(*keeper));

	if (!keeper)
		abort();
	keeper->base = base;
	keeper->random = seed;
	keeper->records_revision = 1;
	TAILQ_INIT(&keeper->members);
	TAILQ_INIT(&keeper->writes);
	return keeper;
}

static void write_free(struct fake_write *write)
{
	TAILQ_REMOVE(&write->keeper->writes, write, link);
	event_free(write->turn);
	free(write->text);
	free(write);
}

void fake_keeper_free(struct fake_keeper *keeper)
{
	while (!TAILQ_EMPTY(&keeper->writes)) /* those that would be done late */
		write_free(TAILQ_FIRST(&keeper->writes));
	free(keeper->text);
	free(keeper);
}

void fake_keeper_faults(struct fake_keeper *keeper, const struct fake_faults *faults)
{
	keeper->faults = *faults;
}

uint64_t fake_keeper_epoch(const struct fake_keeper *keeper)
{
	return keeper->epoch;
}

/* The epoch that the writer could not know. */
static void epochs_set(struct cluster_map *map, uint64_t epoch)
{
	for (uint32_t i = 0; i < map->shards; i++) {
		map->since[i] = map->since[i] == map->epoch ? epoch : map->since[i];
		map->taken[i] = map->taken[i] == map->epoch ? epoch : map->taken[i];
	}
	map->epoch = epoch;
}

static struct cluster_map *map_now(const struct fake_keeper *keeper)
{
	struct cluster_map *map = NULL;

	if (cluster_map_parse(keeper->text, strlen(keeper->text), &map) < 0)
		abort();
	epochs_set(map, keeper->epoch);
	return map;
}

static bool write_fits(const struct fake_write *write)
{
	const struct fake_member *member;

	if (write->if_epoch != write->keeper->epoch)
		return false;
	if (!write->if_member[0])
		return true;
	TAILQ_FOREACH (member, &write->keeper->members, link)
		if (member->held && strcmp(member->record.name, write->if_member) == 0)
			return member->record.boot_id == write->if_boot_id;
	return false;
}

/* Revisions are not consecutive: other keys have changed in between. */
static bool write_do(struct fake_write *write)
{
	struct fake_keeper *keeper = write->keeper;

	if (!write_fits(write))
		return false;
	keeper->revision += 1 + chance(keeper, 3);
	keeper->epoch = keeper->revision;
	free(keeper->text);
	keeper->text = write->text;
	write->text = NULL;
	tell_all(keeper);
	return true;
}

static void answer(struct fake_write *write, enum membership_outcome outcome)
{
	write->answered = true;
	if (write->member)
		write->done(write->arg, outcome,
			    outcome == MEMBERSHIP_WRITTEN   ? ""
			    : outcome == MEMBERSHIP_REFUSED ? "the map has another epoch by now, or the member another record"
							    : "fake: not known");
}

static void on_write(evutil_socket_t fd, short what, void *arg)
{
	struct fake_write *write = arg;
	struct fake_keeper *keeper = write->keeper;
	const struct fake_faults *faults = &keeper->faults;
	unsigned int fate = chance(keeper, 100);

	(void)fd;
	(void)what;
	if (write->answered) {
		write_do(write);
		write_free(write);
		return;
	}
	if ((write->member && write->member->cut) || fate < faults->lost) {
		answer(write, MEMBERSHIP_UNKNOWN);
	} else if (fate < faults->lost + faults->done_unknown) {
		write_do(write);
		answer(write, MEMBERSHIP_UNKNOWN);
	} else if (fate < faults->lost + faults->done_unknown + faults->done_late) {
		within(keeper, write->turn, faults->late_ms * 4);
		answer(write, MEMBERSHIP_UNKNOWN);
		return;
	} else {
		answer(write, write_do(write) ? MEMBERSHIP_WRITTEN : MEMBERSHIP_REFUSED);
	}
	write_free(write);
}

/* ---- a member ---- */

static void map_look(struct fake_member *member)
{
	const struct membership_events *events = member->membership.events;
	struct cluster_map *old = member->map;

	member->confirmed_ns = membership_now_ns();
	if (!member->keeper->text) {
		if (!member->none_told)
			events->map(member->membership.arg, NULL);
		member->none_told = true;
		return;
	}
	if (old && old->epoch == member->keeper->epoch)
		return;
	member->map = map_now(member->keeper);
	events->map(member->membership.arg, member->map);
	cluster_map_free(old);
}

static void records_look(struct fake_member *member)
{
	struct membership_record records[MEMBERS_MAX];
	const struct fake_member *other;
	unsigned int count = 0;

	if (member->records_seen == member->keeper->records_revision)
		return;
	member->records_seen = member->keeper->records_revision;
	TAILQ_FOREACH (other, &member->keeper->members, link)
		if (other->held && count < MEMBERS_MAX)
			records[count++] = other->record;
	member->membership.events->records(member->membership.arg, records, count);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct fake_member *member = arg;

	(void)fd;
	(void)what;
	event_add(member->look, &(struct timeval){.tv_usec = LOOK_MS * 1000});
	if (member->cut)
		return;
	map_look(member);
	records_look(member);
	if (member->regained_due && member->held) {
		member->regained_due = false;
		member->membership.events->regained(member->membership.arg);
	}
}

static void fake_free(struct membership *membership)
{
	struct fake_member *member = of(membership);
	struct fake_keeper *keeper = member->keeper;
	struct fake_write *write, *next;

	for (write = TAILQ_FIRST(&keeper->writes); write; write = next) {
		next = TAILQ_NEXT(write, link);
		if (write->member == member)
			write->member = NULL; /* it may be done, nobody is told */
	}
	TAILQ_REMOVE(&keeper->members, member, link);
	keeper->records_revision++;
	tell_all(keeper);
	event_free(member->look);
	cluster_map_free(member->map);
	free(member);
}

static bool fake_held(struct membership *membership)
{
	return of(membership)->held;
}

static const struct cluster_map *fake_map(const struct membership *membership, uint64_t *ret_confirmed_ns)
{
	*ret_confirmed_ns = of(membership)->confirmed_ns;
	return of(membership)->map;
}

static int fake_write(struct membership *membership, const struct cluster_map *next, uint64_t if_epoch,
		      const char *if_member, uint64_t if_boot_id,
		      void (*done)(void *arg, enum membership_outcome outcome, const char *text), void *arg)
{
	struct fake_member *member = of(membership);
	struct fake_write *write = calloc(1, sizeof(*write));
	size_t bytes;
	int rc = write ? cluster_map_write(next, &write->text, &bytes) : err_set(-ENOMEM, "out of memory");

	if (rc < 0) {
		free(write);
		return rc;
	}
	write->member = member;
	write->keeper = member->keeper;
	write->if_epoch = if_epoch;
	write->if_boot_id = if_boot_id;
	snprintf(write->if_member, sizeof(write->if_member), "%s", if_member ? if_member : "");
	write->done = done;
	write->arg = arg;
	write->turn = evtimer_new(member->keeper->base, on_write, write);
	TAILQ_INSERT_TAIL(&member->keeper->writes, write, link);
	within(member->keeper, write->turn, member->keeper->faults.late_ms);
	return 0;
}

static int fake_reload(struct membership *membership, const struct config_cluster *config,
		       const struct membership_record *self)
{
	struct fake_member *member = of(membership);
	uint64_t boot_id = member->record.boot_id;

	(void)config;
	member->record = *self;
	member->record.boot_id = boot_id;
	member->keeper->records_revision++;
	tell_all(member->keeper);
	return 0;
}

static void fake_state(const struct membership *membership, struct membership_state *ret_state)
{
	const struct fake_member *member = of(membership);

	ret_state->backend = "fake";
	ret_state->connected = !member->cut;
	ret_state->held = member->held;
	ret_state->confirmed_ns = member->confirmed_ns;
	ret_state->revision = member->keeper->revision;
	ret_state->fenced = member->fenced;
}

static const struct membership_backend fake_backend = {
	fake_free, fake_held, fake_map, fake_write, fake_reload, fake_state,
};

struct membership *fake_member_create(struct fake_keeper *keeper, const struct membership_record *record,
				      const struct membership_events *events, void *arg, const struct log *log)
{
	struct fake_member *member = calloc(1, sizeof(*member));

	if (!member)
		abort();
	member->membership = (struct membership){&fake_backend, keeper->base, log, events, arg};
	member->keeper = keeper;
	member->record = *record;
	member->look = evtimer_new(keeper->base, on_look, member);
	TAILQ_INSERT_TAIL(&keeper->members, member, link);
	fake_member_regain(&member->membership);
	return &member->membership;
}

void fake_member_lose(struct membership *membership, const char *why)
{
	struct fake_member *member = of(membership);

	if (!member->held)
		return;
	member->held = false;
	member->fenced++;
	member->keeper->records_revision++;
	tell_all(member->keeper);
	if (!member->regained_due)
		membership->events->lost(membership->arg, why);
	member->regained_due = false;
}

void fake_member_regain(struct membership *membership)
{
	struct fake_member *member = of(membership);

	if (member->held)
		return;
	member->held = member->regained_due = true;
	member->keeper->revision++;
	member->keeper->records_revision++;
	tell_all(member->keeper);
}

void fake_member_cut(struct membership *membership, bool cut)
{
	of(membership)->cut = cut;
}
