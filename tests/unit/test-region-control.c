/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-region-control.c - what the calls that make, find, open and unmake regions ask the daemon, and what they make of
 * its answers: each blocking and as its twin, with connections that break, deadlines and cancels
 *
 * The endpoint (fake-fabric.h) answers from a list, and notes if something else is asked. Time passes where the library
 * sleeps or looks at the clock: nobody waits for it, and it does not depend on the machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "clock.h"
#include "fake-fabric.h"
#include "tarn/region.h"

#define MIB     (1ull << 20)
#define TIME_MS 60000u /* of the session */

void __wrap_clock_sleep_ns(uint64_t ns);

/* ---- a daemon that answers as it is told ----------------------------------------------------- */

/* What is asked, and what it gets. */
struct line {
	enum wire_region_call call;
	enum fake_answer how;
	int status;
	uint64_t id; /* 0: 7 */
	uint8_t state;
	uint64_t bytes;  /* 0: 4096 */
	uint32_t pieces; /* OPEN */
};
#define LINES 8u
#define Q(call_, ...)                                    \
	{                                                \
		.call = WIRE_REGION_##call_, __VA_ARGS__ \
	}

static struct daemon {
	const struct line *lines;
	unsigned count, next; /* behind the last one everything is answered well */
	unsigned asked[16];
	unsigned working;             /* so many STATs see it going on, one step each */
	bool stuck;                   /* they see no step */
	char name[WIRE_REGION_NAME_BYTES];
} daemon_;

struct test {
	struct fake fake;
	struct fixture pool;
	struct tarn_session *s;
};

static struct fake *clock_of; /* of the test that runs */

void __wrap_clock_sleep_ns(uint64_t ns)
{
	clock_of->passed_ns += ns;
}

static struct line line_next(const struct wire_region_request *request)
{
	struct daemon *d = &daemon_;
	struct line line = {.call = request->call, .state = TARN_REGION_READY};

	d->asked[request->call]++;
	if (d->next < d->count) {
		line = d->lines[d->next++];
		assert_int_equal(request->call, line.call);
	} else if (request->call == WIRE_REGION_STAT && d->working) {
		d->working--;
		line.state = TARN_REGION_CREATING;
	}
	if (!line.state)
		line.state = TARN_REGION_READY;
	if (request->call != WIRE_REGION_LIST && request->call != WIRE_REGION_CLOSE &&
	    request->call != WIRE_REGION_MEMORY)
		assert_string_equal(request->name, d->name);
	return line;
}

static enum fake_answer ask(struct fake *f, const void *message, size_t bytes, uint8_t *answer,
			    uint32_t *ret_bytes)
{
	struct wire_region_request request;
	struct wire_region_reply r;
	struct line line;

	(void)f;
	assert_int_equal(wire_region_request_decode(message, bytes, &request), 0);
	line = line_next(&request);
	r = (struct wire_region_reply){
		.call = request.call,
		.state = line.state,
		.status = line.status,
		.handle = request.handle,
		.id = line.id ? line.id : 7,
		.bytes = line.bytes ? line.bytes : 4096,
		.value = daemon_.stuck ? 5 : 100000 - daemon_.working,
		.length = request.call == WIRE_REGION_STAT ? 100000 : 0,
		.number = line.pieces,
	};
	if (request.call == WIRE_REGION_LIST) {
		strcpy(r.name, line.id % 2 ? "odd" : "even");
		strcpy(daemon_.name, r.name);
	}
	wire_region_reply_encode(&r, answer);
	*ret_bytes = WIRE_REGION_BYTES;
	return line.how;
}

/* There is a daemon, or not. */
static void away(struct test *t, bool away)
{
	t->fake.fail = away ? UINT32_MAX : 0;
	t->fake.code = -TARN_EUNREACHABLE;
	t->fake.again = SESSION_LATER;
}

static int setup(void **state)
{
	struct test *t = calloc(1, sizeof(*t));
	struct layout_plan plan = fixture_plan(16 * MIB);

	*state = t;
	daemon_ = (struct daemon){.name = "a"};
	clock_of = &t->fake;
	t->fake.begin_ns = clock_now_ns();
	t->fake.ask = ask;
	if (fixture_create(&t->pool, &plan) < 0)
		return -1;
	t->s = fake_session(&t->fake, &t->pool, 0, TIME_MS);
	return 0;
}

