/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages to systemd. Main thread; sd_notify() is one datagram and does not block. A failure is
 * not worth a word: systemd, when it waits for READY=1, reports that itself.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include <systemd/sd-daemon.h>

#include "service.h"

void service_ready(void)
{
	(void)sd_notify(0, "READY=1\nSTATUS=serving");
}

void service_reloading(void)
{
	struct timespec now = {0};

	/* systemd before 253 ignores the time; later ones want it with Type=notify-reload */
	clock_gettime(CLOCK_MONOTONIC, &now);
	(void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=reloading",
			 (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

void service_stopping(void)
{
	(void)sd_notify(0, "STOPPING=1\nSTATUS=stopping");
}

void service_alive(void)
{
	(void)sd_notify(0, "WATCHDOG=1");
}

void service_status(const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	(void)sd_notifyf(0, "STATUS=%s", text);
}

void service_extend(uint64_t us)
{
	(void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, us);
}
