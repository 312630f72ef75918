/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.c - a lock that any number of processes on any hosts share, and a number that it protects
 *
 *	cc lock.c $(pkg-config --cflags --libs libtarn) && ./a.out 'tarn:/run/tarn/tarn.sock?pool=main'
 *
 * The pool needs `region_memory`. Run several at a time, kill some: the number never goes back, and each addition
 * that was said to be done is in it. For that the lock alone is not enough: a process may be stopped while it has the
 * lock, for longer than the lease, and go on when another one has it. So the number's word also has the token of who
 * wrote it last, and is written by compare-and-swap: who comes too late finds a higher token and gives up.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <tarn/sync.h>
#include <unistd.h>

#define LEASE_MS 1000
#define LOCK     0  /* offsets in the region */
#define NUMBER   64 /* token << 20 | number */
#define TIMES    100

static void check(int ret)
{
	if (ret < 0)
		errx(1, "%s", tarn_last_error_text());
}

/* 1: added. 0: another one has the lock meanwhile. */
static int add(struct tarn_region *region, uint64_t token)
{
	uint64_t word, before;

	check(tarn_region_read(region, NUMBER, &word, 8));
	if (word >> 20 > token)
		return 0;
	check(tarn_region_cas(region, NUMBER, word, token << 20 | ((word + 1) & 0xfffff), &before));
	return before == word;
}

int main(int argc, char **argv)
{
	struct tarn_session *session;
	struct tarn_region *region;
	struct tarn_lock *lock;
	uint64_t token;
	int ret, added = 0;

	if (argc != 2)
		errx(2, "usage: lock URI");
	check(tarn_session_open(argv[1], NULL, &session));
	/* everybody may make all of it: it is made once */
	ret = tarn_region_create(session, "lock-example", 4096, 0);
	if (ret != -TARN_EEXISTS)
		check(ret);
	while ((ret = tarn_region_open(session, "lock-example", 0, &region)) == -TARN_EBUSY)
		usleep(1000); /* another one is making it */
	check(ret);
	check(tarn_lock_init(region, LOCK, LEASE_MS));
	check(tarn_lock_open(region, LOCK, (uint64_t)getpid(), &lock));
	while (added < TIMES) {
		check(tarn_lock_acquire(lock, 60000, &token));
		/* several times under one lock, as long as there is enough time left */
		for (int i = 0; i < 10 && tarn_lock_left_ms(lock) > LEASE_MS / 3; i++)
			added += add(region, token);
		ret = tarn_lock_release(lock);
		if (ret != -TARN_EOVERTAKEN)
			check(ret);
	}
	printf("added %d\n", added);
	tarn_lock_close(lock);
	tarn_region_close(region);
	tarn_session_close(session);
	return 0;
}