static int teardown(void **state)
{
	struct test *t = *state;

	tarn_session_close(t->s);
	fixture_destroy(&t->pool);
	free(t);
	return 0;
}

static struct tarn_completion wait_one(struct test *t)
{
	struct tarn_completion c;
	size_t count = 0;

	while (count == 0) {
		assert_true(tarn_session_wait(t->s, 1000) >= 0);
		assert_true(tarn_session_poll(t->s, &c, 1, &count) >= 0);
	}
	assert_int_equal(c.kind, TARN_OP_REGION_CONTROL);
	return c;
}

static void answers(const struct line *lines, unsigned count)
{
	daemon_ = (struct daemon){.name = "a", .lines = lines, .count = count};
}

/* ---- every call, blocking and as its twin ---------------------------------------------------- */

enum what { STAT, LIST, CREATE, BACKGROUND, RESIZE, DESTROY, OPEN };

static const struct scene {
	const char *title;
	enum what what;
	int status;
	unsigned count;
	struct line lines[LINES];
} scenes[] = {
	{"stat", STAT, 0, 1, {Q(STAT)}},
	{"stat of none", STAT, -TARN_ENOREGION, 1, {Q(STAT, .status = -TARN_ENOREGION)}},
	{"stat, lost", STAT, 0, 2, {Q(STAT, .how = FAKE_BREAKS), Q(STAT)}},
	{"stat, no answer", STAT, -TARN_ETIMEOUT, 1, {Q(STAT, .how = FAKE_SILENT)}},
	{"list", LIST, 1, 2, {Q(LIST, .id = 3), Q(STAT, .id = 3)}},
	{"list, at the end", LIST, 0, 1, {Q(LIST, .status = -TARN_ENOREGION)}},
	{"list, one that goes",
	 LIST,
	 1,
	 4,
	 {Q(LIST, .id = 3), Q(STAT, .status = -TARN_ENOREGION), Q(LIST, .id = 4),
	  Q(STAT, .id = 4)}},
	{"list, lost between",
	 LIST,
	 1,
	 3,
	 {Q(LIST, .id = 3), Q(STAT, .how = FAKE_BREAKS), Q(STAT, .id = 3)}},
	{"create", CREATE, 0, 3, {Q(CREATE), Q(STAT, .state = TARN_REGION_CREATING), Q(STAT)}},
	{"create of what is there", CREATE, -TARN_EEXISTS, 1, {Q(CREATE, .status = -TARN_EEXISTS)}},
	{"create, no answer", CREATE, -TARN_ETIMEOUT, 1, {Q(CREATE, .how = FAKE_SILENT)}},
	/* never asked twice */
	{"create, lost", CREATE, -TARN_EAMBIGUOUS, 1, {Q(CREATE, .how = FAKE_BREAKS)}},
	{"create, lost while it is made",
	 CREATE,
	 0,
	 4,
	 {Q(CREATE), Q(STAT, .state = TARN_REGION_CREATING), Q(STAT, .how = FAKE_BREAKS), Q(STAT)}},
	{"create that fails",
	 CREATE,
	 -TARN_EPOOLFULL,
	 3,
	 {Q(CREATE), Q(STAT, .state = TARN_REGION_FAILED), Q(DESTROY)}},
	{"create that is destroyed",
	 CREATE,
	 -TARN_ENOREGION,
	 2,
	 {Q(CREATE), Q(STAT, .state = TARN_REGION_DESTROYING)}},
	{"create in the background", BACKGROUND, 0, 1, {Q(CREATE)}},
	{"resize",
	 RESIZE,
	 0,
	 3,
	 {Q(RESIZE), Q(STAT, .state = TARN_REGION_RESIZING, .bytes = 8192), Q(STAT)}},
	{"resize that fails", RESIZE, -TARN_EPOOLFULL, 2, {Q(RESIZE), Q(STAT, .bytes = 8192)}},
	{"resize, busy", RESIZE, -TARN_EBUSY, 1, {Q(RESIZE, .status = -TARN_EBUSY)}},
	{"resize, lost before", RESIZE, 0, 3, {Q(RESIZE, .how = FAKE_BREAKS), Q(RESIZE), Q(STAT)}},
	{"resize, lost behind",
	 RESIZE,
	 -TARN_EAMBIGUOUS,
	 2,
	 {Q(RESIZE, .how = FAKE_BREAKS), Q(RESIZE, .status = -TARN_EBUSY)}},
	{"destroy",
	 DESTROY,
	 0,
	 4,
	 {Q(STAT), Q(DESTROY), Q(STAT, .state = TARN_REGION_DESTROYING),
	  Q(STAT, .status = -TARN_ENOREGION)}},
	{"destroy of none", DESTROY, -TARN_ENOREGION, 1, {Q(STAT, .status = -TARN_ENOREGION)}},
	{"destroy, made anew", DESTROY, 0, 3, {Q(STAT, .id = 7), Q(DESTROY), Q(STAT, .id = 8)}},
	{"destroy, lost",
	 DESTROY,
	 0,
	 3,
	 {Q(STAT), Q(DESTROY, .how = FAKE_BREAKS), Q(STAT, .status = -TARN_ENOREGION)}},
	{"destroy, lost, not done",
	 DESTROY,
	 0,
	 5,
	 {Q(STAT), Q(DESTROY, .how = FAKE_BREAKS), Q(STAT), Q(DESTROY),
	  Q(STAT, .status = -TARN_ENOREGION)}},
	{"destroy, lost, and made anew by another one",
	 DESTROY,
	 0,
	 3,
	 {Q(STAT, .id = 7), Q(DESTROY, .how = FAKE_BREAKS), Q(STAT, .id = 8)}},
	{"destroy, lost, under way",
	 DESTROY,
	 0,
	 4,
	 {Q(STAT), Q(DESTROY, .how = FAKE_BREAKS), Q(STAT, .state = TARN_REGION_DESTROYING),
	  Q(STAT, .status = -TARN_ENOREGION)}},
	{"open", OPEN, 0, 1, {Q(OPEN)}},
	{"open of none", OPEN, -TARN_ENOREGION, 1, {Q(OPEN, .status = -TARN_ENOREGION)}},
	{"open, not ready", OPEN, 0, 2, {Q(OPEN, .status = -TARN_EBUSY), Q(OPEN)}},
	{"open, lost", OPEN, 0, 2, {Q(OPEN, .how = FAKE_BREAKS), Q(OPEN)}},
	{"open, lost half way",
	 OPEN,
	 0,
	 3,
	 {Q(OPEN, .id = 7, .pieces = 1), Q(MEMORY, .how = FAKE_BREAKS), Q(OPEN, .id = 8)}},
	/* what the daemon has opened is closed */
	{"open, refused half way",
	 OPEN,
	 -TARN_EPROTO,
	 3,
	 {Q(OPEN, .pieces = 1), Q(MEMORY, .status = -TARN_EPROTO), Q(CLOSE)}},
};

