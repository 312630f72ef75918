/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libibverbs for unit tests (fake-verbs.h): devices, protection domains, memory, queues, and the
 * NIC that carries out work requests. Next: fake-rdmacm.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

#include "fake-verbs.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

#define SGES_MAX   4u
#define INLINE_MAX 1024u

struct fake fake;

/* ---- objects ---- */

struct fake_pd {
	struct ibv_pd pd;
	struct ibv_pd *parent_of; /* a parent domain's protection domain */
	unsigned users;
};

struct fake_td {
	struct ibv_td td;
	unsigned users;
};

struct fake_mr {
	TAILQ_ENTRY(fake_mr) link;
	struct ibv_mr mr;
	uint8_t *memory;
	uint64_t address, bytes; /* under which the rkey reaches it */
	unsigned access;
	size_t mapped; /* of a dma-buf */
	bool remote;   /* the test's */
};

struct channel_event {
	TAILQ_ENTRY(channel_event) link;
	struct ibv_cq *cq;
};

struct fake_channel {
	struct ibv_comp_channel channel;
	unsigned users;
	TAILQ_HEAD(, channel_event) events;
};

struct cqe {
	TAILQ_ENTRY(cqe) link;
	struct ibv_wc wc;
	struct fake_qp *qp;
	uint64_t retires; /* all work requests of the queue pair before this one */
};

struct fake_cq {
	TAILQ_ENTRY(fake_cq) link;
	struct ibv_cq cq;
	unsigned users, count, unacked, unacked_async;
	bool armed, armed_solicited;
	TAILQ_HEAD(, cqe) cqes;
};

struct recv {
	TAILQ_ENTRY(recv) link;
	uint64_t wr_id;
	struct ibv_sge sges[SGES_MAX];
	int sge_count;
};
TAILQ_HEAD(recvs, recv);

struct fake_srq {
	struct ibv_srq srq;
	unsigned users, count, max, unacked_async;
	struct recvs recvs;
};

struct slot {
	struct ibv_send_wr wr;
	struct ibv_sge sges[SGES_MAX];
	uint8_t bytes[INLINE_MAX];
	size_t log; /* in fake.wrs */
};

struct fake_qp {
	TAILQ_ENTRY(fake_qp) link;
	struct ibv_qp qp;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct slot *slots; /* init.cap.max_send_wr of them */
	uint64_t posted, done, retired;
	unsigned recv_count, unacked_async;
	struct recvs recvs;
	bool running;
};

struct async {
	TAILQ_ENTRY(async) link;
	struct ibv_async_event event;
};

static struct {
	TAILQ_HEAD(, fake_mr) mrs;
	TAILQ_HEAD(, fake_qp) qps;
	TAILQ_HEAD(, fake_cq) cqs;
	TAILQ_HEAD(, async) asyncs[FAKE_DEVICES];
	unsigned unacked_device_events;
	uint32_t next_key, next_qp_num;
} world;

#define OBJECT(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static struct fake_device *device_of(const struct ibv_context *context)
{
	for (unsigned i = 0; i < fake.device_count; i++)
		if (&fake.devices[i].verbs.context == context)
			return &fake.devices[i];
	fail_msg("a context that no device has");
	return NULL;
}

struct ibv_context *fake_context(unsigned device)
{
	return &fake.devices[device].verbs.context;
}

void fake_count(enum fake_kind kind, int by)
{
	fake.live[kind] += by;
	if (fake.live[kind] < 0)
		fail_msg("%s: one more is given back than was taken", fake_kind_name(kind));
}

bool fake_refuses(const char *name)
{
	if (++fake.calls != fake.fail_at)
		return false;
	snprintf(fake.failed, sizeof(fake.failed), "%s", name);
	errno = fake.fail_errno;
	return true;
}

static void *object(size_t bytes)
{
	void *made = __real_calloc(1, bytes);

	assert_non_null(made);
	return made;
}

/* ---- descriptors that are readable as long as something is queued ---- */

int fake_fd_new(void)
{
	int fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

void fake_fd_add(int fd)
{
	uint64_t one = 1;

	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

void fake_fd_take(int fd)
{
	uint64_t one;

	assert_int_equal(read(fd, &one, sizeof(one)), sizeof(one));
}

bool fake_fd_nonblocking(int fd)
{
	return fcntl(fd, F_GETFL) & O_NONBLOCK;
}

/* ---- devices ---- */

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list;

	if (fake_refuses("ibv_get_device_list"))
		return NULL;
	list = object((fake.device_count + 1) * sizeof(*list));
	for (unsigned i = 0; i < fake.device_count; i++)
		list[i] = &fake.devices[i].device;
	if (count)
		*count = (int)fake.device_count;
	fake_count(FAKE_DEVICE_LIST, 1);
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
	fake_count(FAKE_DEVICE_LIST, -1);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (fake_refuses("ibv_open_device"))
		return NULL;
	fake_count(FAKE_CONTEXT, 1);
	return &OBJECT(device, struct fake_device, device)->verbs.context;
}

int ibv_close_device(struct ibv_context *context)
{
	device_of(context);
	fake_count(FAKE_CONTEXT, -1);
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *ret)
{
	if (fake_refuses("ibv_query_device"))
		return errno;
	*ret = device_of(context)->attr;
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *ret)
{
	(void)context;
	(void)port;
	(void)ret;
	fail_msg("the old ibv_query_port");
	return EINVAL;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret,
		      size_t bytes)
{
	if (fake_refuses("ibv_query_port"))
		return errno;
	if (port != 1)
		return EINVAL;
	memcpy(ret, &device_of(context)->port, bytes);
	return 0;
}

/* Index 0: link-local; 1: RoCE v1 of the IPv4 address; 2: RoCE v2 of it. */
static int gid_fill(struct ibv_context *context, int index, union ibv_gid *ret)
{
	if (index < 0 || index > 2)
		return EINVAL;
	memset(ret, 0, sizeof(*ret));
	if (index == 0) {
		ret->raw[0] = 0xfe;
		ret->raw[1] = 0x80;
	} else {
		ret->raw[10] = ret->raw[11] = 0xff;
		ret->raw[12] = 10;
		ret->raw[13] = 77;
	}
	ret->raw[15] = (uint8_t)(1 + (device_of(context) - fake.devices));
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *ret)
{
	if (fake_refuses("ibv_query_gid"))
		return -1;
	(void)port;
	if (gid_fill(context, index, ret)) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

static void gid_entry(struct ibv_context *context, uint32_t index, struct ibv_gid_entry *ret)
{
	memset(ret, 0, sizeof(*ret));
	gid_fill(context, (int)index, &ret->gid);
	ret->gid_index = index;
	ret->port_num = 1;
	ret->gid_type = index == 1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *ret, uint32_t flags, size_t bytes)
{
	(void)port;
	(void)flags;
	(void)bytes;
	if (fake_refuses("ibv_query_gid_ex"))
		return errno;
	if (index > 2)
		return ENODATA;
	gid_entry(context, index, ret);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *ret, size_t max,
			     uint32_t flags, size_t bytes)
{
	(void)flags;
	(void)bytes;
	if (fake_refuses("ibv_query_gid_table"))
		return -errno;
	for (uint32_t i = 0; i < 3 && i < max; i++)
		gid_entry(context, i, &ret[i]);
	return max < 3 ? (ssize_t)max : 3;
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
		       enum ibv_gid_type *ret);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
		       enum ibv_gid_type *ret)
{
	(void)context;
	(void)port;
	*ret = index == 1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *ret)
{
	(void)context;
	(void)port;
	(void)index;
	if (fake_refuses("ibv_query_pkey"))
		return -1;
	*ret = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	(void)port;
	(void)pkey;
	return 0;
}

int ibv_fork_init(void)
{
	return fake_refuses("ibv_fork_init") ? errno : 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_SUCCESS ? "success" : "an error";
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	(void)event;
	return "an event";
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
	(void)type;
	return "a node";
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
	(void)state;
	return "a state";
}

/* ---- protection domains, memory ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fake_pd *pd;

	if (fake_refuses("ibv_alloc_pd"))
		return NULL;
	device_of(context);
	pd = object(sizeof(*pd));
	pd->pd.context = context;
	fake_count(FAKE_PD, 1);
	return &pd->pd;
}

static struct fake_pd *pd_of(struct ibv_pd *pd)
{
	return OBJECT(pd, struct fake_pd, pd);
}

/* The protection domain itself, also of a parent domain. */
static struct ibv_pd *pd_real(struct ibv_pd *pd)
{
	return pd_of(pd)->parent_of ? pd_of(pd)->parent_of : pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct fake_pd *it = pd_of(pd);

	if (it->users)
		fail_msg("ibv_dealloc_pd: EBUSY, %u objects still use it", it->users);
	fake_count(it->parent_of ? FAKE_PARENT_PD : FAKE_PD, -1);
	if (it->parent_of)
		pd_of(it->parent_of)->users--;
	free(it);
	return 0;
}

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct fake_td *td;

	(void)attr;
	if (fake_refuses("ibv_alloc_td"))
		return NULL;
	if (device_of(context)->no_td) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = object(sizeof(*td));
	td->td.context = context;
	fake_count(FAKE_TD, 1);
	return &td->td;
}

