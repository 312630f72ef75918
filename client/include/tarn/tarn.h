/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tarn.h - the public interface of libtarn and its manual
 *
 * Tarn keeps keys and values in the memory of a storage node. A client reads, writes and deletes
 * them by one-sided operations: no thread of the daemon takes part. On one host the memory is
 * shared; between hosts it is RDMA (see "URIs").
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
 *	  session  (1101...) the connection; see "Reconnecting" for what mends itself
 *	  pool     (1201...) the pool cannot do it: an operator has to
 *
 *	Every call on a key may return, besides what its own text lists:
 *	  -EINVAL, -TARN_EKEYSIZE   an argument is wrong (the text says which)
 *	  -TARN_ETIMEOUT            the time limit ran out, nothing was changed: try again
 *	  -TARN_EINUSE              another thread is in a call on this session: use one session
 *	                            per thread
 *	  -TARN_ESESSION            not connected now, tried until the time limit; nothing was
 *	                            changed. The session stays usable: later calls try again
 *	  -TARN_EAUTH, -TARN_ENOPOOL, -TARN_EVERSION, -TARN_EREFUSED, -errno
 *	                            the connection was gone, and cannot be made again before somebody
 *	                            acts (a key was revoked, a pool removed): at once, not after the
 *	                            limit; the text says what. Later calls try again
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
 *	  -TARN_EQUOTA              the access key has used up its quota of keys, bytes or pages (the
 *	                            text says which): delete, or have it raised in tarnd's key file.
 *	                            To write over a value with one that is not larger is allowed
 *	  -TARN_EINDEXFULL          the buckets of this key are full: create the pool for more keys
 *	                            ("keys" in its configuration section)
 *
 * Reconnecting
 *	A session whose connection is lost (the daemon was started again, a cable was out) connects
 *	again by itself, on every transport: at the beginning of a call, and in the background by the
 *	housekeeping thread (or tarn_session_process()), with growing pauses of 10 ms to 1 s, some of
 *	it chance. The key file is read again each time. The session is then another client of the
 *	daemon: a new client id, new memory of its own; `reconnects` in its statistics counts.
 *	  - Calls that read (get, exists, scan, ping) are begun again, within their time limit.
 *	  - A write that was on its way when the connection broke, and may have taken effect, is
 *	    -TARN_EAMBIGUOUS. It is never made twice. A write of which that is certain not to be so (it
 *	    was still looking for the key, or could not be sent) is begun again.
 *	  - With the daemon gone for longer than the time limit calls end with -TARN_ESESSION.
 *	A pool in a file, or one that systemd keeps, is the same one after the daemon's next start. Any
 *	other is a new, empty one then: keys are gone (tarn_pool_info.incarnation changes, and limits may),
 *	and a walk ends with -TARN_ERESTARTED.
 *	On shared memory a daemon's death is noticed by the next message to it or by housekeeping, a
 *	quarter of a second later: until then calls go on in the old pool's memory, and what they write
 *	there is lost like everything else in it.
 *
 * Clusters
 *	Several daemons, the members, can serve one pool together. A URI that names some of them (see "URIs") opens a session
 *	with all: it fetches the map of the cluster from the first member that answers, and connects to each when that is
 *	needed. A key is with one member. Its operations go there, and when the map turns out to be old, the newest one is fetched and the
 *	operation begun again, within its time limit. Batches are cut by members, and their parts run side by side.
 *	Besides what is said under "Errors":
 *	  -TARN_EUNAVAILABLE  the member that has the key is down, or was not there until the time limit; the text names it. In a
 *	                      cache pool reads say -TARN_ENOTFOUND then
 *	  -TARN_EMAP          no member could say within map_bound that the map is still the newest: nothing is written. Reads go
 *	                      on; in a cache pool they say -TARN_ENOTFOUND
 *	  -TARN_EAMBIGUOUS    also: a write was done, and by the newest map the key may be with another member since
 *	Statistics are the sums of all members. Memory is registered with each member that is connected, and with others when they are
 *	(there values are copied if that fails). tarn_session_fd() is readable when any member has something to say. A region is
 *	with one member (tarn/region.h, "Clusters"). An asynchronous call waits for nothing but a first connection to its member, up to
 *	two seconds.
 *	A single daemon's pool that belongs to a cluster can not be opened without the others (-TARN_EREFUSED).
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
 *	tarn://HOST[:PORT]/POOL    a daemon on another host, over RDMA; HOST may be [v6]; port 7477
 *	                           if none is given
 *	tarn:PATH,PATH?pool=NAME, tarn://HOST[:PORT],HOST[:PORT]/POOL
 *	                           a cluster, by some of its members, 1 to 64; they are tried one after the other. A
 *	                           comma behind a single one says so, too: tarn://HOST,/POOL. In the name of a
 *	                           socket or host a comma is %2C
 *	Further parameters, behind '?' and separated by '&':
 *	  key=FILE         credentials, see tarnd.conf(5)
 *	  readonly=1       only read
 *	  timeout=MS       time limit of a call, 1 to 3600000
 *	  cluster=1        it is a cluster, of which this is a member
 *	  map_bound=MS     of a cluster: for how long its map counts as the newest one after a member has said so, 100 to
 *	                   3600000; else 5000. Behind that nothing is written
 *	  spin=US          how long a wait polls before it sleeps, 0 to 1000000 microseconds; see
 *	                   spin_us of struct tarn_options
 *	and with tarn:// only (a unix socket's URI with one of them is refused):
 *	  source=ADDRESS   local address to connect from: which device and port are used
 *	  ack_timeout=N    how long the adapter waits for an acknowledgement before it sends again:
 *	                   4.096 us * 2^N, N 1 to 31; 0: chosen, such that the pool's time rule holds.
 *	                   A value that breaks the rule is refused when the session is opened
 *	  retries=N        how often it sends again, 0 to 6; bound by the same rule
 *	  tos=N            type of service of the connection's packets, 0 to 255 (RoCE: DSCP * 4)
 *	  sl=N             service level, 0 to 15
 *	  gid=N            index in the port's GID table, 0 to 255; else the address's own
 *	  mtu=N            path MTU: 256, 512, 1024, 2048 or 4096; else the path's. The daemon's
 *	                   listener must have the same
 *	%XX escapes a byte of PATH or of a value.
 *
 * Mistakes
 *	What a call can not be given it refuses, as its text says. Besides:
 *	  - A session that another thread is in: -TARN_EINUSE. tarn_session_close() and tarn_scan_close(), which have no
 *	    result, do nothing then; tarn_last_error_text() says so.
 *	  - A session, walk or buffer that was closed must not be used: its memory is somebody else's. A library that was
 *	    built with --enable-debug keeps the last 64 of them, and says -EINVAL.
 *	  - The buffer of a get that is under way must be no other call's memory, also within a batch. What stands there in
 *	    the end is undefined; the calls end with 0, or, of large values, with -TARN_ECORRUPT, and a value that is put
 *	    from there may be damaged. With --enable-debug the second call is -EINVAL.
 *
 * Caveats
 *	- fork(): a session belongs to the process that opened it. A child cannot use it: calls in a
 *	  child return -TARN_EINUSE, tarn_session_close() there only frees memory. What is under way goes
 *	  on in the parent. A child may open sessions of its own, but with tarn:// only if no session with tarn:// was opened before the
 *	  fork (-EOPNOTSUPP else), or after exec().
 *	- Do not call from a signal handler.
 *	- Keys and values are bytes. Keys and buffers belong to the library only during a call; for
 *	  asynchronous calls see there.
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
	/* scan: the daemon was started again under the walk, the pool is another one */
	TARN_ERESTARTED = 1012,
	TARN_ECANCELED = 1013, /* an asynchronous call was cancelled before it had changed anything */
	/* asynchronous calls have to be picked up first, or buffers deregistered; a region is not ready, or open */
	TARN_EBUSY = 1014,
	TARN_EENDED = 1015,    /* nothing is under way any more */
	TARN_ENOREGION = 1016, /* there is no such region, or it was destroyed */
	TARN_EOVERTAKEN = 1017, /* lock, queue: another one was faster, this one came too late */
	/* the key's shard is elsewhere by now; a cluster's session handles it, you never see it */
	TARN_EMOVED = 1018,
	/* session */
	TARN_ESESSION =
		1101, /* not connected now, tried until the time limit; later calls try again */
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
	TARN_EMAP = 1110,         /* of a cluster: no member says that the map is still the newest; nothing was changed */
	/* pool */
	TARN_EPOOLFULL = 1201,  /* no memory left in the pool for this size */
	TARN_EINDEXFULL = 1202, /* no free slot in the buckets of this key */
	TARN_ECORRUPT = 1203,   /* what is in the pool contradicts its checksum or layout */
	TARN_ENOPOOL = 1204,    /* the daemon has no pool of this name */
	TARN_EQUOTA = 1205,     /* the access key has used up its quota */
	/* of a cluster: the member that has the key is not there. Whether the key is, is not known */
	TARN_EUNAVAILABLE = 1206,
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
#define TARN_NO_CACHE  0x4u /* no location cache: each get looks into the index */

