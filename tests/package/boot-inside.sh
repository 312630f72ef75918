#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What an operator does with the packages under systemd, from the installation to the purge, for check-boot.sh. In the
# virtual machine the clean root's systemd is process 1, and this runs beside it, outside of its root; without a machine
# it starts a systemd in namespaces of its own in the root $1, on this kernel. Where there is no RDMA, what is about it
# is left out. TAP. What stands in single quotes is for shells inside.
# shellcheck disable=SC2016
set -u
work=$(mktemp -d "${TMPDIR:-/tmp}/tarn-boot.XXXXXX")
export LC_ALL=C.UTF-8

grep -q cgroup2 /proc/filesystems || {
	echo "1..0 # SKIP this kernel has no control groups, without which systemd does not run"
	exit 0
}

# ---- a systemd ----

# Without a machine. An overlay, so that the root stays clean. Devices, /proc/sys and /sys are not this systemd's to
# change.
boot='mount --make-rprivate / && mkdir -p /run/tarn-boot && mount -t tmpfs tmpfs /run/tarn-boot && cd /run/tarn-boot &&
	mkdir upper work root && mount -t overlay -o "lowerdir=$0,upperdir=upper,workdir=work" overlay root && cd root &&
	mount -t tmpfs tmpfs run && mount -t proc proc proc && mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys &&
	mount -t sysfs -o ro sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup && mount -t tmpfs -o mode=1777 tmpfs tmp &&
	mount -t tmpfs -o mode=755 tmpfs dev && mkdir -p dev/shm dev/infiniband && mount -t tmpfs -o mode=1777 tmpfs dev/shm &&
	for device in null zero full random urandom tty kmsg infiniband/uverbs0 infiniband/rdma_cm infiniband/umad0; do
		[ ! -e "/dev/$device" ] || { touch "dev/$device" && mount --bind "/dev/$device" "dev/$device"; } || exit
	done &&
	exec env -i container=tarn-test PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --system \
		--unit=multi-user.target --show-status=0 --log-color=0'
# What it says itself goes there.
log=/dev/null
unshare='' first=1 rdma=''
# Process 1 of the namespace goes with it, and all that runs in there.
trap '[[ -z $unshare ]] || { kill -KILL "$unshare"; wait "$unshare"; } 2>/dev/null; rm -rf "$work"' EXIT
if [[ -z ${RDMA_VM-} ]]; then
	first='' log=$work/boot
	unshare -fpmuiC --kill-child sh -c "$boot" "$1" >"$log" 2>&1 &
	unshare=$!
fi
[[ ! -e /dev/infiniband/uverbs0 ]] || rdma=1

