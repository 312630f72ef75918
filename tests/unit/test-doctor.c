/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli/doctor*.c: what the doctor says of trees that look like /sys and /proc of machines with and
 * without faults; and its litmus tests on connections that keep their promises, and on ones that do
 * not.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/doctor-litmus.h"
#include "cli/doctor.h"
#include "tarn/tarn.h"

/* ---- trees ----------------------------------------------------------------------------------- */

struct tree {
	char root[64];
	struct doctor_ask ask;
	struct doctor doctor;
};

/* What the device of a test can do, and which files it may not open: for the functions below. */
static struct {
	struct doctor_caps caps;
	int caps_status, fork;
	const char *closed;
	int closed_status;
} machine;

static int fake_open(struct doctor *doctor, const char *path)
{
	if (machine.closed != NULL && strcmp(path, machine.closed) == 0)
		return machine.closed_status;
	return doctor_exists(doctor, "%s", path) ? 0 : -ENOENT;
}

static int fake_caps(struct doctor *doctor, const char *device, unsigned port,
		     struct doctor_caps *ret_caps)
{
	(void)doctor;
	(void)device;
	(void)port;
	*ret_caps = machine.caps;
	return machine.caps_status;
}

static int fake_fork(struct doctor *doctor)
{
	(void)doctor;
	return machine.fork;
}