/* What the calls fill in. */
struct found {
	struct tarn_region_info info;
	uint64_t cursor;
	struct tarn_region *region;
};

static int call(struct test *t, enum what what, struct found *f)
{
	switch (what) {
	case STAT:
		return tarn_region_stat(t->s, "a", &f->info);
	case LIST:
		return tarn_region_list(t->s, &f->cursor, &f->info);
	case CREATE:
		return tarn_region_create(t->s, "a", 4096, 0);
	case BACKGROUND:
		return tarn_region_create(t->s, "a", 4096, TARN_REGION_BACKGROUND);
	case RESIZE:
		return tarn_region_resize(t->s, "a", 4096, 0);
	case DESTROY:
		return tarn_region_destroy(t->s, "a");
	case OPEN:
		break;
	}
	return tarn_region_open(t->s, "a", 0, &f->region);
}

static int call_async(struct test *t, enum what what, struct found *f,
		      const struct tarn_async *async, uint64_t *ret_op)
{
	switch (what) {
	case STAT:
		return tarn_region_stat_async(t->s, "a", &f->info, async, ret_op);
	case LIST:
		return tarn_region_list_async(t->s, &f->cursor, &f->info, async, ret_op);
	case CREATE:
		return tarn_region_create_async(t->s, "a", 4096, 0, async, ret_op);
	case BACKGROUND:
		return tarn_region_create_async(t->s, "a", 4096, TARN_REGION_BACKGROUND, async,
						ret_op);
	case RESIZE:
		return tarn_region_resize_async(t->s, "a", 4096, 0, async, ret_op);
	case DESTROY:
		return tarn_region_destroy_async(t->s, "a", async, ret_op);
	case OPEN:
		break;
	}
	return tarn_region_open_async(t->s, "a", 0, &f->region, async, ret_op);
}