inside() {
	nsenter -t "$first" -m -p -u -C -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

up() {
	local state=

	for _ in {1..600}; do
		[[ -z $unshare ]] || first=$(pgrep -P "$unshare") &&
			state=$(inside systemctl is-system-running 2>"$work/state") && break
		[[ $state != degraded ]] || break
		sleep 0.2
	done
	cat "$log" "$work/state"
	inside systemctl --no-pager list-jobs
	inside systemctl --no-pager --failed
	[[ $state == running || $state == degraded ]] || return
	# What apt and systemd do once a day must not come between.
	inside systemctl stop timers.target '*.timer'
}

# ---- results ----

number=0 failed=0
# try DESCRIPTION COMMAND...
try() {
	local code begin=$SECONDS since=$EPOCHSECONDS

	number=$((number + 1))
	"${@:2}" >"$work/output" 2>&1
	code=$?
	if ((code == 0)); then
		echo "ok $number - $1"
	else
		echo "not ok $number - $1"
		failed=1
		{
			tail -n 30 "$work/output"
			tail -n 3 "$work"/load-*
			inside systemctl status --no-pager -l -n 0 tarnd
			inside journalctl --no-pager -q -n 60 --since "@$since"
		} 2>&1 | sed 's/^/# /'
	fi
	echo "# $((SECONDS - begin)) s"
	return "$code"
}

skip() {
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

try_rdma() {
	if [[ -n $rdma ]]; then try "$@"; else skip "$1" "this machine's kernel has no RDMA"; fi
}

finish() {
	echo "1..$number"
	exit "$failed"
}

# ---- steps ----

# Of the clean root, without what belongs to dpkg and apt, and to this test.
list() {
	inside find / -xdev \( -path /root -o -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /var/cache \
		-o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/log -o -path /tmp \) -prune -o -printf '%p %M %u:%g\n' |
		grep -vE '^/etc/(passwd|shadow|group|gshadow)- ' | sort
	inside sort /etc/passwd /etc/group
	inside find /dev/shm /tmp /var/tmp -iname '*tarn*'
}

prepare() {
	inside sh -c 'dpkg -i /var/cache/apt/archives/*.deb' && list >"$work/before"
}

installed() {
	inside sh -c 'dpkg -i /root/debs/*.deb && ! systemctl is-active tarnd && ! systemctl is-enabled tarnd'
}

configuration() {
	cat <<-END
		[listen local]
		path = /run/tarn/tarn.sock
		mode = $1
		${rdma:+[listen rdma]
		address = 10.77.0.1}
		[pool main]
		size = 256M
		hugepages = off
		auth = key
		key_file = /etc/tarn/keys
		[http]
	END
}

configure() {
	configuration 0660 | inside tee /etc/tarn/tarnd.conf &&
		inside sh -c 'umask 077; printf "app write %064d\n" 7 >/etc/tarn/keys && chown tarn /etc/tarn/keys && cp /etc/tarn/keys /root/key'
}

started() {
	configure && inside systemctl enable --now tarnd && inside systemctl is-active tarnd && inside systemctl is-enabled tarnd
}

# http PATH: what a browser or Prometheus gets.
http() {
	inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/7471 &&
		printf "GET %s HTTP/1.1\r\nHost: 127.0.0.1:7471\r\nConnection: close\r\n\r\n" "$1" >&3 && cat <&3' - "$1"
}

watched() {
	[[ $(http /) == "HTTP/1.1 200 "*"<title>Tarn</title>"* && $(http /dashboard.js) == "HTTP/1.1 200 "* &&
		$(http /v1/stats) == "HTTP/1.1 200 "*'"main"'* && $(http /metrics) == "HTTP/1.1 200 "*tarn_pool_bytes* &&
		$(http /readyz) == "HTTP/1.1 200 "* ]]
}

tarn() {
	inside tarn -k /root/key -u "$1" "${@:2}"
}

# As the unit promises: the user, no capability, system calls filtered, no new privileges.
confined() {
	local status

	status=$(inside sh -c 'cat /proc/$(systemctl show -P MainPID tarnd)/status')
	echo "$status"
	grep -q "^Uid:.$(inside id -u tarn)"$'\t' <<<"$status" && grep -qE '^CapBnd:.0+$' <<<"$status" &&
		grep -qE '^Seccomp:.2$' <<<"$status" && grep -qE '^NoNewPrivs:.1$' <<<"$status"
}

# Root in the service's control group: nothing but DeviceAllow= stands between it and a device.
opens='exec 3<"$1"'
opens_in_service='echo $$ >/sys/fs/cgroup/system.slice/tarnd.service/cgroup.procs && '$opens
allowed() {
	inside sh -c "$opens_in_service" sh /dev/infiniband/uverbs0 && inside sh -c "$opens_in_service" sh /dev/infiniband/rdma_cm
}
refused() {
	inside sh -c "$opens" sh "$1" && ! inside sh -c "$opens_in_service" sh "$1"
}

reloaded() {
	configuration 0666 | inside tee /etc/tarn/tarnd.conf && inside systemctl reload tarnd &&
		[[ $(inside stat -c %a /run/tarn/tarn.sock) == 666 ]]
}
reload_refused() {
	(configuration 0666 && echo 'no_such_key = 1') | inside tee /etc/tarn/tarnd.conf &&
		! inside systemctl reload tarnd && inside systemctl is-active tarnd && [[ $(tarn "$local" get first) == value ]]
}

# Applications under load, each with its way to the pool. $work/load-WAY: a line per 20 keys.
declare -A loads
load() {
	inside sh -c 'echo $$ >/run/load-$0.pid; TARN_KEY_FILE=/root/key exec /root/load "$@"' "$1" "$2" "$1-" >"$work/load-$1" 2>&1 &
	loads[$1]=$!
}
far() {
	wc -l <"$work/load-$1"
}
# Each gets on, by 40 keys at least.
go_on() {
	local way begin

	for way in "${!loads[@]}"; do
		begin=$(far "$way")
		for _ in {1..600}; do
			(($(far "$way") < begin + 3)) || continue 2
			kill -0 "${loads[$way]}" 2>/dev/null || break
			sleep 0.2
		done
		echo "the application over $way does not go on"
		return 1
	done
}
# Nothing is lost: it has read all of its keys again.
end() {
	inside sh -c 'kill $(cat /run/load-$0.pid)' "$1" && wait "${loads[$1]}"
}
main_pid() {
	inside systemctl show -P MainPID tarnd
}
restarted() {
	local before

	before=$(main_pid) && inside systemctl restart tarnd && [[ $(main_pid) != "$before" ]] && go_on
}
# As an upgrade of systemd does it: it has the pools' memory, and must hand it on to itself.
reexecuted() {
	inside systemctl daemon-reexec && restarted
}
reloaded_again() {
	configuration 0660 | inside tee /etc/tarn/tarnd.conf && inside systemctl reload tarnd && go_on
}
upgraded() {
	local before version

	before=$(main_pid) version=$(inside dpkg-query -W -f '${Version}' tarnd)
	inside sh -c 'dpkg -i /root/newer/*.deb' && inside dpkg --compare-versions "$(inside dpkg-query -W -f '${Version}' tarnd)" gt "$version" &&
		[[ $(main_pid) != "$before" ]] && inside systemctl is-active tarnd && inside systemctl is-enabled tarnd && go_on &&
		configuration 0660 | cmp - <(inside cat /etc/tarn/tarnd.conf)
}
restarts() {
	inside systemctl show -P NRestarts tarnd
}
# started_again BEFORE: by systemd itself, more often than that.
started_again() {
	for _ in {1..600}; do
		(($(restarts) <= $1)) || [[ $(inside systemctl is-active tarnd) != active ]] || return 0
		sleep 0.2
	done
	echo "not started again"
	return 1
}
crash() {
	local before

	before=$(restarts) && inside systemctl kill -s KILL tarnd && started_again "$before" && go_on
}
# Not shorter, lest a daemon that waits for a busy machine's processor is killed too.
watchdog() {
	local before

	inside sh -c 'mkdir -p /run/systemd/system/tarnd.service.d &&
		printf "[Service]\nWatchdogSec=10\n" >/run/systemd/system/tarnd.service.d/test.conf &&
		systemctl daemon-reload && systemctl restart tarnd' || return
	before=$(restarts) && inside systemctl kill -s STOP tarnd && started_again "$before" &&
		inside journalctl -q -u tarnd | grep 'tarnd.service: Watchdog timeout' && go_on
}

removed() {
	inside rm -r /run/systemd/system/tarnd.service.d
	inside sh -c 'dpkg -r tarnd tarn-tools libtarn-dev libtarn0 && ! command -v tarnd && ! systemctl is-active tarnd &&
		test -e /etc/tarn/tarnd.conf && test ! -e /run/tarn' && ! pgrep --ns "$first" --nslist pid -x tarnd
}
purged() {
	inside dpkg --purge tarnd tarn-tools libtarn-dev libtarn0
}
nothing() {
	list >"$work/after"
	diff "$work/before" "$work/after" &&
		inside sh -c 'systemctl daemon-reload && ! systemctl list-units --all --no-legend "tarn*" | grep . &&
			! systemctl list-unit-files --no-legend "tarn*" | grep . && ! ss -xlH | grep /run/tarn/ &&
			! find /run -path /run/systemd/units -prune -o -iname "*tarn*" -print | grep . &&
			! ls -d /sys/fs/cgroup/system.slice/tarnd.service'
}

# ---- from the installation to the purge ----

local='tarn:/run/tarn/tarn.sock?pool=main'
remote=tarn://10.77.0.1/main

try "systemd comes up${RDMA_VM:+, as process 1 of the machine}" up || finish
# There is no network: check-package.sh has left in apt's cache what they depend on.
try "what the packages depend on is installed" prepare || finish
try "install: neither started nor enabled" installed || finish
try "start, and enable" started || finish
try "put over shared memory" tarn "$local" put first value
[[ ! $rdma ]] || try "get over RDMA" eval '[[ $(tarn "$remote" get first) == value ]]'
[[ $rdma ]] || try "get over shared memory" eval '[[ $(tarn "$local" get first) == value ]]'
try "dashboard, statistics, metrics and readiness over HTTP" watched
try "it runs as tarn, without capabilities, with a filter of system calls" confined
if inside systemd-run -q --wait -p DevicePolicy=closed sh -c "$opens" sh /dev/kmsg 2>/dev/null; then
	skip "DeviceAllow" "this kernel's control groups do not guard devices"
else
	try_rdma "DeviceAllow: the service may open the verbs and the connection manager" allowed
	try_rdma "DeviceAllow: not umad, which has power over the fabric" refused /dev/infiniband/umad0
	try "DeviceAllow: not the kernel's log" refused /dev/kmsg
fi
try "reload: a new mode of the socket" reloaded
try "reload of a wrong configuration fails, and changes nothing" reload_refused

load shm "$local"
[[ ! $rdma ]] || load rdma "$remote"
try "applications put and get" go_on || finish
try "reload under load: they go on" reloaded_again
try "restart under load: they go on" restarted
try "systemd executed anew, restart under load: they go on" reexecuted
try "upgrade under load: it restarts the daemon, they go on, the configuration is kept" upgraded
try "killed: systemd starts it again, they go on" crash
try "stands still: the watchdog kills it, systemd starts it again, they go on" watchdog
try "over shared memory no key is lost" end shm
sed -n '$s/^/# /p' "$work/load-shm"
try_rdma "over RDMA no key is lost" end rdma
[[ ! $rdma ]] || sed -n '$s/^/# /p' "$work/load-rdma"
try "what was put before all of this is there" eval '[[ $(tarn "$local" get first) == value ]]'

try "removal: the running daemon is stopped, the configuration stays" removed
try "purge" purged
try "nothing is left: files, user and group, units, sockets, processes" nothing
finish