static void __attribute__((format(printf, 3, 4)))
put(struct tree *tree, const char *text, const char *format, ...)
{
	char path[400], full[512];
	va_list args;
	int fd;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	snprintf(full, sizeof(full), "%s%s", tree->root, path);
	for (char *slash = full + strlen(tree->root) + 1; (slash = strchr(slash, '/')) != NULL;
	     slash++) {
		*slash = '\0';
		mkdir(full, 0777);
		*slash = '/';
	}
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void drop(struct tree *tree, const char *path)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", tree->root, path);
	assert_int_equal(nftw(full, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void gid(struct tree *tree, const char *device, unsigned index, const char *address,
		const char *type, const char *netdev)
{
	unsigned char bytes[16];
	char text[64];

	assert_int_equal(inet_pton(AF_INET6, address, bytes), 1);
	for (size_t i = 0; i < 8; i++)
		snprintf(text + 5 * i, sizeof(text) - 5 * i, "%02x%02x%s", bytes[2 * i],
			 bytes[2 * i + 1], i < 7 ? ":" : "\n");
	put(tree, text, "/sys/class/infiniband/%s/ports/1/gids/%u", device, index);
	put(tree, type, "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%u", device, index);
	put(tree, netdev, "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/%u", device, index);
}

static void port(struct tree *tree, const char *device, unsigned number, const char *state)
{
	char base[128];

	snprintf(base, sizeof(base), "/sys/class/infiniband/%s/ports/%u", device, number);
	put(tree, state, "%s/state", base);
	put(tree, "5: LinkUp\n", "%s/phys_state", base);
	put(tree, "Ethernet\n", "%s/link_layer", base);
	put(tree, "100 Gb/sec (4X EDR)\n", "%s/rate", base);
	put(tree, "0\n", "%s/hw_counters/out_of_sequence", base);
	put(tree, "0\n", "%s/hw_counters/rnr_nak_retry_err", base);
	put(tree, "0\n", "%s/counters/symbol_error", base);
	put(tree, "5000000\n", "%s/counters/port_rcv_packets", base);
}

/* A machine with one good adapter: mlx5_0 of eth0, 10.0.0.1. */
static void begin_bare(struct tree *tree)
{
	memset(tree, 0, sizeof(*tree));
	memset(&machine, 0, sizeof(machine));
	machine.caps = (struct doctor_caps){.atomic_cap = IBV_ATOMIC_HCA,
					    .max_qp_rd_atom = 16,
					    .max_qp_init_rd_atom = 16,
					    .max_qp = 1000,
					    .max_cq = 1000,
					    .max_mr = 1000,
					    .max_srq = 10,
					    .max_mr_size = UINT64_MAX,
					    .active_mtu = 4096,
					    .max_mtu = 4096,
					    .firmware = "16.35"};
	machine.fork = IBV_FORK_UNNEEDED;
	strcpy(tree->root, "/tmp/test-doctor-XXXXXX");
	assert_non_null(mkdtemp(tree->root));
	put(tree, "6.1.0-tarn\n", "/proc/sys/kernel/osrelease");
	put(tree, "Max locked memory         unlimited            unlimited            bytes\n",
	    "/proc/self/limits");
	put(tree, "CapEff:\t0000000000000000\n", "/proc/self/status");
	put(tree, "512\n", "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
	put(tree, "500\n", "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
	put(tree, "1\n", "/sys/class/net/eno1/type");
	put(tree, "", "/sys/class/net/eno1/device/vendor");
	put(tree, "1\n", "/sys/class/net/dummy0/type");
	tree->ask = doctor_ask_tree;
	tree->ask.open = fake_open;
	tree->ask.caps = fake_caps;
	tree->ask.fork = fake_fork;
}

static void begin(struct tree *tree)
{
	begin_bare(tree);
	put(tree, "", "/dev/infiniband/rdma_cm");
	put(tree, "", "/dev/infiniband/uverbs0");
	put(tree, "mlx5_0\n", "/sys/class/infiniband_verbs/uverbs0/ibdev");
	put(tree, "Y\n", "/sys/module/ib_core/parameters/netns_mode");
	put(tree, "b859:9f03:0012:3456\n", "/sys/class/infiniband/mlx5_0/node_guid");
	put(tree, "1: CA\n", "/sys/class/infiniband/mlx5_0/node_type");
	port(tree, "mlx5_0", 1, "4: ACTIVE\n");
	gid(tree, "mlx5_0", 0, "fe80::1", "IB/RoCE v1\n", "eth0");
	gid(tree, "mlx5_0", 1, "fe80::1", "RoCE v2\n", "eth0");
	gid(tree, "mlx5_0", 2, "::ffff:10.0.0.1", "IB/RoCE v1\n", "eth0");
	gid(tree, "mlx5_0", 3, "::ffff:10.0.0.1", "RoCE v2\n", "eth0");
	put(tree, "0000:0000:0000:0000:0000:0000:0000:0000\n",
	    "/sys/class/infiniband/mlx5_0/ports/1/gids/4");
	put(tree, "eth0 10.0.0.1\neth0 fe80::1\nlo 127.0.0.1\n", "/addresses");
	put(tree, "4200\n", "/sys/class/net/eth0/mtu");
	for (unsigned i = 0; i < 8; i++) {
		put(tree, "1\n", "/sys/class/net/eth0/ecn/roce_np/enable/%u", i);
		put(tree, "1\n", "/sys/class/net/eth0/ecn/roce_rp/enable/%u", i);
	}
	put(tree, "16.0 GT/s PCIe\n", "/sys/class/infiniband/mlx5_0/device/current_link_speed");
	put(tree, "16\n", "/sys/class/infiniband/mlx5_0/device/current_link_width");
	put(tree, "16.0 GT/s PCIe\n", "/sys/class/infiniband/mlx5_0/device/max_link_speed");
	put(tree, "16\n", "/sys/class/infiniband/mlx5_0/device/max_link_width");
	put(tree, "0\n", "/sys/class/infiniband/mlx5_0/device/numa_node");
	put(tree, "10 21\n", "/sys/devices/system/node/node0/distance");
	put(tree, "21 10\n", "/sys/devices/system/node/node1/distance");
	put(tree, "500\n",
	    "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
	put(tree, "0\n",
	    "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages");
}

static struct doctor *look(struct tree *tree)
{
	doctor_free(&tree->doctor);
	doctor_init(&tree->doctor, tree->root, &tree->ask);
	doctor_check_local(&tree->doctor);
	assert_false(tree->doctor.failed);
	return &tree->doctor;
}

static void end(struct tree *tree)
{
	doctor_free(&tree->doctor);
	drop(tree, "");
}

/* The finding with this id (of this subject, if any), which must have this level. */
static const struct doctor_finding *expect_of(struct tree *tree, const char *id,
					      const char *subject, enum doctor_level level)
{
	const struct doctor_finding *finding = doctor_find(&tree->doctor, id, subject);

	if (finding == NULL)
		fail_msg("no finding %s", id);
	if (doctor_level(&tree->doctor, finding) != level)
		fail_msg("%s is %s, not %s: %s", id,
			 doctor_level_name(doctor_level(&tree->doctor, finding)),
			 doctor_level_name(level), finding->text);
	if (level >= DOCTOR_WARNING)
		assert_non_null(finding->remedy);
	return finding;
}

static const struct doctor_finding *expect(struct tree *tree, const char *id,
					   enum doctor_level level)
{
	return expect_of(tree, id, NULL, level);
}

static void expect_text(const struct doctor_finding *finding, const char *word)
{
	if (strstr(finding->text, word) == NULL)
		fail_msg("'%s' is not in '%s'", word, finding->text);
}

static void expect_remedy(const struct doctor_finding *finding, const char *word)
{
	if (finding->remedy == NULL || strstr(finding->remedy, word) == NULL)
		fail_msg("'%s' is not in '%s'", word, finding->remedy);
}

static json_int_t value(const struct doctor_finding *finding, const char *name)
{
	json_t *number = json_object_get(finding->values, name);

	if (!json_is_integer(number))
		fail_msg("%s has no number %s", finding->id, name);
	return json_integer_value(number);
}

static void expect_sound(struct tree *tree)
{
	const struct doctor_finding *finding;

	STAILQ_FOREACH(finding, &tree->doctor.findings, next)
	if (doctor_level(&tree->doctor, finding) >= DOCTOR_WARNING)
		fail_msg("%s: %s", finding->id, finding->text);
}

/* ---- devices and ports ----------------------------------------------------------------------- */

static void test_no_device(void **state)
{
	struct tree tree;

	(void)state;
	begin_bare(&tree);
	put(&tree, "0x020000\n", "/sys/bus/pci/devices/0000:01:00.0/class");
	put(&tree, "0x15b3\n", "/sys/bus/pci/devices/0000:01:00.0/vendor");
	look(&tree);
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_PROBLEM), 1);
	expect_text(expect(&tree, "no-device", DOCTOR_PROBLEM), "shared memory works");
	expect_remedy(expect(&tree, "no-device", DOCTOR_PROBLEM),
		      "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eno1");
	expect_remedy(expect(&tree, "adapter", DOCTOR_NOTE), "mlx5_ib");
	assert_null(doctor_find(&tree.doctor, "rdma-cm-file", NULL));
	end(&tree);
}

static void test_sound(void **state)
{
	struct tree tree;
	const struct doctor_finding *choice;

	(void)state;
	begin(&tree);
	look(&tree);
	expect_sound(&tree);
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_NOTE), 0);
	assert_int_equal(tree.doctor.usable, 1);
	choice = expect(&tree, "gid-choice", DOCTOR_OK);
	assert_int_equal(value(choice, "index"), 3);
	expect_text(choice, "10.0.0.1 on eth0: GID 3");
	assert_int_equal(json_array_size(json_object_get(
				 expect(&tree, "gid-table", DOCTOR_OK)->values, "gids")),
			 4);
	expect_text(expect(&tree, "port-state", DOCTOR_OK), "RoCE port of eth0, ACTIVE");
	expect_text(expect(&tree, "pcie", DOCTOR_OK), "16 GT/s x16");
	expect_text(expect(&tree, "numa", DOCTOR_OK), "1000 MiB");
	expect(&tree, "counters", DOCTOR_OK);
	expect(&tree, "congestion", DOCTOR_OK);
	end(&tree);
}

static void test_port_down(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	port(&tree, "mlx5_0", 1, "1: DOWN\n");
	look(&tree);
	expect_remedy(expect(&tree, "port-state", DOCTOR_PROBLEM), "ip link set eth0 up");
	assert_int_equal(tree.doctor.usable, 0);

	/* with another port that works it is no problem any more */
	put(&tree, "mlx5_1\n", "/sys/class/infiniband_verbs/uverbs1/ibdev");
	put(&tree, "", "/dev/infiniband/uverbs1");
	port(&tree, "mlx5_1", 1, "4: ACTIVE\n");
	gid(&tree, "mlx5_1", 0, "::ffff:10.1.0.1", "RoCE v2\n", "eth1");
	put(&tree, "eth0 10.0.0.1\neth1 10.1.0.1\n", "/addresses");
	look(&tree);
	expect_of(&tree, "port-state", "mlx5_0/1", DOCTOR_WARNING);
	expect_of(&tree, "port-state", "mlx5_1/1", DOCTOR_OK);
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_PROBLEM), 0);
	end(&tree);
}

