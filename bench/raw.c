/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.c - the transport's ceiling: bare posts on the session's own endpoint
 *
 * Two things are measured here, on the workers, in rounds between the mixes: the two posts of a
 * cold get's READs (--ceiling=raw), and single posts (--raw): a READ of a block, READs of a slot
 * word and of a block, which is what a cached get is, a WRITE of a block, a CAS, and WRITE and CAS,
 * which is what a cached update is. One post is in flight per session, and the clock is read once
 * per post. It is the session's own endpoint, so
 * mapping, queue pair and way of waiting are those of the operations. It may be used only inside of
 * session_enter(): the housekeeping thread uses it, too.
 *
 * Where WRITE and CAS go: into one block that this session's allocator has handed out (alloc.h) and
 * that is never published. No slot names it, so no reader can come by; its page is owned by this
 * client, so neither the daemon nor another client hands it out; the page cannot be handed back
 * while a block of it is held. So its bytes need no checksum and may be anything. That lasts as
 * long as the connection does: after a reconnect the page is an orphan and no longer ours, which
 * raw_enter() looks for. At the end the block goes back as one that nobody has ever seen. Next:
 * report.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "bench.h"
#include "claim.h"
#include "err.h"
#include "layout.h"
#include "session.h"

/* Posts between two looks at whether housekeeping wants the session. */
#define RAW_BATCH 256u

/* At most, for a completion; then it is looked for again. As session.c does. */
#define RAW_WAIT_NS 100000000u

struct raw {
	struct worker *worker;
	uint32_t *index_pages,
		*data_pages; /* numbers of the pages that the keys' buckets and blocks are in */
	uint32_t nindex, ndata;
	uint32_t block_bytes, blocks; /* of the values' class; blocks in a page */
	uint64_t buckets[2][LAYOUT_PAIR_BYTES / 8];
	uint8_t *block; /* what READs bring: of block_bytes or read_bytes */
	/* single posts */
	uint32_t read_bytes, write_bytes;
	struct alloc_block own; /* offset 0: none */
	uint32_t client_id;     /* whose it is, */
	uint64_t pool_serial;   /* and in which pool */
	uint64_t cas_offset;    /* a word behind the bytes that WRITEs go to */
	uint64_t cas_word, cas_seen;
	uint64_t writes;
	uint8_t *image; /* what is written */
};

const char *const raw_kind_names[RAW_KINDS] = {
	[RAW_READ] = "read", [RAW_READ_READ] = "read+read", [RAW_WRITE] = "write",
	[RAW_CAS] = "cas",   [RAW_WRITE_CAS] = "write+cas",
};

/* Posts and waits, on whatever transport. */
static int raw_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		    unsigned int count)
{
	struct fabric_completion completion;
	int ret = fabric_post(ep, requests, count, ep);

	if (__builtin_expect(ret != 0, 1))
		return ret < 0 ? ret : 0;
	for (;;) {
		ret = fabric_poll(ep, &completion, 1);
		if (ret < 0)
			return ret;
		if (ret > 0 && completion.cookie == ep)
			return completion.status;
		if (ret == 0)
			ep->ops->wait(ep, RAW_WAIT_NS);
	}
}

/* Enters the session, which must still be the client that the block belongs to. */
static int raw_enter(const struct raw *raw)
{
	struct tarn_session *session = raw->worker->session;
	int ret = session_enter(session);

	if (ret == 0 && raw->own.offset &&
	    (session->identity.client_id != raw->client_id ||
	     session->pool_serial != raw->pool_serial)) {
		session_leave(session);
		ret = err_set(-TARN_ESESSION, "the connection was lost, and with it the memory "
					      "that the raw loops write to");
	}
	return ret;
}

/* ---- where the requests go ------------------------------------------------------------------- */

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
	ret = raw_enter(raw);
	if (ret == 0) {
		ret = raw_post(session->ep, &request, 1);
		session_leave(session);
	}
	if (ret == 0)
		raw_sort_pages(raw, words, geometry->npages, class);
	free(words);
	return ret;
}

struct raw_claim {
	struct task task; /* first: step() gets this */
	struct claim claim;
};

static int raw_claim_step(struct task *task)
{
	return claim_step(&((struct raw_claim *)task)->claim, &task->result);
}

