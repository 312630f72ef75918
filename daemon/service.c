/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages to systemd. Main thread; sd_notify() is one datagram and does not block. A failure is
 * not worth a word: systemd, when it waits for READY=1, reports that itself.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include <systemd/sd-daemon.h>

#include "service.h"

void service_ready(void)
{
	(void)sd_notify(0, "READY=1\nSTATUS=serving");
}

void service_stopping(void)
{
	(void)sd_notify(0, "STOPPING=1\nSTATUS=stopping");
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
