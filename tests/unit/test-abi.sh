#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The binary interface of libtarn.so is that of client/libtarn.abi: functions, their parameters, and the layout of what
# tarn.h defines. Any difference fails; `--update` (make update-abi) writes the file. HACKING.md has what may be changed.
# Constants are no part of it: test-man.sh has the error codes.
set -u
source=${TARN_SRCDIR:-.}
include=$source/client/include
library=${TARN_BUILDDIR:-build}/.libs/libtarn.so
baseline=$source/client/libtarn.abi

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}

command -v abidiff >/dev/null || skip 'abidiff is not there: install abigail-tools'
[ -e "$library" ] || skip 'there is no shared libtarn in this build (--disable-shared)'
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# What the library's debug information says of tarn.h; nothing of the folders or the machine it was built on.
abidw --headers-dir "$include" --drop-private-types --exported-interfaces-only --type-id-style hash --no-architecture \
	--no-show-locs --no-comp-dir-path --no-corpus-path --no-elf-needed "$library" >"$work/all" 2>"$work/output" &&
	sed "s| path='[^']*/| path='|" "$work/all" >"$work/now"
grep -q '<function-decl' "$work/now" || {
	echo "Bail out! abidw finds no function in $library: was it built without -g?"
	sed 's/^/# /' "$work/output"
	exit 1
}

if [ "${1:-}" = --update ]; then
	cp "$work/now" "$baseline"
	exit
fi

echo 1..1
if abidiff "$baseline" "$work/now" >"$work/output" 2>&1; then
	echo "ok 1 - the binary interface is that of client/libtarn.abi"
else
	echo "not ok 1 - the binary interface is that of client/libtarn.abi: if it is meant to change, \`make update-abi\`"
	sed 's/^/# /' "$work/output"
	exit 1
fi
