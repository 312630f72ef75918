/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fiber.h - code that stops in the middle and goes on later, on a stack of its own
 *
 * So the daemon's code, which is written to run through, can be held up at any access to the pool,
 * and dropped there (the daemon dies). One thread.
 */
#ifndef TARN_FIBER_H
#define TARN_FIBER_H

#include <stdbool.h>

struct fiber;

struct fiber *fiber_create(void);
void fiber_free(struct fiber *fiber);
/* Runs `work` until it yields or returns. Nothing may be running in the fiber. True: it has yielded. */
bool fiber_start(struct fiber *fiber, void (*work)(void *argument), void *argument);
/* Goes on where it has yielded. True: it has yielded again; false: it has returned. */
bool fiber_resume(struct fiber *fiber);
/* Only within: back to who started or resumed it. */
void fiber_yield(struct fiber *fiber);
/* What runs in it is given up where it stands; what it has allocated is the caller's affair. */
void fiber_drop(struct fiber *fiber);

#endif
