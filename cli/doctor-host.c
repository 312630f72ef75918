/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-host.c - `tarn doctor`: what the host allows: locked memory, huge pages, namespaces,
 * containers, fork, firewall
 *
 * All of it is about this process's own view; what a tarnd that runs here may do is read from its
 * /proc folder. The command's thread. Next to read: doctor-link.c for NUMA.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "fabric.h"
#include "text.h"

/* A session pins its buffers (1 MiB), queues and doorbells besides. */
#define SESSION_BYTES (2ull << 20)
#define CAP_IPC_LOCK  14

/* ---- locked memory --------------------------------------------------------------------------- */

struct lock_limit {
	bool known, unlimited, capable; /* capable: CAP_IPC_LOCK, no limit counts then */
	uint64_t bytes;
};

static struct lock_limit read_limit(struct doctor *doctor, const char *pid)
{
	struct lock_limit limit = {0};
	char text[DOCTOR_LINE], soft[32], *line;
	unsigned long long caps;

	if (doctor_read(doctor, text, "/proc/%s/limits", pid) < 0)
		return limit;
	line = strstr(text, "Max locked memory");
	if (line == NULL || sscanf(line, "Max locked memory %31s", soft) != 1)
		return limit;
	limit.known = true;
	limit.unlimited = strcmp(soft, "unlimited") == 0;
	limit.bytes = strtoull(soft, NULL, 10);
	if (doctor_read(doctor, text, "/proc/%s/status", pid) < 0)
		return limit;
	line = strstr(text, "CapEff:");
	if (line != NULL && sscanf(line, "CapEff: %llx", &caps) == 1)
		limit.capable = caps >> CAP_IPC_LOCK & 1;
	return limit;
}

#define MEMLOCK_REMEDY                                                                             \
	"ulimit -l unlimited; /etc/security/limits.conf (`USER - memlock unlimited`) for logins; " \
	"LimitMEMLOCK=infinity for a systemd unit, which limits.conf does not reach; docker "      \
	"--ulimit memlock=-1 (CAP_IPC_LOCK helps root in the container only)"

static void check_memlock(struct doctor *doctor)
{
	struct lock_limit limit = read_limit(doctor, "self");
	struct doctor_finding *finding;
	char human[TEXT_HUMAN_BYTES];

	if (!limit.known)
		return;
	text_human_size(limit.bytes, human);
	if (limit.unlimited || limit.capable) {
		finding = doctor_say(doctor, "memlock", DOCTOR_OK, "host",
				     "this process may lock as much memory as it likes (%s)",
				     limit.unlimited ? "the limit is unlimited" : "CAP_IPC_LOCK");
	} else if (limit.bytes < SESSION_BYTES) {
		finding =
			doctor_say(doctor, "memlock", DOCTOR_PROBLEM, "host",
				   "this process may lock %s of memory: a session over RDMA needs "
				   "up to 2 MiB for its buffers",
				   human);
		doctor_remedy(finding, MEMLOCK_REMEDY);
	} else {
		finding = doctor_say(
			doctor, "memlock",
			limit.bytes < 16 * SESSION_BYTES ? DOCTOR_WARNING : DOCTOR_NOTE, "host",
			"this process may lock %s of memory: about %llu sessions over "
			"RDMA, and no pool that is larger",
			human, (unsigned long long)(limit.bytes / SESSION_BYTES));
		doctor_remedy(finding, MEMLOCK_REMEDY);
	}
	doctor_value(finding, "memlock_bytes",
		     limit.unlimited ? json_null() : writer_u64(limit.bytes));
	doctor_value(finding, "ipc_lock", json_boolean(limit.capable));
}

static void say_daemon(struct doctor *doctor, const char *pid)
{
	struct lock_limit limit = read_limit(doctor, pid);
	struct doctor_finding *finding;
	char human[TEXT_HUMAN_BYTES];

	if (!limit.known) {
		doctor_say(doctor, "memlock-tarnd", DOCTOR_NOTE, "host",
			   "tarnd runs (process %s), its limits cannot be read", pid);
		return;
	}
	if (limit.unlimited || limit.capable) {
		finding = doctor_say(doctor, "memlock-tarnd", DOCTOR_OK, "host",
				     "tarnd (process %s) may lock as much memory as it likes", pid);
	} else {
		finding = doctor_say(doctor, "memlock-tarnd", DOCTOR_WARNING, "host",
				     "tarnd (process %s) may lock %s: a larger pool cannot be "
				     "registered",
				     pid, text_human_size(limit.bytes, human));
		doctor_remedy(finding, "LimitMEMLOCK=infinity in its systemd unit, as the shipped "
				       "one has");
	}
	doctor_value(finding, "pid", json_integer(strtol(pid, NULL, 10)));
	doctor_value(finding, "memlock_bytes",
		     limit.unlimited ? json_null() : writer_u64(limit.bytes));
}

