/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What can be wrong in [cluster] though each value is right for itself: what its kind of membership needs or does not
 * use, names, endpoints, pairs. Pure, but for the host's name. config-check.c calls it; membership.c looks at the files.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster-map.h"
#include "config-cluster.h"
#include "err.h"

#define ENDPOINT_ALLOWED "allowed: http://10.0.0.1:2379, https://etcd1:2379, [fd00::1]:2379, separated by commas"
#define SECOND_NS        1000000000ll

static void wrong(const struct config *config, struct config_errors *errors, const struct config_value *value,
		  const char *text)
{
	config_error(errors, "%s:%u: [cluster] %s", config->file, value->line ? value->line : config->cluster.line,
		     text);
}

/* ---- endpoints ---- */

static int endpoint_wrong(const char *word, const char *what)
{
	return err_set(-EINVAL, "'%.80s' %s; " ENDPOINT_ALLOWED, word, what);
}

/* The port behind the host, if there is one. */
static int port_parse(const char *word, const char *text, struct config_endpoint *endpoint)
{
	size_t digits;
	unsigned long port;

	endpoint->port = CONFIG_ETCD_PORT;
	if (!*text)
		return 0;
	digits = strspn(text + 1, "0123456789");
	port = strtoul(text + 1, NULL, 10);
	if (*text != ':' || digits < 1 || digits > 5 || text[1 + digits] || port < 1 || port > 65535)
		return endpoint_wrong(word, "has something other than a port of 1 to 65535 behind the host");
	endpoint->port = (uint16_t)port;
	return 0;
}

