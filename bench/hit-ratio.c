/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hit-ratio.c - how good a cache pool's choice of victims is: its hit ratio beside that of exact LRU
 *
 * One session asks for keys drawn by Zipf and puts what is missing, after the time that its source takes
 * (--miss-us): memory that was evicted rests before it is used again (T2), and a pool whose whole memory
 * is written anew within a second has most of it resting. The same draws go to an exact LRU of
 * as many keys as are a tenth (--share) of all, and to one of as many as the pool held at the end. The
 * first half of the draws warms up. bench/pool-life starts a daemon for it. Next: workload.c for the draws,
 * daemon/evict.c for the choice.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tarn/tarn.h>

#include "clock.h"
#include "err.h"
#include "workload.h"

#define DRAWS_OF_A_PICKER (1u << 20)

/* ---- exact LRU: a list through arrays, by key number; `keys` is its head ---- */

struct lru {
	uint32_t *next, *previous;
	uint8_t *there;
	uint32_t head, count, capacity;
	uint64_t hits;
};

static void lru_unlink(struct lru *lru, uint32_t key)
{
	lru->next[lru->previous[key]] = lru->next[key];
	lru->previous[lru->next[key]] = lru->previous[key];
}

static void lru_first(struct lru *lru, uint32_t key)
{
	lru->next[key] = lru->next[lru->head];
	lru->previous[key] = lru->head;
	lru->previous[lru->next[key]] = key;
	lru->next[lru->head] = key;
}

static int lru_create(struct lru *lru, uint32_t keys, uint32_t capacity)
{
	lru->next = calloc(keys + 1ull, sizeof(*lru->next));
	lru->previous = calloc(keys + 1ull, sizeof(*lru->previous));
	lru->there = calloc(keys, 1);
	lru->head = keys;
	lru->capacity = capacity ? capacity : 1;
	lru->count = 0;
	lru->hits = 0;
	if (!lru->next || !lru->previous || !lru->there)
		return err_set(-ENOMEM, "out of memory");
	lru->next[keys] = lru->previous[keys] = keys;
	return 0;
}

static void lru_free(struct lru *lru)
{
	free(lru->next);
	free(lru->previous);
	free(lru->there);
}

static void lru_get(struct lru *lru, uint32_t key, bool counts)
{
	if (lru->there[key]) {
		lru->hits += counts;
		lru_unlink(lru, key);
	} else if (lru->count == lru->capacity) {
		uint32_t last = lru->previous[lru->head];

		lru_unlink(lru, last);
		lru->there[last] = 0;
	} else {
		lru->count++;
	}
	lru->there[key] = 1;
	lru_first(lru, key);
}

/* ---- the run ---- */

struct run {
	const char *uri;
	struct workload workload;
	uint64_t draws, miss_us;
	double share;
	bool verify;
	struct tarn_session *session;
	struct workload_picker picker;
	uint64_t key_words[WORKLOAD_KEY_MAX / 8];
	uint8_t *value, *buffer;
	uint64_t gets, hits, wrong, slowest_put_ns, get_ns, get_hits;
};

static int fail(const char *what)
{
	fprintf(stderr, "hit-ratio: %s: %s\n", what, err_text());
	return 1;
}

/* The picker repeats itself: a new one each million. *ret_key: the i-th draw. */
static int draw(struct run *run, uint64_t i, uint32_t *ret_key)
{
	if (i % DRAWS_OF_A_PICKER == 0) {
		workload_picker_free(&run->picker);
		if (workload_picker_init(&run->workload, 1 + i / DRAWS_OF_A_PICKER, &run->picker) <
		    0)
			return -ENOMEM;
	}
	*ret_key = (uint32_t)workload_pick(&run->picker);
	return 0;
}

/* Get, and put what was missing. */
static int ask(struct run *run, uint32_t index, bool counts)
{
	uint64_t id = workload_id(&run->workload, WORKLOAD_LOADED, index), began, now;
	int ret;

	workload_key(id, (uint8_t *)run->key_words);
	began = clock_now_ns();
	ret = tarn_get(run->session, run->key_words, run->workload.key_size, run->buffer,
		       run->workload.value_size, NULL);
	now = clock_now_ns();
	run->gets += counts;
	if (ret == 0) {
		run->hits += counts;
		if (counts) {
			run->get_ns += now - began;
			run->get_hits++;
		}
		run->wrong += run->verify && !workload_verify(&run->workload, id, run->buffer);
		return 0;
	}
	if (ret != -TARN_ENOTFOUND)
		return ret;
	clock_sleep_ns(run->miss_us * 1000);
	workload_value(&run->workload, id, 0, run->value);
	began = clock_now_ns();
	ret = tarn_put(run->session, run->key_words, run->workload.key_size, run->value,
		       run->workload.value_size, NULL, NULL);
	now = clock_now_ns();
	if (now - began > run->slowest_put_ns)
		run->slowest_put_ns = now - began;
	return ret;
}

