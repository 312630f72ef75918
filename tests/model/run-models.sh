#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# run-models.sh [--quick | --all] [--tap] [PATTERN]   every variant of the models against its wanted verdict
# run-models.sh --trail MODEL FLAG...                 a shortest counterexample of one variant, digested
#
# --quick is the default.  --tap prints TAP, for scripts/check, instead of a table.  PATTERN (grep -E) picks variants by their line in the lists below.
# Exhaustive: no bitstate, no depth limit hit, no memory limit hit; anything else is a verdict of its own (and a surprise).
# Exit status: 0 every verdict as wanted, 1 a surprise, 77 spin or the compiler is missing.
# JOBS (2), LIMIT (600 s for one variant), MEM (3000 MiB for one variant) and CC come from the environment.

if ! command -v spin >/dev/null 2>&1; then
	echo 'skipped: spin is not installed (apt-get install spin)'
	exit 77
fi
here=$(cd "$(dirname "$0")" && pwd) || exit 1
export here JOBS="${JOBS:-2}" LIMIT="${LIMIT:-600}" MEM="${MEM:-3000}" CC="${CC:-gcc}"

if ! command -v "${CC%% *}" >/dev/null 2>&1; then
	echo "skipped: no C compiler ($CC)"
	exit 77
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/tarn-model.XXXXXX") || exit 1
export work
trap 'rm -rf "$work"' EXIT

