# SPDX-License-Identifier: BSD-2-Clause
"""Membership by etcd: the map and its epochs, records and leases, and what goes wrong with etcd. TAP."""

import json
import os
import subprocess
import tempfile
import time

from etcdtest import Etcd, Member, encode, pretender, wait_until
from tarntest import run



def test_first_map():
    """Of two that write the first map one does, and both have it, with the epoch in which it was written."""
    with Etcd() as etcd, Member(etcd.endpoints) as one, Member(etcd.endpoints, "m2", 2) as two:
        for member in (one, two):
            member.expect("map", epoch=None)
            member.expect("regained")
        one.do("first")
        two.do("first")
        outcomes = sorted(member.expect("write")["outcome"] for member in (one, two))
        assert outcomes == ["refused", "written"] or "unknown" in outcomes, outcomes
        for member in (one, two):
            wait_until(lambda member=member: epoch_of(member), "the map is there")
        maps = [member.told("map")[-1] for member in (one, two)]
        assert maps[0] == maps[1] and maps[0]["epoch"] > 1, maps
        assert maps[0]["since_0"] == maps[0]["since_1"] == maps[0]["epoch"], maps
        document = json.loads(etcd.get("/tarn/c/map"))
        assert document["epoch"] == 1 and len(document["owners"]) == 64, document


def epoch_of(member):
    return member.state()["epoch"]


def with_map(member):
    """It has written the first map; its epoch."""
    member.expect("regained")
    return wait_until(lambda: member.write("first") and epoch_of(member), "the map has come")


def settled(member, command):
    """What becomes of a write; not known yet is not enough."""
    return wait_until(lambda: (outcome := member.write(command)["outcome"]) != "unknown" and outcome, f"{command} is answered")


def test_writes():
    """What is written takes effect if the epoch and the boot id are still so; `since` becomes the epoch."""
    with Etcd() as etcd, Member(etcd.endpoints) as one, Member(etcd.endpoints, "m2", 0xB2) as two:
        first = with_map(one)
        two.expect("regained")
        wait_until(lambda: epoch_of(two) == first, "the other one has the map")
        one.written("next")
        epoch = wait_until(lambda: epoch_of(two) > first and epoch_of(two), "the other one has the next map")
        told = next(told for told in two.told("map") if told["epoch"] == epoch)
        assert told["since_0"] == epoch and told["since_1"] == first, told
        # late: made for an epoch that is over
        assert settled(two, f"next-at {first}") == "refused"
        wait_until(lambda: "b2" in str(one.told("records")[-1]), "the other's record is known")
        one.written("next-if m2 b2")
        wait_until(lambda: epoch_of(one) > epoch, "the third map")
        assert settled(one, "next-if m2 b3") == "refused"
        assert settled(one, "next-if m9 b2") == "refused"


def test_restart():
    """One that is killed is a member until its lease ends, and is there at once if it knows its last boot id."""
    with Etcd() as etcd, Member(etcd.endpoints) as watcher:
        watcher.expect("regained")
        with Member(etcd.endpoints, "m2", 0xA1) as first:
            first.expect("regained")
            wait_until(lambda: "00000000000000a1" in str(watcher.told("records")[-1]), "it is there")
        with Member(etcd.endpoints, "m2", 0xA2, previous=0xA1) as again:
            again.expect("regained")
            wait_until(lambda: "00000000000000a2" in str(watcher.told("records")[-1]), "it is there again")
            again.do("weight 7")
            wait_until(lambda: '"weight": 7' in json.dumps(watcher.told("records")[-1]), "its weight is known")
            again.quit()
        wait_until(lambda: list(watcher.told("records")[-1]["records"]) == ["m1"], "who stops gives its lease back")


def test_lease_ends():
    with Etcd() as etcd, Member(etcd.endpoints) as watcher:
        watcher.expect("regained")
        with Member(etcd.endpoints, "m2", 2, lease="4s") as other:
            other.expect("regained")
            wait_until(lambda: "m2" in watcher.told("records")[-1]["records"], "it is there")
        wait_until(lambda: "m2" not in watcher.told("records")[-1]["records"], "its lease has ended")


