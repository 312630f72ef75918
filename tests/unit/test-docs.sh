#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What is generated from daemon/config-keys.def and committed: conf/tarnd.conf and the keys in tarnd.conf(5). Fails when they
# differ from daemon/config-doc's output; `--update` (make update-docs) writes them.
set -u
source=${TARN_SRCDIR:-.}
doc=${TARN_BUILDDIR:-build}/daemon/config-doc
conf=$source/conf/tarnd.conf
man=$source/docs/man/tarnd.conf.5
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# The manual page with its generated part replaced by what config-doc says now.
man_page() {
	"$doc" --man >"$work/keys" || return 1
	awk -v keys="$work/keys" '
		/^\.\\" END config-doc/ { inside = 0 }
		!inside { print }
		/^\.\\" BEGIN config-doc/ { inside = 1; found = 1; while ((getline line < keys) > 0) print line }
		END { exit !found }' "$man"
}

if [ "${1:-}" = --update ]; then
	mkdir -p "$source/conf" && "$doc" --conf >"$work/conf" && cp "$work/conf" "$conf" &&
		man_page >"$work/man" && cp "$work/man" "$man"
	exit
fi

compare() {
	if "$2" "$3" >"$work/now" && diff -u "$4" "$work/now" >"$work/diff" 2>&1; then
		echo "ok $1 - $5"
	else
		echo "not ok $1 - $5: run \`make update-docs\`"
		head -40 "$work/diff" | sed 's/^/# /'
		failed=1
	fi
}

failed=0
echo 1..2
compare 1 "$doc" --conf "$conf" "conf/tarnd.conf is what config-doc writes"
compare 2 man_page "" "$man" "tarnd.conf(5) has the keys that config-doc writes"
exit $failed
