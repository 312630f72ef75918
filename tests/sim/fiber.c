/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fiber.c - stacks and switches between them, by ucontext; see fiber.h
 *
 * The address sanitizer has to be told of each switch, and the thread sanitizer of each fiber.
 */
#include "fiber.h"

#include <stddef.h>
#include <stdlib.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ADDRESS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ADDRESS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_THREAD 1
#endif
#endif

#ifdef FIBER_ADDRESS
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_THREAD
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_BYTES (256u * 1024u)

struct fiber {
	ucontext_t inside, outside;
	void (*work)(void *argument);
	void *argument;
	bool running; /* `work` has begun and not returned */
	/* what the sanitizers want to know */
	void *fake_inside, *fake_outside;
	const void *outside_stack;
	size_t outside_bytes;
	void *thread_inside, *thread_outside;
	_Alignas(16) char stack[STACK_BYTES];
};

struct fiber *fiber_create(void)
{
	return calloc(1, sizeof(struct fiber));
}

static void forget_thread(struct fiber *f)
{
#ifdef FIBER_THREAD
	if (f->thread_inside)
		__tsan_destroy_fiber(f->thread_inside);
#endif
	f->thread_inside = NULL;
}

void fiber_free(struct fiber *f)
{
	if (!f)
		return;
	fiber_drop(f);
	forget_thread(f);
	free(f);
}

/* ---- what the sanitizers are told ------------------------------------------------------------ */

/*
 * Inline all of them: the thread sanitizer keeps a stack of calls per fiber, and who switches has to
 * return on the same one.
 */
#define INLINE static inline __attribute__((always_inline))

INLINE void leave_outside(struct fiber *f)
{
#ifdef FIBER_ADDRESS
	__sanitizer_start_switch_fiber(&f->fake_outside, f->stack, STACK_BYTES);
#endif
#ifdef FIBER_THREAD
	if (!f->thread_inside)
		f->thread_inside = __tsan_create_fiber(0);
	f->thread_outside = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(f->thread_inside, 0);
#else
	(void)f;
#endif
}

INLINE void arrive_outside(struct fiber *f)
{
#ifdef FIBER_ADDRESS
	__sanitizer_finish_switch_fiber(f->fake_outside, NULL, NULL);
#else
	(void)f;
#endif
}

INLINE void leave_inside(struct fiber *f)
{
#ifdef FIBER_ADDRESS
	__sanitizer_start_switch_fiber(&f->fake_inside, f->outside_stack, f->outside_bytes);
#endif
#ifdef FIBER_THREAD
	__tsan_switch_to_fiber(f->thread_outside, 0);
#else
	(void)f;
#endif
}

INLINE void arrive_inside(struct fiber *f)
{
#ifdef FIBER_ADDRESS
	__sanitizer_finish_switch_fiber(f->fake_inside, &f->outside_stack, &f->outside_bytes);
#else
	(void)f;
#endif
}

/* ---- switching ------------------------------------------------------------------------------- */

/* The stack's first frame: one `work` after the other, so that contexts are made seldom. */
static void body(unsigned high, unsigned low)
{
	struct fiber *f = (struct fiber *)((unsigned long)high << 32 | low);

	arrive_inside(f);
	for (;;) {
		f->work(f->argument);
		f->running = false;
		fiber_yield(f);
	}
}

static bool enter(struct fiber *f)
{
	leave_outside(f);
	swapcontext(&f->outside, &f->inside);
	arrive_outside(f);
	return f->running;
}

void fiber_yield(struct fiber *f)
{
	leave_inside(f);
	swapcontext(&f->inside, &f->outside);
	arrive_inside(f);
}

bool fiber_start(struct fiber *f, void (*work)(void *argument), void *argument)
{
	if (!f->inside.uc_stack.ss_sp) {
		unsigned long self = (unsigned long)f;

		getcontext(&f->inside);
		f->inside.uc_stack.ss_sp = f->stack;
		f->inside.uc_stack.ss_size = STACK_BYTES;
		f->inside.uc_link = NULL;
		makecontext(&f->inside, (void (*)(void))body, 2, (unsigned)(self >> 32),
			    (unsigned)self);
	}
	f->work = work;
	f->argument = argument;
	f->running = true;
	return enter(f);
}

bool fiber_resume(struct fiber *f)
{
	return enter(f);
}

void fiber_drop(struct fiber *f)
{
	if (!f->running)
		return;
	f->running = false;
	f->inside.uc_stack.ss_sp = NULL; /* the next start begins at the stack's end again */
	forget_thread(f);
#ifdef FIBER_ADDRESS
	__asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
}
