# SPDX-License-Identifier: BSD-2-Clause
"""`tarn region` against a real daemon: each verb as text and as JSON, copies by their checksums, bad input, failures."""

import base64
import hashlib
import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import FABRIC, PATIENCE, TARN, TARND, Daemon, run_all, tarn, tarn_json  # noqa: E402

POOL = "size = 64M\nhugepages = off\nregion_memory = 1G\n"
MIB = 1 << 20
# What is copied: in the machine with soft-RoCE less.
LARGE = 16 * MIB if FABRIC else 256 * MIB

daemon = None


def region(*arguments, **options):
    return daemon.tarn("region", *arguments, **options)


def region_json(*arguments, **options):
    return tarn_json("-u", daemon.uri, "region", *arguments, **options)


def names():
    return [row["name"] for row in region_json("list")["regions"]]


def clear():
    found = names()
    if found:
        region("destroy", *found)


def fill(name, n, seed=1, offset=0):
    """Random bytes into a region; returns them."""
    content = random.Random(seed).randbytes(n)
    region("write", name, "--offset", str(offset), stdin=content)
    return content


def read(name, n):
    return region("read", name, "--bytes", str(n)).stdout


def error(result):
    """The one line on standard error."""
    text = result.stderr.decode()
    assert text.startswith("tarn: region: ") and text.count("\n") == 1, text
    return text


# ---- making and destroying ----


def test_life():
    clear()
    text = region("create", "board", "1M").stdout.decode()
    assert "board" in text and "1 MiB" in text and "ready" in text, text
    assert region("create", "-q", "small", "1").stdout == b""
    info = region_json("show", "small")
    assert info["bytes"] == 4096 and info["state"] == "ready" and info["opens"] == 0, info
    assert info["ready_bytes"] == info["ready_of_bytes"] and abs(info["created_ms"] / 1000 - time.time()) < 1000
    listed = region_json("list")
    assert listed["count"] == 2 and [row["name"] for row in listed["regions"]] == ["board", "small"], listed
    assert listed["regions"][0]["id"] < listed["regions"][1]["id"]
    text = region("list").stdout.decode().splitlines()
    assert text[0].split()[:2] == ["name", "id"] and len(text) == 3 and text[1].startswith("board "), text
    assert read("board", MIB) == bytes(MIB)
    assert region_json("create", "board", "4K", check=1)["error"]["name"] == "TARN_EEXISTS"

    content = fill("board", 5000)
    answer = region_json("resize", "board", "2 MiB")
    assert answer["bytes"] == 2 * MIB and answer["state"] == "ready", answer
    region("resize", "-q", "board", "8K")
    assert region_json("show", "board")["bytes"] == 8192 and read("board", 5000) == content

    answer = region_json("destroy", "small", "nothing", "board", check=1)
    assert [row["destroyed"] for row in answer["regions"]] == [True, False, True]
    assert answer["destroyed"] == 2 and answer["missing"] == 1 and names() == []
    assert "nothing: there is no such region" in error(region("destroy", "nothing", check=1))
    assert region("list").stdout == b""


def wait_ready(name):
    deadline = time.monotonic() + PATIENCE
    while True:
        info = region_json("show", name)
        if info["state"] == "ready":
            return info
        assert info["state"] in ("creating", "resizing") and time.monotonic() < deadline, info
        assert info["ready_bytes"] <= info["ready_of_bytes"]
        time.sleep(0.02)


def test_background():
    clear()
    answer = region_json("create", "large", "128M", "--background")
    assert answer["bytes"] == 128 * MIB and answer["state"] in ("creating", "ready"), answer
    wait_ready("large")
    answer = region_json("resize", "large", "64M", "--background")
    assert answer["state"] in ("resizing", "ready"), answer
    assert wait_ready("large")["bytes"] == 64 * MIB


