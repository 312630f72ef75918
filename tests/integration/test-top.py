# SPDX-License-Identifier: BSD-2-Clause
"""`tarn top`: on a terminal (a pty), into a pipe, and as JSON; what it leaves behind on each way out. TAP."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

from tarntest import PATIENCE, SOURCE, TARN, Daemon, freeze, parse, run_all, socket_only, tarn, tarn_json

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
# All that it may send to a terminal besides text.
KNOWN = re.compile(rb"\x1b\[(\?1049[hl]|\?25[hl]|H|J|2J|K|0m|7m|33m|1;31m)")


class Terminal:
    """`tarn top` on a terminal of its own."""

    def __init__(self, *arguments, rows=40, columns=150, environment=None, command=None):
        self.fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.settings = termios.tcgetattr(other)  # before anybody changes them
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            os.login_tty(other)
            words = command or [TARN, *arguments]
            env = {**os.environ, "TERM": "xterm", **(environment or {})}
            os.execve("/usr/bin/env", ["env", *words], env)
        os.close(other)
        self.output = b""
        self.ended = None

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if failure[0] is not None:
            print("#", self.output[-2000:], flush=True)
        if self.ended is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.fd is not None:
            os.close(self.fd)

    def read(self):
        """What comes within a moment; False: nobody has the terminal any more."""
        if not select.select([self.fd], [], [], 0.1)[0]:
            return True
        try:
            got = os.read(self.fd, 65536)
        except OSError:
            return False
        self.output += got
        return bool(got)

    def expect(self, text, start=0):
        """Until text is there behind start; returns the place behind it."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.output[start:]:
            assert time.monotonic() < deadline and self.read(), (text, self.output[-2000:])
        return start + self.output[start:].index(text) + len(text)

    def type(self, keys):
        os.write(self.fd, keys)

    def end(self):
        """Its exit status; then everything is read."""
        deadline = time.monotonic() + PATIENCE
        while self.ended is None:
            assert time.monotonic() < deadline, "it has not ended"
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended = status
            elif self.fd is not None:
                self.read()
            else:
                time.sleep(0.05)
        while self.fd is not None and select.select([self.fd], [], [], 0)[0] and self.read():
            pass
        return os.waitstatus_to_exitcode(self.ended)

    def check_left(self):
        """The terminal is as it was."""
        assert self.output.count(ENTER) == self.output.count(LEAVE) > 0, self.output[-500:]
        assert self.output.rstrip().endswith(LEAVE), self.output[-500:]
        assert self.output.rindex(b"\x1b[?25h") > self.output.rindex(b"\x1b[?25l")
        assert termios.tcgetattr(self.fd) == self.settings


@contextlib.contextmanager
def started(*arguments, program=TARN):
    """A process with pipes, that does not outlive the test."""
    with subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def top(daemon, *arguments, **options):
    return Terminal("-u", daemon.control, "top", "-d", "0.2", *arguments, **options)


def lines_of(text):
    return [parse(line + b"\n") for line in text.splitlines()]


# ---- programs ----

SHAPE = {
    "time_ms": int, "interval_ms": (int, None), "restarted": bool, "daemon": dict, "pools": list, "devices": list,
    "clients_connected": int, "sort": str, "clients": list, "events": list, "schema": int,
}  # fmt: skip


def test_json():
    """A document on each line, at once; rates from the second one on; members are those of `tarn stats`."""
    daemon.tarn("put", "key", "value")
    looks = lines_of(tarn("-u", daemon.control, "--json", "top", "-n", "3", "-d", "0.3").stdout)
    assert len(looks) == 3
    stats = tarn_json("-u", daemon.control, "stats")
    for number, look in enumerate(looks):
        assert look.keys() == SHAPE.keys(), look.keys()
        for name, kind in SHAPE.items():
            kinds = kind if isinstance(kind, tuple) else (kind,)
            assert (look[name] is None and None in kinds) or type(look[name]) in kinds, (name, look[name])
        assert (look["interval_ms"] is None) == (number == 0)
        pool = look["pools"][0]
        rates = {name: value for name, value in pool.items() if name.endswith("_per_second")}
        assert len(rates) == 8, rates
        for name, value in rates.items():
            assert value is None if number == 0 else value >= 0, (name, value)
            assert name.removesuffix("_per_second") in stats["pools"][0]["operations"], name
        for name in pool.keys() - rates.keys() - {"keeper", "hit_percent"}:
            known = stats["pools"][0]
            assert name in known or name in known["memory"] or name in known["operations"], name
        for name in ("version", "pid", "started_ms", "ready"):
            assert look["daemon"][name] == stats["daemon"][name]
    assert looks[1]["interval_ms"] >= 300


