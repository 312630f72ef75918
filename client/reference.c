/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reference.c - marks of hits in a cache pool's reference map
 *
 * A hint: a mark that is lost costs a key one of its chances, and one that comes late falls into the
 * map alone, which stands apart from the data. Runs on the session's owner. Next: daemon/evict.c, which
 * reads the marks.
 */
#include "reference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

static const uint8_t referenced = LAYOUT_REFERENCED;

int reference_create(struct tarn_session *s)
{
	/* a pool that is another one after a reconnect may want marks although this one does not */
	if (s->identity.read_only)
		return 0;
	s->reference = calloc(1, sizeof(*s->reference));
	if (!s->reference)
		return err_set(-ENOMEM, "no memory for a session");
	reference_reset(s);
	return 0;
}

void reference_free(struct reference *reference)
{
	free(reference);
}

/* At random, so that no pattern of calls hides keys: `sample` on the average. */
static void draw(struct tarn_session *s)
{
	struct reference *r = s->reference;

	r->left = r->sample > 1 ? 1 + (uint32_t)(session_random(s) % (2ull * r->sample - 1)) : 1;
}

void reference_reset(struct tarn_session *s)
{
	struct reference *r = s->reference;

	if (!r)
		return;
	memset(r->marked, 0, sizeof(r->marked));
	r->sample = s->geometry.mode == LAYOUT_MODE_CACHE ? s->geometry.reference_sample : 0;
	r->left = UINT32_MAX;
	if (r->sample)
		draw(s);
}

void reference_mark(struct tarn_session *s, uint64_t block_offset)
{
	struct reference *r = s->reference;
	uint64_t at = layout_reference_offset(&s->geometry, block_offset),
		 mark = at << 16 | (s->epoch & 0xffff);
	uint64_t *known = &r->marked[at % REFERENCE_MARKED];
	struct fabric_request request = {
		.opcode = FABRIC_WRITE,
		.flags = FABRIC_INLINE,
		.length = 1,
		.offset = at,
		.local = (void *)&referenced,
	};

	if (!r->sample) { /* all 2^32 hits are over */
		r->left = UINT32_MAX;
		return;
	}
	draw(s);
	if (*known == mark)
		return;
	*known = mark;
	session_post(s, &request, 1, NULL);
}
