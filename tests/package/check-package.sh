#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The Debian packages: built from a clean copy, looked at by lintian, then installed, used, removed and purged in a
# clean Debian 12 that debootstrap makes. TAP. `make check-package`; needs root and Debian's archive. Nothing is kept
# from one run to the next.
#
# TARN_BUILDDIR is the build folder; package/ in it has the packages and the root afterwards, for
# tests/package/check-boot.sh. What stands in single quotes is for shells inside.
# shellcheck disable=SC2016
set -u

source=$(cd "$(dirname "$0")/../.." && pwd -P)
build=$(cd "${TARN_BUILDDIR:-$source/build}" && pwd -P)
work=$build/package
root=$work/root
mirror=${TARN_MIRROR:-http://deb.debian.org/debian}
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

number=0 failed=0
# result CODE DESCRIPTION: its output is in $work/output.
result() {
	local verdict='not ok'

	number=$((number + 1))
	if (($1 == 0)); then verdict=ok; else failed=1; fi
	echo "$verdict $number - $2"
	((!$1)) || tail -n 40 "$work/output" | sed 's/^/# /'
	return "$1"
}

# try DESCRIPTION COMMAND...
try() {
	local begin=$SECONDS

	"${@:2}" >"$work/output" 2>&1
	result $? "$1"
	local code=$?
	echo "# $((SECONDS - begin)) s"
	return "$code"
}

finish() {
	echo "1..$number"
	exit "$failed"
}

# The root's mounts are in a namespace of their own and vanish with it.
inside() {
	unshare -mpf --kill-child sh -c 'mount --make-rprivate / && mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" &&
		mount -t tmpfs -o mode=755 tmpfs "$0/run" && exec chroot "$@"' "$root" "$root" "$@"
}

# What there is, without what dpkg, apt and ldconfig write for every package, and without the group that libibverbs1
# makes.
list() {
	(cd "$root" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log -o -path ./proc \
		-o -path ./dev -o -path ./run -o -path ./tmp -o -path ./root/debs -o -path ./root/kv -o -path ./root/load \) -prune -o -printf '%p %M %U\n' |
		grep -vE '^\./etc/(passwd|shadow|group|gshadow)- |^\./etc/ld\.so\.cache ' | sort
	sed 's/^/passwd: /' etc/passwd && sed 's/^/group: /' etc/group) | grep -v '^group: rdma:' >"$1"
}

for tool in dpkg-buildpackage dh debootstrap lintian unshare; do
	command -v "$tool" >/dev/null || {
		echo "1..0 # SKIP $tool is missing (scripts/install-deps check installs it)"
		exit 0
	}
done
((EUID == 0)) || {
	echo "1..0 # SKIP needs root, for debootstrap and chroot"
	exit 0
}
rm -rf --one-file-system "$work"
mkdir -p "$work"

# Both take a minute, one of the network and one of the processors.
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,iproute2 bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 &
bootstrap=$!
trap 'kill "$bootstrap" 2>/dev/null' EXIT
try "packages are built" env DEB_BUILD_OPTIONS="nocheck noautodbgsym" "$source/scripts/package-deb" "$work/debs" || finish
cd "$work/debs" || exit 1
try "lintian finds no error and no warning" lintian --allow-root --fail-on error,warning ./*.changes

# What is not for Debian, as far as it can be looked at without an RPM distribution and a kernel with AppArmor.
for check in "apparmor_parser -Q -K $source/systemd/examples/usr.sbin.tarnd" "rpmspec -P $source/packaging/tarn.spec"; do
	if command -v "${check%% *}" >/dev/null; then
		# shellcheck disable=SC2086
		try "${check##*/}: ${check%% *} takes it" $check
	else
		echo "ok $((++number)) - ${check##*/} # SKIP there is no ${check%% *}"
	fi
done

wait "$bootstrap" || {
	cp "$work/debootstrap.log" "$work/output"
	if grep -qE 'Failed getting release file|Couldn.t download|unable to resolve|Failure trying to run' "$work/debootstrap.log" &&
		! timeout 20 apt-get download -q --print-uris debootstrap >/dev/null 2>&1; then
		echo "ok $((++number)) - clean root # SKIP $mirror can not be reached"
	else
		result 1 "clean root"
	fi
	finish
}
trap - EXIT
cp /etc/resolv.conf "$root/etc/" 2>/dev/null
# What is in apt's cache later is what our packages depend on: for check-boot.sh.
rm -f "$root"/var/cache/apt/archives/*.deb
# Nothing here has to outlive a crash of the machine.
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
mkdir "$root/root/debs"
cp ./*.deb "$root/root/debs"
rm -f "$root"/root/debs/*-dbgsym*
try "clean root: apt-get update" inside apt-get -q update || finish
list "$work/before"

# By apt: dependencies are what the packages say. The providers are for soft-RoCE, in check-boot.sh.
try "install" inside sh -c 'apt-get -qy --no-install-recommends install /root/debs/*.deb ibverbs-providers' || finish
try "it is neither started nor enabled" inside sh -c '! systemctl is-enabled tarnd && ! ls /etc/systemd/system/*.wants/tarnd*'
try "user and group tarn" inside sh -c 'id tarn && test "$(id -gn tarn)" = tarn'
try "the shipped configuration is right" inside tarnd -t
try "manual pages" inside sh -c 'for page in man1/tarn.1 man8/tarnd.8 man5/tarnd.conf.5 man3/tarn_get.3; do
	test -s /usr/share/man/$page.gz || exit; done'

# kv and load (for check-boot.sh), built with what libtarn-dev says.
applications() {
	local flags

	flags=$(PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/x86_64-linux-gnu/pkgconfig pkg-config --cflags --libs libtarn) ||
		return
	# shellcheck disable=SC2086
	gcc -o "$root/root/kv" "$root/usr/share/doc/libtarn-dev/examples/kv.c" $flags -Wl,--allow-shlib-undefined &&
		gcc -o "$root/root/load" "$source/tests/package/load.c" $flags -Wl,--allow-shlib-undefined
}
try "applications are built with libtarn-dev" applications

try "bash completes" inside bash -c '. /usr/share/bash-completion/completions/tarn && COMP_WORDS=(tarn pin) COMP_CWORD=1 && _tarn &&
	test "${COMPREPLY[*]}" = ping'

# As the unit would run it, but by hand.
use='
set -ex
sed "s/^size = .*/size = 64M/" /etc/tarn/tarnd.conf >/run/tarnd.conf
install -d -o tarn -g tarn /run/tarn
setpriv --reuid tarn --regid tarn --clear-groups tarnd -c /run/tarnd.conf &
daemon=$!
export TARN_URI="tarn:/run/tarn/tarn.sock?pool=main"
for i in $(seq 100); do tarn ping && break; sleep 0.1; done
tarn put key value
test "$(tarn get key)" = value
tarn --json stats | grep -q "\"pools\""
tarn-bench -u "$TARN_URI" --keys 1000 --duration 1 >/dev/null
/root/kv "$TARN_URI"
kill $daemon
wait $daemon
'
try "used: tarnd, tarn, tarn-bench and the application" inside sh -c "$use"

try "remove" inside sh -c 'apt-get -qy remove tarnd tarn-tools libtarn0 libtarn-dev && ! command -v tarnd && test -e /etc/tarn/tarnd.conf'
try "purge" inside sh -c 'mkdir -p /var/lib/tarn && touch /var/lib/tarn/pool &&
	apt-get -qy purge tarnd ibverbs-providers && apt-get -qy autoremove --purge'
list "$work/after"
try "nothing is left" diff "$work/before" "$work/after"
finish
