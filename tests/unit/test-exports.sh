#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# libtarn.so exports what the public headers mark TARN_API, all of it, and nothing else; and Debian's package says the same.

# Lists of symbols are split into words on purpose.
# shellcheck disable=SC2086

library=${TARN_BUILDDIR:?}/.libs/libtarn.so
headers=("${TARN_SRCDIR:?}"/client/include/tarn/*.h)

if [[ ! -e $library ]]; then
	echo "1..0 # SKIP there is no shared libtarn in this build (--disable-shared)"
	exit 0
fi

# The version node itself is an absolute symbol ("A").
# $NM is libtool's choice, with options ("nm -B").
exported=$(${NM:-nm} -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort)
# A declaration may go on over several lines; its name is the word in front of the first parenthesis.
declared=$(cat "${headers[@]}" | tr '\n' ' ' | grep -o 'TARN_API [^;{]*;' |
	sed -n 's/^[^(]*[ *]\(tarn_[a-z0-9_]*\)(.*/\1/p' | sed 's/TARN_MUST_CHECK//' | LC_ALL=C sort)

symbols=$(mktemp) || exit 99
trap 'rm -f "$symbols" "$symbols.now"' EXIT

echo 1..4
foreign=$(grep -v '^tarn_' <<<"$exported")
if [[ -n $exported && -z $foreign ]]; then
	echo "ok 1 - only tarn_* is exported"
else
	echo "not ok 1 - only tarn_* is exported"
	printf '# also exported: %s\n' $foreign
fi

missing=$(comm -13 <(echo "$exported") <(echo "$declared"))
if [[ -n $declared && -z $missing ]]; then
	echo "ok 2 - everything that the headers declare is exported"
else
	echo "not ok 2 - everything that the headers declare is exported"
	printf '# declared, not exported: %s\n' $missing
fi

hidden=$(comm -23 <(echo "$exported") <(echo "$declared"))
if [[ -z $hidden ]]; then
	echo "ok 3 - everything exported is declared in the headers"
else
	echo "not ok 3 - everything exported is declared in the headers"
	printf '# exported, not declared: %s\n' $hidden
fi

# With nodes and all; `* Build-Depends-Package` is no symbol.
${NM:-nm} -D --defined-only --with-symbol-versions "$library" | awk '{ sub(/@@/, "@", $3); sub(/@@/, "@"); print $3 }' |
	sed 's/^\(TARN_[0-9.]*\)$/\1@\1/' | LC_ALL=C sort >"$symbols.now"
awk '/^ / { print $1 }' "${TARN_SRCDIR:?}/debian/libtarn0.symbols" | LC_ALL=C sort >"$symbols"
if [[ -s $symbols ]] && difference=$(diff "$symbols" "$symbols.now"); then
	echo "ok 4 - debian/libtarn0.symbols has them all"
else
	echo "not ok 4 - debian/libtarn0.symbols has them all (< are not exported, > are missing)"
	printf '# %s\n' "${difference//$'\n'/$'\n# '}"
fi
