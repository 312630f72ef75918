/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * table.c - filling the private hash table (table.h has the lookup)
 *
 * Its memory is a shared mapping of a memfd, on pages of the size that the pool got, since that
 * decides what a cache miss costs on top: the table must have no better pages than the pool, and no
 * worse. Next: ceiling.c.
 */
#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "err.h"
#include "machine.h"

#define HUGE_BYTES (2ull << 20)

static void *map_memory(uint64_t bytes, unsigned int flags)
{
	int fd = memfd_create("tarn-bench-table", flags | MFD_CLOEXEC);
	void *memory = MAP_FAILED;

	if (fd < 0)
		return MAP_FAILED;
	if (ftruncate(fd, (off_t)bytes) == 0)
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	/* mmap of hugetlbfs has reserved its pages: later faults cannot fail for want of them. */
	return memory;
}

/* Slots first, then entries, in one mapping. */
static int table_map(struct table *table, uint64_t slot_bytes, uint64_t entry_bytes,
		     uint64_t page_bytes)
{
	uint64_t bytes = (slot_bytes + entry_bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	void *memory = MAP_FAILED;

	if (page_bytes >= HUGE_BYTES)
		memory = map_memory(bytes, MFD_HUGETLB);
	/* No such page is left: the report has both page sizes, so that it shows. */
	if (memory == MAP_FAILED) {
		memory = map_memory(bytes, 0);
		if (memory == MAP_FAILED)
			return err_set(-ENOMEM,
				       "no memory for the hash table (%llu bytes): --ceiling=off",
				       (unsigned long long)bytes);
		/* For a pool whose huge pages are transparent ones. */
		if (page_bytes >= HUGE_BYTES)
			madvise(memory, bytes, MADV_HUGEPAGE);
	}
	table->memory = memory;
	table->memory_bytes = bytes;
	table->slots = memory;
	table->entries = (uint8_t *)memory + slot_bytes;
	return 0;
}

static void table_add(struct table *table, const void *key, uint32_t key_size, const void *value,
		      uint32_t value_size, uint64_t place)
{
	uint64_t hash = table_hash(table, key, key_size), at = hash & table->mask;
	struct table_entry *entry = (void *)(table->entries + place);

	while (table->slots[at] != 0)
		at = (at + 1) & table->mask;
	*entry = (struct table_entry){.key_size = key_size, .value_size = value_size};
	memcpy(entry->bytes, key, key_size);
	memcpy(entry->bytes + table_pad8(key_size), value, value_size);
	table->slots[at] = (hash >> TABLE_TAG_SHIFT << TABLE_TAG_SHIFT) | place;
}

static uint64_t entry_bytes(const struct workload *workload, uint64_t id)
{
	return sizeof(struct table_entry) + table_pad8(workload->key_size) +
	       table_pad8(workload_value_bytes(workload, id));
}

static uint64_t entries_bytes(const struct workload *workload)
{
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < workload->keys; i++)
		bytes += entry_bytes(workload, workload_id(workload, WORKLOAD_LOADED, i));
	return bytes;
}

int table_create(const struct workload *workload, uint64_t page_bytes, struct table *ret_table)
{
	struct table table = {.seed = 0x7461626c65};
	uint64_t slots = 8, place = 8;
	uint8_t key[WORKLOAD_KEY_MAX];
	uint8_t *value;
	int ret;

	while (slots < workload->keys * 2)
		slots *= 2;
	table.mask = slots - 1;
	/* One byte at least: calloc(0) may be NULL. */
	value = calloc(1, workload->value_size + 16u);
	if (!value)
		return err_set(-ENOMEM, "no memory for a value");
	ret = table_map(&table, slots * 8, 8 + entries_bytes(workload), page_bytes);
	if (ret < 0)
		goto out_value;
	workload_key_prepare(key);
	for (uint64_t i = 0; i < workload->keys; i++) {
		uint64_t id = workload_id(workload, WORKLOAD_LOADED, i);

		workload_key(id, key);
		workload_value(workload, id, 0, value);
		table_add(&table, key, workload->key_size, value,
			  workload_value_bytes(workload, id), place);
		place += entry_bytes(workload, id);
	}
	table.page_bytes = machine_page_bytes(table.memory, table.memory_bytes);
	*ret_table = table;
out_value:
	free(value);
	return ret;
}

void table_free(struct table *table)
{
	if (table->memory)
		munmap(table->memory, table->memory_bytes);
	table->memory = NULL;
}
