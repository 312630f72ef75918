/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Map and records in etcd. Main thread. A linearizable read, four times in the bound, says that the map is still the newest; it asks
 * for the revision alone, and now and then for everything. The watch brings changes at once, but it proves nothing: one
 * that says nothing may be dead, or at a member of etcd that has been cut off. So a change that only a read has seen is taken from the
 * read, and the watch is begun again when it ends, from where it was; where etcd has forgotten that, from a new read of
 * everything. Next to read: membership-etcd.c, membership-etcd-lease.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "membership-etcd.h"
#include "membership-record.h"

#define READ_ALL_EACH 16u /* of so many questions one asks for everything */

/* ---- the map ---- */

/* The epoch that the writer could not know. */
static void epochs_set(struct cluster_map *map, uint64_t revision)
{
	for (uint32_t i = 0; i < map->shards; i++) {
		if (map->since[i] == map->epoch)
			map->since[i] = revision;
		if (map->taken[i] == map->epoch)
			map->taken[i] = revision;
	}
	map->epoch = revision;
}

static int map_parse(const struct etcd *etcd, const struct etcd_kv *kv, struct cluster_map **ret_map)
{
	struct cluster_map *map = NULL;
	int rc = cluster_map_parse(kv->value ? kv->value : "", kv->bytes, &map);

	if (rc == 0)
		rc = cluster_map_expect(map, etcd->cluster);
	if (rc == 0 && etcd->map)
		rc = membership_follows(etcd->map, map);
	if (rc == 0 && (map->epoch > kv->mod_revision || kv->mod_revision > CLUSTER_EPOCH_MAX))
		rc = err_set(-EINVAL, "its epoch, %" PRIu64 ", is later than the revision in which it was written, %" PRIu64,
			     map->epoch, kv->mod_revision);
	if (rc < 0) {
		cluster_map_free(map);
		return rc;
	}
	epochs_set(map, kv->mod_revision);
	*ret_map = map;
	return 0;
}

/* A newer one. */
static void map_take(struct etcd *etcd, const struct etcd_kv *kv)
{
	struct cluster_map *map = NULL, *old = etcd->map;

	if (kv->mod_revision == etcd->bad_revision)
		return;
	if (map_parse(etcd, kv, &map) < 0) {
		etcd->bad_revision = kv->mod_revision;
		etcd_complain(etcd, ETCD_ABOUT_MAP, "%s in etcd is no map for this member: %s", etcd->map_key, err_text());
		return;
	}
	etcd->map = map;
	etcd->none_told = true;
	etcd->membership.events->map(etcd->membership.arg, map);
	cluster_map_free(old);
}

static const struct etcd_kv *kv_find(const struct etcd_answer *answer, const char *key)
{
	for (size_t i = 0; i < answer->count; i++)
		if (strcmp(answer->kvs[i].key, key) == 0)
			return &answer->kvs[i];
	return NULL;
}

/* It is known what the map was when a question was sent. */
static void map_confirm(struct etcd *etcd, const struct etcd_kv *kv, uint64_t sent_ns, bool whole)
{
	if (!kv) {
		if (etcd->map)
			etcd_complain(etcd, ETCD_ABOUT_MAP, "%s is gone from etcd: the last map known goes on for the time of map_bound",
				      etcd->map_key);
		else
			etcd->confirmed_ns = sent_ns;
		if (!etcd->none_told)
			etcd->membership.events->map(etcd->membership.arg, NULL);
		etcd->none_told = true;
		return;
	}
	if (etcd->map && kv->mod_revision < etcd->map->epoch) {
		etcd_complain(etcd, ETCD_ABOUT_MAP,
			      "etcd has gone back: its map is of revision %" PRIu64 ", and this member knows of %" PRIu64
			      ": was it restored from a backup? All members have to be started again then",
			      kv->mod_revision, etcd->map->epoch);
		return;
	}
	if (whole && (!etcd->map || kv->mod_revision > etcd->map->epoch))
		map_take(etcd, kv);
	if (etcd->map && etcd->map->epoch == kv->mod_revision) {
		etcd->confirmed_ns = sent_ns;
		etcd->errors[ETCD_ABOUT_MAP][0] = '\0';
	} else if (!whole && kv->mod_revision != etcd->bad_revision) {
		etcd_read_now(etcd);
	}
}

