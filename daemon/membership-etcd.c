/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Membership by etcd, version 3, through its JSON gateway: the map is one key, whose mod_revision is the epoch, each member's
 * record another one, which ends with its lease. Main thread; nothing waits. This file has the interface, writes, and what
 * becomes of answers in general. Next to read: membership-etcd-read.c, membership-etcd-lease.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster-map-write.h"
#include "config-cluster.h"
#include "err.h"
#include "membership-etcd.h"
#include "membership-record.h"

#define LOG_AGAIN_NS    (60 * ETCD_SECOND_NS)
#define GOODBYE_USEC    500000 /* to give the lease back */
#define FIRST_PAUSE_MS  20u
#define PAUSE_MS        200u
#define PAUSE_MAX_MS    2000u

static struct etcd *of(const struct membership *membership)
{
	return (struct etcd *)(void *)(uintptr_t)membership;
}

/* ---- time ---- */

struct timeval etcd_timeval(uint64_t ns)
{
	return (struct timeval){.tv_sec = (time_t)(ns / ETCD_SECOND_NS),
				.tv_usec = (suseconds_t)(ns % ETCD_SECOND_NS / 1000)};
}

struct timeval etcd_pause(const struct etcd *etcd, unsigned int failures)
{
	size_t endpoints = etcd_client_endpoints(etcd->client);
	uint64_t ms = FIRST_PAUSE_MS; /* the next endpoint, at once */

	if (failures >= endpoints) {
		ms = failures - endpoints < 4 ? PAUSE_MS << (failures - endpoints) : PAUSE_MAX_MS;
		if (ms > etcd->bound_ns / 4 / 1000000)
			ms = etcd->bound_ns / 4 / 1000000;
	}
	return etcd_timeval(ms * 1000000);
}

unsigned int etcd_limit_ms(const struct etcd *etcd)
{
	uint64_t ns = etcd->bound_ns / 4 < etcd->ttl_ns / 8 ? etcd->bound_ns / 4 : etcd->ttl_ns / 8;

	if (ns < ETCD_SECOND_NS / 2)
		ns = ETCD_SECOND_NS / 2;
	return (unsigned int)((ns > 10 * ETCD_SECOND_NS ? 10 * ETCD_SECOND_NS : ns) / 1000000);
}

/* ---- answers ---- */

void etcd_complain(struct etcd *etcd, enum etcd_about about, const char *format, ...)
{
	char *error = etcd->errors[about];
	uint64_t now = membership_now_ns();
	va_list list;

	va_start(list, format);
	vsnprintf(error, sizeof(etcd->errors[about]), format, list);
	va_end(list);
	if (strcmp(error, etcd->logged) == 0 && now - etcd->logged_ns < LOG_AGAIN_NS)
		return;
	memcpy(etcd->logged, error, sizeof(etcd->logged));
	etcd->logged_ns = now;
	log_warning(etcd->membership.log, "membership: %s", error);
}

/* The next endpoint may know better. */
static int unusable(struct etcd *etcd, const struct etcd_reply *reply)
{
	etcd->failures++;
	etcd->connected = false;
	etcd_client_rotate(etcd->client, reply->endpoint);
	return -EIO;
}

/* An error that etcd tells. */
static int told(struct etcd *etcd, const struct etcd_reply *reply, const struct etcd_answer *answer)
{
	bool stale = answer->code == ETCD_UNAUTHENTICATED || strstr(answer->error, "auth store is old") ||
		     strstr(answer->error, "user name is empty");

	etcd_complain(etcd, ETCD_ABOUT_ASKING, "%s: %s%s", etcd_client_endpoint(etcd->client), answer->error,
		      answer->code == ETCD_DENIED ? ": the user of etcd_user needs a role that may read and write below etcd_prefix"
						  : "");
	if (stale && etcd_client_token(etcd->client))
		etcd_client_token_set(etcd->client, NULL);
	if (answer->code == ETCD_UNAVAILABLE || answer->code == ETCD_TIMEOUT || answer->code == ETCD_UNKNOWN)
		return unusable(etcd, reply);
	etcd->failures++;
	etcd->connected = true;
	return -EIO;
}

