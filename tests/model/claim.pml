/* SPDX-License-Identifier: BSD-2-Clause */
/* claim.pml -- protocol.md section 5 (claim, hand back), section 6 (full -> partial, push on the ready ring)
 *
 * Two pages of two blocks each, one ready ring of R = 2 entries, two clients, the daemon.  A claim is FAA(head)
 * = ticket; READ the ring entry; READ the page word; CAS(page word).  Tickets run past the tail and the ring
 * wraps; a client may die at any step.  Fresh pages come by the ring too (the page cursor is not modelled: it
 * finds free pages only, never partial ones).
 *
 * Checked:
 *  C1  no page is owned by two clients
 *  C2  a claimed block is never one that is in use (only MAPFIRST can break it)
 *  C3  at rest, each partial page is named by an entry that one of the next R tickets will read and accept
 *      ("none is lost for ever", without a fall-back on RPC); at rest each page is partial
 *
 * As written the daemon pushes a page once, at `tail', and the text doesn't say how a client knows that the
 * ring is empty:
 *  EMPTY_TAIL   a ticket >= tail means empty (a READ of tail)
 *  EMPTY_NONE   whatever the entry names is tried (no emptiness test)
 *  FIX_RING     an entry carries the ticket it is for; the daemon pushes at max(tail, head), never over an
 *               entry in [head, tail), and pushes again each partial page that no entry in [head, tail) names
 * Variants of the map READ:
 *  MAPFIRST     page word and free map READ in one post, before the CAS (saves one RTT)
 *  M_NOGEN      page word without generation
 * Mutations: M_NOCAS (page word written, not CASed), M_NOREPUSH (FIX_RING without pushing again), M_NOTICKET (a client takes
 *  what the entry names, whatever ticket it carries: harmless, see FINDINGS.md)
 */
#ifndef TICKETS
#define TICKETS 4       /* attempts in all */
#endif
#ifndef R
#define R 2
#endif
#define NP 2
#define NONE 255

#define PARTIAL 0
#define SLAB    1
#define FULL    2
#define ORPHAN  3
byte pst[NP], pown[NP], pgen[NP];
byte inuse[NP];                         /* mask of the page's blocks in use */

byte ring[R]; byte rseq[R];             /* page number; ticket that the entry is for (FIX_RING) */
byte head = 0, tail = 0;
byte tries = 0;
bool owns[6];                           /* ghost: owns[2*c + p] */
bool fenced[3], done[3], gone[3];
bool pushed[NP];                        /* as written: has this spell as partial been pushed */
byte deaths = 0;

#define RESTED ((done[1] || gone[1]) && (done[2] || gone[2]))

proctype client(byte id)
{
	byte t = 0, p = 0, g = 0; byte m = 0;

top:	if
	:: atomic { fenced[id] || tries == TICKETS -> goto out }
	:: atomic { !fenced[id] && tries < TICKETS -> t = head; head++; tries++ }       /* FAA */
	fi;
	/* READ the ring entry */
	atomic {
		if
		:: fenced[id] -> goto out
		:: else
		fi;
		p = ring[t % R];
		if
#if defined(FIX_RING) && !defined(M_NOTICKET)
		:: rseq[t % R] != t || p == NONE -> t = 0; p = 0; goto top      /* empty */
#endif
#ifdef EMPTY_TAIL
		:: t >= tail -> t = 0; p = 0; goto top                          /* empty */
#endif
		:: p == NONE -> t = 0; p = 0; goto top
		:: else
		fi;
		t = 0 };
	/* READ the page word (with MAPFIRST also the map) */
	atomic {
		if
		:: fenced[id] -> goto out
		:: pst[p] != PARTIAL && !fenced[id] -> p = 0; goto top
		:: else
		fi;
		g = pgen[p];
#ifdef MAPFIRST
		m = 3 - inuse[p];
#endif
		};
	/* CAS(page word) */
	atomic {
		if
		:: fenced[id] -> goto out
#ifndef M_NOCAS
		:: !fenced[id] && pst[p] != PARTIAL -> p = 0; g = 0; m = 0; goto top
#ifndef M_NOGEN
		:: !fenced[id] && pgen[p] != g -> p = 0; g = 0; m = 0; goto top
#endif
#endif
		:: else
		fi;
		assert(!owns[2*(3-id-1) + p] || fenced[3-id]);          /* C1 */
		pst[p] = SLAB; pown[p] = id; pgen[p]++; owns[2*(id-1) + p] = true; g = 0 };
#ifndef MAPFIRST
	atomic {
		if
		:: fenced[id] -> goto out
		:: else -> m = 3 - inuse[p]
		fi };
#endif
	/* hand the blocks out: "in use", publish */
	atomic {
		if
		:: fenced[id] -> goto out
		:: !fenced[id] && m != 0 -> assert((inuse[p] & m) == 0); inuse[p] = inuse[p] | m; m = 0        /* C2 */
		:: else
		fi };
	/* hand back: CAS(slab -> full) */
	atomic {
		if
		:: fenced[id] -> goto out
		:: else
		fi;
		assert(pst[p] == SLAB && pown[p] == id);                /* C1 */
		owns[2*(id-1) + p] = false; pst[p] = FULL; pown[p] = 0; p = 0; goto top };
out:	atomic { t = 0; p = 0; g = 0; m = 0; done[id] = true }
}

