#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Statistics over HTTP: what is told, to whom, in which form, and that nobody can hurt the daemon by asking."""

import datetime
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import tarntest
from httptest import ask, parse, port_of, trust, validate, value
from tarntest import PATIENCE, Daemon, run, tarn_json

HTTP = "[http]\nlisten = 127.0.0.1:0\n"
OPEN = "application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5"
PATHS = ["/v1/stats", "/v1/pools", "/v1/clients", "/v1/events", "/v1/members", "/v1/map", "/readyz", "/healthz"]


def daemon(more=HTTP, **options):
    return Daemon(more=more, fabric="", **options)


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)
    return result


def raw(port, data, timeout=30, half_close=False):
    """Sends bytes; all that comes back until the daemon closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        try:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            pass
        return answer


def holder(tarnd):
    """A client that stays connected: it waits for its value."""
    return subprocess.Popen([tarntest.TARN, "-u", tarnd.uri, "put", "held"], stdin=subprocess.PIPE)


def stats_of(tarnd):
    return tarn_json("-u", tarnd.uri, "stats")


def test_off_without_section():
    with daemon(more="") as tarnd:
        assert "HTTP" not in tarnd.log()
        assert stats_of(tarnd)["http"] is None


def test_every_document_is_as_its_schema():
    keys = "[pool keyed]\nsize = 16M\nhugepages = off\nauth = key\nkey_file = {}\n"
    with daemon(ready=False) as tarnd:
        key_file = os.path.join(tarnd.folder, "keys")
        with open(os.open(key_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"ada write {'a5' * 32} keys=100\n")
        with open(tarnd.config, "a") as file:
            file.write(keys.format(key_file) + "[pool lru]\nsize = 16M\nhugepages = off\nmode = cache\n")
        tarnd.start()
        port = port_of(tarnd)
        process = holder(tarnd)
        try:
            tarnd.tarn("put", "a", stdin=b"b")
            until(lambda: ask(port, "/v1/clients").json["clients"], "a client")
            time.sleep(1.5)  # clients report once a second
            for path in PATHS:
                answer = ask(port, path)
                assert answer.status == 200 and answer.type.startswith("application/json"), (path, answer.status)
                validate(answer.json, path)
            stats = ask(port, "/v1/stats").json
            assert [pool["name"] for pool in stats["pools"]] == ["main", "keyed", "lru"]
            assert stats["pools"][0]["eviction"] is None and stats["pools"][2]["eviction"] is not None
            assert stats["pools"][1]["access_keys"][0]["key_id"] == "ada"
            memory = stats["pools"][0]["memory"]
            assert sum(memory.values()) == stats["pools"][0]["bytes"], memory
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
        # errors, too
        for path in ["/v1", "/v1/nothing", "/v1/stats/"]:
            answer = ask(port, path)
            assert answer.status == 404
            validate(answer.json, "error")


def test_validator_finds_what_is_wrong():
    with daemon() as tarnd:
        good = ask(port_of(tarnd), "/v1/stats").json
        validate(good, "/v1/stats")
        for spoil in [
            lambda d: d.update(schema=2),
            lambda d: d.pop("pools"),
            lambda d: d["pools"][0].update(more=1),
            lambda d: d["pools"][0].update(bytes=-1),
            lambda d: d["pools"][0]["pages"].update(free=True),
            lambda d: d["pools"][0]["operations"].pop("gets"),
            lambda d: d["daemon"].update(ready="yes"),
        ]:
            bad = json.loads(json.dumps(good))
            spoil(bad)
            try:
                validate(bad, "/v1/stats")
            except AssertionError:
                continue
            raise AssertionError("the validator has not seen it")


def test_the_same_as_tarn_stats():
    with daemon() as tarnd:
        port = port_of(tarnd)
        for verb in ["stats", "pools", "clients"]:
            told = ask(port, f"/v1/{verb}").json
            printed = json.loads(tarnd.tarn("--json", verb).stdout)
            assert told.keys() == printed.keys() and told["schema"] == printed["schema"]
            if "pools" in told:
                assert told["pools"][0].keys() == printed["pools"][0].keys()
                assert told["pools"][0]["bytes"] == printed["pools"][0]["bytes"]


def bench(tarnd, *options):
    program = os.path.join(tarntest.BUILD, "tarn-bench")
    return subprocess.Popen([program, "-u", tarnd.uri, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ops(families, op, result):
    return value(families, "tarn_ops_total", pool="main", op=op, result=result)


def promtool(text):
    """Prometheus' own checker, where it is installed."""
    program = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if program:
        result = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stdout + result.stderr
    else:
        print("# promtool is not installed: our own parser alone has looked", flush=True)


