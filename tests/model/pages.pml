/* SPDX-License-Identifier: BSD-2-Clause */
/* pages.pml -- protocol.md sections 5 (claim, hand back), 6 (scan, sweep), 7 (death, restart): what recycle.pml has, with
 * two pages, and values of several blocks
 *
 * Two pages of one block each (block 1 in page 0, block 2 in page 1), which one client may own, or each another; one slot,
 * two clients, one reader, the daemon, which may be started again.  A value is a block, or with both a large one: its head
 * is block 1, and block 2 its extent.  Time and the bits same[], pgsame are those of recycle.pml; what is an order within
 * one page there (map before page word, word before map) is one step here.
 *
 * Checked: S1 to S4 of recycle.pml.  Options: HARM, NOREADER as there; DEATHS=0; RESTART: the daemon dies once: client 1
 * (verbs) is fenced by that, client 2 (shared memory) goes on; what the daemon had in mind is gone.
 * Mutations, each must fail:
 *  M_HELD      a page is handed back though a block of it is in hand (the extent of a value whose head waits for a page)
 *  M_NOEXT     the sweep does not follow the lists of large values
 *  M_OWNPAGE   the sweep notes the words of its pages, but frees in all of them if one is unchanged
 *  M_ONEWORD   a page is an orphan's as soon as its client is fenced, whoever owns it
 *  M_NOQUIESCE no wait for the quiescence counts      M_Q1   one raise instead of two
 *  M_FORGET    RESTART: the new daemon forgets who has the memory mapped
 *  M_RESTED    RESTART: the new daemon takes what it finds retired for rested
 */
#ifndef DEATHS
#define DEATHS 1
#endif
#ifdef M_Q1
#define RAISES 1
#else
#define RAISES 2
#endif

#define PARTIAL 0
#define SLAB    1
#define FULL    2
#define ORPHAN  3
byte pst[2], pown[2];
byte pgsame = 0;                        /* bit: nobody has claimed the page since the sweep read its word */
byte inuse = 0, retd = 0;
#define AGED (3 & (3 - (inuse | retd)))
#define SET_INUSE(b) inuse = inuse | (b); retd = retd & (3-(b))
#define SET_RETD(b)  inuse = inuse & (3-(b)); retd = retd | (b)
#define SET_AGED(b)  inuse = inuse & (3-(b)); retd = retd & (3-(b))

byte soff = 0; bool same[3];            /* the blocks that the slot reaches */
byte held[3], owed[3], lo[3], rq[3] = 2, gwc[3];
bool rd_on = false; byte rd_b = 0;
byte gwd = 0, dseen = 0; bool gws = false;
bool fenced[3], gone[3], done[3];
byte deaths = 0, qsweeps = 0;
bool boot = false;                      /* the second daemon */

#define SAFE(b) ((soff & (b)) == 0 && (rd_b & (b)) == 0)
#define UNHELD(b) (((held[1] | held[2]) & (b)) == 0)
#ifdef HARM
#define WASINUSE(b) true
#else
#define WASINUSE(b) ((inuse & (b)) == (b))
#endif
#define ALLQUIET ((done[1] || gone[1]) && (done[2] || gone[2]) && owed[1] == 0 && owed[2] == 0)
#define PASSED(w,m) ((m) & (3-(w)))
#ifdef M_HELD
#define MAYBACK(b) true
#else
#define MAYBACK(b) ((held[id] & (b)) == 0)
#endif

inline claim(p, b)
{
	pst[p] = SLAB; pown[p] = id; pgsame = pgsame & (3-(b)); own = own | (b);
	av = av | (AGED & (b)); wl = wl | (retd & (b));
	gwc[id] = gwc[id] | (rd_on -> (retd & (b)) : 0)
}
inline take(b)
{
	assert(SAFE(b) && UNHELD(b));                                   /* S1 */
	av = av & (3-(b)); wl = wl & (3-(b)); held[id] = held[id] | (b); SET_INUSE(b)
}
inline handback(p, b)
{
	SET_RETD(wl & (b)); wl = wl & (3-(b)); gwc[id] = gwc[id] & (3-(b)); own = own & (3-(b));
	if
	:: pst[p] == SLAB && pown[p] == id -> pst[p] = FULL; pown[p] = 0
	:: else
	fi
}
inline retire()         /* the blocks of the value that is no more */
{
	wl = wl | (soff & own); gwc[id] = gwc[id] | (rd_on -> (soff & own) : 0);
	owed[id] = owed[id] | (soff & (3-own))
}

