#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs groups of tests inside the virtual machine and prints TAP. Started by check-rdma.sh.

    run-inside.py GROUP[:TEST[,TEST]]...        run-inside.py --list

A group is a module group_NAME.py, whose functions test_... are its tests, or a script of the integration suite over
RDMA. Each prints a plan of its own. What the kernel of the machine can not do is skipped with the reason.
"""

import importlib
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
INTEGRATION = os.path.join(HERE, "../integration")
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, INTEGRATION]
os.environ.setdefault("TARN_TEST_LIMIT", "60")
import tarntest  # noqa: E402

MODULES = ("environment", "doctor", "faults", "hosts", "cluster", "cluster3", "bare", "sanitizers")
FABRICS = [fabric for fabric in tarntest.FABRICS if fabric]
# Of the suite, what is run on each fabric, and how much of it: a round trip costs 0.1 ms here. On siw the command only does
# what depends on the way to the pool. Of what rxe-cpu has, it sees each part over one of the others: rxe, and a cpu domain.
ALL = ()
PATH = ("put_and_get", "sizes", "conditions", "expiry", "counters", "del", "exists", "long_keys", "keys", "round_trip")
PATH += ("stats_pools_clients_ping", "key_files", "pool_full", "damage")
# Calls on regions, and what several at one see of each other.
REGIONS = ("calls", "counter_of_four", "order", "two_wake_each_other", "destroyed_under_its_users")
# Of the command what depends on the way to the pool.
REGION_VERBS = ("life", "read_and_write", "words", "notify", "copy", "destroyed_meanwhile", "no_daemon", "read_only", "keys")
SUITE = {
    "rxe-nic": {"test-cli.py": ALL, "test-clients.py": ALL, "test-restart.py": ALL, "test-async.py": ALL, "test-examples.py": ALL,
                "test-region.py": ALL, "test-region-cli.py": REGION_VERBS, "test-sync.py": ALL},
    "rxe-cpu": {"test-clients.py": ALL, "test-async.py": ("one_client", "thrown_out"), "test-region.py": ("calls", "counter_of_four", "order")},
    "siw": {"test-cli.py": PATH, "test-clients.py": ALL, "test-async.py": ("one_client", "four_clients"), "test-examples.py": ("kv", "zero-copy"), "test-region.py": REGIONS},
}
ENDPOINT_LIMIT = 90
SOAK = os.path.join(HERE, "../soak/soak.py")
SOAK_SECONDS, SOAK_KEYS = os.environ.get("SOAK_SECONDS") or "60", os.environ.get("SOAK_KEYS") or "20000"
OPERATIONS = {"rxe-nic": "600", "rxe-cpu": "300", "siw": "300"}


def tests_of(name):
    module = importlib.import_module("group_" + name)
    return [value for key, value in vars(module).items() if key.startswith("test_") and value.__module__ == module.__name__]


def run_module(name, only):
    tests = [test for test in tests_of(name) if not only or test.__name__.removeprefix("test_") in only]
    print(f"# group {name}", flush=True)
    return tarntest.run_all(tests)


def run_endpoint():
    """A program with a TAP of its own."""
    print("# endpoint", flush=True)
    program = os.path.join(tarntest.BUILD, "tests/rdma/endpoint")
    try:
        return subprocess.run([program], timeout=ENDPOINT_LIMIT).returncode
    except subprocess.TimeoutExpired:
        print(f"Bail out! endpoint has not finished within {ENDPOINT_LIMIT} s", flush=True)
        return 1


def run_soak():
    print("# soak over rxe-nic", flush=True)
    environment = dict(os.environ, TARN_TEST_FABRIC="rxe-nic", TARN_TEST_LIMIT="0")
    return subprocess.run([sys.executable, "-B", SOAK, SOAK_SECONDS, SOAK_KEYS], env=environment).returncode


def run_suite(fabric, only):
    code = 0
    environment = dict(os.environ, TARN_TEST_FABRIC=fabric, TARN_TEST_OPERATIONS=OPERATIONS[fabric])
    for script, tests in SUITE[fabric].items():
        print(f"# {script} over {fabric}", flush=True)
        names = ["test_" + test for test in only or tests]
        code |= subprocess.run([sys.executable, "-B", os.path.join(INTEGRATION, script), *names], env=environment).returncode
    return code


def main():
    if sys.argv[1:] == ["--list"]:
        for name in MODULES:
            print(name, *(test.__name__.removeprefix("test_") for test in tests_of(name)), sep="\n    ")
        print("endpoint", "soak", *("suite-" + fabric for fabric in FABRICS), sep="\n")
        return 0
    code = 0
    for argument in sys.argv[1:]:
        name, _, only = argument.partition(":")
        only = only.split(",") if only else []
        if name.startswith("suite-"):
            code |= run_suite(name.removeprefix("suite-"), only)
        elif name == "endpoint":
            code |= run_endpoint()
        elif name == "soak":
            code |= run_soak()
        else:
            code |= run_module(name, only)
    return min(code, 1)


if __name__ == "__main__":
    sys.exit(main())
