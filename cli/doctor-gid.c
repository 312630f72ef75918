/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-gid.c - `tarn doctor`: a port's GID table, and which GID a connection of each address uses
 *
 * Tarn names addresses, never GID indexes. rdma_cm takes the entry that has the address as its
 * value, the type that is set for the port (RoCE v2 unless somebody has changed it), and the
 * network device that has the address. This looks in the table the same way and says why. On
 * InfiniBand the address belongs to an IPoIB device, and pkeys count; iWARP has no GIDs to choose
 * from. The command's thread. Next to read: doctor-link.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define GIDS_MAX  512
#define GID_TYPES 3

enum gid_type { GID_IB, GID_ROCE1, GID_ROCE2 };

static const char *const type_names[GID_TYPES] = {"IB", "RoCE v1", "RoCE v2"};

struct gid {
	unsigned index;
	struct in6_addr value;
	enum gid_type type;
	char netdev[DOCTOR_NETDEV_BYTES];
};

struct table {
	struct gid gids[GIDS_MAX];
	unsigned count;
};

static bool is_zero(const struct in6_addr *value)
{
	static const struct in6_addr zero;

	return memcmp(value, &zero, sizeof(zero)) == 0;
}

static const char *show(const struct in6_addr *ip, char ret_text[INET6_ADDRSTRLEN])
{
	if (IN6_IS_ADDR_V4MAPPED(ip))
		inet_ntop(AF_INET, ip->s6_addr + 12, ret_text, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, ip, ret_text, INET6_ADDRSTRLEN);
	return ret_text;
}

/* "RoCE v2", "IB/RoCE v1"; the second is RoCE v1 on Ethernet. */
static enum gid_type parse_type(const char *text, bool ethernet)
{
	if (strcmp(text, "RoCE v2") == 0)
		return GID_ROCE2;
	return ethernet ? GID_ROCE1 : GID_IB;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void read_table(struct doctor *doctor, const struct doctor_port *port, struct table *table)
{
	struct doctor_names names = doctor_list(doctor, "%s/gids", port->directory);
	char text[DOCTOR_LINE];

	for (size_t i = 0; i < names.count && table->count < GIDS_MAX; i++) {
		struct gid *gid = &table->gids[table->count];

		*gid = (struct gid){.index = (unsigned)strtoul(names.names[i], NULL, 10)};
		if (doctor_read(doctor, text, "%s/gids/%s", port->directory, names.names[i]) < 0 ||
		    inet_pton(AF_INET6, text, &gid->value) != 1 || is_zero(&gid->value))
			continue;
		if (doctor_read(doctor, text, "%s/gid_attrs/types/%s", port->directory,
				names.names[i]) < 0)
			text[0] = '\0';
		gid->type = parse_type(text, port->ethernet);
		if (doctor_read(doctor, text, "%s/gid_attrs/ndevs/%s", port->directory,
				names.names[i]) > 0)
			snprintf(gid->netdev, sizeof(gid->netdev), "%.15s", text);
		table->count++;
	}
	doctor_names_free(&names);
}

static json_t *table_json(const struct table *table)
{
	json_t *array = json_array();

	for (unsigned i = 0; i < table->count; i++) {
		const struct gid *gid = &table->gids[i];
		char ip[INET6_ADDRSTRLEN];

		json_array_append_new(array,
				      json_pack("{s:i, s:s, s:s, s:s}", "index", (int)gid->index,
						"address", show(&gid->value, ip), "type",
						type_names[gid->type], "netdev", gid->netdev));
	}
	return array;
}

/* "0 fe80::1 RoCE v1 eth0; 1 ..." ; the first ones. */
static void table_text(const struct table *table, char *ret_text, size_t bytes)
{
	size_t used = 0;

	ret_text[0] = '\0';
	for (unsigned i = 0; i < table->count && used < bytes; i++) {
		const struct gid *gid = &table->gids[i];
		char ip[INET6_ADDRSTRLEN];
		int n = snprintf(ret_text + used, bytes - used, "%s%u: %s %s %s", i > 0 ? "; " : "",
				 gid->index, show(&gid->value, ip), type_names[gid->type],
				 gid->netdev);

		used += n > 0 ? (size_t)n : 0;
	}
}

/* ---- RoCE ------------------------------------------------------------------------------------ */

/* What rdma_cm uses on this port; configfs has it when somebody has loaded it. */
static enum gid_type default_type(struct doctor *doctor, const struct doctor_port *port)
{
	char text[DOCTOR_LINE];

