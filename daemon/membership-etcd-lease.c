/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lease in etcd, and this member's record, which ends with it. Main thread. The clock that counts is CLOCK_BOOTTIME, which
 * goes on while the machine is suspended, from when the last renewal was *sent* that was answered: etcd can not have
 * counted from earlier. A quarter before the end the daemon is told to fence itself. Nothing here is believed to be in time: who must not
 * act without the lease asks etcd_lease_held(). Next to read: membership-etcd.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "err.h"
#include "membership-etcd.h"
#include "membership-record.h"

static void step_soon(struct etcd *etcd)
{
	event_active(etcd->lease.timer, EV_TIMEOUT, 0);
}

static void step_later(struct etcd *etcd, struct timeval wait)
{
	event_add(etcd->lease.timer, &wait);
}

/* ---- the end ---- */

static uint64_t fence_at_ns(const struct etcd_lease *lease)
{
	return lease->sent_ns + lease->ttl_ns / 4 * 3;
}

uint64_t etcd_lease_left_ns(const struct etcd *etcd)
{
	uint64_t now = membership_now_ns(), at = fence_at_ns(&etcd->lease);

	return etcd->lease.id && at > now ? at - now : 0;
}

static void fence_set(struct etcd_lease *lease)
{
	uint64_t at = lease->id ? fence_at_ns(lease) : 0;
	struct itimerspec when = {.it_value = {.tv_sec = (time_t)(at / ETCD_SECOND_NS), .tv_nsec = (long)(at % ETCD_SECOND_NS)}};

	timerfd_settime(lease->fence_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* It is over, or has to be taken for that. Begins anew. */
static void lease_lost(struct etcd *etcd, const char *why)
{
	struct etcd_lease *lease = &etcd->lease;
	bool held = lease->step == ETCD_LEASE_HELD;

	lease->step = ETCD_LEASE_NONE;
	lease->id = 0;
	lease->record_revision = 0;
	fence_set(lease);
	etcd_call_cancel(lease->call);
	lease->call = NULL;
	step_later(etcd, etcd_pause(etcd, ++lease->failures));
	if (!held)
		return;
	etcd->fenced++;
	/* before anything is logged: the caller's queue pairs come first */
	etcd->membership.events->lost(etcd->membership.arg, why);
	etcd_complain(etcd, ETCD_ABOUT_LEASE, "%s", why);
}

/* Has the time run out? */
static bool fence_check(struct etcd *etcd)
{
	struct etcd_lease *lease = &etcd->lease;
	char why[MEMBERSHIP_TEXT_MAX + 1];

	if (!lease->id || membership_now_ns() < fence_at_ns(lease))
		return false;
	snprintf(why, sizeof(why), "the lease was not renewed for %.1f s of its %.0f s: %.160s",
		 (double)(membership_now_ns() - lease->sent_ns) / 1e9, (double)lease->ttl_ns / 1e9,
		 etcd->errors[ETCD_ABOUT_ASKING][0] ? etcd->errors[ETCD_ABOUT_ASKING]
						  : "this process or machine stood still");
	lease_lost(etcd, why);
	return true;
}

bool etcd_lease_held(struct etcd *etcd)
{
	fence_check(etcd);
	return etcd->lease.step == ETCD_LEASE_HELD;
}

static void on_fence(evutil_socket_t fd, short what, void *arg)
{
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0) /* it was set anew meanwhile */
		return;
	fence_check(arg);
}

/* ---- answers ---- */

static void step_failed(struct etcd *etcd)
{
	step_later(etcd, etcd_pause(etcd, ++etcd->lease.failures));
}

/* A grant or a renewal was answered: the time counts from when it was sent. */
static void lease_renewed(struct etcd *etcd, uint64_t ttl)
{
	struct etcd_lease *lease = &etcd->lease;
	uint64_t ttl_ns = (ttl > 3600 ? 3600 : ttl) * ETCD_SECOND_NS;

	lease->sent_ns = lease->asked_ns;
	lease->ttl_ns = ttl_ns < etcd->ttl_ns ? ttl_ns : etcd->ttl_ns;
	lease->failures = 0;
	fence_set(lease);
}

static void granted(struct etcd *etcd, const struct etcd_answer *answer)
{
	if (!answer->lease || !answer->ttl) {
		etcd_complain(etcd, ETCD_ABOUT_LEASE, "etcd answers the request for a lease without one");
		step_failed(etcd);
		return;
	}
	etcd->lease.id = answer->lease;
	etcd->lease.step = ETCD_LEASE_GRANTED;
	lease_renewed(etcd, answer->ttl);
	step_soon(etcd);
}

static void on_granted(void *arg, const struct etcd_reply *reply)
{
	struct etcd *etcd = arg;
	struct etcd_answer answer;
	uint64_t code;

	etcd->lease.call = NULL;
	if (etcd_reply_take(etcd, reply, &answer, &code) < 0) {
		step_failed(etcd);
		return;
	}
	granted(etcd, &answer);
	etcd_answer_free(&answer);
}

/* Somebody else's record has our name; ours from before is taken over. */
static void record_taken(struct etcd *etcd, const struct etcd_answer *answer)
{
	struct etcd_lease *lease = &etcd->lease;
	const struct etcd_kv *kv = answer->count ? &answer->kvs[0] : NULL;
	struct membership_record other = {0};

	if (lease->step != ETCD_LEASE_GRANTED) {
		lease_lost(etcd, "this member's record in etcd is not its own any more");
		return;
	}
	if (!kv) { /* it has just ended */
		lease->record_revision = 0;
	} else if (membership_record_parse(kv->value ? kv->value : "", kv->bytes, &other) < 0) {
		lease->record_revision = kv->mod_revision; /* nobody's */
	} else if (
		   other.boot_id != etcd->self.boot_id &&
		   (!etcd->self.previous_boot_id || other.boot_id != etcd->self.previous_boot_id)) {
		lease->record_revision = 0;
		etcd_complain(etcd, ETCD_ABOUT_LEASE,
			      "another member has the name '%s' and a lease: boot id %016" PRIx64 "%s%s; stop it, or give this one "
			      "another name ([cluster] member); after a crash it ends with its lease",
			      etcd->self.name, other.boot_id, other.address_count ? ", at " : "",
			      other.address_count ? other.addresses[0].text : "");
		step_later(etcd, etcd_timeval(etcd->ttl_ns / 3));
		return;
	} else {
		lease->record_revision = kv->mod_revision;
	}
	step_later(etcd, etcd_pause(etcd, 0));
}

static void on_recorded(void *arg, const struct etcd_reply *reply)
{
	struct etcd *etcd = arg;
	struct etcd_lease *lease = &etcd->lease;
	struct etcd_answer answer;
	uint64_t code;

	lease->call = NULL;
	if (fence_check(etcd))
		return;
	if (etcd_reply_take(etcd, reply, &answer, &code) < 0) {
		lease->record_again = true;
		if (code == ETCD_NOT_FOUND) /* the lease */
			lease_lost(etcd, "etcd knows nothing of the lease");
		else
			step_failed(etcd);
		return;
	}
	if (!answer.succeeded) {
		lease->record_again = true;
		record_taken(etcd, &answer);
	} else {
		lease->record_revision = answer.revision;
		lease->failures = 0;
		if (lease->step == ETCD_LEASE_GRANTED) {
			lease->step = ETCD_LEASE_RECORDED;
			etcd_read_now(etcd);
		}
		step_soon(etcd);
	}
	etcd_answer_free(&answer);
}

static void on_renewed(void *arg, const struct etcd_reply *reply)
{
	struct etcd *etcd = arg;
	struct etcd_answer answer;
	uint64_t code;

	etcd->lease.call = NULL;
	if (fence_check(etcd))
		return;
	if (etcd_reply_take(etcd, reply, &answer, &code) < 0) {
		step_failed(etcd);
		return;
	}
	if (answer.ttl == 0) /* that is how a lease that is over is answered */
		lease_lost(etcd, "the lease has ended, says etcd");
	else {
		lease_renewed(etcd, answer.ttl);
		step_soon(etcd);
	}
	etcd_answer_free(&answer);
}

/* ---- steps ---- */

static int ask(struct etcd *etcd, const char *path, char *body, void (*done)(void *, const struct etcd_reply *))
{
	struct etcd_lease *lease = &etcd->lease;

	etcd->requests++;
	lease->call = etcd_post(etcd->client, path, body, etcd_limit_ms(etcd), false, NULL, done, etcd);
	return lease->call ? 0 : -ENOMEM;
}

static int record_ask(struct etcd *etcd)
{
	struct etcd_lease *lease = &etcd->lease;
	struct etcd_compare compare = {etcd->member_key, !lease->record_revision, lease->record_revision};
	char *record = NULL, *body = NULL;

	lease->record_again = false;
	if (membership_record_write(&etcd->self, &record) == 0)
		body = etcd_transaction(&compare, 1, etcd->member_key, record, strlen(record), lease->id,
					etcd->member_key);
	free(record);
	return ask(etcd, "/v3/kv/txn", body, on_recorded);
}

/* What is next? The renewal comes first: the record can wait. */
static void on_step(evutil_socket_t fd, short what, void *arg)
{
	struct etcd *etcd = arg;
	struct etcd_lease *lease = &etcd->lease;
	uint64_t now = membership_now_ns(), due;
	int rc = 0;

	(void)fd;
	(void)what;
	if (lease->call || fence_check(etcd))
		return;
	due = lease->sent_ns + lease->ttl_ns / 3;
	if (lease->step == ETCD_LEASE_NONE) {
		lease->asked_ns = now;
		rc = ask(etcd, "/v3/lease/grant", etcd_grant(etcd->ttl_ns / ETCD_SECOND_NS), on_granted);
	} else if (now >= due) {
		lease->asked_ns = now;
		rc = ask(etcd, "/v3/lease/keepalive", etcd_lease(lease->id), on_renewed);
	} else if (lease->step == ETCD_LEASE_GRANTED || lease->record_again) {
		rc = record_ask(etcd);
	} else {
		step_later(etcd, etcd_timeval(due - now));
	}
	if (rc < 0)
		step_failed(etcd);
}

void etcd_lease_read(struct etcd *etcd)
{
	struct etcd_lease *lease = &etcd->lease;

	/* what was read is from under the lease, if the record was there */
	if (lease->step != ETCD_LEASE_RECORDED || fence_check(etcd))
		return;
	if (etcd->listed_revision < lease->record_revision) {
		etcd->all_next = true;
		return;
	}
	lease->step = ETCD_LEASE_HELD;
	etcd->errors[ETCD_ABOUT_LEASE][0] = '\0';
	etcd->membership.events->regained(etcd->membership.arg);
}

void etcd_lease_records(struct etcd *etcd)
{
	struct etcd_lease *lease = &etcd->lease;
	const struct etcd_member *mine = etcd_member_find(etcd, etcd->self.name);

	if (!mine && lease->step == ETCD_LEASE_GRANTED)
		step_soon(etcd); /* whoever had the name is gone */
	/* what is known of records may be from before ours */
	if (lease->step < ETCD_LEASE_RECORDED ||
	    (etcd->listed_revision < lease->record_revision && etcd->watch_from <= lease->record_revision))
		return;
	if (mine && mine->record.boot_id == etcd->self.boot_id) {
		lease->record_revision = mine->revision;
		return;
	}
	if (mine && mine->revision < lease->record_revision) /* from before ours */
		return;
	lease_lost(etcd, mine ? "another member has taken this one's name" : "this member's record is gone from etcd");
}

void etcd_lease_record_again(struct etcd *etcd)
{
	etcd->lease.record_again = true;
	if (etcd->lease.step >= ETCD_LEASE_GRANTED)
		step_soon(etcd);
}

/* ---- all of it ---- */

int etcd_lease_create(struct etcd *etcd)
{
	struct etcd_lease *lease = &etcd->lease;

	lease->fence_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (lease->fence_fd < 0)
		return err_set(-errno, "lease: no timer for it: %s", strerrordesc_np(errno));
	lease->fence = event_new(etcd->membership.base, lease->fence_fd, EV_READ | EV_PERSIST, on_fence, etcd);
	lease->timer = evtimer_new(etcd->membership.base, on_step, etcd);
	if (!lease->fence || !lease->timer || event_add(lease->fence, NULL) < 0)
		return err_set(-ENOMEM, "out of memory");
	step_soon(etcd);
	return 0;
}

void etcd_lease_free(struct etcd *etcd)
{
	struct etcd_lease *lease = &etcd->lease;

	etcd_call_cancel(lease->call);
	if (lease->fence)
		event_free(lease->fence);
	if (lease->timer)
		event_free(lease->timer);
	if (lease->fence_fd >= 0)
		close(lease->fence_fd);
}
