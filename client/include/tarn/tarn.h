/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tarn.h - the public interface of libtarn and its manual
 *
 * Tarn keeps keys and values in the memory of a storage node. A client reads, writes and deletes
 * them by one-sided operations: no thread of the daemon takes part. On one host the memory is
 * shared; between hosts it will be RDMA (see "URIs").
 *
 *	cc app.c $(pkg-config --cflags --libs libtarn)
 *
 *	struct tarn_session *session;
 *	char value[64];
 *	struct tarn_item item = TARN_ITEM_INIT;
 *
 *	if (tarn_session_open("tarn:/run/tarn/tarn.sock?pool=main", NULL, &session) < 0)
 *		errx(1, "%s", tarn_last_error_text());
 *	if (tarn_put(session, "name", 4, "Ada", 3, NULL, NULL) < 0 ||
 *	    tarn_get(session, "name", 4, value, sizeof(value), &item) < 0)
 *		errx(1, "%s", tarn_last_error_text());
 *	printf("%.*s\n", (int)item.value_bytes, value);
 *	tarn_session_close(session);
 *
 * Errors
 *	Each function that can fail returns an int: 0 (or a count) when it has worked, else a
 *	negative code: a system's cause is -errno, Tarn's own is -TARN_E... Nothing uses the global
 *	errno. tarn_strerror() has a sentence for each code; tarn_last_error_text() has the exact
 *	cause and remedy of this thread's last failure. Outputs come last, are named ret_..., and
 *	are untouched on failure unless the function says otherwise.
 *
 *	The codes are grouped by what a caller has to rebuild:
 *	  request  (1001...) this call only; the session goes on
 *	  session  (1101...) close the session and open another one
 *	  pool     (1201...) the pool cannot do it: an operator has to
 *
 *	Every call on a key may return, besides what its own text lists:
 *	  -EINVAL, -TARN_EKEYSIZE   an argument is wrong (the text says which)
 *	  -TARN_ETIMEOUT            the time limit ran out, nothing was changed: try again
 *	  -TARN_EINUSE              another thread is in a call on this session: use one session
 *	                            per thread
 *	  -TARN_ESESSION            the connection to the daemon is gone: open a new session
 *	  -TARN_EPROTO              the daemon answered something malformed
 *	  -ENOMEM                   this process is out of memory; nothing was changed
 *	  -TARN_ECORRUPT            the pool's memory is damaged at this key: restore it from its
 *	                            source
 *	and every call that writes, too:
 *	  -TARN_EAMBIGUOUS          the time ran out or the connection failed while the write was on
 *	                            its way: it may or may not have taken effect. It is never
 *	                            replayed silently. To find out, get the key: if item.stamp is
 *	                            *ret_stamp, it took effect.
 *	  -TARN_EREADONLY           the session was opened, or its key allows, reading only
 *	  -TARN_EPOOLFULL           the pool has no memory left for this size: delete, or enlarge
 *	                            the pool
 *	  -TARN_EINDEXFULL          the buckets of this key are full: create the pool for more keys
 *	                            ("keys" in its configuration section)
 *
 * Threads
 *	Different sessions are independent. One session is used by one thread at a time; a second
 *	one that enters gets -TARN_EINUSE. Functions without a session may be called from any
 *	thread. The library has one thread per process, started with the first session: the
 *	housekeeping thread. It reports telemetry and hands unused memory back while the application
 *	makes no calls. It takes a session only while no call is in it. An application that wants no
 *	thread sets TARN_NO_THREAD and calls tarn_session_process() about once a second. The library
 *	installs no signal handlers, never exits, never prints.
 *
 * URIs
 *	tarn:PATH?pool=NAME        the daemon's unix socket on this host; shared memory
 *	tarn://HOST[:PORT]/POOL    a daemon on another host; HOST may be [v6]. This is parsed and
 *	                           then refused with -TARN_ENOTBUILT: RDMA is the next piece of work.
 *	Further parameters, separated by '&': key=FILE (credentials, see tarnd.conf(5)), readonly=1,
 *	timeout=MS. %XX escapes a byte of PATH or of a value.
 *
 * Caveats
 *	- fork(): a session belongs to the process that opened it. A child must not use it, not even
 *	  close it: calls in a child return -TARN_EINUSE, tarn_session_close() there only frees
 *	  memory.
 *	- Do not call from a signal handler.
 *	- Keys and values are bytes. The session copies a key before a call returns; a value buffer
 *	  belongs to the library only during the call.
 *	- A get is linearizable with all puts and deletes of the same key by all clients. Two keys
 *	  have no order.
 *	- Shared memory trusts its writers: a client with write access that scribbles over the pool
 *	  can damage keys (readers notice: -TARN_ECORRUPT). Give readers a read-only key.
 */
