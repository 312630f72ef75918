/* SPDX-License-Identifier: BSD-2-Clause */
/* queue.pml -- docs/sync.md section 4 (a queue of several producers)
 *
 * Two producers, of LAST messages and of one; CONSUMERS consumers that peek and consume; a ring of N slots that is gone
 * round. A producer stands still or dies in front of any of its accesses (KILLS), or its connection is lost there
 * (LOSSES): what was left arrives later, in order, up to some access. A consumer reads a slot in one order or the
 * other, stands still, dies and comes back with nothing but the memory (CKILLS), or its CAS has no answer (LOSSES).
 * Time: a position may be skipped at any moment, since nothing hangs on its being late. The quarantine of a dead slot
 * is over when nobody writes there any more; with SLOW at any moment.
 *
 * Checked:
 *  Q1  what is delivered was published at that position, whole; nothing that was published is taken for damaged
 *  Q2  no message is delivered twice, also if it was sent again; those of one producer are in order
 *  Q3  what a producer was told is sent was consumed when all is over; nobody waits for ever
 *  Q4  no slot has a state that its position can not have, and none goes back
 *  SLOW: a producer stood still for longer than the quarantine, and may tear a message: only what is delivered counts
 *
 * Mutations: M_CHECKSUM (there is none), M_SEED (the position is not in it), M_REREAD (a torn read is taken for damage),
 *  M_FULL (producers look at the slot alone, and not at the head), M_SKIP (a position is skipped without closing its
 *  slot), M_CLOSE (after a lost connection the message is sent again whatever the slot says), M_STORE (to publish is a
 *  store), M_PUBLISHED (a skipped position is taken for published), M_QUARANTINE (a dead slot is used again in the next
 *  lap), M_TAKE (who has lost the CAS of the slot delivers all the same), M_HEAD (the head moves in front of the slot),
 *  M_STUCK (a slot that is consumed, with the head on it, is left alone)
 */
#ifndef N
#define N 2
#endif
#ifndef PMAX
#define PMAX 5          /* nobody reserves this position */
#endif
#ifndef KILLS
#define KILLS 0         /* of producers */
#endif
#ifndef LOSSES
#define LOSSES 0        /* of connections, of all */
#endif
#ifndef CKILLS
#define CKILLS 0        /* of consumers */
#endif
#ifndef LAST
#define LAST 2          /* message of the first producer; the other one has message 3 */
#endif
#ifndef CONSUMERS
#define CONSUMERS 1
#endif

#define FREE(k) ((k) * 4)
#define FULL(k) ((k) * 4 + 1)
#define DEAD(k) ((k) * 4 + 2)
#define IS_DEAD(s, k) (((s) & 3) == 2 && (s) / 4 <= (k))
#ifdef M_SEED
#define SUM(p, m) (m + 1)
#else
#define SUM(p, m) ((p) * 4 + (m) + 1)   /* 0 is none */
#endif

byte head = 0, tail = 0;
byte st[N], sum[N], data[N];
byte late = 0, lpos, lmsg;              /* the access that arrives next: 1 sum, 2 data, 3 publish; 0: none */
byte kills = 0, losses = 0, ckills = 0, done = 0;
byte writers[N];                        /* ghost: how many may still write there */
byte pub[PMAX];                         /* ghost: what was published */
bool sent[4], taken[4], got[4];         /* ghost: as the producer knows; consumed; as the consumer knows */

#define SET(x, s) assert((s) >= st[x]); st[x] = (s)

/* To die leaves what is under way on its way or not, as a lost connection does. */
#define MAY_DIE :: atomic { kills < KILLS -> kills++; writers[p % N]--; goto out }
#define MAY_LOSE(what) \
	:: atomic { losses < LOSSES -> losses++; late = what; lpos = p; lmsg = m; writers[p % N]++; goto close } \
	:: atomic { losses < LOSSES && kills < KILLS -> losses++; kills++; late = what; lpos = p; lmsg = m; goto out }

inline publish(p, m) {
	pub[p] = m
}

