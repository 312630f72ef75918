/* SPDX-License-Identifier: BSD-2-Clause */
/* lock.pml -- docs/sync.md section 3 (lock with lease and fencing token)
 *
 * PARTIES parties, each of which acquires, renews, releases, stands still and dies as it likes; a CAS whose answer is
 * lost takes effect at once, later, or never.  Time: one process counts ages up, of everything at once and at any
 * moment.  The drift of the clocks is in the numbers: an owner's lease is LEASE ticks, a waiter's patience PATIENCE
 * ticks, of the same clock (so LEASE is the lease by the slowest clock, PATIENCE the patience by the fastest).
 *
 * Checked:
 *  L1  no two hold the lock, each by its own lease, at one time
 *  L2  the token of the word never goes down, and each one that is returned is higher than all that were before the call
 *  L3  who released or renewed with success has not been overtaken
 *
 * Mutations: M_PATIENCE (the patience is not longer than the lease by the worst clocks), M_AFTER (an owner counts
 * from when the answer came),
 *  M_BEFORE (a waiter counts from before it has read), M_ADDONE (acquire adds 1 to the token, as renew), M_KEEP (to take
 *  over keeps the token), M_TAKEN (a lost answer is taken for success)
 */
#ifndef PARTIES
#define PARTIES 2
#endif
#ifndef LEASE
#define LEASE 1
#endif
#ifdef M_PATIENCE
#define PATIENCE (LEASE - 1)
#else
#define PATIENCE LEASE
#endif
#ifndef TMAX
#define TMAX 4          /* nobody begins anything behind this token */
#endif
#ifdef M_ADDONE
#define STEP 1
#else
#define STEP 2
#endif

#define HELD 1
#define OLD (LEASE + 1) /* an age that counts no further, and that of what is not in use */
#ifndef LOSSES
#define LOSSES 1        /* answers */
#endif

byte word = 0;                          /* token << 1 | held */
bool holds[PARTIES];                    /* as the party knows */
byte lease[PARTIES];                    /* age: since before the CAS of its last success */
byte sent[PARTIES];                     /* age: since before the CAS that is under way */
byte seen[PARTIES];                     /* age: since after the word was first read so */
byte latec[PARTIES], lates[PARTIES];    /* a CAS that may still arrive; latec 255: none */
byte highest = 0;                       /* ghost: token that was returned */
byte losses = 0;

#define BELIEVES(i) (holds[i] && lease[i] <= LEASE)
#define SET(w) assert(((w) >> 1) >= (word >> 1)); word = (w)

inline check() {
	assert(!(BELIEVES(0) && BELIEVES(1)));
#if PARTIES == 3
	assert(!(BELIEVES(0) && BELIEVES(2)));
	assert(!(BELIEVES(1) && BELIEVES(2)))
#endif
}

/* CAS with all that can happen to it. b: what was there; lost: no answer. */
inline cas(i, c, s) {
	if
	:: atomic { b = word; lost = false;
		if :: word == (c) -> SET(s) :: else fi }
	:: atomic { losses < LOSSES && latec[i] == 255 -> losses++; lost = true;            /* late, or never */
		latec[i] = (c); lates[i] = (s) }
	:: atomic { losses < LOSSES -> losses++; lost = true;                               /* at once, unknown */
		if :: word == (c) -> SET(s) :: else fi }
	fi
}

