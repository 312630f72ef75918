/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control.c - questions to the daemon itself, as JSON over its unix socket
 *
 * One connection, one question, one answer in several packets (wire.h, "control"). No session and
 * no key is needed: who may open the socket may ask. Next to read: stats.c, which shows the
 * answers.
 */
#include "control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "uri.h"
#include "wire.h"

#define CONTROL_PACKET_BYTES (WIRE_CONTROL_HEADER + WIRE_CONTROL_CHUNK)
#define CONNECT_STEP_MS      200

struct control {
	int fd;
	int wake_fd; /* readable: give up; -1: none */
	uint64_t deadline_ns;
	uint64_t limit_ms;
	char *text; /* of the answer */
	size_t n, capacity;
};

static int fail_timeout(const struct control *control)
{
	return err_set(-TARN_ETIMEOUT, "the daemon has not answered within %llu ms: is it stopped?",
		       (unsigned long long)control->limit_ms);
}

/* Waits until the socket is ready for events. 0 or a negative code. */
static int wait_ready(const struct control *control, short events)
{
	/* poll() passes over a negative one. */
	struct pollfd pollfds[] = {{.fd = control->fd, .events = events},
				   {.fd = control->wake_fd, .events = POLLIN}};

	for (;;) {
		uint64_t now_ns = clock_now_ns();
		int status;

		if (now_ns >= control->deadline_ns)
			return fail_timeout(control);
		status = poll(pollfds, 2, (int)((control->deadline_ns - now_ns) / 1000000) + 1);
		if (status > 0 && pollfds[0].revents != 0)
			return 0;
		if (status > 0)
			return -ECANCELED;
		if (status < 0 && errno != EINTR)
			return err_set(-errno, "poll: %m");
	}
}

static int connect_error(const char *path)
{
	switch (errno) {
	case ENOENT:
		return err_set(
			-TARN_EUNREACHABLE,
			"no daemon at %s: there is no such socket; start tarnd, or check the URI",
			path);
	case ECONNREFUSED:
		return err_set(-TARN_EUNREACHABLE,
			       "no daemon at %s: nobody listens on the socket; start tarnd", path);
	case EAGAIN:
		return err_set(-TARN_ETIMEOUT,
			       "the daemon at %s does not accept connections: is it stopped?",
			       path);
	case EACCES:
		return err_set(
			-EACCES,
			"no permission for the socket %s: see `mode` and `group` in tarnd.conf(5)",
			path);
	}
	return err_set(-errno, "connect to %s: %m", path);
}

/* Is somebody to be woken, or is the time over? 0 or a negative code. */
static int check_wait(const struct control *control)
{
	struct pollfd pollfd = {.fd = control->wake_fd, .events = POLLIN};

	if (poll(&pollfd, 1, 0) > 0)
		return -ECANCELED;
	return clock_now_ns() >= control->deadline_ns ? fail_timeout(control) : 0;
}

