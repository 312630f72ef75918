#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The dashboard at / in a real browser: it shows what /v1/stats says, whatever happens to the daemon, and whatever names
strangers have chosen. Pictures of it are left in the build's tests/integration/dashboard-*.png."""

import copy
import json
import os
import re
import subprocess
import sys
import time

import tarntest
from browser import Browser
from fakenode import CLUSTER, DOCUMENTS, FILES, Node, client, cluster, device, listener, member
from httptest import ask, port_of
from tarntest import PATIENCE, Daemon, run

HTTP = "[http]\nlisten = 127.0.0.1:0\n"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&amp;"
TOKEN = "0123456789abcdef0123"
# These change by themselves, up and down.
RESTLESS = re.compile(r"^(process\..*|cluster\.(age|lease_left)_ns|daemon\.guests|pools\.\d+\.(keys_counted_ms_ago|sweep\.state)|http\..*)$")


def daemon(more=HTTP, **options):
    return Daemon(more=more, fabric="", **options)


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)
    return result


def write(folder, name, text, mode=0o600):
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "w") as file:
        file.write(text)
    return path


def open_page(browser, port):
    browser.open(f"http://127.0.0.1:{port}/")
    browser.until("return document.getElementById('tiles') !== null", "the page shows something")


def polls(browser, more=1):
    """Waits for so many further answers."""
    before = int(browser.run("return document.documentElement.dataset.polls || 0"))
    browser.until("return (document.documentElement.dataset.polls || 0) >= arguments[0]", "the page asks", before + more)


def quiet(browser, allowed=()):
    """Nobody has complained on the console, but about what is expected."""
    for level, message in browser.log():
        assert "Content Security Policy" not in message and "Trusted" not in message, message
        if level in ("SEVERE", "WARNING"):
            assert any(text in message for text in allowed), (level, message)


def of(browser, name):
    """A computed value: its data-value and its text."""
    found = browser.run(
        "const e = document.querySelector(`[data-of=\"${arguments[0]}\"]`); return e && [e.dataset.value, e.textContent]", name
    )
    assert found, f"nothing on the page has data-of={name}"
    return found


def text_of(browser, selector):
    return browser.run("return document.querySelector(arguments[0]).textContent", selector)


# ---- what is served ----


