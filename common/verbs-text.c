/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs-text.c - words for what adapters and the connection manager report
 *
 * Each text says what it means, what usually causes it and what to look at. Static, any thread. A
 * value that this build does not know has a text, too: the numbers come from drivers. Next:
 * verbs.h.
 */
#include <errno.h>

#include "verbs.h"

/* ---- work completions ------------------------------------------------------------------------ */

const char *verbs_status_name(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return "SUCCESS";
	case IBV_WC_LOC_LEN_ERR:
		return "LOC_LEN_ERR";
	case IBV_WC_LOC_QP_OP_ERR:
		return "LOC_QP_OP_ERR";
	case IBV_WC_LOC_EEC_OP_ERR:
		return "LOC_EEC_OP_ERR";
	case IBV_WC_LOC_PROT_ERR:
		return "LOC_PROT_ERR";
	case IBV_WC_WR_FLUSH_ERR:
		return "WR_FLUSH_ERR";
	case IBV_WC_MW_BIND_ERR:
		return "MW_BIND_ERR";
	case IBV_WC_BAD_RESP_ERR:
		return "BAD_RESP_ERR";
	case IBV_WC_LOC_ACCESS_ERR:
		return "LOC_ACCESS_ERR";
	case IBV_WC_REM_INV_REQ_ERR:
		return "REM_INV_REQ_ERR";
	case IBV_WC_REM_ACCESS_ERR:
		return "REM_ACCESS_ERR";
	case IBV_WC_REM_OP_ERR:
		return "REM_OP_ERR";
	case IBV_WC_RETRY_EXC_ERR:
		return "RETRY_EXC_ERR";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "RNR_RETRY_EXC_ERR";
	case IBV_WC_LOC_RDD_VIOL_ERR:
		return "LOC_RDD_VIOL_ERR";
	case IBV_WC_REM_INV_RD_REQ_ERR:
		return "REM_INV_RD_REQ_ERR";
	case IBV_WC_REM_ABORT_ERR:
		return "REM_ABORT_ERR";
	case IBV_WC_INV_EECN_ERR:
		return "INV_EECN_ERR";
	case IBV_WC_INV_EEC_STATE_ERR:
		return "INV_EEC_STATE_ERR";
	case IBV_WC_FATAL_ERR:
		return "FATAL_ERR";
	case IBV_WC_RESP_TIMEOUT_ERR:
		return "RESP_TIMEOUT_ERR";
	case IBV_WC_GENERAL_ERR:
		return "GENERAL_ERR";
	case IBV_WC_TM_ERR:
		return "TM_ERR";
	case IBV_WC_TM_RNDV_INCOMPLETE:
		return "TM_RNDV_INCOMPLETE";
	}
	return "UNKNOWN";
}

