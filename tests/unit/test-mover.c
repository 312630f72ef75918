/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/mover.c: one attempt at a time to hand shards over, by a connection of its own. The thread, the copier and both pools are real;
 * the connection is made, asked and closed here, and is lost when the test wants it.
 */
#include "shards-fixture.h"

#include <stdatomic.h>
#include <unistd.h>

#include <event2/event.h>

#include "mover.h"
#include "shard-copy.h"

#define NUMBER 7u /* of an attempt */
#define BOOT   4711u
#define COUNT  200u /* keys */

static const uint32_t moved_list[] = {3, 9, 20, 41, 63};
#define MOVED 5u

/* What the mover's thread finds when it connects, asks and puts. */
static struct {
	struct world *target;
	atomic_int refusals; /* so many connections are refused */
	atomic_int opens, closes, puts;
	atomic_int answer;      /* to "are you ready?": enum wire_ready, or the connection is lost: negative */
	atomic_int ping;        /* likewise to a ping: 0 or negative */
	atomic_int lose_at_put; /* the connection is lost at this one; 0: at none */
	atomic_int fail_at_put; /* this one fails, for the target is full */
	atomic_bool lose_at_bring;
	atomic_int questions; /* "are you ready?" */
	atomic_bool single;   /* of several shards in one: never */
	_Atomic uint64_t boot_id;
} fake;

struct told {
	unsigned answered, copied, lost, unreachable;
	enum handover_answer answer;
	uint64_t number, boot_id, lost_number;
	int result;
	char text[256];
};

struct both {
	struct world source, target;
	struct event_base *base;
	struct mover *mover;
	struct mover_target where;
	struct handover_ask ask;
	struct told told;
};

/* ---- in place of the network ----------------------------------------------------------------- */

int __wrap_session_open_mover(const struct uri *uri, const struct tarn_options *options, uint64_t cluster,
			      const struct auth_key *key, struct tarn_session **ret_session);
int __wrap_session_ask(struct tarn_session *session, const struct wire_rpc *rpc, struct wire_rpc_reply *ret_reply);
void __wrap_tarn_session_close(struct tarn_session *session);
int __wrap_shard_put_begin(struct tarn_session *session, struct shard_job *job);
int __real_shard_put_begin(struct tarn_session *session, struct shard_job *job);
void __wrap_shard_copy_bring(struct shard_copy *copy);
void __real_shard_copy_bring(struct shard_copy *copy);

static struct tarn_session *connection; /* the mover's thread's */

int __wrap_session_open_mover(const struct uri *uri, const struct tarn_options *options, uint64_t cluster,
			      const struct auth_key *key, struct tarn_session **ret_session)
{
	(void)uri, (void)options, (void)cluster, (void)key;
	if (atomic_load(&fake.refusals) > 0) {
		atomic_fetch_sub(&fake.refusals, 1);
		return err_set(-TARN_EUNREACHABLE, "nobody is there yet");
	}
	atomic_fetch_add(&fake.opens, 1);
	*ret_session = connection = kept_session(&fake.target->k, "");
	return 0;
}

int __wrap_session_ask(struct tarn_session *session, const struct wire_rpc *rpc, struct wire_rpc_reply *ret_reply)
{
	int answer = atomic_load(rpc->type == WIRE_RPC_READY ? &fake.answer : &fake.ping);

	*ret_reply = (struct wire_rpc_reply){.type = rpc->type};
	if (answer < 0) {
		session_lose(session);
		return session_lost(session);
	}
	if (rpc->type != WIRE_RPC_READY)
		return 0;
	atomic_fetch_add(&fake.questions, 1);
	if (atomic_load(&fake.single) && rpc->delta >> 32)
		answer = WIRE_READY_NOT_YET;
	ret_reply->number = (uint32_t)answer;
	ret_reply->value = answer == WIRE_READY_ANOTHER ? 9 : (int64_t)atomic_load(&fake.boot_id);
	return 0;
}

void __wrap_tarn_session_close(struct tarn_session *session)
{
	if (!session)
		return;
	atomic_fetch_add(&fake.closes, 1);
	session_free(session);
}

