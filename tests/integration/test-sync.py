# SPDX-License-Identifier: BSD-2-Clause
"""Eight processes on locks and a queue, killed again and again: tokens never go back, what was added is there, and of the
messages nothing is lost, doubled or torn beyond the contract in tarn/sync.h. Every second process makes its calls by
their asynchronous twins. Also over RDMA."""

import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tarntest import BUILD, PATIENCE, Daemon, run  # noqa: E402

CLIENT = os.path.join(BUILD, "tests/integration/sync-client")
CALLS = os.path.join(BUILD, "tests/integration/sync-calls")
POOL = "size = 64M\nhugepages = off\nregion_memory = 16M\nmax_clients = 4096\n"
SECONDS = 6


class Crowd:
    """Processes in places; each that is killed comes back as a new one in its place, with a log of its own."""

    def __init__(self, daemon, places, seed):
        self.daemon, self.places = daemon, places
        self.random = random.Random(seed)
        self.logs, self.processes, self.kills = [], [], {}
        self.born = 0
        for place in range(len(places)):
            self.processes.append(self.start(place))

    def start(self, place):
        mode, number = self.places[place]
        if callable(mode):
            mode = mode(self.random)
        self.born += 1
        log = os.path.join(self.daemon.folder, f"{mode}-{self.born}.log")
        self.logs.append((mode, number, log))
        return subprocess.Popen([CLIENT, self.daemon.uri, mode, str(number or self.born << 32), log])

    def kill(self, place):
        process = self.processes[place]
        assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        process.kill()
        process.wait()
        mode = process.args[2]
        self.kills[mode] = self.kills.get(mode, 0) + 1

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.random.random() * 0.04)
            place = self.random.randrange(len(self.places))
            self.kill(place)
            self.processes[place] = self.start(place)
        for place in range(len(self.places)):
            self.kill(place)


def lines(log):
    """What a log says, as (word, numbers...)."""
    if not os.path.exists(log):
        return
    with open(log) as file:
        for line in file:
            word, *numbers = line.split()
            yield (word, *map(int, numbers))


def check_locks(daemon, crowd, lock):
    takes, added, perhaps = [], 0, 0
    for mode, number, log in crowd.logs:
        if mode != "lock" or number != lock:
            continue
        adding = 0
        for word, *numbers in lines(log):
            if word == "take":
                takes.append(numbers)
            adding += word == "add"
            if word == "added":
                adding -= 1
                added += 1
        perhaps += adding
    assert len(takes) > 20, takes
    # A call that began after another one had ended has the higher token.
    takes.sort(key=lambda take: take[1])
    ended, highest = 0, 0
    for begun, _, token in sorted(takes):
        while takes[ended][1] < begun:
            highest = max(highest, takes[ended][2])
            ended += 1
        assert token > highest, (token, highest)
    assert len({take[2] for take in takes}) == len(takes)
    done = subprocess.run([CLIENT, daemon.uri, "number", str(lock), "/dev/null"], capture_output=True, timeout=PATIENCE, check=True)
    assert added <= int(done.stdout) <= added + perhaps, (added, int(done.stdout), perhaps)
    return len(takes)


def check_queue(crowd):
    sending, sent, got, done = set(), set(), {}, set()
    for _, _, log in crowd.logs:
        for word, *numbers in lines(log):
            if word == "send":
                sending.add(numbers[0])
            elif word == "sent":
                sent.add(numbers[0])
            elif word == "got":
                got[numbers[0]] = got.get(numbers[0], 0) + 1
            elif word == "done":
                assert numbers[0] not in done, f"message {numbers[0]} was consumed twice"
                done.add(numbers[0])
    assert len(sent) > 20 and set(got) <= sending, (len(sent), len(set(got) - sending))
    lost = sent - set(got)
    doubled = [message for message, times in got.items() if times > 1]
    assert len(lost) <= crowd.kills.get("receive", 0), (lost, crowd.kills)
    assert len(doubled) <= crowd.kills.get("peek", 0), (doubled, crowd.kills)
    return len(sent), len(lost), len(doubled)


def test_kills():
    seed = random.randrange(1 << 32)
    print(f"# seed {seed}", flush=True)
    places = [("lock", 1), ("lock", 1), ("lock", 2), ("lock", 2)]
    places += [("produce", None)] * 3 + [(lambda chance: chance.choice(["receive", "peek"]), None)]
    with Daemon(pool=POOL) as daemon:
        crowd = Crowd(daemon, places, seed)
        crowd.run(SECONDS)
        log = os.path.join(daemon.folder, "drain.log")
        subprocess.run([CLIENT, daemon.uri, "drain", "0", log], timeout=PATIENCE, check=True)
        crowd.logs.append(("drain", None, log))
        takes = [check_locks(daemon, crowd, lock) for lock in (1, 2)]
        sent, lost, doubled = check_queue(crowd)
        print(f"# kills {crowd.kills}; locks taken {takes}; messages sent {sent}, lost {lost}, doubled {doubled}", flush=True)


def test_asynchronous():
    """Each call's twin; many parties by one thread, which waits for the descriptor alone."""
    with Daemon(pool=POOL) as daemon:
        subprocess.run([CALLS, daemon.uri], timeout=4 * PATIENCE, check=True)


run([test_kills, test_asynchronous])