def test_json_comes_at_once():
    """A reader sees a look when it is there, not when the next one is."""
    with started("-u", daemon.control, "--json", "top", "-d", "3600") as process:
        assert json.loads(process.stdout.readline())["schema"] == 1
        process.send_signal(signal.SIGTERM)
        rest, complaint = process.communicate(timeout=PATIENCE)
        assert (process.returncode, rest, complaint) == (0, b"", b"")


@socket_only("the daemon knows the process of clients on its host alone")
def test_rates():
    """Operations of a client that works come back as rates, of its pool and of itself."""
    load = ("-u", daemon.uri, "--keys", "1000", "--mix", "get=90,put=10", "--ceiling", "off", "--rate", "500",
            "--rounds", "1", "--duration", "3600")  # fmt: skip
    with started(*load, program=os.path.join(os.path.dirname(TARN), "tarn-bench")) as bench:
        with started("-u", daemon.control, "--json", "top", "-d", "1.5", "--sort", "gets") as process:
            while True:
                look = parse(process.stdout.readline())
                pool = look["pools"][0]
                busy = [client for client in look["clients"] if (client["gets_per_second"] or 0) > 0]
                if busy and pool["gets_per_second"] and pool["puts_per_second"]:
                    break
            assert busy[0] == look["clients"][0] and busy[0]["pid"] == bench.pid, look["clients"]
            assert busy[0]["operations_per_second"] >= busy[0]["gets_per_second"]
            assert 0 < pool["hit_percent"] <= 100
            assert pool["get_latency_below_ns"]["p99"] >= pool["get_latency_below_ns"]["p50"] > 0


def test_batch():
    """Into a pipe: text, look behind look, nothing of a terminal."""
    text = daemon.tarn("top", "-n", "2", "-d", "0.1", env={"TERM": "xterm"}).stdout
    assert b"\x1b" not in text and text.count(b"tarnd ") >= 2 and text.count(b"keeper ") == 2, text
    assert b"gets/s" in text and b"main" in text
    narrow = daemon.tarn("top", "-n", "1", env={"COLUMNS": "40"}).stdout
    assert max(len(line) for line in narrow.splitlines()) <= 40, narrow


def test_broken_pipe():
    """A reader that goes away ends it, with a word and exit code 1, as it ends other verbs."""
    for mode in (["--json"], []):
        with started("-u", daemon.control, *mode, "top", "-b", "-d", "0.1") as process:
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(PATIENCE) == 1
            assert b"standard output" in process.stderr.read()


def test_usage():
    for arguments, word in (
        (["-d", "0"], b"0.1 to 3600"),
        (["-d", "0.01"], b"0.1 to 3600"),
        (["-d", "3601"], b"0.1 to 3600"),
        (["-d", "nan"], b"0.1 to 3600"),
        (["-d", "0x1"], b"0.1 to 3600"),
        (["-d", "1.2.3"], b"0.1 to 3600"),
        (["-d", "-1"], b"0.1 to 3600"),
        (["-d", ""], b"0.1 to 3600"),
        (["-n", "0"], b"--count '0'"),
        (["-n", "x"], b"--count 'x'"),
        (["--clients", "-1"], b"--clients '-1'"),
        (["-s", "get"], b"did you mean gets?"),
        (["-s", "\x1b"], b"--sort '\\x1b'"),
        (["extra"], b"too many"),
    ):
        result = tarn("-u", daemon.control, "top", *arguments, check=2)
        assert word in result.stderr and not result.stdout, (arguments, result)
    for fine in (["-d", "0.1"], ["-d", "100ms"], ["-d", "3600"], ["-d1"], ["-s", "name"], ["--clients", "0"]):
        daemon.tarn("top", "-n", "1", *fine)


