/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.h - tarnd.conf in memory
 *
 * Two phases: config_parse() builds a new struct config and a list of all that is wrong with the
 * text; nothing takes effect by that. The caller drops it when the list is not empty. config-env.c
 * adds what this machine can not do.
 */
#ifndef TARN_DAEMON_CONFIG_H
#define TARN_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_NAME_MAX     63u /* of a listener or pool: [a-zA-Z0-9._-] */
#define CONFIG_FILE_MAX     (1024u * 1024u)
#define CONFIG_SECTIONS_MAX 256u

/* Where a setting comes from and what it is. */
struct config_value {
	int64_t number;    /* bytes, nanoseconds, a count, 0 or 1, an ENUM's place in its list */
	char *text;        /* PATH and TEXT; "" when not set; owned */
	unsigned int line; /* 0: the default */
};

enum config_hugepages { CONFIG_HUGEPAGES_REQUIRE, CONFIG_HUGEPAGES_PREFER, CONFIG_HUGEPAGES_OFF };
enum config_hugepage_size { CONFIG_HUGEPAGE_DEFAULT, CONFIG_HUGEPAGE_2M, CONFIG_HUGEPAGE_1G };
enum config_auth { CONFIG_AUTH_NONE, CONFIG_AUTH_KEY };

#define CONFIG_FIELD(key, type, unit, minimum, maximum, preset, reloadable, help) \
	struct config_value key;

struct config_daemon {
	unsigned int line; /* of the section's header; 0: there is none */
#define DAEMON_KEY CONFIG_FIELD
#include "config-keys.def"
};

struct config_listen {
	char name[CONFIG_NAME_MAX + 1];
	unsigned int line;
#define LISTEN_KEY CONFIG_FIELD
#include "config-keys.def"
};

struct config_pool {
	char name[CONFIG_NAME_MAX + 1];
	unsigned int line;
#define POOL_KEY CONFIG_FIELD
#include "config-keys.def"
};
#undef CONFIG_FIELD

struct config {
	char *file;
	struct config_daemon daemon;
	struct config_listen *listens;
	size_t listen_count;
	struct config_pool *pools;
	size_t pool_count;
};

/* ---- the table ---- */

enum config_type {
	CONFIG_TYPE_SIZE,
	CONFIG_TYPE_TIME,
	CONFIG_TYPE_NUMBER,
	CONFIG_TYPE_OCTAL,
	CONFIG_TYPE_BOOL,
	CONFIG_TYPE_ENUM,
	CONFIG_TYPE_PATH,
	CONFIG_TYPE_TEXT,
};
enum config_section {
	CONFIG_SECTION_DAEMON,
	CONFIG_SECTION_LISTEN,
	CONFIG_SECTION_POOL,
	CONFIG_SECTIONS
};

struct config_key {
	const char *name;
	enum config_type type;
	const char *unit, *minimum, *maximum, *preset; /* see config-keys.def */
	bool reloadable;
	const char *help;
	size_t offset; /* of the struct config_value in its section's struct */
};

/* The keys of a section, in the table's order. */
const struct config_key *config_keys(enum config_section section, size_t *ret_count);
const char *config_section_name(enum config_section section);

/* ---- errors: all of them, as a person would want to read them ---- */

struct config_errors {
	char **texts; /* "FILE:LINE: [section] key = value: what is wrong; what is allowed; what to
			 do" */
	size_t count;
};

void config_error(struct config_errors *errors, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void config_errors_free(struct config_errors *errors);

/* ---- values, config-value.c ---- */

/*
 * Reads a value as its key's type, within the key's range. Returns 0 and fills ret_value but its
 * line, or -EINVAL with a text that says what is wrong, what is allowed, and what to do.
 */
int config_value_parse(const struct config_key *key, const char *text,
		       struct config_value *ret_value);
/* The range in words, "4M to 2T" or "require, prefer or off". */
const char *config_range_text(const struct config_key *key, char *buffer, size_t bytes);
/* The candidate nearest to `word`, or NULL if none is near. */
const char *config_suggest(const char *word, const char *const *candidates, size_t count);

/* ---- the file, config.c ---- */

/* Always gives a config (defaults where the text is wrong); errors are added to `errors`. 0 or
 * -ENOMEM. `name` is for messages. */
int config_parse(const char *name, const void *bytes, size_t count, struct config_errors *errors,
		 struct config **ret_config);
/* The same from a file. Errors of reading it: -errno or -EINVAL with a text. */
int config_load(const char *path, struct config_errors *errors, struct config **ret_config);
void config_free(struct config *config);

/* ---- what the machine says to it, config-env.c ---- */

void config_check_environment(const struct config *config, struct config_errors *errors);

#endif
