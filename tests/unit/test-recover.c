/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool whose memory was there before: what stays, what is finished, what is refused. */
#include "recover-fixture.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "clock.h"

static void reopen_as(struct fixture *f, bool killed, const char *more)
{
	if (config_open(f, fixture_config(more), leave(f, killed)) < 0)
		fail_msg("%s", err_text());
}

static void reopen(struct fixture *f)
{
	reopen_as(f, true, "");
}

/* The memory of a pool that is gone, to damage it. */
struct image {
	int fd;
	uint8_t *base;
	uint64_t bytes;
	struct layout_geometry g;
};

static struct image image_take(struct fixture *f)
{
	struct image image = {.bytes = f->pool->memory.bytes, .g = f->pool->geometry};

	image.fd = leave(f, true);
	image.base = mmap(NULL, image.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, image.fd, 0);
	assert_true(image.base != MAP_FAILED);
	return image;
}

static uint64_t *image_word(const struct image *image, uint64_t offset)
{
	return (uint64_t *)(void *)(image->base + offset);
}

static int image_open(struct image *image, struct fixture *f, const char *more)
{
	munmap(image->base, image->bytes);
	return config_open(f, fixture_config(more), image->fd);
}

static void image_opened(struct image *image, struct fixture *f)
{
	if (image_open(image, f, "") < 0)
		fail_msg("%s", err_text());
}

static void image_refused(struct image *image, int code, const char *more, const char *text)
{
	struct fixture f = {0};
	int rc;

	log_init(&f.log, STDERR_FILENO, LOG_LEVEL_ERROR);
	rc = image_open(image, &f, more);
	if (rc != code || !strstr(err_text(), text))
		fail_msg("%d, not %d; %s", rc, code, err_text());
	config_free(f.config);
}

/* The slot word of a key: its place in the pool. */
static uint64_t slot_of(const struct fixture *f, uint32_t key)
{
	const struct layout_geometry *g = &f->pool->geometry;
	struct layout_hash hash = layout_hash_key(&key, sizeof(key), g->hash_seed);

	for (uint32_t page = 0; page < g->npages; page++) {
		if (layout_page_state(pool_load_page_word(f->pool, page)) != LAYOUT_PAGE_INDEX)
			continue;
		for (unsigned choice = 0; choice < 2; choice++) {
			uint64_t pair = layout_page_offset(g, page) +
					layout_hash_pair(hash, choice, g->groups);

			for (unsigned i = 0; i < 16; i++) {
				uint64_t word = self_load(f->pool, pair + 8 * i);
				struct layout_block block;
				uint32_t found;

				if (i % 8 == 0 ||
				    layout_slot_state(word) != LAYOUT_SLOT_COMMITTED ||
				    layout_slot_fp(word) != layout_hash_fp(hash))
					continue;
				self_read(f->pool, layout_slot_offset(word), &block, sizeof(block));
				if (block.key_length != sizeof(key))
					continue;
				memcpy(&found,
				       f->pool->memory.base + layout_slot_offset(word) +
					       sizeof(block),
				       sizeof(found));
				if (found == key)
					return pair + 8 * i;
			}
		}
	}
	fail_msg("no slot has key %u", key);
	return 0;
}

/* ---- what stays ---- */

static void test_everything_stays(void **state)
{
	uint64_t incarnation, boot_id, created, epoch;
	struct fixture f;

	(void)state;
	filled(&f);
	incarnation = f.pool->geometry.incarnation;
	for (int i = 0; i < 3; i++) {
		boot_id = f.pool->geometry.boot_id;
		created = f.pool->created_ms;
		self_store(f.pool, LAYOUT_EPOCH_OFFSET, epoch = 1000 + (uint64_t)i);
		reopen_as(&f, i % 2 == 0, "");
		assert_true(f.pool->memory.kept);
		assert_int_equal(f.pool->geometry.incarnation, incarnation);
		assert_int_not_equal(f.pool->geometry.boot_id, boot_id);
		assert_int_equal(f.pool->created_ms, created);
		assert_int_equal(self_load(f.pool, LAYOUT_EPOCH_OFFSET), epoch);
		assert_int_equal(f.pool->client_count, 0);
		check_pool(&f, 1);
	}
	fixture_close(&f);
}

