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
other="tarn:$folder/tarn.sock?pool=other"
{
	printf '[listen local]\npath = %s\n' "$folder/tarn.sock"
	printf '[pool %s]\nsize = %s\nhugepages = off\n' main 512M other 512M empty 16M fresh 512M small 192M
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

# Single posts: they need no keys, write into memory that no key names, and give it back.
raw=read,read+read,write,cas,write+cas
bench --uri="$empty" --raw=read,read+read,write --raw cas --raw=write+cas --json
code=$?
check 'all(o["raw"][kind][f] > 0 for kind in "'$raw'".split(",") for f in
	("rate", "p50_ns", "p99_ns", "min_ns", "count", "bytes")) and o["results"] == {} and o["ceiling"] == {}'
result $((code + $?)) 'raw posts alone, in an empty pool' "$folder/err" "$folder/out"
check '(all(o["raw"][kind]["min_ns"] <= o["raw"][kind]["p50_ns"] <= o["raw"][kind]["p99_ns"] for kind in o["raw"]) and
	[o["raw"][kind]["bytes"] for kind in "'$raw'".split(",")] == [128, 128, 128, 8, 128])'
result $? 'raw posts have the sizes of a get and a put' "$folder/out"
# What was used rests for a while before its page is free again.
pages_back() {
	local i

	for ((i = 0; i < 200; i++)); do
		"$build/tarn" -u "$empty" stats --json | python3 -c 'import json, sys
pages = next(p for p in json.load(sys.stdin)["pools"] if p["name"] == "empty")["pages"]
sys.exit(0 if pages["slab"] == pages["orphan"] == pages["full"] == 0 and pages["damaged"] == 0 else pages)' \
			2>"$folder/err" && return
		sleep 0.1
	done
	return 1
}
[[ -z $("$build/tarn" -u "$empty" keys | head -1) ]] && pages_back
result $? 'raw posts leave no key and no page behind' "$folder/err"
code=0
for size in 1 7 128 262080; do
	bench --uri="$empty" --raw=$raw --raw-size=$size --json --duration=0.05 --warmup=0 &&
		check "o['raw']['read']['bytes'] == o['raw']['write']['bytes'] == $size" || code=1
done
result $code 'raw posts of 1 byte to nearly a page' "$folder/err" "$folder/out"
bench --no-load --threads=2 --processes=2 --mix=get --mix=put --raw=$raw --ceiling=off --rounds=3 --json &&
	bench --no-load --mix=get --json && check 'o["results"]["get"]["misses"] == 0'
result $? 'raw posts between operations damage no value' "$folder/err"
bench --no-load --mix=get --raw=write+cas && grep -q '^raw write+cas, 128 B ' "$folder/out"
result $? 'raw posts in the table' "$folder/err" "$folder/out"

bench --no-load --mix=get --pause=0.02 --ceiling=off --json &&
	check '2 <= o["results"]["get"]["count"] <= 16 and o["results"]["get"]["rate"] > 1000'
result $? 'a pause is kept, and is part of no rate' "$folder/err" "$folder/out"

# In a pool of its own: what is left rests for a while. sizes SIZES SMALLEST LARGEST MEAN MEAN: what is in the pool after
# a run, the mean between two.
sizes() {
	bench --uri="$other" --load --value-size="$1" --mix=get --mix=put --mix=rmw --json --duration=0.1 &&
		"$build/tarn" -u "$other" --json keys -l | python3 -c 'import json, sys
sizes = [k["value_bytes"] for k in json.load(sys.stdin)["keys"] if k["kind"] == "value"]
print(len(sizes), min(sizes), max(sizes), sum(sizes) / len(sizes))
expected = [int(n) for n in sys.argv[1:]]
sys.exit(not ([min(sizes), max(sizes)] == expected[:2] and expected[2] < sum(sizes) / len(sizes) < expected[3]))' \
			"${@:2}" >>"$folder/err" && check "(o['arguments']['value_sizes'] == '$1' and
			o['arguments']['value_size'] == $3 and all(r['misses'] == 0 for r in o['results'].values()))"
	result $? "--value-size=$1" "$folder/err" "$folder/out"
}
sizes 0-300 0 300 145 155
sizes zipf:10-10K 10 10240 1000 1200
bench --uri="$other" --no-load --value-size=zipf:10-10K --mix=put --mix=get --depth=7 --threads=2 &&
	bench --uri="$other" --no-load --value-size=zipf:10-10K --mix=get &&
	grep -q 'values of zipf:10-10K bytes' "$folder/out"