# wanted verdict, model, flags (each without its -D)
quick() { cat <<'L'
pass kv
pass kv LEFT
pass kv STOPS=2 LEFT
pass kv STOPS=2 LEFT NS=2 C1B=DEL
pass kv C1B=DEL
pass kv C2A=DEL NS=2
pass kv C2A=DEL NS=2 OVERLAP
pass kv PRESENT=1 C1A=GET
pass kv PRESENT=1 C1A=GET CACHE C0B=DEL C1B=GET
pass kv PRESENT=1 C1A=DEL C2A=GET
pass kv C0A=PIA C1A=PIA ONCE
pass kv C0A=PIA C1A=PIA ONCE LEFT STOPS=2
pass kv PRESENT=1 C0A=PIS C1A=PIS ONCE
pass kv PRESENT=1 C0A=PIS C1A=PIS ONCE CACHE
pass kv PRESENT=1 C0A=PIS C0B=DEL C1A=PIS C1B=PUT
pass kv C0A=ANY C0B=ANY C1A=ANY C1B=ANY
pass kv C0A=ANY C0B=ANY C1A=ANY C1B=ANY PRESENT=1 CACHE NS=2
pass kv C0A=ANY C1A=ANY C2A=ANY NS=2
pass kv REREAD C1B=DEL LEFT
pass kv REREAD C0A=ANY C1A=ANY C2A=ANY NS=2
FAIL kv LIVE STOPS=0
pass kv LIVE STOPS=0 REREAD
pass kv LIVE STOPS=1 REREAD LEFT
pass kv LIVE STOPS=1 REREAD LEFT NS=2
pass kv LIVE STOPS=1 REREAD C0B=PUT C1B=DEL
FAIL kv LIVE STOPS=1 REREAD LEFT M_WAITDEAD
FAIL kv HARM M_NOREREAD
FAIL kv HARM M_NOFENCE
FAIL kv HARM M_ONECAS
FAIL kv HARM M_KILLIGN
FAIL kv HARM M_KILLSTORE
FAIL kv HARM M_LOWIGN
FAIL kv HARM M_HIIGN
FAIL kv HARM M_COMMIGN
FAIL kv HARM M_CMTSTORE
FAIL kv HARM M_CMTIGN
FAIL kv HARM M_BACKSTORE
FAIL kv HARM M_READPEND
FAIL kv HARM M_GETPEND C1A=GET
FAIL kv HARM M_UPDPEND
FAIL kv HARM M_UPDSTORE PRESENT=1
FAIL kv HARM M_UPDSTORE PRESENT=1 C1A=DEL
FAIL kv HARM M_DELSTORE PRESENT=1 C1A=DEL
FAIL kv HARM M_RETIREANY PRESENT=1
FAIL kv HARM M_PIAUPD C0A=PIA C1A=PIA ONCE
FAIL kv HARM M_STAMPONCE C0A=PIS C1A=PIS ONCE PRESENT=1
FAIL kv HARM M_CACHENOCHK CACHE PRESENT=1 C1A=GET C1B=GET
FAIL blocks
FAIL blocks CASES
FAIL blocks STRICT CASES
FAIL blocks STRICT MAXPUT=2
pass blocks NOWRAP CASES
pass blocks FIXAGE MAXPUT=2
pass blocks FIXAGE CASES
FAIL blocks FIXAGE CASES MARGIN=2
FAIL blocks FIXAGE MARGIN=1 MAXPUT=2
FAIL blocks FIXAGE CASES SHM
FAIL blocks FIXAGE M_AGELATE
FAIL blocks FIXAGE M_AGELATE CASES
FAIL blocks FIXAGE M_NOGEN
FAIL blocks FIXAGE M_NOGEN CASES
FAIL blocks FIXAGE M_NOT1
FAIL blocks FIXAGE M_NOT1 CASES
FAIL blocks FIXAGE M_NOG
FAIL blocks FIXAGE M_NOG CASES
FAIL blocks FIXAGE M_NOEPOCH
FAIL blocks FIXAGE M_NOEPOCH CASES
FAIL blocks FIXAGE M_NOGRACE
FAIL blocks FIXAGE M_NOGRACE CASES
FAIL blocks FIXAGE M_STALE2
FAIL blocks FIXAGE M_STALE2 CASES
FAIL blocks FIXAGE M_NOCMP
FAIL blocks FIXAGE NOWRAP M_NOT1 M_NOSUM
FAIL blocks FIXAGE NOWRAP M_NOT1 M_NORGEN
pass claim FIX_RING
pass claim FIX_RING MAPFIRST
pass claim FIX_RING M_NOGEN
FAIL claim EMPTY_TAIL
FAIL claim EMPTY_NONE
pass claim FIX_RING M_NOTICKET
FAIL claim FIX_RING M_NOREPUSH
FAIL claim FIX_RING MAPFIRST M_NOGEN
FAIL claim FIX_RING M_NOCAS
pass lock
FAIL lock M_PATIENCE
FAIL lock M_AFTER
FAIL lock M_BEFORE
FAIL lock M_ADDONE
FAIL lock M_KEEP
FAIL lock M_TAKEN
pass queue KILLS=1
pass queue KILLS=1 CKILLS=1 LAST=1
pass queue LOSSES=1 LAST=1 PMAX=4
pass queue SLOW KILLS=1 LAST=1
FAIL queue SLOW M_CHECKSUM LAST=1
FAIL queue SLOW M_SEED LAST=1
FAIL queue M_CHECKSUM LAST=1
FAIL queue M_REREAD LAST=1
FAIL queue M_FULL CKILLS=1 LAST=1
FAIL queue M_SKIP LAST=1
FAIL queue M_CLOSE LOSSES=1 LAST=1
FAIL queue M_STORE LAST=1
FAIL queue M_PUBLISHED LAST=1
FAIL queue M_QUARANTINE LAST=1
FAIL queue M_HEAD CKILLS=1 LAST=1
FAIL queue M_STUCK CKILLS=1 LAST=1
FAIL queue M_TAKE CONSUMERS=2 LAST=1 PMAX=3
pass recycle FIXALL REJOIN NOREADER
FAIL recycle AS_WRITTEN
FAIL recycle FIXALL HARM NO_HB
FAIL recycle FIXALL HARM NO_Q2
FAIL recycle FIXALL HARM NO_GEN
FAIL recycle FIXALL NO_IDLE
FAIL recycle FIXALL NO_PART
FAIL recycle FIXALL COUNTER NO_CTR
FAIL recycle FIXALL M_NOGRACE
FAIL recycle FIXALL M_EARLYDATE
FAIL recycle FIXALL HARM M_NOQUIESCE
FAIL recycle FIXALL HARM M_SWEEPOWNED
FAIL recycle FIXALL HARM M_NOFENCE
FAIL recycle FIXALL M_RETAGED
FAIL recycle FIXALL HARM M_NOGEN
FAIL recycle FIXALL HARM M_ORDER
FAIL recycle FIXALL HARM EVICT M_EVICTNOWAIT
pass pages NOREADER
pass pages NOREADER RESTART DEATHS=0
FAIL pages HARM NOREADER M_HELD
FAIL pages HARM NOREADER M_NOEXT
FAIL pages HARM NOREADER M_OWNPAGE
FAIL pages HARM NOREADER M_ONEWORD
FAIL pages HARM NOREADER M_NOQUIESCE
FAIL pages HARM NOREADER M_Q1
FAIL pages HARM NOREADER RESTART DEATHS=0 M_FORGET
FAIL pages HARM RESTART DEATHS=0 M_RESTED
pass shard
pass shard OPS1=0 ATTEMPTS=2 CRASHES=2
pass shard OPS0=2 OPS1=0 CRASHES=1
pass shard OPS0=2 OPS1=0 TAKE
pass shard OPS1=0 ATTEMPTS=2 OTHERS=2
FAIL shard M_NOFREEZE
FAIL shard OPS0=2 OPS1=0 M_NOKILL
FAIL shard M_INSWORD
FAIL shard OPS0=2 OPS1=0 M_INSEARLY
FAIL shard M_MISSWORD
FAIL shard M_FROZWORD
FAIL shard M_WORDEPOCH
FAIL shard M_NOGONE
FAIL shard M_NOAGAIN
FAIL shard M_NODEL
FAIL shard M_NOPURGE
FAIL shard M_PLAIN
FAIL shard M_REOPEN
FAIL shard CRASHES=1 M_NOBOOT
FAIL shard OPS0=2 OPS1=0 ATTEMPTS=2 M_READYSINCE
FAIL shard CRASHES=1 M_NOABORT
FAIL shard CRASHES=1 M_FORGETS
FAIL shard TAKE M_NOBOUND
FAIL shard TAKE M_ACKFRESH
FAIL shard TAKE M_MOVER
FAIL shard TAKE M_TAKEFIRST
L
}
slow() { cat <<'L'
pass kv C0A=ANY C0B=ANY C1A=ANY C1B=ANY PRESENT=1 CACHE LEFT
pass kv REREAD C0A=ANY C0B=ANY C1A=ANY C1B=ANY LEFT
pass kv C2A=PUT DEEP
pass lock TMAX=5
pass queue LOSSES=1 CKILLS=1 LAST=1
pass queue CONSUMERS=2 LAST=1 PMAX=3
pass blocks NOWRAP MAXPUT=2
pass blocks FIXAGE
pass blocks FIXAGE CASES AGEMAX=20
pass blocks FIXAGE AGEMAX=20 MAXPUT=2
pass blocks FIXAGE M_NOSUM MAXPUT=2
pass blocks FIXAGE M_NORGEN MAXPUT=2
pass blocks FIXAGE NOWRAP M_NOT1 MAXPUT=2
pass recycle FIXALL
pass recycle FIXALL COUNTER NOREADER DEATHS=0
pass recycle FIXALL EVICT NOREADER
pass recycle FIXALL CONNLOSS NOREADER
FAIL recycle FIXALL NO_ORPH
FAIL recycle FIXALL HARM CONNLOSS NO_DROP
FAIL recycle FIXALL HARM CONNLOSS M_RECONNECT
FAIL recycle FIXALL HARM REJOIN M_EARLYREUSE
pass recycle FIXALL DEATHS=2
pass recycle FIXALL EVICT
pass recycle FIXALL CONNLOSS
pass recycle FIXALL REJOIN
pass pages
pass pages RESTART DEATHS=0
pass pages NOREADER RESTART
pass shard CRASHES=1
pass shard OPS0=2 OPS1=0 ATTEMPTS=2 CRASHES=2
pass shard TAKE
pass shard OPS0=2 OPS1=0 TAKE CRASHES=1
L
}

