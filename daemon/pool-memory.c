/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gets a pool's memory from the kernel: memfd with hugepages as configured, or the file that
 * pool-file.c opens; bound to a NUMA node, touched, kept out of core dumps and of child processes; a
 * memfd sealed so that nobody who gets the descriptor can shrink it under us. Main thread, before the
 * loop runs. pool-open.c puts the format into it. Memory that is missing has to show here, as an error
 * with numbers: later it would be a SIGBUS.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>
#include <linux/memfd.h>
#include <numa.h>
#include <numaif.h>

#include "clock.h"
#include "err.h"
#include "pool-memory.h"
#include "service.h"
#include "sigbus.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define GIB (1024.0 * 1024 * 1024)
#define MIB (1024.0 * 1024)

/* ---- what the machine has ---- */

/* A number of /proc/meminfo, in bytes; 0 when it is not there. */
static uint64_t meminfo(const char *name)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib, found = 0;
	char line[128], label[64];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%63[^:]: %llu", label, &kib) == 2 && strcmp(label, name) == 0)
			found = kib * 1024;
	if (file)
		fclose(file);
	return found;
}

/* A number of /sys/kernel/mm/hugepages. -ENOENT: the kernel has no pages of this size. */
static int hugepages_number(uint64_t page_bytes, const char *name, uint64_t *ret_number)
{
	unsigned long long number;
	char path[128];
	FILE *file;
	int fields;

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%llukB/%s",
		 (unsigned long long)page_bytes / 1024, name);
	file = fopen(path, "re");
	if (!file)
		return -ENOENT;
	fields = fscanf(file, "%llu", &number);
	fclose(file);
	if (fields != 1)
		return -ENOENT;
	*ret_number = number;
	return 0;
}

/*
 * How many can be had: free ones that are not promised to somebody, and what the kernel may still
 * make. Or, of the whole machine, all.
 */
static int hugepages_available(uint64_t page_bytes, bool whole_machine, uint64_t *ret_pages)
{
	uint64_t idle = 0, promised = 0, overcommit = 0, surplus = 0;
	int rc = hugepages_number(page_bytes, whole_machine ? "nr_hugepages" : "free_hugepages",
				  &idle);

	if (rc < 0)
		return rc;
	if (whole_machine) {
		(void)hugepages_number(page_bytes, "nr_overcommit_hugepages", &overcommit);
		*ret_pages = idle + overcommit;
		return 0;
	}
	(void)hugepages_number(page_bytes, "resv_hugepages", &promised);
	(void)hugepages_number(page_bytes, "nr_overcommit_hugepages", &overcommit);
	(void)hugepages_number(page_bytes, "surplus_hugepages", &surplus);
	*ret_pages = (idle > promised ? idle - promised : 0) +
		     (overcommit > surplus ? overcommit - surplus : 0);
	return 0;
}

