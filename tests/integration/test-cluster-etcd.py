# SPDX-License-Identifier: BSD-2-Clause
"""A cluster whose map is in etcd: members join, are drained, go, come back and are fenced; a store pool keeps its keys. TAP."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time

from etcdtest import Etcd, wait_until
from tarntest import BUILD, PATIENCE, TARND, Daemon, freeze, run, tarn_json

SHARDS = 4096
POOL = "size = 16M\nhugepages = off\nmode = cache\n"
STORE = "size = 32M\nhugepages = off\n"
LOAD = os.path.join(BUILD, "tests/integration/cluster-load")
KEYS = 3000
LONG = 10 * PATIENCE  # for what a busy machine has to do, with each key


class Node(Daemon):
    def __init__(self, name, etcd, lease="60s", weight=100, pool=POOL, member=None, of_files=False):
        self.name = name
        if of_files:
            self.files = tempfile.TemporaryDirectory(prefix="tarn-test-pool-", dir="/tmp")
            pool += f"file = {self.files.name}/pool\n"
        super().__init__(
            pool=pool,
            more=f"[cluster]\nname = shop\nmember = {member or name}\nmembership = etcd\netcd_endpoints = {etcd.endpoints}\n"
            f"map_bound = 1s\nlease = {lease}\nweight = {weight}\n",
            ready=False,
            fabric="",
        )

    def begin(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([TARND, "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self):
        self.begin()
        self.wait_ready()

    def wait_ready(self, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while self.tarn("members", check=None).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("tarnd did not become ready:\n" + self.log())
            time.sleep(0.05)

    def members(self):
        return self.do("members")

    def cluster(self):
        return self.members()["cluster"]

    def do(self, *arguments, check=0):
        return tarn_json("-u", self.control, "--timeout", f"{PATIENCE}s", *arguments, check=check)

    def state_of(self, name):
        return {row["name"]: row["state"] for row in self.members()["members"]}.get(name)

    def events(self):
        return [line for line in self.log().splitlines() if "cluster shop" in line]


@contextlib.contextmanager
def cluster(names="abc", **options):
    """etcd and its members, started together."""
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(Etcd())
        nodes = [stack.enter_context(Node(name, etcd, **options)) for name in names]
        for node in nodes:
            node.begin()
        for node in nodes:
            node.wait_ready()
        yield etcd, nodes


def wait_settled(nodes, shares):
    return settled(nodes, shares, LONG)


def settled(nodes, shares=None, patience=PATIENCE):
    """Each shard has an owner among these, who has opened it, and all use the same map. shares: of each, some
    per cent more or less: the map's seed is another one in each run. How even it has to be is tests/unit/test-cluster-map.c's."""
    seen = []

    def ask():
        seen[:] = [node.cluster() for node in nodes]
        return (
            len({one["epoch"] for one in seen}) == 1
            and all(one["shards_open"] == one["shards_owned"] for one in seen)
            and all(one["shards_unavailable"]["nobody"] == 0 for one in seen)
            and sum(one["shards_owned"] for one in seen) == SHARDS
            and (
                shares is None
                or all(0.9 * share * SHARDS <= one["shards_owned"] <= 1.1 * share * SHARDS for share, one in zip(shares, seen))
            )
        )

    wait_until(ask, lambda: f"all shards are open: {seen}\n" + "\n".join(nodes[0].events()[-10:]), patience)
    return seen


def test_join():
    """Three that begin at the same moment share the shards; a fourth one gets its share."""
    with cluster() as (etcd, nodes):
        settled(nodes, [1 / 3] * 3)
        assert sorted(row["number"] for row in nodes[0].members()["members"]) == [1, 2, 3]
        with Node("d", etcd) as fourth:
            fourth.start()
            settled([*nodes, fourth], [1 / 4] * 4)


def test_drain():
    with cluster() as (_, nodes):
        settled(nodes, [1 / 3] * 3)
        answer = nodes[0].do("drain", "b", "--wait")
        assert answer["shards_moving"] > 0, answer
        assert nodes[2].state_of("b") == "draining"
        settled(nodes, [1 / 2, 0, 1 / 2])
        # as it is already
        nodes[1].do("drain", "b")
        nodes[0].do("drain", "a")
        settled(nodes, [0, 0, 1])
        answer = nodes[0].do("drain", "c", check=1)
        assert "no other member of cluster 'shop' is up" in answer["error"]["text"], answer
        assert "no member 'x'" in nodes[0].do("drain", "x", check=1)["error"]["text"]
        nodes[2].do("undrain", "a")
        nodes[2].do("undrain", "b")
        settled(nodes, [1 / 3] * 3)
        # a member that owns nothing leaves when its daemon ends
        nodes[0].do("drain", "c", "--wait")
        nodes[2].stop()
        wait_until(lambda: nodes[0].state_of("c") == "left", "c has left")
        nodes[2].start()
        settled(nodes, [1 / 3] * 3)


def test_gone_and_back():
    """Shards of a member that ends, or dies, are taken by the others; it gets them back."""
    with cluster(lease="10s") as (_, nodes):
        settled(nodes, [1 / 3] * 3)
        nodes[1].stop()
        wait_until(lambda: nodes[0].state_of("b") == "down", "b is down")
        settled([nodes[0], nodes[2]], [1 / 2] * 2)
        nodes[1].start()
        settled(nodes, [1 / 3] * 3)
        assert "is up" in nodes[0].do("forget", "b", check=1)["error"]["text"]
        nodes[1].kill()
        wait_until(lambda: nodes[0].state_of("b") == "down", "b is down")
        settled([nodes[0], nodes[2]], [1 / 2] * 2)
        nodes[0].do("forget", "b")
        assert nodes[2].do("forget", "b") and nodes[0].state_of("b") == "left"
        nodes[1].start()
        settled(nodes, [1 / 3] * 3)


def test_fencing():
    """Without etcd the lease ends: each member cuts all off; with etcd again they go on by themselves."""
    with cluster(lease="10s") as (etcd, nodes):
        settled(nodes)
        etcd.freeze(0)
        for node in nodes:
            wait_until(lambda: "the lease is lost" in node.log(), "it fences itself")
            assert node.cluster()["shards_open"] == 0
        etcd.go_on(0)
        for node in nodes:
            wait_until(lambda: "there is a new lease" in node.log(), "it goes on")
        settled(nodes, [1 / 3] * 3)


def test_stopped():
    """Who stands still for longer than its lease has nothing any more when it goes on."""
    with cluster(lease="10s") as (_, nodes):
        settled(nodes, [1 / 3] * 3)
        freeze(nodes[2].process)
        wait_until(lambda: nodes[0].state_of("c") == "down", "c is taken for dead")
        settled(nodes[:2], [1 / 2] * 2)
        nodes[2].process.send_signal(signal.SIGCONT)
        wait_until(lambda: "the lease is lost" in nodes[2].log(), "it fences itself")
        settled(nodes, [1 / 3] * 3)


def test_weight():
    """Another weight moves nothing by itself; rebalance does, and its dry run says how much."""
    with cluster("ab") as (_, nodes):
        settled(nodes, [1 / 2] * 2)
        with open(nodes[0].config, encoding="utf-8") as file:
            text = file.read()
        with open(nodes[0].config, "w", encoding="utf-8") as file:
            file.write(text.replace("weight = 100", "weight = 300"))
        nodes[0].tarn("reload")
        wait_until(lambda: [row["weight"] for row in nodes[1].members()["members"] if row["name"] == "a"] == [300], "the weight")
        settled(nodes, [1 / 2] * 2)
        dry = nodes[1].do("rebalance", "--dry-run")["shards_moving"]
        assert 0.2 * SHARDS < dry < 0.3 * SHARDS, dry
        settled(nodes, [1 / 2] * 2)
        assert nodes[1].do("rebalance")["shards_moving"] == dry
        settled(nodes, [3 / 4, 1 / 4])
        assert nodes[1].do("rebalance")["shards_moving"] == 0


class Load:
    """A client that knows what it has written, and ends when it finds something else."""

    def __init__(self, nodes, keys=KEYS, more=""):
        uri = "tarn:" + ",".join(node.socket for node in nodes) + "?pool=main" + more
        self.process = subprocess.Popen([LOAD, uri, str(keys)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if failure[0] is not None:
            self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        code = self.process.wait(LONG)
        assert failure[0] is not None or code == 0, code

    def begin(self, what):
        self.process.stdin.write(f"{what}\n".encode())
        self.process.stdin.flush()

    def end(self):
        said = self.process.stdout.readline().decode().split()
        assert said[:1] == ["done"], said
        return dict(zip(said[1::2], map(int, said[2::2])))

    def do(self, what):
        self.begin(what)
        return self.end()

    def stop(self):
        """What runs ends, and its answer is given; then that of the line that has ended it."""
        self.begin("stop")
        said = self.end()
        self.end()
        return said


def keys_of(node):
    return node.do("stats")["pools"][0]["keys"]


def emptied(node):
    """Behind a drain: its shards have gone, and then their keys."""
    wait_until(lambda: node.cluster()["shards_owned"] == 0, lambda: f"it owns nothing: {node.cluster()}\n{node.log()[-3000:]}", LONG)
    wait_until(lambda: keys_of(node) == 0, lambda: f"it has no keys: {keys_of(node)}", LONG)


def test_store():
    """Shards of a store pool go to other members with their keys, while a client reads, writes and deletes."""
    with cluster(pool=STORE) as (_, nodes):
        wait_settled(nodes, [1 / 3] * 3)
        with Load(nodes) as load:
            load.do("fill")
            wait_until(lambda: keys_of(nodes[1]), "keys of b are counted", LONG)
            load.begin("run")
            nodes[0].do("drain", "b")
            emptied(nodes[1])
            wait_settled(nodes, [1 / 2, 0, 1 / 2])
            said = load.stop()
            assert said["writes"] > KEYS, said
            load.do("check")
            moved = nodes[1].cluster()["handover"]
            assert moved["phase"] == "idle" and moved["shards_outgoing"] == 0 and moved["shards_moved"] > SHARDS / 4, moved
            assert moved["bytes_moved"] > moved["keys_moved"] > KEYS / 10, moved
            load.begin("run")
            nodes[2].do("undrain", "b")
            wait_settled(nodes, [1 / 3] * 3)
            load.stop()
            load.do("check")


def test_store_killed():
    """A member that is killed while its shards go is started again: no key is lost, and the drain goes on. (The pool wants keys.)"""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tarn-test-keys-", dir="/tmp"))
        reader, writer = f"r1 read {'22' * 32}\n", f"w1 write {'11' * 32}\n"
        for name, text in (("all", reader + writer), ("mine", writer)):
            with open(f"{folder}/{name}", "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(text)
        pool = f"{STORE}auth = key\nkey_file = {folder}/all\n"
        _, nodes = stack.enter_context(cluster("ab", pool=pool, lease="10s", of_files=True))
        wait_settled(nodes, [1 / 2] * 2)
        with Load(nodes, more=f"&key={folder}/mine") as load:
            load.do("fill")
            nodes[0].do("drain", "b")
            wait_until(lambda: nodes[1].cluster()["shards_owned"] < 0.45 * SHARDS, "some shards have moved", LONG)
            nodes[1].kill()
            nodes[1].begin()
            nodes[1].wait_ready(LONG)
            load.do("check")
            emptied(nodes[1])
            load.do("check")


def test_one_name():
    """Two with one name: the second one gets no place, and says why."""
    with cluster("a") as (etcd, nodes):
        settled(nodes)
        with Node("other", etcd, member="a") as second:
            second.begin()
            wait_until(lambda: "membership: " in second.log(), "it says what is wrong")
            assert second.process.poll() is None
            second.kill()
        assert settled(nodes)[0]["shards_owned"] == SHARDS


def test_killed():
    """Its last life's lease has long to go: whose pool was kept is back at once, and a copy of that pool says nothing."""
    with Etcd() as etcd, Node("a", etcd, lease="5min", of_files=True) as node:
        node.start()
        settled([node])
        with Node("other", etcd, member="a", of_files=True) as second:
            path, copy = f"{node.files.name}/pool", f"{second.files.name}/pool"
            subprocess.run(["cp", "--sparse=always", path, copy], check=True)
            second.begin()
            wait_until(lambda: "another member has the name" in second.log(), "the copy is refused")
            second.kill()
        node.kill()
        node.start()
        assert settled([node])[0]["shards_owned"] == SHARDS
        # and once more: the record is the second life's now
        node.kill()
        node.start()
        assert "another member has the name" not in node.log()


def test_refused():
    with Etcd() as etcd:
        with Node("a", etcd, weight=0) as node:
            result = subprocess.run([TARND, "-c", node.config], capture_output=True, timeout=PATIENCE, check=False)
            assert result.returncode > 0 and "weight 0" in result.stderr.decode(), result.stderr


def test_static_refuses_wishes():
    """(A cluster with a fixed map is changed by its file: test-cluster.py.)"""
    with Daemon(pool=POOL, fabric="") as alone:
        for verb in (["drain", "a"], ["undrain", "a"], ["forget", "a"], ["rebalance"]):
            answer = tarn_json("-u", alone.control, *verb, check=1)
            assert "in no cluster" in answer["error"]["text"], answer


if __name__ == "__main__":
    run(
        [
            test_join,
            test_drain,
            test_gone_and_back,
            test_fencing,
            test_stopped,
            test_weight,
            test_store,
            test_store_killed,
            test_one_name,
            test_killed,
            test_refused,
            test_static_refuses_wishes,
        ]
    )
