/* SPDX-License-Identifier: BSD-2-Clause
 *
 * blocks.pml -- docs/design/protocol.md, sections 2 (gen), 3 (T1, T2, T3) and 4 (cached locations): when a block is
 * used again, who may still believe in what it was?
 *
 * One slot, NB blocks of two words, one writer who replaces and deletes (that is: all the others together), one client
 * who gets, with and without a cached location, and who CASes, with the word it has read and with a cached one.
 *
 *   block     header word { gen, checksum } and data word.  Each write has a number of its own, which is its data and
 *             its checksum; so "checksum right" = both words are of one write.
 *   READ      word by word, in any order; also the slot word and the block of a cached get, whose order nobody fixes.
 *   time      ticks.  D = 1, E = 2, G = 4 (G >= 2 E > 2 D).  The epoch goes up at the earliest E after it went up
 *             last, or whenever the daemon gets round to it, or never.  All ages are kept relative and stop counting
 *             where no rule looks any more, so time is unbounded in a finite model.
 *   gen       epoch modulo GENMOD = 8, standing for 4096; cache_max_age = a quarter = 2 epochs.  The model keeps the
 *             distance (epoch - gen) modulo GENMOD instead of gen: words have the same gen if they have the same
 *             distance, and the state space is GENMOD times smaller.  The tick of the epoch moves all distances.
 *   epoch     known to the clients as it was when they read it: at most one behind (STALE).  A block that was retired
 *             in epoch r is written again with a gen of r + 1 at the least; that is what "the epoch has gone up by
 *             two" comes to when either party is one behind.
 *   stop      the client may stand still at any step for as long as it likes.  Only what has been posted takes effect
 *             within G - D (T3).
 *
 * Checked
 *   B1  a get returns a value that was live at some instant of the get, and "not found" only if it was absent then
 *   B2  a CAS, whether with a word just read or with a cached one, succeeds only if the slot still has the write that
 *       this client saw there: never on a word that has come back
 *
 * Workload: gets (B1), or with CASES reads and CASes (B2)
 * Variants
 *   (none)   as the page is: FAIL, see FINDINGS.md, 1: a cached word may be old in its gen though young in the cache
 *   FIXAGE   the fix: a cached word is used only if its age in the cache is at most (epoch - gen) mod GENMOD, and that
 *            is less than GENMOD - 1.  The mutations are on top of this.
 *   SHM      no T3: a process that is stopped between looking at the time and its CAS (FINDINGS.md, 2)
 *   STRICT   everybody knows the epoch exactly, and "two epochs" is two epochs
 *   AGEMAX=n other cache_max_age
 * Mutations
 *   M_NOGEN    gen is always the same            M_NOG      a retired block is used at once (no T2)
 *   M_NOT1     no look at the time               M_NOEPOCH  G, but not two epochs
 *   M_NOGRACE  two epochs, but not G             M_NOSUM    readers do not look at the checksum
 *   M_NORGEN   readers do not look at the gen of the block     M_STALE2   the epoch is known two behind
 *   M_AGELATE  the age of a cached word counts from the end of the get that read it
 *   M_NOCMP    a cached get does not compare the slot word
 *   NOWRAP     helper: nothing stalls long enough for a gen to come back
 */
#ifndef NB
#define NB 2
#endif
#ifndef MAXPUT
#define MAXPUT 3
#endif
#ifndef GENMOD
#define GENMOD 8
#endif
#ifndef AGEMAX
#define AGEMAX (GENMOD / 4)
#endif
#define D 1
#define E 2
#define G 4
#ifndef MARGIN
#define MARGIN 3                        /* one for the epoch that the client knows, two for G - D, in which a CAS is under way */
#endif
#define SAT(x, m) ((x) < (m) -> (x) + 1 : (m))

#define NEVER 0                         /* never used */
#define HELD  1                         /* the writer's, not yet published */
#define PUB   2
#define RET   3