static int dealloc_td(struct ibv_td *td)
{
	struct fake_td *it = OBJECT(td, struct fake_td, td);

	if (it->users)
		fail_msg("ibv_dealloc_td: EBUSY");
	fake_count(FAKE_TD, -1);
	free(it);
	return 0;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *context,
					  struct ibv_parent_domain_init_attr *attr)
{
	struct fake_pd *pd;

	if (fake_refuses("ibv_alloc_parent_domain"))
		return NULL;
	if (device_of(context)->no_td) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	pd = object(sizeof(*pd));
	pd->pd.context = context;
	pd->parent_of = attr->pd;
	pd_of(attr->pd)->users++;
	/* The thread domain is held by real ones too, but nobody lets go of it: the order of the
	 * caller decides. */
	fake_count(FAKE_PARENT_PD, 1);
	return &pd->pd;
}

static uint32_t next_key(void)
{
	world.next_key += 0x101;
	return world.next_key;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *memory, size_t bytes, uint64_t address,
			     unsigned access)
{
	struct fake_mr *mr;

	if (fake_refuses("ibv_reg_mr"))
		return NULL;
	if (bytes == 0 || bytes > device_of(pd->context)->attr.max_mr_size ||
	    ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	     !(access & IBV_ACCESS_LOCAL_WRITE)) ||
	    (device_of(pd->context)->attr.atomic_cap == IBV_ATOMIC_NONE &&
	     (access & IBV_ACCESS_REMOTE_ATOMIC))) {
		errno = EINVAL;
		return NULL;
	}
	assert_false(access & (IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_ON_DEMAND));
	mr = object(sizeof(*mr));
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->mr.addr = memory;
	mr->mr.length = bytes;
	mr->mr.lkey = next_key();
	mr->mr.rkey = mr->mr.lkey ^ 0x80000000;
	mr->memory = memory;
	mr->bytes = bytes;
	mr->address = address;
	mr->access = access;
	pd_of(pd)->users++;
	TAILQ_INSERT_TAIL(&world.mrs, mr, link);
	fake_count(FAKE_MR, 1);
	return &mr->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *memory, size_t bytes, int access)
{
	return reg_mr(pd, memory, bytes, (uintptr_t)memory, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *memory, size_t bytes, uint64_t address,
			       int access)
{
	return reg_mr(pd, memory, bytes, address, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *memory, size_t bytes, uint64_t address,
				unsigned access)
{
	return reg_mr(pd, memory, bytes, address, access);
}

/* The adapter reaches it whether the process can map this descriptor or not. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
				 int fd, int access)
{
	uint64_t inside = offset % 4096;
	struct ibv_mr *mr;
	char path[40];
	uint8_t *map;
	int own;

	assert_int_equal(iova % 4096, inside);
	if (device_of(pd->context)->no_dmabuf) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDWR | O_CLOEXEC);
	assert_true(own >= 0);
	map = mmap(NULL, inside + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own,
		   (off_t)(offset - inside));
	assert_ptr_not_equal(map, MAP_FAILED);
	close(own);
	mr = reg_mr(pd, map + inside, bytes, iova, (unsigned)access);
	if (mr)
		OBJECT(mr, struct fake_mr, mr)->mapped = inside + bytes;
	else
		munmap(map, inside + bytes);
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fake_mr *it = OBJECT(mr, struct fake_mr, mr);

	if (it->mapped)
		munmap(it->memory - it->address % 4096, it->mapped);
	pd_of(mr->pd)->users--;
	TAILQ_REMOVE(&world.mrs, it, link);
	fake_count(FAKE_MR, -1);
	free(it);
	return 0;
}

uint32_t fake_remote(void *memory, uint64_t bytes, uint64_t address, unsigned access)
{
	struct fake_mr *mr = object(sizeof(*mr));

	mr->mr.rkey = next_key() ^ 0x80000000;
	mr->memory = memory;
	mr->bytes = bytes;
	mr->address = address;
	mr->access = access;
	mr->remote = true;
	TAILQ_INSERT_TAIL(&world.mrs, mr, link);
	return mr->mr.rkey;
}

unsigned fake_mr_access(uint32_t rkey)
{
	struct fake_mr *mr;

	TAILQ_FOREACH (mr, &world.mrs, link)
		if (mr->mr.rkey == rkey)
			return mr->access;
	return 0;
}

static struct fake_mr *nth_mr(unsigned n)
{
	struct fake_mr *mr;

	TAILQ_FOREACH (mr, &world.mrs, link)
		if (!mr->remote && n-- == 0)
			return mr;
	return NULL;
}

const struct ibv_mr *fake_nth_mr(unsigned n)
{
	return nth_mr(n) ? &nth_mr(n)->mr : NULL;
}

unsigned fake_nth_mr_access(unsigned n)
{
	return nth_mr(n) ? nth_mr(n)->access : 0;
}

/* ---- completion queues ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fake_channel *channel;

	if (fake_refuses("ibv_create_comp_channel"))
		return NULL;
	channel = object(sizeof(*channel));
	channel->channel.context = context;
	channel->channel.fd = fake_fd_new();
	TAILQ_INIT(&channel->events);
	fake_count(FAKE_COMP_CHANNEL, 1);
	return &channel->channel;
}

static struct fake_channel *channel_of(struct ibv_comp_channel *channel)
{
	return OBJECT(channel, struct fake_channel, channel);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct fake_channel *it = channel_of(channel);

	if (it->users)
		fail_msg("ibv_destroy_comp_channel: EBUSY, %u CQs use it", it->users);
	assert_int_equal(close(channel->fd), 0);
	fake_count(FAKE_COMP_CHANNEL, -1);
	free(it);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq;

	if (fake_refuses("ibv_create_cq"))
		return NULL;
	if (entries < 1 || entries > device_of(context)->attr.max_cqe || vector < 0 ||
	    vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = object(sizeof(*cq));
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = entries;
	TAILQ_INIT(&cq->cqes);
	if (channel)
		channel_of(channel)->users++;
	TAILQ_INSERT_TAIL(&world.cqs, cq, link);
	fake_count(FAKE_CQ, 1);
	return &cq->cq;
}

static struct fake_cq *cq_of(struct ibv_cq *cq)
{
	return OBJECT(cq, struct fake_cq, cq);
}

struct ibv_cq *fake_nth_cq(unsigned n)
{
	struct fake_cq *cq;

	TAILQ_FOREACH (cq, &world.cqs, link)
		if (n-- == 0)
			return &cq->cq;
	return NULL;
}

static void channel_forget(struct ibv_comp_channel *channel, const struct ibv_cq *cq)
{
	struct channel_event *event, *next;

	for (event = TAILQ_FIRST(&channel_of(channel)->events); event; event = next) {
		next = TAILQ_NEXT(event, link);
		if (event->cq != cq)
			continue;
		TAILQ_REMOVE(&channel_of(channel)->events, event, link);
		fake_fd_take(channel->fd);
		free(event);
	}
}

static void cqe_free(struct fake_cq *cq, struct cqe *cqe)
{
	TAILQ_REMOVE(&cq->cqes, cqe, link);
	cq->count--;
	free(cqe);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fake_cq *it = cq_of(cq);

	if (it->users)
		fail_msg("ibv_destroy_cq: EBUSY, %u queue pairs use it", it->users);
	if (it->unacked || it->unacked_async)
		fail_msg("ibv_destroy_cq: waits for ever for %u unacknowledged events",
			 it->unacked + it->unacked_async);
	while (!TAILQ_EMPTY(&it->cqes))
		cqe_free(it, TAILQ_FIRST(&it->cqes));
	if (cq->channel) {
		channel_forget(cq->channel, cq);
		channel_of(cq->channel)->users--;
	}
	TAILQ_REMOVE(&world.cqs, it, link);
	fake_count(FAKE_CQ, -1);
	free(it);
	return 0;
}

int ibv_resize_cq(struct ibv_cq *cq, int entries)
{
	(void)cq;
	(void)entries;
	return ENOSYS; /* as on siw */
}

static void cq_notify(struct fake_cq *cq, bool solicited)
{
	struct channel_event *event;

	if (!cq->armed || (cq->armed_solicited && !solicited) || !cq->cq.channel)
		return;
	cq->armed = false;
	event = object(sizeof(*event));
	event->cq = &cq->cq;
	TAILQ_INSERT_TAIL(&channel_of(cq->cq.channel)->events, event, link);
	fake_fd_add(cq->cq.channel->fd);
}

static void complete(struct ibv_cq *ibv_cq, struct fake_qp *qp, uint64_t wr_id,
		     enum ibv_wc_status status, enum ibv_wc_opcode opcode, uint32_t bytes,
		     uint64_t retires, bool solicited)
{
	struct fake_cq *cq = cq_of(ibv_cq);
	struct cqe *cqe = object(sizeof(*cqe));

	if (cq->count == (unsigned)cq->cq.cqe)
		fail_msg("the completion queue of %d entries has overrun", cq->cq.cqe);
	cqe->wc.wr_id = wr_id;
	cqe->wc.status = status;
	/* of a failed one only wr_id, status, qp_num and vendor_err are valid */
	cqe->wc.opcode = status == IBV_WC_SUCCESS ? opcode : (enum ibv_wc_opcode)0x5a5a;
	cqe->wc.byte_len = status == IBV_WC_SUCCESS ? bytes : 0xdeadbeef;
	cqe->wc.qp_num = qp->qp.qp_num;
	cqe->wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x81;
	cqe->qp = qp;
	cqe->retires = retires;
	TAILQ_INSERT_TAIL(&cq->cqes, cqe, link);
	cq->count++;
	cq_notify(cq, solicited || status != IBV_WC_SUCCESS);
}

static int poll_cq(struct ibv_cq *ibv_cq, int max, struct ibv_wc *ret)
{
	struct fake_cq *cq = cq_of(ibv_cq);
	struct fake_qp *qp, *next;
	int n = 0;

	fake.cq_polls++;
	if (fake_refuses("ibv_poll_cq"))
		return -1;
	for (qp = TAILQ_FIRST(&world.qps); qp && !fake.hold; qp = next) {
		next = TAILQ_NEXT(qp, link);
		if (qp->qp.send_cq == ibv_cq)
			fake_run(&qp->qp, UINT32_MAX);
	}
	while (n < max && !TAILQ_EMPTY(&cq->cqes)) {
		struct cqe *cqe = TAILQ_FIRST(&cq->cqes);

		ret[n++] = cqe->wc;
		if (cqe->retires > cqe->qp->retired)
			cqe->qp->retired = cqe->retires;
		cqe_free(cq, cqe);
	}
	return n;
}

static int req_notify_cq(struct ibv_cq *ibv_cq, int solicited_only)
{
	struct fake_cq *cq = cq_of(ibv_cq);

	if (fake_refuses("ibv_req_notify_cq"))
		return errno;
	if (!ibv_cq->channel)
		fail_msg("ibv_req_notify_cq: no channel");
	if (fake.arming)
		fake.arming(ibv_cq);
	cq->armed_solicited = solicited_only && (!cq->armed || cq->armed_solicited);
	cq->armed = true;
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context)
{
	struct channel_event *event = TAILQ_FIRST(&channel_of(channel)->events);

	if (!event) {
		if (!fake_fd_nonblocking(channel->fd))
			fail_msg("ibv_get_cq_event: blocks for ever");
		errno = EAGAIN;
		return -1;
	}
	if (fake_refuses("ibv_get_cq_event"))
		return -1;
	TAILQ_REMOVE(&channel_of(channel)->events, event, link);
	fake_fd_take(channel->fd);
	*ret_cq = event->cq;
	*ret_context = event->cq->cq_context;
	cq_of(event->cq)->unacked++;
	fake_count(FAKE_CQ_EVENT, 1);
	free(event);
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	if (n > cq_of(cq)->unacked)
		fail_msg("ibv_ack_cq_events: %u acknowledged, %u got", n, cq_of(cq)->unacked);
	cq_of(cq)->unacked -= n;
	fake_count(FAKE_CQ_EVENT, -(int)n);
}

/* ---- receive buffers ---- */

static void recvs_free(struct recvs *recvs)
{
	struct recv *recv;

	while ((recv = TAILQ_FIRST(recvs))) {
		TAILQ_REMOVE(recvs, recv, link);
		free(recv);
	}
}

static void recv_add(struct recvs *recvs, const struct ibv_recv_wr *wr)
{
	struct recv *recv = object(sizeof(*recv));

	assert_in_range(wr->num_sge, 0, SGES_MAX);
	recv->wr_id = wr->wr_id;
	recv->sge_count = wr->num_sge;
	if (wr->num_sge)
		memcpy(recv->sges, wr->sg_list, (unsigned)wr->num_sge * sizeof(*wr->sg_list));
	TAILQ_INSERT_TAIL(recvs, recv, link);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct fake_srq *srq;

	if (fake_refuses("ibv_create_srq"))
		return NULL;
	if (device_of(pd->context)->no_srq) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->attr.max_wr > (unsigned)device_of(pd->context)->attr.max_srq_wr) {
		errno = EINVAL;
		return NULL;
	}
	srq = object(sizeof(*srq));
	srq->srq.context = pd->context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = pd;
	srq->max = attr->attr.max_wr;
	TAILQ_INIT(&srq->recvs);
	pd_of(pd)->users++;
	fake_count(FAKE_SRQ, 1);
	return &srq->srq;
}

