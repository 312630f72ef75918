# SPDX-License-Identifier: BSD-2-Clause
"""Regions of a cluster: three daemons with a fixed map on this machine. A region is with one of them, calls go there, and
with that daemon killed the others' regions are there. TAP."""

import contextlib
import importlib
import json
import os
import subprocess

from tarntest import BUILD, PATIENCE, TARN, run

cluster_tests = importlib.import_module("test-cluster")
NAMES, cluster, settled, until = (getattr(cluster_tests, name) for name in ("NAMES", "cluster", "settled", "until"))
POOL = "size = 16M\nhugepages = off\nregion_memory = 8M\n"
LARGE = "size = 16M\nhugepages = off\nregion_memory = 64M\n"


def uri(members):
    return f"tarn:{','.join(m.socket for m in members)}?pool=main"


def started(members):
    for member in members:
        settled(member)


def tool(name):
    return os.path.join(BUILD, "tests/integration", name)


def client(name, members, *args):
    subprocess.run([tool(name), uri(members), *args], timeout=4 * PATIENCE, check=True)


class Command:
    """The `tarn` command with the cluster's URI: what it prints, or says when it fails."""

    def __init__(self, members, *options):
        self.command = [TARN, "-u", uri(members), *options]

    def __call__(self, *args, check=0, stdin=b""):
        result = subprocess.run([*self.command, *args], input=stdin, capture_output=True, timeout=PATIENCE, check=False)
        assert result.returncode == check, (args, result)
        return (result.stderr if check else result.stdout).decode()

    def json(self, *args):
        return json.loads(self("--json", *args))


def test_calls():
    """Every call of tarn/region.h and tarn/sync.h, blocking and asynchronous, as with a single daemon."""
    with cluster(pool=LARGE) as (_, members):
        started(members)
        client("region-client", members, "calls")
        client("sync-calls", members)


def test_command():
    """A region is with one member, the same one for every client; the rest of the verbs find it there."""
    with cluster(pool=POOL) as (_, members):
        started(members)
        tarn = Command(members)
        names = [f"r{i}" for i in range(12)]
        for name in names:
            tarn("region", "create", name, "8K")
        tarn("region", "create", "mine@b", "8K")
        listed = tarn.json("region", "list")["regions"]
        assert [row["name"] for row in listed] == [*names, "mine"], listed
        at = {row["name"]: row["member"] for row in listed}
        assert at["mine"] == "b" and set(at.values()) == set(NAMES), at
        # whoever is asked first for the map
        other = Command(members[::-1])
        for name in names:
            assert other.json("region", "show", name)["member"] == at[name]
            assert other.json("region", "show", f"{name}@{at[name]}")["name"] == name
            elsewhere = NAMES[(NAMES.index(at[name]) + 1) % 3]
            assert "no region" in other("region", "show", f"{name}@{elsewhere}", check=1)
        assert other("region", "create", "mine", "4K", check=1).count("with member b") == 1
        assert "no member" in other("region", "show", "mine@z", check=2)
        tarn("region", "write", "mine", stdin=b"hello")
        tarn("region", "copy", "mine", f"{names[0]}@{at[names[0]]}")
        assert other("region", "read", names[0], "--bytes", "5") == "hello"
        assert other.json("region", "add", "mine@b", "8", "5")["before"] == 0
        tarn("region", "resize", names[1], "16K")
        assert other.json("region", "show", names[1])["bytes"] == 16384
        other("region", "destroy", *names[:11], "mine")
        assert [row["name"] for row in tarn.json("region", "list")["regions"]] == names[11:]


def lines(path):
    try:
        with open(path, encoding="ascii") as file:
            return [line.split() for line in file.read().splitlines()]
    except FileNotFoundError:
        return []


def test_processes():
    """Two processes wake each other, share a lock and a queue, in a region of a cluster."""
    with cluster(pool=POOL) as (where, members), contextlib.ExitStack() as stack:
        started(members)
        tarn = Command(members)
        tarn("region", "create", "ball", "4K")
        sides = [subprocess.Popen([tool("region-client"), uri(members), "pong", "ball", "200", str(i)]) for i in range(2)]
        assert [side.wait(PATIENCE) for side in sides] == [0, 0]
        logs = {}
        for name, mode, number in (("one", "lock", 0), ("two", "lock", 0), ("sender", "produce", 1 << 32)):
            logs[name] = os.path.join(where, name)
            process = subprocess.Popen([tool("sync-client"), uri(members), mode, str(number), logs[name]])
            stack.callback(process.wait)
            stack.callback(process.kill)
        counted = lambda name, what: sum(1 for line in lines(logs[name]) if line[0] == what)
        until(lambda: counted("one", "added") > 20 and counted("two", "added") > 20, "both have had the lock")
        until(lambda: counted("sender", "sent") > 20, "messages are sent")
        stack.close()
        total = int(subprocess.run([tool("sync-client"), uri(members), "number", "0", os.devnull], capture_output=True, check=True).stdout)
        added = counted("one", "added") + counted("two", "added")
        assert added <= total <= added + 2, (added, total)  # one that was killed may have had no time to say so
        client("sync-client", members, "drain", "-", os.path.join(where, "drained"))
        got = {line[1] for line in lines(os.path.join(where, "drained")) if line[0] == "got"}
        assert {line[1] for line in lines(logs["sender"]) if line[0] == "sent"} <= got


def test_killed():
    """With a member gone its regions are unavailable, which the text says, and the others' are there; then it comes back."""
    with cluster(pool=POOL) as (_, members):
        started(members)
        tarn = Command(members)
        short = Command(members, "--timeout", "1s")
        for name in NAMES:
            tarn("region", "create", f"of-{name}@{name}", "4K")
            tarn("region", "write", f"of-{name}", stdin=name.encode())
        members[1].kill()
        for name in ("a", "c"):
            assert tarn("region", "read", f"of-{name}", "--bytes", "1") == name
        for args in (("read", "of-b"), ("show", "of-b@b"), ("show", "nobody-knows")):
            text = short("region", *args, check=3)
            assert "member b" in text and args[1].removesuffix("@b") in text, text
        text = short("region", "list", check=3)
        assert "member b" in text, text
        members[1].start()
        settled(members[1])
        # its memory went with it: it is another pool, of the same member
        assert "no region" in tarn("region", "show", "of-b", check=1)
        tarn("region", "create", "of-b@b", "4K")
        assert [row["name"] for row in tarn.json("region", "list")["regions"]] == ["of-a", "of-c", "of-b"]


if __name__ == "__main__":
    run([test_calls, test_command, test_processes, test_killed])
