/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool's memory in a file ([pool] file): what is made, what is taken, what is refused. */
#include "pool-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <tarn/tarn.h>

static char folder[64];

static int folder_make(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/dev/shm/tarn-test-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static const char *in_folder(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static struct config *config_for(const char *path, const char *more)
{
	char text[256];

	snprintf(text, sizeof(text), "file = %s\n%s", path, more);
	return fixture_config(text);
}

static int file_open(struct fixture *f, const char *path, const char *more)
{
	memset(f, 0, sizeof(*f));
	log_init(&f->log, STDERR_FILENO, LOG_LEVEL_ERROR);
	assert_int_equal(auth_init(), 0);
	f->config = config_for(path, more);
	return pool_create(&f->config->pools[0], &(struct pool_place){.numa_node = -1}, &f->log,
			   &f->pool);
}

static void opened(struct fixture *f, const char *path)
{
	if (file_open(f, path, "") < 0)
		fail_msg("%s", err_text());
}

/* Neither the start nor tarnd -t takes it. */
static void refused(const char *path, const char *more, int code, const char *text)
{
	struct pool_memory_claims claims = {.whole_machine = true};
	char leftover[160];
	struct fixture f;
	bool hugetlb;
	int rc = file_open(&f, path, more);

	if (rc != code || !strstr(err_text(), text))
		fail_msg("%d, not %d: %s", rc, code, err_text());
	if (code != -EBUSY && code != -TARN_ECORRUPT) { /* what only the one who opens it can see */
		rc = pool_memory_check(&f.config->pools[0], &claims, &hugetlb);
		if (rc != code || !strstr(err_text(), text))
			fail_msg("tarnd -t: %d, not %d: %s", rc, code, err_text());
	}
	snprintf(leftover, sizeof(leftover), "%s.new", path);
	assert_int_equal(access(leftover, F_OK), -1);
	config_free(f.config);
}

static void write_file(const char *path, const void *bytes, size_t count, mode_t mode)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, count), count);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void test_made_and_opened_again(void **state)
{
	const char *path = in_folder("pool");
	uint64_t incarnation;
	struct fixture f;
	struct stat st;

	(void)state;
	opened(&f, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, 8 << 20);
	assert_true(st.st_blocks * 512 >= 8 << 20);
	assert_int_equal(access(in_folder("pool.new"), F_OK), -1);
	path = in_folder("pool");
	assert_false(f.pool->memory.kept);
	assert_false(f.pool->memory.durable);
	incarnation = f.pool->geometry.incarnation;
	fixture_close(&f);
	opened(&f, path);
	assert_true(f.pool->memory.kept);
	assert_int_equal(f.pool->geometry.incarnation, incarnation);
	/* for readers it can't be mapped for writing */
	assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, f.pool->memory.fd_read_only, 0),
			 MAP_FAILED);
	fixture_close(&f);
	/* an empty file is as good as none, and so is what a killed daemon has left of one */
	assert_int_equal(truncate(path, 0), 0);
	write_file(in_folder("pool.new"), "half", 4, 0600);
	path = in_folder("pool");
	opened(&f, path);
	assert_false(f.pool->memory.kept);
	assert_int_not_equal(f.pool->geometry.incarnation, incarnation);
	fixture_close(&f);
	unlink(path);
}

static void test_in_use(void **state)
{
	const char *path = in_folder("used");
	struct fixture f;

	(void)state;
	opened(&f, path);
	refused(path, "", -EBUSY, "in use by another tarnd");
	/* the first one did not notice */
	assert_int_equal(self_load(f.pool, 0), LAYOUT_MAGIC);
	fixture_close(&f);
	opened(&f, path);
	fixture_close(&f);
	unlink(path);
}