static void check_daemon(struct doctor *doctor)
{
	struct doctor_names processes = doctor_list(doctor, "/proc");
	char name[DOCTOR_LINE];

	for (size_t i = 0; i < processes.count; i++)
		if (processes.names[i][0] >= '1' && processes.names[i][0] <= '9' &&
		    doctor_read(doctor, name, "/proc/%s/comm", processes.names[i]) > 0 &&
		    strcmp(name, "tarnd") == 0)
			say_daemon(doctor, processes.names[i]);
	doctor_names_free(&processes);
}

/* ---- huge pages ------------------------------------------------------------------------------ */

static unsigned say_size(struct doctor *doctor, const char *folder, json_t *sizes)
{
	uint64_t total = 0, free_pages = 0;
	unsigned long long kib;
	char human[TEXT_HUMAN_BYTES];

	if (sscanf(folder, "hugepages-%llukB", &kib) != 1 ||
	    doctor_number(doctor, &total, "/sys/kernel/mm/hugepages/%s/nr_hugepages", folder) < 0)
		return 0;
	(void)doctor_number(doctor, &free_pages, "/sys/kernel/mm/hugepages/%s/free_hugepages",
			    folder);
	json_array_append_new(sizes, json_pack("{s:I, s:o, s:o}", "page_bytes",
					       (json_int_t)(kib * 1024), "total", writer_u64(total),
					       "free", writer_u64(free_pages)));
	if (total == 0)
		return 0;
	doctor_say(doctor, "hugepages-size", free_pages > 0 ? DOCTOR_OK : DOCTOR_NOTE, "host",
		   "huge pages of %s: %llu, of which %llu are free",
		   text_human_size(kib * 1024, human), (unsigned long long)total,
		   (unsigned long long)free_pages);
	return 1;
}

static void check_hugepages(struct doctor *doctor)
{
	struct doctor_names sizes = doctor_list(doctor, "/sys/kernel/mm/hugepages");
	json_t *array = json_array();
	struct doctor_finding *finding;
	unsigned used = 0;

	for (size_t i = 0; i < sizes.count; i++)
		used += say_size(doctor, sizes.names[i], array);
	if (used > 0) {
		finding = doctor_say(doctor, "hugepages", DOCTOR_OK, "host",
				     "the host has huge pages");
	} else {
		finding = doctor_say(doctor, "hugepages", DOCTOR_NOTE, "host", "%s",
				     sizes.count > 0 ? "no huge pages are set aside: a pool takes "
						       "longer to register and the adapter's "
						       "address translation misses more often"
						     : "this kernel has no huge pages");
		if (sizes.count > 0)
			doctor_remedy(finding, "sysctl vm.nr_hugepages=N (2 MiB each), as early "
					       "after boot as can be");
	}
	doctor_value(finding, "sizes", array);
	doctor_names_free(&sizes);
}

/* ---- namespaces and containers --------------------------------------------------------------- */

static bool read_container(struct doctor *doctor, char ret_what[DOCTOR_LINE])
{
	static const char *const words[] = {"docker", "kubepods", "containerd", "lxc", "libpod"};
	char text[DOCTOR_LINE];

	if (doctor_read(doctor, ret_what, "/run/systemd/container") > 0)
		return true;
	if (doctor_exists(doctor, "/.dockerenv") || doctor_exists(doctor, "/run/.containerenv")) {
		snprintf(ret_what, DOCTOR_LINE, "%s",
			 doctor_exists(doctor, "/.dockerenv") ? "docker" : "podman");
		return true;
	}
	if (doctor_read(doctor, text, "/proc/self/cgroup") <= 0)
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strstr(text, words[i]) == NULL)
			continue;
		snprintf(ret_what, DOCTOR_LINE, "%s", words[i]);
		return true;
	}
	return false;
}

