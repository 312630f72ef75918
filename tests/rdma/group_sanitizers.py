# SPDX-License-Identifier: BSD-2-Clause
"""For a build with sanitizers: a bit of everything, in one machine. A report of theirs ends a program with an error."""

import subprocess

import group_faults as faults
from vmtest import CLIENT, MEDIUM, Daemon, limit, sessions, wait_clients

suite = faults.suite


def eight_clients(fabric, operations):
    with Daemon("size = 256M\nhugepages = off\n", fabric=fabric) as daemon:
        processes = [
            subprocess.Popen([CLIENT, daemon.uri, str(number), str(operations)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for number in range(8)
        ]
        reports = [suite.finish(process) for process in processes]
        values = suite.read_all(daemon)
        for report in reports:
            suite.check_own(values, report)
        suite.check_sums(values, reports)
        wait_clients(daemon, 0)


@limit(120)
def test_eight_clients_on_rxe_nic():
    eight_clients("rxe-nic", 150)


@limit(120)
def test_eight_clients_on_rxe_cpu():
    eight_clients("rxe-cpu", 100)


@limit(120)
def test_eight_clients_on_siw():
    eight_clients("siw", 100)


@limit(120)
def test_cycles_and_storm():
    for fabric in ("rxe-nic", "siw"):
        with Daemon(MEDIUM + "max_clients = 100\n", fabric=fabric) as daemon:
            for kind, count in (("cycles", 20), ("storm", 60)):
                report = sessions(daemon.uri, kind, count, 30000)
                assert report["served"] == count, f"{kind} on {fabric}: {report}"
            wait_clients(daemon, 0)


@limit(120)
def test_faults():
    for test in (
        faults.test_reader_on_rxe_nic,
        faults.test_outside_the_region,
        faults.test_requests_that_are_refused,
        faults.test_revoked_key,
        faults.test_garbage_messages,
        faults.test_client_that_never_answers,
        faults.test_device_goes_and_comes_back,
    ):
        print("#", test.__name__, flush=True)
        test()


@limit(60)
def test_restarted_daemon():
    faults.restarted_daemon("rxe-nic")
