# SPDX-License-Identifier: BSD-2-Clause
"""A cluster with a fixed map: three daemons on this machine that serve one pool. TAP."""

import contextlib
import json
import os
import subprocess
import tempfile
import time

from httptest import ask, port_of, validate
from tarntest import PATIENCE, TARND, Daemon, run, tarn, tarn_json

SHARDS = 1024
NAMES = ("a", "b", "c")
POOL = "size = 16M\nhugepages = off\n"


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)
    return result


class Member(Daemon):
    """A daemon that is a member; clients that know of no cluster are refused, so that the daemon itself is asked."""

    def __init__(self, name, where, pool=POOL, more="", cluster="shop"):
        self.name = name
        self.map = os.path.join(where, "map.json")
        super().__init__(
            pool=pool,
            more=f"[cluster]\nname = {cluster}\nmember = {name}\nmap = {self.map}\nmap_bound = 1s\n{more}",
            ready=False,
            fabric="",
        )

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([TARND, "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while self.tarn("members", check=None).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("tarnd did not become ready:\n" + self.log())
            time.sleep(0.05)

    def refused_start(self):
        """What it says when it does not start."""
        result = subprocess.run([TARND, "-c", self.config], capture_output=True, timeout=PATIENCE, check=False)
        assert result.returncode > 0, result
        return result.stderr.decode()

    def members(self):
        return tarn_json("-u", self.control, "members")

    def cluster(self):
        return self.members()["cluster"]

    def reload(self, check=0):
        return tarn_json("-u", self.control, "reload", check=check)


def document(members, **changes):
    return {
        "format": 1,
        "cluster": "shop",
        "pool": "main",
        "mode": "store",
        "seed": "00000000000000a5",
        "epoch": 1,
        "shards": SHARDS,
        "members": [
            {
                "name": member.name,
                "number": number,
                "state": "up",
                "weight": 100,
                "addresses": [{"fabric": "shm", "address": member.socket}],
            }
            for number, member in enumerate(members, 1)
        ],
        **changes,
    }


def write_map(where, content):
    """As a whole: a daemon may read it at any time."""
    with open(os.path.join(where, "new"), "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.rename(os.path.join(where, "new"), os.path.join(where, "map.json"))


@contextlib.contextmanager
def cluster(pool=POOL, more="", mode="store"):
    """The folder with the map, and three members, started."""
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp"))
        members = [stack.enter_context(Member(name, where, pool=pool, more=more)) for name in NAMES]
        write_map(where, document(members, mode=mode))
        for member in members:
            member.start()
        yield where, members


def settled(member):
    """All shards that it owns are open."""
    return until(lambda: (c := member.cluster())["shards_open"] == c["shards_owned"] and c, "shards are opened")


def test_members():
    with cluster() as (where, members):
        for member in members:
            answer = member.members()
            assert [row["name"] for row in answer["members"]] == list(NAMES), answer
            assert [row["name"] for row in answer["members"] if row["self"]] == [member.name], answer
            shards = [row["shards"] for row in answer["members"]]
            assert sum(shards) == SHARDS, shards
            assert all(0.95 * SHARDS / 3 < n < 1.05 * SHARDS / 3 for n in shards), shards
            assert [row["addresses"] for row in answer["members"]] == [
                [{"fabric": "shm", "address": each.socket}] for each in members
            ]
            own = settled(member)
            assert own["name"] == "shop" and own["member"] == member.name, own
            assert own["epoch"] == 1 and own["membership"] == "static", own
            assert own["shards_owned"] == shards[NAMES.index(member.name)], own
            assert own["members"] == {"up": 3, "draining": 0, "down": 0, "left": 0}, own
            assert own["shards_unavailable"] == {"down": 0, "nobody": 0}, own
            text = member.tarn("members").stdout.decode()
            assert "shop" in text and member.socket in text, text


def test_map():
    """Each member's map is the file's, and where a key is can be asked anywhere."""
    with cluster() as (where, members):
        of_file = tarn_json("map", "show", f"{where}/map.json", "--shards")
        for member in members:
            shown = tarn_json("-u", member.control, "map", "show", "--shards")
            # the daemon's has its owners written out
            assert of_file.pop("owners_computed", True) and not shown.pop("owners_computed")
            assert shown == of_file
            assert tarn("-u", member.control, "map", "check").stdout.startswith(b"the daemon's map: ok, cluster shop")
            tarn("-u", member.control, "map", "check", "--cluster", "other", check=6)


def test_no_cluster():
    """A daemon without [cluster] says so."""
    with Daemon(pool=POOL, fabric="") as alone:
        answer = tarn_json("-u", alone.control, "members")
        assert answer["cluster"] is None and answer["members"] == [], answer
        answer = tarn_json("-u", alone.control, "map", "show", check=1)
        assert "in no cluster" in answer["error"]["text"], answer
        assert tarn_json("-u", alone.control, "stats")["cluster"] is None


def test_client_without_cluster():
    """Who takes a member for the whole is told what to write."""
    with cluster() as (_, members):
        for verb in (["get", "k"], ["put", "k", "v"], ["keys"]):
            answer = tarn_json("-u", members[0].control, *verb, check=None)
            assert "cluster" in answer["error"]["text"], answer


def uri_of(members):
    return "tarn:" + ",".join(member.socket for member in members) + ",?pool=main"


def count_keys(member):
    """As the keeper has counted them last; None: not yet."""
    return tarn_json("-u", member.control, "stats")["pools"][0]["keys"]


def test_keys():
    """Through any of them all keys are there, each at the member that the map says."""
    with cluster() as (_, members):
        for member in members:
            settled(member)
        keys = [f"key/{i}" for i in range(60)]
        for i, key in enumerate(keys):
            tarn("-u", uri_of(members[i % 3 :] + members[: i % 3]), "put", key, f"value {i}")
        for i, key in enumerate(keys):
            assert tarn("-u", uri_of([members[(i + 1) % 3]]), "get", key).stdout == f"value {i}".encode()
        wanted = {name: 0 for name in NAMES}
        for key in keys:
            wanted[tarn_json("-u", members[0].control, "map", "show", "--key", key)["owner"]] += 1
        assert min(wanted.values()) > 0, wanted
        for member in members:
            until(lambda: count_keys(member) == wanted[member.name], f"{member.name} has {wanted[member.name]} keys")
        assert tarn("-u", uri_of(members), "get", "no such key", check=None).returncode == 1
        tarn("-u", uri_of(members), "del", keys[0])
        assert tarn("-u", uri_of(members), "get", keys[0], check=None).returncode == 1


def test_reload_keeps_keys():
    """A member of a store pool does not let its keys be lost by a map."""
    with cluster() as (where, members):
        for member in members:
            settled(member)
        for i in range(60):
            tarn("-u", uri_of(members), "put", f"key/{i}", "x")
        until(lambda: count_keys(members[0]), "keys are counted")
        changed = document(members, epoch=2)
        changed["members"][0]["weight"] = 50
        write_map(where, changed)
        answer = json.dumps(members[0].reload(check=1))
        assert "it gives shard " in answer and "keys, which would be lost" in answer, answer
        assert members[0].cluster()["epoch"] == 1
        for i in range(60):
            assert tarn("-u", uri_of(members), "get", f"key/{i}").stdout == b"x"


def test_http():
    with cluster(more="[http]\nlisten = 127.0.0.1:0\n") as (_, members):
        port = port_of(members[1])
        for path in ("/v1/members", "/v1/stats"):
            validate(ask(port, path).json, path)
        answer = ask(port, "/v1/members").json
        assert answer["cluster"]["member"] == "b" and len(answer["members"]) == 3, answer
        content = ask(port, "/v1/map").json["map"]
        assert content["epoch"] == 1 and len(content["owners"]) == SHARDS, content["epoch"]
        metrics = ask(port, "/metrics").body.decode()
        assert 'tarn_cluster_map_epoch{cluster="shop",member="b"} 1' in metrics, metrics
        assert answer["cluster"]["map_bound_ns"] == 10**9, answer
        assert 'tarn_cluster_map_bound_seconds{cluster="shop",member="b"} 1\n' in metrics, metrics
        assert 'tarn_cluster_members{cluster="shop",member="b",state="up"} 3' in metrics, metrics


def test_reload():
    """Another weight, a higher epoch: each member takes the map when it is told to."""
    with cluster(pool=POOL + "mode = cache\n", mode="cache") as (where, members):
        before = settled(members[0])
        changed = document(members, mode="cache", epoch=7)
        changed["members"][0]["weight"] = 50
        write_map(where, changed)
        for member in members:
            member.reload()
            until(lambda: member.cluster()["epoch"] == 7, "the new map is in use")
        after = settled(members[0])
        assert after["shards_owned"] < 0.75 * before["shards_owned"], (before, after)
        assert sum(member.cluster()["shards_owned"] for member in members) == SHARDS
        for member in members:
            settled(member)
            assert "a map of epoch 7 (before: 1)" in member.log()
        # once more, unchanged: nothing happens
        members[0].reload()
        assert members[0].cluster()["map_changes"] == 1


def test_reload_refused():
    """A map that can not follow: all is as before, and it is said why."""
    with cluster() as (where, members):
        good = document(members, epoch=3)
        for content, text in (
            ({**good, "epoch": 0}, "epoch is 0"),
            ({**good, "cluster": "other"}, "the map of another cluster than 'shop'"),
            ({**good, "seed": "0" * 16}, "its seed, shards or mode are others than before"),
            ({**good, "members": good["members"][1:]}, "there is no member 'a'"),
            ({**good, "pool": "other"}, 'its pool is "other"'),
        ):
            write_map(where, content)
            answer = members[0].reload(check=1)
            assert text in json.dumps(answer, ensure_ascii=False).replace("\\", ""), (text, answer)
            assert members[0].cluster()["epoch"] == 1
        write_map(where, good)
        members[0].reload()
        until(lambda: members[0].cluster()["epoch"] == 3, "the new map is in use")
        write_map(where, document(members, epoch=2, pool="main"))
        answer = members[0].reload(check=1)
        assert "is not higher than that of the one in use" in json.dumps(answer), answer


def test_reload_takes_empty_shards():
    """In a store pool shards without keys may go elsewhere; what is open afterwards is what the map says."""
    with cluster() as (where, members):
        settled(members[0])
        # the keeper has to have counted once
        until(lambda: tarn_json("-u", members[0].control, "stats")["pools"][0]["keys"] == 0, "keys are counted")
        changed = document(members, epoch=2)
        changed["members"][0]["weight"] = 50
        write_map(where, changed)
        before = members[0].cluster()["shards_owned"]
        for member in members:
            until(lambda: tarn_json("-u", member.control, "stats")["pools"][0]["keys"] == 0, "keys are counted")
            member.reload()
            until(lambda: member.cluster()["epoch"] == 2, "the new map is in use")
            settled(member)
        assert members[0].cluster()["shards_owned"] < before


def test_start_refused():
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as where:
        with Member("a", where) as member:
            assert "map = " in member.refused_start()
            for content, text in (
                (document([member], pool="other"), "give both the same name"),
                (document([member], mode="cache"), "they have to be the same"),
                (document([member], cluster="other"), "the map of another cluster"),
                ({**document([member]), "shards": 100}, "shards is 100"),
            ):
                write_map(where, content)
                said = member.refused_start()
                assert text in said and f"{member.config}:" in said, (text, said)
            write_map(where, document([member]))
            member.start()


def test_restart():
    """A pool in a file belongs to its cluster: it is opened again by its own map alone."""
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as where:
        with Member("a", where, pool=POOL + f"file = {where}/pool\n") as member:
            write_map(where, document([member]))
            member.start()
            assert settled(member)["shards_owned"] == SHARDS
            member.stop()
            write_map(where, document([member], seed="0" * 16))
            said = member.refused_start()
            assert "seed" in said and "another cluster" in said, said
            write_map(where, document([member], shards=2 * SHARDS))
            assert "shards = 2048" in member.refused_start()
            write_map(where, document([member], epoch=2))
            member.start()
            assert settled(member)["epoch"] == 2


if __name__ == "__main__":
    run(
        [
            test_members,
            test_map,
            test_no_cluster,
            test_client_without_cluster,
            test_keys,
            test_reload_keeps_keys,
            test_http,
            test_reload,
            test_reload_refused,
            test_reload_takes_empty_shards,
            test_start_refused,
            test_restart,
        ]
    )