def on_terminal(*arguments, output=False):
    """What a terminal on standard error, or on standard output, too, is shown."""
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [TARN, "-u", daemon.uri, "region", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=terminal if output else subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:  # the last one has closed it
        pass
    os.close(master)
    assert process.wait(PATIENCE) == 0, shown
    return shown.decode()


def test_progress():
    clear()
    assert "%" in on_terminal("create", "a", "128M")
    region("create", "-q", "b", "128M")
    region("resize", "-q", "a", "8M")
    shown = on_terminal("copy", "a", "b")
    assert "%" in shown and "/s" in shown and shown.endswith("\r\x1b[K"), shown
    assert on_terminal("copy", "-q", "a", "b") == ""


# ---- reading and writing ----


def test_read_and_write():
    clear()
    region("create", "-q", "board", "1M")
    content = fill("board", 700001)
    assert read("board", 700001) == content
    assert region("read", "board").stdout == content + bytes(MIB - len(content))
    assert region("read", "board", "--offset", "700000", "--bytes=3").stdout == content[700000:] + bytes(2)
    assert region("read", "board", "--offset", "1M").stdout == b""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"from a file")
        file.flush()
        region("write", "board", file.name, "--offset", "0x10")
        assert read("board", 40) == content[:16] + b"from a file" + content[27:40]
    region("write", "board", "-", stdin=b"")
    answer = region_json("write", "board", "--offset", "4K", stdin=b"x" * 4096)
    assert answer["bytes"] == 4096 and answer["offset"] == 4096 and answer["name"] == "board"
    # all of it, to its last byte
    whole = random.Random(7).randbytes(MIB)
    region("write", "board", stdin=whole)
    assert region("read", "board").stdout == whole
    answer = region_json("read", "board", "--offset", "100", "--bytes", "50")
    assert base64.b64decode(answer["data_base64"]) == whole[100:150] and answer["bytes"] == 50
    region("write", "board", stdin="h\u00e9".encode())
    assert region_json("read", "board", "--bytes", "3")["data"] == "h\u00e9"


def test_many_sizes():
    """Around the borders of the pieces that are under way, and with offsets that are no multiple of anything."""
    clear()
    piece, room = 128 << 10, 8 * (128 << 10)
    region("create", "-q", "board", str(2 * room + 8192))
    for n in (1, 7, piece - 1, piece, piece + 1, room - 1, room, room + 1, 2 * room):
        for offset in (0, 13):
            region("write", "board", stdin=b"\xaa" * (n + 64))
            content = fill("board", n, n + offset, offset)
            found = read("board", n + 64)
            assert found[:offset] == b"\xaa" * offset and found[offset + n :] == b"\xaa" * (64 - offset), n
            assert found[offset : offset + n] == content, n


def test_hex():
    clear()
    region("create", "-q", "board", "4K")
    region("write", "board", "--offset", "34", stdin=b"Tarn \xff\n")
    assert region("read", "board", "--hex", "--bytes", "100").stdout.decode().splitlines() == [
        "0000000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|",
        "*",
        "0000000020  00 00 54 61 72 6e 20 ff  0a 00 00 00 00 00 00 00  |..Tarn .........|",
        "0000000030  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|",
        "*",
        "0000000060  00 00 00 00" + 39 * " " + "|....|",
    ]
    assert region("read", "board", "--hex", "--offset", "34", "--bytes", "4").stdout.startswith(b"0000000022  54 61 72 6e  ")
    shown = on_terminal("read", "board", output=True)
    assert "0000000020  00 00 54 61" in shown and "512 of 4096 bytes are shown" in shown, shown
    assert "shown" not in on_terminal("read", "board", "--bytes", "600", output=True)


def test_too_much():
    """Input that does not fit: of a file known before, of a stream at its end."""
    clear()
    region("create", "-q", "board", "4K")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x" * 4097)
        file.flush()
        for arguments, options in (([file.name], {}), (["-"], {"stdin": b"y" * 4097})):
            text = error(region("write", "board", *arguments, **options, check=1))
            assert "4096" in text, text
            assert read("board", 2) == (b"yy" if options else bytes(2))
        text = error(region("write", "board", "--offset", "1", file.name, check=1))
        assert "4097 bytes do not fit" in text and "4095" in text, text
    answer = region_json("write", "board", "--offset", "4000", stdin=b"z" * 97, check=1)
    assert answer["bytes"] == 96 and answer["error"]["name"] == "EFBIG", answer
    with open("/dev/full", "wb") as full:
        text = region("read", "board", stdout=full, check=1).stderr
        assert text == b"tarn: standard output: No space left on device\n" or b"region: standard output" in text, text