result $? 'sizes of batches' "$folder/err"
! bench --uri="$other" --no-load --value-size=zipf:10-10241 --mix=get && grep -q 'wrong value' "$folder/err" &&
	! bench --uri="$other" --no-load --value-size=zipf:10-10241 --mix=get --depth=7 && grep -q 'wrong value' "$folder/err"
result $? 'a value of a wrong size is noticed' "$folder/err"
sizes 17-17 17 17 16 18
# YCSB. Inserted keys are gone in the end.
ycsb() {
	bench --uri="$other" --no-load --ycsb="$1" --key-size=16 --json --ceiling=off --threads=2 "${@:4}" &&
		check "set(o['results']) == set('$2'.split()) and all(r['count'] > 0 and r['misses'] == 0
			for r in o['results'].values()) and o['arguments']['ycsb'] == '$1' and ($3)"
	result $? "--ycsb=$1" "$folder/err" "$folder/out"
}
bench --uri="$other" --ycsb=C --key-size=16 --json && check '(o["arguments"]["value_size"] == 1000 and o["arguments"]["dist"] == "zipf" and
	o["arguments"]["mix"] == ["get"] and o["arguments"]["key_size"] == 16)'
result $? '--ycsb sets what is not given' "$folder/err" "$folder/out"
before=$("$build/tarn" -u "$other" keys | wc -l)
ratio='o["results"]["%s"]["count"] / o["results"]["%s"]["count"]'
# shellcheck disable=SC2059 # the format is the variable
ycsb A 'get put' "0.8 < $(printf "$ratio" get put) < 1.25"
# shellcheck disable=SC2059
ycsb B 'get put' "14 < $(printf "$ratio" get put) < 26"
# shellcheck disable=SC2059
ycsb D 'get insert' "14 < $(printf "$ratio" get insert) < 26 and o['arguments']['dist'] == 'latest'" --processes=2
# shellcheck disable=SC2059
ycsb E 'scan insert' "10 < $(printf "$ratio" scan insert) < 40 and o['results']['scan']['round_trips'] > 3" --processes=2 --duration=1
# shellcheck disable=SC2059
ycsb F 'get rmw' "0.8 < $(printf "$ratio" get rmw) < 1.25 and o['results']['rmw']['round_trips'] > 1.8"
[[ $("$build/tarn" -u "$other" keys | wc -l) == "$before" ]]
result $? '--ycsb leaves the keys as they were'
! bench --uri="$other" --no-load --key-size=16 --value-size=1001 --ycsb=E && grep -q 'wrong value' "$folder/err"
result $? 'a scan looks at the values' "$folder/err" "$folder/out"
# Only one in ten of these keys is there, and those that D inserts. With uniform picks nearly all gets miss.
bench --uri="$other" --no-load --key-size=16 --keys=200000 --ycsb=D --ceiling=off --duration=1 --json &&
	! bench --uri="$other" --no-load --key-size=16 --keys=200000 --ycsb=D --dist=uniform --ceiling=off
result $? '--dist=latest picks what was inserted' "$folder/err" "$folder/out"

