/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli/writer.h: the same calls as text and as JSON; JSON is one object whatever happens; write
 * errors are kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/writer.h"

struct fixture {
	int fd;
	struct output output;
	struct writer *writer;
	char text[200000];
};

static void begin(struct fixture *f, bool json)
{
	f->fd = memfd_create("output", MFD_CLOEXEC);
	assert_true(f->fd >= 0);
	output_init(&f->output, f->fd);
	assert_int_equal(writer_new(&f->output, json, &f->writer), 0);
}

/* Ends the document and returns what was written. */
static const char *end(struct fixture *f)
{
	ssize_t n;

	assert_int_equal(writer_finish(f->writer), 0);
	writer_free(f->writer);
	n = pread(f->fd, f->text, sizeof(f->text) - 1, 0);
	assert_true(n >= 0);
	f->text[n] = '\0';
	close(f->fd);
	return f->text;
}

static json_t *end_json(struct fixture *f)
{
	const char *text = end(f);
	json_t *document = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

	assert_non_null(document);
	assert_int_equal(json_integer_value(json_object_get(document, "schema")), 1);
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	return document;
}

static void fields(struct writer *writer)
{
	writer_field(writer, WRITER_TABLE, "value_bytes", writer_u64(2048));
	writer_field(writer, WRITER_TABLE, "elapsed_ns", writer_u64(1500));
	writer_field(writer, WRITER_TABLE, "kind", json_string("value"));
	writer_field(writer, WRITER_HIDDEN, "stamp", writer_u64(UINT64_MAX));
	writer_field(writer, WRITER_TABLE, "there", json_true());
}

/* Again and again: each document is whole on a line of its own, and none is empty. */
static void test_documents(void **state)
{
	struct fixture *f = *state;

	begin(f, true);
	writer_error(f->writer, -ENOENT, "ENOENT", "one");
	assert_int_equal(writer_end_document(f->writer), 0);
	writer_error(f->writer, -ENOENT, "ENOENT", "two");
	assert_int_equal(writer_end_document(f->writer), 0);
	writer_document(f->writer, json_pack("{s:i}", "n", 3));
	assert_int_equal(writer_end_document(f->writer), 0);
	assert_string_equal(end(f), "{\"schema\":1,\"error\":{\"code\":2,\"name\":\"ENOENT\",\"text\":\"one\"}}\n"
				    "{\"schema\":1,\"error\":{\"code\":2,\"name\":\"ENOENT\",\"text\":\"two\"}}\n"
				    "{\"schema\":1,\"n\":3}\n");
}

static void test_fields(void **state)
{
	struct fixture *f = *state;

	begin(f, false);
	fields(f->writer);
	assert_string_equal(end(f), "value   2 KiB\nelapsed 1.50 us\nkind    value\nthere   yes\n");
	begin(f, true);
	fields(f->writer);
	assert_string_equal(
		end(f), "{\"schema\":1,\"value_bytes\":2048,\"elapsed_ns\":1500,\"kind\":\"value\","
			"\"stamp\":\"18446744073709551615\",\"there\":true}\n");
}

/* A rate, and a point in time, which is that of the machine's time zone. */
static void test_quantities(void **state)
{
	struct fixture *f = *state;

	begin(f, false);
	setenv("TZ", "UTC", 1);
	writer_field(f->writer, WRITER_TABLE, "bytes_per_second", writer_u64(3 << 20));
	writer_field(f->writer, WRITER_TABLE, "created_ms", writer_u64(1000));
	assert_string_equal(end(f), "bytes per second 3 MiB/s\n"
				    "created          1970-01-01 00:00:01\n");
}

static void rows(struct writer *writer, enum writer_look look)
{
	writer_field(writer, WRITER_TABLE, "count", json_integer(2));
	writer_list_begin(writer, look, "things");
	writer_row(writer, json_pack("{s:s, s:s, s:i}", "name", "a", "name_base64",
				     "YQ==", "size_bytes", 1));
	writer_row(writer, json_pack("{s:s, s:s, s:n}", "name", "bcd", "name_base64", "YmNk",
				     "size_bytes"));
	writer_list_end(writer);
	writer_field(writer, WRITER_HIDDEN, "after", json_integer(3));
}

static void test_list(void **state)
{
	struct fixture *f = *state;

	begin(f, false);
	rows(f->writer, WRITER_TABLE);
	assert_string_equal(end(f), "count 2\n\nname size\na     1 B\nbcd     -\n");
	begin(f, false);
	rows(f->writer, WRITER_BARE);
	assert_string_equal(end(f), "       1 B  a\n         -  bcd\ncount 2\n");
	begin(f, true);
	rows(f->writer, WRITER_BARE);
	assert_string_equal(
		end(f),
		"{\"schema\":1,\"count\":2,\"things\":[{\"name\":\"a\",\"name_base64\":\"YQ==\","
		"\"size_bytes\":1},{\"name\":\"bcd\",\"name_base64\":\"YmNk\",\"size_bytes\":null}]"
		","
		"\"after\":3}\n");
}