def test_two_with_one_name():
    with Etcd() as etcd, Member(etcd.endpoints, boot_id=0xAA) as first:
        first.expect("regained")
        with Member(etcd.endpoints, boot_id=0xBB, lease="6s") as second:
            state = second.wait_state(lambda state: "has the name 'm1'" in state["error"], "it says why")
            assert "boot id 00000000000000aa" in state["error"] and "/run/t.sock" in state["error"], state
            assert not state["held"] and not second.told("regained")
            first.quit()
            second.expect("regained")
            second.wait_state(lambda state: state["held"] and not state["error"], "all is well")


def test_stands_still():
    """Stopped for longer than its lease: the first thing that it is told is that."""
    with Etcd() as etcd, Member(etcd.endpoints, lease="4s") as member:
        member.expect("regained")
        member.freeze()
        wait_until(lambda: etcd.get("/tarn/c/members/m1") is None, "the lease has ended")
        told = len(member.told("state"))
        member.do("state")  # is looked at in the first turn of the loop, perhaps in front of the timer
        member.go_on()
        member.expect("lost")
        assert len(member.told("state")) == told or [e["event"] for e in member.events].index("lost") < [
            e["event"] for e in member.events
        ].index("state"), member.events
        assert not member.expect("state")["held"]
        member.expect("regained")


def test_record_gone():
    """An operator that removes a member's record removes the member."""
    with Etcd() as etcd, Member(etcd.endpoints) as member:
        member.expect("regained")
        etcd.delete("/tarn/c/members/m1")
        assert "record is gone" in member.expect("lost")["why"]
        member.expect("regained")


def test_leader_killed():
    with Etcd(3) as etcd, Member(etcd.endpoints, bound="20s") as member:
        first = with_map(member)
        leader = etcd.leader()
        etcd.kill(leader)
        killed = time.monotonic()
        member.wait_state(lambda s: 0 <= s["confirmed_age"] < time.monotonic() - killed, "the map is known to be new again")
        member.written("next")
        wait_until(lambda: epoch_of(member) > first, "and is seen")


def test_no_quorum():
    """The map grows old, what becomes of a write is not known, the lease is lost; all by itself comes back."""
    with Etcd(3) as etcd, Member(etcd.endpoints, lease="8s", bound="5s") as member:
        first = with_map(member)
        for i in (1, 2):
            etcd.freeze(i)
        member.do("next")
        outcome = member.expect("write")["outcome"]
        assert outcome == "unknown", outcome
        state = member.wait_state(lambda s: s["confirmed_age"] > 8 and not s["held"], "the map grows old")
        assert member.told("lost") and state["epoch"] == first and state["error"], state
        for i in (1, 2):
            etcd.go_on(i)
        member.wait_state(lambda s: s["held"] and s["connected"] and 0 <= s["confirmed_age"] < 8, "all is well again")


def test_compaction():
    """etcd has forgotten the revision from which the watch is to go on."""
    with Etcd() as etcd, Member(etcd.endpoints) as member, Member(etcd.endpoints, "m2", 2) as other:
        with_map(member)
        other.expect("regained")
        member.freeze()
        for _ in range(3):
            before = wait_until(lambda: epoch_of(other), "there is a map")
            other.written("next")
            wait_until(lambda: epoch_of(other) > before, "it is seen")
        newest = epoch_of(other)
        revision = etcd.put("/elsewhere", "x")["header"]["revision"]
        etcd.post("/v3/kv/compaction", {"revision": revision, "physical": True})
        etcd.kill(0)
        etcd.start(0)
        etcd.healthy(0)
        member.go_on()
        wait_until(lambda: epoch_of(member) == newest, "it has the newest map")
        other.written("next")
        wait_until(lambda: epoch_of(member) > newest, "and the next one")


def test_long_watch():
    """A watch that has told a lot is begun again, and nothing is missed or complained about."""
    with Etcd() as etcd, Member(etcd.endpoints) as member:
        first = with_map(member)
        for _ in range(20):
            etcd.put("/tarn/c/other", "x" * (1000 * 1000))
        member.written("next")
        wait_until(lambda: epoch_of(member) > first, "the next map")
        assert "too long" not in member.log(), member.log()[-2000:]


