# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of the statistics over HTTP share: requests, a strict reader of Prometheus' text, and a validator of
JSON Schema as far as docs/stats.schema.json uses it."""

import http.client
import json
import os
import re
import ssl

from tarntest import SOURCE


def port_of(daemon, family="127.0.0.1"):
    """The port that the log names."""
    found = re.findall(r"statistics over HTTP at " + re.escape(family) + r":(\d+)", daemon.log())
    assert found, daemon.log()
    return int(found[-1])


class Answer:
    def __init__(self, response, body):
        self.status = response.status
        self.headers = response.headers
        self.type = response.headers.get("Content-Type")
        self.body = body

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body, object_pairs_hook=no_duplicates)


def no_duplicates(pairs):
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), f"a member is there twice: {names}"
    return dict(pairs)


def ask(port, path, method="GET", host="127.0.0.1", tls=None, timeout=30, **headers):
    """One request with a connection of its own. Headers: Accept="..."."""
    if tls:
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=tls)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return Answer(response, response.read())
    finally:
        connection.close()


def trust(certificate):
    """A client that knows this certificate alone."""
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    return context


# ---- JSON Schema ----


def schema():
    with open(os.path.join(SOURCE, "docs/stats.schema.json")) as file:
        return json.load(file)


def validate(value, name, where=""):
    """Raises when the value is not as $defs/NAME says. Members that it does not name are errors here, though readers have
    to accept them."""
    root = schema()
    failure = mismatch(root, root["$defs"][name], value, where or name)
    assert failure is None, failure


TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}
KNOWN = {"$ref", "anyOf", "type", "const", "properties", "required", "items", "minimum", "pattern", "description"}


def mismatch(root, rule, value, where):
    """None, or what is wrong."""
    assert set(rule) <= KNOWN, f"this validator does not know {set(rule) - KNOWN}"
    if "$ref" in rule:
        rule = root["$defs"][rule["$ref"].removeprefix("#/$defs/")]
        return mismatch(root, rule, value, where)
    if "anyOf" in rule:
        failures = [mismatch(root, option, value, where) for option in rule["anyOf"]]
        return None if None in failures else " or ".join(failures)
    types = rule.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(TYPES[name](value) for name in types):
        return f"{where}: {value!r} is no {'/'.join(types)}"
    if "const" in rule and (value != rule["const"] or type(value) is not type(rule["const"])):
        return f"{where}: {value!r} is not {rule['const']!r}"
    if "minimum" in rule and value < rule["minimum"]:
        return f"{where}: {value!r} is less than {rule['minimum']}"
    if "pattern" in rule and not re.search(rule["pattern"], value):
        return f"{where}: {value!r} is not {rule['pattern']}"
    if isinstance(value, dict):
        return object_mismatch(root, rule, value, where)
    if isinstance(value, list):
        for index, element in enumerate(value):
            failure = mismatch(root, rule["items"], element, f"{where}[{index}]")
            if failure:
                return failure
    return None


def object_mismatch(root, rule, value, where):
    if "properties" not in rule:
        return None  # another schema describes it
    for name in rule["required"]:
        if name not in value:
            return f"{where}: {name} is missing"
    for name, member in value.items():
        if name not in rule["properties"]:
            return f"{where}: {name} is not in the schema"
        failure = mismatch(root, rule["properties"][name], member, f"{where}.{name}")
        if failure:
            return failure
    return None


# ---- Prometheus ----

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'^({NAME})(?:\{{(.*)\}})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')


def labels_of(text):
    labels, at = {}, 0
    while text and at < len(text):
        found = LABEL.match(text, at)
        assert found, f"labels: {text!r}"
        assert found[1] not in labels, f"a label is there twice: {text!r}"
        labels[found[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], found[2])
        at = found.end()
        assert found[3] or at == len(text)
    assert not (text or "").endswith(","), text
    return labels


class Family:
    def __init__(self, name):
        self.name, self.help, self.type, self.unit, self.samples = name, None, None, None, []


def parse(text, open_metrics=False):
    """{family: Family}. Stricter than Prometheus: HELP and TYPE stand in front of each family, its samples stand together
    and differ in their labels, counters end with _total, buckets grow."""
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    if open_metrics:
        assert lines.pop() == "# EOF"
    families, current = {}, None
    for line in lines:
        assert line and line == line.strip(), f"line: {line!r}"
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            if word == "HELP":
                assert name not in families, f"{name} begins twice"
                current = families[name] = Family(name)
                current.help = rest
            else:
                assert name == current.name and not current.samples and word in ("TYPE", "UNIT"), line
                assert open_metrics or word == "TYPE", line
                setattr(current, word.lower(), rest)
            continue
        found = SAMPLE.match(line)
        assert found, f"sample: {line!r}"
        current.samples.append((found[1], labels_of(found[2]), float(found[3]), found[3]))
    for family in families.values():
        check_family(family, open_metrics)
    return families


def check_family(family, open_metrics):
    name, seen = family.name, set()
    assert family.type in ("counter", "gauge", "histogram"), (name, family.type)
    assert family.samples, f"{name} has no sample"
    if family.type == "counter":
        assert name.endswith("_total") != open_metrics, name
    if family.unit:
        assert name.endswith("_" + family.unit), (name, family.unit)
    for sample, labels, value, text in family.samples:
        if family.type == "histogram":
            suffixes = ("_bucket",) if open_metrics else ("_bucket", "_count")
            assert sample in [name + suffix for suffix in suffixes], sample
        else:
            assert sample == (name + "_total" if open_metrics and family.type == "counter" else name), sample
        assert text == "+Inf" or re.fullmatch(r"-?\d+(\.\d+)?(e[-+]\d+)?", text), text
        assert family.type == "gauge" or value >= 0
        key = (sample, tuple(sorted(labels.items())))
        assert key not in seen, f"{key} is there twice"
        seen.add(key)
    if family.type == "histogram":
        check_histogram(family)


def check_histogram(family):
    series = {}
    for sample, labels, value, _ in family.samples:
        key = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        if sample.endswith("_bucket"):
            series.setdefault(key, []).append((float(labels["le"].replace("+Inf", "inf")), value))
        else:
            assert series[key][-1] == (float("inf"), value), (key, value)
    for buckets in series.values():
        assert buckets == sorted(buckets) and [b[1] for b in buckets] == sorted(b[1] for b in buckets), buckets
        assert buckets[-1][0] == float("inf")


def value(families, name, **labels):
    """The one sample of the name with these labels (and perhaps more)."""
    family = next(families[n] for n in (name, name.removesuffix("_total"), name.removesuffix("_count")) if n in families)
    found = [v for sample, has, v, _ in family.samples if sample == name and labels.items() <= has.items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]
