/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * membership-etcd-client.h - asks etcd over HTTP: endpoints, TLS, authentication, time limits
 *
 * Main thread, in the loop given. Nobody is called back from within a call of this interface.
 */
#ifndef TARN_DAEMON_MEMBERSHIP_ETCD_CLIENT_H
#define TARN_DAEMON_MEMBERSHIP_ETCD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>
#include <openssl/ssl.h>

#include "config-cluster.h"

/* Read and checked, as a whole. */
struct etcd_settings {
	struct config_endpoint endpoints[CONFIG_ENDPOINTS_MAX];
	size_t count;
	SSL_CTX *tls; /* NULL: no endpoint has it */
	char *user, *password; /* NULL: no authentication */
};

/* Reads certificates and password. 0, or a negative code with a text that begins with the key. */
int etcd_settings_load(const struct config_cluster *config, struct etcd_settings *ret_settings);
void etcd_settings_free(struct etcd_settings *settings);
/* The client's side of a connection to the endpoint, which has to show the right certificate. NULL: no memory. */
SSL *etcd_tls_connect(const struct etcd_settings *settings, const struct config_endpoint *endpoint);

struct etcd_client;
struct etcd_call;

struct etcd_reply {
	int status; /* HTTP's; 0: there was no answer */
	const char *body;
	size_t bytes;
	const char *error; /* why there was none, or no whole one; names the endpoint */
	unsigned int endpoint;
};

/* Takes the settings over. NULL: no memory, and then it does not. */
struct etcd_client *etcd_client_create(struct event_base *base, struct etcd_settings *settings);
void etcd_client_free(struct etcd_client *client);
/* Frees it, and makes one in another loop with its endpoint, settings and token; NULL: no memory, and it is freed, too. */
struct etcd_client *etcd_client_move(struct etcd_client *client, struct event_base *base);
/* Others from now on: calls under way end as they began. */
void etcd_client_settings(struct etcd_client *client, struct etcd_settings *settings);

/*
 * POSTs `body`, which it frees, to the endpoint in use. `done` comes once; with on_line the answer is a stream, each line of which
 * is handed over; it may cancel the call. limit_ms: for the whole answer, or a stream's first line. fresh: over a connection of its own, for what must not be
 * sent over one that may have died meanwhile. NULL: no memory (body NULL, too).
 */
struct etcd_call *etcd_post(struct etcd_client *client, const char *path, char *body, unsigned int limit_ms, bool fresh,
			    void (*on_line)(void *arg, const char *line, size_t bytes),
			    void (*done)(void *arg, const struct etcd_reply *reply), void *arg);
/* It is not called back any more. NULL is fine. */
void etcd_call_cancel(struct etcd_call *call);

/* Asks the next endpoint from now on, unless that is so already since the call that failed. */
void etcd_client_rotate(struct etcd_client *client, unsigned int failed_endpoint);
size_t etcd_client_endpoints(const struct etcd_client *client);
/* The one in use, "http://10.0.0.1:2379". */
const char *etcd_client_endpoint(const struct etcd_client *client);
/* The token of authentication, which is got when it is needed; NULL: none now. */
const char *etcd_client_token(const struct etcd_client *client);
void etcd_client_token_set(struct etcd_client *client, const char *token);

#endif
