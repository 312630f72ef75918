/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A reload. First all that can fail, beside what runs: the files are read into new structs, checked
 * and compared, new listeners are opened; a failure drops it all. Then, in the same turn of the
 * main loop, all that can not fail: pointers change to the new structs, and who has lost its rights
 * is cut off. Main thread; it waits for nothing but the files. Next: config-diff.c for what may
 * change, reload-listen.c, reload-keys.c and reload-http.c for how, control-config.c for who asks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "member.h"
#include "config-check.h"
#include "err.h"
#include "events.h"
#include "keeper.h"
#include "log.h"
#include "pool.h"
#include "quota.h"
#include "reload.h"
#include "reload-http.h"
#include "reload-listen.h"
#include "service.h"

#define ERRORS_LOGGED 20u

struct plan {
	struct config *next;
	struct auth_keys *keys; /* by the pools */
	struct quota **quotas;  /* theirs, where keys are others; then NULL when they are in use */
	struct reload_http http;
	struct reload_listen listen;
};

/* ---- what can fail ---- */

/* The file by itself, then with what a running daemon can not change. */
static int config_prepare(const struct daemon *daemon, struct plan *plan,
			  struct reload_report *report)
{
	struct config_errors *errors = &report->errors;

	if (config_load(daemon->config->file, errors, &plan->next) < 0)
		config_error(errors, "%s", err_text());
	if (errors->count)
		return -EINVAL;
	if (config_merge(daemon->config, plan->next, &report->changes) < 0) {
		config_error(errors, "%s", err_text());
		return -ENOMEM;
	}
	config_check(plan->next, errors);
	config_notices(plan->next, &report->notices);
	if (errors->count == 0)
		return 0;
	config_error(errors,
		     "%s: is right in itself, but not together with what stays as it is until a "
		     "restart: restart tarnd, or change less",
		     daemon->config->file);
	return -EINVAL;
}

/* One pool's keys, and what its keeper needs of them. */
static void pool_prepare(const struct pool *pool, const struct config *next, size_t i,
			 struct plan *plan, struct reload_report *report)
{
	const struct config_pool *config = &next->pools[i];
	struct auth_keys *keys = &plan->keys[i];

	if (config->auth.number == CONFIG_AUTH_KEY &&
	    auth_keys_load(config->key_file.text, keys) < 0) {
		config_error(&report->errors, "%s:%u: [pool %s] key_file = %s: %s", next->file,
			     config->key_file.line, config->name, config->key_file.text,
			     err_text());
		return;
	}
	reload_keys_compare(&pool->keys, keys, &report->keys[i]);
	if (report->keys[i].text[0] &&
	    keeper_keys_prepare(pool->keeper, keys, &plan->quotas[i]) < 0)
		config_error(&report->errors, "%s", err_text());
}

static int keys_prepare(const struct daemon *daemon, struct plan *plan,
			struct reload_report *report)
{
	plan->keys = calloc(daemon->pool_count + 1, sizeof(*plan->keys));
	plan->quotas = calloc(daemon->pool_count + 1, sizeof(struct quota *));
	report->keys = calloc(daemon->pool_count + 1, sizeof(*report->keys));
	if (!plan->keys || !plan->quotas || !report->keys) {
		config_error(&report->errors, "out of memory");
		return -ENOMEM;
	}
	report->pool_count = daemon->pool_count;
	for (size_t i = 0; i < daemon->pool_count; i++)
		pool_prepare(daemon->pools[i], plan->next, i, plan, report);
	return report->errors.count ? -EINVAL : 0;
}

static int http_prepare(struct daemon *daemon, struct plan *plan, struct reload_report *report)
{
	if (reload_http_prepare(daemon, plan->next, &plan->http) < 0) {
		config_error(&report->errors, "%s", err_text());
		return -EINVAL;
	}
	report->http_changed = plan->http.secrets_changed;
	return 0;
}

