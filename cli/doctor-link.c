/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-link.c - `tarn doctor`: MTU, PCIe, NUMA node and the congestion settings of a port
 *
 * The command's thread. Next to read: doctor-counters.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

/* What RoCE puts around the data at most; the kernel reckons the same (iboe_get_mtu()). */
#define ROCE_HEADERS 96

/* ---- MTU ------------------------------------------------------------------------------------- */

static unsigned roce_mtu(uint64_t netdev_mtu)
{
	unsigned mtu = 4096;

	while (mtu >= 256 && mtu + ROCE_HEADERS > netdev_mtu)
		mtu /= 2;
	return mtu >= 256 ? mtu : 0;
}

static void say_mtu(struct doctor *doctor, struct doctor_port *port, uint64_t netdev_mtu)
{
	unsigned possible = roce_mtu(netdev_mtu);
	unsigned active = port->have_caps && port->caps.active_mtu > 0
				  ? (unsigned)port->caps.active_mtu
				  : possible;
	struct doctor_finding *finding;

	if (possible == 0) {
		finding = doctor_block(doctor, "mtu", port,
				       "%s has MTU %llu: RoCE needs at least 352", port->netdev,
				       (unsigned long long)netdev_mtu);
		doctor_remedy(finding, "ip link set %s mtu 4200", port->netdev);
	} else if (active < 1024) {
		finding = doctor_say(
			doctor, "mtu", DOCTOR_WARNING, port->subject,
			"RDMA packets carry %u bytes, since %s has MTU %llu: a block of "
			"4 KiB takes %u packets",
			active, port->netdev, (unsigned long long)netdev_mtu, 4096 / active);
		doctor_remedy(finding,
			      "ip link set %s mtu 4200 (or 9000), at all hosts and "
			      "switches on the way",
			      port->netdev);
	} else if (active < 4096) {
		finding = doctor_say(doctor, "mtu", DOCTOR_NOTE, port->subject,
				     "RDMA packets carry %u bytes (%s has MTU %llu); 4096 needs an "
				     "MTU of 4192 or more",
				     active, port->netdev, (unsigned long long)netdev_mtu);
		doctor_remedy(finding,
			      "for large values: ip link set %s mtu 4200 (or 9000), at all "
			      "hosts and switches on the way",
			      port->netdev);
	} else {
		finding = doctor_say(doctor, "mtu", DOCTOR_OK, port->subject,
				     "RDMA packets carry %u bytes (%s has MTU %llu)", active,
				     port->netdev, (unsigned long long)netdev_mtu);
	}
	doctor_value(finding, "mtu_bytes", json_integer(active));
	doctor_value(finding, "netdev_mtu_bytes", writer_u64(netdev_mtu));
}

static void check_mtu(struct doctor *doctor, struct doctor_port *port)
{
	uint64_t mtu;

	if (port->iwarp || !port->ethernet || port->netdev[0] == '\0' ||
	    doctor_number(doctor, &mtu, "/sys/class/net/%s/mtu", port->netdev) < 0)
		return;
	say_mtu(doctor, port, mtu);
}

/* ---- PCIe ------------------------------------------------------------------------------------ */

struct pcie {
	double speed; /* GT/s */
	uint64_t width;
};

static bool read_pcie(struct doctor *doctor, const struct doctor_port *port, const char *which,
		      struct pcie *ret_pcie)
{
	char text[DOCTOR_LINE];

	if (doctor_read(doctor, text, "/sys/class/infiniband/%s/device/%s_link_speed", port->device,
			which) < 0)
		return false;
	ret_pcie->speed = strtod(text, NULL);
	return ret_pcie->speed > 0 &&
	       doctor_number(doctor, &ret_pcie->width,
			     "/sys/class/infiniband/%s/device/%s_link_width", port->device,
			     which) == 0 &&
	       ret_pcie->width > 0 && ret_pcie->width <= 64;
}

/* Data per second: 8 of 10 bits up to 5 GT/s, 128 of 130 above. */
static double pcie_gbits(const struct pcie *pcie)
{
	return pcie->speed * (double)pcie->width * (pcie->speed > 5 ? 128.0 / 130 : 0.8);
}

