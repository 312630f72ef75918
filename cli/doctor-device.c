/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-device.c - `tarn doctor`: which RDMA devices and ports there are, and whether they can be
 * opened and are up
 *
 * Walks over all ports and has the other checks look at each. The command's thread. Next to read:
 * doctor-gid.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define SOFT_ROCE "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev %s"

/* ---- no device at all ------------------------------------------------------------------------ */

/* Makers of adapters that do RDMA, and their driver. */
static const struct {
	const char *vendor, *name, *module;
} makers[] = {
	{"0x15b3", "NVIDIA/Mellanox", "mlx5_ib"},
	{"0x14e4", "Broadcom", "bnxt_re"},
	{"0x8086", "Intel", "irdma"},
	{"0x1077", "Marvell/QLogic", "qedr"},
	{"0x1425", "Chelsio", "iw_cxgb4"},
	{"0x1dd8", "AMD Pensando", "ionic_rdma"},
	{"0x19e5", "Huawei", "hns_roce_hw_v2"},
	{"0x1d0f", "Amazon", "efa"},
};

/* A network adapter that could do RDMA if its driver was there; a hint, no more. */
static void hint_adapter(struct doctor *doctor)
{
	struct doctor_names pci = doctor_list(doctor, "/sys/bus/pci/devices");
	char vendor[DOCTOR_LINE], class[DOCTOR_LINE];

	for (size_t i = 0; i < pci.count; i++) {
		if (doctor_read(doctor, class, "/sys/bus/pci/devices/%s/class", pci.names[i]) < 0 ||
		    strncmp(class, "0x02", 4) != 0 ||
		    doctor_read(doctor, vendor, "/sys/bus/pci/devices/%s/vendor", pci.names[i]) < 0)
			continue;
		for (size_t m = 0; m < sizeof(makers) / sizeof(makers[0]); m++)
			if (strcmp(makers[m].vendor, vendor) == 0)
				doctor_remedy(doctor_say(doctor, "adapter", DOCTOR_NOTE, "host",
							 "a network adapter of %s is at %s: it may "
							 "be able to do RDMA",
							 makers[m].name, pci.names[i]),
					      "modprobe %s, then look for errors in dmesg",
					      makers[m].module);
	}
	doctor_names_free(&pci);
}

/* A network device that soft-RoCE could sit on: one of hardware if there is any; else "eth0". */
static void example_netdev(struct doctor *doctor, char ret_name[DOCTOR_NETDEV_BYTES])
{
	struct doctor_names netdevs = doctor_list(doctor, "/sys/class/net");
	bool found = false;

	snprintf(ret_name, DOCTOR_NETDEV_BYTES, "eth0");
	for (size_t i = 0; i < netdevs.count && !found; i++) {
		char type[DOCTOR_LINE];

		/* 1: Ethernet; lo is 772 */
		found = doctor_exists(doctor, "/sys/class/net/%s/device", netdevs.names[i]) &&
			doctor_read(doctor, type, "/sys/class/net/%s/type", netdevs.names[i]) >=
				0 &&
			strcmp(type, "1") == 0;
		if (found)
			snprintf(ret_name, DOCTOR_NETDEV_BYTES, "%.15s", netdevs.names[i]);
	}
	doctor_names_free(&netdevs);
}

static void no_device(struct doctor *doctor)
{
	bool core = doctor_exists(doctor, "/sys/module/ib_core");
	char netdev[DOCTOR_NETDEV_BYTES];
	struct doctor_finding *finding;

	example_netdev(doctor, netdev);
	finding =
		doctor_say(doctor, "no-device", DOCTOR_PROBLEM, "host",
			   "there is no RDMA device (/sys/class/infiniband is %s%s): tarn:// URIs "
			   "cannot be used; on the daemon's own host shared memory works all the "
			   "same (tarn:/run/tarn/tarn.sock?pool=NAME)",
			   doctor_exists(doctor, "/sys/class/infiniband") ? "empty" : "not there",
			   core ? "" : ", the module ib_core is not loaded");
	doctor_remedy(finding,
		      "load the adapter's driver; or, without an adapter, soft-RoCE: " SOFT_ROCE,
		      netdev);
	hint_adapter(doctor);
}

/* ---- device files ---------------------------------------------------------------------------- */

static void describe_open(struct doctor_finding *finding, int status, const char *path)
{
	if (status == -EACCES)
		doctor_remedy(
			finding,
			"chmod 666 %s, or add the user to the group that owns it; rdma-core's "
			"udev rules do that at boot",
			path);
	else if (status == -EPERM)
		doctor_remedy(finding,
			      "the device list of the container or of the systemd unit forbids it: "
			      "docker run --device %s; DeviceAllow=%s rw",
			      path, path);
	else
		doctor_remedy(finding, "look at dmesg");
}

