/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * process.c - what a session needs beside its calls: telemetry, quiescence count, epoch, hand-back
 *
 * One task per session, run by the housekeeping thread, by tarn_session_process(), or at the end of
 * a call (session->wanted), always by the session's owner. Between calls nothing is owed, so the
 * quiescence count is raised each time; with operations of the engine under way, when none of them was
 * so at the last raise. (An operation that waits for the daemon raises it, too: claim.c, kv.c.) Next:
 * housekeeping.c; docs/protocol.md sections 4 ("retire"), 5 ("hand back"), 6 and 9.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "engine.h"
#include "err.h"
#include "session.h"

#define REPORT_NS 900000000u  /* telemetry is written about once a second */
#define IDLE_NS   2000000000u /* a session without calls for so long hands its pages back */

struct process {
	struct task task;
	struct tarn_session *session;
	enum { PROCESS_REPORT, PROCESS_HAND_BACK, PROCESS_FLUSH } state;
	bool posted, final;
	uint64_t posted_ns, reported_ns, gave_ns, epoch, quiescence;
	/*
	 * The daemon adds up what each connection reports, so a report is what this one has done:
	 * `before` is what the session had counted when it began.
	 */
	struct layout_telemetry telemetry, before;
	uint64_t reports;
	struct session_limits limits;
};

/* All of struct layout_telemetry is counters of 8 bytes. */
#define TELEMETRY_WORDS (sizeof(struct layout_telemetry) / 8)

int process_create(struct tarn_session *session, struct process **ret_process)
{
	struct process *p = calloc(1, sizeof(*p));

	if (!p)
		return err_set(-ENOMEM, "no memory for a session");
	p->session = session;
	*ret_process = p;
	return 0;
}

void process_free(struct process *process)
{
	free(process);
}

/* What the session has counted since it was opened. */
static void fill_telemetry(const struct tarn_session *s, struct layout_telemetry *t)
{
	t->gets = s->stats.gets;
	t->hits = s->stats.hits;
	t->puts = s->stats.puts;
	t->deletes = s->stats.deletes;
	t->adds = s->stats.adds;
	t->errors = s->stats.errors;
	t->retries = s->stats.retries;
	t->round_trips = s->stats.round_trips;
	t->posts = s->stats.posts;
	t->requests = s->stats.requests;
	t->rpcs = s->stats.rpcs;
	t->cache_hits = s->stats.cache_hits;
	t->cache_misses = s->stats.cache_misses;
	t->bytes_read = s->stats.bytes_read;
	t->bytes_written = s->stats.bytes_written;
	memcpy(t->get_latency, s->get_latency, sizeof(t->get_latency));
	memcpy(t->put_latency, s->put_latency, sizeof(t->put_latency));
}

static void fill_report(struct process *p)
{
	uint64_t *words = (uint64_t *)&p->telemetry;
	const uint64_t *before = (const uint64_t *)&p->before;
	unsigned i;

	fill_telemetry(p->session, &p->telemetry);
	for (i = 0; i < TELEMETRY_WORDS; i++)
		words[i] -= before[i];
	p->telemetry.reports = ++p->reports;
}

void process_reset(struct process *p)
{
	/* the daemon counts by how much it was raised, and a new client's stands at 0 */
	p->quiescence = 0;
	p->reports = 0;
	p->reported_ns = 0;
	fill_telemetry(p->session, &p->before);
	p->before.reports = 0;
}

uint64_t process_raises(const struct process *p)
{
	return p->quiescence;
}

struct fabric_request process_raise(struct process *p)
{
	p->quiescence++;
	return (struct fabric_request){
		.opcode = FABRIC_WRITE,
		.length = 8,
		.local = &p->quiescence,
		.flags = FABRIC_INLINE,
		.offset = layout_client_offset(&p->session->geometry,
					       p->session->identity.client_slot) +
			  offsetof(struct layout_client, quiescence)};
}

static int post_report(struct process *p)
{
	struct tarn_session *s = p->session;
	uint64_t slot = layout_client_offset(&s->geometry, s->identity.client_slot);
	struct fabric_request requests[4];
	unsigned n = 0;

	p->posted_ns = session_now(s);
	if (!s->identity.read_only && (p->final || p->posted_ns - p->reported_ns > REPORT_NS)) {
		p->reported_ns = p->posted_ns;
		fill_report(p);
		requests[n++] = (struct fabric_request){
			.opcode = FABRIC_WRITE,
			.length = sizeof(p->telemetry),
			.local = &p->telemetry,
			.offset = slot + offsetof(struct layout_client, telemetry)};
	}
	if (!s->identity.read_only) {
		if (engine_may_raise(s->engine, &p->task))
			requests[n++] = process_raise(p);
		requests[n++] =
			fabric_read(slot + SESSION_LIMITS_OFFSET, &p->limits, sizeof(p->limits));
	}
	requests[n++] = fabric_read(LAYOUT_EPOCH_OFFSET, &p->epoch, 8);
	return session_post(s, requests, n, &p->task);
}

static int end(struct process *p, int result)
{
	p->task.result = result;
	return 2;
}

/* Handlers as in kv-internal.h: 0 wait, 1 go on, 2 ended. */
static int report(struct process *p)
{
	struct tarn_session *s = p->session;
	int ret;

	if (!p->posted) {
		if (s->ep->ops->check(s->ep) < 0)
			session_lose(s);
		ret = s->lost ? session_lost(s) : post_report(p);
		if (ret < 0)
			return end(p, ret);
		p->posted = true;
		return ret;
	}
	p->posted = false;
	session_epoch_learn(s, p->epoch, p->posted_ns);
	s->limits = p->limits;
	p->state = PROCESS_HAND_BACK;
	return 1;
}

static int hand_back(struct process *p)
{
	struct tarn_session *s = p->session;

	if (!p->final && session_now(s) - s->last_call_ns < IDLE_NS &&
	    !(s->limits.limits & LAYOUT_LIMIT_PAGES)) {
		if (session_now(s) - p->gave_ns > IDLE_NS) {
			p->gave_ns = session_now(s);
			alloc_hand_back_unused(s->alloc);
		}
		return end(p, 0);
	}
	alloc_hand_back_all(s->alloc);
	p->state = PROCESS_FLUSH;
	return 1;
}

/* A request that is waited for: when it is complete, so is the hand-back. */
static int flush(struct process *p)
{
	struct fabric_request r = fabric_read(LAYOUT_EPOCH_OFFSET, &p->epoch, 8);
	int ret;

	if (!p->posted) {
		ret = session_post(p->session, &r, 1, &p->task);
		if (ret < 0)
			return end(p, ret);
		p->posted = true;
		return ret;
	}
	p->posted = false;
	return end(p, 0);
}

static int process_step(struct task *task)
{
	static int (*const handlers[])(struct process *) = {
		[PROCESS_REPORT] = report,
		[PROCESS_HAND_BACK] = hand_back,
		[PROCESS_FLUSH] = flush,
	};
	struct process *p = (struct process *)task;
	int next;

	if (task->status < 0 && p->posted) {
		end(p, task->status == -TARN_ESESSION ? session_lost(p->session) : task->status);
		return 1;
	}
	do {
		next = handlers[p->state](p);
	} while (next == 1);
	return next == 2;
}

struct task *process_start(struct process *p, bool final)
{
	p->task.step = process_step;
	p->task.status = 0;
	p->task.wake_ns = 0;
	p->session->last_process_ns = session_now(p->session);
	p->task.limit_ns = p->session->last_process_ns + p->session->timeout_ns;
	p->state = PROCESS_REPORT;
	p->posted = false;
	p->final = final;
	return &p->task;
}
