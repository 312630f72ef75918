# SPDX-License-Identifier: BSD-2-Clause
"""A client of a cluster: three daemons with a fixed map on this machine, and sessions with all of them. TAP."""

import importlib
import os
import subprocess
import tempfile

from tarntest import BUILD, PATIENCE, Daemon, run, tarn

cluster_tests = importlib.import_module("test-cluster")
cluster, document, settled, until, write_map = (
    getattr(cluster_tests, name) for name in ("cluster", "document", "settled", "until", "write_map")
)
COUNT = 300


def uri(members, more=""):
    """A single one needs the comma that says that it is one of several."""
    return f"tarn:{','.join(m.socket for m in members)}{',' if len(members) == 1 else ''}?pool=main{more}"


class Client:
    """A session, and what its calls end with."""

    def __init__(self, where):
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "tests/integration/cluster-client"), where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.first = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == (0 if self.first == "open" else 1)
        self.process.stdout.close()

    def do(self, what, prefix="k", count=COUNT):
        self.process.stdin.write(f"{what} {prefix} {count}\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        return {name: int(number) for name, number in zip(words[::2], words[1::2])}


ALL = {"OK": COUNT}


def started(members):
    for member in members:
        settled(member)


def test_keys():
    with cluster() as (_, members):
        started(members)
        with Client(uri(members)) as client:
            assert client.first == "open"
            assert client.do("put") == ALL
            assert client.do("get") == ALL
            assert client.do("mput", "m") == ALL
            assert client.do("mget", "m") == ALL
            assert client.do("put-async", "a") == ALL
            assert client.do("get-async", "a") == ALL
        # by way of each of them the same keys are found
        for member in members:
            with Client(uri([member])) as client:
                assert client.do("get") == ALL
                assert client.do("mget", "m") == ALL
                assert client.do("get", "none") == {"TARN_ENOTFOUND": COUNT}
        with Client(uri(members)) as client:
            assert client.do("delete") == ALL
            assert client.do("delete") == {"TARN_ENOTFOUND": COUNT}
            assert client.do("mdelete", "m") == ALL
            assert client.do("mget", "m") == {"TARN_ENOTFOUND": COUNT}


def test_command():
    with cluster() as (_, members):
        started(members)
        where = uri(members)
        tarn("-u", where, "put", "name", "Ada")
        assert tarn("-u", where, "get", "name").stdout == b"Ada"
        assert tarn("-u", where, "add", "visits", "5").stdout == b"5\n"
        assert tarn("-u", where, "add", "visits", "-2").stdout == b"3\n"
        tarn("-u", where, "ping")


def listed(where, *arguments, check=0):
    result = tarn("-u", where, "keys", *arguments, check=check)
    return sorted(result.stdout.decode().split()), result


def test_walks():
    with cluster() as (_, members):
        started(members)
        names = sorted(f"k-{i}" for i in range(COUNT))
        assert listed(uri(members))[0] == []
        with Client(uri(members)) as client:
            assert client.do("put") == ALL
            assert client.do("put", "other", 20) == {"OK": 20}
            assert client.do("walk") == ALL
            assert client.do("walk-async") == ALL
            assert client.do("walk", "other", 20) == {"OK": 20}
        # by way of each of them
        for member in members:
            assert listed(uri([member]), "k-")[0] == names
        assert len(listed(uri(members))[0]) == COUNT + 20
        with tempfile.TemporaryDirectory() as where:
            tarn("-u", uri(members), "export", where)
            assert len(os.listdir(where)) == COUNT + 20
            with open(os.path.join(where, "k-7"), "rb") as file:
                assert file.read() == b"k-7"
        tarn("-u", uri(members), "exists", "k-7")
        tarn("-u", uri(members), "exists", "k-none", check=1)


def test_walk_without_a_member():
    """What the others have comes, and the walk ends with who is not there."""
    with cluster() as (_, members):
        started(members)
        with Client(uri(members)) as client:
            assert client.do("put") == ALL
        members[1].kill()
        names, result = listed(uri(members, "&timeout=500"), check=3)
        assert 0 < len(names) < COUNT, result
        assert b"member b" in result.stderr, result
        members[1].start()
        settled(members[1])
        # its memory is gone
        assert listed(uri(members))[0] == names


def test_uris():
    with cluster() as (_, members):
        started(members)
        # a client that knows of no cluster is told how to open it
        plain = tarn("-u", f"tarn:{members[0].socket}?pool=main", "get", "name", check=1)
        assert b"belongs to a cluster" in plain.stderr and b"tarn://HOST,/POOL" in plain.stderr, plain
        # the first one that answers is asked; all that do not are named
        assert tarn("-u", f"tarn:/nowhere/a,{members[2].socket}?pool=main", "get", "name", check=1).stderr.endswith(
            b"no such key\n"
        )
        nobody = tarn("-u", "tarn:/nowhere/a,/nowhere/b?pool=main", "get", "name", check=3)
        assert b"/nowhere/a" in nobody.stderr and b"/nowhere/b" in nobody.stderr, nobody


def test_no_cluster():
    with Daemon() as daemon:
        refused = tarn("-u", f"tarn:{daemon.socket},?pool=main", "get", "name", check=2)
        assert b"belongs to no cluster" in refused.stderr, refused


def test_member_killed():
    with cluster() as (_, members):
        started(members)
        with Client(uri(members, "&timeout=500")) as client:
            assert client.do("mput") == ALL
            members[1].kill()
            # the memory that a client has mapped stays; that the daemon is gone it notices soon
            result = until(lambda: (r := client.do("mget")) != ALL and r, "the daemon's end is noticed")
            assert sum(result.values()) == COUNT
            only_unavailable(result)
            only_unavailable(client.do("put", "n", 20))
            only_unavailable(client.do("put-async", "n", 20))
            one = unavailable(members)
            assert b"member b does not serve shard" in one.stderr, one
            members[1].start()
            settled(members[1])
            # its memory is gone, and what it has now can be written and read
            until(lambda: client.do("mput") == ALL, "the member is there again")
            assert client.do("get") == ALL


def only_unavailable(result):
    """Some are, the others are not; and nothing is taken for missing. (On a machine that stands still, time can be over.)"""
    assert {"OK", "TARN_EUNAVAILABLE"} <= set(result), result
    assert not set(result) - {"OK", "TARN_EUNAVAILABLE", "TARN_ETIMEOUT", "TARN_EAMBIGUOUS"}, result


def unavailable(members):
    """What the command says of a key that is with the member that is not there."""
    for i in range(COUNT):
        result = tarn("-u", uri(members, "&timeout=500"), "exists", f"k-{i}", check=None)
        if result.returncode == 3:
            return result
    raise AssertionError("all keys are there without a member")


def test_map_changes():
    """Clients follow a map by which one member has no shards any more: it is not missed then."""
    with cluster(pool="size = 16M\nhugepages = off\nmode = cache\n", mode="cache") as (where, members):
        started(members)
        with Client(uri(members)) as client:
            assert client.do("mput") == ALL
            content = document(members, mode="cache", epoch=2)
            content["members"][2]["weight"] = 0
            write_map(where, content)
            for member in members:
                member.reload()
            until(lambda: members[2].cluster()["shards_owned"] == 0, "the map is in use")
            for member in members[:2]:
                settled(member)
            until(lambda: client.do("mput") == ALL, "the shards are open elsewhere")
            assert client.do("walk") == ALL
            members[2].kill()
            assert client.do("walk-async") == ALL
            assert client.do("mget") == ALL
            assert client.do("put", "n") == ALL
            assert client.do("get", "n") == ALL


if __name__ == "__main__":
    run(
        [
            test_keys,
            test_command,
            test_walks,
            test_walk_without_a_member,
            test_uris,
            test_no_cluster,
            test_member_killed,
            test_map_changes,
        ]
    )
