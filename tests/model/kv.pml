/* SPDX-License-Identifier: BSD-2-Clause
 *
 * kv.pml -- docs/design/protocol.md, section 4: get, put (update, insert), put if absent, put if stamp, delete.
 *
 * One key, NS slots, two clients (or three) that have only READ of a word and CAS of a word.
 *
 *   word     state * 16 + val.  val stands for block and generation: each put has a val of its own (that this is
 *            right in spite of the reuse of blocks is blocks.pml's matter), and keeps it when it starts again.
 *            The val is also the stamp.
 *   step     one access to one shared word, and the computation that follows it.  READ of the buckets is NS
 *            steps in any order.  CAS, and the READ in the same post: in this order.
 *   time     none: a client may be as slow as it likes, which is more than T1 allows; and T1 itself (throw
 *            everything away, withdraw, start again) may happen at any step.
 *   stop     up to STOPS clients stop for ever, at any step; that the others go on is part of every run.
 *
 * Workload: C0A, C0B = first and second operation of client 0, likewise C1A C1B C2A C2B, each one of
 *   PUT DEL GET PIA (put if absent) PIS (put if stamp, the stamp of the initial value) ANY (any of the first four)
 * Table: PRESENT = 0 key absent at first, 1 present in any slot; LEFT: a pending slot of somebody who is long dead
 *   NS slots; OVERLAP: the two READs overlap, so slot 0 is read twice; CACHE: operations may use a cached location
 *   ONCE: exactly one operation may succeed
 *   HARM: what a client may not do is no error, only what comes of it (for the mutations)
 *   LIVE: every operation ends, instead of the safety checks of the ghost (pan -a -f); then no T1, and a lower
 *   rival is killed only if it has stopped (that is what the 1 ms is for)
 *   REREAD: proposed, see FINDINGS.md: a kill that fails does not make the killer withdraw, but look again
 *
 * Checked
 *   I1  at each instant at most one slot is committed, and it holds what the last successful operation left:
 *       no acknowledged write is lost, none comes back, and a put's value is live when it succeeds
 *   I2  what an update or a delete replaces is the live value, and it alone retires it: no block is retired twice,
 *       and none that is, or will be, live
 *   I3  "not found", "exists", "another stamp" and the value that a get returns were true at some instant between
 *       the first and the last access of the operation
 *   I4  an operation that has ended has left no pending slot behind
 *   I5  ONCE: at most one success; exactly one if anybody got an answer
 *
 * Mutations, each takes one protection away: see the #ifdefs M_..., and run-models.sh for the wanted verdicts
 */
#define NOP 0
#define PUT 1
#define DEL 2
#define GET 3
#define PIA 4
#define PIS 5
#define ANY 6

#ifndef C0A
#define C0A PUT
#endif
#ifndef C0B
#define C0B NOP
#endif
#ifndef C1A
#define C1A PUT
#endif
#ifndef C1B
#define C1B NOP
#endif
#ifndef C2B
#define C2B NOP
#endif
#ifdef C2A
#define NC 3
#else
#define NC 2
#endif
#ifndef NS
#define NS 3
#endif
#ifndef PRESENT
#define PRESENT 0
#endif
#ifndef STOPS
#define STOPS 1
#endif
#ifdef OVERLAP
#define NV (NS + 1)                     /* words that one READ of the buckets yields */
#define ADDR(i) ((i) == NS -> 0 : (i))
#else
#define NV NS
#define ADDR(i) (i)
#endif
#define ALL ((1 << NV) - 1)

#define EMPTY 0
#define PEND  1
#define COMM  2
#define ST(w)   ((w) >> 4)
#define VAL(w)  ((w) & 15)
#define W(s, v) (((s) << 4) | (v))
#define OLD  13                         /* the initial value */
#define DEAD 14                         /* of LEFT */

byte slot[NS];
byte cur = 0;                           /* ghost: the key's value, 0 = absent */
short seen[NC];                         /* ghost: values of cur since the operation's first access */
short retired = 0;                      /* ghost: blocks whose retirement somebody has taken on */
bool halted[NC], done[NC];
byte stops = 0, nsucc = 0, answers = 0;

