#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What is generated and committed: from daemon/config-keys.def conf/tarnd.conf and the keys in tarnd.conf(5), from
# daemon/metrics.def the lists in tarn-metrics(7) and docs/stats.schema.json. Fails when they differ from the output of
# daemon/config-doc and daemon/metrics-doc; `--update` (make update-docs) writes them.
set -u
source=${TARN_SRCDIR:-.}
doc=${TARN_BUILDDIR:-build}/daemon/config-doc
metrics=${TARN_BUILDDIR:-build}/daemon/metrics-doc
conf=$source/conf/tarnd.conf
man=$source/docs/man/tarnd.conf.5
metrics_man=$source/docs/man/tarn-metrics.7
schema=$source/docs/stats.schema.json
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# The manual page with its generated part replaced by what the program says now.
page() {
	"$1" --man >"$work/generated" || return 1
	awk -v generated="$work/generated" '
		/^\.\\" END (config|metrics)-doc/ { inside = 0 }
		!inside { print }
		/^\.\\" BEGIN (config|metrics)-doc/ {
			inside = 1; found = 1
			while ((getline line < generated) > 0) print line
		}
		END { exit !found }' "$2"
}
man_page() { page "$doc" "$man"; }
metrics_page() { page "$metrics" "$metrics_man"; }

if [ "${1:-}" = --update ]; then
	mkdir -p "$source/conf" && "$doc" --conf >"$work/conf" && cp "$work/conf" "$conf" &&
		man_page >"$work/man" && cp "$work/man" "$man" &&
		metrics_page >"$work/man" && cp "$work/man" "$metrics_man" &&
		"$metrics" --schema >"$work/schema" && cp "$work/schema" "$schema"
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
echo 1..4
compare 1 "$doc" --conf "$conf" "conf/tarnd.conf is what config-doc writes"
compare 2 man_page "" "$man" "tarnd.conf(5) has the keys that config-doc writes"
compare 3 metrics_page "" "$metrics_man" "tarn-metrics(7) has the values that metrics-doc writes"
compare 4 "$metrics" --schema "$schema" "docs/stats.schema.json is what metrics-doc writes"
exit $failed
