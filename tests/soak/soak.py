# SPDX-License-Identifier: BSD-2-Clause
"""A pool's life in minutes: eight clients that are killed again and again, a daemon that is started again, an index that
grows and shrinks. Each client knows what it must find (soak.c); at the end everything that the dead had must have come back.

    soak.py SECONDS KEYS

TAP, and a line of progress every ten seconds. TARN_TEST_FABRIC: over RDMA, in the virtual machine.
"""

import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
# pylint: disable=wrong-import-position
import tarntest
from tarntest import BUILD, FABRIC, Daemon, parse, run, tarn, tarn_json

SOAK = os.path.join(BUILD, "tests/soak/soak")
CLIENTS = 8
FIRST_KEYS = 1000
# Where the CPUs are the adapter, too, clients that spin keep it from its work: its answers come late, and are asked for again.
SPIN = "" if FABRIC == "" else "?spin=0"
# between two kills, seconds: a client over RDMA takes longer to begin again
PAUSES = (0.01, 0.1) if FABRIC == "" else (0.02, 2)
ENTRY_BYTES, HEAD_BYTES = 24, 4096
# the journal's words, as in soak.c
TARGET, STOP, CAPACITY, LIVE, SEQUENCE, ADDED, LOW, HIGH, INTENT, SUCCESSES, FAILURES, FULL, STARTS = range(13)


class Journal:
    """What one client has done and may find; it is mapped by both."""

    def __init__(self, folder, number, capacity):
        self.path = os.path.join(folder, f"journal-{number}")
        with open(self.path, "w+b") as file:
            file.truncate(HEAD_BYTES + capacity * ENTRY_BYTES)
            self.map = mmap.mmap(file.fileno(), HEAD_BYTES)
        self.set(CAPACITY, capacity)

    def set(self, word, value):
        struct.pack_into("<Q", self.map, 8 * word, value)

    def get(self, word):
        return struct.unpack_from("<Q", self.map, 8 * word)[0]


