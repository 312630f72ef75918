/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librdmacm for unit tests (fake-verbs.h): ids, event channels and their events. No connection is
 * real: what the other side answers is in fake.on_..., or is done by the test. Next: fake-system.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#include "fake-verbs.h"

#define REQUEST_MAX 56u
#define REJECT_MAX  148u

struct cm_event {
	TAILQ_ENTRY(cm_event) link;
	struct rdma_cm_event event;
	struct fake_id *counted; /* whose destruction waits for it */
	uint8_t bytes[FAKE_PRIVATE_MAX];
};

struct fake_channel {
	struct rdma_event_channel channel;
	unsigned users;
	TAILQ_HEAD(, cm_event) events;
};

struct fake_id {
	TAILQ_ENTRY(fake_id) link;
	struct rdma_cm_id id;
	struct fake_record *record;
	unsigned unacked;
	bool hidden; /* a connection request that has not been got yet */
	bool addressed, routed, connected, passive;
	unsigned device;
};

static TAILQ_HEAD(, fake_id) ids = TAILQ_HEAD_INITIALIZER(ids);

#define OBJECT(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static struct fake_id *id_of(const struct rdma_cm_id *id)
{
	return OBJECT(id, struct fake_id, id);
}

static struct fake_channel *channel_of(const struct rdma_event_channel *channel)
{
	return OBJECT(channel, struct fake_channel, channel);
}

static void *object(size_t bytes)
{
	void *made = __real_calloc(1, bytes);

	assert_non_null(made);
	return made;
}

static bool iwarp(const struct fake_id *id)
{
	return fake.devices[id->device].device.transport_type == IBV_TRANSPORT_IWARP;
}

/* ---- channels ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct fake_channel *channel;

	if (fake_refuses("rdma_create_event_channel"))
		return NULL;
	channel = object(sizeof(*channel));
	channel->channel.fd = fake_fd_new();
	TAILQ_INIT(&channel->events);
	fake_count(FAKE_EVENT_CHANNEL, 1);
	return &channel->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct fake_channel *it = channel_of(channel);

	if (it->users)
		fail_msg("rdma_destroy_event_channel: %u ids use it", it->users);
	assert_true(TAILQ_EMPTY(&it->events));
	assert_int_equal(close(channel->fd), 0);
	fake_count(FAKE_EVENT_CHANNEL, -1);
	free(it);
}

unsigned fake_pending_events(const struct rdma_event_channel *channel)
{
	const struct cm_event *event;
	unsigned n = 0;

	TAILQ_FOREACH (event, &channel_of(channel)->events, link)
		n++;
	return n;
}

static struct cm_event *queue(struct fake_id *counted, enum rdma_cm_event_type type, int status,
			      const void *bytes, uint8_t count)
{
	struct cm_event *event = object(sizeof(*event));

	event->event.id = &counted->id;
	event->event.event = type;
	event->event.status = status;
	event->counted = counted;
	if (count) {
		memcpy(event->bytes, bytes, count);
		event->event.param.conn.private_data = event->bytes;
		event->event.param.conn.private_data_len = count;
	}
	event->event.param.conn.initiator_depth = fake.request_param.initiator_depth;
	event->event.param.conn.responder_resources = fake.request_param.responder_resources;
	TAILQ_INSERT_TAIL(&channel_of(counted->id.channel)->events, event, link);
	fake_fd_add(counted->id.channel->fd);
	return event;
}

void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status, const void *bytes,
		uint8_t count)
{
	struct fake_id *it = id_of(id);

	/* iWARP: the kernel has moved the queue pair before it tells */
	if (iwarp(it) && it->record->param.qp_num) {
		if (type == RDMA_CM_EVENT_ESTABLISHED)
			fake_qp_kernel(it->record->param.qp_num, IBV_QPS_RTS);
		if (type == RDMA_CM_EVENT_DISCONNECTED)
			fake_qp_kernel(it->record->param.qp_num, IBV_QPS_ERR);
	}
	queue(it, type, status, bytes, count);
}

