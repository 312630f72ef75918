# SPDX-License-Identifier: BSD-2-Clause
"""`tarn __complete` and the shells that ask it. TAP."""

import os
import shutil
import subprocess
import tempfile

from tarntest import BUILD, PATIENCE, SOURCE, TARN, Skip, parse, run

STUBS = os.path.join(SOURCE, "cli/completion")


def complete(*words):
    """Lines of text and help, as they are printed."""
    done = subprocess.run(
        [TARN, "__complete", *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=True
    )
    assert not done.stderr, done
    return [tuple(line.split("\t", 1)) for line in done.stdout.decode().splitlines()]


def texts(*words):
    return [line[0] for line in complete(*words)]


def tables():
    """All verbs with their options, and the options of every verb: as `tarn help` prints them."""
    return parse(subprocess.run([TARN, "--json", "help"], capture_output=True, timeout=PATIENCE, check=True).stdout)


def test_verbs():
    """All that help knows, with its words; and not this one."""
    assert complete("") == complete() == [(verb["name"], verb["help"]) for verb in tables()["verbs"]]
    assert texts("st") == ["stats"]
    assert texts("help", "st") == ["stats"]
    assert texts("-u", "tarn:/x", "-q", "pin") == ["ping"]
    assert "__complete" not in texts("__")


def test_options():
    """Those of the verb, and those of every verb."""
    tables_now = tables()
    for verb in tables_now["verbs"]:
        got = texts(verb["name"], "-")
        assert got == [f"--{option['name']}" for option in verb["options"] + tables_now["options"]], (verb["name"], got)
    assert texts("--ur") == ["--uri"]
    assert texts("get", "--", "-") == []


def test_operands():
    """Words that have to be as they are, and files."""
    assert texts("pool", "") == ["check", ":file"]
    assert "kill" in texts("clients", "")
    assert texts("map", "") == ["check", "show", ":file"]
    assert texts("snapshot", "") == [":file"]
    assert texts("-k", "") == texts("get", "--key-file", "") == [":file"]
    assert texts("get", "") == texts("-u", "") == texts("get", "--timeout", "") == []
    assert texts("no-such-verb", "") == []
    assert texts("top", "--sort", "g") == ["gets"] and len(texts("top", "-s", "")) == 9


def test_hostile():
    """Whatever stands there, it is answered at once, and is no option of ours."""
    for words in (["--json"], ["--json", ""], ["-"], ["--"], ["-", "", "-"], ["\xff\x01"], ["x" * 100000], [""] * 1000, ["--uri="], ["-h"], ["%s%n"]):
        complete(*words)


def ask(shell, script, where):
    """What a shell prints, with tarn in its path."""
    if not shutil.which(shell):
        raise Skip(f"there is no {shell} on this machine")
    environment = {"PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": where, "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    done = subprocess.run(
        [shell, *(["--no-config"] if shell == "fish" else ["-f"] if shell == "zsh" else []), "-c", script],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False, cwd=where, env=environment,
    )
    assert done.returncode == 0, done
    return done.stdout.decode().split("\n")


def test_bash():
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as where:
        open(os.path.join(where, "a file"), "w").close()
        script = f"""
            source {STUBS}/tarn; complete -p tarn
            try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tarn; printf '%s\n' "${{COMPREPLY[@]}}"; }}
            try tarn st; try tarn get --ttl-no; try tarn pool ''; try tarn -k 'a '"""
        assert ask("bash", script, where) == ["complete -F _tarn tarn", "stats", "", "check", "a file", "a file", ""]


def test_fish():
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as where:
        open(os.path.join(where, "file"), "w").close()
        script = f"source {STUBS}/tarn.fish; complete -C 'tarn st'; complete -C 'tarn pool fi'"
        got = ask("fish", script, where)
        assert got[0].startswith("stats\t") and got[1].split("\t")[0] == "file", got


def test_zsh():
    """Without a terminal zsh completes nothing: what the stub makes of the answer is looked at."""
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/tmp") as where:
        script = f"""
            _describe() {{ print -r -- "${{(P@)3}}" }}; _files() {{ print files }}
            stub() {{ words=("$@"); CURRENT=$#; source {STUBS}/_tarn }}
            stub tarn st; stub tarn pool ''"""
        got = ask("zsh", script, where)
        assert got[0].startswith("stats:") and got[1].startswith("check:") and got[2] == "files", got


run([test_verbs, test_options, test_operands, test_hostile, test_bash, test_fish, test_zsh])
