# SPDX-License-Identifier: BSD-2-Clause
"""tarnd.service under a real systemd: ready when it says so, its pools outlive crashes and restarts, it is killed when it
stands still, and what it may not do it can not.

systemd runs as process 1 of namespaces of its own, with nothing but our unit: it sees this machine's files, but has
its own /run, /tmp, /dev/shm, /var/lib and users, and its own processes. TAP.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from tarntest import BUILD, PATIENCE, TARN, TARND, Skip, parse, run, socket_only

SYSTEMD = "/lib/systemd/systemd"
REGION = os.path.join(BUILD, "tests/integration/region-client")
FOLDER = "/run/tarn-test"  # the machine's folder, as it is seen inside: programs, configuration, users
# $1: the machine's folder
INSIDE = """
mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -t proc proc /proc && mkdir -p /run/systemd/system {0} &&
mount --bind "$1" {0} && mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/group" /etc/group &&
for folder in /tmp /var/tmp /var/lib /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs $folder || exit; done &&
printf '[Unit]\\nDefaultDependencies=no\\n' >/run/systemd/system/tarn-test.target &&
cp {0}/tarnd.service /run/systemd/system/ && container=tarn-test exec {1} --system --unit=tarn-test.target \
--log-target=console --log-level=info --show-status=0 --log-color=0
""".format(FOLDER, SYSTEMD)
ABOUT = "is about systemd"
ROOM = "size = 32M\nhugepages = off\n"


def unit(name="tarnd"):
    """As it is installed."""
    with open(os.path.join(BUILD, f"systemd/{name}.service")) as file:
        return file.read()


class Machine:
    """A systemd and the service, with this pool; ended with all that runs in it."""

    def __init__(self, pool, watchdog=30, group=""):
        if os.geteuid() != 0:
            raise Skip("needs root, for namespaces")
        if not os.access(SYSTEMD, os.X_OK) or not shutil.which("systemctl"):
            raise Skip("there is no systemd on this machine")
        self.folder = tempfile.mkdtemp(prefix="tarn-test-", dir="/tmp")
        os.chmod(self.folder, 0o755)  # the service has a user of its own
        self.log_path = os.path.join(self.folder, "log")
        self.group = group
        self.configure(pool)
        self.write_unit(watchdog)
        for program in (TARN, TARND, REGION):
            shutil.copy(program, self.folder)
        self.write_users()
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                ["unshare", "-fpmC", "--mount-proc", "--kill-child", "sh", "-c", INSIDE, "sh", self.folder],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self.first = self.wait_boot()
        except BaseException:
            self.end()
            raise

    def configure(self, pool):
        with open(os.path.join(self.folder, "tarnd.conf"), "w") as file:
            file.write(f"[listen local]\npath = /run/tarn/tarn.sock\n{self.group}[pool main]\n{pool}")

    def write_unit(self, watchdog):
        """The unit that is installed, with the programs of this build, and without the targets that are not in there."""
        text = unit()
        text, count = re.subn(r"^ExecStart=.*$", f"ExecStart={FOLDER}/tarnd -c {FOLDER}/tarnd.conf", text, flags=re.M)
        assert count == 1 and "FileDescriptorStoreMax=" in text and "Type=notify" in text, text
        text, count = re.subn(r"^ExecReload=.*/tarn reload$", f"ExecReload={FOLDER}/tarn reload", text, flags=re.M)
        assert count == 1, text
        text, count = re.subn(r"^WatchdogSec=30$", f"WatchdogSec={watchdog}", text, flags=re.M)
        assert count == 1, text
        text, count = re.subn(r"^(After|Wants)=.*\n", "", text, flags=re.M)
        assert count == 2, text
        # A sanitizer looks for leaks by ptrace, which the service may not use.
        text = text.replace("[Service]\n", "[Service]\nEnvironment=ASAN_OPTIONS=detect_leaks=0\n")
        with open(os.path.join(self.folder, "tarnd.service"), "w") as file:
            file.write(text.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n"))

    def write_users(self):
        """This machine's users, and those that systemd/tarn.sysusers would have made; and a group for a socket."""
        for name, lines in (
            ("passwd", "tarn:x:64001:64001::/var/lib/tarn:/usr/sbin/nologin\n"),
            ("group", "tarn:x:64001:\ntarn-test:x:64002:tarn\n"),
        ):
            with open(f"/etc/{name}") as file:
                others = [line for line in file if not line.startswith(("tarn:", "tarn-test:"))]
            with open(os.path.join(self.folder, name), "w") as file:
                file.write("".join(others) + lines)

    def wait_boot(self):
        """Process 1 of the namespaces, as seen from here; once systemd answers."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Skip(f"no namespaces for a systemd here: {self.log().strip()[-200:]}")
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
                children = file.read().split()
            if children:
                self.first = children[0]
                if self.run("systemctl", "is-system-running", check=None).stdout.strip() in (b"running", b"degraded"):
                    return self.first
            time.sleep(0.1)
        raise AssertionError(f"systemd does not come up:\n{self.log()}")

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if failure[0]:
            for line in (self.log().splitlines() + self.run("systemctl", "status", "tarnd", check=None).stdout.decode().splitlines())[-40:]:
                print("#  ", line, flush=True)
        self.end()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)  # unshare's child, which is process 1 in there, goes with it
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def run(self, *command, check=0):
        done = subprocess.run(
            ["nsenter", "-t", self.first, "-m", "-p", "-C", *command], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
        if check is not None:
            assert done.returncode == check, f"{command} ended with {done.returncode}: {done.stdout!r} {done.stderr!r}"
        return done

    def tarn(self, *arguments, check=0):
        return self.run(f"{FOLDER}/tarn", "-u", "tarn:/run/tarn/tarn.sock?pool=main", *arguments, check=check)

    def region(self, *arguments):
        return self.run(f"{FOLDER}/region-client", "tarn:/run/tarn/tarn.sock?pool=main", *arguments)

    def show(self, name):
        return self.run("systemctl", "show", "-P", name, "tarnd").stdout.decode().strip()

    def wait_active(self, restarts):
        """Restarted by systemd, and ready."""
        end = time.monotonic() + PATIENCE
        while (self.show("NRestarts"), self.show("ActiveState")) != (str(restarts), "active"):
            assert time.monotonic() < end, f"{self.show('NRestarts')} restarts, {self.show('ActiveState')}"
            time.sleep(0.05)

    def opened(self):
        return parse(self.tarn("--json", "stats").stdout)["pools"][0]["opened"]


@socket_only(ABOUT)
def test_ready_and_kept():
    """One descriptor a pool is with systemd; a crash and a restart leave every key where it was."""
    with Machine(ROOM) as machine:
        machine.run("systemctl", "start", "tarnd")
        # `start` has returned: so it is ready
        machine.tarn("put", "key", "value", check=0)
        assert machine.opened() == "new"
        assert machine.show("NFileDescriptorStore") == "1"
        for number in range(1, 4):
            machine.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", "tarnd")
            machine.wait_active(number)
            assert machine.tarn("get", "key").stdout == b"value"
            assert machine.opened() == "kept"
            assert machine.show("NFileDescriptorStore") == "1"
        machine.run("systemctl", "restart", "tarnd")
        assert machine.tarn("get", "key").stdout == b"value"
        machine.run("systemctl", "reload", "tarnd")
        assert machine.tarn("get", "key").stdout == b"value"
        # a stop gives the memory back
        machine.run("systemctl", "stop", "tarnd")
        assert machine.show("Result") == "success"
        machine.run("systemctl", "start", "tarnd")
        machine.tarn("get", "key", check=1)


@socket_only(ABOUT)
def test_reload():
    """`systemctl reload` returns when it is done, and fails when it was refused; the unit stays active."""
    with Machine(ROOM) as machine:
        machine.run("systemctl", "start", "tarnd")
        machine.tarn("put", "key", "value")
        machine.configure(ROOM + "mode = store\nmax_value = 1M\n[listen more]\npath = /run/tarn/more.sock\n")
        machine.run("systemctl", "reload", "tarnd")
        assert machine.run("test", "-S", "/run/tarn/more.sock").returncode == 0
        diff = parse(machine.tarn("--json", "config", "diff").stdout)["diff"]
        assert [change["text"] for change in diff["changes"]] == ["[pool main] max_value = 1M needs a restart of tarnd (kept: 64M)"], diff
        machine.configure(ROOM + "szie = 1G\n")
        assert machine.run("systemctl", "reload", "tarnd", check=None).returncode != 0
        assert machine.show("ActiveState") == "active" and machine.show("NRestarts") == "0"
        assert machine.run("test", "-S", "/run/tarn/more.sock").returncode == 0
        assert b"did you mean size?" in machine.tarn("reload", check=1).stderr
        machine.configure(ROOM)
        machine.run("systemctl", "kill", "--kill-who=main", "-s", "HUP", "tarnd")
        end = time.monotonic() + PATIENCE
        while machine.run("test", "-S", "/run/tarn/more.sock", check=None).returncode == 0:
            assert time.monotonic() < end, machine.log()
            time.sleep(0.05)
        assert machine.show("ActiveState") == "active"
        assert machine.tarn("get", "key").stdout == b"value"


def outlives_a_stop(path):
    """A pool with a file outlives a stop, too, and needs no descriptor kept."""
    with Machine(f"size = 32M\nhugepages = off\nfile = {path}\n") as machine:
        machine.run("systemctl", "start", "tarnd")
        machine.tarn("put", "key", "value")
        machine.run("systemctl", "stop", "tarnd")
        machine.run("systemctl", "start", "tarnd")
        assert machine.tarn("get", "key").stdout == b"value"
        machine.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", "tarnd")
        machine.wait_active(1)
        assert machine.tarn("get", "key").stdout == b"value"


@socket_only(ABOUT)
def test_regions_are_kept():
    """Each region's memory is with systemd, too; one that is destroyed is not any more."""
    with Machine("size = 32M\nhugepages = off\nregion_memory = 16M\n") as machine:
        machine.run("systemctl", "start", "tarnd")
        for name in ("one", "two"):
            machine.region( "create", name, "4096")
        assert machine.show("NFileDescriptorStore") == "3"
        machine.region( "add", "one", "7")
        # its other memory has another name there, and the first one is gone
        machine.tarn("region", "resize", "one", "64K")
        assert machine.show("NFileDescriptorStore") == "3"
        machine.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", "tarnd")
        machine.wait_active(1)
        assert machine.region( "word", "one", "0").stdout == b"7\n"
        machine.region( "destroy", "two")
        machine.run("systemctl", "restart", "tarnd")
        assert machine.region( "word", "one", "0").stdout == b"7\n"
        assert machine.show("NFileDescriptorStore") == "2"
        # what is not kept in the configuration any more is given back
        machine.configure("size = 32M\nhugepages = off\nkeep = no\n")
        machine.run("systemctl", "restart", "tarnd")
        assert machine.show("NFileDescriptorStore") == "0"


