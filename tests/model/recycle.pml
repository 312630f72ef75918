/* SPDX-License-Identifier: BSD-2-Clause */
/* recycle.pml -- protocol.md sections 3 (T2), 4 (retire), 5 (claim, hand back), 6 (scan, sweep), 7 (fence)
 *
 * One page with two blocks (bits 1 and 2 of each mask), one slot, two clients, one reader, the daemon; any
 * number of puts and deletes.
 *
 * Time is a ghost.  "G has passed since X" = the reader that was active at X has finished, or has passed its
 * deadline D and will discard (T1).  A wait is a bit that is set at X if the reader is active, and that the
 * reader's end clears.  Nothing else is bounded: each write and each CAS of a live client may come as late as
 * it likes.  A crash is a fence at an arbitrary step: a client that has stopped and a client that is slow are
 * the same thing until the daemon fences it.
 * `ver' and `generation' are taken as unbounded, so "the word is the one I read" = "nobody has won a CAS on
 * it since": one bit for each party that remembers the word (same[], pgsame).  That makes the model finite.
 *
 * Checked:
 *  S1  a block that is reachable from the slot, that a live client holds, or that an active reader (or a late
 *      FAA) may still use, is never handed out nor written
 *  S2  an owed "retired" never lands on a block that somebody has been given since
 *  S3  the daemon never calls a block aged that is reachable, held, or whose retirement is still to come
 *  S4  when everything is quiet, each block is reachable or aged, and the page can be claimed (monitor)
 *
 * Fixes (each one is a hole in the text when left out; FIXALL sets all, NO_x takes one away):
 *  FIX_HB    sec. 5: a page is handed back only when no block of it is held unpublished
 *  FIX_Q2    sec. 6: the sweep waits for TWO raises of the quiescence count
 *  FIX_GEN   sec. 6: (3) only if the page word is the one of (1); a partial page is first taken to full
 *  FIX_ORPH  sec. 6/7: an orphan page becomes full when the sweep has been through it
 *  FIX_IDLE  sec. 4: a client that has nothing to do still raises its count (or shows itself idle)
 *  FIX_PART  sec. 6: the scan takes a partial page that has retired blocks back to full, and ages them
 *  FIX_DROP  sec. 7: after a lost connection an owed retirement is left to the sweep, never written again
 *            (matters only with -DCONNLOSS)
 *  FIX_CTR   sec. 3/4: a counter block ages only after two raises of each client, besides G, and its owner
 *            leaves it to the daemon (matters only with -DCOUNTER: client 2 also has an FAA under way)
 * Options: HARM (S3 and part of S2 off: only what hurts at once is reported, i.e. a block given out twice, written
 *  while somebody uses it, or marked retired in other hands); NOREADER (the late FAA of COUNTER is a reader that never discards); CONNLOSS, COUNTER (above); EVICT (the daemon evicts, sec. 6); REJOIN (the dead client comes back
 *  under its old id, having forgotten everything, once the daemon is through with its death); DEATHS=2
 * Mutations of the fixed protocol, each must fail:
 *  M_NOGRACE     a retired block is used at once           M_NOQUIESCE   no step (2) in the sweep
 *  M_SWEEPOWNED  the sweep also does owned pages           M_NOFENCE     state touched before fencing
 *  M_RETAGED     the new owner takes retired for aged      M_NOGEN       page word without generation
 *  M_ORDER       (1) samples the counts before the index   M_EVICTNOWAIT (2) ignores the daemon's evictions
 *  M_EARLYREUSE  id used again before the death is done    M_RECONNECT   new connection before the old is fenced
 *  M_EARLYDATE   the scan looks at the clock first, then at the bytes (the daemon may stand still in between)
 */
#ifdef FIXALL
#ifndef NO_HB
#define FIX_HB
#endif
#ifndef NO_Q2
#define FIX_Q2
#endif
#ifndef NO_GEN
#define FIX_GEN
#endif
#ifndef NO_ORPH
#define FIX_ORPH
#endif
#ifndef NO_IDLE
#define FIX_IDLE
#endif
#ifndef NO_PART
#define FIX_PART
#endif
#ifndef NO_DROP
#define FIX_DROP
#endif
#ifndef NO_CTR
#define FIX_CTR
#endif
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifdef FIX_Q2
#define RAISES 2
#else
#define RAISES 1
#endif
#if defined(COUNTER) && defined(FIX_CTR)
#define CTRFIXED
#endif