static struct fake_srq *srq_of(struct ibv_srq *srq)
{
	return OBJECT(srq, struct fake_srq, srq);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct fake_srq *it = srq_of(srq);

	if (it->users)
		fail_msg("ibv_destroy_srq: EBUSY, %u queue pairs use it", it->users);
	if (it->unacked_async)
		fail_msg("ibv_destroy_srq: waits for ever for an unacknowledged event");
	recvs_free(&it->recvs);
	pd_of(srq->pd)->users--;
	fake_count(FAKE_SRQ, -1);
	free(it);
	return 0;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	(void)srq;
	(void)attr;
	(void)mask;
	return fake_refuses("ibv_modify_srq") ? errno : 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->max_wr = srq_of(srq)->max;
	ret->max_sge = 1;
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
	for (; wr; wr = wr->next) {
		if (fake_refuses("ibv_post_srq_recv")) {
			*ret_bad = wr;
			return errno;
		}
		if (srq_of(srq)->count == srq_of(srq)->max) {
			*ret_bad = wr;
			return ENOMEM;
		}
		srq_of(srq)->count++;
		recv_add(&srq_of(srq)->recvs, wr);
	}
	return 0;
}

/* ---- queue pairs ---- */

static struct fake_qp *qp_of(const struct ibv_qp *qp)
{
	return OBJECT(qp, struct fake_qp, qp);
}