static void test_no_id_comes_twice(void **state)
{
	uint32_t last = 0;
	struct fixture f;

	(void)state;
	fixture_open(&f, "");
	for (int i = 0; i < 6; i++) {
		for (int j = 0; j < 1500; j++) {
			uint32_t id = pool_client_id(f.pool);

			if (id <= last)
				fail_msg("%u after %u", id, last);
			last = id;
		}
		reopen_as(&f, i % 2 == 0, "");
	}
	/* an orderly end wastes none */
	reopen_as(&f, false, "");
	assert_int_equal(pool_client_id(f.pool), last + 1);
	/* and in the end there is none left */
	f.pool->last_client_id = f.pool->reserved_client_id = UINT32_MAX - 3;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(pool_client_id(f.pool), UINT32_MAX - 2 + i);
	assert_int_equal(pool_client_id(f.pool), 0);
	reopen(&f);
	assert_int_equal(pool_client_id(f.pool), 0);
	fixture_close(&f);
}

static void test_clean_mark(void **state)
{
	struct layout_superblock *superblock;
	struct image image;
	struct fixture f;
	int fd;

	(void)state;
	filled(&f);
	fd = leave(&f, false);
	superblock = mmap(NULL, sizeof(*superblock), PROT_READ, MAP_SHARED, fd, 0);
	assert_true(superblock->clean_ms > 1600000000000);
	if (config_open(&f, fixture_config(""), fd) < 0)
		fail_msg("%s", err_text());
	assert_int_equal(superblock->clean_ms, 0);
	image = image_take(&f); /* killed: without one */
	assert_int_equal(superblock->clean_ms, 0);
	image_opened(&image, &f);
	munmap(superblock, sizeof(*superblock));
	fixture_close(&f);
}

/* ---- what is finished ---- */

static void test_slabs_become_orphans(void **state)
{
	struct layout_client client;
	struct pool_pages pages;
	struct fixture f;

	(void)state;
	filled(&f);
	pool_count_pages(f.pool, &pages);
	assert_true(pages.by_state[LAYOUT_PAGE_SLAB] > 0);
	reopen(&f);
	assert_int_equal(f.pool->recovered.orphans, pages.by_state[LAYOUT_PAGE_SLAB]);
	pool_count_pages(f.pool, &pages);
	assert_int_equal(pages.by_state[LAYOUT_PAGE_SLAB], 0);
	self_read(f.pool, layout_client_offset(&f.pool->geometry, 0), &client, sizeof(client));
	assert_int_equal(client.state, LAYOUT_CLIENT_FREE);
	fixture_close(&f);
}

static void test_slots_are_finished(void **state)
{
	uint64_t frozen, empty = 0, word;
	struct fixture f;

	(void)state;
	filled(&f);
	frozen = slot_of(&f, 7);
	word = self_load(f.pool, frozen);
	assert_int_equal(
		self_cas(f.pool, frozen, word, layout_slot_with_state(word, LAYOUT_SLOT_FROZEN)),
		word);
	for (uint64_t at = frozen & ~63ull; !empty; at += 8) /* the same page has room behind it */
		if (at % 64 && self_load(f.pool, at) == 0 && self_load(f.pool, at + 64) == 0)
			empty = at;
	self_store(f.pool, empty, layout_slot_make(LAYOUT_SLOT_PENDING, 1, 1, 1, 1 << 20));
	self_store(f.pool, empty + 64, layout_slot_make(LAYOUT_SLOT_MOVED, 1, 1, 1, 1 << 20));
	reopen(&f);
	assert_int_equal(f.pool->recovered.thawed, 1);
	assert_int_equal(f.pool->recovered.killed, 1);
	assert_int_equal(f.pool->recovered.cleared, 1);
	assert_int_equal(self_load(f.pool, frozen), word);
	assert_int_equal(self_load(f.pool, empty), 0);
	assert_int_equal(self_load(f.pool, empty + 64), 0);
	check_pool(&f, 1);
	fixture_close(&f);
}