#define ISC(i) (ST(slot[i]) == COMM)
#define ISP(i) (ST(slot[i]) == PEND)
#if NS == 3
#define SUM(X) ((X(0) -> 1 : 0) + (X(1) -> 1 : 0) + (X(2) -> 1 : 0))
#define EACH(X) (X(0) && X(1) && X(2))
#else
#define SUM(X) ((X(0) -> 1 : 0) + (X(1) -> 1 : 0))
#define EACH(X) (X(0) && X(1))
#endif
#define ISCUR(i) (!ISC(i) || VAL(slot[i]) == cur)

#ifdef LIVE
#define CHECK(x) skip
#else
#define CHECK(x) assert(x)
#endif
#ifdef HARM
#define RULE(x) skip                    /* breaking a rule is no harm in itself */
#else
#define RULE(x) CHECK(x)
#endif

/* I1 */
inline inv() { CHECK(SUM(ISC) <= 1); CHECK(SUM(ISC) == (cur != 0 -> 1 : 0)); CHECK(EACH(ISCUR));
	CHECK(cur == 0 || !(retired & (1 << cur))) }

/* the instant at which an operation takes effect: slot i becomes nw, and the key's value v */
inline effect(i, nw, v)
{
	slot[i] = nw; cur = v;
	seen[0] = (seen[0] -> seen[0] | (1 << v) : 0);
	seen[1] = (seen[1] -> seen[1] | (1 << v) : 0);
#if NC == 3
	seen[2] = (seen[2] -> seen[2] | (1 << v) : 0);
#endif
	inv()
}
inline retire(b)                        /* I2 */
{
	CHECK((retired & (1 << (b))) == 0);
	retired = retired | (1 << (b))
}

/* where a client is: what its next access will be */
#define RD    0                         /* READ of the buckets (ph = 1: again, while pending) */
#define CLAIM 1                         /* CAS empty -> pending */
#define KILL  2                         /* CAS a rival -> empty */
#define CMT   3                         /* CAS own pending -> committed */
#define BACK  4                         /* CAS own pending -> empty */
#define CHG   5                         /* CAS of a committed word: update or delete */
#define CGET  6                         /* READ of the slot word at the cached location */
#define FULL  7                         /* CAS somebody's pending -> empty, as there is no empty slot */

#ifdef M_READPEND
#define VIS(w) (ST(w) != EMPTY)         /* readers and writers take pending for present */
#else
#ifdef M_GETPEND
#define VIS(w) (ST(w) == COMM || (op == GET && ST(w) == PEND))
#else
#ifdef M_UPDPEND
#define VIS(w) (ST(w) == COMM || (op == PUT && ST(w) == PEND))
#else
#define VIS(w) (ST(w) == COMM)
#endif
#endif
#endif

/* a rival = another slot, by address */
#define OTHER(i) (i < NV && ADDR(i) != h)
#ifdef M_COMMIGN
#define RIVC(i) false
#else
#define RIVC(i) (OTHER(i) && ST(r[i]) == COMM)
#endif
#ifdef M_HIIGN
#define RIVH(i) false
#else
#define RIVH(i) (OTHER(i) && ST(r[i]) == PEND && ADDR(i) > h)
#endif
#ifdef M_LOWIGN
#define RIVL(i) false
#else
#define RIVL(i) (OTHER(i) && ST(r[i]) == PEND && ADDR(i) < h)
#endif
#define RIVP(i) (RIVH(i) || RIVL(i))
#if (NS == 3) && defined(OVERLAP)
#define ANYOF(X) (X(0) || X(1) || X(2) || X(3))
#define NR 4
#else
#if (NS == 3) || defined(OVERLAP)
#define ANYOF(X) (X(0) || X(1) || X(2))
#define NR 3
#else
#define ANYOF(X) (X(0) || X(1))
#define NR 2
#endif
#endif
#define VISR(i) VIS(r[i])

/* i := one that is, any if there are several */
#if NR == 4
#define PICK(X, i) if :: X(0) -> i = 0 :: X(1) -> i = 1 :: X(2) -> i = 2 :: X(3) -> i = 3 fi
#endif
#if NR == 3
#define PICK(X, i) if :: X(0) -> i = 0 :: X(1) -> i = 1 :: X(2) -> i = 2 fi
#endif
#if NR == 2
#define PICK(X, i) if :: X(0) -> i = 0 :: X(1) -> i = 1 fi
#endif
#define FREE(i) (ST(r[i]) == EMPTY)
#define PENDR(i) (ST(r[i]) == PEND)