/* page word (its generation is the bit pgsame: nobody has claimed the page since the sweep read the word) */
#define PARTIAL 0
#define SLAB    1
#define FULL    2
#define ORPHAN  3
byte pst = PARTIAL, pown = 0;
bool pgsame = false;

/* free map: in use, retired; neither = aged */
byte inuse = 0, retd = 0;
#define AGEDMASK (3 & (3 - (inuse | retd)))
#define SET_INUSE(b) inuse = inuse | (b); retd = retd & (3-(b))
#define SET_RETD(b)  inuse = inuse & (3-(b)); retd = retd | (b)
#define SET_AGED(b)  inuse = inuse & (3-(b)); retd = retd & (3-(b))

byte soff = 0;                          /* the slot word, `ver' being ... */
bool same[3];                           /* ... "the slot still has the word that client i read" */

/* ghosts */
byte held[3];                           /* the block a live client has been handed and has not published */
bool rd_on = false; byte rd_b = 0;      /* the reader, and the block it may use */
byte owed[3];                           /* retirements that a client owes: not yet landed */
byte lo[3];                             /* of those, the ones owed at the last quiescence count */
byte rq[3] = 2;                         /* raises since the sweep's sample, saturating */
byte gwc[3];                            /* client's local wait list: blocks whose G has not passed */
byte gwd = 0; bool gws = false;         /* the same for the daemon's scan, and for the sweep */
bool fenced[3], gone[3], done[3];
byte deaths = 0, qsweeps = 0;
#ifdef COUNTER
bool ad_on = false, lad = false; byte ad_b = 0; byte rs[3] = 2;
#define ADSAFE(b) !(ad_on && (ad_b & (b)))
#define ADDONE (!ad_on)
#else
#define ADSAFE(b) true
#define ADDONE true
#endif
#ifdef CONNLOSS
bool lost = false; byte oldowed = 0;    /* a retirement under way on the old connection */
#define OLDOWED oldowed
#else
#define OLDOWED 0
#endif
#ifdef EVICT
byte dev = 0;                           /* block that the daemon has evicted and not yet marked retired */
#define DEV dev
#else
#define DEV 0
#endif
#ifdef REJOIN
bool rejoined = false;
#ifdef M_EARLYREUSE
#define REJOINOK (fenced[id] && !rejoined)
#else
#define REJOINOK (fenced[id] && gone[id] && !rejoined)
#endif
#endif

#define SAFE(b) ((soff & (b)) == 0 && !(rd_on && (rd_b & (b))) && ADSAFE(b))
#ifdef HARM
#define WASINUSE(b) true
#else
#define WASINUSE(b) ((inuse & (b)) == (b))
#endif
#define UNHELD(b) (((held[1] | held[2]) & (b)) == 0)
#define ALLQUIET ((done[1] || gone[1]) && (done[2] || gone[2]) && owed[1] == 0 && owed[2] == 0 && ADDONE && \
	OLDOWED == 0 && DEV == 0)

#ifdef M_NOGRACE
#define PASSED(w,m) (m)
#else
#define PASSED(w,m) ((m) & (3-(w)))
#endif

#ifdef FIX_HB
#define MAYHANDBACK (held[id] == 0)
#else
#define MAYHANDBACK true
#endif

