/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads tarnd.conf into a new struct config and lists all that is wrong with it. Main thread, at
 * the start and for each reload.
 *
 * inih splits the lines, but counts nothing, cuts long lines and section names without a word, and
 * takes an indented line for more of the value before. So our reader gives it one clean line at a
 * time: it counts, refuses what inih would cut, and handles sections itself. config-value.c reads
 * single values, config-check.c compares settings with each other, config-env.c asks the machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

#include "config.h"
#include "config-check.h"
#include "err.h"

#define ERRORS_MAX 200u

/* ---- the table ---- */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define KEY_AT(type_name, kind, key, type, unit, minimum, maximum, preset, reloadable, help) \
	{#key,                                                                               \
	 CONFIG_TYPE_##type,                                                                 \
	 unit,                                                                               \
	 minimum,                                                                            \
	 maximum,                                                                            \
	 preset,                                                                             \
	 reloadable,                                                                         \
	 help,                                                                               \
	 offsetof(type_name, key),                                                           \
	 CONFIG_KIND_##kind},

static const struct config_key daemon_keys[] = {
#define DAEMON_KEY(...) KEY_AT(struct config_daemon, ANY, __VA_ARGS__)
#include "config-keys.def"
};
static const struct config_key listen_keys[] = {
#define LISTEN_KEY(...)      KEY_AT(struct config_listen, ANY, __VA_ARGS__)
#define LISTEN_UNIX_KEY(...) KEY_AT(struct config_listen, UNIX, __VA_ARGS__)
#define LISTEN_RDMA_KEY(...) KEY_AT(struct config_listen, RDMA, __VA_ARGS__)
#include "config-keys.def"
};
static const struct config_key http_keys[] = {
#define HTTP_KEY(...) KEY_AT(struct config_http, ANY, __VA_ARGS__)
#include "config-keys.def"
};
static const struct config_key cluster_keys[] = {
#define CLUSTER_KEY(...) KEY_AT(struct config_cluster, ANY, __VA_ARGS__)
#include "config-keys.def"
};
static const struct config_key pool_keys[] = {
#define POOL_KEY(...) KEY_AT(struct config_pool, ANY, __VA_ARGS__)
#include "config-keys.def"
};

static const struct {
	const char *name;
	const struct config_key *keys;
	size_t count;
	bool named;
} sections[CONFIG_SECTIONS] = {
	[CONFIG_SECTION_DAEMON] = {"daemon", daemon_keys, COUNT(daemon_keys), false},
	[CONFIG_SECTION_LISTEN] = {"listen", listen_keys, COUNT(listen_keys), true},
	[CONFIG_SECTION_HTTP] = {"http", http_keys, COUNT(http_keys), false},
	[CONFIG_SECTION_CLUSTER] = {"cluster", cluster_keys, COUNT(cluster_keys), false},
	[CONFIG_SECTION_POOL] = {"pool", pool_keys, COUNT(pool_keys), true},
};

const struct config_key *config_keys(enum config_section section, size_t *ret_count)
{
	*ret_count = sections[section].count;
	return sections[section].keys;
}

const char *config_section_name(enum config_section section)
{
	return sections[section].name;
}

/* ---- errors ---- */

void config_error(struct config_errors *errors, const char *fmt, ...)
{
	char **texts;
	char *text = NULL;
	va_list args;

	if (errors->count >= ERRORS_MAX)
		return;
	va_start(args, fmt);
	if (vasprintf(&text,
		      errors->count == ERRORS_MAX - 1 ? "too many errors: the rest is left out"
						      : fmt,
		      args) < 0)
		text = NULL;
	va_end(args);
	texts = realloc(errors->texts, (errors->count + 1) * sizeof(*texts));
	if (!text || !texts) { /* out of memory: the first errors, if any, will have to do */
		free(text);
		errors->texts = texts ? texts : errors->texts;
		return;
	}
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	errors->texts = texts;
	errors->texts[errors->count++] = text;
}

void config_errors_free(struct config_errors *errors)
{
	for (size_t i = 0; i < errors->count; i++)
		free(errors->texts[i]);
	free(errors->texts);
	errors->texts = NULL;
	errors->count = 0;
}

/* ---- parsing ---- */

struct parser {
	const char *file;
	const char *at, *end; /* what is left of the text */
	unsigned int line;    /* number of the line that inih has */
	bool pending;         /* inih got a line and has not called the handler for it yet */
	char text[256];       /* that line, for messages */
	enum config_section section;
	void *target; /* struct of the section, NULL before the first and in a section that is wrong
		       */
	bool ignored; /* the section is wrong: its keys are not looked at */
	char title[80]; /* "pool main" */
	struct config *config;
	struct config_errors *errors;
};

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static void defaults_fill(enum config_section section, void *target)
{
	for (size_t i = 0; i < sections[section].count; i++) {
		const struct config_key *key = &sections[section].keys[i];
		struct config_value *value = config_value_at(target, key);

		/* The table's own values are right (tests/unit/test-config.c); without memory text
		 * stays NULL, see config_parse(). */
		if (key->preset && *key->preset)
			(void)config_value_parse(key, key->preset, value);
		else if (key->type == CONFIG_TYPE_PATH || key->type == CONFIG_TYPE_TEXT)
			value->text = strdup("");
	}
}

static bool name_valid(const char *name)
{
	size_t length = strlen(name);

	return length >= 1 && length <= CONFIG_NAME_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
		       length;
}

/* Line of the section with this name, 0 if it is new. */
static unsigned int section_line(const struct config *config, enum config_section section,
				 const char *name)
{
	if (section == CONFIG_SECTION_DAEMON)
		return config->daemon.line;
	if (section == CONFIG_SECTION_HTTP)
		return config->http.line;
	if (section == CONFIG_SECTION_CLUSTER)
		return config->cluster.line;
	if (section == CONFIG_SECTION_LISTEN) {
		for (size_t i = 0; i < config->listen_count; i++)
			if (strcmp(config->listens[i].name, name) == 0)
				return config->listens[i].line;
		return 0;
	}
	for (size_t i = 0; i < config->pool_count; i++)
		if (strcmp(config->pools[i].name, name) == 0)
			return config->pools[i].line;
	return 0;
}

/* One more element at the end of an array, with defaults; NULL without memory. */
static void *element_add(void **array, size_t *count, size_t bytes)
{
	char *grown = realloc(*array, (*count + 1) * bytes);

	if (!grown)
		return NULL;
	*array = grown;
	memset(grown + *count * bytes, 0, bytes);
	return grown + (*count)++ * bytes;
}

static void *section_add(struct parser *parser, enum config_section section, const char *name)
{
	struct config *config = parser->config;

	if (section == CONFIG_SECTION_DAEMON) {
		config->daemon.line = parser->line;
		return &config->daemon; /* has its defaults already */
	}
	if (section == CONFIG_SECTION_HTTP) {
		config->http.line = parser->line;
		return &config->http; /* so has this */
	}
	if (section == CONFIG_SECTION_CLUSTER) {
		config->cluster.line = parser->line;
		return &config->cluster; /* and this */
	}
	if (section == CONFIG_SECTION_LISTEN) {
		struct config_listen *listen = element_add(
			(void **)&config->listens, &config->listen_count, sizeof(*config->listens));

		if (!listen)
			return NULL;
		strcpy(listen->name, name);
		listen->line = parser->line;
		defaults_fill(section, listen);
		return listen;
	}
	struct config_pool *pool =
		element_add((void **)&config->pools, &config->pool_count, sizeof(*config->pools));

	if (!pool)
		return NULL;
	strcpy(pool->name, name);
	pool->line = parser->line;
	defaults_fill(section, pool);
	return pool;
}

static void section_unknown(struct parser *parser, const char *kind)
{
	static const char *const names[] = {"daemon", "listen", "http", "cluster", "pool"};
	const char *near = config_suggest(kind, names, COUNT(names));

	config_error(
		parser->errors,
		"%s:%u: [%s]: unknown section; allowed: [daemon], [listen NAME], [http], [cluster], [pool NAME]%s%s%s",
		parser->file, parser->line, parser->title, near ? "; did you mean [" : "",
		near ? near : "", !near ? "" : strcmp(near, "listen") == 0 || strcmp(near, "pool") == 0 ? " NAME]?" : "]?");
}

/* "pool main" was between the brackets. */
static void section_begin(struct parser *parser, char *text)
{
	char *name = text + strcspn(text, " \t");
	unsigned int other;
	int section = 0;

	if (*name)
		*name++ = '\0';
	name += strspn(name, " \t");
	snprintf(parser->title, sizeof(parser->title), "%s%s%s", text, *name ? " " : "", name);
	parser->target = NULL;
	parser->ignored = true;
	while (section < CONFIG_SECTIONS && strcmp(text, sections[section].name) != 0)
		section++;
	if (section == CONFIG_SECTIONS) {
		section_unknown(parser, text);
		return;
	}
	if (!sections[section].named && *name) {
		config_error(parser->errors, "%s:%u: [%s]: this section has no name: write [%s]",
			     parser->file, parser->line, parser->title, text);
		return;
	}
	if (sections[section].named && !name_valid(name)) {
		config_error(parser->errors,
			     "%s:%u: [%s]: the name '%.80s' is not valid; allowed: 1 to %u of "
			     "[a-zA-Z0-9._-], as in [%s main]",
			     parser->file, parser->line, parser->title, name, CONFIG_NAME_MAX,
			     text);
		return;
	}
	other = section_line(parser->config, (enum config_section)section, name);
	if (other) {
		config_error(parser->errors,
			     "%s:%u: [%s]: this section is there already, in line %u: join the two",
			     parser->file, parser->line, parser->title, other);
		return;
	}
	if (parser->config->listen_count + parser->config->pool_count >= CONFIG_SECTIONS_MAX) {
		config_error(parser->errors, "%s:%u: [%s]: more than %u sections", parser->file,
			     parser->line, parser->title, CONFIG_SECTIONS_MAX);
		return;
	}
	parser->section = (enum config_section)section;
	parser->target = section_add(parser, parser->section, name);
	parser->ignored = false;
}

static void key_unknown(struct parser *parser, const char *name, const char *value)
{
	const char *names[32], *near;
	size_t count = sections[parser->section].count;

	for (size_t i = 0; i < count && i < COUNT(names); i++)
		names[i] = sections[parser->section].keys[i].name;
	near = config_suggest(name, names, count);
	config_error(parser->errors, "%s:%u: [%s] %s = %s: unknown key%s%s%s", parser->file,
		     parser->line, parser->title, name, value,
		     near ? "; did you mean " : "; tarnd.conf(5) lists the keys of this section",
		     near ? near : "", near ? "?" : "");
}

/* inih's handler. Always 1: we keep the errors ourselves. */
static int on_key(void *user, const char *section, const char *name, const char *text)
{
	struct parser *parser = user;
	const struct config_key *key = NULL;
	struct config_value *value;

	(void)section; /* cut at 49 bytes; the reader knows it whole */
	parser->pending = false;
	if (!parser->target) {
		if (!parser->ignored)
			config_error(
				parser->errors,
				"%s:%u: %s = %s: stands before the first section: write [daemon], "
				"[listen NAME], [http], [cluster] or [pool NAME] above it",
				parser->file, parser->line, name, text);
		return 1;
	}
	for (size_t i = 0; i < sections[parser->section].count && !key; i++)
		if (strcmp(name, sections[parser->section].keys[i].name) == 0)
			key = &sections[parser->section].keys[i];
	if (!key) {
		key_unknown(parser, name, text);
		return 1;
	}
	value = config_value_at(parser->target, key);
	if (value->line) {
		config_error(
			parser->errors,
			"%s:%u: [%s] %s = %s: the key is there already, in line %u: remove one",
			parser->file, parser->line, parser->title, name, text, value->line);
		return 1;
	}
	value->line = parser->line;
	if (config_value_parse(key, text, value) < 0)
		config_error(parser->errors, "%s:%u: [%s] %s = %s: %s", parser->file, parser->line,
			     parser->title, name, text, err_text());
	return 1;
}

/* The next line without blanks at its ends; false at the end of the text. */
static bool line_next(struct parser *parser, const char **ret_line, size_t *ret_length)
{
	const char *newline;
	const char *begin = parser->at, *end;

	if (begin == parser->end)
		return false;
	newline = memchr(begin, '\n', (size_t)(parser->end - begin));
	end = newline ? newline : parser->end;
	parser->at = newline ? newline + 1 : parser->end;
	parser->line++;
	if (parser->line == 1 && end - begin >= 3 && memcmp(begin, "\xef\xbb\xbf", 3) == 0)
		begin += 3;
	while (begin < end && blank(*begin))
		begin++;
	while (end > begin && blank(end[-1]))
		end--;
	*ret_line = begin;
	*ret_length = (size_t)(end - begin);
	return true;
}

/* `[...]`, perhaps with a comment behind. */
static void section_line_parse(struct parser *parser, char *text)
{
	char *close = strchr(text, ']');
	const char *rest;

	if (!close) {
		parser->ignored = true;
		parser->target = NULL;
		config_error(parser->errors, "%s:%u: %.80s: a section ends with ]", parser->file,
			     parser->line, text);
		return;
	}
	*close = '\0';
	rest = close + 1 + strspn(close + 1, " \t");
	if (*rest && *rest != ';' && *rest != '#')
		config_error(parser->errors,
			     "%s:%u: [%.80s]: something follows the section's ]: %.80s",
			     parser->file, parser->line, text + 1, rest);
	text++;
	text += strspn(text, " \t");
	while (close > text && blank(close[-1]))
		*--close = '\0';
	section_begin(parser, text);
}

/* inih's reader: one line into `buffer`, empty where we have dealt with it. */
static char *read_line(char *buffer, int bytes, void *user)
{
	struct parser *parser = user;
	const char *line;
	size_t length, limit = (size_t)bytes - 2;

	if (parser->pending) /* inih did not make a key and a value of the line before */
		config_error(parser->errors,
			     "%s:%u: %.80s: is neither `[section]` nor `key = value`", parser->file,
			     parser->line, parser->text);
	parser->pending = false;
	if (!line_next(parser, &line, &length))
		return NULL;
	buffer[0] = '\0';
	if (length == 0 || line[0] == '#' || line[0] == ';')
		return buffer;
	if (memchr(line, '\0', length)) {
		config_error(parser->errors, "%s:%u: the line holds a 0 byte: is this a text file?",
			     parser->file, parser->line);
		return buffer;
	}
	if (length > limit) {
		config_error(parser->errors,
			     "%s:%u: %.40s...: the line has %zu bytes; allowed: %zu", parser->file,
			     parser->line, line, length, limit);
		return buffer;
	}
	memcpy(buffer, line, length);
	buffer[length] = '\0';
	if (buffer[0] == '[') {
		section_line_parse(parser, buffer);
		buffer[0] = '\0';
		return buffer;
	}
	snprintf(parser->text, sizeof(parser->text), "%s", buffer);
	parser->pending = true;
	return buffer;
}

static int texts_check(enum config_section section, void *target)
{
	for (size_t i = 0; i < sections[section].count; i++) {
		const struct config_key *key = &sections[section].keys[i];

		if ((key->type == CONFIG_TYPE_PATH || key->type == CONFIG_TYPE_TEXT) &&
		    !config_value_at(target, key)->text)
			return err_set(-ENOMEM, "out of memory");
	}
	return 0;
}

/* No text is NULL in a config that we give away. */
static int memory_check(struct config *config)
{
	int rc = texts_check(CONFIG_SECTION_DAEMON, &config->daemon);

	if (rc == 0)
		rc = texts_check(CONFIG_SECTION_HTTP, &config->http);
	if (rc == 0)
		rc = texts_check(CONFIG_SECTION_CLUSTER, &config->cluster);
	for (size_t i = 0; rc == 0 && i < config->listen_count; i++)
		rc = texts_check(CONFIG_SECTION_LISTEN, &config->listens[i]);
	for (size_t i = 0; rc == 0 && i < config->pool_count; i++)
		rc = texts_check(CONFIG_SECTION_POOL, &config->pools[i]);
	return rc;
}

int config_parse(const char *name, const void *bytes, size_t count, struct config_errors *errors,
		 struct config **ret_config)
{
	struct config *config = calloc(1, sizeof(*config));
	struct parser parser = {.file = name,
				.at = bytes,
				.end = (const char *)bytes + count,
				.config = config,
				.errors = errors};
	int rc = -ENOMEM;

	if (!config)
		return err_set(-ENOMEM, "out of memory");
	config->file = strdup(name);
	defaults_fill(CONFIG_SECTION_DAEMON, &config->daemon);
	defaults_fill(CONFIG_SECTION_HTTP, &config->http);
	defaults_fill(CONFIG_SECTION_CLUSTER, &config->cluster);
	if (config->file && ini_parse_stream(read_line, &parser, on_key, &parser) != -2)
		rc = memory_check(config);
	if (rc < 0) {
		config_free(config);
		return err_set(-ENOMEM, "out of memory");
	}
	config_check(config, errors);
	*ret_config = config;
	return 0;
}

static int file_read(const char *path, char **ret_bytes, size_t *ret_count)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char *bytes = NULL;
	size_t count = 0;
	struct stat st;
	ssize_t got = 1;
	int rc = 0;

	if (fd < 0)
		return err_set(-errno, "%s: can not be read: %s", path, strerrordesc_np(errno));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		rc = err_set(-EINVAL, "%s: can not be read: it is not a regular file", path);
	if (rc == 0 && !(bytes = malloc(CONFIG_FILE_MAX + 1)))
		rc = err_set(-ENOMEM, "out of memory");
	while (rc == 0 && got > 0 && count <= CONFIG_FILE_MAX) {
		got = read(fd, bytes + count, CONFIG_FILE_MAX + 1 - count);
		if (got < 0)
			rc = err_set(-errno, "%s: can not be read: %s", path,
				     strerrordesc_np(errno));
		else
			count += (size_t)got;
	}
	if (rc == 0 && count > CONFIG_FILE_MAX)
		rc = err_set(-EINVAL, "%s: is larger than %u KiB: is this a configuration?", path,
			     CONFIG_FILE_MAX / 1024);
	close(fd);
	if (rc < 0) {
		free(bytes);
		return rc;
	}
	*ret_bytes = bytes;
	*ret_count = count;
	return 0;
}

int config_load(const char *path, struct config_errors *errors, struct config **ret_config)
{
	char *bytes = NULL;
	size_t count = 0;
	int rc = file_read(path, &bytes, &count);

	if (rc < 0)
		return rc;
	rc = config_parse(path, bytes, count, errors, ret_config);
	free(bytes);
	return rc;
}

void config_section_free(enum config_section section, void *target)
{
	for (size_t i = 0; i < sections[section].count; i++)
		free(config_value_at(target, &sections[section].keys[i])->text);
}

void config_free(struct config *config)
{
	if (!config)
		return;
	config_section_free(CONFIG_SECTION_DAEMON, &config->daemon);
	config_section_free(CONFIG_SECTION_HTTP, &config->http);
	config_section_free(CONFIG_SECTION_CLUSTER, &config->cluster);
	for (size_t i = 0; i < config->listen_count; i++)
		config_section_free(CONFIG_SECTION_LISTEN, &config->listens[i]);
	for (size_t i = 0; i < config->pool_count; i++)
		config_section_free(CONFIG_SECTION_POOL, &config->pools[i]);
	free(config->listens);
	free(config->pools);
	free(config->file);
	free(config);
}
