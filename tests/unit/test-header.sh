#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Each public header alone compiles as C99 and as C++, without a warning: applications include it first.

include=${TARN_SRCDIR:?}/client/include
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# The program also uses each macro that is an initializer: a broken one shows only there. Each header includes tarn.h.
program() {
	cat <<-EOT
		#include <tarn/$1>
		struct tarn_options options = TARN_OPTIONS_INIT;
		struct tarn_item item = TARN_ITEM_INIT;
		struct tarn_put_options put = TARN_PUT_INIT;
		struct tarn_async async = TARN_ASYNC_INIT;
	EOT
}

number=0
compile() {
	description=$1
	shift
	number=$((number + 1))
	if "$@" -Wall -Wextra -Wpedantic -Werror -I"$include" -fsyntax-only >"$work/output" 2>&1; then
		echo "ok $number - $description"
	else
		echo "not ok $number - $description"
		sed 's/^/# /' "$work/output"
	fi
}

set -- "$include"/tarn/*.h
echo 1..$((4 * $#))
for header; do
	header=${header##*/}
	program "$header" | tee "$work/use.c" >"$work/use.cc"
	# $CC and $CXX may hold options: they are split on purpose.
	# shellcheck disable=SC2086
	{
		compile "$header alone as C99" ${CC:-cc} -std=c99 "$work/use.c"
		compile "$header alone as C11" ${CC:-cc} -std=c11 "$work/use.c"
		compile "$header alone as C++11" ${CXX:-c++} -std=c++11 "$work/use.cc"
		compile "$header alone as C++17" ${CXX:-c++} -std=c++17 "$work/use.cc"
	}
done
