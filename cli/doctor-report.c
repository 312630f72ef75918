/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-report.c - findings of `tarn doctor`: kept, counted, and written as text or JSON
 *
 * One thread. Next to read: doctor-device.c, for what is found.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"
#include "text.h"

#define REPORT_WIDTH  78
#define REPORT_INDENT 11 /* of a finding's text, behind its level */

void doctor_init(struct doctor *doctor, const char *root, const struct doctor_ask *ask)
{
	*doctor = (struct doctor){.root = root, .ask = ask};
	STAILQ_INIT(&doctor->findings);
}

static void finding_free(struct doctor_finding *finding)
{
	free(finding->text);
	free(finding->remedy);
	json_decref(finding->values);
	free(finding);
}

void doctor_free(struct doctor *doctor)
{
	while (!STAILQ_EMPTY(&doctor->findings)) {
		struct doctor_finding *finding = STAILQ_FIRST(&doctor->findings);

		STAILQ_REMOVE_HEAD(&doctor->findings, next);
		finding_free(finding);
	}
}

static struct doctor_finding *add(struct doctor *doctor, const char *id, enum doctor_level level,
				  const char *subject, const char *format, va_list args)
{
	struct doctor_finding *finding = calloc(1, sizeof(*finding));

	if (finding == NULL)
		abort(); /* a hundred bytes: nothing more could be said anyway */
	finding->id = id;
	finding->level = level;
	snprintf(finding->subject, sizeof(finding->subject), "%s", subject);
	finding->values = json_object();
	if (vasprintf(&finding->text, format, args) < 0)
		finding->text = NULL;
	if (finding->text == NULL || finding->values == NULL)
		doctor->failed = true;
	STAILQ_INSERT_TAIL(&doctor->findings, finding, next);
	return finding;
}

struct doctor_finding *doctor_say(struct doctor *doctor, const char *id, enum doctor_level level,
				  const char *subject, const char *format, ...)
{
	struct doctor_finding *finding;
	va_list args;

	va_start(args, format);
	finding = add(doctor, id, level, subject, format, args);
	va_end(args);
	return finding;
}

struct doctor_finding *doctor_block(struct doctor *doctor, const char *id, struct doctor_port *port,
				    const char *format, ...)
{
	struct doctor_finding *finding;
	va_list args;

	port->blocked = true;
	va_start(args, format);
	finding = add(doctor, id, DOCTOR_BLOCKED, port->subject, format, args);
	va_end(args);
	return finding;
}

void doctor_remedy(struct doctor_finding *finding, const char *format, ...)
{
	va_list args;

	free(finding->remedy);
	va_start(args, format);
	if (vasprintf(&finding->remedy, format, args) < 0)
		finding->remedy = NULL;
	va_end(args);
}

void doctor_value(struct doctor_finding *finding, const char *name, json_t *value)
{
	json_object_set_new(finding->values, name, value);
}

enum doctor_level doctor_level(const struct doctor *doctor, const struct doctor_finding *finding)
{
	if (finding->level == DOCTOR_BLOCKED)
		return doctor->usable > 0 ? DOCTOR_WARNING : DOCTOR_PROBLEM;
	return finding->level;
}

const char *doctor_level_name(enum doctor_level level)
{
	switch (level) {
	case DOCTOR_OK:
		return "ok";
	case DOCTOR_NOTE:
		return "note";
	case DOCTOR_WARNING:
		return "warning";
	case DOCTOR_BLOCKED:
	case DOCTOR_PROBLEM:
		return "problem";
	}
	return "";
}

unsigned doctor_count(const struct doctor *doctor, enum doctor_level level)
{
	const struct doctor_finding *finding;
	unsigned count = 0;

	STAILQ_FOREACH(finding, &doctor->findings, next)
	count += doctor_level(doctor, finding) == level;
	return count;
}

const struct doctor_finding *doctor_find(const struct doctor *doctor, const char *id,
					 const char *subject)
{
	const struct doctor_finding *finding;

	STAILQ_FOREACH(finding, &doctor->findings, next)
	if (strcmp(finding->id, id) == 0 &&
	    (subject == NULL || strcmp(finding->subject, subject) == 0))
		return finding;
	return NULL;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *finding_json(const struct doctor *doctor, const struct doctor_finding *finding)
{
	json_t *text = writer_text(finding->text != NULL ? finding->text : "");

	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:O}", "id", finding->id, "level",
			 doctor_level_name(doctor_level(doctor, finding)), "subject",
			 finding->subject, "text", text, "remedy",
			 finding->remedy != NULL ? writer_text(finding->remedy) : json_null(),
			 "values", finding->values);
}

static void report_json(struct doctor *doctor, struct writer *writer)
{
	const struct doctor_finding *finding;

	writer_field(writer, WRITER_HIDDEN, "problems",
		     json_integer(doctor_count(doctor, DOCTOR_PROBLEM)));
	writer_field(writer, WRITER_HIDDEN, "warnings",
		     json_integer(doctor_count(doctor, DOCTOR_WARNING)));
	writer_field(writer, WRITER_HIDDEN, "notes",
		     json_integer(doctor_count(doctor, DOCTOR_NOTE)));
	writer_field(writer, WRITER_HIDDEN, "devices", json_integer(doctor->devices));
	writer_field(writer, WRITER_HIDDEN, "ports", json_integer(doctor->ports));
	writer_field(writer, WRITER_HIDDEN, "usable_ports", json_integer(doctor->usable));
	writer_list_begin(writer, WRITER_HIDDEN, "findings");
	STAILQ_FOREACH(finding, &doctor->findings, next)
	writer_row(writer, finding_json(doctor, finding));
	writer_list_end(writer);
}

