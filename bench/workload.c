/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * workload.c - the parts of a workload that are not on the hot path: checks, mixes, zipf
 *
 * Used by tarn-bench and by the peers alike (peer.c), so that all pay the same for keys and values.
 * Next: run.c.
 */
#include "workload.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "err.h"

#define ZIPF_DRAWS  (1u << 20)
#define SIZES_THETA 0.99 /* as of keys */

const char *const workload_op_names[WORKLOAD_OPS] = {
	[WORKLOAD_GET] = "get",       [WORKLOAD_PUT] = "put", [WORKLOAD_INSERT] = "insert",
	[WORKLOAD_DELETE] = "delete", [WORKLOAD_ADD] = "add", [WORKLOAD_EXISTS] = "exists",
	[WORKLOAD_SCAN] = "scan",     [WORKLOAD_RMW] = "rmw",
};

/*
 * Zipf by the method of Gray et al., "Quickly Generating Billion-Record Synthetic Databases",
 * SIGMOD 1994, as YCSB uses it. One draw takes a pow(), so draws are made beforehand, and an
 * operation only reads the next one. Ranks are scattered over the items: what is hot does not lie
 * side by side because it was loaded first.
 */
struct zipf {
	double theta, alpha, zetan, eta, second;
	uint64_t keys;
};

static void zipf_init(struct zipf *zipf, uint64_t keys, double theta)
{
	double zeta2 = 1 + pow(0.5, theta), zetan = 0;

	for (uint64_t i = 1; i <= keys; i++)
		zetan += pow(1.0 / (double)i, theta);
	*zipf = (struct zipf){
		.theta = theta,
		.alpha = 1 / (1 - theta),
		.zetan = zetan,
		.eta = (1 - pow(2.0 / (double)keys, 1 - theta)) / (1 - zeta2 / zetan),
		.second = zeta2,
		.keys = keys,
	};
}

static uint64_t zipf_rank(const struct zipf *zipf, uint64_t random)
{
	double u = (double)(random >> 11) * 0x1p-53, uz = u * zipf->zetan;
	uint64_t rank;

	if (uz < 1)
		return 0;
	if (uz < zipf->second)
		return 1 % zipf->keys;
	rank = (uint64_t)((double)zipf->keys * pow(zipf->eta * u - zipf->eta + 1, zipf->alpha));
	return rank < zipf->keys ? rank : zipf->keys - 1;
}

/* Sizes at equal distances of probability, the smallest and the largest among them. */
static void sizes_init(struct workload *workload)
{
	uint32_t smallest = workload->value_size - workload->value_spread;
	struct zipf zipf;

	zipf_init(&zipf, workload->value_spread + 1ull, SIZES_THETA);
	for (uint64_t i = 0; i < WORKLOAD_SIZES; i++)
		workload->value_sizes[i] =
			smallest +
			(uint32_t)zipf_rank(&zipf, UINT64_MAX / (WORKLOAD_SIZES - 1) * i);
}

uint32_t workload_value_mean(const struct workload *workload)
{
	uint64_t sum = 0;

	if (!workload->value_zipf)
		return workload->value_size - workload->value_spread / 2;
	for (uint32_t i = 0; i < WORKLOAD_SIZES; i++)
		sum += workload->value_sizes[i];
	return (uint32_t)(sum / WORKLOAD_SIZES);
}

int workload_init(struct workload *workload)
{
	unsigned int bits;

	if (workload->key_size < WORKLOAD_KEY_MIN || workload->key_size > WORKLOAD_KEY_MAX)
		return err_set(-EINVAL, "key size %u: must be %u to %u", workload->key_size,
			       WORKLOAD_KEY_MIN, WORKLOAD_KEY_MAX);
	if (workload->value_size > WORKLOAD_VALUE_MAX)
		return err_set(-EINVAL, "value size %u: must be at most %u", workload->value_size,
			       WORKLOAD_VALUE_MAX);
	if (workload->value_zipf)
		sizes_init(workload);
	bits = workload->key_size < 16 ? workload->key_size * 4 : 64;
	workload->space_shift = bits - 2;
	workload->id_mask = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
	if (workload->keys < 1 || workload->keys > UINT32_MAX ||
	    workload->keys > 1ull << workload->space_shift)
		return err_set(-EINVAL,
			       "%llu keys: must be 1 to 2^32 - 1, and fit into keys of %u digits",
			       (unsigned long long)workload->keys, workload->key_size);
	return 0;
}