static void test_damage_that_is_cured(void **state)
{
	const struct layout_geometry *g;
	uint32_t last, subtable;
	uint64_t header;
	struct image image;
	struct fixture f;

	(void)state;
	filled(&f);
	header = slot_of(&f, 3) & ~63ull;
	image = image_take(&f);
	g = &image.g;
	last = g->npages - 1;
	subtable = layout_offset_page(g, header);
	if (header == layout_page_offset(g, subtable))
		header += 64; /* the first is believed */
	*image_word(&image, header) = layout_header_make(99, 5, 0, 7);
	*image_word(&image, layout_page_word_offset(g, last)) =
		layout_page_make(LAYOUT_PAGE_INDEX, 0, 0, 9);
	*image_word(&image, layout_page_word_offset(g, last - 1)) = 7 | 5ull << 24;
	*image_word(&image, layout_ring_offset(g, 3)) = 1ull << 60;
	*image_word(&image, layout_ring_offset(g, 4) + LAYOUT_RING_TAIL) = ~0ull;
	image_opened(&image, &f);
	assert_int_equal(f.pool->recovered.headers, 1);
	assert_int_equal(f.pool->recovered.index_freed, 1);
	assert_int_equal(f.pool->recovered.damaged_pages, 1);
	assert_int_equal(f.pool->recovered.rings, 2);
	assert_int_equal(pool_load_page_word(f.pool, last),
			 layout_page_make(LAYOUT_PAGE_FREE, 0, 0, 10));
	check_pool(&f, 1);
	fixture_close(&f);
}

/* ---- what is refused ---- */

static void test_damage_that_is_refused(void **state)
{
	const struct {
		uint64_t offset, value;
		int code;
		const char *text;
	} cases[] = {
		{offsetof(struct layout_superblock, magic), 0, -TARN_ECORRUPT, "not a tarn pool"},
		{offsetof(struct layout_superblock, layout_version), 1, -TARN_EVERSION,
		 "version 1"},
		{offsetof(struct layout_superblock, pool_bytes), 1 << 20, -TARN_ECORRUPT,
		 "contradicts"},
		{offsetof(struct layout_superblock, epoch), 0, -TARN_ECORRUPT, "epoch 0"},
		{offsetof(struct layout_superblock, epoch), ~0ull, -TARN_ECORRUPT, "epoch 184"},
		{offsetof(struct layout_superblock, last_client_id), 1ull << 32, -TARN_ECORRUPT,
		 "last client id 4294967296"},
		{offsetof(struct layout_superblock, global_depth), 60, -TARN_ECORRUPT,
		 "contradicts"},
		{offsetof(struct layout_superblock, pages_offset), 64, -TARN_ECORRUPT,
		 "contradicts"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct image image;
		struct fixture f;

		filled(&f);
		image = image_take(&f);
		*image_word(&image, cases[i].offset) = cases[i].value;
		image_refused(&image, cases[i].code, "", cases[i].text);
	}
}

static void test_directory_damaged(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		uint64_t entry, header;
		struct image image;
		struct fixture f;

		filled(&f);
		image = image_take(&f);
		entry = layout_directory_offset(&image.g, 0);
		header = layout_page_offset(&image.g,
					    layout_directory_page(*image_word(&image, entry)));
		if (i == 0)
			*image_word(&image, entry) = 0;
		else if (i == 1) /* another page's number */
			*image_word(&image, entry) ^= 4;
		else if (i == 2)
			*image_word(&image, entry) =
				layout_directory_make(~0u, 0, LAYOUT_DIRECTORY_VALID);
		else if (i == 3)
			*image_word(&image, header) ^= 1;
		else
			*image_word(&image,
				    layout_page_word_offset(
					    &image.g, layout_offset_page(&image.g, header))) = 0;
		image_refused(&image, -TARN_ECORRUPT, "", "");
	}
}