/**
 * Options of tarn_session_open(). Start from TARN_OPTIONS_INIT; fields are only ever added at the
 * end, and `size` tells the library which ones the caller knows. Zero means the default.
 */
struct tarn_options {
	uint32_t size;        /* sizeof(struct tarn_options) */
	uint32_t flags;       /* TARN_READONLY, TARN_NO_THREAD, TARN_NO_CACHE */
	uint32_t timeout_ms;  /* time limit of a call, 1 to 3600000; default: the URI's, else 5000 */
	uint32_t reserved;    /* 0 */
	uint64_t cache_bytes; /* memory of the location cache, up to 1 GiB; default 8 MiB */
	/* credentials (tarnd.conf(5), "Keys"); NULL: the URI's key=, else TARN_KEY_FILE */
	const char *key_file;
	/*
	 * How long a wait polls before it sleeps, microseconds, up to 1000000; 0: the URI's spin=,
	 * else 200. Polling keeps a core busy while a call waits and saves the time to wake up (some
	 * microseconds to some ten): set it above a usual round trip for latency, to 1 for CPU time.
	 * A session in which no call is under way never polls.
	 */
	uint32_t spin_us;
	uint32_t reserved2; /* 0 */
};
#define TARN_OPTIONS_INIT                                           \
	{                                                           \
		sizeof(struct tarn_options), 0, 0, 0, 0, NULL, 0, 0 \
	}

