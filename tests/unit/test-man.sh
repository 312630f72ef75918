#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The manual pages of section 3 say of each function, member, error code and macro what the headers say, and leave none
# out.

source=${TARN_SRCDIR:-.}
headers=("$source"/client/include/tarn/*.h)
pages=("$source"/docs/man/*.3)
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
export LC_ALL=C

number=0 failed=0
result() {
	local verdict='not ok'

	number=$((number + 1))
	if (($1 == 0)); then verdict=ok; else failed=1; fi
	echo "$verdict $number - $2"
	((!$1)) || sed 's/^/# /' "$work/output"
}

# same DESCRIPTION: $work/header and $work/pages have the same lines, and some.
same() {
	diff <(sort "$work/header") <(sort "$work/pages") >"$work/output" && [[ -s $work/header ]]
	result $? "$1"
}

# The headers without comments and directives, in one line.
sed -e ':again' -e '/\\$/N; s/\\\n//; tagain' -e '/^#/d' "${headers[@]}" | tr '\n\t' '  ' |
	sed -E 's#/\*([^*]|\*+[^*/])*\*+/# #g; s/ +/ /g' >"$work/plain"

# prototypes PAGE...: those that .Ft, .Fo, .Fa and .Fc make.
prototypes() {
	awk '
		/^\.Sh/ { synopsis = $2 == "SYNOPSIS" }
		!synopsis { next }
		{ rest = $0; sub(/^\.[A-Z][a-z] */, "", rest); gsub(/"/, "", rest) }
		/^\.Ft/ { type = rest }
		/^\.Fo/ { line = type " " rest "("; comma = "" }
		/^\.Fa/ { line = line comma rest; comma = ", " }
		/^\.Fc/ { gsub(/\* /, "*", line); print line ");" }
	' "$@"
}

echo 1..8
grep -oE '(TARN_API|typedef) [^;{]*;' "$work/plain" | sed -E 's/TARN_API |TARN_MUST_CHECK //g' >"$work/header"
prototypes "${pages[@]}" >"$work/pages"
same 'each function has its prototype in a SYNOPSIS'

# What is in NAME is what `man` finds: the first is the page, the others are links to it.
for page in "${pages[@]}"; do
	echo "${page##*/}" "$(awk '/^\.Nm ./ { print $2 ".3"; exit }' "$page")"
done >"$work/pages"
awk '{ print $1, $1 }' "$work/pages" >"$work/header"
same 'each page comes first in its NAME'

for page in "${pages[@]}"; do
	name=${page##*/}
	echo "$name" "${name%.3}"
	prototypes "$page" | sed -E "s/.*[ *](tarn_[a-z_]*)\(.*/$name \1/"
done | sort -u >"$work/header"
awk '/^\.Nm ./ { n = split(FILENAME, path, "/"); print path[n], $2 }' "${pages[@]}" | tee "$work/names" >"$work/pages"
same 'each page has in NAME what is in its SYNOPSIS'

grep -oE 'struct tarn_[a-z_]* \{[^}]*' "$work/plain" | sed 's/.*{//' | tr ';' '\n' | sed 's/^ *//' |
	grep -vE '^$| reserved' >"$work/header"
sed -n 's/^\.It Fa "\(.*\)"$/\1/p' "${pages[@]}" >"$work/pages"
same 'each member of a struct is in a list'

grep -oE 'TARN_E[A-Z]* = [0-9]*' "$work/plain" | sed 's/ =//' >"$work/header"
sed -n 's/^\.It Er \(TARN_[A-Z]*\) Pq /\1 /p' "${pages[@]}" >"$work/pages"
same 'each error code is in tarn_strerror(3), with its number'

{
	grep -oE 'TARN_[A-Z_]+ =' "$work/plain" | sed 's/ =//'
	sed -nE 's/^#define (TARN_[A-Z_]+)[ \t].*/\1/p' "${headers[@]}" | grep -vE '^TARN_(API|MUST_CHECK)$'
} | sort -u >"$work/header"
grep -hvE '^\.(Dt|Ev) ' "${pages[@]}" | grep -oE 'TARN_[A-Z_]+' | sort -u >"$work/pages"
same 'each macro and constant is there, and no other'

# mandoc looks for other pages in its folder, too.
if command -v mandoc >/dev/null; then
	cp "$source"/docs/man/*.[1-8] "$work"
	while read -r page name; do
		[[ $page == "$name.3" ]] || ln -s "$page" "$work/$name.3"
	done <"$work/names"
	(cd "$work" && mandoc -Tlint "${pages[@]##*/}") >"$work/output" 2>&1 && [[ ! -s $work/output ]]
	result $? 'mandoc has nothing to say'
else
	number=$((number + 1))
	echo "ok $number - mandoc # SKIP mandoc is not there"
fi

sed -n '/^\.Bd/,/^\.Ed/p' "$source/docs/man/libtarn.3" | sed -e '/^\.[BE]d/d' -e 's/\\e/\\/g' >"$work/example.c"
# $CC may hold options: it is split on purpose.
# shellcheck disable=SC2086
${CC:-cc} -Wall -Wextra -Werror -I"$source/client/include" -fsyntax-only "$work/example.c" >"$work/output" 2>&1
result $? 'the example of libtarn(3) compiles'
exit $failed
