# SPDX-License-Identifier: BSD-2-Clause
"""tarn map: looks at the map of a cluster in a file, and at what a change of members would move. TAP."""

import contextlib
import json
import os
import re
import tempfile

from tarntest import SOURCE, Skip, run, tarn, tarn_json

SHARDS = 4096


def member(number, **changes):
    address = {"fabric": "verbs", "address": f"10.0.0.{number}:7471"}
    return {
        "name": f"node{number}",
        "number": number,
        "state": "up",
        "weight": 100,
        "addresses": [address],
        **changes,
    }


def document(*members, **changes):
    return {
        "format": 1,
        "cluster": "test",
        "pool": "main",
        "mode": "store",
        "seed": "00000000000000a5",
        "epoch": 12,
        "shards": SHARDS,
        "members": list(members),
        **changes,
    }


THREE = document(member(1), member(2), member(3))
OWNED = document(
    member(1),
    member(2),
    owners=[[1]] * (SHARDS - 1) + [[]],
    since=[4] * SHARDS,
    taken=[0] * SHARDS,
    moves=[{"shard": 7, "to": 2}],
)


@contextlib.contextmanager
def file_of(content):
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as where:
        path = os.path.join(where, "map.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        yield path


def shards(result):
    return {row["member"]: row["shards"] for row in result["members"]}


def test_check():
    for content in (THREE, OWNED):
        with file_of(content) as path:
            result = tarn_json("map", "check", path)
            assert result["ok"] and result["cluster"] == "test" and result["epoch"] == 12, result
            assert b": ok, cluster test, epoch 12, " in tarn("map", "check", path).stdout
            assert tarn("--quiet", "map", "check", path).stdout == b""
            tarn("map", "check", path, "--cluster", "test")


def test_refused():
    """What is wrong is named with its place, its value and what is allowed, and is exit code 6."""
    wrong = (
        (document(member(1), member(2, name="node1")), 'members[1].name is "node1", as that of members[0]'),
        (document(member(1, weight=10001)), "members[0].weight is 10001: allowed are 0 to 10000"),
        (document(member(1, weight=0)), "members: none that is up has a weight above 0"),
        ({**THREE, "shards": 5000}, "shards is 5000: allowed are powers of two, 64 to 16384"),
        ({**THREE, "colour": 1}, "colour is not known: allowed are format, cluster"),
        ("{", "line 1, column 1: "),
        (" " * (1024 * 1024 + 1), "the map has 1048577 bytes: allowed are up to 1048576"),
    )
    for content, text in wrong:
        with file_of(content) as path:
            for verb in ("check", "show"):
                error = tarn_json("map", verb, path, check=6)["error"]
                assert text in error["text"], (text, error)
            assert text in tarn("map", "check", path, check=6).stderr.decode()


def test_another_cluster():
    with file_of(THREE) as path:
        for verb in ("check", "show"):
            error = tarn_json("map", verb, path, "--cluster", "prod", check=6)["error"]
            assert "cluster is \"test\": this is the map of another cluster than 'prod'" in error["text"], error


def test_no_file():
    assert b"No such file" in tarn("map", "check", "/no/such/file", check=1).stderr
    assert b"directory" in tarn("map", "show", "/", check=1).stderr


def test_show():
    with file_of(THREE) as path:
        result = tarn_json("map", "show", path)
        assert result["owners_computed"] and sum(shards(result).values()) == result["shards"] == SHARDS
        assert all(abs(n - SHARDS / 3) <= SHARDS / 3 * 0.05 for n in shards(result).values()), result
        assert result["members"][2]["addresses"] == [{"fabric": "verbs", "address": "10.0.0.3:7471"}]
        assert re.search(r"node3 +3 up +100 +\d+ 10\.0\.0\.3:7471", tarn("map", "show", path).stdout.decode())
    with file_of(OWNED) as path:
        result = tarn_json("map", "show", path, "--shards")
        assert not result["owners_computed"] and result["shards_moving"] == 1
        assert shards(result) == {"node1": SHARDS - 1, "node2": 0}
        rows = result["shard_owners"]
        assert rows[7] == {"shard": 7, "owner": "node1", "since": 4, "taken": 0, "moves_to": "node2"}, rows[7]
        assert rows[-1]["owner"] is None and len(rows) == SHARDS


def test_change():
    """A dry run: the file is not touched, and the counts are those of the shards that change hands."""
    with file_of(THREE) as path:
        before = open(path, "rb").read()
        result = tarn_json("map", "show", path, "--add", "node4", "--shards")
        moved = [row for row in result["shard_owners"] if row["owner"] != row["owner_after"]]
        assert len(moved) == result["shards_to_move"] == sum(row["shards"] for row in result["moves"])
        assert SHARDS * 0.2 < len(moved) <= SHARDS * (1 / 4 + 0.02), len(moved)
        assert abs(result["percent_to_move"] - 100 * len(moved) / SHARDS) < 0.01
        after = {row["member"]: row["shards_after"] for row in result["members"]}
        assert after["node4"] > SHARDS * 0.2 and sum(after.values()) == SHARDS
        # twice the weight gets about twice as much
        result = tarn_json("map", "show", path, "--add", "node4=300")
        assert abs(result["members"][3]["shards_after"] - SHARDS / 2) < SHARDS * 0.03

        result = tarn_json("map", "show", path, "--remove", "node2")
        assert {row["from"] for row in result["moves"]} >= {"node2"}
        assert result["members"][1]["shards_after"] == 0 and result["members"][1]["state"] == "draining"
        assert open(path, "rb").read() == before


def test_change_refused():
    with file_of(document(member(1))) as path:
        for options, text in (
            (["--remove", "node1"], "none that is up has a weight above 0"),
            (["--remove", "node7"], "has no such member"),
            (["--add", "node1"], "has a member of this name"),
            (["--add", "a b"], "a member's name has 1 to 63"),
            (["--add", "=5"], "a member's name has 1 to 63"),
            (["--add", "x" * 64], "a member's name has 1 to 63"),
            (["--add", "b=0"], "a weight is 1 to 10000"),
            (["--add", "b=10001"], "a weight is 1 to 10000"),
            (["--add", "b="], "a weight is 1 to 10000"),
        ):
            answer = tarn_json("map", "show", path, *options, check=2)
            assert text in answer["error"]["text"], (options, answer)


def test_key():
    """The same key is in the same shard, whatever the members are."""
    found = set()
    for content in (THREE, document(member(9)), OWNED):
        with file_of(content) as path:
            row = tarn_json("map", "show", path, "--key", "some key")
            found.add(row["shard"])
            rows = tarn_json("map", "show", path, "--shards")["shard_owners"]
            assert rows[row["shard"]]["owner"] == row["owner"]
    assert len(found) == 1


def test_usage():
    with file_of(THREE) as path:
        for arguments in (
            ["map"],
            ["map", "look", path],
            ["map", "check", path, "--add", "x"],
            ["map", "show", path, "--key", "k", "--shards"],
        ):
            tarn(*arguments, check=2)


def test_schema():
    """docs/cluster-map.schema.json is of the same opinion."""
    try:
        import jsonschema
    except ImportError as missing:
        raise Skip("python3-jsonschema is not installed") from missing
    with open(os.path.join(SOURCE, "docs/cluster-map.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    for content, good in (
        (THREE, True),
        (OWNED, True),
        ({**THREE, "colour": 1}, False),
        ({**THREE, "shards": 5000}, False),
        (document(member(1, weight=10001)), False),
        (document(member(1, addresses=[])), False),
        ({**THREE, "since": [1] * SHARDS}, False),
        ({**THREE, "seed": "A5"}, False),
    ):
        errors = list(jsonschema.Draft202012Validator(schema).iter_errors(content))
        assert (not errors) == good, (good, errors[:1])
        with file_of(content) as path:
            tarn("map", "check", path, check=0 if good else 6)


run(
    [
        test_check,
        test_refused,
        test_another_cluster,
        test_no_file,
        test_show,
        test_change,
        test_change_refused,
        test_key,
        test_usage,
        test_schema,
    ]
)