/* After all else that can fail: somebody may be connected from then on, if only for a moment. */
static int listeners_prepare(struct daemon *daemon, struct plan *plan, struct reload_report *report)
{
	int rc = reload_listen_prepare(daemon, plan->next, &report->errors, &plan->listen);

	if (rc == 0) {
		rc = reload_http_open(&plan->http);
		if (rc < 0)
			config_error(&report->errors, "%s:%u: [http] listen: %s", daemon->config->file,
				     plan->next->http.line, err_text());
	}
	if (rc < 0)
		reload_listen_undo(&plan->listen);
	return rc;
}

/* The last one: what it has read is in use. */
static int cluster_prepare(struct daemon *daemon, struct plan *plan, struct reload_report *report)
{
	int rc = member_reload(daemon->member, plan->next);

	if (rc == 0)
		return 0;
	config_error(&report->errors, "%s", err_text());
	reload_listen_undo(&plan->listen);
	return rc;
}

/* All that is read. */
static int files_prepare(struct daemon *daemon, struct plan *plan,
			 struct reload_report *report)
{
	int rc = config_prepare(daemon, plan, report);

	if (rc == 0)
		rc = keys_prepare(daemon, plan, report);
	return rc == 0 ? http_prepare(daemon, plan, report) : rc;
}

static void plan_drop(const struct daemon *daemon, struct plan *plan)
{
	for (size_t i = 0; plan->keys && i < daemon->pool_count; i++)
		auth_keys_free(&plan->keys[i]);
	for (size_t i = 0; plan->quotas && i < daemon->pool_count; i++)
		quota_free(plan->quotas[i]);
	free(plan->keys);
	free(plan->quotas);
	reload_http_undo(&plan->http);
	config_free(plan->next);
}

/* ---- what can not fail ---- */

/* The pool has its new settings; plan->keys has the old keys then. */
static void pool_commit(struct pool *pool, const struct config_pool *config, struct auth_keys *keys)
{
	struct auth_keys old = pool->keys;

	pool->config = config;
	pool->auth = config->auth.number == CONFIG_AUTH_KEY;
	pool->keys = *keys;
	*keys = old;
}

static void pools_commit(struct daemon *daemon, struct plan *plan, struct reload_report *report)
{
	for (size_t i = 0; i < daemon->pool_count; i++) {
		struct pool *pool = daemon->pools[i];
		const struct reload_access was = {pool->auth, &plan->keys[i]};

		pool_commit(pool, &plan->next->pools[i], &plan->keys[i]);
		if (plan->quotas[i])
			keeper_keys_commit(pool->keeper, plan->quotas[i]);
		plan->quotas[i] = NULL;
		report->clients_cut += reload_cut_all(pool, &was);
	}
}

static void commit(struct daemon *daemon, struct plan *plan, struct reload_report *report)
{
	const struct config *was = daemon->config;
	struct config *next = plan->next;

	reload_listen_clients(&plan->listen);
	pools_commit(daemon, plan, report);
	reload_http_commit(&plan->http);
	daemon->config = next;
	reload_listen_commit(&plan->listen, was);
	plan->next = daemon->reloaded; /* to be dropped; NULL: what ran was main.c's */
	daemon->reloaded = next;
}

/* ---- what is said ---- */

size_t reload_restarts(const struct reload_report *report)
{
	size_t count = 0;

	for (size_t i = 0; i < report->changes.count; i++)
		count += report->changes.list[i].restart;
	return count;
}

bool reload_nothing(const struct reload_report *report)
{
	for (size_t i = 0; i < report->pool_count; i++)
		if (report->keys[i].text[0])
			return false;
	return report->changes.count == 0 && !report->http_changed;
}

static void log_refused(const struct daemon *daemon, const struct config_errors *errors)
{
	for (size_t i = 0; i < errors->count && i < ERRORS_LOGGED; i++)
		log_error(daemon->log, "%s", errors->texts[i]);
	if (errors->count > ERRORS_LOGGED)
		log_error(daemon->log, "and %zu more: `tarn config check %s` lists them",
			  errors->count - ERRORS_LOGGED, daemon->config->file);
	events_tell(daemon->events, EVENT_reload_refused, NULL,
		    "reload refused: everything stays as it was: %s",
		    errors->count ? errors->texts[0] : "");
}

