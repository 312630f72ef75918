#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Every interleaving of put, delete, get and the split of a subtable (protocol.md, sections 4 and 8), for one key.

Two buckets of one slot each in the old subtable, the same in the new one; the key moves. Each step is one access to one
word, and any party may stop for ever at any step. Checked: the key is committed in one place at most, nothing that
can be written is readable elsewhere; readable copies agree; "not found" only if the key was absent at some instant of
the operation; a slot that moves finds its place. Mutations take one protection away each, and must be reported.

Words: '0' empty, ('P', who) pending, ('C', value) committed, ('F', value) frozen, 'M' moved. Headers of the old
subtable: 'N' no flag, 'S' splitting, 'D' all has moved. Clients begin with the old subtable: who comes from the directory to the new one first (FINDINGS.md
of tests/sim, "filled") is not covered, nor several keys, ABA, progress.
"""
import sys
from collections import deque

HEADERS, OLD, NEW = 0, 1, 2
OLD_ORDER = [(HEADERS, 0), (OLD, 0), (HEADERS, 1), (OLD, 1)]
NEW_ORDER = [(NEW, 0), (NEW, 1)]
LIMIT = 2_000_000  # states


def readable(memory):
    return [word for part in memory[1:] for word in part if word[0] in "CF"]


def with_word(memory, place, word):
    part, i = place
    return tuple(p if n != part else p[:i] + (word,) + p[i + 1 :] for n, p in enumerate(memory))


def word_at(memory, place):
    return memory[place[0]][place[1]]


AGAIN = ("read", (), False)


def client(kind, me, state, memory, without):
    """The steps that this client can take: (state, memory)."""
    pc = state[0]
    if pc == "read":  # (words seen, were all headers flagged before?)
        _, seen, known = state
        headers = seen[0:3:2]
        if len(seen) == 4 and headers == ("N", "N"):
            return [(("judge", seen, False), memory)]
        if len(seen) == 4 and kind == "put" and "N" not in headers and not known:
            return [(("read", (), True), memory)]
        if len(seen) == 6:
            return [(("judge", seen, known), memory)]
        return [(("read", seen + (word_at(memory, (OLD_ORDER + NEW_ORDER)[len(seen)]),), known), memory)]
    if pc == "judge":
        return judge(kind, state, memory, without)
    if pc == "update":
        _, place, word = state
        if word_at(memory, place) != word:
            return [(AGAIN, memory)]
        return [(("done",), with_word(memory, place, "0" if kind == "delete" else ("C", me)))]
    if pc == "insert":
        _, place, headers = state
        if word_at(memory, place) != "0":
            return [(AGAIN, memory)]
        return [(("again", place, headers, ()), with_word(memory, place, ("P", me)))]
    if pc == "again":
        return look_again(state, memory, without)
    if pc == "kill":  # (own place, rivals to kill)
        _, place, rivals = state
        if not rivals:
            if word_at(memory, place) != ("P", me):
                return [(AGAIN, memory)]
            return [(("inserted",), with_word(memory, place, ("C", me)))]
        where, word = rivals[0]
        if word_at(memory, where) != word:
            return [(("withdraw", place), memory)]
        return [(("kill", place, rivals[1:]), with_word(memory, where, "0"))]
    if pc == "withdraw":
        place = state[1]
        mine = word_at(memory, place) == ("P", me)
        return [(AGAIN, with_word(memory, place, "0") if mine else memory)]
    return []


def judge(kind, state, memory, without):
    _, seen, known = state
    slots = [((OLD_ORDER + NEW_ORDER)[i], seen[i]) for i in (1, 3, 4, 5) if i < len(seen)]
    committed = [s for s in slots if s[1][0] == "C"]
    frozen = [s for s in slots if s[1][0] == "F"]
    split = len(seen) == 6
    if kind == "get" and committed + frozen:
        return [(("done",), memory)]
    if committed:
        return [(("update",) + committed[0], memory)]
    if frozen or (not split and "M" in seen and "tombstone" not in without):
        return [(AGAIN, memory)]
    if kind != "put":
        return [(("not found",), memory)]
    steps = []
    for i in range(2):
        header, old = seen[2 * i], seen[2 * i + 1]
        free = header == "D" or (known and old in ("0", "M"))
        place = (NEW if split else OLD, i)
        if dict(slots)[place] == "0" and (free or not split):
            steps.append((("insert", place, seen[0:3:2]), memory))
    return steps or [(AGAIN, memory)]


def look_again(state, memory, without):
    _, place, headers, seen = state
    split = place[0] == NEW
    order = OLD_ORDER + NEW_ORDER if split else OLD_ORDER
    if len(seen) < len(order):
        return [(("again", place, headers, seen + (word_at(memory, order[len(seen)]),)), memory)]
    if seen[0:3:2] != headers and "flag again" not in without:
        return [(("withdraw", place), memory)]
    rivals = [(where, word) for where, word in zip(order, seen) if where[0] != HEADERS and where != place]
    if any(word[0] in "CF" for _, word in rivals):
        return [(("withdraw", place), memory)]
    rivals = tuple((where, word) for where, word in rivals if word[0] == "P")
    if not rivals or "rivals" in without:
        return [(("kill", place, ()), memory)]
    return [(("withdraw", place), memory), (("kill", place, rivals), memory)]


def daemon(state, memory, without):
    """The split, one access a step."""
    pc, i = state[0], state[1] if len(state) > 1 else 0
    if pc == "flag":
        after = ("flag", 1) if i == 0 else ("move", 0)
        return [(after, memory if "flags" in without else with_word(memory, (HEADERS, i), "S"))]
    if pc == "move":
        word = word_at(memory, (OLD, i))
        if word[0] == "P" and "kill" not in without:
            return [(state, with_word(memory, (OLD, i), "0"))]
        if word[0] == "C":
            return [(("copy", i, word[1]), with_word(memory, (OLD, i), ("F", word[1])))]
        return [(("header", i), memory)]
    if pc == "copy":
        word = word_at(memory, (NEW, i))
        if word[0] == "P":
            return [(state, with_word(memory, (NEW, i), "0"))]
        if word != "0":
            return [(("no place",), memory)]
        return [(("tombstone",) + state[1:], with_word(memory, (NEW, i), ("F", state[2])))]
    if pc in ("tombstone", "commit"):
        first = pc == "tombstone"
        if ("order" in without) != first:
            memory = with_word(memory, (OLD, i), "M")
        else:
            memory = with_word(memory, (NEW, i), ("C", state[2]))
        return [(("commit",) + state[1:] if first else ("header", i), memory)]
    if pc == "header":
        return [(("move", 1) if i == 0 else ("done",), with_word(memory, (HEADERS, i), "D"))]
    return []


def wrong(memory, state, absent):
    copies = readable(memory)
    committed = [word for word in copies if word[0] == "C"]
    if len(committed) > 1:
        return "committed twice"
    if committed and len(copies) > 1:
        return "writable here and readable there"
    if len({word[1] for word in copies}) > 1:
        return "two values"
    if state == ("not found",) and not absent:
        return "not found, and it was there all the time"
    if state == ("no place",):
        return "a slot that moves finds its place taken"
    return None


def run(kinds, old, without=()):
    """Number of states, and what went wrong."""
    memory = (("N", "N"), old, ("0", "0"))
    states = tuple(("flag", 0) if kind == "split" else AGAIN for kind in kinds)
    start = (memory, states, tuple(not readable(memory) for _ in kinds))
    known, queue = {start}, deque([start])
    while queue and len(known) < LIMIT:
        memory, states, absent = queue.popleft()
        for i, kind in enumerate(kinds):
            split = kind == "split"
            steps = daemon(states[i], memory, without) if split else client(kind, i, states[i], memory, without)
            for state, after in steps:
                error = wrong(after, state, absent[i])
                if error:
                    return len(known), error
                gone = tuple(a or not readable(after) for a in absent)
                new = (after, states[:i] + (state,) + states[i + 1 :], gone)
                if new not in known:
                    known.add(new)
                    queue.append(new)
    return len(known), "not finished" if queue else None


EMPTY, FIRST, SECOND = ("0", "0"), (("C", "x"), "0"), ("0", ("C", "x"))
TESTS = [
    (["put", "put"], EMPTY),
    (["put", "split"], EMPTY),
    (["put", "put", "split"], EMPTY),
    (["get", "split"], SECOND),
    (["put", "get", "split"], SECOND),
    (["delete", "get", "split"], SECOND),
    (["put", "delete", "split"], FIRST),
]
MUTATIONS = [
    ("rivals", ["put", "put"], EMPTY),
    ("flags", ["put", "put", "split"], EMPTY),
    ("flag again", ["put", "put", "split"], EMPTY),
    ("kill", ["put", "put", "split"], EMPTY),
    ("order", ["get", "put", "split"], FIRST),
    ("tombstone", ["get", "split"], SECOND),
]


def main():
    failed = 0
    print(f"1..{len(TESTS) + len(MUTATIONS)}", flush=True)
    runs = [(kinds, old, ()) for kinds, old in TESTS] + [(kinds, old, (name,)) for name, kinds, old in MUTATIONS]
    for number, (kinds, old, without) in enumerate(runs, 1):
        states, error = run(kinds, old, without)
        good = error not in (None, "not finished") if without else error is None
        failed += not good
        name = " ".join(kinds) + (f" without {without[0]}" if without else "")
        print(f"{'ok' if good else 'not ok'} {number} - {name}: {states} states, {error or 'no error'}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
