/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which memory a listener's device must have registered before anybody can be let in, and the wait
 * for that at the start. Main thread. registration.c registers, in a thread; listen-verbs.c is the
 * caller, and waits for nothing once the daemon runs.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "clock.h"
#include "device.h"
#include "err.h"
#include "listen-verbs.h"
#include "pool.h"
#include "service.h"

#define GIB (1024.0 * 1024 * 1024)

static uint64_t max_region(const struct rdma *rdma, const struct device *device)
{
	const struct listener_verbs *listener;
	uint64_t least = 0;

	TAILQ_FOREACH (listener, &rdma->listeners, link) {
		uint64_t one = (uint64_t)listener->listener.config->max_region.number;

		if (listener->device == device && one && (!least || one < least))
			least = one;
	}
	return least;
}

static bool needed(const struct listener_verbs *listener, const struct pool *pool)
{
	const struct registration *reg = registration_find(listener->device, pool);

	return config_pool_offered(pool->config, listener->listener.config) &&
	       !(reg && reg->opened);
}

bool listener_verbs_incomplete(const struct listener_verbs *listener)
{
	const struct daemon *daemon = listener->rdma->daemon;

	for (size_t i = 0; i < daemon->pool_count; i++)
		if (needed(listener, daemon->pools[i]))
			return true;
	return false;
}

int listener_verbs_missing(struct listener_verbs *listener, struct registration **list)
{
	struct daemon *daemon = listener->rdma->daemon;
	struct device *device = listener->device;
	int count = 0;

	for (size_t i = 0; i < daemon->pool_count; i++) {
		int rc;

		if (!needed(listener, daemon->pools[i]))
			continue;
		if (device->registering)
			return err_set(-EBUSY, "the pools are being registered with %s",
				       device->name);
		/* one that is there already is of an attempt that has failed */
		registration_free(registration_find(device, daemon->pools[i]));
		rc = registration_create(device, daemon->pools[i],
					 max_region(listener->rdma, device), &list[count]);
		if (rc < 0)
			return rc;
		count++;
	}
	return count;
}

void listener_verbs_unready_free(struct device *device)
{
	struct registration *reg, *next;

	for (reg = TAILQ_FIRST(&device->registrations); reg; reg = next) {
		next = TAILQ_NEXT(reg, link);
		if (!reg->opened)
			registration_free(reg);
	}
}

int listener_verbs_open_all(struct device *device, bool start)
{
	struct registration *reg;

	TAILQ_FOREACH (reg, &device->registrations, link) {
		int rc = reg->opened ? 0 : registration_open(reg);

		if (rc < 0 && (start || !reg->opened))
			return rc;
		if (rc < 0) {
			reg->ready = true; /* so that it is logged */
			registration_self_try(reg);
		}
	}
	return 0;
}

/* ---- the start ---- */

static void progress(const struct log *log, const struct registration_run *run, uint64_t began)
{
	uint64_t done, total;
	double seconds = (double)(clock_now_ns() - began) / 1e9;

	registration_run_progress(run, &done, &total);
	log_info(log, "registering memory with RDMA devices: %.1f of %.1f GiB, %.0f s",
		 (double)done / GIB, (double)total / GIB, seconds);
	service_status("registering memory with RDMA devices: %.1f of %.1f GiB, %.0f s",
		       (double)done / GIB, (double)total / GIB, seconds);
	service_extend(30u * 1000 * 1000);
}

/* One step of the thread may take long, so it is this one that says that all is well. */
static int run_wait(const struct log *log, struct registration *const *list, size_t count)
{
	struct registration_run *run;
	uint64_t began = clock_now_ns();
	int rc = registration_run_start(list, count, &run);

	if (rc < 0)
		return rc;
	while (poll(&(struct pollfd){.fd = run->fd, .events = POLLIN}, 1, 1000) <= 0)
		progress(log, run, began);
	return registration_run_finish(run);
}

static bool offered_on(const struct rdma *rdma, const struct config_pool *pool,
		       const struct device *device)
{
	const struct listener_verbs *listener;

	TAILQ_FOREACH (listener, &rdma->listeners, link)
		if (listener->device == device &&
		    config_pool_offered(pool, listener->listener.config))
			return true;
	return false;
}

int listeners_verbs_check(struct rdma *rdma)
{
	const struct config *config = rdma->daemon->config;
	const struct device *device;
	uint64_t bytes = 0;

	/* each pool is registered twice on each of its devices, and counted each time */
	TAILQ_FOREACH (device, &rdma->devices, link)
		for (size_t i = 0; i < config->pool_count; i++)
			if (offered_on(rdma, &config->pools[i], device))
				bytes += 2 * (uint64_t)config->pools[i].size.number;
	return registration_memlock_check(bytes);
}

int listeners_verbs_register(struct rdma *rdma)
{
	struct listener_verbs *listener;
	int rc = 0;

	TAILQ_FOREACH (listener, &rdma->listeners, link) {
		struct registration **list;
		int count;

		if (!listener->device)
			continue; /* it may come later */
		list = calloc(rdma->daemon->pool_count + 1, sizeof(struct registration *));
		count = list ? listener_verbs_missing(listener, list)
			     : err_set(-ENOMEM, "out of memory");

		if (count > 0)
			rc = run_wait(rdma->daemon->log, list, (size_t)count);
		free(list);
		if (count < 0)
			return count;
		/* before the next one, which may need the same pools on the same device */
		if (rc == 0)
			rc = listener_verbs_open_all(listener->device, true);
		if (rc < 0)
			return rc;
	}
	return 0;
}
