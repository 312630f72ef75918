# SPDX-License-Identifier: BSD-2-Clause
"""docs/prometheus and docs/grafana: metrics, labels and counters that they name exist; alerts have what a person needs who
is woken by one, and are tried by promtool with alerts.yml; queries of the dashboard are ones that Prometheus reads. TAP."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("TARN_SRCDIR", ".")
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
# What is not tarnd's: of Prometheus itself.
FOREIGN = {"up", "ALERTS"}


def text_of(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


RULES, TRIALS = text_of("docs/prometheus/tarn-alerts.yml"), text_of("tests/unit/alerts.yml")
DASHBOARD = json.loads(text_of("docs/grafana/tarn.json"))
TABLE = text_of("daemon/metrics.def") + text_of("daemon/metrics-reasons.def") + text_of("daemon/event.def")


def alerts():
    """Name to text of each alert, and its expression."""
    found = {}
    for block in re.split(r"\n(?=      - alert: )", RULES)[1:]:
        block = block.split("\n  - name:")[0]
        name = re.match(r"      - alert: (\w+)\n", block).group(1)
        assert name not in found, name
        found[name] = block
    return found


def expression(block):
    return re.search(r"expr: >-\n          (.*)\n", block).group(1)


def panels():
    """All panels, those in rows, too."""
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", [])


def queries():
    """Expressions of the dashboard."""
    for panel in panels():
        for target in panel.get("targets", []):
            yield target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        if "expr" in annotation:
            yield annotation["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def families():
    """Metric to its labels, as tarn-metrics(7) has them; the page is made of metrics.def."""
    found = {}
    page = text_of("docs/man/tarn-metrics.7")
    for name, _, labels, kind in re.findall(r"^\.It Li (\w+)({([\w,]*)})? Pq (\w+)", page, re.M):
        suffixes = ("_bucket", "_count", "") if kind == "histogram" else ("",)
        for suffix in suffixes:
            found[name + suffix] = set(filter(None, labels.split(","))) | ({"le"} if suffix == "_bucket" else set())
    assert len(found) > 80, "tarn-metrics(7) is not read right"
    return found


def check_names(where, expr):
    """Each metric exists, and each label and value that one is selected by."""
    known = families()
    names = set(re.findall(r"\b(?:tarn|process)_[a-z0-9_]+\b", expr))
    assert names or re.search(r"\bup\b", expr), f"{where}: no metric in {expr}"
    for name in names:
        assert name in known, f"{where}: there is no metric {name}"
    for name, selector in re.findall(r"\b(\w+){([^}]*)}", expr):
        if name in FOREIGN or name == "label_values":
            continue
        for label, how, value in re.findall(r'(\w+)(=~|!=|!~|=)"([^"]*)"', selector):
            if label in ("job", "instance") or "$" in value:
                assert label in ("job", "instance") or label in known[name], f"{where}: {name} has no label {label}"
                continue
            assert label in known[name], f"{where}: {name} has no label {label}"
            if label == "counter":
                check_counters(where, value)
                continue
            for one in value.split("|") if "~" in how else [value]:
                there = f'{label}=\\"{one}\\"' in TABLE or (label == "kind" and f"EVENT({one}," in TABLE)
                assert there, f"{where}: {name} is never with {label}={one}"


def check_counters(where, pattern):
    """Each counter of a driver is one that tarnd knows; its table has shell patterns."""
    table = re.findall(r'^\t{"([^"]+)", (?:true|false),', text_of("common/port-counters.c"), re.M)
    assert len(table) > 30
    for one in pattern.split("|"):
        assert one in table, f"{where}: {one} is not in common/port-counters.c"


# ---- tests ----


def test_metrics_of_alerts():
    for name, block in alerts().items():
        check_names(name, expression(block))


def test_metrics_of_the_dashboard():
    assert len(list(queries())) > 20
    for expr in queries():
        check_names("tarn.json", expr)


def test_a_name_that_is_wrong_is_found():
    """So that the tests above can fail."""
    for wrong in ("tarn_no_such_metric > 1", 'tarn_pool_bytes{state="usde"} > 1', 'tarn_pool_bytes{poool="$pool"}',
                  'tarn_events_total{kind="pool_ful"}', 'tarn_port_counter_total{counter=~"symbol_error|nonsense"}',
                  "tarn_op_latency_seconds_sum", "1 > 0"):  # fmt: skip
        try:
            check_names("", wrong)
        except AssertionError:
            continue
        raise AssertionError(f"{wrong} was taken")


def test_alerts_are_complete():
    """Severity, texts that name the node, and a section of the guide."""
    guide = text_of("docs/guide/monitoring.md")
    places = {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", guide, re.M)}
    assert len(alerts()) > 20
    for name, block in alerts().items():
        assert re.search(r"\n          severity: (critical|warning|info)\n", block), name
        assert re.search(r"\n          summary: '.+'\n", block), name
        description = re.search(r"\n          description: '(.+)'\n", block).group(1)
        assert "{{ $labels.instance }}" in description or expression(block).startswith("absent("), name
        link = re.search(r"\n          runbook_url: docs/guide/monitoring\.md#(\S+)", block).group(1)
        assert link == name.lower() and link in places, f"{name}: docs/guide/monitoring.md has no section #{link}"
    for place in re.findall(r"^### (Tarn\w+)$", guide, re.M):
        assert place in alerts(), f"docs/guide/monitoring.md: there is no alert {place}"


def test_each_alert_is_tried():
    """alerts.yml has a case for each, in which it fires for one node and not for another."""
    tried = re.findall(r"""labels: '{alertname="(\w+)\"""", TRIALS)
    assert sorted(set(tried)) == sorted(alerts()), set(tried) ^ set(alerts())
    for name in alerts():
        if name != "TarnAbsent":
            case = TRIALS[TRIALS.index(f"- name: {name}\n") :].split("\n  - name:")[0]
            assert 'instance="b"' in case, f"{name}: nothing shows when it does not fire"


