#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A cluster with an etcd that goes wrong in every way it can, in the middle of joins, drains and hand-overs: nothing acknowledged is lost. TAP.

The etcd is fakeetcd's. TARN_TEST_SEED=N: the faults of that run again, as far as threads and processes come the same way.
TARN_TEST_JOINS=N: so many joins, and as many leaves.
"""

import importlib.util
import os
import random

os.environ["CLUSTER_BACKEND"] = "fake"
# pylint: disable=wrong-import-position
from etcdtest import wait_until
from fakeetcd import FAULTS
from tarntest import run

spec = importlib.util.spec_from_file_location("cluster_etcd", os.path.join(os.path.dirname(__file__), "test-cluster-etcd.py"))
suite = importlib.util.module_from_spec(spec)
spec.loader.exec_module(suite)

JOINS = int(os.environ.get("TARN_TEST_JOINS", 40))
DRAINS = 8
SEED = int(os.environ.get("TARN_TEST_SEED", random.randrange(1 << 30)))


def test_joins():
    """Members come and go, one after the other: each gets its share, leaves it all, and is forgotten."""
    with suite.cluster("a", pool=suite.STORE) as (etcd, (first,)):
        with suite.Node("b", etcd, pool=suite.STORE) as other:
            size = 0
            for i in range(JOINS):
                other.start()
                wait_until(lambda: other.cluster()["shards_open"] > 0.4 * suite.SHARDS, "it has its share")
                first.do("drain", "b", "--wait")
                other.stop()
                wait_until(lambda: first.state_of("b") == "left", "it has left")
                if i == JOINS // 4:
                    size = len(etcd.get("/tarn/shop/map"))
            suite.settled([first], [1])
            assert first.cluster()["epoch"] == etcd.store.keys[b"/tarn/shop/map"]["mod"]
            assert len(etcd.get("/tarn/shop/map")) < size + size // 8, "the map does not grow by who has left"
            numbers = [row["number"] for row in first.members()["members"]]
            assert max(numbers) <= 2 * JOINS, numbers


test_joins.limit = suite.LONG + 2 * JOINS


def test_faults():
    """Shards go from member to member while a client works, and about every sixth request to etcd goes wrong, each time in another way."""
    print(f"# TARN_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    wrong = dict.fromkeys(FAULTS, 0)

    def fault(path, request):
        del path, request
        if dice.random() < 5 / 6:
            return None
        which = FAULTS[sum(wrong.values()) % len(FAULTS)]
        wrong[which] += 1
        return which

    def waits(condition, what):
        wait_until(condition, lambda: f"{what}; TARN_TEST_SEED={SEED}, {wrong}", suite.LONG)

    with suite.cluster("ab", pool=suite.STORE) as (etcd, nodes):
        suite.wait_settled(nodes, [1 / 2] * 2)
        with suite.Load(nodes) as load:
            load.do("fill")
            load.begin("run")
            etcd.fault = fault
            for i in range(DRAINS):
                away, stays = nodes[i % 2], nodes[1 - i % 2]
                name = "ab"[i % 2]
                waits(lambda: stays.tarn("drain", name, check=None).returncode == 0, f"{name} is drained")
                waits(lambda: away.cluster()["shards_owned"] == 0 and stays.cluster()["shards_open"] == suite.SHARDS, f"{name} owns nothing")
                waits(lambda: stays.tarn("undrain", name, check=None).returncode == 0, f"{name} is up again")
            etcd.fault = None
            said = load.stop()
            assert said["writes"] > 0, said
            suite.wait_settled(nodes, [1 / 2] * 2)
            load.do("check")
        assert all(wrong.values()), wrong
        print(f"# {sum(wrong.values())} requests went wrong: {wrong}")


if __name__ == "__main__":
    run([test_joins, test_faults])
