/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor-read.c - what `tarn doctor` asks the machine: files beneath a root, and what is in no file
 *
 * With a root that is not "" only the tree beneath it is read. Reading changes nothing; device
 * files are opened and closed again, which is the only sure way to learn whether a container or
 * systemd lets us. The command's thread. Next to read: doctor-device.c.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"
#include "port-counters.h"

#define PATH_BYTES 512

static int path_of(const struct doctor *doctor, char ret_path[PATH_BYTES], const char *format,
		   va_list args)
{
	int used = snprintf(ret_path, PATH_BYTES, "%s", doctor->root), n;

	if (used >= PATH_BYTES)
		return -ENAMETOOLONG;
	n = vsnprintf(ret_path + used, (size_t)(PATH_BYTES - used), format, args);
	return n < 0 || n >= PATH_BYTES - used ? -ENAMETOOLONG : 0;
}

int doctor_read(const struct doctor *doctor, char ret_text[DOCTOR_LINE], const char *format, ...)
{
	char path[PATH_BYTES];
	va_list args;
	int status;

	va_start(args, format);
	status = path_of(doctor, path, format, args);
	va_end(args);
	return status < 0 ? status : port_file_read(path, ret_text, DOCTOR_LINE);
}

int doctor_number(const struct doctor *doctor, uint64_t *ret_number, const char *format, ...)
{
	char path[PATH_BYTES];
	va_list args;
	int status;

	va_start(args, format);
	status = path_of(doctor, path, format, args);
	va_end(args);
	return status < 0 ? status : port_file_number(path, ret_number);
}

bool doctor_exists(const struct doctor *doctor, const char *format, ...)
{
	char path[PATH_BYTES];
	struct stat st;
	va_list args;
	int status;

	va_start(args, format);
	status = path_of(doctor, path, format, args);
	va_end(args);
	return status == 0 && stat(path, &st) == 0;
}

/* ---- directories ----------------------------------------------------------------------------- */

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

struct doctor_names doctor_list(struct doctor *doctor, const char *format, ...)
{
	struct doctor_names names = {0};
	struct dirent **entries;
	char path[PATH_BYTES];
	va_list args;
	int status, n;

	va_start(args, format);
	status = path_of(doctor, path, format, args);
	va_end(args);
	n = status < 0 ? -1 : scandir(path, &entries, visible, versionsort);
	if (n < 0)
		return names;
	names.names = calloc((size_t)n + 1, sizeof(*names.names));
	for (int i = 0; i < n; i++) {
		char *name = names.names != NULL ? strdup(entries[i]->d_name) : NULL;

		if (name != NULL)
			names.names[names.count++] = name;
		else
			doctor->failed = true;
		free(entries[i]);
	}
	free(entries);
	return names;
}

void doctor_names_free(struct doctor_names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->names[i]);
	free(names->names);
	*names = (struct doctor_names){0};
}

/* ---- the real machine ------------------------------------------------------------------------ */

static int host_open(struct doctor *doctor, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	(void)doctor;
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void fill_caps(struct ibv_context *context, unsigned port, struct doctor_caps *caps)
{
	static const int mtus[] = {0, 256, 512, 1024, 2048, 4096};
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;

	if (ibv_query_device(context, &attr) == 0) {
		caps->atomic_cap = attr.atomic_cap;
		caps->max_qp_rd_atom = attr.max_qp_rd_atom;
		caps->max_qp_init_rd_atom = attr.max_qp_init_rd_atom;
		caps->max_qp = attr.max_qp;
		caps->max_cq = attr.max_cq;
		caps->max_mr = attr.max_mr;
		caps->max_srq = attr.max_srq;
		caps->max_qp_wr = attr.max_qp_wr;
		caps->max_mr_size = attr.max_mr_size;
		snprintf(caps->firmware, sizeof(caps->firmware), "%.63s", attr.fw_ver);
	}
	if (ibv_query_port(context, (uint8_t)port, &port_attr) == 0) {
		caps->active_mtu = (unsigned)port_attr.active_mtu <= IBV_MTU_4096
					   ? mtus[port_attr.active_mtu]
					   : 0;
		caps->max_mtu =
			(unsigned)port_attr.max_mtu <= IBV_MTU_4096 ? mtus[port_attr.max_mtu] : 0;
	}
}

static int host_caps(struct doctor *doctor, const char *device, unsigned port,
		     struct doctor_caps *ret_caps)
{
	struct doctor_caps caps = {0};
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	int status = -ENODEV;

	(void)doctor;
	list = ibv_get_device_list(NULL);
	if (list == NULL)
		return -errno;
	for (int i = 0; list[i] != NULL; i++) {
		if (strcmp(ibv_get_device_name(list[i]), device) != 0)
			continue;
		context = ibv_open_device(list[i]);
		status = context != NULL ? 0 : errno != 0 ? -errno : -EIO;
		break;
	}
	if (status == 0) {
		fill_caps(context, port, &caps);
		ibv_close_device(context);
		*ret_caps = caps;
	}
	ibv_free_device_list(list);
	return status;
}

static bool take_address(const struct ifaddrs *entry, struct doctor_address *ret_address)
{
	if (entry->ifa_addr == NULL)
		return false;
	if (entry->ifa_addr->sa_family == AF_INET6) {
		memcpy(&ret_address->ip,
		       &((const struct sockaddr_in6 *)(const void *)entry->ifa_addr)->sin6_addr,
		       sizeof(ret_address->ip));
	} else if (entry->ifa_addr->sa_family == AF_INET) {
		const struct sockaddr_in *in =
			(const struct sockaddr_in *)(const void *)entry->ifa_addr;

		memset(&ret_address->ip, 0, sizeof(ret_address->ip));
		memset(ret_address->ip.s6_addr + 10, 0xff, 2);
		memcpy(ret_address->ip.s6_addr + 12, &in->sin_addr, 4);
	} else {
		return false;
	}
	snprintf(ret_address->netdev, sizeof(ret_address->netdev), "%.15s", entry->ifa_name);
	return true;
}

static int host_addresses(struct doctor *doctor, struct doctor_address *ret_addresses, int max)
{
	struct ifaddrs *list;
	int count = 0;

	(void)doctor;
	if (getifaddrs(&list) < 0)
		return -errno;
	for (const struct ifaddrs *entry = list; entry != NULL && count < max;
	     entry = entry->ifa_next)
		count += take_address(entry, &ret_addresses[count]);
	freeifaddrs(list);
	return count;
}

/* ---- counters of a network device ---- */

static int ethtool(int fd, const char *netdev, void *data)
{
	struct ifreq request = {.ifr_data = data};

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", netdev);
	return ioctl(fd, SIOCETHTOOL, &request) < 0 ? -errno : 0;
}

static int count_stats(int fd, const char *netdev)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	int status = ethtool(fd, netdev, &info);

	if (status < 0)
		return status;
	return info.n_stats > DOCTOR_STATS ? 0 : (int)info.n_stats;
}

