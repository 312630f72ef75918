/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sync-system.h - what client/lock.c and the like get in place of the system in tests/sim/test-sync
 *
 * Included before everything else when they are compiled for the simulation (Makefile.inc).
 */
#ifndef TARN_SYNC_SYSTEM_H
#define TARN_SYNC_SYSTEM_H

#include <stdint.h>

#include "auth.h"
#include "clock.h"

uint64_t sync_now_ns(void); /* by the clock of the party that runs, which is wrong by up to 5 % */
void sync_sleep_ns(uint64_t ns);
uint64_t sync_seed(void);

#define clock_now_ns()     sync_now_ns()
#define clock_sleep_ns(ns) sync_sleep_ns(ns)
#define auth_random()      sync_seed()

#endif
