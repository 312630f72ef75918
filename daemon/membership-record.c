/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member's record as JSON: {"format":1, "name", "number", "boot_id", "weight", "version", "addresses"}. Pure; nothing that is read is
 * believed. Next to read: membership-etcd.c.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "membership-record.h"

#define FORMAT 1

int membership_record_write(const struct membership_record *record, char **ret_text)
{
	json_t *addresses = json_array(), *json;
	struct membership_record again;
	char *text;
	int rc;

	for (uint32_t i = 0; i < record->address_count && i < CLUSTER_ADDRESSES_MAX; i++)
		json_array_append_new(addresses,
				      json_pack("{s:s, s:s}", "fabric", record->addresses[i].shm ? "shm" : "verbs",
						"address", record->addresses[i].text));
	json = json_pack("{s:i, s:s, s:i, s:o, s:i, s:s, s:o}", "format", FORMAT, "name", record->name, "number",
			 (int)record->number, "boot_id",
			 json_sprintf("%016llx", (unsigned long long)record->boot_id), "weight", (int)record->weight,
			 "version", record->version, "addresses", addresses);
	text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	json_decref(json);
	if (!text)
		return err_set(-ENOMEM, "no memory for this member's record, or its version is no UTF-8");
	rc = membership_record_parse(text, strlen(text), &again);
	if (rc < 0) {
		free(text);
		return rc;
	}
	*ret_text = text;
	return 0;
}

static int wrong(const char *what, const char *allowed)
{
	return err_set(-EINVAL, "the record's %s is missing or wrong; allowed: %s", what, allowed);
}

/* Text without zeros, of at most max bytes. */
static bool text_get(json_t *value, char *buffer, size_t max)
{
	size_t length = json_string_length(value);

	if (!json_is_string(value) || length > max || strlen(json_string_value(value)) != length)
		return false;
	memcpy(buffer, json_string_value(value), length + 1);
	return true;
}

static bool printable(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || (unsigned char)*text > '~')
			return false;
	return true;
}

static bool number_get(json_t *value, json_int_t max, json_int_t *ret_number)
{
	*ret_number = json_integer_value(value);
	return json_is_integer(value) && *ret_number >= 0 && *ret_number <= max;
}

static int addresses_get(json_t *array, struct membership_record *record)
{
	size_t count = json_array_size(array);

	if (!json_is_array(array) || count > CLUSTER_ADDRESSES_MAX)
		return wrong("addresses", "an array of at most 8");
	for (size_t i = 0; i < count; i++) {
		json_t *object = json_array_get(array, i);
		struct cluster_address *address = &record->addresses[i];
		const char *fabric = json_string_value(json_object_get(object, "fabric"));

		if (!fabric || (strcmp(fabric, "shm") != 0 && strcmp(fabric, "verbs") != 0))
			return wrong("fabric of an address", "\"shm\" and \"verbs\"");
		address->shm = strcmp(fabric, "shm") == 0;
		if (!text_get(json_object_get(object, "address"), address->text, CLUSTER_ADDRESS_MAX) ||
		    !address->text[0])
			return wrong("address", "1 to 255 bytes of text");
	}
	record->address_count = (uint32_t)count;
	return 0;
}

static int record_get(json_t *json, struct membership_record *record)
{
	const char *boot_id = json_string_value(json_object_get(json, "boot_id"));
	json_int_t format, number, weight;

	if (!number_get(json_object_get(json, "format"), FORMAT, &format) || format != FORMAT)
		return wrong("format", "1");
	if (!text_get(json_object_get(json, "name"), record->name, CLUSTER_NAME_MAX) ||
	    !cluster_name_valid(record->name))
		return wrong("name", "1 to 63 of [a-zA-Z0-9._-]");
	if (!number_get(json_object_get(json, "number"), CLUSTER_MEMBERS_MAX, &number))
		return wrong("number", "0 to 1023");
	if (!boot_id || strlen(boot_id) != 16 || strspn(boot_id, "0123456789abcdef") != 16)
		return wrong("boot_id", "16 digits of 0-9, a-f, as text");
	record->boot_id = strtoull(boot_id, NULL, 16);
	if (!record->boot_id)
		return wrong("boot_id", "any but zero");
	if (!number_get(json_object_get(json, "weight"), CLUSTER_WEIGHT_MAX, &weight))
		return wrong("weight", "0 to 10000");
	if (!text_get(json_object_get(json, "version"), record->version, MEMBERSHIP_VERSION_MAX) ||
	    !printable(record->version))
		return wrong("version", "at most 31 printable characters");
	record->number = (uint16_t)number;
	record->weight = (uint32_t)weight;
	return addresses_get(json_object_get(json, "addresses"), record);
}

int membership_record_parse(const char *text, size_t bytes, struct membership_record *ret_record)
{
	struct membership_record record = {0};
	json_error_t error;
	json_t *json;
	int rc;

	if (bytes > MEMBERSHIP_RECORD_MAX)
		return err_set(-EINVAL, "the record has %zu bytes; allowed: %u", bytes, MEMBERSHIP_RECORD_MAX);
	json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	if (!json)
		return err_set(-EINVAL, "the record is no JSON: line %d, column %d: %s", error.line, error.column,
			       error.text);
	rc = record_get(json, &record);
	json_decref(json);
	if (rc == 0)
		*ret_record = record;
	return rc;
}