static int mix_add(struct workload_mix *mix, const char *name, size_t length, const char *weight)
{
	unsigned long value = 1;
	char *end;

	if (weight) {
		value = strtoul(weight, &end, 10);
		if (end == weight || (*end && *end != ',') || value > 1000000)
			return err_set(-EINVAL, "mix: '%.16s' is no weight (0 to 1000000)", weight);
	}
	for (int op = 0; op < WORKLOAD_OPS; op++) {
		if (strlen(workload_op_names[op]) != length ||
		    strncmp(workload_op_names[op], name, length) != 0)
			continue;
		mix->weights[op] += (uint32_t)value;
		mix->total += (uint32_t)value;
		return 0;
	}
	return err_set(-EINVAL,
		       "mix: no operation '%.*s': get, put, insert, delete, add, exists, "
		       "scan, rmw",
		       (int)length, name);
}

int workload_mix_parse(const char *text, struct workload_mix *ret_mix)
{
	struct workload_mix mix = {.only = -1};
	const char *at = text;

	for (;;) {
		size_t item = strcspn(at, ","), name = strcspn(at, "=,");
		int ret = mix_add(&mix, at, name, name < item ? at + name + 1 : NULL);

		if (ret < 0)
			return ret;
		if (at[item] == 0)
			break;
		at += item + 1;
	}
	if (mix.total == 0)
		return err_set(-EINVAL, "mix '%s': no operation has a weight above 0", text);
	for (int op = 0; op < WORKLOAD_OPS; op++) {
		if (mix.weights[op] == mix.total)
			mix.only = op;
	}
	*ret_mix = mix;
	return 0;
}

int workload_picker_init(const struct workload *workload, uint64_t seed,
			 struct workload_picker *ret_picker)
{
	struct workload_picker picker = {.random = seed, .keys = workload->keys};
	/* a prime: a permutation unless keys is a multiple of it */
	uint64_t scatter = workload->latest ? 1 : 2654435761u;
	uint32_t *sequence;
	struct zipf zipf;

	if (workload->theta > 0) {
		sequence = malloc(ZIPF_DRAWS * sizeof(*sequence));
		if (!sequence)
			return err_set(-ENOMEM, "no memory for %u draws", ZIPF_DRAWS);
		zipf_init(&zipf, workload->keys, workload->theta);
		for (uint32_t i = 0; i < ZIPF_DRAWS; i++)
			sequence[i] = (uint32_t)(zipf_rank(&zipf, workload_random(&picker.random)) *
						 scatter % workload->keys);
		picker.sequence = sequence;
		picker.mask = ZIPF_DRAWS - 1;
	}
	*ret_picker = picker;
	return 0;
}

void workload_picker_free(struct workload_picker *picker)
{
	free((void *)(uintptr_t)picker->sequence);
	picker->sequence = NULL;
}

void workload_key_prepare(uint8_t *ret_key)
{
	memset(ret_key, 'x', WORKLOAD_KEY_MAX);
}

bool workload_key_parse(const struct workload *workload, const uint8_t *key, size_t key_bytes,
			uint64_t *ret_id)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t id = 0;

	if (key_bytes != workload->key_size)
		return false;
	for (unsigned int i = 0; i < 16 && i < key_bytes; i++) {
		const char *digit = memchr(digits, key[i], 16);

		if (!digit)
			return false;
		id |= (uint64_t)(digit - digits) << 4 * i;
	}
	*ret_id = id;
	return true;
}