/* ---- records ---- */

const struct etcd_member *etcd_member_find(const struct etcd *etcd, const char *name)
{
	for (size_t i = 0; i < etcd->member_count; i++)
		if (strcmp(etcd->members[i].record.name, name) == 0)
			return &etcd->members[i];
	return NULL;
}

/* PREFIX/CLUSTER/members/NAME: the name, or NULL. */
static const char *member_name(const struct etcd *etcd, const char *key)
{
	size_t length = strlen(etcd->member_key) - strlen(etcd->self.name);

	return strncmp(key, etcd->member_key, length) == 0 ? key + length : NULL;
}

static bool member_remove(struct etcd *etcd, const char *name)
{
	const struct etcd_member *member = etcd_member_find(etcd, name);
	size_t at = member ? (size_t)(member - etcd->members) : 0;

	if (!member)
		return false;
	memmove(&etcd->members[at], &etcd->members[at + 1], (--etcd->member_count - at) * sizeof(*etcd->members));
	return true;
}

static bool member_put(struct etcd *etcd, const char *name, const struct etcd_kv *kv)
{
	struct etcd_member member = {.revision = kv->mod_revision}, *grown;
	size_t at = 0;

	if (membership_record_parse(kv->value ? kv->value : "", kv->bytes, &member.record) < 0 ||
	    strcmp(member.record.name, name) != 0) {
		etcd_complain(etcd, ETCD_ABOUT_MAP, "%s in etcd is no member's record, ignoring it: %s", kv->key,
			      strcmp(member.record.name, name) != 0 && member.record.name[0] ? "its name is another one"
											      : err_text());
		return member_remove(etcd, name);
	}
	member_remove(etcd, name);
	grown = realloc(etcd->members, (etcd->member_count + 1) * sizeof(*grown));
	if (!grown || etcd->member_count >= CLUSTER_MEMBERS_MAX) {
		etcd->members = grown ? grown : etcd->members;
		return true;
	}
	etcd->members = grown;
	while (at < etcd->member_count && strcmp(grown[at].record.name, name) < 0)
		at++;
	memmove(&grown[at + 1], &grown[at], (etcd->member_count++ - at) * sizeof(*grown));
	grown[at] = member;
	return true;
}

static void members_tell(struct etcd *etcd)
{
	struct membership_record *records = calloc(etcd->member_count + 1, sizeof(*records));

	if (!records) {
		etcd_complain(etcd, ETCD_ABOUT_MAP, "no memory for %zu records", etcd->member_count);
		etcd->all_next = true;
		return;
	}
	for (size_t i = 0; i < etcd->member_count; i++)
		records[i] = etcd->members[i].record;
	etcd->members_told = true;
	etcd->membership.events->records(etcd->membership.arg, records, (unsigned int)etcd->member_count);
	free(records);
	etcd_lease_records(etcd);
}

/* One key of the cluster's, in a list or an event; true: the records have changed. */
static bool member_take(struct etcd *etcd, const struct etcd_kv *kv)
{
	const char *name = member_name(etcd, kv->key);
	const struct etcd_member *member = name ? etcd_member_find(etcd, name) : NULL;

	if (!name || (member && member->revision >= kv->mod_revision && !kv->deleted))
		return false;
	return kv->deleted ? member_remove(etcd, name) : member_put(etcd, name, kv);
}