static void check_rdma_cm(struct doctor *doctor)
{
	const char *path = "/dev/infiniband/rdma_cm";
	int status = doctor->ask->open(doctor, path);
	struct doctor_finding *finding;

	if (status == 0) {
		doctor_say(doctor, "rdma-cm-file", DOCTOR_OK, "host",
			   "%s can be opened: connections can be made", path);
		return;
	}
	if (status == -ENOENT || status == -ENODEV || status == -ENXIO) {
		finding = doctor_say(doctor, "rdma-cm-file", DOCTOR_PROBLEM, "host",
				     "%s is not there: no connection can be made", path);
		doctor_remedy(finding, "modprobe rdma_ucm; in a container: --device %s", path);
		return;
	}
	finding = doctor_say(doctor, "rdma-cm-file", DOCTOR_PROBLEM, "host",
			     "%s cannot be opened: %s", path, strerror(-status));
	describe_open(finding, status, path);
}

/* The device's file is /dev/infiniband/uverbsN, and only sysfs knows N. */
static bool find_uverbs(struct doctor *doctor, const char *device, char ret_path[64])
{
	struct doctor_names files = doctor_list(doctor, "/sys/class/infiniband_verbs");
	char name[DOCTOR_LINE];
	bool found = false;

	for (size_t i = 0; i < files.count && !found; i++) {
		found = doctor_read(doctor, name, "/sys/class/infiniband_verbs/%s/ibdev",
				    files.names[i]) >= 0 &&
			strcmp(name, device) == 0;
		if (found)
			snprintf(ret_path, 64, "/dev/infiniband/%.40s", files.names[i]);
	}
	doctor_names_free(&files);
	return found;
}

static void check_uverbs(struct doctor *doctor, struct doctor_port *port)
{
	char path[64];
	int status;

	if (!find_uverbs(doctor, port->device, path)) {
		doctor_remedy(doctor_block(doctor, "device-file", port,
					   "programs have no way to the device: it has no entry in "
					   "/sys/class/infiniband_verbs"),
			      "modprobe ib_uverbs");
		return;
	}
	status = doctor->ask->open(doctor, path);
	if (status == 0) {
		doctor_say(doctor, "device-file", DOCTOR_OK, port->subject, "%s can be opened",
			   path);
	} else if (status == -ENOENT || status == -ENXIO) {
		doctor_remedy(doctor_block(doctor, "device-file", port, "%s is not there", path),
			      "in a container: --device %s; else restart udev (rdma-core)", path);
	} else {
		describe_open(doctor_block(doctor, "device-file", port, "%s cannot be opened: %s",
					   path, strerror(-status)),
			      status, path);
	}
}

/* ---- a port ---------------------------------------------------------------------------------- */

/* From "4: ACTIVE" the word. */
static const char *after_colon(const char *text)
{
	const char *colon = strchr(text, ':');

	return colon != NULL ? colon + 1 + strspn(colon + 1, " ") : text;
}

static void find_netdev(struct doctor *doctor, struct doctor_port *port)
{
	char text[DOCTOR_LINE];
	struct doctor_names netdevs;

	for (unsigned i = 0; i < 16 && port->netdev[0] == '\0'; i++)
		if (doctor_read(doctor, text, "%s/gid_attrs/ndevs/%u", port->directory, i) > 0)
			snprintf(port->netdev, sizeof(port->netdev), "%.15s", text);
	if (port->netdev[0] == '\0' &&
	    doctor_read(doctor, text, "/sys/class/infiniband/%s/parent", port->device) > 0)
		snprintf(port->netdev, sizeof(port->netdev), "%.15s", text);
	if (port->netdev[0] != '\0')
		return;
	netdevs = doctor_list(doctor, "/sys/class/infiniband/%s/device/net", port->device);
	for (size_t i = 0; i < netdevs.count && port->netdev[0] == '\0'; i++) {
		uint64_t number = 0;

		(void)doctor_number(doctor, &number, "/sys/class/net/%s/dev_port",
				    netdevs.names[i]);
		if (netdevs.count == 1 || number + 1 == port->number)
			snprintf(port->netdev, sizeof(port->netdev), "%.15s", netdevs.names[i]);
	}
	doctor_names_free(&netdevs);
}

static const char *kind_of(const struct doctor_port *port)
{
	if (port->iwarp)
		return "iWARP";
	return port->ethernet ? "RoCE" : "InfiniBand";
}

