#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Stands in for all unit tests where cmocka was not found by configure.
echo '1..0 # SKIP unit tests are not built: cmocka is missing (Debian: libcmocka-dev), install it and run configure again'
