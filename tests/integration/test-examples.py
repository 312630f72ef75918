# SPDX-License-Identifier: BSD-2-Clause
"""Each program of examples/ does what it says, with one daemon, and with a cluster of two. Also over RDMA, but the cluster."""

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import BUILD, PATIENCE, SOURCE, Daemon, run, socket_only  # noqa: E402

cluster_tests = importlib.import_module("test-cluster")
Member, document, settled, until, count_keys, uri_of, write_map = (
    getattr(cluster_tests, name) for name in ("Member", "document", "settled", "until", "count_keys", "uri_of", "write_map")
)

POOL = "size = 64M\nhugepages = off\nregion_memory = 16M\n"
SAYS = {
    "kv": "Ada\n",
    "async": "1000 values, there and back\n",
    "lock": "added 100\n",
    "work-queue": "100 jobs sent\n100 jobs done\n",
    "zero-copy": "the same, 0 bytes copied\n",
}


def example(name):
    def test():
        with Daemon(pool=POOL) as daemon:
            program = os.path.join(BUILD, "examples", name)
            done = subprocess.run([program, daemon.uri], capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 0 and done.stdout == SAYS[name] and not done.stderr, done
            done = subprocess.run([program, "tarn:/none?pool=main"], capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 1 and "is tarnd running" in done.stderr, done
            assert subprocess.run([program], capture_output=True, timeout=PATIENCE, check=False).returncode == 2

    test.__name__ = "test_" + name
    return test


@contextlib.contextmanager
def cluster():
    """Two members with a fixed map, which have half of the shards each."""
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp"))
        members = [stack.enter_context(Member(name, where, pool=POOL)) for name in ("a", "b")]
        write_map(where, document(members))
        for member in members:
            member.start()
        for member in members:
            settled(member)
        yield members


@socket_only("its members have unix sockets alone")
def test_with_a_cluster():
    """The same programs, unchanged: the URI alone says that it is one."""
    with cluster() as members:
        for name in NAMES:
            program = os.path.join(BUILD, "examples", name)
            done = subprocess.run([program, uri_of(members)], capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 0 and done.stdout == SAYS[name] and not done.stderr, (name, done)
        # of the thousand keys of `async` each has some hundreds
        for member in members:
            until(lambda member=member: (count_keys(member) or 0) > 300, "its keys are counted")


def start(*arguments):
    return subprocess.Popen([os.path.join(BUILD, "examples", arguments[0]), *arguments[1:]], stdout=subprocess.PIPE, text=True)


def test_several_at_a_time():
    with Daemon(pool=POOL) as daemon:
        locks = [start("lock", daemon.uri) for _ in range(3)]
        worker = start("work-queue", daemon.uri, "work")
        sender = start("work-queue", daemon.uri, "send")
        for process, says in [*((lock, "added 100\n") for lock in locks), (sender, "100 jobs sent\n"), (worker, "100 jobs done\n")]:
            assert process.communicate(timeout=PATIENCE)[0] == says and process.returncode == 0, (process.args, says)


NAMES = sorted(name.removesuffix(".c") for name in os.listdir(os.path.join(SOURCE, "examples")) if name.endswith(".c"))
TESTS = [*map(example, NAMES), test_several_at_a_time, test_with_a_cluster]
run([test for test in TESTS if not sys.argv[1:] or test.__name__ in sys.argv[1:]])
