/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Takes the head of an HTTP/1.0 or 1.1 request apart. Pure: bytes in, texts out, any thread (tarnd's
 * one calls it); tests/fuzz/fuzz-http.c feeds it. Stricter than others: no folded lines, no body, one Host. Next to read: http-answer.c, which
 * looks at what was asked for, and http.c, which has the bytes.
 */
#include <string.h>
#include <strings.h>

#include "http-request.h"

/* The length of the head with its empty line; 0: that has not come yet. */
static size_t head_length(const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (bytes[i] != '\n')
			continue;
		if (i + 1 < count && bytes[i + 1] == '\n')
			return i + 2;
		if (i + 2 < count && bytes[i + 1] == '\r' && bytes[i + 2] == '\n')
			return i + 3;
	}
	return 0;
}

/* Bytes that no head has: 0, and control characters but tab and the ends of lines. */
static bool text_valid(const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		unsigned char c = (unsigned char)bytes[i];

		if ((c < 0x20 && c != '\t' && c != '\r' && c != '\n') || c == 0x7f)
			return false;
		if (c == '\r' && (i + 1 == count || bytes[i + 1] != '\n'))
			return false;
	}
	return true;
}

/* Cuts the next line off; NULL at the end. */
static char *line_next(char **inout_at)
{
	char *line = *inout_at, *end = strchr(line, '\n');

	if (!end)
		return NULL;
	*inout_at = end + 1;
	if (end > line && end[-1] == '\r')
		end--;
	*end = '\0';
	return line;
}

/* RFC 9110, token. */
static bool token_valid(const char *text)
{
	static const char others[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

	return *text && text[strspn(text, others)] == '\0';
}

/* "GET /path?query HTTP/1.1" */
static int request_line(struct http_request *request, char *line)
{
	char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL, *query;

	if (!version || strchr(version + 1, ' '))
		return 400;
	*target++ = *version++ = '\0';
	if (!token_valid(line) || strlen(line) > 32)
		return 400;
	if (strncmp(version, "HTTP/", 5) != 0)
		return 400;
	if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
		return 505;
	request->keep_alive = version[7] == '1';
	/* a client that takes us for its proxy writes the whole URI */
	if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
		target = strstr(target, "//") + 2;
		target += strcspn(target, "/?");
		if (*target != '/')
			return 400;
	}
	if (*target != '/' && strcmp(target, "*") != 0)
		return 400;
	query = strchr(target, '?');
	if (query)
		*query++ = '\0';
	request->method = line;
	request->path = target;
	request->query = query;
	return 0;
}

/* Is the word in a list "a, b"? */
static bool list_has(const char *list, const char *word)
{
	while (*list) {
		size_t length;

		list += strspn(list, " \t,");
		length = strcspn(list, " \t,");
		if (length == strlen(word) && strncasecmp(list, word, length) == 0)
			return true;
		list += length;
	}
	return false;
}

/* We read no body, and what follows one can't be told apart from it: http-answer.c refuses it. */
static int body_look(struct http_request *request, const char *name, const char *value)
{
	if (strcasecmp(name, "Transfer-Encoding") == 0)
		request->body = true;
	if (strcasecmp(name, "Content-Length") != 0)
		return 0;
	if (!*value || value[strspn(value, "0123456789")] != '\0')
		return 400;
	if (value[strspn(value, "0")] != '\0')
		request->body = true;
	return 0;
}

/* The first of each counts, but a second Host is an attack. */
static int header_keep(struct http_request *request, const char *name, const char *value)
{
	if (strcasecmp(name, "Host") == 0) {
		if (request->host)
			return 400;
		request->host = value;
	} else if (strcasecmp(name, "Accept") == 0) {
		request->accept = request->accept ? request->accept : value;
	} else if (strcasecmp(name, "Authorization") == 0) {
		if (request->authorization)
			return 400;
		request->authorization = value;
	} else if (strcasecmp(name, "Connection") == 0) {
		if (list_has(value, "close"))
			request->keep_alive = false;
		else if (list_has(value, "keep-alive"))
			request->keep_alive = true;
	}
	return body_look(request, name, value);
}

static int header_line(struct http_request *request, char *line)
{
	char *value = strchr(line, ':'), *end;

	if (!value)
		return 400;
	*value++ = '\0';
	if (!token_valid(line))
		return 400;
	value += strspn(value, " \t");
	end = value + strlen(value);
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	return header_keep(request, line, value);
}

int http_request_parse(const char *bytes, size_t count, struct http_request *ret, size_t *ret_used)
{
	size_t skipped = 0, length, headers = 0;
	char *at = ret->text, *line;
	int status;

	memset(ret, 0, offsetof(struct http_request, text));
	/* RFC 9112, 2.2: empty lines before a request are not one */
	while (skipped < count && skipped < 4 && (bytes[skipped] == '\r' || bytes[skipped] == '\n'))
		skipped++;
	bytes += skipped;
	count -= skipped;
	length = head_length(bytes, count);
	if (length > HTTP_HEAD_MAX || (length == 0 && count >= HTTP_HEAD_MAX))
		return 431;
	if (!text_valid(bytes, length ? length : (count && bytes[count - 1] == '\r' ? count - 1 : count)))
		return 400;
	if (length == 0)
		return 0;
	memcpy(ret->text, bytes, length);
	ret->text[length] = '\0';
	line = line_next(&at);
	status = request_line(ret, line);
	while (status == 0 && (line = line_next(&at)) && *line)
		status = ++headers > HTTP_HEADERS_MAX ? 431 : header_line(ret, line);
	if (status)
		return status;
	*ret_used = skipped + length;
	return 200;
}
