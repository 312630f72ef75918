/* SPDX-License-Identifier: BSD-2-Clause */
/* shard.pml -- docs/protocol.md section 11: a shard of a store pool goes from member A to member B
 *
 * One key, one slot a member. Two clients put, delete and get, each call with any map that there has been (also one of before A had the
 * shard: what B held then is still in its memory), and stop for as long as they like between any two accesses; a call that would begin
 * again is left out: the next one is as good. The source copies, closes, freezes, copies what has changed, says GONE, and asks for the switch;
 * that request may arrive late, or its answer get lost. The source gives up when it likes. A CAS that is tried until it succeeds is one step.
 * CRASHES: either daemon ends anywhere and comes back, the target with or without its memory; clients go on in the memory
 * meanwhile, which is the worst case, and that of a daemon that stands still for longer than its lease. TAKE: the source is taken for
 * dead while it stands still, and the shard begins anew, empty, at the target; the source goes on later where it was.
 *
 * Checked:
 *  H1  what the target holds at the switch is what the source held: no acknowledged write lost, no deleted key back
 *  H2  a write that is acknowledged was done where the shard was at that moment
 *  H3  a get's answer was true at some moment of the call
 *  H4  when nothing moves any more the owner is open, and its slot can be written
 *
 * Mutations: M_NOFREEZE (committed slots stay so), M_NOKILL (pending ones stay), M_INSWORD (an insert does not look at the word),
 *  M_INSEARLY (it looks before it is pending), M_MISSWORD (a miss does not look), M_FROZWORD (a get of a frozen slot does not),
 *  M_WORDEPOCH (who looks does not compare the epoch), M_READYSINCE (the target is ready for whatever attempt), M_NOGONE (the source does not say GONE), M_NOAGAIN (what has changed since it
 *  was copied is not copied again), M_NODEL (what was deleted since is not deleted), M_NOPURGE (what the target has held before
 *  stays), M_PLAIN (copies are committed at once), M_REOPEN (the source opens again without a new epoch), M_NOBOOT (the switch does not
 *  compare the target's boot id), M_NOABORT (a source that comes back opens without a new epoch), M_FORGETS (a source that comes
 *  back thaws and opens, whatever the map says); with TAKE: M_NOBOUND (a client without a fresh map goes on), M_ACKFRESH (it
 *  looks whether the map is fresh now, not whether it is the one with which the call began), M_MOVER (the target keeps the source's connection),
 *  M_TAKEFIRST (the target clears what it held when it is the owner already)
 */
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef OPS0
#define OPS0 1
#endif
#ifndef OPS1
#define OPS1 1
#endif
#ifndef OTHERS
#define OTHERS 0
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 1
#endif

#define A 0
#define B 1
#define NONE 2

/* slot words: 0 empty, 1 + c pending of client c, then committed and frozen of each value */
#define EMPTY 0
#define PEND(c) (1 + (c))
#define COMM(v) (3 + 2 * (v))
#define FROZ(v) (4 + 2 * (v))
#define ISPEND(w) ((w) == 1 || (w) == 2)
#define ISCOMM(w) ((w) > 2 && ((w) & 1))
#define ISFROZ(w) ((w) > 2 && !((w) & 1))
#define VAL(w) ((w) < 3 -> 0 : ((w) - 3) / 2)
#define OLD 6

#define GONE 0
#define INCOMING 1
#define OPEN 2
#define CLOSING 3

byte slot[2];
byte word[2], wordep[2];                /* the shard's word, and the epoch in it */
byte owner = A, ep = 1, since = 1;      /* the map; since: epoch in which the owner has become so */
bool taken = false;                     /* ... without the one before */
bool moving = false, bound = false;     /* bound: that of clients that have not seen it taken has passed */
byte boot = 0;                          /* boot id of the target's daemon */
bool conn = false, ready = false, ask = false;  /* the source's connection to the target; it is ready; it is asked to be */
bool req = false; byte reqep, reqboot;           /* the request for the switch, under way */
byte crashes = 0, others = 0;

/* ghosts */
byte cur = 1;                           /* the key's value, 0: absent */
byte seen[2];                           /* per client: bits of the values of cur during its call */

#define NOW(v) cur = (v); seen[0] = seen[0] | (seen[0] -> 1 << (v) : 0); seen[1] = seen[1] | (seen[1] -> 1 << (v) : 0)
/* until somebody else begins, the shard is where it was */
#define HOLDER (owner == NONE -> A : owner)
#define CHANGED(n, v) if :: HOLDER == (n) -> NOW(v); at = true :: else -> at = false fi

#ifdef M_WORDEPOCH
#define MINE(n, s) true
#else
#define MINE(n, s) (wordep[n] == (s))
#endif
#define READABLE(n, s) ((word[n] == OPEN || word[n] == CLOSING) && MINE(n, s))
#define WRITABLE(n, s) (word[n] == OPEN && MINE(n, s))