static int answer_check(struct etcd *etcd, const struct etcd_reply *reply, const struct etcd_answer *answer)
{
	if (answer->code)
		return told(etcd, reply, answer);
	if (reply->status != 200 || !answer->cluster) {
		etcd_complain(etcd, ETCD_ABOUT_ASKING, "%s: answers with HTTP status %d%s: is that etcd, 3.4 or later?",
			      etcd_client_endpoint(etcd->client), reply->status,
			      reply->status == 200 ? " and without a header" : "");
		return unusable(etcd, reply);
	}
	if (!etcd->cluster_id)
		etcd->cluster_id = answer->cluster;
	if (answer->cluster == etcd->cluster_id)
		return 0;
	etcd_complain(etcd, ETCD_ABOUT_ASKING,
		      "%s is of another etcd cluster (%" PRIx64 ") than the one that was asked first (%" PRIx64
		      "): all of etcd_endpoints have to be of one",
		      etcd_client_endpoint(etcd->client), answer->cluster, etcd->cluster_id);
	return unusable(etcd, reply);
}

int etcd_reply_take(struct etcd *etcd, const struct etcd_reply *reply, struct etcd_answer *ret_answer, uint64_t *ret_code)
{
	struct etcd_answer answer;

	*ret_code = ETCD_UNAVAILABLE;
	if (reply->error) {
		etcd_complain(etcd, ETCD_ABOUT_ASKING, "%s", reply->error);
		return unusable(etcd, reply);
	}
	if (etcd_answer_parse(reply->body, reply->bytes, &answer) < 0) {
		etcd_complain(etcd, ETCD_ABOUT_ASKING, "%s, HTTP status %d: %s", etcd_client_endpoint(etcd->client),
			      reply->status, err_text());
		return unusable(etcd, reply);
	}
	if (answer_check(etcd, reply, &answer) < 0) {
		if (answer.code)
			*ret_code = answer.code;
		etcd_answer_free(&answer);
		return -EIO;
	}
	etcd->connected = true;
	etcd->errors[ETCD_ABOUT_ASKING][0] = '\0';
	if (answer.revision > etcd->revision)
		etcd->revision = answer.revision;
	*ret_code = ETCD_OK;
	*ret_answer = answer;
	return 0;
}

/* ---- writes ---- */

static void write_free(struct etcd_write *write)
{
	TAILQ_REMOVE(&write->etcd->writes, write, link);
	etcd_call_cancel(write->call);
	if (write->turn)
		event_free(write->turn);
	free(write);
}

static void write_done(struct etcd_write *write, enum membership_outcome outcome, const char *text)
{
	void (*done)(void *arg, enum membership_outcome outcome, const char *text) = write->done;
	char copy[MEMBERSHIP_TEXT_MAX + 1];
	void *arg = write->arg;

	snprintf(copy, sizeof(copy), "%s", text);
	write_free(write);
	done(arg, outcome, copy);
}

static void on_refused(evutil_socket_t fd, short what, void *arg)
{
	struct etcd_write *write = arg;

	(void)fd;
	(void)what;
	write_done(write, MEMBERSHIP_REFUSED, write->text);
}

/* Did etcd say that it does not do it? Anything else may have been done, or may be done yet. */
static bool not_done(uint64_t code)
{
	return code == ETCD_INVALID || code == ETCD_DENIED || code == ETCD_EXHAUSTED || code == ETCD_PRECONDITION ||
	       code == ETCD_UNAUTHENTICATED;
}

static void on_written(void *arg, const struct etcd_reply *reply)
{
	struct etcd_write *write = arg;
	struct etcd *etcd = write->etcd;
	struct etcd_answer answer;
	bool succeeded;
	uint64_t code;

	write->call = NULL;
	etcd_read_now(etcd); /* what is there now, in any case */
	if (etcd_reply_take(etcd, reply, &answer, &code) < 0) {
		write_done(write, not_done(code) ? MEMBERSHIP_REFUSED : MEMBERSHIP_UNKNOWN,
			   etcd->errors[ETCD_ABOUT_ASKING]);
		return;
	}
	succeeded = answer.succeeded;
	etcd_answer_free(&answer);
	write_done(write, succeeded ? MEMBERSHIP_WRITTEN : MEMBERSHIP_REFUSED,
		   succeeded ? "" : "the map has another epoch by now, or the member another record");
}

/* Without its record, or with another boot id, there is nothing to ask. */
static int member_compare(const struct etcd *etcd, const char *name, uint64_t boot_id, const char *key,
			  struct etcd_compare *ret_compare)
{
	const struct etcd_member *member = etcd_member_find(etcd, name);

	if (!member || member->record.boot_id != boot_id)
		return -ENOENT;
	*ret_compare = (struct etcd_compare){.key = key, .revision = member->revision};
	return 0;
}

static char *member_key(const char *prefix, const char *name)
{
	char *key = NULL;

	return asprintf(&key, "%smembers/%s", prefix, name) < 0 ? NULL : key;
}