static int host_parse(const char *word, char *text, struct config_endpoint *endpoint)
{
	struct in6_addr number;
	char *end = text[0] == '[' ? strchr(text, ']') : text + strcspn(text, ":");
	char after;

	if (!end)
		return endpoint_wrong(word, "lacks the ]");
	after = *end;
	*end = '\0';
	if (after == ']') {
		snprintf(endpoint->host, sizeof(endpoint->host), "%s", text + 1);
		if (inet_pton(AF_INET6, endpoint->host, &number) != 1)
			return endpoint_wrong(word, "has no IPv6 address in its brackets");
		return port_parse(word, end + 1, endpoint);
	}
	snprintf(endpoint->host, sizeof(endpoint->host), "%s", text);
	if (!*text ||
	    text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")] != '\0')
		return endpoint_wrong(word, "has no host's name or address, or something behind it");
	*end = after;
	return port_parse(word, end, endpoint);
}

static int endpoint_parse(const char *word, struct config_endpoint *endpoint)
{
	char copy[256], *text = copy, *scheme;

	if (strlen(word) >= sizeof(copy))
		return endpoint_wrong(word, "is too long");
	strcpy(copy, word);
	scheme = strstr(copy, "://");
	if (scheme) {
		*scheme = '\0';
		endpoint->tls = strcmp(copy, "https") == 0;
		if (!endpoint->tls && strcmp(copy, "http") != 0)
			return endpoint_wrong(word, "begins with neither http:// nor https://");
		text = scheme + 3;
	}
	/* etcdctl's habit */
	if (*text && text[strlen(text) - 1] == '/')
		text[strlen(text) - 1] = '\0';
	return host_parse(word, text, endpoint);
}

int config_endpoint(const struct config_cluster *cluster, size_t i, struct config_endpoint *ret_endpoint)
{
	const char *at = cluster->etcd_endpoints.text;
	struct config_endpoint endpoint = {0};
	char word[1024];
	size_t length;
	int rc;

	for (; *at && i > 0; i--) {
		at += strcspn(at, ",");
		if (*at)
			at++;
	}
	at += strspn(at, " \t");
	if (!*at)
		return -ENOENT;
	length = strcspn(at, ",");
	while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t'))
		length--;
	snprintf(word, sizeof(word), "%.*s", (int)length, at);
	rc = endpoint_parse(word, &endpoint);
	if (rc == 0)
		*ret_endpoint = endpoint;
	return rc;
}

/* ---- who we are ---- */

int config_member_name(const struct config_cluster *cluster, char ret_name[CONFIG_NAME_MAX + 1])
{
	char host[256] = "";

	if (cluster->member.text[0]) {
		snprintf(ret_name, CONFIG_NAME_MAX + 1, "%s", cluster->member.text);
		return 0;
	}
	if (gethostname(host, sizeof(host) - 1) < 0 || !cluster_name_valid(host))
		return err_set(-EINVAL,
			       "member: is not set, and the host's name, '%.80s', can not be a member's, which is 1 to %u "
			       "of [a-zA-Z0-9._-]: add a line as `member = node1`",
			       host, CLUSTER_NAME_MAX);
	snprintf(ret_name, CONFIG_NAME_MAX + 1, "%s", host);
	return 0;
}

const struct config_pool *config_cluster_pool(const struct config *config)
{
	const char *name = config->cluster.pool.text;

	if (!config->cluster.line)
		return NULL;
	for (size_t i = 0; i < config->pool_count && *name; i++)
		if (strcmp(config->pools[i].name, name) == 0)
			return &config->pools[i];
	return !*name && config->pool_count == 1 ? &config->pools[0] : NULL;
}

/* ---- checks ---- */

static void name_check(const struct config *config, const char *key, const struct config_value *value,
		       struct config_errors *errors)
{
	if (value->text[0] && !cluster_name_valid(value->text))
		config_error(errors,
			     "%s:%u: [cluster] %s = %s: is not a name; allowed: 1 to %u of [a-zA-Z0-9._-]", config->file,
			     value->line, key, value->text, CLUSTER_NAME_MAX);
}

static void names_check(const struct config *config, struct config_errors *errors)
{
	const struct config_cluster *cluster = &config->cluster;
	char name[CONFIG_NAME_MAX + 1];

	if (!cluster->name.text[0])
		wrong(config, errors, &cluster->name, "name: is missing: add a line as `name = prod`");
	name_check(config, "name", &cluster->name, errors);
	name_check(config, "member", &cluster->member, errors);
	if (config_member_name(cluster, name) < 0)
		wrong(config, errors, &cluster->member, err_text());
	if (config_cluster_pool(config) || config->pool_count == 0)
		return;
	if (cluster->pool.text[0])
		config_error(errors, "%s:%u: [cluster] pool = %s: there is no such pool: add a section [pool %s], or name "
			     "another one", config->file, cluster->pool.line, cluster->pool.text, cluster->pool.text);
	else
		wrong(config, errors, &cluster->pool,
		      "pool: is missing, and there are several pools: add a line as `pool = main`");
}

/* Keys of the other kind of membership: somebody thinks that they count. */
static void kind_check(const struct config *config, bool etcd, struct config_errors *errors)
{
	const struct config_cluster *cluster = &config->cluster;
	size_t count;
	const struct config_key *keys = config_keys(CONFIG_SECTION_CLUSTER, &count);

	for (size_t i = 0; i < count; i++) {
		const struct config_value *value = config_value_of(cluster, &keys[i]);
		bool of_etcd = strncmp(keys[i].name, "etcd_", 5) == 0 || strcmp(keys[i].name, "lease") == 0;
		bool of_static = strcmp(keys[i].name, "map") == 0;

		if (value->line && ((of_etcd && !etcd) || (of_static && etcd)))
			config_error(errors, "%s:%u: [cluster] %s: is for membership = %s, and this is %s: %s, or remove this",
				     config->file, value->line, keys[i].name, etcd ? "static" : "etcd",
				     etcd ? "etcd" : "static",
				     etcd ? "choose membership = static" : "add a line `membership = etcd`");
	}
}

static void pair_check(const struct config *config, const char *one, const struct config_value *first,
		       const char *other, const struct config_value *second, struct config_errors *errors)
{
	bool has_first = first->text[0];

	if (has_first != !!second->text[0])
		config_error(errors, "%s:%u: [cluster] %s: needs %s, too: add it, or remove this", config->file,
			     has_first ? first->line : second->line, has_first ? one : other,
			     has_first ? other : one);
}

static void endpoints_check(const struct config *config, struct config_errors *errors)
{
	const struct config_cluster *cluster = &config->cluster;
	const struct config_value *of_tls = cluster->etcd_ca.line ? &cluster->etcd_ca : &cluster->etcd_cert;
	struct config_endpoint endpoint;
	size_t count = 0;
	bool tls = false;
	int rc;

	while ((rc = config_endpoint(cluster, count, &endpoint)) == 0) {
		tls |= endpoint.tls;
		count++;
	}
	if (rc != -ENOENT)
		config_error(errors, "%s:%u: [cluster] etcd_endpoints = %s: %s", config->file,
			     cluster->etcd_endpoints.line, cluster->etcd_endpoints.text, err_text());
	else if (count == 0)
		wrong(config, errors, &cluster->etcd_endpoints,
		      "etcd_endpoints: is missing: add a line as `etcd_endpoints = http://10.0.0.1:2379`");
	else if (count > CONFIG_ENDPOINTS_MAX)
		config_error(errors, "%s:%u: [cluster] etcd_endpoints: has %zu of them; allowed: 1 to %u", config->file,
			     cluster->etcd_endpoints.line, count, CONFIG_ENDPOINTS_MAX);
	else if (!tls && of_tls->text[0])
		config_error(errors, "%s:%u: [cluster] %s: is for TLS, and no endpoint in line %u begins with https://",
			     config->file, of_tls->line, of_tls == &cluster->etcd_ca ? "etcd_ca" : "etcd_cert",
			     cluster->etcd_endpoints.line);
}

static void etcd_check(const struct config *config, struct config_errors *errors)
{
	const struct config_cluster *cluster = &config->cluster;
	const char *prefix = cluster->etcd_prefix.text;
	size_t length = strlen(prefix);

	endpoints_check(config, errors);
	pair_check(config, "etcd_cert", &cluster->etcd_cert, "etcd_key", &cluster->etcd_key, errors);
	pair_check(config, "etcd_user", &cluster->etcd_user, "etcd_password_file", &cluster->etcd_password_file, errors);
	if (cluster->lease.number % SECOND_NS)
		config_error(errors, "%s:%u: [cluster] lease = %gs: etcd counts whole seconds; allowed: 2s to 5min",
			     config->file, cluster->lease.line, (double)cluster->lease.number / 1e9);
	if (strspn(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") != length ||
	    prefix[length - 1] == '/')
		config_error(errors,
			     "%s:%u: [cluster] etcd_prefix = %s: is not a prefix; allowed: [a-zA-Z0-9._/-], and no / at its "
			     "end, as in /tarn",
			     config->file, cluster->etcd_prefix.line, prefix);
}

void config_cluster_check(const struct config *config, struct config_errors *errors)
{
	const struct config_cluster *cluster = &config->cluster;
	bool etcd = cluster->membership.number == CONFIG_MEMBERSHIP_ETCD;

	names_check(config, errors);
	kind_check(config, etcd, errors);
	if (etcd)
		etcd_check(config, errors);
	else if (!cluster->map.text[0])
		wrong(config, errors, &cluster->map,
		      "map: is missing: add a line as `map = /etc/tarn/map.json`, or choose membership = etcd");
}

/* A password in the clear. */
void config_cluster_notices(const struct config *config, struct config_errors *notices)
{
	const struct config_cluster *cluster = &config->cluster;
	struct config_endpoint endpoint;

	if (!cluster->line || !cluster->etcd_user.text[0])
		return;
	for (size_t i = 0; config_endpoint(cluster, i, &endpoint) == 0; i++) {
		if (endpoint.tls || strncmp(endpoint.host, "127.", 4) == 0 || strcmp(endpoint.host, "::1") == 0 ||
		    strcmp(endpoint.host, "localhost") == 0)
			continue;
		config_error(notices,
			     "%s:%u: [cluster] etcd_endpoints: the password of etcd_user goes to %s as it is: use https:// "
			     "and etcd_ca",
			     config->file, cluster->etcd_endpoints.line, endpoint.host);
		return;
	}
}
