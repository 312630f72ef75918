# SPDX-License-Identifier: BSD-2-Clause
"""What the integration tests share: TAP, a daemon of their own in a temporary folder, and the command tarn.

A test is a function; run() calls each one and prints one line for it. A test fails by an exception (assert).
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

# Other work on the machine makes everything slower, sanitizers too: limits are for hangs, not for speed.
PATIENCE = 60

for name in ("TARN_URI", "TARN_KEY_FILE"):
    os.environ.pop(name, None)


class Skip(Exception):
    """A test that can not run here; the text says why."""


def run(tests):
    """Runs all tests and exits."""
    sys.exit(run_all(tests))


def run_all(tests):
    """Calls each test, returns the exit code; one that fails does not keep the others from running."""
    failed = 0
    # Ended from outside (a time limit): by an exception, so that daemons and folders go away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"1..{len(tests)}", flush=True)
    for number, test in enumerate(tests, 1):
        name = test.__name__.removeprefix("test_").replace("_", " ")
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print("#", line, flush=True)
    return 1 if failed else 0


class Daemon:
    """tarnd with a pool named main, in a temporary folder that goes away with it."""

    def __init__(self, pool="size = 64M\nhugepages = off\n", more="", ready=True):
        self.folder = tempfile.mkdtemp(prefix="tarn-test-", dir="/tmp")
        self.socket = os.path.join(self.folder, "tarn.sock")
        self.uri = f"tarn:{self.socket}?pool=main"
        self.config = os.path.join(self.folder, "tarnd.conf")
        self.log_path = os.path.join(self.folder, "tarnd.log")
        self.process = None
        with open(self.config, "w") as file:
            file.write(f"[listen local]\npath = {self.socket}\n\n[pool main]\n{pool}\n{more}\n")
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
            self.process = subprocess.Popen([TARND, "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
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
        return tarn("-u", self.uri, *arguments, **options)


def tarn(*arguments, stdin=b"", check=0, stdout=subprocess.PIPE, env=None, cwd=None, timeout=PATIENCE):
    """Runs the command; check is the exit code that is expected, None for any."""
    environment = dict(os.environ, **(env or {}))
    result = subprocess.run(
        [TARN, *arguments],
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