#ifndef TARN_TARN_H
#define TARN_TARN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TARN_API        __attribute__((visibility("default")))
#define TARN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define TARN_API
#define TARN_MUST_CHECK
#endif

/* Version of this interface; tarn_version() is that of the library that runs. */
#define TARN_VERSION_MAJOR 0
#define TARN_VERSION_MINOR 1

/** @defgroup errors Error codes: functions return them negated. @{ */
enum tarn_error {
	/* request */
	TARN_ENOTFOUND = 1001,  /* the key is not there, or has expired */
	TARN_EEXISTS = 1002,    /* put-if-absent: the key is there */
	TARN_ESTAMP = 1003,     /* put-if-stamp: the key is there with another stamp */
	TARN_ETYPE = 1004,      /* add: the key holds a value, not a counter */
	TARN_EKEYSIZE = 1005,   /* a key has 1 to 65535 bytes */
	TARN_EVALUESIZE = 1006, /* the value is larger than the pool's max_value */
	TARN_ETOOSMALL = 1007,  /* the buffer is too small; item.value_bytes says what is needed */
	TARN_ETIMEOUT = 1008,   /* the time limit ran out; nothing was changed */
	TARN_EAMBIGUOUS = 1009, /* a write may or may not have taken effect */
	/* add: the counter was replaced meanwhile; the add may or may not have counted */
	TARN_ECONFLICT = 1010,
	TARN_EREADONLY = 1011, /* the session may only read */
	/* session */
	TARN_ESESSION = 1101, /* the connection to the daemon is gone */
	TARN_EREFUSED = 1102, /* the daemon refused the connection; the text says why */
	TARN_EVERSION = 1103, /* client and daemon have no protocol version in common */
	/* the key is wrong, unknown, or missing; or the daemon could not prove itself */
	TARN_EAUTH = 1104,
	TARN_EURI = 1105, /* the URI is malformed */
	/* the session is in use by another thread, or belongs to another process */
	TARN_EINUSE = 1106,
	TARN_ENOTBUILT = 1107,    /* this library has no transport for this URI */
	TARN_EPROTO = 1108,       /* the daemon sent something malformed */
	TARN_EUNREACHABLE = 1109, /* no daemon answers there */
	/* pool */
	TARN_EPOOLFULL = 1201,  /* no memory left in the pool for this size */
	TARN_EINDEXFULL = 1202, /* no free slot in the buckets of this key */
	TARN_ECORRUPT = 1203,   /* what is in the pool contradicts its checksum or layout */
	TARN_ENOPOOL = 1204,    /* the daemon has no pool of this name */
};

/**
 * What a code means. @code: negative as returned, or positive. Never NULL; static text. Any thread.
 */
TARN_API const char *tarn_strerror(int code);

/**
 * The symbol of a code, "TARN_ENOTFOUND" or "ENOMEM"; never NULL; static text. Any thread.
 */
TARN_API const char *tarn_error_name(int code);

/**
 * Cause and remedy of the calling thread's last failed call; also when open failed. Never NULL;
 * empty when there was none. Valid until this thread's next failing call.
 */
TARN_API const char *tarn_last_error_text(void);

/** The library's version, "0.1.0". Any thread. */
TARN_API const char *tarn_version(void);
/** @} */

