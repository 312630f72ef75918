/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listeners in a reload. One of the same name at the same place stays, with all its connections;
 * any other is a new one, opened beside the old ones before these are closed. Main thread; nothing
 * waits. Next: reload.c, which decides when; listen.h for what each kind of listener can do.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config-diff.h"
#include "err.h"
#include "listen.h"
#include "listen-verbs.h"
#include "peer.h"
#include "pool.h"
#include "reload-listen.h"

static unsigned int line_of(const struct config_listen *listen)
{
	return listen->path.line      ? listen->path.line
	       : listen->address.line ? listen->address.line
				      : listen->device.line;
}

static int failed(const struct reload_listen *plan, const struct config_listen *listen,
		  struct config_errors *errors)
{
	config_error(errors, "%s:%u: [listen %s]: %s", plan->next->file, line_of(listen),
		     listen->name, err_text());
	return -EINVAL;
}

/* ---- which is which ---- */

static int match(struct reload_listen *plan, struct config_errors *errors)
{
	const struct config *running = plan->daemon->config;

	for (size_t i = 0; i < running->listen_count; i++) {
		const struct config_listen *was = &running->listens[i],
					   *is = config_listen_find(plan->next, was->name);

		if (is && !config_listen_moved(was, is)) {
			plan->now[i] = is;
			plan->listeners[is - plan->next->listens] = plan->daemon->listeners[i];
			continue;
		}
		if (!listener_busy(plan->daemon->listeners[i]))
			continue;
		err_set(-EBUSY, "it can not be removed while memory is being registered for it: "
				"reload again when `tarn stats` shows it up");
		config_error(errors, "%s:%u: [listen %s]: %s", plan->next->file,
			     is ? line_of(is) : 0, was->name, err_text());
		return -EINVAL;
	}
	return 0;
}

static int group_check(const struct reload_listen *plan, const struct config_listen *listen,
		       struct config_errors *errors)
{
	uint32_t gid;

	if (listener_group(listen, &gid) == 0)
		return 0;
	config_error(errors, "%s:%u: [listen %s] group = %s: %s", plan->next->file,
		     listen->group.line, listen->name, listen->group.text, err_text());
	return -EINVAL;
}

/* The old listener there is closed only when nothing can fail any more. */
static int place_free(const struct reload_listen *plan, const struct config_listen *listen)
{
	const struct config *running = plan->daemon->config;

	for (size_t i = 0; i < running->listen_count; i++)
		if (!config_listen_moved(&running->listens[i], listen))
			return err_set(-EADDRINUSE,
				       "[listen %s] of the running tarnd is at this place: keep "
				       "that name, or remove that section by a reload of its own "
				       "before",
				       running->listens[i].name);
	return 0;
}

static int new_check(const struct reload_listen *plan, const struct config_listen *listen,
		     struct config_errors *errors)
{
	int rc = place_free(plan, listen);

	if (rc == 0)
		rc = listener_check(plan->daemon->log, listen);
	return rc < 0 ? failed(plan, listen, errors) : 0;
}

static int check(const struct reload_listen *plan, struct config_errors *errors)
{
	int rc = 0;

	for (size_t i = 0; i < plan->next->listen_count; i++) {
		const struct config_listen *listen = &plan->next->listens[i];

		if (group_check(plan, listen, errors) < 0 ||
		    (!plan->listeners[i] && new_check(plan, listen, errors) < 0))
			rc = -EINVAL;
	}
	return rc;
}

static int make(const struct reload_listen *plan, const struct config_listen *listen,
		struct listener **ret_listener)
{
	int rc = listener_bind(plan->daemon, listen, ret_listener);

	/* one of RDMA first has memory to register, which takes its time */
	return rc < 0 || config_listen_rdma(listen) ? rc : listener_open(*ret_listener);
}

/* ---- atomics by the device ---- */

static struct device *device_of(struct listener *listener)
{
	const struct listener_verbs *verbs = listener_verbs_of(listener);

	return verbs ? verbs->device : NULL;
}

/* Was the pool offered there before? */
static bool offered_before(const struct reload_listen *plan, const struct pool *pool,
			   const struct config_listen *listen)
{
	const struct config *running = plan->daemon->config;

	for (size_t i = 0; i < running->listen_count; i++)
		if (plan->now[i] == listen)
			return config_pool_offered(pool->config, &running->listens[i]);
	return false;
}

/*
 * Atomics of a device are atomic among each other alone (docs/protocol.md section 1), and a pool
 * that has them can not change that while clients work: another way to it needs a restart.
 */
static int atomics_check(const struct reload_listen *plan, size_t pool_index,
			 const struct config_listen *listen)
{
	const struct pool *pool = plan->daemon->pools[pool_index];
	struct listener *listener = plan->listeners[listen - plan->next->listens];
	struct device *device = device_of(listener);
	const struct registration *reg = device ? registration_find(device, pool) : NULL;

	if (pool->geometry.atomics != LAYOUT_ATOMICS_NIC ||
	    !config_pool_offered(&plan->next->pools[pool_index], listen) ||
	    offered_before(plan, pool, listen) || (reg && reg->opened))
		return 0;
	return err_set(
		-EINVAL,
		"the atomic operations of [pool %s] are done by an RDMA device, which must be "
		"the only way to it: name other listeners in its `listen`, or restart tarnd",
		pool->name);
}