proctype producer(byte first, last)
{
	byte m = first, t = 0, p = 0, b = 0;

again:	/* an older head would only make it fuller */
	atomic { t = tail;
		if
		:: t >= PMAX -> goto out
#ifndef M_FULL
		:: t < PMAX && t - head >= N -> goto noroom
#endif
		:: else
		fi };
	/* reserve: two words, in order */
	if
	:: atomic { tail == t -> tail = t + 1; p = t; t = 0; writers[p % N]++ }
	:: atomic { tail != t -> t = 0; goto again }
	:: atomic { losses < LOSSES && tail == t -> losses++; tail = t + 1; t = 0; goto again }   /* unknown: it will be skipped */
	fi;
	atomic { b = st[p % N];
		if
		:: b == FREE(p / N)
#ifdef M_FULL
		:: b < FREE(p / N) && !IS_DEAD(b, p / N) -> writers[p % N]--; goto slot
#endif
		:: IS_DEAD(b, p / N) || b / 4 > p / N -> writers[p % N]--; b = 0; p = 0; goto again
		:: else -> assert(b == FREE(p / N))            /* Q4 */
		fi;
		b = 0 };
	if
	:: sum[p % N] = SUM(p, m)
	MAY_DIE
	MAY_LOSE(1)
	fi;
	if
	:: data[p % N] = m
	MAY_DIE
	MAY_LOSE(2)
	fi;
	if
	:: atomic { b = st[p % N];
#ifdef M_STORE
		publish(p, m); st[p % N] = FULL(p / N); b = FREE(p / N);
#else
		if
		:: b == FREE(p / N) -> publish(p, m); SET(p % N, FULL(p / N))
		:: else
		fi;
#endif
		writers[p % N]-- }
	MAY_DIE
	MAY_LOSE(3)
	fi;
	atomic {
#ifdef M_PUBLISHED
		b = FREE(p / N);
#endif
		if
		:: b == FREE(p / N) -> goto next
		:: b >= DEAD(p / N) -> b = 0; p = 0; goto again     /* it was skipped */
		:: else -> assert(b >= DEAD(p / N))                              /* Q4 */
		fi };

close:	/* what was under way may still arrive */
	atomic { writers[p % N]--; b = st[p % N];
		if
		:: b == FREE(p / N) -> SET(p % N, DEAD(p / N))
		:: else
		fi };
	atomic {
#ifdef M_CLOSE
		b = FREE(p / N);
#endif
		if
		:: b == FREE(p / N) || b == DEAD(p / N) -> b = 0; p = 0; goto again
		:: b == FULL(p / N) || b == FREE(p / N + 1) -> goto next
		:: else -> m++; goto more                                       /* it says that it does not know */
		fi };

next:	atomic { sent[m] = true; m++ };
more:	atomic { b = 0; p = 0; t = 0;
		if
		:: m <= last -> goto again
		:: else -> goto out
		fi };
noroom:	atomic { tail - head < N || tail >= PMAX -> t = 0; goto again };
#ifdef M_FULL
slot:	atomic { st[p % N] >= FREE(p / N) -> b = 0; p = 0; goto again };
#endif
out:	done++
}

/* What was left when a connection was lost. */
proctype net()
{
end:	do
	:: atomic { late == 1 -> sum[lpos % N] = SUM(lpos, lmsg); late = 2 }
	:: atomic { late == 2 -> data[lpos % N] = lmsg; late = 3 }
	:: atomic { late == 3 ->
		if
		:: st[lpos % N] == FREE(lpos / N) -> publish(lpos, lmsg); SET(lpos % N, FULL(lpos / N))
		:: else
		fi;
		late = 4 }
	:: atomic { late -> late = 0; writers[lpos % N]--; lpos = 0; lmsg = 0 }
	od
}

#ifdef SLOW
#define QUIET true
#else
#define QUIET (writers[x] == 0)
#endif
#ifdef M_CHECKSUM
#define WHOLE true
#else
#define WHOLE (c == SUM(p, d))
#endif
#define MAY_END :: atomic { ckills < CKILLS -> ckills++; s = 0; c = 0; d = 0; b = 0; goto life }
#define TAKE SET(x, FREE(p / N + 1)); taken[pub[p]] = true
#define CAS_HEAD if :: head == p -> head = p + 1 :: else fi