static void test_configurations(void **state)
{
	const struct {
		const char *more, *text; /* NULL: fine */
	} cases[] = {
		{"epoch = 260ms\ngrace = 600ms\n",
		 "epoch = 260ms: the pool in the kept memory was made with 250ms"},
		{"deadline = 90ms\n", NULL},
		{"grace = 700ms\n", NULL},
		{"max_value = 1M\n", NULL},
		{"keys = 100\n", NULL},
		{"hugepages = prefer\n", NULL},
		{"hugepages = require\n", "hugepages = require: the kept memory has normal pages"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[512];
		struct config_errors errors = {0};
		struct config *config;
		struct fixture f;
		int rc, fd;

		filled(&f);
		fd = leave(&f, true);
		snprintf(text, sizeof(text),
			 "[listen l]\npath = /l\n[pool main]\nsize = 8M\nmax_clients = 8\n%s",
			 cases[i].more);
		assert_int_equal(config_parse("test", text, strlen(text), &errors, &config), 0);
		assert_int_equal(errors.count, 0);
		rc = config_open(&f, config, fd);
		if ((rc < 0) != (cases[i].text != NULL) ||
		    (rc < 0 && !strstr(err_text(), cases[i].text)))
			fail_msg("%s: %d %s", cases[i].more, rc, err_text());
		if (rc < 0) {
			config_free(config);
			continue;
		}
		assert_int_equal(f.pool->geometry.deadline_ns, config->pools[0].deadline.number);
		assert_int_equal(f.pool->geometry.grace_ns, config->pools[0].grace.number);
		assert_int_equal(f.pool->geometry.max_value_bytes,
				 config->pools[0].max_value.number);
		check_pool(&f, 1);
		fixture_close(&f);
	}
}

static void test_size_and_clients(void **state)
{
	const struct {
		const char *from, *to, *text;
	} cases[] = {
		{"size = 8M", "size = 9M",
		 "the kept memory has 8388608 bytes, and size = 9437184 wants"},
		{"max_clients = 8", "max_clients = 9",
		 "max_clients = 9: the pool in the kept memory was made with 8"},
	};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		char text[256];
		struct config_errors errors = {0};
		struct config *config;
		struct fixture f;

		filled(&f);
		snprintf(text, sizeof(text),
			 "[listen l]\npath = /l\n[pool main]\nhugepages = off\n%s\n%s\n",
			 i == 0 ? cases[i].to : "size = 8M",
			 i == 1 ? cases[i].to : "max_clients = 8");
		assert_int_equal(config_parse("test", text, strlen(text), &errors, &config), 0);
		assert_int_equal(config_open(&f, config, leave(&f, true)), -EINVAL);
		if (!strstr(err_text(), cases[i].text))
			fail_msg("%s", err_text());
		config_free(config);
	}
}

static void test_torn(void **state)
{
	struct recover_wish wish = {.durable = true};
	struct layout_superblock superblock;
	struct layout_geometry geometry;
	enum recover_change change;
	struct fixture f;

	(void)state;
	fixture_open(&f, "");
	self_read(f.pool, 0, &superblock, sizeof(superblock));
	wish.plan = (struct layout_plan){.max_clients = superblock.max_clients,
					 .deadline_ns = superblock.deadline_ns,
					 .epoch_ns = superblock.epoch_ns,
					 .grace_ns = superblock.grace_ns};
	memcpy(wish.host_boot_id, superblock.host_boot_id, 16);
	assert_int_equal(
		recover_check(&superblock, f.pool->memory.bytes, &wish, &geometry, &change), 0);
	assert_int_equal(change, RECOVER_SAME);
	wish.host_boot_id[3] ^= 1;
	assert_int_equal(
		recover_check(&superblock, f.pool->memory.bytes, &wish, &geometry, &change),
		-ESTALE);
	assert_non_null(strstr(err_text(), "tarn pool check --repair FILE"));
	superblock.clean_ms = 1;
	assert_int_equal(
		recover_check(&superblock, f.pool->memory.bytes, &wish, &geometry, &change), 0);
	superblock.clean_ms = 0;
	wish.durable = false;
	assert_int_equal(
		recover_check(&superblock, f.pool->memory.bytes, &wish, &geometry, &change), 0);
	wish.plan.atomics = LAYOUT_ATOMICS_NIC;
	assert_int_equal(
		recover_check(&superblock, f.pool->memory.bytes, &wish, &geometry, &change), 0);
	assert_int_equal(change, RECOVER_FENCE_FIRST);
	fixture_close(&f);
}

static void test_foreign_descriptors(void **state)
{
	struct fixture f = {0};
	int fds[3];

	(void)state;
	log_init(&f.log, STDERR_FILENO, LOG_LEVEL_ERROR);
	fds[0] = open("/dev/null", O_RDWR);
	fds[1] = memfd_create("unsealed", 0);
	fds[2] = open("/proc/self/exe", O_RDONLY);
	assert_int_equal(ftruncate(fds[1], 8 << 20), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(config_open(&f, fixture_config(""), fds[i]), -EINVAL);
		assert_non_null(strstr(err_text(), "is no memory of tarnd's"));
		assert_int_equal(fcntl(fds[i], F_GETFD), -1);
		config_free(f.config);
	}
}

/* ---- clients that outlive the daemon ---- */

struct survivor {
	int fd;
	void *base;
	uint64_t bytes;
};

static struct survivor survive(struct fixture *f, uint32_t slot)
{
	struct survivor survivor = {.bytes = f->pool->memory.bytes};
	int fd;

