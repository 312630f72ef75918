#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The installed service under a real systemd with an RDMA device: boots the clean root that check-package.sh has made in
# the virtual machine of tests/rdma; with --here in namespaces alone. TAP. `make check-boot`, after `make
# check-package`. boot-inside.sh is what is done there.
set -u

source=$(cd "$(dirname "$0")/../.." && pwd -P)
build=$(cd "${TARN_BUILDDIR:-$source/build}" && pwd -P)
root=$build/package/root

if [[ $EUID != 0 || ! -d $root/root/debs ]]; then
	echo "1..0 # SKIP there is no clean root with packages: \`make check-package\` makes it, as root"
	exit 0
fi

# Where no such machine can be had: on this one's own kernel, without RDMA.
here=
[[ ${1-} != --here ]] || here=1

# The same packages with a higher version, for an upgrade; dbgsym packages are not among them.
rm -rf "$root/root/newer" "$build/package/repack"
mkdir "$root/root/newer"
for deb in "$root"/root/debs/*.deb; do
	dpkg-deb -R "$deb" "$build/package/repack" &&
		sed -i -E 's/^(Version: .*)$/\1+1/; s/\(= ([^)]*)\)/(= \1+1)/' "$build/package/repack/DEBIAN/control" &&
		dpkg-deb --root-owner-group -Zgzip -z1 -b "$build/package/repack" "$root/root/newer" >/dev/null || exit 1
	rm -rf "$build/package/repack"
done

cd "$build/package" || exit 1
if [[ -n $here ]] && ! { [[ -d /sys/fs/cgroup ]] && unshare -fpmuiC --kill-child true; }; then
	echo "1..0 # SKIP no namespaces for a systemd here"
	exit 0
fi
[[ -z $here ]] || exec bash "$source/tests/package/boot-inside.sh" "$root"
"$source/tests/rdma/rdma-vm" --timeout 300 --mem 3000 --share "$build/package/debs" -- bash "$source/tests/package/boot-inside.sh" "$root"
code=$?
((code <= 1)) || {
	echo "1..1"
	echo "not ok 1 - virtual machine: exit code $code"
}
exit "$code"