struct ibv_qp *fake_qp(uint32_t qp_num)
{
	struct fake_qp *qp;

	TAILQ_FOREACH (qp, &world.qps, link)
		if (qp->qp.qp_num == qp_num)
			return &qp->qp;
	return NULL;
}

struct ibv_qp *fake_nth_qp(unsigned n)
{
	struct fake_qp *qp;

	TAILQ_FOREACH (qp, &world.qps, link)
		if (n-- == 0)
			return &qp->qp;
	return NULL;
}

enum ibv_qp_state fake_qp_state(const struct ibv_qp *qp)
{
	return qp_of(qp)->attr.qp_state;
}

unsigned fake_qp_access(const struct ibv_qp *qp)
{
	return qp_of(qp)->attr.qp_access_flags;
}

const struct ibv_qp_attr *fake_qp_attr(const struct ibv_qp *qp)
{
	return &qp_of(qp)->attr;
}

const struct ibv_qp_init_attr *fake_qp_init(const struct ibv_qp *qp)
{
	return &qp_of(qp)->init;
}

static bool caps_fit(const struct fake_device *device, struct ibv_qp_cap *cap)
{
	return cap->max_send_wr <= (unsigned)device->attr.max_qp_wr &&
	       cap->max_recv_wr <= (unsigned)device->attr.max_qp_wr &&
	       cap->max_send_sge <= SGES_MAX && cap->max_recv_sge <= SGES_MAX &&
	       cap->max_inline_data <= device->max_inline;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct fake_device *device = device_of(pd->context);
	struct fake_qp *qp;

	if (fake_refuses("ibv_create_qp"))
		return NULL;
	assert_int_equal(init->qp_type, IBV_QPT_RC);
	assert_int_equal(init->sq_sig_all, 0);
	assert_non_null(init->send_cq);
	assert_non_null(init->recv_cq);
	if (!caps_fit(device, &init->cap)) {
		errno = EINVAL;
		return NULL;
	}
	if (init->srq && pd_real(init->srq->pd) != pd_real(pd))
		fail_msg("ibv_create_qp: the SRQ is of another protection domain");
	qp = object(sizeof(*qp));
	qp->init = *init;
	qp->attr.qp_state = IBV_QPS_RESET;
	qp->qp.context = pd->context;
	qp->qp.qp_context = init->qp_context;
	qp->qp.pd = pd;
	qp->qp.send_cq = init->send_cq;
	qp->qp.recv_cq = init->recv_cq;
	qp->qp.srq = init->srq;
	qp->qp.qp_type = init->qp_type;
	qp->qp.state = IBV_QPS_RESET;
	qp->qp.qp_num = ++world.next_qp_num;
	qp->slots = object((init->cap.max_send_wr + 1) * sizeof(*qp->slots));
	TAILQ_INIT(&qp->recvs);
	TAILQ_INSERT_TAIL(&world.qps, qp, link);
	pd_of(pd)->users++;
	cq_of(init->send_cq)->users++;
	cq_of(init->recv_cq)->users++;
	if (init->srq)
		srq_of(init->srq)->users++;
	fake_count(FAKE_QP, 1);
	return &qp->qp;
}