/* A verb that fails in the middle of its list, and one that says two errors. */
static void test_error(void **state)
{
	struct fixture *f = *state;
	json_t *document;

	begin(f, true);
	writer_list_begin(f->writer, WRITER_BARE, "keys");
	writer_row(f->writer, json_pack("{s:i}", "n", 1));
	writer_error(f->writer, -1008, "TARN_ETIMEOUT", "too \xff slow");
	writer_error(f->writer, -1, "EPERM", "second");
	writer_list_end(f->writer);
	document = end_json(f);
	assert_int_equal(json_array_size(json_object_get(document, "keys")), 1);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(document, "error"), "code")),
		1008);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(document, "error"), "text")),
		"too \\xff slow");
	json_decref(document);
	begin(f, false);
	writer_error(f->writer, -1, "EPERM", "no");
	assert_string_equal(end(f), "");
}

static void test_bytes(void **state)
{
	static unsigned char bytes[100001];
	struct fixture *f = *state;
	json_t *document;

	begin(f, false);
	writer_bytes(f->writer, "value", "a\0\xff", 3);
	end(f);
	assert_memory_equal(f->text, "a\0\xff", 4);

	begin(f, true);
	writer_bytes(f->writer, "value", "a\0\"\\\n\xc3\xa9", 7);
	document = end_json(f);
	assert_string_equal(json_string_value(json_object_get(document, "value_base64")),
			    "YQAiXArDqQ==");
	json_decref(document);

	/* not UTF-8: no "value"; longer than the buffers in between */
	memset(bytes, 0xff, sizeof(bytes));
	begin(f, true);
	writer_bytes(f->writer, "value", bytes, sizeof(bytes));
	document = end_json(f);
	assert_null(json_object_get(document, "value"));
	assert_int_equal(json_string_length(json_object_get(document, "value_base64")),
			 (sizeof(bytes) + 2) / 3 * 4);
	json_decref(document);

	memset(bytes, 'x', sizeof(bytes));
	begin(f, true);
	writer_bytes(f->writer, "value", bytes, 60001);
	document = end_json(f);
	assert_int_equal(json_string_length(json_object_get(document, "value")), 60001);
	json_decref(document);
}

static void test_key(void **state)
{
	struct fixture *f = *state;

	begin(f, true);
	writer_key(f->writer, "a\0\\", 3);
	assert_string_equal(
		end(f), "{\"schema\":1,\"key\":\"a\\\\x00\\\\\\\\\",\"key_base64\":\"YQBc\"}\n");
}

/* What a daemon has said: values, nested values, tables; no member is lost or shown twice. */
static void test_document(void **state)
{
	static const char text[] =
		"{\"schema\": 7, \"uptime_ms\": 1500, \"name\\u001b\": \"\\u001b[2J\", \"memory\": "
		"{\"used_bytes\": "
		"\"9223372036854775808\"}, \"pools\": [{\"name\": \"main\", \"keys\": 3}], "
		"\"deep\": [{\"a\": 1, \"time_ns\": {\"p50\": 2000}, \"rows\": [{\"b\": 2}]}], "
		"\"empty\": []}";
	struct fixture *f = *state;
	json_t *document;

	begin(f, false);
	writer_document(f->writer, json_loads(text, 0, NULL));
	end(f);
	assert_non_null(strstr(f->text, "uptime      1.50 s\n"));
	assert_non_null(strstr(f->text, "memory used 8 EiB\n"));
	assert_non_null(strstr(f->text, "\n\nname keys\nmain    3\n"));
	assert_non_null(strstr(f->text, "\n\na        1\ntime p50 2 us\n\nb\n2\n"));
	assert_null(strchr(f->text, '\x1b'));
	assert_null(strstr(f->text, "schema"));
	begin(f, true);
	writer_document(f->writer, json_loads(text, 0, NULL));
	document = end_json(f);
	assert_int_equal(json_object_size(document), 7);
	json_decref(document);
}

static void test_write_error(void **state)
{
	struct fixture *f = *state;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	output_init(&f->output, fd);
	assert_int_equal(writer_new(&f->output, true, &f->writer), 0);
	writer_list_begin(f->writer, WRITER_BARE, "keys");
	for (int i = 0; i < 100000 && writer_failed(f->writer) == 0; i++)
		writer_row(f->writer, json_pack("{s:i}", "n", i));
	assert_int_equal(writer_failed(f->writer), -ENOSPC);
	assert_int_equal(writer_finish(f->writer), -ENOSPC);
	writer_free(f->writer);
	close(fd);
}

static void test_no_memory(void **state)
{
	struct fixture *f = *state;

	begin(f, true);
	writer_field(f->writer, WRITER_TABLE, "x", NULL);
	assert_int_equal(writer_finish(f->writer), -ENOMEM);
	writer_free(f->writer);
	close(f->fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_documents),      cmocka_unit_test(test_list),
		cmocka_unit_test(test_fields),      cmocka_unit_test(test_list),
		cmocka_unit_test(test_quantities),
		cmocka_unit_test(test_error),       cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_key),         cmocka_unit_test(test_document),
		cmocka_unit_test(test_write_error), cmocka_unit_test(test_no_memory),
	};
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	struct CMUnitTest with_fixture[sizeof(tests) / sizeof(tests[0])];
	int failed;

	memcpy(with_fixture, tests, sizeof(tests));
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		with_fixture[i].initial_state = fixture;
	failed = cmocka_run_group_tests(with_fixture, NULL, NULL);
	free(fixture);
	return failed;
}