static void test_being_made(void **state)
{
	char path[sizeof(folder) + 8];
	struct pool_memory memory = {.path = path, .fd_read_only = -1};
	struct fixture f;

	(void)state;
	snprintf(path, sizeof(path), "%s/made", folder);
	write_file(in_folder("made.new"), "", 0, 0600);
	memory.fd = open(in_folder("made.new"), O_RDWR);
	assert_int_equal(pool_lock_daemon(&memory), 0);
	assert_int_equal(file_open(&f, path, ""), -EBUSY);
	config_free(f.config);
	assert_int_equal(access(in_folder("made.new"), F_OK), 0);
	close(memory.fd);
	unlink(in_folder("made.new"));
}

static void test_not_ours(void **state)
{
	static uint8_t garbage[8 << 20];
	const char *path;

	(void)state;
	refused("/nowhere/at/all", "", -ENOENT, "its folder does not exist");
	refused(folder, "", -EISDIR, "is a directory");
	refused("/dev/null", "", -EINVAL, "is not a regular file");
	/* what looks like a place for files and is none: there is no folder's permission to blame */
	refused("/proc/x", "", -EINVAL, "the kernel shows its own things");
	refused("/proc/self/status", "", -EINVAL, "the kernel shows its own things");
	refused("/sys/x", "", -EINVAL, "the kernel shows its own things");
	path = in_folder("link");
	assert_int_equal(symlink("/etc/passwd", path), 0);
	refused(path, "", -ELOOP, "is a symbolic link");
	path = in_folder("fifo");
	assert_int_equal(mkfifo(path, 0600), 0);
	refused(path, "", -EINVAL, "is not a regular file");
	path = in_folder("open");
	memset(garbage, 7, sizeof(garbage));
	write_file(path, garbage, sizeof(garbage), 0644);
	refused(path, "", -EPERM, "has mode 0644; allowed is 0600");
	chmod(path, 0600);
	refused(path, "", -TARN_ECORRUPT, "not a tarn pool");
	memset(garbage, 0, sizeof(garbage));
	write_file(path, garbage, sizeof(garbage), 0600);
	refused(path, "", -TARN_ECORRUPT, "not a tarn pool");
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 1, 1), 0);
		refused(path, "", -EPERM, "belongs to uid 1");
	}
	assert_int_equal(access(path, F_OK), 0);
}

static void test_other_sizes(void **state)
{
	const char *path = in_folder("sized");
	struct fixture f;

	(void)state;
	opened(&f, path);
	fixture_close(&f);
	assert_int_equal(truncate(path, (8 << 20) - 1), 0);
	refused(path, "", -EINVAL, "has 8388607 bytes, and size = 8388608 wants 8388608");
	assert_int_equal(truncate(path, 3), 0);
	refused(path, "", -EINVAL, "has 3 bytes");
	assert_int_equal(truncate(path, 16 << 20), 0);
	refused(path, "", -EINVAL, "has 16777216 bytes");
	unlink(path);
}

static void cut(void *peer, const char *why)
{
	assert_non_null(strstr(why, "cut off"));
	++*(unsigned int *)peer;
}

/* Somebody cuts the file off: the daemon goes on, ends the pool's clients, and leaves it alone. */
static void test_cut_off(void **state)
{
	unsigned int ended = 0;
	const struct pool_client client = {.name = "test", .cut = cut, .peer = &ended};
	const char *path = in_folder("cut"), *preloaded = getenv("LD_PRELOAD");
	struct fixture f;
	uint32_t slot;

	(void)state;
	/* valgrind goes on behind a signal with registers that are not those of the instruction */
	if (preloaded && strstr(preloaded, "vgpreload"))
		skip();
	opened(&f, path);
	log_init(&f.log, -1, LOG_LEVEL_ERROR);
	assert_int_equal(pool_client_add(f.pool, &client, &slot), 0);
	pool_cut_off_check(f.pool);
	assert_false(f.pool->cut_off);
	assert_int_equal(truncate(path, 1 << 20), 0);
	for (int i = 0; i < 200; i++)
		keeper_step(f.pool->keeper, 1000000000ull * (unsigned)(i + 1));
	assert_int_equal(self_load(f.pool, f.pool->geometry.pool_bytes - 8), 0);
	pool_cut_off_check(f.pool);
	assert_true(f.pool->cut_off);
	assert_int_equal(ended, 1);
	pool_cut_off_check(f.pool);
	assert_int_equal(ended, 1);
	fixture_close(&f);
	unlink(path);
}

