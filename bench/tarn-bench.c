/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tarn-bench.c - main(): the order of things
 *
 * Arguments (options.c), load, build the private table, run the workers, report. Next: bench.h, which
 * says how a run is made up.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include "bench.h"
#include "err.h"

/* ---- for all files --------------------------------------------------------------------------- */

int bench_fail(struct bench *bench, int code, const char *format, ...)
{
	struct shared *shared = bench->shared;
	int none = 0;
	va_list list;

	/* Only the first one: the others fail because of it. */
	if (!atomic_compare_exchange_strong(&shared->failed, &none, code))
		return code;
	va_start(list, format);
	vsnprintf(shared->error, sizeof(shared->error), format, list);
	va_end(list);
	return code;
}

int bench_session_open(struct bench *bench, struct tarn_session **ret_session)
{
	const struct arguments *arguments = bench->arguments;
	struct tarn_options session = TARN_OPTIONS_INIT;
	int ret;

	session.flags = arguments->no_cache ? TARN_NO_CACHE : 0;
	session.cache_bytes = arguments->cache_bytes;
	ret = tarn_session_open(arguments->uri, &session, ret_session);
	if (ret < 0)
		return bench_fail(bench, ret, "%s", tarn_last_error_text());
	return 0;
}

/* ---- the order of things --------------------------------------------------------------------- */

static int shared_create(const struct arguments *arguments, struct shared **ret_shared)
{
	uint32_t workers = arguments->threads * arguments->processes;
	size_t bytes = sizeof(struct shared) +
		       (size_t)arguments->rounds * workers * TALLIES * sizeof(struct tally);
	struct shared *shared;

	/* Pages that nobody touches cost nothing: no worker does all kinds of operations. */
	shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED)
		return err_set(-ENOMEM, "no memory for the results of %u workers", workers);
	shared->nworkers = workers;
	shared->rounds = arguments->rounds;
	*ret_shared = shared;
	return 0;
}

static int measure(struct bench *bench)
{
	int ret = load_run(bench);

	if (ret == 0 && bench->arguments->ceiling_table) {
		ret = table_create(&bench->arguments->workload, bench->shared->pool_page_bytes,
				   &bench->table);
		if (ret < 0)
			bench_fail(bench, ret, "%s", err_text());
		bench->shared->table_page_bytes = bench->table.page_bytes;
	}
	if (ret == 0)
		ret = run_workers(bench);
	if (ret == 0 && bench->arguments->clean)
		ret = load_clean(bench);
	table_free(&bench->table);
	return ret;
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	struct bench bench = {.arguments = &arguments};
	struct machine machine;
	int ret = arguments_parse(argc, argv, &arguments);

	if (ret >= 0)
		return ret;
	ret = shared_create(&arguments, &bench.shared);
	if (ret < 0) {
		fprintf(stderr, "tarn-bench: %s\n", err_text());
		return BENCH_FAILED;
	}
	/* Before any fork(): calibrates the clock, which the children inherit. */
	machine_look(&machine);
	ret = measure(&bench);
	if (ret < 0 || bench_failed(&bench)) {
		fprintf(stderr, "tarn-bench: %s\n", bench.shared->error);
		return ret == -TARN_EUNREACHABLE ? BENCH_UNREACHABLE : BENCH_FAILED;
	}
	return (int)report_print(&bench, &machine);
}
