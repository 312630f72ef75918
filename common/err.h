/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors: functions return 0 (or a count) or a negative code, -errno or -TARN_E*. The function that first decides that
 * something is an error says so once, in words, with cause and remedy; its callers only pass the code on:
 *
 *	return err_set(-TARN_ENOPOOL, "no pool '%s': the configuration has %s", name, known);
 *
 * The words are kept per thread. They may hold bytes that a peer chose: log_write() escapes them.
 */
#pragma once

#include <stdbool.h>

/* Size of a thread's text with its final 0; longer ones are cut. */
#define ERR_TEXT_BYTES 512

/* Keeps the text for err_text() and returns code. Does not change errno, so that %m and callers still see it. */
int err_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* This thread's last text; "" if there was none or it was cleared. Valid until its next err_set() or err_clear(). */
const char *err_text(void);

void err_clear(void);

/*
 * While it is aside, err_set(), err_text() and err_clear() use another text: this thread's last one stays. For what is
 * done beside the call that the thread is in, which may fail without that call. Returns how it was before, to be put back.
 */
bool err_aside(bool aside);

/* A sentence for a code, negative as returned or positive. Static text, never NULL. */
const char *err_string(int code);

/* The symbol of a code: "TARN_ENOTFOUND", "ENOMEM". Static text, never NULL. */
const char *err_name(int code);