const char *verbs_status_text(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return "done";
	case IBV_WC_LOC_LEN_ERR:
		return "a message is longer than its receive buffer or than the port allows: the "
		       "two "
		       "sides are of different versions, or one of them is faulty";
	case IBV_WC_LOC_QP_OP_ERR:
		return "the adapter found its own work request inconsistent: a defect of Tarn or "
		       "of "
		       "the driver; report it with the adapter's model and firmware";
	case IBV_WC_LOC_PROT_ERR:
		return "a local buffer is not registered, or not in this protection domain: a "
		       "defect "
		       "of Tarn, or the process has forked after connecting";
	case IBV_WC_WR_FLUSH_ERR:
		return "dropped because the connection had ended: look for the first error before "
		       "it, here or in tarnd's log (on iWARP also the only sign of a refused "
		       "access)";
	case IBV_WC_BAD_RESP_ERR:
		return "an answer of an unexpected kind came back: a faulty adapter, or firmware "
		       "that does not fit the driver; update both";
	case IBV_WC_LOC_ACCESS_ERR:
		return "the other side wrote to memory here that it has no right to: a defect of "
		       "the "
		       "other side";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the other side's adapter refuses this kind of request on this connection: "
		       "the client may only read, the adapter has no atomics, or the two sides "
		       "have "
		       "different path MTUs (mtu of the URI and of the listener)";
	case IBV_WC_REM_ACCESS_ERR:
		return "the other side's adapter refuses access to that memory: the key is not (or "
		       "no longer) valid, the address is outside of it, or the client may only "
		       "read; "
		       "usual after tarnd has restarted";
	case IBV_WC_REM_OP_ERR:
		return "the other side could not carry the request out: see tarnd's log and the "
		       "adapter's (dmesg)";
	case IBV_WC_RETRY_EXC_ERR:
		return "no acknowledgement in spite of all retries: the other host or its process "
		       "is "
		       "gone, the link is down, packets are lost (congestion without flow control, "
		       "an MTU that does not pass), or a firewall drops UDP 4791; check the port's "
		       "state and counters with `tarn doctor`";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the other side had no receive buffer in time: it is stopped or overloaded";
	case IBV_WC_REM_INV_RD_REQ_ERR:
		return "the other side refuses the datagram request (reliable datagrams, which "
		       "Tarn "
		       "does not use): a defect of the driver";
	case IBV_WC_REM_ABORT_ERR:
		return "the other side has aborted the request: see tarnd's log";
	case IBV_WC_FATAL_ERR:
		return "the adapter has failed: see dmesg; a reset of the adapter or its driver is "
		       "needed";
	case IBV_WC_RESP_TIMEOUT_ERR:
		return "no response in time: as with RETRY_EXC_ERR, look at link, peer and packet "
		       "loss";
	case IBV_WC_GENERAL_ERR:
		return "an error that the driver does not explain: see dmesg";
	case IBV_WC_LOC_EEC_OP_ERR:
	case IBV_WC_LOC_RDD_VIOL_ERR:
	case IBV_WC_INV_EECN_ERR:
	case IBV_WC_INV_EEC_STATE_ERR:
		return "an error of reliable datagrams, which Tarn does not use: a defect of the "
		       "driver";
	case IBV_WC_MW_BIND_ERR:
	case IBV_WC_TM_ERR:
	case IBV_WC_TM_RNDV_INCOMPLETE:
		return "an error of memory windows or tag matching, which Tarn does not use: a "
		       "defect of the driver";
	}
	return "a status that this version does not know: see dmesg and the driver's documentation";
}

/* ---- connection manager ---------------------------------------------------------------------- */

const char *verbs_event_name(enum rdma_cm_event_type event)
{
	switch (event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return "ADDR_RESOLVED";
	case RDMA_CM_EVENT_ADDR_ERROR:
		return "ADDR_ERROR";
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return "ROUTE_RESOLVED";
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return "ROUTE_ERROR";
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return "CONNECT_REQUEST";
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		return "CONNECT_RESPONSE";
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return "CONNECT_ERROR";
	case RDMA_CM_EVENT_UNREACHABLE:
		return "UNREACHABLE";
	case RDMA_CM_EVENT_REJECTED:
		return "REJECTED";
	case RDMA_CM_EVENT_ESTABLISHED:
		return "ESTABLISHED";
	case RDMA_CM_EVENT_DISCONNECTED:
		return "DISCONNECTED";
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return "DEVICE_REMOVAL";
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		return "MULTICAST_JOIN";
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		return "MULTICAST_ERROR";
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return "ADDR_CHANGE";
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return "TIMEWAIT_EXIT";
	}
	return "UNKNOWN";
}

