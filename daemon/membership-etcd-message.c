/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests to etcd's JSON gateway and its answers as text. Nothing in an answer is believed: the types of all that is
 * used are looked at, and numbers, texts and counts are bounded. Pure. Next to read: membership-etcd.c.
 */
#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "membership-etcd-message.h"

/* ---- answers ---- */

static int strange(const char *what)
{
	return err_set(-EINVAL, "the answer is not one of etcd: its %s is strange", what);
}

/* Text or number; left out: zero. */
static int number_get(json_t *object, const char *name, uint64_t *ret_number)
{
	json_t *value = json_object_get(object, name);
	const char *text = json_string_value(value);
	char *end;

	if (!value)
		return 0;
	if (json_is_integer(value) && json_integer_value(value) >= 0) {
		*ret_number = (uint64_t)json_integer_value(value);
		return 0;
	}
	if (!text || *text < '0' || *text > '9')
		return strange(name);
	errno = 0;
	*ret_number = strtoull(text, &end, 10);
	return *end || errno ? strange(name) : 0;
}

static bool flag_get(json_t *object, const char *name)
{
	return json_is_true(json_object_get(object, name));
}

/* A copy with a 0 behind it. */
static int bytes_get(json_t *object, const char *name, char **ret_bytes, size_t *ret_count)
{
	json_t *value = json_object_get(object, name);
	size_t length = json_string_length(value), count = 0;
	const char *text = json_string_value(value), *end = NULL;
	char *bytes;

	if (!value)
		return 0;
	if (!text)
		return strange(name);
	bytes = malloc(length + 1);
	if (!bytes)
		return err_set(-ENOMEM, "out of memory");
	if (sodium_base642bin((unsigned char *)bytes, length, text, length, NULL, &count, &end,
			      sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    end != text + length) {
		free(bytes);
		return strange(name);
	}
	bytes[count] = '\0';
	*ret_bytes = bytes;
	*ret_count = count;
	return 0;
}

static int kv_get(json_t *object, struct etcd_kv *kv)
{
	size_t key_bytes = 0;
	int rc = bytes_get(object, "key", &kv->key, &key_bytes);

	if (rc == 0 && (!kv->key || strlen(kv->key) != key_bytes))
		rc = strange("key");
	if (rc == 0)
		rc = bytes_get(object, "value", &kv->value, &kv->bytes);
	if (rc == 0)
		rc = number_get(object, "create_revision", &kv->create_revision);
	if (rc == 0)
		rc = number_get(object, "mod_revision", &kv->mod_revision);
	if (rc == 0)
		rc = number_get(object, "lease", &kv->lease);
	return rc;
}

/* Of an event the kv is inside. */
static int kvs_get(json_t *array, bool events, struct etcd_answer *answer)
{
	size_t count = json_array_size(array);
	int rc = 0;

	if (!array || count == 0)
		return 0;
	if (count > ETCD_KVS_MAX)
		return strange("number of keys");
	answer->kvs = calloc(count, sizeof(*answer->kvs));
	if (!answer->kvs)
		return err_set(-ENOMEM, "out of memory");
	answer->count = count;
	for (size_t i = 0; rc == 0 && i < count; i++) {
		json_t *object = json_array_get(array, i);
		const char *type = json_string_value(json_object_get(object, "type"));

		answer->kvs[i].deleted = events && type && strcmp(type, "DELETE") == 0;
		rc = kv_get(events ? json_object_get(object, "kv") : object, &answer->kvs[i]);
	}
	return rc;
}

/* {"error":"words","code":14}, or in a stream {"error":{"grpc_code":14,"message":"words"}}. */
static int error_get(json_t *document, struct etcd_answer *answer)
{
	json_t *error = json_object_get(document, "error");
	json_t *from = json_is_object(error) ? error : document;
	const char *text = json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
	int rc = number_get(from, json_object_get(from, "grpc_code") ? "grpc_code" : "code", &answer->code);

	if (!error)
		return rc;
	if (answer->code == ETCD_OK)
		answer->code = ETCD_UNKNOWN;
	snprintf(answer->error, sizeof(answer->error), "%s", text ? text : "an error without words");
	return rc;
}

/* The kvs of the first range among a transaction's responses. */
static int responses_get(json_t *array, struct etcd_answer *answer)
{
	json_t *response, *range;
	size_t i;

	json_array_foreach(array, i, response)
	{
		range = json_object_get(response, "response_range");
		if (range)
			return kvs_get(json_object_get(range, "kvs"), false, answer);
	}
	return 0;
}

static int token_get(json_t *object, struct etcd_answer *answer)
{
	const char *token = json_string_value(json_object_get(object, "token"));

	if (!token)
		return 0;
	if (strlen(token) > 8192 || token[strcspn(token, "\r\n")])
		return strange("token");
	answer->token = strdup(token);
	return answer->token ? 0 : err_set(-ENOMEM, "out of memory");
}

static int answer_get(json_t *object, struct etcd_answer *answer)
{
	json_t *header = json_object_get(object, "header");
	int rc = number_get(header, "cluster_id", &answer->cluster);

	if (rc == 0)
		rc = number_get(header, "revision", &answer->revision);
	if (rc == 0)
		rc = number_get(object, "compact_revision", &answer->compact_revision);
	if (rc == 0)
		rc = number_get(object, "ID", &answer->lease);
	if (rc == 0)
		rc = number_get(object, "TTL", &answer->ttl);
	if (rc == 0)
		rc = token_get(object, answer);
	if (rc == 0)
		rc = kvs_get(json_object_get(object, "kvs"), false, answer);
	if (rc == 0 && answer->count == 0)
		rc = kvs_get(json_object_get(object, "events"), true, answer);
	if (rc == 0 && answer->count == 0)
		rc = responses_get(json_object_get(object, "responses"), answer);
	answer->succeeded = flag_get(object, "succeeded");
	answer->created = flag_get(object, "created");
	answer->canceled = flag_get(object, "canceled");
	if (answer->canceled)
		snprintf(answer->error, sizeof(answer->error), "%s",
			 json_is_string(json_object_get(object, "cancel_reason"))
				 ? json_string_value(json_object_get(object, "cancel_reason"))
				 : "");
	return rc;
}

int etcd_answer_parse(const char *text, size_t bytes, struct etcd_answer *ret_answer)
{
	struct etcd_answer answer = {0};
	json_error_t error;
	json_t *document, *result;
	int rc;

	if (bytes > ETCD_ANSWER_MAX)
		return strange("size");
	document = json_loadb(text, bytes, 0, &error);
	if (!json_is_object(document)) {
		json_decref(document);
		return err_set(-EINVAL, "the answer is not one of etcd, which would be JSON: it begins with '%.*s'",
			       (int)(bytes < 40 ? bytes : 40), text);
	}
	result = json_object_get(document, "result");
	rc = answer_get(json_is_object(result) ? result : document, &answer);
	if (rc == 0)
		rc = error_get(document, &answer);
	json_decref(document);
	if (rc < 0) {
		etcd_answer_free(&answer);
		return rc;
	}
	*ret_answer = answer;
	return 0;
}

void etcd_answer_free(struct etcd_answer *answer)
{
	for (size_t i = 0; i < answer->count; i++) {
		free(answer->kvs[i].key);
		free(answer->kvs[i].value);
	}
	free(answer->kvs);
	free(answer->token);
	*answer = (struct etcd_answer){0};
}

/* ---- requests ---- */

static json_t *base64(const char *bytes, size_t count)
{
	size_t length = sodium_base64_ENCODED_LEN(count, sodium_base64_VARIANT_ORIGINAL);
	char *text = malloc(length);
	json_t *json = NULL;

	if (text)
		json = json_string(sodium_bin2base64(text, length, (const unsigned char *)bytes, count,
						     sodium_base64_VARIANT_ORIGINAL));
	free(text);
	return json;
}

static json_t *key_json(const char *key)
{
	return base64(key, strlen(key));
}

static json_t *number_json(uint64_t number)
{
	return json_sprintf("%llu", (unsigned long long)number);
}

/* Takes the JSON over. */
static char *request(json_t *json)
{
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

	json_decref(json);
	return text;
}

char *etcd_range(const char *key, const char *end, bool keys_only)
{
	json_t *json = json_pack("{s:o}", "key", key_json(key));

	if (end)
		json_object_set_new(json, "range_end", key_json(end));
	if (keys_only)
		json_object_set_new(json, "keys_only", json_true());
	return request(json);
}

char *etcd_watch(const char *key, const char *end, uint64_t from)
{
	return request(json_pack("{s:{s:o, s:o, s:o, s:b}}", "create_request", "key", key_json(key), "range_end",
				 key_json(end), "start_revision", number_json(from), "progress_notify", 1));
}

char *etcd_grant(uint64_t seconds)
{
	return request(json_pack("{s:o}", "TTL", number_json(seconds)));
}

char *etcd_lease(uint64_t lease)
{
	return request(json_pack("{s:o}", "ID", number_json(lease)));
}

char *etcd_authenticate(const char *user, const char *password)
{
	return request(json_pack("{s:s, s:s}", "name", user, "password", password));
}

char *etcd_transaction(const struct etcd_compare *compares, size_t count, const char *key, const char *value,
		       size_t bytes, uint64_t lease, const char *otherwise_key)
{
	json_t *compare = json_array(), *otherwise = json_array(), *put;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(compare,
				      json_pack("{s:s, s:s, s:o, s:o}", "target", compares[i].create ? "CREATE" : "MOD",
						"result", "EQUAL", "key", key_json(compares[i].key),
						compares[i].create ? "create_revision" : "mod_revision",
						number_json(compares[i].revision)));
	put = json_pack("{s:o, s:o}", "key", key_json(key), "value", base64(value, bytes));
	if (lease)
		json_object_set_new(put, "lease", number_json(lease));
	if (otherwise_key)
		json_array_append_new(otherwise,
				      json_pack("{s:{s:o}}", "request_range", "key", key_json(otherwise_key)));
	return request(json_pack("{s:o, s:[{s:o}], s:o}", "compare", compare, "success", "request_put", put, "failure",
				 otherwise));
}

char *etcd_prefix_end(const char *prefix)
{
	char *end = strdup(prefix);

	if (end)
		end[strlen(end) - 1]++;
	return end;
}
