# SPDX-License-Identifier: BSD-2-Clause
"""A machine without an RDMA device: shared memory works, and whoever asks for RDMA is told what is missing."""

import os
import shutil
import subprocess
import tempfile
import time

from vmtest import OPEN, SMALL, TARND, Daemon, command, tarn, tarn_json, wait


def test_shared_memory_goes_on():
    with Daemon(SMALL, fabric="") as daemon:
        daemon.tarn("put", "k", "v")
        assert daemon.tarn("get", "k").stdout == b"v"


def test_client_is_told():
    begin = time.monotonic()
    answer = tarn_json("-u", "tarn://10.77.0.1/main", "--timeout", "3s", "get", "k", check=3)
    assert time.monotonic() - begin < 6
    assert "RDMA" in answer["error"]["text"], answer
    print("#", answer["error"]["text"], flush=True)


def test_client_is_told_of_the_module():
    """The kernel's part is not there at all: as it looks when the module is not loaded."""
    command("mount", "-t", "tmpfs", "none", "/dev/infiniband")
    command("mount", "-t", "tmpfs", "none", "/sys/class/infiniband")
    try:
        answer = tarn_json("-u", "tarn://10.77.0.1/main", "--timeout", "3s", "get", "k", check=3)
        print("#", answer["error"]["text"], flush=True)
        assert "modprobe" in answer["error"]["text"], answer
    finally:
        command("umount", "/sys/class/infiniband")
        command("umount", "/dev/infiniband")


def test_listener_without_device():
    """What the log says; when the device is added later, the listener comes up by itself, if tarnd goes on without it."""
    folder = tempfile.mkdtemp(prefix="tarn-bare-", dir="/tmp")
    with open(f"{folder}/c", "w") as file:
        file.write(f"[listen l]\npath = {folder}/s\n[listen r]\naddress = 10.77.0.1\n[pool main]\n{OPEN}{SMALL}")
    with open(f"{folder}/log", "wb") as log:
        process = subprocess.Popen([TARND, "-c", f"{folder}/c"], stderr=log)

    def log():
        with open(f"{folder}/log") as file:
            return file.read()

    try:
        wait(lambda: process.poll() is not None or "ready" in log(), 20, "an answer of tarnd")
        print("\n".join("# " + line for line in log().splitlines()), flush=True)
        assert "10.77.0.1" in log() and "RDMA" in log(), log()
        assert process.poll() is None, "tarnd has ended: shared memory is to go on"
        uri = f"tarn:{folder}/s?pool=main"
        tarn("-u", uri, "put", "k", "v")
        command("ip", "link", "add", "eth-rxe", "type", "dummy")
        command("ip", "addr", "add", "10.77.0.1/24", "dev", "eth-rxe")
        command("ip", "link", "set", "eth-rxe", "up")
        command("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth-rxe")
        wait(lambda: tarn("-u", "tarn://10.77.0.1/main", "get", "k", check=None).stdout == b"v", 20, "RDMA, with its device there")
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)
        if os.path.exists("/sys/class/infiniband/rxe0"):
            command("rdma", "link", "delete", "rxe0")
