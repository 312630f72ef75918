# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts: the daemon in network namespace hostA, clients in hostB, a cable between them that loses, delays, breaks."""

import contextlib
import time

from vmtest import MEDIUM, SMALL, Daemon, Skip, Steady, check_adds, clients, command, hostile, limit, tarn, wait, wait_clients

A, B = ("ip", "netns", "exec", "hostA"), ("ip", "netns", "exec", "hostB")
ENDS = (("hostA", "eth-rxeA"), ("hostB", "eth-rxeB"))
RIGHT = ("OK", "TARN_ENOTFOUND")


class Host(Daemon):
    """tarnd on hostA; tarn() runs on hostB."""

    def __init__(self, pool=MEDIUM, fabric="rxe-nic", **options):
        super().__init__(pool, fabric=fabric, address="10.79.0.1", prefix=A, ready=False, **options)
        self.start()

    def tarn(self, *arguments, **options):
        saved, self.prefix = self.prefix, list(B)
        try:
            return super().tarn(*arguments, **options)
        finally:
            self.prefix = saved


@contextlib.contextmanager
def netem(*what):
    """The cable has these properties, in both directions."""
    for namespace, device in ENDS:
        command("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "netem", *what)
    try:
        yield
    finally:
        for namespace, device in ENDS:
            command("tc", "-n", namespace, "qdisc", "del", "dev", device, "root", check=None)


def work(daemon, seconds, number=2, *words):
    """Clients that check themselves; also of what they add up."""
    return [Steady(daemon.uri, n, seconds, 10000, "adds", "small", *words, prefix=B) for n in range(number)]


def finish(daemon, steadies, allowed=RIGHT):
    for steady in steadies:
        report = steady.finish()
        print("#", report["successes"], "successes, longest gap", report["longest_gap_ms"], "ms,", report["outcomes"], flush=True)
        assert not steady.others(*allowed), report
    check_adds(daemon, steadies)


def test_two_hosts():
    with Host() as daemon:
        daemon.tarn("put", "k", "v")
        assert daemon.tarn("get", "k").stdout == b"v"
        finish(daemon, work(daemon, 2))
        # What the daemon knows of a client on another host: where it is.
        steady, seen = Steady(daemon.uri, 7, 3, prefix=B), []
        wait(lambda: seen.extend(clients(daemon)) or seen, what="a client in the daemon's list")
        client = seen[0]
        assert client["transport"] == "verbs" and "10.79.0.2" in client["name"], client
        steady.finish()


def loss(percent, fabric="rxe-nic"):
    with Host(fabric=fabric) as daemon:
        with netem("loss", f"{percent}%"):
            steadies = work(daemon, 8)
            for steady in steadies:
                steady.finish()
        # The connection may break when one packet is lost eight times: then, and only then, a write is open.
        for steady in steadies:
            report = steady.report
            print("#", report["successes"], "successes, longest gap", report["longest_gap_ms"], "ms,", report["outcomes"], flush=True)
            assert not steady.others(*RIGHT, "TARN_EAMBIGUOUS"), report
            assert report["successes"] > 50, report
            assert steady.count("TARN_EAMBIGUOUS") <= 2 + report["successes"] // 50, report
        check_adds(daemon, steadies)
        wait_clients(daemon, 0)


def test_loss_of_1_percent():
    loss(1)


def test_loss_of_5_percent():
    loss(5)


def test_loss_of_1_percent_cpu_domain():
    """Messages are lost, too."""
    loss(1, "rxe-cpu")


def test_delay():
    """5 ms each way: slow, but nothing fails."""
    with Host() as daemon, netem("delay", "5ms"):
        finish(daemon, work(daemon, 6))


def test_duplicates():
    """Packets that come twice. Not reordering (netem: reorder, or a delay that varies): rxe of Linux 7.3 then reports success
    for messages of several packets whose bytes are wrong; see test_reordering_is_this_kernels_fault."""
    with Host() as daemon, netem("delay", "1ms", "duplicate", "3%"):
        finish(daemon, work(daemon, 5), (*RIGHT, "TARN_EAMBIGUOUS"))


def test_reordering_is_this_kernels_fault():
    """Plain verbs, without Tarn's endpoint: WRITE and READ back in one post. Where it is right, Tarn must be, too."""
    with Host(SMALL) as daemon:
        with netem("delay", "1ms", "reorder", "5%"):
            one_packet = hostile(daemon, "echo", 8 << 20, 1000, 100, prefix=B)[1]
            several = hostile(daemon, "echo", 8 << 20, 4000, 100, prefix=B)[1]
        assert one_packet["different"] == 0, one_packet
        if several["different"] or several["status"]:
            raise Skip(f"rxe gives wrong bytes under reordering, without Tarn: {several}")
        with netem("delay", "1ms", "reorder", "5%"):
            finish(daemon, work(daemon, 5), (*RIGHT, "TARN_EAMBIGUOUS"))


def link_down(seconds, fabric):
    with Host(fabric=fabric) as daemon:
        steadies = work(daemon, 5 + seconds, 3)
        time.sleep(1.5)
        command("ip", "-n", "hostA", "link", "set", "eth-rxeA", "down")
        time.sleep(seconds)
        command("ip", "-n", "hostA", "link", "set", "eth-rxeA", "up")
        for steady in steadies:
            report = steady.finish()
            print("#", report["successes"], "successes, longest gap", report["longest_gap_ms"], "ms,", report["outcomes"], flush=True)
            # Each call waits for the link; what was on its way when it went is open: one write per client, or a few when the
            # machine is so busy that a connection breaks a second time.
            assert not steady.others(*RIGHT, "TARN_EAMBIGUOUS"), report
            assert steady.count("TARN_EAMBIGUOUS") <= 4, report
            assert (seconds - 1) * 1000 < report["longest_gap_ms"] < (seconds + 6) * 1000, report
        check_adds(daemon, steadies)
        wait_clients(daemon, 0)


@limit(60)
def test_link_down_for_3_s():
    link_down(3, "rxe-nic")


@limit(60)
def test_link_down_for_3_s_cpu_domain():
    link_down(3, "rxe-cpu")


def test_dead_host():
    """A client's host is gone without a word: the daemon finds out by itself, and its place is free again."""
    with Host(SMALL) as daemon:
        steadies = work(daemon, 60, 2)
        wait_clients(daemon, 2)
        with netem("loss", "100%"):
            for steady in steadies:
                steady.process.kill()
                steady.process.communicate()
            begin = time.monotonic()
            wait_clients(daemon, 0, 15)
            print(f"# noticed after {time.monotonic() - begin:.1f} s", flush=True)
        wait(lambda: daemon.tarn("ping", "-c", "1", check=None).returncode == 0, 15, "the way to the daemon")


def test_unreachable():
    """Nobody has this address, nobody listens at this port: each within its time limit, in words."""
    with Host(SMALL) as daemon:
        for uri in ("tarn://10.79.0.99/main", f"tarn://10.79.0.1:{daemon.port + 1}/main"):
            begin = time.monotonic()
            result = tarn("-u", uri, "--timeout", "2s", "get", "k", check=None, prefix=B)
            assert result.returncode in (3, 5), (uri, result)
            assert time.monotonic() - begin < 10, uri
            print("#", result.stderr.decode().strip(), flush=True)
        assert hostile(daemon, prefix=B)[0]["answer"] == "accept"

