/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon/config-diff.c: what two configurations differ in, and what comes out of them.
 * daemon/reload*.c on a real daemon without main(): what takes effect, and that a reload that is
 * refused leaves everything as it was. test-verbs-listen.c has RDMA listeners.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "config-diff.h"
#include "control-config.h"
#include "daemon.h"
#include "err.h"
#include "pool.h"
#include "reload.h"

#define LISTEN "[listen l]\npath = /run/l\n"
#define POOL   "[pool main]\nsize = 64M\n"

/* ---- two configurations ---- */

static struct config *good(const char *text)
{
	struct config_errors errors = {0};
	struct config *config = NULL;

	assert_int_equal(config_parse("t.conf", text, strlen(text), &errors, &config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	return config;
}

/* The changes as texts, one a line; the result is left in *ret_next. */
static void merge(const char *running_text, const char *next_text, const char *expected,
		  struct config **ret_next)
{
	struct config *running = good(running_text), *next = good(next_text);
	struct config_changes changes;
	char all[4096] = "", text[512];

	assert_int_equal(config_merge(running, next, &changes), 0);
	for (size_t i = 0; i < changes.count; i++) {
		strncat(all, config_change_text(&changes.list[i], text, sizeof(text)),
			sizeof(all) - strlen(all) - 2);
		strcat(all, "\n");
	}
	assert_string_equal(all, expected);
	config_changes_free(&changes);
	config_free(running);
	*ret_next = next;
}

static void test_same(void **state)
{
	struct config *next;

	(void)state;
	/* written in another way, in another order, and defaults that are said */
	merge(LISTEN POOL, POOL LISTEN, "", &next);
	config_free(next);
	merge("[daemon]\nlog_level = info\n" LISTEN POOL,
	      LISTEN "[pool main]\nsize = 65536K\ngrace = 500000us\n", "", &next);
	assert_true(!next->pools[0].size.kept && next->pools[0].size.line == 4);
	config_free(next);
}

static void test_values(void **state)
{
	struct config *next;

	(void)state;
	merge("[daemon]\nlog_level = error\n" LISTEN POOL,
	      "[daemon]\nlog_level = debug\n" LISTEN POOL "high_water = 20\n",
	      "[daemon] log_level = debug (was error)\n[pool main] high_water = 20 (was 8)\n",
	      &next);
	assert_int_equal(next->pools[0].high_water.number, 20);
	assert_int_equal(next->pools[0].high_water.line, 7);
	config_free(next);
	merge(LISTEN POOL "grace = 3s\nfile = /dev/shm/a\n",
	      LISTEN "[pool main]\nsize = 1G\nmax_value = 1M\n",
	      "[pool main] size = 1G needs a restart of tarnd (kept: 64M)\n"
	      "[pool main] file = (not set) needs a restart of tarnd (kept: /dev/shm/a)\n"
	      "[pool main] max_value = 1M needs a restart of tarnd (kept: 64M)\n"
	      "[pool main] grace = 500ms needs a restart of tarnd (kept: 3s)\n",
	      &next);
	assert_true(next->pools[0].size.number == 64 << 20 && next->pools[0].size.kept);
	assert_true(next->pools[0].grace.number == 3000000000 && next->pools[0].grace.kept);
	assert_string_equal(next->pools[0].file.text, "/dev/shm/a");
	/* a default stays one: it may be more than what config_check() would take from the file */
	assert_true(next->pools[0].max_value.line == 0 && next->pools[0].max_value.kept);
	assert_false(next->pools[0].deadline.kept);
	config_free(next);
}

static void test_sections(void **state)
{
	struct config *next;

	(void)state;
	/* pools are those that run, in their order: an index into them stays what it is */
	merge(LISTEN "[pool a]\nsize = 8M\n[pool b]\nsize = 8M\nhigh_water = 9\n",
	      LISTEN "[pool c]\nsize = 1G\n[pool b]\nsize = 8M\n",
	      "[pool c] added: needs a restart of tarnd\n"
	      "[pool a] removed: needs a restart of tarnd\n"
	      "[pool b] high_water = 8 (was 9)\n",
	      &next);
	assert_int_equal(next->pool_count, 2);
	assert_string_equal(next->pools[0].name, "a");
	assert_true(next->pools[0].size.number == 8 << 20 && next->pools[0].size.kept);
	assert_string_equal(next->pools[1].name, "b");
	assert_int_equal(next->pools[1].high_water.number, 8);
	config_free(next);
	merge(LISTEN "[listen m]\naddress = fd00::1\n" POOL "allow_unauthenticated = yes\n",
	      "[listen n]\npath = /n\n" LISTEN "mode = 0600\n" POOL "allow_unauthenticated = yes\n",
	      "[listen m] removed: [fd00::1]:7477\n[listen n] added: /n\n[listen l] mode = 0600 "
	      "(was 0660)\n",
	      &next);
	assert_int_equal(next->listen_count, 2);
	config_free(next);
}

/* All of [http] takes effect. */
static void test_http(void **state)
{
	static const char http[] = "[http]\nlisten = 127.0.0.1:80\ncertificate = /c\nprivate_key = /k\n";
	struct config *next;
	char was[256];

	(void)state;
	merge(LISTEN POOL, LISTEN POOL "[http]\nmax_connections = 3\n", "[http] added: 127.0.0.1:7471, [::1]:7471\n",
	      &next);
	assert_int_equal(next->http.line, 5);
	assert_int_equal(next->http.max_connections.number, 3);
	config_free(next);
	snprintf(was, sizeof(was), "%s%s", LISTEN POOL, http);
	merge(was, LISTEN POOL, "[http] removed: 127.0.0.1:80\n", &next);
	assert_int_equal(next->http.line, 0);
	assert_string_equal(next->http.private_key.text, "");
	config_free(next);
	merge(was, LISTEN POOL "[http]\nlisten = 127.0.0.1:81\ntoken_file = /t\n",
	      "[http] listen = 127.0.0.1:81 (was 127.0.0.1:80)\n"
	      "[http] certificate = (not set) (was /c)\n"
	      "[http] private_key = (not set) (was /k)\n"
	      "[http] token_file = /t (was not set)\n",
	      &next);
	assert_string_equal(next->http.listen.text, "127.0.0.1:81");
	assert_string_equal(next->http.certificate.text, "");
	assert_string_equal(next->http.token_file.text, "/t");
	config_free(next);
}

/* Another place is another listener: then nothing of the old one needs a restart. */
static void test_moved(void **state)
{
	static const char open_pool[] = POOL "allow_unauthenticated = yes\n";
	struct config *a, *b, *next;
	char was[512], is[512];

	(void)state;
	snprintf(was, sizeof(was), "[listen r]\naddress = 10.0.0.1\ngid_index = 1\n%s", open_pool);
	snprintf(is, sizeof(is), "[listen r]\naddress = 10.0.0.1\ngid_index = 2\n%s", open_pool);
	merge(was, is, "[listen r] gid_index = 2 needs a restart of tarnd (kept: 1)\n", &next);
	assert_int_equal(next->listens[0].gid_index.number, 1);
	config_free(next);
	snprintf(is, sizeof(is), "[listen r]\naddress = 10.0.0.1:7477\ngid_index = 1\n%s",
		 open_pool);
	merge(was, is, "[listen r] address = 10.0.0.1:7477 (was 10.0.0.1)\n", &next);
	a = good(was);
	assert_false(config_listen_moved(&a->listens[0], &next->listens[0]));
	config_free(next);
	snprintf(is, sizeof(is), "[listen r]\naddress = 10.0.0.1\nport = 8\ngid_index = 2\n%s",
		 open_pool);
	merge(was, is, "[listen r] port = 8 (was 7477)\n[listen r] gid_index = 2 (was 1)\n", &next);
	assert_true(config_listen_moved(&a->listens[0], &next->listens[0]));
	config_free(next);
	b = good("[listen r]\npath = /10.0.0.1:7477\n" POOL);
	assert_true(config_listen_moved(&a->listens[0], &b->listens[0]));
	config_free(a);
	config_free(b);
}

/* Each key's default, and other values, as text and back. */
static void test_value_text(void **state)
{
	static const struct {
		enum config_section section;
		const char *key, *value, *text;
	} cases[] = {
		{CONFIG_SECTION_POOL, "size", "1048576", "1M"},
		{CONFIG_SECTION_POOL, "size", "1048577K", "1048577K"},
		{CONFIG_SECTION_POOL, "size", "2048G", "2T"},
		{CONFIG_SECTION_POOL, "max_value", "0", "0"},
		{CONFIG_SECTION_POOL, "epoch", "60s", "1min"},
		{CONFIG_SECTION_POOL, "epoch", "1500ms", "1500ms"},
		{CONFIG_SECTION_POOL, "numa_node", "-1", "-1"},
		{CONFIG_SECTION_POOL, "keep", "off", "no"},
		{CONFIG_SECTION_POOL, "hugepage_size", "1G", "1G"},
		{CONFIG_SECTION_LISTEN, "mode", "600", "0600"},
		{CONFIG_SECTION_LISTEN, "mtu", "path", "path"},
		{CONFIG_SECTION_LISTEN, "mtu", "4096", "4096"},
	};
	struct config_value value = {0};

	(void)state;
	for (int section = 0; section < CONFIG_SECTIONS; section++) {
		size_t count;
		const struct config_key *keys = config_keys((enum config_section)section, &count);

		for (size_t i = 0; i < count; i++) {
			char *text;

			if (!keys[i].preset || !*keys[i].preset)
				continue;
			assert_int_equal(config_value_parse(&keys[i], keys[i].preset, &value), 0);
			text = config_value_text(&keys[i], &value);
			assert_string_equal(text, keys[i].preset);
			free(text);
			free(value.text);
			value.text = NULL;
			for (size_t j = 0; j < sizeof(cases) / sizeof(cases[0]); j++) {
				if ((int)cases[j].section != section ||
				    strcmp(cases[j].key, keys[i].name) != 0 ||
				    config_value_parse(&keys[i], cases[j].value, &value) < 0)
					continue;
				text = config_value_text(&keys[i], &value);
				assert_string_equal(text, cases[j].text);
				free(text);
				free(value.text);
				value.text = NULL;
			}
		}
	}
}

/* ---- a daemon ---- */

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SMALL  "size = 8M\nhugepages = off\nprefault = no\nmax_clients = 8\n"

struct fixture {
	char folder[32], file[64];
	struct config *config;
	struct log log;
	struct daemon *daemon;
	uint64_t cpu_ns; /* of the longest reload */
};

static const char *at(const struct fixture *f, const char *name)
{
	static char paths[4][300];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", f->folder, name);
	return path;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* The folder stands for @ in it. */
static void configure(const struct fixture *f, const char *text)
{
	char out[4096];
	size_t used = 0;

	for (; *text; text++)
		if (*text == '@')
			used += (size_t)snprintf(out + used, sizeof(out) - used, "%s", f->folder);
		else
			out[used++] = *text;
	out[used] = '\0';
	write_file(f->file, out);
}

static void begin(struct fixture *f, const char *text)
{
	struct config_errors errors = {0};

	*f = (struct fixture){.folder = "/tmp/tarn-test-XXXXXX"};
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->file, sizeof(f->file), "%s/conf", f->folder);
	write_file(at(f, "keys"), "ada write " SECRET "\nbob write " SECRET "\n");
	configure(f, text);
	log_init(&f->log, open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_LEVEL_INFO);
	assert_int_equal(config_load(f->file, &errors, &f->config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	if (daemon_create(f->config, &f->log, &f->daemon) < 0)
		fail_msg("%s", err_text());
}

static void end(struct fixture *f)
{
	char command[64];

	daemon_free(f->daemon);
	config_free(f->config);
	close(f->log.fd);
	snprintf(command, sizeof(command), "rm -r %s", f->folder);
	assert_int_equal(system(command), 0);
}

/* All that a reload could have changed, as text to be freed. */
static char *snapshot(const struct fixture *f)
{
	const struct daemon *d = f->daemon;
	json_t *all = json_object(), *files = json_object();
	DIR *folder = opendir(f->folder);
	struct dirent *entry;
	char *text;

	control_config_show(d, all);
	while ((entry = readdir(folder))) {
		struct stat st;

		if (lstat(at(f, entry->d_name), &st) == 0 && S_ISSOCK(st.st_mode))
			json_object_set_new(files, entry->d_name,
					    json_sprintf("%o %u %llu", st.st_mode, st.st_gid,
							 (unsigned long long)st.st_ino));
	}
	closedir(folder);
	json_object_set_new(all, "files", files);
	json_object_set_new(all, "level", json_integer(f->log.level));
	for (size_t i = 0; i < d->pool_count; i++) {
		char name[32];

		snprintf(name, sizeof(name), "keys%zu", i);
		json_object_set_new(all, name,
				    json_sprintf("%d %u %p %p", d->pools[i]->auth,
						 d->pools[i]->keys.count,
						 (void *)d->pools[i]->keys.keys,
						 (const void *)d->pools[i]->config));
	}
	for (size_t i = 0; i < d->listener_count; i++) {
		char name[32];

		snprintf(name, sizeof(name), "listener%zu", i);
		json_object_set_new(all, name, json_sprintf("%p", (void *)d->listeners[i]));
	}
	text = json_dumps(all, JSON_SORT_KEYS | JSON_INDENT(1));
	json_decref(all);
	return text;
}

static void applies(struct fixture *f, const char *text, const char *expected)
{
	struct reload_report report;
	char all[4096] = "", line[512];
	uint64_t applied = f->daemon->reloads.applied;
	int rc;

	configure(f, text);
	rc = reload(f->daemon, &report);
	if (rc < 0)
		fail_msg("%s", report.errors.texts[0]);
	for (size_t i = 0; i < report.changes.count; i++) {
		strncat(all, config_change_text(&report.changes.list[i], line, sizeof(line)),
			sizeof(all) - strlen(all) - 2);
		strcat(all, "\n");
	}
	for (size_t i = 0; i < report.pool_count; i++)
		strncat(all, report.keys[i].text, sizeof(all) - strlen(all) - 1);
	if (!strstr(all, expected))
		fail_msg("'%s' is not in '%s'", expected, all);
	assert_int_equal(f->daemon->reloads.applied, applied + 1);
	if (report.cpu_ns > f->cpu_ns)
		f->cpu_ns = report.cpu_ns;
	assert_true(f->daemon->reloads.last_ms &&
		    f->daemon->reloads.last_ms == f->daemon->reloads.last_applied_ms);
	reload_report_free(&report);
}

/* This is the first thing that is said; and nothing has changed by it. */
static void refused(struct fixture *f, const char *text, const char *expected)
{
	char *before = snapshot(f), *after;
	struct reload_report report;
	uint64_t count = f->daemon->reloads.refused;

	configure(f, text);
	assert_int_equal(reload(f->daemon, &report), -EINVAL);
	assert_true(report.errors.count > 0);
	if (!strstr(report.errors.texts[0], expected))
		fail_msg("'%s' is not in '%s'", expected, report.errors.texts[0]);
	assert_int_equal(report.clients_cut, 0);
	after = snapshot(f);
	assert_string_equal(before, after);
	assert_int_equal(f->daemon->reloads.refused, count + 1);
	free(before);
	free(after);
	reload_report_free(&report);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

static bool can_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	rc = connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
	return rc == 0;
}

static void turn(struct fixture *f)
{
	event_base_loop(f->daemon->base, EVLOOP_NONBLOCK);
}

#define A "[listen a]\npath = @/a\n"
#define B "[listen b]\npath = @/b\n"
#define P "[pool main]\n" SMALL

static void test_listeners(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, A P);
	applies(&f, A P, "");
	assert_int_equal(f.daemon->listener_count, 1);
	applies(&f, B "mode = 0600\n" A P, "[listen b] added: ");
	assert_int_equal(f.daemon->listener_count, 2);
	assert_int_equal(mode_of(at(&f, "b")), 0600);
	assert_true(can_connect(at(&f, "a")) && can_connect(at(&f, "b")));
	turn(&f);
	applies(&f, B "mode = 0666\nbacklog = 1\n" A "mode = 0640\n" P,
		"[listen a] mode = 0640 (was 0660)");
	assert_true(mode_of(at(&f, "b")) == 0666 && mode_of(at(&f, "a")) == 0640);
	/* moved: the same name, another place */
	applies(&f, "[listen b]\npath = @/c\n" A P, "[listen b] path = ");
	assert_true(can_connect(at(&f, "c")) && !can_connect(at(&f, "b")) &&
		    mode_of(at(&f, "b")) == 0);
	assert_int_equal(mode_of(at(&f, "a")), 0660);
	applies(&f, A P, "[listen b] removed: ");
	assert_int_equal(f.daemon->listener_count, 1);
	assert_true(can_connect(at(&f, "a")) && mode_of(at(&f, "c")) == 0);
	/* also the first one, which was main.c's */
	applies(&f, B P, "[listen a] removed: ");
	assert_true(can_connect(at(&f, "b")) && mode_of(at(&f, "a")) == 0);
	turn(&f);
	end(&f);
}

/* Each with other changes that would be right. */
static void test_refused(void **state)
{
#define RIGHT      "[daemon]\nlog_level = debug\n" A "mode = 0600\nbacklog = 3\n[listen n]\npath = @/n\n"
#define POOL_RIGHT P "high_water = 11\nauth = key\n"
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{RIGHT POOL_RIGHT "key_file = @/keys\nhihg_water = 3\n", "did you mean high_water"},
		{RIGHT POOL_RIGHT "key_file = @/none\n", "key_file = "},
		{RIGHT POOL_RIGHT "key_file = @/wrong\n", "/wrong:2: role 'may'"},
		{RIGHT POOL_RIGHT "key_file = @/open\n", "chmod 600"},
		{RIGHT POOL_RIGHT "key_file = @/fifo\n", "not a regular file"},
		{RIGHT POOL_RIGHT, "key_file"},
		{RIGHT POOL_RIGHT "key_file = @/keys\n[listen z]\npath = @/no/z\n",
		 "its directory does not exist"},
		{RIGHT POOL_RIGHT "key_file = @/keys\n[listen z]\npath = @/conf\n",
		 "is not a socket"},
		{RIGHT POOL_RIGHT
		 "key_file = @/keys\n[listen z]\npath = @/z\ngroup = no-such-group\n",
		 "no group"},
		{RIGHT POOL_RIGHT "key_file = @/keys\n[listen z]\npath = @/b\n",
		 "[listen b] of the running tarnd"},
		/* seen only when it is opened: the others have been by then */
		{RIGHT POOL_RIGHT "key_file = @/keys\n[listen z]\npath = /proc/z\n", "/proc/z"},
		/* each right in itself, but grace stays until a restart, and the other would not */
		{"[daemon]\nlog_level = debug\n" A
		 "[listen r]\naddress = 10.77.0.1\nack_timeout = 20\n" P
		 "allow_unauthenticated = yes\nhigh_water = 11\ngrace = 10min\n",
		 "ack_timeout = 20"},
		{"", "no listener"},
		{"[listen a\n", "ends with ]"},
		{RIGHT POOL_RIGHT "key_file = @/keys\nhigh_water = 3\n", "high_water"},
	};
	struct fixture f;

	(void)state;
	begin(&f, A B P);
	write_file(at(&f, "wrong"), "ada write " SECRET "\nbob may " SECRET "\n");
	write_file(at(&f, "open"), "ada write " SECRET "\n");
	assert_int_equal(chmod(at(&f, "open"), 0644), 0);
	assert_int_equal(mkfifo(at(&f, "fifo"), 0600), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refused(&f, cases[i].text, cases[i].expected);
	unlink(f.file);
	{
		struct reload_report report;
		char *before = snapshot(&f), *after;

		assert_int_equal(reload(f.daemon, &report), -EINVAL);
		assert_non_null(strstr(report.errors.texts[0], "can not be read"));
		after = snapshot(&f);
		assert_string_equal(before, after);
		free(before);
		free(after);
		reload_report_free(&report);
	}
	/* and what was right all the time still is */
	applies(&f, RIGHT POOL_RIGHT "key_file = @/keys\n", "2 keys added (ada, bob)");
	assert_true(f.log.level == LOG_LEVEL_DEBUG && f.daemon->pools[0]->auth &&
		    mode_of(at(&f, "n")) != 0);
	assert_int_equal(f.daemon->pools[0]->config->high_water.number, 11);
	end(&f);
}

/* ---- clients ---- */

struct cut {
	unsigned int count;
	char why[100];
};

static void on_cut(void *peer, const char *why)
{
	struct cut *cut = peer;

	cut->count++;
	snprintf(cut->why, sizeof(cut->why), "%s", why);
}

static void client(struct fixture *f, const char *key, const char *listener, struct cut *cut)
{
	struct pool_client client = {.name = "test", .cut = on_cut, .peer = cut};
	uint32_t slot;

	*cut = (struct cut){0};
	client.listener = config_listen_find(f->daemon->config, listener);
	assert_non_null(client.listener);
	memcpy(client.key_id, key, strlen(key));
	assert_int_equal(pool_client_add(f->daemon->pools[0], &client, &slot), 0);
}

static void test_clients(void **state)
{
#define KEYED P "auth = key\nkey_file = @/keys\n"
	struct cut ada, bob, there;
	struct fixture f;

	(void)state;
	begin(&f, A B KEYED);
	client(&f, "ada", "a", &ada);
	client(&f, "bob", "a", &bob);
	client(&f, "ada", "b", &there);
	applies(&f, "[daemon]\nlog_level = debug\n" B A "mode = 0600\n" KEYED, "log_level");
	assert_true(!ada.count && !bob.count && !there.count);
	write_file(at(&f, "keys"), "ada write " SECRET "\nbob wrong\n");
	refused(&f, B A KEYED, "/keys:2: ");
	assert_true(!ada.count && !bob.count && !there.count);
	write_file(at(&f, "keys"), "ada write " SECRET "\nbob read " SECRET "\n");
	applies(&f, B A KEYED, "1 key changed (bob)");
	assert_true(!ada.count && bob.count == 1 && !there.count && strstr(bob.why, "only read"));
	applies(&f, B A KEYED, "");
	assert_true(!ada.count && bob.count == 1 && !there.count);
	/* the pool is not offered at b any more; then the listener goes */
	applies(&f, A B KEYED "listen = a\n", "[pool main] listen = a");
	assert_true(!ada.count && there.count == 1 && strstr(there.why, "not offered"));
	applies(&f, A B KEYED, "");
	client(&f, "ada", "b", &there);
	applies(&f, A KEYED, "[listen b] removed");
	assert_true(!ada.count && there.count == 1 && strstr(there.why, "listener was removed"));
	assert_ptr_equal(f.daemon->pools[0]->clients[0].listener, &f.daemon->config->listens[0]);
	write_file(at(&f, "keys"), "eve write " SECRET "\n");
	applies(&f, A KEYED, "1 key added (eve), 2 keys removed (ada, bob)");
	assert_true(ada.count == 1 && strstr(ada.why, "not in the key file"));
	client(&f, "eve", "a", &ada);
	applies(&f, A P, "[pool main] auth = none (was key)");
	assert_true(!f.daemon->pools[0]->auth && f.daemon->pools[0]->keys.count == 0 &&
		    ada.count == 0);
	client(&f, "", "a", &bob);
	applies(&f, A KEYED, "[pool main] auth = key (was none)");
	assert_true(f.daemon->pools[0]->keys.count == 1 && ada.count == 1 && bob.count == 1 &&
		    strstr(bob.why, "wants a key"));
	end(&f);
}

/* A thousand reloads, every second one wrong, of two configurations by turns: always one of them, whole. */
static void test_storm(void **state)
{
	struct cut ada;
	struct fixture f;

	(void)state;
	begin(&f, A KEYED);
	client(&f, "ada", "a", &ada);
	for (unsigned i = 0; i < 500; i++) {
		bool even = i % 2 == 0;

		applies(&f,
			even ? A B KEYED "high_water = 9\n"
			     : "[daemon]\nlog_level = error\n" A KEYED,
			"high_water");
		assert_int_equal(f.daemon->listener_count, even ? 2 : 1);
		assert_int_equal(f.log.level, even ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR);
		assert_int_equal(f.daemon->pools[0]->config->high_water.number, even ? 9 : 8);
		assert_true(can_connect(at(&f, "a")) && can_connect(at(&f, "b")) == even);
		refused(&f, "[listen d]\npath = @/d\n" A "mode = 0600\n" KEYED "low_water = 50\n",
			"low_water");
		turn(&f);
	}
	assert_int_equal(ada.count, 0);
	print_message("# longest reload: %.3f ms of the main loop, %.3f ms of the CPU\n",
		      (double)f.daemon->reloads.longest_ns / 1e6, (double)f.cpu_ns / 1e6);
	end(&f);
}

/* The most keys that a file may have, all of them others: how long does the main loop stand still? */
static void test_many_keys(void **state)
{
	struct fixture f;
	char *text = malloc(AUTH_KEYS_MAX * 100);

	(void)state;
	begin(&f, A KEYED);
	for (unsigned round = 0; round < 4; round++) {
		size_t used = 0;

		for (unsigned i = 0; i < AUTH_KEYS_MAX; i++)
			used += (size_t)sprintf(text + used, "%c%06u write %s keys=%u\n",
						"ab"[round / 2], (i * 2654435761u) % 1000000,
						SECRET, round + 1);
		write_file(at(&f, "keys"), text);
		f.daemon->reloads.longest_ns = f.cpu_ns = 0;
		applies(&f, A KEYED, "4096 keys ");
		assert_int_equal(f.daemon->pools[0]->keys.count, AUTH_KEYS_MAX);
		print_message("# %u keys: %.3f ms of the main loop, %.3f ms of the CPU\n",
			      AUTH_KEYS_MAX, (double)f.daemon->reloads.longest_ns / 1e6,
			      (double)f.cpu_ns / 1e6);
	}
	free(text);
	end(&f);
}

static void test_preview(void **state)
{
	struct reload_report report;
	struct fixture f;
	char *before, *after;

	(void)state;
	begin(&f, A KEYED);
	configure(&f, A B P "auth = key\nkey_file = @/more\nhigh_water = 9\n");
	write_file(at(&f, "more"), "ada write " SECRET "\n");
	before = snapshot(&f);
	assert_int_equal(reload_preview(f.daemon, &report), 0);
	assert_int_equal(report.changes.count, 3);
	assert_string_equal(report.keys[0].text, "1 key removed (bob)");
	reload_report_free(&report);
	configure(&f, A "x = 1\n" KEYED);
	assert_int_equal(reload_preview(f.daemon, &report), -EINVAL);
	assert_int_equal(report.errors.count, 1);
	reload_report_free(&report);
	after = snapshot(&f);
	assert_string_equal(before, after);
	assert_true(f.daemon->reloads.applied == 0 && f.daemon->reloads.refused == 0);
	free(before);
	free(after);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same),       cmocka_unit_test(test_values),
		cmocka_unit_test(test_sections),   cmocka_unit_test(test_moved),
		cmocka_unit_test(test_http),
		cmocka_unit_test(test_value_text), cmocka_unit_test(test_listeners),
		cmocka_unit_test(test_refused),    cmocka_unit_test(test_clients),
		cmocka_unit_test(test_storm),      cmocka_unit_test(test_many_keys),
		cmocka_unit_test(test_preview),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
