/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-call.c - what clients of pool-world.h call, and what a call's result says
 *
 * Gets, puts (with conditions, expiry, all sizes), deletes and adds. A put's number is in its value, whose bytes all follow from it, and
 * in its user flags. Next: pool-client.c, linear.h.
 */
#include <string.h>

#include "kv.h"
#include "pool-world.h"
#include "tarn/tarn.h"

#define NOBODY (1ull << 40) /* no put has this number */

static const char *const names[] = {[LINEAR_GET] = "get",
				    [LINEAR_PUT] = "put",
				    [LINEAR_PUT_IF_ABSENT] = "put-if-absent",
				    [LINEAR_PUT_IF_STAMP] = "put-if-stamp",
				    [LINEAR_DELETE] = "delete",
				    [LINEAR_ADD] = "add"};

static struct pw_client *of(struct hw_client *c)
{
	return &pw_world(c->world)->clients[c->number];
}

static bool puts_value(enum linear_kind kind)
{
	return kind == LINEAR_PUT || kind == LINEAR_PUT_IF_ABSENT || kind == LINEAR_PUT_IF_STAMP;
}

/* ---- values ---- */

static uint64_t pattern(uint64_t id, uint32_t at)
{
	return at ? (id * 0x9e3779b97f4a7c15ull + at) * 0xd6e8feb86659fd93ull : id;
}

static void fill(uint8_t *value, uint64_t id, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at += 8) {
		uint64_t word = pattern(id, at);

		memcpy(value + at, &word, bytes - at < 8 ? bytes - at : 8);
	}
}

static bool whole(const uint8_t *value, uint64_t id, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at += 8) {
		uint64_t word = pattern(id, at);

		if (memcmp(value + at, &word, bytes - at < 8 ? bytes - at : 8) != 0)
			return false;
	}
	return true;
}

static uint32_t choose_bytes(struct hw_world *w, const struct pw_mix *mix)
{
	static const uint32_t sizes[] = {8, 13, 100, 1000, 5000};

	if (mix->large && hw_chance(w, 300))
		return PW_VALUE_BYTES - (uint32_t)hw_below(w, 30000);
	return mix->sizes ? sizes[hw_below(w, 5)] : 8;
}

/* ---- a call begins ---- */

static enum linear_kind choose_kind(struct hw_world *w, const struct pw_mix *mix, uint32_t key)
{
	static const enum linear_kind kinds[] = {LINEAR_GET, LINEAR_GET, LINEAR_PUT, LINEAR_PUT,
						 LINEAR_DELETE};
	enum linear_kind kind = kinds[hw_below(w, 5)];

	if (mix->counting)
		return hw_chance(w, 20) ? LINEAR_DELETE : hw_chance(w, 512) ? LINEAR_GET : LINEAR_ADD;
	if (mix->counters && key < HW_PLAY && kind != LINEAR_GET && !hw_chance(w, 200))
		return LINEAR_ADD;
	if (mix->conditions && kind == LINEAR_PUT && hw_chance(w, 600))
		return hw_chance(w, 512) ? LINEAR_PUT_IF_ABSENT : LINEAR_PUT_IF_STAMP;
	return kind;
}

static void choose_put(struct pw_client *c, struct hw_record *r, uint32_t id)
{
	struct hw_world *w = c->client->world;
	struct pw_world *pw = pw_world(w);

	r->op.value = id;
	r->bytes = choose_bytes(w, &pw->mix);
	r->ttl_epochs = pw->mix.expiry && hw_chance(w, 512) ? 1 + (uint32_t)hw_below(w, 12) : 0;
	if (r->op.kind == LINEAR_PUT_IF_STAMP)
		r->op.expected = c->known[r->key] ? c->known[r->key] : NOBODY;
	fill(c->value, id, r->bytes);
	pw->conditional += r->op.kind != LINEAR_PUT;
	pw->expiring += r->ttl_epochs != 0;
	pw->larges += r->bytes > LAYOUT_BLOCK_MAX;
}

