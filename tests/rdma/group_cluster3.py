# SPDX-License-Identifier: BSD-2-Clause
"""A cluster over RDMA on three hosts with a tarnd and an etcd each, and a fourth one with clients, while things fail: the same as
make check-cluster, with fewer keys and more time, since the machine has one processor for all of it."""

import os
import sys

os.environ["CLUSTER_FABRIC"] = "rxe-nic"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
from clustertest import LONG, Cluster, Load, counted, emptied, freeze, wait_until  # noqa: E402
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
