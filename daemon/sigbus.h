/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sigbus.h - a file that is cut off while it is mapped must not end the daemon
 *
 * Whoever can write to a pool's file can do that, a client with its descriptor, too; a memfd is sealed
 * against it. Where the file does not reach any more, zeros are read from then on, by us alone.
 */
#ifndef TARN_DAEMON_SIGBUS_H
#define TARN_DAEMON_SIGBUS_H

#include <stdbool.h>
#include <stdint.h>

/* From now on; `page_bytes`: of the mapping. 0, or -errno with a text. */
int sigbus_watch(uint8_t *base, uint64_t bytes, uint64_t page_bytes);
/* Has it happened in this range, which begins at `base`? */
bool sigbus_happened(const uint8_t *base);
/* The range is about to be unmapped. */
void sigbus_forget(const uint8_t *base);

#endif
