# SPDX-License-Identifier: BSD-2-Clause
"""etcd without its leader, and without a quorum, while clients work."""

from clustertest import CACHE, FABRIC, KEYS, LONG, Cluster, Load, freeze, note, wait_until

FEW = 30  # each call that can not succeed takes its whole time limit


def all_written(load, keys=FEW):
    """Each key can be written again."""
    wait_until(lambda: load.pass_over("write")["acked"] == keys, lambda: f"all keys can be written: {load.said()}", LONG)


def test_leader_killed():
    """With a new leader all goes on: the map is fresh again, and changes. The killed one is started again."""
    with Cluster(lease="20s") as cluster, Load(cluster.nodes, "sessions=2", "pause=200") as load:
        load.do("fill")
        load.begin("run")
        leader = cluster.etcd.leader()
        cluster.etcd.kill(leader)
        drained = cluster.nodes[(leader + 1) % 3]
        asked = cluster.nodes[(leader + 2) % 3]
        wait_until(lambda: asked.tarn("drain", drained.name, check=None).returncode == 0, lambda: f"a drain begins: {asked.log()}", LONG)
        cluster.is_state(drained.name, "draining", asked)
        load.stop()
        all_written(load, KEYS)
        cluster.etcd.start(leader)
        wait_until(lambda: asked.tarn("undrain", drained.name, check=None).returncode == 0, lambda: f"undrained: {asked.log()}", LONG)
        cluster.settled()
        load.do("check")


def without_quorum(cluster):
    """Two of three etcd stand still."""
    for i in (1, 2):
        assert freeze(cluster.etcd.processes[i])


def with_quorum(cluster):
    for i in (1, 2):
        cluster.etcd.go_on(i)


def fenced(cluster):
    return any("the lease is lost" in node.log() for node in cluster.nodes)


def test_no_quorum():
    """Behind the bound writes end, and say why; reads go on until members have lost their leases, and then no key is missing. All of
    that is over by itself."""
    with Cluster(lease="40s") as cluster, Load(cluster.nodes, "limit=100", "sessions=2", keys=FEW, more="map_bound=2000") as load:
        load.do("fill")
        without_quorum(cluster)
        wait_until(lambda: load.pass_over("write")["no_map"] == FEW or fenced(cluster), lambda: f"writes end: {load.said()}", LONG)
        assert "no fresh map of cluster shop" in load.said(), load.said()
        said = load.pass_over("read")
        if fenced(cluster):
            note("the machine was too slow to see reads go on")
        else:
            assert said["failures"] == 0, (said, load.said())
        for node in cluster.nodes:
            wait_until(lambda node=node: "the lease is lost" in node.log(), lambda node=node: f"it fences itself: {node.log()}", LONG)
        # who has the memory mapped keeps it, and what it finds there is right: the owner is the same. (One that is missing would end the load.)
        load.pass_over("read")
        if FABRIC:
            wait_until(lambda: load.pass_over("read")["failures"] == FEW, lambda: f"reads end: {load.said()}", LONG)
        with_quorum(cluster)
        cluster.settled()
        load.do("check")
        all_written(load)
        load.do("check")


def test_no_quorum_cache():
    """In a cache pool reads behind the bound are misses."""
    with Cluster(CACHE, lease="20s") as cluster, Load(cluster.nodes, "limit=100", "sessions=2", keys=FEW, cache=True, more="map_bound=2000") as load:
        load.do("fill")
        without_quorum(cluster)
        wait_until(lambda: load.pass_over("write")["no_map"] == FEW or fenced(cluster), lambda: f"writes end: {load.said()}", LONG)
        wait_until(lambda: load.pass_over("read")["missing"] == FEW, lambda: f"reads are misses: {load.said()}", LONG)
        with_quorum(cluster)
        cluster.settled()
        all_written(load)
        said = load.pass_over("read")
        assert said["missing"] == said["failures"] == 0, (said, load.said())
