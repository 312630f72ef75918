/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * top-screen.c - lines and tables of text for `tarn top`, as wide as the screen
 *
 * All that is drawn passes put_text(): names come from elsewhere, and a control character in one must
 * not reach the terminal. Nothing here writes to one. Next to read: top-view.c.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "top.h"

#define SCREEN_LINE_BYTES 2048

/* ---- bytes ---- */

static void append(struct top_screen *screen, const char *bytes, size_t n)
{
	if (screen->n + n + 1 > screen->capacity) {
		size_t capacity = 2 * (screen->n + n) + 4096;
		char *grown = realloc(screen->text, capacity);

		if (grown == NULL) {
			screen->failed = true;
			return;
		}
		screen->text = grown;
		screen->capacity = capacity;
	}
	memcpy(screen->text + screen->n, bytes, n);
	screen->n += n;
	screen->text[screen->n] = '\0';
}

static void append_text(struct top_screen *screen, const char *text)
{
	append(screen, text, strlen(text));
}

/* A character's length and columns; 0 columns wide ones are left to the one before. -1: not visible. */
static size_t character(const char *text, size_t n, int *ret_columns)
{
	mbstate_t state = {0};
	wchar_t wide;
	size_t length = mbrtowc(&wide, text, n, &state);

	if (length == 0 || length > n) {
		*ret_columns = -1;
		return 1;
	}
	*ret_columns = wcwidth(wide);
	return length;
}

size_t top_columns(const char *text)
{
	size_t n = strlen(text), columns = 0;

	for (size_t i = 0; i < n;) {
		int width;

		i += character(text + i, n - i, &width);
		columns += width < 0 ? 1 : (size_t)width;
	}
	return columns;
}

static void put_text(struct top_screen *screen, const char *text)
{
	size_t n = strlen(text), columns = 0;

	for (size_t i = 0, length; i < n; i += length) {
		int width;

		length = character(text + i, n - i, &width);
		columns += width < 0 ? 1 : (size_t)width;
		if (columns > screen->width)
			return;
		if (width < 0)
			append(screen, "?", 1);
		else
			append(screen, text + i, length);
	}
}

/* ---- lines ---- */

void top_screen_clear(struct top_screen *screen)
{
	screen->n = 0;
	screen->lines = 0;
}

void top_screen_free(struct top_screen *screen)
{
	free(screen->text);
	screen->text = NULL;
	screen->n = screen->capacity = 0;
}

static const char *style_text(enum top_style style)
{
	switch (style) {
	case TOP_PLAIN:
		return "";
	case TOP_TITLE:
		return "\033[7m";
	case TOP_WARN:
		return "\033[33m";
	case TOP_BAD:
		return "\033[1;31m";
	}
	return "";
}

void top_screen_line(struct top_screen *screen, enum top_style style, const char *text)
{
	bool styled = screen->colour && style != TOP_PLAIN;

	if (screen->height > 0 && screen->lines >= screen->height)
		return;
	/* No newline behind the last line of a screen: it would scroll. */
	if (screen->escapes && screen->lines > 0)
		append_text(screen, "\r\n");
	if (screen->escapes)
		append_text(screen, "\033[K");
	if (styled)
		append_text(screen, style_text(style));
	put_text(screen, text);
	if (styled)
		append_text(screen, "\033[0m");
	if (!screen->escapes)
		append_text(screen, "\n");
	screen->lines++;
}