/* A block of this class out of the session's allocator. Inside of session_enter(). */
static int raw_take(struct raw *raw, struct tarn_session *session, uint32_t class)
{
	struct raw_claim *claim;
	int ret = 0;

	if (alloc_take(session->alloc, class, &raw->own))
		return 0;
	claim = calloc(1, sizeof(*claim));
	if (!claim)
		return err_set(-ENOMEM, "no memory for a claim");
	claim->task.step = raw_claim_step;
	/* A claimed page may have nothing but blocks that rest: then the next one. */
	while (ret == 0 && !alloc_take(session->alloc, class, &raw->own)) {
		claim_start(&claim->claim, session, &claim->task, class, 1);
		ret = session_run(session, &claim->task);
	}
	free(claim);
	return ret;
}

/* Takes the block, and sets the word that is CASed to 0. */
static int raw_own_create(struct raw *raw, struct tarn_session *session)
{
	uint64_t word_at = (raw->write_bytes + 63ull) & ~63ull, bytes = word_at + LAYOUT_UNIT;
	struct fabric_request request = {.opcode = FABRIC_WRITE, .length = 8};
	int ret;

	if (bytes < raw->read_bytes)
		bytes = raw->read_bytes;
	raw->image = calloc(1, word_at + 8);
	if (!raw->image)
		return err_set(-ENOMEM, "no memory for what is written");
	memset(raw->image, 'w', word_at);
	ret = session_enter(session);
	if (ret < 0)
		return ret;
	ret = raw_take(raw, session, layout_class_for(bytes));
	if (ret == 0) {
		raw->client_id = session->identity.client_id;
		raw->pool_serial = session->pool_serial;
		raw->cas_offset = request.offset = raw->own.offset + word_at;
		request.local = &raw->cas_word;
		ret = raw_post(session->ep, &request, 1);
	}
	session_leave(session);
	return ret;
}

static void raw_sizes(struct raw *raw, const struct arguments *arguments)
{
	const struct workload *workload = &arguments->workload;
	uint32_t value_bytes = workload_value_mean(workload);
	uint64_t bytes = layout_block_bytes(LAYOUT_KIND_VALUE, workload->key_size, value_bytes);
	uint32_t class;

	if (layout_value_is_large(workload->key_size, value_bytes))
		bytes = LAYOUT_BLOCK_MAX;
	class = layout_class_for(bytes);
	raw->block_bytes = layout_class_bytes(class);
	raw->blocks = layout_class_blocks(class);
	/* A get READs all of a block, a put WRITEs what is used of it. */
	raw->read_bytes = arguments->raw_bytes ? arguments->raw_bytes : raw->block_bytes;
	raw->write_bytes =
		arguments->raw_bytes ? arguments->raw_bytes : (uint32_t)layout_pad8(bytes);
	if (raw->write_bytes > BENCH_RAW_BYTES_MAX)
		raw->write_bytes = BENCH_RAW_BYTES_MAX;
}

int raw_create(struct worker *worker, struct raw **ret_raw)
{
	const struct arguments *arguments = worker->bench->arguments;
	struct raw *raw = calloc(1, sizeof(*raw));
	uint32_t most;
	int ret = 0;

	if (!raw)
		return bench_fail(worker->bench, -ENOMEM, "no memory for the raw loops");
	raw->worker = worker;
	raw_sizes(raw, arguments);
	if (worker->index == 0) {
		worker->bench->shared->raw_read_bytes = raw->read_bytes;
		worker->bench->shared->raw_write_bytes = raw->write_bytes;
	}
	most = raw->read_bytes > raw->block_bytes ? raw->read_bytes : raw->block_bytes;
	raw->block = aligned_alloc(LAYOUT_UNIT, (most + LAYOUT_UNIT - 1) & ~(LAYOUT_UNIT - 1));
	if (!raw->block)
		ret = err_set(-ENOMEM, "no memory for a block");
	if (ret == 0 && arguments->raw_kinds)
		ret = raw_own_create(raw, worker->session);
	if (ret == 0)
		ret = raw_find_pages(raw, worker->session, layout_class_for(raw->block_bytes));
	if (ret == 0 && arguments->ceiling_raw && (raw->nindex == 0 || raw->ndata == 0))
		ret = err_set(-TARN_ENOTFOUND,
			      "the pool holds no values of this size (with sizes from a range, the "
			      "mean): --load first, or --ceiling=off or table");
	if (ret < 0) {
		raw_free(raw);
		return bench_fail(worker->bench, ret, "raw loops: %s", err_text());
	}
	*ret_raw = raw;
	return 0;
}

void raw_free(struct raw *raw)
{
	if (!raw)
		return;
	if (raw->own.offset && raw_enter(raw) == 0) {
		alloc_return(raw->worker->session->alloc, &raw->own);
		session_leave(raw->worker->session);
	}
	free(raw->index_pages);
	free(raw->data_pages);
	free(raw->block);
	free(raw->image);
	free(raw);
}

