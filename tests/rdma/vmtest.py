# SPDX-License-Identifier: BSD-2-Clause
"""What the groups of tests inside the virtual machine share: the hostile client, steady clients, devices."""

import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
from tarntest import BUILD, PATIENCE, TARN, TARND, Daemon, Skip, freeze, tarn, tarn_json  # noqa: E402, F401

DMABUF = os.path.join(BUILD, "tests/rdma/dmabuf")
HOSTILE = os.path.join(BUILD, "tests/rdma/hostile")
SESSIONS = os.path.join(BUILD, "tests/rdma/sessions")
STEADY = os.path.join(BUILD, "tests/rdma/steady")
# How a connection ends that the daemon cuts: the latter, when it was too young to count as established there.
ENDED = ("RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_REJECTED")
CLIENT = os.path.join(BUILD, "tests/integration/client")

# for configurations that are written by hand; Daemon() adds the permission by itself
OPEN = "allow_unauthenticated = yes\n"
SMALL = "size = 16M\nhugepages = off\n"
MEDIUM = "size = 64M\nhugepages = off\n"

# enum ibv_wc_status
SUCCESS, FLUSHED, REMOTE_INVALID, REMOTE_ACCESS, REMOTE_OPERATION = 0, 5, 9, 10, 11
REFUSED = (FLUSHED, REMOTE_INVALID, REMOTE_ACCESS)  # which one it is depends on the device
# enum wire_reason
REASONS = {1: "version", 2: "no_pool", 3: "no_key", 4: "unknown_key", 5: "bad_mac", 6: "time", 7: "role", 8: "clients",
           9: "shutdown", 10: "malformed", 11: "internal", 12: "busy", 13: "replay", 14: "address", 15: "transport"}
RPC_PING = 1
# What the client says when rxe reports a CAS as done without its result.
RXE_LOST = "is done, but not what it found there"


def limit(seconds):
    """A test's own time limit."""

    def mark(test):
        test.limit = seconds
        return test

    return mark


def command(*words, check=0, timeout=PATIENCE, **options):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, **options)
    assert check is None or result.returncode == check, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def wait(condition, seconds=20, what="a condition"):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true within {seconds} s"
        time.sleep(0.05)


# ---- devices ----


def resources(device):
    """How many objects of each kind the device has, without what the kernel itself owns."""
    for line in json.loads(command("rdma", "-j", "resource", "show")):
        if line["ifname"] == device:
            return {kind: count for kind, count in line.items() if kind in ("pd", "cq", "qp", "mr", "srq", "ctx", "cm_id")}
    raise AssertionError(f"no device {device}")


def no_more(device, before):
    """Has the device no more objects than these? Some may have been of a client that was about to end."""
    return all(count <= before[kind] for kind, count in resources(device).items())


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_seconds(pid):
    """(user, system)"""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return tuple(int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13])


# ---- clients ----


def hostile(daemon, *words, pool="main", port=None, prefix=(), background=False):
    """Runs the hostile client; what it printed, as a list of objects. background: the process, for Held."""
    options, steps = [], [str(word) for word in words]
    arguments = [*prefix, HOSTILE, daemon.address, str(port or daemon.port), "--pool", pool, *options, *steps]
    if background:
        return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    result = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, f"{arguments}: {result.returncode} {result.stderr}"
    return [json.loads(line) for line in result.stdout.splitlines()]


def reason(answer):
    """Why the daemon has refused: a word, or what came instead."""
    if answer["answer"] == "reject" and answer["decoded"] == 0:
        return REASONS[answer["reason"]]
    return answer


class Hostile:
    """A hostile client that goes on in the background; next() is what it prints next, go() ends its step hold."""

    def __init__(self, daemon, *words, **options):
        self.process = hostile(daemon, *words, background=True, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def next(self):
        line = self.process.stdout.readline()
        assert line, "the hostile client has ended"
        return json.loads(line)

    def go(self):
        self.process.stdin.close()
        self.process.stdin = None  # communicate() would flush it


class Steady:
    """A steady client in the background."""

    def __init__(self, uri, number, seconds, *words, prefix=()):
        self.process = subprocess.Popen(
            [*prefix, STEADY, uri, str(number), str(seconds), *(str(word) for word in words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        if line != "started\n":
            raise AssertionError(f"steady {number}: {line}{self.process.communicate()[1]}")

    def finish(self):
        """Its report; a wrong value is an error."""
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, f"{self.process.returncode}: {err}"
        self.report = json.loads(out)
        return self.report

    def count(self, *words):
        """How many calls had an outcome of these: "OK", "TARN_EAMBIGUOUS"."""
        return sum(number for name, number in self.report["outcomes"].items() if name.split()[1] in words)

    def others(self, *words):
        """Outcomes that are none of these, nor one of rxe's, which is shown."""
        others = {name: number for name, number in self.report["outcomes"].items() if name.split()[1] not in words}
        for name in list(others):
            # When it sends requests again, as it does on a busy machine, too (README.md). The texts are of the first ones.
            if RXE_LOST in self.report["texts"].get(name, "") and others[name] <= 2:
                print(f"# rxe has lost the result of a CAS: {name} {others.pop(name)}", flush=True)
        return others


def check_adds(daemon, steadies):
    """The counter is the sum of all acknowledged adds, give or take those whose outcome is open."""
    answer = daemon.tarn("get", "steady/adds", check=None)
    value = int(answer.stdout or b"0")
    low = sum(s.report["added"] + s.report["open_low"] for s in steadies)
    high = sum(s.report["added"] + s.report["open_high"] for s in steadies)
    assert low <= value <= high, f"steady/adds is {value}, not {low} to {high}"


def sessions(uri, kind, count, timeout_ms=20000, hold=False):
    """The program `sessions`; hold: (process, report), else the report."""
    process = subprocess.Popen(
        [SESSIONS, uri, kind, str(count), str(timeout_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    line = process.stdout.readline()
    assert line, f"sessions has ended with {process.wait()}"
    report = json.loads(line)
    if hold:
        return process, report
    process.communicate()
    assert process.returncode == 0, process.returncode
    return report


def clients(daemon):
    return tarn_json("-u", daemon.uri, "clients")["clients"]


def wait_clients(daemon, count, seconds=20):
    wait(lambda: len(clients(daemon)) == count, seconds, f"{count} clients")


def pool_stats(daemon, index=0):
    return tarn_json("-u", daemon.uri, "stats")["pools"][index]
