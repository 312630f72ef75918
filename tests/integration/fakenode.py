# SPDX-License-Identifier: BSD-2-Clause
"""A node that says what a test wants it to: the dashboard's files as tarnd serves them, and documents of the test's own."""

import copy
import http.server
import json
import threading

from httptest import ask, port_of, validate

FILES = ["/", "/dashboard.css", "/dashboard.js", "/dashboard-elements.js", "/dashboard-latency.js", "/dashboard-cluster.js", "/dashboard.svg"]
DOCUMENTS = ["/v1/stats", "/v1/clients", "/v1/events"]
CLUSTER = ["/v1/members", "/v1/map"]  # asked for by the page of a member alone


class Node(http.server.ThreadingHTTPServer):
    """Serves the dashboard as tarnd does, with tarnd's own heads, and documents of our own."""

    daemon_threads = True

    def __init__(self, tarnd, change=lambda documents: None):
        super().__init__(("127.0.0.1", 0), Handler)
        port = port_of(tarnd)
        self.files = {path: ask(port, path) for path in FILES}
        self.documents = {path: ask(port, path).json for path in DOCUMENTS}
        self.documents.update({path: ask(port, path).json for path in CLUSTER})
        self.documents["/readyz"] = ask(port, "/readyz").json
        self.documents["/metrics"] = ask(port, "/metrics").text
        self.count, self.under_way, self.most = 0, 0, 0
        self.asked = set()
        self.lock = threading.Lock()
        self.each = lambda documents, number: None
        change(self.documents)
        for path, document in self.documents.items():
            if path != "/metrics":
                validate(document, path)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *failure):
        self.shutdown()
        self.server_close()

    @property
    def port(self):
        return self.server_address[1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        node = self.server
        with node.lock:
            node.asked.add(self.path)
            node.under_way += self.path.startswith("/v1/")
            node.most = max(node.most, node.under_way)
            if self.path == "/v1/stats":
                node.count += 1
                node.each(node.documents, node.count)
            document = node.documents.get(self.path)
            text = document if isinstance(document, str) else json.dumps(document)
            body = text.encode() if document else node.files[self.path].body
        self.send_response(503 if self.path == "/readyz" and not document["ready"] else 200)
        heads = {"Content-Type": "application/json"} if document else dict(node.files[self.path].headers)
        for name, value in {**heads, "Content-Length": str(len(body)), "Connection": "keep-alive"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        with node.lock:
            node.under_way -= self.path.startswith("/v1/")

    def log_message(self, format, *arguments):
        pass


COUNTERS = [("out_of_sequence", 1234, 12.5, True), ("np_cnp_sent", 77, 0.0, False), ("packet_seq_err", 5, 0.0, True), ("link_downed", 0, 0.0, False)]


def device(name, **more):
    counters = [
        {"name": counter, "count": number, "per_second": speed, "meaning": f"meaning of {counter}", "grave": grave, "advice": f"advice for {counter}"}
        for counter, number, speed, grave in COUNTERS
    ]
    return {
        "name": name, "present": True, "transport": "roce", "port": 1, "port_state": "active", "link_layer": "ethernet",
        "active_mtu_bytes": 4096, "gids": ["::ffff:10.0.0.1"], "atomics": "hca", "max_mr_size_bytes": 1 << 40, "max_qp_rd_atom": 16,
        "numa_node": -1, "registered_bytes": 64 << 20, "regions": 2, "connections": 3, "queue_pairs": 5, "messages": 100, "probes": 2,
        "shared_receive_queue": True, "async_events": 0, "port_errors": 1, "port_changes": 0, "gid_changes": 0, "queue_errors": 0,
        "fatal_events": 0, "removed": 0, "counters": counters, **more,
    }  # fmt: skip


def listener(name, **more):
    return {
        "name": name, "kind": "rdma", "up": True, "address": "10.0.0.1:7470", "device": "mlx5_0", "state": "up", "failure": None,
        "connections": 3, "waiting": 0, "handshakes": 0, "accepted": 3, "unanswered": 0, **more,
    }  # fmt: skip


def client(documents, i, **more):
    operations = copy.deepcopy(documents["/v1/stats"]["pools"][0]["operations"])
    return {
        "pool": "main", "client_id": i + 1, "slot": i, "transport": "shm", "listener": "local", "pid": 1000 + i, "uid": 0, "gid": 0,
        "name": f"program-{i}", "key_id": None, "read_only": False, "unfenced": False, "connected_ms": 1, "connection": None,
        "reporting": True, "reports": 1, "operations": operations, **more,
    }  # fmt: skip


def member(name, number, **more):
    return {
        "name": name, "number": number, "state": "up", "self": number == 1, "weight": 100, "shards": 16, "shards_outgoing": 0, "shards_incoming": 0,
        "boot_id": f"{number:08x}aabbccdd", "addresses": [{"fabric": "verbs", "address": f"10.0.0.{number}:7470"}], **more,
    }  # fmt: skip


def cluster(documents, members, moves=(), **more):
    """Makes the node the first of these members, each with 16 of 64 shards; moves: (shard, number of its next owner)."""
    by_state = {state: sum(m["state"] == state for m in members) for state in ("up", "draining", "down", "left")}
    about = {
        "name": "shop", "pool": "main", "mode": "store", "member": members[0]["name"], "number": 1, "state": members[0]["state"], "epoch": 41,
        "map_since_ms": documents["/v1/stats"]["daemon"]["started_ms"], "age_ns": 812000000, "map_bound_ns": 30000000000, "map_bytes": 4242, "map_changes": 7,
        "members": by_state, "shards": 64, "shards_owned": 16, "shards_open": 15, "shards_unavailable": {"down": 0, "nobody": 0},
        "shards_taken": 0, "membership": "etcd", "map_source": "https://10.0.0.9:2379", "lease_held": True, "lease_left_ns": 6400000000,
        "fenced": 0, "etcd_requests": 321, "etcd_failures": 2, "membership_error": None,
        "handover": {"phase": "copying", "shards_outgoing": 0, "shards_incoming": 2, "shards_moved": 5, "shards_given_up": 0, "keys_moved": 4321, "bytes_moved": 432100},
        **more,
    }  # fmt: skip
    documents["/v1/stats"]["cluster"] = about
    documents["/v1/members"].update(cluster=about, members=members)
    documents["/v1/map"]["map"] = {
        "format": 1, "cluster": about["name"], "pool": "main", "mode": about["mode"], "seed": "00000000000000a5", "epoch": about["epoch"], "shards": 64,
        "members": [{name: m[name] for name in ("name", "number", "state", "weight", "addresses")} for m in members],
        "owners": [[shard // 16 + 1] if shard // 16 < len(members) else [] for shard in range(64)], "since": [1] * 64, "taken": [0] * 64,
        "moves": [{"shard": shard, "to": to} for shard, to in moves],
    }  # fmt: skip