/* Waits while the daemon's backlog is full: in steps, if somebody may want to be woken meanwhile. */
static int connect_socket(const struct control *control, const struct sockaddr_un *address)
{
	int status;

	for (;;) {
		if (connect(control->fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
			return 0;
		if (errno != EAGAIN || control->wake_fd < 0)
			return connect_error(address->sun_path);
		status = check_wait(control);
		if (status < 0)
			return status;
	}
}

static int open_socket(struct control *control, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uint64_t limit_ms = control->wake_fd >= 0 && control->limit_ms > CONNECT_STEP_MS
				    ? CONNECT_STEP_MS
				    : control->limit_ms;
	struct timeval limit = {.tv_sec = (time_t)(limit_ms / 1000),
				.tv_usec = (suseconds_t)(limit_ms % 1000 * 1000)};

	if (strlen(path) >= sizeof(address.sun_path))
		return err_set(-TARN_EURI, "%s: the path of a socket has at most %zu bytes", path,
			       sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	control->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (control->fd < 0)
		return err_set(-errno, "socket: %m");
	/* Bounds connect(). */
	if (setsockopt(control->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
		return err_set(-errno, "SO_SNDTIMEO: %m");
	return connect_socket(control, &address);
}

static int send_question(const struct control *control, const char *question)
{
	uint8_t packet[WIRE_CONTROL_HEADER + WIRE_CONTROL_REQUEST_MAX];
	size_t n = strlen(question);

	if (n > WIRE_CONTROL_REQUEST_MAX)
		return -EINVAL;
	wire_control_encode(WIRE_CONTROL_LAST, packet);
	memcpy(packet + WIRE_CONTROL_HEADER, question, n);
	if (send(control->fd, packet, WIRE_CONTROL_HEADER + n, MSG_NOSIGNAL) < 0)
		return errno == EAGAIN ? fail_timeout(control)
				       : err_set(-TARN_ESESSION,
						 "the daemon has closed the connection: %m");
	return 0;
}

static int append(struct control *control, const char *text, size_t n)
{
	if (n > WIRE_CONTROL_REPLY_MAX - control->n)
		return err_set(-TARN_EPROTO, "the daemon's answer is longer than %u bytes",
			       WIRE_CONTROL_REPLY_MAX);
	if (control->n + n > control->capacity) {
		size_t capacity = 2 * (control->n + n);
		char *grown = realloc(control->text, capacity);

		if (grown == NULL)
			return err_set(-ENOMEM, "no memory for the daemon's answer");
		control->text = grown;
		control->capacity = capacity;
	}
	memcpy(control->text + control->n, text, n);
	control->n += n;
	return 0;
}

static int receive_answer(struct control *control)
{
	char packet[CONTROL_PACKET_BYTES];
	size_t text_bytes;
	const char *text;
	uint8_t flags = 0;

	while ((flags & WIRE_CONTROL_LAST) == 0) {
		int status = wait_ready(control, POLLIN);
		ssize_t got;

		if (status < 0)
			return status;
		/* MSG_TRUNC: a packet that is too long is seen as such. */
		got = recv(control->fd, packet, sizeof(packet), MSG_TRUNC);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(-TARN_ESESSION, "the connection to the daemon is gone: %m");
		if (got == 0)
			return err_set(-TARN_ESESSION, "the daemon has closed the connection "
						       "without an answer; its log may say why");
		if ((size_t)got > sizeof(packet))
			return err_set(-TARN_EPROTO, "the daemon has sent a packet of %zd bytes",
				       got);
		status = wire_control_decode(packet, (size_t)got, &flags, &text, &text_bytes);
		if (status == 0)
			status = append(control, text, text_bytes);
		if (status < 0)
			return status;
	}
	return 0;
}

/* {"error": {"name": "EPERM", "text": "..."}}: the daemon does not answer, and why. */
static int check_answer(json_t *answer)
{
	json_t *error = json_object_get(answer, "error"), *text = error;
	int code = -TARN_EREFUSED;

	if (error == NULL)
		return 0;
	if (json_is_object(error)) {
		const char *name = json_string_value(json_object_get(error, "name"));

		text = json_object_get(error, "text");
		if (name != NULL && strcmp(name, "EPERM") == 0)
			code = -EPERM;
	}
	return err_set(code, "the daemon says: %s",
		       json_is_string(text) ? json_string_value(text) : "error");
}

static int parse_answer(const struct control *control, json_t **ret_answer)
{
	json_error_t error;
	json_t *answer = json_loadb(control->text, control->n, JSON_REJECT_DUPLICATES, &error);
	int status;

	if (!json_is_object(answer)) {
		json_decref(answer);
		return err_set(-TARN_EPROTO, "the daemon's answer is no JSON object: %s",
			       error.text);
	}
	status = check_answer(answer);
	if (status < 0) {
		json_decref(answer);
		return status;
	}
	*ret_answer = answer;
	return 0;
}

static int ask(struct control *control, const char *path, const char *question, json_t **ret_answer)
{
	int status = open_socket(control, path);

	if (status == 0)
		status = send_question(control, question);
	if (status == 0)
		status = receive_answer(control);
	if (status == 0)
		status = parse_answer(control, ret_answer);
	if (control->fd >= 0)
		close(control->fd);
	free(control->text);
	return status;
}

int control_try(struct cli *cli, const char *question, int wake_fd, json_t **ret_answer)
{
	struct control control = {.fd = -1, .wake_fd = wake_fd, .limit_ms = cli->timeout_ms};
	struct uri uri;
	int status;

	err_clear();
	status = uri_parse(cli->uri, &uri);
	if (status == 0 && uri.path[0] == '\0')
		status = err_set(-TARN_ENOTBUILT,
				 "only a daemon on this host can be asked: tarn:PATH?pool=NAME");
	if (status < 0)
		return status;
	if (control.limit_ms == 0)
		control.limit_ms = uri.timeout_ms != 0 ? uri.timeout_ms : CLI_TIMEOUT_DEFAULT_MS;
	control.deadline_ns = clock_now_ns() + control.limit_ms * 1000000;
	return ask(&control, uri.path, question, ret_answer);
}

int control_ask(struct cli *cli, const char *question, json_t **ret_answer)
{
	int status = control_try(cli, question, -1, ret_answer);

	return status < 0 ? cli_fail(cli, status, cli->uri, "%s",
				     *err_text() != '\0' ? err_text() : err_string(status))
			  : CLI_OK;
}