void pw_call_begin(struct hw_client *client)
{
	struct hw_world *w = client->world;
	struct pw_client *c = of(client);
	struct pw_world *pw = pw_world(w);
	struct hw_record *r = &w->records[w->record_count];

	client->record = w->record_count++;
	*r = (struct hw_record){.key = (uint32_t)hw_below(w, pw->mix.counting ? HW_PLAY : HW_KEYS)};
	r->op.kind = choose_kind(w, &pw->mix, r->key);
	r->op.client = client->number;
	r->op.invoked = ++w->clock;
	r->op.returned = LINEAR_NEVER;
	r->op.outcome = LINEAR_MAYBE;
	r->op.epoch_invoked = pw->epochs_all;
	r->op.epoch_returned = UINT64_MAX;
	if (puts_value(r->op.kind))
		choose_put(c, r, w->record_count);
	if (r->ttl_epochs) {
		r->op.expires_from = pw->epochs_any + r->ttl_epochs - 1;
		r->op.expires_until = UINT64_MAX;
	}
	c->exists_only = r->op.kind == LINEAR_GET && hw_chance(w, 100);
	if (r->op.kind == LINEAR_ADD) {
		r->op.value = 1 + hw_below(w, 1000);
		pw->adds++;
	}
	w->calls++;
	hw_trace(w, "c%u begins %s of key %u, record %u", client->number, names[r->op.kind], r->key,
		 w->record_count);
}

static struct task *put_task(struct pw_client *c, struct tarn_session *s, const struct hw_record *r,
			     const char *key)
{
	struct tarn_put_options options = TARN_PUT_INIT;

	options.user_flags = (uint32_t)r->op.value;
	options.expiry_ms = r->ttl_epochs * (s->geometry.epoch_ns / 1000000);
	if (r->op.kind == LINEAR_PUT_IF_ABSENT)
		options.flags = TARN_PUT_IF_ABSENT;
	if (r->op.kind == LINEAR_PUT_IF_STAMP) {
		options.flags = TARN_PUT_IF_STAMP;
		options.stamp = c->known[r->key] ? c->known_stamp[r->key] : 1;
	}
	return kv_put(s->op, key, PW_KEY_BYTES, c->value, r->bytes, &options);
}

struct task *pw_call_task(struct hw_client *client, struct tarn_session *s)
{
	struct hw_world *w = client->world;
	const struct hw_record *r = &w->records[client->record];
	const char *key = pw_world(w)->keys[r->key];
	struct pw_client *c = of(client);

	switch (r->op.kind) {
	case LINEAR_GET:
		return kv_get(s->op, key, PW_KEY_BYTES, c->buffer, c->exists_only ? 0 : sizeof(c->buffer),
			      c->exists_only);
	case LINEAR_DELETE:
		return kv_delete(s->op, key, PW_KEY_BYTES);
	case LINEAR_ADD:
		return kv_add(s->op, key, PW_KEY_BYTES, (int64_t)r->op.value);
	default:
		return put_task(c, s, r, key);
	}
}

/* ---- a call ends ---- */

static void found(struct hw_client *client, const struct tarn_item *item)
{
	struct hw_world *w = client->world;
	struct hw_record *r = &w->records[client->record];
	struct pw_client *c = of(client);
	const struct hw_record *put;

	r->op.counter = item->kind == TARN_KIND_COUNTER;
	if (r->op.counter) {
		if (!c->exists_only)
			memcpy(&r->op.value, c->buffer, sizeof(r->op.value));
		c->known[r->key] = 0;
		return;
	}
	r->op.value = item->user_flags;
	put = &w->records[item->user_flags - 1];
	if (item->user_flags == 0 || item->user_flags > w->record_count || put->key != r->key ||
	    put->bytes != item->value_bytes || (!put->ttl_epochs != !item->expiry_ms) ||
	    (!c->exists_only && !whole(c->buffer, item->user_flags, put->bytes))) {
		hw_fail(w, "c%u: a get of key %u returned what nobody has put: flags %u, %llu bytes",
			client->number, r->key, item->user_flags,
			(unsigned long long)item->value_bytes);
		return;
	}
	c->known[r->key] = item->user_flags;
	c->known_stamp[r->key] = item->stamp;
}

