/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * load.c - before and after: looks at the pool, loads the keys, deletes them again
 *
 * A session must not cross a fork(), so with several processes this runs in a child of its own,
 * which leaves what it found in struct shared. Next: run.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "err.h"

#define BAR_CELLS 40u
/* Keys between two looks at the clock for the progress bar. */
#define BAR_EVERY 4096u

struct load {
	struct bench *bench;
	struct tarn_session *session;
	uint64_t key_words[WORKLOAD_KEY_MAX / 8];
	uint8_t *value;
	const char *what; /* shown at the bar */
	bool bar;
	uint64_t start_ns, shown_ns;
};

static void bar_draw(struct load *load, uint64_t done, uint64_t total, bool last)
{
	static const char cells[] = "########################################";
	uint64_t now = clock_now_ns();
	unsigned int full;

	if (!load->bar || (!last && now - load->shown_ns < 100000000u))
		return;
	load->shown_ns = now;
	full = total ? (unsigned int)(done * BAR_CELLS / total) : BAR_CELLS;
	fprintf(stderr, "\r%s [%-*.*s] %llu of %llu, %.0f/s\033[K%s", load->what, (int)BAR_CELLS,
		(int)full, cells, (unsigned long long)done, (unsigned long long)total,
		(double)done * 1e9 / (double)(now - load->start_ns + 1), last ? "\n" : "");
}

static int failed(struct load *load, int code, uint64_t done)
{
	const char *remedy = "";

	if (code == -TARN_EPOOLFULL || code == -TARN_EINDEXFULL)
		remedy = "; or use fewer --keys";
	return bench_fail(load->bench, code, "%s, key %llu of %llu: %s%s", load->what,
			  (unsigned long long)done + 1,
			  (unsigned long long)(load->bench->arguments->trace
						       ? load->bench->arguments->trace_lines
						       : load->bench->arguments->workload.keys),
			  tarn_last_error_text(), remedy);
}

static int put_all(struct load *load)
{
	const struct workload *workload = &load->bench->arguments->workload;

	for (uint64_t i = 0; i < workload->keys; i++) {
		uint64_t id = workload_id(workload, WORKLOAD_LOADED, i);
		int ret;

		workload_key(id, (uint8_t *)load->key_words);
		workload_value(workload, id, 0, load->value);
		ret = tarn_put(load->session, load->key_words, workload->key_size, load->value,
			       workload_value_bytes(workload, id), NULL, NULL);
		if (ret < 0)
			return failed(load, ret, i);
		if (i % BAR_EVERY == 0)
			bar_draw(load, i, workload->keys, false);
	}
	bar_draw(load, workload->keys, workload->keys, true);
	return 0;
}

static int delete_all(struct load *load, enum workload_space space)
{
	const struct workload *workload = &load->bench->arguments->workload;

	for (uint64_t i = 0; i < workload->keys; i++) {
		int ret;

		workload_key(workload_id(workload, space, i), (uint8_t *)load->key_words);
		ret = tarn_delete(load->session, load->key_words, workload->key_size);
		if (ret < 0 && ret != -TARN_ENOTFOUND)
			return failed(load, ret, i);
		if (i % BAR_EVERY == 0)
			bar_draw(load, i, workload->keys, false);
	}
	bar_draw(load, workload->keys, workload->keys, true);
	return 0;
}

/* Every key of the trace, as often as it is there. */
static int trace_all(struct load *load, bool put)
{
	const struct arguments *arguments = load->bench->arguments;
	struct trace_line line;
	struct trace trace;
	int ret = trace_open(arguments, &trace);

	for (uint64_t i = 0; ret == 0 && (ret = trace_next(&trace, &line)) > 0; i++) {
		if (put) {
			trace_value(&line, 0, load->value);
			ret = tarn_put(load->session, line.key, line.key_bytes, load->value,
				       line.value_bytes, NULL, NULL);
		} else {
			ret = tarn_delete(load->session, line.key, line.key_bytes);
		}
		if (ret < 0 && ret != -TARN_ENOTFOUND) {
			trace_close(&trace);
			return failed(load, ret, i);
		}
		ret = 0;
		if (i % BAR_EVERY == 0)
			bar_draw(load, i, arguments->trace_lines, false);
	}
	trace_close(&trace);
	if (ret < 0)
		return bench_fail(load->bench, ret, "%s", err_text());
	bar_draw(load, arguments->trace_lines, arguments->trace_lines, true);
	return 0;
}