proctype client(byte id)
{
	byte av = 0, wl = 0, own = 0;

	do
	:: atomic { fenced[id] -> break }
	:: atomic { !fenced[id] && !(own & 1) && pst[0] == PARTIAL -> claim(0, 1) }
	:: atomic { !fenced[id] && !(own & 2) && pst[1] == PARTIAL -> claim(1, 2) }
	:: atomic { !fenced[id] && ((av | PASSED(gwc[id], wl)) & 1) -> take(1) }
	:: atomic { !fenced[id] && ((av | PASSED(gwc[id], wl)) & 2) -> take(2) }
	:: atomic { !fenced[id] && (own & 1) && !(av & 1) && MAYBACK(1) -> handback(0, 1) }
	:: atomic { !fenced[id] && (own & 2) && !(av & 2) && MAYBACK(2) -> handback(1, 2) }
	:: atomic { !fenced[id] && !same[id] && (held[id] || soff) -> same[id] = true }                 /* READ the slot */
	:: atomic { !fenced[id] && same[id] && (held[id] || soff) ->                                    /* CAS: a put, or a delete */
		retire();
		soff = held[id]; held[id] = 0; same[1] = false; same[2] = false }
	:: atomic { !fenced[id] && held[id] && !same[id] ->             /* given up; what no slot has named may be used again */
		av = av | (held[id] & own); owed[id] = owed[id] | (held[id] & (3-own)); held[id] = 0 }
	:: atomic { !fenced[id] && held[id] == 0 ->                     /* nothing more to do, for ever */
		wl = wl | (av & inuse); av = 0; handback(0, 1); handback(1, 2);
		own = 0; wl = 0; gwc[id] = 0; same[id] = false; done[id] = true; break }
	od;
	atomic { av = 0; wl = 0; own = 0 }
}

inline landed(i)        /* S2 */
{
	if
	:: owed[i] & 1 -> b = 1
	:: owed[i] & 2 -> b = 2
	fi;
	assert((soff & b) == 0 && UNHELD(b) && WASINUSE(b));
	SET_RETD(b); owed[i] = owed[i] & (3-b); lo[i] = lo[i] & (3-b); b = 0
}
proctype env()
{
	byte b;
end:	do
#ifndef NOREADER
	:: atomic { !rd_on && soff != 0 && !ALLQUIET -> rd_on = true; rd_b = soff }
	:: atomic { rd_on -> rd_on = false; rd_b = 0; gwc[1] = 0; gwc[2] = 0; gwd = 0; gws = false }
#endif
	:: atomic { !fenced[1] && owed[1] != 0 -> landed(1) }
	:: atomic { !fenced[2] && owed[2] != 0 -> landed(2) }
	:: atomic { !fenced[1] && rq[1] < 2 && lo[1] == 0 -> rq[1]++; lo[1] = (rq[1] < 2 -> owed[1] : 0) }
	:: atomic { !fenced[2] && rq[2] < 2 && lo[2] == 0 -> rq[2]++; lo[2] = (rq[2] < 2 -> owed[2] : 0) }
	od
}

