#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The installed service under a real systemd with an RDMA device: boots the clean root that check-package.sh has made in
# the virtual machine of tests/rdma; with --here it starts a systemd in namespaces of this machine, without RDMA. TAP.
# `make check-boot`, after `make check-package`. boot-inside.sh is what is done there.
set -u

source=$(cd "$(dirname "$0")/../.." && pwd -P)
build=$(cd "${TARN_BUILDDIR:-$source/build}" && pwd -P)
root=$build/package/root

if [[ $EUID != 0 || ! -x $root/root/load ]]; then
	echo "1..0 # SKIP there is no clean root with packages: \`make check-package\` makes it, as root"
	exit 0
fi
if [[ ${1-} == --here ]] && ! { [[ -d /sys/fs/cgroup ]] && unshare -fpmuiC --kill-child true; }; then
	echo "1..0 # SKIP no namespaces for a systemd here"
	exit 0
fi

# The same packages with a higher version, for an upgrade.
rm -rf "$root/root/newer" "$build/package/repack"
mkdir "$root/root/newer"
for deb in "$root"/root/debs/*.deb; do
	dpkg-deb -R "$deb" "$build/package/repack" &&
		sed -i -E 's/^(Version: .*)$/\1+1/; s/\(= ([^)]*)\)/(= \1+1)/' "$build/package/repack/DEBIAN/control" &&
		dpkg-deb --root-owner-group -Zgzip -z1 -b "$build/package/repack" "$root/root/newer" >/dev/null || exit 1
	rm -rf "$build/package/repack"
done

[[ ${1-} != --here ]] || exec bash "$source/tests/package/boot-inside.sh" "$root"
# The current directory is what the machine can write to: nothing of it.
mkdir -p "$build/package/empty" && cd "$build/package/empty" || exit 1
limit=900
"$source/tests/rdma/rdma-vm" --timeout "$limit" --mem 2500 --boot "$root" -- bash "$source/tests/package/boot-inside.sh"
code=$?
((code <= 1)) || {
	echo "1..1"
	((code != 124)) || echo "not ok 1 - virtual machine: not finished after $limit s; what comes after the last test above hangs"
	((code == 124)) || echo "not ok 1 - virtual machine: exit code $code"
}
exit "$code"
