/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-peer.c - `tarn doctor --peer`: connects twice to a pool and tests what clients rely on
 *
 * Where the tests write. They need bytes of the pool that nobody else reads or writes, on any
 * outcome, a crash in the middle included. A key of its own will not do: whoever walks over the
 * keys would find a value with a wrong checksum. So the first session claims a page as for a put
 * (protocol.md, section 5) and takes one block of it, which is never published: no slot names it,
 * its byte in the free map stays "aged", and whoever gets the block later writes all of it before
 * he publishes it. The second session writes into the block of the first one, which no right
 * forbids and which is safe while the first one holds it: all requests of both have completed
 * before the block goes back. If not, or if either connection has failed, the block is retired
 * instead and rests for the grace time (T2), which is longer than any request of a lost connection
 * can live (T3). If this process dies, its page becomes an orphan, like any client's; the sweep
 * finds nothing in it that is in use.
 *
 * Both sessions run without the housekeeping thread and are held (session_enter) while their
 * endpoints are used directly, so that nothing else uses them and nothing reconnects them. Next:
 * doctor-litmus.c, session.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "claim.h"
#include "clock.h"
#include "common/verbs.h"
#include "doctor-litmus.h"
#include "doctor.h"
#include "err.h"
#include "session.h"
#include "text.h"
#include "uri.h"

#define LATENCY_COUNT 1000u
#define PING_COUNT    100u

struct peer {
	struct doctor *doctor;
	struct cli *cli;
	const char *uri;
	struct tarn_session *sessions[2];
	bool read_only;
	bool have_block;
	struct alloc_block block;
	struct litmus litmus;
	bool failed; /* a request has failed or is still under way: the block must rest */
	struct hist hist;
};

/* ---- connecting ------------------------------------------------------------------------------ */

static int open_one(struct peer *peer, struct tarn_session **ret_session)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	int ret;

	options.flags = TARN_NO_THREAD | TARN_NO_CACHE | (peer->read_only ? TARN_READONLY : 0);
	options.timeout_ms = peer->cli->timeout_ms;
	options.key_file = peer->cli->key_file;
	ret = tarn_session_open(peer->uri, &options, ret_session);
	/* a key that may only read: what reading can show is better than nothing */
	if (ret == -TARN_EAUTH && !peer->read_only) {
		char *text = strdup(tarn_last_error_text());

		options.flags |= TARN_READONLY;
		if (tarn_session_open(peer->uri, &options, ret_session) == 0) {
			peer->read_only = true;
			ret = 0;
		} else {
			err_set(ret, "%s", text != NULL ? text : "not allowed");
		}
		free(text);
	}
	return ret;
}

static void say_failure(struct peer *peer, const char *id, int code, const char *what)
{
	const char *text = tarn_last_error_text();
	struct doctor_finding *finding =
		doctor_say(peer->doctor, id, DOCTOR_PROBLEM, "peer", "%s: %s", what,
			   *text != '\0' ? text : tarn_strerror(code));

	doctor_value(finding, "code", json_integer(code < 0 ? -code : code));
	doctor_value(finding, "name", json_string(tarn_error_name(code)));
	if (code == -TARN_EAUTH)
		doctor_remedy(finding,
			      "-k KEYFILE with a key of the pool's key_file; the clocks of "
			      "both hosts must agree within minutes");
	else if (code == -TARN_EUNREACHABLE || code == -TARN_ETIMEOUT || code == -TARN_ESESSION)
		doctor_remedy(finding, "does tarnd run and listen there (`tarn stats` on its host; "
				       "`listen` in tarnd.conf)? `tarn doctor` on both hosts; "
				       "rping -c -a ADDRESS tests the fabric without Tarn");
	else
		doctor_remedy(finding,
			      "tarnd's log says more; `tarn pools` on its host lists what it "
			      "has");
}

static json_t *us_of(uint64_t ns)
{
	return writer_u64(ns / 1000);
}

