#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""tarnd by itself: start and stop, configurations, sockets, handshakes, and connections that do not keep to the rules."""

import contextlib
import mmap
import os
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rawclient import (ADD, CAS, FAA, NUMBER, PAGE, PING, POOLS, READONLY, REGION, Client, Control, Refused, connect,  # noqa: E402
                       ended, request)
from tarntest import PATIENCE, TARND, Skip, run  # noqa: E402

MAIN = POOLS["main"]
SMALL = "size = 8M\nhugepages = off\nmax_clients = 8\n"


class Tarnd:
    """tarnd with a configuration of the test's own; {dir} in it is its temporary folder."""

    def __init__(self, text=None, start=True, **popen):
        self.dir = tempfile.mkdtemp(prefix="tarn-test-", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.socket = f"{self.dir}/s"
        self.config = f"{self.dir}/c.conf"
        self.process = None
        self.configure(text or f"[listen l]\npath = {{dir}}/s\n[pool main]\n{SMALL}")
        if start:
            self.start(**popen)

    def configure(self, text):
        with open(self.config, "w") as file:
            file.write(text.replace("{dir}", self.dir))

    def start(self, **popen):
        with open(f"{self.dir}/log", "wb") as log:
            self.process = subprocess.Popen([TARND, "-c", self.config], stdin=subprocess.DEVNULL, stderr=log, **popen)
        self.wait_log("ready")

    def once(self, *arguments, **options):
        """Runs to its end; (exit code, stderr)."""
        result = subprocess.run([TARND, "-c", self.config, *arguments], capture_output=True, text=True, timeout=PATIENCE,
                                **options)
        return result.returncode, result.stderr

    def log(self):
        with open(f"{self.dir}/log", errors="replace") as file:
            return file.read()

    def wait_log(self, word):
        wait(lambda: word in self.log() or self.process.poll() is not None)
        assert word in self.log(), f"no '{word}' in the log:\n{self.log()}"

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self.process = None
        return code

    def stats(self):
        control = Control(self.socket)
        answer = control.ask("stats")
        control.close()
        return answer

    def pool(self, index=0):
        return self.stats()["pools"][index]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if failure[0] and os.path.exists(f"{self.dir}/log"):
            print("\n".join("#   " + line for line in self.log().splitlines()[-20:]))
        code = self.stop() if self.process else 0
        shutil.rmtree(self.dir, ignore_errors=True)
        assert failure[0] or code == 0, f"tarnd ended with {code}"


def wait(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


def refused(path, pool=MAIN, **options):
    """The refusal of a handshake."""
    try:
        Client(path, pool, **options).close()
    except Refused as reason:
        return reason
    raise AssertionError("was not refused")


# ---- start, stop, options ----


def test_start_and_stop():
    for number in (signal.SIGTERM, signal.SIGINT):
        with Tarnd() as tarnd:
            assert stat.S_ISSOCK(os.stat(tarnd.socket).st_mode)
            assert tarnd.stop(number) == 0
            assert not os.path.exists(tarnd.socket), "the socket is left behind"
            assert "stopped" in tarnd.log()


def test_stop_with_clients_and_ongoing_questions():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN)
        control = Control(tarnd.socket)
        control.ask("ping")
        guest = connect(tarnd.socket)
        assert tarnd.stop() == 0
        for sock in (client.sock, control.sock, guest):
            assert ended(sock)
        assert client.map()[:8] == b"TARNPOOL", "the memory stays while somebody has it"


def test_hangup_signal_does_not_end_it():
    with Tarnd() as tarnd:
        hangup(tarnd, "0 settings changed, 0 need a restart, 0 clients cut off")
        Client(tarnd.socket, MAIN).close()


def test_options():
    def tarnd(*arguments):
        return subprocess.run([TARND, *arguments], capture_output=True, text=True, timeout=PATIENCE)

    assert tarnd("--wat").returncode == 2
    assert tarnd("extra").returncode == 2
    assert tarnd("--log-level", "loud").returncode == 2
    result = tarnd("-h")
    assert result.returncode == 0 and "--config" in result.stdout
    assert tarnd("-V").stdout.startswith("tarnd ")
    result = tarnd("-c", "/nowhere/tarnd.conf")
    assert result.returncode == 6 and "/nowhere/tarnd.conf" in result.stderr and "-c FILE" in result.stderr


def test_unreadable_configuration_is_a_permission_error():
    if os.geteuid() != 0:
        raise Skip("needs root to become somebody else")
    with Tarnd(start=False) as tarnd:
        os.chmod(tarnd.config, 0o600)
        code, text = tarnd.once(user=65534)
        assert code == 4 and "Permission denied" in text, (code, text)


def test_no_permission_for_the_sockets_folder():
    if os.geteuid() != 0:
        raise Skip("needs root to become somebody else")
    with Tarnd(start=False) as tarnd:
        code, text = tarnd.once(user=65534)
        assert code == 4 and "Permission denied" in text, (code, text)


def test_systemd_is_told():
    with Tarnd(start=False) as tarnd:
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.settimeout(PATIENCE)
        notify.bind(f"{tarnd.dir}/notify")
        tarnd.start(env=dict(os.environ, NOTIFY_SOCKET=f"{tarnd.dir}/notify", FDSTORE="1024"))
        tarnd.stop()
        notify.settimeout(0.2)
        text = b""
        with contextlib.suppress(TimeoutError):
            while True:
                text += notify.recv(4096) + b"\n"
        for word in (b"READY=1", b"STOPPING=1", b"STATUS=pool main: ", b"EXTEND_TIMEOUT_USEC="):
            assert word in text, (word, text)


def alone(mount):
    """A prefix: the program has its own mounts, made by that shell command."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode != 0:
        raise Skip("needs root, and the right to mount")
    return ["unshare", "-m", "sh", "-c", mount + ' && exec "$@"', "sh"]


def test_without_systemd_and_journald():
    """Its variables are there, and nobody behind them: all works, and events are lines."""
    with Tarnd(start=False) as tarnd:
        with open(f"{tarnd.dir}/log", "wb") as log:
            info = os.fstat(log.fileno())
            environment = dict(os.environ, NOTIFY_SOCKET=f"{tarnd.dir}/nobody", WATCHDOG_USEC="1000000",
                               JOURNAL_STREAM=f"{info.st_dev}:{info.st_ino}")
            prefix = alone("mkdir -p /run/systemd && mount -t tmpfs none /run/systemd") if os.path.exists("/run/systemd/journal") else []
            tarnd.process = subprocess.Popen([*prefix, TARND, "-c", tarnd.config], stdin=subprocess.DEVNULL, stderr=log, env=environment)
        tarnd.wait_log(" is ready: 1 pools, 1 listeners")
        Client(tarnd.socket, MAIN).close()
        tarnd.wait_log("it has disconnected")
        refused(tarnd.socket, pool=1)
        tarnd.wait_log("refused pid")
        tarnd.process.send_signal(signal.SIGHUP)
        tarnd.wait_log("reloaded ")
        lines = tarnd.log().splitlines()
        assert all(re.match(r"<[3-7]>", line) for line in lines), lines
        assert sum("<5>refused pid" in line for line in lines) == 1, lines
        assert tarnd.stop() == 0


def test_read_only_file_system():
    """Of the socket, of the pool's file: said with the line and what to do; one that is not written to does not matter."""
    with Tarnd(start=False) as tarnd:
        os.mkdir(f"{tarnd.dir}/ro")
        prefix = alone(f"mount -t tmpfs none {tarnd.dir}/ro && mount -o remount,ro {tarnd.dir}/ro")
        for text, line, words in (
            ("[listen l]\npath = {dir}/ro/s\n[pool main]\n" + SMALL, 2, "choose a path below /run"),
            ("[listen l]\npath = {dir}/s\n[pool main]\nfile = {dir}/ro/pool\n" + SMALL, 5, "choose another path"),
        ):
            tarnd.configure(text)
            result = subprocess.run([*prefix, TARND, "-c", tarnd.config], capture_output=True, text=True, timeout=PATIENCE)
            assert result.returncode > 0, result
            assert "mounted read-only" in result.stderr and words in result.stderr, result.stderr
            assert f"{tarnd.config}:{line}: " in result.stderr, result.stderr
            assert not os.path.exists(tarnd.socket)
        # all but /run and the like, as systemd's ProtectSystem=strict
        tarnd.configure("[listen l]\npath = {dir}/s\n[pool main]\n" + SMALL)
        prefix = alone(f"mount --bind {tarnd.dir} {tarnd.dir} && mount -o remount,bind,ro /")
        with open(f"{tarnd.dir}/log", "wb") as log:
            tarnd.process = subprocess.Popen([*prefix, TARND, "-c", tarnd.config], stdin=subprocess.DEVNULL, stderr=log)
        tarnd.wait_log("ready")
        Client(tarnd.socket, MAIN).close()


# ---- configurations ----


def test_check_says_ok():
    with Tarnd(start=False) as tarnd:
        result = subprocess.run([TARND, "-t", "-c", tarnd.config], capture_output=True, text=True)
        assert result.returncode == 0 and result.stdout == f"{tarnd.config}: ok\n" and result.stderr == "", result


def test_check_says_every_error():
    with Tarnd(start=False) as tarnd:
        tarnd.configure("[listen l]\npath = s\n[pool main]\nsiz = 1G\nsize = 1K\nepoch = 1\n[pools x]\n[daemon]\nlog_level = 7\n")
        code, text = tarnd.once("-t")
        assert code == 6
        lines = [line for line in text.splitlines() if line]
        for number, words in ((2, "path = s"), (4, "did you mean size?"), (5, "4M to 2T"), (6, "2ms to 60s"), (7, "[pool NAME]"),
                              (9, "error, warning, notice, info or debug")):
            assert any(line.startswith(f"{tarnd.config}:{number}: ") and words in line for line in lines), (number, words, text)
        assert len(lines) == 6, text
        code, again = tarnd.once()
        assert code == 6 and again == text, "a start says the same"


def test_more_memory_than_there_is():
    with Tarnd(start=False) as tarnd:
        tarnd.configure("[listen l]\npath = {dir}/s\n[pool main]\nsize = 2T\nhugepages = prefer\n")
        for arguments in (("-t",), ()):
            code, text = tarnd.once(*arguments)
            assert code == 6 and "2048.0 GiB" in text and "lower size" in text and ":4: [pool main]" in text, (code, text)
        tarnd.configure("[listen l]\npath = {dir}/s\n[pool main]\nsize = 2T\nhugepages = require\nhugepage_size = 2M\n")
        for arguments in (("-t",), ()):
            code, text = tarnd.once(*arguments)
            assert code == 6 and "needs 1048576 hugepages of 2048 kB" in text and "are missing" in text, (code, text)
            assert "vm.nr_hugepages" in text or "/nr_hugepages" in text, text


def test_environment_of_the_check():
    with Tarnd(start=False) as tarnd:
        with open(f"{tarnd.dir}/keys", "w") as file:
            file.write("bob read 12\n")
        tarnd.configure(f"[listen l]\npath = {{dir}}/s\ngroup = no-such-group\n[pool main]\n{SMALL}auth = key\n"
                        "key_file = {dir}/keys\nnuma_node = 999\n")
        code, text = tarnd.once("-t")
        assert code == 6 and len(text.splitlines()) == 3, text
        assert ":3: [listen l] group = no-such-group" in text and "chmod 600" in text and "numa_node = 999" in text, text


def test_what_can_not_be_a_pools_file():
    with Tarnd(start=False) as tarnd:
        for path, why in (
            ("/proc/x", "/dev/shm"),
            ("/sys/x", "/dev/shm"),
            (tarnd.dir, "is a directory: name a file in it"),
            ("/dev/null", "is not a regular file: choose another path"),
            ("/nowhere/at/all", "its folder does not exist: make it"),
        ):
            tarnd.configure(f"[listen l]\npath = {{dir}}/s\n[pool main]\n{SMALL}file = {path}\n")
            line = 4 + SMALL.count("\n")
            code, text = tarnd.once("-t")
            assert code == 6 and f":{line}: [pool main] file = {path}: " in text and why in text, (code, text)
            code, text = tarnd.once()
            assert code == 6 and f"file = {path}: " in text and why in text, (code, text)


# ---- sockets ----


def test_stale_socket_is_removed():
    with Tarnd() as tarnd:
        tarnd.process.kill()
        tarnd.process.wait()
        assert os.path.exists(tarnd.socket)
        tarnd.start()
        assert "removed the stale socket" in tarnd.log()
        Client(tarnd.socket, MAIN).close()


def test_live_socket_is_not():
    with Tarnd() as tarnd:
        code, text = tarnd.once()
        assert code == 6 and f"in use by a running tarnd (pid {tarnd.process.pid})" in text, (code, text)
        Client(tarnd.socket, MAIN).close()


def test_other_things_at_the_path():
    with Tarnd(start=False) as tarnd:
        with open(tarnd.socket, "w") as file:
            file.write("precious")
        code, text = tarnd.once()
        assert code == 6 and "not a socket" in text, (code, text)
        with open(tarnd.socket) as file:
            assert file.read() == "precious"
        os.unlink(tarnd.socket)
        other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        other.bind(tarnd.socket)
        other.listen()
        code, text = tarnd.once()
        assert code == 6 and "another program" in text, (code, text)
        tarnd.configure(f"[listen l]\npath = {{dir}}/no/s\n[pool main]\n{SMALL}")
        code, text = tarnd.once()
        assert code == 6 and "its directory does not exist" in text, (code, text)
        tarnd.configure(f"[listen l]\npath = /tmp/{'x' * 110}\n[pool main]\n{SMALL}")
        code, text = tarnd.once()
        assert code == 6 and "115 bytes" in text and "1 to 107" in text, (code, text)


def test_rdma_listeners_are_checked():
    with Tarnd(start=False) as tarnd:
        tarnd.configure(f"[listen l]\npath = {{dir}}/s\nport = 7\n[listen r]\naddress = rdma.example.org\n[pool main]\n{SMALL}"
                        "listen = l, x\natomics = nic\n")
        code, text = tarnd.once()
        lines = text.splitlines()
        assert code == 6 and len(lines) == 4, (code, text)
        assert [word for word in (":3: [listen l] port: is for RDMA", ":5: [listen r] address = rdma.example.org: is no address",
                                  ":10: [pool main] listen: 'x': there is no such listener", ":11: [pool main] atomics = nic")
                if word not in text] == [], text
        tarnd.configure(f"[listen r]\ndevice = no-such-device\n[pool main]\n{SMALL}")
        code, text = tarnd.once("-t")
        assert code == 6 and ":2: [listen r] device = no-such-device: this machine has no such RDMA device" in text, (code, text)
        assert "notice: " in text and "no unix listener" in text, text


def test_socket_permissions():
    with Tarnd(f"[listen a]\npath = {{dir}}/s\n[listen b]\npath = {{dir}}/t\nmode = 0600\ngroup = daemon\n[pool main]\n{SMALL}"
               if os.geteuid() == 0 else
               f"[listen a]\npath = {{dir}}/s\n[listen b]\npath = {{dir}}/t\nmode = 0600\n[pool main]\n{SMALL}") as tarnd:
        assert stat.S_IMODE(os.stat(tarnd.socket).st_mode) == 0o660
        assert stat.S_IMODE(os.stat(f"{tarnd.dir}/t").st_mode) == 0o600
        if os.geteuid() == 0:
            assert os.stat(f"{tarnd.dir}/t").st_gid == 1
        Client(f"{tarnd.dir}/t", MAIN).close()


def test_socket_of_somebody_else_is_left():
    with Tarnd() as tarnd:
        os.unlink(tarnd.socket)
        other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        other.bind(tarnd.socket)
        assert tarnd.stop() == 0
        assert os.path.exists(tarnd.socket)


# ---- handshakes ----


def test_handshake():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN, nonce=99)
        assert client.role == 2 and client.bytes == 8 << 20 and client.nonce == 99
        assert client.map()[:8] == b"TARNPOOL"
        try:
            os.ftruncate(client.fd, 4096)
            raise AssertionError("the memory is not sealed")
        except PermissionError:
            pass
        assert client.rpc(PING)[0] == 0
        other = Client(tarnd.socket, MAIN)
        assert other.client_id != client.client_id and other.slot != client.slot
        listed = Control(tarnd.socket).ask("clients")["clients"]
        assert [(c["client_id"], c["slot"], c["pid"], c["uid"], c["reporting"]) for c in listed] == [
            (c.client_id, c.slot, os.getpid(), os.getuid(), False) for c in (client, other)], listed