static void test_device_files(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	machine.closed = "/dev/infiniband/rdma_cm";
	machine.closed_status = -EACCES;
	look(&tree);
	expect_remedy(expect(&tree, "rdma-cm-file", DOCTOR_PROBLEM), "group");
	machine.closed_status = -EPERM;
	look(&tree);
	expect_remedy(expect(&tree, "rdma-cm-file", DOCTOR_PROBLEM), "DeviceAllow");
	machine.closed = "/dev/infiniband/uverbs0";
	machine.closed_status = -EACCES;
	machine.caps_status = -EACCES;
	look(&tree);
	expect_text(expect(&tree, "device-file", DOCTOR_PROBLEM), "uverbs0");
	/* said once */
	assert_null(doctor_find(&tree.doctor, "device-open", NULL));
	machine.closed = NULL;
	look(&tree);
	expect(&tree, "device-open", DOCTOR_PROBLEM);
	machine.caps_status = 0;
	drop(&tree, "/dev/infiniband/rdma_cm");
	look(&tree);
	expect_remedy(expect(&tree, "rdma-cm-file", DOCTOR_PROBLEM), "modprobe rdma_ucm");
	drop(&tree, "/sys/class/infiniband_verbs");
	look(&tree);
	expect_remedy(expect(&tree, "device-file", DOCTOR_PROBLEM), "modprobe ib_uverbs");
	end(&tree);
}

static void test_guid_zero(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	put(&tree, "0000:0000:0000:0000\n", "/sys/class/infiniband/mlx5_0/node_guid");
	look(&tree);
	expect_text(expect(&tree, "node-guid", DOCTOR_PROBLEM), "id->verbs is NULL");
	end(&tree);
}

static void test_infiniband(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	put(&tree, "InfiniBand\n", "/sys/class/infiniband/mlx5_0/ports/1/link_layer");
	put(&tree, "0x7fff\n", "/sys/class/infiniband/mlx5_0/ports/1/pkeys/0");
	look(&tree);
	expect(&tree, "address", DOCTOR_OK);
	expect_text(expect(&tree, "pkey", DOCTOR_WARNING), "0x7fff");
	assert_null(doctor_find(&tree.doctor, "gid-choice", NULL));
	put(&tree, "lo 127.0.0.1\n", "/addresses");
	put(&tree, "2: INIT\n", "/sys/class/infiniband/mlx5_0/ports/1/state");
	put(&tree, "0xffff\n", "/sys/class/infiniband/mlx5_0/ports/1/pkeys/0");
	look(&tree);
	expect_remedy(expect(&tree, "port-state", DOCTOR_PROBLEM), "opensm");
	expect_text(expect(&tree, "address", DOCTOR_PROBLEM), "IPoIB");
	expect(&tree, "pkey", DOCTOR_OK);
	end(&tree);
}

static void test_iwarp(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	put(&tree, "4: RNIC\n", "/sys/class/infiniband/mlx5_0/node_type");
	machine.caps.atomic_cap = IBV_ATOMIC_NONE;
	look(&tree);
	expect_sound(&tree);
	expect_text(expect(&tree, "address", DOCTOR_OK), "iWARP");
	expect_text(expect(&tree, "atomics", DOCTOR_NOTE), "`cpu`");
	assert_null(doctor_find(&tree.doctor, "gid-choice", NULL));
	assert_null(doctor_find(&tree.doctor, "mtu", NULL));
	end(&tree);
}

/* ---- GIDs ------------------------------------------------------------------------------------ */

