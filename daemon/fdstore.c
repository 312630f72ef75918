/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * systemd's file-descriptor store; see fdstore.h. Main thread: pools at the start, regions as they are made,
 * resized and destroyed. The descriptor that is handed over shares our open file description, and so the daemon's
 * lock on it (pool-lock.c); the next daemon gets that same one. Next: pool-open.c, region-keep.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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
#define GENERATION    '@' /* not in a name of ours */
#define NAME_BYTES    (sizeof(REGION_PREFIX) + CONFIG_NAME_MAX + WIRE_REGION_NAME_BYTES + 12)
#define PLACES        1024 /* of tarnd.service; a systemd before 254 does not tell */
#define PROBE         "tarn-probe"
#define PROBE_US      2000000u /* a start waits so long for systemd, if need be */
/*
 * All names together are one variable of the next daemon's environment, LISTEN_FDNAMES, and a longer one the kernel
 * does not take (MAX_ARG_STRLEN, of 4 KiB pages): no daemon would start any more.
 */
#define NAMES_BYTES (131072u - 1024u)

struct kept {
	char pool[CONFIG_NAME_MAX + 1];
	char region[WIRE_REGION_NAME_BYTES]; /* "": it is the pool's own memory */
	uint32_t generation;
	int fd; /* -1: taken */
};

struct fdstore {
	const struct log *log;
	struct kept *kept;
	size_t count;
	unsigned places, held; /* that systemd has, and of these, in use */
	size_t names_bytes;    /* of the names of those in use, each with a separator */
};

static void region_text(struct fdstore_region region, char ret_text[NAME_BYTES])
{
	int length = snprintf(ret_text, NAME_BYTES, REGION_PREFIX "%s/%s", region.pool, region.name);

	if (region.generation)
		snprintf(ret_text + length, NAME_BYTES - (size_t)length, "%c%u", GENERATION,
			 region.generation);
}

static size_t name_bytes(const struct kept *kept)
{
	char name[NAME_BYTES];

	if (!kept->region[0])
		return strlen(PREFIX) + strlen(kept->pool) + 1;
	region_text((struct fdstore_region){.pool = kept->pool,
					    .name = kept->region,
					    .generation = kept->generation},
		    name);
	return strlen(name) + 1;
}

static bool has(const struct fdstore *store, struct fdstore_region region)
{
	for (size_t i = 0; i < store->count; i++)
		if (strcmp(store->kept[i].pool, region.pool) == 0 &&
		    strcmp(store->kept[i].region, region.name) == 0 &&
		    store->kept[i].generation == region.generation)
			return true;
	return false;
}

static int add(struct fdstore *store, struct fdstore_region region, int fd)
{
	struct kept *kept = realloc(store->kept, (store->count + 1) * sizeof(*kept));

	if (!kept) {
		close(fd);
		return err_set(-ENOMEM, "out of memory");
	}
	store->kept = kept;
	snprintf(kept[store->count].pool, sizeof(kept->pool), "%s", region.pool);
	snprintf(kept[store->count].region, sizeof(kept->region), "%s", region.name);
	kept[store->count].generation = region.generation;
	kept[store->count].fd = fd;
	store->held++;
	store->names_bytes += name_bytes(&kept[store->count++]);
	return 0;
}

int fdstore_add(struct fdstore *store, const char *pool, int fd)
{
	return add(store, (struct fdstore_region){.pool = pool, .name = ""}, fd);
}

int fdstore_add_region(struct fdstore *store, struct fdstore_region region, int fd)
{
	return add(store, region, fd);
}

/* A number as we write it; the empty text is 0. */
static bool generation_read(const char *text, uint32_t *ret_generation)
{
	char *end;
	unsigned long number;

	if (*text != GENERATION) {
		*ret_generation = 0;
		return *text == '\0';
	}
	if (text[1] < '1' || text[1] > '9')
		return false;
	errno = 0;
	number = strtoul(text + 1, &end, 10);
	if (errno || *end || number > UINT32_MAX)
		return false;
	*ret_generation = (uint32_t)number;
	return true;
}

