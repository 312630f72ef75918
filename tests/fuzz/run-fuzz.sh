#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs each fuzz target for FUZZ_SECONDS (default 20) seconds, beginning with its corpus, and prints TAP. What it finds new is thrown away;
# what kills it is kept in the build folder, and the line says how to repeat it. JOBS (all processors) targets at a time.
# usage: run-fuzz.sh TARGET...   (from the build folder; TARN_SRCDIR is the source)
set -u
seconds=${FUZZ_SECONDS:-20}
source=${TARN_SRCDIR:-.}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# New inputs go into the first folder; -timeout is per input: a hang is a failure.
fuzz() {
	local target=$1 name corpus=()

	name=$(basename "$target")
	[[ ! -d $source/tests/fuzz/corpus/${name#fuzz-} ]] || corpus=("$source/tests/fuzz/corpus/${name#fuzz-}")
	mkdir -p "$work/$name"
	"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 -verbosity=0 \
		-artifact_prefix="$(dirname "$target")/$name-" "$work/$name" "${corpus[@]}" >"$work/$name.log" 2>&1
	echo $? >"$work/$name.code"
}

running=0
for target; do
	if ((running == ${JOBS:-$(nproc)})); then
		wait -n
		running=$((running - 1))
	fi
	fuzz "$target" &
	running=$((running + 1))
done
wait

echo "1..$#"
number=0
failed=0
for target; do
	number=$((number + 1))
	name=$(basename "$target")
	if [[ $(cat "$work/$name.code" 2>/dev/null) == 0 ]]; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log")
		echo "ok $number - $name: $runs inputs in $seconds s"
	else
		echo "not ok $number - $name"
		tail -n 40 "$work/$name.log" | sed 's/^/# /'
		echo "# repeat it: $target FILE, with the file named above (Test unit written to ...)"
		failed=1
	fi
done
exit $failed
