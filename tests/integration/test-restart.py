#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Pool memory that survives the daemon: in a file, and with a service manager that keeps it."""

import array
import fcntl
import json
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import rawclient
from tarntest import BUILD, FABRIC, PATIENCE, TARN, TARND, Daemon, Skip, freeze, run, socket_only, tarn_json

CLIENT = os.path.join(BUILD, "tests/integration/client")
ROOM = "size = 32M\nhugepages = off\n"


class Manager:
    """Does what systemd does for a unit with Type=notify and FileDescriptorStoreMax=."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.kept = []  # (name, descriptor)
        self.states = []

    def read(self):
        """Takes what the daemon has sent so far."""
        while True:
            try:
                text, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(64), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            fields = dict(line.split("=", 1) for line in text.decode().splitlines())
            self.states.append(fields)
            fds = array.array("i")
            for _, kind, data in ancillary:
                assert kind == socket.SCM_RIGHTS
                fds.frombytes(data)
            if fields.get("FDSTORE") == "1":
                assert fields["FDPOLL"] == "0", fields
                # High numbers: the daemon is to get them as 3, 4, ...
                self.kept += [(fields["FDNAME"], fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)) for fd in fds]
            if fields.get("FDSTOREREMOVE") == "1":
                for entry in [entry for entry in self.kept if entry[0] == fields["FDNAME"]]:
                    os.close(entry[1])
                    self.kept.remove(entry)
            for fd in fds:
                os.close(fd)

    def names(self):
        self.read()
        return [name for name, _ in self.kept]

    def ready_comes_last(self):
        """What is kept was handed over before READY=1."""
        self.read()
        ready = [number for number, fields in enumerate(self.states) if fields.get("READY") == "1"]
        stored = [number for number, fields in enumerate(self.states) if "FDSTORE" in fields]
        return bool(ready) and bool(stored) and stored[0] < ready[0]

    def start(self, command, **options):
        self.read()
        redirect = "".join(f" {3 + place}<&{fd}" for place, (_, fd) in enumerate(self.kept))
        script = f"exec env LISTEN_PID=$$ \"$@\"{redirect}"
        environment = dict(os.environ, NOTIFY_SOCKET=self.path)
        # as since systemd 254; an older one would have to answer at the start
        environment.setdefault("FDSTORE", "1024")
        if self.kept:
            environment.update(LISTEN_FDS=str(len(self.kept)), LISTEN_FDNAMES=":".join(name for name, _ in self.kept))
        return subprocess.Popen(
            ["bash", "-c", script, "bash", *command], env=environment, pass_fds=[fd for _, fd in self.kept], **options
        )

    def full(self):
        """Can nothing be sent any more, by somebody who has sent nothing yet?"""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            probe.connect(self.path)
            return not select.select([], [probe], [], 0)[1]

    def take_only(self, count):
        """So many further messages can be sent; with the one behind them the daemon stands still."""
        while not self.full():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                try:
                    while True:
                        sender.sendto(b"FILLER=1", self.path)
                except BlockingIOError:
                    pass
        for _ in range(count):
            self.socket.recv(4096, socket.MSG_DONTWAIT)

    def stop(self):
        """As `systemctl stop`: what was kept is dropped."""
        self.read()
        for _, fd in self.kept:
            os.close(fd)
        self.kept = []


class ManagedDaemon(Daemon):
    def __init__(self, pool=ROOM, more=""):
        super().__init__(pool, more, ready=False)
        self.manager = Manager(self.folder)

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = self.manager.start(
                [TARND, "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while self.tarn("ping", "-c", "1", check=None).returncode != 0:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        self.manager.read()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *failure):
        try:
            super().__exit__(*failure)
        finally:
            self.manager.stop()


class FileDaemon(Daemon):
    """With the pool in a file on tmpfs."""

    def __init__(self, more="", pool=ROOM, **options):
        self.shm = tempfile.mkdtemp(prefix="tarn-test-", dir="/dev/shm")
        self.file = os.path.join(self.shm, "pool")
        super().__init__(f"{pool}file = {self.file}\n", more, **options)

    def __exit__(self, *failure):
        try:
            super().__exit__(*failure)
        finally:
            shutil.rmtree(self.shm, ignore_errors=True)


# Over RDMA one kind of memory is enough, and less of it: everything takes longer there.
KINDS = (FileDaemon,) if FABRIC else (FileDaemon, ManagedDaemon)


def stats(daemon):
    return tarn_json("-u", daemon.uri, "stats")["pools"][0]


def clients(daemon):
    return tarn_json("-u", daemon.uri, "clients")["clients"]


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


def restart(daemon, kill):
    if kill:
        daemon.kill()
    else:
        daemon.stop()
    daemon.start()


# ---- what stays ----


def test_values_stay():
    """Values, flags, counters, large ones, times to live: after an orderly end and after SIGKILL."""
    large = random.Random(1).randbytes(3 << 20)
    for kind in KINDS:
        with kind() as daemon:
            daemon.tarn("put", "large", stdin=large)
            for number in range(8 if FABRIC else 50):
                daemon.tarn("put", f"key{number}", f"value {number}")
            daemon.tarn("add", "counter", "41")
            daemon.tarn("put", "--expire", "1h", "lasting", "x")
            daemon.tarn("put", "--expire", "1s", "passing", "x")
            for count in range(4):
                restart(daemon, kill=count % 2 == 0)
                assert daemon.tarn("get", "large").stdout == large
                for number in range(0, 8 if FABRIC else 50, 7):
                    assert daemon.tarn("get", f"key{number}").stdout == f"value {number}".encode()
                daemon.tarn("add", "counter", "1")
                daemon.tarn("put", f"key{count}", f"value {count}")
            assert daemon.tarn("get", "counter").stdout.strip() == b"45"
            assert daemon.tarn("get", "lasting").stdout == b"x"
            wait_for(lambda: daemon.tarn("get", "passing", check=None).returncode != 0)
            assert stats(daemon)["opened"] == "kept"


def test_ids_go_on():
    """A stamp never comes again: it has the client's id."""
    with FileDaemon() as daemon:
        seen = set()
        for count in range(6):
            daemon.tarn("put", "key", str(count))
            writer = json.loads(daemon.tarn("--json", "exists", "key").stdout)["stamp"]
            assert writer not in seen, (writer, seen)
            seen.add(writer)
            restart(daemon, kill=count % 2 == 0)