/* ---------------------------------------------------------------- client */
proctype client(byte id)
{
	byte av = 0, wl = 0, b = 0;
	bool own = false;

top:	do
	:: atomic { fenced[id] -> goto out }
	/* sec. 5: claim, then READ the free map */
	:: atomic { !fenced[id] && !own && pst == PARTIAL -> pst = SLAB; pown = id; pgsame = false; own = true }
	   atomic {
		if
		:: !fenced[id] ->
#ifdef M_RETAGED
			av = 3 & (3 - inuse)
#elif defined(CTRFIXED)
			av = AGEDMASK
#else
			av = AGEDMASK; wl = retd; gwc[id] = (rd_on -> wl : 0)
#endif
		:: else
		fi }
	/* sec. 5: hand back a page with no block left */
	:: atomic { !fenced[id] && own && av == 0 -> goto handback }
	/* put: take a block, a local decision */
	:: atomic { !fenced[id] && own && (av | PASSED(gwc[id], wl)) != 0 ->
		b = av | PASSED(gwc[id], wl);
		if
		:: b & 1 -> b = 1
		:: b & 2 -> b = 2
		fi;
		assert(SAFE(b) && UNHELD(b));                   /* S1 */
		av = av & (3-b); wl = wl & (3-b); gwc[id] = gwc[id] & (3-b);
		held[id] = b };
	   atomic {                             /* WRITE "in use" and the block, READ the slot: one post */
		if
		:: fenced[id] -> goto out
		:: else
		fi;
		assert(SAFE(b) && (held[3-id] & b) == 0);       /* S1 */
		SET_INUSE(b); same[id] = true; goto cas }
	/* delete: READ the slot */
	:: atomic { !fenced[id] && soff != 0 -> b = 0; same[id] = true; goto cas }
	/* nothing more to do, for ever */
	:: atomic { !fenced[id] -> goto leave }
	od;

cas:	/* CAS the slot; the winner retires the old block (sec. 4) */
	if
	:: atomic { fenced[id] -> goto out }
#ifndef FIX_HB
	/* as written: the page may go back as soon as its last block has been handed out */
	:: atomic { !fenced[id] && own && av == 0 && b != 0 -> goto handback }
#endif
	:: atomic { !fenced[id] && !same[id] ->                 /* lost: start again, or give up */
		if
		:: soff != 0 || b != 0 -> same[id] = true; goto cas
		:: b != 0 && own  -> av = av | b; held[id] = 0; b = 0; goto top
		:: b != 0 && !own -> held[id] = 0; owed[id] = owed[id] | b; b = 0; goto top
		:: b == 0 -> goto top
		fi }
	:: atomic { !fenced[id] && same[id] ->
		if
		:: soff == 0
#ifdef CTRFIXED
		:: soff != 0 -> owed[id] = owed[id] | soff      /* a counter: never on the local wait list */
#else
		:: soff != 0 && own  -> wl = wl | soff; gwc[id] = gwc[id] | (rd_on -> soff : 0)
		:: soff != 0 && !own -> owed[id] = owed[id] | soff
#endif
		fi;
		soff = b; same[1] = false; same[2] = false; held[id] = 0; b = 0; goto top }
	fi;

handback: /* mark the wait list "retired", then CAS the page word: slab -> full */
	atomic {
		if
		:: fenced[id] -> goto out
		:: else -> SET_RETD(wl); wl = 0; gwc[id] = 0
		fi };
	atomic {
		if
		:: fenced[id] -> goto out
		:: else
		fi;
		if
		:: pst == SLAB && pown == id -> pst = FULL; pown = 0
		:: else
		fi;
		own = false;
		if
		:: b != 0 -> goto cas
		:: else -> goto top
		fi };

leave:	/* gives its page back: what it has not used, or has used and waits for, as "retired" */
	atomic {
		if
		:: fenced[id] -> goto out
		:: else -> b = wl | (av & inuse); SET_RETD(b); wl = 0; av = 0; gwc[id] = 0; b = 0
		fi };
	atomic {
		if
		:: fenced[id] -> goto out
		:: else
		fi;
		if
		:: own && pst == SLAB && pown == id -> pst = FULL; pown = 0
		:: else
		fi;
		own = false; same[id] = false; done[id] = true };
out:	atomic { av = 0; wl = 0; b = 0; own = false };
#ifdef REJOIN
endout:	if
	:: atomic { REJOINOK -> fenced[id] = false; gone[id] = false; rejoined = true; qsweeps = 0; goto top }
	fi
#endif
}

/* ------------------------------- the reader, and what goes on in the background of each client ----------- */
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
	/* reader: READ the slot ... READ the block, then use it; or discard because D has passed */
#ifndef NOREADER
	:: atomic { !rd_on && soff != 0 && !ALLQUIET -> rd_on = true; rd_b = soff }
#endif
	:: atomic { rd_on -> rd_on = false; rd_b = 0; gwc[1] = 0; gwc[2] = 0; gwd = 0; gws = false }

	/* an owed retirement lands, whenever it likes (sec. 4) */
	:: atomic { !fenced[1] && owed[1] != 0 -> landed(1) }
	:: atomic { !fenced[2] && owed[2] != 0 -> landed(2) }
#ifdef CONNLOSS
#ifdef FIX_DROP
	/* the connection is lost before it lands; the daemon fences the old connection, and the client forgets it */
	:: atomic { !fenced[1] && owed[1] != 0 && !lost -> lost = true;
#ifdef M_RECONNECT
		oldowed = owed[1];              /* new connection accepted before the old one was fenced */
#endif
		owed[1] = 0; lo[1] = 0 }
	:: atomic { oldowed != 0 ->
		assert((soff & oldowed) == 0 && UNHELD(oldowed) && WASINUSE(oldowed));       /* S2 */
		SET_RETD(oldowed); oldowed = 0 }
