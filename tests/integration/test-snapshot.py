# SPDX-License-Identifier: BSD-2-Clause
"""tarn snapshot and tarn restore: under load, cut off and gone on with, into pools of other sizes, full disks, damage."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import BUILD, FABRIC, PATIENCE, TARN, Daemon, Skip, freeze, run, tarn, tarn_json  # noqa: E402

FILLER = os.path.join(BUILD, "tests/integration/filler")
KEYS = int(os.environ.get("TARN_TEST_KEYS", "3000" if FABRIC else "100000"))
POOL = "size = 384M\nhugepages = off\nkeys = 1000\n"


def filler(daemon, what, first, end):
    result = subprocess.run([FILLER, daemon.uri, what, str(first), str(end)], capture_output=True, timeout=5 * PATIENCE)
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout) if result.stdout else None


def puts(daemon):
    """Of all clients so far."""
    return tarn_json("-u", daemon.uri, "stats")["pools"][0]["operations"]["puts"]


class Load:
    """Processes that change the keys meanwhile; grow: and one that puts new ones."""

    def __init__(self, daemon, grow=False):
        self.daemon, self.puts = daemon, puts(daemon)
        self.end = 2 * KEYS if grow else KEYS
        commands = [["load", 0, KEYS]] * 2 + ([["fill", KEYS, 2 * KEYS]] if grow else [])
        self.processes = [
            subprocess.Popen(
                [FILLER, daemon.uri, *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for command in commands
        ]

    def __enter__(self):
        deadline = time.monotonic() + PATIENCE
        while puts(self.daemon) < self.puts + 100:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        for process in self.processes:
            out, err = process.communicate(timeout=5 * PATIENCE)
            assert process.returncode == 0, err.decode()


def contents(path):
    """The keys of a file, each once."""
    document = tarn_json("restore", "--list", path, timeout=2 * PATIENCE)
    keys = [record["key"] for record in document["records"]]
    assert len(keys) == len(set(keys)) == document["keys"], "a key comes twice"
    return set(keys)


def restored(path, pool, first=0, end=KEYS, check="check"):
    """What filler says of a new pool after a restore."""
    with Daemon(pool=pool) as other:
        tarn_json("-u", other.uri, "restore", path, timeout=2 * PATIENCE)
        return filler(other, check, first, end)


def start(daemon, path, *options, limit=None):
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    return subprocess.Popen(
        [TARN, "-u", daemon.uri, "snapshot", path, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=small if limit else None,
    )


def size_of(path):
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def cut_off(daemon, path, size):
    """Kills a snapshot when its file has this size. On a busy machine it may be through before that: then False."""
    process = start(daemon, path, "--resume")
    while process.poll() is None and size_of(path + ".partial") < size:
        time.sleep(0.001)
    process.kill()
    _, err = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), err
    return not os.path.exists(path)


def stopped_in_the_middle(daemon, path, *options):
    """A snapshot that is under way and stands still; on a busy machine one may be through before it can be stopped."""
    for _ in range(20):
        process = start(daemon, path, *options)
        while process.poll() is None and size_of(path + ".partial") == 0:
            time.sleep(0.001)
        if freeze(process) and size_of(path + ".partial") > 0 and not os.path.exists(path):
            return process
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=PATIENCE)
        os.unlink(path)
    raise AssertionError("each snapshot was through at once")


ALL = {f"key/{i}" for i in range(KEYS)}
LARGE = len([i for i in range(8, KEYS, 1000) if i % 7 != 3])


def test_under_load():
    with Daemon(pool=POOL) as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        filler(daemon, "fill", 0, KEYS)
        with Load(daemon):
            document = tarn_json("-u", daemon.uri, "snapshot", path, timeout=2 * PATIENCE)
        assert document["keys"] == KEYS and document["vanished"] == 0, document
        assert not os.path.exists(path + ".partial")
        assert contents(path) == ALL
        for pool in ("size = 256M\nhugepages = off\n", "size = 640M\nhugepages = off\n"):
            found = restored(path, pool)
            assert found["keys"] == KEYS and found["changed"] > 0 and found["large"] == LARGE, found
            assert found["counters"] == len(range(3, KEYS, 7)), found


def test_while_the_index_grows():
    with Daemon(pool=POOL) as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        filler(daemon, "fill", 0, KEYS)
        with Load(daemon, grow=True):
            tarn("-u", daemon.uri, "snapshot", path, timeout=2 * PATIENCE)
        missing = ALL - contents(path)
        assert not missing, f"{len(missing)} keys are missing, {sorted(missing)[:5]}"


def test_killed_and_resumed():
    with Daemon(pool=POOL) as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        filler(daemon, "fill", 0, KEYS)
        with Load(daemon):
            for _ in range(20):
                if all(cut_off(daemon, path, size if not FABRIC else 1) for size in (1, 3 << 20, 5 << 20)):
                    break
                os.unlink(path)
            assert not os.path.exists(path), "each snapshot was through at once"
            refused = tarn("-u", daemon.uri, "snapshot", path, check=1)
            assert b"--resume" in refused.stderr, refused.stderr
            document = tarn_json("-u", daemon.uri, "snapshot", path, "--resume", timeout=2 * PATIENCE)
        assert document["resumed"] is True and document["keys"] == KEYS, document
        assert contents(path) == ALL
        assert restored(path, POOL)["keys"] == KEYS


def test_interrupted():
    with Daemon(pool=POOL) as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        filler(daemon, "fill", 0, KEYS)
        process = stopped_in_the_middle(daemon, path)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1 and b"interrupted" in err and b"--resume" in err, err
        assert not os.path.exists(path)
        assert tarn_json("-u", daemon.uri, "snapshot", path, "--resume")["keys"] == KEYS
        assert contents(path) == ALL


def test_other_pool():
    """Cut off in the middle; then there is another pool."""
    with Daemon(pool=POOL) as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        filler(daemon, "fill", 0, KEYS)
        process = stopped_in_the_middle(daemon, path)
        # It would go on without a daemon: the memory is mapped.
        process.kill()
        process.communicate(timeout=PATIENCE)
        daemon.kill()
        assert not os.path.exists(path)
        daemon.start()
        refused = tarn("-u", daemon.uri, "snapshot", path, "--resume", check=1)
        assert b"incarnation" in refused.stderr, refused.stderr
        tarn("-u", daemon.uri, "snapshot", path, "--force")
        assert contents(path) == set()


def test_disk_full():
    with Daemon(pool=POOL) as daemon, tempfile.TemporaryDirectory() as folder:
        filler(daemon, "fill", 0, KEYS)
        path = f"{folder}/snap"
        process = start(daemon, path, "--json", limit=300000)
        out, err = process.communicate(timeout=PATIENCE)
        answer = json.loads(out)
        text = answer["error"]["text"]
        assert process.returncode == 1 and "too large" in text and "--resume" in text, (out, err)
        # where it stopped, by which limit, and what is needed at least
        assert "byte 300000:" in text and "files of 300000 bytes" in text and "ulimit -f" in text, text
        assert int(re.search(r"at least (\d+) are needed", text)[1]) > 300000, text
        assert answer["file_bytes"] == os.path.getsize(path + ".partial") == 300000, answer
        assert not os.path.exists(path)
        assert tarn_json("-u", daemon.uri, "snapshot", path, "--resume")["keys"] == KEYS
        assert contents(path) == ALL


def test_tmpfs_full():
    with Daemon(pool=POOL) as daemon, tempfile.TemporaryDirectory() as folder:
        filler(daemon, "fill", 0, KEYS)
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tarn", folder], capture_output=True)
        if mount.returncode != 0:
            raise Skip("no tmpfs can be mounted here")
        try:
            failed = tarn("-u", daemon.uri, "snapshot", f"{folder}/snap", check=1)
            assert b"No space left" in failed.stderr and b"--resume" in failed.stderr, failed.stderr
            assert os.listdir(folder) == ["snap.partial"]
            subprocess.run(["mount", "-o", "remount,size=256m", folder], check=True)
            assert tarn_json("-u", daemon.uri, "snapshot", f"{folder}/snap", "--resume")["keys"] == KEYS
            assert contents(f"{folder}/snap") == ALL
        finally:
            subprocess.run(["umount", folder], check=True)


def test_pool_too_small():
    with Daemon(pool=POOL) as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        filler(daemon, "fill", 0, KEYS)
        tarn("-u", daemon.uri, "snapshot", path)
        with Daemon(pool="size = 8M\nhugepages = off\nkeys = 1000\nmax_value = 1000000\n") as other:
            answer = tarn_json("-u", other.uri, "-t", "2s", "restore", path, check=1)
            if KEYS > 10000:
                assert answer["error"]["name"] in ("TARN_EPOOLFULL", "TARN_EINDEXFULL"), answer
                assert f"of {KEYS} keys are restored" in answer["error"]["text"], answer
                assert 0 < answer["keys"] < KEYS, answer
                assert filler(other, "check-some", 0, KEYS)["keys"] == answer["keys"]
        with Daemon(pool="size = 384M\nhugepages = off\nmax_value = 1000\n") as other:
            answer = tarn_json("-u", other.uri, "restore", path, check=1)
            assert answer["error"]["name"] == "TARN_EVALUESIZE", answer
            assert other.tarn("keys").stdout == b""


def test_files():
    with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        daemon.tarn("put", "k", "v")
        for target, code, word in (
            ("/dev/null", 2, b"device"),
            (folder, 1, b"directory"),
            (f"{folder}/none/snap", 1, b"No such file"),
            ("/proc/snap", None, b"snap.partial"),
        ):
            failed = daemon.tarn("snapshot", target, check=code)
            assert failed.returncode != 0 and word in failed.stderr, failed.stderr
        daemon.tarn("snapshot", path)
        before = open(path, "rb").read()
        assert b"--force" in daemon.tarn("snapshot", path, check=1).stderr
        # operands that are missing, the wrong way round, or mean something else to other commands
        assert b"is no FILE" in tarn("snapshot", daemon.uri, check=2).stderr
        assert b"is no FILE" in tarn("restore", daemon.uri, path, check=2).stderr
        assert b"standard output" in daemon.tarn("snapshot", "-", check=2).stderr
        assert open(path, "rb").read() == before
        # the pool as an operand, in front of the file and behind it
        tarn("snapshot", daemon.uri, path, "--force")
        tarn("restore", path, daemon.uri)
        assert tarn_json("restore", "--verify", path)["pool"] == "main"
        assert tarn("restore", "--verify", path, daemon.uri, check=2)
        assert tarn("restore", "--verify", "/dev/zero", check=2)
        assert b"offset 0" in tarn("restore", "--verify", "/etc/services", check=6).stderr


def test_keys_of_every_kind():
    """Expired ones stay out, deleted ones come back, what is there is replaced, or with --if-absent not."""
    with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        daemon.tarn("put", "gone", "x", "--expire", "100ms")
        daemon.tarn("put", "long", "x", "--expire", "1h", "--flags", "77")
        daemon.tarn("put", "-x", "bytes\\x00\\xff", "")
        daemon.tarn("add", "count", "-9000000000")
        time.sleep(1.5)
        assert tarn_json("-u", daemon.uri, "snapshot", path)["keys"] == 3
        daemon.tarn("del", "long")
        daemon.tarn("put", "count", "is text now")
        daemon.tarn("put", "other", "stays")
        answer = tarn_json("-u", daemon.uri, "restore", path, "--if-absent")
        assert answer["keys"] == 1 and answer["skipped"] == 2, answer
        assert daemon.tarn("get", "count").stdout == b"is text now"
        assert tarn_json("-u", daemon.uri, "restore", path)["keys"] == 3
        assert daemon.tarn("add", "count", "1").stdout == b"-8999999999\n"
        item = tarn_json("-u", daemon.uri, "exists", "long")
        assert item["flags"] == 77 and 3500000 < item["expiry_ms"] <= 3601000, item
        assert daemon.tarn("get", "-x", "bytes\\x00\\xff").stdout == b""
        assert daemon.tarn("get", "other").stdout == b"stays"


def test_damaged_file():
    """A damaged or short file is refused with the offset, before anything is written."""
    with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/snap"
        for i in range(20):
            daemon.tarn("put", f"k{i}", "v" * 100)
        daemon.tarn("snapshot", path)
        whole = open(path, "rb").read()
        for i in range(20):
            daemon.tarn("del", f"k{i}")
        for at in (0, 9, 300, 520, 700, len(whole) - 1):
            with open(path, "wb") as file:
                file.write(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            answer = tarn_json("-u", daemon.uri, "restore", path, check=6)
            assert "offset" in answer["error"]["text"], answer
        for length in (0, 511, 700, len(whole) - 1):
            with open(path, "wb") as file:
                file.write(whole[:length])
            answer = tarn_json("-u", daemon.uri, "restore", path, check=6)
            assert f"offset {length}" in answer["error"]["text"], answer
        assert daemon.tarn("keys").stdout == b""


run([test for name, test in list(globals().items()) if name.startswith("test_")])
