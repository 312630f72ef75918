/* SPDX-License-Identifier: BSD-2-Clause */
/* batch.h - inside of libtarn: batches of several sessions side by side, for a cluster */
#ifndef TARN_BATCH_H
#define TARN_BATCH_H

#include "session.h"

enum batch_kind { BATCH_GET, BATCH_PUT, BATCH_DELETE };

struct batch_part {
	struct tarn_session *session; /* held by nobody, and connected as far as is known */
	void *items;                  /* struct tarn_mget and so on */
	size_t count;
};

/*
 * Runs them all, each with its session; the result of each item is in it. What could not be begun because the connection was
 * lost, or was not answered and has changed nothing, is -TARN_ESESSION. 0, or -ENOMEM: no item was begun.
 */
int batch_run(enum batch_kind kind, struct batch_part *parts, unsigned count);

#endif
