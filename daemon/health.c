/* SPDX-License-Identifier: BSD-2-Clause */
/* What /readyz asks. Main thread; looks only at what is known. Next to read: http-answer.c. */
#include "health.h"
#include "listen-verbs.h"
#include "member.h"
#include "metrics-views.h"

static void add_reason(json_t *reasons, json_t *reason)
{
	if (reasons)
		json_array_append_new(reasons, reason);
	else
		json_decref(reason);
}

static bool pools_ready(const struct daemon *daemon, json_t *reasons)
{
	bool ready = true;

	for (size_t i = 0; i < daemon->pool_count; i++) {
		if (!daemon->pools[i]->cut_off)
			continue;
		ready = false;
		add_reason(reasons, json_sprintf("pool %s: its file has been cut off", daemon->pools[i]->name));
	}
	return ready;
}

static bool listeners_ready(const struct daemon *daemon, json_t *reasons)
{
	bool ready = true;

	for (size_t i = 0; i < daemon->listener_count; i++) {
		const struct listener_verbs *verbs = listener_verbs_of(daemon->listeners[i]);

		if (!verbs || verbs->state == LISTENER_UP)
			continue;
		ready = false;
		add_reason(reasons, json_sprintf("listener %s: %s%s%s", daemon->listeners[i]->config->name,
						 metrics_listener_state(verbs->state), verbs->failure[0] ? ": " : "",
						 verbs->failure));
	}
	return ready;
}

bool health_ready(const struct daemon *daemon, json_t *reasons)
{
	bool serving = daemon->ready_ms && !daemon->stopping, pools, listeners;

	if (!serving)
		add_reason(reasons,
			   json_string(daemon->stopping ? "the daemon is stopping" : "the daemon is starting"));
	pools = pools_ready(daemon, reasons);
	listeners = listeners_ready(daemon, reasons);
	if (!member_serves(daemon->member))
		add_reason(reasons, json_string("cluster: the lease is lost"));
	return serving && pools && listeners && member_serves(daemon->member);
}
