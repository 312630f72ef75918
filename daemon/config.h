/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.h - tarnd.conf in memory
 *
 * Two phases: config_parse() builds a new struct config and a list of all that is wrong with the
 * text; nothing takes effect by that. The caller drops it when the list is not empty. config-env.c
 * adds what this machine can not do, config-diff.c makes what a reload may take of it.
 */
#ifndef TARN_DAEMON_CONFIG_H
#define TARN_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#define CONFIG_NAME_MAX     63u /* of a listener or pool: [a-zA-Z0-9._-] */
#define CONFIG_FILE_MAX     (1024u * 1024u)
#define CONFIG_SECTIONS_MAX 256u

/* Where a setting comes from and what it is. */
struct config_value {
	int64_t number;    /* bytes, nanoseconds, a count, 0 or 1, an ENUM's place in its list */
	char *text;        /* PATH and TEXT; "" when not set; owned */
	unsigned int line; /* 0: the default */
	bool kept; /* the file has another value by now, which a restart will take (config-diff.h) */
};

enum config_hugepages { CONFIG_HUGEPAGES_REQUIRE, CONFIG_HUGEPAGES_PREFER, CONFIG_HUGEPAGES_OFF };
enum config_hugepage_size { CONFIG_HUGEPAGE_DEFAULT, CONFIG_HUGEPAGE_2M, CONFIG_HUGEPAGE_1G };
enum config_mode { CONFIG_MODE_STORE, CONFIG_MODE_CACHE }; /* as enum layout_mode */
enum config_auth { CONFIG_AUTH_NONE, CONFIG_AUTH_KEY };
enum config_membership { CONFIG_MEMBERSHIP_STATIC, CONFIG_MEMBERSHIP_ETCD };
enum config_atomics { CONFIG_ATOMICS_AUTO, CONFIG_ATOMICS_NIC, CONFIG_ATOMICS_CPU };
/* [listen] mtu: 128 << number, but for the first */
enum config_mtu { CONFIG_MTU_PATH };

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
struct config_http {
	unsigned int line; /* 0: no HTTP */
#define HTTP_KEY CONFIG_FIELD
#include "config-keys.def"
};
struct config_cluster {
	unsigned int line; /* 0: no cluster */
#define CLUSTER_KEY CONFIG_FIELD
#include "config-keys.def"
};
#undef CONFIG_FIELD

struct config {
	char *file;
	struct config_daemon daemon;
	struct config_http http;
	struct config_cluster cluster;
	struct config_listen *listens;
	size_t listen_count;
	struct config_pool *pools;
	size_t pool_count;
};

/* ---- listeners ---- */

/* Is it RDMA (has an address or a device), and not a unix socket? */
static inline bool config_listen_rdma(const struct config_listen *listen)
{
	return listen->address.line || listen->device.line;
}

/* An address as it stands in the file; host names are none. */
struct config_address {
	int family;     /* AF_INET or AF_INET6 */
	char host[46];  /* in its shortest form, INET6_ADDRSTRLEN; without brackets and scope */
	char scope[16]; /* interface of fe80::1%eth0; "": none */
	bool has_port;
	uint16_t port;
};

/* 0, or -EINVAL with a text: what is wrong, what is allowed. Asks nobody. */
int config_address_parse(const char *text, struct config_address *ret_address);
/* The same, but 0.0.0.0 and :: are allowed, too. */
int config_address_parse_any(const char *text, struct config_address *ret_address);
/*
 * The same as a socket address with this port. 0, or -ENODEV with a text: this host has no such
 * interface.
 */
int config_address_socket(const struct config_address *address, uint16_t port,
			  struct sockaddr_storage *ret_socket);
/* The port of an RDMA listener, from `address` or `port`; 0: a free one. */
uint16_t config_listen_port(const struct config_listen *listen);
/* "10.0.0.1:7477", "[fd00::1]:7477", "rxe0:7477" or the path; for people. */
const char *config_listen_text(const struct config_listen *listen, char *buffer, size_t bytes);
/* Is the pool offered at the listener? */
bool config_pool_offered(const struct config_pool *pool, const struct config_listen *listen);

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
	CONFIG_SECTION_HTTP,
	CONFIG_SECTION_CLUSTER,
	CONFIG_SECTION_POOL,
	CONFIG_SECTIONS
};

/* To which kind of listener a key belongs. */
enum config_kind { CONFIG_KIND_ANY, CONFIG_KIND_UNIX, CONFIG_KIND_RDMA };

struct config_key {
	const char *name;
	enum config_type type;
	const char *unit, *minimum, *maximum, *preset; /* see config-keys.def */
	bool reloadable;
	const char *help;
	size_t offset; /* of the struct config_value in its section's struct */
	enum config_kind kind;
};

/* The keys of a section, in the table's order. */
const struct config_key *config_keys(enum config_section section, size_t *ret_count);
const char *config_section_name(enum config_section section);
/* The key's value in its section's struct. */
static inline struct config_value *config_value_at(void *section, const struct config_key *key)
{
	return (struct config_value *)(void *)((char *)section + key->offset);
}
static inline const struct config_value *config_value_of(const void *section,
							 const struct config_key *key)
{
	return (const struct config_value *)(const void *)((const char *)section + key->offset);
}
/* Does a listener of this kind have the key? */
static inline bool config_key_for(const struct config_key *key, bool rdma)
{
	return key->kind == CONFIG_KIND_ANY || (key->kind == CONFIG_KIND_RDMA) == rdma;
}

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
/* As it would stand in the file; "": not set. The caller frees it; NULL: no memory. */
char *config_value_text(const struct config_key *key, const struct config_value *value);
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
/* Frees the texts of one section's struct. */
void config_section_free(enum config_section section, void *target);

/* ---- what the machine says to it, config-env.c ---- */

void config_check_environment(const struct config *config, struct config_errors *errors);
/* What is allowed but perhaps not meant. */
void config_notices(const struct config *config, struct config_errors *notices);

#endif