proctype party(byte id)
{
	byte w = 255, now = 0, b = 0, t = 0, known = 0; bool lost = false;

free:	/* nothing is held */
	if
	:: atomic { (word >> 1) >= TMAX -> goto out }
	:: atomic { (word >> 1) < TMAX -> skip }
#ifdef M_BEFORE
		seen[id] = (w == 255 -> 0 : seen[id])
#endif
	fi;
	atomic { known = highest; now = word;
		if
#ifdef M_BEFORE
		:: w != now && w != 255 -> seen[id] = 0
#else
		:: w != now -> seen[id] = 0
#endif
		:: else
		fi;
		w = now; now = 0 };
	if
	:: atomic { (w & HELD) && seen[id] <= PATIENCE -> goto free }
	:: atomic { else -> t = w >> 1 }
	fi;
	sent[id] = 0;
	if
	:: w & HELD ->
#ifdef M_KEEP
		cas(id, w, w)
#else
		cas(id, w, ((t + STEP) << 1) | HELD)
#endif
	:: else -> cas(id, w, ((t + STEP) << 1) | HELD)
	fi;
	atomic {
		if
#ifdef M_TAKEN
		:: lost -> b = w; lost = false
#else
		:: lost -> lost = false; sent[id] = OLD; b = 0; goto free
#endif
		:: !lost && b != w -> sent[id] = OLD; seen[id] = 0; w = b; b = 0; goto free
		:: else
		fi;
		b = 0 };
	atomic {
#ifdef M_KEEP
		t = ((w & HELD) -> t : t + STEP);
#else
		t = t + STEP;
#endif
		w = 255; seen[id] = OLD;
		assert(t > known); highest = (t > highest -> t : highest);
#ifdef M_AFTER
		lease[id] = 0;
#else
		lease[id] = sent[id];
#endif
		sent[id] = OLD; holds[id] = true; check() };

held:	if
	:: atomic { holds[id] = false; lease[id] = OLD; goto out }
	:: t + 1 < TMAX -> goto renew
	:: goto release
	fi;

renew:	atomic { sent[id] = 0; known = highest };
	cas(id, (t << 1) | HELD, ((t + 1) << 1) | HELD);
	atomic {
		if
		:: lost -> lost = false; sent[id] = OLD; b = 0; goto held
		:: else
		fi;
		if
		:: b == ((t << 1) | HELD) ->
			t = t + 1; b = 0;
			assert(t > known);      /* L2, L3 */
			highest = t;
#ifdef M_AFTER
			lease[id] = 0;
#else
			lease[id] = sent[id];
#endif
			sent[id] = OLD; known = 0; check(); goto held
		:: b == (((t + 1) << 1) | HELD) -> sent[id] = OLD; t = t + 1; b = 0; goto held    /* its own, unknown until now */
		:: else -> holds[id] = false; lease[id] = OLD; sent[id] = OLD; t = 0; b = 0; goto free  /* overtaken */
		fi };

release:
	atomic { holds[id] = false; lease[id] = OLD; sent[id] = OLD; known = highest };
	cas(id, (t << 1) | HELD, t << 1);
	atomic {
		if
		:: lost -> lost = false; t = 0; b = 0; goto free       /* the lease ends it */
		:: else
		fi;
		if
		:: b == ((t << 1) | HELD) -> assert(known <= t); t = 0; b = 0; goto free    /* L3 */
		:: b == (((t + 1) << 1) | HELD) -> t = t + 1; b = 0; goto release
		:: else -> t = 0; b = 0; goto free
		fi };
out:	skip
}

/* What is late arrives, at any time. */
proctype net()
{
	byte i;
end:	do
	:: atomic { latec[0] != 255 -> i = 0; goto arrive }
	:: atomic { latec[1] != 255 -> i = 1; goto arrive }
#if PARTIES == 3
	:: atomic { latec[2] != 255 -> i = 2; goto arrive }
#endif
	od;
arrive:	atomic {
		if
		:: word == latec[i] -> SET(lates[i]); check()
		:: else
		fi;
		latec[i] = 255; lates[i] = 0; i = 0; goto end }
}

#define AGE(x) x = (x < OLD -> x + 1 : x)
proctype clock()
{
end:	do
	:: atomic {
		AGE(lease[0]); AGE(sent[0]); AGE(seen[0]);
		AGE(lease[1]); AGE(sent[1]); AGE(seen[1]);
#if PARTIES == 3
		AGE(lease[2]); AGE(sent[2]); AGE(seen[2]);
#endif
	}
	od
}

init {
	byte i = 0;
	atomic {
		do
		:: i < PARTIES -> latec[i] = 255; lease[i] = OLD; sent[i] = OLD; seen[i] = OLD; run party(i); i++
		:: else -> break
		od;
		i = 0; run net(); run clock()
	}
}