static void answer(struct fake_id *id, const struct fake_answer *what)
{
	if (fake.event_hook && fake.event_hook(&id->id, what->event))
		return;
	if (!what->silent)
		fake_event(&id->id, what->event, what->status, what->bytes, what->byte_count);
}

/* What librdmacm itself does with an event when it is got. */
static void event_arrives(struct cm_event *event)
{
	struct fake_id *id = id_of(event->event.id);

	switch (event->event.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		id->addressed = true;
		id->id.verbs = fake_context(id->device);
		id->id.port_num = 1;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		id->routed = true;
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		id->hidden = false;
		fake_count(FAKE_ID, 1);
		break;
	default:
		break;
	}
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **ret)
{
	struct cm_event *event = TAILQ_FIRST(&channel_of(channel)->events);

	if (!event) {
		if (!fake_fd_nonblocking(channel->fd))
			fail_msg("rdma_get_cm_event: blocks for ever");
		errno = EAGAIN;
		return -1;
	}
	if (fake_refuses("rdma_get_cm_event"))
		return -1;
	TAILQ_REMOVE(&channel_of(channel)->events, event, link);
	fake_fd_take(channel->fd);
	event_arrives(event);
	event->counted->unacked++;
	fake_count(FAKE_CM_EVENT, 1);
	*ret = &event->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cm_event *it = OBJECT(event, struct cm_event, event);

	it->counted->unacked--;
	fake_count(FAKE_CM_EVENT, -1);
	free(it);
	return 0;
}

/* ---- ids ---- */

static struct fake_id *id_new(struct rdma_event_channel *channel, void *context)
{
	struct fake_id *id = object(sizeof(*id));

	if (fake.record_count == FAKE_RECORDS)
		fail_msg("more than %u ids in one test", FAKE_RECORDS);
	id->record = &fake.records[fake.record_count++];
	memset(id->record, 0, sizeof(*id->record));
	id->record->id = &id->id;
	id->record->tos = -1;
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = RDMA_PS_TCP;
	id->id.qp_type = IBV_QPT_RC;
	channel_of(channel)->users++;
	TAILQ_INSERT_TAIL(&ids, id, link);
	return id;
}

static void id_free(struct fake_id *id)
{
	channel_of(id->id.channel)->users--;
	id->record->id = NULL;
	id->record->destroyed++;
	TAILQ_REMOVE(&ids, id, link);
	free(id);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret, void *context,
		   enum rdma_port_space space)
{
	if (fake_refuses("rdma_create_id"))
		return -1;
	assert_non_null(channel);
	assert_int_equal(space, RDMA_PS_TCP);
	*ret = &id_new(channel, context)->id;
	fake_count(FAKE_ID, 1);
	return 0;
}

/* The kernel drops what has not been got yet. */
static void forget_events(struct fake_id *id)
{
	struct fake_channel *channel = channel_of(id->id.channel);
	struct cm_event *event, *next;

	for (event = TAILQ_FIRST(&channel->events); event; event = next) {
		next = TAILQ_NEXT(event, link);
		if (event->counted != id)
			continue;
		TAILQ_REMOVE(&channel->events, event, link);
		fake_fd_take(channel->channel.fd);
		if (event->event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			forget_events(id_of(event->event.id));
			next = TAILQ_FIRST(&channel->events);
			id_free(id_of(event->event.id));
		}
		free(event);
	}
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct fake_id *it = id_of(id);

	if (it->unacked)
		fail_msg("rdma_destroy_id: waits for ever for %u unacknowledged events",
			 it->unacked);
	assert_null(id->qp);
	forget_events(it);
	fake_count(FAKE_ID, -1);
	id_free(it);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct fake_channel *from = channel_of(id->channel);
	struct cm_event *event, *next;

	if (fake_refuses("rdma_migrate_id"))
		return -1;
	if (id_of(id)->unacked)
		fail_msg("rdma_migrate_id: waits for ever for unacknowledged events");
	for (event = TAILQ_FIRST(&from->events); event; event = next) {
		next = TAILQ_NEXT(event, link);
		if (event->counted != id_of(id))
			continue;
		TAILQ_REMOVE(&from->events, event, link);
		TAILQ_INSERT_TAIL(&channel_of(channel)->events, event, link);
		fake_fd_take(id->channel->fd);
		fake_fd_add(channel->fd);
	}
	from->users--;
	channel_of(channel)->users++;
	id->channel = channel;
	return 0;
}