static void cq_forget(struct fake_cq *cq, const struct fake_qp *qp)
{
	struct cqe *cqe, *next;

	for (cqe = TAILQ_FIRST(&cq->cqes); cqe; cqe = next) {
		next = TAILQ_NEXT(cqe, link);
		if (cqe->qp == qp)
			cqe_free(cq, cqe);
	}
}

static void async_forget(unsigned device, const void *element)
{
	struct async *async, *next;

	for (async = TAILQ_FIRST(&world.asyncs[device]); async; async = next) {
		next = TAILQ_NEXT(async, link);
		if (async->event.element.qp != element)
			continue;
		TAILQ_REMOVE(&world.asyncs[device], async, link);
		fake_fd_take(fake.devices[device].verbs.context.async_fd);
		free(async);
	}
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct fake_qp *it = qp_of(qp);

	if (it->unacked_async)
		fail_msg("ibv_destroy_qp: waits for ever for an unacknowledged event");
	cq_forget(cq_of(qp->send_cq), it);
	cq_forget(cq_of(qp->recv_cq), it);
	async_forget((unsigned)(device_of(qp->context) - fake.devices), qp);
	recvs_free(&it->recvs);
	pd_of(qp->pd)->users--;
	cq_of(qp->send_cq)->users--;
	cq_of(qp->recv_cq)->users--;
	if (qp->srq)
		srq_of(qp->srq)->users--;
	TAILQ_REMOVE(&world.qps, it, link);
	fake_count(FAKE_QP, -1);
	free(it->slots);
	free(it);
	return 0;
}

static unsigned carry_out_up_to(struct fake_qp *qp, unsigned max);

static void flush(struct fake_qp *qp)
{
	struct recv *recv;

	if (qp->running)
		return;
	carry_out_up_to(qp, UINT32_MAX);
	while ((recv = TAILQ_FIRST(&qp->recvs))) {
		TAILQ_REMOVE(&qp->recvs, recv, link);
		qp->recv_count--;
		complete(qp->qp.recv_cq, qp, recv->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0, 0,
			 true);
		free(recv);
	}
}

void fake_break(struct ibv_qp *qp)
{
	qp_of(qp)->attr.qp_state = qp->state = IBV_QPS_ERR;
	flush(qp_of(qp));
}

void fake_qp_kernel(uint32_t qp_num, enum ibv_qp_state state)
{
	struct ibv_qp *qp = fake_qp(qp_num);

	if (!qp)
		return;
	if (state == IBV_QPS_ERR) {
		fake_break(qp);
	} else {
		qp_of(qp)->attr.qp_state = qp->state = state;
		qp_of(qp)->attr.max_rd_atomic = qp_of(qp)->attr.max_dest_rd_atomic = 16;
	}
}

/* The attributes that a transition must have, on InfiniBand and RoCE. */
static int needs(enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	return IBV_QP_STATE;
}

static bool may_go(enum ibv_qp_state from, enum ibv_qp_state to)
{
	return to == IBV_QPS_ERR || to == IBV_QPS_RESET || from == to ||
	       (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
	       (from == IBV_QPS_INIT && to == IBV_QPS_RTR) ||
	       (from == IBV_QPS_RTR && to == IBV_QPS_RTS) ||
	       (from == IBV_QPS_RTS && to == IBV_QPS_SQD) ||
	       (from == IBV_QPS_SQD && to == IBV_QPS_RTS);
}

static void attr_take(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define TAKE(bit, member) \
	if (mask & (bit)) \
	to->member = from->member
	TAKE(IBV_QP_STATE, qp_state);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
#undef TAKE
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *it = qp_of(qp);
	enum ibv_qp_state from = it->attr.qp_state,
			  to = mask & IBV_QP_STATE ? attr->qp_state : from;
	bool iwarp = device_of(qp->context)->device.transport_type == IBV_TRANSPORT_IWARP;

	if (fake_refuses("ibv_modify_qp"))
		return errno;
	if (!may_go(from, to)) {
		print_error("ibv_modify_qp: from state %d to %d\n", from, to);
		return EINVAL;
	}
	if (from != to && to != IBV_QPS_ERR && !iwarp && (needs(from, to) & ~mask)) {
		print_error("ibv_modify_qp: state %d to %d lacks attributes %x\n", from, to,
			    needs(from, to) & ~mask);
		return EINVAL;
	}
	if ((mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
	    (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7) ||
	    (mask & IBV_QP_TIMEOUT && attr->timeout > 31))
		return EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC &&
	     attr->max_rd_atomic > device_of(qp->context)->attr.max_qp_init_rd_atom) ||
	    (mask & IBV_QP_MAX_DEST_RD_ATOMIC &&
	     attr->max_dest_rd_atomic > device_of(qp->context)->attr.max_qp_rd_atom))
		return EINVAL;
	attr_take(&it->attr, attr, mask);
	qp->state = it->attr.qp_state;
	if (to == IBV_QPS_ERR)
		flush(it);
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *ret, int mask,
		 struct ibv_qp_init_attr *ret_init)
{
	(void)mask;
	if (fake_refuses("ibv_query_qp"))
		return errno;
	*ret = qp_of(qp)->attr;
	*ret_init = qp_of(qp)->init;
	return 0;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags)
{
	(void)qp;
	(void)opcode;
	(void)flags;
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
	struct fake_qp *it = qp_of(qp);

	for (; wr; wr = wr->next) {
		*ret_bad = wr;
		if (fake_refuses("ibv_post_recv"))
			return errno;
		if (qp->srq || it->attr.qp_state == IBV_QPS_RESET)
			return EINVAL;
		if (it->recv_count == it->init.cap.max_recv_wr)
			return ENOMEM;
		it->recv_count++;
		recv_add(&it->recvs, wr);
	}
	if (it->attr.qp_state == IBV_QPS_ERR)
		flush(it);
	return 0;
}

/* ---- posting ---- */

static uint32_t sges_bytes(const struct ibv_sge *sges, int count)
{
	uint32_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += sges[i].length;
	return bytes;
}

