/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * text.h - bytes to text and back: keys that may hold any byte, numbers, times, sizes, and the
 * nearest word
 *
 * Escaped text is one line of printable UTF-8: a backslash is written \\, a newline \n, a return
 * \r, a tab \t, and each byte that is not part of a printable character \xNN. text_unescape() reads
 * all that text_escape() writes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room that text_human_...() need. */
#define TEXT_HUMAN_BYTES 32

/* The most that text_escape() writes for n bytes, with its final 0. */
#define TEXT_ESCAPED_BYTES(n) (4 * (size_t)(n) + 1)

/*
 * Escapes bytes into ret_text, which has room for TEXT_ESCAPED_BYTES(n); returns the text's length.
 */
size_t text_escape(const void *bytes, size_t n, char *ret_text);

/* As text_escape(), but leaves backslashes alone: for messages that hold bytes from elsewhere. */
size_t text_clean(const void *bytes, size_t n, char *ret_text);

/*
 * Reads escaped text; ret_bytes has room for strlen(text). 0, or -EINVAL when a backslash begins no
 * known escape.
 */
int text_unescape(const char *text, void *ret_bytes, size_t *ret_n);

bool text_is_utf8(const void *bytes, size_t n);

/* A whole decimal (or 0x...) number and nothing else. 0, -EINVAL, or -ERANGE. */
int text_parse_u64(const char *text, uint64_t max, uint64_t *ret_value);
int text_parse_i64(const char *text, int64_t *ret_value);

/*
 * A number with one of the units ms, s, min, h, d, as milliseconds. 0, -EINVAL, or -ERANGE (more
 * than max_ms).
 */
int text_parse_ms(const char *text, uint64_t max_ms, uint64_t *ret_ms);

/*
 * A whole number of bytes (also 0x...), or of one of the units that text_human_size() and tarnd.conf have: 4096, "4K",
 * "4KiB", "4 KiB"; B K M G T and KiB MiB GiB TiB. 0, -EINVAL, or -ERANGE (more than max).
 */
int text_parse_bytes(const char *text, uint64_t max, uint64_t *ret_bytes);

/* "512 B", "1.5 KiB"; "950 ns", "1.25 us", "3.0 min". Return ret_text. */
char *text_human_size(uint64_t bytes, char ret_text[TEXT_HUMAN_BYTES]);
char *text_human_ns(uint64_t ns, char ret_text[TEXT_HUMAN_BYTES]);

/*
 * The word of words (ended by NULL) that is nearest to text: at most 2 edits away and closer than
 * half of its length, or the only one that begins with it; else NULL.
 */
const char *text_nearest(const char *text, const char *const *words);