const char *verbs_event_text(enum rdma_cm_event_type event)
{
	switch (event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return "the address belongs to a neighbour that an RDMA device reaches";
	case RDMA_CM_EVENT_ADDR_ERROR:
		return "no RDMA device reaches that address: the route to it leads through an "
		       "interface without RDMA (`ip route get`, `rdma link`), or the neighbour "
		       "does "
		       "not answer ARP or neighbour discovery (`ip neigh`)";
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return "a path to the address is known";
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return "no path to that address: on InfiniBand the subnet manager does not answer "
		       "or "
		       "knows none (`sminfo`), on Ethernet the port is down or has no fitting GID "
		       "(`rdma link`, `tarn doctor`)";
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return "somebody wants to connect";
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		return "the other side has agreed to connect";
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return "the connection could not be set up on this side: the adapter is out of "
		       "resources or has changed its state; see dmesg";
	case RDMA_CM_EVENT_UNREACHABLE:
		return "no answer from the other side's connection manager: the host is down, has "
		       "no "
		       "RDMA device at that address, or a firewall drops UDP 4791 (iWARP: the TCP "
		       "port)";
	case RDMA_CM_EVENT_REJECTED:
		return "the other side has refused the connection";
	case RDMA_CM_EVENT_ESTABLISHED:
		return "connected";
	case RDMA_CM_EVENT_DISCONNECTED:
		return "the other side has ended the connection: it has stopped, died, or thrown "
		       "this "
		       "client out; its log says which";
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return "the RDMA device has been removed: unplugged, reset, or its driver "
		       "unloaded; "
		       "see dmesg";
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		return "an event of multicast, which Tarn does not use";
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return "the address has moved to another interface or hardware address (failover "
		       "of a "
		       "bond, changed MAC): connections have to be made anew";
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return "the ended connection's number may be used again";
	}
	return "an event that this version does not know";
}

/* ---- asynchronous events of a device --------------------------------------------------------- */

const char *verbs_async_text(enum ibv_event_type event)
{
	switch (event) {
	case IBV_EVENT_CQ_ERR:
		return "completion queue overrun or broken: all connections that use it are lost; "
		       "a "
		       "defect of Tarn or of the driver";
	case IBV_EVENT_QP_FATAL:
		return "a queue pair has failed: its connection is lost; see dmesg";
	case IBV_EVENT_QP_REQ_ERR:
		return "a peer sent a malformed request: its connection is lost";
	case IBV_EVENT_QP_ACCESS_ERR:
		return "a peer tried what it has no right to: its connection is lost";
	case IBV_EVENT_COMM_EST:
		return "data came before the connection's last message: harmless";
	case IBV_EVENT_SQ_DRAINED:
		return "send queue drained: harmless";
	case IBV_EVENT_PATH_MIG:
		return "a connection has moved to its alternate path";
	case IBV_EVENT_PATH_MIG_ERR:
		return "a connection could not move to its alternate path: check the links";
	case IBV_EVENT_DEVICE_FATAL:
		return "the adapter has failed: all its connections are lost; see dmesg, reset the "
		       "adapter or its driver";
	case IBV_EVENT_PORT_ACTIVE:
		return "the port is up";
	case IBV_EVENT_PORT_ERR:
		return "the port is down: cable, switch, or administratively (`ip link`, `rdma "
		       "link`)";
	case IBV_EVENT_LID_CHANGE:
		return "the subnet manager has changed the port's LID: connections over it are "
		       "lost";
	case IBV_EVENT_PKEY_CHANGE:
		return "the subnet manager has changed the partition table: connections may be "
		       "lost";
	case IBV_EVENT_SM_CHANGE:
		return "there is a new subnet manager: harmless";
	case IBV_EVENT_SRQ_ERR:
		return "the shared receive queue has failed: RPCs are impossible; see dmesg";
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return "the shared receive queue runs low";
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return "a failed queue pair takes no more from the shared receive queue: harmless";
	case IBV_EVENT_CLIENT_REREGISTER:
		return "the subnet manager asks for new registrations: harmless";
	case IBV_EVENT_GID_CHANGE:
		return "the port's GID table has changed (an address was added or removed): "
		       "connections over a removed address are lost";
	case IBV_EVENT_WQ_FATAL:
		return "a work queue has failed; see dmesg";
	}
	return "an event that this version does not know; see the driver's documentation";
}

/* ---- refused by the other side's connection manager ------------------------------------------ */

