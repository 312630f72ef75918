#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The fake etcd says what the real one says: each is told the same, and their answers are the same but for numbers that are their own. TAP."""

import http.client
import json
import time

from etcdtest import Etcd, encode
from fakeetcd import FakeEtcd
from tarntest import run

OWN = {"cluster_id", "member_id", "raft_term", "ID", "TTL"}  # TTL: the real one has a least one


def put(key, value, lease=0):
    return {"key": encode(key), "value": encode(value), **({"lease": lease} if lease else {})}


def compare(key, field, value):
    return {"target": field.split("_")[0].upper(), "result": "EQUAL", "key": encode(key), field: value}


def same_shape(answer, base):
    """Revisions count from where this began, and what is an etcd's own is only there or not."""
    if isinstance(answer, dict):
        shape = {}
        for name, value in answer.items():
            if name in OWN:
                shape[name] = "its own"
            elif name.endswith("revision"):
                shape[name] = int(value) - base
            else:
                shape[name] = same_shape(value, base)
        return shape
    if isinstance(answer, list):
        return [same_shape(one, base) for one in answer]
    return answer


class Asked:
    """One of the two, by HTTP."""

    def __init__(self, etcd):
        self.port = etcd.ports[0]
        self.base = int(self.ask("/v3/kv/range", {"key": encode("x")})[1]["header"]["revision"])

    def ask(self, path, request):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", path, json.dumps(request))
        answer = connection.getresponse()
        body = json.loads(answer.read())
        connection.close()
        return answer.status, body

    def shape(self, path, request):
        status, body = self.ask(path, request)
        if status != 200:
            body = {"code": body["code"], "error": body["error"]}
        if path == "/v3/maintenance/status":
            return status, sorted(body["header"]), body["header"]["member_id"] == body["leader"]
        return status, same_shape(body, self.base)

    def watch(self, request, lines):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v3/watch", json.dumps({"create_request": request}))
        answer = connection.getresponse()
        seen = [same_shape(json.loads(answer.readline()), self.base) for _ in range(lines)]
        connection.close()
        return seen


def both(steps):
    """What each says to the steps, which are functions of one of them."""
    with Etcd() as real, FakeEtcd() as fake:
        sides = [Asked(real), Asked(fake)]
        for number, step in enumerate(steps):
            said = [step(side) for side in sides]
            assert said[0] == said[1], f"step {number}: etcd {said[0]}, the fake {said[1]}"


def asks(path, request):
    return lambda side: side.shape(path, request)


def test_keys():
    everything = {"key": encode("/t/"), "range_end": encode("/t0")}
    both(
        [
            asks("/v3/kv/range", everything),
            asks("/v3/kv/put", put("/t/a", "1")),
            asks("/v3/kv/put", put("/t/b", "")),
            asks("/v3/kv/put", put("/t/a", "2")),
            asks("/v3/kv/range", everything),
            asks("/v3/kv/range", {**everything, "keys_only": True}),
            asks("/v3/kv/range", {"key": encode("/t/a")}),
            asks("/v3/kv/range", {"key": encode("/t/none")}),
            asks("/v3/kv/deleterange", {"key": encode("/t/none")}),
            asks("/v3/kv/deleterange", {"key": encode("/t/a")}),
            asks("/v3/kv/range", everything),
            asks("/v3/maintenance/status", {}),
        ]
    )


def test_transactions():
    def write(compares, key, value):
        return asks(
            "/v3/kv/txn",
            {"compare": compares, "success": [{"request_put": put(key, value)}], "failure": [{"request_range": {"key": encode(key)}}]},
        )

    def mine(side):
        """By the revision that the key has: it is another one here and there."""
        number = side.ask("/v3/kv/range", {"key": encode("/t/m")})[1]["kvs"][0]["mod_revision"]
        return write([compare("/t/m", "mod_revision", number)], "/t/m", "mine")(side)

    both(
        [
            write([compare("/t/m", "create_revision", "0")], "/t/m", "first"),
            write([compare("/t/m", "create_revision", "0")], "/t/m", "second"),
            mine,
            write([compare("/t/m", "mod_revision", "1")], "/t/m", "old"),
            write([], "/t/n", "x"),
        ]
    )


def test_leases():
    numbers = {}

    def grant(side):
        status, answer = side.ask("/v3/lease/grant", {"TTL": "2"})
        numbers[side] = answer["ID"]
        return status, same_shape(answer, side.base)

    def lease(path, **more):
        return lambda side: side.shape(path, {"ID": numbers[side], **more})

    def hold(side):
        return side.shape("/v3/kv/put", put("/t/l", "x", numbers[side]))

    def gone(side):
        while "kvs" in side.ask("/v3/kv/range", {"key": encode("/t/l")})[1]:
            time.sleep(0.1)
        return side.shape("/v3/kv/range", {"key": encode("/t/l")})

    def held(side):
        status, answer = side.ask("/v3/kv/range", {"key": encode("/t/l")})
        return status, answer["kvs"][0]["lease"] == numbers[side]

    both(
        [
            grant,
            hold,
            held,
            lease("/v3/lease/keepalive"),
            gone,
            lease("/v3/lease/keepalive"),
            lease("/v3/lease/revoke"),
            hold,
            grant,
            hold,
            lease("/v3/lease/revoke"),
            gone,
        ]
    )


def test_watches():
    def follow(since):
        return lambda side: side.watch({"key": encode("/t/"), "range_end": encode("/t0"), "start_revision": str(side.base + since)}, 2)

    def compact(side):
        return side.shape("/v3/kv/compaction", {"revision": str(side.base + 2)})

    both(
        [
            asks("/v3/kv/put", put("/t/a", "1")),
            asks("/v3/kv/put", put("/elsewhere", "1")),
            asks("/v3/kv/deleterange", {"key": encode("/t/a")}),
            follow(1),
            follow(3),
            compact,
            compact,
            follow(1),
        ]
    )


if __name__ == "__main__":
    run([test_keys, test_transactions, test_leases, test_watches])
