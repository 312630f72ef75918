/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes what is known of tarnd.conf's keys from config-keys.def: `config-doc --conf` is
 * conf/tarnd.conf, `config-doc --man` the lists of keys for tarnd.conf(5), in mdoc. Part of the
 * build alone; `make check-docs` compares its output with what is committed.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "roff.h"

#define WIDTH 100u

static const char conf_head[] =
	"# tarnd.conf - what tarnd serves, and where; tarnd.conf(5) has more\n"
	"#\n"
	"# `tarnd -t -c FILE` checks a configuration. A line is `key = value`; comments begin with "
	"# and have lines of\n"
	"# their own. Sizes: whole numbers with K, M, G or T. Times: with us, ms, s, min or h. "
	"Keys that are commented\n"
	"# out show their default. \"Reload: yes\" takes effect by `tarn reload`, the others by a "
	"restart. Generated from\n# daemon/config-keys.def by `make update-docs`.\n";

/* What the sections are about, and what the shipped file says in them. */
static const struct {
	const char *heading, *text;
} headings[CONFIG_SECTIONS] = {
	[CONFIG_SECTION_DAEMON] = {"[daemon]", "The process."},
	[CONFIG_SECTION_LISTEN] =
		{"[listen local]",
		 "A listener: [listen NAME], as many as needed: unix sockets, which have a path, "
		 "and "
		 "RDMA ones, which have an address or a device. A pool is offered at all of them, "
		 "or "
		 "at those that its listen names. The command tarn can ask the daemon only through "
		 "a unix socket."},
	[CONFIG_SECTION_HTTP] =
		{"#[http]",
		 "Statistics over HTTP: a dashboard for browsers at /, /metrics for Prometheus, /v1/stats, /v1/pools, /v1/clients, "
		 "/v1/events, /v1/members, /v1/map, /healthz and /readyz; see tarn-metrics(7). Nothing can be changed by it. Without this section there is no HTTP: "
		 "who may connect to the unix socket is the administrator's choice, and a port on loopback would show "
		 "every user of the host who uses which pool. To have it, take the # away from its header."},
	[CONFIG_SECTION_CLUSTER] =
		{"#[cluster]",
		 "This daemon is a member of a cluster: several daemons that serve one pool, which is cut into shards. "
		 "Clients name it as in tarn://NODE,NODE/POOL. To be one, take the # away from its header and from name, and "
		 "from map or etcd_endpoints."},
	[CONFIG_SECTION_POOL] = {"[pool main]", "A pool of memory: [pool NAME], as many as needed. "
						"Clients name it as in tarn:PATH?pool=NAME."},
};

static const char rdma_text[] = "An RDMA listener, for clients on other hosts, which name it as in "
				"tarn://HOST/NAME. To have "
				"one, take the # away from its header and from address or device.";

static const struct {
	const char *key, *value;
} shipped[] = {
	{"path", "/run/tarn/tarn.sock"},
	{"size", "1G"},
	{"hugepages", "prefer"},
};

/* What a key that is commented out looks like, where the default says nothing. */
static const struct {
	const char *key, *value;
} examples[] = {
	{"address", "10.0.0.1"},
	{"device", "mlx5_0"},
	{"etcd_endpoints", "http://10.0.0.1:2379, http://10.0.0.2:2379, http://10.0.0.3:2379"},
};

static const char *shipped_value(const char *key)
{
	for (size_t i = 0; i < sizeof(shipped) / sizeof(shipped[0]); i++)
		if (strcmp(shipped[i].key, key) == 0)
			return shipped[i].value;
	return NULL;
}

static const char *example_value(const struct config_key *key)
{
	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++)
		if (strcmp(examples[i].key, key->name) == 0)
			return examples[i].value;
	return key->preset;
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
	const char *value = shipped_value(key->name), *example = example_value(key);
	bool preset = value && key->preset && *key->preset;
	char range[128], allowed[256];

	putchar('\n');
	wrapped(key->help, "#");
	snprintf(allowed, sizeof(allowed), "Allowed: %s.%s%s%s Reload: %s.",
		 config_range_text(key, range, sizeof(range)), preset ? " Default: " : "",
		 preset ? key->preset : "", preset ? "." : "", key->reloadable ? "yes" : "no");
	wrapped(allowed, "#");
	if (value)
		printf("%s = %s\n", key->name, value);
	else
		printf("#%s =%s%s\n", key->name, *example ? " " : "", example);
}

static void conf_keys(enum config_section section, bool rdma)
{
	size_t count;
	const struct config_key *keys = config_keys(section, &count);

	for (size_t i = 0; i < count; i++)
		if ((keys[i].kind == CONFIG_KIND_RDMA) == rdma)
			conf_key(&keys[i]);
}

static void conf(void)
{
	fputs(conf_head, stdout);
	for (int section = 0; section < CONFIG_SECTIONS; section++) {
		putchar('\n');
		wrapped(headings[section].text, "#");
		printf("%s\n", headings[section].heading);
		conf_keys((enum config_section)section, false);
		if (section != CONFIG_SECTION_LISTEN)
			continue;
		putchar('\n');
		wrapped(rdma_text, "#");
		printf("#[listen rdma]\n");
		conf_keys(CONFIG_SECTION_LISTEN, true);
	}
}

static void man_key(const struct config_key *key)
{
	char range[128];

	printf(".It Li %s\n", key->name);
	if (key->kind == CONFIG_KIND_UNIX)
		fputs("Unix sockets only.\n", stdout);
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
	printf("Reload: %s.\n", key->reloadable ? "yes" : "no");
}

static void man(void)
{
	for (int section = 0; section < CONFIG_SECTIONS; section++) {
		size_t count;
		const struct config_key *keys = config_keys((enum config_section)section, &count);

		printf(".Ss [%s%s]\n", config_section_name((enum config_section)section),
		       section == CONFIG_SECTION_LISTEN || section == CONFIG_SECTION_POOL ? " NAME" : "");
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