static void say_connected(struct peer *peer, uint64_t elapsed_ns)
{
	struct tarn_session *s = peer->sessions[0];
	const char *domain = s->geometry.atomics == LAYOUT_ATOMICS_NIC ? "nic" : "cpu";
	char time[TEXT_HUMAN_BYTES], size[TEXT_HUMAN_BYTES];
	struct doctor_finding *finding;

	finding = doctor_say(
		peer->doctor, "peer-connect", DOCTOR_OK, "peer",
		"two connections over %s in %s; pool of %s, atomic domain `%s` (%s), %s; deadline "
		"%" PRIu64 " ms, epoch %" PRIu64 " ms, grace %" PRIu64 " ms",
		s->ep->ops->name, text_human_ns(elapsed_ns, time),
		text_human_size(s->geometry.pool_bytes, size), domain,
		s->geometry.atomics == LAYOUT_ATOMICS_NIC
			? "CAS and FAA by one RDMA device"
			: "CAS and FAA by the CPU of the daemon's host",
		peer->read_only ? "for reading only" : "for reading and writing",
		s->geometry.deadline_ns / 1000000, s->geometry.epoch_ns / 1000000,
		s->geometry.grace_ns / 1000000);
	doctor_value(finding, "transport", json_string(s->ep->ops->name));
	doctor_value(finding, "atomics", json_string(domain));
	doctor_value(finding, "read_only", json_boolean(peer->read_only));
	doctor_value(finding, "pool_bytes", writer_u64(s->geometry.pool_bytes));
	doctor_value(finding, "deadline_us", us_of(s->geometry.deadline_ns));
	doctor_value(finding, "epoch_us", us_of(s->geometry.epoch_ns));
	doctor_value(finding, "grace_us", us_of(s->geometry.grace_ns));
	doctor_value(finding, "connect_ns", writer_u64(elapsed_ns));
}

static void add_values(struct doctor_finding *finding, const struct verbs_description *d,
		       const char *gid)
{
	doctor_value(finding, "device", writer_text(d->device));
	doctor_value(finding, "port", json_integer(d->port));
	doctor_value(finding, "iwarp", json_boolean(d->iwarp));
	doctor_value(finding, "atomics_by_rpc", json_boolean(d->atomics_by_rpc));
	doctor_value(finding, "ack_timeout", json_integer(d->ack_timeout));
	doctor_value(finding, "retries", json_integer(d->retries));
	doctor_value(finding, "rnr_retries", json_integer(d->rnr_retries));
	doctor_value(finding, "late_ns", writer_u64(d->late_ns));
	doctor_value(finding, "mtu_bytes", json_integer(d->mtu_bytes));
	doctor_value(finding, "gid_index", json_integer(d->gid_index));
	doctor_value(finding, "gid", *gid != '\0' ? json_string(gid) : json_null());
	doctor_value(finding, "traffic_class", json_integer(d->traffic_class));
	doctor_value(finding, "service_level", json_integer(d->service_level));
	doctor_value(finding, "initiator_depth", json_integer(d->initiator_depth));
	doctor_value(finding, "responder_resources", json_integer(d->responder_resources));
	doctor_value(finding, "max_inline_bytes", json_integer(d->max_inline));
	doctor_value(finding, "send_depth", json_integer(d->send_depth));
	doctor_value(finding, "regions", json_integer(d->regions));
}

/* What the two sides have agreed on. */
static void say_link(struct peer *peer)
{
	struct tarn_session *s = peer->sessions[0];
	char gid[INET6_ADDRSTRLEN] = "", late[TEXT_HUMAN_BYTES], path[256] = "";
	struct doctor_finding *finding;
	struct verbs_description d;

	if (fabric_verbs_describe(s->ep, &d) < 0)
		return;
	if (d.gid_index >= 0 && inet_ntop(AF_INET6, d.gid.raw, gid, sizeof(gid)) == NULL)
		gid[0] = '\0';
	if (!d.iwarp)
		snprintf(path, sizeof(path),
			 "packets of %u bytes, ack timeout %u and %u retries (a request takes "
			 "effect "
			 "within %s or never), GID %d %s%s, traffic class %u; ",
			 d.mtu_bytes, d.ack_timeout, d.retries, text_human_ns(d.late_ns, late),
			 d.gid_index, gid, d.roce_v2 ? " RoCE v2" : "", d.traffic_class);
	finding = doctor_say(
		peer->doctor, "peer-link", DOCTOR_OK, "peer",
		"%s port %u%s: %s%u READs and atomics in flight (%u of the daemon's), up "
		"to %u bytes inline, %u requests in the queue, pool in %u region%s; CAS "
		"and FAA %s",
		d.device, d.port, d.iwarp ? " (iWARP)" : "", path, d.initiator_depth,
		d.responder_resources, d.max_inline, d.send_depth, d.regions,
		d.regions == 1 ? "" : "s",
		d.atomics_by_rpc ? "are messages to the daemon" : "by the device");
	add_values(finding, &d, gid);
}