# build MODEL FLAG... in the current folder; OPT and DEF are options of the compiler
build() {
	local model=$1 x d=()
	shift
	for x in "$@"; do d+=("-D${x#-D}"); done
	cp "$here/$model.pml" . || return 1
	spin -a "${d[@]}" "$model.pml" >spin.log 2>&1 || return 1
	# shellcheck disable=SC2086 # OPT, DEF and CC are lists of words
	$CC -w $OPT $DEF "-DMEMLIM=$MEM" -o pan pan.c >cc.log 2>&1
}

if [ "$1" = --trail ]; then
	model=${2%.pml}
	shift 2
	cd "$work" || exit 1
	MEM=$((MEM * 2)) OPT=-O2 DEF='-DSAFETY -DBFS' build "$model" "$@" || { cat spin.log cc.log; exit 1; }
	timeout "$LIMIT" ./pan >pan.log 2>&1
	grep -E 'pan:1|errors:|reached' pan.log
	[ -f "$model.pml.trail" ] || { echo 'no counterexample within the limits'; exit 1; }
	d=()
	for x in "$@"; do d+=("-D${x#-D}"); done
	spin -t -p "${d[@]}" "$model.pml" 2>&1 | sed -nE 's/ *\(state [0-9]+\)//; s/^ *[0-9]+:[[:space:]]*proc +[0-9]+ \(([^):]+):[0-9]+\) [a-z.]+:/\1 /p' |
		grep -F '[' | grep -vE '\[(else|\.\(goto\)|goto.*|\(?1\)?)\]' | cut -c1-150
	exit 0