def test_read_only():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN, flags=READONLY)
        assert client.role == 1
        assert client.map(write=False)[:8] == b"TARNPOOL"
        try:
            client.map()
            raise AssertionError("could be mapped for writing")
        except PermissionError:
            pass
        assert client.rpc(PING)[0] == 0
        for kind in (PAGE, ADD, NUMBER, CAS, FAA):
            assert client.rpc(kind)[0] == -1011
        assert client.rpc(REGION)[0] == -1108  # shared memory has none


def test_malformed_requests():
    with Tarnd() as tarnd:
        assert refused(tarnd.socket, POOLS["nothing"]).reason == "no_pool"
        reason = refused(tarnd.socket, versions=(2, 9))
        assert reason.reason == "version" and (reason.low, reason.high, reason.detail) == (1, 1, 0x101)
        assert refused(tarnd.socket, versions=(9, 2)).reason == "malformed"
        assert refused(tarnd.socket, flags=0x8000).reason == "malformed"
        assert refused(tarnd.socket, magic=0x12345678).reason == "malformed"
        for packet in (b"x", b"TARN", request(MAIN)[:55], request(MAIN) + b"x", b"GET / HTTP/1.0\r\n\r\n"):
            sock = connect(tarnd.socket)
            sock.send(packet)
            assert len(sock.recv(4096)) == 32, packet
            assert sock.recv(4096) == b""
        for packet in (b"", b"x" * 100000):
            sock = connect(tarnd.socket)
            sock.send(packet)
            assert ended(sock)
        refusals = tarnd.stats()["daemon"]["handshakes_refused"]
        assert refusals == {"version": 1, "no_pool": 1, "malformed": 8}, refusals
        Client(tarnd.socket, MAIN).close()