static int connect_both(struct peer *peer)
{
	uint64_t begin_ns = clock_now_ns();

	for (unsigned i = 0; i < 2; i++) {
		int ret = open_one(peer, &peer->sessions[i]);

		if (ret < 0) {
			say_failure(peer, "peer-connect", ret,
				    i == 0 ? "cannot connect" : "cannot connect a second time");
			return ret;
		}
	}
	say_connected(peer, clock_now_ns() - begin_ns);
	say_link(peer);
	return 0;
}

/* ---- the block ------------------------------------------------------------------------------- */

struct claiming {
	struct task task;
	struct claim claim;
};

static int claiming_step(struct task *task)
{
	return claim_step(&((struct claiming *)task)->claim, &task->result);
}

/* Within session_enter(). */
static int take_block(struct peer *peer)
{
	struct tarn_session *s = peer->sessions[0];
	uint32_t class = layout_class_for(LITMUS_BYTES);
	struct claiming *claiming = calloc(1, sizeof(*claiming));
	int ret;

	if (claiming == NULL)
		return err_set(-ENOMEM, "no memory");
	claiming->task.step = claiming_step;
	claiming->task.limit_ns = session_limit(s, session_now(s));
	claim_start(&claiming->claim, s, &claiming->task, class, 1);
	ret = session_run(s, &claiming->task);
	free(claiming);
	if (ret == 0 && !alloc_take(s->alloc, class, &peer->block))
		ret = err_set(-TARN_EPOOLFULL, "the page that was claimed has no free block");
	peer->have_block = ret == 0;
	return ret;
}

/* Within session_enter(). */
static void return_block(struct peer *peer)
{
	struct tarn_session *s = peer->sessions[0];

	if (!peer->have_block)
		return;
	if (peer->failed)
		alloc_retire_held(s->alloc, &peer->block);
	else
		alloc_return(s->alloc, &peer->block);
	alloc_settle(s->alloc);
	peer->have_block = false;
}

/* ---- tests ----------------------------------------------------------------------------------- */

#define FIX_DEVICE                                                                              \
	"do not use this device for a pool until its firmware and driver are up to date; with " \
	"atomics = cpu the daemon's CPU does CAS and FAA; please report the device"

static const struct test {
	const char *id, *name, *promise, *failure;
	int (*run)(struct litmus *litmus, uint64_t rounds, struct litmus_result *ret_result);
	unsigned share; /* of the rounds, 1 / share */
	bool promised;  /* docs/protocol.md rests on it */
} tests[] = {
	{"peer-count", "FAA", "additions of both connections are all there",
	 "atomics of two connections are not atomic: two clients can take the same page, or lose "
	 "an update",
	 litmus_count, 4, true},
	{"peer-fence", "fence", "a fenced WRITE does not overtake the READ before it",
	 "a WRITE that depends on an earlier READ can overtake it", litmus_fence, 10, true},
	{"peer-store-buffering", "CAS then READ",
	 "of two connections that CAS and then read the other's word, one sees the other",
	 "both missed the other's CAS: an insert (CAS, then READ of the buckets in one post) would "
	 "make two copies of a key; on such a device the READ must go into a post of its own, and "
	 "an insert take 4 round trips (docs/protocol.md, section 1)",
	 litmus_store, 1, true},
	{"peer-publish", "WRITE then CAS", "who sees the CAS sees the bytes written before it",
	 "the CAS was seen before the bytes of the WRITE in front of it: readers would find blocks "
	 "with wrong checksums",
	 litmus_publish, 1, true},
};

