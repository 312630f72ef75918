/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * [http] in a reload. Addresses that are in both configurations keep their sockets and connections, others are bound and opened
 * before any of the old ones is closed. Main thread; waits for the files of certificate and token alone. Next: http-listen.c.
 */
#include "reload-http.h"

int reload_http_prepare(struct daemon *daemon, const struct config *next, struct reload_http *plan)
{
	int rc;

	*plan = (struct reload_http){.daemon = daemon, .next = next};
	if (!next->http.line)
		return 0;
	if (!daemon->http)
		return http_bind(daemon, next, &plan->fresh);
	rc = http_secrets_load(next, &plan->secrets);
	if (rc < 0)
		return rc;
	plan->secrets_changed = !http_secrets_same(daemon->http, &plan->secrets);
	return http_listeners_prepare(http_listeners(daemon->http), next, &plan->listeners);
}

int reload_http_open(struct reload_http *plan)
{
	if (plan->fresh)
		return http_open(plan->fresh);
	return http_listeners_open(&plan->listeners, plan->daemon->base);
}

void reload_http_undo(struct reload_http *plan)
{
	http_close(plan->fresh);
	plan->fresh = NULL;
	if (plan->daemon && plan->daemon->http)
		http_listeners_undo(http_listeners(plan->daemon->http), &plan->listeners);
	http_secrets_free(&plan->secrets);
}

void reload_http_commit(struct reload_http *plan)
{
	struct daemon *daemon = plan->daemon;

	if (plan->fresh) {
		daemon->http = plan->fresh;
		plan->fresh = NULL;
	} else if (daemon->http && !plan->next->http.line) {
		http_close(daemon->http);
		daemon->http = NULL;
	} else if (daemon->http) {
		http_secrets_use(daemon->http, &plan->secrets);
		http_config_use(daemon->http, plan->next);
		http_listeners_commit(http_listeners(daemon->http), &plan->listeners);
	}
}
