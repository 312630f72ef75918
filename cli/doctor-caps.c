/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-caps.c - `tarn doctor`: what the device can do, and what that means for a pool
 *
 * The command's thread. Next to read: docs/protocol.md section 1, "Atomic domain".
 */
#include <stdio.h>
#include <string.h>

#include "doctor.h"

/* READs and atomics in flight per connection: below this they wait for each other. */
#define DEPTH_GOOD 16
#define DEPTH_LOW  4
/* The handshake names so many pieces of a pool; more take a message each. */
#define REGIONS 4

static void check_atomics(struct doctor *doctor, struct doctor_port *port)
{
	const char *name = "none", *text;
	enum doctor_level level = DOCTOR_OK;
	struct doctor_finding *finding;

	switch ((enum ibv_atomic_cap)port->caps.atomic_cap) {
	case IBV_ATOMIC_HCA:
		name = "HCA";
		text = "atomics are those of this one device (HCA): a pool that it alone serves "
		       "gets the domain `nic`; one that shared memory or another device serves, "
		       "too, gets `cpu`";
		break;
	case IBV_ATOMIC_GLOB:
		name = "GLOB";
		text = "atomics are atomic with the CPU's, too (GLOB); Tarn uses them as those of "
		       "one device";
		break;
	case IBV_ATOMIC_NONE:
	default:
		level = DOCTOR_NOTE;
		text = "no atomics: pools have the domain `cpu`, in which each CAS and FAA of this "
		       "port is a message to the daemon; a write costs the daemon's CPU then, a "
		       "read does not";
		break;
	}
	finding = doctor_say(doctor, "atomics", level, port->subject, "%s", text);
	if (level != DOCTOR_OK)
		doctor_remedy(finding, port->iwarp ? "iWARP has none; leave atomics = auto"
						   : "leave atomics = auto");
	doctor_value(finding, "atomic_cap", json_string(name));
}

static void check_depth(struct doctor *doctor, struct doctor_port *port)
{
	int in = port->caps.max_qp_rd_atom, out = port->caps.max_qp_init_rd_atom;
	int depth = in < out ? in : out;
	struct doctor_finding *finding;

	if (depth <= 0) {
		finding = doctor_block(doctor, "read-depth", port,
				       "max_qp_rd_atom is %d and max_qp_init_rd_atom %d: no READ "
				       "can be sent",
				       in, out);
		doctor_remedy(finding, "another device or driver: Tarn reads by RDMA READ");
	} else if (depth < DEPTH_LOW) {
		finding = doctor_say(
			doctor, "read-depth", DOCTOR_WARNING, port->subject,
			"only %d READ%s or atomic%s may be in flight per connection "
			"(max_qp_rd_atom %d, max_qp_init_rd_atom %d): the two READs of a get "
			"wait for each other, large values come piece by piece",
			depth, depth == 1 ? "" : "s", depth == 1 ? "" : "s", in, out);
		doctor_remedy(finding, "the adapter's firmware or driver option; more sessions "
				       "share the wait");
	} else {
		finding = doctor_say(doctor, "read-depth",
				     depth < DEPTH_GOOD ? DOCTOR_NOTE : DOCTOR_OK, port->subject,
				     "up to %d READs and atomics in flight per connection "
				     "(max_qp_rd_atom %d, max_qp_init_rd_atom %d)",
				     depth, in, out);
	}
	doctor_value(finding, "max_qp_rd_atom", json_integer(in));
	doctor_value(finding, "max_qp_init_rd_atom", json_integer(out));
}

static void say_mr_size(struct doctor *doctor, struct doctor_port *port, char *ret_text,
			size_t bytes)
{
	uint64_t size = port->caps.max_mr_size;

	if (size >= 1ull << 41) {
		snprintf(ret_text, bytes, "memory regions of any size");
		return;
	}
	snprintf(ret_text, bytes, "memory regions of up to %llu MiB",
		 (unsigned long long)(size >> 20));
	if (size < 64ull << 30)
		doctor_say(doctor, "mr-size", DOCTOR_NOTE, port->subject,
			   "max_mr_size is %llu MiB: a larger pool is registered in pieces; beyond "
			   "%u pieces (%llu MiB) clients ask for the others one by one when they "
			   "connect",
			   (unsigned long long)(size >> 20), REGIONS,
			   (unsigned long long)((size >> 20) * REGIONS));
}

static void check_limits(struct doctor *doctor, struct doctor_port *port)
{
	const struct doctor_caps *caps = &port->caps;
	struct doctor_finding *finding;
	char regions[96];

	say_mr_size(doctor, port, regions, sizeof(regions));
	finding = doctor_say(doctor, "limits", DOCTOR_OK, port->subject,
			     "%d queue pairs, %d completion queues, %d memory regions, %s; "
			     "firmware %s",
			     caps->max_qp, caps->max_cq, caps->max_mr, regions,
			     caps->firmware[0] != '\0' ? caps->firmware : "unknown");
	doctor_value(finding, "max_qp", json_integer(caps->max_qp));
	doctor_value(finding, "max_cq", json_integer(caps->max_cq));
	doctor_value(finding, "max_mr", json_integer(caps->max_mr));
	doctor_value(finding, "max_mr_size", writer_u64(caps->max_mr_size));
	doctor_value(finding, "max_srq", json_integer(caps->max_srq));
	doctor_value(finding, "firmware", writer_text(caps->firmware));
	if (caps->max_srq <= 0)
		doctor_say(doctor, "srq", DOCTOR_NOTE, port->subject,
			   "no shared receive queues: the daemon keeps receive buffers for each "
			   "connection");
}

void doctor_check_caps(struct doctor *doctor, struct doctor_port *port)
{
	int status;

	if (doctor->ask->caps == NULL || doctor_find(doctor, "node-guid", port->subject) != NULL)
		return;
	status = doctor->ask->caps(doctor, port->device, port->number, &port->caps);
	if (status < 0) {
		/* if its file cannot be opened that has been said already */
		if (!port->blocked)
			doctor_remedy(doctor_block(doctor, "device-open", port,
						   "libibverbs cannot open the device: %s",
						   strerror(-status)),
				      "install the device's provider (ibverbs-providers); look at "
				      "dmesg");
		return;
	}
	port->have_caps = true;
	check_atomics(doctor, port);
	check_depth(doctor, port);
	check_limits(doctor, port);
}
