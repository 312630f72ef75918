/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs.h - the verbs of `tarn`: each is described and done in the file of its name; main.c has the
 * table
 */
#pragma once

#include "cli.h"

extern const struct verb verb_add;
extern const struct verb verb_clients; /* stats.c */
extern const struct verb verb_config;
extern const struct verb verb_complete; /* hidden */
extern const struct verb verb_del;
extern const struct verb verb_doctor;
extern const struct verb verb_drain;
extern const struct verb verb_exists;
extern const struct verb verb_export;
extern const struct verb verb_forget;    /* drain.c */
extern const struct verb verb_get;
extern const struct verb verb_help;
extern const struct verb verb_import;
extern const struct verb verb_keys;
extern const struct verb verb_map;
extern const struct verb verb_members;
extern const struct verb verb_ping;
extern const struct verb verb_pool;
extern const struct verb verb_pools; /* stats.c */
extern const struct verb verb_put;
extern const struct verb verb_rebalance; /* drain.c */
extern const struct verb verb_reload;
extern const struct verb verb_region;
extern const struct verb verb_restore;
extern const struct verb verb_snapshot;
extern const struct verb verb_stats;
extern const struct verb verb_top;
extern const struct verb verb_undrain; /* drain.c */
extern const struct verb verb_version;
