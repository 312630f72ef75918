/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Takes SIGBUS in ranges that are watched; see sigbus.h. The handler runs on whatever thread has touched
 * the memory, the rest on the main thread. What it needs stands in a table of the process, as signals
 * belong to that; an entry is valid while its base is not NULL. pool-memory.c watches files.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "config.h"
#include "err.h"
#include "sigbus.h"

struct range {
	_Atomic(uint8_t *) base; /* stored last, with release: the others are there then */
	uint64_t bytes, page_bytes;
	atomic_bool happened;
};

static struct range ranges[CONFIG_SECTIONS_MAX];

static struct range *find(const uint8_t *base)
{
	for (size_t i = 0; i < CONFIG_SECTIONS_MAX; i++)
		if (atomic_load_explicit(&ranges[i].base, memory_order_acquire) == base)
			return &ranges[i];
	return NULL;
}

/* True: memory of zeros stands there now, and who touched it goes on. */
static bool cover(struct range *range, const uint8_t *address)
{
	uint8_t *base = atomic_load_explicit(&range->base, memory_order_acquire), *page;

	if (!base || address < base || address >= base + range->bytes)
		return false;
	page = base + (uint64_t)(address - base) / range->page_bytes * range->page_bytes;
	if (mmap(page, range->page_bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	atomic_store_explicit(&range->happened, true, memory_order_release);
	return true;
}

/* Calls mmap() and signal() alone. */
static void on_sigbus(int number, siginfo_t *info, void *context)
{
	int saved = errno;

	(void)context;
	for (size_t i = 0; info->si_code == BUS_ADRERR && i < CONFIG_SECTIONS_MAX; i++) {
		if (cover(&ranges[i], info->si_addr)) {
			errno = saved;
			return;
		}
	}
	/* nothing of ours: it comes again, and ends the process as it should */
	signal(number, SIG_DFL);
	errno = saved;
}

int sigbus_watch(uint8_t *base, uint64_t bytes, uint64_t page_bytes)
{
	struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
	struct range *range = find(NULL);

	if (!range)
		return err_set(-ENOSPC, "more than %u pools have a file", CONFIG_SECTIONS_MAX);
	if (sigaction(SIGBUS, &action, NULL) < 0)
		return err_set(-errno, "sigaction: %s", strerrordesc_np(errno));
	range->bytes = bytes;
	range->page_bytes = page_bytes;
	atomic_store_explicit(&range->happened, false, memory_order_relaxed);
	atomic_store_explicit(&range->base, base, memory_order_release);
	return 0;
}

bool sigbus_happened(const uint8_t *base)
{
	const struct range *range = find(base);

	return range && atomic_load_explicit(&range->happened, memory_order_acquire);
}

void sigbus_forget(const uint8_t *base)
{
	struct range *range = find(base);

	if (range)
		atomic_store_explicit(&range->base, NULL, memory_order_release);
}