/* May the call be answered? Either the map is read again now, or the client goes on with the old one, until its bound has run out. */
inline answer() {
	if
#ifdef M_ACKFRESH
	:: good = true
#else
	:: good = !taken || s == since
#endif
#ifdef M_NOBOUND
	:: good = true
#else
	:: good = !bound || s == since
#endif
	fi
}

#if CRASHES > 0
#define MAYEND if :: skip :: crashes < CRASHES -> goto ended fi
#else
#define MAYEND skip
#endif

#define V (2 + 2 * c + ops)

proctype client(byte c; byte ops)
{
	byte n, s, b; bool put, del, at, good;

	do
	:: ops == 0 -> break
	:: atomic { ops > 0 -> ops--; at = false; seen[c] = 1 << cur;
		if :: put = false; del = false :: put = true :: del = true fi;
		if
		:: n = B; s = 0                 /* of before */
		:: n = A; s = 1
		:: owner == A -> n = A; s = since
		:: owner == B -> n = B; s = since
		fi;
		b = slot[n];
		if
		:: ISCOMM(b) && (put || del) -> goto change
		:: ISCOMM(b) -> goto hit
		:: ISFROZ(b) && (put || del) -> goto done
		:: ISFROZ(b) -> goto frozen
		:: !ISFROZ(b) && !ISCOMM(b) && !put -> goto miss
		:: ISPEND(b) && put -> goto kill
		:: b == EMPTY && put -> goto insert
		fi };

kill:		atomic { slot[n] = (slot[n] == b -> EMPTY : slot[n]); goto done };

insert:
#ifdef M_INSEARLY
		atomic { if :: !WRITABLE(n, s) -> goto done :: else fi };
#endif
		atomic { if :: slot[n] == EMPTY -> slot[n] = PEND(c) :: else -> goto done fi };
#if !defined(M_INSEARLY) && !defined(M_INSWORD)
		atomic { if :: WRITABLE(n, s) -> goto commit :: else fi };
		atomic { slot[n] = (slot[n] == PEND(c) -> EMPTY : slot[n]); goto done };
#endif
commit:		atomic {
			if
			:: slot[n] == PEND(c) -> slot[n] = COMM(V); CHANGED(n, V)
			:: else -> goto done
			fi };
		goto ack;

change:		atomic {
			if
			:: slot[n] == b && put -> slot[n] = COMM(V); CHANGED(n, V)
			:: slot[n] == b && del -> slot[n] = EMPTY; CHANGED(n, 0)
			:: slot[n] != b -> goto done
			fi };
ack:		atomic { answer(); assert(!good || at); goto done };

frozen:
#ifndef M_FROZWORD
		atomic { if :: READABLE(n, s) :: else -> goto done fi };
#endif
hit:		atomic { answer(); assert(!good || (seen[c] & (1 << VAL(b)))); goto done };

miss:
#ifndef M_MISSWORD
		atomic { if :: READABLE(n, s) :: else -> goto done fi };
#endif
		atomic { answer(); assert(!good || (seen[c] & 1)) };
done:		atomic { b = 0; n = 0; s = 0; put = false; del = false; at = false; good = false; seen[c] = 0 }
	od
}

/* The target's slot becomes w: if the connection is still there. */
inline mover(w) {
	atomic { if :: conn -> slot[B] = (w) :: else -> goto quit fi }
}

inline thaw() {
	atomic { slot[A] = (ISFROZ(slot[A]) -> COMM(VAL(slot[A])) : slot[A]) };
	atomic { word[A] = OPEN; wordep[A] = (owner == A -> since : wordep[A]) }
}

inline clear() {
	word[A] = GONE;
	atomic { slot[A] = (ISFROZ(slot[A]) -> EMPTY : slot[A]) }
}

