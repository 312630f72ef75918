# SPDX-License-Identifier: BSD-2-Clause
"""Hosts that do not hear each other, in pairs, in one direction, or one alone; and then do again. A host has a tarnd and an etcd."""

from clustertest import LONG, Cluster, Load, counted, wait_until

KEYS = 150  # each call that can not succeed takes its whole time limit


def all_right(cluster, load):
    """Healed: by itself all of it works again, and is right."""
    cluster.hosts.heal()
    cluster.settled()
    wait_until(lambda: load.pass_over("write")["acked"] == KEYS, lambda: f"all keys can be written: {load.said()}", LONG)
    load.do("check")


def test_one_host_alone():
    """Its etcd has no leader: its tarnd loses its lease and fences itself. The other two go on."""
    with Cluster(lease="8s") as cluster, Load(cluster.nodes, "limit=100", "sessions=2", "pause=200", keys=KEYS) as load:
        load.do("fill")
        there = KEYS - counted(cluster.nodes, KEYS)[0]
        load.begin("run")
        for other in ("h2", "h3"):
            cluster.hosts.cut("h1", other)
        cluster.is_state("h1", "down")
        wait_until(lambda: "the lease is lost" in cluster.nodes[0].log(), lambda: f"it fences itself: {cluster.nodes[0].log()}", LONG)
        load.stop()
        load.one_away(there, KEYS)
        all_right(cluster, load)


def test_pairs():
    """Each pair of hosts, both ways, and one way: the third one is heard by both, so writes go on or go on again."""
    with Cluster(lease="20s") as cluster, Load(cluster.nodes, "limit=100", "sessions=2", "pause=200", keys=KEYS) as load:
        load.do("fill")
        for one, other, one_way in (("h1", "h2", False), ("h2", "h3", False), ("h3", "h1", False), ("h1", "h2", True), ("h3", "h2", True)):
            load.begin("run")
            cluster.hosts.cut(one, other, one_way)
            wait_until(lambda: load.stop() and load.pass_over("write")["acked"] > KEYS / 2, lambda: f"writes go on: {load.said()}", LONG)
            all_right(cluster, load)