static void check_container(struct doctor *doctor)
{
	char what[DOCTOR_LINE];

	if (!read_container(doctor, what))
		return;
	doctor_remedy(doctor_say(doctor, "container", DOCTOR_NOTE, "host",
				 "this is a container (%.32s): RDMA needs the device files, locked "
				 "memory, and a network namespace that sees the device and its "
				 "addresses",
				 what),
		      "--device /dev/infiniband/rdma_cm --device /dev/infiniband/uverbs0 --ulimit "
		      "memlock=-1, and --network host (or exclusive mode and a device of its own)");
}

static void check_netns(struct doctor *doctor)
{
	char mode[DOCTOR_LINE];
	struct doctor_finding *finding;
	bool shared;

	if (doctor_read(doctor, mode, "/sys/module/ib_core/parameters/netns_mode") <= 0) {
		if (doctor->devices > 0)
			doctor_remedy(doctor_say(doctor, "netns", DOCTOR_NOTE, "host",
						 "the RDMA network-namespace mode cannot be read"),
				      "rdma system");
		return;
	}
	shared = mode[0] == 'Y' || mode[0] == '1';
	finding =
		doctor_say(doctor, "netns", shared ? DOCTOR_OK : DOCTOR_NOTE, "host",
			   "RDMA network-namespace mode: %s",
			   shared ? "shared: every namespace sees every device, connections work "
				    "where the port's address is"
				  : "exclusive: a namespace sees only the devices that were given "
				    "to it");
	if (!shared)
		doctor_remedy(finding, "rdma dev set DEVICE netns NAME; or rdma system set netns "
				       "shared (while no other namespace exists)");
	doctor_value(finding, "mode", json_string(shared ? "shared" : "exclusive"));
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* Since Linux 5.12 pages that a device reads and writes are copied for the child at fork(). */
static bool kernel_copies(struct doctor *doctor)
{
	char release[DOCTOR_LINE];
	unsigned major, minor;

	return doctor_read(doctor, release, "/proc/sys/kernel/osrelease") > 0 &&
	       sscanf(release, "%u.%u", &major, &minor) == 2 &&
	       (major > 5 || (major == 5 && minor >= 12));
}

static void check_fork(struct doctor *doctor)
{
	bool safe = kernel_copies(doctor);
	struct doctor_finding *finding;

	if (doctor->ask->fork != NULL)
		safe = safe || doctor->ask->fork(doctor) != (int)IBV_FORK_DISABLED;
	finding = doctor_say(doctor, "fork", safe ? DOCTOR_OK : DOCTOR_NOTE, "host", "%s",
			     safe ? "fork() is safe: the kernel copies pages that a device uses"
				  : "this kernel moves pages that a device uses when a process "
				    "forks; Tarn keeps its buffers from children (MADV_DONTFORK)");
	if (!safe)
		doctor_remedy(finding, "Linux 5.12 or later, or RDMAV_FORK_SAFE=1 for other RDMA "
				       "libraries in the process");
	doctor_value(finding, "copy_on_fork", json_boolean(safe));
}

/* ---- firewall -------------------------------------------------------------------------------- */

static void check_firewall(struct doctor *doctor)
{
	char tables[DOCTOR_LINE];
	bool nft = doctor_exists(doctor, "/sys/module/nf_tables");
	bool iptables = doctor_read(doctor, tables, "/proc/net/ip_tables_names") > 0;
	struct doctor_finding *finding;

	finding = doctor_say(doctor, "firewall", nft || iptables ? DOCTOR_NOTE : DOCTOR_OK, "host",
			     "%s: RoCE v2 is UDP port 4791%s; iWARP is TCP, at tarnd's port (%u)",
			     nft || iptables ? "the kernel has packet filter rules"
					     : "no packet filter is to be seen",
			     nft || iptables ? " (rules stop soft-RoCE; packets of a real adapter "
					       "pass this host's filter by, but not others' on the "
					       "way)"
					     : "",
			     FABRIC_PORT);
	if (nft || iptables)
		doctor_remedy(finding,
			      "nft list ruleset (iptables -nvL): is `udp dport 4791 accept` before "
			      "a drop? Security groups of a cloud and switches count, too");
	doctor_value(finding, "nf_tables", json_boolean(nft));
	doctor_value(finding, "iptables", json_boolean(iptables));
}

void doctor_check_host(struct doctor *doctor)
{
	check_memlock(doctor);
	check_daemon(doctor);
	check_hugepages(doctor);
	check_netns(doctor);
	check_container(doctor);
	check_fork(doctor);
	check_firewall(doctor);
}
