/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * uri.c - parsing of pool URIs
 *
 * Pure function on hostile text; tests/fuzz/fuzz-uri.c. Next: connect.c.
 */
#include "uri.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "tarn/tarn.h"

#define FORMS \
	"expected tarn:SOCKET-PATH?pool=NAME or tarn://HOST[:PORT]/POOL, of a cluster with several, or " \
	"with a comma behind one"

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Copies `length` bytes with %XX resolved. */
static int unescape(const char *what, const char *from, size_t length, char *to, size_t capacity)
{
	size_t i, n = 0;

	for (i = 0; i < length; i++) {
		char c = from[i];

		if (c == '%') {
			int high = i + 2 < length ? hex(from[i + 1]) : -1;
			int low = i + 2 < length ? hex(from[i + 2]) : -1;

			if (high < 0 || low < 0 || (high | low) == 0)
				return err_set(-TARN_EURI,
					       "%s: '%%' must be followed by two hexadecimal "
					       "digits, not 00",
					       what);
			c = (char)(high << 4 | low);
			i += 2;
		}
		if (n + 1 >= capacity)
			return err_set(-TARN_EURI, "%s has more than %zu bytes", what,
				       capacity - 1);
		to[n++] = c;
	}
	to[n] = 0;
	return 0;
}

static int parse_number(const char *what, const char *text, uint32_t min, uint32_t max,
			uint32_t *ret_number)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end || strlen(text) > 9 || n < min || n > max)
		return err_set(-TARN_EURI, "%s=%s: must be a number from %u to %u", what, text, min,
			       max);
	*ret_number = (uint32_t)n;
	return 0;
}

