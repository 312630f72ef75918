/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests taken apart: what is one, what is not, and where it ends; tokens. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config.h"
#include "err.h"
#include "http-listen.h"
#include "http-request.h"
#include "http-tls.h"
#include "http.h"
#include "log.h"

static struct http_request request;

/* From a block of the exact size, so that a sanitizer sees what is read behind it. */
static int parse(const char *text, size_t *ret_used)
{
	size_t count = strlen(text);
	char *bytes = malloc(count + (count == 0));
	int status;

	memcpy(bytes, text, count);
	status = http_request_parse(bytes, count, &request, ret_used);
	free(bytes);
	return status;
}

static void test_parts(void **state)
{
	const char *text = "GET /a?b?c HTTP/1.1\r\nHOST:  h:1 \r\naccept:\ttext/plain\t\r\nX:\r\nAuthorization: Bearer "
			   "t\r\n\r\nGET";
	size_t used = 0;

	(void)state;
	assert_int_equal(parse(text, &used), 200);
	assert_int_equal(used, strlen(text) - 3);
	assert_string_equal(request.method, "GET");
	assert_string_equal(request.path, "/a");
	assert_string_equal(request.query, "b?c");
	assert_string_equal(request.host, "h:1");
	assert_string_equal(request.accept, "text/plain");
	assert_string_equal(request.authorization, "Bearer t");
	assert_true(request.keep_alive && !request.body);
}

/* Every beginning of a good request is incomplete, and never wrong. */
static void test_piecemeal(void **state)
{
	const char *text = "\r\nGET /v1/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	char part[128];
	size_t used;

	(void)state;
	for (size_t length = 0; length < strlen(text); length++) {
		snprintf(part, sizeof(part), "%.*s", (int)length, text);
		assert_int_equal(parse(part, &used), 0);
	}
	assert_int_equal(parse(text, &used), 200);
	assert_int_equal(used, strlen(text));
	assert_false(request.keep_alive);
}

