/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * work-queue.c - jobs that one host hands out and another one does
 *
 *	cc work-queue.c $(pkg-config --cflags --libs libtarn)
 *	./a.out tarn://10.77.0.1/main work        on one host: until there is none for ten seconds
 *	./a.out tarn://10.77.0.1/main send        on another one
 *	./a.out tarn://10.77.0.1/main             both, one after the other
 *
 * The pool needs `region_memory`. A job is taken out of the queue when it is done, so none is lost if the worker is
 * killed: the next one does it, perhaps for the second time. One worker at a time; any number of senders.
 */
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <tarn/sync.h>
#include <unistd.h>

#define JOBS 100

struct job {
	int number, square;
};

static void check(int ret)
{
	if (ret < 0)
		errx(1, "%s", tarn_last_error_text());
}

static void send_jobs(struct tarn_queue *queue)
{
	for (int i = 0; i < JOBS; i++) {
		struct job job = {.number = i};

		/* waits while the queue is full */
		check(tarn_queue_send(queue, &job, sizeof(job), 60000));
	}
	printf("%d jobs sent\n", JOBS);
}

static void work(struct tarn_queue *queue, uint32_t patience_ms)
{
	struct job job;
	uint64_t position;
	size_t bytes;
	int done = 0, ret;

	while ((ret = tarn_queue_peek(queue, &job, sizeof(job), patience_ms, &bytes, &position)) ==
	       0) {
		job.square = job.number * job.number;
		check(tarn_queue_consume(queue, position));
		done++;
	}
	if (ret != -TARN_ETIMEOUT)
		check(ret);
	printf("%d jobs done\n", done);
}

int main(int argc, char **argv)
{
	struct tarn_session *session;
	struct tarn_region *region;
	struct tarn_queue *queue;
	int ret, sends, works;

	if (argc < 2 || argc > 3 ||
	    (argc == 3 && strcmp(argv[2], "send") && strcmp(argv[2], "work")))
		errx(2, "usage: work-queue URI [send|work]");
	sends = argc == 2 || !strcmp(argv[2], "send");
	works = argc == 2 || !strcmp(argv[2], "work");
	check(tarn_session_open(argv[1], NULL, &session));
	/* everybody may make all of it: it is made once */
	ret = tarn_region_create(session, "jobs", tarn_queue_bytes(256, sizeof(struct job)), 0);
	if (ret != -TARN_EEXISTS)
		check(ret);
	while ((ret = tarn_region_open(session, "jobs", 0, &region)) == -TARN_EBUSY)
		usleep(1000); /* another one is making it */
	check(ret);
	check(tarn_queue_init(region, 0, 256, sizeof(struct job), 1000, 0));
	check(tarn_queue_open(region, 0, &queue));
	if (sends)
		send_jobs(queue);
	if (works)
		work(queue, sends ? 0 : 10000);
	tarn_queue_close(queue);
	tarn_region_close(region);
	tarn_session_close(session);
	return 0;
}