static void test_roce1_only(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	put(&tree, "IB/RoCE v1\n", "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1");
	put(&tree, "IB/RoCE v1\n", "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3");
	look(&tree);
	expect_text(expect(&tree, "gid-roce1", DOCTOR_WARNING), "RoCE v1 only");
	/* with the table of what was seen */
	expect_text(expect(&tree, "gid-none", DOCTOR_PROBLEM), "3: 10.0.0.1 RoCE v1 eth0");
	expect_text(expect(&tree, "gid-none", DOCTOR_PROBLEM), "no address of eth0 has a RoCE v2");
	end(&tree);
}

static void test_roce_mode(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	put(&tree, "IB/RoCE v1\n", "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode");
	look(&tree);
	expect_remedy(expect(&tree, "roce-mode", DOCTOR_WARNING), "default_roce_mode");
	assert_int_equal(value(expect(&tree, "gid-choice", DOCTOR_OK), "index"), 2);
	put(&tree, "RoCE v2\n", "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode");
	look(&tree);
	assert_null(doctor_find(&tree.doctor, "roce-mode", NULL));
	assert_int_equal(value(expect(&tree, "gid-choice", DOCTOR_OK), "index"), 3);
	end(&tree);
}

static void test_ipv6_only(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	gid(&tree, "mlx5_0", 2, "2001:db8::1", "IB/RoCE v1\n", "eth0");
	gid(&tree, "mlx5_0", 3, "2001:db8::1", "RoCE v2\n", "eth0");
	put(&tree, "eth0 2001:db8::1\neth0 fe80::1\n", "/addresses");
	look(&tree);
	expect_sound(&tree);
	expect_text(expect(&tree, "gid-choice", DOCTOR_OK), "2001:db8::1 on eth0: GID 3");

	/* link-local alone works with a scope only */
	put(&tree, "eth0 fe80::1\n", "/addresses");
	look(&tree);
	expect_text(expect(&tree, "gid-choice", DOCTOR_OK), "only with a scope");
	expect_text(expect(&tree, "gid-none", DOCTOR_WARNING), "only link-local");
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_PROBLEM), 0);

	put(&tree, "lo 127.0.0.1\n", "/addresses");
	look(&tree);
	expect_text(expect(&tree, "gid-none", DOCTOR_PROBLEM), "has no IP address");
	end(&tree);
}

static void test_missing_gid(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	put(&tree, "eth0 10.0.0.1\neth0 10.0.0.2\n", "/addresses");
	look(&tree);
	expect_text(expect(&tree, "gid-missing", DOCTOR_WARNING), "10.0.0.2 on eth0 has no GID");
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_PROBLEM), 0);
	end(&tree);
}

/* A bond and its vlan with one address: two GIDs, told apart by the network device alone. */
static void test_same_address_twice(void **state)
{
	struct tree tree;
	const struct doctor_finding *finding;

	(void)state;
	begin(&tree);
	gid(&tree, "mlx5_0", 0, "::ffff:10.0.0.1", "IB/RoCE v1\n", "bond0");
	gid(&tree, "mlx5_0", 1, "::ffff:10.0.0.1", "RoCE v2\n", "bond0");
	gid(&tree, "mlx5_0", 3, "::ffff:10.0.0.1", "RoCE v2\n", "bond0.7");
	put(&tree, "bond0.7 10.0.0.1\n", "/addresses");
	look(&tree);
	finding = expect(&tree, "gid-choice", DOCTOR_WARNING);
	assert_int_equal(value(finding, "index"), 3);
	assert_int_equal(value(finding, "twin_index"), 1);
	expect_text(finding, "GID 3 of bond0.7");
	expect_text(finding, "GID 1 of bond0 ");
	end(&tree);
}

/* ---- link ------------------------------------------------------------------------------------ */

static void test_mtu(void **state)
{
	static const struct {
		const char *mtu;
		enum doctor_level level;
		int bytes;
	} cases[] = {{"9000", DOCTOR_OK, 4096},     {"4192", DOCTOR_OK, 4096},
		     {"4191", DOCTOR_NOTE, 2048},   {"1500", DOCTOR_NOTE, 1024},
		     {"1000", DOCTOR_WARNING, 512}, {"352", DOCTOR_WARNING, 256},
		     {"351", DOCTOR_PROBLEM, 4096}};
	struct tree tree;

	(void)state;
	begin(&tree);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put(&tree, cases[i].mtu, "/sys/class/net/eth0/mtu");
		machine.caps.active_mtu = 0;
		look(&tree);
		if (cases[i].level == DOCTOR_PROBLEM)
			expect(&tree, "mtu", DOCTOR_PROBLEM);
		else
			assert_int_equal(value(expect(&tree, "mtu", cases[i].level), "mtu_bytes"),
					 cases[i].bytes);
	}
	/* what the device says counts for more */
	put(&tree, "9000", "/sys/class/net/eth0/mtu");
	machine.caps.active_mtu = 1024;
	look(&tree);
	expect_text(expect(&tree, "mtu", DOCTOR_NOTE), "carry 1024 bytes");
	end(&tree);
}

static void test_pcie(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	put(&tree, "4\n", "/sys/class/infiniband/mlx5_0/device/current_link_width");
	put(&tree, "8.0 GT/s PCIe\n", "/sys/class/infiniband/mlx5_0/device/current_link_speed");
	look(&tree);
	expect_text(expect(&tree, "pcie", DOCTOR_WARNING), "8 GT/s x4 (32 Gb/s)");
	expect_text(expect(&tree, "pcie", DOCTOR_WARNING), "less than the port's rate");
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_PROBLEM), 0);
	/* enough for the port, but not all */
	put(&tree, "8\n", "/sys/class/infiniband/mlx5_0/device/current_link_width");
	put(&tree, "16.0 GT/s PCIe\n", "/sys/class/infiniband/mlx5_0/device/current_link_speed");
	look(&tree);
	assert_null(strstr(expect(&tree, "pcie", DOCTOR_WARNING)->text, "less than"));
	end(&tree);
}