# Histograms: lines that rise up to all, and agree with what the results say.
bench --no-load --mix=get=50,put=50 --rounds=3 --threads=2 --raw=cas --histogram --json &&
	check '(set(o["histograms"]) == {"get", "put", "hash table", "raw READs", "raw cas, 8 B"} and
		all(h[0]["percentile"] == 0 and h[-1]["percentile"] == 1 and h[-1]["inverse"] is None and len(h) > 20 and
		all(a[f] <= b[f] for a, b in zip(h, h[1:]) for f in ("value_ns", "percentile", "total_count")) and
		all(abs(l["inverse"] * (1 - l["percentile"]) - 1) < 0.01 for l in h[:-1]) for h in o["histograms"].values()) and
		all(o["histograms"][op][-1]["total_count"] == r["count"] and
		0.98 < o["histograms"][op][-1]["value_ns"] / r["max_ns"] <= 1 and o["histograms"][op][0]["value_ns"] == r["min_ns"]
		for op, r in o["results"].items()))'
result $? '--histogram in JSON' "$folder/err" "$folder/out"
bench --no-load --mix=get --histogram --ceiling=off && grep -qE '^ *[0-9]+\.000 1\.000000000000 +[0-9]+$' "$folder/out" &&
	grep -qE '^ *[0-9]+\.000 0\.500000000000 +[0-9]+ +2\.00$' "$folder/out" && grep -q '^#\[Mean ' "$folder/out"
result $? '--histogram as text' "$folder/err" "$folder/out"

bench --no-load --mix=get=50,put=50 --threads=2 --plot --ceiling=off && python3 -c 'import re, sys
shares, ends = {}, {}
for line in open(sys.argv[1]):
    if title := re.match(r"(\w+): share of", line):
        name = title[1]
    elif row := re.match(r" *\d+ \|([#.]*) *\| +([\d.]+)% +([\d.]+)%$", line):
        shares[name], ends[name] = shares.get(name, 0) + float(row[2]), (float(row[3]), max(ends.get(name, (0, 0))[1], len(row[1])))
print(shares, ends)
sys.exit(not (set(shares) == {"get", "put"} and all(99 < s < 101 for s in shares.values()) and
    all(end == (100, 50) for end in ends.values())))' "$folder/out" >>"$folder/err" 2>&1
result $? '--plot as text: shares are 100 percent in all' "$folder/err" "$folder/out"
bench --no-load --mix=get --mix=put --raw=cas --plot="$folder/plot.svg" --json && check 'o["results"]["put"]["count"] > 0' &&
	python3 -c 'import sys, xml.etree.ElementTree as tree
names = {"get", "put", "hash table", "raw READs", "raw cas, 8 B"}
svg = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
lines = [[tuple(map(float, p.split(","))) for p in line.get("points").split()] for line in root.iter(svg + "polyline")]
sys.exit(not (len(lines) == 5 and names <= {text.text for text in root.iter(svg + "text")} and all(len(line) > 20 and
    all(80 <= x <= 640 and 40 <= y <= 410 for x, y in line) and
    all(a[0] <= b[0] and a[1] >= b[1] for a, b in zip(line, line[1:])) for line in lines)))' "$folder/plot.svg" 2>>"$folder/err"
result $? '--plot=FILE.svg: rising lines within the frame' "$folder/err" "$folder/plot.svg"
bench --no-load --mix=get --mix=put --ceiling=off --plot="$folder/plot.gp" &&
	[[ $(grep -c '^[$]data. << END$' "$folder/plot.gp") == 2 && $(grep -cE '^[0-9.]+ [0-9]+$' "$folder/plot.gp") -gt 40 ]] &&
	tail -2 "$folder/plot.gp" | tr -d '\n' | grep -q "^plot \$data0 .*'get', .*\$data1 .*'put'$" &&
	{ ! command -v gnuplot >/dev/null || gnuplot -e 'set terminal dumb' "$folder/plot.gp" >/dev/null 2>>"$folder/err"; }
result $? '--plot=FILE.gp: a script with its data' "$folder/err" "$folder/plot.gp"
bench --no-load --mix=get --plot="$folder/nothing/plot.svg"
[[ $? == 1 ]] && grep -q 'cannot be written' "$folder/err" && grep -q '^get ' "$folder/out"
result $? 'a plot that cannot be written is said, after the results' "$folder/err" "$folder/out"