static void log_wr(struct fake_qp *qp, struct slot *slot)
{
	const struct ibv_send_wr *wr = &slot->wr;
	bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		      wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	if (fake.wr_count == fake.wr_capacity) {
		fake.wr_capacity = fake.wr_capacity ? 2 * fake.wr_capacity : 256;
		fake.wrs = realloc(fake.wrs, fake.wr_capacity * sizeof(*fake.wrs));
		assert_non_null(fake.wrs);
	}
	slot->log = fake.wr_count;
	fake.wrs[fake.wr_count++] = (struct fake_wr){
		.qp_num = qp->qp.qp_num,
		.post = fake.posts,
		.opcode = wr->opcode,
		.flags = wr->send_flags,
		.remote = atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr,
		.rkey = atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey,
		.length = sges_bytes(slot->sges, wr->num_sge),
		.compare_add = atomic ? wr->wr.atomic.compare_add : 0,
		.swap = atomic ? wr->wr.atomic.swap : 0,
	};
}

/* What a provider looks at before it takes a request; 0 or errno. */
static int wr_check(const struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	bool iwarp = device_of(qp->qp.context)->device.transport_type == IBV_TRANSPORT_IWARP;
	bool may_inline = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_SEND;

	if (qp->attr.qp_state != IBV_QPS_RTS && qp->attr.qp_state != IBV_QPS_ERR)
		return EINVAL;
	if (wr->num_sge < 0 || (unsigned)wr->num_sge > qp->init.cap.max_send_sge)
		return EINVAL;
	if (qp->posted - qp->retired == qp->init.cap.max_send_wr)
		return ENOMEM;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    (!may_inline || sges_bytes(wr->sg_list, wr->num_sge) > qp->init.cap.max_inline_data))
		return EINVAL;
	switch ((int)wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
	case IBV_WR_SEND:
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return iwarp || wr->num_sge != 1 || wr->sg_list[0].length != 8 ? EINVAL : 0;
	default:
		break;
	}
	fail_msg("ibv_post_send: opcode %d", wr->opcode);
	return EINVAL;
}

