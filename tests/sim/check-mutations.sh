#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# check-mutations.sh SRCDIR PROGRAM: does the simulation notice when a protection is missing?
#
# For each number up to MUTATION_LAST of common/mutation.h the simulation runs without that protection, and has to report a violation,
# in schedules of the kind that stands there in brackets. Without any mutation it must not. Prints TAP. Environment: MUTATIONS: only these
# numbers; SIM_MUTATION_SCHEDULES: how many schedules at the most; JOBS.

set -u
src=$1 program=$2
limit=${SIM_MUTATION_SCHEDULES:-200000}
jobs=${JOBS:-$(nproc 2>/dev/null || echo 1)}
header=$src/common/mutation.h
last=$(sed -n 's/^#define MUTATION_LAST  *\([0-9]*\).*/\1/p' "$header")

[ -n "$last" ] || {
	echo "Bail out! no MUTATION_LAST in $header"
	exit 1
}
output=$(mktemp -d) || exit 1
trap 'rm -rf "$output"' EXIT

run() { # mutation
	kind=$(sed -n "s/^#define MUTATION_[A-Z_]*  *$1 .*\[\([a-z]*\)\].*/\1/p" "$header")
	if [ "$1" = 0 ]; then
		"$program" --schedules 5000 >"$output/$1"
	else
		"$program" --schedules "$limit" ${kind:+--kind "$kind"} --mutation "$1" >"$output/$1"
	fi
}

mutations=${MUTATIONS:-$(i=0; while [ $i -le "$last" ]; do echo $i; i=$((i + 1)); done)}
# shellcheck disable=SC2086 # numbers
set -- $mutations
echo "1..$#"

running=0
for m in "$@"; do
	run "$m" &
	running=$((running + 1))
	if [ $running -ge "$jobs" ]; then
		wait -n
		running=$((running - 1))
	fi
done
wait

n=0 failed=0
for m in "$@"; do
	n=$((n + 1))
	name=$(sed -n "s/^#define MUTATION_\([A-Z_]*\)  *$m\( .*\)*\$/\1/p" "$header" | grep -v '^LAST$' | head -n 1)
	result=$(grep '^ok 1\|^not ok 1' "$output/$m" 2>/dev/null)
	case $result in
	"ok 1 - "*)
		echo "ok $n - ${name:-mutation} ($m): ${result#ok 1 - }"
		;;
	*)
		echo "not ok $n - ${name:-mutation} ($m): ${result:-did not run to its end}"
		[ "$m" != 0 ] || grep '^#' "$output/0" 2>/dev/null
		failed=1
		;;
	esac
done
exit $failed
