/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * expect.h - for programs that check themselves against a real daemon: what a call gives, and what holds. Whoever is
 * disappointed ends the program, on any thread. Users: region-client.c, sync-calls.c.
 */
#ifndef TARN_TESTS_EXPECT_H
#define TARN_TESTS_EXPECT_H

#include <err.h>

#include <tarn/tarn.h>

/* The call gives this, or the test has failed. */
#define GIVES(call, wanted)                                                                       \
	do {                                                                                      \
		int gives_ = (call);                                                              \
		if (gives_ != (wanted))                                                           \
			errx(1, "%s:%d: %s gives %d (%s), not %d: %s", __FILE__, __LINE__, #call, \
			     gives_, tarn_error_name(gives_), (wanted),                           \
			     gives_ < 0 ? tarn_last_error_text() : "");                           \
	} while (0)
#define HOLDS(condition)                                                              \
	do {                                                                          \
		if (!(condition))                                                     \
			errx(1, "%s:%d: not so: %s", __FILE__, __LINE__, #condition); \
	} while (0)

#endif
