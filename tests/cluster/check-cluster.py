#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A cluster on hosts that are network namespaces: three tarnd, three etcd, clients. Prints TAP, one plan per group.

    check-cluster.py [GROUP[:TEST[,TEST]]]...        check-cluster.py --list

Each group runs in namespaces of its own (network, mounts, processes): when it ends, or is ended, nothing of it is left. Two at a
time (CLUSTER_JOBS); what they print comes when they have ended.
"""

import concurrent.futures
import contextlib
import ctypes
import importlib
import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
os.environ.setdefault("TARN_TEST_LIMIT", "300")
sys.path[:0] = [HERE, os.path.join(HERE, "../integration")]
INSIDE = "--inside"
GROUPS = ("etcd", "pause", "links", "restart", "map")
UNSHARE = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def tests_of(group):
    module = importlib.import_module("group_" + group)
    return [value for key, value in vars(module).items() if key.startswith("test_") and value.__module__ == module.__name__]


def inside(words):
    """In namespaces of its own."""
    import tarntest

    code = 0
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tarn-test", "/run/netns"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for word in words:
        group, _, only = word.partition(":")
        only = only.split(",") if only else []
        tests = [test for test in tests_of(group) if not only or test.__name__.removeprefix("test_") in only]
        print(f"# group {word}", flush=True)
        code |= tarntest.run_all(tests)
    return code


RUNNING = []


def die_with_parent():
    """PR_SET_PDEATHSIG; and with unshare dies all that is in its namespaces."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def run(word):
    """Its exit code and what it has printed."""
    command = [*UNSHARE, sys.executable, "-B", os.path.abspath(__file__), INSIDE, word]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent
    ) as process:
        RUNNING.append(process)
        text = process.stdout.read()
        RUNNING.remove(process)
    return process.returncode, text


def interrupted(*_):
    """Each test ends by an exception, so that its folders go away, too."""
    for process in list(RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    sys.exit(143)


def why_not():
    """What is missing here; empty: nothing."""
    for program, package in (("etcd", "etcd-server"), ("ip", "iproute2"), ("unshare", "util-linux")):
        if not shutil.which(program):
            return f"{program} is not installed (Debian: {package})"
    result = subprocess.run([*UNSHARE, "ip", "netns", "list"], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return f"no namespaces for networks, mounts and processes here (it needs root): {result.stderr.strip()}"
    return ""


def main():
    words = sys.argv[1:]
    if words[:1] == [INSIDE]:
        return inside(words[1:])
    if words == ["--list"]:
        for group in GROUPS:
            print(group, *(test.__name__.removeprefix("test_") for test in tests_of(group)), sep="\n    ")
        return 0
    words = words or list(GROUPS)
    for word in words:
        if word.partition(":")[0] not in GROUPS:
            print(f"check-cluster.py: no group {word}; there are: {' '.join(GROUPS)}", file=sys.stderr)
            return 2
    reason = why_not()
    if reason:
        print(f"1..0 # SKIP {reason}")
        return 0
    code = 0
    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CLUSTER_JOBS") or 2)) as pool:
        for result, text in pool.map(run, words):
            sys.stdout.buffer.write(text)
            sys.stdout.flush()
            code |= result
    return min(code, 1)


if __name__ == "__main__":
    sys.exit(main())