/* ---- one post of each kind ------------------------------------------------------------------- */

/*
 * One cold get's worth: two bucket pairs of one subtable, then a block whose place waits for what
 * the first READs have brought, as a slot word is waited for. Without that wait the CPU would fetch
 * both at once, which no get can.
 */
static int raw_get(struct raw *raw, struct fabric_endpoint *ep)
{
	const struct tarn_session *session = raw->worker->session;
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
	ret = raw_post(ep, requests, 2);
	if (ret < 0)
		return ret;
	workload_chain(picker, raw->buckets[0][1] + raw->buckets[1][1]);
	which = workload_random(&picker->random);
	requests[0] =
		fabric_read(layout_page_offset(&session->geometry,
					       raw->data_pages[workload_below(which, raw->ndata)]) +
				    workload_below(which << 32, raw->blocks) * raw->block_bytes,
			    raw->block, raw->block_bytes);
	ret = raw_post(ep, requests, 1);
	if (raw->worker->workload->chain)
		workload_chain(picker, raw->block[0]);
	return ret;
}

/* Of any block of the loaded values, as a get does; without values, of our own block. */
static struct fabric_request read_request(struct raw *raw)
{
	const struct layout_geometry *geometry = &raw->worker->session->geometry;
	struct fabric_request request = fabric_read(raw->own.offset, raw->block, raw->read_bytes);

	if (raw->ndata) {
		uint64_t which = workload_random(&raw->worker->picker.random);
		uint64_t starts = (LAYOUT_PAGE_BYTES - raw->read_bytes) / raw->block_bytes + 1;
		uint32_t page = raw->data_pages[workload_below(which, raw->ndata)];

		request.offset = layout_page_offset(geometry, page) +
				 workload_below(which << 32, starts) * raw->block_bytes;
	}
	return request;
}

static int raw_read(struct raw *raw, struct fabric_endpoint *ep)
{
	struct fabric_request request = read_request(raw);
	int ret = raw_post(ep, &request, 1);

	if (raw->worker->workload->chain)
		workload_chain(&raw->worker->picker, raw->block[0]);
	return ret;
}

static int raw_read_read(struct raw *raw, struct fabric_endpoint *ep)
{
	const struct layout_geometry *geometry = &raw->worker->session->geometry;
	uint64_t which = workload_random(&raw->worker->picker.random);
	struct fabric_request requests[] = {
		fabric_read(raw->cas_offset, raw->buckets[0], 8),
		read_request(raw),
	};
	int ret;

	if (raw->nindex) {
		uint32_t page = raw->index_pages[workload_below(which, raw->nindex)];

		requests[0].offset = layout_page_offset(geometry, page) +
				     workload_below(which << 32, LAYOUT_PAGE_BYTES / 8) * 8;
	}
	ret = raw_post(ep, requests, 2);
	if (raw->worker->workload->chain)
		workload_chain(&raw->worker->picker, raw->block[0] + raw->buckets[0][0]);
	return ret;
}

/* Each write is another one, so that the last can be told from the one before: raw_check(). */
static struct fabric_request write_request(struct raw *raw)
{
	uint64_t number = ++raw->writes;

	memcpy(raw->image, &number, raw->write_bytes < 8 ? raw->write_bytes : 8);
	return (struct fabric_request){.opcode = FABRIC_WRITE,
				       .length = raw->write_bytes,
				       .offset = raw->own.offset,
				       .local = raw->image};
}

static struct fabric_request cas_request(struct raw *raw)
{
	return (struct fabric_request){.opcode = FABRIC_CAS,
				       .length = 8,
				       .offset = raw->cas_offset,
				       .local = &raw->cas_seen,
				       .compare = raw->cas_word,
				       .operand = raw->cas_word + 1};
}

/* Nobody else knows the word, so each CAS succeeds. */
static int cas_judge(struct raw *raw, int ret)
{
	if (ret == 0 && raw->cas_seen != raw->cas_word)
		return err_set(-TARN_ECORRUPT, "a CAS of our own word found %llu, not %llu",
			       (unsigned long long)raw->cas_seen,
			       (unsigned long long)raw->cas_word);
	raw->cas_word++;
	return ret;
}

static int raw_write(struct raw *raw, struct fabric_endpoint *ep)
{
	struct fabric_request request = write_request(raw);

	return raw_post(ep, &request, 1);
}

