# SPDX-License-Identifier: BSD-2-Clause
"""An etcd for tests that is a thread of the test: what tarnd uses of the JSON gateway of etcd v3, in memory, there in a millisecond.

It stands in for etcdtest.Etcd where CLUSTER_BACKEND is "fake", and does wrong on demand: `etcd.fault` is a function that is asked
before each answer, with path and request, and says what is to go wrong with it (FAULTS). test-fake-etcd.py has the real one beside it.
"""

import base64
import json
import random
import shutil
import socket
import tempfile
import threading
import time

FAULTS = (
    "refuse",  # 503, and nothing is done
    "lose request",  # the connection ends, and nothing is done
    "lose answer",  # it is done, and the connection ends
    "half an answer",  # it is done, and the connection ends in the middle of the answer
    "garbage",  # it is done, and the answer is no JSON
    "slow",  # it is done, and the answer comes half a second later
)
CODES = {3: 400, 5: 404, 9: 400, 11: 400, 12: 501, 14: 503, 16: 401}  # of gRPC, and HTTP
NOT_FOUND, OUT_OF_RANGE, UNIMPLEMENTED, UNAVAILABLE = 5, 11, 12, 14
LOOK = 0.02  # how often leases are looked at


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def decode(text):
    return base64.b64decode(text or "")


def encode(data):
    return base64.b64encode(data).decode()


def in_range(key, request):
    first, end = decode(request.get("key")), decode(request.get("range_end"))
    if not end:
        return key == first
    return key >= first and (end == b"\0" or key < end)


