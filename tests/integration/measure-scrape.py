#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What it costs to ask: the time of a scrape with many clients, and what the data path loses by it.

	make measure-scrape                                 prints; is no test, since a busy machine is slow
	SCRAPE_CLIENTS=1000 SCRAPE_ROUNDS=5 make measure-scrape

Each scrape is made anew: they are further apart than the daemon keeps one.
"""

import json
import os
import random
import resource
import statistics
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tarntest  # noqa: E402
from httptest import ask, port_of  # noqa: E402
from rawclient import POOLS, Client  # noqa: E402

# common/layout.h: where the superblock says where the client table is; a client's slot, and telemetry in it
CLIENT_TABLE, CLIENT_BYTES, TELEMETRY, TELEMETRY_WORDS = 64, 1024, 128, 104
CLIENTS = int(os.environ.get("SCRAPE_CLIENTS", "1000"))
ROUNDS = int(os.environ.get("SCRAPE_ROUNDS", "5"))
BENCH = os.path.join(tarntest.BUILD, "tarn-bench")


def clients_start(daemon):
    """CLIENTS connections; each reports operations, as clients do."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    clients = [Client(daemon.socket, POOLS["main"]) for _ in range(CLIENTS)]
    memory = clients[0].map()
    for client in clients:
        at = struct.unpack_from("<Q", memory, CLIENT_TABLE)[0] + client.slot * CLIENT_BYTES + TELEMETRY
        words = [random.randrange(1 << 40) for _ in range(TELEMETRY_WORDS)]
        struct.pack_into(f"<{TELEMETRY_WORDS}Q", memory, at, *words)
    return clients


def wait_for_clients(port):
    clients = ask(port, "/v1/clients", timeout=60).json["clients"]
    assert len(clients) == CLIENTS and all(client["reporting"] for client in clients)
    return len(clients)


def cpu_ns(daemon):
    with open(f"/proc/{daemon.process.pid}/schedstat") as file:
        return int(file.read().split()[0])


def keeper_ns(daemon, seconds=3):
    """CPU time of the daemon in a second in which nobody asks."""
    begin = cpu_ns(daemon)
    time.sleep(seconds)
    return (cpu_ns(daemon) - begin) / seconds


def scrapes(daemon, port, path, count=40):
    """Prints what they took, as the asking program sees it and of the daemon's CPU, which no other work disturbs."""
    times, idle = [], keeper_ns(daemon)
    begin_cpu, begin_time = cpu_ns(daemon), time.monotonic()
    for _ in range(count):
        begin = time.perf_counter()
        answer = ask(port, path, timeout=60)
        times.append((time.perf_counter() - begin) * 1e3)
        assert answer.status == 200
        time.sleep(0.15)
    cpu = (cpu_ns(daemon) - begin_cpu - idle * (time.monotonic() - begin_time)) / count / 1e6
    print(
        f"  {path:12} median {statistics.median(times):.2f} ms, least {min(times):.2f}, largest {max(times):.2f}; "
        f"daemon's CPU {cpu:.2f} ms; {len(answer.body)} bytes",
        flush=True,
    )


def scrape_times():
    pool = "size = 16G\nprefault = no\nhugepages = off\nmax_clients = 2048\n"
    with tarntest.Daemon(pool=pool, more="[http]\nlisten = 127.0.0.1:0\n", fabric="") as daemon:
        port = port_of(daemon)
        time.sleep(5)  # what the keeper does first is not what it does always
        print("no client:")
        scrapes(daemon, port, "/metrics")
        clients = clients_start(daemon)
        print(f"{wait_for_clients(port)} clients:")
        for path in ["/metrics", "/v1/stats", "/v1/clients"]:
            scrapes(daemon, port, path)
        for client in clients:
            client.close()


def bench_rate(daemon):
    """Operations a second of gets."""
    result = subprocess.run(
        [BENCH, "-u", daemon.uri, "--keys=100000", "--duration=3", "--ceiling=off", "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)["results"]["get"]["rate"]


def data_path():
    with tarntest.Daemon(pool="size = 256M\nhugepages = off\n", more="[http]\nlisten = 127.0.0.1:0\n", fabric="") as daemon:
        port, ratios = port_of(daemon), []
        for _ in range(ROUNDS):
            without = bench_rate(daemon)
            stop = threading.Event()

            def scrape():
                while not stop.wait(1):
                    ask(port, "/metrics", timeout=60)

            thread = threading.Thread(target=scrape)
            thread.start()
            beside = bench_rate(daemon)
            stop.set()
            thread.join()
            ratios.append(beside / without)
        print(f"data path with a scrape a second: {', '.join(f'{r:.3f}' for r in ratios)} of that without; median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    scrape_times()
    data_path()
