/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reload.h - SIGHUP and `tarn reload`: the configuration is read again and takes effect as a whole,
 * or not at all
 */
#ifndef TARN_DAEMON_RELOAD_H
#define TARN_DAEMON_RELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config-diff.h"
#include "daemon.h"
#include "reload-keys.h"

/* What a reload has done, or would do. */
struct reload_report {
	struct config_errors errors;  /* not empty: it was refused, and nothing has changed */
	struct config_errors notices; /* what is allowed but perhaps not meant */
	struct config_changes changes;
	struct reload_keys *keys; /* by the daemon's pools; NULL: it has not come that far */
	size_t pool_count;
	bool http_changed; /* the certificate or the token in the files that [http] names, which serves already */
	uint32_t clients_cut;
	/* It has taken of the main loop: as the clock goes, and of the CPU; a busy machine is the difference. */
	uint64_t ns, cpu_ns;
};

/*
 * Reads configuration and key files, checks all of it, and makes it take effect before it returns;
 * logs and counts what becomes of it. 0, or -EINVAL and the report's errors. The report is to be
 * freed in any case.
 */
int reload(struct daemon *daemon, struct reload_report *ret_report);
/* What a reload would change now. Changes nothing, and says nothing to the log. 0 or -EINVAL. */
int reload_preview(struct daemon *daemon, struct reload_report *ret_report);
void reload_report_free(struct reload_report *report);
/* So many of the changes need a restart. */
size_t reload_restarts(const struct reload_report *report);
/* Anything at all? */
bool reload_nothing(const struct reload_report *report);

#endif