class Store:
    """Keys, revisions, leases and who watches. All under the lock."""

    def __init__(self):
        self.lock = threading.Condition()
        self.cluster = str(random.getrandbits(63))
        self.revision, self.compacted = 1, 0
        self.keys = {}  # key: dict
        self.history = []  # (revision, "PUT" or "DELETE", kv)
        self.leases, self.next_lease = {}, 7587869134

    def header(self):
        return {"cluster_id": self.cluster, "member_id": "10276657743932975437", "revision": str(self.revision), "raft_term": "2"}

    def kv_of(self, key, keys_only=False):
        found = self.keys[key]
        kv = {"key": encode(key), "create_revision": str(found["create"]), "mod_revision": str(found["mod"]), "version": str(found["version"])}
        if found["value"] and not keys_only:
            kv["value"] = encode(found["value"])
        if found["lease"]:
            kv["lease"] = str(found["lease"])
        return kv

    # ---- operations; those that change something are given their revision ----

    def range(self, request):
        keys = sorted(key for key in self.keys if in_range(key, request))
        kvs = [self.kv_of(key, request.get("keys_only")) for key in keys]
        limit = int(request.get("limit", 0))
        return {"kvs": kvs[:limit] if limit else kvs, "count": str(len(kvs))} if kvs else {}

    def put(self, request, revision):
        key, lease = decode(request.get("key")), int(request.get("lease", 0))
        if lease and lease not in self.leases:
            raise Refused(NOT_FOUND, "etcdserver: requested lease not found")
        before = self.keys.get(key, {"create": revision, "version": 0})
        self.keys[key] = {"create": before["create"], "mod": revision, "version": before["version"] + 1, "lease": lease,
                          "value": decode(request.get("value"))}
        self.history.append((revision, "PUT", self.kv_of(key)))
        return {}

    def delete(self, request, revision):
        keys = [key for key in self.keys if in_range(key, request)]
        for key in keys:
            del self.keys[key]
            self.history.append((revision, "DELETE", {"key": encode(key), "mod_revision": str(revision)}))
        return {"deleted": str(len(keys))} if keys else {}

    def holds(self, compare):
        key, target = decode(compare.get("key")), compare.get("target", "VERSION")
        found = self.keys.get(key, {"create": 0, "mod": 0, "version": 0, "lease": 0, "value": b""})
        if target == "VALUE":
            is_now, said = found["value"], decode(compare.get("value"))
        else:
            field = {"CREATE": "create_revision", "MOD": "mod_revision", "VERSION": "version", "LEASE": "lease"}[target]
            is_now, said = found[field.split("_")[0]], int(compare.get(field, 0))
        return {"EQUAL": is_now == said, "NOT_EQUAL": is_now != said, "GREATER": is_now > said, "LESS": is_now < said}[
            compare.get("result", "EQUAL")]

    def changing(self, operation, request):
        """With a revision of its own, if it changes something."""
        before = len(self.history)
        answer = operation(request, self.revision + 1)
        if len(self.history) > before:
            self.revision += 1
            self.lock.notify_all()
        return answer

    def transaction(self, request, revision):
        succeeded = all(self.holds(compare) for compare in request.get("compare", []))
        responses = []
        for one in request.get("success" if succeeded else "failure", []):
            (name, inner), = one.items()
            if name == "request_range":
                answer = {"header": {"revision": str(self.revision)}, **self.range(inner)}
            else:
                operation = {"request_put": self.put, "request_delete_range": self.delete}[name]
                answer = {"header": {"revision": str(revision)}, **operation(inner, revision)}
            responses.append({name.replace("request", "response"): answer})
        answer = {"succeeded": True} if succeeded else {}
        return {**answer, **({"responses": responses} if responses else {})}

    def compact(self, request):
        revision = int(request.get("revision", 0))
        if revision <= self.compacted:
            raise Refused(OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
        if revision > self.revision:
            raise Refused(OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
        self.compacted = revision
        self.history = [entry for entry in self.history if entry[0] > revision]
        return {}

    # ---- leases ----

    def lease_grant(self, request):
        self.next_lease += 1
        number, ttl = int(request.get("ID", 0)) or self.next_lease, int(request.get("TTL", 0))
        self.leases[number] = [ttl, time.monotonic() + ttl]
        return {"ID": str(number), "TTL": str(ttl)}

    def lease_keepalive(self, request):
        number = int(request.get("ID", 0))
        if number not in self.leases:
            return {"ID": str(number)}
        ttl = self.leases[number][0]
        self.leases[number][1] = time.monotonic() + ttl
        return {"ID": str(number), "TTL": str(ttl)}

    def lease_end(self, number):
        if self.leases.pop(number, None) is None:
            raise Refused(NOT_FOUND, "etcdserver: requested lease not found")
        for key in [key for key, found in self.keys.items() if found["lease"] == number]:
            self.changing(self.delete, {"key": encode(key)})

    def leases_look(self):
        with self.lock:
            for number in [number for number, (_, end) in self.leases.items() if end < time.monotonic()]:
                self.lease_end(number)

    def do(self, path, request):
        with self.lock:
            answer = self.done(path, request)
            return {"header": self.header(), **answer}

    def done(self, path, request):
        if path == "/v3/kv/range":
            return self.range(request)
        if path == "/v3/kv/put":
            return self.changing(self.put, request)
        if path == "/v3/kv/deleterange":
            return self.changing(self.delete, request)
        if path == "/v3/kv/txn":
            return self.changing(self.transaction, request)
        if path == "/v3/kv/compaction":
            return self.compact(request)
        if path == "/v3/lease/grant":
            return self.lease_grant(request)
        if path == "/v3/lease/revoke":
            self.lease_end(int(request.get("ID", 0)))
            return {}
        if path == "/v3/maintenance/status":
            return {"version": "3.4.23", "leader": self.header()["member_id"]}
        raise Refused(UNIMPLEMENTED, f"{path} is nothing that the fake etcd knows")


class Endpoint:
    """One member: a port, and the connections that it has."""

    def __init__(self, etcd, port):
        self.etcd, self.port = etcd, port
        self.connections = set()
        self.running = threading.Event()
        self.running.set()
        self.server = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.server,), daemon=True).start()

    def accept(self, server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self.connections.add(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def close(self):
        server, self.server = self.server, None
        if server:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
        for connection in list(self.connections):
            self.hang_up(connection)
        self.running.set()

    def hang_up(self, connection):
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with connection, connection.makefile("rb") as lines:
                while self.one_request(connection, lines):
                    pass
        except (OSError, ValueError):
            pass
        finally:
            self.connections.discard(connection)

    def one_request(self, connection, lines):
        words = lines.readline().split()
        if len(words) < 2:
            return False
        length = 0
        while (line := lines.readline().strip()):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        request = json.loads(lines.read(length) or b"{}")
        path = words[1].decode()
        self.running.wait()  # frozen: as a process that has been stopped
        if path == "/v3/watch":
            return self.watch(connection, request.get("create_request", {}))
        return self.answer(connection, path, request)

    def answer(self, connection, path, request):
        fault = self.etcd.fault_of(path, request)
        status, body = 200, b""
        if fault == "lose request":
            return False
        try:
            if fault == "refuse" or not self.etcd.has_quorum():
                raise Refused(UNAVAILABLE, "etcdserver: no leader")
            if path == "/v3/lease/keepalive":
                with self.etcd.store.lock:
                    body = {"result": {"header": self.etcd.store.header(), **self.etcd.store.lease_keepalive(request)}}
            else:
                body = self.etcd.store.do(path, request)
            body = json.dumps(body).encode()
        except Refused as refused:
            status = CODES[refused.code]
            body = json.dumps({"error": str(refused), "code": refused.code, "message": str(refused)}).encode()
        if fault == "lose answer":
            return False
        if fault == "garbage":
            body = b"\x00}{" + body[:20]
        if fault == "slow":
            time.sleep(0.5)
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        if fault == "half an answer":
            connection.sendall(head + body[: len(body) // 2])
            return False
        connection.sendall(head + body)
        return True

    # ---- watches ----

    def watch(self, connection, request):
        fault = self.etcd.fault_of("/v3/watch", request)
        if fault in ("lose request", "refuse", "garbage"):
            return False
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        store = self.etcd.store
        with store.lock:
            at = int(request.get("start_revision", 0)) or store.revision + 1
            created = {"header": store.header(), "created": True}
            gone = at <= store.compacted
        self.send(connection, created)
        if gone:
            header = {name: value for name, value in store.header().items() if name != "revision"}
            self.send(connection, {"header": header, "canceled": True, "compact_revision": str(store.compacted)})
            return False
        while self.server and connection in self.connections:
            self.running.wait()
            with store.lock:
                store.lock.wait_for(lambda: store.revision >= at, 0.5)
                events = [{**({"type": "DELETE"} if kind == "DELETE" else {}), "kv": kv}
                          for revision, kind, kv in store.history
                          if revision >= at and in_range(decode(kv["key"]), request)]
                at = max(at, store.revision + 1)
                header = store.header()
            if events and self.etcd.fault_of("/v3/watch event", request) in ("lose request", "lose answer", "half an answer"):
                return False
            if events:
                self.send(connection, {"header": header, "events": events})
        return False

    def send(self, connection, result):
        line = json.dumps({"result": result}).encode() + b"\n"
        connection.sendall(b"%x\r\n%s\r\n" % (len(line), line))


class FakeEtcd:
    """As etcdtest.Etcd. A member that is killed or frozen does not answer; all have one memory, which outlives them."""

    def __init__(self, count=1, tls=None):
        if tls:
            from tarntest import Skip  # pylint: disable=import-outside-toplevel

            raise Skip("the fake etcd has no TLS")
        self.store, self.fault = Store(), None
        self.folder = tempfile.mkdtemp(prefix="tarn-test-etcd-", dir="/tmp")
        self.nodes = [Endpoint(self, 0) for _ in range(count)]
        self.ports = [node.port for node in self.nodes]
        self.endpoints = ", ".join(f"http://127.0.0.1:{port}" for port in self.ports)
        self.over = threading.Event()
        threading.Thread(target=self.tend, daemon=True).start()

    def tend(self):
        while not self.over.wait(LOOK):
            if self.has_quorum():
                self.store.leases_look()

    def fault_of(self, path, request):
        return self.fault(path, request) if self.fault else None

    def has_quorum(self):
        return 2 * sum(1 for node in self.nodes if node.server and node.running.is_set()) > len(self.nodes)

    def start(self, i):
        self.nodes[i] = Endpoint(self, self.ports[i])

    def healthy(self, i):
        assert self.nodes[i].server

    def kill(self, i, how=None):
        del how
        self.nodes[i].close()

    def freeze(self, i):
        self.nodes[i].running.clear()

    def go_on(self, i):
        self.nodes[i].running.set()

    def leader(self):
        return next(i for i, node in enumerate(self.nodes) if node.server and node.running.is_set())

    def log(self, i):
        return f"fake etcd {i}, revision {self.store.revision}"

    def post(self, path, body, i=0):
        del i
        try:
            return self.store.do(path, body)
        except Refused as refused:
            if refused.code == UNIMPLEMENTED and path.startswith("/v3/auth/"):
                from tarntest import Skip  # pylint: disable=import-outside-toplevel

                raise Skip("the fake etcd has no users") from refused
            raise

    post_once = post

    def put(self, key, value):
        return self.post("/v3/kv/put", {"key": encode(key.encode()), "value": encode(value.encode())})

    def delete(self, key):
        return self.post("/v3/kv/deleterange", {"key": encode(key.encode())})

    def get(self, key):
        kvs = self.post("/v3/kv/range", {"key": encode(key.encode())}).get("kvs", [])
        return decode(kvs[0].get("value")).decode() if kvs else None

    def close(self):
        self.over.set()
        for node in self.nodes:
            node.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