fi

export mode=quick tap=''
while [ $# -gt 0 ]; do
	case $1 in
	--quick) mode=quick ;;
	--all) mode=all ;;
	--tap) tap='# ' ;;
	-*)
		sed -n '4,10s/^# \{0,1\}//p' "$0"
		exit 2
		;;
	*) break ;;
	esac
	shift
done
pattern=${1:-.}

# which property was violated, from the text of the assertion that spin prints
reason() {
	case $1:$2 in
	*:*'acceptance cycle'*) echo 'goes on for ever' ;;
	recycle:*AGEDMASK* | recycle:*'(3-(inuse|retd)))|soff)==3'* | recycle:*'pst==0)||(soff==3'*) echo 'S4 leak' ;;
	recycle:*'invalid end'*) echo 'S4 the sweep waits for ever' ;;
	pages:*'retd)))|soff)==3'* | pages:*'pst[0]==0'*) echo 'S4 leak' ;;
	pages:*rd_b*) echo 'S1 block in use handed out or written' ;;
	pages:*held*'&&1) '*) echo 'S2 late "retired" on a block in other hands' ;;
	recycle:*rd_b*) echo 'S1 block in use handed out or written' ;;
	recycle:*held*'&&1) '*) echo 'S2 late "retired" on a block in other hands' ;;
	recycle:*'&n)==0)'*) echo 'S3 block in use called aged' ;;
	lock:*holds*) echo 'L1 two have the lock' ;;
	lock:*known*) echo 'L2 the token was there before' ;;
	queue:*'d==pub'*) echo 'Q1 delivered what was not published there' ;;
	queue:*'(pub[p]==0)'*) echo 'Q1 a message is taken for damaged' ;;
	queue:*got*) echo 'Q2 delivered twice, or out of order' ;;
	queue:*taken*) echo 'Q3 a message that was sent is lost' ;;
	queue:*'invalid end'*) echo 'Q3 somebody waits for ever' ;;
	queue:*'st[x]'* | queue:*'b>='* | queue:*'b=='*) echo 'Q4 a state that can not be' ;;
	claim:*owns*) echo 'C1 two owners' ;;
	claim:*'inuse[p]&m'*) echo 'C2 block handed out twice' ;;
	claim:*ring*) echo 'C3 page lost' ;;
	shard:*'||at)'*) echo 'H2 a write was acknowledged elsewhere' ;;
	shard:*seen*) echo 'H3 answer that was never true' ;;
	shard:*'==cur)'*) echo 'H1 the target does not hold what the source held' ;;
	shard:*'word[owner]'*) echo 'H4 the owner stays closed' ;;
	blocks:*'sid=='*) echo 'B2 CAS on a word that has come back' ;;
	blocks:*seen*) echo 'B1 get of a value that was not live' ;;
	kv:*nsucc*) echo 'I5 condition met twice' ;;
	kv:*'slot[0]'*'<=1)'*) echo 'I1 two committed slots' ;;
	kv:*'slot[0]'*'cur!=0'*) echo 'I1 acknowledged write lost' ;;
	kv:*'retired&(1<<cur)'*) echo 'I2 retired block is live' ;;
	kv:*retired*) echo 'I2 block retired twice' ;;
	kv:*'(cur==nv)'*) echo 'I1 success without effect' ;;
	kv:*seen*) echo 'I3 answer that was never true' ;;
	*) echo "${2:0:60}" ;;
	esac
}