static int raw_cas(struct raw *raw, struct fabric_endpoint *ep)
{
	struct fabric_request request = cas_request(raw);

	return cas_judge(raw, raw_post(ep, &request, 1));
}

static int raw_write_cas(struct raw *raw, struct fabric_endpoint *ep)
{
	struct fabric_request requests[] = {write_request(raw), cas_request(raw)};

	return cas_judge(raw, raw_post(ep, requests, 2));
}

/* ---- loops ----------------------------------------------------------------------------------- */

typedef int raw_fn(struct raw *raw, struct fabric_endpoint *ep);

static inline __attribute__((always_inline)) int
raw_batch(struct raw *raw, raw_fn *fn, uint64_t until_ns, struct tally *tally, uint64_t *inout_now)
{
	struct fabric_endpoint *ep = raw->worker->session->ep;
	uint64_t now = *inout_now;

	for (unsigned int i = 0; i < RAW_BATCH && now < until_ns; i++) {
		int ret = fn(raw, ep);
		uint64_t before = now;

		if (__builtin_expect(ret < 0, 0))
			return ret;
		now = clock_now_ns();
		hist_add(&tally->hist, now - before);
		tally->count++;
	}
	*inout_now = now;
	return 0;
}

static inline __attribute__((always_inline)) int raw_loop(struct worker *worker, const char *what,
							  raw_fn *fn, uint64_t until_ns,
							  struct tally *tally)
{
	uint64_t start = clock_now_ns(), now = start;
	struct raw *raw = worker->raw;

	err_clear();
	do {
		int ret = raw_enter(raw);

		if (ret == 0) {
			ret = raw_batch(raw, fn, until_ns, tally, &now);
			session_leave(worker->session);
		}
		if (ret < 0)
			return bench_fail(worker->bench, ret, "raw %s: %s (%s)", what,
					  *err_text() ? err_text() : tarn_strerror(ret),
					  tarn_error_name(ret));
	} while (now < until_ns);
	tally->elapsed_ns += now - start;
	return 0;
}

int ceiling_raw(struct worker *worker, uint64_t until_ns, struct tally *tally)
{
	return raw_loop(worker, "READs of a get", raw_get, until_ns, tally);
}

/* What was written last is what stands there: a loop whose WRITEs go nowhere must not pass. */
static int raw_check(struct worker *worker)
{
	struct raw *raw = worker->raw;
	struct fabric_request request = fabric_read(raw->own.offset, raw->block, raw->write_bytes);
	int ret;

	if (raw->writes == 0)
		return 0;
	ret = raw_enter(raw);
	if (ret == 0) {
		ret = raw_post(worker->session->ep, &request, 1);
		session_leave(worker->session);
	}
	if (ret < 0)
		return bench_fail(worker->bench, ret, "raw write: %s", tarn_strerror(ret));
	if (memcmp(raw->block, raw->image, request.length) != 0)
		return bench_fail(worker->bench, -TARN_ECORRUPT,
				  "raw write: what was written is not what stands in the pool");
	return 0;
}

int raw_run(struct worker *worker, enum raw_kind kind, uint64_t until_ns, struct tally *tally)
{
	int ret = -EINVAL;

	switch (kind) {
	case RAW_READ:
		return raw_loop(worker, "read", raw_read, until_ns, tally);
	case RAW_READ_READ:
		return raw_loop(worker, "read+read", raw_read_read, until_ns, tally);
	case RAW_WRITE:
		ret = raw_loop(worker, "write", raw_write, until_ns, tally);
		break;
	case RAW_CAS:
		return raw_loop(worker, "cas", raw_cas, until_ns, tally);
	case RAW_WRITE_CAS:
		ret = raw_loop(worker, "write+cas", raw_write_cas, until_ns, tally);
		break;
	case RAW_KINDS:
		break;
	}
	return ret < 0 ? ret : raw_check(worker);
}

int raw_kinds_parse(const char *text, uint32_t *inout_kinds)
{
	const char *at = text;

	for (;;) {
		size_t length = strcspn(at, ",");
		int kind = 0;

		while (kind < RAW_KINDS && (strlen(raw_kind_names[kind]) != length ||
					    strncmp(raw_kind_names[kind], at, length) != 0))
			kind++;
		if (kind == RAW_KINDS)
			return err_set(-EINVAL,
				       "--raw=%s: '%.*s' is none of read, read+read, "
				       "write, cas, write+cas",
				       text, (int)length, at);
		*inout_kinds |= 1u << kind;
		if (at[length] == 0)
			return 0;
		at += length + 1;
	}
}