int __wrap_shard_put_begin(struct tarn_session *session, struct shard_job *job)
{
	int put = atomic_fetch_add(&fake.puts, 1) + 1;

	if (put == atomic_load(&fake.fail_at_put))
		return err_set(-TARN_EPOOLFULL, "the target is full");
	if (put == atomic_load(&fake.lose_at_put))
		session_lose(session);
	return __real_shard_put_begin(session, job);
}

void __wrap_shard_copy_bring(struct shard_copy *copy)
{
	if (atomic_load(&fake.lose_at_bring))
		session_lose(connection);
	__real_shard_copy_bring(copy);
}

/* ---- what the mover tells -------------------------------------------------------------------- */

static void on_answered(void *arg, uint64_t number, enum handover_answer answer, uint64_t boot_id)
{
	struct told *t = arg;

	t->answered++;
	t->number = number;
	t->answer = answer;
	t->boot_id = boot_id;
}

static void on_copied(void *arg, int result, const char *text)
{
	struct told *t = arg;

	t->copied++;
	t->result = result;
	snprintf(t->text, sizeof(t->text), "%s", text);
}

static void on_lost(void *arg, uint64_t number, const char *text)
{
	struct told *t = arg;

	t->lost++;
	t->lost_number = number;
	assert_true(text[0] != '\0');
}

static void on_unreachable(void *arg, const char *text)
{
	struct told *t = arg;

	t->unreachable++;
	snprintf(t->text, sizeof(t->text), "%s", text);
}

static void open_both(struct both *b)
{
	static const struct mover_events events = {on_answered, on_copied, on_lost, on_unreachable};

	memset(b, 0, sizeof(*b));
	memset(&fake, 0, sizeof(fake));
	open_world(&b->source, 10, 100);
	open_world(&b->target, 10, 100);
	set_all(&b->source, SHARD_OPEN);
	for (unsigned i = 0; i < MOVED; i++)
		shards_set(b->target.shards, moved_list[i], SHARD_INCOMING, EPOCH + 1);
	for (unsigned i = 0; i < COUNT; i++)
		put(&b->source, i);
	fake.target = &b->target;
	atomic_store(&fake.answer, 1);
	atomic_store(&fake.boot_id, BOOT);
	b->where.address_count = 1;
	b->where.addresses[0].shm = true;
	snprintf(b->where.addresses[0].text, sizeof(b->where.addresses[0].text), "/tmp");
	snprintf(b->where.pool, sizeof(b->where.pool), "main");
	b->ask = (struct handover_ask){.from = 1, .to = 2, .number = NUMBER, .count = MOVED};
	memcpy(b->ask.shards, moved_list, sizeof(moved_list));
	b->base = event_base_new();
	assert_non_null(b->base);
	assert_int_equal(mover_create(b->source.k.pool, b->base, &events, &b->told, &b->mover), 0);
}

static void close_both(struct both *b)
{
	mover_free(b->mover);
	/* what was connected is hung up */
	assert_int_equal(atomic_load(&fake.opens), atomic_load(&fake.closes));
	event_base_free(b->base);
	kept_close(&b->source.k);
	kept_close(&b->target.k);
}

/* Until something more of this has been told. */
static void await(struct both *b, const unsigned *count)
{
	unsigned before = *count;

	while (*count == before)
		assert_int_equal(event_base_loop(b->base, EVLOOP_ONCE), 0);
}

static void ask(struct both *b, enum handover_answer answer)
{
	mover_ask(b->mover, &b->where, &b->ask);
	await(b, &b->told.answered);
	assert_int_equal(b->told.answer, answer);
	assert_true(b->told.number == b->ask.number);
}

static int copy(struct both *b)
{
	mover_copy(b->mover, &b->ask);
	await(b, &b->told.copied);
	return b->told.result;
}

static int bring(struct both *b)
{
	for (unsigned i = 0; i < MOVED; i++)
		shards_set(b->source.shards, moved_list[i], SHARD_CLOSING, EPOCH);
	run_job(&b->source, SHARDS_FREEZE, moved_list, MOVED);
	mover_bring(b->mover);
	await(b, &b->told.copied);
	return b->told.result;
}

