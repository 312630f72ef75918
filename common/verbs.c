/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs.c - devices, the time rule, and bringing queue pairs up by hand
 *
 * No state but the contexts that are held, no thread of its own, never prints. rdma_cm knows the
 * path (address handle, partition, packet numbers); what it says is taken over and then overridden
 * by what we decide. Next: verbs.h, fabric-verbs-connect.c, daemon/listen-verbs.c.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"
#include "tarn/tarn.h"
#include "verbs.h"

/* ---- the time rule T3 ------------------------------------------------------------------------ */

uint64_t verbs_late_ns(unsigned ack_timeout, unsigned retries)
{
	return (4ull * 4096 << ack_timeout) * (retries + 1);
}

static bool keeps_t3(unsigned ack_timeout, unsigned retries, uint64_t room_ns)
{
	return verbs_late_ns(ack_timeout, retries) < room_ns;
}

static int timeout_ranges(const struct fabric_settings *settings)
{
	if (settings->ack_timeout < 0 || settings->ack_timeout > 31)
		return err_set(-EINVAL, "ack_timeout is %d: allowed are 1 to 31, or 0 for a choice",
			       settings->ack_timeout);
	if (settings->retries < -1 || settings->retries > (int)VERBS_RETRIES_MAX)
		return err_set(-EINVAL, "retries is %d: allowed are 0 to 6, or -1 for a choice",
			       settings->retries);
	return 0;
}

/* What the settings ask for breaks T3: say how much of it would not. */
static int breaks_t3(unsigned ack_timeout, unsigned retries, bool retries_fixed, uint64_t room_ns)
{
	unsigned largest = ack_timeout;

	while (largest > 0 && !keeps_t3(largest, retries_fixed ? retries : 0, room_ns))
		largest--;
	if (largest == 0)
		return err_set(-EINVAL,
			       "no ack timeout keeps a request from taking effect after the pool's "
			       "G - D = %llu us: raise the pool's grace",
			       (unsigned long long)(room_ns / 1000));
	return err_set(
		-EINVAL,
		"ack_timeout %u with %u retries: a request could take effect after %llu us, "
		"the pool allows less than G - D = %llu us: use ack_timeout %u at most%s, or "
		"raise the pool's grace",
		ack_timeout, retries,
		(unsigned long long)(verbs_late_ns(ack_timeout, retries) / 1000),
		(unsigned long long)(room_ns / 1000), largest,
		retries_fixed ? " or fewer retries" : "");
}

int verbs_timeout_choose(const struct fabric_settings *settings, uint64_t deadline_ns,
			 uint64_t grace_ns, unsigned *ret_ack_timeout, unsigned *ret_retries)
{
	uint64_t room_ns = grace_ns > deadline_ns ? grace_ns - deadline_ns : 0;
	bool timeout_fixed = settings->ack_timeout > 0, retries_fixed = settings->retries >= 0;
	unsigned ack_timeout = timeout_fixed ? (unsigned)settings->ack_timeout : VERBS_ACK_TIMEOUT;
	unsigned retries = retries_fixed ? (unsigned)settings->retries : VERBS_RETRIES;
	int ret = timeout_ranges(settings);

	if (ret < 0)
		return ret;
	/* a short timeout costs a useless retransmission now and then, few retries the connection */
	while (!timeout_fixed && ack_timeout > 1 && !keeps_t3(ack_timeout, retries, room_ns))
		ack_timeout--;
	while (!retries_fixed && retries > 0 && !keeps_t3(ack_timeout, retries, room_ns))
		retries--;
	if (!keeps_t3(ack_timeout, retries, room_ns))
		return breaks_t3(ack_timeout, retries, retries_fixed, room_ns);
	*ret_ack_timeout = ack_timeout;
	*ret_retries = retries;
	return 0;
}

/* ---- devices --------------------------------------------------------------------------------- */

static int read_numa_node(const char *device)
{
	char path[PATH_MAX];
	int node = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node", device);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &node) != 1)
		node = -1;
	fclose(file);
	return node;
}

