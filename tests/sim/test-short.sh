#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Some schedules in `make check` already, and so in `make distcheck`; `make check-sim` runs very many.
exec "${TARN_BUILDDIR:?}/tests/sim/test-sim" --schedules 5000
