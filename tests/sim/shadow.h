/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shadow.h - who may write what, watched beside the pool
 *
 * The simulation knows at each instant what the index reaches and since when it reaches something no
 * more. So a block that is written too early, by the wrong party, or given away while it is reached
 * is noticed at once, and not only if somebody happens to read it. The first violation is kept in
 * sim->violation.
 */
#ifndef TARN_SHADOW_H
#define TARN_SHADOW_H

#include "fabric-sim.h"

#define SHADOW_DAEMON UINT32_MAX

struct shadow *shadow_create(void);
void shadow_free(struct shadow *shadow);
void shadow_reset(struct shadow *shadow);

/* A word in an index page changes. */
void shadow_slot(struct sim *sim, uint64_t before, uint64_t after);
/* A client (by its slot) begins to WRITE to a page's memory; a counter is added to. */
void shadow_write(struct sim *sim, uint32_t slot, uint64_t offset);
void shadow_add(struct sim *sim, const char *who, uint64_t offset);
/* A byte of the free map is about to be written, by a client (its slot) or SHADOW_DAEMON. */
void shadow_map(struct sim *sim, uint32_t slot, uint64_t offset, uint8_t value);

/* A client goes by an entry of a ready ring that is not for its ticket, to this page's word. */
void shadow_misled(struct sim *sim, uint32_t slot, uint64_t offset);

#endif