static void members_list(struct etcd *etcd, const struct etcd_answer *answer)
{
	bool changed = !etcd->members_told;

	for (size_t i = etcd->member_count; i-- > 0;) {
		bool there = false;

		for (size_t j = 0; j < answer->count && !there; j++) {
			const char *name = member_name(etcd, answer->kvs[j].key);

			there = name && strcmp(name, etcd->members[i].record.name) == 0;
		}
		if (!there)
			changed |= member_remove(etcd, etcd->members[i].record.name);
	}
	for (size_t i = 0; i < answer->count; i++)
		changed |= member_take(etcd, &answer->kvs[i]);
	if (changed)
		members_tell(etcd);
}

/* ---- the watch ---- */

static void read_after(struct etcd *etcd, struct timeval wait)
{
	event_add(etcd->read_timer, &wait);
}

static void watch_later(struct etcd *etcd)
{
	struct timeval wait = etcd_pause(etcd, ++etcd->watch_failures);

	event_add(etcd->watch_timer, &wait);
}

static void watch_events(struct etcd *etcd, const struct etcd_answer *answer)
{
	bool changed = false;

	for (size_t i = 0; i < answer->count; i++) {
		const struct etcd_kv *kv = &answer->kvs[i];

		if (kv->mod_revision >= etcd->watch_from)
			etcd->watch_from = kv->mod_revision + 1;
		if (kv->mod_revision <= etcd->listed_revision)
			continue; /* from before the last list, which has it already */
		if (strcmp(kv->key, etcd->map_key) != 0)
			changed |= member_take(etcd, kv);
		else if (kv->deleted || (etcd->map && kv->mod_revision <= etcd->map->epoch))
			etcd->all_next = etcd->all_next || kv->deleted;
		else
			map_take(etcd, kv);
	}
	if (changed)
		members_tell(etcd);
}

static void watch_canceled(struct etcd *etcd, const struct etcd_answer *answer)
{
	etcd_call_cancel(etcd->watch);
	etcd->watch = NULL;
	if (!answer->compact_revision) {
		etcd_complain(etcd, ETCD_ABOUT_MAP, "etcd has ended the watch: %s",
			      answer->error[0] ? answer->error : "it gives no reason");
		watch_later(etcd);
		return;
	}
	log_info(etcd->membership.log, "membership: etcd has forgotten what was before revision %" PRIu64 ": all is read again",
		 answer->compact_revision);
	etcd->watch_from = 0; /* the next list says from where */
	etcd->all_next = true;
	read_after(etcd, etcd_pause(etcd, etcd->watch_failures++));
}

static void on_line(void *arg, const char *line, size_t bytes)
{
	struct etcd *etcd = arg;
	struct etcd_answer answer;

	if (etcd_answer_parse(line, bytes, &answer) < 0) {
		etcd_complain(etcd, ETCD_ABOUT_MAP, "%s: %s", etcd_client_endpoint(etcd->client), err_text());
		etcd_call_cancel(etcd->watch);
		etcd->watch = NULL;
		watch_later(etcd);
		return;
	}
	if (answer.revision > etcd->revision)
		etcd->revision = answer.revision;
	if (answer.canceled || answer.code) {
		watch_canceled(etcd, &answer);
	} else if (!etcd->cluster_id || answer.cluster == etcd->cluster_id) { /* else a read will say so */
		etcd->watch_failures = 0;
		watch_events(etcd, &answer);
	}
	etcd_answer_free(&answer);
}

static void on_watch_end(void *arg, const struct etcd_reply *reply)
{
	struct etcd *etcd = arg;
	struct etcd_answer answer;
	uint64_t code;

	etcd->watch = NULL;
	if (reply->error || reply->status != 200) {
		if (etcd_reply_take(etcd, reply, &answer, &code) == 0)
			etcd_answer_free(&answer);
	}
	watch_later(etcd);
}

static void on_watch_timer(evutil_socket_t fd, short what, void *arg)
{
	struct etcd *etcd = arg;

	(void)fd;
	(void)what;
	if (etcd->watch || !etcd->watch_from)
		return;
	etcd->requests++;
	etcd->watch = etcd_post(etcd->client, "/v3/watch", etcd_watch(etcd->prefix, etcd->prefix_end, etcd->watch_from),
				etcd_limit_ms(etcd), true, on_line, on_watch_end, etcd);
	if (!etcd->watch)
		watch_later(etcd);
}

