# SPDX-License-Identifier: BSD-2-Clause
"""The command tarn, each verb as text and as JSON, against a real daemon."""

import base64
import json
import mmap
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import FABRIC, PATIENCE, SOURCE, TARN, TARND, Daemon, Skip, parse, run_all, socket_only, tarn, tarn_json  # noqa: E402

daemon = None


def go(*arguments, **options):
    return daemon.tarn(*arguments, **options)


def go_json(*arguments, **options):
    return tarn_json("-u", daemon.uri, *arguments, **options)


def clear():
    """Deletes all keys; each test begins with an empty pool."""
    lines = go("keys").stdout.decode().splitlines()
    for begin in range(0, len(lines), 500):
        # None: a key may expire meanwhile.
        go("del", "-x", "--", *lines[begin : begin + 500], check=None)


def keys(*arguments):
    return sorted(go("keys", *arguments).stdout.decode().splitlines())


# ---- values ----


def test_put_and_get():
    clear()
    assert go("put", "name", "Ada").stdout == b""
    assert go("get", "name").stdout == b"Ada"
    go("put", "name", stdin=b"from\0stdin\n")
    assert go("get", "name").stdout == b"from\0stdin\n"
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"from a file")
        file.flush()
        go("put", "name", "-f", file.name)
        assert go("get", "name").stdout == b"from a file"
        go("get", "name", "-o", file.name + ".out")
        with open(file.name + ".out", "rb") as out:
            assert out.read() == b"from a file"
        os.unlink(file.name + ".out")
    go("put", "empty", "")
    assert go("get", "empty").stdout == b""
    go("put", "--", "-dash", "-value")
    assert go("get", "--", "-dash").stdout == b"-value"


def test_sizes():
    """Around every border that a layout may have, and sizes that need several blocks."""
    clear()
    pattern = bytes(range(256)) * 20000
    for n in (0, 1, 7, 8, 9, 63, 64, 65, 255, 4095, 65535, 65536, 65537, 262144, 300000, 5000000):
        go("put", "k", stdin=pattern[:n])
        assert go("get", "k").stdout == pattern[:n], n
        assert go_json("exists", "k")["value_bytes"] == n


def test_large_value():
    """1 GiB through the command's buffers."""
    free = int(next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable")).split()[1])
    if free < 6 * 1024 * 1024:
        raise Skip("needs 6 GiB of free memory")
    with Daemon("size = 2500M\nhugepages = off\nmax_value = 1G\nkeys = 1000\n") as large:
        value = os.path.join(large.folder, "value")
        out = os.path.join(large.folder, "out")
        with open(value, "wb") as file:
            block = os.urandom(1 << 20)
            for i in range(1024):
                file.write(i.to_bytes(4, "little") + block[4:])
        large.tarn("put", "big", "-f", value, "--timeout", "60s", timeout=300)
        large.tarn("get", "big", "-o", out, "--timeout", "60s", timeout=300)
        assert subprocess.run(["cmp", value, out]).returncode == 0
        with open(value, "ab") as file:
            file.write(b"x")
        failure = tarn("-u", large.uri, "put", "big", "-f", value, check=1, timeout=300)
        assert b"max_value" in failure.stderr, failure.stderr


def test_get_json():
    clear()
    go("put", "k", "h\u00e9\n\"", "--flags", "0xff", "--expire", "1h")
    answer = go_json("get", "k")
    assert answer["value"] == 'h\u00e9\n"' and base64.b64decode(answer["value_base64"]) == 'h\u00e9\n"'.encode()
    assert answer["flags"] == 255 and answer["kind"] == "value" and 3500000 < answer["expiry_ms"] <= 3601000
    assert answer["key"] == "k" and answer["key_base64"] == "aw=="
    go("put", "k", stdin=b"\xff\0")
    answer = go_json("get", "k")
    assert "value" not in answer and base64.b64decode(answer["value_base64"]) == b"\xff\0"
    go("put", "k", stdin=b"\0")
    assert go_json("get", "k")["value"] == "\0"
    go("add", "n", "-7")
    answer = go_json("get", "n")
    assert answer["kind"] == "counter" and answer["value"] == -7


def test_get_missing_keeps_the_file():
    clear()
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"old")
        file.flush()
        go("get", "nothing", "-o", file.name, check=1)
        with open(file.name, "rb") as again:
            assert again.read() == b"old"


def test_conditions():
    clear()
    first = go_json("put", "k", "1", "--if-absent")
    assert go_json("put", "k", "2", "--if-absent", check=1)["error"]["name"] == "TARN_EEXISTS"
    stamp = go_json("exists", "k")["stamp"]
    assert stamp == first["stamp"]
    go("put", "k", "3", "--if-stamp", str(stamp))
    assert go_json("put", "k", "4", "--if-stamp", str(stamp), check=1)["error"]["name"] == "TARN_ESTAMP"
    assert go_json("put", "gone", "4", "--if-stamp", str(stamp), check=1)["error"]["name"] == "TARN_ENOTFOUND"
    assert go("get", "k").stdout == b"3"
    go("put", "k", "4", "--if-stamp", "0xffffffffffffffff", check=1)


