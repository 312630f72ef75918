/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this machine says to a configuration: memory, hugepages, NUMA nodes, groups, key files, RDMA
 * devices and addresses, locked memory. Main thread, for `tarnd -t`; at a start the same questions
 * are asked where the things are made. Nothing is changed. A socket's path is not tested: under
 * systemd its directory is made just before the start, and a running daemon may well have it.
 */
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "auth.h"
#include "config-cluster.h"
#include "err.h"
#include "http.h"
#include "listen.h"
#include "membership.h"
#include "pool-memory.h"
#include "registration.h"

static void memory_check(const struct config *config, const struct config_pool *pool,
			 struct pool_memory_claims *claims, struct config_errors *errors)
{
	static const char file[] = "file = "; /* begins what pool-file.c says */
	bool hugetlb;

	if (!pool->size.number || pool_memory_check(pool, claims, &hugetlb) == 0)
		return;
	if (strncmp(err_text(), file, strlen(file)) == 0)
		config_error(errors, "%s:%u: [pool %s] %s", config->file, pool->file.line,
			     pool->name, err_text());
	else
		config_error(errors, "%s:%u: [pool %s] size = %lld: %s", config->file,
			     pool->size.line, pool->name, (long long)pool->size.number, err_text());
}

static void pool_check(const struct config *config, const struct config_pool *pool,
		       struct pool_memory_claims *claims, struct config_errors *errors)
{
	struct auth_keys keys = {0};

	memory_check(config, pool, claims, errors);
	if (pool->auth.number != CONFIG_AUTH_KEY || !pool->key_file.text[0])
		return;
	if (auth_keys_load(pool->key_file.text, &keys) < 0)
		config_error(errors, "%s:%u: [pool %s] key_file = %s: %s", config->file,
			     pool->key_file.line, pool->name, pool->key_file.text, err_text());
	auth_keys_free(&keys);
}

/* ---- RDMA ---- */

#define DEVICES "/sys/class/infiniband"

/* The names of the RDMA devices in words; "none". */
static void devices_text(char *buffer, size_t bytes)
{
	DIR *folder = opendir(DEVICES);
	struct dirent *entry;
	size_t used = 0;

	while (folder && (entry = readdir(folder)) && used < bytes)
		if (entry->d_name[0] != '.')
			used += (size_t)snprintf(buffer + used, bytes - used, "%s%s",
						 used ? ", " : "", entry->d_name);
	if (folder)
		closedir(folder);
	if (used == 0)
		snprintf(buffer, bytes, "none (is the device's kernel module loaded?)");
}

static void device_check(const struct config *config, const struct config_listen *listen,
			 struct config_errors *errors)
{
	char path[128], devices[256];

	snprintf(path, sizeof(path), DEVICES "/%s", listen->device.text);
	if (!strchr(listen->device.text, '/') && access(path, F_OK) == 0)
		return;
	devices_text(devices, sizeof(devices));
	config_error(
		errors,
		"%s:%u: [listen %s] device = %s: this machine has no such RDMA device; it has: "
		"%s",
		config->file, listen->device.line, listen->name, listen->device.text, devices);
}

static bool same_address(const struct sockaddr *mine, const struct sockaddr_storage *wanted)
{
	struct sockaddr_in6 six[2];
	struct sockaddr_in four[2];

	if (!mine || mine->sa_family != wanted->ss_family)
		return false;
	if (mine->sa_family == AF_INET) {
		memcpy(&four[0], mine, sizeof(four[0]));
		memcpy(&four[1], wanted, sizeof(four[1]));
		return four[0].sin_addr.s_addr == four[1].sin_addr.s_addr;
	}
	memcpy(&six[0], mine, sizeof(six[0]));
	memcpy(&six[1], wanted, sizeof(six[1]));
	return memcmp(&six[0].sin6_addr, &six[1].sin6_addr, sizeof(six[0].sin6_addr)) == 0 &&
	       (!six[1].sin6_scope_id || six[0].sin6_scope_id == six[1].sin6_scope_id);
}

/* Whether it belongs to an RDMA device is the start's and `tarn doctor`'s affair. */
static void address_check(const struct config *config, const struct config_listen *listen,
			  struct config_errors *errors)
{
	struct ifaddrs *addresses = NULL, *at;
	struct config_address address;
	struct sockaddr_storage wanted;
	const char *what = NULL;