static void wr_take(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct slot *slot = &qp->slots[qp->posted % qp->init.cap.max_send_wr];
	uint32_t at = 0;

	slot->wr = *wr;
	if (wr->num_sge)
		memcpy(slot->sges, wr->sg_list, (unsigned)wr->num_sge * sizeof(*wr->sg_list));
	for (int i = 0; wr->send_flags & IBV_SEND_INLINE && i < wr->num_sge; i++) {
		memcpy(slot->bytes + at, (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		at += wr->sg_list[i].length;
	}
	log_wr(qp, slot);
	qp->posted++;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	struct fake_device *device = device_of(qp->context);
	int rc = 0;

	fake.posts++;
	if (fake_refuses("ibv_post_send")) {
		*ret_bad = wr;
		return device->negative_errno ? -errno : errno;
	}
	for (; wr; wr = wr->next) {
		rc = wr_check(qp_of(qp), wr);
		if (rc) {
			*ret_bad = wr;
			break;
		}
		wr_take(qp_of(qp), wr);
	}
	if (qp_of(qp)->attr.qp_state == IBV_QPS_ERR)
		flush(qp_of(qp));
	return device->negative_errno ? -rc : rc;
}

/* ---- carrying out ---- */

unsigned fake_queued(const struct ibv_qp *qp)
{
	return (unsigned)(qp_of(qp)->posted - qp_of(qp)->done);
}

/* The memory behind a local key; NULL: protection error. */
static void *local_memory(const struct fake_qp *qp, const struct ibv_sge *sge, bool write)
{
	struct fake_mr *mr;

	TAILQ_FOREACH (mr, &world.mrs, link) {
		if (mr->remote || mr->mr.lkey != sge->lkey ||
		    pd_real(mr->mr.pd) != pd_real(qp->qp.pd))
			continue;
		if ((write && !(mr->access & IBV_ACCESS_LOCAL_WRITE)) || sge->addr < mr->address ||
		    sge->addr - mr->address > mr->bytes ||
		    sge->length > mr->bytes - (sge->addr - mr->address))
			return NULL;
		return mr->memory + (sge->addr - mr->address);
	}
	return NULL;
}

static enum ibv_wc_status remote_memory(const struct fake_qp *qp, uint32_t rkey, uint64_t address,
					uint32_t bytes, unsigned access, uint8_t **ret)
{
	struct ibv_qp *peer = qp->attr.dest_qp_num ? fake_qp(qp->attr.dest_qp_num) : NULL;
	struct fake_mr *mr;

	if (peer && !(qp_of(peer)->attr.qp_access_flags & access))
		return IBV_WC_REM_INV_REQ_ERR;
	if (access == IBV_ACCESS_REMOTE_ATOMIC && address % 8)
		return IBV_WC_REM_INV_REQ_ERR;
	TAILQ_FOREACH (mr, &world.mrs, link) {
		if (mr->mr.rkey != rkey ||
		    (peer && !mr->remote && pd_real(mr->mr.pd) != pd_real(peer->pd)))
			continue;
		if (!(mr->access & access) || address < mr->address ||
		    address - mr->address > mr->bytes ||
		    bytes > mr->bytes - (address - mr->address))
			break;
		*ret = mr->memory + (address - mr->address);
		return IBV_WC_SUCCESS;
	}
	return IBV_WC_REM_ACCESS_ERR;
}

/* Copies between the request's local pieces and `flat`. False: a local key is wrong. */
static bool gather(const struct fake_qp *qp, struct slot *slot, uint8_t *flat, bool to_local)
{
	uint32_t at = 0;

	if (slot->wr.send_flags & IBV_SEND_INLINE) {
		memcpy(flat, slot->bytes, sges_bytes(slot->sges, slot->wr.num_sge));
		return true;
	}
	for (int i = 0; i < slot->wr.num_sge; i++) {
		void *memory = local_memory(qp, &slot->sges[i], to_local);

		if (!memory)
			return false;
		if (to_local)
			memcpy(memory, flat + at, slot->sges[i].length);
		else
			memcpy(flat + at, memory, slot->sges[i].length);
		at += slot->sges[i].length;
	}
	return true;
}

static enum ibv_wc_status do_write(struct fake_qp *qp, struct slot *slot, uint32_t bytes)
{
	const struct ibv_send_wr *wr = &slot->wr;
	enum ibv_wc_status status;
	uint8_t *memory;

	if (bytes == 0) /* looks at no key */
		return IBV_WC_SUCCESS;
	status = remote_memory(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, bytes,
			       IBV_ACCESS_REMOTE_WRITE, &memory);
	if (status != IBV_WC_SUCCESS)
		return status;
	return gather(qp, slot, memory, false) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

static enum ibv_wc_status do_read(struct fake_qp *qp, struct slot *slot, uint32_t bytes)
{
	const struct ibv_send_wr *wr = &slot->wr;
	enum ibv_wc_status status;
	uint8_t *memory;

	if (!qp->attr.max_rd_atomic)
		fail_msg("a READ on a queue pair whose max_rd_atomic is 0 never ends");
	if (bytes == 0) /* looks at no key */
		return IBV_WC_SUCCESS;
	status = remote_memory(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, bytes,
			       IBV_ACCESS_REMOTE_READ, &memory);
	if (status != IBV_WC_SUCCESS)
		return status;
	return gather(qp, slot, memory, true) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

static enum ibv_wc_status do_atomic(struct fake_qp *qp, struct slot *slot)
{
	const struct ibv_send_wr *wr = &slot->wr;
	enum ibv_wc_status status;
	uint64_t before, after;
	uint8_t *memory;

	if (!qp->attr.max_rd_atomic)
		fail_msg("an atomic on a queue pair whose max_rd_atomic is 0 never ends");
	status = remote_memory(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, 8,
			       IBV_ACCESS_REMOTE_ATOMIC, &memory);
	if (status != IBV_WC_SUCCESS)
		return status;
	memcpy(&before, memory, 8);
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		after = before + wr->wr.atomic.compare_add;
	else
		after = before == wr->wr.atomic.compare_add ? wr->wr.atomic.swap : before;
	memcpy(memory, &after, 8);
	if (fake.atomics_mute)
		return IBV_WC_SUCCESS;
	return gather(qp, slot, (uint8_t *)&before, true) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

static enum ibv_wc_status do_send(struct fake_qp *qp, struct slot *slot, uint32_t bytes)
{
	uint8_t flat[INLINE_MAX];

	assert_in_range(bytes, 0, sizeof(flat));
	if (!gather(qp, slot, flat, false))
		return IBV_WC_LOC_PROT_ERR;
	if (fake.send)
		fake.send(&qp->qp, flat, bytes);
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status carry_out(struct fake_qp *qp, struct slot *slot)
{
	uint32_t bytes = sges_bytes(slot->sges, slot->wr.num_sge);

	if (qp->attr.qp_state == IBV_QPS_ERR)
		return IBV_WC_WR_FLUSH_ERR;
	if (fake.wc_error_at && --fake.wc_error_at == 0)
		return fake.wc_error;
	switch ((int)slot->wr.opcode) {
	case IBV_WR_RDMA_WRITE:
		return do_write(qp, slot, bytes);
	case IBV_WR_RDMA_READ:
		return do_read(qp, slot, bytes);
	case IBV_WR_SEND:
		return do_send(qp, slot, bytes);
	default:
		return do_atomic(qp, slot);
	}
}

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
	switch ((int)opcode) {
	case IBV_WR_RDMA_WRITE:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_SEND:
		return IBV_WC_SEND;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	default:
		return IBV_WC_FETCH_ADD;
	}
}

static unsigned carry_out_up_to(struct fake_qp *qp, unsigned max)
{
	unsigned n = 0;

	qp->running = true;
	for (; n < max && qp->done < qp->posted; n++) {
		struct slot *slot = &qp->slots[qp->done % qp->init.cap.max_send_wr];
		enum ibv_wc_status status = carry_out(qp, slot);

		qp->done++;
		fake.wrs[slot->log].status = status;
		fake.wrs[slot->log].done = true;
		if (status != IBV_WC_SUCCESS)
			qp->attr.qp_state = qp->qp.state = IBV_QPS_ERR;
		if (status != IBV_WC_SUCCESS || slot->wr.send_flags & IBV_SEND_SIGNALED)
			complete(qp->qp.send_cq, qp, slot->wr.wr_id, status,
				 wc_opcode(slot->wr.opcode),
				 sges_bytes(slot->sges, slot->wr.num_sge), qp->done, false);
	}
	qp->running = false;
	return n;
}

unsigned fake_run(struct ibv_qp *ibv_qp, unsigned max)
{
	struct fake_qp *qp = qp_of(ibv_qp);
	unsigned n;

	if (qp->running || (ibv_qp->qp_num == fake.hold_qp_num && ibv_qp->state != IBV_QPS_ERR))
		return 0;
	n = carry_out_up_to(qp, max);
	if (qp->attr.qp_state == IBV_QPS_ERR)
		flush(qp);
	return n;
}

bool fake_deliver(struct ibv_qp *ibv_qp, const void *bytes, uint32_t count)
{
	struct fake_qp *qp = qp_of(ibv_qp);
	struct recvs *recvs = ibv_qp->srq ? &srq_of(ibv_qp->srq)->recvs : &qp->recvs;
	struct recv *recv = TAILQ_FIRST(recvs);
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	if (qp->attr.qp_state != IBV_QPS_RTS && qp->attr.qp_state != IBV_QPS_RTR)
		return false;
	if (!recv) {
		if (fake.rnr_is_fatal)
			fail_msg("a message has met no receive buffer");
		return false;
	}
	TAILQ_REMOVE(recvs, recv, link);
	if (ibv_qp->srq)
		srq_of(ibv_qp->srq)->count--;
	else
		qp->recv_count--;
	if (count > sges_bytes(recv->sges, recv->sge_count)) {
		status = IBV_WC_LOC_LEN_ERR;
	} else if (count) {
		void *memory = local_memory(qp, &recv->sges[0], true);

		if (!memory)
			fail_msg("a receive buffer is not registered");
		memcpy(memory, bytes, count);
	}
	complete(ibv_qp->recv_cq, qp, recv->wr_id, status, IBV_WC_RECV, count, 0, true);
	free(recv);
	if (status != IBV_WC_SUCCESS)
		fake_break(ibv_qp);
	return true;
}

/* ---- asynchronous events ---- */

static unsigned *unacked_of(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &cq_of(event->element.cq)->unacked_async;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &qp_of(event->element.qp)->unacked_async;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &srq_of(event->element.srq)->unacked_async;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_WQ_FATAL:
		break;
	}
	return &world.unacked_device_events;
}

static void async_queue(unsigned device, const struct ibv_async_event *event)
{
	struct async *async = object(sizeof(*async));

	async->event = *event;
	TAILQ_INSERT_TAIL(&world.asyncs[device], async, link);
	fake_fd_add(fake.devices[device].verbs.context.async_fd);
}

void fake_async_port(unsigned device, enum ibv_event_type type, int port)
{
	async_queue(device,
		    &(struct ibv_async_event){.event_type = type, .element.port_num = port});
}

void fake_async(unsigned device, enum ibv_event_type type, void *element)
{
	if (element)
		async_queue(device,
			    &(struct ibv_async_event){.event_type = type, .element.qp = element});
	else
		fake_async_port(device, type, 1);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *ret)
{
	unsigned device = (unsigned)(device_of(context) - fake.devices);
	struct async *async = TAILQ_FIRST(&world.asyncs[device]);

	if (!async) {
		if (!fake_fd_nonblocking(context->async_fd))
			fail_msg("ibv_get_async_event: blocks for ever");
		errno = EAGAIN;
		return -1;
	}
	if (fake_refuses("ibv_get_async_event"))
		return -1;
	TAILQ_REMOVE(&world.asyncs[device], async, link);
	fake_fd_take(context->async_fd);
	*ret = async->event;
	++*unacked_of(ret);
	fake_count(FAKE_ASYNC_EVENT, 1);
	free(async);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (!*unacked_of(event))
		fail_msg("ibv_ack_async_event: acknowledged twice");
	--*unacked_of(event);
	fake_count(FAKE_ASYNC_EVENT, -1);
}

/* ---- begin and end ---- */

static void device_begin(unsigned n)
{
	struct fake_device *device = &fake.devices[n];
	struct ibv_context *context = &device->verbs.context;

	snprintf(device->device.name, sizeof(device->device.name), "fake%u", n);
	snprintf(device->device.dev_name, sizeof(device->device.dev_name), "uverbs%u", n);
	device->device.node_type = IBV_NODE_CA;
	device->device.transport_type = IBV_TRANSPORT_IB;
	device->verbs.sz = sizeof(device->verbs);
	device->verbs.query_port = query_port;
	device->verbs.alloc_td = alloc_td;
	device->verbs.dealloc_td = dealloc_td;
	device->verbs.alloc_parent_domain = alloc_parent_domain;
	context->device = &device->device;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->num_comp_vectors = 2;
	context->async_fd = fake_fd_new();
	context->cmd_fd = -1;
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
	device->attr = (struct ibv_device_attr){.max_mr_size = UINT64_MAX,
						.max_qp = 4096,
						.max_qp_wr = 4096,
						.max_sge = SGES_MAX,
						.max_sge_rd = SGES_MAX,
						.max_cq = 4096,
						.max_cqe = 65536,
						.max_mr = 4096,
						.max_pd = 4096,
						.max_qp_rd_atom = 16,
						.max_res_rd_atom = 65536,
						.max_qp_init_rd_atom = 16,
						.atomic_cap = IBV_ATOMIC_HCA,
						.max_srq = 4096,
						.max_srq_wr = 16384,
						.max_srq_sge = SGES_MAX,
						.max_pkeys = 1,
						.phys_port_cnt = 1};
	device->port = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
					      .max_mtu = IBV_MTU_4096,
					      .active_mtu = IBV_MTU_1024,
					      .gid_tbl_len = 3,
					      .pkey_tbl_len = 1,
					      .max_msg_sz = 1u << 30,
					      .phys_state = 5,
					      .link_layer = IBV_LINK_LAYER_ETHERNET};
	device->max_inline = 512;
	TAILQ_INIT(&world.asyncs[n]);
}

void fake_iwarp(struct fake_device *device)
{
	device->device.node_type = IBV_NODE_RNIC;
	device->device.transport_type = IBV_TRANSPORT_IWARP;
	device->attr.atomic_cap = IBV_ATOMIC_NONE;
	device->no_td = true;
	device->no_dmabuf = true;
	device->negative_errno = true;
	device->max_inline = 80;
}

void fake_begin(void)
{
	memset(&fake, 0, sizeof(fake));
	memset(&world, 0, sizeof(world));
	fake_rdmacm_end(); /* what a test that has failed has left */
	TAILQ_INIT(&world.mrs);
	TAILQ_INIT(&world.qps);
	TAILQ_INIT(&world.cqs);
	world.next_key = 0x1000;
	world.next_qp_num = 0x10;
	for (unsigned i = 0; i < FAKE_DEVICES; i++)
		device_begin(i);
	fake.device_count = 1;
	fake.fail_errno = EIO;
	fake.on_resolve_addr.event = RDMA_CM_EVENT_ADDR_RESOLVED;
	fake.on_resolve_route.event = RDMA_CM_EVENT_ROUTE_RESOLVED;
	fake.on_connect.event = RDMA_CM_EVENT_CONNECT_RESPONSE;
	fake.on_establish.silent = true; /* the kernel reports nothing to the active side */
	fake.on_accept.event = RDMA_CM_EVENT_ESTABLISHED;
	fake.on_disconnect.event = RDMA_CM_EVENT_DISCONNECTED;
	fake.request_param.initiator_depth = fake.request_param.responder_resources = 16;
	fake.rnr_is_fatal = true;
	fake.tick_ns = 1000;
	fake.now_ns = 1000000000000;
	fake.wall_ms = 1700000000000;
}

const char *fake_kind_name(enum fake_kind kind)
{
	switch (kind) {
	case FAKE_CONTEXT:
		return "opened device";
	case FAKE_DEVICE_LIST:
		return "list of devices";
	case FAKE_PD:
		return "protection domain";
	case FAKE_PARENT_PD:
		return "parent domain";
	case FAKE_TD:
		return "thread domain";
	case FAKE_MR:
		return "memory region";
	case FAKE_COMP_CHANNEL:
		return "completion channel";
	case FAKE_CQ:
		return "completion queue";
	case FAKE_QP:
		return "queue pair";
	case FAKE_SRQ:
		return "shared receive queue";
	case FAKE_EVENT_CHANNEL:
		return "event channel";
	case FAKE_ID:
		return "rdma_cm_id";
	case FAKE_CM_EVENT:
		return "unacknowledged connection event";
	case FAKE_CQ_EVENT:
		return "unacknowledged completion event";
	case FAKE_ASYNC_EVENT:
		return "unacknowledged asynchronous event";
	case FAKE_ADDRINFO:
		return "rdma_addrinfo";
	case FAKE_EVENT:
		return "event of libevent";
	case FAKE_THREAD:
		return "thread";
	case FAKE_KINDS:
		break;
	}
	return "?";
}

void fake_nothing_left(const char *what)
{
	for (int kind = 0; kind < FAKE_KINDS; kind++)
		if (fake.live[kind])
			fail_msg("%s: %ld left: %s", what, fake.live[kind],
				 fake_kind_name((enum fake_kind)kind));
}

void fake_end(void)
{
	struct fake_mr *mr;

	fake_nothing_left("at the end");
	while ((mr = TAILQ_FIRST(&world.mrs))) {
		TAILQ_REMOVE(&world.mrs, mr, link);
		free(mr);
	}
	for (unsigned i = 0; i < FAKE_DEVICES; i++) {
		struct async *async;

		while ((async = TAILQ_FIRST(&world.asyncs[i]))) {
			TAILQ_REMOVE(&world.asyncs[i], async, link);
			free(async);
		}
		close(fake.devices[i].verbs.context.async_fd);
	}
	fake_rdmacm_end();
	free(fake.wrs);
	fake.wrs = NULL;
}
