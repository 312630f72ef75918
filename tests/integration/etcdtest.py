# SPDX-License-Identifier: BSD-2-Clause
"""etcd for tests: real ones on this machine, servers that only pretend, and a member of a cluster by itself."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from tarntest import BUILD, PATIENCE, Skip, freeze

# A machine that is busy with other work, and an etcd that has to find a leader there.
PATIENCE = 3 * PATIENCE

CLIENT = os.path.join(BUILD, "tests/integration/membership-client")


def free_ports(count):
    """Ports that nobody has now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_until(condition, what, patience=PATIENCE):
    """The first true value of condition()."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {patience} s: {what() if callable(what) else what}"
        time.sleep(0.05)


class Etcd:
    """One or more etcd that are one cluster, in a temporary folder."""

    def __init__(self, count=1, tls=None):
        """tls: a folder with ca.pem, server.pem, server.key; clients have to show a certificate of that ca."""
        if not shutil.which("etcd"):
            raise Skip("etcd is not installed (Debian: etcd-server)")
        self.folder = tempfile.mkdtemp(prefix="tarn-test-etcd-", dir="/tmp")
        self.tls = tls
        self.scheme = "https" if tls else "http"
        ports = free_ports(2 * count)
        self.ports, self.peers = ports[:count], ports[count:]
        self.processes = [None] * count
        self.endpoints = ", ".join(f"{self.scheme}://127.0.0.1:{port}" for port in self.ports)
        try:
            for i in range(count):
                self.start(i)
            for i in range(count):
                self.healthy(i)
        except BaseException:
            self.close()
            raise

    def start(self, i):
        cluster = ",".join(f"e{j}=http://127.0.0.1:{port}" for j, port in enumerate(self.peers))
        client, peer = f"{self.scheme}://127.0.0.1:{self.ports[i]}", f"http://127.0.0.1:{self.peers[i]}"
        # on a busy machine a leader that says nothing for a second is nothing special
        slow = ["--heartbeat-interval", "500", "--election-timeout", "5000"]
        tls = []
        if self.tls:
            tls = ["--cert-file", f"{self.tls}/server.pem", "--key-file", f"{self.tls}/server.key"]
            tls += ["--client-cert-auth", "--trusted-ca-file", f"{self.tls}/ca.pem"]
        with open(os.path.join(self.folder, f"e{i}.log"), "ab") as log:
            self.processes[i] = subprocess.Popen(
                ["etcd", "--name", f"e{i}", "--data-dir", f"{self.folder}/e{i}", "--unsafe-no-fsync"]
                + ["--listen-client-urls", client, "--advertise-client-urls", client]
                + ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
                + ["--initial-cluster", cluster, "--initial-cluster-token", os.path.basename(self.folder)]
                + slow + tls,
                stdout=log,
                stderr=log,
                env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine},
            )

    def context(self):
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=f"{self.tls}/ca.pem")
        context.load_cert_chain(f"{self.tls}/client.pem", f"{self.tls}/client.key")
        return context

    def post_once(self, path, body, i=0):
        request = urllib.request.Request(
            f"{self.scheme}://127.0.0.1:{self.ports[i]}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE, context=self.context()) as answer:
            return json.load(answer)

    def post(self, path, body, i=0):
        """Until it is done: a busy etcd says 503, and may have done it; then there is nothing left to do."""

        def ask():
            try:
                return self.post_once(path, body, i)
            except urllib.error.HTTPError as error:
                text = error.read().decode(errors="replace")
                if "already" in text:
                    return {"already": True}
                assert error.code in (503, 504), (path, error.code, text)
                return None

        return wait_until(ask, lambda: f"{path} is done: {self.log(i)}")

    def healthy(self, i):
        def ask():
            assert self.processes[i].poll() is None, self.log(i)
            try:
                return self.post_once("/v3/kv/range", {"key": encode("x")}, i)
            except (OSError, urllib.error.URLError):
                return None

        wait_until(ask, lambda: f"etcd {i} answers: {self.log(i)}")

    def log(self, i):
        with open(os.path.join(self.folder, f"e{i}.log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:]

    def kill(self, i, how=signal.SIGKILL):
        self.processes[i].send_signal(how)
        self.processes[i].wait()

    def freeze(self, i):
        freeze(self.processes[i])

    def go_on(self, i):
        self.processes[i].send_signal(signal.SIGCONT)

    def leader(self):
        def ask():
            for i in range(len(self.ports)):
                status = self.post("/v3/maintenance/status", {}, i)
                if status["header"]["member_id"] == status.get("leader"):
                    return f"{i}"
            return None

        return int(wait_until(ask, "there is a leader"))

    def put(self, key, value):
        return self.post("/v3/kv/put", {"key": encode(key), "value": encode(value)})

    def delete(self, key):
        return self.post("/v3/kv/deleterange", {"key": encode(key)})

    def get(self, key):
        kvs = self.post("/v3/kv/range", {"key": encode(key)}).get("kvs", [])
        return base64.b64decode(kvs[0]["value"]).decode() if kvs else None

    def close(self):
        for process in self.processes:
            if process:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def encode(text):
    return base64.b64encode(text.encode()).decode()


class Member:
    """membership-client: what it is told is in `events`."""

    def __init__(self, endpoints, name="m1", boot_id=1, previous=None, more="", lease="60s", bound="40s"):
        self.folder = tempfile.mkdtemp(prefix="tarn-test-member-", dir="/tmp")
        self.config = os.path.join(self.folder, "tarnd.conf")
        self.name, self.boot_id, self.more, self.lease, self.bound = name, boot_id, more, lease, bound
        self.configure(endpoints)
        self.events, self.seen, self.arrived = [], 0, threading.Condition()
        arguments = [CLIENT, self.config, f"{boot_id:x}"] + ([f"{previous:x}"] if previous else [])
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def configure(self, endpoints, more=None):
        self.more = self.more if more is None else more
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(
                "[listen l]\npath = /run/t.sock\n[pool main]\nsize = 8M\n[cluster]\nname = c\nmembership = etcd\n"
                f"member = {self.name}\nlease = {self.lease}\nmap_bound = {self.bound}\netcd_endpoints = {endpoints}\n{self.more}\n"
            )

    def read(self):
        for line in self.process.stdout:
            with self.arrived:
                self.events.append(json.loads(line))
                self.arrived.notify_all()
        with self.arrived:
            self.events.append({"event": "end"})
            self.arrived.notify_all()

    def do(self, command):
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def expect(self, event, patience=PATIENCE, **values):
        """The next event like this, behind the last one that was expected; others between them are passed over."""

        def find():
            for i in range(self.seen, len(self.events)):
                found = self.events[i]
                if found["event"] == event and all(found.get(name) == value for name, value in values.items()):
                    self.seen = i + 1
                    return found
                if found["event"] == "end":
                    raise AssertionError(f"it has ended: {self.log()[-2000:]}")
            return None

        with self.arrived:
            found = self.arrived.wait_for(find, patience)
        assert found, f"no {event} {values} in {self.events[self.seen:]}, log: {self.log()[-2000:]}"
        return found

    def told(self, event):
        with self.arrived:
            return [found for found in self.events if found["event"] == event]

    def state(self):
        self.do("state")
        return self.expect("state")

    def wait_state(self, condition, what):
        """Until its state is so."""
        last = {}

        def ask():
            last.update(self.state())
            return condition(last) and last

        return wait_until(ask, lambda: f"{what}: {last}, log: {self.log()[-2000:]}")

    def write(self, command):
        self.do(command)
        return self.expect("write")

    def written(self, command):
        """Until it is: on a busy machine a write may take too long, and be unknown."""
        wait_until(lambda: self.write(command)["outcome"] == "written", lambda: f"{command} is written: {self.log()[-2000:]}")

    def wait_log(self, texts, what):
        """Until a line of its log has one of them; the line."""

        def look():
            return next((line for line in self.log().splitlines() if any(text in line for text in texts)), None)

        return wait_until(look, lambda: f"{what}: {self.log()[-2000:]}")

    def freeze(self):
        freeze(self.process)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def quit(self):
        self.do("quit")
        assert self.process.wait(PATIENCE) == 0, self.log()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def pretender(answer):
    """A server that is no etcd: answer(connection) for each connection; its endpoint."""
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()
    connections = []

    def serve(connection):
        with contextlib.suppress(OSError), connection:
            answer(connection)

    def accept():
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connections.append(connection)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        over.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()


if os.environ.get("CLUSTER_BACKEND", "etcd") == "fake":
    from fakeetcd import FakeEtcd as Etcd  # noqa: F811  pylint: disable=wrong-import-position