/**
 * Connects to a pool. Blocks up to the time limit. Refusals that pass by themselves (the daemon has
 * too many connects at once, or is stopping) are tried again until then, after a pause that is
 * partly chance; the last refusal is the error.
 *
 * @uri: see "URIs" above. @options: may be NULL; the library keeps no pointer to it.
 * @ret_session: the caller owns it and closes it with tarn_session_close().
 *
 * Errors: -TARN_EURI, -TARN_ENOTBUILT (the library was built without this transport),
 * -TARN_EUNREACHABLE (no daemon: start it, or check path or host), -EACCES (the socket's permissions), -TARN_EAUTH (also: the
 * key file has not exactly one key), -errno (the key file cannot be read), -TARN_EVERSION,
 * -TARN_ENOPOOL, -TARN_EREFUSED (too many clients, busy, shutting down, the pool of a cluster), -TARN_EPROTO, -TARN_ETIMEOUT,
 * -EOPNOTSUPP (RDMA in a forked child, see "Caveats"), -ENOMEM, -EINVAL (options, or a parameter of the
 * URI that the pool's time rule or the adapter does not allow). Any thread.
 */
TARN_API TARN_MUST_CHECK int tarn_session_open(const char *uri, const struct tarn_options *options,
					       struct tarn_session **ret_session);

/**
 * Hands the session's unused memory back to the pool and disconnects. NULL is fine. Blocks a few
 * round trips, none if the connection is lost, and up to the housekeeping thread's current step. While
 * another thread is in a call on the session it does nothing, and the session stays open.
 */
TARN_API void tarn_session_close(struct tarn_session *session);

/**
 * What the housekeeping thread does, for one session: telemetry, memory that can be used again,
 * hand-back when idle, noticing that the daemon is gone, and, when it is, a try to connect again (if
 * it is time for one, and of up to 0.2 s). For sessions with TARN_NO_THREAD, about once a second.
 * Short; blocks a few round trips. Errors: -TARN_EINUSE; -TARN_ESESSION: not connected now; and what
 * is said of reconnecting under "Errors".
 */
TARN_API int tarn_session_process(struct tarn_session *session);

/**
 * A descriptor for event loops (poll, epoll, libevent): it becomes readable when the connection has
 * something to say while the session is in no call, above all that the daemon is gone. The application
 * then calls tarn_session_process(), which takes note of it and connects again; one that uses asynchronous
 * calls calls tarn_session_poll(), and the other one as well once a second if it has no housekeeping thread. Being readable means
 * nothing more: the call may find nothing to do, as when the housekeeping thread was faster, and
 * calls on keys need no such notice. It does not replace the call once a second of sessions with
 * TARN_NO_THREAD: while there is no connection it is silent.
 *
 * Wait for reading only; never read from it, and never close it: it belongs to the session. It stays
 * the same, and valid, across reconnects, until tarn_session_close(); take it out of the event loop
 * before that. Every call returns the same number. One thread per session, as all calls.
 *
 * Returns the descriptor, 0 or more; or -EINVAL, -TARN_EINUSE, -EMFILE and the like.
 */
TARN_API int tarn_session_fd(struct tarn_session *session);

/**
 * Sets the time limit of each later call. @timeout_ms: 1 to 3600000. Errors: -EINVAL, -TARN_EINUSE.
 */
TARN_API int tarn_session_set_timeout(struct tarn_session *session, uint32_t timeout_ms);

/** What the session has done; counted by the client itself, all since open, over all connections. */
struct tarn_session_stats {
	uint32_t size;          /* set by the caller to sizeof(struct tarn_session_stats) */
	uint32_t client_id;     /* the daemon's number for this connection, as in `tarn clients` */
	uint64_t gets;          /* get and exists calls that ended, hits and misses */
	uint64_t hits;          /* of those: the key was there */
	uint64_t puts;          /* puts that took effect */
	uint64_t deletes;       /* deletes that took effect */
	uint64_t adds;          /* counter adds that took effect */
	uint64_t errors;        /* calls that failed otherwise; an unmet condition is no failure */
	uint64_t retries;       /* operations begun again after a contended or moved slot */
	uint64_t round_trips;   /* posts waited for */
	uint64_t posts;         /* lists of requests handed to the transport */
	uint64_t requests;      /* READs, WRITEs, CASes and FAAs in them */
	uint64_t rpcs;          /* messages answered by the daemon's CPU */
	uint64_t cache_hits;    /* operations that a cached location finished */
	uint64_t cache_misses;  /* operations that looked into the index */
	uint64_t bytes_read;    /* bytes of READs */
	uint64_t bytes_written; /* bytes of WRITEs */
	uint64_t reconnects;    /* connections after the first one */
	uint64_t bytes_copied;  /* bytes of values copied here, besides the transfer itself */
};

