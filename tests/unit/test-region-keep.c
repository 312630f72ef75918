/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions over the death of a daemon, with a systemd of our own: at each message to it, and between them, what it has is
 * copied as it is at that moment, and a daemon started on it. What is asked for by messages is test-region.c's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <systemd/sd-daemon.h>

#include "clock.h"
#include "fabric.h"
#include "fdstore.h"
#include "pool-fixture.h"
#include "region.h"

#define MORE       "region_memory = 16M\n"
#define SMALL      8192u
#define LARGE      (3u << 20)
#define KEPT_MAX   8
#define DEATHS_MAX 32

int __wrap_sd_pid_notify_with_fds(pid_t pid, int unset, const char *text, const int *fds,
				  unsigned count);
int __wrap_sd_notifyf(int unset, const char *format, ...);
int __wrap_sd_notify_barrier(int unset, uint64_t timeout);
void *__real_mmap(void *address, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int prot, int flags, int fd, off_t offset);

/* ---- systemd ---- */

struct kept {
	char name[200];
	int fd;
};

struct store {
	struct kept kept[KEPT_MAX];
	unsigned count;
};

static struct store systemd;
static struct store deaths[DEATHS_MAX]; /* what it would have had */
static unsigned death_count;
static bool watched; /* deaths are of interest now */
static int refuses; /* with this */
static bool drops;  /* FileDescriptorStoreMax=0: closed, and nothing is said */
static int barrier; /* what sd_notify_barrier() returns */
static bool no_memory; /* of these, for a mapping that is written */

static void clear(struct store *store)
{
	for (unsigned i = 0; i < store->count; i++)
		close(store->kept[i].fd);
	store->count = 0;
}

static void put(struct store *store, const char *name, int fd)
{
	assert_true(store->count < KEPT_MAX && fd >= 0);
	snprintf(store->kept[store->count].name, sizeof(store->kept->name), "%s", name);
	store->kept[store->count++].fd = fd;
}