static void test_numa(void **state)
{
	struct tree tree;
	const struct doctor_finding *finding;

	(void)state;
	begin(&tree);
	put(&tree, "0\n",
	    "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
	put(&tree, "100\n",
	    "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages");
	look(&tree);
	finding = expect(&tree, "numa", DOCTOR_WARNING);
	assert_int_equal(value(finding, "hugepage_node"), 1);
	assert_int_equal(value(finding, "distance"), 21);
	put(&tree, "-1\n", "/sys/class/infiniband/mlx5_0/device/numa_node");
	look(&tree);
	expect(&tree, "numa", DOCTOR_NOTE);
	end(&tree);
}

static void test_congestion(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	for (unsigned i = 0; i < 8; i++)
		put(&tree, "0\n", "/sys/class/net/eth0/ecn/roce_rp/enable/%u", i);
	look(&tree);
	assert_int_equal(value(expect(&tree, "congestion", DOCTOR_WARNING), "ecn_rp_priorities"),
			 0);
	drop(&tree, "/sys/class/net/eth0/ecn");
	look(&tree);
	expect_remedy(expect(&tree, "congestion", DOCTOR_NOTE), "dcb pfc show dev eth0");
	end(&tree);
}

static void test_counters(void **state)
{
	struct tree tree;
	const struct doctor_finding *finding;

	(void)state;
	begin(&tree);
	/* 6 of 5 million are more than one in a million, 5 are not */
	put(&tree, "6\n", "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence");
	look(&tree);
	finding = expect(&tree, "counter", DOCTOR_WARNING);
	expect_text(finding, "out_of_sequence = 6 (1.2 per million packets)");
	expect_remedy(finding, "PFC/ECN");
	assert_null(doctor_find(&tree.doctor, "counters", NULL));
	put(&tree, "5\n", "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence");
	look(&tree);
	expect(&tree, "counter", DOCTOR_NOTE);
	put(&tree, "0\n", "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence");
	put(&tree, "1\n", "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/rx_prio3_pause");
	put(&tree, "9\n", "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent");
	look(&tree);
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_NOTE), 2);
	expect_text(expect(&tree, "counter", DOCTOR_NOTE), "np_cnp_sent = 9");
	/* the network device's own */
	put(&tree, "rx_packets: 5\nrx_prio3_pause: 0\ntx_prio4_pause: 17\n", "/ethtool/eth0");
	look(&tree);
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_NOTE), 3);
	/* packets are not counted: any loss is worth a warning */
	drop(&tree, "/sys/class/infiniband/mlx5_0/ports/1/counters");
	put(&tree, "1\n", "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/rnr_nak_retry_err");
	look(&tree);
	assert_int_equal(doctor_count(&tree.doctor, DOCTOR_WARNING), 1);
	drop(&tree, "/sys/class/infiniband/mlx5_0/ports/1/hw_counters");
	drop(&tree, "/ethtool");
	look(&tree);
	expect(&tree, "counters", DOCTOR_NOTE);
	end(&tree);
}

static void test_caps(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	machine.caps.max_qp_rd_atom = 1;
	machine.caps.max_mr_size = 2ull << 30;
	machine.caps.max_srq = 0;
	look(&tree);
	expect_text(expect(&tree, "read-depth", DOCTOR_WARNING), "only 1 READ or atomic");
	expect_text(expect(&tree, "mr-size", DOCTOR_NOTE), "2048 MiB");
	expect(&tree, "srq", DOCTOR_NOTE);
	machine.caps.max_qp_rd_atom = 8;
	look(&tree);
	expect(&tree, "read-depth", DOCTOR_NOTE);
	machine.caps.max_qp_init_rd_atom = 0;
	look(&tree);
	expect(&tree, "read-depth", DOCTOR_PROBLEM);
	machine.caps.atomic_cap = IBV_ATOMIC_GLOB;
	look(&tree);
	expect_text(expect(&tree, "atomics", DOCTOR_OK), "GLOB");
	machine.caps.atomic_cap = 77;
	look(&tree);
	expect(&tree, "atomics", DOCTOR_NOTE);
	end(&tree);
}

/* ---- host ------------------------------------------------------------------------------------ */

#define LIMITS "Limit Soft Hard Units\nMax locked memory         %s               %s      bytes\n"

static void limits(struct tree *tree, const char *pid, const char *bytes)
{
	char text[256];

	snprintf(text, sizeof(text), LIMITS, bytes, bytes);
	put(tree, text, "/proc/%s/limits", pid);
}