# Traces. Of 3000 keys each is put, got twice, deleted and got once more. One get in three finds nothing, and no delete,
# if what is done with a key comes in its order.
python3 -c 'for line in (f"{op},user:{i:0{5 + i % 90}}{size}" for i in range(3000) for op, size in
    (("put", f",{i % 2000}"), ("get", ""), ("get", ""), ("delete", ""), ("get", ""))): print(line)' >"$folder/trace.csv"
for workers in '--threads=1' '--threads=2 --processes=2'; do
	read -ra words <<<"$workers"
	bench --uri="$empty" --trace="$folder/trace.csv" --no-load --value-size=1 --clean --json "${words[@]}" &&
		check '(set(o["results"]) == {"get", "put", "delete"} and o["results"]["put"]["misses"] == 0 and
			o["results"]["delete"]["misses"] == 0 and
			0.32 < o["results"]["get"]["misses"] / o["results"]["get"]["count"] < 0.35 and
			2.9 < o["results"]["get"]["count"] / o["results"]["put"]["count"] < 3.1 and
			o["ceiling"] == {} and o["arguments"]["trace"].endswith("trace.csv"))'
	result $? "--trace, $workers" "$folder/err" "$folder/out"
done
{
	printf '# what --load has put is there\r\n\r\nget,a,100\r\nget,b\r\n'
	for i in $(seq 100); do echo "get,$i,16777"; done
} >"$folder/gets.csv"
bench --uri="$empty" --trace="$folder/gets.csv" --json --threads=2 --rate=10000 --rounds=2 &&
	check '(set(o["results"]) == {"get"} and o["results"]["get"]["misses"] == 0 and
		2000 < o["results"]["get"]["count"] < 3100 and o["open_loop"][0]["rate_asked"] == 10000)' &&
	[[ $("$build/tarn" -u "$empty" get a | wc -c) == 100 && $("$build/tarn" -u "$empty" get b | wc -c) == 64 ]]
result $? '--trace loads its keys, with their sizes, and has a rate' "$folder/err" "$folder/out"
"$build/tarn" -u "$empty" put b nonsense 2>/dev/null
! bench --uri="$empty" --trace="$folder/gets.csv" --no-load && grep -q 'the key b has a wrong value' "$folder/err" &&
	bench --uri="$empty" --trace="$folder/gets.csv" --no-load --no-verify &&
	grep -q '^trace .*/gets.csv, 102 lines' "$folder/out" &&
	printf 'get,b\n' >"$folder/one.csv" && bench --uri="$empty" --trace="$folder/one.csv" --clean --threads=3 &&
	! "$build/tarn" -u "$empty" get b >/dev/null 2>&1 &&
	bench --uri="$empty" --trace="$folder/gets.csv" --clean && [[ -z $("$build/tarn" -u "$empty" keys | head -1) ]]
result $? '--trace looks at values, and cleans' "$folder/err" "$folder/out"
code=0
for wrong in got,a get 'get,' ,a put,a,x put,a,-1 put,a,16777217 put,a,1,2 "get,$(printf '%01025d' 0)" "get,$(printf '%03000d' 0)"; do
	printf 'get,a\n\n%s\n' "$wrong" >"$folder/wrong.csv"
	bench --uri="$empty" --trace="$folder/wrong.csv"
	if [[ $? != 2 || $(<"$folder/err") != *wrong.csv:3:\ * ]]; then
		code=1
		echo "# ${wrong:0:40} was not refused"
	fi
done
: >"$folder/wrong.csv"
for wrong in "$folder/wrong.csv" "$folder/nothing"; do
	bench --trace="$wrong"
	[[ $? == 2 && $(wc -l <"$folder/err") == 1 ]] || code=1
done
result $code 'wrong traces: exit code 2, file and line' "$folder/err"

