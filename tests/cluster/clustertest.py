# SPDX-License-Identifier: BSD-2-Clause
"""What the groups of check-cluster share: three hosts with a tarnd and an etcd each, and clients that know what they may find."""

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))
from etcdtest import Etcd, wait_until  # noqa: E402
from hosts import CLIENTS, Hosts  # noqa: E402
from tarntest import BUILD, PATIENCE, TARND, Daemon, Skip, freeze, tarn_json  # noqa: E402, F401

etcd_tests = importlib.import_module("test-cluster-etcd")
LOAD = os.path.join(BUILD, "tests/integration/cluster-load")
WATCH = os.path.join(BUILD, "tests/cluster/map-watch")
FABRIC = os.environ.get("CLUSTER_FABRIC", "")
SHARDS, LONG = etcd_tests.SHARDS, etcd_tests.LONG
STORE = "size = 32M\nhugepages = off\n"
CACHE = STORE + "mode = cache\n"
KEYS = int(os.environ.get("CLUSTER_KEYS", "3000"))
NAMES = ("h1", "h2", "h3")


class HostsEtcd(Etcd):
    """One etcd on each host."""

    def __init__(self, hosts, names):
        if not shutil.which("etcd"):
            raise Skip("etcd is not installed (Debian: etcd-server)")
        self.hosts, self.names = hosts, names
        self.folder = tempfile.mkdtemp(prefix="tarn-test-etcd-", dir="/tmp")
        self.processes = [None] * len(names)
        self.endpoints = ", ".join(self.client(i) for i in range(len(names)))
        try:
            for i in range(len(names)):
                self.start(i)
            for i in range(len(names)):
                self.healthy(i)
        except BaseException:
            self.close()
            raise

    def client(self, i):
        return f"http://{self.hosts.address(self.names[i])}:2379"

    def peer(self, i):
        return f"http://{self.hosts.address(self.names[i])}:2380"

    def start(self, i):
        everybody = ",".join(f"e{j}={self.peer(j)}" for j in range(len(self.names)))
        with open(os.path.join(self.folder, f"e{i}.log"), "ab") as log:
            self.processes[i] = subprocess.Popen(
                [*self.hosts.prefix(self.names[i]), "etcd", "--name", f"e{i}", "--data-dir", f"{self.folder}/e{i}"]
                + ["--listen-client-urls", self.client(i), "--advertise-client-urls", self.client(i)]
                + ["--listen-peer-urls", self.peer(i), "--initial-advertise-peer-urls", self.peer(i)]
                + ["--initial-cluster", everybody, "--initial-cluster-token", os.path.basename(self.folder)]
                # on a busy machine a leader that says nothing for a second is nothing special
                + ["--unsafe-no-fsync", "--heartbeat-interval", "300", "--election-timeout", "3000"],
                stdout=log,
                stderr=log,
                env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine},
            )

    def post_once(self, path, body, i=0):
        """From its own host: this program is on none."""
        result = subprocess.run(
            [*self.hosts.prefix(self.names[i]), sys.executable, "-S", os.path.join(HERE, "post.py"), self.client(i) + path, json.dumps(body)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if result.returncode != 0:
            raise OSError(result.stderr)
        return json.loads(result.stdout)

    def post(self, path, body, i=0):
        def ask():
            try:
                return self.post_once(path, body, i)
            except OSError:
                return None

        return wait_until(ask, lambda: f"{path} is answered: {self.log(i)}")

    def leader(self):
        """Its number. Only while all are there."""

        def ask():
            for i in range(len(self.names)):
                status = self.post("/v3/maintenance/status", {}, i)
                if status["header"]["member_id"] == status.get("leader"):
                    return f"{i}"
            return None

        return int(wait_until(ask, "there is a leader"))


class Node(etcd_tests.Node):
    """tarnd on a host."""

    def __init__(self, hosts, name, etcd, pool=STORE, lease="10s", bound="2s", in_file=False, more=""):
        self.name, self.hosts = name, hosts
        if in_file:
            self.files = tempfile.TemporaryDirectory(prefix="tarn-test-pool-", dir="/tmp")
            pool += f"file = {self.files.name}/pool\n"
        Daemon.__init__(
            self,
            # with RDMA the unix socket is for control alone: else it would be found, hosts have one file system here
            pool=pool + ("listen = rdma\n" if FABRIC and FABRIC != "rxe-nic" else ""),
            more=f"[cluster]\nname = shop\nmember = {name}\nmembership = etcd\netcd_endpoints = {etcd.endpoints}\n"
            f"map_bound = {bound}\nlease = {lease}\n{more}",
            ready=False,
            fabric=FABRIC,
            address=hosts.address(name) if FABRIC else None,
            prefix=hosts.prefix(name),
        )

    def begin(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*self.prefix, TARND, "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self):
        self.begin()
        self.wait_ready(LONG)

    def place(self):
        """As a URI names it."""
        return f"{self.address}:{self.port}" if FABRIC else self.socket

    def freeze(self):
        assert freeze(self.process), self.log()

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


class Load(etcd_tests.Load):
    """cluster-load on the clients' host; see there for its words."""

    def __init__(self, nodes, *words, keys=KEYS, more="", cache=False, host=CLIENTS):
        words = [*words, *(["cache"] if cache else [])]
        self.text = tempfile.NamedTemporaryFile(prefix="tarn-test-load-", dir="/tmp")
        self.process = subprocess.Popen(
            [*Hosts.prefix(host), LOAD, self.uri(nodes, more), str(keys), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.text,
        )

    @staticmethod
    def uri(nodes, more=""):
        # the comma says that a single one is of a cluster
        places = ",".join(node.place() for node in nodes) + ("," if len(nodes) == 1 else "")
        return (f"tarn://{places}/main?{more}" if FABRIC else f"tarn:{places}?pool=main&{more}").rstrip("?&")

    def said(self):
        """What its calls have failed with, each text once."""
        with open(self.text.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self):
        line = self.process.stdout.readline().decode()
        said = line.split()
        assert said[:1] == ["done"], f"{line}{self.said()}"
        return dict(zip(said[1::2], map(int, said[2::2])))

    def pass_over(self, what):
        """One pass over all keys, with the numbers of this pass alone."""
        before = self.do("tell")
        after = self.do(what)
        return {name: value - before[name] for name, value in after.items()}

    def one_away(self, there, keys):
        """A member is away: all keys but its own can be written, its own are unavailable, to writers and readers. What readers were told."""
        said = {}

        def settled():
            said.update(self.pass_over("write"))
            return said["acked"] == there and said["unavailable"] == keys - there

        wait_until(settled, lambda: f"{there} keys can be written, the others are unavailable: {said}\n{self.said()}", LONG)
        said = self.pass_over("read")
        assert said["unavailable"] == keys - there, (said, self.said())
        return said


class Cluster:
    """Hosts, etcd, members, all of them up and settled."""

    def __init__(self, pool=STORE, names=NAMES, **options):
        self.stack = contextlib.ExitStack()
        self.pool, self.options = pool, options
        try:
            self.hosts = self.stack.enter_context(Hosts([*NAMES, *(name for name in names if name not in NAMES)]))
            self.etcd = self.stack.enter_context(HostsEtcd(self.hosts, NAMES))
            self.nodes = [self.add(name) for name in names if name in NAMES]
            for node in self.nodes:
                node.begin()
            for node in self.nodes:
                node.wait_ready(LONG)
            self.settled()
        except BaseException:
            self.stack.close()
            raise

    def add(self, name):
        return self.stack.enter_context(Node(self.hosts, name, self.etcd, self.pool, **self.options))

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        return self.stack.__exit__(*failure)

    def settled(self, nodes=None, even=True):
        """Each shard has an owner among these, who has opened it, all use the same map, and nothing moves. even: and they have about
        the same number of them, so all that had to be moved has been."""
        nodes = nodes or self.nodes

        def still():
            etcd_tests.settled(nodes, [1 / len(nodes)] * len(nodes) if even else None, LONG)
            return all(node.do("map", "show")["shards_moving"] == 0 for node in nodes)

        wait_until(still, lambda: f"nothing moves: {nodes[0].log()[-2000:]}", LONG)

    def is_state(self, name, state, at=None):
        node = at or next(node for node in self.nodes if node.name != name)
        wait_until(lambda: node.state_of(name) == state, lambda: f"{name} is {state}: {node.log()[-2000:]}", LONG)


keys_of, emptied = etcd_tests.keys_of, etcd_tests.emptied


def counted(nodes, keys):
    """How many keys each has, when the keepers have counted them all."""
    wait_until(lambda: sum(keys_of(node) or 0 for node in nodes) == keys, lambda: f"{keys} keys are counted: {[keys_of(n) for n in nodes]}", LONG)
    return [keys_of(node) for node in nodes]


def note(text):
    print(f"# {text}", flush=True)


def since(begin):
    return f"{time.monotonic() - begin:.1f} s"
