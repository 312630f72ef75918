/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mutation.h - protections that a test build can remove, one at a time
 *
 * Built with TARN_MUTATIONS client and daemon do without one protection of docs/protocol.md, tarn_mutation;
 * `make check-mutations` fails unless the simulation notices each, in schedules of the kind in brackets
 * or of all kinds. In a real build every MUTATED() is the constant 0 and vanishes.
 */
#ifndef TARN_MUTATION_H
#define TARN_MUTATION_H

#define MUTATION_NONE            0
#define MUTATION_PENDING_REREAD  1 /* insert does not look for rivals after its slot is pending */
#define MUTATION_KILL_RULE       2 /* insert commits although it could not kill a rival */
#define MUTATION_CHECKSUM        3 /* checksums are not compared */
#define MUTATION_DEADLINE        4 /* [wrap] T1: an operation goes on with what it read too long ago */
#define MUTATION_GENERATION      5 /* slot words carry generation 0 */
#define MUTATION_GRACE           6 /* T2: retired blocks are handed out again at once */
#define MUTATION_PENDING_VISIBLE 7 /* readers accept a pending slot */
#define MUTATION_LOWER_RIVAL     8 /* insert ignores pending rivals at lower positions */
#define MUTATION_COMMITTED_RIVAL 9 /* insert ignores a committed rival that its second read shows */
#define MUTATION_KEY_COMPARE     10 /* a fingerprint is taken for the key */
#define MUTATION_KEEPER_GRACE    11 /* [reuse] T2: the daemon ages what is retired at once */
#define MUTATION_COUNTERS        12 /* [counter] a counter's block is aged though somebody may still owe an FAA */
#define MUTATION_QUIESCENCE      13 /* [sweep] the sweep waits for no connection */
#define MUTATION_SWEEP_ORDER     14 /* [sweep] the map is looked at after the index was walked over */
#define MUTATION_SWEEP_WORD      15 /* [sweep] pages that have had an owner meanwhile are swept, too */
#define MUTATION_HAND_BACK       16 /* [memory] a page is handed back before its map was written */
#define MUTATION_FENCE           17 /* [sweep] a client's pages are orphans before it is fenced */
#define MUTATION_ADOPT_RETIRED   18 /* a claimed page's retired blocks are used at once */
#define MUTATION_RECONNECT       19 /* [sweep] a client keeps its pages when it connects again */
#define MUTATION_CLIENT_ID       20 /* [restart] client ids are given out again */
#define MUTATION_SLOT_REUSE      21 /* [sweep] a client-table slot is given out again while pages name it */
#define MUTATION_SPLIT_FLAG      22 /* [grow] a split moves slots without a flag in the headers */
#define MUTATION_TOMBSTONE       23 /* [grow] a moved slot is empty at once */
#define MUTATION_FLAG_REREAD     24 /* [grow] insert does not look at the headers behind its pending slot */
#define MUTATION_UNFENCED        25 /* [restart] a daemon that starts forgets those who have the pool mapped */
#define MUTATION_EVICT_RETIRE    26 /* [evict] an evicted block is aged at once */
#define MUTATION_SECOND_RAISE    27 /* [sweep] who waits for the quiescence counts waits for one raise of each */
#define MUTATION_UNPUBLISHED     28 /* [pieces] a page is handed back with blocks in hand that nothing names yet */
#define MUTATION_SWEEP_MOVED     29 /* [move] the sweep is not told of what a split moves */
#define MUTATION_TICKET          30 /* [memory] an entry of a ready ring counts whatever ticket it carries */
#define MUTATION_PATIENCE        31 /* [death] a dead rival's pending slot is left alone for four times as long */
#define MUTATION_PIPE_RAISE      32 /* [pipeline] the count is raised though operations owe something since the last raise */
#define MUTATION_PIPE_PUTS       33 /* [pipeline] puts with a condition are taken for written under another one, too */
#define MUTATION_PIPE_AGAIN      34 /* [pipeline] a write that may have taken effect is made again */
#define MUTATION_LAST            34

/* docs/protocol.md section 11, the daemon's part (daemon/handover*.c), names as in tests/model/shard.pml; for tests/sim/test-handover */
#define MUTATION_HANDOVER_FIRST 161
#define MUTATION_NOGONE         161 /* the source does not say "gone" before it asks for the switch */
#define MUTATION_REOPEN         162 /* it opens again without having written that it gives up */
#define MUTATION_NOBOOT         163 /* the switch does not compare the target's boot id */
#define MUTATION_NOABORT        164 /* a source that comes back opens without having written that it gives up */
#define MUTATION_FORGETS        165 /* it thaws and opens, whatever the map says */
#define MUTATION_MOVER          166 /* the target keeps the connections of earlier movers */
#define MUTATION_TAKEFIRST      167 /* who takes a shard empties what was there when it is the owner already */
#define MUTATION_NOWAIT         168 /* it does not wait until no client goes on with an older map */
#define MUTATION_READYSINCE     169 /* the target is ready for whatever attempt */
#define MUTATION_NOBOUND        170 /* a client goes on behind the bound of its map (tests/sim/handover-client.c) */
#define MUTATION_ACKFRESH       171 /* ... and looks whether its map is fresh now, not whether the shard was taken since */
#define MUTATION_TAKEBOOT       172 /* who takes a shard does not compare its own boot id */
#define MUTATION_FENCEDWORD     173 /* a walk that ends behind the fence opens its shards */
#define MUTATION_HANDOVER_LAST  173

