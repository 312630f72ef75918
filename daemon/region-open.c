/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has which region open, and who waits for one. A client has a table of handles, a region the list of
 * those who have it open. Main thread. Next: region.h, region-rpc.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "fabric.h"
#include "region.h"
#include "rpc.h"

static_assert(TARN_REGION_OPEN_MAX == FABRIC_SPACES, "a handle is a space");

int region_open(struct region *region, struct rpc_client *client, uint32_t handle, bool read_only)
{
	struct region_open *open;

	if (handle == 0 || handle > TARN_REGION_OPEN_MAX)
		return -EINVAL;
	if (!client->opens)
		client->opens = calloc(TARN_REGION_OPEN_MAX, sizeof(struct region_open *));
	open = client->opens ? calloc(1, sizeof(*open)) : NULL;
	if (!open)
		return -ENOMEM;
	region_close(client, handle);
	open->region = region;
	open->client = client;
	open->read_only = read_only;
	client->opens[handle - 1] = open;
	LIST_INSERT_HEAD(&region->opens, open, link);
	region->open_count++;
	return 0;
}

struct region_open *region_open_find(const struct rpc_client *client, uint32_t handle)
{
	return client->opens && handle >= 1 && handle <= TARN_REGION_OPEN_MAX
		       ? client->opens[handle - 1]
		       : NULL;
}

const char *region_fault_text(const struct rpc_client *client, const char *otherwise)
{
	for (uint32_t handle = 1; handle <= TARN_REGION_OPEN_MAX; handle++) {
		const struct region_open *open = region_open_find(client, handle);

		if (open && !open->region)
			return "a region was destroyed that it had open: it has accessed that once more, most "
			       "likely, and connects again";
	}
	return otherwise;
}

static void leave(struct region_open *open)
{
	if (!open->region)
		return;
	LIST_REMOVE(open, link);
	open->region->open_count--;
	open->region = NULL;
}

void region_close(struct rpc_client *client, uint32_t handle)
{
	struct region_open *open = region_open_find(client, handle);

	if (!open)
		return;
	leave(open);
	free(open);
	client->opens[handle - 1] = NULL;
}

void region_close_all(struct rpc_client *client)
{
	for (uint32_t handle = 1; handle <= TARN_REGION_OPEN_MAX; handle++)
		region_close(client, handle);
	free(client->opens);
	client->opens = NULL;
}

/*
 * Once, until the client asks again: so it never has more than two on their way, one of before its question
 * and one of after.
 */
static void tell(struct rpc_client *client)
{
	if (client->told || !client->notice)
		return;
	client->told = true;
	client->notice(client);
}

void region_notify(struct region *region)
{
	struct region_open *open, *next;

	region->sequence++;
	for (open = LIST_FIRST(&region->opens); open; open = next) {
		next = LIST_NEXT(open, link);
		if (!open->armed)
			continue;
		open->armed = false;
		tell(open->client); /* may end the client's connection, but not free it */
	}
}

void region_cut_all(struct region *region)
{
	struct region_open *open;

	while ((open = LIST_FIRST(&region->opens))) {
		bool armed = open->armed;

		open->armed = false;
		leave(open);
		if (armed)
			tell(open->client);
	}
}
