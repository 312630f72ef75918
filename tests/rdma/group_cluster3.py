# SPDX-License-Identifier: BSD-2-Clause
"""A cluster over RDMA on three hosts with a tarnd and an etcd each, and a fourth one with clients, while things fail: the same as
make check-cluster, with fewer keys and more time, since the machine has one processor for all of it."""

import os
import sys

os.environ["CLUSTER_FABRIC"] = "rxe-nic"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
from clustertest import LONG, SHARDS, Cluster, Load, counted, emptied, freeze, wait_until  # noqa: E402
from vmtest import limit  # noqa: E402

POOL = "size = 16M\nhugepages = off\n"
KEYS = 60  # each call that can not succeed takes its whole time limit
ALONE = 400  # where none has to fail


def three(lease="30s"):
    # a request to etcd may take a second here
    return Cluster(POOL, lease=lease, bound="8s")


def clients(cluster, *words, keys=KEYS):
    return Load(cluster.nodes, "sessions=2", "pause=2000", *words, keys=keys, more="map_bound=8000")


def all_written(load, keys=KEYS):
    wait_until(lambda: load.pass_over("write")["acked"] == keys, lambda: f"all keys can be written: {load.said()}", LONG)


@limit(400)
def test_paused():
    """Who stands still for longer than its lease: nothing it holds is served to a client, though its memory is there and its NIC
    answers; nothing of it is acknowledged. It comes back by itself, with all its keys."""
    with three(lease="20s") as cluster, clients(cluster, "limit=300") as load:
        load.do("fill")
        there = KEYS - counted(cluster.nodes, KEYS)[2]
        load.begin("run")
        cluster.nodes[2].freeze()
        cluster.is_state("h3", "down")
        load.stop()
        said = load.one_away(there, KEYS)
        assert said["failures"] == said["unavailable"], (said, load.said())
        cluster.nodes[2].go_on()
        wait_until(lambda: "the lease is lost" in cluster.nodes[2].log(), "it fences itself", LONG)
        cluster.settled()
        load.do("check")
        all_written(load)
        load.do("check")


@limit(500)
def test_partitions():
    """Each pair of hosts, both ways, and one way: the third one is heard by both, so writes go on or go on again."""
    with three() as cluster, clients(cluster, "limit=300") as load:
        load.do("fill")
        for one, other, one_way in (("h1", "h2", False), ("h2", "h3", False), ("h3", "h1", False), ("h3", "h2", True)):
            load.begin("run")
            cluster.hosts.cut(one, other, one_way)
            wait_until(lambda: load.stop() and load.pass_over("write")["acked"] > KEYS / 2, lambda: f"writes go on: {load.said()}", LONG)
            cluster.hosts.heal()
            cluster.settled()
            all_written(load)
            load.do("check")


@limit(500)
def test_rolling():
    """Each is drained, stopped, started, undrained: every acknowledged write is found, and every value is right."""
    with three() as cluster, clients(cluster, keys=ALONE) as load:
        load.do("fill")
        for node in cluster.nodes:
            other = cluster.nodes[cluster.nodes.index(node) - 1]
            load.begin("run")
            other.do("drain", node.name)
            emptied(node)
            node.stop()
            cluster.is_state(node.name, "left", other)
            node.start()
            other.tarn("undrain", node.name, check=None)
            cluster.settled()
            said = load.stop()
            assert said["writes"] > 0, said
            load.do("check")


@limit(400)
def test_leader_killed():
    """With a new leader all goes on: the map is fresh again, and changes."""
    with three() as cluster, clients(cluster, "limit=300") as load:
        load.do("fill")
        load.begin("run")
        leader = cluster.etcd.leader()
        cluster.etcd.kill(leader)
        drained, asked = cluster.nodes[(leader + 1) % 3], cluster.nodes[(leader + 2) % 3]
        wait_until(lambda: asked.tarn("drain", drained.name, check=None).returncode == 0, lambda: f"a drain begins: {asked.log()}", LONG)
        cluster.is_state(drained.name, "draining", asked)
        load.stop()
        all_written(load)
        cluster.etcd.start(leader)
        wait_until(lambda: asked.tarn("undrain", drained.name, check=None).returncode == 0, lambda: f"undrained: {asked.log()}", LONG)
        cluster.settled()
        load.do("check")


@limit(400)
def test_no_quorum():
    """Two of three etcd stand still until all members have lost their leases: then nothing can be written. All of that is over by itself,
    and no key is missing."""
    with three(lease="20s") as cluster, clients(cluster, "limit=300") as load:
        load.do("fill")
        load.begin("run")
        for i in (1, 2):
            assert freeze(cluster.etcd.processes[i])
        for node in cluster.nodes:
            wait_until(lambda node=node: "the lease is lost" in node.log(), lambda node=node: f"it fences itself: {node.log()}", LONG)
        load.stop()
        wait_until(lambda: load.pass_over("write")["failures"] == KEYS, lambda: f"writes end: {load.said()}", LONG)
        # what is read is right: the owner is the same (a key that is missing would end the load)
        load.pass_over("read")
        for i in (1, 2):
            cluster.etcd.go_on(i)
        cluster.settled()
        load.do("check")
        all_written(load)
        load.do("check")


@limit(400)
def test_drain_cut():
    """Two members can not reach each other while one of them is drained: what should go to the other one waits, or finds its way; when they
    can again, all of it has gone, and no key is missing."""
    with three() as cluster, clients(cluster, "limit=300", keys=ALONE) as load:
        load.do("fill")
        load.begin("run")
        cluster.hosts.cut("h1", "h2")
        cluster.nodes[2].do("drain", "h1")
        cluster.is_state("h1", "draining", cluster.nodes[2])
        # the third one is heard: its part goes
        before = SHARDS / 3
        wait_until(lambda: cluster.nodes[0].cluster()["shards_owned"] < 0.9 * before, lambda: f"shards go: {cluster.nodes[0].log()[-3000:]}", LONG)
        cluster.hosts.heal()
        emptied(cluster.nodes[0])
        load.stop()
        all_written(load, ALONE)
        load.do("check")
        load.begin("run")
        cluster.nodes[2].do("undrain", "h1")
        cluster.settled()
        load.stop()
        load.do("check")


@limit(400)
def test_clients_cut():
    """Clients that can not reach one of the members, which is up: its keys fail, the others' do not; with the cable again all is there."""
    with three() as cluster, clients(cluster, "limit=300") as load:
        load.do("fill")
        there = KEYS - counted(cluster.nodes, KEYS)[1]
        cluster.hosts.cut("clients", "h2")
        said = {}

        def settled():
            said.update(load.pass_over("write"))
            return said["acked"] == there

        wait_until(settled, lambda: f"{there} keys can be written: {said}\n{load.said()}", LONG)
        said = load.pass_over("read")
        assert said["failures"] == KEYS - there and said["missing"] == 0, (said, load.said())
        cluster.hosts.heal()
        all_written(load)
        load.do("check")