def test_help_names_all():
    """The man page, help and the table of sort keys say the same."""
    with open(os.path.join(SOURCE, "docs/man/tarn.1")) as file:
        page = file.read()
    page = page[page.index(".It Cm top") :]
    page = page[: page.index("\n.It Cm pools")]
    told = tarn("-u", daemon.control, "top", "-s", "?", check=2).stderr.decode()
    names = re.search(r"one of ([a-z, ]+)", told).group(1).strip().split(", ")
    assert len(names) == 9
    for name in names:
        assert re.search(rf"\b{name}\b", page), name
        assert name in tarn("help", "top").stdout.decode(), name


# ---- a terminal ----


def test_screen():
    with top(daemon) as screen:
        screen.expect(b"main")
        place = screen.expect(b"(operations)")
        screen.type(b"p")
        place = screen.expect(b"(puts)", place)
        screen.type(b"\x1b[A")  # an arrow: nothing happens, and it is no 'A'
        screen.type(b"n")
        screen.expect(b"(name)", place)
        screen.type(b"q")
        assert screen.end() == 0
        screen.check_left()
        assert b"\x1b[7m" in screen.output
        assert b"\x1b" not in KNOWN.sub(b"", screen.output)


def test_count_on_a_terminal():
    with top(daemon, "-n", "2") as screen:
        assert screen.end() == 0
        screen.check_left()


def test_signals():
    """Each signal that ends it leaves the terminal as it was."""
    # who runs the tests by nohup has it ignored, and so would the command
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        with top(daemon) as screen:
            screen.expect(b"(operations)")
            os.kill(screen.pid, number)
            assert screen.end() == 0, number
            screen.check_left()
    with top(daemon) as screen:
        screen.expect(b"(operations)")
        screen.type(b"\x03")
        assert screen.end() == 0
        screen.check_left()


def test_stop_and_go_on():
    """Ctrl-Z gives the shell its terminal, fg brings the view back."""
    script = f'set -m; "{TARN}" -u "{daemon.control}" top -d 0.2; echo "stopped=$?"; fg >/dev/null; echo "ended=$?"'
    with Terminal(command=["bash", "-c", script]) as screen:
        screen.expect(b"(operations)")
        screen.type(b"\x1a")
        place = screen.expect(b"stopped=148")
        assert screen.output[:place].count(ENTER) == screen.output[:place].count(LEAVE) == 1
        place = screen.expect(ENTER, place)
        screen.expect(b"(operations)", place)
        screen.type(b"q")
        screen.expect(b"ended=0")
        assert screen.end() == 0


def test_terminal_gone():
    """The window is closed: it ends, and does not run on without one."""
    with top(daemon) as screen:
        screen.expect(b"(operations)")
        os.close(screen.fd)
        screen.fd = None
        screen.end()


def test_resize():
    with top(daemon, rows=40, columns=150) as screen:
        place = screen.expect(b"(operations)")
        screen.expect(b"put_p99", 0)
        fcntl.ioctl(screen.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 50, 0, 0))
        # One that was under way may come first.
        deadline = time.monotonic() + PATIENCE
        while True:
            place = screen.expect(b"\x1b[H", place)
            end = screen.expect(b"\x1b[J", place)
            lines = KNOWN.sub(b"", screen.output[place:end]).split(b"\r\r\n")
            if len(lines) <= 10 and max(map(len, lines)) <= 50:
                break
            assert time.monotonic() < deadline, lines
        screen.type(b"q")
        assert screen.end() == 0
        screen.check_left()


def test_no_colour():
    with top(daemon, "-n", "1", environment={"NO_COLOR": "1"}) as screen:
        assert screen.end() == 0
        assert b"\x1b[7m" not in screen.output and b"main" in screen.output
        screen.check_left()


def test_dumb_terminal():
    for term in ("dumb", ""):
        with top(daemon, "-n", "1", environment={"TERM": term}) as screen:
            assert screen.end() == 0
            assert b"\x1b" not in screen.output and b"main" in screen.output