inline fence(i)
{
	fenced[i] = true; held[i] = 0; owed[i] = 0; lo[i] = 0; gwc[i] = 0; rq[i] = 2; same[i] = false
}
#ifdef M_ONEWORD
#define ISOF(p, i) (pst[p] == SLAB)
#else
#define ISOF(p, i) (pst[p] == SLAB && pown[p] == (i))
#endif
inline orphans(i)
{
	if :: ISOF(0, i) -> pst[0] = ORPHAN; pown[0] = 0 :: else fi;
	if :: ISOF(1, i) -> pst[1] = ORPHAN; pown[1] = 0 :: else fi
}
inline aged(b)          /* S3 */
{
#ifndef HARM
	assert((soff & (b)) == 0 && UNHELD(b) && ((owed[1] | owed[2]) & (b)) == 0);
#endif
	SET_AGED(b)
}
inline page(p, b)       /* the scan */
{
	if
	:: pst[p] == FULL && (retd & (b)) && !(dseen & (b)) -> dseen = dseen | (b); gwd = gwd | (rd_on -> (b) : 0)
	:: pst[p] == FULL && (PASSED(gwd, dseen) & (b)) -> aged(b); dseen = dseen & (3-(b))
	:: pst[p] == FULL && (AGED & (b)) -> pst[p] = PARTIAL; dseen = dseen & (3-(b)); gwd = gwd & (3-(b))
	:: pst[p] == PARTIAL && (retd & (b)) -> pst[p] = FULL
	fi
}
proctype scan()
{
end:	do
	:: atomic { (pst[0] == FULL && (AGED & 1 || retd & 1 && (!(dseen & 1) || PASSED(gwd, dseen) & 1))) ||
		(pst[0] == PARTIAL && (retd & 1)) -> page(0, 1) }
	:: atomic { (pst[1] == FULL && (AGED & 2 || retd & 2 && (!(dseen & 2) || PASSED(gwd, dseen) & 2))) ||
		(pst[1] == PARTIAL && (retd & 2)) -> page(1, 2) }
	:: atomic { deaths < DEATHS && !gone[1] && !done[1] -> deaths++; fence(1) };
	   atomic { orphans(1); gone[1] = true }
#ifdef RESTART
	:: atomic { !boot && !ALLQUIET -> boot = true; if :: !done[1] && !gone[1] -> fence(1) :: else fi;
		/* the new daemon: what the old one had in mind is gone */
		dseen = 0; gwd = 0; pgsame = 0; rq[1] = 2; rq[2] = 2; gws = false; lo[1] = 0; lo[2] = 0;
		if :: !done[1] -> orphans(1); gone[1] = true :: else fi;
#ifdef M_FORGET
		if :: !done[2] -> orphans(2); gone[2] = true :: else fi;
#endif
#ifdef M_RESTED
		dseen = retd
#endif
		}
#endif
	od
}

#define CANDIDATE ((inuse & (3-soff)) != 0 || pst[0] == ORPHAN || pst[1] == ORPHAN)
#define QUIET(i) (gone[i] || rq[i] >= RAISES)
#ifdef M_NOQUIESCE
#define WAITED (!gws)
#else
#define WAITED (QUIET(1) && QUIET(2) && !gws)
#endif
#ifdef RESTART
#define GOES_ON (boot == began)
#else
#define GOES_ON true
#endif
#ifdef M_OWNPAGE
#define UNCHANGED (pgsame -> 3 : 0)
#else
#define UNCHANGED pgsame
#endif
inline give(p, b)
{
	if
	:: (UNCHANGED & (b)) ->
		if
		:: (n & (b)) && (inuse & (b)) ->
			if :: pst[p] == PARTIAL -> pst[p] = FULL :: else fi;
			aged(b)
		:: else
		fi;
		if :: pst[p] == ORPHAN -> pst[p] = FULL :: else fi
	:: else
	fi
}
proctype sweep()
{
	byte n, h; bool began;
end:	do
	:: /* (1) the words of pages without an owner, then their bytes, then the index, then the counts */
	   atomic { (!ALLQUIET || (qsweeps < 2 && CANDIDATE)) ->
		began = boot;
		pgsame = (pst[0] != SLAB -> 1 : 0) + (pst[1] != SLAB -> 2 : 0);
		if :: ALLQUIET -> qsweeps++ :: else fi };
	   atomic { n = inuse & pgsame; h = soff };
	   /* the slot's word: its block; then by the slot as it is now the list that is in the block */
	   atomic { n = n & (3 - ((h & 1) -> 1 : h));
#ifndef M_NOEXT
		n = n & (3 - soff);
#endif
		h = 0 };
	   atomic {
		if
		:: GOES_ON -> rq[1] = (fenced[1] -> 2 : 0); rq[2] = (fenced[2] -> 2 : 0); gws = rd_on; lo[1] = 0; lo[2] = 0
		:: else -> n = 0
		fi };
	   /* (2) */
	   if
	   :: WAITED
	   :: n == 0
	   :: !GOES_ON
	   fi;
	   /* (3) */
	   atomic {
		if
		:: GOES_ON -> give(0, 1)
		:: else
		fi };
	   atomic {
		if
		:: GOES_ON -> give(1, 2)
		:: else
		fi;
		n = 0; began = false; pgsame = 0; rq[1] = 2; rq[2] = 2; gws = false; lo[1] = 0; lo[2] = 0 }
	od
}

/* S4 */
proctype monitor()
{
	timeout ->
	assert(ALLQUIET);
	assert((AGED | soff) == 3);
	assert((pst[0] == PARTIAL || (soff & 1)) && (pst[1] == PARTIAL || (soff & 2)))
}

init { atomic { run client(1); run client(2); run env(); run scan(); run sweep(); run monitor() } }