/* entry k of the ring is still ahead of the head */
#define NAMED(p) ((tail > head && ring[head % R] == p && rseq[head % R] == head) || \
		  (tail > head+1 && ring[(head+1) % R] == p && rseq[(head+1) % R] == head+1))

#ifdef M_NOREPUSH
#define MAYPUSH(p) (!pushed[p])
#else
#define MAYPUSH(p) true
#endif
proctype daemon()
{
	byte p, h;
end:	do
	/* a block, or both, is replaced and retired by somebody, and ages (recycle.pml); full -> partial */
	:: atomic { pst[0] == FULL && inuse[0] == 3 -> inuse[0] = 1; pst[0] = PARTIAL; pushed[0] = false }
	:: atomic { pst[0] == FULL -> inuse[0] = 0; pst[0] = PARTIAL; pushed[0] = false }
	:: atomic { pst[0] == FULL && inuse[0] == 3 -> inuse[0] = 2; pst[0] = PARTIAL; pushed[0] = false }
	:: atomic { pst[1] == FULL -> inuse[1] = 0; pst[1] = PARTIAL; pushed[1] = false }

	/* push */
#ifdef FIX_RING
	:: atomic {
		if
		:: pst[0] == PARTIAL && !NAMED(0) && MAYPUSH(0) -> p = 0
		:: pst[1] == PARTIAL && !NAMED(1) && MAYPUSH(1) -> p = 1
		fi;
#ifdef M_NOREPUSH
		pushed[p] = true;
#endif
		h = head };                                             /* READ head; clients may pass it now */
	   atomic {                                                     /* the entry, then the tail */
		if
		:: tail < h -> tail = h
		:: else
		fi;
		if
		:: tail - h < R -> ring[tail % R] = p; rseq[tail % R] = tail; tail++
		:: else
		fi;
		p = 0; h = 0 }
#else
	:: atomic { pst[0] == PARTIAL && !pushed[0] -> ring[tail % R] = 0; tail++; pushed[0] = true }
	:: atomic { pst[1] == PARTIAL && !pushed[1] -> ring[tail % R] = 1; tail++; pushed[1] = true }
#endif

	/* a client dies: fence, orphan, sweep (recycle.pml): in the end the page is full */
	:: atomic { deaths == 0 && !done[1] -> deaths = 1; fenced[1] = true; owns[0] = false; owns[1] = false };
	   atomic {
		if
		:: pst[0] == SLAB && pown[0] == 1 -> pst[0] = FULL; pown[0] = 0
		:: else
		fi;
		if
		:: pst[1] == SLAB && pown[1] == 1 -> pst[1] = FULL; pown[1] = 0
		:: else
		fi;
		gone[1] = true }
	od
}

/* what the next R tickets would find */
#ifdef FIX_RING
#define FINDS(p) NAMED(p)
#endif
#ifdef EMPTY_TAIL
#define FINDS(p) ((head < tail && ring[head % R] == p) || (head+1 < tail && ring[(head+1) % R] == p))
#endif
#ifdef EMPTY_NONE
#define FINDS(p) (ring[0] == p || ring[1] == p)
#endif
proctype monitor()
{
	timeout ->
	assert(RESTED);
	assert(pst[0] == PARTIAL && pst[1] == PARTIAL);
	assert(FINDS(0) && FINDS(1))            /* C3 */
}

init { atomic { ring[0] = NONE; ring[1] = NONE;
	run client(1); run client(2); run daemon(); run monitor() } }
