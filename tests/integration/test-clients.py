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
from tarntest import BUILD, FABRIC, PATIENCE, TARN, TARND, Daemon, freeze, parse, run, socket_only, tarn, tarn_json  # noqa: E402

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


def pool_stats(daemon):
    return tarn_json("-u", daemon.uri, "stats")["pools"][0]


def wait_swept(daemon):
    """Until nothing is left of the dead: no page, and no block (with no client there, a candidate is a leak); then the stats."""
    deadline = time.monotonic() + 4 * PATIENCE
    while True:
        pool = pool_stats(daemon)
        check = tarn("--json", "pool", "check", daemon.control, check=None)
        leaked = parse(check.stdout)["candidate_blocks"] if check.returncode == 0 else 1
        if pool["clients"] == pool["orphan_pages"] == pool["pages"]["slab"] == leaked == 0:
            return pool
        assert time.monotonic() < deadline, (pool, check)
        time.sleep(0.2)


PAGE = 256 * 1024


def blocks_reached(values):
    """Of these keys: a block each, and of what does not fit into one (header and key with it) the pieces."""
    large = [len(value) for key, value in values.items() if 48 + (len(key) + 7) // 8 * 8 + len(value) > PAGE]
    return len(values) + sum((length + PAGE - 1) // PAGE for length in large)


def test_two_hundred_kills():
    """SIGKILL in the middle of puts: each block that nothing reaches comes back, and each page of the dead."""
    with Daemon(POOL + "max_clients = 16\n") as daemon:
        rng = random.Random(2)
        daemon.tarn("put", "k", "v")
        # Over RDMA fewer: a process takes longer to begin, and a death to be noticed.
        for wave in range(5 if FABRIC else 25):
            while len(tarn_json("-u", daemon.uri, "clients")["clients"]) > 8:
                time.sleep(0.05)
            victims = [start(daemon, 1000 + 8 * wave + client, "until-error") for client in range(8)]
            for victim in victims:
                wait_started(victim)
            for victim in victims:
                time.sleep(rng.uniform(0, 0.02))
                victim.kill()
            for victim in victims:
                _, err = victim.communicate()
                assert err == b"", err
        wait_swept(daemon)
        values = read_all(daemon)
        deadline = time.monotonic() + PATIENCE
        while True:
            pool = pool_stats(daemon)
            # as of the daemon's last walk over each page, which may have been before the sweep
            in_use = sum(c["blocks_in_use"] for c in pool["classes"])
            if in_use == blocks_reached(values) and pool["keys"] == len(values):
                break
            assert time.monotonic() < deadline, (in_use, blocks_reached(values), pool)
            time.sleep(0.2)
        assert pool["sweep"]["leaked_blocks"] > 0 and pool["sweep"]["orphans_freed"] > 0, pool["sweep"]
        assert pool["pages"]["damaged"] == 0 and pool["recycling"]["damaged"] == 0
        assert "no client has died" not in daemon.log()


def test_full_pool_takes_what_the_dead_had():
    """A put that waits for memory does not hold up the sweep that brings it."""
    with Daemon("size = 16M\nhugepages = off\n") as daemon, tempfile.TemporaryDirectory() as folder:
        for number in range(40):
            with open(f"{folder}/{number}", "wb") as file:
                file.write(bytes(500000))
        victim = start(daemon, 1, "no-adds", "until-error")
        wait_started(victim)
        time.sleep(0.1)
        victim.kill()
        victim.communicate()
        answer = tarn_json("-u", daemon.uri, "--timeout", "30s", "import", folder, check=1)
        assert answer["error"]["name"] == "TARN_EPOOLFULL", answer
        pool = pool_stats(daemon)
        assert pool["orphan_pages"] == 0, pool


@socket_only("an application that is stopped does not stop its adapter")
def test_stopped_client_holds_up_the_sweep():
    """What a dead client has left waits for one that is stopped; the stats name it; then it comes back."""
    with Daemon(POOL) as daemon:
        stopped, victim = (start(daemon, client, "until-error") for client in (1, 2))
        wait_started(stopped)
        wait_started(victim)
        # Both have put something, and so have pages; they report once a second.
        deadline = time.monotonic() + PATIENCE
        while len([c for c in tarn_json("-u", daemon.uri, "clients")["clients"] if (c["operations"] or {}).get("puts", 0) > 0]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert freeze(stopped)
        try:
            victim.kill()
            victim.communicate()
            deadline = time.monotonic() + PATIENCE
            while not (waits := pool_stats(daemon)["sweep"]["waits_for"]):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert waits["pid"] == stopped.pid, waits
            time.sleep(2)
            pool = pool_stats(daemon)
            assert pool["orphan_pages"] > 0 and pool["sweep"]["state"] == "waiting", pool
            assert pool["sweep"]["waiting_ms"] >= 1500, pool
        finally:
            stopped.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE
        while pool_stats(daemon)["orphan_pages"] > 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        stopped.kill()
        stopped.communicate()


GONE = ("TARN_ESESSION", "TARN_EAMBIGUOUS", "TARN_ETIMEOUT")
LIMIT_MS = 2000  # of client.c with until-error
# Of a busy machine. An iWARP connection that is asked for and not answered (the daemon stops just then) can not be taken
# back: the kernel holds the caller until it gives up itself, after 10 s.
SLACK_MS = 12000 if FABRIC == "siw" else 3000


def failures_of(process):
    """How the call that failed, then ping, put and get have ended."""
    failures = finish(process)
    assert [failure["call"] for failure in failures[1:]] == ["ping", "put", "get"], failures
    for failure in failures:
        assert failure["ms"] < LIMIT_MS + SLACK_MS, failures
        assert failure["name"] == "OK" or failure["text"] != "", failures
    return failures


def check_gone(process):
    """The daemon is gone for good: what is on its way may be open, after that each call tries until its time limit."""
    failures = failures_of(process)
    assert failures[0]["name"] in GONE, failures
    for failure in failures[1:]:
        assert failure["name"] == "TARN_ESESSION" and failure["ms"] > LIMIT_MS / 2, failures


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


def outlive(daemon, client):
    """A client that goes on whatever happens to the daemon, until end_outlive()."""
    process = subprocess.Popen(
        [CLIENT, daemon.uri, str(client), "0", "outlive"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_started(process)
    return process


def wait_back(daemon, *processes):
    """Until they are connected again; one that has ended says why."""
    deadline = time.monotonic() + PATIENCE
    while len(tarn_json("-u", daemon.uri, "clients")["clients"]) != len(processes):
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def end_outlive(process, stopped=False):
    """stopped: SIGSTOP does not count for its calls' time limit."""
    report = finish(process)  # closes its standard input
    assert stopped or report["longest_ms"] < OUTLIVE_LIMIT_MS + SLACK_MS, report
    return report


OUTLIVE_LIMIT_MS = 1000  # of client.c with outlive


def test_daemon_killed_and_started_again():
    """Clients go on without being started again: no call takes longer than its limit, none returns what is not so."""
    with Daemon(POOL) as daemon:
        processes = [outlive(daemon, client) for client in range(3)]
        for outage in (0, 0.3, 2.5):
            wait_back(daemon, *processes)
            time.sleep(0.5)
            daemon.kill()
            time.sleep(outage)
            daemon.start()
        # All are back; then they work for a while.
        wait_back(daemon, *processes)
        time.sleep(0.5)
        reports = [end_outlive(process) for process in processes]
        for report in reports:
            assert report["reconnects"] >= 3, report
            # The long outage is longer than a call may take.
            assert report["not_connected"] >= 1, report
            assert report["operations"] > 50, report


def test_idle_client_comes_back():
    """A client that makes no calls is connected again in the background, with the daemon there again."""
    with Daemon(POOL) as daemon:
        process = outlive(daemon, 1)
        assert freeze(process)
        try:
            daemon.kill()
            daemon.start()
        finally:
            process.send_signal(signal.SIGCONT)
        wait_back(daemon, process)
        assert end_outlive(process, stopped=True)["reconnects"] >= 1
        wait_clients(daemon, 0)
        holder = subprocess.Popen(
            [TARN, "-u", daemon.uri, "put", "k"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        wait_clients(daemon, 1)
        daemon.kill()
        daemon.start()
        wait_back(daemon, holder)
        _, err = holder.communicate(b"value", timeout=PATIENCE)
        assert holder.returncode == 0, err
        assert daemon.tarn("get", "k").stdout == b"value"


def write_key(path, secret):
    with open(path, "w") as file:
        file.write(f"ada write {secret}\n")
    os.chmod(path, 0o600)


def test_key_changed_while_away():
    """The key is another one when the daemon is back: calls say so at once, and work with the new key's file."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = os.path.join(folder, "daemon"), os.path.join(folder, "client")
        for path in (theirs, ours):
            write_key(path, "11" * 32)
        os.environ["TARN_KEY_FILE"] = ours  # for the command, which asks whether the daemon is there
        try:
            with Daemon(POOL + f"auth = key\nkey_file = {theirs}\n") as daemon:
                refused, patient = start(daemon, 1, "until-error"), outlive(daemon, 2)
                wait_started(refused)
                # It must not be on its way with the old key when the new daemon comes.
                assert freeze(patient)
                daemon.kill()
                write_key(theirs, "22" * 32)
                with open(daemon.log_path, "ab") as log:
                    daemon.process = subprocess.Popen([TARND, "-c", daemon.config], stdin=subprocess.DEVNULL, stderr=log)
                failures = failures_of(refused)
                assert failures[0]["name"] in (*GONE, "TARN_EAUTH"), failures
                for failure in failures[2:]:
                    assert failure["name"] == "TARN_EAUTH" and failure["ms"] < LIMIT_MS, failures
                # The file is read again: the client that has slept meanwhile does not even notice.
                write_key(ours, "22" * 32)
                patient.send_signal(signal.SIGCONT)
                wait_back(daemon, patient)
                time.sleep(0.3)
                assert end_outlive(patient, stopped=True)["reconnects"] >= 1
        finally:
            del os.environ["TARN_KEY_FILE"]


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


@socket_only("which call needs the daemon depends on the domain: tests/rdma/group_faults.py")
def test_standing_daemon():
    """SIGSTOP: reads and writes by one-sided operations need no CPU of the daemon; what does times out."""
    with Daemon(POOL) as daemon:
        daemon.tarn("put", "k", "v")
        holder = start(daemon, 1, "until-error")
        wait_started(holder)
        assert freeze(daemon.process)
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
