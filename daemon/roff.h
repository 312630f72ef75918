/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roff.h - texts as a manual page has them; for config-doc.c and metrics-doc.c, which are part of the build
 * alone and have one thread
 */
#ifndef TARN_DAEMON_ROFF_H
#define TARN_DAEMON_ROFF_H

#include <stdio.h>
#include <string.h>

/* roff takes a - for a hyphen, and a line that begins with . or ' for a request. */
static inline void roff_bytes(const char *text, size_t length)
{
	if (length && (*text == '.' || *text == '\''))
		fputs("\\&", stdout);
	for (size_t i = 0; i < length; i++) {
		if (text[i] == '-')
			fputs("\\-", stdout);
		else if (text[i] == '\\')
			fputs("\\e", stdout);
		else
			putchar(text[i]);
	}
}

static inline void roff(const char *text)
{
	roff_bytes(text, strlen(text));
}

/* One sentence a line, as mdoc wants it. */
static inline void roff_sentences(const char *text)
{
	while (*text) {
		const char *end = strstr(text, ". ");
		size_t length = end ? (size_t)(end - text) + 1 : strlen(text);

		roff_bytes(text, length);
		putchar('\n');
		text += length;
		text += strspn(text, " ");
	}
}

#endif