static void test_memlock(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	limits(&tree, "self", "65536");
	look(&tree);
	expect_text(expect(&tree, "memlock", DOCTOR_PROBLEM), "64 KiB");
	expect_remedy(expect(&tree, "memlock", DOCTOR_PROBLEM), "LimitMEMLOCK=infinity");
	limits(&tree, "self", "8388608");
	look(&tree);
	expect_text(expect(&tree, "memlock", DOCTOR_WARNING), "about 4 sessions");
	/* CAP_IPC_LOCK is bit 14 */
	put(&tree, "Name:\tx\nCapEff:\t0000000000004000\n", "/proc/self/status");
	limits(&tree, "self", "65536");
	look(&tree);
	expect(&tree, "memlock", DOCTOR_OK);
	put(&tree, "tarnd\n", "/proc/123/comm");
	limits(&tree, "123", "67108864");
	look(&tree);
	expect_text(expect(&tree, "memlock-tarnd", DOCTOR_WARNING), "process 123) may lock 64 MiB");
	limits(&tree, "123", "unlimited");
	look(&tree);
	expect(&tree, "memlock-tarnd", DOCTOR_OK);
	drop(&tree, "/proc/123/limits");
	look(&tree);
	expect(&tree, "memlock-tarnd", DOCTOR_NOTE);
	end(&tree);
}

static void test_host(void **state)
{
	struct tree tree;

	(void)state;
	begin(&tree);
	put(&tree, "0\n", "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
	put(&tree, "N\n", "/sys/module/ib_core/parameters/netns_mode");
	put(&tree, "0::/kubepods/burstable/x\n", "/proc/self/cgroup");
	put(&tree, "5.11.0\n", "/proc/sys/kernel/osrelease");
	put(&tree, "", "/sys/module/nf_tables/refcnt");
	machine.fork = IBV_FORK_DISABLED;
	look(&tree);
	expect_remedy(expect(&tree, "hugepages", DOCTOR_NOTE), "vm.nr_hugepages");
	expect_text(expect(&tree, "netns", DOCTOR_NOTE), "exclusive");
	expect_text(expect(&tree, "container", DOCTOR_NOTE), "kubepods");
	expect(&tree, "fork", DOCTOR_NOTE);
	expect_remedy(expect(&tree, "firewall", DOCTOR_NOTE), "udp dport 4791");
	expect_sound(&tree);
	put(&tree, "5.12.0\n", "/proc/sys/kernel/osrelease");
	look(&tree);
	expect(&tree, "fork", DOCTOR_OK);
	end(&tree);
}

/* Files that are not what they should be: nothing is believed, nothing crashes. */
static void test_garbage(void **state)
{
	static const char *const files[] = {
		"/proc/self/limits",
		"/proc/self/status",
		"/proc/sys/kernel/osrelease",
		"/sys/class/infiniband/mlx5_0/node_guid",
		"/sys/class/infiniband/mlx5_0/ports/1/state",
		"/sys/class/infiniband/mlx5_0/ports/1/rate",
		"/sys/class/infiniband/mlx5_0/ports/1/gids/3",
		"/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3",
		"/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0",
		"/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence",
		"/sys/class/infiniband/mlx5_0/device/current_link_speed",
		"/sys/class/infiniband/mlx5_0/device/current_link_width",
		"/sys/class/infiniband/mlx5_0/device/numa_node",
		"/sys/class/net/eth0/mtu",
		"/sys/devices/system/node/node0/distance",
		"/addresses"};
	char noise[8192];
	struct tree tree;

	(void)state;
	begin(&tree);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		put(&tree, "", "%s", files[i]);
		look(&tree);
		for (size_t n = 0; n < sizeof(noise) - 1; n++)
			noise[n] = (char)(1 + n * 7 % 255);
		noise[sizeof(noise) - 1] = '\0';
		put(&tree, noise, "%s", files[i]);
		look(&tree);
		put(&tree, "99999999999999999999999999\n", "%s", files[i]);
		look(&tree);
	}
	end(&tree);
}

/* What is asked of the real machine, whatever it is. */
static void test_host_asks(void **state)
{
	struct doctor_address *addresses = calloc(DOCTOR_ADDRESSES, sizeof(*addresses));
	struct doctor_stat *stats = calloc(DOCTOR_STATS, sizeof(*stats));
	struct doctor_names netdevs;
	struct doctor_caps caps;
	struct doctor doctor;
	int count;

	(void)state;
	assert_non_null(addresses);
	assert_non_null(stats);
	doctor_init(&doctor, "", &doctor_ask_host);
	assert_int_equal(doctor.ask->open(&doctor, "/dev/null"), 0);
	assert_int_equal(doctor.ask->open(&doctor, "/nonexistent"), -ENOENT);
	assert_true(doctor.ask->caps(&doctor, "no-such-device", 1, &caps) < 0);
	count = doctor.ask->addresses(&doctor, addresses, DOCTOR_ADDRESSES);
	assert_in_range(count, 0, DOCTOR_ADDRESSES);
	/* not one too many where there is little room */
	assert_int_equal(doctor.ask->addresses(&doctor, addresses, 0), 0);
	netdevs = doctor_list(&doctor, "/sys/class/net");
	for (size_t i = 0; i < netdevs.count; i++) {
		count = doctor.ask->stats(&doctor, netdevs.names[i], stats, DOCTOR_STATS);
		assert_true(count <= DOCTOR_STATS);
		for (int s = 0; s < count; s++)
			assert_in_range(strlen(stats[s].name), 0, 32);
	}
	assert_true(doctor.ask->stats(&doctor, "no-such-netdev", stats, DOCTOR_STATS) < 0);
	doctor_names_free(&netdevs);
	doctor_free(&doctor);
	free(stats);
	free(addresses);
}

/* ---- report ---------------------------------------------------------------------------------- */

