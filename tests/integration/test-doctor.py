#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""tarn doctor on this machine, whatever it is, on trees of files, and on connections over shared memory.

What it says of RDMA's devices is tested in the virtual machine (tests/rdma/group_doctor.py), of trees with all kinds of
faults in tests/unit/test-doctor.c.
"""

import os
import pty
import shutil
import subprocess
import tempfile
import threading
import time

from tarntest import PATIENCE, TARN, Daemon, parse, run, tarn, tarn_json

SMALL = "size = 16M\nhugepages = off\n"
LEVELS = ("ok", "note", "warning", "problem")
HAS_RDMA = os.path.isdir("/sys/class/infiniband") and bool(os.listdir("/sys/class/infiniband"))


def doctor(*arguments, check=0, root=None, **options):
    """The findings by id; the document's own numbers are checked against them."""
    environment = {"TARN_DOCTOR_ROOT": root} if root else {}
    document = tarn_json("doctor", *arguments, check=check, env=environment, **options)
    findings = document["findings"]
    for finding in findings:
        assert set(finding) == {"id", "level", "subject", "text", "remedy", "values"}, finding
        assert finding["level"] in LEVELS and finding["text"] and finding["subject"], finding
        assert finding["level"] in ("ok", "note") or finding["remedy"], finding
    for level in ("problem", "warning", "note"):
        assert document[level + "s"] == sum(finding["level"] == level for finding in findings), document
    if check in (0, 6):
        assert (check == 6) == (document["problems"] > 0), document
    return {finding["id"]: finding for finding in findings}


def tree(files):
    root = tempfile.mkdtemp(prefix="tarn-doctor-", dir="/tmp")
    for path, text in files.items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w") as file:
            file.write(text)
    return root


def test_this_machine():
    result = tarn("doctor", "--json", check=None)
    assert result.returncode in (0, 6), result
    found = {finding["id"]: finding for finding in parse(result.stdout)["findings"]}
    assert ("no-device" in found) == (not HAS_RDMA)
    if not HAS_RDMA:
        assert result.returncode == 6 and found["no-device"]["level"] == "problem"
        assert "rdma link add rxe0 type rxe netdev" in found["no-device"]["remedy"]
    text = tarn("doctor", check=result.returncode).stdout.decode()
    assert "\nhost\n" in "\n" + text and "\033" not in text


def test_colours_on_a_terminal():
    master, slave = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    # several runs' output would fill the terminal's buffer: it is read meanwhile
    read = []

    def drain():
        try:
            while data := os.read(master, 4096):
                read.append(data)
        except OSError:
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    subprocess.run([TARN, "doctor"], stdout=slave, env=dict(environment, TERM="xterm"), timeout=PATIENCE)
    coloured = b"\033["
    deadline = time.monotonic() + PATIENCE
    while coloured not in b"".join(read):
        assert time.monotonic() < deadline, read
        time.sleep(0.01)
    os.close(slave)
    reader.join(PATIENCE)
    os.close(master)


def test_trees():
    files = {
        "/dev/infiniband/rdma_cm": "",
        "/dev/infiniband/uverbs0": "",
        "/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n",
        "/sys/class/infiniband/mlx5_0/node_guid": "0000:0000:0000:0001\n",
        "/sys/class/infiniband/mlx5_0/node_type": "1: CA\n",
        "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "/sys/class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp\n",
        "/sys/class/infiniband/mlx5_0/ports/1/link_layer": "Ethernet\n",
        "/sys/class/infiniband/mlx5_0/ports/1/gids/0": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
        "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0": "RoCE v2\n",
        "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0": "eth0\n",
        "/addresses": "eth0 10.0.0.1\n",
    }
    root = tree(files)
    try:
        for name in ("rdma_cm", "uverbs0"):
            os.chmod(f"{root}/dev/infiniband/{name}", 0o666)
        found = doctor(root=root)
        assert found["gid-choice"]["values"]["index"] == 0, found
        os.chmod(f"{root}/dev/infiniband/uverbs0", 0o600)
        assert doctor(root=root, check=6)["device-file"]["level"] == "problem"
        os.chmod(f"{root}/dev/infiniband/uverbs0", 0o666)
        with open(f"{root}/sys/class/infiniband/mlx5_0/ports/1/state", "w") as file:
            file.write("1: DOWN\n")
        assert doctor(root=root, check=6)["port-state"]["level"] == "problem"
    finally:
        shutil.rmtree(root)


def test_usage():
    for arguments in (["--peer", "nonsense"], ["--peer", "tarn:/x"], ["--rounds", "0"], ["--rounds", "x"], ["extra"], ["--peer"]):
        answer = tarn_json("doctor", *arguments, check=2)
        assert answer["error"]["text"] and "findings" not in answer, answer


