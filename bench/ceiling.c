/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ceiling.c - what this machine can do at best: the table's loop, and the bare loop of a get's
 * READs
 *
 * Both run on the workers, in rounds between the mixes, with the same source of items, the same
 * keys, the same check of each value and the same reading of the clock per operation. table.h says
 * what kind of table it is. Next: report.c.
 *
 * The raw loop uses the session's own endpoint, so it measures the mapping and the transport that
 * the operations use. It may do so only inside of session_enter(): the housekeeping thread uses the
 * same endpoint.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench.h"
#include "err.h"
#include "layout.h"
#include "session.h"

/* READs between two looks at whether housekeeping wants the session. */
#define RAW_BATCH 256u

/* ---- hash table ------------------------------------------------------------------------------ */

int ceiling_table(struct worker *worker, uint64_t until_ns, struct tally *tally)
{
	const struct workload *workload = worker->workload;
	const struct table *table = &worker->bench->table;
	uint8_t *key = (uint8_t *)worker->key_words;
	uint64_t start = clock_now_ns(), before = start, now;

	do {
		uint64_t id =
			workload_id(workload, WORKLOAD_LOADED, workload_pick(&worker->picker));
		int64_t size;

		workload_key(id, key);
		size = table_get(table, key, workload->key_size, worker->buffer, worker->capacity);
		if (__builtin_expect(size != (int64_t)workload->value_size, 0))
			return bench_fail(worker->bench, -TARN_ECORRUPT,
					  "the private hash table lost a key");
		if (worker->verify && !workload_verify(workload, id, worker->buffer))
			return bench_fail(worker->bench, -TARN_ECORRUPT,
					  "the private hash table gave a wrong value");
		if (workload->chain)
			workload_chain(&worker->picker, worker->buffer[0]);
		now = clock_now_ns();
		hist_add(&tally->hist, now - before);
		before = now;
		tally->count++;
	} while (now < until_ns);
	tally->elapsed_ns += now - start;
	return 0;
}

/* ---- raw READs ------------------------------------------------------------------------------- */

struct raw {
	struct worker *worker;
	uint32_t *index_pages,
		*data_pages; /* numbers of the pages that the keys' buckets and blocks are in */
	uint32_t nindex, ndata;
	uint32_t block_bytes, blocks; /* of the values' class; blocks in a page */
	uint64_t buckets[2][LAYOUT_PAIR_BYTES / 8];
	uint8_t *block;
	struct tally *tally;
};

/* Posts and waits, on whatever transport. */
static int raw_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		    unsigned int count)
{
	struct fabric_completion completion;
	int ret = fabric_post(ep, requests, count, ep);

	while (ret == 0) {
		ret = fabric_poll(ep, &completion, 1);
		if (ret > 0 && completion.status < 0)
			return completion.status;
	}
	return ret < 0 ? ret : 0;
}

/* Sorts page numbers by what the pages hold. */
static void raw_sort_pages(struct raw *raw, const uint64_t *words, uint32_t npages, uint32_t class)
{
	for (uint32_t page = 0; page < npages; page++) {
		switch (layout_page_state(words[page])) {
		case LAYOUT_PAGE_INDEX:
			raw->index_pages[raw->nindex++] = page;
			break;
		case LAYOUT_PAGE_SLAB:
		case LAYOUT_PAGE_FULL:
		case LAYOUT_PAGE_PARTIAL:
			if (layout_page_class(words[page]) == class)
				raw->data_pages[raw->ndata++] = page;
			break;
		default:
			break;
		}
	}
}

static int raw_find_pages(struct raw *raw, struct tarn_session *session, uint32_t class)
{
	const struct layout_geometry *geometry = &session->geometry;
	uint64_t bytes = 8ull * geometry->npages;
	struct fabric_request request = {.opcode = FABRIC_READ,
					 .length = (uint32_t)bytes,
					 .offset = geometry->page_table_offset};
	uint64_t *words = malloc(bytes);
	int ret;

	raw->index_pages = calloc(geometry->npages, sizeof(uint32_t));
	raw->data_pages = calloc(geometry->npages, sizeof(uint32_t));
	if (!words || !raw->index_pages || !raw->data_pages) {
		free(words);
		return err_set(-ENOMEM, "no memory for the page table");
	}
	request.local = words;
	ret = session_enter(session);
	if (ret == 0) {
		ret = raw_post(session->ep, &request, 1);
		session_leave(session);
	}
	if (ret == 0)
		raw_sort_pages(raw, words, geometry->npages, class);
	free(words);
	if (ret == 0 && (raw->nindex == 0 || raw->ndata == 0))
		ret = err_set(-TARN_ENOTFOUND,
			      "the pool holds no values of this size: --load first");
	return ret;
}