/**
 * Fills *ret_stats as far as ret_stats->size reaches. Needs no connection. Errors: -EINVAL (size is
 * below 8), -TARN_EINUSE.
 */
TARN_API int tarn_session_get_stats(struct tarn_session *session,
				    struct tarn_session_stats *ret_stats);

/** What the pool behind the session looks like; changes only with a reconnect. */
struct tarn_pool_info {
	uint32_t size;            /* set by the caller to sizeof(struct tarn_pool_info) */
	uint32_t read_only;       /* 1: this session may only read */
	uint64_t pool_bytes;      /* size of the pool */
	uint64_t max_value_bytes; /* largest value that can be put */
	uint64_t epoch_ns;        /* resolution of expiry times */
	uint64_t boot_id;         /* changes with each start of the daemon */
	char transport[16];       /* "shm", "verbs" */
	char atomics[8];          /* atomic domain: "cpu" or "nic" */
	uint64_t incarnation;     /* another one: the pool was made anew, its keys are others */
};

/**
 * Fills *ret_info as far as ret_info->size reaches. Needs no connection: then it is what was there
 * last. Errors: -EINVAL (size is below 8), -TARN_EINUSE.
 */
TARN_API int tarn_session_get_pool_info(struct tarn_session *session,
					struct tarn_pool_info *ret_info);

/**
 * One message to the daemon and back: is its CPU alive. @ret_ns: how long it took, nanoseconds; may
 * be NULL. Blocks up to the time limit. Errors: -EINVAL (no session), -TARN_ETIMEOUT, -TARN_ESESSION and
 * those of tarn_session_open() when it has to connect again, -TARN_EINUSE.
 */
TARN_API int tarn_session_ping(struct tarn_session *session, uint64_t *ret_ns);
/** @} */

/** @defgroup kv Keys and values: each call blocks up to the session's time limit @{ */

/* kinds of item */
#define TARN_KIND_VALUE   1u /* bytes */
#define TARN_KIND_COUNTER 2u /* a signed 64-bit number in the host's byte order, 8 bytes */