struct fake_record *fake_record(const struct rdma_cm_id *id)
{
	return id_of(id)->record;
}

struct fake_record *fake_last_record(void)
{
	return fake.record_count ? &fake.records[fake.record_count - 1] : NULL;
}

struct rdma_cm_id *fake_listener(unsigned nth)
{
	struct fake_id *id;

	TAILQ_FOREACH (id, &ids, link)
		if (id->record->listening && nth-- == 0)
			return &id->id;
	return NULL;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int option, void *value, size_t bytes)
{
	if (fake_refuses(option == RDMA_OPTION_ID_ACK_TIMEOUT ? "rdma_set_option(ack timeout)"
							      : "rdma_set_option"))
		return -1;
	assert_int_equal(level, RDMA_OPTION_ID);
	switch (option) {
	case RDMA_OPTION_ID_TOS:
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		assert_int_equal(bytes, 1);
		if (option == RDMA_OPTION_ID_TOS)
			id_of(id)->record->tos = *(uint8_t *)value;
		break;
	case RDMA_OPTION_ID_REUSEADDR:
	case RDMA_OPTION_ID_AFONLY:
		assert_int_equal(bytes, sizeof(int));
		break;
	default:
		fail_msg("rdma_set_option: %d", option);
	}
	return 0;
}

/* ---- addresses ---- */

static socklen_t address_bytes(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

/* 10.78... is the second device's network, all others are the first's. */
static unsigned device_at(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;

	return fake.device_count > 1 && address->sa_family == AF_INET &&
	       (ntohl(v4->sin_addr.s_addr) >> 16 & 0xff) == 78;
}

/* 10.77... and 10.78... are addresses of this host. */
static bool is_ours(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
	uint32_t net = ntohl(v4->sin_addr.s_addr) >> 16;

	return address->sa_family == AF_INET && (net == 0x0a4d || net == 0x0a4e);
}

static bool wildcard(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;

	return address->sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)
					      : v4->sin_addr.s_addr == INADDR_ANY;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	struct sockaddr_in *bound = &id->route.addr.src_sin;

	if (fake_refuses("rdma_bind_addr"))
		return -1;
	if (!wildcard(address) && (!is_ours(address) || fake.gone[device_at(address)])) {
		errno = is_ours(address) ? ENODEV : EADDRNOTAVAIL;
		return -1;
	}
	memcpy(&id->route.addr.src_storage, address, address_bytes(address));
	if (!bound->sin_port) /* the same place in sockaddr_in6 */
		bound->sin_port = htons(43210);
	if (wildcard(address))
		return 0;
	id_of(id)->device = device_at(address);
	id->verbs = fake_context(id_of(id)->device);
	id->port_num = 1;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *destination,
		      int timeout_ms)
{
	assert_in_range(timeout_ms, 1, 3600000);
	if (fake_refuses("rdma_resolve_addr"))
		return -1;
	if (source)
		memcpy(&id->route.addr.src_storage, source, address_bytes(source));
	memcpy(&id->route.addr.dst_storage, destination, address_bytes(destination));
	id_of(id)->device = device_at(destination);
	answer(id_of(id), &fake.on_resolve_addr);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	assert_in_range(timeout_ms, 1, 3600000);
	if (fake_refuses("rdma_resolve_route"))
		return -1;
	if (!id_of(id)->addressed) {
		errno = EINVAL;
		return -1;
	}
	answer(id_of(id), &fake.on_resolve_route);
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id->route.addr.dst_sin.sin_port;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **ret)
{
	struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
	struct rdma_addrinfo *info;

	if (fake_refuses("rdma_getaddrinfo"))
		return -1;
	if (hints && hints->ai_flags & RAI_PASSIVE)
		wanted.ai_flags |= AI_PASSIVE;
	if (getaddrinfo(node, service, &wanted, &found)) {
		errno = ENODATA;
		return -1;
	}
	info = object(sizeof(*info));
	info->ai_family = found->ai_family;
	info->ai_dst_len = info->ai_src_len = found->ai_addrlen;
	info->ai_dst_addr = object(found->ai_addrlen);
	memcpy(info->ai_dst_addr, found->ai_addr, found->ai_addrlen);
	info->ai_src_addr = info->ai_dst_addr;
	freeaddrinfo(found);
	fake_count(FAKE_ADDRINFO, 1);
	*ret = info;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
	free(info->ai_dst_addr);
	free(info);
	fake_count(FAKE_ADDRINFO, -1);
}