static char *report(struct tree *tree, bool json)
{
	static struct output output;
	struct cli cli = {.json = json};
	static char text[100000];
	int fd = memfd_create("output", MFD_CLOEXEC);
	ssize_t n;

	output_init(&output, fd);
	assert_int_equal(writer_new(&output, json, &cli.writer), 0);
	doctor_report(&tree->doctor, &cli);
	assert_int_equal(writer_finish(cli.writer), 0);
	writer_free(cli.writer);
	n = pread(fd, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = '\0';
	close(fd);
	return text;
}

static void test_report(void **state)
{
	static const char *const members[] = {"id", "level", "subject", "text", "remedy", "values"};
	json_t *document, *list, *finding;
	struct tree tree;
	size_t i;

	(void)state;
	begin(&tree);
	put(&tree, "1: \033[31mODD\n", "/sys/class/infiniband/mlx5_0/ports/1/state");
	look(&tree);
	document = json_loads(report(&tree, true), JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(document);
	assert_int_equal(json_integer_value(json_object_get(document, "problems")), 1);
	assert_int_equal(json_integer_value(json_object_get(document, "usable_ports")), 0);
	list = json_object_get(document, "findings");
	assert_true(json_array_size(list) > 10);
	json_array_foreach(list, i, finding)
	{
		for (size_t m = 0; m < sizeof(members) / sizeof(members[0]); m++)
			assert_non_null(json_object_get(finding, members[m]));
		assert_int_equal(json_object_size(finding), 6);
		assert_true(json_is_object(json_object_get(finding, "values")));
	}
	json_decref(document);
	/* text: what came from elsewhere cannot steer the terminal */
	assert_null(strchr(report(&tree, false), '\033'));
	assert_non_null(strstr(report(&tree, false), "\nmlx5_0/1\n  problem  RoCE port"));
	assert_non_null(strstr(report(&tree, false), "\n1 problem, 0 warnings, 0 notes\n"));
	end(&tree);
}

/* ---- litmus ---------------------------------------------------------------------------------- */

/* A connection that breaks one promise. */
enum fault {
	FAULT_NONE,
	FAULT_READ_FIRST,
	FAULT_CAS_FIRST,
	FAULT_WRITE_FIRST,
	FAULT_UNFENCED, /* none: a WRITE may pass a READ, but for a fence */
	FAULT_SWAPPED,
	FAULT_NOT_ATOMIC,
	FAULT_LOST
};

struct faulty {
	struct fabric_endpoint ep;
	struct fabric_endpoint *inner;
	struct fabric_ops ops;
	enum fault fault;
	unsigned posts;
};

static int one(struct faulty *f, const struct fabric_request *request)
{
	struct fabric_request write = *request;
	uint64_t word;
	int ret;

	if (f->fault != FAULT_NOT_ATOMIC || request->opcode != FABRIC_FAA) {
		ret = fabric_post(f->inner, request, 1, f);
		if (f->fault == FAULT_SWAPPED && request->opcode == FABRIC_CAS)
			*(uint64_t *)request->local =
				__builtin_bswap64(*(uint64_t *)request->local);
		return ret;
	}
	write.opcode = FABRIC_READ;
	fabric_post(f->inner, &write, 1, f);
	word = *(uint64_t *)request->local + request->operand;
	usleep(20);
	write.opcode = FABRIC_WRITE;
	write.local = &word;
	return fabric_post(f->inner, &write, 1, f);
}

/* Does the fault bring the second request of a post of two forward? */
static bool turns(const struct faulty *f, const struct fabric_request *requests, unsigned count)
{
	if (count != 2)
		return false;
	switch (f->fault) {
	case FAULT_READ_FIRST:
		return requests[1].opcode == FABRIC_READ;
	case FAULT_CAS_FIRST:
		return requests[1].opcode == FABRIC_CAS;
	case FAULT_WRITE_FIRST:
		return requests[1].opcode == FABRIC_WRITE;
	case FAULT_UNFENCED:
		return requests[1].opcode == FABRIC_WRITE && !(requests[1].flags & FABRIC_FENCE);
	case FAULT_NONE:
	case FAULT_SWAPPED:
	case FAULT_NOT_ATOMIC:
	case FAULT_LOST:
		break;
	}
	return false;
}

static int faulty_post(struct fabric_endpoint *ep, const struct fabric_request *requests,
		       unsigned count, void *cookie)
{
	struct faulty *f = (struct faulty *)ep;

	(void)cookie;
	if (f->fault == FAULT_LOST && ++f->posts > 20)
		return -TARN_ESESSION;
	if (turns(f, requests, count)) {
		one(f, &requests[1]);
		usleep(50);
		return one(f, &requests[0]);
	}
	for (unsigned i = 0; i < count; i++)
		one(f, &requests[i]);
	return 1;
}

struct pair {
	uint8_t *memory;
	struct faulty sides[2];
	struct litmus *litmus;
};

static void pair_begin(struct pair *pair, enum fault fault)
{
	memset(pair, 0, sizeof(*pair));
	pair->memory = aligned_alloc(4096, 2 * LITMUS_BYTES);
	pair->litmus = calloc(1, sizeof(*pair->litmus));
	assert_non_null(pair->memory);
	assert_non_null(pair->litmus);
	memset(pair->memory, 0x55, 2 * LITMUS_BYTES);
	for (unsigned i = 0; i < 2; i++) {
		struct faulty *f = &pair->sides[i];

		assert_int_equal(fabric_shm_attach(pair->memory, 2 * LITMUS_BYTES, 0, &f->inner),
				 0);
		f->ops = *f->inner->ops;
		f->ops.post = faulty_post;
		f->ep = *f->inner;
		f->ep.ops = &f->ops;
		f->fault = fault;
	}
	litmus_init(pair->litmus, &pair->sides[0].ep, &pair->sides[1].ep, LITMUS_BYTES, 60000000000);
}

static void pair_end(struct pair *pair)
{
	/* nothing in front of the scratch bytes was touched */
	for (size_t i = 0; i < LITMUS_BYTES; i++)
		assert_int_equal(pair->memory[i], 0x55);
	for (unsigned i = 0; i < 2; i++)
		pair->sides[i].inner->ops->close(pair->sides[i].inner);
	free(pair->litmus);
	free(pair->memory);
}

#define ROUNDS 300

/* What each test counts with this fault. */
static void failures_of(enum fault fault, struct litmus_result results[5])
{
	struct pair pair;

	pair_begin(&pair, fault);
	assert_int_equal(litmus_words(pair.litmus, &results[0]), 0);
	assert_int_equal(litmus_fence(pair.litmus, ROUNDS, &results[1]), 0);
	assert_int_equal(litmus_count(pair.litmus, ROUNDS, &results[2]), 0);
	pair_end(&pair);
}

static void test_litmus_good(void **state)
{
	struct litmus_result results[5];
	struct pair pair;
	struct hist *hist = calloc(1, sizeof(*hist));

	(void)state;
	failures_of(FAULT_NONE, results);
	pair_begin(&pair, FAULT_NONE);
	assert_int_equal(litmus_store(pair.litmus, ROUNDS, &results[3]), 0);
	assert_int_equal(litmus_publish(pair.litmus, ROUNDS, &results[4]), 0);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(results[i].failures, 0);
		assert_int_equal(results[i].rounds, i == 0 ? 8 : i == 2 ? 2 * ROUNDS : ROUNDS);
	}
	for (int i = LITMUS_READ; i <= LITMUS_CAS; i++) {
		assert_int_equal(litmus_latency(pair.litmus, (enum litmus_operation)i, 10, hist),
				 0);
		assert_int_equal(hist_count(hist), 10);
	}
	free(hist);
	pair_end(&pair);
}

/* READ before the CAS in front of it: both miss. */
static void test_litmus_store(void **state)
{
	struct litmus_result result;
	struct pair pair;

	(void)state;
	pair_begin(&pair, FAULT_READ_FIRST);
	assert_int_equal(litmus_store(pair.litmus, ROUNDS, &result), 0);
	assert_true(result.failures > 0);
	assert_int_equal(result.rounds, ROUNDS);
	pair_end(&pair);
}

/* The CAS before the WRITE in front of it: the flag is seen without the data. */
static void test_litmus_publish(void **state)
{
	struct litmus_result result;
	struct pair pair;

	(void)state;
	pair_begin(&pair, FAULT_CAS_FIRST);
	assert_int_equal(litmus_publish(pair.litmus, ROUNDS, &result), 0);
	assert_true(result.failures > 0);
	pair_end(&pair);
}

static void test_litmus_fence(void **state)
{
	struct litmus_result results[5];

	(void)state;
	failures_of(FAULT_WRITE_FIRST, results);
	assert_int_equal(results[1].failures, ROUNDS);
	failures_of(FAULT_UNFENCED, results);
	assert_int_equal(results[1].failures, 0);
}

static void test_litmus_atomics(void **state)
{
	struct litmus_result results[5];

	(void)state;
	failures_of(FAULT_NOT_ATOMIC, results);
	assert_true(results[2].failures > 0);
	failures_of(FAULT_SWAPPED, results);
	assert_true(results[0].failures > 0);
	assert_non_null(strstr(results[0].text, "reverse order"));
}

static void test_litmus_lost(void **state)
{
	struct litmus_result result;
	struct pair pair;

	(void)state;
	pair_begin(&pair, FAULT_NONE);
	pair.sides[1].fault = FAULT_LOST;
	assert_int_equal(litmus_store(pair.litmus, ROUNDS, &result), -TARN_ESESSION);
	pair.sides[1].posts = 0;
	assert_int_equal(litmus_publish(pair.litmus, ROUNDS, &result), -TARN_ESESSION);
	assert_int_equal(litmus_count(pair.litmus, ROUNDS, &result), -TARN_ESESSION);
	pair_end(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_device),    cmocka_unit_test(test_sound),
		cmocka_unit_test(test_port_down),    cmocka_unit_test(test_device_files),
		cmocka_unit_test(test_guid_zero),    cmocka_unit_test(test_infiniband),
		cmocka_unit_test(test_iwarp),        cmocka_unit_test(test_roce1_only),
		cmocka_unit_test(test_roce_mode),    cmocka_unit_test(test_ipv6_only),
		cmocka_unit_test(test_missing_gid),  cmocka_unit_test(test_same_address_twice),
		cmocka_unit_test(test_mtu),          cmocka_unit_test(test_pcie),
		cmocka_unit_test(test_numa),         cmocka_unit_test(test_congestion),
		cmocka_unit_test(test_counters),     cmocka_unit_test(test_caps),
		cmocka_unit_test(test_memlock),      cmocka_unit_test(test_host),
		cmocka_unit_test(test_garbage),      cmocka_unit_test(test_host_asks),
		cmocka_unit_test(test_report),       cmocka_unit_test(test_litmus_good),
		cmocka_unit_test(test_litmus_store), cmocka_unit_test(test_litmus_publish),
		cmocka_unit_test(test_litmus_fence), cmocka_unit_test(test_litmus_atomics),
		cmocka_unit_test(test_litmus_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
