#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Boots the virtual machines and runs the tests in them (run-inside.py); prints their TAP, one plan after the other.
#
#	check-rdma.sh [GROUP[:TEST[,TEST]]...]
#
# By default all groups but `sanitizers`, which is for a build with sanitizers, and `cluster3`, which takes long.
#
# TARN_BUILDDIR is the build folder. Each boot is a test of its own: it fails when the machine does not come up, dies,
# or does not end within its time.
set -u

source=$(cd "$(dirname "$0")/../.." && pwd -P)
build=$(cd "${TARN_BUILDDIR:-$source/build}" && pwd -P)
here=$source/tests/rdma
failed=0

if [[ $EUID != 0 || $(uname -m) != x86_64 || ! -f /etc/debian_version ]]; then
	echo "1..0 # SKIP the virtual machine needs root, an x86_64 and Debian (tests/rdma/rdma-vm --help)"
	exit 0
fi

# Once, so that a machine that can not build it does not try for each boot.
"$here/rdma-vm" --install || {
	echo "1..1"
	echo "not ok 1 - virtual machine can not be built"
	exit 1
}

# The soak's keys live in memory of the machine, of which /dev/shm has half.
soak_keys=${SOAK_KEYS:-20000}

# group, time limit in seconds, options of rdma-vm. Groups of one line share a boot; what takes long comes first.
machines=(
	"faults|900|--mem 3000"
	"suite-siw|400|--mem 3000"
	"suite-rxe-nic|400|--mem 3000"
	"suite-rxe-cpu|400|--mem 3000"
	"hosts|300|--two-hosts"
	"cluster3|1500|--two-hosts --mem 3000"
	"cluster|400|--two-hosts --mem 3000"
	"soak|$((600 + ${SOAK_SECONDS:-60} * 3))|--mem $((3000 + soak_keys / 1000))"
	"doctor|300|--mem 3000"
	"environment endpoint|240|"
	"bare|60|--no-devices"
	"sanitizers|600|--mem 4000"
)

wanted() {
	local group

	if (($# == 1)); then
		case $1 in
		sanitizers | cluster3) ;;
		*) echo "$1" ;;
		esac
		return
	fi
	for group in "${@:2}"; do
		if [[ ${group%%:*} == "$1" ]]; then
			echo "$group"
		elif [[ $group == "${1%%-*}" ]]; then
			echo "$1"
		fi
	done
}

boot() {
	local groups=$1 limit=$2 options=$3 begin=$SECONDS code

	echo "# virtual machine: $groups"
	echo "1..1"
	# The current directory is what the machine can write to; it sees the rest, too.
	(
		cd "$source" || exit 125
		# shellcheck disable=SC2086
		exec "$here/rdma-vm" --timeout "$limit" $options --share "$build" --env "TARN_BUILDDIR=$build" \
			--env "TARN_SRCDIR=$source" --env ASAN_OPTIONS --env UBSAN_OPTIONS --env SOAK_SECONDS --env SOAK_KEYS --env LC_ALL=C.UTF-8 -- \
			python3 -B "$here/run-inside.py" $groups
	)
	code=$?
	echo "# $((SECONDS - begin)) s"
	case $code in
	0 | 1) echo "ok 1 - virtual machine for $groups" ;;
	124) echo "not ok 1 - virtual machine for $groups: not finished after $limit s; the last test above hangs" ;;
	*) echo "not ok 1 - virtual machine for $groups: exit code $code" ;;
	esac
	return "$code"
}

# Two at a time: a machine waits more than it works. What each has said is shown as a whole when all have ended.
outputs=$(mktemp -d "${TMPDIR:-/tmp}/check-rdma.XXXXXX") || exit 1
trap 'rm -rf "$outputs"' EXIT
running=0 texts=()

for machine in "${machines[@]}"; do
	IFS='|' read -r groups limit options <<<"$machine"
	chosen=()
	for group in $groups; do
		mapfile -t -O "${#chosen[@]}" chosen < <(wanted "$group" "$@")
	done
	((${#chosen[@]})) || continue
	if ((running == ${RDMA_JOBS:-2})); then
		wait -n || failed=1
		running=$((running - 1))
	fi
	texts+=("$outputs/${chosen[0]}")
	boot "${chosen[*]}" "$limit" "$options" >"$outputs/${chosen[0]}" 2>&1 &
	running=$((running + 1))
done
while ((running)); do
	wait -n || failed=1
	running=$((running - 1))
done
((${#texts[@]} == 0)) || cat "${texts[@]}"
exit $failed