def test_keys():
    secret, other = bytes(range(32)), bytes(range(1, 33))
    with Tarnd(start=False) as tarnd:
        with open(f"{tarnd.dir}/keys", "w") as file:
            file.write(f"ada write {secret.hex()}\nbob read {secret.hex()}\n")
        os.chmod(f"{tarnd.dir}/keys", 0o600)
        tarnd.configure(f"[listen l]\npath = {{dir}}/s\n[pool main]\n{SMALL}auth = key\nkey_file = {{dir}}/keys\n")
        tarnd.start()
        assert Client(tarnd.socket, MAIN, secret=secret, key_id=b"ada").role == 2
        assert Client(tarnd.socket, MAIN, secret=secret, key_id=b"ada", flags=READONLY).role == 1
        assert Client(tarnd.socket, MAIN, secret=secret, key_id=b"bob", flags=READONLY).role == 1
        assert refused(tarnd.socket).reason == "no_key"
        assert refused(tarnd.socket, secret=secret, key_id=b"eve").reason == "unknown_key"
        assert refused(tarnd.socket, secret=other, key_id=b"ada").reason == "bad_mac"
        assert refused(tarnd.socket, secret=secret, key_id=b"bob").reason == "role"
        late = refused(tarnd.socket, secret=secret, key_id=b"ada", time_ms=1000)
        assert late.reason == "time" and abs(late.detail / 1000 - time.time()) < 60
        assert secret.hex()[:16] not in tarnd.log()


