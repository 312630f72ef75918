/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mutation.h - protections that a test build can remove, one at a time
 *
 * -DTARN_MUTATION=MUTATION_... builds the client without one protection of docs/protocol.md; `make
 * check-mutations` fails unless the simulation notices each. In a real build every MUTATED() is the
 * constant 0 and vanishes.
 */
#ifndef TARN_MUTATION_H
#define TARN_MUTATION_H

#define MUTATION_NONE            0
#define MUTATION_PENDING_REREAD  1 /* insert does not look for rivals after its slot is pending */
#define MUTATION_KILL_RULE       2 /* insert commits although it could not kill a rival */
#define MUTATION_CHECKSUM        3 /* checksums are not compared */
#define MUTATION_DEADLINE        4 /* T1: an operation goes on with what it read too long ago */
#define MUTATION_GENERATION      5 /* slot words carry generation 0 */
#define MUTATION_GRACE           6 /* T2: retired blocks are handed out again at once */
#define MUTATION_PENDING_VISIBLE 7 /* readers accept a pending slot */
#define MUTATION_LOWER_RIVAL     8 /* insert ignores pending rivals at lower positions */
#define MUTATION_COMMITTED_RIVAL 9 /* insert ignores a committed rival that its second read shows */
#define MUTATION_KEY_COMPARE     10 /* a fingerprint is taken for the key */
#define MUTATION_LAST            10

#ifndef TARN_MUTATION
#define TARN_MUTATION MUTATION_NONE
#endif
#define MUTATED(mutation) (TARN_MUTATION == (mutation))

#endif