@socket_only("a client over RDMA has an address, and no name")
def test_hostile_name():
    """A client chooses the name of its process: what a terminal would obey does not get there."""
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as folder:
        program = os.path.join(folder, "\x1b[2J\x07\r\nx")
        os.symlink(os.path.abspath(TARN), program)
        with started("-u", daemon.uri, "ping", "-c", "100000000", program=program) as client:
            while not any(one["pid"] == client.pid for one in tarn_json("-u", daemon.control, "clients")["clients"]):
                time.sleep(0.05)
            with top(daemon, "-n", "1") as screen:
                assert screen.end() == 0
                assert b"\\x1b[2J" in screen.output, screen.output
                drawn = screen.output[screen.output.index(b"\x1b[H\x1b[K") :]  # behind the first clearing
                assert b"\x1b[2J" not in drawn and b"\x07" not in drawn
                assert b"\x1b" not in KNOWN.sub(b"", drawn)
            text = daemon.tarn("top", "-b", "-n", "1").stdout
            assert b"\\x1b[2J" in text and b"\x1b" not in text and b"\x07" not in text


# ---- a daemon that goes away ----


def test_no_daemon():
    """At the beginning that is an error, as of other verbs, and no screen is taken."""
    with Terminal("-u", "tarn:/nonexistent/tarn.sock?pool=main", "top") as screen:
        assert screen.end() == 3
        assert b"\x1b" not in screen.output and b"no such socket" in screen.output
    answer = tarn_json("-u", "tarn:/nonexistent/tarn.sock?pool=main", "top", check=3)
    assert answer["error"]["name"] == "TARN_EUNREACHABLE"


def test_restart():
    """It says that nobody answers, goes on when somebody does, and says that it is another daemon."""
    with Daemon() as other:
        with top(other) as screen, started("-u", other.control, "--json", "top", "-d", "0.2") as process:
            place = screen.expect(b"(operations)")
            assert "error" not in parse(process.stdout.readline())
            other.stop()
            place = screen.expect(b"no answer: ", place)
            while "error" not in (look := parse(process.stdout.readline())):
                pass
            assert look["error"]["name"] in ("TARN_EUNREACHABLE", "TARN_ESESSION"), look
            other.start()
            screen.expect(b"the daemon was started again", place)
            while "error" in (look := parse(process.stdout.readline())):
                pass
            assert look["restarted"] and look["interval_ms"] is None
            assert look["pools"][0]["gets_per_second"] is None
            while not (look := parse(process.stdout.readline()))["interval_ms"]:
                pass
            assert not look["restarted"] and look["pools"][0]["gets_per_second"] >= 0
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)
            assert process.returncode == 0
            screen.type(b"q")
            assert screen.end() == 0
            screen.check_left()


def test_stopped_daemon():
    """While it waits for an answer that does not come, keys and signals are still heard."""
    with Daemon() as other:
        for how in ("key", "signal"):
            with top(other, "-t", "60min") as screen:
                screen.expect(b"(operations)")
                assert freeze(other.process)
                try:
                    time.sleep(0.5)  # it is waiting by now, or will hear it before it asks
                    if how == "key":
                        screen.type(b"q")
                    else:
                        os.kill(screen.pid, signal.SIGTERM)
                    assert screen.end() == 0
                    screen.check_left()
                finally:
                    other.process.send_signal(signal.SIGCONT)


def test_full_backlog():
    """The same when not even a connection is to be had."""
    other = Daemon(ready=False)
    with open(other.config) as file:
        text = file.read()
    with open(other.config, "w") as file:
        file.write(text.replace("[listen local]\n", "[listen local]\nbacklog = 1\n"))
    with other, contextlib.ExitStack() as crowd:
        other.start()
        with top(other, "-t", "60min") as screen:
            screen.expect(b"(operations)")
            assert freeze(other.process)
            try:
                with contextlib.suppress(BlockingIOError):
                    for _ in range(1000):
                        one = crowd.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
                        one.connect(other.socket)
                    raise AssertionError("its backlog takes any number")
                time.sleep(0.5)  # it tries to connect by now
                screen.type(b"q")
                assert screen.end() == 0
                screen.check_left()
            finally:
                other.process.send_signal(signal.SIGCONT)


TESTS = [
    test_json, test_json_comes_at_once, test_rates, test_batch, test_broken_pipe, test_usage, test_help_names_all,
    test_screen, test_count_on_a_terminal, test_signals, test_stop_and_go_on, test_terminal_gone, test_resize,
    test_no_colour, test_dumb_terminal, test_hostile_name, test_no_daemon, test_restart, test_stopped_daemon,
    test_full_backlog,
]  # fmt: skip
for one in TESTS:
    one.limit = 5 * PATIENCE  # for hangs
with Daemon() as daemon:
    code = run_all(TESTS)
sys.exit(code)
