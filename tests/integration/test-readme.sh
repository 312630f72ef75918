#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The program in README.md compiles against the library that was built, without warnings, and does what it says; so does
# the example at the top of tarn.h. The manual pages are well-formed.

build=${TARN_BUILDDIR:?} source=${TARN_SRCDIR:?}
folder=$(mktemp -d /tmp/tarn-readme-XXXXXX) || exit 1
daemon=
clean() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null
	wait
	rm -rf "$folder"
}
trap clean EXIT
trap 'exit 1' INT TERM

if [ ! -x "$build/tarnd" ] || [ ! -e "$build/.libs/libtarn.so" ]; then
	echo '1..0 # SKIP build/tarnd or libtarn.so is not there'
	exit 0
fi
echo 1..3
socket=$folder/tarn.sock
printf '[listen local]\npath = %s\n[pool main]\nsize = 16M\nhugepages = off\n' "$socket" >"$folder/tarnd.conf"
"$build/tarnd" -c "$folder/tarnd.conf" 2>"$folder/log" &
daemon=$!
for _ in $(seq 600); do
	"$build/tarn" -u "tarn:$socket?pool=main" ping -c 1 >"$folder/ping" 2>&1 && break
	sleep 0.1
done

# try NUMBER NAME: compiles $folder/app.c and runs it.
try() {
	sed -i "s|/run/tarn/tarn.sock|$socket|" "$folder/app.c"
	# $CC may be several words; a sanitizer's library would need its own flags.
	# shellcheck disable=SC2086
	${CC:-cc} -Wall -Wextra -Werror ${TEST_CFLAGS-} -I"$source/client/include" -o "$folder/app" "$folder/app.c" \
		-L"$build/.libs" -ltarn >"$folder/out" 2>&1 &&
		LD_LIBRARY_PATH=$build/.libs "$folder/app" >"$folder/out" 2>&1 && [ "$(cat "$folder/out")" = Ada ]
	code=$?
	if [ "$code" = 0 ]; then
		echo "ok $1 - $2"
	else
		echo "not ok $1 - $2"
		sed 's/^/# /' "$folder/out" "$folder/log"
	fi
}

# The code between ```c and ```.
# shellcheck disable=SC2016
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '/^```/d' >"$folder/app.c"
try 1 'README.md: the program compiles and runs'

{
	printf '#include <err.h>\n#include <stdio.h>\n#include <tarn/tarn.h>\nint main(void)\n{\n'
	sed -n '/^ \*	struct tarn_session \*session;/,/^ \*	tarn_session_close/s/^ \*//p' "$source/client/include/tarn/tarn.h"
	printf '\treturn 0;\n}\n'
} >"$folder/app.c"
try 2 'tarn.h: the example compiles and runs'

if ! command -v groff >/dev/null; then
	echo 'ok 3 - manual pages # SKIP groff is not there'
elif for page in "$source"/docs/man/*.[1-8]; do groff -mdoc -ww -z -Tutf8 "$page"; done >"$folder/out" 2>&1 &&
	[ ! -s "$folder/out" ]; then
	echo 'ok 3 - manual pages: groff has no warnings'
else
	echo 'not ok 3 - manual pages: groff has no warnings'
	sed 's/^/# /' "$folder/out"
fi
