#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Writes files as C: daemon/embed.sh FOLDER NAME... prints an array and a length for each FOLDER/NAME, which are called
# as the file with _ for what C does not allow in names. POSIX tools alone.
set -eu
folder=$1
shift

echo '/* Made by daemon/embed.sh. */'
echo '#include "dashboard.h"'
for name; do
	symbol=$(printf '%s' "$name" | tr -c 'A-Za-z0-9' _)
	test -s "$folder/$name"
	printf '\nconst unsigned char %s[] = {\n' "$symbol"
	od -An -v -tx1 "$folder/$name" | sed -e 's/[[:xdigit:]][[:xdigit:]]/0x&,/g' -e 's/ *$//'
	printf '};\nconst size_t %s_bytes = sizeof(%s);\n' "$symbol" "$symbol"
done