static void check_scene(struct test *t, const struct scene *scene, bool async)
{
	struct found f = {.info = {.size = sizeof(f.info)}, .cursor = 2};
	const struct line *last = &scene->lines[scene->count - 1];
	int status;

	answers(scene->lines, scene->count);
	if (async) {
		assert_int_equal(call_async(t, scene->what, &f, NULL, NULL), 0);
		status = wait_one(t).status;
	} else {
		status = call(t, scene->what, &f);
	}
	if (status != scene->status || daemon_.next != scene->count)
		fail_msg("%s%s: %d in place of %d, and %u of %u questions", scene->title,
			 async ? " (async)" : "", status, scene->status, daemon_.next,
			 scene->count);
	if (status >= 0 && scene->what == STAT)
		assert_true(f.info.id == 7 && !strcmp(f.info.name, "a"));
	if (scene->what == LIST)
		assert_true(f.cursor == (status == 1 ? last->id : 2) &&
			    f.info.id == (status == 1 ? last->id : 0));
	assert_true((f.region != NULL) == (scene->what == OPEN && status == 0));
	/* what it was to be is not left in the session */
	if (!f.region)
		assert_true(LIST_EMPTY(&t->s->regions));
	assert_int_equal(tarn_region_close(f.region), 0);
}

static void test_scenes(void **state)
{
	for (unsigned i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		check_scene(*state, &scenes[i], false);
		check_scene(*state, &scenes[i], true);
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

/* As long as it gets on the limit begins again; the deadline of a twin does not. */
static void test_progress(void **state)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	struct test *t = *state;
	struct found f;

	answers(NULL, 0);
	daemon_.working = 4000; /* with pauses of up to 50 ms more than three times the limit */
	assert_int_equal(call(t, CREATE, &f), 0);
	daemon_.working = 4000;
	assert_int_equal(call_async(t, CREATE, &f, NULL, NULL), 0);
	assert_int_equal(wait_one(t).status, 0);
	daemon_.working = 4000;
	async.timeout_ms = 2 * TIME_MS;
	assert_int_equal(call_async(t, CREATE, &f, &async, NULL), 0);
	assert_int_equal(wait_one(t).status, -TARN_ETIMEOUT);
	assert_true(daemon_.working > 0);
	assert_int_equal(daemon_.asked[WIRE_REGION_CREATE], 3);
}

static void test_no_progress(void **state)
{
	struct test *t = *state;
	struct found f;

	answers(NULL, 0);
	daemon_.working = UINT32_MAX;
	daemon_.stuck = true;
	assert_int_equal(call(t, CREATE, &f), -TARN_ETIMEOUT);
	assert_non_null(strstr(tarn_last_error_text(), "not ready yet"));
	assert_int_equal(call_async(t, RESIZE, &f, NULL, NULL), 0);
	assert_int_equal(wait_one(t).status, -TARN_ETIMEOUT);
	assert_int_equal(call(t, DESTROY, &f), -TARN_ETIMEOUT);
	assert_non_null(strstr(tarn_last_error_text(), "being destroyed"));
}

/* It is not connected in time: with nothing asked, and with what has been begun. */
static void test_away(void **state)
{
	static const struct line lines[] = {Q(CREATE), Q(STAT, .how = FAKE_BREAKS)};
	struct tarn_async async = TARN_ASYNC_INIT;
	struct test *t = *state;
	struct found f = {.info = {.size = sizeof(f.info)}};

	away(t, true);
	async.timeout_ms = 200;
	answers(lines, 2);
	assert_int_equal(call_async(t, CREATE, &f, &async, NULL), 0);
	assert_int_equal(wait_one(t).status, -TARN_ESESSION);
	assert_int_equal(call_async(t, OPEN, &f, &async, NULL), 0);
	assert_int_equal(wait_one(t).status, -TARN_ESESSION);
	assert_int_equal(daemon_.next, 2);
	assert_true(LIST_EMPTY(&t->s->regions));
	away(t, false);
}

/* ---- cancel ---------------------------------------------------------------------------------- */

/* Its status if it is cancelled when so many questions were asked. */
static int cancelled_at(struct test *t, enum what what, const struct line *lines, unsigned count)
{
	struct found f = {.info = {.size = sizeof(f.info)}};
	int status;
	uint64_t op;

	answers(lines, count);
	assert_int_equal(call_async(t, what, &f, NULL, &op), 0);
	/* behind the last answer, too */
	for (unsigned more = 0; more < 4; more += daemon_.next == count)
		assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	assert_int_equal(tarn_cancel(t->s, op), 0);
	status = wait_one(t).status;
	assert_null(f.region);
	assert_true(LIST_EMPTY(&t->s->regions));
	return status;
}

static void test_cancel(void **state)
{
	static const struct line stat[] = {Q(STAT, .how = FAKE_SILENT)},
				 create[] = {Q(CREATE, .how = FAKE_SILENT)},
				 look[] = {Q(CREATE), Q(STAT, .how = FAKE_SILENT)},
				 pause[] = {Q(CREATE), Q(STAT, .state = TARN_REGION_CREATING)},
				 open[] = {Q(OPEN, .how = FAKE_SILENT)},
				 busy[] = {Q(OPEN, .status = -TARN_EBUSY),
					   Q(OPEN, .status = -TARN_EBUSY)};
	struct test *t = *state;

	/* nothing that changes anything was asked */
	assert_int_equal(cancelled_at(t, STAT, stat, 1), -TARN_ECANCELED);
	assert_int_equal(cancelled_at(t, DESTROY, stat, 1), -TARN_ECANCELED);
	assert_int_equal(daemon_.asked[WIRE_REGION_DESTROY], 0);
	/* it may go on */
	assert_int_equal(cancelled_at(t, CREATE, create, 1), -TARN_ETIMEOUT);
	assert_int_equal(cancelled_at(t, CREATE, look, 2), -TARN_ETIMEOUT);
	assert_int_equal(cancelled_at(t, CREATE, pause, 2), -TARN_ETIMEOUT);
	/* the daemon may have opened it, so it is told to close it */
	assert_int_equal(cancelled_at(t, OPEN, open, 1), -TARN_ECANCELED);
	assert_int_equal(daemon_.asked[WIRE_REGION_CLOSE], 1);
	assert_int_equal(cancelled_at(t, OPEN, busy, 2), -TARN_ECANCELED);
	assert_int_equal(daemon_.asked[WIRE_REGION_CLOSE], 0);
}

/* Cancelled again while the daemon is told to close it, which waits behind another question: it is told all the same. */
static void test_cancel_twice(void **state)
{
	static const struct line lines[] = {Q(OPEN, .how = FAKE_SILENT), Q(STAT, .how = FAKE_SILENT)};
	struct found f = {.info = {.size = sizeof(f.info)}}, g = f;
	struct test *t = *state;
	uint64_t op, other;

	answers(lines, 2);
	assert_int_equal(call_async(t, OPEN, &f, NULL, &op), 0);
	assert_int_equal(call_async(t, STAT, &g, NULL, &other), 0);
	while (daemon_.next == 0)
		assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(tarn_cancel(t->s, op), 0);
		assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	}
	/* the other one has the daemon's ear now */
	assert_int_equal(daemon_.asked[WIRE_REGION_STAT], 1);
	assert_int_equal(daemon_.asked[WIRE_REGION_CLOSE], 0);
	assert_int_equal(tarn_cancel(t->s, other), 0);
	assert_int_equal(wait_one(t).status, -TARN_ECANCELED);
	assert_int_equal(wait_one(t).status, -TARN_ECANCELED);
	assert_int_equal(daemon_.asked[WIRE_REGION_CLOSE], 1);
	assert_true(!f.region && LIST_EMPTY(&t->s->regions));
}