# An open loop: the rate is kept when it can be, and a latency counts from when an operation should have started.
bench --no-load --mix=get --mix=delete --rate=1000 --threads=2 --processes=2 --ceiling=off --duration=2 --json &&
	check '(all(p["rate_asked"] == 1000 and 900 < p["rate"] < 1010 and p["sustained"] and 1800 < p["started"] < 2020
		for p in o["open_loop"]) and [p["mix"] for p in o["open_loop"]] == ["get", "delete"] and
		900 < o["results"]["get"]["rate"] < 1010 and o["arguments"]["rate"] == 1000 and o["ratios"] == {})'
result $? '--rate starts as many operations as it says' "$folder/err" "$folder/out"
# What never ends in time waits longer and longer, up to the length of the round; without --rate it would be microseconds.
bench --no-load --mix=get --rate=1000000000 --ceiling=off --duration=1 --json &&
	check '(not o["open_loop"][0]["sustained"] and o["open_loop"][0]["late"] > o["open_loop"][0]["started"] and
		o["results"]["get"]["p50_ns"] > 1e8)'
result $? 'a rate that cannot be sustained: said, and the waiting counts' "$folder/err" "$folder/out"
bench --no-load --mix=put --rate=1000000000 --ceiling=off && grep -q '^put: .* could not be sustained' "$folder/out" &&
	bench --no-load --mix=put --rate=1000 --depth=10 --ceiling=off && grep -q '^put: 1000 .*, sustained' "$folder/out"
result $? 'text says whether a rate was sustained' "$folder/err" "$folder/out"

! bench --uri="$empty" --no-load --json
result $? 'a run that finds no key fails' "$folder/out"
bench --value-size=100 --mix=put --json && ! bench --no-load --mix=get
result $? 'a value that is not the expected one is noticed' "$folder/err"
bench --uri="tarn:$folder/nothing?pool=main"
[[ $? == 3 ]]
result $? 'no daemon: exit code 3' "$folder/err"
code=0
for wrong in --keys=0 --mix=got --mix=get=x --dist=normal --dist=zipf:1 --duration=-1 --pause=x --cache=no --threads=0 extra --what \
	--value-size=-5 --value-size=5- --value-size=9-8 --value-size=0-17M --value-size=zipf:9 --value-size=1-2-3 \
	"--trace=$folder/gets.csv --mix=get" "--trace=$folder/gets.csv --depth=2" --plot=plot.png '--plot --json' \
	--ycsb=G --ycsb= --ycsb=AB '--ycsb=A --mix=get' '--ycsb=E --depth=2' \
	--rate=0 --rate=x --rate=1G --rate=1000000001 '--rate=5 --pause=1' '--rate=5 --raw=read' \
	--raw=write+ --raw= '--raw=read,' --raw-size=0 --raw-size=262081; do
	read -ra words <<<"$wrong"
	bench "${words[@]}"
	[[ $? == 2 && -s $folder/err ]] || {
		code=1
		echo "# $wrong was not refused"
	}
done
result $code 'wrong arguments: exit code 2 and a message'
# The manual page escapes nothing but the dashes of options: `Fl -name` is --name.
"$build/tarn-bench" --help | grep -o -- '--[a-z][a-z-]*' | sort -u >"$folder/out"
grep -oE '^\.(It )?Fl .*' "${TARN_SRCDIR:?}/docs/man/tarn-bench.1" | grep -oE 'Fl -[a-z][a-z-]*' | sed 's/^Fl -/--/' |
	sort -u >"$folder/err"
[[ -s $folder/out ]] && diff "$folder/out" "$folder/err" >"$folder/diff"
result $? 'tarn-bench(1) has the options of --help' "$folder/diff"
bench --load --clean --mix=get --mix=add --json &&
	[[ -z $("$build/tarn" -u "$uri" keys | head -1) ]]
result $? '--clean leaves no key' "$folder/err"

"$build/tests/integration/test-noalloc" "${uri%main}fresh" "${uri%main}small" >"$folder/out"
result $? 'test-noalloc ends with 0' "$folder/out"
cat "$folder/out"
number=$((number + $(grep -cE '^(not )?ok ' "$folder/out")))
echo "1..$number"