@socket_only(ABOUT)
def test_file():
    outlives_a_stop("/var/lib/tarn/pool")


@socket_only(ABOUT)
def test_file_in_shm():
    """RemoveIPC=yes would remove it."""
    outlives_a_stop("/dev/shm/tarn-pool")


@socket_only(ABOUT)
def test_watchdog():
    """A daemon that stands still is killed and started again, and every key is there; one that only has nothing to do is
    left alone."""
    with Machine("size = 32M\nhugepages = off\n", watchdog=4) as machine:
        machine.run("systemctl", "start", "tarnd")
        machine.tarn("put", "key", "value")
        time.sleep(6)
        assert (machine.show("NRestarts"), machine.show("ActiveState")) == ("0", "active")
        machine.run("systemctl", "kill", "--kill-who=main", "-s", "STOP", "tarnd")
        machine.wait_active(1)
        assert machine.tarn("get", "key").stdout == b"value"
        assert machine.opened() == "kept"


@socket_only(ABOUT)
def test_confined():
    """It is nobody special, sees a /tmp of its own and no device but the usual; and still gives its socket to a group."""
    with Machine("size = 32M\nhugepages = off\n", group="group = tarn-test\n") as machine:
        machine.run("systemctl", "start", "tarnd")
        pid = machine.show("MainPID")
        with open(f"/proc/{machine.first}/root/proc/{pid}/status") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        assert status["Uid"].split() == ["64001"] * 4, status
        assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}, status
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), status
        assert machine.run("stat", "-c", "%a %G", "/run/tarn/tarn.sock").stdout == b"660 tarn-test\n"
        inside = ["nsenter", "-t", pid, "-m", "-p"]
        machine.run("touch", "/tmp/not-seen")
        machine.run(*inside, "test", "-e", "/tmp/not-seen", check=1)
        assert b"Read-only" in machine.run(*inside, "touch", "/etc/tarn-test", check=1).stderr