#ifdef LIVE
/* the 1 ms has passed only when the lower rival will never move again */
#define OWNER(v) (((v) - 1) / 2)
#define LDEAD(i) (!RIVL(i) || VAL(r[i]) == DEAD || (VAL(r[i]) <= 2*NC && halted[OWNER(VAL(r[i]))]))
#ifdef M_WAITDEAD
#define MAYKILL false
#else
#if NR == 2
#define MAYKILL (LDEAD(0) && LDEAD(1))
#else
#define MAYKILL (LDEAD(0) && LDEAD(1) && LDEAD(2))
#endif
#endif
#define MAYGIVEUP (!(MAYKILL))
/* a back-off lasts until nobody who is alive is pending: any shorter wait is a coin that an adversary throws */
#define BACKOFF bo = true
#define FULLKILL EACH(GONE)
#define FULLWAIT (!(ANYOF(PENDR) && FULLKILL))
#define GONE(i) (!ISP(i) || VAL(slot[i]) == DEAD || halted[OWNER(VAL(slot[i]))])
#define AWAKE (!bo || pc != RD || EACH(GONE))
#else
#define BACKOFF skip
#define FULLKILL true
#define FULLWAIT true
#define AWAKE true
#define MAYKILL true
#define MAYGIVEUP true
#endif

inline clear_r()
{
	got = 0; r[0] = 0; r[1] = 0;
#if NR > 2
	r[2] = 0;
#endif
#if NR > 3
	r[3] = 0;
#endif
}
inline restart() { clear_r(); h = 0; w = 0; tw = 0; ts = 0; ph = 0; i = 0; pc = RD }
#define NOTMINE(i) (VAL(slot[i]) != nv)
/* the operation has ended.  I4: refused or not, nothing of it is pending */
inline fin()
{
	restart();
	CHECK(nv == 0 || ok || EACH(NOTMINE));
	answers = (answers < 1 -> answers + 1 : 1);
	nsucc = (ok && nsucc < 2 -> nsucc + 1 : nsucc);
	seen[me] = 0; op = NOP; nv = 0; ok = false
}

#define DISPATCH_CHG(s, word) h = s; w = word; clear_r(); i = 0; pc = CHG
/* a committed word of the key is known, at slot ADDR(i) */
inline present(s, word)
{
	if
	:: op == GET ->
		assert(seen[me] & (1 << VAL(word)));            /* I3 */
		cs = s; cw = word; fin()
	:: op == PIA ->
#ifdef M_PIAUPD
		DISPATCH_CHG(s, word)
#else
		CHECK(seen[me] & ~1);                           /* I3: it was there */
		fin()
#endif
#ifdef M_STAMPONCE
	:: op == PIS && VAL(word) != OLD && !tested ->
#else
	:: op == PIS && VAL(word) != OLD ->
#endif
		CHECK(seen[me] & ~(1 << OLD));                  /* I3: not this stamp */
		fin()
	:: else -> tested = true; DISPATCH_CHG(s, word)
	fi
}

/* the buckets have been read */
inline decide1()
{
	if
	:: ANYOF(VISR) -> PICK(VISR, i); ts = ADDR(i); tw = r[i]; clear_r(); i = 0; present(ts, tw); ts = 0; tw = 0
	:: else ->
		if
		:: op == GET || op == DEL -> CHECK(seen[me] & 1); fin()         /* I3: not found */
		:: op == PIS -> CHECK(seen[me] & ~(1 << OLD)); fin()
		:: else ->
			if
			:: ANYOF(FREE) -> PICK(FREE, i); h = ADDR(i); i = 0; clear_r();
#ifdef M_NOFENCE
				ph = 1; pc = RD                 /* the second READ overtakes the CAS */
#else
				pc = CLAIM
#endif
			/* full, but for pending ones of which nobody knows whether they will ever move */
			:: !ANYOF(FREE) && ANYOF(PENDR) && FULLKILL -> PICK(PENDR, i); h = ADDR(i); w = r[i]; i = 0; clear_r(); pc = FULL
			:: !ANYOF(FREE) && FULLWAIT -> restart()        /* full: the daemon's matter */
			fi
		fi
	fi
}

/* pending, and the buckets have been read again */
inline decide2()
{
	if
	:: ANYOF(RIVC) -> PICK(RIVC, i); ts = ADDR(i); tw = r[i]; i = 0; clear_r(); pc = BACK
	:: !ANYOF(RIVC) && ANYOF(RIVL) && MAYGIVEUP -> clear_r(); pc = BACK; BACKOFF
	:: !ANYOF(RIVC) && ANYOF(RIVP) && (!ANYOF(RIVL) || MAYKILL) -> pc = KILL
	:: !ANYOF(RIVC) && !ANYOF(RIVP) -> clear_r(); pc = CMT
	fi
}