void top_screen_format(struct top_screen *screen, enum top_style style, const char *format, ...)
{
	char line[SCREEN_LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	top_screen_line(screen, style, line);
}

/* ---- tables ---- */

static size_t count_columns(const struct top_table *table)
{
	size_t count = 0;

	while (table->columns[count].title != NULL)
		count++;
	return count;
}

void top_table_row(struct top_table *table, enum top_style style, const char *const *cells)
{
	size_t count = count_columns(table);

	if (table->rows == table->capacity) {
		size_t capacity = 2 * table->capacity + 16;
		char(*grown)[TOP_CELL_BYTES] =
			realloc(table->cells, capacity * count * TOP_CELL_BYTES);
		enum top_style *styles = realloc(table->styles, capacity * sizeof(*styles));

		if (grown != NULL)
			table->cells = grown;
		if (styles != NULL)
			table->styles = styles;
		if (grown == NULL || styles == NULL) {
			table->failed = true;
			return;
		}
		table->capacity = capacity;
	}
	table->styles[table->rows] = style;
	for (size_t i = 0; i < count; i++)
		snprintf(table->cells[table->rows * count + i], TOP_CELL_BYTES, "%s", cells[i]);
	table->rows++;
}

static void measure(const struct top_table *table, size_t rows, size_t *ret_widths)
{
	size_t count = count_columns(table);

	for (size_t i = 0; i < count; i++) {
		ret_widths[i] = top_columns(table->columns[i].title);
		for (size_t row = 0; row < rows; row++) {
			size_t width = top_columns(table->cells[row * count + i]);

			if (width > ret_widths[i])
				ret_widths[i] = width;
		}
	}
}

/* Leaves columns out until the rest fits: their width is 0 then. */
static void fit(const struct top_table *table, size_t screen_width, size_t *widths)
{
	size_t count = count_columns(table);

	for (;;) {
		size_t sum = 0, last = count;

		for (size_t i = 0; i < count; i++) {
			if (widths[i] == 0)
				continue;
			sum += widths[i] + (sum > 0 ? 1 : 0);
			if (table->columns[i].rank > 0 &&
			    (last == count || table->columns[i].rank >= table->columns[last].rank))
				last = i;
		}
		if (sum <= screen_width || last == count)
			return;
		widths[last] = 0;
	}
}

static void draw_row(const struct top_table *table, const size_t *widths, const char *const *cells,
		     enum top_style style, struct top_screen *screen)
{
	size_t count = count_columns(table), n = 0;
	char line[SCREEN_LINE_BYTES] = "";

	for (size_t i = 0; i < count; i++) {
		size_t width = top_columns(cells[i]);
		int pad = widths[i] > width ? (int)(widths[i] - width) : 0;
		int done;

		if (widths[i] == 0)
			continue;
		if (table->columns[i].left)
			done = snprintf(line + n, sizeof(line) - n, "%s%s%*s", n > 0 ? " " : "",
					cells[i], pad, "");
		else
			done = snprintf(line + n, sizeof(line) - n, "%s%*s%s", n > 0 ? " " : "",
					pad, "", cells[i]);
		if (done < 0 || (size_t)done >= sizeof(line) - n)
			break;
		n += (size_t)done;
	}
	/* What stands at the end of a line is not seen, but copied. */
	while (n > 0 && line[n - 1] == ' ' && (style == TOP_PLAIN || !screen->colour))
		line[--n] = '\0';
	top_screen_line(screen, style, line);
}

void top_table_draw(struct top_table *table, struct top_screen *screen, size_t max_rows)
{
	size_t count = count_columns(table), widths[TOP_COLUMNS_MAX],
	       rows = table->rows < max_rows ? table->rows : max_rows;
	const char *cells[TOP_COLUMNS_MAX];

	measure(table, rows, widths);
	fit(table, screen->width, widths);
	for (size_t i = 0; i < count; i++)
		cells[i] = table->columns[i].title;
	draw_row(table, widths, cells, TOP_TITLE, screen);
	for (size_t row = 0; row < rows; row++) {
		for (size_t i = 0; i < count; i++)
			cells[i] = table->cells[row * count + i];
		draw_row(table, widths, cells, table->styles[row], screen);
	}
	screen->failed = screen->failed || table->failed;
	free(table->cells);
	free(table->styles);
	*table = (struct top_table){.columns = table->columns};
}
