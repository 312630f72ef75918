# SPDX-License-Identifier: BSD-2-Clause
"""How soon clients have a map, how even keys are spread, how many of them a new member moves; members that come and go."""

import json
import re
import subprocess
import sys
import threading
import time
from os import path

from clustertest import CACHE, CLIENTS, HERE, LONG, NAMES, SHARDS, WATCH, Cluster, Hosts, Load, counted, note, tarn_json, wait_until
from etcdtest import encode

SESSIONS = 20
MANY = 100000
FAR = 10  # seconds; the aim is 1, and machines are busy


class Lines:
    """A program's lines, as they come."""

    def __init__(self, host, *words):
        self.lines = []
        self.process = subprocess.Popen([*Hosts.prefix(host), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        self.process.stdin.close()
        self.process.stdout.close()


def commits(watch):
    """(epoch, time) of each map that etcd has told of."""
    found = []
    for line in list(watch.lines):
        at, text = line.split(" ", 1)
        if '"mod_revision"' in text:
            found.append((max(int(number) for number in re.findall(r'"mod_revision":"(\d+)"', text)), int(at)))
    return found


def reach(cluster, watch, clients, change):
    """Seconds from the commit of the first map that change() makes to when the last session has that or a newer one."""
    before = max([epoch for epoch, _ in commits(watch)], default=0)
    change()
    epoch, at = wait_until(lambda: next(((e, ns) for e, ns in commits(watch) if e > before), None), "etcd has a new map", LONG)

    def all_have():
        first = {}
        for line in list(clients.lines)[1:]:
            session, seen, ns = map(int, line.split())
            if seen >= epoch and session not in first:
                first[session] = ns
        return len(first) == SESSIONS and first

    return (max(wait_until(all_have, "all sessions have it", LONG).values()) - at) / 1e9


def test_reach():
    """A drain and its end are known to each of 20 sessions soon. (A cache pool, since there the rest is done sooner.)"""
    with Cluster(CACHE) as cluster:
        body = json.dumps({"create_request": {"key": encode("/tarn/shop/map")}})
        with Lines("h1", sys.executable, "-S", path.join(HERE, "post.py"), "--watch", cluster.etcd.client(0) + "/v3/watch", body) as watch:
            wait_until(lambda: watch.lines, "the watch has begun", LONG)
            uri = Load.uri(cluster.nodes)
            with Lines(CLIENTS, WATCH, uri, str(SESSIONS)) as clients:
                wait_until(lambda: len(clients.lines) > SESSIONS, "all sessions are open", LONG)
                times = []
                for _ in range(3):
                    for verb in ("drain", "undrain"):
                        times.append(reach(cluster, watch, clients, lambda verb=verb: cluster.nodes[0].do(verb, "h2")))
                        cluster.settled(even=verb == "undrain")
                note(f"a changed map has reached {SESSIONS} sessions after {', '.join(f'{t:.2f}' for t in times)} s")
                assert max(times) < FAR, times


def owners(node):
    """Of each shard, its member's name."""
    return [row["owner"] for row in tarn_json("-u", node.control, "map", "show", "--shards")["shard_owners"]]


def test_spread():
    """100,000 keys on three members, each within 5 % of even; a fourth one moves no more than its share and 2 %."""
    with Cluster("size = 256M\nhugepages = off\n", names=(*NAMES, "h4")) as cluster:
        with Load(cluster.nodes, keys=MANY) as load:
            load.do("fill")
            counts = counted(cluster.nodes, MANY)
            off = max(abs(count / (MANY / 3) - 1) for count in counts)
            note(f"{MANY} keys on three members: {counts}, at most {off * 100:.1f} % from even")
            assert off < 0.05, counts
            before = owners(cluster.nodes[0])
            fourth = cluster.add("h4")
            fourth.start()
            cluster.settled([*cluster.nodes, fourth])
            counts = counted([*cluster.nodes, fourth], MANY)
            moved = sum(old != new for old, new in zip(before, owners(fourth))) / SHARDS
            note(f"and a fourth one: {counts}; {moved * 100:.1f} % of the shards have moved")
            assert moved <= 1 / 4 + 0.02, moved
            load.do("check")


def test_come_and_go():
    """A fourth member joins and leaves, again and again, while a client works."""
    with Cluster(CACHE, names=(*NAMES, "h4"), bound="1s") as cluster, Load(cluster.nodes, "pause=200", cache=True) as load:
        load.do("fill")
        fourth = cluster.add("h4")
        load.begin("run")
        for _ in range(6):
            fourth.start()
            cluster.settled([*cluster.nodes, fourth])
            cluster.nodes[0].do("drain", "h4", "--wait")
            fourth.stop()
            cluster.is_state("h4", "left")
        load.stop()
        cluster.settled()
        load.do("check")