inline begin(o)
{
	op = o;
	if
	:: op == ANY ->
		if
		:: op = PUT
		:: op = DEL
		:: op = GET
		:: op = PIA
		fi
	:: else
	fi;
	nv = ((op == GET || op == DEL) -> 0 : 1 + 2 * me + k);
	k++; tested = false;
	seen[me] = 1 << cur;
#ifdef CACHE
	if
	:: cw != 0 && op != PIA ->
		if
		:: op == GET -> pc = CGET
		:: op == PUT || op == DEL || (op == PIS && VAL(cw) == OLD) -> h = cs; w = cw; pc = CHG
		:: true
		fi
	:: else
	fi
#endif
}

proctype client(byte me; byte opa; byte opb)
{
	byte pc, k, op, nv, got, h, w, ts, tw, i;
	byte cs, cw;                    /* cached location and word */
	bool ph, ok, tested;
#ifdef LIVE
	bool bo;
#endif
	byte r[NR];

#ifdef CACHE
	d_step { if :: ISC(0) -> cs = 0; cw = slot[0] :: ISC(1) -> cs = 1; cw = slot[1]
#if NS == 3
		:: ISC(2) -> cs = 2; cw = slot[2]
#endif
		:: else fi }
#endif
	do
	:: atomic { op == NOP && (k == 2 || (k == 1 && opb == NOP)) -> k = 0; cs = 0; cw = 0; done[me] = true; break }
	/* an operation begins with its first access */
	:: atomic { op == NOP && !(k == 2 || (k == 1 && opb == NOP)) ->
		if :: k == 0 -> begin(opa) :: else -> begin(opb) fi;
		goto access }
	:: atomic { op != NOP && AWAKE ->
#ifdef LIVE
		bo = (pc == RD -> false : bo);
#endif
access:		if
		/* ------------------------------------------------ READ, word by word */
		:: pc == RD ->
			if
			:: !(got & 1) -> r[0] = slot[ADDR(0)]; got = got | 1
			:: !(got & 2) -> r[1] = slot[ADDR(1)]; got = got | 2
#if NR > 2
			:: !(got & 4) -> r[2] = slot[ADDR(2)]; got = got | 4
#endif
#if NR > 3
			:: !(got & 8) -> r[3] = slot[ADDR(3)]; got = got | 8
#endif
			fi;
			if
			:: got == ALL && !ph -> decide1()
#ifdef M_NOFENCE
			:: got == ALL && ph -> pc = CLAIM
#else
			:: got == ALL && ph -> decide2()
#endif
			:: else
			fi
		/* ------------------------------------------------ insert */
		:: pc == CLAIM ->
			if
			:: slot[h] == EMPTY ->
#ifdef M_ONECAS
				RULE(cur == 0); ok = true; effect(h, W(COMM, nv), nv); fin()
#else
				slot[h] = W(PEND, nv); ph = 1;
#ifdef M_NOREREAD
				pc = CMT
#else
#ifdef M_NOFENCE
				decide2()
#else
				pc = RD
#endif
#endif
#endif
			:: else -> restart()
			fi
		:: pc == KILL ->
			PICK(RIVP, i); ts = ADDR(i);
			if
#ifdef M_KILLSTORE
			:: true ->
				slot[ts] = EMPTY; inv();
#else
			:: slot[ts] == r[i] ->
				slot[ts] = EMPTY;
#endif
				r[i] = 0;
#ifdef OVERLAP
				r[0] = (ts == 0 -> 0 : r[0]); r[NV-1] = (ts == 0 -> 0 : r[NV-1]);
#endif
				if :: ANYOF(RIVP) :: else -> clear_r(); pc = CMT fi
#ifndef M_KILLSTORE
			:: else ->
#ifdef M_KILLIGN
				r[i] = 0;
				if :: ANYOF(RIVP) :: else -> clear_r(); pc = CMT fi
#else
#ifdef REREAD                           /* proposed, see FINDINGS.md: stay pending, and look again */
				clear_r(); pc = RD
#else
				clear_r(); pc = BACK
#endif
#endif
#endif
			fi;
			ts = 0; i = 0
		:: pc == CMT ->
			if
#ifdef M_CMTSTORE
			:: true ->
#else
			:: slot[h] == W(PEND, nv) ->
#endif
				RULE(cur == 0);                 /* an insert finds the key absent */
				ok = true; cs = h; cw = W(COMM, nv);
				effect(h, W(COMM, nv), nv); fin()
#ifndef M_CMTSTORE
#ifdef M_CMTIGN
			:: else -> ok = true; CHECK(cur == nv || seen[me] & (1 << nv)); fin()   /* reports success all the same */
#else
			:: else -> restart()                    /* killed */
#endif
#endif
			fi
		:: pc == BACK ->
			if
#ifdef M_BACKSTORE
			:: true -> slot[h] = EMPTY; inv()
#else
			:: slot[h] == W(PEND, nv) -> slot[h] = EMPTY
			:: else                                 /* killed, which is as good */
#endif
			fi;
			if      /* a committed rival: go on as an update, with the word that was seen */
			:: tw != 0 -> ph = 0; w = tw; i = ts; tw = 0; ts = 0; h = 0; present(i, w); i = 0
			:: else -> restart()
			fi
		/* ------------------------------------------------ update, delete */
		:: pc == CHG ->
			if
#if defined(M_UPDSTORE)
			:: slot[h] == w || op != DEL ->
#elif defined(M_DELSTORE)
			:: slot[h] == w || op == DEL ->
#else
			:: slot[h] == w ->
#endif
				RULE(cur == VAL(w) && ISC(h));  /* I2: what it replaces is the live value */
				retire(VAL(w)); ok = true;
				if
				:: op == DEL -> cw = 0; cs = 0; effect(h, EMPTY, 0)
				:: else -> cs = h; cw = W(COMM, nv); effect(h, W(COMM, nv), nv)
				fi;
				fin()
			:: else ->
#ifdef M_RETIREANY
				retire(VAL(w));                 /* whoever tried retires */
#endif
				cw = 0; cs = 0; restart()
			fi
		:: pc == FULL ->
			if
			:: slot[h] == w -> slot[h] = EMPTY
			:: else
			fi;
			restart()
		:: pc == CGET ->
			if
#ifdef M_CACHENOCHK
			:: true ->
#else
			:: slot[cs] == cw ->
#endif
				assert(seen[me] & (1 << VAL(cw))); fin()
			:: else -> cw = 0; cs = 0; restart()
			fi
		fi }
#ifndef LIVE
	/* T1: too slow */
	:: atomic { op != NOP && pc == RD && !ph && got != 0 -> restart() }
	:: atomic { op != NOP && (ph && pc == RD || pc == KILL || pc == CMT) -> clear_r(); pc = BACK }
#endif
	/* stops for ever */
	:: atomic { op != NOP && stops < STOPS -> stops++; halted[me] = true; seen[me] = 0;
		restart(); op = NOP; nv = 0; k = 0; ok = false; cs = 0; cw = 0; tested = false; break }
	od
}