def promtool(*arguments):
    if not PROMTOOL:
        return "promtool is not installed"
    result = subprocess.run([PROMTOOL, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return None


def test_promtool_check_rules():
    return promtool("check", "rules", os.path.join(SOURCE, "docs/prometheus/tarn-alerts.yml"))


def test_promtool_test_rules():
    return promtool("test", "rules", os.path.join(SOURCE, "tests/unit/alerts.yml"))


def test_dashboard_is_whole():
    """Panels have an id of their own, a title, a place that no other one has, and the data source of the variable."""
    ids, places = set(), set()
    for panel in panels():
        assert panel["id"] not in ids and panel["title"], panel
        ids.add(panel["id"])
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24, panel["title"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert (x, y) not in places, panel["title"]
                places.add((x, y))
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"], panel["title"]
    assert DASHBOARD["uid"] == "tarn" and DASHBOARD["id"] is None


def test_prometheus_reads_the_queries():
    """Those of the dashboard as rules, with its variables replaced."""
    rules = []
    for expr in queries():
        if expr.startswith("label_values("):
            continue
        for variable, value in (("$__rate_interval", "5m"), ("$__range", "1h"), ("$job", "tarn"), ("$instance", ".*"), ("$pool", ".*")):
            expr = expr.replace(variable, value)
        assert "$" not in expr, expr
        rules.append({"record": f"q{len(rules)}", "expr": expr})
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # JSON is YAML
        file.flush()
        return promtool("check", "rules", file.name)


def main():
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    failed = 0
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        name = test.__name__.removeprefix("test_").replace("_", " ")
        try:
            skip = test()
            print(f"ok {number} - {name}" + (f" # SKIP {skip}" if skip else ""))
        except Exception as failure:  # pylint: disable=broad-except
            failed = 1
            print(f"not ok {number} - {name}")
            for line in f"{type(failure).__name__}: {failure}".splitlines():
                print("#", line)
    return failed


sys.exit(main())
