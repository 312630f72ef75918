# SPDX-License-Identifier: BSD-2-Clause
"""tarn pool check: of a pool while clients work on it, are killed, and the index grows; of a pool's file."""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import BUILD, FABRIC, PATIENCE, TARN, Daemon, Skip, freeze, run, socket_only, tarn, tarn_json  # noqa: E402

CLIENT = os.path.join(BUILD, "tests/integration/client")
BENCH = os.path.join(BUILD, "tarn-bench")
POOL = "size = 128M\nhugepages = off\n"
CLEAN = {"hint": 0, "leak": 0, "lost": 0, "wrong": 0}


def check(daemon, code=0):
    return tarn_json("-u", daemon.uri, "pool", "check", check=code)


def check_clean(daemon):
    result = check(daemon)
    assert result["clean"] and result["findings_by_effect"] == CLEAN, result["findings"]
    return result


def check_file(path, *options, code=0):
    return tarn_json("pool", "check", path, "--all", *options, check=code)


def codes(result):
    return {finding["code"] for finding in result["findings"]}


def start_clients(daemon, count, operations):
    processes = [
        subprocess.Popen(
            [CLIENT, daemon.uri, str(number), str(operations)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for number in range(1, count + 1)
    ]
    for process in processes:
        assert process.stdout.readline() == b"started\n", process.stderr.read()
    return processes


def wait_gone(daemon):
    deadline = time.monotonic() + PATIENCE
    while tarn_json("-u", daemon.uri, "clients")["clients"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def file_pool():
    """A daemon whose pool is in a file, and the file."""
    daemon = Daemon(ready=False)
    path = os.path.join(daemon.folder, "pool")
    with open(daemon.config, "a") as file:
        file.write(f"file = {path}\n")
    daemon.start()
    return daemon, path


def patch(path, offset, change):
    """Writes change(byte) at an offset of the pool."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([change(byte)]))


def find(path, needle):
    with open(path, "rb") as file:
        offset = file.read().find(needle)
    assert offset > 0
    return offset


def test_clean_while_clients_write():
    with Daemon(POOL) as daemon:
        assert check_clean(daemon)["keys"] == 0
        assert tarn_json("pool", "check", daemon.control)["clean"]
        processes = start_clients(daemon, 4, 20000)
        checks = 0
        while any(process.poll() is None for process in processes):
            check_clean(daemon)
            checks += 1
        for process in processes:
            _, errors = process.communicate()
            assert process.returncode == 0, errors.decode()
        assert checks >= 1
        wait_gone(daemon)
        result = check_clean(daemon)
        assert result["keys"] > 0 and result["blocks"] >= result["keys"]
        assert result["clients"] == 0 and result["unsettled"] == 0
        # all gave back what they had
        assert result["candidate_blocks"] == 0, result["candidate_blocks"]


def test_killed_clients_leave_candidates_alone():
    with Daemon(POOL) as daemon:
        for _ in range(3):
            processes = start_clients(daemon, 4, 10**9)
            time.sleep(0.3)
            for process in processes:
                process.kill()
                process.communicate()
            check_clean(daemon)
        wait_gone(daemon)
        check_clean(daemon)


def test_clean_while_the_index_grows():
    with Daemon("size = 128M\nhugepages = off\nkeys = 1000\n") as daemon:
        first = check_clean(daemon)["subtables"]
        command = [BENCH, "-u", daemon.uri, "--keys=200000", "--mix=get=1,put=1", "--rounds=1", "--duration=1", "--ceiling=off"]
        bench = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        while bench.poll() is None:
            check_clean(daemon)
        output = bench.communicate()[0]
        assert bench.returncode == 0, output.decode()
        result = check_clean(daemon)
        assert result["keys"] >= 200000 and result["subtables"] > first, result


@socket_only("the pool's file is looked at")
def test_damage_while_it_is_served():
    daemon, path = file_pool()
    with daemon:
        for key in range(50):
            daemon.tarn("put", f"k{key}", f"value of k{key}.")
        check_clean(daemon)
        patch(path, find(path, b"value of k7."), lambda byte: byte ^ 1)
        result = check(daemon, 6)
        assert codes(result) == {"block_damaged"} and not result["clean"], result["findings"]
        assert result["findings"][0]["effect"] == "lost" and not result["findings"][0]["repaired"]
        text = daemon.tarn("pool", "check", check=6).stdout.decode()
        assert "block_damaged at" in text and "the key is lost" in text, text


@socket_only("the pool's file is looked at")
def test_file():
    daemon, path = file_pool()
    with daemon:
        for key in range(50):
            daemon.tarn("put", f"k{key}", f"value of k{key}.")
        # not while it is served
        refused = tarn_json("pool", "check", path, check=1)
        assert refused["error"]["name"] == "EBUSY", refused
        daemon.stop()
        result = check_file(path)
        assert result["clean"] and result["keys"] == 50 and result["value_bytes"] == 10 * 12 + 40 * 13, result
        patch(path, find(path, b"value of k7."), lambda byte: byte ^ 1)
        before = os.stat(path).st_mtime_ns
        result = check_file(path, code=6)
        assert codes(result) == {"block_damaged"} and result["repaired"] == 0
        assert os.stat(path).st_mtime_ns == before, "a check without repair has written"
        result = check_file(path, "--repair")
        assert result["clean"] and result["repaired"] == 2 and result["keys"] == 49, result
        assert codes(result) == {"block_damaged", "leak"}
        assert check_file(path)["findings"] == []
        daemon.start()
        for key in range(50):
            answer = daemon.tarn("get", f"k{key}", check=None)
            assert answer.stdout == (b"" if key == 7 else f"value of k{key}.".encode()), key
        daemon.tarn("put", "k7", "again")
        check_clean(daemon)


@socket_only("the pool's file is looked at")
def test_file_of_a_killed_daemon():
    daemon, path = file_pool()
    with daemon:
        processes = start_clients(daemon, 4, 10**9)
        time.sleep(0.5)
        daemon.kill()
        for process in processes:
            process.kill()
            process.communicate()
        result = check_file(path, "--repair")
        assert result["clean"], result["findings"]
        # nothing worse than what was in hand
        assert codes(result) <= {"leak", "slot_pending"}, codes(result)
        daemon.start()
        assert tarn_json("-u", daemon.uri, "pool", "check")["clean"]
        keys = tarn_json("-u", daemon.uri, "keys")["keys"]
        assert len(keys) == result["keys"] - result["expired"], (len(keys), result["keys"])


@socket_only("the pool's file is looked at")
def test_a_client_that_outlives_the_daemon_keeps_the_file():
    daemon, path = file_pool()
    with daemon:
        process = start_clients(daemon, 1, 10**9)[0]
        assert freeze(process)
        daemon.kill()
        refused = tarn_json("pool", "check", path, check=1)
        assert refused["error"]["name"] == "EBUSY", refused
        process.kill()
        process.communicate()
        check_file(path, "--repair")
        daemon.start()


@socket_only("about files")
def test_files_that_are_none():
    daemon, path = file_pool()
    with daemon:
        daemon.stop()
        for what, code, name in (
            (os.path.join(daemon.folder, "none"), 1, "ENOENT"),
            (daemon.folder, 1, "EISDIR"),
            ("/dev/null", 6, "TARN_ECORRUPT"),
            (daemon.config, 6, "TARN_ECORRUPT"),
        ):
            answer = tarn_json("pool", "check", what, check=code)
            assert answer["error"]["name"] == name, answer
        os.truncate(path, os.path.getsize(path) - 4096)
        answer = tarn_json("pool", "check", path, "--repair", check=6)
        assert answer["error"]["name"] == "TARN_ECORRUPT", answer
        os.unlink(path)
        for wrong in (["chek"], ["check", path, "more"], [], ["check", "tarn:/x"], ["check", "--repair"]):
            tarn("-u", "tarn:/none?pool=main", "pool", *wrong, check=2)
        daemon.start()


def test_who_may_ask():
    with Daemon(POOL) as daemon:
        answer = tarn_json("-u", daemon.control.replace("pool=main", "pool=other"), "pool", "check", check=1)
        assert "no such pool" in answer["error"]["text"], answer
        if os.geteuid() != 0 or FABRIC:
            raise Skip("needs root and the unix socket, to become nobody")
        os.chmod(daemon.folder, 0o755)
        os.chmod(daemon.socket, 0o666)
        command = [TARN, "-u", daemon.uri, "--json", "pool", "check"]
        result = subprocess.run(command, capture_output=True, user=65534, group=65534, extra_groups=[])
        assert result.returncode == 4, result
        assert "only root" in json.loads(result.stdout)["error"]["text"]


run([test for name, test in sorted(globals().items()) if name.startswith("test_")])
