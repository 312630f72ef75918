/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * place.h - files beneath a directory, under names that nobody has checked
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A sentence why path can not be a file beneath a directory, or NULL if it can. Looks at the name
 * alone.
 */
const char *place_refusal(const char *path, size_t n);

/*
 * Writes a file to path (which place_refusal() allows) beneath the directory root: makes
 * directories, replaces what is there, in one step. mode: its permission bits, or 0 for what the
 * umask leaves. 0; or -errno and in *ret_why what could not be done.
 */
int place_write(int root, const char *path, size_t n, const void *bytes, size_t value_bytes,
		mode_t mode, const char **ret_why);