proctype consumer()
{
	byte p = 0, x = 0, s = 0, c = 0, d = 0, b = 0; bool unknown = false, again = false;

life:	atomic { p = head; x = p % N; unknown = false; s = 0; c = 0; d = 0; b = 0; again = false };
find:	atomic { again = false; b = 0; s = 0; c = 0; d = 0 };
read:	if
	:: s = st[x]; atomic { c = sum[x]; d = data[x] }
	:: atomic { c = sum[x]; d = data[x] }; s = st[x]
	fi;
	if
	:: atomic { s == FULL(p / N) && WHOLE -> goto peeked }
#ifdef M_REREAD
	:: atomic { s == FULL(p / N) && !WHOLE -> goto damaged }
#else
	:: atomic { s == FULL(p / N) && !WHOLE && !again -> again = true; goto read }  /* it is full before this one begins */
	:: atomic { s == FULL(p / N) && !WHOLE && again -> goto damaged }
#endif
	:: atomic { s == FREE(p / N + 1) ->
#ifdef M_STUCK
		false;
#endif
		CAS_HEAD; goto life }
	:: atomic { s == FREE(p / N) || IS_DEAD(s, p / N) -> c = 0; d = 0 }
	:: atomic { else ->
		assert(head != p || st[x] != s);                /* Q4: it has changed, or another one has moved the head */
		goto life }
	fi;

	/* no message: is the position reserved? */
	atomic {
		if
		:: head != p -> goto life
		:: head == p && tail == p -> goto nothing
		:: else
		fi };
	if
	:: atomic { (s & 3) == 2 -> goto pass }
	:: atomic { s == FREE(p / N) && st[x] != s -> goto find }
	:: atomic { s == FREE(p / N) ->                         /* its time is over */
#ifdef M_SKIP
		CAS_HEAD; goto life
#else
		if
		:: st[x] == FREE(p / N) -> SET(x, DEAD(p / N))
		:: else
		fi;
		goto find
#endif
		}
	MAY_END
	fi;

pass:	atomic { b = s;
		if
#ifdef M_QUARANTINE
		:: true -> s = FREE(p / N + 1)
#else
		:: s != DEAD(p / N) && QUIET -> s = FREE(p / N + 1)
		:: s = DEAD(p / N)
#endif
		fi;
		if
		:: st[x] == b -> SET(x, s)
		:: else
		fi };
	if
	:: atomic { CAS_HEAD; goto life }
	MAY_END
	fi;

peeked:	/* tarn_queue_peek() has returned it */
	assert(c == SUM(p, d) && d == pub[p]);                  /* Q1 */
	if
	:: skip
	MAY_END
	fi;
consume:
#ifdef M_HEAD
	atomic { CAS_HEAD };
#endif
	if
	:: atomic { b = st[x];
		if
		:: b == FULL(p / N) -> TAKE
		:: else
		fi }
#if CONSUMERS == 1
	:: atomic { losses < LOSSES -> losses++; unknown = true; goto consume }                    /* it has not arrived */
	:: atomic { losses < LOSSES && st[x] == FULL(p / N) -> losses++; unknown = true; TAKE; goto consume }
#endif
	MAY_END
	fi;
	/* of several consumers, one: with one, what it saw full it has consumed */
	atomic {
		if
#ifdef M_TAKE
		:: true ->
#else
		:: b == FULL(p / N) || unknown ->
#endif
			assert(!got[d]);                        /* Q2 */
			assert(d != 1 || !got[2]);
			got[d] = true
		:: else
		fi;
		unknown = false; b = 0 };
	if
	:: atomic { CAS_HEAD; goto life }
	MAY_END
	fi;

damaged: /* dropped, with an error, if it is there still */
	atomic {
		if
		:: st[x] == FULL(p / N) ->
#ifndef SLOW
			assert(pub[p] == 0);                    /* Q1: a message that was sent is not damaged */
#endif
			SET(x, FREE(p / N + 1)); CAS_HEAD
		:: else
		fi;
		goto life };

nothing: atomic {
		if
		:: tail != p || head != p -> goto life
		:: tail == p && head == p && done == 2 && !late -> goto over
		fi };
over:	atomic {
#ifndef SLOW
		assert(!sent[1] || taken[1]); assert(!sent[2] || taken[2]); assert(!sent[3] || taken[3]);     /* Q3 */
#endif
		skip }
}

init { atomic { run producer(1, LAST); run producer(3, 3); run net(); run consumer();
#if CONSUMERS == 2
	run consumer()
#endif
} }
