/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses of this host that belong to RDMA devices: which one a listener means, and why one can
 * not be listened on; see rdma-address.h. Main thread; nothing is sent. listen-verbs.c is the caller
 * and the next file to read.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "err.h"
#include "rdma-address.h"

/* What rdma_cm says of an address: an id that is bound to it, with a device, or NULL and errno. */
struct rdma_cm_id *rdma_address_bind(struct rdma *rdma, const struct sockaddr *address)
{
	struct sockaddr_storage copy = {0};
	struct rdma_cm_id *id;
	int error;

	memcpy(&copy, address,
	       address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in));
	if (rdma_create_id(rdma->channel, &id, NULL, RDMA_PS_TCP) != 0)
		return NULL;
	if (rdma_bind_addr(id, (struct sockaddr *)&copy) == 0) {
		if (id->verbs)
			return id;
		errno = ENODEV;
	}
	error = errno;
	(void)rdma_destroy_id(id);
	errno = error;
	return NULL;
}

void rdma_address_set_port(struct sockaddr_storage *address, uint16_t port)
{
	if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
}

/* How much we like an address of a device that was asked for by name; 0: it is none. */
static int rank(const struct ifaddrs *at)
{
	const struct sockaddr *address = at->ifa_addr;

	if (!address || (at->ifa_flags & IFF_LOOPBACK))
		return 0;
	if (address->sa_family == AF_INET)
		return 3;
	if (address->sa_family != AF_INET6)
		return 0;
	return IN6_IS_ADDR_LINKLOCAL(
		       &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr)
		       ? 1
		       : 2;
}

static void sockaddr_copy(const struct sockaddr *from, struct sockaddr_storage *ret_to)
{
	memset(ret_to, 0, sizeof(*ret_to));
	memcpy(ret_to, from,
	       from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					   : sizeof(struct sockaddr_in));
}

/*
 * Goes through the addresses of this host that belong to RDMA devices. With `device` the best one
 * of that device is returned in *ret_address; the list, "10.0.0.1 (mlx5_0), ...", in any case.
 */
static bool addresses(struct rdma *rdma, const char *device, struct sockaddr_storage *ret_address,
		      char *list, size_t bytes)
{
	struct ifaddrs *all = NULL, *at;
	size_t used = 0;
	int best = 0;

	snprintf(list, bytes, "none");
	if (getifaddrs(&all) < 0)
		return false;
	for (at = all; at; at = at->ifa_next) {
		char text[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE] = "";
		struct sockaddr_storage address;
		struct rdma_cm_id *id;
		const char *name;

		if (rank(at) == 0)
			continue;
		sockaddr_copy(at->ifa_addr, &address);
		rdma_address_set_port(&address, 0);
		id = rdma_address_bind(rdma, (const struct sockaddr *)&address);
		if (!id)
			continue;
		name = ibv_get_device_name(id->verbs->device);
		inet_ntop(
			address.ss_family,
			address.ss_family == AF_INET6
				? (const void *)&((struct sockaddr_in6 *)(void *)&address)
					  ->sin6_addr
				: (const void *)&((struct sockaddr_in *)(void *)&address)->sin_addr,
			text, INET6_ADDRSTRLEN);
		if (rank(at) == 1)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%%%s",
				 at->ifa_name);
		if (used < bytes)
			used += (size_t)snprintf(list + used, bytes - used, "%s%s (%s)",
						 used ? ", " : "", text, name);
		if (device && strcmp(name, device) == 0 && rank(at) > best) {
			best = rank(at);
			*ret_address = address;
		}
		(void)rdma_destroy_id(id);
	}
	freeifaddrs(all);
	return best > 0;
}

static bool is_wildcard(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(
			&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
	return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr == 0;
}

/* The address that the configuration means; the device's best one when it names a device. */
int rdma_address_find(struct rdma *rdma, const struct config_listen *config,
		      struct sockaddr_storage *ret_address)
{
	struct config_address parsed;
	char list[256];
	int rc;

	if (config->device.text[0]) {
		if (!addresses(rdma, config->device.text, ret_address, list, sizeof(list)))
			return err_set(
				-ENODEV,
				"device = %s: there is no such RDMA device with an address; "
				"addresses of RDMA devices here: %s; `rdma link` lists "
				"devices, give its network interface an address (`ip address "
				"add`) and set it up",
				config->device.text, list);
		rdma_address_set_port(ret_address, config_listen_port(config));
		return 0;
	}
	rc = config_address_parse(config->address.text, &parsed);
	if (rc == 0)
		rc = config_address_socket(&parsed, config_listen_port(config), ret_address);
	if (rc < 0 || !is_wildcard(ret_address))
		return rc;
	(void)addresses(rdma, NULL, NULL, list, sizeof(list));
	return err_set(-EINVAL,
		       "address = %s: an RDMA listener needs the address of one device, since "
		       "memory is registered with that; there are: %s",
		       config->address.text, list);
}

int rdma_address_failed(struct rdma *rdma, const struct sockaddr_storage *address, int error)
{
	char text[RDMA_ADDRESS_TEXT], list[256];

	rdma_address_text((const struct sockaddr *)address, text, sizeof(text));
	if (error == EADDRINUSE)
		return err_set(-error,
			       "%s is taken: another program, or another [listen] section, "
			       "listens there for RDMA (`rdma resource show cm_id` says who): stop "
			       "it, or choose another port",
			       text);
	if (error == EACCES || error == EPERM)
		return err_set(-error,
			       "%s: no permission to use RDMA there: ports below 1024 need root, "
			       "devices access to /dev/infiniband (group rdma)",
			       text);
	if (error != EADDRNOTAVAIL && error != ENODEV)
		return err_set(-error, "%s: it can not be listened on: %s", text,
			       strerrordesc_np(error));
	(void)addresses(rdma, NULL, NULL, list, sizeof(list));
	return err_set(-error,
		       "%s is no address of an RDMA device of this host; there are: %s (an "
		       "interface that is down has none; `rdma link`, `ip address`)",
		       text, list);
}