#else
	/* it lands, but its completion is lost with the connection: the client reconnects, writes it again */
	:: atomic { !fenced[1] && owed[1] != 0 && !lost -> lost = true; 
		assert((soff & owed[1]) == 0 && UNHELD(owed[1]) && WASINUSE(owed[1]));
		SET_RETD(owed[1]) }
#endif
#endif

	/* the quiescence count goes up: all that was owed at the last count has landed (sec. 4) */
#ifdef FIX_IDLE
#define ALIVE(i) (!fenced[i])
#else
#define ALIVE(i) (!fenced[i] && !done[i])
#endif
#ifdef COUNTER
	:: atomic { ALIVE(1) && (rq[1] < 2 || rs[1] < 2) && lo[1] == 0 ->
		rq[1] = (rq[1] < 2 -> rq[1]+1 : 2); rs[1] = (rs[1] < 2 -> rs[1]+1 : 2); lo[1] = owed[1] }
	:: atomic { ALIVE(2) && (rq[2] < 2 || rs[2] < 2) && lo[2] == 0 && !lad ->
		rq[2] = (rq[2] < 2 -> rq[2]+1 : 2); rs[2] = (rs[2] < 2 -> rs[2]+1 : 2); lo[2] = owed[2]; lad = ad_on }
	/* client 2 adds to the counter: READ the slot, look at the time ... and the FAA comes when it comes */
	:: atomic { !ad_on && soff != 0 && !fenced[2] && !done[2] && !ALLQUIET -> ad_on = true; ad_b = soff }
	:: atomic { ad_on -> ad_on = false; lad = false; ad_b = 0 }
#else
	:: atomic { ALIVE(1) && rq[1] < 2 && lo[1] == 0 -> rq[1]++; lo[1] = (rq[1] < 2 -> owed[1] : 0) }
	:: atomic { ALIVE(2) && rq[2] < 2 && lo[2] == 0 -> rq[2]++; lo[2] = (rq[2] < 2 -> owed[2] : 0) }
#endif
	od
}

/* ---------------------------------------------------------------- daemon */
inline fence(i)
{
	fenced[i] = true; held[i] = 0; owed[i] = 0; lo[i] = 0; gwc[i] = 0; rq[i] = 2; same[i] = false;
#ifdef COUNTER
	rs[i] = 2; if :: i == 2 -> ad_on = false; lad = false; ad_b = 0 :: else fi
#endif
}
inline orphan(i)
{
	if
	:: pst == SLAB && pown == i -> pst = ORPHAN; pown = 0
	:: else
	fi
}
inline sample()         /* lo = 0: the last count was at a time when all that is owed now was not owed yet */
{
	rq[1] = (fenced[1] -> 2 : 0); rq[2] = (fenced[2] -> 2 : 0); gws = rd_on;
#ifndef COUNTER
	lo[1] = 0; lo[2] = 0
#endif
}
#define QUIET(i) (gone[i] || rq[i] >= RAISES)
#ifdef M_EVICTNOWAIT
#define DEVQUIET true
#else
#define DEVQUIET (DEV == 0)             /* the daemon's own retirements count too */
#endif
#ifdef M_NOQUIESCE
#define WAITED (!gws)
#else
#define WAITED (QUIET(1) && QUIET(2) && !gws && DEVQUIET)
#endif
#ifdef CTRFIXED
#define SCANNED(m) ((rs[1] == 2 && rs[2] == 2) -> PASSED(gwd, m) : 0)
#else
#define SCANNED(m) PASSED(gwd, m)
#endif

inline aged(b)          /* S3 */
{
#ifndef HARM
	assert((soff & (b)) == 0 && UNHELD(b) && ((owed[1] | owed[2] | OLDOWED | DEV) & (b)) == 0);
#endif
	SET_AGED(b)
}