KEYS = {"ada": bytes(range(32)), "bob": bytes(range(1, 33))}


def write_keys(tarnd, *lines):
    """`ada write`, or any other line."""
    with open(f"{tarnd.dir}/keys", "w") as file:
        for line in lines:
            name = line.split()[0]
            file.write(f"{line} {KEYS[name].hex()}\n" if name in KEYS and len(line.split()) == 2 else f"{line}\n")
    os.chmod(f"{tarnd.dir}/keys", 0o600)


@contextlib.contextmanager
def keyed(*lines):
    with Tarnd(start=False) as tarnd:
        write_keys(tarnd, *lines)
        tarnd.configure(f"[listen l]\npath = {{dir}}/s\n[pool main]\n{SMALL}auth = key\nkey_file = {{dir}}/keys\n")
        tarnd.start()
        yield tarnd


def enter(tarnd, name, **options):
    return Client(tarnd.socket, MAIN, secret=KEYS[name], key_id=name.encode(), **options)


def send_request(path, packet):
    """The answer to a request as it was written down."""
    sock = connect(path)
    sock.send(packet)
    answer, ancillary, _, _ = sock.recvmsg(4096, socket.CMSG_SPACE(16))
    for _, _, data in ancillary:
        os.close(struct.unpack("i", data[:4])[0])
    sock.close()
    return answer