def test_expiry():
    clear()
    begin = time.monotonic()
    go("put", "k", "1", "--expire", "3s")
    found = go("get", "k", check=None).stdout
    assert found == b"1" or time.monotonic() > begin + 3, "it is gone too soon"
    deadline = time.monotonic() + PATIENCE
    while go("exists", "k", check=None).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    go("get", "k", check=1)
    assert keys() == []
    go("put", "k", "2", "--if-absent")
    assert go("get", "k").stdout == b"2"


def test_counters():
    clear()
    assert go("add", "n", "5").stdout == b"5\n"
    assert go("add", "n", "-8").stdout == b"-3\n"
    assert go("add", "-q", "n", "+1").stdout == b"-2\n"
    assert go("get", "n").stdout == b"-2\n"
    assert go("add", "big", "9223372036854775807").stdout == b"9223372036854775807\n"
    assert go_json("add", "big", "1")["value"] == -9223372036854775808
    assert go_json("exists", "n")["kind"] == "counter"
    go("put", "v", "1")
    assert go_json("add", "v", "1", check=1)["error"]["name"] == "TARN_ETYPE"
    for wrong in ("x", "1.5", "", "9223372036854775808", "--5"):
        go("add", "n", "--", wrong, check=2)


def test_del():
    clear()
    for key in "abc":
        go("put", key, "1")
    result = go("del", "a", "missing", "b", check=1)
    assert result.stdout == b"" and result.stderr == b"tarn: del: missing: not found\n"
    assert keys() == ["c"]
    answer = go_json("del", "c", "c", check=1)
    assert answer["deleted"] == 1 and answer["missing"] == 1
    assert [row["deleted"] for row in answer["keys"]] == [True, False]


def test_exists():
    clear()
    go("put", "k", "12345")
    text = go("exists", "k").stdout.decode()
    assert "exists" in text and "5 B" in text and "value" in text
    assert go("exists", "-q", "k").stdout == b""
    assert go("exists", "-q", "x", check=1).stdout == b""
    assert go_json("exists", "k")["exists"] is True
    missing = go_json("exists", "x", check=1)
    assert missing["exists"] is False and "error" not in missing


# ---- keys ----


ODD_KEYS = [
    b"plain",
    b"two words",
    b" lead and trail ",
    b"back\\slash",
    b"new\nline",
    b"tab\tand\rreturn",
    b"nul\0inside",
    b"\0",
    b"\xff\xfe\x80",
    b"\x1b[31mred",
    "\u00e9\u4e2d\U0001f600".encode(),
    "bidi\u202e".encode(),
    b"-option",
    b"--",
    b"\\x41",
    bytes(range(1, 256)),
]


def test_binary_keys():
    """Every key that keys prints can be typed again with -x."""
    clear()
    go("put", "-x", "a\\x00b\\\\", "1")
    assert go("keys", "-0").stdout == b"a\0b\\\0"
    clear()
    for number, key in enumerate(ODD_KEYS):
        typed = "".join(f"\\x{byte:02x}" for byte in key)
        go("put", "-x", typed, str(number))
    listed = go("keys").stdout.decode().split("\n")
    assert listed.pop() == "" and len(listed) == len(ODD_KEYS)
    assert len(go("keys", "-0").stdout) == sum(len(key) + 1 for key in ODD_KEYS)
    seen = set()
    for line in listed:
        assert all(ord(c) >= 32 and ord(c) != 127 for c in line), line
        seen.add(ODD_KEYS[int(go("get", "-x", "--", line).stdout)])
    assert seen == set(ODD_KEYS)
    for row in go_json("keys")["keys"]:
        key = base64.b64decode(row["key_base64"])
        assert key in ODD_KEYS and row["key"] in listed
    for line in listed:
        go("del", "-x", "--", line)
    assert keys() == []


def test_long_keys():
    clear()
    with tempfile.TemporaryDirectory() as folder:
        # An argument has at most 128 KiB; the key's limit is 65535 bytes.
        longest = "k" * 65535
        go("put", longest, "long")
        assert go("get", longest).stdout == b"long"
        assert go("keys").stdout.decode() == longest + "\n"
        assert go_json("get", longest + "k", check=1)["error"]["name"] == "TARN_EKEYSIZE"
        assert go_json("put", "", "x", check=1)["error"]["name"] == "TARN_EKEYSIZE"
        go("export", folder, check=1)
        assert os.listdir(folder) == []


def test_keys():
    clear()
    for key in ("a/1", "a/2", "b/1"):
        go("put", key, "x" * 100)
    go("add", "a/n", "1")
    go("put", "a/t", "1", "--expire", "1h")
    assert keys() == ["a/1", "a/2", "a/n", "a/t", "b/1"]
    assert keys("a/") == ["a/1", "a/2", "a/n", "a/t"]
    assert keys("nothing") == []
    lines = [line.split() for line in go("keys", "--long", "a/").stdout.decode().splitlines()]
    assert len(lines) == 4
    by_key = {line[-1]: line[:-1] for line in lines}
    assert by_key["a/1"] == ["100", "B", "value", "-"]
    assert by_key["a/n"][2] == "counter" and by_key["a/t"][-1] in ("min", "h")
    answer = go_json("keys", "b")
    assert answer["count"] == 1 and answer["keys"][0]["key"] == "b/1" and answer["keys"][0]["value_bytes"] == 100
    go("keys", "-0", "--long", check=2)
    go("keys", "-0", "--json", check=2)