# ---- words and notifications ----


def test_words():
    clear()
    region("create", "-q", "board", "4K")
    assert region("cas", "board", "8", "0", "5").stdout == b"0\n"
    assert region("cas", "board", "8", "0", "6", check=1).stdout == b"5\n"
    answer = region_json("cas", "board", "8", "5", "0xffffffffffffffff")
    assert answer["swapped"] is True and answer["before"] == 5 and answer["offset"] == 8
    answer = region_json("cas", "board", "8", "5", "6", check=1)
    assert answer["swapped"] is False and answer["before"] == str(2**64 - 1) and "error" not in answer
    assert region("read", "board", "--offset", "8", "--bytes", "8").stdout == b"\xff" * 8
    assert region("add", "board", "8", "3").stdout == b"2\n"
    assert region("add", "board", "8", "-4").stdout == b"18446744073709551614\n"
    answer = region_json("add", "board", "8", "2")
    assert answer["before"] == str(2**64 - 2) and answer["value"] == 0
    assert region("add", "board", "4088", "1").stdout == b"1\n"
    for offset in ("4096", "4K", "1G"):
        assert region_json("add", "board", offset, "1", check=2)["error"]["name"] == "EINVAL"
        assert region_json("cas", "board", offset, "0", "1", check=2)["error"]["name"] == "EINVAL"


def test_notify():
    clear()
    region("create", "-q", "board", "4K")
    answer = region_json("wait", "board", "--for", "100ms", check=5)
    assert answer["error"]["name"] == "TARN_ETIMEOUT", answer
    assert region("notify", "board").stdout == b""
    first = int(region("wait", "board", "--after", "0", "--for", "30s").stdout)
    assert first > 0
    # only later ones
    region("wait", "board", "--for", "100ms", check=5)
    region("wait", "board", "--after", str(first), "--for", "100ms", check=5)
    process = subprocess.Popen([TARN, "-u", daemon.uri, "region", "wait", "board"], stdout=subprocess.PIPE)
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        assert time.monotonic() < deadline
        region("notify", "board")
        time.sleep(0.1)
    assert process.returncode == 0 and int(process.stdout.read()) > first
    process.stdout.close()
    waiting = subprocess.Popen([TARN, "-u", daemon.uri, "region", "wait", "board"], stderr=subprocess.PIPE)
    while region_json("show", "board")["opens"] == 0:
        assert time.monotonic() < deadline
    waiting.send_signal(signal.SIGINT)
    _, text = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode in (1, -signal.SIGINT) and (b"interrupted" in text or not text), text


# ---- copies ----


