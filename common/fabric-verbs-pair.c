/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric-verbs-pair.c - two queue pairs connected to each other without rdma_cm
 *
 * The daemon's own way to the words of a pool in a nic domain (docs/protocol.md section 1). The
 * daemon's main thread. Next: daemon/self.c, which uses it, and fabric-verbs.c for the data path.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "fabric-verbs.h"

/*
 * 67 ms. T3 is not at stake, the daemon waits for each of its requests, and to lose this connection
 * costs more than to wait: soft-RoCE on a busy host stands still for a while.
 */
#define PAIR_ACK_TIMEOUT 14

/* How good a GID is for talking to oneself; any that routes will do. */
static int gid_rank(const struct ibv_gid_entry *entry)
{
	static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};
	int rank = entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? 10 : 0;

	if (memcmp(entry->gid.raw, v4_mapped, sizeof(v4_mapped)) == 0)
		return rank + 3;
	return rank + (entry->gid.raw[0] == 0xfe ? 1 : 2);
}

#define GIDS_MAX 256

static int gid_choose(const struct verbs_device *device, struct ibv_gid_entry *ret_entry)
{
	struct ibv_gid_entry *entries = calloc(GIDS_MAX, sizeof(*entries));
	ssize_t count = entries ? ibv_query_gid_table(device->context, entries, GIDS_MAX, 0) : 0;
	int best = -1;

	for (ssize_t i = 0; i < count; i++) {
		if (entries[i].port_num != device->port || gid_rank(&entries[i]) <= best)
			continue;
		best = gid_rank(&entries[i]);
		*ret_entry = entries[i];
	}
	free(entries);
	if (best < 0)
		return err_set(-ENODEV,
			       "%s port %u has no GID: give its network interface an address, and "
			       "bring it up",
			       device->name, device->port);
	return 0;
}

static int pair_modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask, const char *state)
{
	int error = ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE);

	if (error)
		return err_set(error < 0 ? error : -error,
			       "the adapter refuses a connection to itself (%s): %s", state,
			       strerror(error < 0 ? -error : error));
	return 0;
}

/* From RESET to RTS, connected to `peer`. */
static int pair_bring_up(const struct verbs_device *device, const struct ibv_gid_entry *gid,
			 struct ibv_qp *qp, const struct ibv_qp *peer, unsigned access)
{
	uint8_t depth = fabric_verbs_depth(device->attr.max_qp_rd_atom);
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .qp_access_flags = access, .port_num = device->port};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = device->port_attr.active_mtu,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = depth,
		.min_rnr_timer = VERBS_RNR_TIMER,
		.ah_attr = {.dlid = device->port_attr.lid, .port_num = device->port},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = PAIR_ACK_TIMEOUT,
		.retry_cnt = VERBS_RETRIES,
		.rnr_retry = VERBS_RNR_RETRIES,
		.max_rd_atomic = fabric_verbs_depth(device->attr.max_qp_init_rd_atom),
	};
	int ret;

	if (rts.max_rd_atomic > depth)
		rts.max_rd_atomic = depth;
	if (gid) {
		rtr.ah_attr.is_global = 1;
		rtr.ah_attr.grh = (struct ibv_global_route){
			.dgid = gid->gid, .sgid_index = (uint8_t)gid->gid_index, .hop_limit = 64};
	}
	ret = pair_modify(qp, init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
	if (ret == 0)
		ret = pair_modify(qp, rtr,
				  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
				  "RTR");
	if (ret == 0)
		ret = pair_modify(qp, rts,
				  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
				  "RTS");
	return ret;
}

static int pair_create(struct verbs_endpoint *v, const struct verbs_device *device)
{
	bool ethernet = device->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	struct ibv_gid_entry gid = {.gid_index = 0};
	uint32_t unused;
	int ret = fabric_verbs_resources(v, device, 1);

	if (ret == 0) {
		v->responder = fabric_verbs_qp_create(v, 1, 1, &unused);
		if (!v->responder)
			ret = fabric_verbs_resource_error(device->name, "queue pair");
	}
	if (ret == 0 && ethernet)
		ret = gid_choose(device, &gid);
	if (ret == 0)
		ret = pair_bring_up(device, ethernet ? &gid : NULL, v->responder, v->qp,
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_ATOMIC);
	if (ret == 0)
		ret = pair_bring_up(device, ethernet ? &gid : NULL, v->qp, v->responder, 0);
	return ret;
}

int fabric_verbs_pair(const struct verbs_device *device, struct ibv_pd *pd,
		      const struct wire_region *regions, unsigned count,
		      struct fabric_endpoint **ret_ep)
{
	static const struct fabric_settings settings = FABRIC_SETTINGS_INIT;
	struct verbs_endpoint *v;
	int ret;

	if (device->iwarp || !device->atomics)
		return err_set(-EOPNOTSUPP, "%s has no atomics", device->name);
	v = fabric_verbs_new(&settings);
	if (!v)
		return -ENOMEM;
	v->context = device->context;
	v->pd = pd;
	v->pd_borrowed = true;
	v->ep.features = FABRIC_COUNTER_FAA;
	for (unsigned i = 0; i < count; i++)
		v->ep.pool_bytes += regions[i].length;
	ret = fabric_verbs_regions_set(v, regions, count, count);
	if (ret == 0)
		ret = pair_create(v, device);
	if (ret < 0) {
		fabric_verbs_free(v);
		return ret;
	}
	*ret_ep = &v->ep;
	return 0;
}