static uint64_t hugepage_bytes(const struct config_pool *config)
{
	switch ((enum config_hugepage_size)config->hugepage_size.number) {
	case CONFIG_HUGEPAGE_2M:
		return 2ull << 20;
	case CONFIG_HUGEPAGE_1G:
		return 1ull << 30;
	case CONFIG_HUGEPAGE_DEFAULT:
		break;
	}
	return meminfo("Hugepagesize");
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

/* ---- checks, also for `tarnd -t` ---- */

static int hugepages_missing(uint64_t page_bytes, uint64_t need, uint64_t available)
{
	unsigned long long kib = page_bytes / 1024, total;
	uint64_t now = 0;

	if (page_bytes == 0)
		return err_set(-ENOMEM, "this kernel has no hugepages: choose hugepages = prefer "
					"or off");
	if (hugepages_number(page_bytes, "nr_hugepages", &now) < 0)
		return err_set(-ENOMEM,
			       "this kernel has no hugepages of %llu kB; allowed: what "
			       "/sys/kernel/mm/hugepages lists; "
			       "choose another hugepage_size, or hugepages = prefer",
			       kib);
	total = now + need - available;
	return err_set(-ENOMEM,
		       "needs %llu hugepages of %llu kB, %llu are free now: %llu are missing; get "
		       "them by `%s%llu%s`, or "
		       "choose hugepages = prefer",
		       (unsigned long long)need, kib, (unsigned long long)available,
		       (unsigned long long)(need - available),
		       page_bytes == meminfo("Hugepagesize") ? "sysctl vm.nr_hugepages=" : "echo ",
		       total,
		       page_bytes == meminfo("Hugepagesize") ? ""
		       : page_bytes == 1ull << 30
			       ? " > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
			       : " > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
}

static int normal_check(uint64_t bytes, struct pool_memory_claims *claims)
{
	uint64_t available = meminfo(claims->whole_machine ? "MemTotal" : "MemAvailable");

	if (available && bytes + claims->normal_bytes > available)
		return err_set(-ENOMEM,
			       "needs %.1f GiB%s, but %.1f GiB of the machine's %.1f GiB memory "
			       "are available; allowed: up to "
			       "that; lower size, or free memory",
			       (double)bytes / GIB,
			       claims->normal_bytes ? " besides the other pools" : "",
			       available > claims->normal_bytes
				       ? (double)(available - claims->normal_bytes) / GIB
				       : 0.0,
			       (double)meminfo("MemTotal") / GIB);
	claims->normal_bytes += bytes;
	return 0;
}

static int node_check(const struct config_pool *config)
{
	int node = (int)config->numa_node.number;

	if (node < 0)
		return 0;
	if (numa_available() < 0)
		return err_set(-EINVAL, "numa_node = %d: this kernel has no NUMA; use -1", node);
	if (node > numa_max_node() ||
	    !numa_bitmask_isbitset(numa_get_mems_allowed(), (unsigned int)node))
		return err_set(-EINVAL,
			       "numa_node = %d: there is no memory on this node, or it is not "
			       "allowed here; the nodes are 0 to %d "
			       "(`numactl -H`)",
			       node, numa_max_node());
	return 0;
}

int pool_memory_check(const struct config_pool *config, struct pool_memory_claims *claims,
		      bool *ret_hugetlb)
{
	uint64_t page = hugepage_bytes(config), need = 0, available = 0,
		 bytes = (uint64_t)config->size.number;
	bool enough = false;
	int rc = node_check(config);

	*ret_hugetlb = false;
	if (rc == 0 && config->file.text[0])
		return pool_file_check(config); /* its file system counts its memory */
	if (rc < 0)
		return rc;
	if (config->hugepages.number != CONFIG_HUGEPAGES_OFF && page) {
		need = (bytes + page - 1) / page;
		if (hugepages_available(page, claims->whole_machine, &available) == 0) {
			uint64_t taken = claims->huge_bytes / page;

			available = available > taken ? available - taken : 0;
			enough = available >= need;
		}
	}
	if (enough) {
		claims->huge_bytes += need * page;
		*ret_hugetlb = true;
		return 0;
	}
	if (config->hugepages.number == CONFIG_HUGEPAGES_REQUIRE)
		return hugepages_missing(page, need, available);
	return normal_check(bytes, claims);
}

/* ---- getting it ---- */

static unsigned int hugetlb_flags(uint64_t page_bytes)
{
	if (page_bytes == 2ull << 20)
		return MFD_HUGETLB | MFD_HUGE_2MB;
	if (page_bytes == 1ull << 30)
		return MFD_HUGETLB | MFD_HUGE_1GB;
	return MFD_HUGETLB; /* the kernel's default, as on an arm64 with 64 KiB pages */
}

/* Without MAP_NORESERVE: hugepages that are missing show here and not at the first touch. */
static int map(struct pool_memory *memory)
{
	void *base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);

	if (base == MAP_FAILED)
		return err_set(-errno, "mmap of %llu bytes: %s", (unsigned long long)memory->bytes,
			       strerrordesc_np(errno));
	memory->base = base;
	return 0;
}

/* How large the memory has to be, of pages of this size. */
static uint64_t bytes_wanted(const struct config_pool *config, uint64_t page)
{
	return round_up((uint64_t)config->size.number,
			page > LAYOUT_PAGE_BYTES ? page : LAYOUT_PAGE_BYTES);
}

static int memfd(const struct config_pool *config, bool hugetlb, struct pool_memory *memory)
{
	uint64_t page = hugetlb ? hugepage_bytes(config) : (uint64_t)sysconf(_SC_PAGESIZE);
	char name[CONFIG_NAME_MAX + 8];

	snprintf(name, sizeof(name), "tarn-%s", config->name);
	memory->hugetlb = hugetlb;
	memory->hugepage_bytes = page;
	memory->bytes = bytes_wanted(config, page);
	memory->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING |
						(hugetlb ? hugetlb_flags(page) : 0));
	if (memory->fd < 0)
		return err_set(-errno, "memfd_create: %s", strerrordesc_np(errno));
	if (ftruncate(memory->fd, (off_t)memory->bytes) < 0 || fchmod(memory->fd, 0600) < 0)
		return err_set(-errno, "a memfd of %llu bytes: %s",
			       (unsigned long long)memory->bytes, strerrordesc_np(errno));
	return map(memory);
}