/* ---- questions ---- */

static void answered(struct etcd *etcd, const struct etcd_answer *answer)
{
	bool whole = etcd->read_all;
	uint64_t sent_ns = etcd->read_sent_ns, elapsed = membership_now_ns() - sent_ns, each = etcd->bound_ns / 4;

	etcd->read_failures = 0;
	/* the next one, unless one of those who are told now wants it earlier */
	read_after(etcd, etcd_timeval(etcd->read_again || elapsed >= each ? 1 : each - elapsed));
	if (whole && answer->revision >= etcd->listed_revision) {
		etcd->all_next = etcd->read_again;
		etcd->listed_revision = answer->revision;
		if (!etcd->watch_from || etcd->watch_from <= answer->revision)
			etcd->watch_from = answer->revision + 1;
	}
	etcd->read_again = false;
	map_confirm(etcd, kv_find(answer, etcd->map_key), sent_ns, whole);
	if (!whole)
		return;
	members_list(etcd, answer);
	if (!etcd->watch)
		event_active(etcd->watch_timer, EV_TIMEOUT, 0);
	if (etcd->confirmed_ns == sent_ns)
		etcd_lease_read(etcd);
}

static void on_read(void *arg, const struct etcd_reply *reply)
{
	struct etcd *etcd = arg;
	struct etcd_answer answer;
	uint64_t code;

	etcd->read = NULL;
	if (etcd_reply_take(etcd, reply, &answer, &code) < 0) {
		etcd->all_next |= etcd->read_all;
		read_after(etcd, etcd_pause(etcd, ++etcd->read_failures));
		return;
	}
	answered(etcd, &answer);
	etcd_answer_free(&answer);
}

static void on_read_timer(evutil_socket_t fd, short what, void *arg)
{
	struct etcd *etcd = arg;
	char *body;

	(void)fd;
	(void)what;
	if (etcd->read)
		return;
	etcd->read_all = etcd->all_next || !etcd->listed_revision || etcd->reads % READ_ALL_EACH == 0;
	etcd->reads++;
	etcd->requests++;
	body = etcd->read_all ? etcd_range(etcd->prefix, etcd->prefix_end, false) : etcd_range(etcd->map_key, NULL, true);
	etcd->read_sent_ns = membership_now_ns();
	etcd->read = etcd_post(etcd->client, "/v3/kv/range", body, etcd_limit_ms(etcd) * (etcd->read_all ? 2 : 1), false, NULL,
			       on_read, etcd);
	if (!etcd->read)
		read_after(etcd, etcd_pause(etcd, ++etcd->read_failures));
}

void etcd_read_now(struct etcd *etcd)
{
	etcd->all_next = true;
	etcd->read_again = etcd->read != NULL; /* what is under way may have been sent too early */
	if (!etcd->read)
		event_active(etcd->read_timer, EV_TIMEOUT, 0);
}

/* ---- all of it ---- */

int etcd_read_create(struct etcd *etcd)
{
	etcd->read_timer = evtimer_new(etcd->membership.base, on_read_timer, etcd);
	etcd->watch_timer = evtimer_new(etcd->membership.base, on_watch_timer, etcd);
	if (!etcd->read_timer || !etcd->watch_timer)
		return err_set(-ENOMEM, "out of memory");
	event_active(etcd->read_timer, EV_TIMEOUT, 0);
	return 0;
}

void etcd_read_free(struct etcd *etcd)
{
	etcd_call_cancel(etcd->read);
	etcd_call_cancel(etcd->watch);
	if (etcd->read_timer)
		event_free(etcd->read_timer);
	if (etcd->watch_timer)
		event_free(etcd->watch_timer);
	cluster_map_free(etcd->map);
	free(etcd->members);
}