static void log_applied(const struct daemon *daemon, const struct reload_report *report)
{
	char text[1024];

	for (size_t i = 0; i < report->changes.count; i++) {
		const struct config_change *change = &report->changes.list[i];

		log_at(daemon->log, change->restart ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, "%s%s",
		       config_change_text(change, text, sizeof(text)),
		       change->section == CONFIG_SECTION_DAEMON && daemon->log_level_fixed
			       ? ": but the command line's comes first"
			       : "");
	}
	for (size_t i = 0; i < report->notices.count; i++)
		log_warning(daemon->log, "%s", report->notices.texts[i]);
	for (size_t i = 0; i < report->pool_count; i++)
		if (report->keys[i].text[0])
			log_notice(daemon->log, "[pool %s] %s", daemon->pools[i]->name,
				   report->keys[i].text);
	if (report->http_changed)
		log_notice(daemon->log, "[http] a new certificate or token is in use");
	events_tell(daemon->events, EVENT_reload, NULL,
		    "reloaded %s: %zu settings changed, %zu need a restart, %u clients cut off",
		    daemon->config->file, report->changes.count - reload_restarts(report),
		    reload_restarts(report), report->clients_cut);
}

/* What has changed is logged by the level that lets more through, so that it is not lost with it. */
static void log_and_set_level(struct daemon *daemon, const struct reload_report *report)
{
	int64_t number = daemon->config->daemon.log_level.number + LOG_LEVEL_ERROR;

	if (!daemon->log_level_fixed && number > daemon->log->level)
		log_set_level(daemon->log, (enum log_level)number);
	log_applied(daemon, report);
	if (!daemon->log_level_fixed)
		log_set_level(daemon->log, (enum log_level)number);
}

static void count(struct reload_counters *counters, int rc, uint64_t ns)
{
	counters->last_ms = clock_wall_ms();
	counters->last_ns = ns;
	if (ns > counters->longest_ns)
		counters->longest_ns = ns;
	if (rc < 0) {
		counters->refused++;
		return;
	}
	counters->applied++;
	counters->last_applied_ms = counters->last_ms;
}

int reload(struct daemon *daemon, struct reload_report *ret_report)
{
	uint64_t began = clock_now_ns(), cpu_began = clock_thread_ns();
	struct reload_report report = {0};
	struct plan plan = {0};
	int rc;

	service_reloading();
	err_clear();
	rc = files_prepare(daemon, &plan, &report);
	if (rc == 0)
		rc = listeners_prepare(daemon, &plan, &report);
	if (rc == 0)
		rc = cluster_prepare(daemon, &plan, &report);
	if (rc == 0) {
		commit(daemon, &plan, &report);
		log_and_set_level(daemon, &report);
	} else {
		log_refused(daemon, &report.errors);
	}
	plan_drop(daemon, &plan);
	service_ready();
	report.ns = clock_now_ns() - began;
	report.cpu_ns = clock_thread_ns() - cpu_began;
	count(&daemon->reloads, rc, report.ns);
	*ret_report = report;
	return rc < 0 ? -EINVAL : 0;
}

int reload_preview(struct daemon *daemon, struct reload_report *ret_report)
{
	struct reload_report report = {0};
	struct plan plan = {0};
	int rc;

	err_clear();
	rc = files_prepare(daemon, &plan, &report);
	if (rc == 0)
		rc = reload_listen_check(daemon, plan.next, &report.errors);
	plan_drop(daemon, &plan);
	*ret_report = report;
	return rc < 0 ? -EINVAL : 0;
}

void reload_report_free(struct reload_report *report)
{
	config_errors_free(&report->errors);
	config_errors_free(&report->notices);
	config_changes_free(&report->changes);
	free(report->keys);
	report->keys = NULL;
}