def test_replayed_request():
    with keyed("ada write", "bob write") as tarnd:
        packet = request(MAIN, key_id=b"ada", secret=KEYS["ada"])
        assert len(send_request(tarnd.socket, packet)) == 196
        for _ in range(3):
            answer = send_request(tarnd.socket, packet)
            assert len(answer) == 32 and Refused(answer).reason == "replay" and Refused(answer).retry_ms == 0
        # the same number of another key is another request
        assert len(send_request(tarnd.socket, request(MAIN, key_id=b"bob", secret=KEYS["bob"],
                                                      nonce=struct.unpack_from("<Q", packet, 32)[0]))) == 196
        # altered, so that it is another one: then its MAC is wrong
        altered = packet[:32] + bytes([packet[32] ^ 1]) + packet[33:]
        assert Refused(send_request(tarnd.socket, altered)).reason == "bad_mac"
        assert tarnd.pool()["handshakes_refused"] == {"replay": 3, "bad_mac": 1}
        assert "used before" in tarnd.log()
        # without keys nothing is signed, and who replays gains nothing
    with Tarnd() as tarnd:
        packet = request(MAIN)
        assert [len(send_request(tarnd.socket, packet)) for _ in range(2)] == [196, 196]


def hangup(tarnd, word):
    """SIGHUP; the word comes in what is logged because of it."""
    before = len(tarnd.log())
    tarnd.process.send_signal(signal.SIGHUP)
    wait(lambda: "reloaded" in tarnd.log()[before:] or "reload refused" in tarnd.log()[before:])
    assert word in tarnd.log()[before:], f"no '{word}' in {tarnd.log()[before:]}"


def test_revoked_keys():
    with keyed("ada write", "bob write") as tarnd:
        ada, bob, reader = enter(tarnd, "ada"), enter(tarnd, "bob"), enter(tarnd, "bob", flags=READONLY)
        hangup(tarnd, "0 clients cut off")
        assert ada.rpc(PING)[0] == 0 and bob.rpc(PING)[0] == 0
        write_keys(tarnd, "ada write", "bob read")
        hangup(tarnd, ", 1 clients cut off")
        assert ended(bob.sock)
        assert ada.rpc(PING)[0] == 0 and reader.rpc(PING)[0] == 0
        assert "its key may only read now; the pool's memory stays mapped" in tarnd.log()
        # its slot is kept as long as it has the memory
        assert tarnd.pool()["clients"] == 3
        bob.close()
        wait(lambda: tarnd.pool()["clients"] == 2)
        assert refused(tarnd.socket, key_id=b"bob", secret=KEYS["bob"]).reason == "role"
        write_keys(tarnd, "ada write")
        hangup(tarnd, ", 1 clients cut off")
        assert ended(reader.sock)
        assert refused(tarnd.socket, key_id=b"bob", secret=KEYS["bob"], flags=READONLY).reason == "unknown_key"
        write_keys(tarnd, f"ada write {KEYS['bob'].hex()}", "bob read")
        hangup(tarnd, "another secret")
        assert ended(ada.sock)
        assert refused(tarnd.socket, key_id=b"ada", secret=KEYS["ada"]).reason == "bad_mac"
        ada = Client(tarnd.socket, MAIN, key_id=b"ada", secret=KEYS["bob"])
        assert ada.rpc(PING)[0] == 0
        assert tarnd.stats()["daemon"]["clients_expelled"] == 3


