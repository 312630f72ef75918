/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Certificates and password for etcd: read, checked, and what the client's side of TLS asks of the server. Main thread. Files are read as a
 * whole before anything of them counts, so that a reload can keep the old ones. Next to read: membership-etcd-client.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sodium.h>

#include "err.h"
#include "http-tls.h"
#include "membership-etcd-client.h"

#define PASSWORD_MAX 512u

static const char *tls_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());

	return reason ? reason : "OpenSSL gives no reason";
}

static int tls_wrong(const char *key, const char *path, const char *what)
{
	int rc = err_set(-EINVAL, "%s = %s: %s: %s", key, path, tls_reason(), what);

	ERR_clear_error();
	return rc;
}

/* The text of http-tls.c with the key in front. */
static int file_check(const char *key, const char *path, mode_t forbidden)
{
	char text[ERR_TEXT_BYTES];
	int rc = http_tls_file_check(path, forbidden, "chmod 600");

	if (rc == 0)
		return 0;
	strcpy(text, err_text());
	return err_set(rc, "%s = %s", key, text);
}

/* Never ask on a terminal. */
static int no_password(char *buffer, int size, int writing, void *arg)
{
	(void)buffer;
	(void)size;
	(void)writing;
	(void)arg;
	return -1;
}

static int authorities_load(SSL_CTX *tls, const char *ca)
{
	int rc;

	ERR_clear_error();
	if (!ca[0]) {
		if (SSL_CTX_set_default_verify_paths(tls) != 1)
			return tls_wrong("etcd_ca", "(not set)", "the system's certificates can not be read");
		return 0;
	}
	rc = file_check("etcd_ca", ca, 0);
	if (rc == 0 && SSL_CTX_load_verify_file(tls, ca) != 1)
		return tls_wrong("etcd_ca", ca, "it has to hold certificates in PEM");
	return rc;
}

static int certificate_load(SSL_CTX *tls, const char *certificate, const char *key)
{
	int rc;

	if (!certificate[0])
		return 0;
	rc = file_check("etcd_cert", certificate, 0);
	if (rc == 0)
		rc = file_check("etcd_key", key, 007);
	if (rc < 0)
		return rc;
	ERR_clear_error();
	if (SSL_CTX_use_certificate_chain_file(tls, certificate) != 1)
		return tls_wrong("etcd_cert", certificate, "it has to be a certificate in PEM, and then those that sign it");
	if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
		return tls_wrong("etcd_key", key, "it has to be the key of etcd_cert, in PEM, without a password");
	return 0;
}

static int tls_load(const struct config_cluster *config, SSL_CTX **ret_tls)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
	int rc;

	if (!tls)
		return err_set(-ENOMEM, "etcd_ca: no memory for TLS");
	SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
	SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_default_passwd_cb(tls, no_password);
	rc = authorities_load(tls, config->etcd_ca.text);
	if (rc == 0)
		rc = certificate_load(tls, config->etcd_cert.text, config->etcd_key.text);
	if (rc < 0) {
		SSL_CTX_free(tls);
		return rc;
	}
	*ret_tls = tls;
	return 0;
}

/* The first line, as it is: a password may have blanks. */
static int password_load(const char *path, char **ret_password)
{
	char text[PASSWORD_MAX + 2];
	ssize_t got;
	int fd, rc = file_check("etcd_password_file", path, 077);

	if (rc < 0)
		return rc;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (got < 0)
		rc = err_set(-errno, "etcd_password_file = %s: can not be read: %s", path, strerrordesc_np(errno));
	if (fd >= 0)
		close(fd);
	if (rc < 0)
		return rc;
	text[got] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	if (!text[0] || strlen(text) > PASSWORD_MAX)
		rc = err_set(-EINVAL, "etcd_password_file = %s: its first line has to be a password of 1 to %u bytes", path,
			     PASSWORD_MAX);
	else if (!(*ret_password = strdup(text)))
		rc = err_set(-ENOMEM, "out of memory");
	sodium_memzero(text, sizeof(text));
	return rc;
}

int etcd_settings_load(const struct config_cluster *config, struct etcd_settings *ret_settings)
{
	struct etcd_settings settings = {0};
	bool tls = false;
	int rc;

	while ((rc = config_endpoint(config, settings.count, &settings.endpoints[settings.count])) == 0) {
		tls |= settings.endpoints[settings.count].tls;
		if (++settings.count == CONFIG_ENDPOINTS_MAX)
			break;
	}
	rc = rc == -ENOENT && settings.count ? 0 : rc;
	if (rc < 0)
		return err_set(-EINVAL, "etcd_endpoints = %s: has none, or one that is wrong", config->etcd_endpoints.text);
	if (tls)
		rc = tls_load(config, &settings.tls);
	if (rc == 0 && config->etcd_user.text[0]) {
		settings.user = strdup(config->etcd_user.text);
		rc = settings.user ? password_load(config->etcd_password_file.text, &settings.password)
				   : err_set(-ENOMEM, "out of memory");
	}
	if (rc < 0)
		etcd_settings_free(&settings);
	else
		*ret_settings = settings;
	return rc;
}

void etcd_settings_free(struct etcd_settings *settings)
{
	SSL_CTX_free(settings->tls);
	free(settings->user);
	if (settings->password)
		sodium_memzero(settings->password, strlen(settings->password));
	free(settings->password);
	*settings = (struct etcd_settings){0};
}

SSL *etcd_tls_connect(const struct etcd_settings *settings, const struct config_endpoint *endpoint)
{
	SSL *ssl = SSL_new(settings->tls);
	struct in6_addr number;
	bool address = inet_pton(AF_INET, endpoint->host, &number) == 1 ||
		       inet_pton(AF_INET6, endpoint->host, &number) == 1;
	int ok;

	if (!ssl)
		return NULL;
	if (address)
		ok = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), endpoint->host);
	else
		ok = SSL_set1_host(ssl, endpoint->host) && SSL_set_tlsext_host_name(ssl, endpoint->host);
	if (!ok) {
		SSL_free(ssl);
		return NULL;
	}
	return ssl;
}