static void check_pcie(struct doctor *doctor, struct doctor_port *port)
{
	struct doctor_finding *finding;
	struct pcie now, most;
	char text[DOCTOR_LINE];
	double rate = 0;

	if (!read_pcie(doctor, port, "current", &now) || !read_pcie(doctor, port, "max", &most))
		return;
	if (doctor_read(doctor, text, "%s/rate", port->directory) >= 0)
		rate = strtod(text, NULL);
	if (now.width < most.width || now.speed < most.speed) {
		bool narrow = rate > 0 && pcie_gbits(&now) < rate;

		finding = doctor_say(doctor, "pcie", DOCTOR_WARNING, port->subject,
				     "PCIe runs at %.4g GT/s x%llu (%.0f Gb/s), the adapter can do "
				     "%.4g GT/s x%llu (%.0f Gb/s)%s",
				     now.speed, (unsigned long long)now.width, pcie_gbits(&now),
				     most.speed, (unsigned long long)most.width, pcie_gbits(&most),
				     narrow ? ": that is less than the port's rate" : "");
		doctor_remedy(finding, "another slot, seat the card again, BIOS settings (link "
				       "speed, bifurcation); an idle link may save power");
	} else {
		finding = doctor_say(doctor, "pcie", DOCTOR_OK, port->subject,
				     "PCIe runs at %.4g GT/s x%llu, which is the adapter's maximum "
				     "(%.0f Gb/s)",
				     now.speed, (unsigned long long)now.width, pcie_gbits(&now));
	}
	doctor_value(finding, "speed_gts", json_real(now.speed));
	doctor_value(finding, "width", writer_u64(now.width));
	doctor_value(finding, "max_speed_gts", json_real(most.speed));
	doctor_value(finding, "max_width", writer_u64(most.width));
	doctor_value(finding, "rate_gbits", json_real(rate));
}

/* ---- NUMA ------------------------------------------------------------------------------------ */

/* Free huge pages of a node, in bytes. */
static uint64_t node_free(struct doctor *doctor, const char *node)
{
	struct doctor_names sizes =
		doctor_list(doctor, "/sys/devices/system/node/%s/hugepages", node);
	uint64_t bytes = 0, pages;

	for (size_t i = 0; i < sizes.count; i++) {
		unsigned long long kib;

		if (sscanf(sizes.names[i], "hugepages-%llukB", &kib) == 1 &&
		    doctor_number(doctor, &pages,
				  "/sys/devices/system/node/%s/hugepages/%s/free_hugepages", node,
				  sizes.names[i]) == 0)
			bytes += pages * kib * 1024;
	}
	doctor_names_free(&sizes);
	return bytes;
}

/* The distance from a node to another one; 10 is the node itself. */
static long node_distance(struct doctor *doctor, long from, long to)
{
	char text[DOCTOR_LINE], *next = text;

	if (doctor_read(doctor, text, "/sys/devices/system/node/node%ld/distance", from) < 0)
		return -1;
	for (long i = 0; i < to; i++)
		(void)strtol(next, &next, 10);
	return strtol(next, NULL, 10);
}

static void say_node(struct doctor *doctor, struct doctor_port *port, long node, long best,
		     uint64_t own, uint64_t elsewhere)
{
	struct doctor_finding *finding;

	if (own > 0 || elsewhere == 0) {
		finding = doctor_say(doctor, "numa", DOCTOR_OK, port->subject,
				     "on NUMA node %ld, which has %llu MiB of free huge pages",
				     node, (unsigned long long)(own >> 20));
	} else {
		finding = doctor_say(doctor, "numa", DOCTOR_WARNING, port->subject,
				     "on NUMA node %ld, which has no free huge page; node %ld has "
				     "%llu MiB, at distance %ld (10 is the node itself): access "
				     "across sockets can cost most of the bandwidth",
				     node, best, (unsigned long long)(elsewhere >> 20),
				     node_distance(doctor, node, best));
		doctor_remedy(finding,
			      "echo N > /sys/devices/system/node/node%ld/hugepages/"
			      "hugepages-2048kB/nr_hugepages, or the pool's numa_node",
			      node);
		doctor_value(finding, "hugepage_node", json_integer(best));
		doctor_value(finding, "distance", json_integer(node_distance(doctor, node, best)));
	}
	doctor_value(finding, "node", json_integer(node));
}

