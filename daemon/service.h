/* SPDX-License-Identifier: BSD-2-Clause */
/* service.h - what systemd is told; nothing happens without it (NOTIFY_SOCKET) */
#ifndef TARN_DAEMON_SERVICE_H
#define TARN_DAEMON_SERVICE_H

#include <stdint.h>

void service_ready(void);
/* A reload begins; service_ready() ends it, whatever has become of it. */
void service_reloading(void);
void service_stopping(void);
void service_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* For the watchdog. */
void service_alive(void);
/* The start, or the stop, goes on and may take this much longer. */
void service_extend(uint64_t us);

#endif
