/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli/place.h: names that are refused, and a tree with links out of it that nothing gets through.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/place.h"

struct fixture {
	char path[64];
	int top, root; /* TOP/root is where files go; TOP/outside must stay as it is */
};

static int setup(void **state)
{
	static struct fixture f;
	int fd;

	strcpy(f.path, "/tmp/tarn-place.XXXXXX");
	if (mkdtemp(f.path) == NULL)
		return -1;
	f.top = open(f.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	mkdirat(f.top, "root", 0755);
	mkdirat(f.top, "outside", 0755);
	f.root = openat(f.top, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = openat(f.top, "outside/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || f.root < 0 || write(fd, "untouched", 9) != 9)
		return -1;
	close(fd);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	close(f->root);
	close(f->top);
	snprintf(command, sizeof(command), "rm -rf %s", f->path);
	return system(command);
}

static int place(struct fixture *f, const char *path, const char *value, mode_t mode)
{
	const char *why = NULL;
	int status;

	assert_null(place_refusal(path, strlen(path)));
	status = place_write(f->root, path, strlen(path), value, strlen(value), mode, &why);
	assert_true(status == 0 || why != NULL);
	return status;
}

static void check_content(int directory, const char *path, const char *expected)
{
	char text[64] = "";
	int fd = openat(directory, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) >= 0);
	assert_string_equal(text, expected);
	close(fd);
}

static void test_refusal(void **state)
{
	static const char *const wrong[] = {"",     "/",    "/etc/passwd", ".",   "..",
					    "../x", "a/..", "a/../b",      "a/.", "./a",
					    "a//b", "a/",   "//"};
	static const char *const right[] = {"a",   "a/b", "...",       "a/...", "..a", ".a",
					    "a b", "\n",  "\xff/\xfe", "-",     "a\\b"};
	char name[NAME_MAX + 2];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_non_null(place_refusal(wrong[i], strlen(wrong[i])));
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		assert_null(place_refusal(right[i], strlen(right[i])));
	assert_non_null(place_refusal("a\0b", 3));
	assert_non_null(place_refusal("a\0", 2));
	memset(name, 'n', sizeof(name));
	assert_null(place_refusal(name, NAME_MAX));
	assert_non_null(place_refusal(name, NAME_MAX + 1));
}

static void test_write(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	assert_int_equal(place(f, "a/b/c", "one", 0), 0);
	check_content(f->root, "a/b/c", "one");
	assert_int_equal(place(f, "a/b/c", "two", 0751), 0);
	check_content(f->root, "a/b/c", "two");
	assert_int_equal(fstatat(f->root, "a/b/c", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode & 07777, 0751);
	assert_int_equal(place(f, "empty", "", 0), 0);
	check_content(f->root, "empty", "");
}

static void test_conflicts(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(place(f, "file", "x", 0), 0);
	assert_int_equal(place(f, "file/below", "y", 0), -ENOTDIR);
	assert_int_equal(place(f, "dir/below", "y", 0), 0);
	assert_int_equal(place(f, "dir", "z", 0), -EISDIR);
	check_content(f->root, "file", "x");
}

static void test_links(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(symlinkat("../outside", f->root, "out"), 0);
	assert_int_equal(symlinkat("../outside/file", f->root, "link"), 0);
	assert_int_equal(symlinkat("a", f->root, "inside"), 0);
	assert_true(place(f, "out/file", "bad", 0) < 0);
	assert_true(place(f, "out/new", "bad", 0) < 0);
	assert_true(place(f, "inside/new", "bad", 0) < 0);
	/* A link as the file itself is replaced, not followed. */
	assert_int_equal(place(f, "link", "good", 0), 0);
	check_content(f->root, "link", "good");
	check_content(f->top, "outside/file", "untouched");
	assert_int_equal(faccessat(f->top, "outside/new", F_OK, 0), -1);
}

/* Longer than PATH_MAX as a whole, since it is never used as a whole. */
static void test_deep(void **state)
{
	struct fixture *f = *state;
	char path[6000];
	size_t n = 0;

	while (n < 5000)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "component-of-a-deep-path-%zu/",
				      n);
	strcpy(path + n, "file");
	assert_int_equal(place(f, path, "deep", 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusal),   cmocka_unit_test(test_write),
		cmocka_unit_test(test_conflicts), cmocka_unit_test(test_links),
		cmocka_unit_test(test_deep),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