# ---- the service manager ----


@socket_only("is about systemd")
def test_kept_by_the_service_manager():
    with ManagedDaemon(more="[pool other]\n" + ROOM) as daemon:
        assert sorted(daemon.manager.names()) == ["tarn-pool-main", "tarn-pool-other"]
        assert daemon.manager.ready_comes_last()
        daemon.tarn("put", "key", "value")
        # Somebody else's descriptor among ours.
        daemon.manager.kept.insert(0, ("http.socket", fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 100)))
        restart(daemon, kill=True)
        assert "named http.socket, was handed over and is not for tarnd" in daemon.log()
        del daemon.manager.kept[0]
        assert daemon.tarn("get", "key").stdout == b"value"
        # What is there already is not handed over again.
        assert len(daemon.manager.names()) == 2
        # A pool that has left the configuration is given back.
        with open(daemon.config) as file:
            text = file.read()
        with open(daemon.config, "w") as file:
            file.write(text.replace("[pool other]", "[pool third]"))
        restart(daemon, kill=False)
        assert sorted(daemon.manager.names()) == ["tarn-pool-main", "tarn-pool-third"]
        assert "the memory that was kept for pool other is given back" in daemon.log()
        # And so is one that is not to be kept.
        with open(daemon.config, "w") as file:
            file.write(text.replace("[pool main]", "[pool main]\nkeep = no"))
        restart(daemon, kill=False)
        assert daemon.manager.names() == ["tarn-pool-other"]
        assert daemon.tarn("get", "key", check=1).stdout == b""
        daemon.tarn("put", "key", "value")
        # After a stop the memory is gone.
        daemon.stop()
        daemon.manager.stop()
        daemon.start()
        assert daemon.tarn("get", "key", check=1).stdout == b""