/* Touches the mapping here and there, so that the kernel can tell what pages it is made of. */
static int touch(struct load *load)
{
	const struct workload *workload = &load->bench->arguments->workload;
	uint64_t keys = workload->keys < 4096 ? workload->keys : 4096, found = 0;

	for (uint64_t i = 0; i < keys; i++) {
		int ret;

		workload_key(workload_id(workload, WORKLOAD_LOADED, i), (uint8_t *)load->key_words);
		ret = tarn_exists(load->session, load->key_words, workload->key_size, NULL);
		if (ret < 0 && ret != -TARN_ENOTFOUND)
			return failed(load, ret, i);
		found += ret == 0;
	}
	if (found == 0)
		return bench_fail(
			load->bench, -TARN_ENOTFOUND,
			"none of the first %llu keys is in the pool: run with --load first",
			(unsigned long long)keys);
	return 0;
}

static int load_open(struct bench *bench, const char *what, struct load *ret_load)
{
	struct load load = {.bench = bench, .what = what, .bar = isatty(STDERR_FILENO) == 1};
	int ret;

	load.value = calloc(1, bench->arguments->value_most + 16u);
	if (!load.value)
		return bench_fail(bench, -ENOMEM, "no memory for a value");
	memset(load.value, 'v', bench->arguments->value_most);
	workload_key_prepare((uint8_t *)load.key_words);
	ret = bench_session_open(bench, &load.session);
	if (ret < 0) {
		free(load.value);
		return ret;
	}
	load.start_ns = clock_now_ns();
	*ret_load = load;
	return 0;
}

static void load_close(struct load *load)
{
	tarn_session_close(load->session);
	free(load->value);
}

static int load_here(struct bench *bench)
{
	struct shared *shared = bench->shared;
	struct load load;
	int ret = load_open(bench, "loading", &load);

	if (ret < 0)
		return ret;
	shared->pool.size = sizeof(shared->pool);
	ret = tarn_session_get_pool_info(load.session, &shared->pool);
	if (ret < 0)
		bench_fail(bench, ret, "%s", tarn_last_error_text());
	else if (bench->arguments->load)
		ret = bench->arguments->trace ? trace_all(&load, true) : put_all(&load);
	else if (bench->arguments->trace)
		ret = 0; /* which of its keys should be there nobody knows */
	else if (bench->arguments->nmixes || bench->arguments->ceiling_raw)
		ret = touch(&load);
	if (ret == 0)
		shared->pool_page_bytes = machine_page_bytes(NULL, shared->pool.pool_bytes);
	load_close(&load);
	return ret;
}

static int clean_here(struct bench *bench)
{
	bool counters = false;
	struct load load;
	int ret = load_open(bench, "deleting", &load);

	if (ret < 0)
		return ret;
	for (uint32_t i = 0; i < bench->arguments->nmixes; i++)
		counters |= bench->arguments->mixes[i].weights[WORKLOAD_ADD] > 0;
	ret = bench->arguments->trace ? trace_all(&load, false)
				      : delete_all(&load, WORKLOAD_LOADED);
	if (ret == 0 && counters)
		ret = delete_all(&load, WORKLOAD_COUNTER);
	load_close(&load);
	return ret;
}

/* In a child when there will be children: their parent must have no session, no housekeeping thread
 * and no mapping. */
static int in_child(struct bench *bench, int (*work)(struct bench *bench))
{
	int status = 0;
	pid_t pid;

	if (bench->arguments->processes == 1)
		return work(bench);
	pid = fork();
	if (pid < 0)
		return bench_fail(bench, -errno, "cannot start a process: %s", strerror(errno));
	if (pid == 0) {
		work(bench);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return bench_fail(bench, -ECHILD, "the loading process died (status %d)", status);
	return atomic_load(&bench->shared->failed);
}

int load_run(struct bench *bench)
{
	return in_child(bench, load_here);
}

int load_clean(struct bench *bench)
{
	return in_child(bench, clean_here);
}