/*
 * A node that was only concluded (the RDMA device's) is a wish: a machine may have no memory there.
 */
static int bind_to_node(const struct config_pool *config, int node, const struct pool_memory *memory)
{
	bool set = config->numa_node.number >= 0;
	struct bitmask *mask;
	long rc;

	if (node < 0 || (!set && (numa_available() < 0 || node > numa_max_node())))
		return 0;
	mask = numa_allocate_nodemask();
	numa_bitmask_setbit(mask, (unsigned int)node);
	rc = mbind(memory->base, memory->bytes, set ? MPOL_BIND : MPOL_PREFERRED, mask->maskp, mask->size + 1,
		   set ? MPOL_MF_STRICT : 0);
	numa_free_nodemask(mask);
	if (rc < 0 && set)
		return err_set(-errno, "binding to NUMA node %d: %s", node, strerrordesc_np(errno));
	return 0;
}

/* Touches one piece; errors instead of a SIGBUS. */
static int populate(const struct pool_memory *memory, uint64_t offset, uint64_t bytes)
{
	/* a write to each page of a durable file would write all of it to the disk again */
	int rc = madvise(memory->base + offset, bytes,
			 memory->durable ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);

	if (rc < 0 && errno == EINVAL) /* an older kernel: let the file allocate, that counts
					  against the same limits */
		rc = fallocate(memory->fd, 0, (off_t)offset, (off_t)bytes);
	if (rc == 0)
		return 0;
	if (errno == EFAULT || errno == ENOMEM || errno == ENOSPC)
		return err_set(
			-ENOMEM,
			"memory ran out after %.1f of %.1f GiB%s: lower size, or free memory",
			(double)offset / GIB, (double)memory->bytes / GIB,
			memory->hugetlb ? " of hugepages (on the pool's NUMA node, if it has one)"
					: "");
	return err_set(-errno, "touching memory at %.1f of %.1f GiB: %s", (double)offset / GIB,
		       (double)memory->bytes / GIB, strerrordesc_np(errno));
}

/* How far it is, in the log and for systemd. */
static void progress(const struct config_pool *config, const struct log *log, uint64_t done,
		     uint64_t bytes, uint64_t ns)
{
	double unit = (double)bytes >= GIB ? GIB : MIB;
	const char *name = (double)bytes >= GIB ? "GiB" : "MiB";

	log_info(log, "pool %s: %.1f of %.1f %s touched, %.1f GiB/s", config->name,
		 (double)done / unit, (double)bytes / unit, name,
		 (double)done / GIB / ((double)(ns + 1) / 1e9));
	service_status("pool %s: %.1f of %.1f %s touched", config->name, (double)done / unit,
		       (double)bytes / unit, name);
	service_extend(30u * 1000 * 1000);
}

/* False: it is to stop. */
static bool watched(struct pool_memory_watch *watch, uint64_t done)
{
	/* relaxed: a number for people; and nothing hangs on when exactly it stops */
	atomic_store_explicit(&watch->done, done, memory_order_relaxed);
	return !atomic_load_explicit(&watch->cancel, memory_order_relaxed);
}

static int prefault(const struct config_pool *config, const struct pool_memory *memory,
		    const struct log *log, struct pool_memory_watch *watch)
{
	uint64_t piece = round_up(64ull << 20, memory->hugepage_bytes), offset = 0,
		 begin = clock_now_ns(), said = begin;

	while (offset < memory->bytes) {
		uint64_t bytes = memory->bytes - offset < piece ? memory->bytes - offset : piece,
			 now;
		int rc = populate(memory, offset, bytes);

		if (rc < 0)
			return rc;
		offset += bytes;
		if (watch && !watched(watch, offset))
			return err_set(-ECANCELED, "stopped");
		if (watch)
			continue;
		now = clock_now_ns();
		if (now - said < 1000000000u && offset < memory->bytes)
			continue;
		said = now;
		progress(config, log, offset, memory->bytes, now - begin);
	}
	return 0;
}

