# SPDX-License-Identifier: BSD-2-Clause
"""A daemon that stands still for longer than its lease, while clients work; a client that does, too."""

import signal

from clustertest import CACHE, LONG, Cluster, Load, counted, freeze, wait_until

KEYS = 150  # each call that can not succeed takes its whole time limit


def test_daemon_store():
    """Its keys are unavailable to who has the new map, though its memory is there; nothing of them is acknowledged. It comes back by
    itself, with all of them."""
    with Cluster(lease="8s") as cluster, Load(cluster.nodes, "limit=100", "sessions=2", "pause=200", keys=KEYS) as load:
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
        said = load.pass_over("write")
        assert said["acked"] == KEYS, (said, load.said())
        load.do("check")


def test_daemon_cache():
    """Others take what it has. A client that has slept through that believes its old map no longer, though what it knows is there still."""
    with Cluster(CACHE, lease="8s") as cluster:
        with Load(cluster.nodes, "sessions=2", "pause=200", cache=True, keys=KEYS) as load, Load(
            cluster.nodes, "limit=1000", f"first={KEYS}", cache=True, keys=KEYS
        ) as sleeper:
            load.do("fill")
            sleeper.do("fill")
            sleeper.do("read")
            load.begin("run")
            cluster.nodes[2].freeze()
            assert freeze(sleeper.process)
            cluster.is_state("h3", "down")
            cluster.settled(cluster.nodes[:2])
            load.stop()
            for client in (load, sleeper):
                client.process.send_signal(signal.SIGCONT)
                said = client.pass_over("write")
                # what is not acknowledged may be anything; what is has to be there
                assert said["acked"] + said["failures"] == KEYS, said
                said = client.pass_over("read")
                assert said["lost"] == 0, (said, client.said())
                wait_until(lambda client=client: client.pass_over("write")["acked"] == KEYS, lambda client=client: f"all are written: {client.said()}", LONG)
                said = client.pass_over("read")
                assert said["missing"] == said["failures"] == 0, (said, client.said())
            cluster.nodes[2].go_on()
            wait_until(lambda: "the lease is lost" in cluster.nodes[2].log(), "it fences itself", LONG)
            load.begin("run")
            cluster.settled()
            load.stop()
            for client in (load, sleeper):
                client.do("check")