/*
 * soft-RoCE says that it registers any size at once, but its list of the pages is one kmalloc(): 3 GiB
 * were refused for want of memory (seen in Linux 7.3).
 */
#define RXE_VENDOR   0xffffffu
#define RXE_MR_BYTES (512ull << 20)

static void limit_regions(struct ibv_device_attr *attr)
{
	if (attr->vendor_id == RXE_VENDOR && attr->max_mr_size > RXE_MR_BYTES)
		attr->max_mr_size = RXE_MR_BYTES;
}

int verbs_device_query(struct ibv_context *context, uint8_t port, struct verbs_device *ret_device)
{
	struct verbs_device device = {.context = context, .port = port};
	int error;

	device.name = ibv_get_device_name(context->device);
	if (!device.name)
		device.name = "?";
	error = ibv_query_device(context, &device.attr);
	if (error)
		return err_set(error < 0 ? error : -error,
			       "%s: the device does not say what it can do: %s; see dmesg",
			       device.name, strerror(error < 0 ? -error : error));
	limit_regions(&device.attr);
	error = ibv_query_port(context, port, &device.port_attr);
	if (error)
		return err_set(error < 0 ? error : -error, "%s: no information on port %u: %s",
			       device.name, port, strerror(error < 0 ? -error : error));
	device.iwarp = context->device->transport_type == IBV_TRANSPORT_IWARP;
	device.atomics = device.attr.atomic_cap == IBV_ATOMIC_HCA ||
			 device.attr.atomic_cap == IBV_ATOMIC_GLOB;
	device.numa_node = read_numa_node(device.name);
	*ret_device = device;
	return 0;
}

/* Has the folder an entry whose name begins so? */
static bool folder_has(const char *folder, const char *prefix)
{
	const struct dirent *entry;
	DIR *dir = opendir(folder);
	bool found = false;

	if (!dir)
		return false;
	while (!found && (entry = readdir(dir)))
		found = entry->d_name[0] != '.' &&
			strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	closedir(dir);
	return found;
}

static int kernel_available(void)
{
	if (!folder_has("/sys/class/infiniband", ""))
		return err_set(-ENODEV,
			       "no RDMA device on this machine: no adapter, or its driver is not "
			       "loaded (`rdma link` lists devices; without an adapter: modprobe "
			       "rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE)");
	if (access("/sys/class/infiniband_verbs", F_OK) < 0)
		return err_set(-ENOSYS,
			       "the kernel module ib_uverbs is not loaded: modprobe ib_uverbs");
	if (access("/sys/class/misc/rdma_cm", F_OK) < 0)
		return err_set(-ENOSYS,
			       "the kernel module rdma_ucm is not loaded: modprobe rdma_ucm");
	return 0;
}

/* A device node: there, and ours to open? */
static int node_available(const char *path)
{
	if (access(path, F_OK) < 0)
		return err_set(-ENODEV,
			       "%s does not exist: udev has not made it; in a container give it "
			       "access to /dev/infiniband",
			       path);
	if (access(path, R_OK | W_OK) < 0)
		return err_set(-EACCES,
			       "no permission for %s: join the group that owns it (usually rdma), "
			       "or set its mode by a udev rule",
			       path);
	return 0;
}