/** @defgroup session Sessions @{ */
struct tarn_session;

#define TARN_READONLY 0x1u /* never write; the daemon hands out memory that cannot be written */
/* no housekeeping thread for this session: call tarn_session_process() */
#define TARN_NO_THREAD 0x2u
#define TARN_NO_CACHE 0x4u /* no location cache: each get looks into the index */

/**
 * Options of tarn_session_open(). Start from TARN_OPTIONS_INIT; fields are only ever added at the
 * end, and `size` tells the library which ones the caller knows. Zero means the default.
 */
struct tarn_options {
	uint32_t size;        /* sizeof(struct tarn_options) */
	uint32_t flags;       /* TARN_READONLY, TARN_NO_THREAD, TARN_NO_CACHE */
	uint32_t timeout_ms;  /* time limit of a call, 1 to 3600000; default 5000 */
	uint32_t reserved;    /* 0 */
	uint64_t cache_bytes; /* memory of the location cache, up to 1 GiB; default 8 MiB */
	/* credentials (tarnd.conf(5), "Keys"); NULL: the URI's key=, else TARN_KEY_FILE */
	const char *key_file;
};
#define TARN_OPTIONS_INIT                                     \
	{                                                     \
		sizeof(struct tarn_options), 0, 0, 0, 0, NULL \
	}

/**
 * Connects to a pool. Blocks up to the time limit.
 *
 * @uri: see "URIs" above. @options: may be NULL; the library keeps no pointer to it.
 * @ret_session: the caller owns it and closes it with tarn_session_close().
 *
 * Errors: -TARN_EURI, -TARN_ENOTBUILT (other transport), -TARN_EUNREACHABLE (no daemon: start it,
 * or check the path), -EACCES (the socket's permissions), -TARN_EAUTH (also: the
 * key file has not exactly one key), -errno (the key file cannot be read), -TARN_EVERSION,
 * -TARN_ENOPOOL, -TARN_EREFUSED (too many clients, shutting down), -TARN_EPROTO, -TARN_ETIMEOUT,
 * -ENOMEM, -EINVAL (options). Any thread.
 */
TARN_API TARN_MUST_CHECK int tarn_session_open(const char *uri, const struct tarn_options *options,
					       struct tarn_session **ret_session);

/**
 * Hands the session's unused memory back to the pool and disconnects. NULL is fine. Blocks a few
 * round trips, and up to the housekeeping thread's current step. No other call may be in the
 * session.
 */
TARN_API void tarn_session_close(struct tarn_session *session);

/**
 * What the housekeeping thread does, for one session: telemetry, memory that can be used again,
 * hand-back when idle, and noticing that the daemon is gone. For sessions with TARN_NO_THREAD,
 * about once a second. Short; blocks a few round trips. Errors: -TARN_EINUSE, -TARN_ESESSION.
 */
TARN_API int tarn_session_process(struct tarn_session *session);

/**
 * Sets the time limit of each later call. @timeout_ms: 1 to 3600000. Errors: -EINVAL, -TARN_EINUSE.
 */
TARN_API int tarn_session_set_timeout(struct tarn_session *session, uint32_t timeout_ms);

/** What the session has done; counted by the client itself, all since open. */
struct tarn_session_stats {
	uint32_t size;          /* set by the caller to sizeof(struct tarn_session_stats) */
	uint32_t client_id;     /* the daemon's number for this connection, as in `tarn clients` */
	uint64_t gets;          /* get and exists calls that ended, hits and misses */
	uint64_t hits;          /* of those: the key was there */
	uint64_t puts;          /* puts that took effect */
	uint64_t deletes;       /* deletes that took effect */
	uint64_t adds;          /* counter adds that took effect */
	uint64_t errors;        /* calls that failed otherwise */
	uint64_t retries;       /* operations begun again after a contended or moved slot */
	uint64_t round_trips;   /* posts waited for */
	uint64_t posts;         /* lists of requests handed to the transport */
	uint64_t requests;      /* READs, WRITEs, CASes and FAAs in them */
	uint64_t rpcs;          /* messages answered by the daemon's CPU */
	uint64_t cache_hits;    /* operations that a cached location finished */
	uint64_t cache_misses;  /* operations that looked into the index */
	uint64_t bytes_read;    /* bytes of READs */
	uint64_t bytes_written; /* bytes of WRITEs */
};

