/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-counters.c - `tarn doctor`: counters of a port that tell of lost packets, retries, waiting
 *
 * They count since the driver was loaded, so what is not 0 need not go on: the text says so, and a
 * second run shows whether it grows. Which names are known is in common/port-counters.c. The command's
 * thread. Next to read: doctor-link.c, for the settings behind them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "port-counters.h"

/* All packets that came in, as far as it is counted. */
static uint64_t packets_of(struct doctor *doctor, const struct doctor_port *port)
{
	static const char *const names[] = {"hw_counters/rcvd_pkts", "counters/port_rcv_packets",
					    "hw_counters/rx_pkts", "hw_counters/ip4InPkts"};
	uint64_t packets = 0, n;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (doctor_number(doctor, &n, "%s/%s", port->directory, names[i]) == 0 &&
		    n > packets)
			packets = n;
	return packets;
}

static void say_counter(struct doctor *doctor, struct doctor_port *port, const char *name,
			const struct port_counter *known, uint64_t count, uint64_t packets)
{
	bool grave = known->grave && (packets == 0 || count > packets / 1000000);
	struct doctor_finding *finding;
	char share[64] = "";

	if (packets > 0 && known->grave)
		snprintf(share, sizeof(share), " (%.3g per million packets)",
			 (double)count * 1e6 / (double)packets);
	finding = doctor_say(doctor, "counter", grave ? DOCTOR_WARNING : DOCTOR_NOTE, port->subject,
			     "%s = %llu%s: %s", name, (unsigned long long)count, share,
			     known->meaning);
	doctor_remedy(finding, "%s. Does it grow?", known->advice);
	doctor_value(finding, "name", writer_text(name));
	doctor_value(finding, "count", writer_u64(count));
	doctor_value(finding, "packets", writer_u64(packets));
}

/* Is the counter one that is known? Then it is looked at, and true. */
static bool check_counter(struct doctor *doctor, struct doctor_port *port, const char *name,
			  uint64_t count, uint64_t packets, unsigned *inout_bad)
{
	const struct port_counter *known = port_counter_find(name);

	if (known == NULL)
		return false;
	if (count > 0) {
		*inout_bad += 1;
		say_counter(doctor, port, name, known, count, packets);
	}
	return true;
}

/* Returns how many counters were looked at. */
static unsigned check_folder(struct doctor *doctor, struct doctor_port *port, const char *folder,
			     uint64_t packets, unsigned *inout_bad)
{
	struct doctor_names names = doctor_list(doctor, "%s/%s", port->directory, folder);
	unsigned seen = 0;

	for (size_t i = 0; i < names.count; i++) {
		uint64_t count;

		if (doctor_number(doctor, &count, "%s/%s/%s", port->directory, folder,
				  names.names[i]) == 0)
			seen += check_counter(doctor, port, names.names[i], count, packets,
					      inout_bad);
	}
	doctor_names_free(&names);
	return seen;
}

/* Pauses and discards are counted by the network device: ethtool -S. */
static unsigned check_netdev(struct doctor *doctor, struct doctor_port *port, uint64_t packets,
			     unsigned *inout_bad)
{
	struct doctor_stat *stats;
	unsigned seen = 0;
	int count;

	if (port->netdev[0] == '\0')
		return 0;
	stats = calloc(DOCTOR_STATS, sizeof(*stats));
	if (stats == NULL) {
		doctor->failed = true;
		return 0;
	}
	count = doctor->ask->stats(doctor, port->netdev, stats, DOCTOR_STATS);
	for (int i = 0; i < count; i++)
		seen += check_counter(doctor, port, stats[i].name, stats[i].count, packets,
				      inout_bad);
	free(stats);
	return seen;
}

void doctor_check_counters(struct doctor *doctor, struct doctor_port *port)
{
	uint64_t packets = packets_of(doctor, port);
	unsigned bad = 0, seen = check_folder(doctor, port, "hw_counters", packets, &bad);

	seen += check_folder(doctor, port, "counters", packets, &bad);
	seen += check_netdev(doctor, port, packets, &bad);
	if (seen == 0)
		doctor_remedy(doctor_say(doctor, "counters", DOCTOR_NOTE, port->subject,
					 "the driver counts no errors"),
			      "%s",
			      port->iwarp ? "iWARP runs over TCP: nstat -az TcpRetransSegs"
					  : "look at the switch's counters");
	else if (bad == 0)
		doctor_say(doctor, "counters", DOCTOR_OK, port->subject,
			   "%u counters of loss, retries and congestion are 0", seen);
}
