/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calling thread's error text, and the words for each code. Any thread; nothing is shared between threads.
 * client/include/tarn/tarn.h has the codes, err.h the rule who calls what.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tarn/tarn.h>

#include "err.h"

/* The second one is used while it is aside. */
static _Thread_local char texts[2][ERR_TEXT_BYTES];
static _Thread_local bool is_aside;

int err_set(int code, const char *fmt, ...)
{
	int saved_errno = errno;
	char next[ERR_TEXT_BYTES];
	va_list args;

	/* By way of a second buffer: err_text() may be one of the arguments ("pool 'a': %s"). */
	va_start(args, fmt);
	if (vsnprintf(next, sizeof(next), fmt, args) < 0)
		next[0] = '\0';
	va_end(args);
	memcpy(texts[is_aside], next, strlen(next) + 1);
	errno = saved_errno;
	return code;
}

const char *err_text(void)
{
	return texts[is_aside];
}

void err_clear(void)
{
	texts[is_aside][0] = '\0';
}

bool err_aside(bool aside)
{
	bool before = is_aside;

	is_aside = aside;
	return before;
}

static int positive(int code)
{
	if (code == INT_MIN)
		return INT_MAX;
	return code < 0 ? -code : code;
}

/* NULL for what is not one of ours. No default: the compiler then warns of a code that was forgotten. */
static const char *tarn_string(enum tarn_error code)
{
	switch (code) {
	case TARN_ENOTFOUND:
		return "no such key";
	case TARN_EEXISTS:
		return "the key is there already";
	case TARN_ESTAMP:
		return "the value was changed meanwhile: its stamp is another one";
	case TARN_ETYPE:
		return "the key holds a value and not a counter";
	case TARN_EKEYSIZE:
		return "a key has 1 to 65535 bytes";
	case TARN_EVALUESIZE:
		return "the value is larger than the pool allows";
	case TARN_ETOOSMALL:
		return "the buffer is too small for the value";
	case TARN_ETIMEOUT:
		return "the time limit ran out, nothing was changed";
	case TARN_EAMBIGUOUS:
		return "the write may or may not have taken effect";
	case TARN_ECONFLICT:
		return "the counter was replaced meanwhile, the add may or may not have counted";
	case TARN_ERESTARTED:
		return "the daemon was started again: begin anew with the pool that is there now";
	case TARN_ECANCELED:
		return "cancelled before it had changed anything";
	case TARN_EBUSY:
		return "busy: too many asynchronous calls are under way, or the region is not ready";
	case TARN_EENDED:
		return "nothing is under way any more";
	case TARN_EOVERTAKEN:
		return "another one was faster: this one came too late";
	case TARN_EMOVED:
		return "the key's shard is with another member of the cluster by now";
	case TARN_ENOREGION:
		return "there is no such region, or it was destroyed";
	case TARN_EREADONLY:
		return "the session may only read";
	case TARN_ESESSION:
		return "not connected to the daemon now";
	case TARN_EREFUSED:
		return "the daemon refused the connection";
	case TARN_EVERSION:
		return "client and daemon have no protocol version in common";
	case TARN_EAUTH:
		return "the key file and the daemon's keys do not match";
	case TARN_EURI:
		return "the URI is malformed";
	case TARN_EINUSE:
		return "the session is in use by another thread or belongs to another process";
	case TARN_ENOTBUILT:
		return "this library has no transport for this URI";
	case TARN_EPROTO:
		return "the daemon sent something malformed";
	case TARN_EMAP:
		return "no fresh map of the cluster";
	case TARN_EUNAVAILABLE:
		return "the cluster's member that has the key is not there";
	case TARN_EUNREACHABLE:
		return "no daemon answers there";
	case TARN_EPOOLFULL:
		return "the pool has no memory left for this size";
	case TARN_EINDEXFULL:
		return "the index has no free slot for this key";
	case TARN_ECORRUPT:
		return "the pool's memory is damaged at this key";
	case TARN_EQUOTA:
		return "the access key has used up its quota";
	case TARN_ENOPOOL:
		return "the daemon has no pool of this name";
	}
	return NULL;
}

static const char *tarn_name(enum tarn_error code)
{
#define NAME(symbol)   \
	case symbol:   \
		return #symbol
	switch (code) {
		NAME(TARN_ENOTFOUND);
		NAME(TARN_EEXISTS);
		NAME(TARN_ESTAMP);
		NAME(TARN_ETYPE);
		NAME(TARN_EKEYSIZE);
		NAME(TARN_EVALUESIZE);
		NAME(TARN_ETOOSMALL);
		NAME(TARN_ETIMEOUT);
		NAME(TARN_EAMBIGUOUS);
		NAME(TARN_ECONFLICT);
		NAME(TARN_EREADONLY);
		NAME(TARN_EOVERTAKEN);
		NAME(TARN_ERESTARTED);
		NAME(TARN_ECANCELED);
		NAME(TARN_EBUSY);
		NAME(TARN_EENDED);
		NAME(TARN_ENOREGION);
		NAME(TARN_EMOVED);
		NAME(TARN_ESESSION);
		NAME(TARN_EREFUSED);
		NAME(TARN_EVERSION);
		NAME(TARN_EAUTH);
		NAME(TARN_EURI);
		NAME(TARN_EINUSE);
		NAME(TARN_ENOTBUILT);
		NAME(TARN_EPROTO);
		NAME(TARN_EUNREACHABLE);
		NAME(TARN_EMAP);
		NAME(TARN_EUNAVAILABLE);
		NAME(TARN_EPOOLFULL);
		NAME(TARN_EINDEXFULL);
		NAME(TARN_ECORRUPT);
		NAME(TARN_ENOPOOL);
		NAME(TARN_EQUOTA);
	}
#undef NAME
	return NULL;
}

const char *err_string(int code)
{
	const char *known = tarn_string((enum tarn_error)positive(code));

	if (!known) /* not strerror(): its buffer is shared by all threads */
		known = strerrordesc_np(positive(code));
	return known ? known : "unknown error";
}

const char *err_name(int code)
{
	const char *known = tarn_name((enum tarn_error)positive(code));

	if (!known)
		known = code == 0 ? "OK" : strerrorname_np(positive(code));
	return known ? known : "UNKNOWN";
}