/* Bytes of the mapping that are transparent hugepages, as /proc/self/smaps has it. */
static uint64_t transparent_bytes(const struct pool_memory *memory)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	unsigned long long kib, bytes = 0;
	char line[512], begin[32];
	bool ours = false;

	snprintf(begin, sizeof(begin), "%lx-", (unsigned long)memory->base);
	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, begin, strlen(begin)) == 0)
			ours = true;
		else if (ours && strncmp(line, "VmFlags:", 8) == 0)
			break;
		else if (ours && sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)
			bytes = kib * 1024;
	}
	if (file)
		fclose(file);
	return bytes;
}

/* Says what was got; counts transparent hugepages as such if they are most of the pool. */
static void report(const struct config_pool *config, struct pool_memory *memory,
		   const struct log *log)
{
	bool off = config->hugepages.number == CONFIG_HUGEPAGES_OFF;
	uint64_t transparent = memory->hugetlb || off ? 0 : transparent_bytes(memory);

	if (transparent >= memory->bytes / 2 && transparent > 0)
		memory->hugepage_bytes = 2ull << 20;
	log_info(log, "pool %s: %.1f MiB in %s pages of %llu kB%s", config->name,
		 (double)memory->bytes / MIB,
		 memory->hugetlb                                       ? "reserved huge"
		 : transparent >= memory->bytes / 2 && transparent > 0 ? "transparent huge"
								       : "normal",
		 (unsigned long long)memory->hugepage_bytes / 1024,
		 memory->hugetlb || off || transparent
			 ? ""
			 : ": there were not enough hugepages (vm.nr_hugepages), and no "
			   "transparent ones "
			   "(/sys/kernel/mm/transparent_hugepage/shmem_enabled)");
}

static int finish(const struct config_pool *config, int node, struct pool_memory *memory,
		  const struct log *log, struct pool_memory_watch *watch)
{
	int rc = 0;

	if (!memory->kept) /* else its pages are where they are */
		rc = bind_to_node(config, node, memory);
	if (rc < 0)
		return rc;
	/* All three are advice: a kernel that can't is no reason to stop. */
	(void)madvise(memory->base, memory->bytes, MADV_DONTDUMP);
	(void)madvise(memory->base, memory->bytes, MADV_DONTFORK);
	if (!memory->hugetlb && config->hugepages.number != CONFIG_HUGEPAGES_OFF)
		(void)madvise(memory->base, memory->bytes, MADV_HUGEPAGE);
	/* Reserved hugepages bound to a node are promised machine-wide only: untouched they would
	 * be a SIGBUS later. */
	if (config->prefault.number || (memory->hugetlb && config->numa_node.number >= 0))
		rc = prefault(config, memory, log, watch);
	/* to look takes long with the map of a large pool: not beside the main loop */
	if (rc == 0 && !watch)
		report(config, memory, log);
	return rc;
}