def test_broken_key_file_keeps_the_keys():
    with keyed("ada write", "bob write") as tarnd:
        ada = enter(tarnd, "ada")
        write_keys(tarnd, "bob write", "ada wrong secret")
        hangup(tarnd, "everything stays as it was")
        assert f"{tarnd.dir}/keys:2: role 'wrong' of key 'ada'" in tarnd.log(), tarnd.log()
        os.chmod(f"{tarnd.dir}/keys", 0o644)
        hangup(tarnd, "chmod 600")
        os.unlink(f"{tarnd.dir}/keys")
        hangup(tarnd, "No such file")
        assert ada.rpc(PING)[0] == 0 and enter(tarnd, "ada").rpc(PING)[0] == 0 and enter(tarnd, "bob").rpc(PING)[0] == 0
        write_keys(tarnd, "bob write")
        hangup(tarnd, ", 1 clients cut off")
        assert ended(ada.sock)


def test_kill():
    with Tarnd(f"[listen l]\npath = {{dir}}/s\n[pool a]\n{SMALL}[pool b]\n{SMALL}") as tarnd:
        control = Control(tarnd.socket)
        a, b, other = (Client(tarnd.socket, POOLS[name]) for name in "aba")
        assert a.client_id == b.client_id == 1 and other.client_id == 2
        assert "several pools" in control.kill(client=1)["error"]["text"]
        for which in ({}, {"client": "1"}, {"client": 1.5}, {"client": -1}, {"client": 99}, {"client": 2**40},
                      {"client": 1, "pool": "c"}, {"client": 1, "pool": 3}):
            assert "text" in control.kill(**which)["error"], which
        assert "error" in control.ask_text(b'{"kill": 1}')
        killed = control.kill(client=1, pool="b")["killed"]
        assert killed["pool"] == "b" and killed["client_id"] == 1 and killed["transport"] == "shm"
        assert ended(b.sock)
        assert a.rpc(PING)[0] == 0
        assert "no such client" in control.kill(client=3)["error"]["text"]
        control.kill(client=2)
        assert ended(other.sock)
        assert "no such client" in control.kill(client=2)["error"]["text"]  # it is not gone, but cut off
        assert f"uid {os.getuid()} has asked for it" in tarnd.log()
        assert tarnd.stats()["daemon"]["clients_expelled"] == 2
        other.close()
        wait(lambda: tarnd.pool(0)["clients"] == 1)


def test_kill_is_not_for_everybody():
    if os.geteuid() != 0:
        raise Skip("needs root to be somebody else")
    with Tarnd(f"[listen l]\npath = {{dir}}/s\nmode = 0777\n[pool main]\n{SMALL}") as tarnd:
        client = Client(tarnd.socket, MAIN)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgid(65534)
            os.setuid(65534)
            answer = Control(tarnd.socket).kill(client=client.client_id)
            os.write(write, answer["error"]["name"].encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 100) == b"EPERM"
        assert client.rpc(PING)[0] == 0
        assert tarnd.stats()["daemon"]["clients_expelled"] == 0


def test_listeners_of_pools():
    with Tarnd(f"[listen l]\npath = {{dir}}/s\n[listen m]\npath = {{dir}}/t\n[pool a]\n{SMALL}listen = l\n[pool b]\n{SMALL}"
               ) as tarnd:
        Client(tarnd.socket, POOLS["a"]).close()
        here = Client(f"{tarnd.dir}/t", POOLS["b"])
        assert refused(f"{tarnd.dir}/t", POOLS["a"]).reason == "transport"
        assert "is not offered at listener m" in tarnd.log()
        pools = {pool["name"]: pool for pool in Control(tarnd.socket).ask("pools")["pools"]}
        assert pools["a"]["listeners"] == ["l"] and pools["b"]["listeners"] == ["l", "m"]
        assert pools["a"]["atomics"] == "cpu"
        listed = [c for c in Control(tarnd.socket).ask("clients")["clients"] if c["pool"] == "b"][0]
        assert (listed["listener"], listed["transport"], listed["client_id"]) == ("m", "shm", here.client_id)


def test_atomics_by_message():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN)
        memory = client.map()
        last = client.bytes - 8
        assert client.rpc(CAS, struct.pack("<QQq", last, 0, 5)) == (0, 0, 0)
        assert client.rpc(CAS, struct.pack("<QQq", last, 0, 6)) == (0, 0, 5)
        assert client.rpc(FAA, struct.pack("<QQq", last, 0, -7)) == (0, 0, 5)
        assert struct.unpack_from("<q", memory, last)[0] == -2
        before = memory[:4096]
        for offset in (0, 48, 1024, 4095, 4088, last + 1, client.bytes, 2**64 - 8):
            for kind in (CAS, FAA):
                assert client.rpc(kind, struct.pack("<QQq", offset, 0, 1))[0] == -1108, (kind, offset)
        assert memory[:1024] == before[:1024] and memory[1032:4096] == before[1032:]
        rpcs = tarnd.pool()["rpcs"]
        assert rpcs["cas"] == 10 and rpcs["faa"] == 9, rpcs


def test_max_clients():
    with Tarnd() as tarnd:
        clients = [Client(tarnd.socket, MAIN) for _ in range(8)]
        reason = refused(tarnd.socket)
        assert reason.reason == "clients" and reason.detail == 8 and reason.retry_ms > 0
        ids = {client.client_id for client in clients}
        clients.pop().close()
        wait(lambda: tarnd.pool()["clients"] == 7)
        assert Client(tarnd.socket, MAIN).client_id not in ids
        assert tarnd.pool()["handshakes_refused"] == {"clients": 1}


