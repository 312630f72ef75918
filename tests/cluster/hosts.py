# SPDX-License-Identifier: BSD-2-Clause
"""Hosts that are network namespaces, with one cable each to a router that can drop what goes from one to another.
All of it is inside of the namespaces that check-cluster.py has begun, or, with RDMA, of the virtual machine of tests/rdma."""

import os
import subprocess
import time

CLIENTS = "clients"


def ip(*words, namespace=None, check=True):
    place = ["-n", namespace] if namespace else []
    result = subprocess.run(["ip", *place, *map(str, words)], capture_output=True, text=True, check=False)
    assert not check or result.returncode == 0, f"ip {namespace or ''} {words}: {result.stderr}"


def add_rdma(name):
    """A soft-RoCE device on the host's cable; it goes away with the host."""
    # a new device starts out in the first namespace
    for words in (
        ("ip", "netns", "exec", name, "rdma", "link", "add", f"rxe-{name}", "type", "rxe", "netdev", "eth0"),
        ("rdma", "dev", "set", f"rxe-{name}", "netns", name),
    ):
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{words}: {result.stderr}"
    gids = f"/sys/class/infiniband/rxe-{name}/ports/1/gids"
    script = f"cat {gids}/0 {gids}/1 {gids}/2 {gids}/3 2>/dev/null | grep -q ffff:"
    for _ in range(200):
        if subprocess.run(["ip", "netns", "exec", name, "sh", "-c", script], check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"rxe-{name} has no address")


class Hosts:
    """Those of the names, and `clients`. Their names are also those of their namespaces."""

    def __init__(self, names):
        self.numbers = {name: number for number, name in enumerate([*names, CLIENTS], 1)}
        self.cuts = set()
        try:
            ip("netns", "add", "router")
            ip("link", "set", "lo", "up", namespace="router")
            self.write("router", "net/ipv4/ip_forward", 1)
            for name, number in self.numbers.items():
                self.add(name, number)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @staticmethod
    def write(namespace, path, value):
        subprocess.run(["ip", "netns", "exec", namespace, "sh", "-c", f"echo {value} >/proc/sys/{path}"], check=True)

    def add(self, name, number):
        ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", name, "netns", "router")
        ip("link", "set", "lo", "up", namespace=name)
        ip("addr", "add", f"{self.address(name)}/24", "dev", "eth0", namespace=name)
        ip("addr", "add", f"10.80.{number}.1/24", "dev", name, namespace="router")
        ip("link", "set", name, "up", namespace="router")
        ip("link", "set", "eth0", "up", namespace=name)
        ip("route", "add", "default", "via", f"10.80.{number}.1", namespace=name)
        if os.environ.get("CLUSTER_FABRIC", "").startswith("rxe"):
            add_rdma(name)

    def close(self):
        for name in self.numbers:
            ip("netns", "del", name, check=False)
        ip("netns", "del", "router", check=False)

    def address(self, name):
        return f"10.80.{self.numbers[name]}.2"

    @staticmethod
    def prefix(name):
        """What is written in front of a command that is to run there."""
        return ("ip", "netns", "exec", name)

    def cut(self, one, other, one_way=False):
        """From now on nothing of one arrives at the other, without a word; nor, unless one_way, the other way round."""
        for source, target in ((one, other), (other, one))[: 1 if one_way else 2]:
            if (source, target) not in self.cuts:
                self.rule("add", source, target)
                self.cuts.add((source, target))

    def rule(self, what, source, target):
        ip("rule", what, "from", self.address(source), "to", self.address(target), "blackhole", namespace="router")

    def heal(self):
        for source, target in self.cuts:
            self.rule("del", source, target)
        self.cuts = set()