/* The memory as it is now. */
static int copied(int fd)
{
	int copy = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat status;
	void *from, *to;

	assert_true(copy >= 0 && fstat(fd, &status) == 0);
	assert_int_equal(ftruncate(copy, status.st_size), 0);
	from = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
	to = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
	assert_true(from != MAP_FAILED && to != MAP_FAILED);
	memcpy(to, from, (size_t)status.st_size);
	munmap(from, (size_t)status.st_size);
	munmap(to, (size_t)status.st_size);
	assert_int_equal(fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	return copy;
}

/* The daemon could be killed here. */
static void may_die(void)
{
	struct store *death = &deaths[death_count];

	if (!watched)
		return;
	assert_true(++death_count <= DEATHS_MAX);
	for (unsigned i = 0; i < systemd.count; i++)
		put(death, systemd.kept[i].name, copied(systemd.kept[i].fd));
}

static void name_of(const char *text, char ret_name[200])
{
	const char *at = strstr(text, "FDNAME=");

	assert_non_null(at);
	at += strlen("FDNAME=");
	snprintf(ret_name, 200, "%.*s", (int)strcspn(at, "\n"), at);
}

int __wrap_sd_pid_notify_with_fds(pid_t pid, int unset, const char *text, const int *fds,
				  unsigned count)
{
	char name[200];

	assert_true(pid == 0 && unset == 0 && count == 1 && strstr(text, "FDSTORE=1"));
	if (refuses)
		return refuses;
	if (drops)
		return 1;
	may_die();
	name_of(text, name);
	put(&systemd, name, fcntl(fds[0], F_DUPFD_CLOEXEC, 0));
	may_die();
	return 1;
}

int __wrap_sd_notifyf(int unset, const char *format, ...)
{
	char text[300], name[200];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	assert_int_equal(unset, 0);
	if (!strstr(text, "FDSTOREREMOVE=1"))
		return 1; /* how far it is with its memory */
	name_of(text, name);
	for (unsigned i = 0; i < systemd.count; i++) {
		if (strcmp(systemd.kept[i].name, name) != 0)
			continue;
		close(systemd.kept[i].fd);
		systemd.kept[i] = systemd.kept[--systemd.count];
		break;
	}
	may_die();
	return 1;
}

int __wrap_sd_notify_barrier(int unset, uint64_t timeout)
{
	assert_true(unset == 0 && timeout > 0 && timeout < UINT64_MAX);
	return barrier;
}

void *__wrap_mmap(void *address, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (!no_memory || !(flags & MAP_SHARED) || bytes < SMALL)
		return __real_mmap(address, bytes, prot, flags, fd, offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

/* ---- daemons ---- */

struct world {
	struct fixture f;
	struct fdstore *store;
	struct regions *regions;
};

/* "tarn-region-main/NAME" and perhaps "@GENERATION" */
static struct fdstore_region split(char *name)
{
	struct fdstore_region region = {.pool = "main"};
	char *at = strchr(name, '@');

	assert_memory_equal(name, "tarn-region-main/", strlen("tarn-region-main/"));
	region.name = name + strlen("tarn-region-main/");
	if (at) {
		region.generation = (uint32_t)atoi(at + 1);
		*at = '\0';
	}
	return region;
}

/* With what systemd has. */
static void world_adopt(struct world *w)
{
	char name[200];

	w->regions = w->f.pool->regions;
	assert_int_equal(fdstore_create(&w->f.log, &w->store), 0);
	for (unsigned i = 0; i < systemd.count; i++) {
		memcpy(name, systemd.kept[i].name, sizeof(name));
		assert_int_equal(fdstore_add_region(w->store, split(name),
						    fcntl(systemd.kept[i].fd, F_DUPFD_CLOEXEC, 0)),
				 0);
	}
	regions_adopt(w->regions, w->store);
}

static void world_open(struct world *w)
{
	fixture_open(&w->f, MORE);
	world_adopt(w);
}

static void world_close(struct world *w)
{
	fixture_close(&w->f);
	fdstore_free(w->store);
}

static void watch(void)
{
	watched = true;
	may_die();
}

static void finish(struct world *w)
{
	watched = false;
	clear(&systemd);
	while (death_count)
		clear(&deaths[--death_count]);
	if (w)
		world_close(w);
}

static void settle(struct world *w)
{
	struct region *region;
	bool busy = true;

	for (unsigned i = 0; busy; i++) {
		assert_true(i < 60000);
		regions_poll(w->regions);
		busy = false;
		TAILQ_FOREACH (region, &w->regions->list, link)
			busy |= region->job != NULL;
		clock_sleep_ns(1000000);
	}
}

static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(at * 31 + at / 4096 + 1);
}

static struct region *make(struct world *w, const char *name, uint64_t bytes)
{
	struct region *region;

	assert_int_equal(region_create(w->regions, name, bytes), 0);
	settle(w);
	region = regions_find(w->regions, name);
	assert_int_equal(region->state, TARN_REGION_READY);
	for (uint64_t i = 0; i < bytes; i++)
		region->memory.base[i] = byte_at(i);
	return region;
}

/* Each byte that was in it before and after, and nothing else. */
static void check_whole(const struct region *region, uint64_t written)
{
	assert_int_equal(region->state, TARN_REGION_READY);
	for (uint64_t i = 0; i < region->bytes; i++)
		if (region->memory.base[i] != (i < written ? byte_at(i) : 0))
			fail_msg("byte %llu of %llu is %u", (unsigned long long)i,
				 (unsigned long long)region->bytes, region->memory.base[i]);
}

/* The next daemon, after a death: the region is there with one of the two sizes, and systemd has one memory of it. */
static void check_death(const struct store *death, uint64_t id, uint64_t from, uint64_t to)
{
	uint64_t least = from < to ? from : to, written;
	struct region *region;
	struct world w;

	clear(&systemd);
	for (unsigned i = 0; i < death->count; i++)
		put(&systemd, death->kept[i].name, fcntl(death->kept[i].fd, F_DUPFD_CLOEXEC, 0));
	world_open(&w);
	region = regions_find(w.regions, "a");
	assert_non_null(region);
	assert_true(region->id == id && (region->bytes == from || region->bytes == to));
	written = region->bytes == from ? from : least;
	check_whole(region, written);
	assert_int_equal(w.regions->count, 1);
	assert_int_equal(systemd.count, 1);
	assert_int_equal(w.regions->bytes, region->memory.bytes);
	/* and it works on */
	least = written < LARGE / 2 ? written : LARGE / 2;
	assert_int_equal(region_resize(region, LARGE / 2), 0);
	settle(&w);
	assert_int_equal(region->bytes, LARGE / 2);
	check_whole(region, least);
	assert_int_equal(systemd.count, 1);
	world_close(&w);
}

static void killed_while_resized(uint64_t from, uint64_t to)
{
	struct region *region;
	struct world w;
	uint64_t id;
	unsigned count;

	world_open(&w);
	region = make(&w, "a", from);
	id = region->id;
	watch();
	assert_int_equal(region_resize(region, to), 0);
	may_die();
	for (unsigned i = 0; !region_job_done(region->job); i++) {
		assert_true(i < 60000);
		clock_sleep_ns(1000000);
	}
	may_die(); /* copied, and nobody has taken note of that */
	regions_poll(w.regions);
	may_die(); /* the old one is being given back, or has been */
	settle(&w);
	may_die();
	assert_int_equal(region->bytes, to);
	assert_int_equal(systemd.count, 1);
	assert_int_equal(w.regions->bytes, region->memory.bytes);
	world_close(&w);
	watched = false;
	/* before and after the first message, and after the second one */
	assert_int_equal(death_count, 5 + 3);
	count = death_count;
	for (unsigned i = 0; i < count; i++)
		check_death(&deaths[i], id, from, to);
	finish(NULL);
}

static void test_killed_while_resized(void **state)
{
	(void)state;
	killed_while_resized(SMALL, LARGE);
	killed_while_resized(LARGE, SMALL);
}

/* Of both memories one is damaged: the other is as good. */
static void test_one_damaged(void **state)
{
	(void)state;
	for (unsigned damaged = 0; damaged < 2; damaged++) {
		struct region_tail *tail;
		struct stat status;
		struct world w;

		world_open(&w);
		make(&w, "a", SMALL);
		watch();
		assert_int_equal(region_resize(regions_find(w.regions, "a"), LARGE), 0);
		settle(&w);
		watched = false;
		world_close(&w);
		clear(&systemd);
		for (unsigned i = 0; i < death_count; i++) {
			if (deaths[i].count < 2)
				continue;
			for (unsigned k = 0; k < 2; k++)
				put(&systemd, deaths[i].kept[k].name,
				    fcntl(deaths[i].kept[k].fd, F_DUPFD_CLOEXEC, 0));
			break;
		}
		assert_int_equal(systemd.count, 2);
		assert_int_equal(fstat(systemd.kept[damaged].fd, &status), 0);
		tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, systemd.kept[damaged].fd,
			    status.st_size - FABRIC_SPACE_TAIL_BYTES);
		assert_ptr_not_equal(tail, MAP_FAILED);
		tail->id = 0;
		munmap(tail, 4096);
		world_open(&w);
		assert_non_null(regions_find(w.regions, "a"));
		check_whole(regions_find(w.regions, "a"), SMALL);
		assert_int_equal(regions_find(w.regions, "a")->bytes, damaged == 0 ? LARGE : SMALL);
		assert_int_equal(systemd.count, 1);
		finish(&w);
	}
}

/* It is destroyed while it is resized: no daemon after that has it, and systemd nothing of it. */
static void test_destroyed_while_resized(void **state)
{
	(void)state;
	for (unsigned step = 0; step < 3; step++) {
		struct region *region;
		struct world w;
		unsigned count;

		world_open(&w);
		region = make(&w, "a", LARGE);
		assert_int_equal(region_resize(region, SMALL), 0);
		while (step >= 1 && !region_job_done(region->job))
			clock_sleep_ns(1000000);
		if (step == 2)
			regions_poll(w.regions); /* what was before is being given back */
		assert_int_equal(region_destroy(region), 0);
		watch();
		settle(&w);
		assert_int_equal(w.regions->count, 0);
		assert_int_equal(w.regions->bytes, 0);
		assert_int_equal(systemd.count, 0);
		may_die();
		watched = false;
		world_close(&w);
		count = death_count;
		for (unsigned i = 0; i < count; i++) {
			for (unsigned k = 0; k < deaths[i].count; k++)
				put(&systemd, deaths[i].kept[k].name,
				    fcntl(deaths[i].kept[k].fd, F_DUPFD_CLOEXEC, 0));
			world_open(&w);
			assert_int_equal(w.regions->count, 0);
			assert_int_equal(systemd.count, 0);
			world_close(&w);
		}
		finish(NULL);
	}
}

/* systemd can not be told of the new memory: the region stays what it was. */
static void test_not_told(void **state)
{
	struct region *region;
	struct world w;

	(void)state;
	world_open(&w);
	region = make(&w, "a", SMALL);
	refuses = -EMFILE;
	assert_int_equal(region_resize(region, LARGE), 0);
	settle(&w);
	assert_int_equal(region->bytes, SMALL);
	check_whole(region, SMALL);
	assert_int_equal(w.regions->bytes, region->memory.bytes);
	assert_int_equal(systemd.count, 1);
	refuses = 0;
	assert_int_equal(region_resize(region, LARGE), 0);
	settle(&w);
	assert_int_equal(region->bytes, LARGE);
	check_whole(region, SMALL);
	finish(&w);
}

/* What systemd has no place for works, and is counted; a resize of another one finds a place for its two memories. */
static void test_no_place(void **state)
{
	struct region *a, *b, *c;
	struct world w;

	(void)state;
	setenv("FDSTORE", "3", 1);
	setenv("NOTIFY_SOCKET", "/of/a/test", 1);
	world_open(&w);
	a = make(&w, "a", SMALL);
	b = make(&w, "b", SMALL);
	assert_int_equal(w.regions->refused, 0);
	c = make(&w, "c", SMALL);
	assert_int_equal(w.regions->refused, 1);
	assert_int_equal(systemd.count, 2);
	assert_int_equal(region_resize(c, LARGE), 0);
	assert_int_equal(region_resize(a, LARGE), 0);
	settle(&w);
	assert_true(a->bytes == LARGE && c->bytes == LARGE);
	check_whole(c, SMALL);
	assert_int_equal(w.regions->refused, 1);
	assert_int_equal(systemd.count, 2);
	/* a place for it */
	assert_int_equal(region_destroy(b), 0);
	settle(&w);
	assert_int_equal(w.regions->refused, 0);
	assert_int_equal(systemd.count, 2);
	world_close(&w);
	world_open(&w);
	assert_int_equal(w.regions->count, 2);
	assert_int_equal(regions_find(w.regions, "c")->bytes, LARGE);
	check_whole(regions_find(w.regions, "c"), SMALL);
	/* one that goes without having been kept */
	make(&w, "d", SMALL);
	assert_int_equal(w.regions->refused, 1);
	assert_int_equal(region_destroy(regions_find(w.regions, "d")), 0);
	settle(&w);
	assert_int_equal(w.regions->refused, 0);
	assert_int_equal(systemd.count, 2);
	finish(&w);
	unsetenv("FDSTORE");
	unsetenv("NOTIFY_SOCKET");
}

/* A start that is short of memory: what is kept stays so, under its name, until it can be used, or is destroyed. */
static void test_no_memory(void **state)
{
	struct region *region;
	struct world w;
	uint64_t id;

	(void)state;
	for (unsigned destroyed = 0; destroyed < 2; destroyed++) {
		world_open(&w);
		id = make(&w, "a", SMALL)->id;
		assert_int_equal(region_resize(regions_find(w.regions, "a"), LARGE), 0);
		settle(&w);
		world_close(&w);
		fixture_open(&w.f, MORE);
		no_memory = true;
		world_adopt(&w);
		no_memory = false;
		region = regions_find(w.regions, "a");
		assert_non_null(region);
		assert_true(region->state == TARN_REGION_FAILED && region->id == id &&
			    region->bytes == LARGE);
		assert_true(w.regions->bytes >= LARGE);
		assert_int_equal(w.regions->refused, 0);
		assert_int_equal(systemd.count, 1);
		assert_int_equal(region_create(w.regions, "a", SMALL), -TARN_EEXISTS);
		assert_int_equal(region_resize(region, SMALL), -TARN_EBUSY);
		if (destroyed) {
			assert_int_equal(region_destroy(region), 0);
			settle(&w);
			assert_int_equal(w.regions->count, 0);
			assert_int_equal(w.regions->bytes, 0);
			assert_int_equal(systemd.count, 0);
			finish(&w);
			continue;
		}
		world_close(&w);
		world_open(&w);
		region = regions_find(w.regions, "a");
		assert_int_equal(region->id, id);
		check_whole(region, SMALL);
		assert_int_equal(systemd.count, 1);
		finish(&w);
	}
}

/* A region that is made: what is it said to be? */
static enum region_keeping kept_as(const char *store_max)
{
	enum region_keeping keeping;
	struct world w;

	if (store_max)
		setenv("FDSTORE", store_max, 1);
	setenv("NOTIFY_SOCKET", "/of/a/test", 1);
	world_open(&w);
	keeping = make(&w, "a", SMALL)->keeping;
	assert_int_equal(w.regions->refused, keeping == REGION_REFUSED);
	assert_int_equal(systemd.count, keeping == REGION_KEPT && !drops);
	finish(&w);
	unsetenv("FDSTORE");
	unsetenv("NOTIFY_SOCKET");
	return keeping;
}

/* What systemd does not keep is not said to be kept, whether it tells that or not. */
static void test_keeps_nothing(void **state)
{
	(void)state;
	barrier = 1;
	assert_int_equal(kept_as("0"), REGION_REFUSED);
	assert_int_equal(kept_as("8"), REGION_KEPT);
	assert_int_equal(kept_as(NULL), REGION_KEPT);
	drops = true;
	assert_int_equal(kept_as(NULL), REGION_REFUSED);
	drops = false;
	/* it does not come to answer: nothing is known */
	barrier = -ETIMEDOUT;
	assert_int_equal(kept_as(NULL), REGION_KEPT);
}

/* The names of all are one variable of the next daemon: it must be able to start. */
static void test_long_names(void **state)
{
	enum { MANY = 2500 };
	static char names[MANY][WIRE_REGION_NAME_BYTES];
	struct fdstore_region region = {.pool = "main"};
	size_t bytes = 0;
	struct world w;
	unsigned i;
	int rc;

	(void)state;
	setenv("FDSTORE", "60000", 1);
	setenv("NOTIFY_SOCKET", "/of/a/test", 1);
	world_open(&w);
	drops = true; /* so that this here does not keep them all */
	for (i = 0; i < MANY; i++) {
		snprintf(names[i], sizeof(names[i]), "%039u", i);
		region.name = names[i];
		rc = fdstore_keep_region(w.store, region, 0, false);
		if (rc < 0)
			break;
		bytes += strlen("tarn-region-main/:") + strlen(names[i]);
	}
	assert_true(rc == -ENOSPC && i > 1024);
	assert_non_null(strstr(err_text(), "could not start"));
	assert_true(bytes < 131072 - strlen("LISTEN_FDNAMES=") - 1);
	for (unsigned k = 0; k < 10; k++)
		fdstore_drop_region(w.store, (struct fdstore_region){.pool = "main", .name = names[k]});
	assert_int_equal(fdstore_keep_region(w.store, region, 0, false), 1);
	drops = false;
	finish(&w);
	unsetenv("FDSTORE");
	unsetenv("NOTIFY_SOCKET");
}

/* Nonsense of the one who starts it is said, and is no reason not to start. */
static void test_nonsense(void **state)
{
	static const char *const counts[] = {"1000000000", "-1", "1", "a"};
	struct fdstore *store;
	struct fixture f;
	char pid[16];

	(void)state;
	fixture_open(&f, MORE);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	for (unsigned i = 0; i < 4; i++) {
		setenv("LISTEN_PID", pid, 1);
		setenv("LISTEN_FDS", counts[i], 1);
		setenv("LISTEN_FDNAMES", "tarn-pool-main:tarn-pool-other", 1);
		assert_int_equal(fdstore_create(&f.log, &store), 0);
		assert_int_equal(fdstore_take(store, "main"), -1);
		fdstore_free(store);
	}
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_while_resized),
		cmocka_unit_test(test_one_damaged),
		cmocka_unit_test(test_destroyed_while_resized),
		cmocka_unit_test(test_not_told),
		cmocka_unit_test(test_no_place),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_keeps_nothing),
		cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
