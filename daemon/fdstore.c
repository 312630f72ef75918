/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * systemd's file-descriptor store; see fdstore.h. Main thread: pools at the start, regions as they are made,
 * resized and destroyed. The descriptor that is handed over shares our open file description, and so the
 * daemon's lock on it (pool-lock.c); the next daemon gets that same one. Next: pool-open.c, region.c.
 */
/*
 * systemd's file-descriptor store; see fdstore.h. Main thread: pools at the start, regions as they are made,
 * resized and destroyed. The descriptor that is handed over shares our open file description, and so the daemon's lock on it (pool-lock.c); the
 * next daemon gets that same one. Next: pool-open.c, region.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "config.h"
#include "err.h"
#include "fdstore.h"

#define PREFIX        "tarn-pool-"
#define REGION_PREFIX "tarn-region-"

struct kept {
	char pool[CONFIG_NAME_MAX + 1];
	char region[WIRE_REGION_NAME_BYTES]; /* "": it is the pool's own memory */
	int fd;                              /* -1: taken */
};

struct fdstore {
	const struct log *log;
	struct kept *kept;
	size_t count;
};

static const struct kept *find(const struct fdstore *store, const char *pool, const char *region)
{
	for (size_t i = 0; i < store->count; i++)
		if (strcmp(store->kept[i].pool, pool) == 0 &&
		    strcmp(store->kept[i].region, region) == 0)
			return &store->kept[i];
	return NULL;
}

static int add(struct fdstore *store, const char *pool, const char *region, int fd)
{
	struct kept *kept = realloc(store->kept, (store->count + 1) * sizeof(*kept));

	if (!kept) {
		close(fd);
		return err_set(-ENOMEM, "out of memory");
	}
	store->kept = kept;
	snprintf(kept[store->count].pool, sizeof(kept->pool), "%s", pool);
	snprintf(kept[store->count].region, sizeof(kept->region), "%s", region);
	kept[store->count++].fd = fd;
	return 0;
}

int fdstore_add(struct fdstore *store, const char *pool, int fd)
{
	return add(store, pool, "", fd);
}

int fdstore_add_region(struct fdstore *store, const char *pool, const char *region, int fd)
{
	return add(store, pool, region, fd);
}

/* "POOL/REGION" into its parts. False: it is no such thing. */
static bool region_name(const char *text, char pool[CONFIG_NAME_MAX + 1],
			char region[WIRE_REGION_NAME_BYTES])
{
	const char *slash = strchr(text, '/');
	size_t bytes = slash ? (size_t)(slash - text) : 0;

	if (bytes == 0 || bytes > CONFIG_NAME_MAX || !slash[1] ||
	    strlen(slash + 1) >= WIRE_REGION_NAME_BYTES)
		return false;
	memcpy(pool, text, bytes);
	pool[bytes] = '\0';
	snprintf(region, WIRE_REGION_NAME_BYTES, "%s", slash + 1);
	return true;
}

/* One descriptor and its name. */
static int receive(struct fdstore *store, const char *name, int fd)
{
	const char *pool = strncmp(name, PREFIX, strlen(PREFIX)) == 0 ? name + strlen(PREFIX) : "";
	char of[CONFIG_NAME_MAX + 1], region[WIRE_REGION_NAME_BYTES];

	if (*pool && strlen(pool) <= CONFIG_NAME_MAX && !find(store, pool, ""))
		return add(store, pool, "", fd);
	if (strncmp(name, REGION_PREFIX, strlen(REGION_PREFIX)) == 0 &&
	    region_name(name + strlen(REGION_PREFIX), of, region) && !find(store, of, region))
		return add(store, of, region, fd);
	log_warning(store->log,
		    "descriptor %d, named %.80s, was handed over and is not for tarnd: closed", fd,
		    name);
	close(fd);
	return 0;
}

int fdstore_create(const struct log *log, struct fdstore **ret_store)
{
	struct fdstore *store = calloc(1, sizeof(*store));
	char **names = NULL;
	int count, rc = 0;

	if (!store)
		return err_set(-ENOMEM, "out of memory");
	store->log = log;
	count = sd_listen_fds_with_names(1, &names);
	for (int i = 0; i < count; i++) {
		if (rc == 0)
			rc = receive(store, names[i], SD_LISTEN_FDS_START + i);
		free(names[i]);
	}
	free(names);
	if (rc < 0) {
		fdstore_free(store);
		return rc;
	}
	*ret_store = store;
	return 0;
}

int fdstore_take(struct fdstore *store, const char *pool)
{
	int fd;

	for (size_t i = 0; i < store->count; i++) {
		if (store->kept[i].fd < 0 || store->kept[i].region[0] ||
		    strcmp(store->kept[i].pool, pool) != 0)
			continue;
		fd = store->kept[i].fd;
		store->kept[i].fd = -1;
		return fd;
	}
	return -1;
}

int fdstore_take_region(struct fdstore *store, const char *pool,
			char ret_name[WIRE_REGION_NAME_BYTES])
{
	for (size_t i = 0; i < store->count; i++) {
		struct kept *kept = &store->kept[i];
		int fd = kept->fd;

		if (fd < 0 || !kept->region[0] || strcmp(kept->pool, pool) != 0)
			continue;
		memcpy(ret_name, kept->region, WIRE_REGION_NAME_BYTES);
		kept->fd = -1;
		return fd;
	}
	return -1;
}

void fdstore_forget_rest(struct fdstore *store)
{
	for (size_t i = 0; i < store->count; i++) {
		struct kept *kept = &store->kept[i];

		if (kept->fd < 0)
			continue;
		log_notice(
			store->log,
			"the memory that was kept for pool %s%s%s is given back: the configuration has "
			"no such pool any more, or does not keep it",
			kept->pool, kept->region[0] ? ", region " : "", kept->region);
		if (kept->region[0])
			fdstore_drop_region(kept->pool, kept->region);
		else
			(void)sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=" PREFIX "%s", kept->pool);
		close(kept->fd);
		kept->fd = -1;
	}
}

void fdstore_free(struct fdstore *store)
{
	if (!store)
		return;
	for (size_t i = 0; i < store->count; i++)
		if (store->kept[i].fd >= 0)
			close(store->kept[i].fd);
	free(store->kept);
	free(store);
}

static int hand_over(const char *name, int fd)
{
	char state[2 * CONFIG_NAME_MAX + 64];
	int rc;

	/* FDPOLL: a memfd has no events by which it could be found to be dead */
	snprintf(state, sizeof(state), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	rc = sd_pid_notify_with_fds(0, 0, state, &fd, 1);
	return rc < 0 ? err_set(rc, "the memory can not be handed to systemd: %s",
				strerrordesc_np(-rc))
		      : rc > 0;
}

int fdstore_keep(const char *pool, int fd)
{
	char name[CONFIG_NAME_MAX + sizeof(PREFIX)];

	snprintf(name, sizeof(name), PREFIX "%s", pool);
	return hand_over(name, fd);
}

int fdstore_keep_region(const char *pool, const char *region, int fd)
{
	char name[CONFIG_NAME_MAX + WIRE_REGION_NAME_BYTES + sizeof(REGION_PREFIX) + 1];

	snprintf(name, sizeof(name), REGION_PREFIX "%s/%s", pool, region);
	return hand_over(name, fd);
}

void fdstore_drop_region(const char *pool, const char *region)
{
	(void)sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=" REGION_PREFIX "%s/%s", pool, region);
}