# one N WANT MODEL FLAGS
one() {
	local n=$1 want=$2 model=$3 flags=() got=ERROR why='' states secs m=1000000 args=() mark=ok
	read -r -a flags <<<"$4"
	mkdir -p "$work/$n" && cd "$work/$n" || return
	# a counterexample is found sooner than the compiler optimizes, and a quick verdict sooner than it optimizes much
	OPT=-O0
	[ "$want" = pass ] && OPT=-O1
	[ "$mode$want" = allpass ] && [ "$model" != kv ] && OPT=-O2
	DEF=-DSAFETY
	[ "$model" = blocks ] && DEF="$DEF -DCOLLAPSE"
	case " $4 " in
	*' LIVE '*) DEF='' args=(-a -f) ;;
	*' DEEP '*) DEF="$DEF -DCOLLAPSE" m=20000000 ;;
	esac
	if build "$model" "${flags[@]}"; then
		timeout "$LIMIT" ./pan "-m$m" "${args[@]}" >pan.log 2>&1
		if [ $? = 124 ]; then
			got=TIMEOUT
		elif grep -qE '^pan:1: (assertion violated|invalid end state|acceptance cycle)' pan.log; then
			got=FAIL
			why=$(reason "$model" "$(sed -n 's/^pan:1: //p' pan.log | head -n 1)")
		elif grep -qE 'max search depth too small|out of memory|reached -DMEMLIM|Search not completed' pan.log; then
			got=PARTIAL
		elif grep -q 'errors: 0' pan.log; then
			got=pass
		fi
	fi
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log 2>/dev/null | head -n 1)
	secs=$(sed -n 's/.*elapsed time \([0-9.]*\).*/\1/p' pan.log 2>/dev/null | head -n 1)
	[ "$got" = "$want" ] || mark='<== SURPRISE'
	[ "$mark" = ok ] && echo ok >"$work/$n.res"
	if [ "$tap" ]; then
		[ "$mark" = ok ] || printf 'not '
		printf 'ok %d - %s %s: wanted %s, got %s, %s states%s\n' $((n - 99)) "$model" "$4" "$want" "$got" "${states:-?}" "${why:+, $why}"
	else
		printf '%-8s %-56s %-5s %-7s %9s %7s  %s%s\n' "$model" "$4" "$want" "$got" "${states:-?}" "${secs:-?}" "$mark" "${why:+ ($why)}"
	fi
	[ "$got" = ERROR ] && cat spin.log cc.log 2>/dev/null
	cd "$work" && rm -rf "${work:?}/$n"
}
export -f one build reason

list=$({ quick; [ $mode = all ] && slow; } | grep -E -- "$pattern")
total=$(grep -c . <<<"$list")
if [ "$tap" ]; then
	echo "1..$total"
else
	printf '%-8s %-56s %-5s %-7s %9s %7s\n' model flags want got states seconds
fi
n=100
[ "$list" ] && while read -r want model flags; do
	printf '%s\0%s\0%s\0%s\0' $((n++)) "$want" "$model" "$flags"
done <<<"$list" | xargs -0 -r -n4 -P"$JOBS" bash -c 'one "$@"' _

# a variant that left no result (killed, disk full) has failed
passed=$(find "$work" -name '*.res' | grep -c .)
echo "$tap$passed passed, $((total - passed)) failed"
[ "$total" -gt 0 ] && [ "$passed" = "$total" ]
