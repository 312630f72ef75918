/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queue in front of an RDMA listener. A storm of connects is served in order of arrival, a few
 * handshakes at a time; who finds the queue full is told to come back, later the more are waiting.
 * Pure; see admission.h. listen-verbs.c is the caller and the next file to read.
 */
#include <errno.h>
#include <string.h>

#include "admission.h"

#define BUSY_MS     100u  /* about what it takes to serve a short queue */
#define WAITING_MS  2u    /* more for each who waits */
#define OCCUPIED_MS 1000u /* until somebody has left */

void admission_init(struct admission *admission, const struct admission_limits *limits)
{
	memset(admission, 0, sizeof(*admission));
	admission->limits = *limits;
	TAILQ_INIT(&admission->queue);
	for (unsigned i = 0; i < ADMISSION_BUCKETS; i++)
		LIST_INIT(&admission->addresses[i]);
}

static unsigned bucket(const uint8_t address[16])
{
	uint32_t hash = 2166136261u;

	for (unsigned i = 0; i < 16; i++)
		hash = (hash ^ address[i]) * 16777619u;
	return hash % ADMISSION_BUCKETS;
}

/* What one address has already. */
struct share {
	uint32_t all, waiting, handshakes;
};

static struct share share_of(struct admission *admission, const struct admission_entry *entry)
{
	const struct admission_entry *other;
	struct share share = {0};

	LIST_FOREACH (other, &admission->addresses[bucket(entry->address)], same) {
		if (memcmp(other->address, entry->address, sizeof(entry->address)) != 0)
			continue;
		share.all++;
		share.waiting += other->state == ADMISSION_WAITING;
		share.handshakes += other->state == ADMISSION_HANDSHAKE;
	}
	return share;
}

/*
 * A host whose handshakes never end must not hold all places: it gets a quarter of them, and half of
 * the queue.
 */
static bool may_begin(const struct admission *admission, const struct share *share)
{
	const struct admission_limits *limits = &admission->limits;

	return admission->handshakes < limits->handshakes &&
	       share->handshakes < (limits->handshakes + 3) / 4;
}

static bool may_wait(const struct admission *admission, const struct share *share)
{
	const struct admission_limits *limits = &admission->limits;

	return admission->waiting < limits->waiting && share->waiting < (limits->waiting + 1) / 2;
}

static int refuse(struct admission_refusal *ret, enum wire_reason reason, uint64_t detail,
		  uint32_t retry_after_ms)
{
	*ret = (struct admission_refusal){
		.reason = reason, .detail = detail, .retry_after_ms = retry_after_ms};
	return -EBUSY;
}

/* The longest waiting one that may begin. A storm comes from few addresses: each is judged once. */
static struct admission_entry *first_ready(struct admission *admission)
{
	struct admission_entry *entry, *blocked = NULL;

	TAILQ_FOREACH (entry, &admission->queue, link) {
		struct share share;

		if (blocked && memcmp(blocked->address, entry->address, 16) == 0)
			continue;
		share = share_of(admission, entry);
		if (may_begin(admission, &share))
			return entry;
		blocked = entry;
	}
	return NULL;
}

int admission_arrive(struct admission *admission, struct admission_entry *entry,
		     struct admission_refusal *ret_refusal)
{
	const struct admission_limits *limits = &admission->limits;
	struct share share = share_of(admission, entry);

	/* What a single address may have comes first: its queue is its own affair. */
	if (share.all >= limits->per_address)
		return refuse(ret_refusal, WIRE_REASON_ADDRESS, limits->per_address, OCCUPIED_MS);
	if (admission->connections >= limits->connections)
		return refuse(ret_refusal, WIRE_REASON_CLIENTS, limits->connections, OCCUPIED_MS);
	if (may_begin(admission, &share) && !first_ready(admission)) {
		entry->state = ADMISSION_HANDSHAKE;
		admission->handshakes++;
	} else if (may_wait(admission, &share)) {
		entry->state = ADMISSION_WAITING;
		TAILQ_INSERT_TAIL(&admission->queue, entry, link);
		admission->waiting++;
	} else {
		return refuse(ret_refusal, WIRE_REASON_BUSY, admission->waiting,
			      BUSY_MS + WAITING_MS * admission->waiting);
	}
	admission->connections++;
	LIST_INSERT_HEAD(&admission->addresses[bucket(entry->address)], entry, same);
	return entry->state == ADMISSION_HANDSHAKE;
}

struct admission_entry *admission_next(struct admission *admission)
{
	struct admission_entry *entry = first_ready(admission);

	if (!entry)
		return NULL;
	TAILQ_REMOVE(&admission->queue, entry, link);
	admission->waiting--;
	admission->handshakes++;
	entry->state = ADMISSION_HANDSHAKE;
	return entry;
}

void admission_done(struct admission *admission, struct admission_entry *entry)
{
	if (entry->state != ADMISSION_HANDSHAKE)
		return;
	admission->handshakes--;
	entry->state = ADMISSION_IN;
}

void admission_leave(struct admission *admission, struct admission_entry *entry)
{
	if (entry->state == ADMISSION_OUT)
		return;
	if (entry->state == ADMISSION_WAITING) {
		TAILQ_REMOVE(&admission->queue, entry, link);
		admission->waiting--;
	} else if (entry->state == ADMISSION_HANDSHAKE) {
		admission->handshakes--;
	}
	LIST_REMOVE(entry, same);
	admission->connections--;
	entry->state = ADMISSION_OUT;
}