def test_wrong_map():
    """A map that is none, another cluster's, or gone: the last one stays, grows old, and the error says why."""
    with Etcd() as etcd, Member(etcd.endpoints) as member:
        first = with_map(member)
        right = etcd.get("/tarn/c/map")
        for wrong, text in (
            ("garbage", "is no map for this member: line 1"),
            (right.replace('"cluster":"c"', '"cluster":"d"'), "the map of another cluster than 'c'"),
            (right.replace("00000000000000a5", "00000000000000a6"), "seed, shards or mode are others"),
            (right.replace('"epoch":1,', '"epoch":1000000,'), "is later than the revision"),
        ):
            etcd.put("/tarn/c/map", wrong)
            state = member.wait_state(lambda state, text=text: text in state["error"], text)
            assert state["epoch"] == first, state
        etcd.delete("/tarn/c/map")
        member.wait_state(lambda state: "is gone from etcd" in state["error"], "it says so")
        etcd.put("/tarn/c/map", right)
        state = member.wait_state(lambda state: state["epoch"] > first and not state["error"], "the right one is taken")


def test_wrong_record():
    with Etcd() as etcd, Member(etcd.endpoints) as member:
        member.expect("regained")
        etcd.put("/tarn/c/members/m7", "garbage")
        member.wait_log(["members/m7 in etcd is no member's record"], "it says so")
        assert "m7" not in member.told("records")[-1]["records"]


def certificates(folder):
    """A ca, and what it signs: server.pem for 127.0.0.1, client.pem; other.pem is another ca."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, cwd=folder, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for ca in ("ca", "other"):
        openssl("req", "-x509", *new, "-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-days", "2", "-subj", f"/CN={ca}")
    for name in ("server", "client"):
        openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        with open(os.path.join(folder, "ext"), "w", encoding="utf-8") as file:
            file.write("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "ext", "-out", f"{name}.pem")


def test_tls():
    with tempfile.TemporaryDirectory(prefix="tarn-test-tls-", dir="/tmp") as folder:
        certificates(folder)
        shown = f"etcd_cert = {folder}/client.pem\netcd_key = {folder}/client.key\n"
        with Etcd(tls=folder) as etcd:
            with Member(etcd.endpoints, more=f"etcd_ca = {folder}/ca.pem\n{shown}") as member:
                first = with_map(member)
                member.written("next")
                wait_until(lambda: epoch_of(member) > first, "the next map")
                member.quit()
            assert etcd.get("/tarn/c/members/m1") is None  # given back
            with Member(etcd.endpoints, more=f"etcd_ca = {folder}/other.pem\n{shown}") as member:
                member.wait_state(lambda state: "its certificate is not right" in state["error"], "it says so")
                assert not member.told("map")
            with Member(etcd.endpoints.replace("127.0.0.1", "localhost"), more=f"etcd_ca = {folder}/ca.pem\n{shown}") as member:
                member.wait_state(lambda state: state["error"], "the certificate is for another name")
                assert not member.told("map")


def secured(etcd):
    """Users root and u, who may do what the role says; passwords are r and p."""
    for user, password in (("root", "r"), ("u", "p"), ("poor", "p")):
        etcd.post("/v3/auth/user/add", {"name": user, "password": password})
    etcd.post("/v3/auth/role/add", {"name": "root"})
    etcd.post("/v3/auth/role/add", {"name": "tarn"})
    etcd.post("/v3/auth/role/grant", {"name": "tarn", "perm": {"permType": "READWRITE", "key": encode("/tarn/"), "range_end": encode("/tarn0")}})
    etcd.post("/v3/auth/user/grant", {"user": "root", "role": "root"})
    etcd.post("/v3/auth/user/grant", {"user": "u", "role": "tarn"})
    etcd.post("/v3/auth/enable", {})


def test_password():
    with tempfile.TemporaryDirectory(prefix="tarn-test-password-", dir="/tmp") as folder, Etcd() as etcd:
        secured(etcd)
        path = os.path.join(folder, "password")

        def more(user, password):
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"{password}\n")
            os.chmod(path, 0o600)
            return f"etcd_user = {user}\netcd_password_file = {path}\n"

        with Member(etcd.endpoints, more=more("u", "wrong")) as member:
            member.wait_state(lambda state: "does not let user 'u' in" in state["error"], "it says so")
            more("u", "p")
            member.do("reload")
            assert member.expect("reload")["ok"]
            first = with_map(member)
            # tokens are in the memory of etcd
            etcd.kill(0)
            etcd.start(0)
            member.wait_state(lambda state: not state["connected"] or "token" in member.log(), "etcd was away")
            member.written("next")
            wait_until(lambda: epoch_of(member) > first, "the next map")
        with Member(etcd.endpoints, more=more("poor", "p"), name="m2") as member:
            state = member.wait_state(lambda state: "permission denied" in state["error"], "it says so")
            assert "needs a role" in state["error"], state
        with Member(etcd.endpoints, name="m3") as member:
            member.wait_state(lambda state: state["error"], "without a user")
            assert not member.told("map")


def head(connection):
    """The request's head is read."""
    connection.settimeout(60)
    text = b""
    while b"\r\n\r\n" not in text:
        more = connection.recv(4096)
        if not more:
            raise OSError("closed")
        text += more


