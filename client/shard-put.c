/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shard-put.c - a mover's puts and deletes as operations of the engine, so that many are under way at a time
 *
 * What they are as tasks is in kv.c and kv-shard.c. Runs on the session's owner. Next: engine-queue.c; daemon/shard-copy.c.
 */
#include "shard-put.h"

#include "engine.h"
#include "err.h"

static void ended(struct op *op)
{
	struct shard_job *job = op->moved;
	int status = op->completion.status;

	engine_op_free(op->batch, op);
	job->done(job, status);
}

static int begin(struct tarn_session *s, struct shard_job *job, enum tarn_op_kind kind)
{
	struct op *op = engine_op(s->engine);

	if (!op)
		return err_set(-TARN_EBUSY, "%u operations of the session are under way",
			       ENGINE_OPS);
	op->kind = kind;
	op->moved = job;
	op->limit_ns = session_now(s) + s->timeout_ns;
	op->ended = ended;
	op->batch = s->engine;
	if (kind == TARN_OP_PUT) {
		op->key = job->put.key;
		op->key_bytes = job->put.key_bytes;
		op->value = job->put.value;
		op->bytes = job->put.value_bytes;
	}
	engine_submit(s->engine, op);
	return 0;
}

int shard_put_begin(struct tarn_session *s, struct shard_job *job)
{
	return begin(s, job, TARN_OP_PUT);
}

int shard_delete_begin(struct tarn_session *s, struct shard_job *job)
{
	return begin(s, job, TARN_OP_DELETE);
}