#if NC == 3
#define ENDED ((done[0] || halted[0]) && (done[1] || halted[1]) && (done[2] || halted[2]))
#else
#define ENDED ((done[0] || halted[0]) && (done[1] || halted[1]))
#endif

init {
	atomic {
#if PRESENT == 1
		if
		:: slot[0] = W(COMM, OLD)
		:: slot[1] = W(COMM, OLD)
#if NS == 3
		:: slot[2] = W(COMM, OLD)
#endif
		fi;
		cur = OLD;
#endif
#ifdef LEFT
		if
		:: slot[0] == 0 -> slot[0] = W(PEND, DEAD)
		:: slot[1] == 0 -> slot[1] = W(PEND, DEAD)
#if NS == 3
		:: slot[2] == 0 -> slot[2] = W(PEND, DEAD)
#endif
		fi;
#endif
		run client(0, C0A, C0B);
		run client(1, C1A, C1B);
#if NC == 3
		run client(2, C2A, C2B);
#endif
	}
	atomic {
		ENDED -> inv();
#ifdef LEFT
		CHECK(SUM(ISP) <= stops + 1);
#else
		CHECK(SUM(ISP) <= stops);
#endif
#ifdef ONCE
		assert(nsucc <= 1);                     /* I5 */
		assert(answers == 0 || nsucc == 1)
#endif
	}
}

#ifdef LIVE
ltl live { <> ENDED }
#endif
