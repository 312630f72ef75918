/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config-diff.h - what a reload changes: two configurations, and the one that comes out of them
 *
 * Pure: nothing takes effect here, nobody is asked. Which keys take effect without a restart stands
 * in config-keys.def.
 */
#ifndef TARN_DAEMON_CONFIG_DIFF_H
#define TARN_DAEMON_CONFIG_DIFF_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

enum config_action { CONFIG_ADDED, CONFIG_REMOVED, CONFIG_CHANGED };

struct config_change {
	enum config_section section;
	char name[CONFIG_NAME_MAX + 1]; /* of the section; "" for [daemon] */
	enum config_action action;
	const struct config_key *key; /* NULL: the section as a whole */
	bool restart;                 /* only that makes it true; till then all stays as it was */
	unsigned int line;            /* in the new file; 0: it does not stand there any more */
	/* a key's values, "": not set; of a listener where it was and is; else ""; owned */
	char *from, *to;
};

struct config_changes {
	struct config_change *list;
	size_t count;
};

/*
 * Makes of `next`, which is right in itself, what a running daemon can take: settings that need a
 * restart get the values of `running` (and are marked as kept), pools are those of `running`, in
 * its order. The changes are listed, those that need a restart included. What comes out may be
 * wrong in itself: config_check() it. 0, or -ENOMEM with a text, and then `next` is of no use any
 * more but to be freed.
 */
int config_merge(const struct config *running, struct config *next,
		 struct config_changes *ret_changes);
void config_changes_free(struct config_changes *changes);

/* Is it another place than before? Then it is another listener, though it has the same name. */
bool config_listen_moved(const struct config_listen *from, const struct config_listen *to);
/* The listener of this name, or NULL. */
const struct config_listen *config_listen_find(const struct config *config, const char *name);
/* "[pool main] low_water = 6 (was 5)"; for people. */
const char *config_change_text(const struct config_change *change, char *buffer, size_t bytes);
const char *config_action_name(enum config_action action);

#endif