	if (config_address_parse(listen->address.text, &address) < 0)
		return; /* said */
	if (config_address_socket(&address, 0, &wanted) < 0) {
		what = err_text();
	} else if (getifaddrs(&addresses) == 0) {
		for (at = addresses; at && !same_address(at->ifa_addr, &wanted); at = at->ifa_next)
			;
		if (!at)
			what = "this machine has no such address; `ip address` lists them";
		freeifaddrs(addresses);
	}
	if (what)
		config_error(errors, "%s:%u: [listen %s] address = %s: %s", config->file,
			     listen->address.line, listen->name, listen->address.text, what);
}

/* No RDMA device at all, and a unix listener: tarnd starts, and waits for the device. */
static bool waits_for_device(const struct config *config, const struct config_listen *listen)
{
	if (!config_listen_rdma(listen) || access(DEVICES, F_OK) == 0)
		return false;
	for (size_t i = 0; i < config->listen_count; i++)
		if (!config_listen_rdma(&config->listens[i]))
			return true;
	return false;
}

static void listen_check(const struct config *config, const struct config_listen *listen,
			 struct config_errors *errors)
{
	char devices[256];
	uint32_t gid;

	if (listener_group(listen, &gid) < 0)
		config_error(errors, "%s:%u: [listen %s] group = %s: %s", config->file,
			     listen->group.line, listen->name, listen->group.text, err_text());
	if (waits_for_device(config, listen))
		return; /* config_notices() says it */
	if (listen->device.text[0]) {
		device_check(config, listen, errors);
	} else if (listen->address.text[0]) {
		address_check(config, listen, errors);
		if (access(DEVICES, F_OK) < 0) {
			devices_text(devices, sizeof(devices));
			config_error(
				errors,
				"%s:%u: [listen %s] address = %s: RDMA devices of this machine: "
				"%s; `tarn doctor` says more",
				config->file, listen->address.line, listen->name,
				listen->address.text, devices);
		}
	}
}

/* Registered memory is locked, and counted for each registration: of each pool there are two. */
static void memlock_check(const struct config *config, struct config_errors *errors)
{
	uint64_t need = 0;
	unsigned int line = 0;

	for (size_t i = 0; i < config->pool_count; i++) {
		for (size_t j = 0; j < config->listen_count; j++) {
			if (!config_listen_rdma(&config->listens[j]) ||
			    !config_pool_offered(&config->pools[i], &config->listens[j]))
				continue;
			need += 2 * (uint64_t)config->pools[i].size.number;
			line = line ? line : config->pools[i].size.line;
			break; /* which listeners share a device is not known here */
		}
	}
	if (registration_memlock_check(need) < 0)
		config_error(errors, "%s:%u: %s", config->file, line, err_text());
}

/* ---- all of it ---- */

void config_check_environment(const struct config *config, struct config_errors *errors)
{
	struct pool_memory_claims claims = {.whole_machine = true};

	for (size_t i = 0; i < config->listen_count; i++)
		listen_check(config, &config->listens[i], errors);
	for (size_t i = 0; i < config->pool_count; i++)
		pool_check(config, &config->pools[i], &claims, errors);
	memlock_check(config, errors);
	http_check(config, errors);
	membership_check(config, errors);
}

void config_notices(const struct config *config, struct config_errors *notices)
{
	size_t sockets = 0;

	config_cluster_notices(config, notices);
	for (size_t i = 0; i < config->listen_count; i++) {
		const struct config_listen *listen = &config->listens[i];
		size_t offered = 0;

		for (size_t j = 0; j < config->pool_count; j++)
			offered += config_pool_offered(&config->pools[j], listen);
		if (!offered && config_listen_rdma(listen))
			config_error(
				notices,
				"%s:%u: [listen %s]: no pool is offered here: no `listen` names "
				"it",
				config->file, listen->line, listen->name);
		if (waits_for_device(config, listen))
			config_error(
				notices,
				"%s:%u: [listen %s]: this machine has no RDMA device now: tarnd "
				"starts without this listener and waits for one; `tarn doctor` "
				"says more",
				config->file, listen->line, listen->name);
		sockets += !config_listen_rdma(listen);
	}
	if (sockets == 0 && config->listen_count > 0)
		config_error(notices,
			     "%s: there is no unix listener: `tarn stats`, pools and clients can "
			     "not ask this daemon; add a section with `path = "
			     "/run/tarn/tarn.sock`",
			     config->file);
}