# ---- import and export ----


def make_tree(root):
    """A small tree with what file systems allow."""
    os.makedirs(os.path.join(root, b"sub/deep/er"))
    os.makedirs(os.path.join(root, b"empty/dir"))
    files = {
        b"plain": (b"hello\n", 0o644),
        b"zero": (b"", 0o600),
        b"script": (b"#!/bin/sh\n", 0o755),
        b"sub/binary": (bytes(range(256)) * 300, 0o640),
        b"sub/deep/er/large": (os.urandom(3000000), 0o444),
        b"with space": (b"1", 0o644),
        b"new\nline": (b"2", 0o644),
        b"\xff\xfe": (b"3", 0o644),
        b"-dash": (b"4", 0o644),
        b"back\\slash": (b"5", 0o644),
        b"...": (b"6", 0o644),
        b".hidden": (b"7", 0o644),
        b"x" * 255: (b"8", 0o644),
        "\u00fcml\u00e4ut".encode(): (b"9", 0o644),
    }
    for name, (value, mode) in files.items():
        path = os.path.join(root, name)
        with open(path, "wb") as file:
            file.write(value)
        os.chmod(path, mode)
    os.symlink(b"plain", os.path.join(root, b"link"))
    os.symlink(b"nowhere", os.path.join(root, b"dangling"))
    os.mkfifo(os.path.join(root, b"pipe"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(root, b"sock"))
    listener.close()
    return files


def read_tree(root):
    tree = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            assert os.path.isfile(path) and not os.path.islink(path), path
            with open(path, "rb") as file:
                tree[os.path.relpath(path, root)] = (file.read(), os.stat(path).st_mode & 0o7777)
    return tree


def test_round_trip():
    for prefix in ("", "p/", "no-slash", "\\x00\\xff"):
        clear()
        with tempfile.TemporaryDirectory() as folder:
            folder = os.fsencode(folder)
            files = make_tree(folder + b"/in")
            answer = go_json("import", "-x", folder + b"/in/", prefix)
            assert answer["files"] == len(files) and answer["errors"] == 0 and answer["failed"] == []
            assert answer["bytes"] == sum(len(value) for value, _ in files.values())
            assert answer["skipped_symlinks"] == 2 and answer["skipped_pipes"] == 1 and answer["skipped_sockets"] == 1
            assert answer["skipped_empty_directories"] == 1 and answer["skipped_devices"] == 0
            raw = go("keys", "-0").stdout.split(b"\0")
            if "\\x00" not in prefix:
                assert sorted(raw[:-1]) == sorted(prefix.encode() + name for name in files)
            answer = go_json("export", "-x", folder + b"/out", prefix)
            assert answer["files"] == len(files) and answer["errors"] == 0
            assert read_tree(folder + b"/out") == {name: value for name, value in files.items()}
            # again, in place of the files that are there
            go("export", "-x", folder + b"/out", prefix)
            assert read_tree(folder + b"/out") == {name: value for name, value in files.items()}
            text = go("import", "-x", folder + b"/in", prefix).stdout.decode()
            assert "files" in text and "skipped symlinks" in text
            assert go("import", "-q", "-x", folder + b"/in", prefix).stdout == b""


def test_import_errors():
    clear()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a", "z"):
            with open(f"{folder}/{name}", "w") as file:
                file.write(name)
        # One byte more than max_value (64 MiB), without its blocks.
        with open(f"{folder}/huge", "w") as file:
            file.truncate((64 << 20) + 1)
        result = go("import", folder, check=1)
        assert b"huge: larger than" in result.stderr and keys() == ["a", "z"]
        answer = go_json("import", folder, check=1)
        assert answer["files"] == 2 and answer["errors"] == 1
        assert answer["failed"][0]["name"] == "TARN_EVALUESIZE" and answer["failed"][0]["path"] == f"{folder}/huge"
        os.unlink(f"{folder}/huge")
        # A prefix that leaves room for the short name only.
        os.makedirs(f"{folder}/dir")
        with open(f"{folder}/dir/{'n' * 200}", "w") as file:
            file.write("x")
        answer = go_json("import", folder, "p" * 65500, check=1)
        assert answer["files"] == 2 and answer["failed"][0]["name"] == "TARN_EKEYSIZE"
        assert go_json("import", f"{folder}/a", check=1)["error"]["name"] == "ENOTDIR"
        assert go_json("import", f"{folder}/none", check=1)["error"]["name"] == "ENOENT"


def test_import_unreadable():
    """As somebody who is not root; the rest of the tree goes on."""
    if os.getuid() != 0:
        raise Skip("needs root, to become nobody")
    clear()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.chmod(daemon.folder, 0o755)
        os.chmod(daemon.socket, 0o777)
        os.mkdir(f"{folder}/closed", 0o700)
        for name, mode in (("a", 0o644), ("m", 0o000), ("z", 0o644)):
            with open(f"{folder}/{name}", "w") as file:
                file.write(name)
            os.chmod(f"{folder}/{name}", mode)
        result = subprocess.run(
            [TARN, "-u", daemon.uri, "--json", "import", folder],
            capture_output=True,
            user=65534,
            group=65534,
            extra_groups=[],
            timeout=PATIENCE,
        )
        if b"execute" in result.stderr or result.returncode in (126, 127):
            raise Skip("nobody may not run build/tarn")
        assert result.returncode == 1, result
        answer = parse(result.stdout)
        assert answer["files"] == 2 and answer["errors"] == 2
        assert sorted(row["path"] for row in answer["failed"]) == [f"{folder}/closed", f"{folder}/m"]
        assert keys() == ["a", "z"]


def test_import_a_file_that_changes():
    """A file that is appended to all the time: read as it was at one moment, or named."""
    clear()
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/busy", "wb") as file:
            file.write(b"0" * 4000000)
        writer = subprocess.Popen(
            [sys.executable, "-c", "import sys\nf = open(sys.argv[1], 'ab', 0)\nwhile True: f.write(b'1')", f"{folder}/busy"]
        )
        try:
            result = go("import", folder, check=None)
        finally:
            writer.kill()
            writer.wait()
        assert result.returncode in (0, 1), result
        if result.returncode == 1:
            assert b"was changed each time" in result.stderr, result.stderr


HOSTILE = [
    b"/absolute",
    b"../up",
    b"a/../../up",
    b"..",
    b".",
    b"./dot",
    b"a/./b",
    b"a//b",
    b"trailing/",
    b"/",
    b"nul\0",
    b"n" * 256,
    b"d/" + b"n" * 256,
    b"out/through-a-link",
    b"out",
]


def test_hostile_export():
    clear()
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/outside")
        os.mkdir(f"{folder}/dir")
        os.symlink("../outside", f"{folder}/dir/out")
        with open(f"{folder}/outside/file", "w") as file:
            file.write("untouched")
        os.symlink("../outside/file", f"{folder}/dir/link")
        for key in HOSTILE:
            go("put", "-x", "".join(f"\\x{byte:02x}" for byte in key), "bad")
        go("put", "link", "replaced")
        go("put", "good/file", "fine")
        result = go("export", f"{folder}/dir", check=1)
        for key in HOSTILE[:-1]:
            printed = key.replace(b"\0", b"\\x00")
            assert b"tarn: export: " + printed + b": " in result.stderr, (key, result.stderr)
        # "out" as a file replaces the link itself.
        outside = {name: open(f"{folder}/outside/{name}").read() for name in os.listdir(f"{folder}/outside")}
        assert outside == {"file": "untouched"}
        assert sorted(os.listdir(folder)) == ["dir", "outside"]
        with open(f"{folder}/dir/link") as file:
            assert file.read() == "replaced" and not os.path.islink(f"{folder}/dir/link")
        with open(f"{folder}/dir/good/file") as file:
            assert file.read() == "fine"
        assert not [name for _, _, names in os.walk(folder) for name in names if name.startswith(".tarn-")]
        assert not os.path.exists("/absolute")


def test_export_conflicts():
    """A file where a directory is needed, in either order of the walk, and the other way round."""
    clear()
    with tempfile.TemporaryDirectory() as folder:
        go("put", "a", "file")
        go("put", "a/b", "below")
        answer = go_json("export", folder, check=1)
        assert answer["files"] == 1 and answer["errors"] == 1
        assert answer["failed"][0]["key"] in ("a", "a/b")


def test_export_values():
    clear()
    with tempfile.TemporaryDirectory() as folder:
        go("add", "n", "-42")
        go("put", "flags", "x", "--flags", "0xffffffff")
        go("put", "setuid", "x", "--flags", str(0o106755))
        go("export", folder)
        with open(f"{folder}/n") as file:
            assert file.read() == "-42\n"
        assert os.stat(f"{folder}/flags").st_mode & 0o7111 == 0, "flags of others are no permissions"
        assert os.stat(f"{folder}/setuid").st_mode & 0o7000 == 0


def test_disk_full():
    """An export onto a full file system says so and stops."""
    clear()
    go("put", "big", stdin=b"x" * 3000000)
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
        if mounted.returncode != 0:
            raise Skip("no right to mount a small tmpfs")
        try:
            assert go_json("export", folder, check=1)["error"]["name"] == "ENOSPC"
            assert os.listdir(folder) == []
        finally:
            subprocess.run(["umount", folder], check=True)


def test_progress():
    """On a terminal there is a bar on standard error, and nothing of it on standard output."""
    clear()
    master, slave = pty.openpty()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(300):
            with open(f"{folder}/{i}", "wb") as file:
                file.write(b"x" * 20000)
        process = subprocess.Popen(
            [TARN, "-u", daemon.uri, "--json", "import", folder], stdout=subprocess.PIPE, stderr=slave, stdin=subprocess.DEVNULL
        )
        os.close(slave)
        out = process.stdout.read()
        assert process.wait(PATIENCE) == 0
        process.stdout.close()
        shown = b""
        try:
            while piece := os.read(master, 65536):
                shown += piece
        except OSError:
            pass
        os.close(master)
        assert parse(out)["files"] == 300
        assert b"%" in shown and b"files" in shown and shown.endswith(b"\r\x1b[K"), shown
        assert go("import", folder).stderr == b""


def test_interrupt():
    """The first SIGINT ends a walk with a summary."""
    clear()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(20000):
            with open(f"{folder}/{i}", "wb") as file:
                file.write(b"x")
        process = subprocess.Popen(
            [TARN, "-u", daemon.uri, "--json", "import", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + PATIENCE
        while go("exists", "-q", "0", check=None).returncode != 0 and process.poll() is None:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
        if process.returncode == 0:
            raise Skip("the import was over before the signal")
        assert process.returncode == 1, process.returncode
        answer = parse(out)
        assert answer["error"]["name"] == "EINTR" and 0 < answer["files"] < 20000


# ---- the daemon's own answers ----


def test_stats_pools_clients_ping():
    go("put", "k", "1")
    for verb in ("stats", "pools", "clients"):
        document = go_json(verb)
        assert len(document) > 1, document
        assert go(verb).stdout != b"" or verb == "clients"
    text = go("pools").stdout.decode()
    assert "main" in text and "64 MiB" in text, text
    answer = go_json("ping", "-c", "3")
    assert answer["count"] == 3 and [row["what"] for row in answer["times"]] == ["read", "message"]
    for row in answer["times"]:
        assert 0 < row["min_ns"] <= row["max_ns"]
    assert len(go("ping").stdout.splitlines()) == 3


@socket_only("a client on another host has no process id here")
def test_clients_are_listed():
    holder = subprocess.Popen([TARN, "-u", daemon.uri, "put", "held"], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + PATIENCE
        while str(holder.pid) not in go("clients").stdout.decode():
            assert time.monotonic() < deadline, go("clients").stdout
            time.sleep(0.05)
    finally:
        holder.communicate(b"value", timeout=PATIENCE)
    assert holder.returncode == 0


@socket_only("a client on another host has no process id here")
def test_clients_kill():
    holder = subprocess.Popen([TARN, "-u", daemon.uri, "put", "held"], stdin=subprocess.PIPE)
    try:

        def mine():
            return [row for row in go_json("clients")["clients"] if row["pid"] == holder.pid]

        deadline = time.monotonic() + PATIENCE
        while not mine():
            assert time.monotonic() < deadline, go("clients").stdout
            time.sleep(0.05)
        row = mine()[0]
        assert row["transport"] == "shm" and row["listener"] == "local" and row["key_id"] is None
        number = str(row["client_id"])
        assert go_json("clients", "kill", "4000000000", check=1)["error"]["name"] == "TARN_EREFUSED"
        assert b"no such client" in go("clients", "kill", number, "--pool", "other", check=1).stderr
        killed = go_json("clients", "kill", number, "--pool", "main")["killed"]
        assert killed["client_id"] == row["client_id"] and killed["pid"] == holder.pid
        assert b"no such client" in go("clients", "kill", number, check=1).stderr
    finally:
        holder.communicate(b"value", timeout=PATIENCE)
    second = subprocess.Popen([TARN, "-u", daemon.uri, "put", "held"], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + PATIENCE
        while not [row for row in go_json("clients")["clients"] if row["pid"] == second.pid]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        number = [row["client_id"] for row in go_json("clients")["clients"] if row["pid"] == second.pid][0]
        assert str(second.pid) in go("clients", "kill", str(number)).stdout.decode()
    finally:
        second.communicate(b"value", timeout=PATIENCE)


# ---- every verb ----


def test_json_everywhere():
    """Each verb of `tarn help --json` prints one object with a schema, when it works and when it does not."""
    clear()
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/file", "w") as file:
            file.write("x")
        node = {"name": "n", "number": 1, "state": "up", "weight": 1}
        node["addresses"] = [{"fabric": "shm", "address": "/run/tarn/tarn.sock"}]
        cluster_map = {"format": 1, "cluster": "c", "pool": "main", "mode": "store", "seed": "0" * 16}
        with open(f"{folder}/map.json", "w") as file:
            json.dump({**cluster_map, "epoch": 1, "shards": 64, "members": [node]}, file)
        works = {
            "import": [folder],
            "export": [folder],
            "snapshot": ["--force", f"{folder}/snap"],
            "restore": [f"{folder}/snap"],
            "put": ["k", "v"],
            "get": ["k"],
            "add": ["n", "1"],
            "keys": [],
            "exists": ["k"],
            "region": ["list"],
            "del": ["k"],
            "stats": [],
            "top": ["-n", "1"],
            "pool": ["check"],
            "pools": [],
            "clients": [],
            "config": ["show"],
            "reload": [],
            "members": [],
            # what works with a cluster alone: test-cluster-etcd.py
            "drain": ["n"],
            "undrain": ["n"],
            "rebalance": [],
            "forget": ["n"],
            "map": ["check", f"{folder}/map.json"],
            "ping": ["-c", "2"],
            # on siw a connection may be lost at its first request, see tests/rdma/group_doctor.py
            "doctor": ["--peer", daemon.uri, "--rounds", "10"] if FABRIC != "siw" else [],
            "version": [],
            "help": [],
        }
        verbs = [verb["name"] for verb in tarn_json("help")["verbs"]]
        assert sorted(verbs) == sorted(works), "a verb is missing in this test, or in the table"
        order = sorted(verbs, key=list(works).index)
        for verb in order:
            if verb in ("drain", "undrain", "rebalance", "forget"):
                answer = go_json(verb, *works[verb], check=1)
                assert "in no cluster" in answer["error"]["text"], (verb, answer)
                continue
            document = go_json(verb, *works[verb])
            assert "error" not in document, document
            # --json behind the verb, at the end
            assert parse(go(verb, *works[verb], "--json", check=None).stdout)["schema"] == 1
        go("put", "k", "v")
        for verb in order:
            # what the doctor can not reach is a finding: test-doctor.py
            if verb in ("version", "help", "doctor", "map"):
                continue
            answer = tarn_json("-u", f"tarn:{folder}/none?pool=main", verb, *works[verb], check=3)
            assert answer["error"]["name"] == "TARN_EUNREACHABLE", (verb, answer)
        for verb in order:
            answer = tarn_json(verb, "--no-such-option", check=2)
            assert answer["error"]["name"] == "EINVAL" and answer["error"]["text"]
            assert "usage: tarn " + verb in tarn("help", verb).stdout.decode()
            assert tarn(verb, "--help").stdout == tarn("help", verb).stdout
            assert tarn_json("help", verb)["verbs"][0]["name"] == verb


def test_usage():
    for arguments, word in (
        ([], b"verb is missing"),
        (["improt"], b"did you mean import?"),
        (["kyes"], b"did you mean keys?"),
        (["wibble"], b"unknown verb"),
        (["help", "wibble"], b"no verb"),
        (["--jso", "keys"], b"did you mean --json?"),
        (["put", "--expier", "1s", "k", "v"], b"did you mean --expire?"),
        (["put", "-Z", "k", "v"], b"-Z"),
        (["put"], b"an argument is missing"),
        (["get"], b"an argument is missing"),
        (["get", "a", "b"], b"'b' is one argument too many"),
        (["clients", "wibble"], b"tarn clients kill ID"),
        (["clients", "kill"], b"tarn clients kill ID"),
        (["clients", "wibble", "1"], b"tarn clients kill ID"),
        (["clients", "kill", "1x"], b"not a client's number"),
        (["clients", "kill", "-1"], b""),
        (["clients", "kill", "4294967296"], b"not a client's number"),
        (["clients", "kill", "1", "2"], b"one argument too many"),
        (["clients", "--pool", "main"], b"tarn clients kill ID"),
        (["put", "k", "v", "-f", "x"], b"exclude"),
        (["put", "k", "v", "--if-absent", "--if-stamp", "1"], b"exclude"),
        (["put", "k", "v", "--if-stamp", "x"], b"not a number"),
        (["put", "k", "v", "--expire", "5"], b"ms, s, min"),
        (["put", "k", "v", "--expire", "0s"], b"ms, s, min"),
        (["put", "k", "v", "--expire", "999999999d"], b"ms, s, min"),
        (["put", "k", "v", "--flags", "4294967296"], b"32 bits"),
        (["put", "k", "v", "--flags"], b"an argument is missing"),
        (["--timeout", "5", "get", "k"], b"--timeout"),
        (["--timeout", "2h", "get", "k"], b"--timeout"),
        (["ping", "-c", "0"], b"--count"),
        (["get", "-x", "\\q"], b"escapes"),
        (["-u"], b"an argument is missing"),
        (["-u", "http://x", "get", "k"], b""),
        (["-u", "tarn:/x?pool=a b", "get", "k"], b""),
        (["-u", "tarn:/x", "stats", "extra"], b"too many"),
    ):
        result = tarn(*arguments, check=2)
        assert result.stdout == b"" and result.stderr.startswith(b"tarn: ") and word in result.stderr, (arguments, result)
        assert result.stderr.count(b"\n") == 1, result.stderr


@socket_only("about URIs and states of the unix socket; RDMA's are in tests/rdma/group_faults.py")
def test_exit_codes():
    clear()
    with tempfile.TemporaryDirectory() as folder:
        assert go_json("get", "nothing", check=1)["error"]["name"] == "TARN_ENOTFOUND"
        base = daemon.uri.rsplit("=", 1)[0]
        assert tarn_json("-u", base + "=nopool", "get", "k", check=1)["error"]["name"] == "TARN_ENOPOOL"
        assert tarn_json("-u", "tarn://127.0.0.1:1/pool", "get", "k", check=3)["error"]["name"] == "TARN_EUNREACHABLE"
        assert tarn_json("-u", "nonsense:", "get", "k", check=2)["error"]["name"] == "TARN_EURI"
        assert go_json("put", "--read-only", "k", "v", check=4)["error"]["name"] == "TARN_EREADONLY"
        assert go_json("get", "-k", f"{folder}/none", "k", check=1)["error"]["name"] == "ENOENT"
        assert tarn("keys", env={"TARN_URI": daemon.uri}).stdout == b""
        # a socket that nobody listens on, and a file that is none
        dead = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        dead.bind(f"{folder}/dead")
        for verb in (["get", "k"], ["stats"]):
            assert tarn_json("-u", f"tarn:{folder}/dead?pool=main", *verb, check=3)["error"]["name"] == "TARN_EUNREACHABLE"
        # one that accepts and says nothing
        dead.listen(5)
        for verb in (["get", "k"], ["stats"]):
            begin = time.monotonic()
            answer = tarn_json("-u", f"tarn:{folder}/dead?pool=main", "--timeout", "300ms", *verb, check=5)
            assert answer["error"]["name"] == "TARN_ETIMEOUT" and time.monotonic() - begin < 10
        dead.close()


@socket_only("a daemon that is none, behind a unix socket")
def test_refusals_that_pass():
    """Who was refused because its clock is slow, and told when to come again, comes again; else it is final."""
    no_pool, wrong_time = 2, 6  # wire.h
    for wait_ms, asked in ((20, 3), (0, 1)):
        refusals = [(wrong_time, wait_ms), (wrong_time, wait_ms), (no_pool, 0)]
        count = 0

        def serve(listener):
            nonlocal count
            for reason, retry_ms in refusals:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    count += 1
                    client.recv(4096)
                    client.send(struct.pack("<IBBHQI12x", 0x4E524154, 1, 1, reason, 0, retry_ms))

        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"{folder}/s")
            # Without a time limit: accept() would spin after shutdown(), until then.
            listener.listen(5)
            thread = threading.Thread(target=serve, args=(listener,))
            thread.start()
            answer = tarn_json("-u", f"tarn:{folder}/s?pool=main", "get", "k", check=None)
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
        assert count == asked, (count, answer)
        assert answer["error"]["name"] == ("TARN_ENOPOOL" if wait_ms else "TARN_EAUTH"), answer


@socket_only("about the permissions of the unix socket")
def test_permission():
    if os.getuid() != 0:
        raise Skip("needs root, to become nobody")
    os.chmod(daemon.folder, 0o755)
    os.chmod(daemon.socket, 0o600)
    for verb in (["get", "k"], ["stats"]):
        result = subprocess.run(
            [TARN, "-u", daemon.uri, "--json", *verb], capture_output=True, user=65534, group=65534, extra_groups=[]
        )
        assert result.returncode == 4, result
        assert parse(result.stdout)["error"]["name"] == "EACCES"


def write_keys(path, *lines):
    with open(path, "w") as file:
        file.write("# keys\n" + "".join(line + "\n" for line in lines))
    os.chmod(path, 0o600)


def test_key_files():
    """auth = key: a reader's key, a writer's key, a wrong secret, an unknown id, none."""
    with tempfile.TemporaryDirectory() as folder:
        secret, other, wrong = "11" * 32, "22" * 32, "33" * 32
        write_keys(f"{folder}/all", f"w1 write {secret}", f"r1 read {other}")
        write_keys(f"{folder}/w", f"w1 write {secret}")
        write_keys(f"{folder}/r", f"r1 read {other}")
        write_keys(f"{folder}/wrong", f"w1 write {wrong}")
        write_keys(f"{folder}/unknown", f"x1 write {secret}")
        config = f"size = 64M\nhugepages = off\nauth = key\nkey_file = {folder}/all\n"
        guarded = Daemon(config, ready=False)
        os.environ["TARN_KEY_FILE"] = f"{folder}/w"
        try:
            guarded.start()
        finally:
            del os.environ["TARN_KEY_FILE"]
        with guarded:
            put, get = ["put", "k", "v"], ["get", "k"]
            guarded.tarn(*put, "-k", f"{folder}/w")
            assert guarded.tarn(*get, "-k", f"{folder}/r").stdout == b"v"
            guarded.tarn("keys", "-k", f"{folder}/r")
            guarded.tarn("ping", "-k", f"{folder}/r")
            guarded.tarn(*put, "-k", f"{folder}/r", check=4)
            guarded.tarn(*put, env={"TARN_KEY_FILE": f"{folder}/w"})
            for arguments in ([], ["-k", f"{folder}/wrong"], ["-k", f"{folder}/unknown"]):
                answer = tarn_json("-u", guarded.uri, *get, *arguments, check=4)
                assert answer["error"]["name"] == "TARN_EAUTH", answer
            os.chmod(f"{folder}/w", 0o644)
            assert guarded.tarn(*get, "-k", f"{folder}/w", check=None).returncode != 0, "others may read this key file"


# ---- output that can not be written ----


def test_broken_pipe():
    clear()
    go("put", "k", stdin=b"x" * 1000000)
    for arguments in (["get", "k"], ["get", "k", "--json"], ["help"], ["version"]):
        reader, writer = os.pipe()
        os.close(reader)
        result = go(*arguments, stdout=writer, check=1)
        os.close(writer)
        assert b"standard output: Broken pipe" in result.stderr, result.stderr


def test_full_and_closed_output():
    clear()
    go("put", "k", "v")
    with open("/dev/full", "wb") as full:
        for arguments in (["get", "k"], ["keys"], ["keys", "--json"], ["version"], ["stats"]):
            result = go(*arguments, stdout=full, check=1)
            assert b"standard output: No space left on device" in result.stderr, result.stderr
    # Closed: the pool's descriptor must not become standard output.
    closed = subprocess.run(["sh", "-c", f'exec "{TARN}" -u "{daemon.uri}" get k >&-'], capture_output=True)
    assert closed.returncode == 1 and b"standard output: Bad file descriptor" in closed.stderr, closed
    closed = subprocess.run(["sh", "-c", f'exec "{TARN}" -u "{daemon.uri}" put k <&-'], capture_output=True)
    assert closed.returncode == 1 and b"standard input" in closed.stderr, closed
    assert go("get", "k").stdout == b"v"


def test_pool_full():
    """A pool of 8 MiB: putting more than that ends with a clear error, and what was put is there."""
    with Daemon("size = 8M\nhugepages = off\nmax_value = 1M\nkeys = 1000\n") as small:
        with tempfile.TemporaryDirectory() as folder:
            for i in range(40):
                with open(f"{folder}/{i:03}", "wb") as file:
                    file.write(bytes([i]) * 500000)
            answer = tarn_json("-u", small.uri, "import", folder, check=1)
            assert answer["error"]["name"] == "TARN_EPOOLFULL", answer
            assert 0 < answer["files"] < 40
            for i in range(answer["files"]):
                assert small.tarn("get", f"{i:03}").stdout == bytes([i]) * 500000


def test_damage():
    """A byte of a key and one of a value are flipped in the pool's memory: readers notice, walks go on."""
    with Daemon("size = 8M\nhugepages = off\nmax_value = 1M\nkeys = 1000\n") as damaged:
        for key in ("good-1", "damaged-key", "good-2"):
            damaged.tarn("put", key, "value of " + key)
        damaged.tarn("put", "damaged-value", "a value to be damaged")
        with open_pool(damaged.process.pid) as pool, mmap.mmap(pool.fileno(), 0) as memory:
            for text in (b"damaged-key", b"value to be damaged"):
                at = memory.find(text)
                assert at > 0
                while at >= 0:
                    memory[at] ^= 1
                    at = memory.find(text, at + 1)
        for verb in (["get", "damaged-value"], ["keys"], ["export", os.path.join(damaged.folder, "out")]):
            answer = tarn_json("-u", damaged.uri, *verb, check=6)
            assert answer["error"]["name"] == "TARN_ECORRUPT", answer
        assert {"good-1", "good-2"} <= set(damaged.tarn("keys", check=6).stdout.decode().split())
        assert {"good-1", "good-2"} <= set(os.listdir(os.path.join(damaged.folder, "out")))


def open_pool(pid):
    """The daemon's memfd, as anybody of its user can open it (SECURITY.md)."""
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        if "memfd:" in os.readlink(f"{folder}/{name}"):
            return open(f"{folder}/{name}", "r+b")
    raise AssertionError("the daemon has no memfd")


def test_man_page():
    """tarn(1) has every verb, option and exit code that the command has."""
    path = os.path.join(SOURCE, "docs/man/tarn.1")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    table = tarn_json("help")
    for verb in table["verbs"]:
        assert f".It Cm {verb['name']}" in page, verb["name"]
        for option in verb["options"]:
            assert f"Fl -{option['name']}" in page, (verb["name"], option["name"])
        for part in verb["verbs"]:
            assert f".It Cm {verb['name']} {part['name']}" in page, (verb["name"], part["name"])
            assert set(part["options"]) <= {option["name"] for option in verb["options"]}, part
    for option in table["options"]:
        assert f"Fl -{option['name']}" in page, option["name"]
    for row in table["exit_codes"]:
        assert f".It {row['code']}" in page, row


def main():
    global daemon
    if not os.path.exists(TARN) or not os.path.exists(TARND):
        print("1..0 # SKIP build/tarn or build/tarnd is not there")
        return
    tests = [function for name, function in globals().items() if name.startswith("test_")]
    only = sys.argv[1:]
    with Daemon() as daemon:
        code = run_all([test for test in tests if not only or test.__name__ in only])
        if code:
            print("# the daemon's log:\n#   " + "\n#   ".join(daemon.log().splitlines()[-20:]))
    sys.exit(code)


if __name__ == "__main__":
    main()
