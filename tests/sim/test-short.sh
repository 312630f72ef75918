#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Some schedules in `make check` already, and so in `make distcheck`; `make check-sim` runs very many. Sanitizers take their time.
exec "${TARN_BUILDDIR:?}/tests/sim/test-sim" --schedules "$([ -n "${TEST_CFLAGS:-}" ] && echo 1000 || echo 5000)"