/* "POOL/REGION" or "POOL/REGION@GENERATION" into its parts. False: it is no such thing. */
static bool region_name(const char *text, char pool[CONFIG_NAME_MAX + 1],
			char region[WIRE_REGION_NAME_BYTES], uint32_t *ret_generation)
{
	const char *slash = strchr(text, '/');
	size_t bytes = slash ? (size_t)(slash - text) : 0,
	       length = slash ? strcspn(slash + 1, "@") : 0;

	if (bytes == 0 || bytes > CONFIG_NAME_MAX || length == 0 ||
	    length >= WIRE_REGION_NAME_BYTES ||
	    !generation_read(slash + 1 + length, ret_generation))
		return false;
	memcpy(pool, text, bytes);
	pool[bytes] = '\0';
	memcpy(region, slash + 1, length);
	region[length] = '\0';
	return true;
}

/* One descriptor and its name. */
static int receive(struct fdstore *store, const char *name, int fd)
{
	const char *pool = strncmp(name, PREFIX, strlen(PREFIX)) == 0 ? name + strlen(PREFIX) : "";
	char of[CONFIG_NAME_MAX + 1], text[WIRE_REGION_NAME_BYTES];
	struct fdstore_region region = {.pool = pool, .name = ""};

	if (*pool && strlen(pool) <= CONFIG_NAME_MAX && !has(store, region))
		return add(store, region, fd);
	region = (struct fdstore_region){.pool = of, .name = text};
	if (strncmp(name, REGION_PREFIX, strlen(REGION_PREFIX)) == 0 &&
	    region_name(name + strlen(REGION_PREFIX), of, text, &region.generation) &&
	    !has(store, region))
		return add(store, region, fd);
	log_warning(store->log,
		    "descriptor %d, named %.80s, was handed over and is not for tarnd: closed", fd,
		    name);
	close(fd);
	/* systemd still has it */
	store->held++;
	store->names_bytes += strlen(name) + 1;
	return 0;
}

/*
 * Does systemd keep what it is handed? It does not say so, but what it does not keep it closes: one end of a pipe, and then
 * a look at the other one.
 */
static bool keeps(void)
{
	struct pollfd p;
	bool closed = false;
	int ends[2], told;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return true;
	/* without FDPOLL=0: it drops it by itself, if nobody takes it back */
	told = sd_pid_notify_with_fds(0, 0, "FDSTORE=1\nFDNAME=" PROBE, &ends[1], 1);
	close(ends[1]);
	if (told > 0 && sd_notify_barrier(0, PROBE_US) > 0) {
		p = (struct pollfd){.fd = ends[0], .events = POLLIN};
		closed = poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
	}
	if (told > 0)
		(void)sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=" PROBE);
	close(ends[0]);
	return !closed;
}

/*
 * FileDescriptorStoreMax=. From 254 on systemd tells it, if it is not 0; what one that says nothing does is tried,
 * unless it has handed over something that it had kept.
 */
static unsigned places(const struct fdstore *store)
{
	const char *text = getenv("FDSTORE");
	unsigned long number = text ? strtoul(text, NULL, 10) : 0;

	if (text)
		return number <= UINT16_MAX ? (unsigned)number : UINT16_MAX;
	return store->count || !getenv("NOTIFY_SOCKET") || keeps() ? PLACES : 0;
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
	if (count < 0)
		log_error(log,
			  "what systemd has kept can not be taken: LISTEN_FDS or LISTEN_FDNAMES is "
			  "wrong: %s",
			  strerrordesc_np(-count));
	store->places = places(store);
	*ret_store = store;
	return 0;
}