def test_peer():
    with Daemon(SMALL, fabric="") as daemon:
        for i in range(50):
            daemon.tarn("put", f"k{i}", f"value {i}")
        before = tarn_json("-u", daemon.uri, "stats")["pools"][0]
        found = doctor("--peer", daemon.uri, "--rounds", "300")
        for name in ("peer-words", "peer-count", "peer-fence", "peer-store-buffering", "peer-publish"):
            assert found[name]["level"] == "ok" and found[name]["values"]["failures"] == 0, found[name]
        assert found["peer-store-buffering"]["values"]["rounds"] >= 300
        assert found["peer-connect"]["values"]["transport"] == "shm"
        for name in ("read", "read-block", "write", "cas", "message"):
            values = found["latency-" + name]["values"]
            assert 0 < values["p50_ns"] <= values["p99_ns"] <= values["max_ns"], values
        # a peer that needs no RDMA: nothing is said of it
        assert "no-device" not in found and "memlock" not in found
        # nothing of it stays behind
        deadline = time.monotonic() + PATIENCE
        while True:
            after = tarn_json("-u", daemon.uri, "stats")["pools"][0]
            used = [after["pages"]["orphan"], after["pages"]["slab"], after["orphan_pages"], after["clients"]]
            if not any(used) and after["pages"]["free"] >= before["pages"]["free"] - 1:
                break
            assert time.monotonic() < deadline, (before, after)
            time.sleep(0.1)
        assert len(daemon.tarn("keys").stdout.split()) == 50
        for i in range(50):
            assert daemon.tarn("get", f"k{i}").stdout == f"value {i}".encode()


def test_peer_for_reading_only():
    with Daemon(SMALL, fabric="") as daemon:
        found = doctor("--peer", daemon.uri, "--read-only")
        assert found["peer-words"]["level"] == "note" and found["peer-connect"]["values"]["read_only"] is True
        assert "latency-read" in found and "latency-write" not in found
    folder = tempfile.mkdtemp(prefix="tarn-doctor-", dir="/tmp")
    try:
        for name, role in (("all", "read"), ("mine", "read")):
            with open(f"{folder}/{name}", "w") as file:
                file.write(f"ada {role} {'11' * 32}\n")
            os.chmod(f"{folder}/{name}", 0o600)
        with Daemon(f"{SMALL}auth = key\nkey_file = {folder}/all\n", fabric="", ready=False) as daemon:
            os.environ["TARN_KEY_FILE"] = f"{folder}/mine"
            daemon.start()
            # the key may only read, and nobody has said --read-only
            found = doctor("--peer", daemon.uri)
            assert found["peer-connect"]["values"]["read_only"] is True
            del os.environ["TARN_KEY_FILE"]
            found = doctor("--peer", daemon.uri, check=6)
            assert found["peer-connect"]["values"]["name"] == "TARN_EAUTH", found
    finally:
        os.environ.pop("TARN_KEY_FILE", None)
        shutil.rmtree(folder)


def test_peer_that_is_full():
    with Daemon("size = 4M\nhugepages = off\n", fabric="") as daemon:
        number = 0
        while daemon.tarn("put", f"k{number}", stdin=b"x" * 200000, check=None, timeout=PATIENCE).returncode == 0:
            number += 1
        found = doctor("--peer", daemon.uri, "--timeout", "2s")
        assert found["peer-words"]["level"] == "note" and "free page" in found["peer-words"]["text"], found
        assert "latency-read" in found
        assert len(daemon.tarn("keys").stdout.split()) == number


def test_peer_that_is_not_there():
    found = doctor("--peer", "tarn:/nonexistent/tarn.sock?pool=main", check=6)
    assert found["peer-connect"]["values"]["name"] == "TARN_EUNREACHABLE" and found["peer-connect"]["remedy"]
    with Daemon(SMALL, fabric="") as daemon:
        found = doctor("--peer", daemon.uri.replace("main", "other"), check=6)
        assert found["peer-connect"]["values"]["name"] == "TARN_ENOPOOL"


def test_peer_that_dies():
    """Over shared memory the words work on without the daemon; what is asked of it fails."""
    with Daemon(SMALL, fabric="") as daemon:
        process = subprocess.Popen(
            [TARN, "doctor", "--json", "--rounds", "300000", "--peer", daemon.uri], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        while tarn_json("-u", daemon.uri, "pools")["pools"][0]["clients"] < 2:
            assert process.poll() is None
        daemon.kill()
        out, err = process.communicate(timeout=120)
        assert process.returncode in (0, 6), (process.returncode, err)
        parse(out)


run([value for name, value in sorted(globals().items()) if name.startswith("test_")])