/* docs/sync.md; tests/sim/test-sync has to notice these */
#define MUTATION_SYNC_FIRST       101
#define MUTATION_SYNC_ARM         101 /* a waiter does not say that it sleeps */
#define MUTATION_SYNC_WAKE        102 /* those who sleep are not notified */
#define MUTATION_LOCK_PATIENCE    103 /* a lock is taken over after half of the lease */
#define MUTATION_LOCK_TOKEN       104 /* taking the lock does not raise the token */
#define MUTATION_LOCK_AMBIGUOUS   105 /* what may have taken the lock is taken for having done so */
#define MUTATION_LOCK_OVERTAKEN   106 /* renewing a lock that was taken over seems to work */
#define MUTATION_QUEUE_CHECKSUM   107 /* messages have no checksum */
#define MUTATION_QUEUE_CLOSE      108 /* a message that may have been sent is sent again */
#define MUTATION_QUEUE_QUARANTINE 109 /* a slot that was skipped is used again in the next lap */
#define MUTATION_QUEUE_TAKE       110 /* a message is delivered though another one has consumed it */
#define MUTATION_QUEUE_SKIP       111 /* a position is skipped without closing its slot */
#define MUTATION_QUEUE_REREAD     112 /* a torn read is taken for damage */
#define MUTATION_QUEUE_FULL       113 /* producers do not look whether the queue is full */
#define MUTATION_QUEUE_LATE       114 /* a producer writes, however long it had no connection for that */
#define MUTATION_BARRIER_ALL      115 /* the barrier does not wait for party 0 */
#define MUTATION_SYNC_LAST        115

/* tarn/region.h; tests/sim/test-regions has to notice these */
#define MUTATION_REGION_FIRST     121
#define MUTATION_REGION_FENCE     121 /* what writes does not wait for the reads in front of it in the list */
#define MUTATION_REGION_AMBIGUOUS 122 /* a lost connection is called so, also if something may have changed */
#define MUTATION_REGION_ALIVE     123 /* nobody looks whether the region was destroyed meanwhile */
#define MUTATION_REGION_ID        124 /* after a reconnect any region of the name will do */
#define MUTATION_REGION_ARM       125 /* who is asked for a notice does not look whether it has come already */
#define MUTATION_REGION_LAST      125

/* docs/protocol.md section 11, names as in tests/model/shard.pml; tests/sim/test-handover has to notice these */
#define MUTATION_SHARD_FIRST 141
#define MUTATION_MISSWORD    141 /* a miss does not look at the shard's word */
#define MUTATION_FROZWORD    142 /* nor does who finds a frozen slot */
#define MUTATION_WORDEPOCH   143 /* who looks does not compare the epoch */
#define MUTATION_INSWORD     144 /* an insert does not look */
#define MUTATION_INSEARLY    145 /* it looks before its slot is pending */
#define MUTATION_NOFREEZE    146 /* committed slots stay so when a shard is frozen */
#define MUTATION_NOKILL      147 /* pending ones do */
#define MUTATION_NOPURGE     148 /* what a member had of a shard stays when it is to be emptied */
#define MUTATION_NOAGAIN     149 /* what has changed since it was copied is not copied again */
#define MUTATION_NODEL       150 /* what was deleted since is not deleted at the target */
#define MUTATION_PLAIN       151 /* copies are committed at once */
/* ... and these, which are the code's alone, tests/sim/test-handover-pool */
#define MUTATION_COUNTREAD   152 /* a frozen counter is read while its shard is closing, where adds may come late */
#define MUTATION_COUNTEARLY  153 /* a counter's value is copied in front of the freeze */
#define MUTATION_NOTTL       154 /* copies do not expire */
#define MUTATION_WALKWORD    155 /* a walk does not look at the shards' words */
#define MUTATION_WALKMAP     156 /* what a newer map has taken from a pass counts as walked in it */
#define MUTATION_WALKFROZEN  157 /* a walk does not show frozen slots */
#define MUTATION_WALKFRESH   158 /* a walk passes what nobody has by a map that is not fresh */

#ifdef TARN_MUTATIONS
extern int tarn_mutation; /* test-sim.c */
#define MUTATED(mutation) (tarn_mutation == (mutation))
#else
#define MUTATED(mutation) 0
#endif

#endif