static struct kept *memory_of(const struct fdstore *store, const char *pool)
{
	for (size_t i = 0; i < store->count; i++)
		if (store->kept[i].fd >= 0 && !store->kept[i].region[0] &&
		    strcmp(store->kept[i].pool, pool) == 0)
			return &store->kept[i];
	return NULL;
}

int fdstore_find(const struct fdstore *store, const char *pool)
{
	const struct kept *kept = memory_of(store, pool);

	return kept ? kept->fd : -1;
}

int fdstore_take(struct fdstore *store, const char *pool)
{
	struct kept *kept = memory_of(store, pool);
	int fd = kept ? kept->fd : -1;

	if (kept)
		kept->fd = -1;
	return fd;
}

int fdstore_take_region(struct fdstore *store, const char *pool,
			char ret_name[WIRE_REGION_NAME_BYTES], uint32_t *ret_generation)
{
	struct kept *latest = NULL;
	int fd;

	for (size_t i = 0; i < store->count; i++) {
		struct kept *kept = &store->kept[i];

		if (kept->fd >= 0 && kept->region[0] && strcmp(kept->pool, pool) == 0 &&
		    (!latest || kept->generation > latest->generation))
			latest = kept;
	}
	if (!latest)
		return -1;
	memcpy(ret_name, latest->region, WIRE_REGION_NAME_BYTES);
	*ret_generation = latest->generation;
	fd = latest->fd;
	latest->fd = -1;
	return fd;
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
		if (kept->region[0]) {
			fdstore_drop_region(store, (struct fdstore_region){.pool = kept->pool,
									   .name = kept->region,
									   .generation =
										   kept->generation});
		} else {
			(void)sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=" PREFIX "%s", kept->pool);
			store->held--;
			store->names_bytes -= name_bytes(kept);
		}
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

/* `leave`: so many places stay free. systemd would not say that it has none. */
static int hand_over(struct fdstore *store, const char *name, int fd, unsigned leave)
{
	char state[NAME_BYTES + 64];
	int rc;

	if (!store)
		return 0;
	if (store->held + leave >= store->places && getenv("NOTIFY_SOCKET"))
		return err_set(-ENOSPC,
			       "systemd keeps %u descriptors for this unit, and %u are there: raise "
			       "FileDescriptorStoreMax= (systemctl edit)",
			       store->places, store->held);
	if (store->names_bytes + (1 + leave) * NAME_BYTES > NAMES_BYTES && getenv("NOTIFY_SOCKET"))
		return err_set(-ENOSPC,
			       "the names of the %u descriptors that systemd keeps have %zu bytes, and "
			       "with more the next tarnd could not start (at most %u): use fewer "
			       "regions, or shorter names",
			       store->held, store->names_bytes, NAMES_BYTES);
	/* FDPOLL: a memfd has no events by which it could be found to be dead */
	snprintf(state, sizeof(state), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	rc = sd_pid_notify_with_fds(0, 0, state, &fd, 1);
	if (rc < 0)
		return err_set(rc, "the memory can not be handed to systemd: %s",
			       strerrordesc_np(-rc));
	store->held += rc > 0;
	store->names_bytes += rc > 0 ? strlen(name) + 1 : 0;
	return rc > 0;
}

int fdstore_keep(struct fdstore *store, const char *pool, int fd)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), PREFIX "%s", pool);
	return hand_over(store, name, fd, 0);
}

int fdstore_keep_region(struct fdstore *store, struct fdstore_region region, int fd, bool instead)
{
	char name[NAME_BYTES];

	region_text(region, name);
	return hand_over(store, name, fd, instead ? 0 : 1);
}

void fdstore_drop_region(struct fdstore *store, struct fdstore_region region)
{
	char name[NAME_BYTES];

	region_text(region, name);
	(void)sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
	if (store->held)
		store->held--;
	store->names_bytes -= strlen(name) + 1 < store->names_bytes ? strlen(name) + 1
								    : store->names_bytes;
}
