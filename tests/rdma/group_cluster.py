# SPDX-License-Identifier: BSD-2-Clause
"""A cluster over RDMA: a member on hostA, one on hostB, clients on hostB. With a fixed map, and with one etcd, on hostA."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile

os.environ["CLUSTER_FABRIC"] = "rxe-nic"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
from clustertest import LONG, SHARDS, HostsEtcd, Load, Node, emptied, wait_until  # noqa: E402
from group_hosts import netem  # noqa: E402
from vmtest import TARND, Daemon, limit  # noqa: E402

KEYS = 400
FEW = 100  # each call that can not succeed takes its whole time limit
POOL = "size = 16M\nhugepages = off\n"


class TwoHosts:
    """Those that rdma-vm has made."""

    @staticmethod
    def address(name):
        return {"hostA": "10.79.0.1", "hostB": "10.79.0.2"}[name]

    @staticmethod
    def prefix(name):
        return ("ip", "netns", "exec", name)


class Fixed(Daemon):
    """A member whose map is a file."""

    wait_ready = Node.wait_ready
    place = Node.place

    def __init__(self, name, where):
        super().__init__(
            POOL,
            more=f"[cluster]\nname = shop\nmember = {name}\nmap = {where}/map.json\n",
            ready=False,
            fabric="rxe-nic",
            address=TwoHosts.address(name),
            prefix=TwoHosts.prefix(name),
        )
        self.name = name

    def begin(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*self.prefix, TARND, "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self):
        self.begin()
        self.wait_ready(LONG)


def write_map(where, members):
    rows = [
        {"name": m.name, "number": n, "state": "up", "weight": 100, "addresses": [{"fabric": "verbs", "address": m.place()}]}
        for n, m in enumerate(members, 1)
    ]
    with open(f"{where}/map.json", "w", encoding="utf-8") as file:
        json.dump({"format": 1, "cluster": "shop", "pool": "main", "mode": "store", "seed": "00000000000000a5", "epoch": 1, "shards": 1024, "members": rows}, file)


@limit(240)
def test_fixed_map():
    """Keys of both members; a cable that is cut: those of the other host can not be reached, and none is missing; a member that is killed."""
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp"))
        members = [stack.enter_context(Fixed(name, where)) for name in ("hostA", "hostB")]
        write_map(where, members)
        for member in members:
            member.start()
        load = stack.enter_context(Load(members, "limit=300", "sessions=2", keys=FEW, host="hostB"))
        load.do("fill")
        load.do("check")
        assert load.pass_over("write")["acked"] == FEW, load.said()
        with netem("loss", "100%"):
            wait_until(lambda: load.pass_over("read")["failures"] > 0, lambda: f"reads fail: {load.said()}", LONG)
        load.do("check")
        members[0].kill()
        wait_until(lambda: load.pass_over("read")["unavailable"] > 0, lambda: f"reads fail: {load.said()}", LONG)


@limit(300)
def test_drain():
    """Shards with their keys go from host to host through the mover's connection, while a client works."""
    with contextlib.ExitStack() as stack:
        hosts = TwoHosts()
        etcd = stack.enter_context(HostsEtcd(hosts, ("hostA",)))
        # a request to etcd may take a second here, and so does each hand-over of 32 shards: hostB gets few of them
        nodes = [
            stack.enter_context(Node(hosts, name, etcd, POOL, lease="60s", bound="16s", more=f"weight = {weight}\n"))
            for name, weight in (("hostA", 1000), ("hostB", 50))
        ]
        nodes[0].start()
        load = stack.enter_context(Load(nodes[:1], "sessions=2", "pause=2000", keys=KEYS, host="hostB", more="map_bound=16000"))
        load.do("fill")
        load.begin("run")
        nodes[1].start()
        wait_until(lambda: nodes[1].cluster()["shards_open"] > SHARDS / 30, lambda: f"hostB has a share: {nodes[1].log()[-2000:]}", LONG)
        load.stop()
        load.do("check")
        load.begin("run")
        nodes[0].do("drain", "hostB")
        emptied(nodes[1])
        load.stop()
        load.do("check")
