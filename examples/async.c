/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * async.c - a thousand puts, then a thousand gets, many under way at a time, in libevent's loop
 *
 *	cc async.c $(pkg-config --cflags --libs libtarn libevent) && ./a.out 'tarn:/run/tarn/tarn.sock?pool=main'
 *
 * The session's descriptor becomes readable when there is something to do: completions to be picked up,
 * operations that can go on, or a connection to be made again.
 */
#include <err.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/tarn.h>

#define COUNT 1000

struct app {
	struct tarn_session *session;
	struct event_base *base;
	int left;
	int values[COUNT], back[COUNT];
};

static void begin_gets(struct app *app);

static void put_done(void *cookie, const struct tarn_completion *completion)
{
	struct app *app = cookie;

	if (completion->status < 0)
		errx(1, "put: %s", tarn_strerror(completion->status));
	if (--app->left == 0)
		begin_gets(app);
}

static void get_done(void *cookie, const struct tarn_completion *completion)
{
	struct app *app = cookie;

	if (completion->status < 0)
		errx(1, "get: %s", tarn_strerror(completion->status));
	if (--app->left == 0)
		event_base_loopexit(app->base, NULL);
}

/* The keys are the numbers themselves; they and the values stay where they are until all is done. */
static void begin_gets(struct app *app)
{
	struct tarn_async async = TARN_ASYNC_INIT;

	async.done = get_done;
	async.cookie = app;
	for (; app->left < COUNT; app->left++)
		if (tarn_get_async(app->session, &app->values[app->left], sizeof(int),
				   &app->back[app->left], sizeof(int), &async, NULL) < 0)
			errx(1, "%s", tarn_last_error_text());
}

static void readable(evutil_socket_t fd, short what, void *arg)
{
	struct app *app = arg;
	int count;

	(void)fd;
	(void)what;
	while ((count = tarn_session_poll(app->session, NULL, 0, NULL)) > 0)
		;
	if (count < 0)
		errx(1, "%s", tarn_last_error_text());
}

int main(int argc, char **argv)
{
	struct tarn_async async = TARN_ASYNC_INIT;
	static struct app app;
	struct event *event;

	if (argc != 2)
		errx(2, "usage: async URI");
	if (tarn_session_open(argv[1], NULL, &app.session) < 0)
		errx(1, "%s", tarn_last_error_text());
	app.base = event_base_new();
	event = event_new(app.base, tarn_session_fd(app.session), EV_READ | EV_PERSIST, readable,
			  &app);
	event_add(event, NULL);
	async.done = put_done;
	async.cookie = &app;
	for (; app.left < COUNT; app.left++) {
		app.values[app.left] = app.left;
		if (tarn_put_async(app.session, &app.values[app.left], sizeof(int),
				   &app.values[app.left], sizeof(int), NULL, &async, NULL) < 0)
			errx(1, "%s", tarn_last_error_text());
	}
	event_base_dispatch(app.base);
	for (int i = 0; i < COUNT; i++)
		if (app.back[i] != i)
			errx(1, "key %d has %d", i, app.back[i]);
	printf("%d values, there and back\n", COUNT);
	event_free(event);
	event_base_free(app.base);
	tarn_session_close(app.session);
	return 0;
}