class Clients:
    """The processes; one that was killed is started again."""

    def __init__(self, daemon, folder, keys):
        self.daemon = daemon
        self.journals = [Journal(folder, number, keys // CLIENTS + 1) for number in range(CLIENTS)]
        self.processes = [None] * CLIENTS
        self.kills = 0
        self.most = 0  # keys that there were at one time

    def start(self, number, *more):
        self.processes[number] = subprocess.Popen(
            [SOAK, self.daemon.uri + SPIN, str(number + 1), self.journals[number].path, *more], stdin=subprocess.DEVNULL
        )

    def start_all(self, *more):
        for number in range(CLIENTS):
            self.start(number, *more)

    def target(self, keys):
        for journal in self.journals:
            journal.set(TARGET, max(keys // CLIENTS, 1))

    def total(self, word):
        return sum(journal.get(word) for journal in self.journals)

    def watch(self):
        """Exit code 1: a client has found something wrong; 3: it could not connect, and tries again."""
        self.most = max(self.most, self.total(LIVE))
        for number, process in enumerate(self.processes):
            code = process.poll()
            assert code in (None, 3), f"client {number + 1} ended with {code}"
            if code == 3:
                self.start(number)

    def kill_one(self):
        number = random.randrange(CLIENTS)
        self.processes[number].kill()
        self.processes[number].wait()
        self.kills += 1
        self.start(number)

    def finish(self, seconds, *more):
        for number, process in enumerate(self.processes):
            code = process.wait(seconds)
            if code == 3:  # it was to connect while the daemon was away
                self.start(number, *more)
                code = self.processes[number].wait(seconds)
            assert code == 0, f"a client ended with {code}"

    def end(self):
        for process in self.processes:
            if process and process.poll() is None:
                process.kill()
                process.wait()


def pool_stats(daemon):
    return parse(daemon.tarn("--json", "stats").stdout)["pools"][0]


def restart(daemon, hard):
    if hard:
        daemon.kill()
    else:
        daemon.stop()
    daemon.start()


def wanted(part, keys):
    """How many keys there are to be after this part of the time: few, up to all, back to few. To grow takes the longest."""
    if part < 0.03 or part > 0.97:
        return FIRST_KEYS
    if part < 0.8:
        return int(FIRST_KEYS + (keys - FIRST_KEYS) * min(1.0, (part - 0.03) / 0.6))
    return int(FIRST_KEYS + (keys - FIRST_KEYS) * (0.97 - part) / 0.17)


def wait_calm(daemon, seconds):
    """What the dead had owned and owed comes back, each block of it: with no client there, a candidate is a leak."""
    end = time.monotonic() + seconds
    while True:
        stats = pool_stats(daemon)
        check = tarn("--json", "pool", "check", daemon.control, check=None, timeout=600)
        leaked = parse(check.stdout)["candidate_blocks"] if check.returncode == 0 else 1
        if stats["orphan_pages"] == stats["clients"] == leaked == 0:
            return stats
        assert time.monotonic() < end, f"not calm: {stats}\n{check.stdout.decode()}\n{check.stderr.decode()}"
        time.sleep(1)


def soak(daemon, clients, seconds, keys):
    began = said = time.monotonic()
    next_kill, next_restart, restarts = began + 1, began + seconds / 10, 0
    clients.start_all()
    while (now := time.monotonic()) < began + seconds:
        clients.target(wanted((now - began) / seconds, keys))
        clients.watch()
        if now >= next_kill:
            clients.kill_one()
            next_kill = now + random.uniform(*PAUSES)
        if now >= next_restart:
            restart(daemon, restarts % 2 == 0)
            restarts += 1
            next_restart = time.monotonic() + seconds / 10
        if now >= said + 10:
            said = now
            print(
                f"# {now - began:.0f} s: {clients.total(LIVE)} of {clients.journals[0].get(TARGET) * CLIENTS} keys, "
                f"{clients.total(SUCCESSES)} operations, {clients.total(FAILURES)} failed, {clients.kills} killed, {restarts} restarts",
                flush=True,
            )
        time.sleep(0.01)
    for journal in clients.journals:
        journal.set(STOP, 1)
    clients.finish(seconds + 120)
    return restarts


def test_soak():
    seconds, keys = int(sys.argv[1]), int(sys.argv[2])
    seed = int(os.environ.get("SOAK_SEED", time.time_ns() % 1000000))
    random.seed(seed)
    print(f"# SOAK_SEED={seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="tarn-soak-", dir="/dev/shm" if os.path.ismount("/dev/shm") else None)
    size = max(256, keys * 600 // (1 << 20) + 192)
    pool = f"size = {size}M\nhugepages = off\nfile = {folder}/pool\nkeys = {FIRST_KEYS}\nmax_clients = 64\n"
    clients = None
    tarntest.PATIENCE = 300  # gigabytes are touched and registered, on a machine that does other things, too
    try:
        with Daemon(pool) as daemon:
            clients = Clients(daemon, folder, keys)
            restarts = soak(daemon, clients, seconds, keys)
            assert clients.total(FULL) == 0, "the pool or its index was full"
            clients.start_all("verify")
            clients.finish(seconds + 120, "verify")
            stats = wait_calm(daemon, seconds + 300)
            print(
                f"# {clients.total(SUCCESSES)} operations, {clients.total(FAILURES)} failed meanwhile, {clients.kills} clients killed, "
                f"{restarts} restarts, {clients.most} keys at most, {clients.total(LIVE)} at the end",
                flush=True,
            )
            daemon.stop()
            check = tarn_json("pool", "check", f"{folder}/pool", timeout=600)
            print(f"# tarn pool check: clean {check['clean']}, {check['keys']} keys, {check['leaked_blocks']} blocks leaked", flush=True)
    finally:
        if clients:
            clients.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run([test_soak])
