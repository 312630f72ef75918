#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# `make check-valgrind`: each unit program under memcheck; a memory error, a definite leak or a failed case counts.
# TAP on stdout, one line per program. $VALGRIND comes from configure, the programs are the arguments. JOBS at a time.
# Tests with random numbers have few rounds here, $TARN_TEST_ROUNDS; those of a build with sanitizers have all.

if [[ ${VALGRIND:-no} == no ]]; then
	echo "1..0 # SKIP valgrind was not found by configure"
	exit 0
fi

export TARN_TEST_ROUNDS=${TARN_TEST_ROUNDS:-4}
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
failed=0

# libtool: the program may be a wrapper script, which must not be what is examined.
examine() {
	local number=$1 program=$2 begin=$SECONDS

	"${TARN_BUILDDIR:?}/libtool" --mode=execute "$VALGRIND" --quiet --fair-sched=try --error-exitcode=99 \
		--leak-check=full --errors-for-leak-kinds=definite "./$program" >"$logs/$number.log" 2>&1 </dev/null
	echo "$? $((SECONDS - begin))" >"$logs/$number.code"
}

number=0 running=0
for program; do
	number=$((number + 1))
	if ((running == ${JOBS:-$(nproc)})); then
		wait -n
		running=$((running - 1))
	fi
	examine $number "$program" &
	running=$((running + 1))
done
wait

echo "1..$#"
number=0
for program; do
	number=$((number + 1))
	read -r code seconds 2>/dev/null <"$logs/$number.code" || code=none seconds=0
	if [[ $code == 0 ]]; then
		echo "ok $number - valgrind $program"
	else
		echo "not ok $number - valgrind $program (exit code $code)"
		sed 's/^/# /' "$logs/$number.log"
		failed=1
	fi
	((seconds < 10)) || echo "# $seconds s"
done
exit $failed