/* 0 if any device's node is usable, else what is wrong with the last. */
static int uverbs_available(void)
{
	const struct dirent *entry;
	DIR *dir = opendir("/sys/class/infiniband_verbs");
	int ret = -ENXIO;

	if (!dir)
		return err_set(-ENODEV, "/sys/class/infiniband_verbs: %s", strerror(errno));
	while (ret < 0 && (entry = readdir(dir))) {
		char path[PATH_MAX];

		if (strncmp(entry->d_name, "uverbs", 6) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%s", entry->d_name);
		ret = node_available(path);
	}
	closedir(dir);
	if (ret == -ENXIO)
		return err_set(-ENODEV,
			       "the RDMA device offers no verbs to programs: it belongs to another "
			       "network namespace (`rdma system`), or its driver has no user space "
			       "part");
	if (ret == 0)
		err_clear(); /* of a node that is not */
	return ret;
}

int verbs_available(void)
{
	struct rdma_event_channel *channel;
	int ret = kernel_available();

	if (ret == 0)
		ret = node_available("/dev/infiniband/rdma_cm");
	if (ret == 0)
		ret = uverbs_available();
	if (ret < 0)
		return ret;
	channel = rdma_create_event_channel();
	if (!channel)
		return err_set(errno == EACCES ? -EACCES : -ENODEV,
			       "librdmacm finds no usable RDMA device: %s; is the provider's "
			       "library installed (package ibverbs-providers)?",
			       strerror(errno));
	rdma_destroy_event_channel(channel);
	return 0;
}

/* ---- contexts of soft-iWARP ------------------------------------------------------------------ */

/*
 * libsiw maps each queue at the offset that the kernel answers, and takes one of them for "there is
 * none": SIW_INVAL_UOBJ_KEY of rdma/siw-abi.h. Since Linux 5.5 (seen with 7.3 and rdma-core 44) that
 * is an offset like others: a context's queues lie one after the other from 0 up, in pages, each in
 * the first gap that it fits. The queue that comes to lie there fails, without an errno; its place
 * is free again, and the next one gets it: from then on the context makes no queue any more. All
 * sessions of a process are on one context, and the 19th session met it, or tarnd's 98th client. So
 * something that nobody uses is put over that offset, before anything else is made.
 */
#define SIW_VENDOR         0x626d74u
#define SIW_INVALID_OFFSET 0x90000u
#define SIW_CQE_BYTES      32u /* sizeof(struct siw_cqe); the number is rounded up */

struct held {
	struct held *next;
	struct ibv_context *context;
	struct ibv_cq *spacer; /* NULL: could not be made */
	unsigned users;
};

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *held_list;

/* Where the context's entry hangs, or the list's end. */
static struct held **held_find(const struct ibv_context *context)
{
	struct held **place = &held_list;

	while (*place && (*place)->context != context)
		place = &(*place)->next;
	return place;
}

bool verbs_context_hold(const struct verbs_device *device)
{
	struct held **place, *held;

	if (!device->iwarp || device->attr.vendor_id != SIW_VENDOR)
		return false;
	pthread_mutex_lock(&held_lock);
	place = held_find(device->context);
	if (!*place)
		*place = calloc(1, sizeof(**place));
	held = *place;
	if (held) {
		held->context = device->context;
		held->users++;
		if (!held->spacer)
			held->spacer = ibv_create_cq(device->context,
						     SIW_INVALID_OFFSET / SIW_CQE_BYTES + 1, NULL,
						     NULL, 0);
	}
	pthread_mutex_unlock(&held_lock);
	return held != NULL;
}

void verbs_context_release(struct ibv_context *context)
{
	struct held **place, *held;

	pthread_mutex_lock(&held_lock);
	place = held_find(context);
	held = *place;
	if (--held->users == 0) {
		if (held->spacer)
			ibv_destroy_cq(held->spacer);
		*place = held->next;
		free(held);
	}
	pthread_mutex_unlock(&held_lock);
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

static bool is_iwarp(const struct ibv_qp *qp)
{
	return qp->context->device->transport_type == IBV_TRANSPORT_IWARP;
}

/* What rdma_cm knows for this state. */
static int qp_attr_init(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr,
			int *mask)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	if (rdma_init_qp_attr(id, attr, mask)) {
		int error = errno;

		/* the other side has gone while this one was busy */
		if (error == EINVAL)
			return err_set(-ECONNABORTED,
				       "the connection ended while it was being made");
		return err_set(-error,
			       "the connection manager does not say how to set the queue pair up: "
			       "%s",
			       strerror(error));
	}
	return 0;
}

static int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, const char *what)
{
	int error = ibv_modify_qp(qp, attr, mask);

	if (error < 0) /* some drivers give -errno, some -1 and errno */
		error = error == -1 ? errno : -error;
	if (error)
		return err_set(-error, "the adapter refuses to bring the queue pair to %s: %s",
			       what, strerror(error));
	return 0;
}