/** Fills *ret_stats as far as ret_stats->size reaches. Errors: -EINVAL (size is 0), -TARN_EINUSE. */
TARN_API int tarn_session_get_stats(struct tarn_session *session,
				    struct tarn_session_stats *ret_stats);

/** What the pool behind the session looks like; does not change while the session lives. */
struct tarn_pool_info {
	uint32_t size;            /* set by the caller to sizeof(struct tarn_pool_info) */
	uint32_t read_only;       /* 1: this session may only read */
	uint64_t pool_bytes;      /* size of the pool */
	uint64_t max_value_bytes; /* largest value that can be put */
	uint64_t epoch_ns;        /* resolution of expiry times */
	uint64_t boot_id;         /* changes with each start of the daemon */
	char transport[16];       /* "shm" */
	char atomics[8];          /* atomic domain: "cpu" or "nic" */
};

/** Fills *ret_info as far as ret_info->size reaches. Errors: -EINVAL (size is 0). */
TARN_API int tarn_session_get_pool_info(struct tarn_session *session,
					struct tarn_pool_info *ret_info);

/**
 * One message to the daemon and back: is its CPU alive. @ret_ns: how long it took, nanoseconds; may
 * be NULL. Blocks up to the time limit. Errors: -TARN_ETIMEOUT, -TARN_ESESSION, -TARN_EINUSE.
 */
TARN_API int tarn_session_ping(struct tarn_session *session, uint64_t *ret_ns);
/** @} */

/** @defgroup kv Keys and values: each call blocks up to the session's time limit @{ */

/* kinds of item */
#define TARN_KIND_VALUE   1u /* bytes */
#define TARN_KIND_COUNTER 2u /* a signed 64-bit number in the host's byte order, 8 bytes */

/** What is known of a value besides its bytes. */
struct tarn_item {
	uint32_t size;        /* sizeof(struct tarn_item): set by TARN_ITEM_INIT */
	uint32_t kind;        /* TARN_KIND_... */
	uint64_t value_bytes; /* length of the value */
	uint64_t stamp;       /* unique per write: the token of put-if-stamp */
	/* time to live left, milliseconds, rounded to epochs; 0: never expires */
	uint64_t expiry_ms;
	uint32_t user_flags; /* the application's own 32 bits */
	uint32_t writer;     /* client id of the writer */
};
#define TARN_ITEM_INIT                                     \
	{                                                  \
		sizeof(struct tarn_item), 0, 0, 0, 0, 0, 0 \
	}

/**
 * Reads a value.
 *
 * @key, @key_bytes: 1 to 65535 bytes. @buffer, @buffer_bytes: where the value goes; may be NULL
 * with 0 to learn the size.
 * @ret_item: may be NULL. The value's bytes past item.value_bytes are untouched; on failure the
 * buffer's content is undefined.
 *
 * Errors: -TARN_ENOTFOUND; -TARN_ETOOSMALL: the value is larger than @buffer_bytes, *ret_item is
 * filled all the same.
 */
TARN_API TARN_MUST_CHECK int tarn_get(struct tarn_session *session, const void *key,
				      size_t key_bytes, void *buffer, size_t buffer_bytes,
				      struct tarn_item *ret_item);

/**
 * Like tarn_get() without the value. @ret_item: may be NULL.
 * Errors: -TARN_ENOTFOUND.
 */
TARN_API TARN_MUST_CHECK int tarn_exists(struct tarn_session *session, const void *key,
					 size_t key_bytes, struct tarn_item *ret_item);

