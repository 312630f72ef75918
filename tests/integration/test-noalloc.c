/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test-noalloc.c - small operations cost no malloc, no lock and no system call once they are warm
 *
 *	test-noalloc URI SMALL-URI
 *
 * A child runs the operations. malloc and its sisters and the locks of pthread are interposed by
 * this program and count; its system calls are counted by the parent, by ptrace, between two marks
 * (system calls that do not exist). The clock is in the vDSO or a register, so it is none.
 *
 * The bounds. Memory: none for a get; a write may need one malloc per page that it claims, which
 * has 2048 blocks of this size: 1 per 1000 operations. Locks: none. System calls: none per
 * operation; what a session does by the time (is the daemon still there?) may cost 20 a second,
 * however many operations there are, and 10 for the beginning. Each kind runs at least 20000
 * operations, so that one per operation, or one in a hundred, cannot hide.
 *
 * NOT judged: writes in a pool whose pages have all been used once. There pages come back through
 * the ready rings, at the keeper's pace; a writer that outruns it asks the daemon for a page, which
 * costs system calls, one RPC per page of 2048 blocks at most. So URI is a pool of 256 MiB or more
 * that nobody has used, the number of writes is bounded to what fits into it, and what happens
 * afterwards is measured in SMALL-URI and printed, no more.
 *
 * Prints TAP without a plan: test-bench.sh adds it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tarn/tarn.h>

#define KEYS       20000u
#define RUN_NS     200000000ull
#define WARM_NS    1000000000ull /* the grace is 500 ms: retired blocks have come round by then */
#define WARM_MAX   300000u /* operations: three kinds that write stay below 256 MiB of blocks */
#define RUN_MAX    100000u
#define MARK_BEGIN 1000001 /* no such system calls */
#define MARK_END   1000002

enum kind { GET, CACHED_GET, PUT, CACHED_PUT, DELETE, KINDS };
static const char *const names[KINDS] = {"get", "cached get", "put", "cached put",
					 "delete and insert"};

struct count {
	uint64_t operations, mallocs, locks, syscalls, ns;
	bool done;
};

/* Shared by child and parent. */
static struct count *counts;

/* ---- counting -------------------------------------------------------------------------------- */

static uint64_t mallocs, locks;

#define INTERPOSED __attribute__((visibility("default")))

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

INTERPOSED void *malloc(size_t bytes)
{
	mallocs++;
	return __libc_malloc(bytes);
}

INTERPOSED void *calloc(size_t n, size_t bytes)
{
	mallocs++;
	return __libc_calloc(n, bytes);
}

INTERPOSED void *realloc(void *memory, size_t bytes)
{
	mallocs++;
	return __libc_realloc(memory, bytes);
}

INTERPOSED void *aligned_alloc(size_t alignment, size_t bytes)
{
	mallocs++;
	return __libc_memalign(alignment, bytes);
}

INTERPOSED void free(void *memory)
{
	mallocs += memory != NULL;
	__libc_free(memory);
}

#define LOCK(name, type)                                           \
	INTERPOSED int name(type *lock)                            \
	{                                                          \
		static int (*next)(type *);                        \
                                                                   \
		if (!next)                                         \
			*(void **)&next = dlsym(RTLD_NEXT, #name); \
		locks++;                                           \
		return next(lock);                                 \
	}

LOCK(pthread_mutex_lock, pthread_mutex_t)
LOCK(pthread_mutex_trylock, pthread_mutex_t)
LOCK(pthread_spin_lock, pthread_spinlock_t)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)

/* ---- the child: operations ------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int operate(struct tarn_session *session, enum kind kind, uint64_t i)
{
	uint64_t key[2] = {i * 7919 % KEYS, 1};
	char value[64] = "value";
	int ret;

	switch (kind) {
	case GET:
	case CACHED_GET:
		return tarn_get(session, key, sizeof(key), value, sizeof(value), NULL);
	case DELETE:
		ret = tarn_delete(session, key, sizeof(key));
		if (ret < 0)
			return ret;
		break;
	default:
		break;
	}
	return tarn_put(session, key, sizeof(key), value, sizeof(value), NULL, NULL);
}

/* Some thousand at least, then until the time is up or there were `most`. Their number, or a
 * negative code. */
static int64_t operate_for(struct tarn_session *session, enum kind kind, uint64_t ns, uint64_t most)
{
	uint64_t until = now_ns() + ns, i;

	for (i = 0; i < KEYS || (i < most && (i % 64 || now_ns() < until)); i++) {
		int ret = operate(session, kind, i);

		if (ret < 0)
			return ret;
	}
	return (int64_t)i;
}

static int64_t measure(struct tarn_session *session, enum kind kind)
{
	struct count *count = &counts[kind];
	int64_t ret = operate_for(session, kind, WARM_NS, WARM_MAX);
	uint64_t start;

	if (ret < 0)
		return ret;
	start = now_ns();
	syscall(MARK_BEGIN, kind);
	mallocs = locks = 0;
	ret = operate_for(session, kind, RUN_NS, RUN_MAX);
	count->mallocs = mallocs;
	count->locks = locks;
	syscall(MARK_END, kind);
	count->ns = now_ns() - start;
	count->operations = ret > 0 ? (uint64_t)ret : 0;
	count->done = ret > 0;
	return ret;
}

