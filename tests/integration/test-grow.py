#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The index grows from a few keys to many while clients read and write: no get fails, none waits."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import BUILD, FABRIC, PATIENCE, Daemon, run, tarn_json  # noqa: E402

GROWER = os.path.join(BUILD, "tests/integration/grower")
KEYS = int(os.environ.get("TARN_TEST_KEYS", "20000" if FABRIC else "1000000"))
POOL = f"size = {64 + KEYS * 160 // (1 << 20)}M\nhugepages = off\nkeys = 1000\n"


def grower(daemon, *arguments):
    command = [GROWER, daemon.uri, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, timeout=10 * PATIENCE)
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout)


def index_of(daemon):
    return tarn_json("-u", daemon.uri, "stats")["pools"][0]["index"]


def show(what, numbers):
    text = ", ".join(f"{name} {value}" for name, value in numbers.items())
    print(f"# {what}: {text}", flush=True)


def test_growth_under_readers():
    with Daemon(pool=POOL) as daemon:
        grower(daemon, 0, 1000, 1, 1)
        assert index_of(daemon)["subtables"] == 1
        growing = grower(daemon, 0, KEYS, 2, 2)
        index = index_of(daemon)
        show("growing", growing)
        show("index", index)
        still = grower(daemon, 0, KEYS, 2, 2, "again")
        show("at rest", still)
        assert index["damaged"] == 0
        if KEYS > 50000:
            assert index["splits"] >= KEYS // 28665
            assert index["doublings"] >= 3
            assert index["refused"] == 0


run([test_growth_under_readers])
