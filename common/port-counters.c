/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters of an RDMA port that tell of lost packets, retries, waiting, and how to read them: for
 * `tarn doctor`, and for the daemon's statistics. Names differ by driver; those of mlx5, bnxt_re, irdma,
 * rxe and of InfiniBand itself are known here. Any thread; no state. Next to read:
 * cli/doctor-counters.c, daemon/port-stats.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port-counters.h"

#define ADVICE_LOSS                                                                        \
	"packets were lost on the way: switch buffers, PFC/ECN settings at all hosts and " \
	"switches, "                                                                       \
	"cables; for RoCE the traffic class (tos) must be the lossless one"
#define ADVICE_TIMEOUT                                                                          \
	"answers did not come in time: loss, a congested path, or a peer that stood still; if " \
	"the "                                                                                  \
	"peers are alive see ack_timeout and retries"
#define ADVICE_RNR                                                                                \
	"the receiver had no buffer posted: its CPU is behind. In Tarn only messages (RPC) need " \
	"one: "                                                                                   \
	"is tarnd starved of CPU?"
#define ADVICE_CONGESTION                                                                       \
	"ECN is at work: senders were told to slow down. Harmless in small numbers; else look " \
	"for "                                                                                  \
	"an incast or a slower link on the way"
#define ADVICE_PAUSE                                                                               \
	"the switch or the adapter has held the link back (PFC or global pause): a slow receiver " \
	"somewhere; `ethtool -S NETDEV | grep pause` has the priorities"
#define ADVICE_CABLE "bad signals: clean or replace cable and transceiver"
#define ADVICE_ACCESS                                                                              \
	"a client used an address or rkey that it may not: after a restart of the daemon this is " \
	"normal, else look for the client in tarnd's log"

static const struct port_counter known[] = {
	/* mlx5, in hw_counters */
	{"out_of_sequence", true, "packets came out of order", ADVICE_LOSS},
	{"packet_seq_err", true, "the peer missed packets (NAK)", ADVICE_LOSS},
	{"implied_nak_seq_err", true, "a READ's or atomic's answer was missing", ADVICE_LOSS},
	{"local_ack_timeout_err", true, "acknowledgements timed out", ADVICE_TIMEOUT},
	{"rnr_nak_retry_err", true, "sends met a receiver without buffer", ADVICE_RNR},
	{"out_of_buffer", true, "messages came when no buffer was posted", ADVICE_RNR},
	{"duplicate_request", false, "requests came twice: the peer repeated them", ADVICE_LOSS},
	{"roce_adp_retrans*", false, "adaptive retransmissions", ADVICE_LOSS},
	{"roce_slow_restart*", false, "slow restarts after loss", ADVICE_LOSS},
	{"np_cnp_sent", false, "congestion notifications sent", ADVICE_CONGESTION},
	{"np_ecn_marked_roce_packets", false, "packets marked by a full switch", ADVICE_CONGESTION},
	{"rp_cnp_handled", false, "congestion notifications obeyed", ADVICE_CONGESTION},
	{"rp_cnp_ignored", true, "congestion notifications ignored", ADVICE_CONGESTION},
	{"re[qs]*_remote_access_errors", false, "requests without the right to", ADVICE_ACCESS},
	{"req_cqe_error", false, "requests that ended in an error",
	 "tarnd's log and the clients' messages name the status"},
	/* of the network device (mlx5's ethtool -S), some drivers have them here, too */
	{"rx_prio[0-7]_pause", false, "pauses received", ADVICE_PAUSE},
	{"tx_prio[0-7]_pause", false, "pauses sent", ADVICE_PAUSE},
	{"rx_prio[0-7]_discards", true, "packets thrown away: no room in this host", ADVICE_LOSS},
	{"rx_discards_phy", true, "packets thrown away: no room in the adapter", ADVICE_LOSS},
	{"rx_crc_errors_phy", true, "packets came in damaged", ADVICE_CABLE},
	{"rx_pause_ctrl_phy", false, "pauses received", ADVICE_PAUSE},
	{"tx_pause_ctrl_phy", false, "pauses sent", ADVICE_PAUSE},
	/* rxe */
	{"rcvd_seq_err", true, "the peer missed packets (NAK)", ADVICE_LOSS},
	{"out_of_seq_request", true, "requests came out of order", ADVICE_LOSS},
	{"rcvd_rnr_err", true, "sends met a receiver without buffer", ADVICE_RNR},
	{"send_rnr_err", true, "messages came when no buffer was posted", ADVICE_RNR},
	{"retry_exceeded_err", true, "connections were given up after all retries", ADVICE_TIMEOUT},
	{"retry_rnr_exceeded_err", true, "connections were given up: no buffer in time",
	 ADVICE_RNR},
	{"completer_retry_err", true, "requests were repeated", ADVICE_TIMEOUT},
	{"send_err", true, "packets could not be sent", "look at the network device: is it up?"},
	/* bnxt_re */
	{"to_retransmits", true, "timeouts", ADVICE_TIMEOUT},
	{"seq_err_naks_rcvd", true, "the peer missed packets (NAK)", ADVICE_LOSS},
	{"max_retry_exceeded", true, "connections were given up after all retries", ADVICE_TIMEOUT},
	{"rnr_naks_rcvd", true, "sends met a receiver without buffer", ADVICE_RNR},
	{"missing_resp", true, "answers were missing", ADVICE_LOSS},
	/* irdma, and iWARP over TCP */
	{"tcpRetransSegs", true, "TCP segments were repeated", ADVICE_LOSS},
	{"cnpSent", false, "congestion notifications sent", ADVICE_CONGESTION},
	{"cnpHandled", false, "congestion notifications obeyed", ADVICE_CONGESTION},
	{"RxECNMrkd", false, "packets marked by a full switch", ADVICE_CONGESTION},
	/* of every port, in counters */
	{"symbol_error", true, "symbol errors", ADVICE_CABLE},
	{"link_error_recovery", true, "the link recovered from errors", ADVICE_CABLE},
	{"link_downed", false, "the link went down", ADVICE_CABLE},
	{"local_link_integrity_errors", true, "link integrity errors", ADVICE_CABLE},
	{"port_rcv_errors", true, "packets with errors came in", ADVICE_CABLE},
	{"excessive_buffer_overrun_errors", true, "buffer overruns", ADVICE_PAUSE},
	{"port_xmit_discards", true, "packets were thrown away before they were sent", ADVICE_LOSS},
	{"port_xmit_wait", false, "ticks in which data waited for the link", ADVICE_PAUSE},
};

const struct port_counter *port_counter_find(const char *name)
{
	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
		if (fnmatch(known[k].pattern, name, 0) == 0)
			return &known[k];
	return NULL;
}

int port_file_read(const char *path, char *ret_text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, ret_text, bytes - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	while (n > 0 && strchr(" \t\r\n", ret_text[n - 1]) != NULL)
		n--;
	ret_text[n] = '\0';
	return (int)strlen(ret_text);
}

int port_file_number(const char *path, uint64_t *ret_number)
{
	char text[32], *end;
	uint64_t number;
	int n = port_file_read(path, text, sizeof(text));

	if (n < 0)
		return n;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
		return -EINVAL;
	*ret_number = number;
	return 0;
}
