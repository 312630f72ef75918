#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# tarn-bench: what it prints, what it refuses, and the round trips of docs/protocol.md. Rates are not judged here:
# bench/vs-peers does that, on a machine that has nothing else to do. Last, test-noalloc: what an operation must not cost.
set -u

build=${TARN_BUILDDIR:?}
folder=$(mktemp -d /tmp/tarn-test-bench-XXXXXX) || exit 1
daemon=
clean() {
	[[ -z $daemon ]] || kill "$daemon" 2>/dev/null
	wait
	rm -rf "$folder"
}
trap clean EXIT
trap 'exit 1' INT TERM

number=0
# result CODE TEXT [FILE...]: one line of TAP; the files are shown when the code is not 0.
result() {
	local code=$1 text=$2
	shift 2
	number=$((number + 1))
	if ((code == 0)); then
		echo "ok $number - $text"
	else
		echo "not ok $number - $text"
		(($#)) && sed 's/^/# /' "$@"
	fi
}

uri="tarn:$folder/tarn.sock?pool=main" empty="tarn:$folder/tarn.sock?pool=empty"
{
	printf '[listen local]\npath = %s\n' "$folder/tarn.sock"
	printf '[pool %s]\nsize = %s\nhugepages = off\n' main 512M empty 16M fresh 512M small 192M
} >"$folder/tarnd.conf"
"$build/tarnd" -c "$folder/tarnd.conf" 2>"$folder/log" &
daemon=$!
for _ in $(seq 600); do
	"$build/tarn" -u "$uri" ping -c 1 >/dev/null 2>&1 && break
	sleep 0.1
done

keys=20000
bench() {
	"$build/tarn-bench" --uri="$uri" --keys=$keys --rounds=1 --duration=0.3 --warmup=0.2 "$@" \
		>"$folder/out" 2>"$folder/err"
}
# check EXPRESSION: of python, with the object in `o`.
check() {
	python3 -c 'import json, sys
o = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)' "$folder/out" "$1" 2>>"$folder/err"
}

bench --json --mix=get=95,put=5 --rounds=3
code=$?
result $code 'a run with --json ends with 0' "$folder/err"
check 'all(o["results"][op][f] > 0 for op in ("get", "put") for f in
	("rate", "p50_ns", "p99_ns", "p999_ns", "round_trips", "posts", "requests"))'
result $? 'results have all names' "$folder/out"
check 'all(o["ceiling"][f] > 0 for f in ("hash_table_rate", "raw_read_rate", "raw_read_p50_ns"))'
result $? 'the ceiling has all names' "$folder/out"
check 'all(f in o["machine"] for f in ("cpu", "cores", "governor", "kernel", "huge_pages", "numa_nodes", "transport",
	"pool_bytes")) and o["arguments"]["keys"] == '$keys' and o["results"]["get"]["misses"] == 0'
result $? 'machine and arguments are there, no get missed' "$folder/out"
check '10 < o["results"]["get"]["count"] / o["results"]["put"]["count"] < 30'
result $? 'the mix has its weights' "$folder/out"

# round_trips OPERATION MIX CACHE PROMISE: a few in a hundred more are pages claimed and the epoch read. Few keys, so that
# each location is in the cache soon, also on a busy machine.
round_trips() {
	bench --no-load --keys=1000 --ceiling=off --json --mix="$2" --cache="$3" &&
		check "$4 * 0.99 < o['results']['$1']['round_trips'] < $4 * 1.04 and o['results']['$1']['misses'] == 0"
	result $? "$1, mix $2, cache $3: $4 round trips" "$folder/err" "$folder/out"
}
round_trips get get off 2
round_trips get get 16M 1
round_trips put put off 3
round_trips put put 16M 1
round_trips insert insert off 3
round_trips delete delete off 3
round_trips exists exists off 2

bench --no-load --threads=2 --processes=2 --mix=get --mix=put --mix=delete --dist=zipf --json
result $? 'two processes of two threads, zipf, several mixes' "$folder/err"
bench --no-load --key-size=16 --mix=add --json && check 'o["results"]["add"]["count"] > 0'
result $? 'counters' "$folder/err" "$folder/out"
bench --no-load --mix=get && grep -q '^get ' "$folder/out" && grep -q '^hash table ' "$folder/out" &&
	grep -q '^raw READs ' "$folder/out"
result $? 'text: a table' "$folder/err" "$folder/out"

! bench --uri="$empty" --no-load --json
result $? 'a run that finds no key fails' "$folder/out"
bench --value-size=100 --mix=put --json && ! bench --no-load --mix=get
result $? 'a value that is not the expected one is noticed' "$folder/err"
bench --uri="tarn:$folder/nothing?pool=main"
[[ $? == 3 ]]
result $? 'no daemon: exit code 3' "$folder/err"
code=0
for wrong in --keys=0 --mix=got --mix=get=x --dist=normal --dist=zipf:1 --duration=-1 --cache=no --threads=0 extra --what; do
	bench "$wrong"
	[[ $? == 2 && -s $folder/err ]] || {
		code=1
		echo "# $wrong was not refused"
	}
done
result $code 'wrong arguments: exit code 2 and a message'
bench --load --clean --mix=get --mix=add --json &&
	[[ -z $("$build/tarn" -u "$uri" keys | head -1) ]]
result $? '--clean leaves no key' "$folder/err"

"$build/tests/integration/test-noalloc" "${uri%main}fresh" "${uri%main}small" >"$folder/out"
result $? 'test-noalloc ends with 0' "$folder/out"
cat "$folder/out"
number=$((number + $(grep -cE '^(not )?ok ' "$folder/out")))
echo "1..$number"