byte dseen = 0;         /* blocks of the full page that the scan has seen retired */
#ifdef M_EARLYDATE
bool dated = false, gde = false;        /* the scan has looked at the clock; was the reader active then */
#endif
proctype scan()         /* sec. 6, first point; sec. 7 */
{
	byte i, b;
end:	do
#ifdef M_EARLYDATE
	:: atomic { pst == FULL && !dated -> dated = true; gde = rd_on }
	:: atomic { dated && pst != FULL -> dated = false; gde = false }
	:: atomic { dated && pst == FULL && (retd & (3-dseen)) != 0 ->
		b = retd & (3-dseen); dseen = dseen | b; gwd = gwd | ((gde && rd_on) -> b : 0); b = 0; dated = false; gde = false;
#else
	:: atomic { pst == FULL && (retd & (3-dseen)) != 0 ->
		b = retd & (3-dseen); dseen = dseen | b; gwd = gwd | (rd_on -> b : 0); b = 0;
#endif
#ifdef CTRFIXED
		rs[1] = (fenced[1] -> 2 : 0); rs[2] = (fenced[2] -> 2 : 0)
#endif
		}
	:: atomic { pst == FULL && SCANNED(dseen) != 0 ->
		b = SCANNED(dseen); aged(b); dseen = dseen & (3-b); gwd = gwd & (3-b); b = 0 }
	:: atomic { pst == FULL && AGEDMASK != 0 -> pst = PARTIAL; dseen = 0; gwd = 0 }
#ifdef FIX_PART
	:: atomic { pst == PARTIAL && retd != 0 -> pst = FULL }                 /* CAS */
#endif
#ifdef EVICT
	/* sec. 6: eviction (or expiry): CAS the slot to empty, then mark the block */
	:: atomic { dev == 0 && soff != 0 && !ALLQUIET -> dev = soff; soff = 0; same[1] = false; same[2] = false }
	:: atomic { dev != 0 -> assert((soff & dev) == 0 && UNHELD(dev) && WASINUSE(dev)); SET_RETD(dev); dev = 0 }
#endif
	/* sec. 7: a client is taken for dead: fence, then touch
	 * (the two clients are the same, so the first to die is client 1; CLIENT2DIES for the unsymmetric variants) */
#ifdef CLIENT2DIES
	:: atomic { deaths < DEATHS && !gone[2] && !done[2] -> i = 2; deaths++;
#else
	:: atomic { deaths < DEATHS && (deaths == 0 -> !gone[1] && !done[1] : !gone[2] && !done[2]) ->
		i = (deaths == 0 -> 1 : 2); deaths++;
#endif
#ifdef M_NOFENCE
		gone[i] = true; orphan(i) };
	   atomic { fence(i); i = 0 }
#else
		fence(i) };
	   atomic { orphan(i); gone[i] = true; i = 0 }
#endif
	od
}

#define CANDIDATE ((inuse & (3-soff)) != 0 || pst == ORPHAN)
proctype sweep()        /* sec. 6, last point */
{
	byte n;
#ifdef M_NOGEN
	byte s1;
#endif
end:	do
	:: /* (1) the page word first, then its bytes, then the index, then the counts */
	   atomic {
#ifdef M_SWEEPOWNED
		(!ALLQUIET || (qsweeps < 2 && CANDIDATE))
#else
		pst != SLAB && (!ALLQUIET || (qsweeps < 2 && CANDIDATE))
#endif
		-> pgsame = true;
#ifdef M_NOGEN
		s1 = pst;
#endif
		if
		:: ALLQUIET -> qsweeps++
		:: else
		fi };
#ifdef M_ORDER
	   atomic { sample() };
#endif
	   n = inuse;
#ifdef M_ORDER
	   n = n & (3 - soff);
#else
	   n = n & (3 - soff);                          /* what the index reaches */
	   atomic { sample() };
#endif
	   /* (2) */
	   if
	   :: WAITED
	   :: n == 0
	   fi;
	   /* (3) */
	   atomic {
#ifdef FIX_GEN
		if
#ifdef M_NOGEN
		:: pst != s1 -> n = 0
#else
		:: !pgsame -> n = 0                     /* somebody has owned it since: next time */
#endif
		:: else ->
			if
			:: n != 0 && pst == PARTIAL -> pst = FULL       /* CAS: out of the clients' reach */
			:: else
			fi
		fi;
#endif
		n = n & inuse & (3 - soff) };
	   atomic {
		if
		:: n != 0 -> aged(n); n = 0
		:: else
		fi;
#ifdef FIX_ORPH
		if
		:: pst == ORPHAN && pgsame -> pst = FULL
		:: else
		fi;
#endif
#ifdef M_NOGEN
		s1 = 0;
#endif
		pgsame = false; rq[1] = 2; rq[2] = 2; gws = false;
#ifndef COUNTER
		lo[1] = 0; lo[2] = 0
#endif
		}
	od
}

/* S4: nothing can move any more */
proctype monitor()
{
	timeout ->
	assert(ALLQUIET);
	assert((AGEDMASK | soff) == 3);         /* each block is aged or reachable */
	assert(pst == PARTIAL || soff == 3)     /* and can be claimed */
}

init { atomic { run client(1); run client(2); run env(); run scan(); run sweep(); run monitor() } }
