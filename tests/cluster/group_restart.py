# SPDX-License-Identifier: BSD-2-Clause
"""Members are drained, started again and killed, one after the other, while clients work."""

import time

from clustertest import CACHE, KEYS, LONG, Cluster, Load, counted, emptied, note, since, wait_until

FEW = 150  # each call that can not succeed takes its whole time limit


def test_rolling_drained():
    """Each is drained, stopped, started, undrained: every acknowledged write is found, and every value is right."""
    with Cluster() as cluster, Load(cluster.nodes, "sessions=2", "pause=100") as load:
        load.do("fill")
        for node in cluster.nodes:
            begin = time.monotonic()
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
            assert said["writes"] > KEYS, said
            note(f"{node.name}: {since(begin)}, {said}")
            load.do("check")


def test_rolling_kept():
    """Without a drain, with pools in files: reads of its keys say that they are unavailable, never that one is missing."""
    with Cluster(in_file=True) as cluster, Load(cluster.nodes, "limit=100", "sessions=2", "pause=100", keys=FEW) as load:
        load.do("fill")
        for node in cluster.nodes:
            load.begin("run")
            node.stop()
            cluster.is_state(node.name, "down")
            load.stop()
            said = load.pass_over("read")
            assert said["unavailable"] > 0, (said, load.said())
            load.begin("run")
            node.start()
            cluster.settled()
            load.stop()
            load.do("check")


def test_killed():
    """Its keys are unavailable until it is back, and then are there; the others' can be used all the time."""
    with Cluster(in_file=True, lease="8s") as cluster, Load(cluster.nodes, "limit=100", "sessions=2", "pause=100", keys=FEW) as load:
        load.do("fill")
        there = FEW - counted(cluster.nodes, FEW)[1]
        cluster.nodes[1].kill()
        load.one_away(there, FEW)
        cluster.is_state("h2", "down")
        cluster.nodes[1].start()
        cluster.settled()
        load.do("check")
        wait_until(lambda: load.pass_over("write")["acked"] == FEW, lambda: f"all can be written: {load.said()}", LONG)
        load.do("check")


def test_killed_cache():
    """Misses; the others take its shards, and it gets a share again."""
    with Cluster(CACHE, lease="8s") as cluster, Load(cluster.nodes, "sessions=2", "pause=100", cache=True, keys=FEW) as load:
        load.do("fill")
        load.begin("run")
        cluster.nodes[1].kill()
        cluster.is_state("h2", "down")
        rest = [cluster.nodes[0], cluster.nodes[2]]
        cluster.settled(rest)
        load.stop()
        wait_until(lambda: load.pass_over("write")["acked"] == FEW, lambda: f"all can be written: {load.said()}", LONG)
        said = load.pass_over("read")
        assert said["missing"] == said["failures"] == 0, (said, load.said())
        load.begin("run")
        cluster.nodes[1].start()
        cluster.settled()
        load.stop()
        load.do("check")