def test_files_and_their_heads():
    with daemon() as tarnd:
        port = port_of(tarnd)
        for path in FILES:
            answer, head = ask(port, path), ask(port, path, "HEAD")
            name = "dashboard.html" if path == "/" else path[1:]
            with open(os.path.join(tarntest.SOURCE, "daemon", name), "rb") as file:
                assert answer.body == file.read(), f"{path} is not daemon/{name}"
            assert head.status == 200 and head.body == b"" and head.headers["Content-Length"] == str(len(answer.body))
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy, policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"
            for method in ["POST", "PUT", "DELETE", "OPTIONS"]:
                assert ask(port, path, method).status == 405, (path, method)
            # nothing of it comes from elsewhere; the one name is that of SVG, which nobody asks for
            links = set(re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`)]*", answer.body))
            assert links <= {b"http://www.w3.org/2000/svg"}, (path, links)
        types = [ask(port, path).type.split(";")[0] for path in FILES]
        assert types == ["text/html", "text/css", *["text/javascript"] * 4, "image/svg+xml"], types
        for path in ["/index.html", "/dashboard", "/dashboard.js/", "//", "/dashboard.html"]:
            assert ask(port, path).status == 404, path
        assert ask(port, "/", Host="evil.example").status == 421


def test_files_need_no_token():
    with daemon(more="", ready=False) as tarnd:
        token = write(tarnd.folder, "token", TOKEN + "\n")
        with open(tarnd.config, "a") as file:
            file.write(HTTP + f"token_file = {token}\n")
        tarnd.start()
        port = port_of(tarnd)
        for path in FILES:
            assert ask(port, path).status == 200, path
        for path in [*DOCUMENTS, *CLUSTER, "/v1/pools", "/metrics", "/nothing", "/dashboard.html"]:
            assert ask(port, path).status == 401, path


# ---- a browser looks at it ----

UNITS = {"B": 1, "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "/s": 1, "k/s": 1e3, "M/s": 1e6, "%": 10, "": 1}
UNITS.update({unit: 1024**power for power, unit in enumerate(["KiB", "MiB", "GiB", "TiB"], 1)})


def text_says(text, value, at):
    """Does the text mean this value, as exactly as it is written?"""
    if value is None or (value == 0 and "latency" in at):
        return text == "–"
    if isinstance(value, str):
        return text == value
    if at == "daemon.uptime_seconds" or at.endswith("_ms_ago"):
        return bool(re.match(r"\d+ (d|h|min|s|ms)\b", text))
    found = re.fullmatch(r"([\d,]+)(\.\d+)?[\u00a0 ]?(\D*)", text)
    if not found:
        return text == str(value)
    shown, unit = float(found[1].replace(",", "") + (found[2] or "")), UNITS[found[3]]
    step = 10.0 ** -len((found[2] or ".")[1:])
    return abs(shown * unit - value) <= step * unit * 0.51 if unit != 1 else shown == value


def documents(port, **headers):
    """All of them as one, as the page has them."""
    stats, clients, events = (ask(port, path, **headers).json for path in DOCUMENTS)
    if stats["cluster"]:
        answer = ask(port, "/v1/members", **headers).json
        stats.update(cluster=answer["cluster"], members=answer["members"])
    return {**stats, "clients": clients["clients"], "events": events["events"]}


def part(document, path):
    for name in path.split("."):
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document


def shown_values(browser, least=100):
    values = browser.run("return [...document.querySelectorAll('[data-at]')].map((e) => [e.dataset.at, e.dataset.value, e.textContent])")
    assert len(values) > least, len(values)
    return values


def compare(values, before, after):
    """Each value is one of those that the daemon had between two looks, and its text says so."""
    for at, value, text in values:
        try:
            low, high = part(before, at), part(after, at)
        except (KeyError, IndexError) as error:
            raise AssertionError(f"{at} is on the page and not in the documents: {error!r}") from None
        if RESTLESS.match(at):
            continue
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and not isinstance(low, bool):
            assert min(low, high) <= float(value) <= max(low, high), (at, low, value, high)
            assert text_says(text, type(low)(float(value)), at), (at, value, text)
        else:
            wanted = ["null" if v is None else str(v) for v in (low, high)]
            assert value in wanted, (at, value, wanted)
            assert text_says(text, None if value == "null" else value, at), (at, value, text)


def looked_at_once(browser, port, least=100):
    """Pauses the page when what it shows agrees with what the daemon has said right before and right after.
    The keeper goes on for a while when the clients are gone, and may change a value there and back in between."""
    end = time.monotonic() + PATIENCE
    pause(browser)
    while True:
        before = documents(port)
        time.sleep(0.2)  # documents are kept for a moment
        browser.click("#pause")
        polls(browser)
        pause(browser)
        after = documents(port)
        try:
            compare(shown_values(browser, least), before, after)
            return
        except AssertionError:
            if time.monotonic() > end:
                raise


def works(browser, names, uri, *options):
    """A client works until the page shows that these are not 0, and a bit longer."""
    program = [os.path.join(tarntest.BUILD, "tarn-bench"), "-u", uri, "--duration", "2", *options]
    end = time.monotonic() + PATIENCE
    while not browser.run("return arguments[0].every((name) => document.querySelector(`[data-of=\"${name}\"]`).dataset.value > 0)", names):
        assert time.monotonic() < end, f"one of {names} stays 0"
        subprocess.run(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False)


def holder(tarnd, program=tarntest.TARN):
    """A client that stays connected: it waits for its value."""
    return subprocess.Popen([program, "-u", tarnd.uri, "put", "held"], stdin=subprocess.PIPE)


def end(process):
    process.kill()
    process.wait()
    process.stdin.close()


def pause(browser):
    browser.click("#pause")
    browser.until("return document.documentElement.dataset.asking === 'no'", "no request is under way")


def three_pools(tarnd):
    """More than the pool main: one with a key and a quota, one that is a cache."""
    keys = write(tarnd.folder, "keys", f"ada write {'a5' * 32} keys=100\n")
    with open(tarnd.config, "a") as file:
        file.write(f"[pool keyed]\nsize = 16M\nhugepages = off\nauth = key\nkey_file = {keys}\n")
        file.write("[pool lru]\nsize = 16M\nhugepages = off\nmode = cache\n")
    tarnd.start()


def test_shows_what_stats_say():
    with Browser() as browser, daemon(ready=False) as tarnd:
        three_pools(tarnd)
        port = port_of(tarnd)
        open_page(browser, port)
        works(browser, ["pools.0.rate.gets", "pools.0.below.get.p99", "get_p99_now", "ops"], tarnd.uri, "--mix", "get=90,put=10", "--keys", "1000")
        works(browser, ["pools.2.rate.puts", "pools.2.below.put.p50"], tarnd.uri.replace("main", "lru"), "--mix", "get=50,put=50", "--keys", "50000")
        held = holder(tarnd)
        try:
            until(lambda: ask(port, "/v1/clients").json["clients"], "a client")
            looked_at_once(browser, port)
            places = {at for at, _, _ in shown_values(browser)}
            for at in ["pools.0.memory.used_bytes", "pools.2.eviction.evicted", "pools.1.access_keys.0.used.keys", "clients.0.pid",
                       "pools.0.operations.get_latency_below_ns.p99", "pools.0.classes.0.blocks_in_use", "pools.0.epoch",
                       "listeners.0.path", "events.0.text", "daemon.version", "pools.0.index.load_permille"]:  # fmt: skip
                assert at in places, at
            # what is computed of them
            shown = {at: value for at, value, _ in shown_values(browser)}
            for i in range(3):
                gets, hits = (int(shown[f"pools.{i}.operations.{name}"]) for name in ("gets", "hits"))
                value, text = of(browser, f"pools.{i}.hit_ratio")
                if gets:
                    assert float(value) == hits / gets and text == f"{100 * hits / gets:.1f}\u00a0%", (value, text, hits, gets)
                else:
                    assert text == "–" and i == 1, (i, text)
            assert of(browser, "clients")[1] == "1"
            assert of(browser, "size")[1] == "96.0\u00a0MiB"
            worst = max(int(shown[f"pools.{i}.operations.get_latency_below_ns.p99"]) for i in range(3))
            assert float(of(browser, "get_p99")[0]) == worst > 0
            # nobody works any more: that is seen when the time over which a rate is taken has passed
            browser.click("#pause")
            browser.until("return document.querySelector('[data-of=ops]').dataset.value === '0'", "nothing happens any more")
        finally:
            end(held)
        # all of it came from here
        names = browser.run("return performance.getEntriesByType('resource').map((e) => e.name)")
        assert names and all(name.startswith(f"http://127.0.0.1:{port}/") for name in names), names
        quiet(browser)


def test_compare_finds_what_is_wrong():
    """The comparison above is not one that can not fail."""
    document = {"a": 7, "b_bytes": 2048, "c": "x", "d": None, "latency": {"p99": 4096}}
    good = [["a", "7", "7"], ["b_bytes", "2048", "2.00\u00a0KiB"], ["c", "x", "x"], ["d", "null", "–"], ["latency.p99", "4096", "4.10\u00a0µs"]]
    compare(good, document, document)
    for row, column, wrong in [(0, 1, "8"), (0, 2, "8"), (1, 2, "2.01\u00a0KiB"), (1, 2, "2.00\u00a0MiB"), (2, 1, "y"), (2, 2, "y"),
                               (3, 2, "0"), (4, 2, "4.10\u00a0ms"), (4, 2, "5.10\u00a0µs"), (0, 0, "z")]:  # fmt: skip
        bad = copy.deepcopy(good)
        bad[row][column] = wrong
        try:
            compare(bad, document, document)
        except AssertionError:
            continue
        raise AssertionError(f"not seen: {bad[row]}")


def test_daemon_dies_and_comes_back():
    with Browser() as browser, daemon() as tarnd:
        port = port_of(tarnd)
        with open(tarnd.config) as file:
            text = file.read()
        write(tarnd.folder, "tarnd.conf", text.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        open_page(browser, port)
        first = text_of(browser, "[data-at='daemon.pid']")
        assert int(first.replace(",", "")) == tarnd.process.pid
        tarnd.kill()
        browser.until("return !document.getElementById('gone').hidden", "the page notices")
        assert "can not be reached" in text_of(browser, "#gone") and text_of(browser, "#state") == "gone"
        # the last values stay, and are marked
        assert text_of(browser, "[data-at='daemon.pid']") == first
        assert browser.run("return document.getElementById('main').classList.contains('stale')")
        os.unlink(tarnd.socket)
        tarnd.start()
        browser.until("return document.querySelector(\"[data-at='daemon.pid']\").dataset.value === arguments[0]", "it goes on", str(tarnd.process.pid))
        assert browser.run("return document.getElementById('gone').hidden && !document.getElementById('main').classList.contains('stale')")
        assert text_of(browser, "#state").startswith("live")
        # one that hangs is said, too
        assert tarntest.freeze(tarnd.process)
        browser.until("return document.getElementById('gone').textContent.includes('has not answered')", "the page notices that it hangs")
        tarnd.process.send_signal(18)
        browser.until("return document.getElementById('gone').hidden", "it goes on")
        quiet(browser, ["net::ERR_"])


def test_token():
    with Browser() as browser, daemon(more="", ready=False) as tarnd:
        token = write(tarnd.folder, "token", TOKEN + "\n")
        with open(tarnd.config, "a") as file:
            file.write(HTTP + f"token_file = {token}\n")
        tarnd.start()
        port = port_of(tarnd)
        asked = "return !document.getElementById('ask').hidden"
        live = "return document.getElementById('tiles') !== null && document.getElementById('ask').hidden"
        stored = "return [Object.values(sessionStorage), Object.keys(localStorage), document.cookie, location.href]"
        here = f"http://127.0.0.1:{port}/"
        browser.open(here)
        browser.until(asked, "it asks for the token")
        assert text_of(browser, "#main") == ""
        browser.type("#token", "a-wrong-token-0000")
        browser.click("#ask button")
        browser.until(asked + " && document.getElementById('gone').textContent.includes('does not take')", "the wrong one is refused")
        assert browser.run(stored) == [[], [], "", here]
        browser.type("#token", TOKEN)
        browser.click("#ask button")
        browser.until(live, "the right one is taken")
        assert browser.run(stored) == [[TOKEN], [], "", here]
        assert browser.run("return document.getElementById('token').value") == ""
        assert TOKEN not in browser.run("return document.documentElement.outerHTML")
        # loaded again in the same tab: not asked again; another tab is
        browser.ask("POST", "/refresh")
        browser.until(live, "it is kept")
        # the token changes while the page is open
        write(tarnd.folder, "token", "another-token-another\n")
        tarnd.tarn("reload")
        browser.until(asked, "it asks again")
        assert text_of(browser, "#main") == "" and browser.run(stored) == [[], [], "", here]
        browser.type("#token", "another-token-another")
        browser.click("#ask button")
        browser.until(live, "the new one")
        browser.click("#forget")
        browser.until(asked, "it is forgotten")
        assert text_of(browser, "#main") == "" and browser.run(stored) == [[], [], "", here]
        quiet(browser, ["401"])


# ---- documents that a daemon here would not give ----


def problems(browser):
    return browser.run("return [...document.querySelectorAll('#problems li')].map((e) => [e.className, e.textContent])")


def histogram(number):
    """Of 3000 gets of each poll 2940 were below 256 ns, 45 more below 2.048 µs, the others above all bounds; a million
    was slower than most of these, long ago."""
    lines = []
    for bound in [2**i for i in range(31)] + [float("inf")]:
        added = (2940 if bound >= 256 else 0) + (45 if bound >= 2048 else 0) + (15 if bound == float("inf") else 0)
        text = "+Inf" if bound == float("inf") else f"{bound * 1e-9:.12g}"
        total = added * number + (1000000 if bound >= 1 << 20 else 0)
        lines.append(f'tarn_op_latency_seconds_bucket{{pool="main",op="get",le="{text}"}} {total}\n')
    return "".join(lines)


# Two seconds for each answer, however long it takes.
OUR_CLOCK = """
let polls = 0;
performance.now = () => 2000 * polls++;
AbortSignal.timeout = () => new AbortController().signal;
"""


def test_rates_are_differences_between_polls():
    """The page's clock and the documents are ours here: each poll is two seconds and 3000 gets later."""

    def each(documents, number):
        pool = documents["/v1/stats"]["pools"][0]
        pool["operations"].update(gets=3000 * number, hits=2400 * number, puts=15 * number, bytes_read=(4 << 20) * number)
        documents["/metrics"] = histogram(number)

    with Browser() as browser, daemon() as tarnd, Node(tarnd) as node:
        node.each = each
        browser.cdp("Page.enable")
        browser.cdp("Page.addScriptToEvaluateOnNewDocument", source=OUR_CLOCK)
        open_page(browser, node.port)
        polls(browser, 2)
        for name, value, text in [
            ("pools.0.rate.gets", 1500, "1.50\u00a0k/s"), ("pools.0.rate.puts", 7.5, "7.50/s"), ("pools.0.rate.bytes_read", 2 << 20, "2.00\u00a0MiB/s"),
            ("pools.0.recent_hits", 0.8, "80.0\u00a0%"), ("ops", 1507.5, "1.51\u00a0k/s"), ("pools.0.rate.deletes", 0, "0/s"),
            ("pools.0.below.get.p50", 256, "256\u00a0ns"), ("pools.0.below.get.p99", 2048, "2.05\u00a0µs"),
            ("pools.0.below.get.p999", 1 << 31, "2.15\u00a0s"), ("get_p99_now", 2048, "2.05\u00a0µs"),
        ]:  # fmt: skip
            shown = of(browser, name)
            assert float(shown[0]) == value and shown[1] == text, (name, shown)
        # another daemon, which counts from the beginning: no rate below 0, and none at first
        with node.lock:
            node.count = 0
            node.documents["/v1/stats"]["daemon"]["pid"] = 99999
        browser.until("return document.querySelector(\"[data-at='daemon.pid']\").dataset.value === '99999'", "the other daemon")
        value, text = of(browser, "pools.0.rate.gets")
        assert (value, text) == ("null", "–") or float(value) == 1500, (value, text)
        polls(browser, 2)
        assert float(of(browser, "pools.0.rate.gets")[0]) == 1500
        quiet(browser)


def test_trouble_is_shown_with_advice():
    def change(documents):
        stats = documents["/v1/stats"]
        stats["daemon"]["ready"] = False
        documents["/readyz"].update(ready=False, reasons=["listener fabric: down: no device"])
        stats["devices"] = [device("mlx5_0", port_state="down"), device("mlx5_1"), device("mlx5_2", present=False, counters=[]),
                            device("ib0", transport="infiniband", link_layer="infiniband", port_state="init", counters=[])]  # fmt: skip
        stats["listeners"].append(listener("fabric", up=False, state="down", failure="no device"))
        pool = stats["pools"][0]
        pool["pages"]["free"] = 0
        pool["sweep"]["waits_for"] = {"client_id": 7, "pid": 4711, "name": "sleeper"}
        pool["recycling"]["damaged"] = 3

    with Browser() as browser, daemon() as tarnd, Node(tarnd, change) as node:
        open_page(browser, node.port)
        said = problems(browser)
        for level, words in [
            ("bad", "Not ready: listener fabric: down: no device"), ("bad", "Device mlx5_0 is down. ip link set NETDEV up"),
            ("bad", "Device mlx5_2 is not there."), ("bad", "Device ib0 is init. No subnet manager"),
            ("warn", "Device mlx5_1: meaning of out_of_sequence (out_of_sequence, 12.5\u00a0/s): advice for out_of_sequence"),
            ("bad", "Pool main: no page is free"), ("warn", "client 7 (sleeper, process 4711)"), ("bad", "3 words that can not be"),
        ]:  # fmt: skip
            assert any(kind == level and words.replace("\u00a0", "") in text.replace("\u00a0", "") for kind, text in said), (words, said)
        assert not any("np_cnp_sent" in text or "packet_seq_err" in text for _, text in said), said
        assert of(browser, "ports")[1] == "1 of 4"
        rdma = text_of(browser, "#rdma")
        for words in ["not ready", "meaning of np_cnp_sent", "advice for packet_seq_err", "1 other counters are 0", "no device"]:
            assert words in rdma, (words, rdma)
        assert "link_downed" not in rdma
        compare([v for v in shown_values(browser) if v[0].startswith(("devices", "listeners"))], *[node.documents["/v1/stats"]] * 2)
        picture(browser, "trouble")
        quiet(browser, ["503"])


def test_nothing_is_wrong_when_nothing_is():
    with Browser() as browser, daemon() as tarnd:
        open_page(browser, port_of(tarnd))
        polls(browser, 2)
        assert problems(browser) == []
        quiet(browser)


def test_hostile_names_are_text():
    def change(documents):
        stats = documents["/v1/stats"]
        stats["pools"][0]["name"] = HOSTILE
        stats["devices"] = [device(HOSTILE, gids=[HOSTILE])]
        stats["devices"][0]["counters"][0].update(name=HOSTILE, meaning=HOSTILE, advice=HOSTILE)
        stats["listeners"].append(listener(HOSTILE, failure=HOSTILE))
        stats["daemon"]["version"] = HOSTILE
        documents["/v1/clients"]["clients"] = [client(documents, 0, name=HOSTILE, pool=HOSTILE, key_id=HOSTILE)]
        documents["/v1/events"]["events"][0].update(text=HOSTILE, subject=HOSTILE)

    with Browser() as browser, daemon() as tarnd, Node(tarnd, change) as node:
        open_page(browser, node.port)
        polls(browser, 2)
        for at in ["pools.0.name", "devices.0.name", "devices.0.counters.0.name", "listeners.1.name", "daemon.version", "clients.0.name",
                   "clients.0.pool", "clients.0.key_id", "events.0.text", "events.0.subject"]:  # fmt: skip
            assert text_of(browser, f"[data-at='{at}']") == HOSTILE, at
        assert browser.run("return document.querySelectorAll('main img, main script, header script').length") == 0
        assert browser.run("return document.title") == f"Tarn 127.0.0.1:{node.port}"
        # the policy that tarnd sends forbids it as well: a mistake in the page would do nothing
        assert browser.run("try { document.body.innerHTML = arguments[0]; return 'done'; } catch (e) { return e.name; }", HOSTILE) == "TypeError"
        assert browser.run("return document.title") == f"Tarn 127.0.0.1:{node.port}"


def test_hostile_client():
    """A real one: a process may call itself anything."""
    with Browser() as browser, daemon() as tarnd:
        program = os.path.join(tarnd.folder, "<b>&\"'<i>")
        os.symlink(tarntest.TARN, program)
        held = holder(tarnd, program)
        try:
            port = port_of(tarnd)
            name = until(lambda: ask(port, "/v1/clients").json["clients"], "a client")[0]["name"]
            assert "<b>" in name, name
            open_page(browser, port)
            assert text_of(browser, "[data-at='clients.0.name']") == name
            assert browser.run("return document.querySelectorAll('main b').length") == 0
            quiet(browser)
        finally:
            end(held)


def test_crowds_are_bounded():
    def change(documents):
        documents["/v1/clients"]["clients"] = [client(documents, i) for i in range(1000)]
        event = documents["/v1/events"]["events"][0]
        documents["/v1/events"]["events"] = [{**event, "number": i + 1} for i in range(256)]

    with Browser() as browser, daemon() as tarnd, Node(tarnd, change) as node:
        open_page(browser, node.port)
        polls(browser, 2)
        rows = lambda section: browser.run("return document.querySelectorAll(`#${arguments[0]} tbody tr`).length", section)
        assert rows("clients") == 200 and "800 more" in text_of(browser, "#clients"), rows("clients")
        assert rows("events") == 50 and browser.run("return document.querySelector('#events [data-at]').dataset.at") == "events.255.kind"
        assert of(browser, "clients")[1] == "1,000"
        assert node.most == 1, "one request at a time"
        quiet(browser)


# ---- a cluster ----


class Member(Daemon):
    """The one member of a cluster with a fixed map."""

    def __init__(self):
        super().__init__(pool="size = 16M\nhugepages = off\n", more=HTTP, fabric="", ready=False)
        document = {
            "format": 1, "cluster": "shop", "pool": "main", "mode": "store", "seed": "00000000000000a5", "epoch": 5, "shards": 64,
            "members": [{"name": "ada", "number": 1, "state": "up", "weight": 100, "addresses": [{"fabric": "shm", "address": self.socket}]}],
        }  # fmt: skip
        path = write(self.folder, "map.json", json.dumps(document))
        with open(self.config, "a") as file:
            file.write(f"[cluster]\nname = shop\nmember = ada\nmap = {path}\n")

    def start(self):
        """Its socket takes no client that knows of no cluster: the daemon itself is asked."""
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([tarntest.TARND, "-c", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def answers():
            assert self.process.poll() is None, self.log()
            return self.tarn("members", check=None).returncode == 0

        until(answers, "tarnd answers")


def test_without_a_cluster_there_is_no_such_part():
    with Browser() as browser, daemon() as tarnd, Node(tarnd) as node:
        open_page(browser, node.port)
        polls(browser, 2)
        assert browser.run("return document.getElementById('cluster') === null")
        assert not node.asked & set(CLUSTER), node.asked
        quiet(browser)


def test_a_member_shows_its_cluster():
    with Browser() as browser, Member() as tarnd:
        tarnd.start()
        port = port_of(tarnd)
        open_page(browser, port)
        browser.until("return document.querySelector(\"[data-at='cluster.shards_open']\").dataset.value === '64'", "its shards are opened")
        looked_at_once(browser, port, 60)
        shown = {at: text for at, _, text in shown_values(browser, 60)}
        for at, text in [("cluster.name", "shop"), ("cluster.epoch", "5"), ("cluster.membership", "static"), ("members.0.name", "ada"),
                         ("members.0.state", "up"), ("members.0.shards", "64"), ("members.0.addresses.0.address", tarnd.socket)]:  # fmt: skip
            assert shown[at] == text, (at, shown[at])
        boot = ask(port, "/v1/members").json["members"][0]["boot_id"]
        assert re.fullmatch("[0-9a-f]{16}", boot) and of(browser, "members.0.boot")[1] == boot[:8]
        assert problems(browser) == [] and "none: a fixed map" in text_of(browser, "#cluster")
        quiet(browser)


def cells(browser, name):
    """A row of the table of members, by the member's name."""
    return browser.run(
        "const row = [...document.querySelectorAll('#cluster table.rows tbody tr')].find((r) => r.querySelector('[data-at]').dataset.value === arguments[0]);"
        "return Object.fromEntries([...row.cells].map((c) => [c.dataset.name, c.textContent]))", name
    )  # fmt: skip


def test_a_cluster_on_the_move():
    def change(documents):
        members = [member("ada", 1, shards_incoming=2, shards=16), member("bob", 2, state="draining", shards_outgoing=3),
                   member("cyd", 3, state="down", boot_id=None), member("dan", 4, shards_incoming=1)]  # fmt: skip
        cluster(documents, members, [(16, 1), (17, 4), (18, 1)], shards_unavailable={"down": 16, "nobody": 0})

    with Browser() as browser, daemon() as tarnd, Node(tarnd, change) as node:
        open_page(browser, node.port)
        polls(browser, 2)
        # who needs a look is first
        names = browser.run("return [...document.querySelectorAll('#cluster td.head [data-at$=name]')].map((e) => e.textContent)")
        assert names == ["bob", "cyd", "ada", "dan"], names
        assert cells(browser, "bob") == {"member": "bob", "state": "draining", "weight": "100", "shards": "16", "gives": "3", "gets": "0",
                                         "boot id": "00000002", "addresses": "10.0.0.2:7470", "": ""}  # fmt: skip
        assert cells(browser, "ada")["member"] == "ada this one" and cells(browser, "ada")["gets"] == "2"
        assert cells(browser, "cyd")["shards"] == "16 unavailable" and cells(browser, "cyd")["boot id"] == "–"
        assert of(browser, "cluster.moving")[1] == "3" and of(browser, "cluster.drain_left")[1] == "16"
        rows = browser.run("return [...document.querySelectorAll('#cluster table:last-of-type tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))")
        assert rows == [["bob", "ada", "2"], ["bob", "dan", "1"]], rows
        text = text_of(browser, "#cluster")
        for words in ["Drained: bob", "812 ms ago", "held, 6 s left", "https://10.0.0.9:2379"]:
            assert words in text, (words, text)
        assert problems(browser) == [["bad", "Cluster shop: 16 shards are unavailable, since their owner is down (cyd): their keys can not be reached, and "
                                      "are not lost. Start it again."]]  # fmt: skip
        document = {**node.documents["/v1/stats"], "members": node.documents["/v1/members"]["members"]}
        compare([v for v in shown_values(browser) if v[0].startswith(("cluster", "members"))], document, document)
        # the map is asked for again when it is another one
        with node.lock:
            node.asked.clear()
        polls(browser, 2)
        with node.lock:
            assert "/v1/members" in node.asked and "/v1/map" not in node.asked, node.asked
            for about in (node.documents["/v1/stats"]["cluster"], node.documents["/v1/members"]["cluster"], node.documents["/v1/map"]["map"]):
                about["epoch"] = 42
            del node.documents["/v1/map"]["map"]["moves"][0]
        browser.until("return document.querySelector(\"[data-of='moves.0']\").dataset.value === '1'", "the new map")
        # nothing moves any more
        with node.lock:
            for row in node.documents["/v1/members"]["members"]:
                row.update(shards_incoming=0, shards_outgoing=0)
        browser.until("return document.querySelector(\"[data-of='moves.0']\") === null", "nothing is on the way")
        assert node.most == 1, "one request at a time"
        quiet(browser)


def test_trouble_of_a_cluster():
    def change(documents):
        members = [member("ada", 1), member("eve", 2, state="down", shards=0, boot_id=None)]
        cluster(documents, members, lease_held=False, lease_left_ns=0, age_ns=None, membership_error="no route", mode="cache",
                shards_unavailable={"down": 0, "nobody": 1})  # fmt: skip

    with Browser() as browser, daemon() as tarnd, Node(tarnd, change) as node:
        open_page(browser, node.port)
        said = problems(browser)
        assert [level for level, _ in said] == ["bad", "warn", "warn", "warn"], said
        for (_, text), words in zip(said, ["has lost its lease", "1 shard is nobody's", "without shards: eve", "of etcd was wrong: no route"], strict=True):
            assert text.startswith("Cluster shop: ") and words in text, (words, text)
        assert "no lease" in text_of(browser, "#cluster .title") and "never" in text_of(browser, "#cluster")
        # it has its lease again, and etcd has not answered for a while: that is trouble from map_bound on
        with node.lock:
            for path in ("/v1/stats", "/v1/members"):
                node.documents[path]["cluster"].update(lease_held=True, age_ns=29 * 10**9, membership_error=None, shards_unavailable={"down": 0, "nobody": 0})
        browser.until("return !document.getElementById('problems').textContent.includes('lease')", "it has its lease")
        assert "newest" not in str(problems(browser)), problems(browser)
        with node.lock:
            for path in ("/v1/stats", "/v1/members"):
                node.documents[path]["cluster"]["age_ns"] = 61 * 10**9
        browser.until("return document.getElementById('problems').textContent.includes('for 1 min 1 s nobody has said')", "the map is old")
        assert "clients stop writing after 30 s (map_bound)" in str(problems(browser)), problems(browser)
        quiet(browser)


def test_many_members_and_hostile_names():
    def change(documents):
        cluster(documents, [member(HOSTILE, i + 1) for i in range(300)], [(0, 2)], name=HOSTILE, map_source=HOSTILE)
        documents["/v1/members"]["members"][1]["shards_incoming"] = 1
        documents["/v1/members"]["members"][0]["addresses"][0]["address"] = HOSTILE

    with Browser() as browser, daemon() as tarnd, Node(tarnd, change) as node:
        open_page(browser, node.port)
        polls(browser, 1)
        assert browser.run("return document.querySelectorAll('#cluster table.rows tbody tr').length") == 200
        assert "and 100 more: tarn members" in text_of(browser, "#cluster")
        for at in ["cluster.name", "cluster.map_source", "members.0.name", "members.0.addresses.0.address"]:
            assert text_of(browser, f"[data-at='{at}']") == HOSTILE, at
        assert text_of(browser, "#cluster table:last-of-type td") == HOSTILE
        assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
        assert browser.run("return document.title") == f"Tarn 127.0.0.1:{node.port}"


# ---- how it looks ----


def picture(browser, name):
    browser.picture(os.path.join(tarntest.BUILD, f"tests/integration/dashboard-{name}.png"))


def luminance(browser, selector, property):
    colour = browser.run("return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, property)
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_light_dark_and_a_phone():
    def change(documents):
        stats = documents["/v1/stats"]
        stats["pools"][0]["name"] = "a-name-of-thirty-two-characters-"
        stats["devices"] = [device("mlx5_bond_0_with_a_long_name", gids=["fe80:0000:0000:0000:0123:4567:89ab:cdef"])]
        stats["listeners"].append(listener("fabric", address="[fe80:0000:0000:0000:0123:4567:89ab:cdef]:7470"))
        stats["listeners"][0]["path"] = "/" + "a" * 100
        operations = stats["pools"][0]["operations"]
        operations.update({name: 2**52 for name, value in operations.items() if isinstance(value, int)})
        documents["/v1/clients"]["clients"] = [client(documents, i, name="n" * 63) for i in range(3)]
        documents["/v1/events"]["events"][0].update(text="x" * 150)
        long = [{"fabric": "verbs", "address": "[fe80:0000:0000:0000:0123:4567:89ab:cdef]:7470"}] * 2
        members = [member("m" * 63, 1), member("bob", 2, state="draining", addresses=long, shards_outgoing=2), member("cyd", 3, state="down", boot_id=None)]
        cluster(documents, [*members, member("n" * 63, 4, shards_incoming=2)], [(16, 4), (17, 4)], map_source="https://" + "e" * 100,
                shards_unavailable={"down": 16, "nobody": 0})  # fmt: skip

    with Browser() as browser, daemon() as tarnd, Node(tarnd, change) as node:
        open_page(browser, node.port)
        backs = {}
        for scheme in ["light", "dark"]:
            browser.scheme(scheme)
            for name, width, height, mobile in [("desk", 1280, 800, False), ("laptop", 1040, 800, False), ("tablet", 768, 1024, True), ("phone", 360, 740, True), ("small", 320, 568, True)]:
                browser.size(width, height, 1, mobile)
                wide, room = browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
                assert room == width and wide <= width, (scheme, name, wide, room)
                # nothing sticks out of its card
                out = browser.run(
                    "return [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)"
                    ".map((e) => e.outerHTML.slice(0, 200))"
                )
                assert not out, (name, out[:3])
                if name in ("desk", "phone"):
                    picture(browser, f"{scheme}-{name}")
            back = backs[scheme] = luminance(browser, "body", "backgroundColor")
            for selector in ["body", ".quiet", "dt", "th", "#state", "footer a"]:
                ground = luminance(browser, selector, "backgroundColor") if selector == "#state" else luminance(browser, ".card", "backgroundColor")
                light, dark = sorted([luminance(browser, selector, "color"), ground], reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{scheme}: {selector} is hard to read"
        assert backs["light"] > 0.5 > 0.1 > backs["dark"], backs
        quiet(browser)


if __name__ == "__main__":
    only = sys.argv[1:]
    run([test for name, test in list(globals().items()) if name.startswith("test_") and (not only or name in only)])