static void say_words(struct peer *peer, const struct litmus_result *result)
{
	struct doctor_finding *finding;

	if (result->failures == 0) {
		finding = doctor_say(peer->doctor, "peer-words", DOCTOR_OK, "peer",
				     "READ, WRITE, CAS and FAA do what they say, byte order "
				     "included (%" PRIu64 " checks)",
				     result->rounds);
	} else {
		finding = doctor_say(peer->doctor, "peer-words", DOCTOR_PROBLEM, "peer", "%s",
				     result->text);
		doctor_remedy(finding, FIX_DEVICE);
	}
	doctor_value(finding, "checks", writer_u64(result->rounds));
	doctor_value(finding, "failures", writer_u64(result->failures));
}

static void say_test(struct peer *peer, const struct test *test, const struct litmus_result *result)
{
	struct doctor_finding *finding;
	char overlaps[96] = "";

	if (test->run == litmus_store && result->failures == 0)
		snprintf(overlaps, sizeof(overlaps), "; in %" PRIu64 " both saw the other",
			 result->overlaps);
	if (result->failures == 0) {
		finding = doctor_say(peer->doctor, test->id, DOCTOR_OK, "peer",
				     "%s: %s (%" PRIu64 " rounds%s)", test->name, test->promise,
				     result->rounds, overlaps);
	} else {
		finding =
			doctor_say(peer->doctor, test->id, DOCTOR_PROBLEM, "peer",
				   "%s: failed %" PRIu64 " times in %" PRIu64 " rounds%s%s: %s",
				   test->name, result->failures, result->rounds,
				   *result->text != '\0' ? ", " : "", result->text, test->failure);
		doctor_remedy(finding, FIX_DEVICE);
	}
	doctor_value(finding, "rounds", writer_u64(result->rounds));
	doctor_value(finding, "failures", writer_u64(result->failures));
	if (test->run == litmus_store)
		doctor_value(finding, "overlaps", writer_u64(result->overlaps));
}

static int fail_test(struct peer *peer, const char *id, int code, const char *what)
{
	struct doctor_finding *finding;

	peer->failed = true;
	finding = doctor_say(peer->doctor, id, DOCTOR_PROBLEM, "peer",
			     "%s could not be tested to its end: %s", what,
			     code == -TARN_EPROTO ? "a word that only this test writes has changed"
						  : tarn_strerror(code));
	doctor_value(finding, "code", json_integer(-code));
	doctor_value(finding, "name", json_string(tarn_error_name(code)));
	doctor_remedy(finding, "tarnd's log; `tarn doctor` on both hosts: link, counters of loss");
	return code;
}

static int run_tests(struct peer *peer, unsigned rounds)
{
	struct litmus_result result;
	int ret = litmus_words(&peer->litmus, &result);

	if (ret < 0)
		return fail_test(peer, "peer-words", ret, "READ, WRITE, CAS and FAA");
	say_words(peer, &result);
	/* with words that are not what they should be the rest says nothing */
	if (result.failures > 0)
		return 0;
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		if (*peer->cli->stop)
			return -EINTR;
		ret = tests[i].run(&peer->litmus, rounds / tests[i].share + 1, &result);
		if (ret < 0)
			return fail_test(peer, tests[i].id, ret, tests[i].name);
		say_test(peer, &tests[i], &result);
	}
	return 0;
}

/* ---- times ----------------------------------------------------------------------------------- */

static void say_times(struct peer *peer, const char *id, const char *what)
{
	uint64_t p50 = hist_percentile(&peer->hist, 50), p99 = hist_percentile(&peer->hist, 99);
	char half[TEXT_HUMAN_BYTES], most[TEXT_HUMAN_BYTES];
	struct doctor_finding *finding = doctor_say(
		peer->doctor, id, DOCTOR_OK, "peer", "%s: p50 %s, p99 %s (%" PRIu64 ")", what,
		text_human_ns(p50, half), text_human_ns(p99, most), hist_count(&peer->hist));

	doctor_value(finding, "count", writer_u64(hist_count(&peer->hist)));
	doctor_value(finding, "p50_ns", writer_u64(p50));
	doctor_value(finding, "p99_ns", writer_u64(p99));
	doctor_value(finding, "max_ns", writer_u64(hist_max(&peer->hist)));
}