static int child_open(const char *uri, bool cache, struct tarn_session **ret_session)
{
	struct tarn_options options = TARN_OPTIONS_INIT;
	int ret;

	options.flags = TARN_NO_THREAD | (cache ? 0 : TARN_NO_CACHE);
	ret = tarn_session_open(uri, &options, ret_session);
	for (uint64_t i = 0; ret == 0 && i < KEYS; i++)
		ret = operate(*ret_session, PUT, i);
	return ret;
}

/* See "NOT judged" above. */
static int64_t show_used_pool(const char *uri)
{
	struct tarn_session_stats before = {.size = sizeof(before)},
				  after = {.size = sizeof(after)};
	struct tarn_pool_info info = {.size = sizeof(info)};
	struct tarn_session *session;
	int64_t ret = child_open(uri, false, &session);

	if (ret == 0)
		ret = tarn_session_get_pool_info(session, &info);
	/* twice as many blocks as there is room for */
	if (ret == 0)
		ret = operate_for(session, PUT, 60000000000ull, info.pool_bytes / 64);
	if (ret >= 0)
		ret = tarn_session_get_stats(session, &before);
	if (ret == 0)
		ret = operate_for(session, PUT, RUN_NS, RUN_MAX);
	if (ret > 0 && tarn_session_get_stats(session, &after) == 0)
		printf("# not judged: in a pool that was gone through once, %llu puts took %llu "
		       "RPCs\n",
		       (unsigned long long)ret, (unsigned long long)(after.rpcs - before.rpcs));
	else
		printf("# not judged: in a pool that was gone through once: %s\n",
		       tarn_last_error_text());
	fflush(stdout);
	return ret;
}

static int child(const char *uri, const char *small)
{
	struct tarn_session *sessions[2];
	static const bool cached[KINDS] = {[CACHED_GET] = true, [CACHED_PUT] = true};
	int64_t ret = child_open(uri, false, &sessions[0]);

	if (ret == 0)
		ret = child_open(uri, true, &sessions[1]);
	for (int kind = 0; ret >= 0 && kind < KINDS; kind++)
		ret = measure(sessions[cached[kind]], (enum kind)kind);
	if (ret < 0) {
		printf("# %s: %s\n", tarn_error_name((int)ret), tarn_last_error_text());
		fflush(stdout);
		return 1;
	}
	tarn_session_close(sessions[0]);
	tarn_session_close(sessions[1]);
	(void)show_used_pool(small);
	return 0;
}

/* ---- the parent: system calls ---------------------------------------------------------------- */

static void count_syscall(const struct __ptrace_syscall_info *info, int *inout_kind)
{
	if (info->op != PTRACE_SYSCALL_INFO_ENTRY)
		return;
	if (info->entry.nr == MARK_BEGIN && info->entry.args[0] < KINDS)
		*inout_kind = (int)info->entry.args[0];
	else if (info->entry.nr == MARK_END)
		*inout_kind = -1;
	else if (*inout_kind >= 0)
		counts[*inout_kind].syscalls++;
}

/* Follows the child to its end. Returns its wait status, or -1 when it cannot be followed. */
static int follow(pid_t pid)
{
	struct __ptrace_syscall_info info;
	int status, kind = -1, signal = 0;

	if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
		return -1;
	if (ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) < 0)
		return -1;
	while (ptrace(PTRACE_SYSCALL, pid, NULL, signal) == 0) {
		if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
			return status;
		signal = WSTOPSIG(status);
		if (signal != (SIGTRAP | 0x80))
			continue;
		signal = 0;
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
			return -1;
		count_syscall(&info, &kind);
	}
	return -1;
}

static bool judge(enum kind kind)
{
	const struct count *count = &counts[kind];
	bool reads = kind == GET || kind == CACHED_GET;
	uint64_t most_mallocs = reads ? 0 : count->operations / 1000;
	uint64_t most_syscalls = 10 + 20 * count->ns / 1000000000u;
	bool good = count->done && count->mallocs <= most_mallocs && count->locks == 0 &&
		    count->syscalls <= most_syscalls;

	printf("%sok - %s: no malloc, no lock and no system call per operation\n",
	       good ? "" : "not ", names[kind]);
	printf("# %llu operations in %llu ms: %llu malloc and free (at most %llu), %llu locks (0), "
	       "%llu system calls (%llu)\n",
	       (unsigned long long)count->operations, (unsigned long long)count->ns / 1000000u,
	       (unsigned long long)count->mallocs, (unsigned long long)most_mallocs,
	       (unsigned long long)count->locks, (unsigned long long)count->syscalls,
	       (unsigned long long)most_syscalls);
	return good;
}

static bool sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	return true;
#endif
#endif
	return false;
}

static int skip(const char *why)
{
	printf("ok - no malloc, no lock and no system call per operation # SKIP %s\n", why);
	/* not by exit(): the wrappers above keep the leak checker from seeing what libnl still holds */
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	bool good = true;
	pid_t pid;
	int status;

	if (argc != 3) {
		fprintf(stderr, "usage: test-noalloc URI SMALL-URI\n");
		return 2;
	}
	if (sanitized())
		return skip("a sanitizer has interposed malloc itself");
	counts = mmap(NULL, sizeof(*counts) * KINDS, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		return 1;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(77);
		raise(SIGSTOP);
		_exit(child(argv[1], argv[2]));
	}
	status = pid < 0 ? -1 : follow(pid);
	if (status == -1 || (WIFEXITED(status) && WEXITSTATUS(status) == 77))
		return skip("this system does not allow ptrace");
	for (int kind = 0; kind < KINDS; kind++)
		good &= judge((enum kind)kind);
	return good && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