/** What is known of a value besides its bytes. */
struct tarn_item {
	uint32_t size;        /* sizeof(struct tarn_item): set by TARN_ITEM_INIT; 0: nothing is filled */
	uint32_t kind;        /* TARN_KIND_... */
	uint64_t value_bytes; /* length of the value */
	uint64_t stamp;       /* unique per write: the token of put-if-stamp */
	/* time to live left, milliseconds, rounded to epochs; 0: never expires */
	uint64_t expiry_ms;
	uint32_t user_flags; /* the application's own 32 bits */
	uint32_t writer;     /* client id of the writer */
	uint64_t reserved[2]; /* 0: room for more, since a completion has an item within it */
};
#define TARN_ITEM_INIT                                               \
	{                                                            \
		sizeof(struct tarn_item), 0, 0, 0, 0, 0, 0, { 0, 0 } \
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
#define TARN_PUT_COUNTER   0x4u /* the value becomes a counter: 8 bytes, as tarn_get() gives them */

/** Options of tarn_put(). Start from TARN_PUT_INIT. */
struct tarn_put_options {
	uint32_t size;       /* sizeof(struct tarn_put_options) */
	uint32_t flags;      /* TARN_PUT_IF_ABSENT or TARN_PUT_IF_STAMP; TARN_PUT_COUNTER */
	uint32_t user_flags; /* kept with the value */
	uint32_t reserved;   /* 0 */
	/*
	 * time to live, milliseconds, up to 100 years; 0: for ever. The key is there for that long,
	 * and for up to two epochs (tarn_pool_info.epoch_ns) more
	 */
	uint64_t expiry_ms;
	uint64_t stamp; /* for TARN_PUT_IF_STAMP */
};
#define TARN_PUT_INIT                                          \
	{                                                      \
		sizeof(struct tarn_put_options), 0, 0, 0, 0, 0 \
	}

/**
 * Writes a value, new or in place of the old one. The new one is written beside the old one, so this,
 * too, needs memory: -TARN_EPOOLFULL, the pool has none.
 *
 * @value, @value_bytes: 0 to the pool's max_value bytes; NULL is allowed with 0. @options: may be
 * NULL.
 * @ret_stamp: the new value's stamp; may be NULL; also filled on -TARN_EAMBIGUOUS.
 *
 * Errors: -TARN_EVALUESIZE (also: a counter's value has not 8 bytes); -TARN_EEXISTS (if absent);
 * -TARN_ESTAMP, -TARN_ENOTFOUND (if stamp).
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

/**
 * @defgroup async Asynchronous calls and batches
 *
 * Each call on a key has a twin that only begins it, and does not wait for it; so have tarn_session_ping() and
 * tarn_scan_next(). (Not so what opens, closes or keeps a session, and what registers memory.) It goes on while the session
 * is in tarn_session_poll() or tarn_session_wait(), in a blocking call on a key or a batch, and now and
 * then by the housekeeping thread; when it has ended, its completion is picked up by tarn_session_poll().
 *
 *	static void done(void *cookie, const struct tarn_completion *completion)
 *	{
 *		if (completion->status == 0)
 *			use(cookie, completion->item.value_bytes);
 *	}
 *
 *	struct tarn_async async = TARN_ASYNC_INIT;
 *
 *	async.done = done;
 *	async.cookie = value;
 *	if (tarn_get_async(session, "name", 4, value, sizeof(value), &async, NULL) < 0)
 *		errx(1, "%s", tarn_last_error_text());
 *	while (tarn_session_wait(session, 1000) >= 0)
 *		tarn_session_poll(session, NULL, 0, NULL);
 *
 * In an event loop tarn_session_fd() takes the place of tarn_session_wait(): whenever it is readable,
 * tarn_session_poll() is called until it returns 0 (examples/async.c).
 *
 * Rules
 *	- Key, value and buffer are the library's from the call until the completion was picked up (also
 *	  after a cancel), and must not change meanwhile. Options are copied. What a call that was refused
 *	  (a negative code) was given is the caller's at once; it has no completion.
 *	- Each call that was accepted has exactly one completion, with the status that its blocking twin
 *	  would have returned. Completions have no text: tarn_last_error_text() is not about them,
 *	  tarn_strerror() has a sentence for each status. tarn_session_close() cancels what is under way; then there is none.
 *	- Nothing is promised about the order of calls under way, not even on one key: who needs one after
 *	  the other waits for the first one's completion. Each is linearizable by itself, between the call
 *	  and its completion. (Writes of one session to one key are made one at a time; of several puts
 *	  without a condition only some may be written, the last one among them, and the others count as
 *	  written right before it.)
 *	- Up to TARN_ASYNC_MAX calls of a session may be under way or not picked up. Up to 64 of them
 *	  run at a time, and 128 gets besides, the others wait; their requests are handed to the transport together. The memory for all
 *	  that is taken with the first asynchronous call or batch: 2 MB, and up to 50 MB where many large
 *	  keys and values are under way.
 *	- Completion callbacks are called by tarn_session_poll() alone, on its thread, with the session
 *	  free: they may make any call on it but tarn_session_close().
 *	- The deadline of a call is its timeout_ms, or the session's time limit. A write that is on its
 *	  way when it comes is waited for, or ends with -TARN_EAMBIGUOUS.
 *	- After the loss of a connection what may be made again is made again on the next one, within its
 *	  deadline, as blocking calls are. tarn_session_wait() connects; tarn_session_poll() never does (the
 *	  housekeeping thread does, or tarn_session_process()).
 * @{
 */
#define TARN_ASYNC_MAX 4096u

enum tarn_op_kind {
	TARN_OP_GET = 1,
	TARN_OP_EXISTS = 2,
	TARN_OP_PUT = 3,
	TARN_OP_DELETE = 4,
	TARN_OP_ADD = 5,
	TARN_OP_PING = 6,
	TARN_OP_SCAN = 7,
	TARN_OP_REGION = 8,     /* tarn/region.h */
	TARN_OP_REGION_WAIT = 9,
	TARN_OP_REGION_CONTROL = 10, /* its calls that make, find and open regions */
	TARN_OP_SYNC = 11            /* tarn/sync.h */
};

/** How an asynchronous call has ended. */
struct tarn_completion {
	uint64_t op;           /* as the call returned it */
	void *cookie;          /* the caller's */
	/* what the blocking call would have returned: 0 (scan, list of regions: 1 with one, 0 at the end) or negative */
	int32_t status;
	uint32_t kind;         /* enum tarn_op_kind */
	struct tarn_item item; /* get and exists, with status 0 or -TARN_ETOOSMALL; scan, with 1 */
	uint64_t stamp;        /* put, with status 0 or -TARN_EAMBIGUOUS; tarn/sync.h: see there */
	int64_t value;         /* add: the counter; ping: nanoseconds; regions and sync: see there; with status 0 */
	const void *key;       /* scan, with status 1: the walk's until its next call; else NULL */
	size_t key_bytes;      /* of it */
	uint64_t reserved[2];  /* 0 */
};

/** Called by tarn_session_poll(). @completion: valid until it returns. */
typedef void tarn_done(void *cookie, const struct tarn_completion *completion);

/** What every asynchronous call takes. Start from TARN_ASYNC_INIT; NULL means the same as that. */
struct tarn_async {
	uint32_t size;       /* sizeof(struct tarn_async) */
	uint32_t timeout_ms; /* deadline from now, 1 to 3600000; 0: the session's time limit */
	/* NULL: the completion waits until tarn_session_poll() is given room for it */
	tarn_done *done;
	void *cookie; /* for done(), and in the completion */
};
#define TARN_ASYNC_INIT                                \
	{                                              \
		sizeof(struct tarn_async), 0, NULL, NULL \
	}

/**
 * The asynchronous twins of tarn_get(), tarn_exists(), tarn_put(), tarn_delete(), tarn_add() and
 * tarn_session_ping(): see there for what the other arguments are, and above for how long they are the
 * library's. None waits for the operation. (Like tarn_session_poll() each may wait for what the housekeeping
 * thread is just doing with the session: microseconds, but up to 0.2 s while it connects.)
 *
 * @async: may be NULL. @ret_op: a number for tarn_cancel(), never 0; may be NULL.
 *
 * Errors: what the blocking call says of its arguments (-EINVAL, -TARN_EKEYSIZE, -TARN_EVALUESIZE of a
 * counter, -TARN_EREADONLY); -TARN_EBUSY: TARN_ASYNC_MAX are under way, pick up some; -TARN_EINUSE;
 * -ENOMEM.
 */
TARN_API TARN_MUST_CHECK int tarn_get_async(struct tarn_session *session, const void *key,
					    size_t key_bytes, void *buffer, size_t buffer_bytes,
					    const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_exists_async(struct tarn_session *session, const void *key,
					       size_t key_bytes, const struct tarn_async *async,
					       uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_put_async(struct tarn_session *session, const void *key,
					    size_t key_bytes, const void *value, size_t value_bytes,
					    const struct tarn_put_options *options,
					    const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_delete_async(struct tarn_session *session, const void *key,
					       size_t key_bytes, const struct tarn_async *async,
					       uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_add_async(struct tarn_session *session, const void *key,
					    size_t key_bytes, int64_t delta,
					    const struct tarn_async *async, uint64_t *ret_op);
TARN_API TARN_MUST_CHECK int tarn_session_ping_async(struct tarn_session *session,
						     const struct tarn_async *async,
						     uint64_t *ret_op);

/**
 * Lets what is under way go on, and picks up what has ended: calls the callbacks, and fills the list
 * with completions of calls that have none, which stay until there is room for them. Does not wait for
 * anything.
 *
 * @ret_completions, @max: the list and its room; NULL with 0: callbacks only.
 *
 * Returns how many were picked up, the first of which without a callback stand in the list, in the order in
 * which they ended. Of those with a callback up to 64 at a time: none is left when 0 is returned, but those
 * without one for which there was no room.
 * *@ret_count: how many stand in the list; may be NULL.
 * Errors: -EINVAL; -TARN_EINUSE. A lost connection is no error of this call: it is in the completions.
 */
TARN_API int tarn_session_poll(struct tarn_session *session,
			       struct tarn_completion *ret_completions, size_t max,
			       size_t *ret_count);

/**
 * Waits until there is a completion to be picked up. Connects again if the connection is lost (and the time
 * is not shorter than 50 ms).
 *
 * @timeout_ms: at most so long, 0 to 3600000.
 *
 * Returns 1: there is one; 0: the time is over. Errors: -TARN_EENDED: no asynchronous call is under way or
 * to be picked up; -EINVAL; -TARN_EINUSE.
 */
TARN_API int tarn_session_wait(struct tarn_session *session, uint32_t timeout_ms);

/**
 * Ends an asynchronous call early, if that is still possible: its completion has the status
 * -TARN_ECANCELED then, and nothing was changed. A call may also end as if this one had not been made, or,
 * a write that is on its way, with -TARN_EAMBIGUOUS; in any case its completion comes. Does not block. @op: from the call that began it.
 *
 * Returns 0. Errors: -TARN_EENDED: it has ended, its completion is there or was picked up; -EINVAL;
 * -TARN_EINUSE.
 */
TARN_API int tarn_cancel(struct tarn_session *session, uint64_t op);

/** One item of tarn_mget(). */
struct tarn_mget {
	const void *key;
	size_t key_bytes;
	void *buffer;
	size_t buffer_bytes;
	int status;            /* out: as tarn_get() returns it */
	uint32_t reserved;     /* 0 */
	struct tarn_item item; /* out; nothing has to be set before */
};

/** One item of tarn_mput(). */
struct tarn_mput {
	const void *key;
	size_t key_bytes;
	const void *value;
	size_t value_bytes;
	const struct tarn_put_options *options; /* may be NULL */
	int status;                             /* out: as tarn_put() returns it */
	uint32_t reserved;                      /* 0 */
	uint64_t stamp;                         /* out */
};

/** One item of tarn_mdelete(). */
struct tarn_mdelete {
	const void *key;
	size_t key_bytes;
	int status;        /* out: as tarn_delete() returns it */
	uint32_t reserved; /* 0 */
};

/**
 * Many operations in one call, as if they had been made all at once: much faster than one after the
 * other. Any number of items; each has a status of its own. The session's time limit is that of each item
 * from when its turn comes; when none has ended by itself for as long, the others end with
 * -TARN_ETIMEOUT, or with -TARN_ESESSION and the like when there is no connection. No order between items, also with the same key (but see above
 * for puts). Blocks until all have ended. Values may be put from the same memory; each get needs its own.
 *
 * Returns 0: look at the items (besides what the single call returns, one may have -TARN_EBUSY: all places
 * for calls under way are taken by completions that nobody picks up). Errors: -EINVAL, -TARN_EREADONLY,
 * -TARN_EINUSE, -ENOMEM, or the session can not be connected, as all calls: no item was touched.
 */
TARN_API TARN_MUST_CHECK int tarn_mget(struct tarn_session *session, struct tarn_mget *items,
				       size_t count);
TARN_API TARN_MUST_CHECK int tarn_mput(struct tarn_session *session, struct tarn_mput *items,
				       size_t count);
TARN_API TARN_MUST_CHECK int tarn_mdelete(struct tarn_session *session, struct tarn_mdelete *items,
					  size_t count);
/** @} */

/**
 * @defgroup buffers Values without a copy
 *
 * Over RDMA a value passes through the session's own registered memory, and is copied from there, or to
 * there. A large one (of more than some 87,000 bytes) goes straight from and to memory that the application has
 * registered, of any alignment, with every call that gets or puts. On shared memory large values are never
 * copied more than once; nothing has to be registered there, and registering costs nothing.
 * tarn_session_get_stats() has bytes_copied. The adapter writes to a buffer of a get that is under way, whatever
 * becomes of the call: it is the library's until then.
 * @{
 */
struct tarn_buffer;

/* puts alone: memory that may be mapped read-only. Gets into it are copied. */
#define TARN_BUFFER_SOURCE 0x1u

/**
 * Registers memory of the caller with the adapter, until tarn_buffer_deregister() or the end of the
 * session, over all its connections: each registers it anew, which takes time in proportion to the size,
 * too. (Where one can not, values are copied.) Pins the memory: RLIMIT_MEMLOCK counts. It must stay mapped; in
 * a forked child it is not registered, and with a kernel before 5.12 a fork parts it from the adapter, unless
 * it was made so by madvise(MADV_DONTFORK), as tarn_alloc()'s is.
 *
 * @memory, @bytes: at least 1. @flags: 0 or TARN_BUFFER_SOURCE. @ret_buffer: belongs to the session.
 *
 * Takes time in proportion to the size. Errors: -EINVAL; -EFAULT: there is no such memory, or it is not
 * writable (before Linux 6.2 shared memory has to be so with TARN_BUFFER_SOURCE, too); -ENOSPC: there are 1024; -ENOMEM and others: the adapter does not take it, the text says which
 * limit; -TARN_EINUSE.
 */
TARN_API TARN_MUST_CHECK int tarn_buffer_register(struct tarn_session *session, void *memory,
						  size_t bytes, uint32_t flags,
						  struct tarn_buffer **ret_buffer);

/**
 * Likewise memory of a device, as a GPU's, that its driver gives out as a dma-buf: values and regions go straight from
 * and to the device.
 *
 * @fd: of the dma-buf; may be closed afterwards. @offset, @bytes: at least 1, in the dma-buf. @flags: as above.
 * @ret_memory: the address by which every call knows the first byte, until the buffer is deregistered or the session
 * ends. If the dma-buf can be mapped, it is mapped there, and calls on keys, too, take it: they read the values for
 * their checksums by the CPU, which may be slow on a device. If it can not, nothing is there: what would need the
 * CPU ends with -EOPNOTSUPP, and reads and writes of regions (without checksums) go there by the adapter.
 * @ret_buffer: belongs to the session; ended with tarn_buffer_deregister().
 *
 * On shared memory it is the mapping alone. Whatever the device itself does with the memory has to be
 * finished before a call uses it, and the other way round: the library waits for no device. Connects again if the
 * connection is lost.
 * Errors: -EINVAL (also: not a dma-buf, or outside of it); -EBADF; -EOPNOTSUPP: the adapter, its driver or the kernel
 * can not, as soft-RoCE and soft-iWARP; on shared memory: it can not be mapped; -ENOSPC, -ENOMEM, -EMFILE and others;
 * -TARN_EINUSE, and those of a lost connection.
 */
TARN_API TARN_MUST_CHECK int tarn_buffer_register_dmabuf(struct tarn_session *session, int fd,
							 uint64_t offset, size_t bytes,
							 uint32_t flags, void **ret_memory,
							 struct tarn_buffer **ret_buffer);

/**
 * Ends that; NULL is fine. The memory is the caller's again. Errors: -TARN_EBUSY: an asynchronous call that has
 * not been picked up uses it, or, of a dma-buf, a part has been registered; -TARN_EINUSE. Then it stays registered.
 */
TARN_API int tarn_buffer_deregister(struct tarn_buffer *buffer);

/**
 * Memory that is registered, on huge pages where there are some, filled with zeros.
 *
 * @bytes: at least 1; is rounded up to 2 MiB. @ret_memory: until tarn_free(), or the end of the session.
 *
 * Errors: -EINVAL, -ENOMEM, and those of tarn_buffer_register().
 */
TARN_API TARN_MUST_CHECK int tarn_alloc(struct tarn_session *session, size_t bytes,
					void **ret_memory);

/**
 * Gives it back; NULL is fine. Errors: -EINVAL: it is not from tarn_alloc() of this session; -TARN_EBUSY (also:
 * a part of it has been registered, deregister that first), -TARN_EINUSE as tarn_buffer_deregister().
 */
TARN_API int tarn_free(struct tarn_session *session, void *memory);
/** @} */

/** @defgroup scan All keys @{ */
struct tarn_scan;

/**
 * Starts a walk over all keys, by one-sided reads of the index.
 *
 * @prefix, @prefix_bytes: only keys that begin so; NULL with 0 for all. Copied.
 * @ret_scan: ended with tarn_scan_close(), before or after the session is closed; after that it can do nothing else.
 *
 * A key that is there during the whole walk comes exactly once, whoever writes meanwhile, and also
 * if the index grows; its item is one that it had during the walk. A key that comes or goes
 * meanwhile may come or not; if it is deleted and put again, twice. No order. Does not block.
 *
 * With a cluster's session the walk goes from member to member, and what is said above is so as long as no shard's
 * owner changes. A key whose shard goes to another member during the walk, or was to go, comes at least once, and may come again;
 * likewise the keys of a member that was down, or that was started again with another pool. None is left out by that.
 *
 * Errors: -EINVAL (NULL), -ENOMEM, -TARN_EKEYSIZE (prefix too long), -TARN_EINUSE.
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
 * Errors: -TARN_EBUSY: an asynchronous call on the walk has not been picked up; -EINVAL (also: the walk's session
 * was closed); -TARN_ECORRUPT: something damaged was skipped, the text says what; -TARN_ETIMEOUT;
 * -TARN_ESESSION. After these the call may be made again and goes on where it was.
 * -TARN_ERESTARTED: the daemon was started again since the walk began, and what it would go on in is
 * another pool: close the walk, and begin a new one. (A connection that broke, to a daemon that did
 * not, makes no difference to a walk.) Not with a cluster's session: there that member's keys are walked again.
 * With a cluster's session also:
 * -TARN_EUNAVAILABLE: the keys of all members that could be reached have come; the text names one that is down or could not be
 * reached until the time limit, or a shard without an owner. (In a cache pool such a shard is empty by the rules, and passed.)
 * The call may be made again: when the member is there its keys come.
 * -TARN_EMAP: in a cache pool, no fresh map; the call may be made again, and nothing is lost by that.
 */
TARN_API TARN_MUST_CHECK int tarn_scan_next(struct tarn_scan *scan, const void **ret_key,
					    size_t *ret_key_bytes, struct tarn_item *ret_item);

/**
 * The asynchronous twin of tarn_scan_next(), see tarn_get_async(): the completion has the key and the item. One at a time:
 * until it has been picked up every other call on the walk but tarn_scan_progress() and tarn_scan_close() is -TARN_EBUSY.
 * One that was cancelled, or whose deadline has come, leaves the walk where it was. Several walks can go on side by side.
 *
 * @async: may be NULL. @ret_op: as there.
 *
 * Errors: -EINVAL (also: the walk's session was closed); -TARN_EBUSY (also: TARN_ASYNC_MAX are under way);
 * -TARN_EINUSE; -ENOMEM.
 */
TARN_API TARN_MUST_CHECK int tarn_scan_next_async(struct tarn_scan *scan,
						  const struct tarn_async *async, uint64_t *ret_op);

/**
 * Where the walk is, as bytes that another process can go on from: tarn_scan_open_at(). The key that
 * came last is behind it. @ret_position: room for TARN_SCAN_POSITION_BYTES. Needs no connection.
 * With a cluster's session it says which members are behind it, by their numbers, and where the walk over the one under way
 * is; if shards' owners have changed since that walk began, or members were passed over that could not be reached, it says
 * less than the walk knows, and some keys come again behind it.
 * Errors: -EINVAL, -TARN_EBUSY; with a cluster's session -TARN_EINUSE. Same thread as the walk.
 */
TARN_API int tarn_scan_position(const struct tarn_scan *scan, void *ret_position,
				size_t *ret_position_bytes);
#define TARN_SCAN_POSITION_BYTES 1024u

/**
 * Like tarn_scan_open(), but the walk goes on at a position. Both parts together are one walk, which
 * gives each key that is there during the whole of it exactly once (in a cluster at least once: tarn_scan_open(),
 * tarn_scan_position()). @prefix: as it was before.
 * Errors: those of tarn_scan_open(); -EINVAL (the bytes are no position, or one of another cluster, or not one of a cluster
 * where the session is a cluster's). Is the position one of another pool, the first tarn_scan_next() returns -TARN_ERESTARTED.
 */
TARN_API TARN_MUST_CHECK int tarn_scan_open_at(struct tarn_session *session, const void *prefix,
					       size_t prefix_bytes, const void *position,
					       size_t position_bytes, struct tarn_scan **ret_scan);

/** How far the walk is, 0 to 1000 thousandths of the index; of a cluster's session, of the shards. */
TARN_API uint32_t tarn_scan_progress(const struct tarn_scan *scan);

/**
 * Ends a walk; NULL is fine. An asynchronous call on it that has not been picked up ends with -TARN_ECANCELED. Not while
 * another thread is in a call on the session: then it does nothing.
 */
TARN_API void tarn_scan_close(struct tarn_scan *scan);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