static int time_operations(struct peer *peer)
{
	static const struct {
		enum litmus_operation operation;
		const char *id, *what;
		bool writes;
	} operations[] = {
		{LITMUS_READ, "latency-read", "READ of 8 bytes", false},
		{LITMUS_READ_BLOCK, "latency-read-block", "READ of 2 KiB", false},
		{LITMUS_WRITE, "latency-write", "WRITE of 64 bytes", true},
		{LITMUS_CAS, "latency-cas", "CAS", true},
	};

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		int ret;

		if (operations[i].writes && !peer->have_block)
			continue;
		ret = litmus_latency(&peer->litmus, operations[i].operation, LATENCY_COUNT,
				     &peer->hist);
		if (ret < 0)
			return fail_test(peer, operations[i].id, ret, operations[i].what);
		say_times(peer, operations[i].id, operations[i].what);
	}
	return 0;
}

static void time_pings(struct peer *peer)
{
	hist_init(&peer->hist);
	for (unsigned i = 0; i < PING_COUNT; i++) {
		uint64_t ns = 0;
		int ret = tarn_session_ping(peer->sessions[0], &ns);

		if (ret < 0) {
			say_failure(peer, "latency-message", ret,
				    "a message to the daemon was not answered");
			return;
		}
		hist_add(&peer->hist, ns);
	}
	say_times(peer, "latency-message", "message to the daemon and its answer");
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Within session_enter() of both. */
static void test_memory(struct peer *peer, unsigned rounds)
{
	uint64_t timeout_ns = peer->sessions[0]->timeout_ns, base = 0;
	int ret = peer->read_only ? 0 : take_block(peer);

	if (peer->read_only) {
		doctor_remedy(
			doctor_say(peer->doctor, "peer-words", DOCTOR_NOTE, "peer",
				   "WRITE, CAS, FAA, the fence and the order of requests were "
				   "not tested: for reading only"),
			"a key that may write");
	} else if (ret < 0) {
		doctor_remedy(
			doctor_say(peer->doctor, "peer-words", DOCTOR_NOTE, "peer",
				   "WRITE, CAS, FAA, the fence and the order of requests were "
				   "not tested, since they need a free page: %s",
				   tarn_last_error_text()),
			"delete something, or test with another pool");
	} else {
		base = peer->block.offset;
	}
	if (peer->sessions[0]->lost || peer->sessions[1]->lost)
		return;
	/* without a block: the superblock, which may be read */
	litmus_init(&peer->litmus, peer->sessions[0]->ep, peer->sessions[1]->ep, base, timeout_ns);
	ret = peer->have_block ? run_tests(peer, rounds) : 0;
	if (ret == 0)
		(void)time_operations(peer);
	return_block(peer);
}

static int hold_both(struct peer *peer, unsigned rounds)
{
	int ret = session_enter(peer->sessions[0]);

	if (ret < 0)
		return ret;
	ret = session_enter(peer->sessions[1]);
	if (ret == 0) {
		test_memory(peer, rounds);
		session_leave(peer->sessions[1]);
	}
	session_leave(peer->sessions[0]);
	return ret;
}

int doctor_check_peer(struct doctor *doctor, struct cli *cli, const char *uri, unsigned rounds)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	int ret;

	if (peer == NULL)
		return err_set(-ENOMEM, "no memory");
	peer->doctor = doctor;
	peer->cli = cli;
	peer->uri = uri;
	peer->read_only = cli->read_only;
	ret = connect_both(peer);
	if (ret == 0) {
		time_pings(peer);
		ret = hold_both(peer, rounds);
		if (ret < 0)
			say_failure(peer, "peer-words", ret, "the connection broke");
	}
	/* the struct litmus in *peer must outlive the endpoints */
	tarn_session_close(peer->sessions[1]);
	tarn_session_close(peer->sessions[0]);
	free(peer);
	return 0;
}
