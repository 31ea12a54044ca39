# SPDX-License-Identifier: BSD-2-Clause
"""Reads traces of PINSHIM_TRACE, strictly or as Perfetto does, and says what is in them.

trace.py FILE...             checks each file and prints, for each, a line with the events' names and numbers
trace.py --perfetto FILE     the same of a file that may be cut anywhere
"""

import json
import sys

SPANS = {"pin", "unpin", "register", "unregister"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_as_perfetto(path):
    """Object by object: what follows the last whole one is ignored, in an array but not elsewhere
    (JsonTraceTokenizer of Perfetto's trace processor)."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.lstrip().startswith("["), "not an array"
    decoder, events, at = json.JSONDecoder(), [], text.index("[") + 1
    while True:
        while at < len(text) and text[at] in " ,\n":
            at += 1
        if at == len(text) or text[at] == "]":
            return events
        try:
            event, at = decoder.raw_decode(text, at)
        except ValueError:
            return events
        events.append(event)


def number(event, name, least=0):
    value = event[name]
    assert isinstance(value, (int, float)) and not isinstance(value, bool) and value >= least, event
    return value


def check_span(event):
    arguments = event["args"]
    assert event["ph"] == "X", event
    number(event, "dur")
    assert int(arguments["address"], 16) % 4096 == 0 or "register" in event["name"], event
    assert number(arguments, "bytes", 1) % 4096 == 0 or "register" in event["name"], event
    assert arguments["memory"] in ("malloc_heap", "cuda_heap", "foreign"), event
    if event["name"] == "pin":
        assert 0 <= arguments["huge_bytes"] <= arguments["bytes"], event


def check_refusal(event):
    arguments = event["args"]
    assert event["ph"] == "i" and event["s"] == "t", event
    assert arguments["limit"] in ("process", "memlock", "cgroup", "available", "node", "hugetlb", "window",
                                  "kernel"), event
    for name in ("asked_bytes", "allowed_bytes", "used_bytes", "error"):
        number(arguments, name)
    number(arguments, "refusals", 1)


def check(events):
    """What the format wants, and that no two spans of a thread overlap but for one inside another."""
    first = events[0]
    assert first["name"] == "process_name" and first["ph"] == "M" and first["args"]["name"], first
    assert number(first["args"], "realtime_ns", 1.6e18) and number(first["args"], "monotonic_ns", 1), first
    open_spans = {}
    for event in events:
        assert isinstance(event["name"], str) and event["ph"] in "MXiC", event
        assert event["pid"] == first["pid"] and number(event, "tid", 1), event
        number(event, "ts", 1)
        if event["name"] in SPANS:
            check_span(event)
        elif event["name"] == "refuse":
            check_refusal(event)
        elif event["name"] == "pinned":
            assert event["ph"] == "C", event
            number(event["args"], "locked_bytes")
            number(event["args"], "foreign_bytes")
        else:
            assert event["name"] in ("process_name", "lost"), event
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        stack = open_spans.setdefault(event["tid"], [])
        while stack and stack[-1] <= event["ts"]:
            stack.pop()
        # Rounded to nanoseconds.
        assert not stack or event["ts"] + event["dur"] <= stack[-1] + 0.002, event
        stack.append(event["ts"] + event["dur"])


def summary(events):
    counts = {}
    for event in events[1:]:
        counts[event["name"]] = counts.get(event["name"], 0) + 1
    return " ".join(f"{name}={count}" for name, count in sorted(counts.items()))


def main(arguments):
    reader = read
    if arguments[0] == "--perfetto":
        reader = read_as_perfetto
        arguments = arguments[1:]
    for path in arguments:
        events = reader(path)
        check(events)
        print(summary(events))


if __name__ == "__main__":
    main(sys.argv[1:])