struct ibv_context **rdma_get_devices(int *count)
{
	struct ibv_context **list;

	if (fake_refuses("rdma_get_devices"))
		return NULL;
	list = object((fake.device_count + 1) * sizeof(*list));
	for (unsigned i = 0; i < fake.device_count; i++)
		list[i] = fake_context(i);
	if (count)
		*count = (int)fake.device_count;
	fake_count(FAKE_DEVICE_LIST, 1);
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
	fake_count(FAKE_DEVICE_LIST, -1);
}

/* ---- connecting ---- */

static void record(struct fake_id *id, const struct rdma_conn_param *param)
{
	id->record->param = *param;
	id->record->param.private_data = id->record->bytes;
	id->record->byte_count = param->private_data_len;
	if (param->private_data_len)
		memcpy(id->record->bytes, param->private_data, param->private_data_len);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct fake_id *it = id_of(id);

	if (fake_refuses("rdma_connect"))
		return -1;
	if (!it->routed || it->connected || param->private_data_len > REQUEST_MAX) {
		errno = EINVAL;
		return -1;
	}
	assert_non_null(fake_qp(param->qp_num));
	it->connected = true;
	it->record->connected++;
	record(it, param);
	if (fake.connect)
		fake.connect(id, param);
	else
		answer(it, &fake.on_connect);
	return 0;
}

int rdma_establish(struct rdma_cm_id *id)
{
	struct fake_id *it = id_of(id);

	if (fake_refuses("rdma_establish"))
		return -1;
	if (!it->connected || iwarp(it)) {
		errno = EINVAL;
		return -1;
	}
	if (fake_qp_state(fake_qp(it->record->param.qp_num)) != IBV_QPS_RTS)
		fail_msg("rdma_establish: the queue pair cannot send yet");
	it->record->established++;
	answer(it, &fake.on_establish);
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	if (fake_refuses("rdma_listen"))
		return -1;
	assert_true(backlog >= 0);
	id_of(id)->record->listening++;
	return 0;
}