static void test_keep_alive(void **state)
{
	static const struct {
		const char *text;
		bool keep;
	} cases[] = {
		{"GET / HTTP/1.0\r\n\r\n", false},
		{"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
		{"GET / HTTP/1.1\r\n\r\n", true},
		{"GET / HTTP/1.1\r\nConnection: upgrade, CLOSE\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nConnection: closed\r\n\r\n", true},
		{"GET / HTTP/1.1\r\nConnection: ,,\r\n\r\n", true},
	};
	size_t used;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(parse(cases[i].text, &used), 200);
		assert_int_equal(request.keep_alive, cases[i].keep);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = {
		{"x\r\n\r\n", 400},
		{" GET / HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/1.1 \r\n\r\n", 400},
		{"GET /\t HTTP/1.1\r\n\r\n", 200}, /* no such path */
		{"GET / HTTP/1.1\rHost: a\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nA\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n: b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nA b: c\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n A: b\r\n\r\n", 400},
		{"GET / HTTP/1.2\r\n\r\n", 505},
		{"GET / HTTP/11\r\n\r\n", 505},
		{"GET / http/1.1\r\n\r\n", 400},
		{"GET http://a HTTP/1.1\r\n\r\n", 400},
		{"GET http:///b HTTP/1.1\r\n\r\n", 200},
		{"GET \x7f HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: a\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nContent-Length:\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200},
		{"G\x01", 400},
	};
	size_t used;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = parse(cases[i].text, &used);

		if (status != cases[i].status)
			fail_msg("%s: %d, not %d", cases[i].text, status, cases[i].status);
	}
	assert_int_equal(parse("GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", &used), 200);
	assert_true(request.body);
	assert_int_equal(parse("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", &used), 200);
	assert_true(request.body);
}

static void test_limits(void **state)
{
	char *text = malloc(HTTP_HEAD_MAX + 64);
	size_t used, length;

	(void)state;
	/* exactly as long as it may be */
	length = (size_t)sprintf(text, "GET / HTTP/1.1\r\nA: ");
	memset(text + length, 'a', HTTP_HEAD_MAX - 4 - length);
	strcpy(text + HTTP_HEAD_MAX - 4, "\r\n\r\n");
	assert_int_equal(parse(text, &used), 200);
	assert_int_equal(used, HTTP_HEAD_MAX);
	strcpy(text + HTTP_HEAD_MAX - 4, "a\r\n\r\n");
	assert_int_equal(parse(text, &used), 431);
	/* lines */
	for (unsigned lines = HTTP_HEADERS_MAX; lines <= HTTP_HEADERS_MAX + 1; lines++) {
		length = (size_t)sprintf(text, "GET / HTTP/1.1\r\n");
		for (unsigned i = 0; i < lines; i++)
			length += (size_t)sprintf(text + length, "A: b\r\n");
		strcpy(text + length, "\r\n");
		assert_int_equal(parse(text, &used), lines > HTTP_HEADERS_MAX ? 431 : 200);
	}
	free(text);
}

static void token_file(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(chmod(path, mode), 0);
}

static void test_token(void **state)
{
	char path[] = "/tmp/tarn-test-token-XXXXXX";
	struct http_token token = {0};

	(void)state;
	close(mkstemp(path));
	token_file(path, "  0123456789abcdef \nmore\n", 0600);
	assert_int_equal(http_token_load(path, &token), 0);
	assert_true(http_token_check(&token, "Bearer 0123456789abcdef"));
	assert_true(http_token_check(&token, "bearer  0123456789abcdef"));
	assert_false(http_token_check(&token, NULL));
	assert_false(http_token_check(&token, ""));
	assert_false(http_token_check(&token, "Bearer"));
	assert_false(http_token_check(&token, "Bearer "));
	assert_false(http_token_check(&token, "Bearer 0123456789abcde"));
	assert_false(http_token_check(&token, "Bearer 0123456789abcdef0"));
	assert_false(http_token_check(&token, "Basic 0123456789abcdef"));
	token_file(path, "0123456789abcde\n", 0600);
	assert_true(http_token_load(path, &token) < 0);
	token_file(path, "0123456789abcdef\x01\n", 0600);
	assert_true(http_token_load(path, &token) < 0);
	token_file(path, "", 0600);
	assert_true(http_token_load(path, &token) < 0);
	token_file(path, "0123456789abcdef\n", 0640);
	assert_true(http_token_load(path, &token) < 0);
	assert_non_null(strstr(err_text(), "chmod 600"));
	unlink(path);
	assert_true(http_token_load(path, &token) < 0);
	assert_true(http_token_check(&token, "Bearer 0123456789abcdef")); /* what was wrong has changed nothing */
}

static void test_addresses(void **state)
{
	struct config_value text = {.text = (char *)(uintptr_t) " 127.1.2.3 ,[::1]:80,  10.0.0.1:0,0.0.0.0, :: "};
	struct config_http http = {.listen = text};
	struct config_address address;

	(void)state;
	assert_int_equal(http_address(&http, 0, &address), 0);
	assert_true(http_address_local(&address) && !address.has_port);
	assert_int_equal(http_address(&http, 1, &address), 0);
	assert_true(http_address_local(&address) && address.port == 80);
	assert_int_equal(http_address(&http, 2, &address), 0);
	assert_false(http_address_local(&address));
	assert_int_equal(http_address(&http, 3, &address), 0);
	assert_false(http_address_local(&address));
	assert_int_equal(http_address(&http, 4, &address), 0);
	assert_false(http_address_local(&address));
	assert_true(http_address(&http, 5, &address) < 0);
}

/* ---- the server: closed and opened again, as a reload may ---- */

static struct config *config_of(const char *http)
{
	struct config_errors errors = {0};
	struct config *config = NULL;
	char text[512];

	snprintf(text, sizeof(text), "[listen l]\npath = /l\n[pool main]\nsize = 8M\n%s", http);
	assert_int_equal(config_parse("test", text, strlen(text), &errors, &config), 0);
	if (errors.count)
		fail_msg("%s", errors.texts[0]);
	return config;
}

/* One that nobody has at the moment. */
static struct sockaddr_in free_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
	close(fd);
	return address;
}

static void test_reopen(void **state)
{
	struct sockaddr_in address = free_port();
	struct log log;
	struct daemon daemon = {.base = event_base_new(), .log = &log};
	struct config *config;
	char section[128];
	struct http *http, *second;

	(void)state;
	log_init(&log, STDERR_FILENO, LOG_LEVEL_ERROR);
	config = config_of("");
	assert_int_equal(http_bind(&daemon, config, &http), 0);
	assert_null(http); /* there is no section */
	http_close(http);
	config_free(config);
	snprintf(section, sizeof(section), "[http]\nlisten = 127.0.0.1:%u\n", ntohs(address.sin_port));
	config = config_of(section);
	for (int round = 0; round < 3; round++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		assert_int_equal(http_bind(&daemon, config, &http), 0);
		assert_int_not_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0); /* not yet */
		close(fd);
		assert_int_equal(http_open(http), 0);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
		for (int i = 0; i < 1000 && http_stats(http)->connections == 0; i++) {
			event_base_loop(daemon.base, EVLOOP_NONBLOCK);
			usleep(1000);
		}
		assert_int_equal(http_stats(http)->connections, 1);
		assert_int_equal(http_bind(&daemon, config, &second), -EADDRINUSE);
		assert_non_null(strstr(err_text(), "another program has this port"));
		http_close(http);
		close(fd);
	}
	config_free(config);
	event_base_free(daemon.base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),     cmocka_unit_test(test_piecemeal), cmocka_unit_test(test_keep_alive),
		cmocka_unit_test(test_refused),   cmocka_unit_test(test_limits),    cmocka_unit_test(test_token),
		cmocka_unit_test(test_addresses), cmocka_unit_test(test_reopen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