/* Behind another question it has not been asked for yet. */
static void test_cancel_queued(void **state)
{
	static const struct line lines[] = {Q(STAT, .how = FAKE_SILENT)};
	struct found f = {.info = {.size = sizeof(f.info)}}, g = f;
	struct test *t = *state;
	uint64_t first, op;

	answers(lines, 1);
	assert_int_equal(call_async(t, STAT, &f, NULL, &first), 0);
	assert_int_equal(call_async(t, CREATE, &g, NULL, &op), 0);
	assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	assert_int_equal(tarn_cancel(t->s, op), 0);
	assert_int_equal(wait_one(t).status, -TARN_ECANCELED);
	assert_int_equal(daemon_.asked[WIRE_REGION_CREATE], 0);
	assert_int_equal(tarn_cancel(t->s, first), 0);
	assert_int_equal(wait_one(t).status, -TARN_ECANCELED);
	/* closed with some under way, and with one that was opened and not picked up */
	answers(NULL, 0);
	assert_int_equal(call_async(t, OPEN, &g, NULL, NULL), 0);
	while (daemon_.asked[WIRE_REGION_OPEN] == 0 || !g.region)
		assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	answers(lines, 1);
	assert_int_equal(call_async(t, STAT, &f, NULL, NULL), 0);
	assert_int_equal(call_async(t, OPEN, &g, NULL, NULL), 0);
	assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
}