/* What to send; NULL with write->text: it is refused. */
static int write_ask(struct etcd *etcd, struct etcd_write *write, const char *map, size_t bytes, uint64_t if_epoch,
		     const char *if_member, uint64_t if_boot_id)
{
	struct etcd_compare compares[2] = {{.key = etcd->map_key, .create = !if_epoch, .revision = if_epoch}};
	char *key = if_member ? member_key(etcd->prefix, if_member) : NULL;
	char *body;

	if (if_member && !key)
		return err_set(-ENOMEM, "out of memory");
	if (if_member && member_compare(etcd, if_member, if_boot_id, key, &compares[1]) < 0) {
		snprintf(write->text, sizeof(write->text), "member '%s' has no record with the boot id %016" PRIx64, if_member,
			 if_boot_id);
		free(key);
		event_active(write->turn, EV_TIMEOUT, 0);
		return 0;
	}
	body = etcd_transaction(compares, if_member ? 2 : 1, etcd->map_key, map, bytes, 0, NULL);
	free(key);
	etcd->requests++;
	write->call = etcd_post(etcd->client, "/v3/kv/txn", body, 2 * etcd_limit_ms(etcd), true, NULL, on_written, write);
	return write->call ? 0 : err_set(-ENOMEM, "out of memory");
}

static int etcd_write(struct membership *membership, const struct cluster_map *next, uint64_t if_epoch,
		      const char *if_member, uint64_t if_boot_id,
		      void (*done)(void *arg, enum membership_outcome outcome, const char *text), void *arg)
{
	struct etcd *etcd = of(membership);
	struct etcd_write *write;
	char *text = NULL;
	size_t bytes = 0;
	int rc = cluster_map_expect(next, etcd->cluster);

	if (rc == 0 && etcd->map)
		rc = membership_follows(etcd->map, next);
	if (rc == 0)
		rc = cluster_map_write(next, &text, &bytes);
	if (rc < 0)
		return rc;
	write = calloc(1, sizeof(*write));
	if (write) {
		write->etcd = etcd;
		write->done = done;
		write->arg = arg;
		write->turn = evtimer_new(membership->base, on_refused, write);
		TAILQ_INSERT_TAIL(&etcd->writes, write, link);
	}
	rc = write && write->turn ? write_ask(etcd, write, text, bytes, if_epoch, if_member, if_boot_id)
				  : err_set(-ENOMEM, "out of memory");
	free(text);
	if (rc < 0 && write)
		write_free(write);
	return rc;
}

/* ---- the interface ---- */

static bool etcd_held(struct membership *membership)
{
	return etcd_lease_held(of(membership));
}

static const struct cluster_map *etcd_map(const struct membership *membership, uint64_t *ret_confirmed_ns)
{
	*ret_confirmed_ns = of(membership)->confirmed_ns;
	return of(membership)->map;
}

static void etcd_state(const struct membership *membership, struct membership_state *ret_state)
{
	const struct etcd *etcd = of(membership);

	*ret_state = (struct membership_state){
		.backend = "etcd",
		.endpoint = etcd_client_endpoint(etcd->client),
		.connected = etcd->connected,
		.held = etcd->lease.step == ETCD_LEASE_HELD && etcd_lease_left_ns(etcd) > 0,
		.lease_ns = etcd->ttl_ns,
		.lease_left_ns = etcd_lease_left_ns(etcd),
		.confirmed_ns = etcd->confirmed_ns,
		.revision = etcd->revision,
		.requests = etcd->requests,
		.failures = etcd->failures,
		.fenced = etcd->fenced,
		.error = "",
	};
	for (int i = ETCD_ABOUTS - 1; i >= 0; i--)
		if (etcd->errors[i][0])
			ret_state->error = etcd->errors[i];
}

static int etcd_reload(struct membership *membership, const struct config_cluster *config,
		       const struct membership_record *self)
{
	struct etcd *etcd = of(membership);
	struct membership_record record = *self;
	struct etcd_settings settings;
	char *text = NULL;
	int rc = etcd_settings_load(config, &settings);

	memcpy(record.name, etcd->self.name, sizeof(record.name));
	record.boot_id = etcd->self.boot_id;
	record.previous_boot_id = etcd->self.previous_boot_id;
	if (rc < 0)
		return rc;
	rc = membership_record_write(&record, &text);
	free(text);
	if (rc < 0) {
		etcd_settings_free(&settings);
		return rc;
	}
	etcd_client_settings(etcd->client, &settings);
	if (memcmp(&record, &etcd->self, sizeof(record)) != 0)
		etcd_lease_record_again(etcd);
	etcd->self = record;
	return 0;
}