static uint64_t present(struct run *run)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < run->workload.keys; i++) {
		workload_key(workload_id(&run->workload, WORKLOAD_LOADED, i),
			     (uint8_t *)run->key_words);
		count += tarn_exists(run->session, run->key_words, run->workload.key_size, NULL) ==
			 0;
	}
	return count;
}

/* The draws once more, for an LRU of this size. */
static int lru_run(struct run *run, uint64_t capacity, double *ret_ratio)
{
	struct lru lru;
	int ret = lru_create(&lru, (uint32_t)run->workload.keys, (uint32_t)capacity);
	uint32_t key;

	for (uint64_t i = 0; ret == 0 && i < run->draws; i++) {
		ret = draw(run, i, &key);
		if (ret == 0)
			lru_get(&lru, key, i >= run->draws / 2);
	}
	*ret_ratio = (double)lru.hits / (double)run->gets;
	lru_free(&lru);
	return ret;
}

static int run_all(struct run *run)
{
	uint64_t capacity = (uint64_t)((double)run->workload.keys * run->share), held;
	double share_ratio, held_ratio, ratio;
	uint64_t began = clock_now_ns();
	uint32_t key;

	for (uint64_t i = 0; i < run->draws; i++)
		if (draw(run, i, &key) < 0 || ask(run, key, i >= run->draws / 2) < 0)
			return fail("draw");
	began = clock_now_ns() - began;
	held = present(run);
	if (lru_run(run, capacity, &share_ratio) < 0 || lru_run(run, held, &held_ratio) < 0)
		return fail("lru");
	ratio = (double)run->hits / (double)run->gets;
	printf("{\"keys\": %llu, \"value_bytes\": %u, \"draws\": %llu, \"seconds\": %.1f, "
	       "\"hit_ratio\": %.4f, \"lru_keys\": %llu, \"lru_hit_ratio\": %.4f, "
	       "\"held_keys\": %llu, \"lru_hit_ratio_of_held\": %.4f, \"points_behind_lru\": %.2f, "
	       "\"get_hit_ns\": %.0f, \"slowest_put_ms\": %.1f, \"wrong\": %llu}\n",
	       (unsigned long long)run->workload.keys, run->workload.value_size,
	       (unsigned long long)run->draws, (double)began / 1e9, ratio,
	       (unsigned long long)capacity, share_ratio, (unsigned long long)held, held_ratio,
	       100 * (share_ratio - ratio),
	       (double)run->get_ns / (double)(run->get_hits ? run->get_hits : 1),
	       (double)run->slowest_put_ns / 1e6, (unsigned long long)run->wrong);
	return run->wrong ? 1 : 0;
}

static const struct option options[] = {{"keys", required_argument, NULL, 'k'},
					{"value-size", required_argument, NULL, 'v'},
					{"draws", required_argument, NULL, 'n'},
					{"miss-us", required_argument, NULL, 'm'},
					{"share", required_argument, NULL, 's'},
					{"theta", required_argument, NULL, 't'},
					{0}};

static int arguments(struct run *run, int argc, char **argv)
{
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'k')
			run->workload.keys = strtoull(optarg, NULL, 10);
		else if (option == 'v')
			run->workload.value_size = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'n')
			run->draws = strtoull(optarg, NULL, 10);
		else if (option == 'm')
			run->miss_us = strtoull(optarg, NULL, 10);
		else if (option == 's')
			run->share = strtod(optarg, NULL);
		else if (option == 't')
			run->workload.theta = strtod(optarg, NULL);
		else
			return -EINVAL;
	}
	if (optind + 1 != argc || run->draws < 2 || run->share <= 0)
		return -EINVAL;
	run->uri = argv[optind];
	return workload_init(&run->workload);
}

int main(int argc, char **argv)
{
	struct run run = {
		.draws = 1000000,
		.miss_us = 100,
		.share = 0.1,
		.verify = true,
		.workload = {.keys = 100000, .key_size = 16, .value_size = 1000, .theta = 0.99}};
	int ret;

	if (arguments(&run, argc, argv) < 0) {
		fprintf(stderr, "usage: hit-ratio URI [--keys=N] [--value-size=N] "
				"[--draws=N] [--miss-us=100] [--share=0.1] [--theta=0.99]\n");
		return 2;
	}
	run.value = calloc(1, run.workload.value_size + 16u);
	run.buffer = calloc(1, run.workload.value_size + 16u);
	workload_key_prepare((uint8_t *)run.key_words);
	if (!run.value || !run.buffer)
		return fail("memory");
	if (tarn_session_open(run.uri, NULL, &run.session) < 0)
		return fail(run.uri);
	ret = run_all(&run);
	tarn_session_close(run.session);
	workload_picker_free(&run.picker);
	free(run.value);
	free(run.buffer);
	return ret;
}