static void check_numa(struct doctor *doctor, struct doctor_port *port)
{
	struct doctor_names nodes;
	uint64_t own = 0, most = 0;
	char text[DOCTOR_LINE];
	long node, best = -1, count = 0;

	if (doctor_read(doctor, text, "/sys/class/infiniband/%s/device/numa_node", port->device) <
	    0)
		return;
	node = strtol(text, NULL, 10);
	nodes = doctor_list(doctor, "/sys/devices/system/node");
	for (size_t i = 0; i < nodes.count; i++) {
		uint64_t bytes;
		long number;

		if (sscanf(nodes.names[i], "node%ld", &number) != 1)
			continue;
		count++;
		bytes = node_free(doctor, nodes.names[i]);
		if (number == node)
			own = bytes;
		else if (bytes > most) {
			most = bytes;
			best = number;
		}
	}
	doctor_names_free(&nodes);
	if (node >= 0)
		say_node(doctor, port, node, best, own, most);
	else if (count > 1)
		doctor_say(doctor, "numa", DOCTOR_NOTE, port->subject,
			   "the kernel does not know the adapter's NUMA node (of %ld)", count);
}

/* ---- congestion ------------------------------------------------------------------------------ */

/* mlx5: one file per priority, under the two roles (notification and reaction point). */
static int count_enabled(struct doctor *doctor, const char *netdev, const char *role)
{
	struct doctor_names files =
		doctor_list(doctor, "/sys/class/net/%s/ecn/%s/enable", netdev, role);
	int on = files.count > 0 ? 0 : -1;

	for (size_t i = 0; i < files.count; i++) {
		uint64_t value;

		on += doctor_number(doctor, &value, "/sys/class/net/%s/ecn/%s/enable/%s", netdev,
				    role, files.names[i]) == 0 &&
		      value != 0;
	}
	doctor_names_free(&files);
	return on;
}

static void check_congestion(struct doctor *doctor, struct doctor_port *port)
{
	int np = count_enabled(doctor, port->netdev, "roce_np");
	int rp = count_enabled(doctor, port->netdev, "roce_rp");
	struct doctor_finding *finding;
	char pfc[DOCTOR_LINE];

	if (np < 0 && rp < 0) {
		finding = doctor_say(doctor, "congestion", DOCTOR_NOTE, port->subject,
				     "the driver shows no ECN or PFC settings in sysfs: not looked "
				     "at");
		doctor_remedy(finding,
			      "dcb pfc show dev %s; dcb app show dev %s; `ethtool -S %s | "
			      "grep pause`; switches must have the same",
			      port->netdev, port->netdev, port->netdev);
		return;
	}
	finding = doctor_say(doctor, "congestion", np > 0 && rp > 0 ? DOCTOR_OK : DOCTOR_WARNING,
			     port->subject,
			     "ECN is answered on %d of 8 priorities (roce_np) and obeyed on %d "
			     "(roce_rp)",
			     np > 0 ? np : 0, rp > 0 ? rp : 0);
	if (np <= 0 || rp <= 0)
		doctor_remedy(finding,
			      "for each priority P: echo 1 > "
			      "/sys/class/net/%s/ecn/roce_np/enable/P and roce_rp; without "
			      "it a full switch drops packets",
			      port->netdev);
	doctor_value(finding, "ecn_np_priorities", json_integer(np));
	doctor_value(finding, "ecn_rp_priorities", json_integer(rp));
	if (doctor_read(doctor, pfc, "/sys/class/net/%s/qos/pfc", port->netdev) >= 0)
		doctor_value(finding, "pfc", writer_text(pfc));
}

void doctor_check_link(struct doctor *doctor, struct doctor_port *port)
{
	check_mtu(doctor, port);
	if (port->software)
		return;
	check_pcie(doctor, port);
	check_numa(doctor, port);
	if (port->ethernet && !port->iwarp && port->netdev[0] != '\0')
		check_congestion(doctor, port);
}