@socket_only("is about systemd")
def test_kept_memory_that_does_not_fit():
    with ManagedDaemon() as daemon:
        daemon.tarn("put", "key", "value")
        with open(daemon.config) as file:
            text = file.read()
        daemon.stop()
        with open(daemon.config, "w") as file:
            file.write(text.replace("size = 32M", "size = 64M"))
        process = daemon.manager.start([TARND, "-c", daemon.config], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 6, (process.returncode, err)
        assert b"the kept memory has 33554432 bytes, and size = 67108864 wants" in err, err
        # Nothing was lost by that.
        with open(daemon.config, "w") as file:
            file.write(text)
        daemon.start()
        assert daemon.tarn("get", "key").stdout == b"value"


@socket_only("is about systemd")
def test_killed_while_resized():
    """Before the new memory is with systemd, when both are, and behind that: the region has all its bytes, and one memory."""
    content = random.Random(3).randbytes(64 << 10)
    with ManagedDaemon(ROOM + "region_memory = 64M\n") as daemon:
        manager = daemon.manager

        def kept():
            return [name for name in manager.names() if name.startswith("tarn-region-main/a")]

        daemon.tarn("region", "create", "a", "64K")
        daemon.tarn("region", "write", "a", stdin=content)
        assert kept() == ["tarn-region-main/a"]
        size = 64 << 10
        for messages, after, memories in ((0, 3 << 20, 1), (1, 3 << 20, 2), (2, 1 << 20, 1), (1, 64 << 10, 2), (0, 2 << 20, 1), (2, 2 << 20, 1)):
            manager.take_only(messages)
            command = [TARN, "-u", daemon.uri, "region", "resize", "a", str(after)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for(manager.full)
            if messages != 1:
                time.sleep(0.3)  # until it waits with what comes next, if the machine is not busy
            daemon.kill()
            process.kill()
            process.wait()
            assert len(kept()) == memories, (messages, kept())
            daemon.start()
            size = size if messages == 0 else after
            assert tarn_json("-u", daemon.uri, "region", "show", "a")["bytes"] == size, (messages, size)
            data = daemon.tarn("region", "read", "a").stdout
            assert data == content + bytes(size - len(content)), messages
            assert len(kept()) == 1, kept()
            regions = stats(daemon)["regions"]
            assert regions["count"] == 1 and regions["not_kept"] == 0, regions
            if memories == 2:
                assert "region a: a restart came between the two memories of a resize" in daemon.log()
        daemon.tarn("region", "destroy", "a")
        assert not kept()


@socket_only("is about systemd")
def test_more_than_systemd_keeps():
    """What it has no place for works, and it is said that it will be gone."""
    os.environ["FDSTORE"] = "4"  # as of systemd 254: FileDescriptorStoreMax=
    try:
        daemon = ManagedDaemon(ROOM + "region_memory = 64M\n")
        with daemon:
            for name in "abc":
                daemon.tarn("region", "create", name, "4K")
            assert stats(daemon)["regions"]["not_kept"] == 1
            assert "region c will be gone after a restart: systemd keeps 4 descriptors for this unit" in daemon.log(), daemon.log()
            assert len(daemon.manager.names()) == 3
            # the fourth place is for a resize
            daemon.tarn("region", "resize", "a", "8K")
            daemon.tarn("region", "write", "c", stdin=b"c")
            daemon.tarn("region", "destroy", "b")
            assert stats(daemon)["regions"]["not_kept"] == 0
            restart(daemon, kill=True)
            assert daemon.tarn("region", "read", "c", "--bytes", "1").stdout == b"c"
            assert sorted(daemon.manager.names()) == ["tarn-pool-main", "tarn-region-main/a@1", "tarn-region-main/c"]
    finally:
        del os.environ["FDSTORE"]


# ---- clients ----


def outlive(daemon, client):
    process = subprocess.Popen(
        [CLIENT, daemon.uri, str(client), "0", "outlive", "kept"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"started\n", process.stderr.read()
    return process


def finish(process):
    out, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, err.decode(errors="replace")
    return json.loads(out.decode().splitlines()[-1])


def all_back(daemon, processes):
    """Each is connected again; one that has ended says why."""
    for process in processes:
        assert process.poll() is None, process.communicate()
    return len([client for client in clients(daemon) if not client["unfenced"]]) == len(processes)


def test_twenty_restarts_under_load():
    """SIGKILL in the middle of everything. Each value has its key, writer and sequence number and is checked."""
    rng = random.Random(20)
    for kind in KINDS:
        restarts = 20 if kind is FileDaemon and not FABRIC else 5
        with kind(pool="size = 96M\nhugepages = off\n") as daemon:
            processes = [outlive(daemon, client) for client in range(4)]
            for number in range(restarts):
                # Into the middle of coming back, and of work.
                if number % 2 == 1:
                    wait_for(lambda: all_back(daemon, processes))
                time.sleep(rng.uniform(0.05, 0.4))
                daemon.kill()
                time.sleep(rng.choice((0, 0, 0.3)))
                daemon.start()
            wait_for(lambda: all_back(daemon, processes))
            reports = [finish(process) for process in processes]
            for report in reports:
                assert report["reconnects"] >= restarts // 2, report
                assert report["operations"] > 50 * restarts, report
            # Nobody is left, nothing rests with the dead.
            wait_for(lambda: not clients(daemon))
            wait_for(lambda: stats(daemon)["orphan_pages"] == 0)


@socket_only("is about clients with the memory mapped")
def test_stopped_client():
    """One that stands still while the daemon comes back can not be fenced: its slot and its pages rest until it goes."""
    with FileDaemon("max_clients = 3\n") as daemon:
        process = outlive(daemon, 7)
        wait_for(lambda: stats(daemon)["pages"]["slab"] > 0)
        assert freeze(process)
        try:
            daemon.kill()
            daemon.start()
            (client,) = clients(daemon)
            assert client["unfenced"] and client["pid"] == process.pid, client
            assert client["listener"] is None and client["transport"] == "shm"
            assert stats(daemon)["clients_unfenced"] == 1
            slabs = stats(daemon)["pages"]["slab"]
            assert slabs > 0
            # Its number is nobody's to kill: there is no connection that could be ended.
            daemon.tarn("clients", "kill", str(client["client_id"]), check=None)
            # The other slots work as always.
            daemon.tarn("put", "key", "value")
            # It is still there after another restart.
            restart(daemon, kill=True)
            assert stats(daemon)["clients_unfenced"] == 1
        finally:
            process.send_signal(signal.SIGCONT)
        wait_for(lambda: [c["unfenced"] for c in clients(daemon)] == [False])
        assert stats(daemon)["clients_unfenced"] == 0
        assert finish(process)["reconnects"] >= 1
        # One that is killed while nobody looks.
        process = outlive(daemon, 8)
        assert freeze(process)
        daemon.kill()
        daemon.start()
        process.kill()
        process.communicate()
        wait_for(lambda: stats(daemon)["clients_unfenced"] == 0)
        wait_for(lambda: stats(daemon)["orphan_pages"] == 0)


@socket_only("is about clients with the memory mapped")
def test_mapping_is_what_counts():
    """A client that has closed its connection and kept the memory: its slot is not given out with it."""
    with FileDaemon("max_clients = 1\n") as daemon:
        client = rawclient.Client(daemon.socket, rawclient.POOLS["main"])
        memory = client.map()
        client.close()
        wait_for(lambda: not clients(daemon))
        try:
            rawclient.Client(daemon.socket, rawclient.POOLS["main"])
            raise AssertionError("two clients with one slot")
        except rawclient.Refused as refused:
            assert refused.reason == "busy" and refused.retry_ms > 0, refused.reason
        # Readers owe nothing, and need no lock.
        reader = rawclient.Client(daemon.socket, rawclient.POOLS["main"], flags=rawclient.READONLY)
        reader.close()
        memory.close()
        wait_for(lambda: not clients(daemon))
        daemon.tarn("put", "key", "value")


@socket_only("is about clients with the memory mapped")
def test_changed_time_rules():
    """The deadline changes when nobody works by the old one."""
    with FileDaemon() as daemon:
        process = outlive(daemon, 1)
        with open(daemon.config) as file:
            text = file.read()
        daemon.kill()
        with open(daemon.config, "w") as file:
            file.write(text + "deadline = 80ms\n")
        daemon.start()
        assert stats(daemon)["deadline_ms"] == 80
        wait_for(lambda: [c["unfenced"] for c in clients(daemon)] == [False])
        finish(process)


# ---- bad input ----


def refuses(daemon, *texts):
    """The daemon does not start, does not crash, and says why."""
    process = subprocess.Popen([TARND, "-c", daemon.config], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, err = process.communicate(timeout=PATIENCE)
    err = err.decode(errors="replace")
    assert process.returncode in (4, 6), (process.returncode, err)
    for text in texts:
        assert text in err, err


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


@socket_only("is about files")
def test_bad_files():
    with FileDaemon() as daemon:
        daemon.tarn("put", "key", "value")
        other = Daemon(f"{ROOM}file = {daemon.file}\n", ready=False)
        refuses(other, daemon.file, "in use by another tarnd")
        shutil.rmtree(other.folder)
        daemon.stop()
        with open(daemon.file, "rb") as file:
            good = file.read()

        def bad(change, *texts):
            with open(daemon.file, "wb") as file:
                file.write(good)
            change()
            refuses(daemon, daemon.config, "[pool main]", *texts)

        bad(lambda: patch(daemon.file, 8, struct.pack("<I", 1)), "layout version 1")
        bad(lambda: patch(daemon.file, 8, struct.pack("<I", 3)), "layout version 3")
        bad(lambda: patch(daemon.file, 0, bytes(4096)), "not a tarn pool")
        bad(lambda: os.truncate(daemon.file, len(good) // 2), f"has {len(good) // 2} bytes", f"wants {len(good)}")
        bad(lambda: os.chmod(daemon.file, 0o660), "has mode 0660", "chmod 600")
        os.chmod(daemon.file, 0o600)
        directory = struct.unpack_from("<Q", good, 88)[0]
        bad(lambda: patch(daemon.file, directory, bytes(8)), "directory contradicts itself", "tarn pool check")
        with open(daemon.file, "wb") as file:
            file.write(good)
        with open(daemon.config) as file:
            text = file.read()
        for change, message in (
            ("max_clients = 17\n", "max_clients = 17: the pool in the kept memory was made with 256"),
            ("epoch = 240ms\n", "epoch = 240ms: the pool in the kept memory was made with 250ms"),
        ):
            with open(daemon.config, "w") as file:
                file.write(text + change)
            refuses(daemon, message)
        with open(daemon.config, "w") as file:
            file.write(text)
        daemon.start()
        assert daemon.tarn("get", "key").stdout == b"value"


@socket_only("is about files")
def test_flipped_bytes():
    """Whatever is in the file: refused, or served without a crash and without a wrong value."""
    rng = random.Random(5)
    with FileDaemon(pool="size = 4M\nhugepages = off\n") as daemon:
        for number in range(40):
            daemon.tarn("put", f"key{number}", f"value of {number}")
        daemon.stop()
        with open(daemon.file, "rb") as file:
            good = file.read()
        pages = struct.unpack_from("<Q", good, 112)[0]
        started = 0
        for count in range(12):
            image = bytearray(good)
            for _ in range(rng.choice((1, 10, 200))):
                image[rng.randrange(rng.choice((4096, pages, len(image))))] = rng.randrange(256)
            with open(daemon.file, "wb") as file:
                file.write(image)
            try:
                daemon.start()
            except AssertionError:
                assert daemon.process.wait() == 6, daemon.log()
                daemon.process = None
                continue
            started += 1
            for number in range(40):
                result = daemon.tarn("get", f"key{number}", check=None, timeout=PATIENCE)
                if result.returncode == 0:
                    assert result.stdout == f"value of {number}".encode(), result.stdout
            daemon.tarn("put", "new", "value", check=None)
            daemon.stop()
        with open(daemon.file, "wb") as file:
            file.write(good)
        daemon.start()
        assert started >= 2, started


@socket_only("writes over the pool")
def test_scribbling_client():
    """A client that writes over all of its pool: the daemon goes on, and the other pool with it."""
    with FileDaemon(more="[pool a]\n" + ROOM) as daemon:
        a = daemon.uri.replace("pool=main", "pool=a")
        for number in range(50):
            daemon.tarn("put", f"key{number}", "value")
            subprocess.run([os.path.join(BUILD, "tarn"), "-u", a, "put", f"key{number}", f"{number}"], check=True)
        rng = random.Random(3)
        for _ in range(3):
            client = rawclient.Client(daemon.socket, rawclient.POOLS["main"])
            memory = client.map()
            memory[:] = rng.randbytes(client.bytes)
            time.sleep(1)
            client.close()
            memory.close()
        assert daemon.process.poll() is None, daemon.log()
        # It says so to who asks.
        assert daemon.tarn("get", "key1", check=None).returncode != 0
        stats(daemon)
        for number in range(50):
            command = [os.path.join(BUILD, "tarn"), "-u", a, "get", f"key{number}"]
            out = subprocess.run(command, check=True, capture_output=True)
            assert out.stdout == f"{number}".encode()
        # The next daemon does not take it.
        daemon.stop()
        refuses(daemon, "not a tarn pool")
        os.unlink(daemon.file)
        daemon.start()
        daemon.tarn("put", "key", "value")


@socket_only("cuts the file off")
def test_file_cut_off():
    """By a client, which has it open for writing: the daemon goes on with the other pools, and says what has happened."""
    with FileDaemon(more="[pool a]\n" + ROOM) as daemon:
        a = daemon.uri.replace("pool=main", "pool=a")
        daemon.tarn("put", "key", "value")
        subprocess.run([os.path.join(BUILD, "tarn"), "-u", a, "put", "key", "value"], check=True)
        client = rawclient.Client(daemon.socket, rawclient.POOLS["main"])
        os.ftruncate(client.fd, 65536)
        wait_for(lambda: "has been cut off by somebody" in daemon.log())
        assert rawclient.ended(client.sock)
        client.close()
        try:
            rawclient.Client(daemon.socket, rawclient.POOLS["main"])
            raise AssertionError("it is given to clients")
        except rawclient.Refused as refused:
            assert refused.reason == "internal", refused.reason
        stats(daemon)
        out = subprocess.run([os.path.join(BUILD, "tarn"), "-u", a, "get", "key"], check=True, capture_output=True)
        assert out.stdout == b"value"
        daemon.stop()
        refuses(daemon, "has 65536 bytes")
        os.unlink(daemon.file)
        daemon.start()


@socket_only("is about file systems")
def test_file_system_full():
    if os.geteuid() != 0:
        raise Skip("mounts a file system: needs root")
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "none", folder], check=False).returncode != 0:
            raise Skip("nothing can be mounted here")
        try:
            daemon = Daemon(f"{ROOM}file = {folder}/pool\n", ready=False)
            refuses(daemon, "needs 32.0 MiB, 8.0 MiB are free in its file system")
            result = subprocess.run([TARND, "-t", "-c", daemon.config], capture_output=True, check=False)
            assert result.returncode == 6 and b"8.0 MiB are free" in result.stderr, result.stderr
            assert os.listdir(folder) == []
            shutil.rmtree(daemon.folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@socket_only("is about hugepages")
def test_hugetlbfs():
    """A file on hugetlbfs; and hugepages that are gone."""
    number = "/proc/sys/vm/nr_hugepages"
    if os.geteuid() != 0 or not os.access(number, os.W_OK):
        raise Skip("needs root, to get hugepages")
    with open(number) as file:
        before = file.read().strip()
    with tempfile.TemporaryDirectory() as folder:
        try:
            with open(number, "w") as file:
                file.write(str(int(before) + 18))
            with open(number) as file:
                if int(file.read()) < int(before) + 18:
                    raise Skip("there are no hugepages here")
            if subprocess.run(["mount", "-t", "hugetlbfs", "none", folder], check=False).returncode != 0:
                raise Skip("hugetlbfs can not be mounted here")
            try:
                with Daemon(f"size = 32M\nhugepages = require\nfile = {folder}/pool\n") as daemon:
                    assert stats(daemon)["hugepage_bytes"] == 2 << 20
                    daemon.tarn("put", "key", "value")
                    restart(daemon, kill=True)
                    assert daemon.tarn("get", "key").stdout == b"value"
                    daemon.stop()
                    os.unlink(f"{folder}/pool")
                    with open(number, "w") as file:
                        file.write(before)
                    refuses(daemon, "file system")
                    with open(number, "w") as file:
                        file.write(str(int(before) + 18))
                    daemon.start()
                # Another test's mount namespace may keep the file system after umount, and so its pages.
                os.unlink(f"{folder}/pool")
            finally:
                subprocess.run(["umount", folder], check=True)
            with ManagedDaemon("size = 32M\nhugepages = require\n") as daemon:
                assert stats(daemon)["hugepage_bytes"] == 2 << 20
                daemon.tarn("put", "key", "value")
                restart(daemon, kill=True)
                assert daemon.tarn("get", "key").stdout == b"value"
        finally:
            with open(number, "w") as file:
                file.write(before)


if __name__ == "__main__":
    if not os.path.exists(CLIENT) or not os.path.exists(TARND):
        print("1..0 # SKIP build/tarnd or tests/integration/client is not there (make check builds it)")
        sys.exit(0)
    only = sys.argv[1:]
    run([f for name, f in list(globals().items()) if name.startswith("test_") and (not only or name in only)])
