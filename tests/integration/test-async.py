# SPDX-License-Identifier: BSD-2-Clause
"""Clients with many operations under way: alone, several, killed, thrown out, the daemon standing still. Also over RDMA."""

import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import BUILD, FABRIC, PATIENCE, Daemon, freeze, run, tarn_json  # noqa: E402

CLIENT = os.path.join(BUILD, "tests/integration/async-client")
POOL = "size = 512M\nhugepages = off\n"
# An atomic over siw is a message that the daemon answers, one at a time.
OPERATIONS = 750 if FABRIC == "siw" else 1500 if FABRIC else 20000


def start(daemon, number, operations=OPERATIONS, *more):
    process = subprocess.Popen(
        [CLIENT, daemon.uri, str(number), str(operations), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"started\n", process.stderr.read()
    return process


def finish(process):
    out, err = process.communicate(timeout=4 * PATIENCE)
    assert process.returncode == 0, err
    assert err == b"", err
    return json.loads(out)


def check_pool(daemon, reports):
    """Each counter has what was added, and what is ambiguous may have been."""
    found = sum(int(daemon.tarn("get", f"counter/{n}", check=None).stdout or b"0") for n in range(3))
    added = sum(report["adds"] for report in reports)
    assert added <= found <= added + sum(report["ambiguous"] for report in reports), (added, found, reports)
    deadline = time.monotonic() + PATIENCE
    while tarn_json("-u", daemon.uri, "clients")["clients"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    answer = tarn_json("-u", daemon.uri, "pool", "check")
    assert answer["clean"], answer["findings"]


def test_one_client():
    with Daemon(POOL) as daemon:
        report = finish(start(daemon, 1))
        print("#", report, flush=True)
        assert report["operations"] == OPERATIONS and report["reconnects"] == 0
        # many operations go out together; atomics by message, and memory that is waited for, cost posts of their own
        assert report["posts"] < 4 * OPERATIONS, report
        check_pool(daemon, [report])


def test_four_clients():
    with Daemon(POOL) as daemon:
        reports = [finish(process) for process in [start(daemon, n, OPERATIONS // 2) for n in range(1, 5)]]
        assert sum(report["reconnects"] for report in reports) == 0, reports
        check_pool(daemon, reports)


def test_killed_clients():
    """SIGKILL with hundreds of operations under way: nobody else notices, and all comes back."""
    with Daemon(POOL) as daemon:
        rng = random.Random(3)
        steady = start(daemon, 1)
        for wave in range(3):
            victims = [start(daemon, 10 + 3 * wave + n, 10**9) for n in range(3)]
            time.sleep(rng.uniform(0.05, 0.5))
            for victim in victims:
                victim.kill()
                victim.communicate()
        report = finish(steady)
        assert report["reconnects"] == 0, report
        deadline = time.monotonic() + 2 * PATIENCE
        while True:
            pool = tarn_json("-u", daemon.control, "stats")["pools"][0]
            if pool["orphan_pages"] == pool["clients"] == 0:
                break
            assert time.monotonic() < deadline, pool
            time.sleep(0.2)
        answer = tarn_json("-u", daemon.uri, "pool", "check")
        assert set(answer["findings_by_code"]) <= {"leak", "slot_pending"}, answer["findings"]


def test_thrown_out():
    """Connections that are cut with operations under way: each call ends, and what may be made again is made again."""
    with Daemon(POOL) as daemon:
        process = start(daemon, 1, OPERATIONS, "lossy")
        cuts = 0
        while process.poll() is None and cuts < 5:
            time.sleep(0.3)
            for client in tarn_json("-u", daemon.uri, "clients")["clients"]:
                if daemon.tarn("clients", "kill", str(client["client_id"]), check=None).returncode == 0:
                    cuts += 1
        report = finish(process)
        print("#", report, flush=True)
        # the last cut may have met a client that was just leaving
        assert report["reconnects"] >= 1 or cuts < 2, report
        check_pool(daemon, [report])


def test_standing_daemon():
    """What needs an answer of the daemon waits for it; what does not goes on."""
    with Daemon(POOL) as daemon:
        process = start(daemon, 1)
        time.sleep(0.3)
        assert freeze(daemon.process)
        time.sleep(1.5)
        daemon.process.send_signal(signal.SIGCONT)
        check_pool(daemon, [finish(process)])


if __name__ == "__main__":
    if not os.path.exists(CLIENT):
        print("1..0 # SKIP tests/integration/async-client is not there (make check builds it)")
        sys.exit(0)
    only = sys.argv[1:]
    run([f for name, f in list(globals().items()) if name.startswith("test_") and (not only or name in only)])
