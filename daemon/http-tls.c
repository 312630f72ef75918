/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Certificate, key and token of the HTTP listeners: read, checked, used. Main thread. Files are read as a
 * whole before anything of them counts, so that a reload can keep the old ones. Next to read: http.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sodium.h>

#include "clock.h"
#include "err.h"
#include "http-tls.h"

struct http_tls {
	SSL_CTX *context;
	int64_t expires;
};

/* ---- TLS ---- */

/* The first of OpenSSL's errors: the others are its consequences. */
static const char *tls_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());

	return reason ? reason : "OpenSSL gives no reason";
}

int http_tls_file_check(const char *path, mode_t forbidden, const char *remedy)
{
	struct stat st;

	if (stat(path, &st) < 0 || access(path, R_OK) < 0)
		return err_set(-errno, "%s: can not be read: %s", path, strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(-EINVAL, "%s: is not a regular file", path);
	if (st.st_mode & forbidden)
		return err_set(-EINVAL, "%s: mode %04o lets others at the secret: %s %s", path,
			       (unsigned int)(st.st_mode & 07777), remedy, path);
	return 0;
}

static int seconds_of(const ASN1_TIME *time, int64_t *ret_seconds)
{
	struct tm tm;

	if (!ASN1_TIME_to_tm(time, &tm))
		return -EINVAL;
	*ret_seconds = (int64_t)timegm(&tm);
	return 0;
}

/* Expired, or not valid yet? */
static int certificate_check(struct http_tls *tls, const char *path)
{
	const X509 *certificate = SSL_CTX_get0_certificate(tls->context);
	int64_t now = (int64_t)(clock_wall_ms() / 1000), from;
	char text[32];
	time_t when;
	struct tm tm;

	if (seconds_of(X509_get0_notAfter(certificate), &tls->expires) < 0 ||
	    seconds_of(X509_get0_notBefore(certificate), &from) < 0)
		return err_set(-EINVAL, "certificate %s: its dates can not be read", path);
	if (from <= now && now < tls->expires)
		return 0;
	when = (time_t)(now < from ? from : tls->expires);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", gmtime_r(&when, &tm));
	return err_set(-EINVAL,
		       now < from ? "certificate %s: is not valid before %s: is this host's clock right?"
				  : "certificate %s: expired on %s: put a new one there",
		       path, text);
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

static int files_load(struct http_tls *tls, const char *certificate, const char *key)
{
	int rc = http_tls_file_check(certificate, 0, "");

	if (rc == 0)
		rc = http_tls_file_check(key, 007, "chmod 640");
	if (rc < 0)
		return rc;
	ERR_clear_error();
	if (SSL_CTX_use_certificate_chain_file(tls->context, certificate) != 1)
		return err_set(-EINVAL,
			       "certificate %s: %s: it has to be a certificate in PEM, and then those that sign it",
			       certificate, tls_reason());
	rc = certificate_check(tls, certificate);
	if (rc < 0)
		return rc;
	ERR_clear_error();
	if (SSL_CTX_use_PrivateKey_file(tls->context, key, SSL_FILETYPE_PEM) != 1)
		return err_set(-EINVAL, "private_key %s: %s: it has to be the key of %s, in PEM, without a password",
			       key, tls_reason(), certificate);
	return 0;
}

int http_tls_load(const char *certificate, const char *key, struct http_tls **ret_tls)
{
	struct http_tls *tls = calloc(1, sizeof(*tls));
	int rc;

	if (tls)
		tls->context = SSL_CTX_new(TLS_server_method());
	if (!tls || !tls->context) {
		free(tls);
		return err_set(-ENOMEM, "no memory for TLS");
	}
	SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
	SSL_CTX_set_options(tls->context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_default_passwd_cb(tls->context, no_password);
	rc = files_load(tls, certificate, key);
	ERR_clear_error();
	if (rc < 0) {
		http_tls_free(tls);
		return rc;
	}
	*ret_tls = tls;
	return 0;
}

void http_tls_free(struct http_tls *tls)
{
	if (!tls)
		return;
	SSL_CTX_free(tls->context);
	free(tls);
}

bool http_tls_same(const struct http_tls *one, const struct http_tls *other)
{
	if (!one || !other)
		return !one && !other;
	return X509_cmp(SSL_CTX_get0_certificate(one->context), SSL_CTX_get0_certificate(other->context)) == 0;
}

int64_t http_tls_expires(const struct http_tls *tls)
{
	return tls->expires;
}

struct bufferevent *http_tls_accept(const struct http_tls *tls, struct event_base *base, int fd)
{
	SSL *ssl = SSL_new(tls->context);
	struct bufferevent *bev;

	if (!ssl)
		return NULL;
	bev = bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
	if (!bev) {
		SSL_free(ssl);
		return NULL;
	}
	/* A peer that just closes has cut nothing off: requests and answers say where they end. */
	bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
	return bev;
}

void http_tls_finish(struct bufferevent *bev)
{
	SSL *ssl = bufferevent_openssl_get_ssl(bev);

	if (ssl && SSL_is_init_finished(ssl))
		(void)SSL_shutdown(ssl);
	ERR_clear_error();
}

/* ---- the token ---- */

static void hash(const char *token, size_t length, uint8_t ret_hash[32])
{
	crypto_generichash(ret_hash, 32, (const unsigned char *)token, length, NULL, 0);
}

/* The first line, without white space around it; its length or a negative code with a text. */
static int token_read(const char *path, char *text, size_t bytes, const char **ret_token)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t length;
	ssize_t got;

	if (fd < 0)
		return err_set(-errno, "%s: can not be read: %s", path, strerrordesc_np(errno));
	got = read(fd, text, bytes - 1);
	close(fd);
	if (got < 0)
		return err_set(-errno, "%s: can not be read: %s", path, strerrordesc_np(errno));
	text[got] = '\0';
	*ret_token = text + strspn(text, " \t\r\n");
	length = strcspn(*ret_token, " \t\r\n");
	for (size_t i = 0; i < length; i++)
		if ((*ret_token)[i] <= ' ' || (*ret_token)[i] >= 0x7f)
			length = 0;
	if (length < HTTP_TOKEN_MIN || length > HTTP_TOKEN_MAX)
		return err_set(-EINVAL,
			       "token_file %s: its first line has to be a token of %u to %u printable characters: "
			       "openssl rand -hex 32 > %s",
			       path, HTTP_TOKEN_MIN, HTTP_TOKEN_MAX, path);
	return (int)length;
}

int http_token_load(const char *path, struct http_token *ret_token)
{
	char text[HTTP_TOKEN_MAX + 64];
	const char *token = text;
	int rc = http_tls_file_check(path, 077, "chmod 600");

	if (rc == 0)
		rc = token_read(path, text, sizeof(text), &token);
	if (rc > 0) {
		hash(token, (size_t)rc, ret_token->hash);
		ret_token->set = true;
		rc = 0;
	}
	sodium_memzero(text, sizeof(text));
	return rc;
}

bool http_token_check(const struct http_token *token, const char *authorization)
{
	uint8_t given[32];

	if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
		return false;
	authorization += 7 + strspn(authorization + 7, " ");
	hash(authorization, strlen(authorization), given);
	return sodium_memcmp(given, token->hash, sizeof(given)) == 0;
}