/* ---- close ----------------------------------------------------------------------------------- */

static struct tarn_region *open_one(struct test *t)
{
	struct tarn_region *region = NULL;

	answers(NULL, 0);
	assert_int_equal(tarn_region_open(t->s, "a", 0, &region), 0);
	return region;
}

/* Whatever becomes of the question: it is closed, with status 0, and the daemon is told once. */
static void test_close(void **state)
{
	static const struct line ways[] = {Q(CLOSE), Q(CLOSE, .status = -TARN_ENOREGION),
					   Q(CLOSE, .how = FAKE_BREAKS), Q(CLOSE, .how = FAKE_SILENT)};
	struct test *t = *state;
	uint64_t op, word;

	for (unsigned i = 0; i < 5; i++) {
		struct tarn_region *region = open_one(t);

		/* the last time it is cancelled, with no answer */
		answers(&ways[i < 4 ? i : 3], 1);
		assert_int_equal(tarn_region_close_async(region, NULL, &op), 0);
		assert_int_equal(tarn_region_close_async(region, NULL, NULL), -EINVAL);
		assert_int_equal(tarn_region_close(region), -EINVAL);
		assert_int_equal(tarn_region_read(region, 0, &word, 8), -EINVAL);
		assert_int_equal(tarn_region_bytes(region), 0);
		if (i == 4) {
			while (daemon_.next == 0)
				assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
			assert_int_equal(tarn_cancel(t->s, op), 0);
		}
		assert_int_equal(wait_one(t).status, 0);
		assert_int_equal(daemon_.asked[WIRE_REGION_CLOSE], 1);
		assert_true(LIST_EMPTY(&t->s->regions));
	}
}

