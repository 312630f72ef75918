/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes what is known of tarnd.conf's keys from config-keys.def: `config-doc --conf` is
 * conf/tarnd.conf, `config-doc --man` the lists of keys for tarnd.conf(5), in mdoc. Part of the
 * build alone; `make check-docs` compares its output with what is committed.
 */
#include <stdio.h>
#include <string.h>

#include "config.h"

#define WIDTH 100u

static const char conf_head[] =
	"# tarnd.conf - what tarnd serves, and where; tarnd.conf(5) has more\n"
	"#\n"
	"# `tarnd -t -c FILE` checks a configuration. A line is `key = value`; comments begin with "
	"# and have lines of\n"
	"# their own. Sizes: whole numbers with K, M, G or T. Times: with us, ms, s, min or h. "
	"Keys that are commented\n"
	"# out show their default. Generated from daemon/config-keys.def by `make update-docs`.\n";

/* What the sections are about, and what the shipped file says in them. */
static const struct {
	const char *heading, *text;
} headings[CONFIG_SECTIONS] = {
	[CONFIG_SECTION_DAEMON] = {"[daemon]", "The process."},
	[CONFIG_SECTION_LISTEN] =
		{"[listen local]",
		 "A listener: [listen NAME], as many as needed. All pools are offered at each."},
	[CONFIG_SECTION_POOL] = {"[pool main]", "A pool of memory: [pool NAME], as many as needed. "
						"Clients name it as in tarn:PATH?pool=NAME."},
};

static const struct {
	const char *key, *value;
} shipped[] = {
	{"path", "/run/tarn/tarn.sock"},
	{"size", "1G"},
	{"hugepages", "prefer"},
};

static const char *shipped_value(const char *key)
{
	for (size_t i = 0; i < sizeof(shipped) / sizeof(shipped[0]); i++)
		if (strcmp(shipped[i].key, key) == 0)
			return shipped[i].value;
	return NULL;
}

/* Words, with line breaks, each line behind a prefix. */
static void wrapped(const char *text, const char *prefix)
{
	size_t column = strlen(prefix);

	fputs(prefix, stdout);
	while (*text) {
		size_t length = strcspn(text, " ");

		if (column + 1 + length > WIDTH) {
			printf("\n%s", prefix);
			column = strlen(prefix);
		}
		printf(" %.*s", (int)length, text);
		column += 1 + length;
		text += length + strspn(text + length, " ");
	}
	putchar('\n');
}

static void conf_key(const struct config_key *key)
{
	const char *value = shipped_value(key->name);
	char range[128], allowed[256];

	putchar('\n');
	wrapped(key->help, "#");
	snprintf(allowed, sizeof(allowed), "Allowed: %s.%s%s%s",
		 config_range_text(key, range, sizeof(range)),
		 value && key->preset ? " Default: " : "", value && key->preset ? key->preset : "",
		 value && key->preset ? "." : "");
	wrapped(allowed, "#");
	if (value)
		printf("%s = %s\n", key->name, value);
	else
		printf("#%s =%s%s\n", key->name, *key->preset ? " " : "", key->preset);
}

static void conf(void)
{
	fputs(conf_head, stdout);
	for (int section = 0; section < CONFIG_SECTIONS; section++) {
		size_t count;
		const struct config_key *keys = config_keys((enum config_section)section, &count);

		putchar('\n');
		wrapped(headings[section].text, "#");
		printf("%s\n", headings[section].heading);
		for (size_t i = 0; i < count; i++)
			conf_key(&keys[i]);
	}
}

/* roff takes a - for a hyphen, and a line that begins with . or ' for a request. */
static void roff(const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", stdout);
	for (; *text; text++) {
		if (*text == '-')
			fputs("\\-", stdout);
		else if (*text == '\\')
			fputs("\\e", stdout);
		else
			putchar(*text);
	}
}

/* One sentence a line, as mdoc wants it. */
static void roff_sentences(const char *text)
{
	char sentence[512];

	while (*text) {
		const char *end = strstr(text, ". ");
		size_t length = end ? (size_t)(end - text) + 1 : strlen(text);

		snprintf(sentence, sizeof(sentence), "%.*s", (int)length, text);
		roff(sentence);
		putchar('\n');
		text += length;
		text += strspn(text, " ");
	}
}

static void man_key(const struct config_key *key)
{
	char range[128];

	printf(".It Li %s\n", key->name);
	roff_sentences(key->help);
	fputs("Allowed: ", stdout);
	roff(config_range_text(key, range, sizeof(range)));
	fputs(".\n", stdout);
	if (!key->preset)
		fputs("Must be given.\n", stdout);
	else if (*key->preset) {
		fputs("Default: ", stdout);
		roff(key->preset);
		fputs(".\n", stdout);
	}
}

static void man(void)
{
	for (int section = 0; section < CONFIG_SECTIONS; section++) {
		size_t count;
		const struct config_key *keys = config_keys((enum config_section)section, &count);

		printf(".Ss [%s%s]\n", config_section_name((enum config_section)section),
		       section == CONFIG_SECTION_DAEMON ? "" : " NAME");
		roff_sentences(headings[section].text);
		fputs(".Bl -tag -width Ds\n", stdout);
		for (size_t i = 0; i < count; i++)
			man_key(&keys[i]);
		fputs(".El\n", stdout);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--conf") == 0)
		conf();
	else if (argc == 2 && strcmp(argv[1], "--man") == 0)
		man();
	else {
		fprintf(stderr, "Usage: config-doc --conf | --man\n");
		return 2;
	}
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
