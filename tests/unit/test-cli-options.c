/* SPDX-License-Identifier: BSD-2-Clause */
/* cli/options.h: where options may stand, what is no option, and what is said of a wrong one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/options.h"

enum { URI, JSON };
enum { FILE_OPTION, ABSENT };

static const struct option_spec global[] = {
	[URI] = {"uri", 'u', "URI", ""},
	[JSON] = {"json", 0, NULL, ""},
	{0},
};
static const struct option_spec own[] = {
	[FILE_OPTION] = {"file", 'f', "FILE", ""},
	[ABSENT] = {"if-absent", 'a', NULL, ""},
	{0},
};

#define MAX_ARGUMENTS 12

static char *operands[MAX_ARGUMENTS];
static struct arguments args;

/* Parses the words of line. */
static int parse(const char *line, bool first_only, bool negative)
{
	static char copy[256];
	static char *argv[MAX_ARGUMENTS];
	int argc = 0;

	assert_true(strlen(line) < sizeof(copy));
	strcpy(copy, line);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	args = (struct arguments){
		.global.specs = global, .own.specs = first_only ? NULL : own, .operands = operands};
	return options_parse(&args, argc, argv, first_only, negative);
}

static void test_forms(void **state)
{
	static const char *const forms[] = {"k -f x", "-fx k",     "--file x k", "k --file=x",
					    "-afx k", "k -a -f x", "-f x -- k"};

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		assert_true(parse(forms[i], false, false) > 0);
		assert_string_equal(args.own.values[FILE_OPTION], "x");
		assert_int_equal(args.count, 1);
		assert_string_equal(operands[0], "k");
		assert_true((args.own.values[ABSENT] != NULL) == (strstr(forms[i], "-a") != NULL));
	}
	assert_true(parse("--file= k", false, false) > 0);
	assert_string_equal(args.own.values[FILE_OPTION], "");
	assert_true(parse("--json -u a k --uri b", false, false) > 0);
	assert_string_equal(args.global.values[URI], "b");
	assert_string_equal(args.global.values[JSON], "");
}

static void test_operands(void **state)
{
	(void)state;
	assert_true(parse("- a -- -f --json", false, false) > 0);
	assert_int_equal(args.count, 4);
	assert_string_equal(operands[2], "-f");
	assert_true(parse("k -5", false, true) > 0);
	assert_int_equal(args.count, 2);
	assert_int_equal(parse("k -5", false, false), -EINVAL);
	assert_int_equal(parse("-u x put --file y", true, false), 3);
	assert_string_equal(operands[0], "put");
	assert_int_equal(parse("-u x", true, false), 2);
	assert_int_equal(args.count, 0);
}

static void test_wrong(void **state)
{
	(void)state;
	assert_int_equal(parse("--fiel x", false, false), -EINVAL);
	assert_string_equal(args.problem_name, "--fiel");
	assert_string_equal(args.nearest, "file");
	assert_int_equal(parse("--jsno=1", false, false), -EINVAL);
	assert_string_equal(args.nearest, "json");
	assert_int_equal(parse("--nothing-like-it", false, false), -EINVAL);
	assert_null(args.nearest);
	assert_int_equal(parse("--json=1", false, false), -EINVAL);
	assert_int_equal(parse("k --file", false, false), -EINVAL);
	assert_int_equal(parse("k -f", false, false), -EINVAL);
	assert_int_equal(parse("-az", false, false), -EINVAL);
	assert_int_equal(args.problem_letter, 'z');
	assert_int_equal(parse("--file x", true, false), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
