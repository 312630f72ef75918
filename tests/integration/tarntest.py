# SPDX-License-Identifier: BSD-2-Clause
"""What the integration tests share: TAP, a daemon of their own in a temporary folder, and the command tarn.

A test is a function; run() calls each one and prints one line for it. A test fails by an exception (assert).

The same tests run over RDMA: with TARN_TEST_FABRIC the daemon has an RDMA listener, too, and Daemon.uri leads there
(tests/rdma/README.md). A test that is about the unix socket is marked with @socket_only.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.environ.get("TARN_BUILDDIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build")
SOURCE = os.environ.get("TARN_SRCDIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
TARN = os.path.join(BUILD, "tarn")
TARND = os.path.join(BUILD, "tarnd")

# address of the listener, and what the pool needs for it: see tests/rdma/rdma-vm for the devices
FABRICS = {
    "": (None, ""),
    "rxe-nic": ("10.77.0.1", "listen = rdma\natomics = nic\n"),
    "rxe-cpu": ("10.77.0.1", "atomics = cpu\n"),
    "siw": ("10.78.0.1", ""),
}
FABRIC = os.environ.get("TARN_TEST_FABRIC", "")
# Seconds that one test may take; 0: any time.
LIMIT = int(os.environ.get("TARN_TEST_LIMIT", "0"))

# Other work on the machine makes everything slower, sanitizers too: limits are for hangs, not for speed.
PATIENCE = 60

for name in ("TARN_URI", "TARN_KEY_FILE"):
    os.environ.pop(name, None)


class Skip(Exception):
    """A test that can not run here; the text says why."""


def socket_only(reason):
    """Marks a test that is not for RDMA; the reason is printed."""

    def mark(test):
        test.socket_only = reason
        return test

    return mark


def run(tests):
    """Runs all tests and exits."""
    sys.exit(run_all(tests))


def run_all(tests):
    """Calls each test, returns the exit code; one that fails does not keep the others from running."""
    failed = 0

    def too_long(*_):
        raise AssertionError("not finished within its time limit")

    signal.signal(signal.SIGALRM, too_long)
    # Ended from outside (a time limit): by an exception, so that daemons and folders go away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"1..{len(tests)}", flush=True)
    for number, test in enumerate(tests, 1):
        name = test.__name__.removeprefix("test_").replace("_", " ")
        begin = time.monotonic()
        try:
            if FABRIC and getattr(test, "socket_only", ""):
                raise Skip(test.socket_only)
            signal.alarm(getattr(test, "limit", LIMIT))
            test()
            print(f"ok {number} - {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print("#", line, flush=True)
        finally:
            signal.alarm(0)
            if LIMIT and time.monotonic() - begin > 5:
                print(f"# {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if failed else 0


def freeze(process):
    """SIGSTOP, and returns when each thread of it stands still: on a busy machine that is later, and until then it goes
    on. False: it has ended instead."""
    process.send_signal(signal.SIGSTOP)
    try:
        state = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return False
    return state.si_code == os.CLD_STOPPED


class Daemon:
    """tarnd with a pool named main, in a temporary folder that goes away with it."""

    ports = 0

    def __init__(
        self, pool="size = 64M\nhugepages = off\n", more="", ready=True, fabric=FABRIC, prefix=(), rdma="", address=None
    ):
        """fabric: a name of FABRICS. prefix: in front of tarnd and tarn, as in (ip, netns, exec, hostA). rdma: further
        lines of its RDMA listener. address: instead of the fabric's."""
        self.folder = tempfile.mkdtemp(prefix="tarn-test-", dir="/tmp")
        self.socket = os.path.join(self.folder, "tarn.sock")
        self.uri = self.control = f"tarn:{self.socket}?pool=main"
        self.config = os.path.join(self.folder, "tarnd.conf")
        self.log_path = os.path.join(self.folder, "tarnd.log")
        self.process = None
        self.prefix = list(prefix)
        text = f"[listen local]\npath = {self.socket}\n\n"
        self.address, lines = FABRICS[fabric]
        if self.address:
            self.address = address or self.address
            Daemon.ports += 1
            self.port = 10000 + (os.getpid() * 8 + Daemon.ports) % 20000
            self.uri = f"tarn://{self.address}:{self.port}/main"
            CONTROLS[self.uri] = self.control
            text += f"[listen rdma]\naddress = {self.address}\nport = {self.port}\n{rdma}\n"
            lines += "allow_unauthenticated = yes\n"
            # A machine that is busy with other work lets siw stand still for longer than the rule for late requests allows.
            if fabric == "siw" and "grace" not in pool:
                lines += "grace = 3s\n"
        with open(self.config, "w") as file:
            file.write(f"{text}[pool main]\n{lines}{pool}\n{more}\n")
        if ready:
            try:
                self.start()
            except BaseException:
                # Nobody calls __exit__ for a constructor that failed.
                self.stop(check=False)
                shutil.rmtree(self.folder, ignore_errors=True)
                raise

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if failure[0] is not None:
            print("# the daemon's log:", flush=True)
            for line in self.log().splitlines()[-20:]:
                print("#  ", line, flush=True)
        try:
            self.stop(check=failure[0] is None)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, TARND, "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while self.tarn("ping", "-c", "1", check=None).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("tarnd did not become ready:\n" + self.log())
            time.sleep(0.05)

    def stop(self, check=True):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process = None
        if check:
            assert code == 0, f"tarnd ended with {code}:\n{self.log()}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def log(self):
        try:
            with open(self.log_path, errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def tarn(self, *arguments, **options):
        return tarn("-u", self.uri, *arguments, prefix=self.prefix, **options)


# URI of each daemon's RDMA listener: that of its unix socket. What is asked of the daemon itself is asked there.
CONTROLS = {}
CONTROL_VERBS = ("stats", "top", "pool", "pools", "clients", "config", "reload", "members", "map", "drain", "undrain", "rebalance", "forget")


def tarn(*arguments, stdin=b"", check=0, stdout=subprocess.PIPE, env=None, cwd=None, timeout=PATIENCE, prefix=()):
    """Runs the command; check is the exit code that is expected, None for any."""
    environment = {**os.environ, "TARND": TARND, **(env or {})}
    if any(verb in arguments for verb in CONTROL_VERBS):
        arguments = [CONTROLS.get(argument, argument) for argument in arguments]
    result = subprocess.run(
        [*prefix, TARN, *arguments],
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    if check is not None and result.returncode != check:
        raise AssertionError(
            f"tarn {arguments} ended with {result.returncode}, not {check}\n{(result.stdout or b'')[:2000]!r}\n{result.stderr[:2000]!r}"
        )
    return result


def tarn_json(*arguments, **options):
    """The same with --json; returns the object, whose schema is checked."""
    result = tarn("--json", *arguments, **options)
    return parse(result.stdout)


def parse(text):
    """Exactly one JSON object on one line, with each name once."""

    def no_doubles(pairs):
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), f"a name comes twice: {names}"
        return dict(pairs)

    assert text.endswith(b"\n") and text.count(b"\n") == 1, f"not one line: {text[:500]!r}"
    document = json.loads(text.decode("utf-8"), object_pairs_hook=no_doubles)
    assert document["schema"] == 1, document
    return document