/* ---- the end ---- */

static void on_goodbye(void *arg, const struct etcd_reply *reply)
{
	(void)reply;
	event_base_loopbreak(arg);
}

/* In a loop of its own: nobody else's events may come now. The lease would end by itself, only later. */
static void goodbye(struct etcd *etcd)
{
	struct event_base *base = event_base_new();
	const struct timeval limit = {.tv_usec = GOODBYE_USEC};

	if (!base)
		return;
	etcd->client = etcd_client_move(etcd->client, base);
	if (etcd->client && etcd_post(etcd->client, "/v3/lease/revoke", etcd_lease(etcd->lease.id), GOODBYE_USEC / 1000, true,
				      NULL, on_goodbye, base)) {
		event_base_loopexit(base, &limit);
		event_base_dispatch(base);
	}
	etcd_client_free(etcd->client);
	etcd->client = NULL;
	/* a connection that has something to call back is freed by a turn of its loop, not by the loop's end */
	(void)event_base_loop(base, EVLOOP_NONBLOCK);
	event_base_free(base);
}

static void etcd_free(struct membership *membership)
{
	struct etcd *etcd = of(membership);

	while (!TAILQ_EMPTY(&etcd->writes))
		write_free(TAILQ_FIRST(&etcd->writes));
	etcd_lease_free(etcd);
	etcd_read_free(etcd);
	if (etcd->lease.id && etcd->connected)
		goodbye(etcd);
	etcd_client_free(etcd->client);
	free(etcd->prefix);
	free(etcd->prefix_end);
	free(etcd->map_key);
	free(etcd->member_key);
	free(etcd);
}

static const struct membership_backend etcd_backend = {
	etcd_free, etcd_held, etcd_map, etcd_write, etcd_reload, etcd_state,
};

/* ---- the beginning ---- */

static int keys_make(struct etcd *etcd, const char *prefix)
{
	if (asprintf(&etcd->prefix, "%s/%s/", prefix, etcd->cluster) < 0)
		etcd->prefix = NULL;
	etcd->prefix_end = etcd->prefix ? etcd_prefix_end(etcd->prefix) : NULL;
	etcd->member_key = etcd->prefix ? member_key(etcd->prefix, etcd->self.name) : NULL;
	if (!etcd->prefix || asprintf(&etcd->map_key, "%smap", etcd->prefix) < 0)
		etcd->map_key = NULL;
	return etcd->prefix_end && etcd->member_key && etcd->map_key ? 0 : err_set(-ENOMEM, "out of memory");
}

static int client_make(struct etcd *etcd, const struct config_cluster *config)
{
	struct etcd_settings settings;
	int rc = etcd_settings_load(config, &settings);

	if (rc < 0)
		return rc;
	etcd->client = etcd_client_create(etcd->membership.base, &settings);
	if (etcd->client)
		return 0;
	etcd_settings_free(&settings);
	return err_set(-ENOMEM, "out of memory");
}

int membership_etcd_create(const struct config_cluster *config, const struct membership *begin,
			   const struct membership_record *self, struct membership **ret_membership)
{
	struct etcd *etcd = calloc(1, sizeof(*etcd));
	char *record = NULL;
	int rc;

	if (!etcd)
		return err_set(-ENOMEM, "out of memory");
	etcd->membership = *begin;
	etcd->membership.backend = &etcd_backend;
	etcd->self = *self;
	etcd->bound_ns = (uint64_t)config->map_bound.number;
	etcd->ttl_ns = (uint64_t)config->lease.number;
	etcd->lease.fence_fd = -1;
	TAILQ_INIT(&etcd->writes);
	snprintf(etcd->cluster, sizeof(etcd->cluster), "%s", config->name.text);
	rc = membership_record_write(self, &record);
	free(record);
	if (rc == 0)
		rc = keys_make(etcd, config->etcd_prefix.text);
	if (rc == 0)
		rc = client_make(etcd, config);
	if (rc == 0)
		rc = etcd_read_create(etcd);
	if (rc == 0)
		rc = etcd_lease_create(etcd);
	if (rc < 0) {
		etcd_free(&etcd->membership);
		return rc;
	}
	*ret_membership = &etcd->membership;
	return 0;
}

int membership_etcd_check(const struct config_cluster *config)
{
	struct etcd_settings settings;
	int rc = etcd_settings_load(config, &settings);

	if (rc == 0)
		etcd_settings_free(&settings);
	return rc;
}
