/* SPDX-License-Identifier: BSD-2-Clause */
/* fabric.c - which transport an address is for. Any thread. Next: fabric.h. */
#include <stddef.h>

#include "fabric.h"

const struct fabric_transport *fabric_transport_for(const struct fabric_address *address)
{
	if (address->path)
		return &fabric_shm_transport;
	return address->host ? &fabric_verbs_transport : NULL;
}
