/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-call.c - a call on a lock, queue, barrier or epoch counter, as steps; waiting and waking
 *
 * A call is handlers, each of which says what has to be done before the next one; who does it is another matter.
 * Waiting: first some short pauses, part chance, that double; then the waiter says in a
 * word that it sleeps, tries once more, and sleeps until it is notified. Whoever changes what is waited for
 * reads that word afterwards: one of the two sees the other. A notification can still be missing (its sender was
 * killed in front of it), so nobody sleeps for longer than SLEEP_NS. Runs on the thread of the handle's session. Next:
 * sync-internal.h, docs/sync.md.
 */
#include <errno.h>

#include "auth.h"
#include "clock.h"
#include "err.h"
#include "mutation.h"
#include "region-task.h"
#include "sync-internal.h"

#define PAUSE_FIRST_NS 4000u
#define PAUSE_LAST_NS  1000000u
#define SLEEP_NS       100000000u

/* ---- a call ---------------------------------------------------------------------------------- */

int sync_check_free(const struct sync_call *call)
{
	return call->busy ? err_set(-TARN_EBUSY, "an asynchronous call with this handle has not "
						 "been picked up")
			  : 0;
}

void sync_begin(struct sync_call *call, sync_handler *first)
{
	call->next = first;
	call->depth = 0;
	call->want = SYNC_SLEEP;
	call->pause_ns = 0;
	call->status = 0;
	call->cancelled = false;
}

static int perform(struct sync_call *call)
{
	switch (call->want) {
	case SYNC_ENDED:
		break;
	case SYNC_ACCESS:
		return sync_batch(call->region, call->ops, call->count, call->not_after_ns);
	case SYNC_NOTIFY:
		return tarn_region_write_notify(call->region, call->wake.offset, call->wake.buffer,
						call->wake.bytes);
	case SYNC_LISTEN:
		return tarn_region_wait(call->region, &call->sequence,
					(uint32_t)(call->pause_ns / 1000000));
	case SYNC_SLEEP:
		if (call->pause_ns)
			clock_sleep_ns(call->pause_ns);
		break;
	}
	return 0;
}

int sync_run(struct sync_call *call)
{
	const struct tarn_region *region = call->region;

	while (call->want != SYNC_ENDED) {
		call->status = perform(call);
		call->want = call->next(call);
	}
	return region_result(region, call->status);
}

int sync_abort(struct sync_call *call, int status)
{
	call->cancelled = true;
	while (call->want != SYNC_ENDED) {
		call->status = status;
		call->want = call->next(call);
	}
	return call->status == -TARN_ECANCELED ? status : call->status;
}

void sync_close(struct sync_call *call)
{
	call->closed = true;
	if (!call->busy)
		call->free(call);
}

/* ---- waiting and waking ---------------------------------------------------------------------- */

int sync_wait_begin(struct sync_call *call, uint32_t timeout_ms, uint64_t sleeps_offset,
		    const char *what)
{
	if (timeout_ms > SYNC_TIMEOUT_MAX_MS)
		return err_set(-EINVAL, "timeout_ms is %u: must be 0 to %u", timeout_ms,
			       SYNC_TIMEOUT_MAX_MS);
	if (!call->random)
		call->random = auth_random() | 1;
	call->sleeps_offset = sleeps_offset;
	call->what = what;
	call->end_ns = clock_now_ns() + timeout_ms * 1000000ull;
	call->backoff_ns = PAUSE_FIRST_NS;
	call->due_ns = 0;
	call->armed = false;
	return 0;
}

/* xorshift: waiters must only not go in step. */
static uint64_t next_random(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

static enum sync_want armed(struct sync_call *call)
{
	/* not there: it is tried again, or the sleep is as long as without it */
	if (call->status < 0 && call->status != -TARN_EAMBIGUOUS)
		return sync_end(call, call->status);
	call->armed = true;
	return call->again(call);
}

static enum sync_want slept(struct sync_call *call)
{
	int ret = call->status;

	call->armed = false;
	/* no connection for so long: the next try waits for it, as long as calls of the session do */
	if (ret < 0 && ret != -TARN_ESESSION && ret != -TARN_ETIMEOUT && ret != -TARN_EBUSY &&
	    ret != -TARN_EUNAVAILABLE)
		return sync_end(call, ret);
	return call->again(call);
}

static enum sync_want sleep_until(struct sync_call *call, uint64_t now, uint64_t until)
{
	uint64_t ns = ((until - now) / 1000000 + 1) * 1000000;

	call->pause_ns = ns < SLEEP_NS ? ns : SLEEP_NS;
	call->next = slept;
	return SYNC_LISTEN;
}

enum sync_want sync_pause(struct sync_call *call, sync_handler *again)
{
	uint64_t now = clock_now_ns(), until = call->end_ns, pause;

	call->depth = 0;
	call->again = again;
	if (call->cancelled)
		return sync_end(call, -TARN_ECANCELED);
	if (now >= until)
		return sync_end(call, err_set(-TARN_ETIMEOUT, "%s", call->what));
	if (call->due_ns && call->due_ns < until)
		until = call->due_ns > now ? call->due_ns : now;
	if (call->backoff_ns > PAUSE_LAST_NS) {
		if (call->armed || MUTATED(MUTATION_SYNC_ARM))
			return sleep_until(call, now, until);
		call->ops[0] = sync_op_cas(call->sleeps_offset, 0, 1);
		return sync_access(call, 1, armed);
	}
	pause = call->backoff_ns / 2 + next_random(&call->random) % (call->backoff_ns / 2);
	if (pause > until - now)
		pause = until - now;
	call->backoff_ns *= 2;
	call->pause_ns = pause;
	call->next = again;
	return SYNC_SLEEP;
}

static enum sync_want woken(struct sync_call *call)
{
	/* those who sleep wake by themselves, too, a little later */
	if (call->status < 0)
		err_clear();
	call->status = 0;
	return call->again(call);
}

enum sync_want sync_wake(struct sync_call *call, uint64_t sleeps_offset, sync_handler *next)
{
	static const uint64_t nobody = 0;

	call->status = 0;
	if (!call->sleeps || MUTATED(MUTATION_SYNC_WAKE))
		return next(call);
	call->wake = sync_op_write(sleeps_offset, &nobody, 8);
	call->again = next;
	call->next = woken;
	return SYNC_NOTIFY;
}
