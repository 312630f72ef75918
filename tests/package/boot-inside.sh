#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Inside the virtual machine, for check-boot.sh: systemd as process 1 of namespaces in the clean root ($1), with this
# machine's network and soft-RoCE device. Then what an operator does with the packages, from the installation to the
# purge. On a machine without RDMA what is about it is left out. TAP. What stands in single quotes is for shells inside.
# shellcheck disable=SC2016
set -u
root=$1
rxe=10.77.0.1
output=$(mktemp)
export LC_ALL=C.UTF-8

grep -q cgroup2 /proc/filesystems || {
	echo "1..0 # SKIP this kernel has no control groups, without which systemd does not run (RDMA_VM_UML_KERNEL names another)"
	exit 0
}

number=0 failed=0
try() {
	local code begin=$SECONDS

	number=$((number + 1))
	"${@:2}" >"$output" 2>&1
	code=$?
	if ((code == 0)); then
		echo "ok $number - $1"
	else
		echo "not ok $number - $1"
		failed=1
		{
			tail -n 30 "$output"
			inside systemctl status --no-pager -n 20 tarnd
		} 2>&1 | sed 's/^/# /'
	fi
	echo "# $((SECONDS - begin)) s"
	return "$code"
}

try_rdma() {
	if [[ -e /dev/infiniband/uverbs0 ]]; then
		try "$@"
	else
		number=$((number + 1))
		echo "ok $number - $1 # SKIP this machine's kernel has no RDMA"
	fi
}

finish() {
	echo "1..$number"
	exit "$failed"
}

# An overlay, so that the root stays clean. Devices, /proc/sys and /sys are not this systemd's to change.
boot='mount --make-rprivate / && mkdir -p /run/tarn-boot && mount -t tmpfs tmpfs /run/tarn-boot && cd /run/tarn-boot &&
	mkdir upper work root && mount -t overlay -o "lowerdir=$0,upperdir=upper,workdir=work" overlay root && cd root &&
	mount -t tmpfs tmpfs run && mount -t proc proc proc && mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys &&
	mount -t sysfs -o ro sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup && mount -t tmpfs -o mode=1777 tmpfs tmp &&
	mount -t tmpfs -o mode=755 tmpfs dev && mkdir -p dev/shm dev/infiniband && mount -t tmpfs -o mode=1777 tmpfs dev/shm &&
	for device in null zero full random urandom tty infiniband/uverbs0 infiniband/rdma_cm infiniband/umad0; do
		[ ! -e "/dev/$device" ] || { touch "dev/$device" && mount --bind "/dev/$device" "dev/$device"; } || exit
	done &&
	exec env -i container=tarn-test PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --system \
		--unit=multi-user.target --log-target=console --show-status=0 --log-color=0'
unshare -fpmuiC --kill-child sh -c "$boot" "$root" >"$output.boot" 2>&1 &
unshare=$!
# Process 1 of the namespace goes with it, and all that runs in there.
trap 'kill -KILL "$unshare" 2>/dev/null; wait "$unshare" 2>/dev/null; rm -f "$output"*' EXIT
first=
inside() {
	nsenter -t "$first" -m -p -u -C chroot /run/tarn-boot/root env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}
booted() {
	local state

	for _ in {1..300}; do
		first=$(pgrep -P "$unshare") &&
			state=$(inside systemctl is-system-running) && break
		[[ ${state-} != degraded ]] || break
		sleep 0.2
	done
	cat "$output.boot"
	inside systemctl --failed --no-pager
	[[ ${state-} == running || ${state-} == degraded ]]
}
try "systemd comes up" booted || finish

# What they depend on has been left in apt's cache by check-package.sh; there is no network in the machine.
try "install, with systemd running" inside sh -c 'dpkg -i /root/debs/*.deb /var/cache/apt/archives/*.deb' || finish
try "not started" inside sh -c '! systemctl is-active tarnd'

inside sh -c 'umask 077; printf "app write %064d\n" 7 >/etc/tarn/keys; chown tarn /etc/tarn/keys; cp /etc/tarn/keys /root/key
cat >/etc/tarn/tarnd.conf' <<END
[listen local]
path = /run/tarn/tarn.sock
[listen rdma]
address = $rxe
[pool main]
size = 64M
hugepages = off
auth = key
key_file = /etc/tarn/keys
END
shared=(tarn -k /root/key -u "tarn:/run/tarn/tarn.sock?pool=main")
remote=(tarn -k /root/key -u "tarn://$rxe/main")
[[ -e /dev/infiniband/uverbs0 ]] || remote=("${shared[@]}")