/*
 * The kernel writes as many as it has: were there more by now than have been counted, it would
 * write past the end; so there is room for many more.
 */
static int fetch_stats(int fd, const char *netdev, int count, struct doctor_stat *ret_stats,
		       int max)
{
	struct ethtool_gstrings *names =
		calloc(1, sizeof(*names) + (size_t)2 * DOCTOR_STATS * ETH_GSTRING_LEN);
	struct ethtool_stats *stats =
		calloc(1, sizeof(*stats) + (size_t)2 * DOCTOR_STATS * sizeof(uint64_t));
	int status = names == NULL || stats == NULL ? -ENOMEM : 0;

	if (status == 0) {
		names->cmd = ETHTOOL_GSTRINGS;
		names->string_set = ETH_SS_STATS;
		names->len = stats->n_stats = (uint32_t)count;
		stats->cmd = ETHTOOL_GSTATS;
		status = ethtool(fd, netdev, names);
	}
	if (status == 0)
		status = ethtool(fd, netdev, stats);
	for (int i = 0; status == 0 && i < count && i < max; i++) {
		snprintf(ret_stats[i].name, sizeof(ret_stats[i].name), "%.32s",
			 (const char *)names->data + (size_t)i * ETH_GSTRING_LEN);
		ret_stats[i].count = stats->data[i];
	}
	free(stats);
	free(names);
	return status < 0 ? status : count < max ? count : max;
}

static int host_stats(struct doctor *doctor, const char *netdev, struct doctor_stat *ret_stats,
		      int max)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), count;

	(void)doctor;
	if (fd < 0)
		return -errno;
	count = count_stats(fd, netdev);
	if (count > 0)
		count = fetch_stats(fd, netdev, count, ret_stats, max);
	close(fd);
	return count;
}

static int host_fork(struct doctor *doctor)
{
	(void)doctor;
	return (int)ibv_is_fork_initialized();
}

const struct doctor_ask doctor_ask_host = {
	.open = host_open,
	.caps = host_caps,
	.addresses = host_addresses,
	.stats = host_stats,
	.fork = host_fork,
};

/* ---- a tree ---------------------------------------------------------------------------------- */

/* Root may open everything: the permissions of others tell what the tree means. */
static int tree_open(struct doctor *doctor, const char *path)
{
	char full[PATH_BYTES];
	struct stat st;

	if (snprintf(full, sizeof(full), "%s%s", doctor->root, path) >= PATH_BYTES)
		return -ENAMETOOLONG;
	if (stat(full, &st) < 0)
		return -errno;
	return (st.st_mode & 06) == 06 ? 0 : -EACCES;
}

static int parse_address(char *line, struct doctor_address *ret_address)
{
	char *save, *netdev = strtok_r(line, " \t", &save), *ip = strtok_r(NULL, " \t", &save);
	char mapped[INET6_ADDRSTRLEN + 8];

	if (netdev == NULL || ip == NULL)
		return -EINVAL;
	snprintf(mapped, sizeof(mapped), "%s%.45s", strchr(ip, ':') == NULL ? "::ffff:" : "", ip);
	snprintf(ret_address->netdev, sizeof(ret_address->netdev), "%.15s", netdev);
	return inet_pton(AF_INET6, mapped, &ret_address->ip) == 1 ? 0 : -EINVAL;
}

static int tree_addresses(struct doctor *doctor, struct doctor_address *ret_addresses, int max)
{
	char text[DOCTOR_LINE], *save;
	int status = doctor_read(doctor, text, "/addresses"), count = 0;

	if (status < 0)
		return 0;
	for (char *line = strtok_r(text, "\n", &save); line != NULL && count < max;
	     line = strtok_r(NULL, "\n", &save))
		count += parse_address(line, &ret_addresses[count]) == 0;
	return count;
}

static int tree_stats(struct doctor *doctor, const char *netdev, struct doctor_stat *ret_stats,
		      int max)
{
	char text[DOCTOR_LINE], *save;
	int status = doctor_read(doctor, text, "/ethtool/%s", netdev), count = 0;

	if (status < 0)
		return status;
	for (char *line = strtok_r(text, "\n", &save); line != NULL && count < max;
	     line = strtok_r(NULL, "\n", &save)) {
		unsigned long long number;

		if (sscanf(line, "%32[^: ]: %llu", ret_stats[count].name, &number) == 2)
			ret_stats[count++].count = number;
	}
	return count;
}

const struct doctor_ask doctor_ask_tree = {
	.open = tree_open,
	.addresses = tree_addresses,
	.stats = tree_stats,
};