/* With no connection there is nothing to ask; and one that is in use, or can not be begun, stays open. */
static void test_close_refused(void **state)
{
	struct tarn_async wrong = {.size = 1};
	struct test *t = *state;
	struct tarn_region *region = open_one(t);
	struct tarn_completion c;
	uint64_t word;
	size_t count = 0;

	assert_int_equal(tarn_region_close_async(NULL, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_close_async(region, &wrong, NULL), -EINVAL);
	assert_int_equal(tarn_region_read_async(region, 0, &word, 8, NULL, NULL), 0);
	assert_int_equal(tarn_region_close_async(region, NULL, NULL), -TARN_EBUSY);
	while (count == 0)
		assert_true(tarn_session_poll(t->s, &c, 1, &count) >= 0);
	assert_int_equal(tarn_region_bytes(region), 4096);
	away(t, true);
	t->s->lost = true;
	assert_int_equal(tarn_region_close_async(region, NULL, NULL), 0);
	assert_int_equal(tarn_session_poll(t->s, &c, 1, &count), 1);
	assert_int_equal(c.status, 0);
	assert_true(LIST_EMPTY(&t->s->regions));
	away(t, false);
	/* with the session, before it is picked up */
	region = open_one(t);
	assert_int_equal(tarn_region_close_async(region, NULL, NULL), 0);
}

/* ---- several --------------------------------------------------------------------------------- */

/* Each gets a number of its own; there are TARN_REGION_OPEN_MAX, and 64 calls. */
static void test_many_open(void **state)
{
	struct tarn_region *regions[64] = {NULL};
	struct test *t = *state;
	unsigned opened = 0;

	answers(NULL, 0);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(tarn_region_open_async(t->s, "a", 0, &regions[i], NULL, NULL), 0);
	assert_int_equal(tarn_region_open_async(t->s, "a", 0, &regions[0], NULL, NULL),
			 -TARN_EBUSY);
	for (unsigned i = 0; i < 64; i++) {
		int status = wait_one(t).status;

		assert_true(status == 0 || status == -ENOSPC);
		opened += status == 0;
	}
	assert_int_equal(opened, TARN_REGION_OPEN_MAX);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(tarn_region_close(regions[i]), 0);
}

/* A blocking call drives them, too. */
static void test_beside_blocking(void **state)
{
	struct found f = {.info = {.size = sizeof(f.info)}}, g;
	struct test *t = *state;

	answers(NULL, 0);
	daemon_.working = 10;
	assert_int_equal(call_async(t, CREATE, &g, NULL, NULL), 0);
	assert_int_equal(call(t, STAT, &f), 0);
	assert_int_equal(wait_one(t).status, 0);
}

/* Bad arguments are told at once, by both. */
static void test_arguments(void **state)
{
	struct tarn_async async = {.size = 1};
	struct tarn_region_info info = {.size = 4};
	struct test *t = *state;
	struct tarn_region *region;
	uint64_t cursor = 0;

	answers(NULL, 0);
	assert_int_equal(tarn_region_create_async(NULL, "a", 1, 0, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_create_async(t->s, "a b", 1, 0, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_create_async(t->s, "a", 0, 0, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_create_async(t->s, "a", 1, 2, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_create_async(t->s, "a", 1, 0, &async, NULL), -EINVAL);
	assert_int_equal(tarn_region_resize_async(t->s, NULL, 1, 0, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_destroy_async(t->s, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_stat_async(t->s, "a", &info, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_stat_async(t->s, "a", NULL, NULL, NULL), -EINVAL);
	info.size = sizeof(info);
	assert_int_equal(tarn_region_list_async(t->s, NULL, &info, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_list_async(NULL, &cursor, &info, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_open_async(t->s, "a", 0, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_open_async(t->s, "a", 8, &region, NULL, NULL), -EINVAL);
	assert_int_equal(tarn_region_open_async(t->s, "a", 0, &region, &async, NULL), -EINVAL);
	t->s->identity.read_only = true;
	assert_int_equal(tarn_region_create_async(t->s, "a", 1, 0, NULL, NULL), -TARN_EREADONLY);
	assert_int_equal(tarn_region_resize_async(t->s, "a", 1, 0, NULL, NULL), -TARN_EREADONLY);
	assert_int_equal(tarn_region_destroy_async(t->s, "a", NULL, NULL), -TARN_EREADONLY);
	assert_int_equal(tarn_session_poll(t->s, NULL, 0, NULL), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(daemon_.asked[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_scenes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_progress, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_progress, setup, teardown),
		cmocka_unit_test_setup_teardown(test_away, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancel_queued, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancel_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_close, setup, teardown),
		cmocka_unit_test_setup_teardown(test_close_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_open, setup, teardown),
		cmocka_unit_test_setup_teardown(test_beside_blocking, setup, teardown),
		cmocka_unit_test_setup_teardown(test_arguments, setup, teardown),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