proctype source()
{
	byte w, copied, e, i, tries = ATTEMPTS;

end_begin:
	atomic { owner == A -> moving = true; ep++; e = since; ask = true;
#ifndef M_READYSINCE
		ready = false
#endif
	};
	if
	:: atomic { ready -> ask = false; i = boot }
	:: atomic { ask = false; goto quit }
	fi;
	MAYEND;
	/* copy while clients go on */
	if
	:: copied = EMPTY
	:: atomic { copied = (ISCOMM(slot[A]) -> slot[A] : EMPTY) };
		if
		:: copied == EMPTY
#ifdef M_PLAIN
		:: else -> mover(copied)
#else
		:: else -> mover(FROZ(VAL(copied)))
#endif
		fi
	fi;
	MAYEND;
	word[A] = CLOSING;
	MAYEND;
	atomic { w = slot[A];
		if
#ifndef M_NOKILL
		:: ISPEND(w) -> slot[A] = EMPTY
#endif
#ifndef M_NOFREEZE
		:: ISCOMM(w) -> slot[A] = FROZ(VAL(w))
#endif
		:: else
		fi };
	MAYEND;
	if
#ifdef M_NOAGAIN
	:: ISCOMM(w) && copied == EMPTY -> mover(FROZ(VAL(w)))
#else
	:: ISCOMM(w) && w != copied -> mover(FROZ(VAL(w)))
#endif
#ifndef M_NODEL
	:: !ISCOMM(w) && copied != EMPTY -> mover(EMPTY)
#endif
	:: else
	fi;
	MAYEND;
#ifndef M_NOGONE
	word[A] = GONE;
#endif
	MAYEND;
	w = 0; copied = 0;
asks:	/* for the newest map, if the attempt still stands in it: others change the map, too */
	atomic { req = true; reqep = ep; reqboot = i };
	MAYEND;
	if
	:: atomic { owner == B -> goto left }
	:: atomic { !req && owner == A && since == e && reqep != ep -> goto asks }
	:: skip                                         /* no answer */
	fi;

quit:	/* given up, by a newer epoch: which a request that is still under way does not fit */
	atomic { w = 0; copied = 0;
		if
		:: owner != A -> goto left
#ifdef M_REOPEN
		:: else -> moving = false
#else
		:: else -> moving = false; ep++; since = ep
#endif
		fi };
	MAYEND;
	thaw();
	if
	:: atomic { tries > 1 -> tries--; i = 0; e = 0 }; goto end_begin
	:: tries == 1 -> goto over
	fi;
left:	MAYEND;
	clear();
over:	MAYEND;
	goto out;

ended:	atomic { crashes++; conn = false; ask = false; w = 0; copied = 0;
		/* the next one: it knows what is in the memory, and the map */
		if
#ifdef M_FORGETS
		:: true -> e = 0
#else
		:: owner != A -> e = 1
#endif
#ifdef M_NOABORT
		:: owner == A -> e = 0
#else
		:: owner == A -> moving = false; ep++; since = ep; e = 0
#endif
		fi };
	if
	:: e == 0 -> thaw()
	:: else -> clear()
	fi;
out:	skip
}

/* The service of membership: a request arrives, at any time. */
proctype membership()
{
end:	do
	:: atomic { req -> req = false;
		if
#ifdef M_NOBOOT
		:: reqep == ep && owner == A ->
#else
		:: reqep == ep && owner == A && reqboot == boot ->
#endif
			owner = B; moving = false; ep++; since = ep;
			assert(VAL(slot[B]) == cur)
		:: else
		fi;
		reqep = 0; reqboot = 0 }
	:: atomic { others < OTHERS -> others++; ep++ }         /* of another shard */
#ifdef TAKE
	:: atomic { owner == A -> owner = NONE; moving = false; ep++; since = ep; taken = true }
#endif
	od
}

proctype target()
{
	bool opened = false;
end:	do
	:: atomic { ask && !ready && owner == A -> conn = false
#ifndef M_NOPURGE
		; slot[B] = EMPTY
#endif
		};
		MAYEND;
		word[B] = INCOMING;
		atomic { conn = true; ready = true }
	:: atomic { owner == B && !opened -> conn = false; word[B] = OPEN; wordep[B] = since };
		MAYEND;
		atomic { slot[B] = (ISFROZ(slot[B]) -> COMM(VAL(slot[B])) : slot[B]); opened = true }
#ifdef TAKE
	:: atomic { owner == NONE -> skip               /* as above; then it takes the shard itself */
#ifndef M_MOVER
		; conn = false
#endif
		};
#ifndef M_TAKEFIRST
		slot[B] = EMPTY;
#endif
		MAYEND;
		atomic { owner == NONE -> owner = B; bound = true; ep++; since = ep; NOW(0) };
#ifdef M_TAKEFIRST
		slot[B] = EMPTY
#endif
#endif
#if CRASHES > 0
	:: crashes < CRASHES -> goto ended
#endif
	od;

ended:	atomic { crashes++; boot++; conn = false;
		if
		:: owner == A -> slot[B] = EMPTY; word[B] = GONE        /* without its memory */
		:: owner == A
		:: owner != A -> opened = false
		fi };
	goto end
}

init {
	atomic {
		word[A] = OPEN; wordep[A] = 1; slot[A] = COMM(1);
		word[B] = GONE; slot[B] = FROZ(OLD);
		run source(); run target(); run membership();
		run client(0, OPS0); run client(1, OPS1)
	}
	timeout;
	assert(word[owner] == OPEN && !ISFROZ(slot[owner]))
}