#define TARN_PUT_IF_ABSENT 0x1u /* only if the key is not there */
#define TARN_PUT_IF_STAMP  0x2u /* only if the key is there with stamp `stamp` */

/** Options of tarn_put(). Start from TARN_PUT_INIT. */
struct tarn_put_options {
	uint32_t size;       /* sizeof(struct tarn_put_options) */
	uint32_t flags;      /* TARN_PUT_IF_ABSENT or TARN_PUT_IF_STAMP */
	uint32_t user_flags; /* kept with the value */
	uint32_t reserved;   /* 0 */
	/* time to live, milliseconds, rounded up to an epoch, up to 100 years; 0: for ever */
	uint64_t expiry_ms;
	uint64_t stamp; /* for TARN_PUT_IF_STAMP */
};
#define TARN_PUT_INIT                                          \
	{                                                      \
		sizeof(struct tarn_put_options), 0, 0, 0, 0, 0 \
	}

/**
 * Writes a value, new or in place of the old one.
 *
 * @value, @value_bytes: 0 to the pool's max_value bytes; NULL is allowed with 0. @options: may be
 * NULL.
 * @ret_stamp: the new value's stamp; may be NULL; also filled on -TARN_EAMBIGUOUS.
 *
 * Errors: -TARN_EVALUESIZE; -TARN_EEXISTS (if absent); -TARN_ESTAMP, -TARN_ENOTFOUND (if stamp).
 */
TARN_API TARN_MUST_CHECK int tarn_put(struct tarn_session *session, const void *key,
				      size_t key_bytes, const void *value, size_t value_bytes,
				      const struct tarn_put_options *options, uint64_t *ret_stamp);

/**
 * Deletes a key. Errors: -TARN_ENOTFOUND.
 */
TARN_API TARN_MUST_CHECK int tarn_delete(struct tarn_session *session, const void *key,
					 size_t key_bytes);

/**
 * Adds to a counter; a key that is not there becomes a counter that starts at 0.
 *
 * @delta: wraps around like two's complement. @ret_value: the counter after the add; may be NULL.
 *
 * Errors: -TARN_ETYPE (the key holds a value); -TARN_ECONFLICT (the counter was replaced or deleted
 * while the add was on its way: it may or may not have counted).
 */
TARN_API TARN_MUST_CHECK int tarn_add(struct tarn_session *session, const void *key,
				      size_t key_bytes, int64_t delta, int64_t *ret_value);
/** @} */

/** @defgroup scan All keys @{ */
struct tarn_scan;

/**
 * Starts a walk over all keys, by one-sided reads of the index.
 *
 * @prefix, @prefix_bytes: only keys that begin so; NULL with 0 for all. Copied.
 * @ret_scan: belongs to the session; ended with tarn_scan_close() before the session is closed.
 *
 * A key that is there during the whole walk comes at least once (a key that is deleted and put
 * again meanwhile may come twice); no order. Does not block. Errors: -ENOMEM, -TARN_EKEYSIZE
 * (prefix too long).
 */
TARN_API TARN_MUST_CHECK int tarn_scan_open(struct tarn_session *session, const void *prefix,
					    size_t prefix_bytes, struct tarn_scan **ret_scan);

/**
 * The next key. Blocks up to the time limit.
 *
 * @ret_key, @ret_key_bytes: owned by the scan, valid until the next call on it. @ret_item: may be
 * NULL.
 *
 * Returns 1 with a key, 0 at the end.
 *
 * Errors: -TARN_ECORRUPT: something damaged was skipped, the text says what; -TARN_ETIMEOUT. After
 * both the call may be made again and goes on.
 */
TARN_API TARN_MUST_CHECK int tarn_scan_next(struct tarn_scan *scan, const void **ret_key,
					    size_t *ret_key_bytes, struct tarn_item *ret_item);

/** How far the walk is, 0 to 1000 thousandths of the index. */
TARN_API uint32_t tarn_scan_progress(const struct tarn_scan *scan);

/** Ends a walk; NULL is fine. */
TARN_API void tarn_scan_close(struct tarn_scan *scan);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