/* the slot word: block (0 = empty), distance of its gen; ghost: number of the write */
byte sb = 0, sg = 0, sid = 0;
/* the blocks (index 0 is not used) */
byte hg[NB + 1], hc[NB + 1], dat[NB + 1];
byte bst[NB + 1];
byte rage[NB + 1];                      /* ticks since its retirement, up to G */
byte rep[NB + 1];                       /* epochs since its retirement, up to 2 */
byte ph = 0;                            /* ticks since the epoch went up, up to E */
#ifdef NOWRAP
byte nep = 0;
#endif

/* the client's timers, here because the clock moves them */
byte age = 0;                           /* since the first READ of the operation, up to D + 1 */
byte pt = 0;                            /* since the CAS was posted */
bool posted = false, busy = false;
bool cget = false;                      /* the get has a cached location */
byte cb = 0, cg = 0, cid = 0;           /* cached location: block, distance of gen; ghost: write */
byte ca = 0;                            /* epochs since it was seen, up to AGEMAX + 2 */
bool cd = 0;                            /* what the client knew of the epoch then was one behind */
byte ea = 0;                            /* epochs since the first READ of the operation, up to 2 */
byte rb = 0, rg = 0, rid = 0;           /* slot word that was read */
bool gs = false, gh = false, gd = false; /* slot word, header, data have been read */
byte xc = 0, xd = 0;                    /* block that was read */
byte wb = 0, wg = 0;                    /* the writer's block and gen, until published */
byte seen = 0;                          /* ghost: writes that were live during the client's operation */

#define LIVE(id) (seen & (1 << (id)))
#define UP(d) (((d) + 1) % GENMOD)

inline setslot(b, g, id)
{
	sb = b; sg = g; sid = id;
	seen = (busy -> seen | (1 << (id)) : 0)
}
inline fin()    { busy = false; seen = 0; age = 0; ea = 0; rb = 0; rg = 0; rid = 0; xc = 0; xd = 0; gs = false; gh = false; gd = false; cget = false }
inline forget() { cb = 0; cg = 0; cid = 0; ca = 0; cd = 0 }
inline retire(b) { bst[b] = RET; rage[b] = 0; rep[b] = 0 }

