/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim-system.h - what the daemon's code gets in place of the system: the simulation's clock, and a heap
 * that can be thrown away
 *
 * Included before everything else when the daemon's files are compiled for the simulation (Makefile.inc,
 * check-mutations.sh). A daemon that dies leaves its heap: sim_heap_drop() is that.
 */
#ifndef TARN_SIM_SYSTEM_H
#define TARN_SIM_SYSTEM_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

uint64_t sim_system_now_ns(void);
void *sim_system_calloc(size_t count, size_t bytes);
void *sim_system_realloc(void *memory, size_t bytes);
void sim_system_free(void *memory);

#ifdef SIM_SYSTEM
#define clock_now_ns()         sim_system_now_ns()
#define clock_thread_ns()      sim_system_now_ns()
#define malloc(bytes)          sim_system_calloc(1, bytes)
#define calloc(count, bytes)   sim_system_calloc(count, bytes)
#define realloc(memory, bytes) sim_system_realloc(memory, bytes)
#define free(memory)           sim_system_free(memory)
#define CLOCK_BUCKETS          1u /* sweep-walk.c */
#endif

/* The one daemon that runs at a time. */
struct sim_daemon;
void sim_system_set(struct sim_daemon *daemon);

#endif