try "start, enabled" inside systemctl enable --now tarnd
try "put over shared memory" inside "${shared[@]}" put first value
try_rdma "get over RDMA" inside sh -c "test \"\$(${remote[*]} get first)\" = value"
inside sh -c 'cat /proc/$(systemctl show -P MainPID tarnd)/status' | grep -E '^(Uid|CapBnd|Seccomp):' | sed 's/^/# /'
# A process of the service's control group may open the verbs, and no other device of the adapter.
may='echo $$ >/sys/fs/cgroup/system.slice/tarnd.service/cgroup.procs && exec 3<>"$0"'
try_rdma "DeviceAllow: uverbs and rdma_cm" inside sh -c "sh -c '$may' /dev/infiniband/uverbs0 && sh -c '$may' /dev/infiniband/rdma_cm"
try_rdma "DeviceAllow: no umad" inside sh -c "! sh -c '$may' /dev/infiniband/umad0"

# Writes keys one after the other, each again until it is said to be there; $1 is how the last one is known.
writer() {
	local i=0

	rm -f "$output.stop"
	while [[ ! -e $output.stop ]]; do
		i=$((i + 1))
		until inside "${remote[@]}" put "$1$i" "value $i" >/dev/null 2>&1 || [[ -e $output.stop ]]; do
			echo "$i" >>"$output.again"
		done
		[[ -e $output.stop ]] || echo "$i" >"$output.last"
	done
}

# under_load PREFIX COMMAND...: runs it with a writer beside it; then all keys must be there with their values.
under_load() {
	local code writer last i

	echo 0 >"$output.last"
	writer "$1" &
	writer=$!
	sleep 2
	"${@:2}"
	code=$?
	sleep 2
	touch "$output.stop"
	wait "$writer"
	last=$(cat "$output.last")
	echo "$last keys"
	((code == 0 && last > 0)) || return 1
	for ((i = 1; i <= last; i++)); do
		[[ $(inside "${shared[@]}" get "$1$i") == "value $i" ]] || {
			echo "key $1$i is lost"
			return 1
		}
	done
	[[ $(inside "${shared[@]}" get first) == value ]]
}
try "restart under load: no key is lost" under_load restart- inside systemctl restart tarnd
sed -n '/ keys$/s/^/# /p' "$output"
try "reload under load" under_load reload- inside systemctl reload tarnd
upgrade() {
	inside sh -c 'dpkg -i --force-confold /root/newer/*.deb && systemctl is-active tarnd' &&
		[[ $(inside dpkg-query -W -f '${Version}' tarnd) == *+1 ]]
}
before=$(inside systemctl show -P MainPID tarnd)
try "upgrade under load: no key is lost" under_load upgrade- upgrade
sed -n '/ keys$/s/^/# /p' "$output"
try "the upgrade has restarted it" test "$before" != "$(inside systemctl show -P MainPID tarnd)"

restarted() {
	for _ in {1..300}; do
		[[ $(inside systemctl show -P NRestarts tarnd) == "$1" && $(inside systemctl is-active tarnd) == active ]] && return
		sleep 0.2
	done
	return 1
}
watchdog() {
	inside sh -c 'mkdir -p /run/systemd/system/tarnd.service.d &&
		printf "[Service]\nWatchdogSec=6\n" >/run/systemd/system/tarnd.service.d/test.conf &&
		systemctl daemon-reload && systemctl restart tarnd && systemctl kill -s STOP tarnd' && restarted 1 &&
		[[ $(inside "${remote[@]}" get first) == value ]]
}
try "stands still: killed by the watchdog, started again, no key is lost" watchdog
crash() {
	inside systemctl kill -s KILL tarnd && restarted 2 && [[ $(inside "${remote[@]}" get first) == value ]]
}
try "killed: started again, no key is lost" crash

purge() {
	inside dpkg --purge tarnd tarn-tools libtarn-dev libtarn0
}
try "purge of the running service" purge
nothing() {
	! pgrep --ns "$first" --nslist pid -x tarnd &&
		inside sh -c '! getent passwd tarn && ! getent group tarn && ! systemctl cat tarnd &&
			! find / -xdev \( -path /root -o -path /proc -o -path /var/cache/apt -o -path /var/lib/apt -o -path /var/log -o -path /tmp \) -prune -o -iname "*tarn*" -print | grep . &&
			! ls -d /etc/tarn /var/lib/tarn /run/tarn'
}
try "nothing is left" nothing
finish