static int set_pool(struct uri *uri, const char *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t length = strlen(name);

	if (length == 0 || length > WIRE_POOL_NAME_MAX || strspn(name, allowed) != length)
		return err_set(-TARN_EURI, "pool name '%s': must be 1 to %u of [a-zA-Z0-9._-]",
			       name, WIRE_POOL_NAME_MAX);
	strcpy(uri->pool, name);
	return 0;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Numbers that say something of an RDMA connection, struct fabric_settings. */
static const struct {
	const char *name;
	uint32_t max;
	size_t offset; /* of an int16_t */
} rdma_numbers[] = {
	{"ack_timeout", 31, offsetof(struct fabric_settings, ack_timeout)},
	{"retries", 6, offsetof(struct fabric_settings, retries)},
	{"tos", 255, offsetof(struct fabric_settings, tos)},
	{"sl", 15, offsetof(struct fabric_settings, service_level)},
	{"gid", 255, offsetof(struct fabric_settings, gid_index)},
};

static int set_mtu(struct uri *uri, const char *value)
{
	static const char *const allowed[] = {"256", "512", "1024", "2048", "4096"};
	unsigned i;

	for (i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		if (strcmp(value, allowed[i]) == 0) {
			uri->settings.mtu = (uint16_t)(256u << i);
			return 0;
		}
	}
	return err_set(-TARN_EURI, "mtu=%s: must be 256, 512, 1024, 2048 or 4096", value);
}

/* A local address; the transport says whether it is one. */
static int set_source(struct uri *uri, const char *value)
{
	size_t length = strlen(value);
	bool brackets = length > 1 && value[0] == '[' && value[length - 1] == ']';

	if (brackets) {
		value++;
		length -= 2;
	}
	if (length == 0 || length >= sizeof(uri->source))
		return err_set(-TARN_EURI, "source=: must be a local address of up to %u bytes",
			       URI_HOST_MAX - 1);
	memcpy(uri->source, value, length);
	uri->source[length] = 0;
	return 0;
}

/* 1: it is a parameter for hosts and is set; 0: it is none; or an error. */
static int set_rdma_parameter(struct uri *uri, const char *name, const char *value)
{
	const unsigned count = sizeof(rdma_numbers) / sizeof(rdma_numbers[0]);
	unsigned i = 0;
	int16_t small;
	uint32_t n;
	int ret;

	while (i < count && strcmp(name, rdma_numbers[i].name) != 0)
		i++;
	if (i == count && strcmp(name, "source") != 0 && strcmp(name, "mtu") != 0)
		return 0;
	if (uri->path[0])
		return err_set(-TARN_EURI,
			       "%s=%s: is for RDMA, tarn://HOST/POOL; a unix socket's URI cannot "
			       "have it",
			       name, value);
	if (strcmp(name, "source") == 0)
		ret = set_source(uri, value);
	else if (strcmp(name, "mtu") == 0)
		ret = set_mtu(uri, value);
	else
		ret = parse_number(name, value, 0, rdma_numbers[i].max, &n);
	if (ret == 0 && i < count) {
		small = (int16_t)n;
		memcpy((uint8_t *)&uri->settings + rdma_numbers[i].offset, &small, sizeof(small));
	}
	return ret < 0 ? ret : 1;
}

static int set_parameter(struct uri *uri, const char *name, const char *value)
{
	uint32_t n;
	int ret;

	if (!strcmp(name, "pool"))
		return uri->pool[0] ? err_set(-TARN_EURI, "pool is given twice")
				    : set_pool(uri, value);
	if (!strcmp(name, "key")) {
		if (strlen(value) == 0)
			return err_set(-TARN_EURI, "key= needs a file name");
		strcpy(uri->key_file, value);
		return 0;
	}
	if (!strcmp(name, "readonly")) {
		ret = parse_number(name, value, 0, 1, &n);
		if (ret == 0)
			uri->read_only = n;
		return ret;
	}
	if (!strcmp(name, "timeout"))
		return parse_number(name, value, 1, 3600000, &uri->timeout_ms);
	if (!strcmp(name, "cluster")) {
		ret = parse_number(name, value, 0, 1, &n);
		if (ret == 0)
			uri->cluster |= n;
		return ret;
	}
	if (!strcmp(name, "map_bound"))
		return parse_number(name, value, 100, 3600000, &uri->map_bound_ms);
	if (!strcmp(name, "spin"))
		return parse_number(name, value, 0, URI_SPIN_MAX_US, &uri->settings.spin_us);
	ret = set_rdma_parameter(uri, name, value);
	if (ret != 0)
		return ret < 0 ? ret : 0;
	return err_set(-TARN_EURI,
		       "unknown parameter '%s': known are pool, key, readonly, timeout, spin, "
		       "cluster, map_bound, and for RDMA source, ack_timeout, retries, tos, sl, gid, mtu",
		       name);
}

static int parse_parameters(struct uri *uri, const char *text)
{
	char name[16], value[URI_PATH_MAX];
	int ret = 0;

	while (ret == 0 && *text) {
		size_t length = strcspn(text, "&"), name_length = strcspn(text, "=&");

		if (name_length >= length)
			return err_set(-TARN_EURI, "parameter '%.*s' has no '=value'",
				       (int)(length < 64 ? length : 64), text);
		ret = unescape("parameter name", text, name_length, name, sizeof(name));
		if (ret == 0)
			ret = unescape("parameter value", text + name_length + 1,
				       length - name_length - 1, value, sizeof(value));
		if (ret == 0)
			ret = set_parameter(uri, name, value);
		text += length;
		text += *text == '&';
	}
	return ret;
}

/*
 * HOST[:PORT], [v6] or [v6]:PORT. A bare v6 address is refused, since its last group would look
 * like a port.
 */
static int parse_host(struct uri *uri, const char *text, size_t length)
{
	const char *end = text + length, *host_end, *port = NULL;
	char digits[8] = "";
	uint32_t n;
	int ret;

	if (length && text[0] == '[') {
		text++;
		host_end = memchr(text, ']', (size_t)(end - text));
		if (!host_end)
			return err_set(-TARN_EURI, "'[' without ']' in the host");
		if (host_end + 1 < end && host_end[1] != ':')
			return err_set(-TARN_EURI, "after ']' only :PORT may follow");
		port = host_end + 1 < end ? host_end + 2 : NULL;
	} else {
		host_end = memchr(text, ':', length);
		if (host_end && memchr(host_end + 1, ':', (size_t)(end - host_end - 1)))
			return err_set(-TARN_EURI,
				       "an IPv6 address must stand in brackets: [::1]:4567");
		port = host_end ? host_end + 1 : NULL;
		host_end = host_end ? host_end : end;
	}
	if (host_end == text)
		return err_set(-TARN_EURI, "the host is missing: " FORMS);
	ret = unescape("host", text, (size_t)(host_end - text), uri->host, sizeof(uri->host));
	if (ret < 0 || !port)
		return ret;
	if ((size_t)(end - port) < sizeof(digits))
		memcpy(digits, port, (size_t)(end - port));
	ret = parse_number("port", digits, 1, 65535, &n);
	if (ret == 0)
		uri->port = (uint16_t)n;
	return ret;
}

/* One node: HOST[:PORT] or PATH, in place of what the URI had. */
static int parse_node(struct uri *uri, const char *text, size_t length, bool host)
{
	uri->host[0] = uri->path[0] = 0;
	uri->port = 0;
	return host ? parse_host(uri, text, length)
		    : unescape("socket path", text, length, uri->path, sizeof(uri->path));
}

/* NODE, or NODE[,NODE]...; a comma says that it is a cluster, also with nothing behind it. */
static int parse_nodes(struct uri *uri, const char *text, size_t length, bool host)
{
	struct uri first = *uri;
	int ret = 0;

	if (!memchr(text, ',', length))
		return parse_node(uri, text, length, host);
	if (length >= sizeof(uri->nodes))
		return err_set(-TARN_EURI, "the nodes have more than %zu bytes",
			       sizeof(uri->nodes) - 1);
	memcpy(uri->nodes, text, length);
	uri->nodes[length] = 0;
	for (size_t at = 0, n; ret == 0 && at < length; at += n + 1) {
		n = strcspn(uri->nodes + at, ",");
		if (n == 0)
			continue;
		/* all are looked at, the first one stays */
		ret = parse_node(uri, uri->nodes + at, n, host);
		if (uri->node_count++ == 0)
			first = *uri;
	}
	if (ret == 0 && (uri->node_count == 0 || uri->node_count > URI_NODES_MAX))
		ret = err_set(-TARN_EURI, "%u nodes of a cluster: there must be 1 to %u",
			      uri->node_count, URI_NODES_MAX);
	if (ret < 0)
		return ret;
	strcpy(uri->host, first.host);
	strcpy(uri->path, first.path);
	uri->port = first.port;
	uri->cluster = true;
	return 0;
}

int uri_set_host(struct uri *uri, const char *address)
{
	return parse_node(uri, address, strlen(address), true);
}

int uri_set_path(struct uri *uri, const char *path)
{
	if (strlen(path) >= sizeof(uri->path))
		return err_set(-TARN_EURI, "socket path has more than %zu bytes",
			       sizeof(uri->path) - 1);
	uri->host[0] = 0;
	uri->port = 0;
	strcpy(uri->path, path);
	return 0;
}

int uri_node(const struct uri *uri, unsigned i, struct uri *ret_uri)
{
	const char *text = uri->nodes;
	size_t n;

	*ret_uri = *uri;
	if (uri->node_count == 0)
		return i == 0 ? 0 : -ENOENT;
	for (; *text; text += n + (text[n] == ',')) {
		n = strcspn(text, ",");
		if (n && i-- == 0)
			return parse_node(ret_uri, text, n, uri->host[0] != 0);
	}
	return -ENOENT;
}

static int parse_remote(struct uri *uri, const char *text, const char *query)
{
	const char *slash = memchr(text, '/', (size_t)(query - text));
	char pool[URI_HOST_MAX];
	int ret;

	if (!slash)
		return err_set(-TARN_EURI, "the pool is missing: " FORMS);
	ret = parse_nodes(uri, text, (size_t)(slash - text), true);
	if (ret == 0)
		ret = unescape("pool", slash + 1, (size_t)(query - slash - 1), pool, sizeof(pool));
	return ret < 0 ? ret : set_pool(uri, pool);
}

int uri_parse(const char *text, struct uri *ret_uri)
{
	struct uri uri = {.settings = FABRIC_SETTINGS_INIT};
	const char *query;
	int ret;

	if (strncmp(text, "tarn:", 5))
		return err_set(-TARN_EURI, "'%.64s' is no tarn URI: " FORMS, text);
	text += 5;
	query = text + strcspn(text, "?");
	if (!strncmp(text, "//", 2))
		ret = parse_remote(&uri, text + 2, query);
	else if (query == text)
		ret = err_set(-TARN_EURI, "the socket path is missing: " FORMS);
	else
		ret = parse_nodes(&uri, text, (size_t)(query - text), false);
	if (ret == 0 && *query)
		ret = parse_parameters(&uri, query + 1);
	if (ret == 0 && !uri.pool[0])
		ret = err_set(-TARN_EURI, "the pool is missing: append ?pool=NAME");
	if (ret == 0 && uri.map_bound_ms && !uri.cluster)
		ret = err_set(-TARN_EURI, "map_bound=%u: is for clusters, tarn://HOST,HOST2/POOL",
			      uri.map_bound_ms);
	if (ret == 0)
		*ret_uri = uri;
	return ret;
}