/* It worked, or a condition did not hold. False: it says neither. */
static bool answered(struct hw_client *client, const struct tarn_session *s, int result)
{
	struct pw_client *c = of(client);
	struct hw_record *r = &client->world->records[client->record];
	enum linear_kind kind = r->op.kind;

	r->op.outcome = result == 0			  ? LINEAR_OK
			: result == -TARN_ENOTFOUND ? LINEAR_ABSENT
			: result == -TARN_EEXISTS	  ? LINEAR_EXISTS
							  : LINEAR_OTHER;
	if (result == 0 && kind == LINEAR_GET)
		found(client, kv_item(s->op));
	if (result == 0 && kind == LINEAR_ADD)
		r->op.result = (uint64_t)kv_added(s->op);
	if (result == 0 && puts_value(kind)) {
		c->known[r->key] = (uint32_t)r->op.value;
		c->known_stamp[r->key] = kv_stamp(s->op);
	}
	switch (result) {
	case 0:
		return true;
	case -TARN_ENOTFOUND:
		return kind == LINEAR_GET || kind == LINEAR_DELETE || kind == LINEAR_PUT_IF_STAMP;
	case -TARN_EEXISTS:
		return kind == LINEAR_PUT_IF_ABSENT;
	case -TARN_ESTAMP:
		return kind == LINEAR_PUT_IF_STAMP;
	case -TARN_ETYPE:
		return kind == LINEAR_ADD;
	default:
		return false;
	}
}

void pw_call_returns(struct pw_client *c)
{
	struct hw_world *w = c->client->world;
	struct pw_world *pw = pw_world(w);
	struct hw_record *r = &w->records[c->client->record];

	r->op.returned = ++w->clock;
	r->op.epoch_returned = pw->epochs_any;
	r->epochs = pw->epochs_all;
}

enum pw_answer pw_call_judge(struct hw_client *client, const struct tarn_session *s, int result)
{
	struct hw_world *w = client->world;
	struct hw_record *r = &w->records[client->record];
	const struct pw_client *c = of(client);
	bool write = r->op.kind != LINEAR_GET;

	hw_trace(w, "c%u's call at m%u: %d", client->number, client->target, result);
	if (answered(client, s, result))
		/* that a counter is there says nothing that linear.c knows */
		return r->op.counter && c->exists_only ? PW_NOTHING : PW_ANSWERED;
	r->op.outcome = LINEAR_MAYBE;
	if (result == -TARN_EMOVED)
		return PW_AGAIN;
	if (write && (result == -TARN_EAMBIGUOUS ||
		      (result == -TARN_ECONFLICT && r->op.kind == LINEAR_ADD)))
		return PW_MAYBE;
	if (result == -TARN_ESESSION || result == -TARN_ETIMEOUT || result == -TARN_EPOOLFULL)
		return PW_NOTHING;
	hw_fail(w, "c%u: a call on key %u returned %d, which it must not", client->number, r->key,
		result);
	return PW_NOTHING;
}

/* How many hand-overs a schedule has is known in the end; the put's own epochs are at most one late. */
void pw_call_expires(const struct pw_world *pw, struct hw_record *r)
{
	uint64_t switches = pw->hw.switches - pw->switches;

	if (r->ttl_epochs && r->op.returned != LINEAR_NEVER)
		r->op.expires_until = r->epochs + r->ttl_epochs + 4 + 5 * (1 + switches);
}
