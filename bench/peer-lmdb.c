/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer-lmdb.c - LMDB: a database in a directory (on tmpfs, so that no disk is measured), one
 * renewed read transaction per get
 *
 * A reader that renews sees what was committed last, as a get of Tarn does; one long transaction
 * would read a frozen past. Nothing is synced. Next: peer.c.
 */
#include <errno.h>
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "peer.h"

#define LOAD_BATCH 100000u /* puts in one transaction */

struct peer {
	MDB_env *env;
	MDB_dbi dbi;
	MDB_txn *read, *write;
	unsigned int pending;
};

static int lmdb_error(const char *what, int code)
{
	/* LMDB's own codes are negative, a system's positive. */
	return err_set(code > 0 ? -code : -EIO, "%s: %s", what, mdb_strerror(code));
}

static void lmdb_close(struct peer *peer)
{
	if (peer->read)
		mdb_txn_abort(peer->read);
	if (peer->write)
		mdb_txn_abort(peer->write);
	if (peer->env)
		mdb_env_close(peer->env);
	free(peer);
}

static int lmdb_begin(struct peer *peer)
{
	int code = mdb_txn_begin(peer->env, NULL, 0, &peer->write);

	if (code == 0)
		code = mdb_dbi_open(peer->write, NULL, 0, &peer->dbi);
	return code ? lmdb_error("begin", code) : 0;
}

static int lmdb_commit(struct peer *peer)
{
	int code = mdb_txn_commit(peer->write);

	peer->write = NULL;
	peer->pending = 0;
	return code ? lmdb_error("commit", code) : 0;
}

/* The database handle is opened in a transaction of its own; the reader's is made once and then
 * renewed. */
static int lmdb_prepare(struct peer *peer)
{
	int ret = lmdb_begin(peer), code;

	if (ret == 0)
		ret = lmdb_commit(peer);
	if (ret < 0)
		return ret;
	code = mdb_txn_begin(peer->env, NULL, MDB_RDONLY, &peer->read);
	if (code)
		return lmdb_error("begin of a read transaction", code);
	mdb_txn_reset(peer->read);
	return 0;
}

static int lmdb_open(const char *where, uint64_t bytes, struct peer **ret_peer)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	int code, ret;

	if (!peer)
		return err_set(-ENOMEM, "no memory for a handle");
	code = mdb_env_create(&peer->env);
	/* Room for half-full pages and for the copies that a transaction makes. */
	if (code == 0)
		code = mdb_env_set_mapsize(peer->env, bytes * 4 + (256u << 20));
	if (code == 0)
		code = mdb_env_open(peer->env, where, MDB_NOSYNC | MDB_WRITEMAP | MDB_MAPASYNC,
				    0600);
	ret = code ? lmdb_error(where, code) : lmdb_prepare(peer);
	if (ret < 0) {
		lmdb_close(peer);
		return ret;
	}
	*ret_peer = peer;
	return 0;
}

static int lmdb_load(struct peer *peer, const void *key, size_t key_size, const void *value,
		     size_t value_size)
{
	MDB_val k = {key_size, (void *)(uintptr_t)key}, v = {value_size, (void *)(uintptr_t)value};
	int code, ret = 0;

	if (!peer->write)
		ret = lmdb_begin(peer);
	if (ret < 0)
		return ret;
	code = mdb_put(peer->write, peer->dbi, &k, &v, 0);
	if (code)
		return lmdb_error("put", code);
	return ++peer->pending < LOAD_BATCH ? 0 : lmdb_commit(peer);
}

static int lmdb_flush(struct peer *peer)
{
	return peer->write ? lmdb_commit(peer) : 0;
}

static int64_t lmdb_get(struct peer *peer, const void *key, size_t key_size, void *ret_value,
			size_t capacity)
{
	MDB_val k = {key_size, (void *)(uintptr_t)key}, v;
	int code = mdb_txn_renew(peer->read);
	int64_t result;

	if (code)
		return lmdb_error("renew", code);
	code = mdb_get(peer->read, peer->dbi, &k, &v);
	if (code == 0 && v.mv_size <= capacity) {
		/* Only until the reset is the value the database's promise. */
		memcpy(ret_value, v.mv_data, v.mv_size);
		result = (int64_t)v.mv_size;
	} else if (code == MDB_NOTFOUND) {
		result = -ENOENT;
	} else {
		result = lmdb_error("get", code ? code : ENOSPC);
	}
	mdb_txn_reset(peer->read);
	return result;
}

const struct peer_ops peer_ops = {
	.name = "lmdb",
	.open = lmdb_open,
	.load = lmdb_load,
	.flush = lmdb_flush,
	.get = lmdb_get,
	.close = lmdb_close,
};