def test_prometheus_text():
    with daemon(more="[pool b]\nsize = 8M\nhugepages = off\nmode = cache\n" + HTTP) as tarnd:
        port = port_of(tarnd)
        bench(tarnd, "--mix", "get=90,put=10", "--duration", "1", "--keys", "1000").wait(PATIENCE)
        families = until(lambda: (f := parse(ask(port, "/metrics").text)) and ops(f, "get", "hit") and f, "the report")
        until(lambda: ops(parse(ask(port, "/metrics").text), "put", "any") > 1000, "puts")
        time.sleep(0.2)  # documents are kept for a moment
        answer = ask(port, "/metrics")
        assert answer.type == "text/plain; version=0.0.4; charset=utf-8"
        families = parse(answer.text)
        promtool(answer.text)
        told = ask(port, "/v1/stats").json["pools"][0]["operations"]
        assert ops(families, "get", "hit") == told["hits"] > 0
        assert ops(families, "get", "miss") == told["gets"] - told["hits"]
        assert ops(families, "put", "any") == told["puts"]
        assert value(families, "tarn_op_latency_seconds_count", pool="main", op="get") == told["gets"]
        assert value(families, "tarn_pool_size_bytes", pool="b") == 8 << 20
        assert value(families, "tarn_ready") == 1
        assert value(families, "process_start_time_seconds") > time.time() - 600
        assert value(families, "process_resident_memory_bytes") > 1 << 20
        assert value(families, "tarn_bytes_total", pool="main", dir="written") == told["bytes_written"]

        def same_pages():  # the keeper gives some back meanwhile
            free = value(parse(ask(port, "/metrics").text), "tarn_pool_pages", pool="main", state="free")
            return free == ask(port, "/v1/stats").json["pools"][0]["pages"]["free"]

        until(same_pages, "the same number of free pages")


def test_open_metrics():
    with daemon() as tarnd:
        port = port_of(tarnd)
        answer = ask(port, "/metrics", Accept=OPEN)
        assert answer.type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        # two answers: what has just happened for the first time has its line in the second alone
        for _ in range(5):
            open_metrics = parse(ask(port, "/metrics", Accept=OPEN).text, open_metrics=True)
            plain = {name.removesuffix("_total") for name in parse(ask(port, "/metrics").text)}
            if plain == open_metrics.keys():
                break
        assert plain == open_metrics.keys(), plain ^ open_metrics.keys()
        assert open_metrics["tarn_pool_size_bytes"].unit == "bytes"
        assert open_metrics["tarn_op_latency_seconds"].type == "histogram"
        for accept in ["text/plain", "*/*", "", "application/openmetrics-text;q=0", "application/openmetrics-text;q=0.1,text/plain"]:
            assert ask(port, "/metrics", Accept=accept).type.startswith("text/plain"), accept


def test_methods_and_paths():
    with daemon() as tarnd:
        port = port_of(tarnd)
        for path in ["/metrics", *PATHS]:
            head = ask(port, path, "HEAD")
            assert head.status == 200 and head.body == b"" and int(head.headers["Content-Length"]) > 0
            for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"]:
                answer = ask(port, path, method)
                assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD", (path, method, answer.status)
                validate(answer.json, "error")
        for path in ["/metrics/", "//metrics", "/%6detrics", "/metrics%00", "/../metrics", "/v1", "/favicon.ico"]:
            assert ask(port, path).status == 404, path
        assert ask(port, "/metrics?name=x").status == 200
        assert ask(port, "http://127.0.0.1/readyz").status == 200


