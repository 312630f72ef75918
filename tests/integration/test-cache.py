#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Memory that runs short: expiry, eviction in a cache pool, a full store pool, quotas of access keys."""

import json
import os
import signal
import subprocess
import tempfile
import time

import tarntest
from tarntest import BUILD, Daemon, freeze, socket_only, tarn_json

CLIENT = os.path.join(BUILD, "tests/integration/cache-client")
CACHE = "size = 16M\nhugepages = off\nmode = cache\n"
SECRETS = ["%064x" % n for n in (1, 2)]


def pool_stats(daemon):
    return tarn_json("-u", daemon.uri, "stats")["pools"][0]


def wait_for(what, condition, seconds=tarntest.PATIENCE):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def start_client(daemon, number, *arguments):
    return subprocess.Popen(
        [CLIENT, daemon.uri, str(number), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def result_of(client):
    """What it says; fails if a put failed or a value was wrong."""
    out, err = client.communicate(timeout=600)
    assert client.returncode == 0, f"exit code {client.returncode}: {out!r} {err!r}"
    return json.loads(out)


def run_clients(daemon, megabytes, sizes, count=4):
    """Returns what each of them says; fails if a put failed or a value was wrong."""
    clients = [start_client(daemon, number, megabytes, *sizes) for number in range(count)]
    return [result_of(client) for client in clients]


def test_expiry_gives_memory_back():
    with Daemon("size = 16M\nhugepages = off\n") as daemon:
        for number in range(3):
            daemon.tarn("put", f"key{number}", "x" * 100)
        for number in range(3):
            daemon.tarn("put", "--expire", "1s", f"brief{number}", "x" * 100)
        wait_for("3 keys expired", lambda: pool_stats(daemon)["expiry"]["expired"] == 3)
        wait_for("3 keys left", lambda: pool_stats(daemon)["keys"] == 3)
        stats = pool_stats(daemon)
        assert stats["expiry"]["expired_bytes"] >= 3 * 148, stats["expiry"]
        assert stats["stored_bytes"] == 3 * (4 + 100), stats["stored_bytes"]
        daemon.tarn("get", "key0")
        daemon.tarn("get", "brief0", check=1)


# What is evicted rests; the shorter, the sooner these tests are through.
BRISK = "deadline = 50ms\nepoch = 60ms\ngrace = 120ms\n"


def test_cache_takes_ten_times_its_size():
    """Every put succeeds, and no value is wrong."""
    with Daemon(CACHE + BRISK) as daemon:
        results = run_clients(daemon, 40, [100, 1000, 4000, 20000])
        print("#", results, pool_stats(daemon)["eviction"], flush=True)
        assert sum(result["puts"] for result in results) > 20000, results
        assert all(result["hits"] > 0 for result in results), results
        assert pool_stats(daemon)["eviction"]["evicted"] > 10000
        assert pool_stats(daemon)["mode"] == "cache"


def test_smallest_cache():
    """As many clients as there are pages for, sizes from one that shares pages to one that takes them whole."""
    with Daemon("size = 8M\nhugepages = off\nmode = cache\n") as daemon:
        for sizes, count, megabytes in (([100, 1000, 4000, 20000], 8, 2), ([100, 4000, 60000, 300000], 4, 3)):
            results = run_clients(daemon, megabytes, sizes, count)
            print("#", results, pool_stats(daemon)["eviction"], flush=True)


def test_stopped_client():
    """Counters that a stopped client keeps from ageing do not come back: others make room for who adds and puts."""
    with Daemon(CACHE) as daemon:
        run_clients(daemon, 16, [100, 1000, 4000], count=1)
        stopped = start_client(daemon, 9, 1000, 100, 3000)
        try:
            wait_for("a client at work", lambda: pool_stats(daemon)["clients"] == 1)
            time.sleep(1)
            assert freeze(stopped)
            # 16 MiB have room for 120000 counters
            results = [result_of(start_client(daemon, number, "add", 35000)) for number in (1, 2)]
            results += run_clients(daemon, 4, [100, 1000, 4000], count=2)
            print("#", results, pool_stats(daemon)["eviction"], flush=True)
            stopped.send_signal(signal.SIGCONT)
            # and behind it all is as before
            results = [result_of(start_client(daemon, number, "add", 35000)) for number in (3, 4)]
            print("#", results, pool_stats(daemon)["eviction"], flush=True)
        finally:
            stopped.kill()
            stopped.communicate()


def test_cache_changes_its_mix():
    """First all small, then all of another size: pages change hands."""
    with Daemon(CACHE + BRISK) as daemon:
        run_clients(daemon, 8, [200], count=2)
        run_clients(daemon, 16, [3000], count=2)
        run_clients(daemon, 16, [700000], count=1)
        results = run_clients(daemon, 8, [200], count=2)
        print("#", results, pool_stats(daemon)["eviction"], flush=True)
        assert pool_stats(daemon)["eviction"]["pages_emptied"] > 0


def test_store_says_full_and_gets_go_on():
    with Daemon("size = 8M\nhugepages = off\n") as daemon:
        client = subprocess.run(
            [CLIENT, daemon.uri, "1", "40", "3000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False
        )
        assert client.returncode == 1 and b"TARN_EPOOLFULL" in client.stderr, client
        result = json.loads(client.stdout)
        assert result["wrong"] == 0 and result["hits"] > 1000, result
        daemon.tarn("get", "1/0", stdout=subprocess.DEVNULL)
        assert pool_stats(daemon)["eviction"] is None


def test_store_takes_what_has_been_deleted():
    """All is deleted by another client, in pages of one size, and at once values of another size are put."""
    with Daemon("size = 8M\nhugepages = off\n") as daemon:
        result = result_of(start_client(daemon, 1, "refill", 8, 100, 1000, 4000, 20000))
        print("#", result, flush=True)


class Keys:
    """A key file of the daemon's, and one for each client."""

    def __init__(self, folder):
        self.folder = folder
        self.path = os.path.join(self.folder, "keys")

    def write(self, quotas):
        for name, text in [(self.path, quotas), *((self.of(n), "") for n in (0, 1))]:
            lines = "".join(f"user{n} write {SECRETS[n]} {text if n == 0 else ''}\n" for n in (0, 1))
            if name != self.path:
                lines = lines.splitlines(True)[int(name[-1])]
            with open(name, "w") as file:
                os.chmod(name, 0o600)
                file.write(lines)

    def of(self, number):
        return os.path.join(self.folder, f"key{number}")


def quota(folder):
    keys = Keys(folder)
    keys.write("keys=20 bytes=1M pages=50%")
    guarded = Daemon(f"size = 16M\nhugepages = off\nauth = key\nkey_file = {keys.path}\n", ready=False)
    os.environ["TARN_KEY_FILE"] = keys.of(0)
    try:
        guarded.start()
    finally:
        del os.environ["TARN_KEY_FILE"]
    with guarded as daemon:

        def tarn(user, *arguments, check=0):
            return daemon.tarn(*arguments, check=check, env={"TARN_KEY_FILE": keys.of(user)})

        def stats():
            answer = tarn_json("-u", daemon.uri, "stats", env={"TARN_KEY_FILE": keys.of(0)})
            return answer["pools"][0]["access_keys"][0]

        for number in range(20):
            tarn(0, "put", f"mine{number}", "x")
        wait_for("20 keys counted", lambda: stats()["used"]["keys"] == 20)
        assert stats()["used_up"] == ["keys"], stats()
        assert stats()["quota"]["keys"] == 20 and stats()["quota"]["bytes"] == 1 << 20, stats()
        told = tarn(0, "put", "more", "x", check=1)
        assert b"user0" in told.stderr and b"20 of 20" in told.stderr, told.stderr
        tarn(0, "put", "mine3", "longer")
        tarn(1, "put", "theirs", "x")
        for number in range(5):
            tarn(0, "del", f"mine{number}")
        wait_for("keys are free again", lambda: stats()["used_up"] == [])
        tarn(0, "put", "more", "x")
        keys.write("keys=5")
        daemon.process.send_signal(signal.SIGHUP)
        wait_for("the new quota", lambda: stats()["quota"]["keys"] == 5 and stats()["used_up"] == ["keys"])
        tarn(0, "put", "other", "x", check=1)


@socket_only("quotas are the daemon's affair")
def test_quota():
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as folder:
        quota(folder)


if __name__ == "__main__":
    tarntest.run(
        [
            test_expiry_gives_memory_back,
            test_cache_takes_ten_times_its_size,
            test_smallest_cache,
            test_stopped_client,
            test_cache_changes_its_mix,
            test_store_says_full_and_gets_go_on,
            test_store_takes_what_has_been_deleted,
            test_quota,
        ]
    )
