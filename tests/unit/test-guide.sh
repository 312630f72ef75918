#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# docs/guide: its links lead somewhere, the keys in its configurations exist, and the verbs in its commands.

source=${TARN_SRCDIR:-.}
guide=$source/docs/guide
failed=0

# result NUMBER DESCRIPTION WRONG: nothing may be wrong.
result() {
	if [[ -z $3 ]]; then
		echo "ok $1 - $2"
	else
		echo "not ok $1 - $2"
		printf '# %s\n' "${3//$'\n'/$'\n# '}"
		failed=1
	fi
}

# Names and targets of ](...), as FILE TARGET.
links() {
	grep -oE '\]\([^)#:]+' "$guide"/*.md | sed 's/:\](/ /'
}

# Lines of fenced blocks of the language $1.
blocks() {
	awk -v language="$1" '/^```/ { inside = $0 == "```" language; next } inside' "$guide"/*.md
}

echo 1..4
wrong=$([[ $(links | wc -l) -gt 10 ]] || echo "there are hardly any links"
	while read -r file target; do
		[[ -e $(dirname "$file")/$target ]] || echo "$(basename "$file"): $target"
	done < <(links))
result 1 "links lead to files" "$wrong"

wrong=$(for page in "$guide"/*.md; do
	[[ $page == */README.md ]] || grep -qF "($(basename "$page"))" "$guide/README.md" || basename "$page"
done)
result 2 "README.md names all pages" "$wrong"

wrong=$([[ $(blocks ini | grep -c =) -gt 5 ]] || echo "there is hardly any configuration"
	blocks ini | sed -n 's/^\([a-z_]*\) *=.*/\1/p' | sort -u | while read -r key; do
		grep -qE "(^|[(	])$key, [A-Z0-9_]+, " "$source/daemon/config-keys.def" || echo "$key"
	done)
result 3 "keys of configurations are those of config-keys.def" "$wrong"

# The first word behind `tarn` and its options is a verb.
wrong=$([[ $(blocks sh | grep -c '^tarn ') -gt 10 ]] || echo "there is hardly any command"
	blocks sh | grep '^tarn ' | sed -E 's/^tarn( -[a-z] [^ ]+| --[a-z-]+)* ([a-z]*).*/\2/' | sort -u | while read -r verb; do
		grep -qE "\.name = \"$verb\"," "$source"/cli/*.c || echo "$verb"
	done)
result 4 "verbs of commands are those of cli/" "$wrong"
exit $failed
