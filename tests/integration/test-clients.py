# SPDX-License-Identifier: BSD-2-Clause
"""Eight real client processes at once on one pool: what they wrote is what is there; some are killed; the daemon is."""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import BUILD, PATIENCE, TARN, TARND, Daemon, run, tarn_json  # noqa: E402

CLIENT = os.path.join(BUILD, "tests/integration/client")
POOL = "size = 256M\nhugepages = off\n"
CLIENTS = 8
OPERATIONS = int(os.environ.get("TARN_TEST_OPERATIONS", "3000"))
PATTERN = bytes(range(251))
HEADER = struct.Struct("<IIQII")


def start(daemon, client, *options):
    return subprocess.Popen(
        [CLIENT, daemon.uri, str(client), str(OPERATIONS), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process):
    """What a client has printed in the end."""
    try:
        out, err = process.communicate(timeout=2 * PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err.decode(errors="replace")
    return json.loads(out.decode().splitlines()[-1])


def wait_started(process):
    assert process.stdout.readline() == b"started\n", process.stderr.read()


def decode(value, key):
    """Who wrote a value; checks all of it."""
    magic, writer, sequence, length, number = HEADER.unpack_from(value)
    assert magic == 0x74736554 and length == len(value) and number == key, (magic, length, len(value), number, key)
    begin = (sequence * 7 + writer * 31 + key) % 251
    body = length - HEADER.size
    expected = (PATTERN[begin:] + PATTERN * (body // 251 + 1))[:body]
    assert value[HEADER.size :] == expected, "torn"
    return writer, sequence


def read_all(daemon):
    """All keys and values, through an export."""
    with tempfile.TemporaryDirectory() as folder:
        daemon.tarn("export", folder, timeout=5 * PATIENCE)
        values = {}
        for where, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(where, name)
                with open(path, "rb") as file:
                    values[os.path.relpath(path, folder)] = file.read()
        return values


def check_own(values, report):
    for key, sequence in enumerate(report["own"]):
        value = values.get(f"own/{report['id']}/{key}")
        if sequence is None:
            assert value is None, f"own/{report['id']}/{key} was deleted"
        else:
            assert value is not None, f"own/{report['id']}/{key} is lost"
            assert decode(value, key) == (report["id"], sequence), f"own/{report['id']}/{key} is not the last value"


def check_shared(values, reports, killed=()):
    by_id = {report["id"]: report for report in reports}
    for key in range(20):
        value = values.get(f"shared/{key}")
        if value is None:
            continue
        writer, sequence = decode(value, key)
        if writer not in killed:
            # Whatever is there was a writer's last word on this key.
            assert sequence == by_id[writer]["shared"][key], f"shared/{key}: client {writer} wrote a later value"


def check_sums(values, reports):
    for counter in range(4):
        expected = sum(report["adds"][counter] for report in reports)
        assert int(values.get(f"counter/{counter}", b"0")) == expected, f"counter/{counter}"
    swaps = sum(report["swaps"] for report in reports)
    assert int.from_bytes(values.get("swap/0", b""), "little") == swaps, "swap/0"


def check_once(values, reports, killed=()):
    """Each key that is there was put by exactly one client, the one that it names."""
    first = {}
    for report in reports:
        for key in report["once"]:
            assert key not in first, f"once/{key}: two clients were the first"
            first[key] = report["id"]
    for key in range(200):
        value = values.get(f"once/{key}")
        owner = int.from_bytes(value, "little") if value is not None else None
        if owner is None or owner not in killed:
            assert first.get(key) == owner, f"once/{key} names {owner}, put by {first.get(key)}"


def wait_clients(daemon, count):
    """Until that many are connected: an end is noticed a moment later."""
    deadline = time.monotonic() + PATIENCE
    while len(tarn_json("-u", daemon.uri, "clients")["clients"]) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_eight_clients():
    with Daemon(POOL) as daemon:
        processes = [start(daemon, client) for client in range(CLIENTS)]
        reports = [finish(process) for process in processes]
        values = read_all(daemon)
        for report in reports:
            assert report["operations"] == OPERATIONS
            check_own(values, report)
        check_shared(values, reports)
        check_sums(values, reports)
        check_once(values, reports)


def test_clients_that_come_and_go():
    """Sessions that end while others work: what they left is there, their slots are given out again."""
    with Daemon(POOL + "max_clients = 6\n") as daemon:
        base = start(daemon, 100)
        reports = []
        wait_started(base)
        for wave in range(4):
            processes = [start(daemon, 10 * (wave + 1) + client) for client in range(4)]
            reports += [finish(process) for process in processes]
            wait_clients(daemon, 1 if base.poll() is None else 0)
        reports.append(finish(base))
        values = read_all(daemon)
        for report in reports:
            check_own(values, report)
        check_shared(values, reports)
        check_sums(values, reports)
        check_once(values, reports)


def test_too_many_clients():
    with Daemon(POOL + "max_clients = 2\n") as daemon:
        processes = [subprocess.Popen([TARN, "-u", daemon.uri, "put", "k"], stdin=subprocess.PIPE) for _ in range(2)]
        wait_clients(daemon, 2)
        answer = tarn_json("-u", daemon.uri, "get", "k", check=1)
        assert answer["error"]["name"] == "TARN_EREFUSED", answer
        for process in processes:
            process.communicate(b"value")
            assert process.returncode == 0
        # Their places are free again soon.
        deadline = time.monotonic() + PATIENCE
        while daemon.tarn("put", "k", "v", check=None).returncode != 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_killed_clients():
    """Three clients die by SIGKILL in the middle of their work, again and again; five go on."""
    with Daemon(POOL) as daemon:
        living = [start(daemon, client) for client in range(5)]
        rng = random.Random(1)
        killed = set()
        for number in range(50, 50 + 9, 3):
            victims = [start(daemon, client, "no-adds", "until-error") for client in range(number, number + 3)]
            for victim in victims:
                wait_started(victim)
            time.sleep(rng.uniform(0.02, 0.3))
            for victim in victims:
                victim.kill()
                out, err = victim.communicate()
                assert err == b"", err
            killed.update(range(number, number + 3))
        reports = [finish(process) for process in living]
        values = read_all(daemon)
        for report in reports:
            check_own(values, report)
        check_shared(values, reports, killed)
        check_sums(values, reports)
        check_once(values, reports, killed)
        # What the dead have left of their own is whole, too.
        for name, value in values.items():
            if name.startswith("own/"):
                decode(value, int(name.rsplit("/", 1)[1]))
        after = start(daemon, 99)
        check = finish(after)
        check_own(read_all(daemon), check)


GONE = ("TARN_ESESSION", "TARN_EAMBIGUOUS", "TARN_ETIMEOUT")
LIMIT_MS = 2000  # of client.c with until-error
SLACK_MS = 3000  # of a busy machine


def failures_of(process):
    """How the call that failed, then ping, put and get have ended."""
    failures = finish(process)
    assert [failure["call"] for failure in failures[1:]] == ["ping", "put", "get"], failures
    for failure in failures:
        assert failure["ms"] < LIMIT_MS + SLACK_MS, failures
        assert failure["name"] == "OK" or failure["text"] != "", failures
    return failures


def check_gone(process):
    """The daemon is gone for good: what is on its way may be open, after that each call says so at once."""
    failures = failures_of(process)
    assert failures[0]["name"] in GONE, failures
    for failure in failures[1:]:
        assert failure["name"] == "TARN_ESESSION" and failure["ms"] < SLACK_MS, failures


def test_killed_daemon():
    """tarnd dies by SIGKILL: each client's call returns within its time limit (2 s), with the right error."""
    with Daemon(POOL) as daemon:
        processes = [start(daemon, client, "until-error") for client in range(CLIENTS)]
        for process in processes:
            wait_started(process)
        time.sleep(0.5)
        begin = time.monotonic()
        daemon.kill()
        for process in processes:
            check_gone(process)
        assert time.monotonic() - begin < PATIENCE
        assert tarn_json("-u", daemon.uri, "get", "k", check=3)["error"]["name"] == "TARN_EUNREACHABLE"
        # The stale socket does not keep the next one from starting.
        daemon.start()
        daemon.tarn("put", "k", "v")


def test_stopped_daemon():
    """SIGTERM while clients work: tarnd ends, and the clients hear of it."""
    with Daemon(POOL) as daemon:
        processes = [start(daemon, client, "until-error") for client in range(3)]
        for process in processes:
            wait_started(process)
        time.sleep(0.2)
        daemon.stop()
        for process in processes:
            check_gone(process)


def test_standing_daemon():
    """SIGSTOP: reads and writes by one-sided operations need no CPU of the daemon; what does times out."""
    with Daemon(POOL) as daemon:
        daemon.tarn("put", "k", "v")
        holder = start(daemon, 1, "until-error")
        wait_started(holder)
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            # An add is a message: it is the first that fails.
            failures = failures_of(holder)
            assert [failure["name"] for failure in failures] == ["TARN_EAMBIGUOUS", "TARN_ETIMEOUT", "OK", "OK"], failures
            answer = tarn_json("-u", daemon.uri, "--timeout", "300ms", "stats", check=5)
            assert answer["error"]["name"] == "TARN_ETIMEOUT"
            answer = tarn_json("-u", daemon.uri, "--timeout", "300ms", "get", "k", check=5)
            assert answer["error"]["name"] == "TARN_ETIMEOUT"
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert daemon.tarn("get", "k").stdout == b"v"


if __name__ == "__main__":
    if not os.path.exists(CLIENT) or not os.path.exists(TARND):
        print("1..0 # SKIP build/tarnd or tests/integration/client is not there (make check builds it)")
        sys.exit(0)
    only = sys.argv[1:]
    run([f for name, f in list(globals().items()) if name.startswith("test_") and (not only or name in only)])