/* ------------------------------------------------------------------ time */
#ifdef SHM
#define MAYTICK true
#else
#define MAYTICK (!posted || pt < G - D - 1)     /* T3 */
#endif
#ifdef M_NOGEN
#define MOVE(x) skip
#else
#define MOVE(x) x = UP(x)
#endif
inline eachblock(b)
{
	if :: bst[b] == RET -> rep[b] = SAT(rep[b], 2) :: else fi;
#ifndef CASES
	if :: bst[b] != NEVER -> MOVE(hg[b]) :: else fi
#else
	skip
#endif
}
proctype clock()
{
end:	do
	:: atomic { MAYTICK && (ph < E || rage[1] < G && bst[1] == RET || rage[NB] < G && bst[NB] == RET || (busy && age <= D) || posted) ->
		ph = SAT(ph, E);
		age = (busy -> SAT(age, D + 1) : 0);
#ifndef M_NOT1
		/* T1: whatever completes now is thrown away */
		if :: busy && !posted && age > D -> fin() :: else fi;
#endif
		pt = (posted -> SAT(pt, G) : 0);
		rage[1] = (bst[1] == RET -> SAT(rage[1], G) : 0);
#if NB > 1
		rage[2] = (bst[2] == RET -> SAT(rage[2], G) : 0);
#endif
		}
#ifdef NOWRAP
	:: atomic { ph == E && nep < GENMOD - 2 -> nep++;
#else
	:: atomic { ph == E ->
#endif
		ph = 0; eachblock(1);
#if NB > 1
		eachblock(2);
#endif
		ea = (busy && !cget -> SAT(ea, 2) : 0);
		if :: sb != 0 -> MOVE(sg) :: else fi;
		if :: cb != 0 -> MOVE(cg); ca = SAT(ca, AGEMAX + 2) :: else fi;
		if :: rb != 0 -> MOVE(rg) :: else fi;
		if :: wb != 0 -> MOVE(wg) :: else fi;
		/* a cached word that may not be used any more might as well be forgotten */
		if :: !cget && !posted && ca + cd > AGEMAX + 1 -> forget() :: else fi }
	od
}

/* ------------------------------------------------------------------ the writer */
#if defined(M_NOG)
#define REUSE(b) true
#elif defined(M_NOEPOCH)
#define REUSE(b) (rage[b] == G)
#elif defined(M_NOGRACE)
#define REUSE(b) (rep[b] >= 1)
#elif defined(STRICT)
#define REUSE(b) (rage[b] == G && rep[b] == 2)
#else
#define REUSE(b) (rage[b] == G && rep[b] >= 1)  /* T2; see `epoch' above */
#endif
#define FREE(b) (bst[b] == NEVER || (bst[b] == RET && REUSE(b)))

proctype writer()
{
	byte b = 0, n = 0;
	bool h, d;
end:	do
	/* take a block, and the epoch as one knows it */
	:: atomic { b == 0 && n < MAXPUT && FREE(1) -> b = 1; goto take }
#if NB > 1
	:: atomic { b == 0 && n < MAXPUT && FREE(2) -> b = 2;
#else
	:: atomic { false ->
#endif
take:		n++; wb = b;
		if
		:: wg = 0
#if !defined(M_NOGEN) && !defined(STRICT)
		:: bst[b] == NEVER || rep[b] == 2 -> wg = 1     /* one behind */
#endif
#if defined(M_STALE2)
		:: bst[b] == NEVER || rep[b] == 2 -> wg = 2
#endif
#if defined(M_NOG) || defined(M_NOEPOCH)
		:: bst[b] == RET && rep[b] < 2 -> wg = 0
#endif
		fi;
		bst[b] = HELD; rage[b] = 0; rep[b] = 0 }
#ifndef CASES
	/* WRITE, word by word */
	:: atomic { b != 0 && !h -> hg[b] = wg; hc[b] = n; h = true }
	:: atomic { b != 0 && !d -> dat[b] = n; d = true }
#define WRITTEN (h && d)
#else
#define WRITTEN true                    /* nobody reads it */
#endif
	/* CAS with the word that is there: update or insert */
	:: atomic { b != 0 && WRITTEN ->
		if :: sb != 0 && sb <= NB -> retire(sb) :: else fi;
		bst[b] = PUB; setslot(b, wg, n);
		b = 0; wb = 0; wg = 0; h = false; d = false }
	/* delete, or the daemon's eviction */
	:: atomic { sb != 0 -> retire(sb); setslot(0, 0, 0) }
	od
}

/* ------------------------------------------------------------------ the client */
#ifdef M_NOT1
#define INTIME true
#else
#define INTIME (age <= D)
#endif
#ifdef M_NOSUM
#define SUMOK true
#else
#define SUMOK (xc == xd)
#endif
#ifdef M_NOCMP
#define SAMEWORD true
#else
#define SAMEWORD (sb == cb && sg == cg)
#endif
#ifdef M_NORGEN
#define GENOK(x, g) true
#else
#define GENOK(x, g) (x == (g))
#endif

/* what the client knows of the epoch is ud behind: the cached word's age and its gen's distance as it sees them */
#define KAGE(ud) (ca + cd >= (ud) -> ca + cd - (ud) : 0)
#define KDIST(ud) ((cg + GENMOD - (ud)) % GENMOD)
#ifdef FIXAGE
#define FRESH(ud) (KAGE(ud) <= KDIST(ud) && KDIST(ud) < GENMOD - MARGIN)
#else
#define FRESH(ud) true
#endif
#if defined(M_NOGEN)
#define MAYUSE(ud) (KAGE(ud) <= AGEMAX)
#elif defined(STRICT)
#define MAYUSE(ud) ((ud) == 0 && KAGE(ud) <= AGEMAX && FRESH(ud))
#else
#define MAYUSE(ud) (KAGE(ud) <= AGEMAX && FRESH(ud) && (ud) <= ca + cd)
#endif

#ifdef STRICT
#define NOTKNOWN
#else
#define NOTKNOWN :: cd = 1
#endif
#ifdef M_AGELATE
#define AGE0 0                          /* ... from when the get was complete */
#else
#define AGE0 ea
#endif
inline first()  { busy = true; age = 0; seen = 1 << sid }

proctype client()
{
	bool bad;
	bool ccas;                      /* the posted CAS is with the cached word */
end:	do
	/* get: READ the slot */
	:: atomic { !busy && !posted -> first(); rb = sb; rg = sg; gs = true;
#ifdef CASES
		rid = sid;
#endif
		if
		:: rb == 0 -> assert(LIVE(0)); fin()                            /* B1 */
		:: else
		fi }
#ifdef CASES
	/* the rest of the get, of which only the time that it takes matters here */
	:: atomic { busy && !posted ->
		if
		:: INTIME -> cb = rb; cg = rg; cid = rid; ca = AGE0;
			if :: cd = 0 NOTKNOWN fi;
			if
			:: fin()
			:: posted = true; pt = 0; ccas = false          /* go on to a CAS */
			fi
		:: else -> fin()
		fi }
	/* a CAS with the cached word and no READ: 1 RTT */
	:: atomic { !busy && !posted && cb != 0 && (MAYUSE(0) || MAYUSE(1)) -> posted = true; pt = 0; ccas = true }
	/* the CAS takes effect; it deletes, so that the client needs no block */
	:: atomic { posted ->
		if
		:: ccas && sb == cb && sg == cg ->
			assert(sid == cid);                                     /* B2 */
			retire(sb); setslot(0, 0, 0)
		:: !ccas && sb == rb && sg == rg ->
			assert(sid == rid);                                     /* B2 */
			retire(sb); setslot(0, 0, 0)
		:: else
		fi;
		posted = false; pt = 0; ccas = false; forget(); fin() }
#else
	/* get with a cached location: slot word and block in one post, in any order */
	:: atomic { !busy && !posted && cb != 0 && (MAYUSE(0) || MAYUSE(1)) -> cget = true; first(); goto which }
	:: atomic { busy && cget && !gs ->
which:		if
		:: !gs -> gs = true; bad = !SAMEWORD
		:: !gh -> bad = !GENOK(hg[cb], cg); xc = hc[cb]; gh = true
		:: !gd -> xd = dat[cb]; gd = true
		fi;
		goto look }
	/* READ the block, word by word */
	:: atomic { busy && (gs || cget) && !gh -> 
		if
		:: cget -> bad = !GENOK(hg[cb], cg); xc = hc[cb]
		:: else -> bad = !GENOK(hg[rb], rg); xc = hc[rb]
		fi;
		gh = true; goto look }
	:: atomic { busy && (gs || cget) && !gd ->
		if
		:: cget -> xd = dat[cb]
		:: else -> xd = dat[rb]
		fi;
		gd = true;
look:		if
		:: !INTIME -> bad = false; fin()                                /* T1: throw it away */
		:: INTIME && bad ->                             /* a word or a generation that was not expected */
			bad = false;
			if :: cget -> forget() :: else fi;
			fin()
		:: INTIME && !bad && gs && gh && gd ->
			if
			:: cget && SUMOK -> assert(LIVE(xd)); fin()                     /* B1 */
			:: !cget && SUMOK ->
				assert(LIVE(xd));                                       /* B1 */
				cb = rb; cg = rg;
				/* the age counts from what the client knew of the epoch before its first READ */
				ca = AGE0;
				if :: cd = 0 NOTKNOWN fi;
				fin()
			:: else -> fin()                                        /* again */
			fi
		:: else
		fi }
#endif
	od
}

init { atomic { run clock(); run writer(); run client() } }