def checksum(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_copy():
    """From a file into a region, from there into another one of this pool, of another daemon, and back."""
    clear()
    size = LARGE
    with tempfile.TemporaryDirectory() as folder, Daemon(POOL) as other:
        with open(f"{folder}/in", "wb") as file:
            block = os.urandom(MIB)
            for i in range(size // MIB):
                file.write(i.to_bytes(8, "little") + block[8:])
        want = checksum(f"{folder}/in")
        region("create", "-q", "a", str(size))
        region("create", "-q", "b", str(size + 4096))
        other.tarn("region", "create", "-q", "c", str(size))
        text = region("copy", f"{folder}/in", "a").stdout.decode()
        assert f"{size // MIB} MiB" in text and "/s" in text, text
        answer = region_json("copy", "a", "b")
        assert answer["bytes"] == size and answer["bytes_per_second"] > 0 and answer["source"] == "a", answer
        region("copy", "b", f"{other.uri}#c", "--bytes", str(size))
        assert region("copy", "-q", f"{other.uri}#c", f"{folder}/out").stdout == b""
        assert checksum(f"{folder}/out") == want
        assert os.stat(f"{folder}/out").st_mode & 0o7777 == 0o600
        assert sorted(os.listdir(folder)) == ["in", "out"]
        # what is behind a copy stays
        region("write", "b", "--offset", str(size), stdin=b"behind")
        region("copy", "-q", "a", "b")
        assert region("read", "b", "--offset", str(size), "--bytes", "6").stdout == b"behind"
        with subprocess.Popen([TARN, "-u", daemon.uri, "region", "read", "a"], stdout=subprocess.PIPE) as process:
            assert hashlib.file_digest(process.stdout, "sha256").hexdigest() == want
        clear()


def test_copy_files():
    clear()
    region("create", "-q", "board", "1M")
    content = fill("board", MIB)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/out"
        region("copy", "board", path, "--bytes", "12345")
        with open(path, "rb") as file:
            assert file.read() == content[:12345]
        assert "--force" in error(region("copy", "board", path, check=1))
        assert os.path.getsize(path) == 12345
        region("copy", "board", path, "--force")
        assert os.path.getsize(path) == MIB
        # a run that was killed
        with open(path + "2.partial", "w") as file:
            file.write("x")
        assert "--force begins anew" in error(region("copy", "board", path + "2", check=1))
        assert os.path.getsize(path + "2.partial") == 1
        region("copy", "board", path + "2", "--force", "--bytes", "0")
        assert os.path.getsize(path + "2") == 0 and sorted(os.listdir(folder)) == ["out", "out2"]
        # a limit on files is said before anything is written
        limited = f'ulimit -f 4; exec "{TARN}" -u "{daemon.uri}" region copy board "{folder}/out3"'
        result = subprocess.run(["sh", "-c", limited], capture_output=True)
        assert result.returncode == 1 and b"ulimit -f" in result.stderr, result
        assert sorted(os.listdir(folder)) == ["out", "out2"]
        # relative names, of which "board" is a region
        region("copy", "-q", "board", "./board", cwd=folder)
        region("copy", "-q", "./board", "board", cwd=folder)
        assert "./nothing" in error(region("copy", "./nothing", "board", cwd=folder, check=1))
        os.rename(f"{folder}/board", f"{folder}/only-here")
        assert "./only-here" in error(region("copy", "only-here", "board", cwd=folder, check=1))
    assert region("read", "board").stdout == content


def test_copy_refused():
    """Before the first byte: sizes, places that are none, the same region."""
    clear()
    region("create", "-q", "small", "4K")
    region("create", "-q", "large", "8K")
    fill("large", 8192)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/file", "wb") as file:
            file.write(b"x" * 4097)
        os.mkfifo(f"{folder}/pipe")
        text = error(region("copy", "large", "small", check=1))
        assert "8192" in text and "4096" in text and "small" in text, text
        text = error(region("copy", f"{folder}/file", "small", check=1))
        assert "4097" in text and "4096" in text, text
        assert "8193" in error(region("copy", "large", f"{folder}/out", "--bytes", "8193", check=2))
        for source, target, code, word in (
            ("large", "large", 2, "same region"),
            ("large", f"{daemon.uri}#large", 2, "same region"),
            (f"{folder}/file", f"{folder}/out", 2, "neither"),
            ("-", "large", 2, "region write"),
            ("large", "-", 2, "region read"),
            ("large", daemon.uri, 2, "URI#NAME"),
            ("large", daemon.uri + "#", 2, "name of a region"),
            ("large", "a b", 2, "name of a region"),
            ("nothing", "large", 1, "nothing"),
            ("large", "nothing", 1, "nothing"),
            (f"{folder}/none", "large", 1, "none"),
            (folder, "large", 1, "directory"),
            (f"{folder}/pipe", "large", 2, "region write"),
            ("large", folder, 1, "directory"),
            ("large", f"{folder}/pipe", 2, "regular file"),
            ("large", f"{folder}/none/out", 1, "folder"),
            ("large", f"{folder}/", 2, "name"),
            ("large", f"tarn:{folder}/none?pool=main#x", 3, "none"),
            ("large", "tarn:nonsense#x", 2, "nonsense"),
        ):
            text = error(region("copy", source, target, check=code))
            assert word in text, (source, target, text)
        assert sorted(os.listdir(folder)) == ["file", "pipe"]
    assert read("small", 4096) == bytes(4096)


def test_copy_interrupted():
    """What the message says has arrived has; of a file nothing is left."""
    clear()
    region("create", "-q", "a", str(LARGE))
    region("create", "-q", "b", str(LARGE))
    pattern = b"".join(i.to_bytes(4, "little") * 16384 for i in range(LARGE // 65536))
    region("write", "a", stdin=pattern)
    with tempfile.TemporaryDirectory() as folder:
        for target in ("b", f"{folder}/out"):
            interrupted = 0
            for attempt in range(40):
                for name in os.listdir(folder):  # of an attempt that came to its end
                    os.unlink(f"{folder}/{name}")
                process = subprocess.Popen(
                    [TARN, "-u", daemon.uri, "--json", "region", "copy", "--force", "a", target],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                time.sleep(0.01 * attempt)
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=PATIENCE)
                if b'"EINTR"' not in output:
                    continue
                interrupted += 1
                if target == "b" and b'"bytes"' in output:
                    done = int(output.split(b'"bytes":')[1].split(b",")[0])
                    assert read("b", done) == pattern[:done]
                assert not os.listdir(folder) or target != f"{folder}/out" or process.returncode == 0, os.listdir(folder)
                if interrupted == 3:
                    break
            assert interrupted > 0
            for name in os.listdir(folder):
                os.unlink(f"{folder}/{name}")


def write_under_way(of, *options):
    """`tarn region write board`, whose first 256 KiB have arrived; it waits for more on its standard input."""
    process = subprocess.Popen(
        [TARN, "-u", of.uri, *options, "region", "write", "board"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(b"x" * (256 << 10))
    process.stdin.flush()
    deadline = time.monotonic() + PATIENCE
    while of.tarn("region", "read", "board", "--bytes", "256K").stdout != b"x" * (256 << 10):
        assert time.monotonic() < deadline
    return process


def test_interrupted_input():
    """A pipe that says no more is not waited for when the user has interrupted it."""
    clear()
    region("create", "-q", "board", "1M")
    process = write_under_way(daemon)
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE)
    text = process.stderr.read().decode()
    assert process.returncode == 1 and "interrupted" in text, text
    assert "first 262144 bytes" in text and "some of the next 0 may be" in text, text
    process.stdin.close()
    process.stderr.close()


def test_destroyed_meanwhile():
    """The region goes away under a write that is under way."""
    clear()
    region("create", "-q", "board", "4M")
    process = write_under_way(daemon)
    region("destroy", "board")
    try:
        process.stdin.write(b"x" * (1 << 20))
        process.stdin.close()
    except BrokenPipeError:
        pass
    process.wait(PATIENCE)
    text = process.stderr.read().decode()
    process.stderr.close()
    assert process.returncode in (1, 5) and "bytes are in board" in text, (process.returncode, text)


def test_no_daemon():
    """The daemon is killed under a write; the time limit holds."""
    with Daemon(POOL) as gone:
        gone.tarn("region", "create", "-q", "board", "4M")
        process = write_under_way(gone, "-t", "1s")
        gone.kill()
        time.sleep(1)
        try:
            process.stdin.write(b"x" * (1 << 20))
            process.stdin.close()
        except BrokenPipeError:
            pass
        process.wait(PATIENCE)
        text = process.stderr.read().decode()
        process.stderr.close()
        assert process.returncode in (3, 5) and "bytes are in board" in text, (process.returncode, text)


# ---- who may, and what is wrong ----


def test_read_only():
    clear()
    region("create", "-q", "board", "4K")
    region("create", "-q", "other", "4K")
    content = fill("board", 4096)
    for arguments in (
        ["create", "new", "4K"],
        ["resize", "board", "8K"],
        ["destroy", "board"],
        ["write", "board"],
        ["copy", "board", "other"],
        ["cas", "board", "0", "0", "1"],
        ["add", "board", "0", "1"],
        ["notify", "board"],
    ):
        answer = region_json("--read-only", *arguments, stdin=b"x", check=4)
        assert answer["error"]["name"] == "TARN_EREADONLY", (arguments, answer)
    assert region("--read-only", "read", "board").stdout == content
    region("--read-only", "list")
    region("--read-only", "show", "board")
    region("--read-only", "wait", "board", "--for", "0s", check=5)
    assert names() == ["board", "other"] and read("other", 4096) == bytes(4096)


def test_keys():
    """A reader's key reads, and copies from a pool in which it may not write."""
    clear()
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (("all", ("w write " + "11" * 32, "r read " + "22" * 32)), ("w", ("w write " + "11" * 32,)),
                            ("r", ("r read " + "22" * 32,))):  # fmt: skip
            with open(f"{folder}/{name}", "w") as file:
                file.write("".join(line + "\n" for line in lines))
            os.chmod(f"{folder}/{name}", 0o600)
        os.environ["TARN_KEY_FILE"] = f"{folder}/w"
        try:
            guarded = Daemon(f"{POOL}auth = key\nkey_file = {folder}/all\n")
        finally:
            del os.environ["TARN_KEY_FILE"]
        with guarded:
            writer, reader = ["-k", f"{folder}/w"], ["-k", f"{folder}/r"]
            guarded.tarn(*writer, "region", "create", "-q", "board", "4K")
            guarded.tarn(*writer, "region", "write", "board", stdin=b"guarded")
            assert guarded.tarn(*reader, "region", "read", "board", "--bytes", "7").stdout == b"guarded"
            for arguments in (["write", "board"], ["create", "x", "4K"], ["destroy", "board"], ["notify", "board"]):
                answer = tarn_json("-u", guarded.uri, *reader, "region", *arguments, check=4)
                assert answer["error"]["name"] == "TARN_EAUTH" and "may only read" in answer["error"]["text"], answer
            guarded.tarn(*reader, "region", "copy", "board", f"{folder}/out")
            assert os.path.getsize(f"{folder}/out") == 4096
            # another pool's key is in its URI
            region("create", "-q", "board", "4K")
            both = "&" if "?" in guarded.uri else "?"
            region("copy", f"{guarded.uri}{both}key={folder}/r#board", "board")
            assert read("board", 7) == b"guarded"


def test_quota():
    clear()
    answer = region_json("create", "huge", "1T", check=1)
    assert answer["error"]["name"] in ("TARN_EQUOTA", "TARN_EPOOLFULL") and names() == [], answer
    with Daemon(POOL.replace("1G", "2M")) as small:
        small.tarn("region", "create", "-q", "a", "1M")
        for arguments in (["create", "b", "1M"], ["resize", "a", "2M"]):
            answer = tarn_json("-u", small.uri, "region", *arguments, check=1)
            assert answer["error"]["name"] == "TARN_EQUOTA" and "region_memory" in answer["error"]["text"], answer
        assert tarn_json("-u", small.uri, "region", "show", "a")["bytes"] == MIB


def test_bad_input():
    clear()
    region("create", "-q", "board", "1M")
    longest = "n" * 39
    region("create", "-q", longest, "4K")
    for arguments, code, word in (
        ([], 2, "argument is missing"),
        (["frobnicate"], 2, "unknown verb"),
        (["crate", "x", "4K"], 2, "did you mean create?"),
        (["create"], 2, "tarn region create NAME SIZE"),
        (["create", "x"], 2, "tarn region create NAME SIZE"),
        (["create", "x", "4K", "y"], 2, "'y' is one argument too many"),
        (["list", "x"], 2, "one argument too many"),
        (["create", longest + "n", "4K"], 2, "up to 39 bytes"),
        (["create", "n" * 5000, "4K"], 2, "up to 39 bytes"),
        (["create", "", "4K"], 2, "name of a region"),
        (["create", "a/b", "4K"], 2, "name of a region"),
        (["create", "\u00e9", "4K"], 2, "name of a region"),
        (["create", "a\nb", "4K"], 2, "name of a region"),
        (["create", "x", "0"], 2, "SIZE '0'"),
        (["create", "x", "-1"], 2, "SIZE '-1'"),
        (["create", "x", "2TiB"], 2, "1 TiB"),
        (["create", "x", "1099511627777"], 2, "1 TiB"),
        (["create", "x", "99999999999999999999999"], 2, "SIZE"),
        (["create", "x", "4X"], 2, "SIZE '4X'"),
        (["create", "x", "1.5G"], 2, "SIZE '1.5G'"),
        (["create", "x", ""], 2, "SIZE ''"),
        (["resize", "board", "0"], 2, "SIZE '0'"),
        (["resize", "nothing", "4K"], 1, "nothing"),
        (["show", "nothing"], 1, "nothing"),
        (["read", "nothing"], 1, "nothing"),
        (["write", "nothing"], 1, "nothing"),
        (["wait", "nothing"], 1, "nothing"),
        (["notify", "nothing"], 1, "nothing"),
        (["cas", "nothing", "0", "0", "0"], 1, "nothing"),
        (["add", "nothing", "0", "0"], 1, "nothing"),
        (["read", "board", "--offset", "1048577"], 2, "outside"),
        (["read", "board", "--offset", "x"], 2, "--offset 'x'"),
        (["read", "board", "--offset", "-1"], 2, "--offset '-1'"),
        (["read", "board", "--bytes", "2M"], 2, "not inside"),
        (["read", "board", "--offset", "1M", "--bytes", "1"], 2, "not inside"),
        (["read", "board", "--bytes", "2T"], 2, "1 TiB"),
        (["write", "board", "--offset", "2M"], 2, "outside"),
        (["write", "board", "/nonexistent"], 1, "/nonexistent"),
        (["write", "board", "/"], 1, "directory"),
        (["write", "board", "--bytes", "1"], 2, "--bytes is not for"),
        (["list", "--force"], 2, "--force is not for"),
        (["create", "x", "4K", "--hex"], 2, "--hex is not for"),
        (["cas", "board", "4", "0", "0"], 2, "multiple of 8"),
        (["cas", "board", "0", "x", "0"], 2, "'x'"),
        (["cas", "board", "0", "0", "-1"], 2, "'-1'"),
        (["cas", "board", "0", "0"], 2, "OLD NEW"),
        (["add", "board", "1", "0"], 2, "multiple of 8"),
        (["add", "board", "0", "9223372036854775808"], 2, "64 bits"),
        (["wait", "board", "--after", "x"], 2, "--after"),
        (["wait", "board", "--for", "5"], 2, "--for"),
        (["destroy"], 2, "NAME..."),
        (["destroy", "board", "a/b"], 2, "name of a region"),
    ):
        text = error(region(*arguments, check=code))
        assert word in text, (arguments, text)
        answer = region_json(*arguments, check=code)
        assert word in answer["error"]["text"], answer
    assert names() == ["board", longest]


def test_json_limit():
    clear()
    region("create", "-q", "board", "17M")
    answer = region_json("read", "board", check=1)
    assert "--bytes" in answer["error"]["text"], answer
    assert len(base64.b64decode(region_json("read", "board", "--bytes", "16M")["data_base64"])) == 16 * MIB


def test_at_once():
    """Many commands at a time: one word, and regions that come and go."""
    clear()
    region("create", "-q", "board", "4K")
    failures = []

    def work(number):
        try:
            for i in range(5):
                region("add", "board", "0", "1")
                region("create", "-q", f"r-{number}-{i}", "4K")
                fill(f"r-{number}-{i}", 100, number)
                region("destroy", f"r-{number}-{i}")
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert region("add", "board", "0", "0").stdout == b"20\n" and names() == ["board"]


def main():
    global daemon
    if not os.path.exists(TARN) or not os.path.exists(TARND):
        print("1..0 # SKIP build/tarn or build/tarnd is not there")
        return
    tests = [function for name, function in globals().items() if name.startswith("test_")]
    only = sys.argv[1:]
    with Daemon(POOL) as daemon:
        code = run_all([test for test in tests if not only or test.__name__ in only])
        if code:
            print("# the daemon's log:\n#   " + "\n#   ".join(daemon.log().splitlines()[-20:]))
    sys.exit(code)


if __name__ == "__main__":
    main()
