/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trace.c - reads a trace: a line for each operation, `op,key` or `op,key,size`
 *
 * Line by line, so that a trace may be larger than memory. In main() once before anything else, for
 * whatever is wrong with it; then in load.c, and on each worker with a reader of its own. It must
 * not do any operation. Next: replay.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "err.h"

int trace_open(const struct arguments *arguments, struct trace *ret_trace)
{
	FILE *file = fopen(arguments->trace, "re");

	if (!file)
		return err_set(-errno, "--trace=%s: cannot be read: %s; give the name of a file",
			       arguments->trace, strerror(errno));
	*ret_trace = (struct trace){
		.file = file,
		.path = arguments->trace,
		.value_bytes = arguments->workload.value_size,
	};
	return 0;
}

void trace_close(struct trace *trace)
{
	if (trace->file)
		fclose(trace->file);
	trace->file = NULL;
}

void trace_rewind(struct trace *trace)
{
	rewind(trace->file);
	trace->number = 0;
}

static int bad_line(const struct trace *trace, const char *what)
{
	return err_set(-EINVAL,
		       "%s:%llu: %s; a line is OP,KEY or OP,KEY,SIZE, with get, put or delete, a "
		       "key of 1 to %u bytes and a size of 0 to %u",
		       trace->path, (unsigned long long)trace->number, what, WORKLOAD_KEY_MAX,
		       WORKLOAD_VALUE_MAX);
}

static int parse_size(const struct trace *trace, const char *text, uint32_t *ret_bytes)
{
	unsigned long bytes;
	char *end;

	errno = 0;
	bytes = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || bytes > WORKLOAD_VALUE_MAX)
		return bad_line(trace, "wrong size");
	*ret_bytes = (uint32_t)bytes;
	return 0;
}

static int parse_line(const struct trace *trace, char *text, struct trace_line *ret_line)
{
	static const enum workload_op ops[] = {WORKLOAD_GET, WORKLOAD_PUT, WORKLOAD_DELETE};
	struct trace_line line = {.op = WORKLOAD_OPS, .value_bytes = trace->value_bytes};
	char *key = strchr(text, ','), *size;

	if (!key)
		return bad_line(trace, "no key");
	*key++ = 0;
	size = strchr(key, ',');
	if (size)
		*size++ = 0;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strcmp(text, workload_op_names[ops[i]]) == 0)
			line.op = ops[i];
	}
	if (line.op == WORKLOAD_OPS)
		return bad_line(trace, "unknown operation");
	line.key = key;
	line.key_bytes = (uint32_t)strlen(key);
	if (line.key_bytes < 1 || line.key_bytes > WORKLOAD_KEY_MAX)
		return bad_line(trace, line.key_bytes ? "key too long" : "empty key");
	if (size && parse_size(trace, size, &line.value_bytes) < 0)
		return -EINVAL;
	*ret_line = line;
	return 1;
}

int trace_next(struct trace *trace, struct trace_line *ret_line)
{
	size_t length;

	do {
		if (!fgets(trace->text, sizeof(trace->text), trace->file)) {
			if (ferror(trace->file))
				return err_set(-EIO, "%s: cannot be read: %s", trace->path,
					       strerror(errno));
			return 0;
		}
		trace->number++;
		length = strlen(trace->text);
		if (length + 1 == sizeof(trace->text) && trace->text[length - 1] != '\n')
			return bad_line(trace, "line too long");
		length = strcspn(trace->text, "\r\n");
		trace->text[length] = 0;
	} while (length == 0 || trace->text[0] == '#');
	return parse_line(trace, trace->text, ret_line);
}

void trace_value(const struct trace_line *line, uint64_t write, uint8_t *ret_value)
{
	uint64_t word = workload_check_word(XXH3_64bits(line->key, line->key_bytes));

	memcpy(ret_value, &word, line->value_bytes < 8 ? line->value_bytes : 8);
	if (line->value_bytes >= 16)
		memcpy(ret_value + 8, &write, 8);
}

bool trace_verify(const struct trace_line *line, const uint8_t *value, uint64_t value_bytes)
{
	uint64_t word = workload_check_word(XXH3_64bits(line->key, line->key_bytes));

	return memcmp(value, &word, value_bytes < 8 ? value_bytes : 8) == 0;
}

int trace_check(struct arguments *arguments)
{
	struct workload_mix mix = {.replays = true, .only = -1};
	struct trace_line line;
	struct trace trace;
	int ret = trace_open(arguments, &trace);

	if (ret < 0)
		return ret;
	while ((ret = trace_next(&trace, &line)) > 0) {
		arguments->trace_lines++;
		mix.weights[line.op] = 1;
		if (line.value_bytes > arguments->value_most)
			arguments->value_most = line.value_bytes;
	}
	trace_close(&trace);
	if (ret < 0)
		return ret;
	if (arguments->trace_lines == 0)
		return err_set(-EINVAL, "--trace=%s: has no line, and must have one at least",
			       arguments->trace);
	for (int op = 0; op < WORKLOAD_OPS; op++)
		mix.total += mix.weights[op];
	for (int op = 0; op < WORKLOAD_OPS; op++) {
		if (mix.weights[op] == mix.total)
			mix.only = op;
	}
	arguments->mix_texts[0] = arguments->trace;
	arguments->mixes[0] = mix;
	arguments->nmixes = 1;
	return 0;
}
