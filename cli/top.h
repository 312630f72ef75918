/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * top.h - what the files of `tarn top` share: looks at a daemon, and lines of text on a screen
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* ---- looks (top-look.c) ---- */

/* What clients are sorted by. The names are words of tarn-metrics(7). */
enum top_sort {
	TOP_OPERATIONS,
	TOP_GETS,
	TOP_PUTS,
	TOP_DELETES,
	TOP_ADDS,
	TOP_ERRORS,
	TOP_RETRIES,
	TOP_BYTES,
	TOP_NAME,
	TOP_SORTS,
};

const char *top_sort_name(enum top_sort sort);

/* The daemon's answers of one moment. Begin with zeros. */
struct top_answers {
	json_t *stats, *clients, *events;
	uint64_t time_ns; /* monotonic, when they were there */
	uint64_t time_ms; /* since 1970 */
};

void top_answers_free(struct top_answers *answers);

/* Is it another process of the daemon? Its counters have begun anew. */
bool top_restarted(const struct top_answers *before, const struct top_answers *now);

/*
 * What `tarn --json top` prints of one look, a new object: rates are between `before` and `now`, and
 * null where there is nothing to compare with: before is NULL, the daemon, a pool or a client is a
 * new one, or a counter has gone back. At most max_clients clients, max_events events. NULL: no memory.
 */
json_t *top_look(const struct top_answers *before, const struct top_answers *now, enum top_sort sort,
		 size_t max_clients, size_t max_events);

/* ---- screens (top-screen.c) ---- */

enum top_style { TOP_PLAIN, TOP_TITLE, TOP_WARN, TOP_BAD };

/* Lines of text, none of which is wider than `width` columns. Begin with zeros but for the sizes. */
struct top_screen {
	size_t width, height; /* columns; lines, 0: any number */
	bool escapes;         /* each line clears what stood there before */
	bool colour;
	size_t lines;
	char *text;
	size_t n, capacity;
	bool failed; /* no memory: lines are missing */
};

void top_screen_free(struct top_screen *screen);

/* Begins anew. */
void top_screen_clear(struct top_screen *screen);

/*
 * A line, which may hold anything: what is no visible character becomes a question mark. Beyond the
 * height nothing happens.
 */
void top_screen_line(struct top_screen *screen, enum top_style style, const char *text);
void top_screen_format(struct top_screen *screen, enum top_style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Columns that a text takes on a terminal. */
size_t top_columns(const char *text);

#define TOP_CELL_BYTES  160
#define TOP_COLUMNS_MAX 24

struct top_column {
	const char *title;
	bool left;         /* aligned; else right */
	unsigned int rank; /* on a narrow screen those with the highest rank go first; 0: never */
};

/* A table that waits until it is complete. Begin with zeros and `columns`. */
struct top_table {
	const struct top_column *columns; /* ends with a title of NULL */
	char (*cells)[TOP_CELL_BYTES];    /* row by row */
	enum top_style *styles;           /* of each row */
	size_t rows, capacity;
	bool failed;
};

/* Texts of all columns; they are copied, and cut at TOP_CELL_BYTES. */
void top_table_row(struct top_table *table, enum top_style style, const char *const *cells);

/* Draws and frees it. */
void top_table_draw(struct top_table *table, struct top_screen *screen, size_t max_rows);

/* ---- the view (top-view.c) ---- */

struct top_view {
	enum top_sort sort;
	const char *notice; /* below the head, or NULL */
	bool bad;           /* the notice is a failure */
	bool keys;          /* say which keys there are */
	double interval;    /* seconds */
};

/* Draws a look. The screen is cleared before. */
void top_view_draw(const struct top_view *view, json_t *look, struct top_screen *screen);

/* ---- the terminal (top-terminal.c) ---- */

struct top_terminal;

enum top_input {
	TOP_INPUT_TIME,   /* the time is over */
	TOP_INPUT_KEY,    /* somebody has pressed one */
	TOP_INPUT_REDRAW, /* another size, or it was somebody else's meanwhile */
	TOP_INPUT_END,    /* a signal, or the terminal is gone */
};

/*
 * Takes the signals; interactive: takes the terminal at the first top_terminal_enter(). 0 or -errno;
 * it is to be closed in each case but that of -ENOMEM, where *ret_terminal is NULL.
 */
int top_terminal_open(bool interactive, struct top_terminal **ret_terminal);

/* Gives all back as it was. NULL is nothing. */
void top_terminal_close(struct top_terminal *terminal);

/* The screen is ours from now on, if this is interactive. */
void top_terminal_enter(struct top_terminal *terminal);

/* Readable when there is something to be read by top_terminal_wait(). */
int top_terminal_fd(const struct top_terminal *terminal);

/*
 * Writes to the terminal. 0, -errno, or -ECANCELED when a signal has come that top_terminal_wait() is to
 * tell of while the terminal takes nothing.
 */
int top_terminal_write(struct top_terminal *terminal, const char *text, size_t n);

/* Signals act as they did before, while something is written that may wait for long; and no more. */
void top_terminal_let(const struct top_terminal *terminal);
void top_terminal_hold(const struct top_terminal *terminal);

void top_terminal_size(const struct top_terminal *terminal, size_t *ret_width, size_t *ret_height);

/* Waits until deadline_ns of the monotonic clock; 0: looks whether there is something. */
enum top_input top_terminal_wait(struct top_terminal *terminal, uint64_t deadline_ns, char *ret_key);