def test_what_is_no_request():
    status = lambda data, **options: int((raw(port, data, **options).split(b" ") + [b"0", b"0"])[1])
    with daemon() as tarnd:
        port = port_of(tarnd)
        good = b"Host: localhost\r\nConnection: close\r\n\r\n"
        cases = [
            (b"GET /healthz HTTP/1.1\r\n" + good, 200),
            (b"\r\n\r\nGET /healthz HTTP/1.1\r\n" + good, 200),
            (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
            (b"GET /healthz HTTP/1.0\n\n", 200),
            (b"GET /healthz\r\n\r\n", 400),
            (b"GET /healthz HTTP/2.0\r\n" + good, 505),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
            (b"GET  /healthz HTTP/1.1\r\n" + good, 400),
            (b"GET healthz HTTP/1.1\r\n" + good, 400),
            (b"G\0T /healthz HTTP/1.1\r\n" + good, 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400),
            (b"GET /healthz HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
            (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 413),
            (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
            (b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 405),
            (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 421),
            (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\nConnection: close\r\n\r\n", 421),
            (b"GET /healthz HTTP/1.1\r\nHost: [::1]:7471\r\nConnection: close\r\n\r\n", 200),
            (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + good, 431),
            (b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 65 + good, 431),
            (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"A: " + b"b" * 100000, 431),
            (b"x" * 100000, 431),
        ]
        for data, wanted in cases:
            got = status(data)
            assert got == wanted, (data[:80], got, wanted)
        # one byte at a time
        with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
            for byte in b"GET /healthz HTTP/1.1\r\n" + good:
                slow.sendall(bytes([byte]))
                time.sleep(0.002)
            assert slow.recv(100).startswith(b"HTTP/1.1 200 OK")
        # a client that closes its side at once still gets its answer
        assert raw(port, b"GET /metrics HTTP/1.0\r\n\r\n", half_close=True).endswith(b"\n")
        # three requests at once, and the answers in order
        answers = raw(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\nGET /readyz HTTP/1.1\r\n" + good)
        assert answers.count(b"HTTP/1.1 200 OK") == 3 and answers.rstrip().endswith(b'"reasons":[]}'), answers


def test_connections_are_bounded():
    with daemon(more=HTTP + "max_connections = 4\n") as tarnd:
        port = port_of(tarnd)
        silent = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(4)]
        until(lambda: stats_of(tarnd)["http"]["connections"] == 4, "four connections")
        answer = ask(port, "/healthz")
        assert answer.status == 503 and answer.headers["Retry-After"] == "1"
        validate(answer.json, "error")
        # far more than that: closed at once, and the daemon is as before
        crowd = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(100)]
        stats = until(lambda: (s := stats_of(tarnd)["http"])["refused"] >= 90 and s, "the crowd is refused")
        assert stats["connections"] <= 4 + 32, stats
        for one in crowd + silent:
            one.close()
        until(lambda: stats_of(tarnd)["http"]["connections"] == 0, "all are gone")
        assert ask(port, "/healthz").status == 200
        # who is idle makes room
        idle = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(4)]
        for one in idle:
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        assert ask(port, "/healthz").status == 200
        for one in idle:
            one.close()


def test_slow_ones_are_dropped():
    with daemon() as tarnd:
        port = port_of(tarnd)
        dribble = socket.create_connection(("127.0.0.1", port), timeout=30)
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", port))
        begin = time.monotonic()
        # more than the kernel's buffers hold, and nothing is read of it
        reader.settimeout(0.5)
        try:
            while True:
                reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        except (TimeoutError, ConnectionError):
            pass
        ended = False
        while time.monotonic() - begin < 30 and not ended:
            try:
                dribble.sendall(b"G")
            except ConnectionError:
                ended = True
            time.sleep(0.2)
        assert ended and 8 < time.monotonic() - begin < 25, time.monotonic() - begin
        until(lambda: stats_of(tarnd)["http"]["connections"] == 0, "both are gone")
        assert stats_of(tarnd)["http"]["dropped"] == 2
        dribble.close()
        reader.close()


def test_a_thousand_scrapes():
    """In parallel, with a slow reader and garbage, while a client works."""
    with daemon(more=HTTP + "max_connections = 1024\n") as tarnd:
        port = port_of(tarnd)
        work = bench(tarnd, "--duration", "5", "--keys", "1000")
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        stop = threading.Event()

        def garbage():
            while not stop.is_set():
                raw(port, os.urandom(300), timeout=30)

        failures, lock = [], threading.Lock()
        path_of = lambda i: ["/metrics", "/v1/stats", "/v1/clients", "/metrics"][i % 4]

        def scrape(i):
            try:
                answer = ask(port, path_of(i), timeout=120, **({"Accept": OPEN} if i % 4 == 3 else {}))
                assert answer.status == 200, answer.status
                if i % 20 == 0:
                    parse(answer.text)
                elif i % 20 == 1:
                    validate(answer.json, "/v1/stats")
            except Exception as failure:
                with lock:
                    failures.append(f"{i}: {failure!r}")

        noise = threading.Thread(target=garbage)
        noise.start()
        threads = [threading.Thread(target=scrape, args=(i,)) for i in range(1000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        noise.join()
        slow.close()
        assert not failures, failures[:5]
        assert work.wait(PATIENCE) == 0, work.stderr.read()
        work.stderr.close()
        stats = stats_of(tarnd)["http"]
        assert stats["answers"]["2xx"] >= 1000 and stats["answers"]["5xx"] == 0, stats


# ---- TLS and the token ----


def certificate(folder, name, days):
    """A self-signed one that is valid for so many days from now; negative: until then."""
    pem, key = (os.path.join(folder, name + end) for end in (".pem", ".key"))
    now = datetime.datetime.utcnow()
    config = os.path.join(folder, "ca.conf")
    with open(config, "w") as file:
        file.write("[req]\ndistinguished_name=dn\n[dn]\n[v]\nsubjectAltName=IP:127.0.0.1\n[ca]\ndefault_ca=c\n[c]\n")
        file.write(f"database={folder}/index\nnew_certs_dir={folder}\nserial={folder}/serial\ndefault_md=sha256\n")
        file.write("policy=p\nx509_extensions=v\nunique_subject=no\n[p]\ncommonName=supplied\n")
    for path, text in (("index", ""), ("serial", "01\n")):
        with open(os.path.join(folder, path), "w") as file:
            file.write(text)
    stamp = lambda delta: (now + datetime.timedelta(days=delta)).strftime("%Y%m%d%H%M%SZ")
    openssl = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem + ".csr", "-subj", "/CN=tarn", "-config", config)
    openssl("ca", "-batch", "-selfsign", "-config", config, "-keyfile", key, "-in", pem + ".csr", "-out", pem,
            "-notext", "-startdate", stamp(-20), "-enddate", stamp(days))
    os.chmod(key, 0o600)
    return pem, key


def write(folder, name, text, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def secured(tarnd, pem, key, token, listen="127.0.0.1:0"):
    with open(tarnd.config, "a") as file:
        file.write(f"[http]\nlisten = {listen}\ncertificate = {pem}\nprivate_key = {key}\ntoken_file = {token}\n")


def test_tls_and_token():
    with daemon(more="", ready=False) as tarnd:
        pem, key = certificate(tarnd.folder, "good", 10)
        other, _ = certificate(tarnd.folder, "other", 10)
        token = write(tarnd.folder, "token", "0123456789abcdef0123\n")
        secured(tarnd, pem, key, token)
        tarnd.start()
        port, tls = port_of(tarnd), trust(pem)
        bearer = lambda word: {"Authorization": "Bearer " + word}
        assert ask(port, "/v1/stats", tls=tls, **bearer("0123456789abcdef0123")).status == 200
        for headers in [
            {},
            bearer(""),
            bearer("0123456789abcdef012"),
            bearer("0123456789abcdef01234"),
            bearer("x" * 4000),
            {"Authorization": "Basic 0123456789abcdef0123"},
            {"Authorization": "0123456789abcdef0123"},
        ]:
            for path in ["/v1/stats", "/metrics", "/nothing"]:
                answer = ask(port, path, tls=tls, **headers)
                assert answer.status == 401 and "Bearer" in answer.headers["WWW-Authenticate"], (path, headers)
                validate(answer.json, "error")
        for path in ["/healthz", "/readyz"]:
            assert ask(port, path, tls=tls).status == 200
        stats = ask(port, "/v1/stats", tls=tls, **bearer("0123456789abcdef0123")).json
        assert abs(stats["http"]["certificate_expires"] - time.time() - 10 * 86400) < 600
        # a client that expects another certificate
        try:
            ask(port, "/healthz", tls=trust(other))
            raise AssertionError("a wrong certificate was accepted")
        except OSError:
            pass
        # no TLS, half of a handshake, garbage in it
        assert not raw(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP")
        raw(port, b"\x16\x03\x01\x02\x00" + os.urandom(512))
        with socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(b"\x16\x03\x01")
        assert ask(port, "/healthz", tls=tls).status == 200


def test_reload_of_certificate_and_token():
    with daemon(more="", ready=False) as tarnd:
        pem, key = certificate(tarnd.folder, "good", 10)
        expired, expired_key = certificate(tarnd.folder, "old", -1)
        token = write(tarnd.folder, "token", "0123456789abcdef0123\n")
        used, used_key = (os.path.join(tarnd.folder, name) for name in ("used.pem", "used.key"))
        shutil.copy(pem, used), shutil.copy(key, used_key)
        secured(tarnd, used, used_key, token)
        tarnd.start()
        port, tls = port_of(tarnd), trust(pem)
        good, new = ({"Authorization": "Bearer " + word} for word in ("0123456789abcdef0123", "new-token-new-token"))

        def reload(kind):
            count = lambda: tarnd.log().count("reload refused" if kind == "refused" else "reloaded ")
            before = count()
            tarnd.process.send_signal(1)
            until(lambda: count() > before, f"reload {kind}")

        # expired: said, and the old one stays
        shutil.copy(expired, used), shutil.copy(expired_key, used_key)
        reload("refused")
        said = tarnd.log().splitlines()[-1]
        assert re.search(rf"reload refused: everything stays as it was: {tarnd.config}:\d+: \[http\] certificate {used}: expired on", said), said
        assert ask(port, "/v1/stats", tls=tls, **good).status == 200
        # a key that is not the certificate's
        shutil.copy(pem, used)
        reload("refused")
        # a token that others can read
        shutil.copy(key, used_key)
        write(tarnd.folder, "token", "new-token-new-token\n", 0o644)
        reload("refused")
        assert "chmod 600" in tarnd.log()
        assert ask(port, "/v1/stats", tls=tls, **new).status == 401
        os.chmod(token, 0o600)
        reload("done")
        until(lambda: ask(port, "/v1/stats", tls=tls, **new).status == 200, "the new token")
        assert ask(port, "/v1/stats", tls=tls, **good).status == 401
        events = ask(port, "/v1/events", tls=tls, **new).json["events"]
        assert [e["kind"] for e in events].count("reload_refused") == 3, events
        assert [e["kind"] for e in events].count("reload") == 1, events
        samples = parse(ask(port, "/metrics", tls=tls, **new).text)
        assert value(samples, "tarn_config_reload_total", result="refused") == 3
        assert value(samples, "tarn_config_reload_total", result="applied") == 1
        since = time.time() - value(samples, "tarn_config_last_reload_success_timestamp_seconds")
        assert 0 <= since < 600, since
        assert stats_of(tarnd)["daemon"]["reloads"]["refused"] == 3


def rewritten(tarnd, change):
    with open(tarnd.config) as file:
        text = file.read()
    with open(tarnd.config, "w") as file:
        file.write(change(text))
    return text


def test_reload_refused_as_a_whole():
    """A bad certificate is one of the things that can be wrong: nothing else of the file takes effect then."""
    with daemon(more="", ready=False) as tarnd:
        pem, key = certificate(tarnd.folder, "good", 10)
        old, old_key = certificate(tarnd.folder, "old", -1)
        token = write(tarnd.folder, "token", "0123456789abcdef0123\n")
        secured(tarnd, pem, key, token)
        tarnd.start()
        port, good = port_of(tarnd), {"Authorization": "Bearer 0123456789abcdef0123"}
        before = rewritten(tarnd, lambda text: text.replace(pem, old).replace(key, old_key).replace(
            "[http]", "[daemon]\nlog_level = warning\n[http]"))
        with open(tarnd.config) as file:
            line = file.read().splitlines().index(f"certificate = {old}") + 1
        for verb in (["config", "diff"], ["reload"]):
            result = tarnd.tarn(*verb, check=1)
            assert f"{tarnd.config}:{line}: [http] certificate {old}: expired on" in result.stderr.decode(), result.stderr
        settings = {s["key"]: s for s in tarn_json("-u", tarnd.uri, "config", "show")["settings"] if s["section"] != "pool"}
        assert settings["log_level"]["value"] != "warning", settings["log_level"]
        assert settings["certificate"]["value"] == pem and settings["certificate"]["reloadable"], settings
        assert ask(port, "/v1/stats", tls=trust(pem), **good).status == 200
        rewritten(tarnd, lambda _: before)
        assert "nothing has changed" in tarnd.tarn("reload").stdout.decode()
        # another certificate in the same file
        shutil.copy(certificate(tarnd.folder, "new", 20)[0], pem), shutil.copy(os.path.join(tarnd.folder, "new.key"), key)
        assert "new certificate or token" in tarnd.tarn("config", "diff").stdout.decode()
        assert "new certificate or token" in tarnd.tarn("reload").stdout.decode()
        assert ask(port, "/v1/stats", tls=trust(pem), **good).status == 200


def test_reload_of_the_section():
    """TLS comes and goes, and so does the section as a whole."""
    with daemon() as tarnd:
        pem, key = certificate(tarnd.folder, "good", 10)
        port = port_of(tarnd)
        plain = rewritten(tarnd, lambda text: text + f"certificate = {pem}\nprivate_key = {key}\n")
        with socket.create_connection(("127.0.0.1", port)) as kept:
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(1000).startswith(b"HTTP/1.1 200")
            tarnd.tarn("reload")
            assert ask(port, "/healthz", tls=trust(pem)).status == 200
            # what began without TLS goes on without
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(1000).startswith(b"HTTP/1.1 200")
        # half of it is an error
        rewritten(tarnd, lambda _: plain + f"certificate = {pem}\n")
        assert "needs private_key, too" in tarnd.tarn("reload", check=1).stderr.decode()
        # none, and again
        rewritten(tarnd, lambda _: plain.replace(HTTP, ""))
        assert "[http] removed: 127.0.0.1:0" in tarnd.tarn("reload").stdout.decode()
        assert refused_connection(port) and stats_of(tarnd)["http"] is None
        rewritten(tarnd, lambda _: plain + "token_file = /nothing\n")
        assert "/nothing" in tarnd.tarn("reload", check=1).stderr.decode()
        assert stats_of(tarnd)["http"] is None
        rewritten(tarnd, lambda _: plain)
        assert "[http] added: 127.0.0.1:0" in tarnd.tarn("reload").stdout.decode()
        assert ask(port_of(tarnd), "/healthz").status == 200
        assert "nothing has changed" in tarnd.tarn("reload").stdout.decode()


def refused_connection(port, host="127.0.0.1"):
    try:
        socket.create_connection((host, port)).close()
    except ConnectionRefusedError:
        return True
    return False


def listen_at(tarnd, *addresses, check=0, verb=("reload",)):
    """Another [http] listen, and a reload: what it says."""
    rewritten(tarnd, lambda text: re.sub(r"(?m)(?<=\[http\]\n)listen = .*", "listen = " + ", ".join(addresses), text))
    result = tarnd.tarn(*verb, check=check)
    return (result.stderr if check else result.stdout).decode()


def healthz(sock):
    sock.settimeout(PATIENCE)
    sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while not answer.endswith(b"}\n"):
        more = sock.recv(1000)
        if not more:
            return False
        answer += more
    return answer.startswith(b"HTTP/1.1 200")


def test_reload_of_addresses():
    """Addresses come and go; connections of those that stay go on, idle ones of those that go end."""
    with daemon() as tarnd:
        first = port_of(tarnd)
        with socket.create_connection(("127.0.0.1", first)) as kept:
            assert healthz(kept)
            said = listen_at(tarnd, "127.0.0.1:0", "127.0.0.2:0")
            assert "[http] listen = 127.0.0.1:0, 127.0.0.2:0 (was 127.0.0.1:0)" in said, said
            second = port_of(tarnd, "127.0.0.2")
            assert healthz(kept) and ask(first, "/healthz").status == 200
            with socket.create_connection(("127.0.0.2", second)) as goes:
                assert healthz(goes)
                listen_at(tarnd, "127.0.0.3:0", f"127.0.0.1:{first}")
                assert goes.recv(1) == b"" and refused_connection(second, "127.0.0.2")
            third = port_of(tarnd, "127.0.0.3")
            assert healthz(kept) and ask(third, "/healthz", host="127.0.0.3").status == 200
            assert f"no more statistics over HTTP at 127.0.0.2:{second}" in tarnd.log()
            # the kept one goes at last
            listen_at(tarnd, "127.0.0.3:0")
            assert kept.recv(1) == b"" and refused_connection(first)
            assert ask(third, "/healthz", host="127.0.0.3").status == 200


def test_reload_of_addresses_is_refused():
    """A port that is taken: the whole file is refused with its line, and what serves goes on."""
    with daemon() as tarnd, socket.create_server(("127.0.0.1", 0)) as taken:
        port, busy = port_of(tarnd), taken.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as kept:
            assert healthz(kept)
            for verb in (("config", "diff"), ("reload",)):
                said = listen_at(tarnd, "127.0.0.2:0", f"127.0.0.1:{busy}", check=1, verb=verb)
                with open(tarnd.config) as file:
                    line = file.read().splitlines().index(f"listen = 127.0.0.2:0, 127.0.0.1:{busy}") + 1
                assert f"{tarnd.config}:{line}: [http] listen = " in said, said
                assert f"127.0.0.1:{busy}: Address already in use: another program has this port" in said, said
                assert healthz(kept) and ask(port, "/healthz").status == 200
            assert "HTTP at 127.0.0.2" not in tarnd.log()
            # its own port, at all addresses: it can not be had before the other one is closed
            pem, key = certificate(tarnd.folder, "good", 10)
            token = write(tarnd.folder, "token", "0123456789abcdef0123\n")
            rewritten(tarnd, lambda text: text + f"certificate = {pem}\nprivate_key = {key}\ntoken_file = {token}\n")
            said = listen_at(tarnd, f"0.0.0.0:{port}", check=1)
            assert f"port {port}: the running tarnd has it at 127.0.0.1:{port}" in said, said
            assert healthz(kept) and ask(port, "/healthz").status == 200


def refused_start(text, *wanted, code=6):
    with daemon(more="", ready=False) as tarnd:
        text = text(tarnd.folder) if callable(text) else text
        with open(tarnd.config, "a") as file:
            file.write(text)
        result = subprocess.run([tarntest.TARND, "-c", tarnd.config], capture_output=True, text=True, timeout=60)
        assert result.returncode == code, (result.returncode, result.stderr)
        for words in wanted:
            assert words in result.stderr, (words, result.stderr)
        assert len([line for line in result.stderr.splitlines() if "[http]" in line]) == 1, result.stderr


def test_start_is_refused():
    def with_files(change):
        def text(folder):
            pem, key = certificate(folder, "good", 10)
            token = write(folder, "token", "0123456789abcdef0123\n")
            pem, key, token = change(folder, pem, key, token) or (pem, key, token)
            return f"[http]\nlisten = 127.0.0.1:0\ncertificate = {pem}\nprivate_key = {key}\ntoken_file = {token}\n"

        return text

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused_start(f"[http]\nlisten = 127.0.0.1:{port}\n", f"127.0.0.1:{port}: Address already in use", "ss -ltnp", "tarnd.conf:")
    refused_start("[http]\nlisten = 10.255.254.253\n", "is not on loopback", "certificate")
    refused_start("[http]\nlisten = 0.0.0.0\n", "is not on loopback", "token_file")
    refused_start("[http]\nlisten = ::\n", "is not on loopback")
    refused_start("[http]\nlisten = localhost:80\n", "localhost")
    refused_start("[http]\nlisten = 127.0.0.1:70000\n", "70000")
    refused_start("[http]\nlisten = , ,\n", "listen")
    refused_start("[http]\nmax_connections = 0\n", "1 to 1024")
    refused_start("[http]\nlistn = 127.0.0.1\n", "did you mean listen?")
    refused_start("[http]\ncertificate = /etc/hostname\n", "needs private_key, too")
    refused_start("[http]\n[http]\n", "there already")
    refused_start(with_files(lambda f, p, k, t: (*certificate(f, "old", -1), t)), "old.pem: expired on", "put a new one")
    refused_start(with_files(lambda f, p, k, t: (p, certificate(f, "other", 1)[1], t)), "key values mismatch", "other.key")
    refused_start(with_files(lambda f, p, k, t: (k, k, t)), "good.key", "certificate in PEM")
    refused_start(with_files(lambda f, p, k, t: (p, k, f + "/none")), "No such file", "none", code=6)
    refused_start(with_files(lambda f, p, k, t: os.chmod(k, 0o604)), "chmod 640")
    refused_start(with_files(lambda f, p, k, t: os.chmod(t, 0o640)), "chmod 600")
    refused_start(with_files(lambda f, p, k, t: write(f, "token", "short\n") and None), "16 to 512", "openssl rand")
    refused_start(with_files(lambda f, p, k, t: write(f, "token", "") and None), "16 to 512")


def test_check_finds_it_too():
    """tarnd -t"""
    with daemon(more="", ready=False) as tarnd:
        pem, key = certificate(tarnd.folder, "old", -1)
        secured(tarnd, pem, key, write(tarnd.folder, "token", "0123456789abcdef0123\n"), "0.0.0.0")
        result = subprocess.run([tarntest.TARND, "-t", "-c", tarnd.config], capture_output=True, text=True, timeout=60)
        assert result.returncode == 6 and "expired on" in result.stderr, result.stderr


def test_events():
    with daemon() as tarnd:
        port = port_of(tarnd)
        tarnd.tarn("put", "a", stdin=b"b")
        kinds = lambda: [event["kind"] for event in ask(port, "/v1/events").json["events"]]
        until(lambda: "client_left" in kinds(), "the client has left")
        assert kinds()[:3] == ["started", "client_connected", "client_left"], kinds()
        process = holder(tarnd)
        client = until(lambda: ask(port, "/v1/clients").json["clients"], "a client")[0]["client_id"]
        tarnd.tarn("clients", "kill", str(client))
        until(lambda: "client_cut" in kinds(), "the client was cut")
        process.kill()
        process.wait()
        process.stdin.close()
        tarnd.tarn("-u", tarnd.uri.replace("main", "none"), "get", "a", check=None)
        until(lambda: "handshake_refused" in kinds(), "a refusal")
        # one kind does not drive out the others
        count = lambda: value(parse(ask(port, "/metrics").text), "tarn_events_total", kind="client_connected")
        before = count()
        for _ in range(40):
            tarnd.tarn("get", "a")
        until(lambda: count() == before + 40, "all are counted")
        assert kinds()[0] == "started" and 1 <= kinds().count("client_connected") <= 32, kinds()
        numbers = [event["number"] for event in ask(port, "/v1/events").json["events"]]
        assert numbers == list(range(1, len(numbers) + 1))


def test_not_ready():
    """A pool's file is cut off: the loop goes on, but clients can not be served."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = os.path.join(folder, "pool")
        with daemon(pool=f"size = 16M\nhugepages = off\nfile = {file}\n") as tarnd:
            port = port_of(tarnd)
            assert ask(port, "/readyz").json == {"schema": 1, "ready": True, "reasons": []}
            os.truncate(file, 0)
            answer = until(lambda: (a := ask(port, "/readyz")).status == 503 and a, "it is noticed")
            validate(answer.json, "/readyz")
            assert answer.json["ready"] is False and "main" in answer.json["reasons"][0], answer.json
            assert ask(port, "/healthz").status == 200
            time.sleep(0.2)
            assert value(parse(ask(port, "/metrics").text), "tarn_ready") == 0
            assert "pool_cut_off" in [event["kind"] for event in ask(port, "/v1/events").json["events"]]


def test_no_descriptor_is_left():
    """Nobody can be accepted for a while; the daemon waits without working, and goes on."""
    with daemon(more=HTTP + "max_connections = 1024\n") as tarnd:
        port = port_of(tarnd)
        used = len(os.listdir(f"/proc/{tarnd.process.pid}/fd"))
        resource.prlimit(tarnd.process.pid, resource.RLIMIT_NOFILE, (used + 5, used + 5))
        crowd = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(20)]
        begin = cpu_seconds(tarnd)
        time.sleep(2)
        assert cpu_seconds(tarnd) - begin < 1, "it asks again and again"
        for one in crowd:
            one.close()
        assert until(lambda: healthy(port), "it goes on")


def cpu_seconds(tarnd):
    with open(f"/proc/{tarnd.process.pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def healthy(port):
    try:
        return ask(port, "/healthz", timeout=5).status == 200
    except OSError:
        return False


def test_names_of_clients_are_only_text():
    """A process may call itself anything."""
    with daemon() as tarnd:
        port = port_of(tarnd)
        program = os.path.join(tarnd.folder.encode(), b'"}\\<b>\xff')
        os.symlink(tarntest.TARN, program)
        process = subprocess.Popen([program, "-u", tarnd.uri, "put", "held"], stdin=subprocess.PIPE)
        try:
            name = until(lambda: ask(port, "/v1/clients").json["clients"], "a client")[0]["name"]
            assert name.startswith('"}') and name.endswith("<b>?"), name
            tarnd.tarn("get", "none", check=None)
            for path in PATHS:
                validate(ask(port, path).json, path)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()


def test_ready_again_after_restart():
    """The port is free at once, also with connections in TIME_WAIT."""
    with daemon(more="[http]\nlisten = 127.0.0.1:0\n") as tarnd:
        port = port_of(tarnd)
        keep = socket.create_connection(("127.0.0.1", port))
        keep.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert keep.recv(1000)
        with open(tarnd.config) as file:
            text = file.read()
        with open(tarnd.config, "w") as file:
            file.write(text.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        tarnd.stop()
        tarnd.start()
        assert ask(port, "/readyz").json["ready"] is True
        keep.close()


if __name__ == "__main__":
    only = sys.argv[1:]
    run([test for name, test in list(globals().items()) if name.startswith("test_") and (not only or name in only)])
