# SPDX-License-Identifier: BSD-2-Clause
"""Regions: every call, several processes at one, deaths, limits, restarts, a region that goes away under its users. Also over RDMA."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rawclient  # noqa: E402
from tarntest import BUILD, FABRIC, PATIENCE, Daemon, Skip, run, socket_only, tarn_json  # noqa: E402

CLIENT = os.path.join(BUILD, "tests/integration/region-client")
POOL = "size = 16M\nhugepages = off\nregion_memory = 64M\n"
ADDS = {"": 50000, "rxe-nic": 500, "rxe-cpu": 200, "siw": 200}[FABRIC]
ROUNDS = 500 if FABRIC else 3000


def start(daemon, *words):
    return subprocess.Popen([CLIENT, daemon.uri, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process):
    out, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0 and err == b"", (process.returncode, out, err)
    return out


def client(daemon, *words):
    return finish(start(daemon, *words))


def regions(daemon):
    return tarn_json("-u", daemon.uri, "stats")["pools"][0]["regions"]


def wait(what, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def pool_check(daemon):
    answer = tarn_json("-u", daemon.uri, "pool", "check")
    assert answer["clean"], answer["findings"]


def test_calls():
    with Daemon(POOL) as daemon:
        client(daemon, "calls")
        # of the second session, which was closed with a region open, nothing is left
        wait(lambda: regions(daemon)["count"] == 0)
        assert regions(daemon)["memory_bytes"] == 0, regions(daemon)
        pool_check(daemon)


def test_counter_of_four():
    """Atomic among all clients, and nothing is lost or done twice."""
    with Daemon(POOL) as daemon:
        client(daemon, "create", "sum", 4096)
        reports = [finish(process).split() for process in [start(daemon, "add", "sum", ADDS) for _ in range(4)]]
        assert all(int(done) == ADDS and int(ambiguous) == 0 for done, ambiguous in reports), reports
        assert int(client(daemon, "word", "sum", 0)) == 4 * ADDS


def test_order():
    with Daemon(POOL) as daemon:
        client(daemon, "create", "order", 1 << 17)
        client(daemon, "order", "order", ROUNDS)
        client(daemon, "create", "cross", 8192)
        client(daemon, "cross", "cross", ROUNDS)


def test_two_wake_each_other():
    with Daemon(POOL) as daemon:
        client(daemon, "create", "pong", 4096)
        for process in [start(daemon, "pong", "pong", ROUNDS // 3, side) for side in (0, 1)]:
            finish(process)


def started(daemon, name, place):
    """Each has a block of its own."""
    process = start(daemon, "work", name, place)
    assert process.stdout.readline() == b"started\n", process.stderr.read()
    return process


def test_killed_clients():
    """What a dead client had open is closed; the others do not notice."""
    with Daemon(POOL) as daemon:
        client(daemon, "create", "shared", 1 << 20)
        stays = started(daemon, "shared", 0)
        for _ in range(3):
            victims = [started(daemon, "shared", place) for place in (1, 2, 3)]
            time.sleep(0.2)
            for victim in victims:
                victim.kill()
                victim.communicate()
        wait(lambda: client(daemon, "opens", "shared").strip() == b"1")
        assert stays.poll() is None, stays.stderr.read()
        client(daemon, "destroy", "shared")
        assert finish(stays).endswith(b"rounds\n")
        assert regions(daemon)["count"] == 0


def test_destroyed_under_its_users():
    """Each of them is told so, and all memory comes back; over RDMA the adapter refuses."""
    with Daemon(POOL) as daemon:
        for _ in range(3):
            client(daemon, "create", "gone", 1 << 20)
            users = [started(daemon, "gone", place) for place in range(4)]
            time.sleep(0.3)
            client(daemon, "destroy", "gone")
            for user in users:
                assert finish(user).endswith(b"rounds\n")
        wanted = {"count": 0, "not_kept": 0, "memory_bytes": 0, "memory_limit_bytes": 64 << 20}
        assert regions(daemon) == wanted, regions(daemon)
        pool_check(daemon)
        assert daemon.process.poll() is None


def test_limits():
    """region_memory, and none at all."""
    with Daemon(POOL) as daemon:
        client(daemon, "create", "most", (64 << 20) - 4096)
        process = start(daemon, "create", "more", 1)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1 and b"region_memory" in err, (out, err)
        client(daemon, "destroy", "most")
        client(daemon, "create", "more", 1)
    with Daemon("size = 16M\nhugepages = off\n") as daemon:
        process = start(daemon, "create", "any", 1)
        assert process.communicate(timeout=PATIENCE)[1].count(b"region_memory") == 1
        assert process.returncode == 1


@socket_only("is about descriptors that go over the socket")
def test_descriptors_on_their_way():
    """Of one user so many may be on their way as it may have open: who opens one more is told to try again, and not left waiting."""
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("prlimit"):
        raise Skip("needs root, setpriv and prlimit, to run tarnd as somebody else")
    nobody = ("prlimit", "--nofile=100:100", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    count = 150
    with Daemon(POOL + "max_clients = 8\n", ready=False, prefix=nobody) as daemon:
        os.chown(daemon.folder, 65534, 65534)
        daemon.start()
        client(daemon, "create", "a", 4096)
        raw = rawclient.Client(daemon.socket, rawclient.POOLS["main"])

        def asked():
            return tarn_json("-u", daemon.uri, "stats")["pools"][0]["rpcs"]["region_call"]

        before = asked()
        for tag in range(count):
            raw.sock.send(struct.pack("<BBHIIIQ40s", 9, 2, 0, tag, 1, 0, 0, b"a"))
        wait(lambda: asked() == before + count)  # all are answered, and none is read
        passed = refused = 0
        for tag in range(count):
            reply, fds, _, _ = socket.recv_fds(raw.sock, 4096, 4)
            got, status = struct.unpack_from("<Ii", reply, 4)
            assert got == tag and len(fds) == (status == 0) and status in (0, -1014), (got, tag, status, fds)
            passed += status == 0
            refused += status != 0
            for fd in fds:
                os.close(fd)
        assert passed
        if not refused:
            raise Skip("this kernel does not count descriptors that are on their way")
        assert "too many descriptors are on their way" in daemon.log()
        raw.sock.send(struct.pack("<BBHIIIQ40s", 9, 2, 0, count, 1, 0, 0, b"a"))
        reply, fds, _, _ = socket.recv_fds(raw.sock, 4096, 4)
        assert struct.unpack_from("<i", reply, 8)[0] == 0 and len(fds) == 1
        os.close(fds[0])
        raw.close()


def test_restarted_daemon():
    """Without somebody who keeps the memory regions are gone, and who uses one is told so."""
    with Daemon(POOL) as daemon:
        client(daemon, "create", "gone", 1 << 20)
        users = [started(daemon, "gone", place) for place in range(2)]
        time.sleep(0.2)
        daemon.kill()
        daemon.start()
        for user in users:
            assert finish(user).endswith(b"rounds\n")


def test_stopped_while_making():
    """A daemon that is stopped while a region is made, and a region that is destroyed then."""
    with Daemon("size = 16M\nhugepages = off\nregion_memory = 2G\n") as daemon:
        process = start(daemon, "create", "large", 1 << 30)
        time.sleep(0.2)
        client(daemon, "destroy", "large")
        process.communicate(timeout=2 * PATIENCE)
        wait(lambda: regions(daemon)["count"] == 0)
        process = start(daemon, "create", "large", 1 << 30)
        time.sleep(0.2)
        daemon.stop()
        process.kill()
        process.communicate()


def test_standing_client_holds_nobody_up():
    """One that waits and is stopped, and one that does not read its notices."""
    with Daemon(POOL) as daemon:
        client(daemon, "create", "pong", 4096)
        sleeper = start(daemon, "pong", "pong", 10, 1)
        time.sleep(0.3)
        sleeper.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        for _ in range(20):
            client(daemon, "notify", "pong")
        assert time.monotonic() - begin < PATIENCE
        sleeper.kill()
        sleeper.communicate()
        client(daemon, "destroy", "pong")


if __name__ == "__main__":
    only = sys.argv[1:]
    run([f for name, f in list(globals().items()) if name.startswith("test_") and (not only or name in only)])
