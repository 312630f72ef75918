/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz-etcd.c - libFuzzer target: answers of etcd, or of whoever is at its address, and members' records in them
 *
 * What is taken must keep the promises of membership-etcd-message.h and membership-record.h.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "membership-etcd-message.h"
#include "membership-record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_record(const char *text, size_t bytes)
{
	struct membership_record record;
	char *again = NULL;

	err_clear();
	if (membership_record_parse(text, bytes, &record) < 0) {
		if (err_text()[0] == '\0')
			abort();
		return;
	}
	if (!cluster_name_valid(record.name) || record.number > CLUSTER_MEMBERS_MAX || record.boot_id == 0 ||
	    record.weight > CLUSTER_WEIGHT_MAX || record.address_count > CLUSTER_ADDRESSES_MAX ||
	    memchr(record.version, '\0', sizeof(record.version)) == NULL)
		abort();
	/* whoever has read it can write it */
	if (membership_record_write(&record, &again) < 0)
		abort();
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct etcd_answer answer;

	check_record((const char *)data, bytes);
	err_clear();
	if (etcd_answer_parse((const char *)data, bytes, &answer) < 0) {
		if (err_text()[0] == '\0')
			abort();
		return 0;
	}
	if ((answer.count > 0) != (answer.kvs != NULL) || answer.count > ETCD_KVS_MAX ||
	    memchr(answer.error, '\0', sizeof(answer.error)) == NULL)
		abort();
	for (size_t i = 0; i < answer.count; i++) {
		const struct etcd_kv *kv = &answer.kvs[i];

		if (kv->key == NULL || (kv->value == NULL && kv->bytes > 0))
			abort();
		if (kv->value != NULL) {
			if (kv->value[kv->bytes] != '\0')
				abort();
			check_record(kv->value, kv->bytes);
		}
	}
	etcd_answer_free(&answer);
	return 0;
}