int raw_create(struct worker *worker, struct raw **ret_raw)
{
	const struct workload *workload = worker->workload;
	uint64_t bytes =
		layout_block_bytes(LAYOUT_KIND_VALUE, workload->key_size, workload->value_size);
	struct raw *raw;
	uint32_t class;
	int ret;

	if (layout_value_is_large(workload->key_size, workload->value_size))
		bytes = LAYOUT_BLOCK_MAX;
	class = layout_class_for(bytes);
	raw = calloc(1, sizeof(*raw));
	if (!raw)
		return bench_fail(worker->bench, -ENOMEM, "no memory for the raw loop");
	raw->worker = worker;
	raw->block_bytes = layout_class_bytes(class);
	raw->blocks = layout_class_blocks(class);
	raw->block = aligned_alloc(LAYOUT_UNIT, raw->block_bytes);
	ret = raw->block ? raw_find_pages(raw, worker->session, class)
			 : err_set(-ENOMEM, "no memory for a block");
	if (ret < 0) {
		raw_free(raw);
		return bench_fail(worker->bench, ret, "raw READs: %s", err_text());
	}
	*ret_raw = raw;
	return 0;
}

void raw_free(struct raw *raw)
{
	if (!raw)
		return;
	free(raw->index_pages);
	free(raw->data_pages);
	free(raw->block);
	free(raw);
}

/*
 * One cold get's worth: two bucket pairs of one subtable, then a block whose place waits for what
 * the first READs have brought, as a slot word is waited for. Without that wait the CPU would fetch
 * both at once, which no get can.
 */
static inline int raw_get(struct raw *raw, struct tarn_session *session)
{
	struct workload_picker *picker = &raw->worker->picker;
	uint64_t where = workload_random(&picker->random), which = workload_random(&picker->random);
	uint32_t pairs = session->geometry.groups * 2, pair[2];
	struct fabric_request requests[2] = {{.opcode = FABRIC_READ, .length = LAYOUT_PAIR_BYTES},
					     {.opcode = FABRIC_READ, .length = LAYOUT_PAIR_BYTES}};
	uint64_t page;
	int ret;

	page = layout_page_offset(&session->geometry,
				  raw->index_pages[workload_below(where << 32, raw->nindex)]);
	pair[0] = (uint32_t)workload_below(which, pairs);
	pair[1] = (uint32_t)workload_below(which << 32, pairs);
	for (unsigned int i = 0; i < 2; i++) {
		requests[i].offset =
			page + pair[i] / 2 * LAYOUT_GROUP_BYTES + pair[i] % 2 * LAYOUT_BUCKET_BYTES;
		requests[i].local = raw->buckets[i];
	}
	ret = raw_post(session->ep, requests, 2);
	if (ret < 0)
		return ret;
	workload_chain(picker, raw->buckets[0][1] + raw->buckets[1][1]);
	which = workload_random(&picker->random);
	requests[0] = (struct fabric_request){
		.opcode = FABRIC_READ,
		.length = raw->block_bytes,
		.offset = layout_page_offset(&session->geometry,
					     raw->data_pages[workload_below(which, raw->ndata)]) +
			  workload_below(which << 32, raw->blocks) * raw->block_bytes,
		.local = raw->block,
	};
	ret = raw_post(session->ep, requests, 1);
	if (raw->worker->workload->chain)
		workload_chain(picker, raw->block[0]);
	return ret;
}

static int raw_batch(struct raw *raw, struct tarn_session *session, uint64_t *inout_now)
{
	struct tally *tally = raw->tally;

	for (unsigned int i = 0; i < RAW_BATCH; i++) {
		int ret = raw_get(raw, session);
		uint64_t now;

		if (ret < 0)
			return ret;
		now = clock_now_ns();
		hist_add(&tally->hist, now - *inout_now);
		*inout_now = now;
	}
	tally->count += RAW_BATCH;
	return 0;
}

int ceiling_raw(struct worker *worker, uint64_t until_ns, struct tally *tally)
{
	uint64_t start = clock_now_ns(), now = start;
	struct raw *raw = worker->raw;

	raw->tally = tally;
	do {
		int ret = session_enter(worker->session);

		if (ret == 0) {
			ret = raw_batch(raw, worker->session, &now);
			session_leave(worker->session);
		}
		if (ret < 0)
			return bench_fail(worker->bench, ret, "raw READ: %s", tarn_strerror(ret));
	} while (now < until_ns);
	tally->elapsed_ns += now - start;
	return 0;
}