/* A pool that can not be made: nothing is left of it. */
static int create_with(const char *lines)
{
	struct config_errors errors = {0};
	struct pool_memory_claims claims = {0};
	struct pool_memory memory;
	struct config *config;
	struct log log;
	char text[256];
	bool hugetlb;
	int rc;

	log_init(&log, STDERR_FILENO, LOG_LEVEL_ERROR);
	snprintf(text, sizeof(text), "[listen l]\npath = /l\n[pool main]\nfile = %s\n%s\n",
		 in_folder("big"), lines);
	assert_int_equal(config_parse("test", text, strlen(text), &errors, &config), 0);
	assert_int_equal(errors.count, 0);
	rc = pool_memory_create(&config->pools[0], -1, &log, NULL, &memory);
	assert_int_equal(pool_memory_check(&config->pools[0], &claims, &hugetlb), rc);
	assert_int_equal(access(in_folder("big.new"), F_OK), -1);
	assert_int_equal(access(in_folder("big"), F_OK), -1);
	config_free(config);
	return rc;
}

static void test_no_room(void **state)
{
	(void)state;
	assert_int_equal(create_with("size = 2T"), -ENOSPC);
	assert_non_null(strstr(err_text(), "MiB are free in its file system"));
	assert_int_equal(create_with("size = 8M\nhugepages = require"), -EINVAL);
	assert_non_null(strstr(err_text(), "its file system is not hugetlbfs"));
}

/* On a disk, what a crash of the host may have torn is refused; what was left in order is not. */
static void test_on_a_disk(void **state)
{
	char path[] = "/var/tmp/tarn-test-XXXXXX";
	struct layout_superblock superblock;
	struct fixture f;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	if (file_open(&f, path, "") < 0)
		fail_msg("%s", err_text());
	if (!f.pool->memory.durable) {
		fixture_close(&f);
		close(fd);
		unlink(path);
		skip();
	}
	f.pool->open = false; /* killed */
	fixture_close(&f);
	opened(&f, path); /* the host goes on: all is there */
	f.pool->open = false;
	fixture_close(&f);
	close(fd);
	fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &superblock, sizeof(superblock), 0), sizeof(superblock));
	assert_int_equal(superblock.clean_ms, 0);
	superblock.host_boot_id[0] ^= 1;
	assert_int_equal(pwrite(fd, &superblock, sizeof(superblock), 0), sizeof(superblock));
	assert_int_equal(file_open(&f, path, ""), -ESTALE);
	assert_non_null(strstr(err_text(), "may be older than others"));
	config_free(f.config);
	superblock.host_boot_id[0] ^= 1;
	assert_int_equal(pwrite(fd, &superblock, sizeof(superblock), 0), sizeof(superblock));
	opened(&f, path);
	fixture_close(&f); /* in order */
	assert_int_equal(pread(fd, &superblock, sizeof(superblock), 0), sizeof(superblock));
	assert_int_not_equal(superblock.clean_ms, 0);
	superblock.host_boot_id[0] ^= 1;
	assert_int_equal(pwrite(fd, &superblock, sizeof(superblock), 0), sizeof(superblock));
	opened(&f, path);
	fixture_close(&f);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made_and_opened_again),
		cmocka_unit_test(test_in_use),
		cmocka_unit_test(test_being_made),
		cmocka_unit_test(test_not_ours),
		cmocka_unit_test(test_other_sizes),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_on_a_disk),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