def forever(connection):
    while connection.recv(4096):
        pass


def says(text, then=None):
    def answer(connection):
        head(connection)
        connection.sendall(text)
        if then:
            then(connection)

    return answer


def drips(connection):
    head(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"{")
        time.sleep(0.2)


def floods(connection):
    head(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


WRONG_ANSWERS = {
    "garbage": (says(b"\x00\xff\x16garbage\r\n\r\n"), "not HTTP|no answer|no connection|ended"),
    "no JSON": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), "is not one of etcd"),
    "JSON of another kind": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), "without a header"),
    "half": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"header\":"), "has ended|broken"),
    "an error": (says(b"HTTP/1.1 503 Away\r\nContent-Length: 2\r\n\r\n{}"), "HTTP status 503"),
    "nothing": (forever, "within the time limit"),
    "too much": (floods, "too long|within the time limit"),
    "too slowly": (drips, "within the time limit"),
}


def test_wrong_answers():
    """Each is one clear error, and the next endpoint is asked."""
    with Etcd() as etcd:
        for name, (answer, texts) in WRONG_ANSWERS.items():
            with pretender(answer) as endpoint:
                with Member(endpoint, bound="8s") as member:
                    assert endpoint in member.wait_log(texts.split("|"), name)
                    state = member.state()
                    assert state["error"] and not state["connected"] and not member.told("map"), (name, state)
                with Member(f"{endpoint}, {etcd.endpoints}", name="m2", bound="8s") as member:
                    member.expect("regained")
                    member.quit()


def test_nobody_there():
    with Etcd() as etcd, Member("http://127.0.0.1:1") as member:
        member.wait_log(["http://127.0.0.1:1: no connection"], "it says so")
        member.configure(etcd.endpoints)
        member.do("reload")
        assert member.expect("reload")["ok"]
        member.expect("regained")
        member.configure("http://nobody.invalid:1")
        member.do("reload")
        member.wait_state(lambda state: "nobody.invalid" in state["error"], "a name that nobody knows")


def test_another_etcd():
    """Endpoints that are not of one etcd cluster."""
    with Etcd() as etcd, Etcd() as other, Member(f"{etcd.endpoints}, {other.endpoints}", bound="8s") as member:
        member.expect("regained")
        etcd.kill(0)
        member.wait_log(["of another etcd cluster"], "it says so")
        etcd.start(0)
        member.wait_state(lambda state: not state["error"] and state["endpoint"] in etcd.endpoints, "the right one is used again")


run(
    [
        test_first_map,
        test_writes,
        test_restart,
        test_lease_ends,
        test_two_with_one_name,
        test_stands_still,
        test_record_gone,
        test_leader_killed,
        test_no_quorum,
        test_compaction,
        test_long_watch,
        test_wrong_map,
        test_wrong_record,
        test_tls,
        test_password,
        test_wrong_answers,
        test_nobody_there,
        test_another_etcd,
    ]
)