	if (doctor_read(doctor, text, "/sys/kernel/config/rdma_cm/%s/ports/%u/default_roce_mode",
			port->device, port->number) < 0)
		return GID_ROCE2;
	return parse_type(text, true);
}

static const struct gid *choose(const struct table *table, const struct doctor_address *address,
				enum gid_type type)
{
	for (unsigned i = 0; i < table->count; i++) {
		const struct gid *gid = &table->gids[i];

		if (gid->type == type && strcmp(gid->netdev, address->netdev) == 0 &&
		    memcmp(&gid->value, &address->ip, sizeof(gid->value)) == 0)
			return gid;
	}
	return NULL;
}

/* Another network device of this port that has the same address: a bond and its vlan, a bridge. */
static const struct gid *find_twin(const struct table *table, const struct gid *gid)
{
	for (unsigned i = 0; i < table->count; i++) {
		const struct gid *other = &table->gids[i];

		if (other->type == gid->type && strcmp(other->netdev, gid->netdev) != 0 &&
		    memcmp(&other->value, &gid->value, sizeof(gid->value)) == 0)
			return other;
	}
	return NULL;
}

/* The port's own network device, or one above it (vlan, bond) that has GIDs in its table. */
static bool belongs(const struct doctor_port *port, const struct table *table,
		    const struct doctor_address *address)
{
	if (strcmp(address->netdev, port->netdev) == 0)
		return true;
	for (unsigned i = 0; i < table->count; i++)
		if (strcmp(table->gids[i].netdev, address->netdev) == 0)
			return true;
	return false;
}

static void say_choice(struct doctor *doctor, struct doctor_port *port, const struct table *table,
		       const struct doctor_address *address, const struct gid *gid)
{
	const struct gid *twin = find_twin(table, gid);
	bool local = IN6_IS_ADDR_LINKLOCAL(&address->ip);
	struct doctor_finding *finding;
	char ip[INET6_ADDRSTRLEN];

	show(&address->ip, ip);
	finding = doctor_say(
		doctor, "gid-choice", twin != NULL ? DOCTOR_WARNING : DOCTOR_OK, port->subject,
		"%s on %s: GID %u would be used: it has this address, is %s, and is of "
		"this network device%s",
		ip, address->netdev, gid->index, type_names[gid->type],
		local ? "; link-local, so the last choice and only with a scope" : "");
	if (twin != NULL) {
		json_t *value = json_integer(twin->index);

		free(finding->text);
		if (asprintf(&finding->text,
			     "%s is on two network devices: GID %u of %s would be used for "
			     "connections that the route sends there, GID %u of %s for the others",
			     ip, gid->index, address->netdev, twin->index, twin->netdev) < 0)
			finding->text = NULL;
		doctor_value(finding, "twin_index", value);
		doctor_remedy(finding, "give each network device an address of its own, or listen "
				       "on an address that only one of them has");
	}
	doctor_value(finding, "address", json_string(ip));
	doctor_value(finding, "netdev", writer_text(address->netdev));
	doctor_value(finding, "index", json_integer(gid->index));
	doctor_value(finding, "type", json_string(type_names[gid->type]));
	doctor_value(finding, "link_local", json_boolean(local));
}

/* No GID for an address of the port's network device: the other type, or none at all. */
static void say_missing(struct doctor *doctor, struct doctor_port *port, const struct table *table,
			const struct doctor_address *address)
{
	const struct gid *other = choose(table, address, GID_ROCE1);
	struct doctor_finding *finding;
	char ip[INET6_ADDRSTRLEN];

	show(&address->ip, ip);
	if (IN6_IS_ADDR_LINKLOCAL(&address->ip))
		return;
	if (other != NULL) {
		finding = doctor_say(doctor, "gid-roce1", DOCTOR_WARNING, port->subject,
				     "%s on %s has a GID of RoCE v1 only (index %u): that is not "
				     "routed and other hosts use RoCE v2",
				     ip, address->netdev, other->index);
		doctor_remedy(finding, "an adapter that does RoCE v2, or its firmware's setting");
	} else {
		finding = doctor_say(doctor, "gid-missing", DOCTOR_WARNING, port->subject,
				     "%s on %s has no GID: rdma_cm cannot use this address here",
				     ip, address->netdev);
		doctor_remedy(finding,
			      "ip addr del and add it again (the driver missed the event); "
			      "is %s up?",
			      address->netdev);
	}
	doctor_value(finding, "address", json_string(ip));
	doctor_value(finding, "netdev", writer_text(address->netdev));
}

struct tally {
	unsigned routable, link_local, unmatched;
};

static void say_none(struct doctor *doctor, struct doctor_port *port, const struct table *table,
		     const struct tally *tally)
{
	struct doctor_finding *finding;
	char seen[1024];

	table_text(table, seen, sizeof(seen));
	if (tally->link_local > 0 && tally->unmatched == 0) {
		finding = doctor_say(doctor, "gid-none", DOCTOR_WARNING, port->subject,
				     "only link-local addresses: they work with a scope "
				     "(tarn://[fe80::1%%25%s]/POOL) and between neighbours only",
				     port->netdev);
		doctor_remedy(finding, "ip addr add ADDRESS/LENGTH dev %s", port->netdev);
	} else if (tally->unmatched > 0) {
		finding = doctor_block(doctor, "gid-none", port,
				       "no address of %s has a RoCE v2 GID; GIDs seen: %s",
				       port->netdev, *seen != '\0' ? seen : "none");
		doctor_remedy(finding,
			      "RoCE v2 must be on (adapter, driver, configfs "
			      "default_roce_mode), and the address be set while %s is up",
			      port->netdev);
	} else {
		finding =
			doctor_block(doctor, "gid-none", port,
				     "%s has no IP address: rdma_cm finds a port by address; GIDs "
				     "seen: %s",
				     port->netdev[0] != '\0' ? port->netdev : "the port",
				     *seen != '\0' ? seen : "none");
		doctor_remedy(finding, "ip addr add ADDRESS/LENGTH dev %s",
			      port->netdev[0] != '\0' ? port->netdev : "NETDEV");
	}
}

static void check_roce(struct doctor *doctor, struct doctor_port *port, const struct table *table)
{
	enum gid_type type = default_type(doctor, port);
	struct tally tally = {0};

	if (type != GID_ROCE2)
		doctor_remedy(doctor_say(doctor, "roce-mode", DOCTOR_WARNING, port->subject,
					 "rdma_cm is set to RoCE v1 on this port: its packets are "
					 "not routed and peers with RoCE v2 cannot be reached"),
			      "echo 'RoCE v2' > "
			      "/sys/kernel/config/rdma_cm/%s/ports/%u/default_roce_mode "
			      "(cma_roce_mode)",
			      port->device, port->number);
	for (int i = 0; i < doctor->naddresses; i++) {
		const struct doctor_address *address = &doctor->addresses[i];
		const struct gid *gid;

		if (!belongs(port, table, address))
			continue;
		gid = choose(table, address, type);
		if (gid == NULL) {
			tally.unmatched += !IN6_IS_ADDR_LINKLOCAL(&address->ip);
			say_missing(doctor, port, table, address);
			continue;
		}
		if (IN6_IS_ADDR_LINKLOCAL(&address->ip))
			tally.link_local++;
		else
			tally.routable++;
		say_choice(doctor, port, table, address, gid);
	}
	if (tally.routable == 0)
		say_none(doctor, port, table, &tally);
}

/* ---- InfiniBand and iWARP -------------------------------------------------------------------- */

static unsigned count_addresses(const struct doctor *doctor, const struct doctor_port *port)
{
	unsigned count = 0;

	for (int i = 0; i < doctor->naddresses; i++)
		count += strcmp(doctor->addresses[i].netdev, port->netdev) == 0 &&
			 !IN6_IS_ADDR_LINKLOCAL(&doctor->addresses[i].ip);
	return count;
}

static void check_addresses(struct doctor *doctor, struct doctor_port *port)
{
	unsigned count = count_addresses(doctor, port);
	const char *netdev = port->netdev[0] != '\0' ? port->netdev : "its network device";

	if (count > 0)
		doctor_say(doctor, "address", DOCTOR_OK, port->subject,
			   "%u routable address%s on %s%s", count, count == 1 ? "" : "es", netdev,
			   port->iwarp ? "; iWARP has no GID to choose" : "");
	else
		doctor_remedy(doctor_block(doctor, "address", port,
					   "%s has no routable address: rdma_cm finds a port by "
					   "address%s",
					   netdev,
					   port->iwarp ? "" : ", on InfiniBand that of IPoIB"),
			      port->iwarp ? "ip addr add ADDRESS/LENGTH dev %s"
					  : "modprobe ib_ipoib; ip addr add ADDRESS/LENGTH dev %s",
			      port->netdev[0] != '\0' ? port->netdev : "ib0");
}

/* A full member has bit 15 set; two limited members cannot talk to each other. */
static void check_pkeys(struct doctor *doctor, struct doctor_port *port)
{
	char text[DOCTOR_LINE];
	unsigned long pkey;

	if (doctor_read(doctor, text, "%s/pkeys/0", port->directory) < 0)
		return;
	pkey = strtoul(text, NULL, 16);
	if (pkey == 0 || pkey >= 0x8000) {
		doctor_say(doctor, "pkey", DOCTOR_OK, port->subject, "partition key 0x%04lx", pkey);
		return;
	}
	doctor_remedy(doctor_say(doctor, "pkey", DOCTOR_WARNING, port->subject,
				 "partition key 0x%04lx: a limited member, which reaches full "
				 "members only",
				 pkey),
		      "make the daemon's host a full member (the subnet manager's "
		      "partitions.conf)");
}

static void say_table(struct doctor *doctor, const struct doctor_port *port,
		      const struct table *table)
{
	struct doctor_finding *finding;
	char text[1024];

	table_text(table, text, sizeof(text));
	finding = doctor_say(doctor, "gid-table", table->count > 0 ? DOCTOR_OK : DOCTOR_WARNING,
			     port->subject, "%u GID%s in the table%s%s", table->count,
			     table->count == 1 ? "" : "s", table->count > 0 ? ": " : "", text);
	if (table->count == 0)
		doctor_remedy(finding, "is the network device up, and has it an address?");
	doctor_value(finding, "gids", table_json(table));
}

void doctor_check_gids(struct doctor *doctor, struct doctor_port *port)
{
	struct table *table;

	if (port->iwarp || !port->ethernet) {
		check_addresses(doctor, port);
		if (!port->iwarp)
			check_pkeys(doctor, port);
		return;
	}
	table = calloc(1, sizeof(*table));
	if (table == NULL) {
		doctor->failed = true;
		return;
	}
	read_table(doctor, port, table);
	check_roce(doctor, port, table);
	say_table(doctor, port, table);
	free(table);
}