	assert_int_equal(pool_lock_client(&f->pool->memory, &f->pool->geometry, slot, &fd), 0);
	survivor.base = mmap(NULL, survivor.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(survivor.base != MAP_FAILED);
	close(fd);
	return survivor;
}

static void test_unfenced_clients(void **state)
{
	const struct pool_client client = {.name = "old", .pid = 17};
	uint32_t slot, other, id, page;
	struct survivor survivor;
	struct fixture f;
	int fd;

	(void)state;
	filled(&f);
	assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	id = f.pool->clients[slot].client_id;
	survivor = survive(&f, slot);
	/* as long as it has it mapped nobody else gets its slot's lock */
	assert_int_equal(pool_lock_client(&f.pool->memory, &f.pool->geometry, slot, &fd), -EBUSY);
	page = f.pool->geometry.npages - 1;
	fixture_page(f.pool, page, LAYOUT_PAGE_SLAB, 3, slot);
	reopen(&f);
	assert_true(pool_unfenced(f.pool));
	assert_int_equal(f.pool->client_count, 1);
	assert_int_equal(f.pool->clients[slot].client_id, id);
	assert_int_equal(f.pool->clients[slot].pid, 17);
	assert_string_equal(f.pool->clients[slot].name, "old");
	/* its pages are still its own, and its slot */
	assert_int_equal(layout_page_state(pool_load_page_word(f.pool, page)), LAYOUT_PAGE_SLAB);
	for (uint32_t i = 1; i < f.pool->geometry.max_clients; i++) {
		assert_int_equal(pool_client_add(f.pool, &client, &other), 0);
		assert_int_not_equal(other, slot);
	}
	assert_int_equal(pool_client_add(f.pool, &client, &other), -EBUSY);
	pool_unfenced_poll(f.pool, UINT64_MAX);
	assert_true(pool_unfenced(f.pool));
	/* it survives the next one, too */
	reopen(&f);
	assert_true(pool_unfenced(f.pool));
	munmap(survivor.base, survivor.bytes);
	pool_unfenced_poll(f.pool, UINT64_MAX);
	assert_false(pool_unfenced(f.pool));
	assert_int_equal(f.pool->client_count, 0);
	assert_int_equal(layout_page_state(pool_load_page_word(f.pool, page)), LAYOUT_PAGE_ORPHAN);
	check_pool(&f, 1);
	fixture_close(&f);
}

/* What they work by does not change under them. */
static void test_unfenced_hold_up_changes(void **state)
{
	const struct pool_client client = {.name = "old", .pid = 17};
	struct survivor survivor;
	struct fixture f;
	uint32_t slot;
	pid_t child;
	int fd;

	(void)state;
	filled(&f);
	assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	survivor = survive(&f, slot);
	fd = leave(&f, true);
	assert_int_equal(config_open(&f, fixture_config("deadline = 90ms\n"), dup(fd)), -EBUSY);
	assert_non_null(strstr(err_text(), "pid 17 old"));
	config_free(f.config);
	munmap(survivor.base, survivor.bytes);
	/* one that goes in time */
	assert_int_equal(config_open(&f, fixture_config(""), fd), 0);
	assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	assert_int_equal(pool_lock_client(&f.pool->memory, &f.pool->geometry, slot, &fd), 0);
	child = fork();
	if (child == 0) {
		clock_sleep_ns(300000000);
		close(fd); /* valgrind takes its time with the end of a process */
		_exit(0);
	}
	close(fd);
	reopen_as(&f, true, "deadline = 90ms\n");
	assert_false(pool_unfenced(f.pool));
	assert_int_equal(f.pool->geometry.deadline_ns, 90000000);
	assert_int_equal(waitpid(child, NULL, 0), child);
	check_pool(&f, 1);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything_stays),
		cmocka_unit_test(test_no_id_comes_twice),
		cmocka_unit_test(test_clean_mark),
		cmocka_unit_test(test_slabs_become_orphans),
		cmocka_unit_test(test_slots_are_finished),
		cmocka_unit_test(test_damage_that_is_cured),
		cmocka_unit_test(test_damage_that_is_refused),
		cmocka_unit_test(test_directory_damaged),
		cmocka_unit_test(test_configurations),
		cmocka_unit_test(test_size_and_clients),
		cmocka_unit_test(test_torn),
		cmocka_unit_test(test_foreign_descriptors),
		cmocka_unit_test(test_unfenced_clients),
		cmocka_unit_test(test_unfenced_hold_up_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
