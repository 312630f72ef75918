#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# `make check-valgrind`: each unit program under memcheck; a memory error, a definite leak or a failed case counts.
# TAP on stdout, one line per program. $VALGRIND comes from configure, the programs are the arguments.

if [[ ${VALGRIND:-no} == no ]]; then
	echo "1..0 # SKIP valgrind was not found by configure"
	exit 0
fi

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
failed=0
number=0

echo "1..$#"
for program; do
	number=$((number + 1))
	# libtool: the program may be a wrapper script, which must not be what is examined.
	if libtool=${TARN_BUILDDIR:?}/libtool && "$libtool" --mode=execute "$VALGRIND" --quiet --error-exitcode=99 \
		--leak-check=full --errors-for-leak-kinds=definite "./$program" >"$log" 2>&1 </dev/null; then
		echo "ok $number - valgrind $program"
	else
		echo "not ok $number - valgrind $program (exit code $?)"
		sed 's/^/# /' "$log"
		failed=1
	fi
done
exit $failed