static void check_state(struct doctor *doctor, struct doctor_port *port)
{
	char state[DOCTOR_LINE], phys[DOCTOR_LINE], rate[DOCTOR_LINE];
	struct doctor_finding *finding;

	if (doctor_read(doctor, state, "%s/state", port->directory) < 0)
		snprintf(state, sizeof(state), "unknown");
	if (doctor_read(doctor, phys, "%s/phys_state", port->directory) < 0)
		snprintf(phys, sizeof(phys), "unknown");
	if (doctor_read(doctor, rate, "%s/rate", port->directory) < 0)
		snprintf(rate, sizeof(rate), "unknown rate");
	if (strcmp(after_colon(state), "ACTIVE") == 0) {
		finding = doctor_say(doctor, "port-state", DOCTOR_OK, port->subject,
				     "%s port%s%s, ACTIVE, %s, %s", kind_of(port),
				     port->netdev[0] != '\0' ? " of " : "", port->netdev,
				     after_colon(phys), port->software ? "made by software" : rate);
	} else {
		finding = doctor_block(doctor, "port-state", port, "%s port%s%s is %s (%s)",
				       kind_of(port), port->netdev[0] != '\0' ? " of " : "",
				       port->netdev, after_colon(state), after_colon(phys));
		if (strcmp(after_colon(state), "INIT") == 0)
			doctor_remedy(finding, "no subnet manager has set it up: start opensm on "
					       "one host, or on the switch");
		else
			doctor_remedy(finding,
				      "ip link set %s up; then cable, transceiver, switch port",
				      port->netdev[0] != '\0' ? port->netdev : "NETDEV");
	}
	doctor_value(finding, "kind", json_string(kind_of(port)));
	doctor_value(finding, "state", writer_text(after_colon(state)));
	doctor_value(finding, "physical_state", writer_text(after_colon(phys)));
	doctor_value(finding, "rate", writer_text(rate));
	doctor_value(finding, "netdev",
		     port->netdev[0] != '\0' ? writer_text(port->netdev) : json_null());
}

/* rdma_cm finds a device by its GUID; with 0 it gives connections without a device. */
static void check_guid(struct doctor *doctor, struct doctor_port *port)
{
	char guid[DOCTOR_LINE];

	if (doctor_read(doctor, guid, "/sys/class/infiniband/%s/node_guid", port->device) < 0 ||
	    strspn(guid, "0:") != strlen(guid))
		return;
	doctor_remedy(doctor_block(doctor, "node-guid", port,
				   "the node GUID is 0: rdma_cm cannot tell the device from others "
				   "and gives connections without one (id->verbs is NULL)"),
		      "give it one: for a virtual function `ip link set PF vf N node_guid ...`, "
		      "else the adapter's firmware tool");
}

static void check_port(struct doctor *doctor, const char *device, const char *number)
{
	struct doctor_port port = {.device = device, .number = (unsigned)strtoul(number, NULL, 10)};
	char text[DOCTOR_LINE];

	snprintf(port.subject, sizeof(port.subject), "%.48s/%.8s", device, number);
	snprintf(port.directory, sizeof(port.directory), "/sys/class/infiniband/%s/ports/%s",
		 device, number);
	port.ethernet = doctor_read(doctor, text, "%s/link_layer", port.directory) >= 0 &&
			strcmp(text, "Ethernet") == 0;
	port.iwarp = doctor_read(doctor, text, "/sys/class/infiniband/%s/node_type", device) >= 0 &&
		     strstr(text, "RNIC") != NULL;
	port.software = !doctor_exists(doctor, "/sys/class/infiniband/%s/device", device);
	find_netdev(doctor, &port);
	doctor->ports++;

	check_state(doctor, &port);
	check_guid(doctor, &port);
	check_uverbs(doctor, &port);
	doctor_check_caps(doctor, &port);
	doctor_check_gids(doctor, &port);
	doctor_check_link(doctor, &port);
	doctor_check_counters(doctor, &port);
	doctor->usable += !port.blocked;
}

void doctor_check_devices(struct doctor *doctor)
{
	struct doctor_names devices = doctor_list(doctor, "/sys/class/infiniband");

	doctor->devices = (unsigned)devices.count;
	if (devices.count == 0)
		no_device(doctor);
	else
		check_rdma_cm(doctor);
	for (size_t i = 0; i < devices.count; i++) {
		struct doctor_names ports =
			doctor_list(doctor, "/sys/class/infiniband/%s/ports", devices.names[i]);

		for (size_t p = 0; p < ports.count; p++)
			check_port(doctor, devices.names[i], ports.names[p]);
		doctor_names_free(&ports);
	}
	doctor_names_free(&devices);
}

void doctor_check_local(struct doctor *doctor)
{
	doctor->naddresses = doctor->ask->addresses(doctor, doctor->addresses, DOCTOR_ADDRESSES);
	if (doctor->naddresses < 0)
		doctor->naddresses = 0;
	doctor_check_devices(doctor);
	doctor_check_host(doctor);
}
