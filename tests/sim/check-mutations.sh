#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-mutations.sh SRCDIR WORKDIR: does the simulation notice when a protection is missing?
#
# For each number up to MUTATION_LAST of common/mutation.h the client is built without that protection, and the simulation has to
# report a violation. Without any mutation it must not. Prints TAP. Environment: CC, CPPFLAGS, LIBS; MUTATIONS: only these numbers;
# SIM_MUTATION_SCHEDULES: how many schedules at the most; JOBS.
#
# Files that do not mention MUTATED are compiled once; only -O1, since it is soon thrown away.

# shellcheck disable=SC2317 # functions are called through in_background

set -u
src=$1 work=$2
limit=${SIM_MUTATION_SCHEDULES:-1000000}
jobs=${JOBS:-$(nproc 2>/dev/null || echo 1)}
: "${CC:=cc}" "${CPPFLAGS:=}" "${LIBS:=-lxxhash}"
header=$src/common/mutation.h
last=$(sed -n 's/^#define MUTATION_LAST  *\([0-9]*\).*/\1/p' "$header")

sources=
for file in tests/sim/client.c tests/sim/fabric-sim.c tests/sim/linear.c tests/sim/run.c tests/sim/scenario.c \
	tests/sim/schedule.c tests/sim/sim-daemon.c tests/sim/sim-memory.c tests/sim/structure.c tests/sim/test-sim.c \
	client/alloc.c client/cache.c client/claim.c client/directory.c client/kv.c client/kv-insert.c client/kv-read.c \
	client/kv-write.c client/process.c client/session.c \
	common/clock.c common/err.c common/layout.c common/wire.c; do
	sources="$sources $file"
done

compile() { # source object mutation
	# shellcheck disable=SC2086 # flags are words
	$CC $CPPFLAGS -O1 -g -DTARN_MUTATION="$3" -c "$src/$1" -o "$2"
}

# Up to $jobs at once.
running=0
in_background() {
	"$@" &
	running=$((running + 1))
	if [ $running -ge "$jobs" ]; then
		wait
		running=0
	fi
}

object() { # source: its object's name without folder
	echo "$1" | tr / - | sed 's/\.c$/.o/'
}

build_and_run() { # mutation
	dir=$work/$1
	objects=
	mkdir -p "$dir"
	for file in $sources; do
		if grep -q 'MUTATED\|TARN_MUTATION' "$src/$file"; then
			compile "$file" "$dir/$(object "$file")" "$1" || return
			objects="$objects $dir/$(object "$file")"
		else
			objects="$objects $work/common/$(object "$file")"
		fi
	done
	# shellcheck disable=SC2086
	$CC -o "$dir/test-sim" $objects $LIBS || return
	if [ "$1" = 0 ]; then
		"$dir/test-sim" --schedules 20000 >"$dir/output"
	else
		"$dir/test-sim" --schedules "$limit" --expect-failure >"$dir/output"
	fi
}

[ -n "$last" ] || {
	echo "Bail out! no MUTATION_LAST in $header"
	exit 1
}
mutations=${MUTATIONS:-$(i=0; while [ $i -le "$last" ]; do echo $i; i=$((i + 1)); done)}
# shellcheck disable=SC2086
set -- $mutations
echo "1..$#"

rm -rf "$work"
mkdir -p "$work/common"
for file in $sources; do
	grep -q 'MUTATED\|TARN_MUTATION' "$src/$file" || in_background compile "$file" "$work/common/$(object "$file")" 0
done
wait
running=0
for m in "$@"; do
	in_background build_and_run "$m"
done
wait

n=0 failed=0
for m in "$@"; do
	n=$((n + 1))
	name=$(sed -n "s/^#define MUTATION_\([A-Z_]*\)  *$m\( .*\)*\$/\1/p" "$header" | grep -v '^LAST$' | head -n 1)
	result=$(grep '^ok 1\|^not ok 1' "$work/$m/output" 2>/dev/null)
	case $result in
	"ok 1 - "*)
		echo "ok $n - ${name:-mutation} ($m): ${result#ok 1 - }"
		;;
	*)
		echo "not ok $n - ${name:-mutation} ($m): ${result:-did not build or did not run}"
		[ "$m" != 0 ] || grep '^#' "$work/0/output" 2>/dev/null
		failed=1
		;;
	esac
done
exit $failed