/* ---- text ------------------------------------------------------------------------------------ */

struct page {
	struct writer *writer;
	bool colours;
};

static void raw(struct page *page, const char *text)
{
	writer_raw(page->writer, text, strlen(text));
}

static void colour(struct page *page, enum doctor_level level)
{
	static const char *const colours[] = {[DOCTOR_OK] = "\033[32m",
					      [DOCTOR_NOTE] = "\033[36m",
					      [DOCTOR_WARNING] = "\033[33m",
					      [DOCTOR_PROBLEM] = "\033[1;31m"};

	if (page->colours)
		raw(page, colours[level]);
}

static void plain(struct page *page)
{
	if (page->colours)
		raw(page, "\033[0m");
}

/* Text in lines that begin `indent` columns from the left; the first one is there already. */
static void wrapped(struct page *page, const char *text, size_t indent)
{
	char spaces[32];

	snprintf(spaces, sizeof(spaces), "%*s", (int)indent, "");
	while (*text != '\0') {
		size_t width = REPORT_WIDTH - indent, n = strlen(text);

		if (n > width) {
			for (n = width; n > 0 && text[n] != ' '; n--)
				;
			if (n == 0) /* one long word */
				n = strcspn(text, " ");
		}
		writer_raw(page->writer, text, n);
		raw(page, "\n");
		text += n;
		text += strspn(text, " ");
		if (*text != '\0')
			raw(page, spaces);
	}
}

/* Devices and addresses have names that came from elsewhere. */
static void wrapped_clean(struct page *page, const char *text, size_t indent)
{
	char *clean = malloc(TEXT_ESCAPED_BYTES(strlen(text)));

	if (clean == NULL)
		return;
	text_clean(text, strlen(text), clean);
	wrapped(page, clean, indent);
	free(clean);
}

static void finding_text(struct doctor *doctor, struct page *page,
			 const struct doctor_finding *finding)
{
	enum doctor_level level = doctor_level(doctor, finding);
	char head[32];

	raw(page, "  ");
	colour(page, level);
	snprintf(head, sizeof(head), "%-*s", REPORT_INDENT - 2, doctor_level_name(level));
	raw(page, head);
	plain(page);
	wrapped_clean(page, finding->text != NULL ? finding->text : "", REPORT_INDENT);
	if (finding->remedy == NULL)
		return;
	snprintf(head, sizeof(head), "%*s", REPORT_INDENT, "");
	raw(page, head);
	raw(page, "-> ");
	wrapped_clean(page, finding->remedy, REPORT_INDENT + 3);
}

static bool first_of_subject(const struct doctor *doctor, const struct doctor_finding *finding)
{
	const struct doctor_finding *other;

	STAILQ_FOREACH(other, &doctor->findings, next)
	{
		if (other == finding)
			return true;
		if (strcmp(other->subject, finding->subject) == 0)
			return false;
	}
	return true;
}

static void report_subject(struct doctor *doctor, struct page *page,
			   const struct doctor_finding *first)
{
	const struct doctor_finding *finding = first;

	if (first != STAILQ_FIRST(&doctor->findings))
		raw(page, "\n");
	raw(page, first->subject);
	raw(page, "\n");
	for (; finding != NULL; finding = STAILQ_NEXT(finding, next))
		if (strcmp(finding->subject, first->subject) == 0)
			finding_text(doctor, page, finding);
}

static void summary(struct doctor *doctor, struct page *page)
{
	unsigned problems = doctor_count(doctor, DOCTOR_PROBLEM);
	char line[128];

	snprintf(line, sizeof(line), "\n%u problem%s, %u warning%s, %u note%s\n", problems,
		 problems == 1 ? "" : "s", doctor_count(doctor, DOCTOR_WARNING),
		 doctor_count(doctor, DOCTOR_WARNING) == 1 ? "" : "s",
		 doctor_count(doctor, DOCTOR_NOTE),
		 doctor_count(doctor, DOCTOR_NOTE) == 1 ? "" : "s");
	raw(page, line);
}

static bool wants_colours(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && (no == NULL || *no == '\0') &&
	       (term == NULL || strcmp(term, "dumb") != 0);
}

void doctor_report(struct doctor *doctor, struct cli *cli)
{
	struct page page = {.writer = cli->writer, .colours = wants_colours()};
	const struct doctor_finding *finding;

	if (writer_is_json(cli->writer)) {
		report_json(doctor, cli->writer);
		return;
	}
	STAILQ_FOREACH(finding, &doctor->findings, next)
	if (first_of_subject(doctor, finding))
		report_subject(doctor, &page, finding);
	if (!cli->quiet)
		summary(doctor, &page);
}