def test_several_pools_and_listeners():
    with Tarnd(f"[listen l]\npath = {{dir}}/s\n[listen m]\npath = {{dir}}/t\n[pool a]\n{SMALL}[pool b]\nsize = 16M\n"
               "hugepages = off\nprefault = no\nmax_clients = 4\n") as tarnd:
        a, b = Client(tarnd.socket, POOLS["a"]), Client(f"{tarnd.dir}/t", POOLS["b"])
        assert (a.bytes, b.bytes) == (8 << 20, 16 << 20) and a.incarnation != b.incarnation
        memory = a.map()
        memory[a.bytes - 1] = 77
        assert b.map()[b.bytes - 1] == 0 and Client(f"{tarnd.dir}/t", POOLS["a"]).map()[a.bytes - 1] == 77
        pools = Control(tarnd.socket).ask("pools")["pools"]
        assert [(p["name"], p["bytes"], p["max_clients"]) for p in pools] == [("a", 8 << 20, 8), ("b", 16 << 20, 4)], pools
        assert refused(tarnd.socket).reason == "no_pool"


# ---- clients that end ----


def superblock(memory):
    """(page table's offset, pages' offset, number of pages)"""
    page_table, pages = struct.unpack_from("<Q", memory, 72)[0], struct.unpack_from("<Q", memory, 112)[0]
    return page_table, pages, struct.unpack_from("<I", memory, 124)[0]


def claim(client, memory, kind=5):
    """Claims a page that the daemon names, as a client does."""
    status, page, _ = client.rpc(PAGE, struct.pack("<I", kind))
    assert status == 0
    offset = superblock(memory)[0] + 8 * page
    word = struct.unpack_from("<Q", memory, offset)[0]
    struct.pack_into("<Q", memory, offset, 2 | kind << 3 | client.slot << 8 | ((word >> 24) + 1) << 24)
    return page


def test_dead_client_leaves_orphans():
    with Tarnd() as tarnd:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            client = Client(tarnd.socket, MAIN)
            memory = client.map()
            pages = {claim(client, memory) for _ in range(3)}
            os.write(write, bytes([client.slot, len(pages)]))
            time.sleep(1000)
        slot, pages = os.read(read, 2)
        assert pages == 3, "the daemon has named a page twice"
        pool = tarnd.pool()
        assert pool["pages"]["slab"] == 3 and pool["clients"] == 1
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        wait(lambda: tarnd.pool()["clients"] == 0)
        pool = tarnd.pool()
        assert pool["orphan_pages"] == 3 and pool["pages"]["slab"] == 0, pool["pages"]
        assert pool["clients_ended_dead"] == 1 and pool["clients_ended_clean"] == 0
        assert pool["classes"][0]["orphan"] == 3
        assert "has left 3 pages behind" in tarnd.log()
        # Orphans name nobody: the slot is free at once, for a client with another id.
        clients = [Client(tarnd.socket, MAIN) for _ in range(8)]
        assert slot in {client.slot for client in clients}
        assert len({client.client_id for client in clients}) == 8
        assert refused(tarnd.socket).reason == "clients"


def test_clean_end():
    with Tarnd() as tarnd:
        for _ in range(20):
            client = Client(tarnd.socket, MAIN)
            assert client.rpc(PING)[0] == 0
            client.close()
        wait(lambda: tarnd.pool()["clients_ended_clean"] == 20)
        pool = tarnd.pool()
        assert pool["clients_ended_dead"] == 0 and pool["orphan_pages"] == 0 and pool["handshakes_accepted"] == 20
        assert pool["rpcs"]["ping"] == 20


def test_client_that_sends_garbage_is_expelled_but_kept_until_it_goes():
    with Tarnd() as tarnd:
        for number, packet in enumerate((b"x", b"y" * 5000, b"", b"\x63" + bytes(39)), 1):
            client = Client(tarnd.socket, MAIN)
            client.sock.send(packet)
            assert ended(client.sock)
            time.sleep(0.3)
            pool = tarnd.pool()
            # Its memory is still mapped: its slot must not go to somebody else.
            assert pool["clients"] == 1, (packet, pool["clients"])
            client.close()
            wait(lambda: tarnd.pool()["clients"] == 0)
            assert tarnd.stats()["daemon"]["clients_expelled"] == number


def test_client_that_does_not_read_replies_is_dropped():
    with Tarnd() as tarnd:
        client, other = Client(tarnd.socket, MAIN), Client(tarnd.socket, MAIN)
        client.sock.settimeout(1)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            end = time.monotonic() + PATIENCE
            while "does not read the replies" not in tarnd.log() and time.monotonic() < end:
                with contextlib.suppress(TimeoutError):
                    client.sock.send(client.message(PING))
        assert "does not read the replies" in tarnd.log()
        assert other.rpc(PING)[0] == 0
        client.close()
        wait(lambda: tarnd.pool()["clients"] == 1)


