/* SPDX-License-Identifier: BSD-2-Clause */
/* cluster-map-write.h - the map of a cluster as the document that cluster_map_parse() reads */
#ifndef TARN_CLUSTER_MAP_WRITE_H
#define TARN_CLUSTER_MAP_WRITE_H

#include <stddef.h>

#include "cluster-map.h"

/*
 * The document, compact; owners are written out also if the map was read without. 0; -EINVAL with a text: cluster_map_parse()
 * would not take it; -E2BIG; -ENOMEM. The caller frees *ret_text. Any thread.
 */
int cluster_map_write(const struct cluster_map *map, char **ret_text, size_t *ret_bytes);

#endif
