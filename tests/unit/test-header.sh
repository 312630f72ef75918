#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The public header alone compiles as C99 and as C++, without a warning: applications include it first.

include=${TARN_SRCDIR:?}/client/include
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# The program also uses each macro that is an initializer: a broken one shows only there.
cat >"$work/use.c" <<'EOF'
#include <tarn/tarn.h>
struct tarn_options options = TARN_OPTIONS_INIT;
struct tarn_item item = TARN_ITEM_INIT;
struct tarn_put_options put = TARN_PUT_INIT;
EOF
cp "$work/use.c" "$work/use.cc"

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

echo 1..4
# $CC and $CXX may hold options: they are split on purpose.
# shellcheck disable=SC2086
{
	compile 'tarn.h alone as C99' ${CC:-cc} -std=c99 "$work/use.c"
	compile 'tarn.h alone as C11' ${CC:-cc} -std=c11 "$work/use.c"
	compile 'tarn.h alone as C++11' ${CXX:-c++} -std=c++11 "$work/use.cc"
	compile 'tarn.h alone as C++17' ${CXX:-c++} -std=c++17 "$work/use.cc"
}