def analyze(text, *arguments):
    """systemd-analyze on a unit of this text."""
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as folder:
        path = os.path.join(folder, "tarnd.service")
        with open(path, "w") as file:
            file.write(text)
        return subprocess.run(
            ["systemd-analyze", *arguments, path], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )


@socket_only(ABOUT)
def test_exposure():
    """systemd-analyze sees at most 2.0, in the unit and in that of several daemons, and a unit that says nothing as more."""
    if not shutil.which("systemd-analyze"):
        raise Skip("there is no systemd-analyze on this machine")
    for text, allowed in ((unit(), True), (unit("tarnd@"), True), ("[Service]\nExecStart=/bin/true\n", False)):
        done = analyze(text, "security", "--offline=true", "--threshold=20", "--no-pager")
        assert (done.returncode == 0) == allowed, done.stdout.decode()[-2000:] + done.stderr.decode()


@socket_only(ABOUT)
def test_known_to_systemd():
    """No line that this systemd does not know."""
    if not shutil.which("systemd-analyze"):
        raise Skip("there is no systemd-analyze on this machine")
    for name in ("tarnd", "tarnd@"):
        text = re.sub(r"^(Exec\w+)=.*$", r"\1=/bin/true", unit(name), flags=re.M)
        done = analyze(re.sub(r"^Documentation=.*\n", "", text, flags=re.M), "verify", "--man=no")
        assert done.returncode == 0 and not done.stderr, done
    assert unit("tarnd@").count("%i") == 5, unit("tarnd@")
    assert re.search(r"^ExecReload=\S*/tarn -u tarn:/run/tarn-%i/tarn.sock reload$", unit("tarnd@"), re.M), unit("tarnd@")


@socket_only(ABOUT)
def test_wrong_configuration():
    """A start that can not be says why, and is not tried for ever."""
    with Machine("size = 32M\nhugepages = off\nsise = 1\n") as machine:
        failed = machine.run("systemctl", "start", "tarnd", check=1)
        assert b"failed" in failed.stderr, failed
        assert machine.show("ActiveState") == "failed"
        assert machine.show("ExecMainStatus") == "6"


run(
    [
        test_ready_and_kept,
        test_reload,
        test_regions_are_kept,
        test_file,
        test_file_in_shm,
        test_watchdog,
        test_confined,
        test_exposure,
        test_known_to_systemd,
        test_wrong_configuration,
    ]
)