int verbs_qp_init(struct rdma_cm_id *id, struct ibv_qp *qp, unsigned access,
		  const struct fabric_settings *settings)
{
	struct ibv_qp_attr attr;
	int mask, ret = qp_attr_init(id, IBV_QPS_INIT, &attr, &mask);

	(void)settings;
	if (ret < 0)
		return ret;
	attr.qp_access_flags = access;
	return qp_modify(qp, &attr, mask | IBV_QP_ACCESS_FLAGS, "INIT");
}

static int mtu_override(const struct ibv_qp *qp, uint8_t port,
			const struct fabric_settings *settings, struct ibv_qp_attr *attr)
{
	struct ibv_port_attr port_attr;
	unsigned mtu = settings->mtu, code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 128u << code != mtu)
		code++;
	if (128u << code != mtu)
		return err_set(-EINVAL, "mtu is %u: allowed are 256, 512, 1024, 2048 and 4096",
			       mtu);
	if (ibv_query_port(qp->context, port, &port_attr) == 0 && code > port_attr.active_mtu)
		return err_set(-EINVAL,
			       "mtu is %u: the port has %u at present; lower mtu or raise the "
			       "interface's MTU",
			       mtu, 128u << port_attr.active_mtu);
	attr->path_mtu = (enum ibv_mtu)code;
	return 0;
}

static uint8_t least(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static int qp_to_rtr(struct rdma_cm_id *id, struct ibv_qp *qp, const struct verbs_link *link,
		     const struct fabric_settings *settings)
{
	char what[128];
	struct ibv_qp_attr attr;
	int mask, ret = qp_attr_init(id, IBV_QPS_RTR, &attr, &mask);

	if (ret == 0 && settings->mtu)
		ret = mtu_override(qp, id->port_num, settings, &attr);
	if (ret < 0)
		return ret;
	if (settings->service_level >= 0)
		attr.ah_attr.sl = (uint8_t)settings->service_level;
	if (settings->gid_index >= 0)
		attr.ah_attr.grh.sgid_index = (uint8_t)settings->gid_index;
	/* what the two sides have agreed on, if that is less */
	attr.max_dest_rd_atomic = least(attr.max_dest_rd_atomic, link->responder_resources);
	attr.min_rnr_timer = VERBS_RNR_TIMER;
	snprintf(what, sizeof(what),
		 "RTR (ready to receive); is GID index %d, MTU %u or service level %d wrong?",
		 attr.ah_attr.grh.sgid_index, 128u << attr.path_mtu, attr.ah_attr.sl);
	return qp_modify(qp, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, what);
}

static int qp_to_rts(struct rdma_cm_id *id, struct ibv_qp *qp, const struct verbs_link *link)
{
	struct ibv_qp_attr attr;
	int mask, ret = qp_attr_init(id, IBV_QPS_RTS, &attr, &mask);

	if (ret < 0)
		return ret;
	attr.timeout = (uint8_t)link->ack_timeout;
	attr.retry_cnt = least((uint8_t)link->retries, VERBS_RETRIES_MAX);
	attr.rnr_retry = VERBS_RNR_RETRIES;
	attr.max_rd_atomic = least(attr.max_rd_atomic, link->initiator_depth);
	if (link->initiator_depth && !attr.max_rd_atomic) /* READs would wait for ever */
		return err_set(-EPROTO, "the other side serves no READs (responder_resources 0)");
	return qp_modify(qp, &attr,
			 mask | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_MAX_QP_RD_ATOMIC,
			 "RTS (ready to send)");
}

int verbs_qp_connect(struct rdma_cm_id *id, struct ibv_qp *qp, const struct verbs_link *link,
		     const struct fabric_settings *settings)
{
	int ret;

	if (is_iwarp(qp))
		return err_set(-EOPNOTSUPP, "on iWARP the kernel brings queue pairs up");
	ret = qp_to_rtr(id, qp, link, settings);
	return ret < 0 ? ret : qp_to_rts(id, qp, link);
}

int verbs_qp_fence(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return qp_modify(qp, &attr, IBV_QP_STATE, "the error state");
}