static unsigned to_move(const struct both *b)
{
	unsigned count = 0;

	for (unsigned number = 0; number < COUNT; number++)
		for (unsigned i = 0; i < MOVED; i++)
			count += shard_of_number(&b->source, number) == moved_list[i];
	return count;
}

static uint64_t keys_moved(struct both *b)
{
	struct mover_stats stats;

	mover_get_stats(b->mover, &stats);
	assert_true(stats.bytes >= stats.keys);
	return stats.keys;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_attempt(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	ask(&b, HANDOVER_READY);
	assert_true(b.told.boot_id == BOOT);
	assert_int_equal(copy(&b), 0);
	assert_int_equal(atomic_load(&fake.closes), 0);
	assert_int_equal(bring(&b), 0);
	assert_true(to_move(&b) > 0 && keys_moved(&b) == to_move(&b));
	/* the next attempt has a connection of its own */
	b.ask.number++;
	ask(&b, HANDOVER_READY);
	assert_int_equal(atomic_load(&fake.opens), 2);
	assert_int_equal(atomic_load(&fake.closes), 1);
	assert_int_equal(b.told.lost, 0);
	/* what was counted stays */
	assert_true(keys_moved(&b) == to_move(&b));
	close_both(&b);
}

/* One message for all; where the target's map makes other shards of it, one for each. */
static void test_questions(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	ask(&b, HANDOVER_READY);
	assert_int_equal(atomic_load(&fake.questions), 1);
	atomic_store(&fake.single, true);
	ask(&b, HANDOVER_READY);
	assert_int_equal(atomic_load(&fake.questions), 2 + MOVED);
	assert_int_equal(copy(&b), 0);
	close_both(&b);
}

static void test_late_connection(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	atomic_store(&fake.refusals, 2);
	atomic_store(&fake.answer, 0);
	for (unsigned i = 1; i <= 2; i++) {
		mover_ask(b.mover, &b.where, &b.ask);
		await(&b, &b.told.unreachable);
		assert_string_equal(b.told.text, "nobody is there yet");
	}
	ask(&b, HANDOVER_WAIT);
	/* nobody has said "ready" */
	assert_int_equal(copy(&b), -TARN_ESESSION);
	atomic_store(&fake.answer, 1);
	ask(&b, HANDOVER_READY);
	assert_int_equal(atomic_load(&fake.opens), 1);
	assert_int_equal(copy(&b), 0);
	close_both(&b);
}

/* What a connection before this one was told is nothing that this one may copy by: the target has cut that attempt, maybe as another process. */
static void test_ready_of_another(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	ask(&b, HANDOVER_READY);
	atomic_store(&fake.ping, -1);
	await(&b, &b.told.lost);
	assert_true(b.told.lost_number == NUMBER);
	atomic_store(&fake.ping, 0);
	assert_int_equal(copy(&b), -TARN_ESESSION);
	/* the next process of the target is not ready yet */
	atomic_store(&fake.boot_id, BOOT + 1);
	atomic_store(&fake.answer, 0);
	ask(&b, HANDOVER_WAIT);
	assert_int_equal(copy(&b), -TARN_ESESSION);
	assert_int_equal(atomic_load(&fake.puts), 0);
	/* nor is one ready any more that was, when it says otherwise */
	atomic_store(&fake.answer, 1);
	ask(&b, HANDOVER_READY);
	assert_true(b.told.boot_id == BOOT + 1);
	atomic_store(&fake.answer, 0);
	ask(&b, HANDOVER_WAIT);
	assert_int_equal(copy(&b), -TARN_ESESSION);
	assert_int_equal(atomic_load(&fake.puts), 0);
	/* nor is another attempt */
	atomic_store(&fake.answer, 1);
	ask(&b, HANDOVER_READY);
	b.ask.number++;
	assert_int_equal(copy(&b), -TARN_ESESSION);
	assert_int_equal(atomic_load(&fake.puts), 0);
	close_both(&b);
}

/* Somebody else has the address by now: said, not asked for ever; and nothing goes there. */
static void test_another_member(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	atomic_store(&fake.answer, WIRE_READY_ANOTHER);
	mover_ask(b.mover, &b.where, &b.ask);
	await(&b, &b.told.unreachable);
	assert_non_null(strstr(b.told.text, "member 2 is asked"));
	assert_non_null(strstr(b.told.text, "member 9 answers"));
	assert_int_equal(copy(&b), -TARN_ESESSION);
	assert_int_equal(atomic_load(&fake.puts), 0);
	/* the address was put right */
	atomic_store(&fake.answer, 1);
	ask(&b, HANDOVER_READY);
	assert_int_equal(copy(&b), 0);
	close_both(&b);
}

static void test_lost_while_asked(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	atomic_store(&fake.answer, -1);
	mover_ask(b.mover, &b.where, &b.ask);
	await(&b, &b.told.unreachable);
	assert_int_equal(b.told.answered, 0);
	close_both(&b);
}

static void test_lost_in_first_pass(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	atomic_store(&fake.lose_at_put, 3);
	ask(&b, HANDOVER_READY);
	assert_int_equal(copy(&b), -TARN_ESESSION);
	assert_true(b.told.text[0] != '\0' && keys_moved(&b) < to_move(&b));
	close_both(&b);
}

static void test_lost_in_second_pass(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	ask(&b, HANDOVER_READY);
	assert_int_equal(copy(&b), 0);
	atomic_store(&fake.lose_at_bring, true);
	assert_int_equal(bring(&b), -TARN_ESESSION);
	/* nor can it be brought by another connection */
	b.ask.number++;
	ask(&b, HANDOVER_READY);
	mover_bring(b.mover);
	await(&b, &b.told.copied);
	assert_int_equal(b.told.result, -TARN_ESESSION);
	close_both(&b);
}

static void test_target_full(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	atomic_store(&fake.fail_at_put, 4);
	ask(&b, HANDOVER_READY);
	/* the hand-over does not try again by itself */
	assert_int_equal(copy(&b), -TARN_EPOOLFULL);
	assert_string_equal(b.told.text, "the target is full");
	close_both(&b);
}

/* Until some have been moved, at a rate that lets one key go in some seconds. */
static void copy_slowly(struct both *b)
{
	mover_set_rate(b->mover, 1);
	ask(b, HANDOVER_READY);
	mover_copy(b->mover, &b->ask);
	while (keys_moved(b) == 0)
		usleep(1000);
}

static void test_throttle(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	copy_slowly(&b);
	assert_true(keys_moved(&b) < to_move(&b));
	assert_int_equal(event_base_loop(b.base, EVLOOP_NONBLOCK), 0);
	assert_int_equal(b.told.copied, 0);
	mover_set_rate(b.mover, 0);
	await(&b, &b.told.copied);
	assert_int_equal(b.told.result, 0);
	assert_true(keys_moved(&b) == to_move(&b));
	close_both(&b);
}

/* The attempt is over, or the daemon ends, in the middle of a copy. */
static void test_stop(void **state)
{
	struct both b;

	(void)state;
	open_both(&b);
	copy_slowly(&b);
	mover_drop(b.mover);
	await(&b, &b.told.copied);
	assert_int_equal(b.told.result, -ECANCELED);
	/* the next attempt is not stopped by that */
	mover_set_rate(b.mover, 0);
	b.ask.number++;
	ask(&b, HANDOVER_READY);
	assert_int_equal(copy(&b), 0);
	mover_drop(b.mover);
	b.ask.number++;
	mover_set_rate(b.mover, 1);
	ask(&b, HANDOVER_READY);
	mover_copy(b.mover, &b.ask);
	close_both(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attempt),
		cmocka_unit_test(test_questions),
		cmocka_unit_test(test_late_connection),
		cmocka_unit_test(test_ready_of_another),
		cmocka_unit_test(test_another_member),
		cmocka_unit_test(test_lost_while_asked),
		cmocka_unit_test(test_lost_in_first_pass),
		cmocka_unit_test(test_lost_in_second_pass),
		cmocka_unit_test(test_target_full),
		cmocka_unit_test(test_throttle),
		cmocka_unit_test(test_stop),
	};

	return cmocka_run_group_tests_name("mover", tests, NULL, NULL);
}