def test_requests_of_a_counter_are_checked():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN)
        _, pages, _ = superblock(client.map())
        for offset, word in ((0, 0), (1024, 1), (pages, 0), (pages + 9, 0), (1 << 63, 0), (client.bytes, 0), (client.bytes - 56, 0)):
            assert client.rpc(ADD, struct.pack("<QQq", offset, word, 1))[0] == -1108
        assert client.rpc(ADD, struct.pack("<QQq", pages + 8, 2, 1))[0] == -1003  # another word stands there
        assert client.rpc(ADD, struct.pack("<QQq", pages + 8, 0, 1))[0] == -1108  # no committed word
        assert tarnd.pool()["rpcs"]["add"] == 9


def test_new_client_id():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN)
        status, number, _ = client.rpc(NUMBER)
        assert status == 0 and number > client.client_id
        assert Control(tarnd.socket).ask("clients")["clients"][0]["client_id"] == number


# ---- guests ----


def test_silent_guests_are_sent_away_and_keep_nobody_out():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN)
        guests = [connect(tarnd.socket) for _ in range(300)]  # more than are let in at once
        begin = time.monotonic()
        for _ in range(100):
            assert client.rpc(PING)[0] == 0
        assert time.monotonic() - begin < 5
        Client(tarnd.socket, MAIN).close()  # waits in the backlog until the first guests are gone
        assert 3 < time.monotonic() - begin < 30
        for guest in guests:
            guest.settimeout(PATIENCE)
            assert ended(guest)
        assert "sent no handshake" in tarnd.log()


def test_no_descriptors_left():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    with Tarnd(start=False) as tarnd:
        tarnd.start(preexec_fn=limit)
        guests = [connect(tarnd.socket) for _ in range(60)]
        tarnd.wait_log("accept: ")

        def cpu():
            with open(f"/proc/{tarnd.process.pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        used = cpu()
        time.sleep(1)
        assert cpu() - used < 0.5, "spins"
        for guest in guests:
            guest.close()
        client = Client(tarnd.socket, MAIN)
        assert client.rpc(PING)[0] == 0
        assert tarnd.stats()["daemon"]["accept_errors"] > 0


# ---- control ----


def test_control_questions():
    with Tarnd() as tarnd:
        control = Control(tarnd.socket)
        ping = control.ask("ping")
        assert ping["schema"] == 1 and ping["daemon"]["pid"] == tarnd.process.pid
        for text in (b"", b"{", b"[]", b"{}", b'{"get": 5}', b'{"get": "wat"}', b'{"get":"ping","get":"stats"}', b"\xff\xfe",
                     b"[" * 4000, b'"' + b"x" * 4000 + b'"'):
            answer = control.ask_text(text)
            assert answer["schema"] == 1 and "error" in answer, (text, answer)
        assert control.ask("version")["daemon"]["version"]
        stats = control.ask("stats")
        pool = stats["pools"][0]
        pages = pool["pages"]
        assert pages["total"] == sum(pages[name] for name in ("free", "index", "slab", "full", "partial", "orphan"))
        assert pool["hugepage_bytes"] == os.sysconf("SC_PAGE_SIZE") and pool["epoch"] >= 1
        control.sock.send(struct.pack("<IB3x", 0x43524154, 1) + b"x" * 5000)
        assert ended(control.sock)


def test_hostile_telemetry():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN)
        memory = client.map()
        base = 4096 + 1024 * client.slot
        for word in range(104 // 8):
            struct.pack_into("<Q", memory, base + 128 + 8 * word, 2**64 - 1)
        stats = tarnd.pool()
        assert 0 < stats["operations"]["gets"] < 2**63 and stats["clients_not_reporting"] == 0
        memory[base : base + 64] = b"\xff" * 64  # what it says of itself is not what is believed
        listed = Control(tarnd.socket).ask("clients")["clients"][0]
        assert listed["pid"] == os.getpid() and listed["client_id"] == client.client_id and listed["reporting"]
        memory.close()
        client.close()
        wait(lambda: tarnd.pool()["clients"] == 0)
        assert tarnd.pool()["operations"]["gets"] > 0, "an ended client's operations stay in the sum"


def test_scribbled_pool_does_not_stop_the_daemon():
    with Tarnd() as tarnd:
        client = Client(tarnd.socket, MAIN)
        memory = client.map()
        seed = 1
        for offset in range(0, client.bytes, 8):
            seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
            struct.pack_into("<Q", memory, offset, seed)
        for kind in range(32):
            client.rpc(PAGE, struct.pack("<I", kind))
        time.sleep(1.2)
        assert tarnd.pool()["pages"]["damaged"] >= 0
        other = Client(tarnd.socket, MAIN)
        assert other.rpc(PING)[0] == 0
        client.close()
        wait(lambda: tarnd.pool()["clients"] == 1)


if __name__ == "__main__":
    run([value for name, value in list(globals().items()) if name.startswith("test_") and (not sys.argv[1:] or name in sys.argv[1:])])
