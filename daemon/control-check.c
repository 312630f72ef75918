/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks of pools that are being served, one of each pool at a time. Main thread: a timer of each
 * check's own gives it a millisecond, then others have the loop. It only reads, by the CPU's loads
 * as self.c does, and what it reads is another the moment after: common/check.h says how it deals
 * with that. Next: control.c, which passes the question on.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "check-json.h"
#include "clock.h"
#include "control-check.h"
#include "daemon.h"
#include "err.h"
#include "pool.h"

#define STEP_NS  1000000u
#define PAUSE_NS 4000000u
#define FINDINGS 1000u /* kept */

struct control_check {
	struct control_check *next; /* of another pool */
	struct daemon *daemon;
	const struct pool *pool;
	uint32_t id;         /* of this pool: counts its checks */
	struct check *check; /* NULL: it is through */
	struct event *timer;
	struct check_totals totals; /* when it is through */
	json_t *findings;
	uint64_t left_out;
};

static void on_finding(void *arg, const struct check_finding *finding)
{
	struct control_check *c = arg;

	if (json_array_size(c->findings) < FINDINGS)
		json_array_append_new(c->findings, check_json_finding(finding));
	else
		c->left_out++;
}

static void timer_set(struct control_check *c, uint64_t ns)
{
	struct timeval tv = {.tv_sec = (time_t)(ns / 1000000000),
			     .tv_usec = (suseconds_t)(ns % 1000000000 / 1000)};

	event_add(c->timer, &tv);
}

static void through(struct control_check *c)
{
	check_get_totals(c->check, &c->totals);
	check_free(c->check);
	c->check = NULL;
	log_notice(c->daemon->log, "pool %s: checked: %llu keys, %s", c->pool->name,
		   (unsigned long long)c->totals.keys,
		   check_clean(&c->totals) ? "nothing is wrong"
					   : "something is wrong, `tarn pool check` has said what");
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct control_check *c = arg;
	uint64_t began = clock_now_ns(), now = began;
	enum check_next next = CHECK_MORE;

	(void)fd;
	(void)what;
	while (next == CHECK_MORE && now - began < STEP_NS) {
		/* the clock costs more than a step */
		for (unsigned i = 0; i < 16 && next == CHECK_MORE; i++)
			next = check_step(c->check, now);
		now = clock_now_ns();
	}
	switch (next) {
	case CHECK_DONE:
		through(c);
		break;
	case CHECK_MORE:
		timer_set(c, PAUSE_NS);
		break;
	case CHECK_WAIT:
		timer_set(c,
			  check_due_ns(c->check) > now ? check_due_ns(c->check) - now : PAUSE_NS);
		break;
	}
}

/* ---- questions ---- */

static struct control_check *find(struct daemon *daemon, const struct pool *pool)
{
	struct control_check *c = daemon->checks;

	while (c && c->pool != pool)
		c = c->next;
	return c;
}

/* The place for a pool's checks is kept for the next ones. */
static struct control_check *find_or_make(struct daemon *daemon, const struct pool *pool)
{
	struct control_check *c = find(daemon, pool);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->daemon = daemon;
	c->pool = pool;
	c->timer = evtimer_new(daemon->base, on_timer, c);
	if (!c->timer) {
		free(c);
		return NULL;
	}
	c->next = daemon->checks;
	daemon->checks = c;
	return c;
}

static int begin(struct control_check *c)
{
	const struct check_memory memory = {.base = c->pool->memory.base,
					    .bytes = c->pool->geometry.pool_bytes};
	const struct check_options options = {
		.flags = CHECK_ONLINE, .report = on_finding, .arg = c};
	int ret = check_begin(&memory, &options, &c->check);

	if (ret < 0)
		return ret;
	c->id++;
	c->left_out = 0;
	json_decref(c->findings);
	c->findings = json_array();
	timer_set(c, 0);
	return 0;
}

static json_t *describe(const struct control_check *c)
{
	json_t *object = json_object();

	json_object_set_new(object, "pool", json_string(c->pool->name));
	json_object_set_new(object, "id", json_integer(c->id));
	json_object_set_new(object, "running", json_boolean(c->check != NULL));
	json_object_set_new(object, "permille",
			    json_integer(c->check ? check_permille(c->check) : 1000));
	if (c->check)
		return object;
	json_object_set(object, "findings", c->findings);
	json_object_set_new(object, "findings_left_out", json_integer((json_int_t)c->left_out));
	json_object_set_new(object, "totals", check_json_totals(&c->totals, true));
	return object;
}

static const struct pool *find_pool(const struct daemon *daemon, const char *name)
{
	for (size_t i = 0; name && i < daemon->pool_count; i++)
		if (strcmp(daemon->pools[i]->name, name) == 0)
			return daemon->pools[i];
	return NULL;
}

const char *control_check(struct daemon *daemon, uint32_t uid, const json_t *asked, json_t *answer,
			  const char **ret_name)
{
	json_int_t id = json_integer_value(json_object_get(asked, "id"));
	const struct pool *pool =
		find_pool(daemon, json_string_value(json_object_get(asked, "pool")));
	struct control_check *c;

	*ret_name = "EPERM";
	if (uid != 0 && uid != geteuid())
		return "only root and the daemon's own user may have a pool checked: use sudo";
	*ret_name = "ENOENT";
	if (!pool)
		return "there is no such pool: `tarn pools` lists them";
	c = find(daemon, pool);
	if (id && (!c || c->id != id))
		return "this check has been followed by another one: begin anew";
	*ret_name = "ENOMEM";
	c = find_or_make(daemon, pool);
	if (!c)
		return "no memory for a check";
	if (!id && !c->check && begin(c) < 0) {
		*ret_name = "EIO";
		return err_text();
	}
	json_object_set_new(answer, "check", describe(c));
	return NULL;
}

void control_check_free(struct daemon *daemon)
{
	while (daemon->checks) {
		struct control_check *c = daemon->checks;

		daemon->checks = c->next;
		event_free(c->timer);
		check_free(c->check);
		json_decref(c->findings);
		free(c);
	}
}