struct rdma_cm_id *fake_request(struct rdma_cm_id *listener, unsigned device, unsigned n,
				const void *bytes, uint8_t count)
{
	struct fake_id *id = id_new(listener->channel, listener->context);
	struct sockaddr_in *source = &id->id.route.addr.dst_sin;
	uint8_t padded[REQUEST_MAX] = {0};
	struct cm_event *event;

	id->passive = id->hidden = true;
	id->device = device;
	id->id.verbs = fake_context(device);
	id->id.port_num = 1;
	memcpy(&id->id.route.addr.src_storage, &listener->route.addr.src_storage,
	       sizeof(listener->route.addr.src_storage));
	source->sin_family = AF_INET;
	source->sin_addr.s_addr = htonl(0x0a630000u + n); /* 10.99.0.0 */
	source->sin_port = htons((uint16_t)(40000 + n));
	/* InfiniBand knows no length: always the whole field */
	if (count)
		memcpy(padded, bytes, count);
	event = queue(id_of(listener), RDMA_CM_EVENT_CONNECT_REQUEST, 0, padded,
		      iwarp(id) ? count : REQUEST_MAX);
	event->event.id = &id->id;
	event->event.listen_id = listener;
	event->event.param.conn.qp_num = 0x777000 + n;
	event->event.param.conn.initiator_depth = fake.request_param.initiator_depth;
	event->event.param.conn.responder_resources = fake.request_param.responder_resources;
	return &id->id;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct fake_id *it = id_of(id);
	struct ibv_qp *qp;

	if (fake_refuses("rdma_accept"))
		return -1;
	if (!it->passive || it->hidden || it->connected || it->record->rejected ||
	    param->private_data_len > FAKE_PRIVATE_MAX) {
		errno = EINVAL;
		return -1;
	}
	qp = fake_qp(param->qp_num);
	assert_non_null(qp);
	if (fake_qp_state(qp) != (iwarp(it) ? IBV_QPS_INIT : IBV_QPS_RTS))
		fail_msg("rdma_accept: the queue pair is in state %d", fake_qp_state(qp));
	it->connected = true;
	it->record->accepted++;
	record(it, param);
	answer(it, &fake.on_accept);
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *bytes, uint8_t count)
{
	struct fake_id *it = id_of(id);

	if (fake_refuses("rdma_reject"))
		return -1;
	if (!it->passive || it->hidden || it->connected || it->record->rejected ||
	    count > REJECT_MAX) {
		errno = EINVAL;
		return -1;
	}
	it->record->rejected++;
	it->record->byte_count = count;
	if (count)
		memcpy(it->record->bytes, bytes, count);
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct fake_id *it = id_of(id);

	if (fake_refuses("rdma_disconnect"))
		return -1;
	if (!it->connected) {
		errno = EINVAL;
		return -1;
	}
	it->record->disconnected++;
	if (iwarp(it))
		fake_qp_kernel(it->record->param.qp_num, IBV_QPS_ERR);
	if (it->record->disconnected == 1)
		answer(it, &fake.on_disconnect);
	return 0;
}

/* What the connection manager of the kernel would fill in. */
int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *ret_mask)
{
	struct fake_id *it = id_of(id);
	enum ibv_qp_state state = attr->qp_state;

	if (fake_refuses("rdma_init_qp_attr"))
		return -1;
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	*ret_mask = IBV_QP_STATE;
	if (state == IBV_QPS_INIT) {
		attr->port_num = id->port_num;
		*ret_mask |=
			IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | (iwarp(it) ? 0 : IBV_QP_PKEY_INDEX);
	} else if (!iwarp(it) && state == IBV_QPS_RTR) {
		attr->path_mtu = IBV_MTU_1024;
		attr->dest_qp_num = 0x777000;
		attr->max_dest_rd_atomic = fake.request_param.initiator_depth;
		attr->min_rnr_timer = 0;
		attr->ah_attr.is_global = 1;
		attr->ah_attr.port_num = id->port_num;
		attr->ah_attr.grh.sgid_index = 2;
		*ret_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	} else if (!iwarp(it) && state == IBV_QPS_RTS) {
		attr->timeout = 14;
		attr->retry_cnt = 7;
		attr->rnr_retry = 7;
		attr->max_rd_atomic = fake.request_param.responder_resources;
		*ret_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return 0;
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	assert_int_equal(event, IBV_EVENT_COMM_EST);
	if (fake_refuses("rdma_notify"))
		return -1;
	fake_record(id)->notified++;
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	(void)event;
	return "an event";
}

/* After a test that has failed there may be some left; the next one begins afresh. */
void fake_rdmacm_end(void)
{
	TAILQ_INIT(&ids);
}