/* ---- the steps ---- */

static int prepare_one(struct reload_listen *plan, size_t index, struct config_errors *errors)
{
	const struct config_listen *listen = &plan->next->listens[index];
	struct listener **listener = &plan->listeners[index];
	bool is_new = !*listener;
	int rc = is_new ? make(plan, listen, listener) : 0;

	for (size_t i = 0; rc == 0 && i < plan->daemon->pool_count; i++)
		rc = atomics_check(plan, i, listen);
	if (rc == 0 && !is_new) {
		plan->adjusted = index + 1; /* also when it fails halfway */
		rc = listener_adjust(*listener, listen);
	}
	/* as at the start: what can not be locked is said before it is tried */
	if (rc == 0 && is_new && config_listen_rdma(listen))
		rc = listeners_verbs_check(plan->daemon->rdma);
	return rc < 0 ? failed(plan, listen, errors) : 0;
}

/* To be freed also when it fails. */
static int begin(struct daemon *daemon, const struct config *next, struct config_errors *errors,
		 struct reload_listen *ret)
{
	int rc;

	*ret = (struct reload_listen){.daemon = daemon, .next = next};
	ret->listeners = calloc(next->listen_count + 1, sizeof(struct listener *));
	ret->now = calloc(daemon->config->listen_count + 1, sizeof(struct config_listen *));
	if (!ret->listeners || !ret->now) {
		config_error(errors, "out of memory");
		return -ENOMEM;
	}
	rc = match(ret, errors);
	return rc < 0 ? rc : check(ret, errors);
}

int reload_listen_check(struct daemon *daemon, const struct config *next,
			struct config_errors *errors)
{
	struct reload_listen plan;
	int rc = begin(daemon, next, errors, &plan);

	free(plan.listeners);
	free(plan.now);
	return rc;
}

int reload_listen_prepare(struct daemon *daemon, const struct config *next,
			  struct config_errors *errors, struct reload_listen *ret)
{
	int rc = begin(daemon, next, errors, ret);

	for (size_t i = 0; rc == 0 && i < next->listen_count; i++)
		rc = prepare_one(ret, i, errors);
	return rc;
}

static bool is_in(struct listener *const *list, size_t count, const struct listener *listener)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] == listener)
			return true;
	return false;
}

void reload_listen_undo(struct reload_listen *plan)
{
	for (size_t i = 0; plan->listeners && i < plan->next->listen_count; i++) {
		struct listener *listener = plan->listeners[i];

		if (listener &&
		    !is_in(plan->daemon->listeners, plan->daemon->listener_count, listener))
			listener_remove(listener);
		else if (listener && i < plan->adjusted &&
			 listener_adjust(listener, listener->config) < 0)
			log_error(plan->daemon->log, "[listen %s]: %s", listener->config->name,
				  err_text());
	}
	free(plan->listeners);
	free(plan->now);
}

void reload_listen_clients(const struct reload_listen *plan)
{
	const struct config_listen *old = plan->daemon->config->listens;

	for (size_t i = 0; i < plan->daemon->pool_count; i++) {
		struct pool *pool = plan->daemon->pools[i];

		for (uint32_t slot = 0; slot < pool->geometry.max_clients; slot++) {
			struct pool_client *client = &pool->clients[slot];

			if (client->state != LAYOUT_CLIENT_LIVE)
				client->listener = NULL; /* of one that has left */
			else if (client->listener)
				client->listener = plan->now[client->listener - old];
		}
	}
}

/* It was opened but for what an RDMA listener still has to do, and that does not fail any more. */
static void new_begin(struct daemon *daemon, struct listener *listener)
{
	if (config_listen_rdma(listener->config))
		(void)listener_open(listener);
	if (daemon->guests >= DAEMON_GUESTS_MAX)
		listener_pause(listener);
}

void reload_listen_commit(struct reload_listen *plan, const struct config *was)
{
	struct daemon *daemon = plan->daemon;
	struct listener **old = daemon->listeners;
	size_t old_count = daemon->listener_count;

	daemon->listeners = plan->listeners;
	daemon->listener_count = plan->next->listen_count;
	for (size_t i = 0; i < daemon->listener_count; i++)
		if (!is_in(old, old_count, daemon->listeners[i]))
			new_begin(daemon, daemon->listeners[i]);
	for (size_t i = 0; i < old_count; i++) {
		if (plan->now[i])
			listener_update(old[i], plan->now[i]);
		else
			listener_remove(old[i]);
	}
	peers_relisten(daemon, was->listens, plan->now);
	free(old);
	free(plan->now);
}