/* A file can't be sealed: there its owner, us, and the mode 0600 see to it. */
static int seal(struct pool_memory *memory)
{
	char path[64];

	if (!memory->path && !memory->kept &&
	    fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return err_set(-errno, "sealing the memory: %s", strerrordesc_np(errno));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	memory->fd_read_only = open(path, O_RDONLY | O_CLOEXEC);
	if (memory->fd_read_only < 0)
		return err_set(-errno, "%s can not be opened for reading: %s: is /proc mounted?",
			       path, strerrordesc_np(errno));
	return 0;
}

/* A new memfd: hugepages, when there are enough, else normal pages, if that is allowed. */
static int memfd_new(const struct config_pool *config, const struct log *log,
		     struct pool_memory *memory)
{
	struct pool_memory_claims claims = {0};
	bool hugetlb = false;
	int rc = pool_memory_check(config, &claims, &hugetlb);

	if (rc < 0)
		return rc;
	rc = memfd(config, hugetlb, memory);
	if (rc < 0 && hugetlb && config->hugepages.number == CONFIG_HUGEPAGES_PREFER) {
		log_warning(log, "pool %s: no hugepages after all (%s), taking normal pages",
			    config->name, err_text());
		pool_memory_free(memory);
		rc = normal_check((uint64_t)config->size.number, &claims);
		if (rc == 0)
			rc = memfd(config, false, memory);
	}
	return rc < 0 ? rc : pool_lock_daemon(memory);
}

static int file(const struct config_pool *config, const struct log *log, struct pool_memory *memory)
{
	int rc = node_check(config);

	if (rc == 0)
		rc = pool_file_open(config, log, memory);
	if (rc == 0)
		rc = map(memory);
	return rc < 0 ? rc : sigbus_watch(memory->base, memory->bytes, memory->hugepage_bytes);
}

int pool_memory_create(const struct config_pool *config, int numa_node, const struct log *log,
		       struct pool_memory_watch *watch, struct pool_memory *ret_memory)
{
	struct pool_memory memory = {.fd = -1, .fd_read_only = -1};
	int rc = config->file.text[0] ? file(config, log, &memory) : memfd_new(config, log, &memory);

	if (rc == 0)
		rc = finish(config, numa_node, &memory, log, watch);
	if (rc == 0)
		rc = seal(&memory);
	if (rc < 0) {
		pool_memory_free(&memory);
		return rc;
	}
	*ret_memory = memory;
	return 0;
}

#define KEPT_REMEDY \
	"; to begin with an empty pool stop tarnd and start it (systemctl stop, then start; a " \
	"restart keeps the memory)"

/* Is what was kept a memfd as we make it, and of the size that is wanted? */
static int kept_check(const struct config_pool *config, bool any_size, struct pool_memory *memory)
{
	int seals = fcntl(memory->fd, F_GET_SEALS), flags = fcntl(memory->fd, F_GETFL);
	struct statfs fs;
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || !(seals & F_SEAL_GROW) || flags < 0 ||
	    (flags & O_ACCMODE) != O_RDWR || fstat(memory->fd, &st) < 0 ||
	    fstatfs(memory->fd, &fs) < 0)
		return err_set(-EINVAL, "what systemd has kept for the pool is no memory of tarnd's"
			       KEPT_REMEDY);
	memory->hugetlb = fs.f_type == HUGETLBFS_MAGIC;
	memory->hugepage_bytes =
		memory->hugetlb ? (uint64_t)fs.f_bsize : (uint64_t)sysconf(_SC_PAGESIZE);
	memory->bytes = (uint64_t)st.st_size;
	if (!any_size && memory->bytes != bytes_wanted(config, memory->hugepage_bytes))
		return err_set(-EINVAL,
			       "the kept memory has %llu bytes, and size = %lld wants %llu: set size "
			       "back" KEPT_REMEDY,
			       (unsigned long long)memory->bytes, (long long)config->size.number,
			       (unsigned long long)bytes_wanted(config, memory->hugepage_bytes));
	if (config->hugepages.number == CONFIG_HUGEPAGES_REQUIRE && !memory->hugetlb)
		return err_set(-EINVAL, "hugepages = require: the kept memory has normal pages"
			       KEPT_REMEDY);
	return 0;
}

int pool_memory_adopt(const struct config_pool *config, int fd, bool any_size, const struct log *log,
		      struct pool_memory *ret_memory)
{
	struct pool_memory memory = {.fd = fd, .fd_read_only = -1, .kept = true};
	int rc = kept_check(config, any_size, &memory);

	if (rc == 0)
		rc = pool_lock_daemon(&memory);
	if (rc == 0)
		rc = map(&memory);
	if (rc == 0)
		rc = finish(config, -1, &memory, log, NULL);
	if (rc == 0)
		rc = seal(&memory);
	if (rc < 0) {
		pool_memory_free(&memory);
		return rc;
	}
	*ret_memory = memory;
	return 0;
}

int pool_memory_publish(struct pool_memory *memory)
{
	int rc = memory->unpublished ? pool_file_publish(memory) : 0;

	if (rc == 0)
		memory->unpublished = false;
	return rc;
}

int pool_memory_sync(const struct pool_memory *memory, uint64_t offset, uint64_t bytes)
{
	if (!memory->durable || msync(memory->base + offset, bytes, MS_SYNC) == 0)
		return 0;
	return err_set(-errno, "%s can not be written to the disk: %s", memory->path,
		       strerrordesc_np(errno));
}

void pool_memory_free(struct pool_memory *memory)
{
	if (memory->unpublished)
		pool_file_remove(memory);
	if (memory->base) {
		sigbus_forget(memory->base);
		munmap(memory->base, memory->bytes);
	}
	if (memory->fd >= 0)
		close(memory->fd);
	if (memory->fd_read_only >= 0)
		close(memory->fd_read_only);
	*memory = (struct pool_memory){.fd = -1, .fd_read_only = -1};
}
