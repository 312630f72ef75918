/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replay.c - --trace: the operations of a trace, one worker's share of them
 *
 * On the workers. All operations on a key are one worker's, so they come in the trace's order. Each
 * worker reads the whole trace, a chunk of its own lines at a time while nothing is timed; so memory
 * is bounded, and reading is no part of a latency. Next: step.c, which asks; trace.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "err.h"

#define CHUNK_LINES 4096u
#define CHUNK_BYTES (1u << 20) /* of keys */

struct replay {
	struct trace trace;
	uint32_t count, next;
	bool nothing; /* no line of the trace is this worker's */
	struct trace_line lines[CHUNK_LINES];
	char keys[CHUNK_BYTES];
};

void replay_free(struct replay *replay)
{
	if (!replay)
		return;
	trace_close(&replay->trace);
	free(replay);
}

int replay_create(struct worker *worker, struct replay **ret_replay)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	int ret;

	if (!replay)
		return bench_fail(worker->bench, -ENOMEM, "no memory for a trace");
	ret = trace_open(worker->bench->arguments, &replay->trace);
	if (ret < 0) {
		replay_free(replay);
		return bench_fail(worker->bench, ret, "%s", err_text());
	}
	*ret_replay = replay;
	return 0;
}

static bool is_own(const struct worker *worker, const struct trace_line *line)
{
	return XXH3_64bits(line->key, line->key_bytes) % worker->nworkers == worker->index;
}

/* The next chunk, from the beginning again after the end. */
static int fill(struct worker *worker)
{
	struct replay *r = worker->replay;
	uint32_t used = 0, before = 0;
	bool from_start = false;
	struct trace_line line;

	r->count = r->next = 0;
	while (!r->nothing && r->count < CHUNK_LINES && used + WORKLOAD_KEY_MAX <= CHUNK_BYTES) {
		int ret = trace_next(&r->trace, &line);

		if (ret < 0)
			return bench_fail(worker->bench, ret, "%s", err_text());
		if (ret == 0) {
			r->nothing = from_start && r->count == before;
			from_start = true;
			before = r->count;
			trace_rewind(&r->trace);
		} else if (is_own(worker, &line)) {
			memcpy(r->keys + used, line.key, line.key_bytes);
			line.key = r->keys + used;
			used += line.key_bytes;
			r->lines[r->count++] = line;
		}
	}
	return 0;
}

bool replay_is_empty(const struct worker *worker)
{
	return worker->replay->next == worker->replay->count;
}

int replay_fill(struct worker *worker)
{
	int ret = fill(worker);

	return ret < 0 ? ret : worker->replay->count > 0;
}

const struct trace_line *replay_next(struct worker *worker)
{
	return &worker->replay->lines[worker->replay->next++];
}

static int get(struct worker *worker, const struct trace_line *line)
{
	struct tarn_item item = TARN_ITEM_INIT;
	int ret = tarn_get(worker->session, line->key, line->key_bytes, worker->buffer,
			   worker->capacity, &item);

	if (ret == 0 && worker->verify && !trace_verify(line, worker->buffer, item.value_bytes))
		return bench_fail(worker->bench, -TARN_ECORRUPT,
				  "get: the key %.*s has a wrong value; if others have written it, "
				  "run with --no-verify",
				  (int)line->key_bytes, line->key);
	return ret;
}

static int put(struct worker *worker, const struct trace_line *line)
{
	trace_value(line, ++worker->writes, worker->value);
	return tarn_put(worker->session, line->key, line->key_bytes, worker->value,
			line->value_bytes, NULL, NULL);
}

int replay_do(struct worker *worker, const struct trace_line *line)
{
	int ret;

	if (line->op == WORKLOAD_GET)
		ret = get(worker, line);
	else if (line->op == WORKLOAD_PUT)
		ret = put(worker, line);
	else
		ret = tarn_delete(worker->session, line->key, line->key_bytes);
	if (ret == -TARN_ENOTFOUND) {
		worker->misses++;
		return 0;
	}
	/* What has been noted already stays noted. */
	return ret < 0 ? step_failed(worker, workload_op_names[line->op], ret) : 0;
}