/* Reasons of InfiniBand's REJ message, IB specification 12.6.7. */
enum {
	REJECT_NO_QP = 1,
	REJECT_NO_EEC = 2,
	REJECT_NO_RESOURCES = 3,
	REJECT_TIMEOUT = 4,
	REJECT_UNSUPPORTED = 5,
	REJECT_INVALID_SERVICE_ID = 8,
	REJECT_INVALID_TRANSPORT = 9,
	REJECT_STALE_CONN = 10,
	REJECT_INVALID_GID = 12,
	REJECT_INVALID_LID = 13,
	REJECT_INVALID_SL = 14,
	REJECT_INVALID_TRAFFIC_CLASS = 15,
	REJECT_INVALID_HOP_LIMIT = 16,
	REJECT_INVALID_PACKET_RATE = 17,
	REJECT_PORT_CM_REDIRECT = 24,
	REJECT_PORT_REDIRECT = 25,
	REJECT_INVALID_MTU = 26,
	REJECT_INSUFFICIENT_RESP_RESOURCES = 27,
	REJECT_CONSUMER_DEFINED = 28,
	REJECT_INVALID_RNR_RETRY = 29,
	REJECT_DUPLICATE_COMM_ID = 30,
	REJECT_INVALID_CLASS_VERSION = 31,
	REJECT_INVALID_FLOW_LABEL = 32,
};

static const char *reject_text_ib(int status)
{
	switch (status) {
	case REJECT_NO_QP:
	case REJECT_NO_EEC:
	case REJECT_NO_RESOURCES:
		return "the other host is out of queue pairs or memory for connections (its "
		       "backlog "
		       "may be full): try again, or raise its limits";
	case REJECT_TIMEOUT:
		return "the other side gave up waiting in the middle of connecting: it or the "
		       "network is overloaded; try again";
	case REJECT_INVALID_SERVICE_ID:
		return "nobody listens there: is tarnd running, and does a [listen] section have "
		       "this address and port?";
	case REJECT_STALE_CONN:
		return "the other side takes this for an old connection of the same queue pair: "
		       "try "
		       "again";
	case REJECT_INVALID_GID:
	case REJECT_INVALID_LID:
		return "the other side does not know the address that the path leads to: its GID "
		       "or "
		       "LID has changed, or the wrong GID was chosen; try again without gid_index";
	case REJECT_INVALID_SL:
	case REJECT_INVALID_TRAFFIC_CLASS:
		return "the other side refuses the service level or traffic class: leave them to "
		       "the "
		       "path";
	case REJECT_INVALID_MTU:
		return "the other side cannot take the path MTU: configure a smaller one";
	case REJECT_INSUFFICIENT_RESP_RESOURCES:
		return "the other adapter cannot serve that many READs at once";
	case REJECT_CONSUMER_DEFINED:
		return "the program that listens there has refused the connection without a reason "
		       "of Tarn's: it is being stopped, out of memory, or not tarnd";
	case REJECT_UNSUPPORTED:
	case REJECT_INVALID_TRANSPORT:
	case REJECT_INVALID_HOP_LIMIT:
	case REJECT_INVALID_PACKET_RATE:
	case REJECT_INVALID_RNR_RETRY:
	case REJECT_DUPLICATE_COMM_ID:
	case REJECT_INVALID_CLASS_VERSION:
	case REJECT_INVALID_FLOW_LABEL:
		return "the other side's connection manager finds the request invalid: an old or "
		       "faulty driver on either side";
	case REJECT_PORT_CM_REDIRECT:
	case REJECT_PORT_REDIRECT:
		return "the other side asks to connect to another port, which is not supported";
	}
	return "the other side's connection manager gives a reason that this version does not know";
}

/* iWARP: the kernel gives -errno of the TCP connection or of MPA's negotiation. */
static const char *reject_text_iwarp(int status)
{
	switch (status < 0 ? -status : status) {
	case ECONNREFUSED:
		return "nobody listens there: is tarnd running, and does a [listen] section have "
		       "this address and port?";
	case ECONNRESET:
		return "the program that listens there has broken the connection off: it is being "
		       "stopped, overloaded, or not tarnd; try again";
	case ETIMEDOUT:
		return "no answer in time: the host is down or overloaded, or a firewall drops the "
		       "TCP port";
	case EHOSTUNREACH:
	case ENETUNREACH:
		return "no route to the host";
	case EPROTO:
		return "what listens there does not speak iWARP";
	}
	return "the other side or its TCP stack has refused the connection";
}

const char *verbs_reject_text(int status, bool iwarp)
{
	return iwarp ? reject_text_iwarp(status) : reject_text_ib(status);
}
