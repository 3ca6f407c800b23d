"""Traces are checked as strictly as the pickiest viewer would, on real sessions of both recorders and on random ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.cli.main import main
from hotloop.errors import HotloopError
from hotloop.model import shard as m
from hotloop.model.session import DIED, ENDED, SEGMENT, Events, Process, SessionData
from hotloop.present.trace import export, timeline
from hotloop.store import reader
from hotloop.store.reader import read_session

EVERYTHING = r"""
import asyncio, multiprocessing, os, signal, threading, time
from hotloop import *
start(name="run1")

@profile_function
def frames():
    for i in range(3):
        with profile("decode"): pass
        yield i

async def fetch(i):
    with profile("fetch"):
        await asyncio.sleep(0.002 * (i + 1))
        with profile("parse"): await asyncio.sleep(0.003)

async def gather():
    await asyncio.gather(*(fetch(i) for i in range(4)))

def die():
    with profile("open at death"), profile("inner"):
        with profile("done"): pass
        os.kill(os.getpid(), signal.SIGKILL)

for i in range(3):
    with profile("rollout"):
        for _ in frames():
            with profile("use"): pass
        with profile("<b>\x00\x1b[31m\ud800\u202e;\n\"" + "x" * 100_000): time.sleep(0.001)
        with profile("big", track_memory=True): bytearray(1 << 20)
    count("env_steps", 10); count("updates", i)
    step()
asyncio.run(gather())
threads = [threading.Thread(target=lambda: list(frames()), name=f"env-{c}") for c in "ab"]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = multiprocessing.get_context("fork").Process(target=die, name="env-0")
child.start(); child.join()
stop()
"""


# ---- the checkers ----


def read_json(text: str) -> Any:
    """Strictly: valid UTF-8, no constants that JSON does not have, no key twice, numbers as they are written."""

    def no_constant(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    text.encode("utf-8")
    data = json.loads(text, parse_constant=no_constant, parse_float=Decimal, object_pairs_hook=no_key_twice)
    json.dumps(data, default=str, ensure_ascii=False).encode("utf-8")  # no half character behind an escape either
    return data


def check_chrome(text: str) -> dict[str, Any]:
    assert text.isascii()
    data = read_json(text)
    assert set(data) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert data["displayTimeUnit"] == "ms"
    names: Counter[tuple[str, int, int]] = Counter()
    lanes: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = defaultdict(list)
    counters: dict[tuple[int, str], list[Decimal]] = defaultdict(list)
    processes = set()
    for event in data["traceEvents"]:
        assert isinstance(event["name"], str)
        assert 0 < event["pid"] < 1 << 31
        assert 0 < event["tid"] < 1 << 31
        processes.add(event["pid"])
        if event["ph"] == "M":
            key = "sort_index" if event["name"].endswith("sort_index") else "name"
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            assert isinstance(event["args"][key], int if key == "sort_index" else str)
            names[event["name"], event["pid"], event["tid"]] += 1
            continue
        assert event["ts"].as_tuple().exponent == -3  # nanoseconds, written out
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"].as_tuple().exponent == -3
            assert event["dur"] >= 0
            assert event["cat"] in ("span", "wait", "profiler", "handoff", "iteration", "left out", "root")
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        else:
            assert event["ph"] == "C"
            (value,) = event["args"].values()
            assert isinstance(value, int | Decimal)
            counters[event["pid"], event["name"]].append(event["ts"])
    for lane, spans in lanes.items():
        assert names["thread_name", *lane] == names["thread_sort_index", *lane] == 1
        assert spans == sorted(spans, key=lambda span: (span[0], -span[1]))
        inside: list[Decimal] = []
        for begin, end in spans:
            while inside and inside[-1] <= begin:
                inside.pop()
            assert not inside or end <= inside[-1], f"{begin} to {end} crosses the end of what it began in, {inside[-1]}"
            inside.append(end)
    for times in counters.values():
        assert times == sorted(times)
    for pid in processes:
        assert names["process_name", pid, pid] == names["process_sort_index", pid, pid] == 1
    return data


def check_speedscope(text: str) -> dict[str, Any]:
    assert text.isascii()
    data = read_json(text)
    assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = data["shared"]["frames"]
    assert len({frame["name"] for frame in frames}) == len(frames)
    for profile in data["profiles"]:
        assert profile["unit"] == "nanoseconds"
        assert isinstance(profile["name"], str)
        if profile["type"] == "sampled":
            assert len(profile["samples"]) == len(profile["weights"])
            assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"]
            assert all(weight > 0 for weight in profile["weights"])
            assert all(sample and all(0 <= i < len(frames) for i in sample) for sample in profile["samples"])
            continue
        assert profile["type"] == "evented"
        stack: list[int] = []
        last = profile["startValue"]
        for event in profile["events"]:
            assert last <= event["at"] <= profile["endValue"]
            last = event["at"]
            assert 0 <= event["frame"] < len(frames)
            if event["type"] == "O":
                stack.append(event["frame"])
            else:
                assert event["type"] == "C"
                assert stack.pop() == event["frame"]
        assert stack == []
    return data


def check_collapsed(text: str) -> dict[str, int]:
    stacks: dict[str, int] = {}
    assert text == "" or text.endswith("\n")
    for line in text.split("\n")[:-1]:
        stack, _, value = line.rpartition(" ")
        assert line.isprintable()
        assert int(value) > 0
        assert all(frame.strip() for frame in stack.split(";"))
        assert stack not in stacks
        stacks[stack] = int(value)
    return stacks


def text_of(session: SessionData, format: str, limit: int = 1_000_000) -> str:
    return "".join(export(session, format, limit).pieces)


def spans_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in data["traceEvents"] if e["ph"] == "X" and e["cat"] not in ("iteration", "left out")]


def named(data: dict[str, Any], what: str) -> dict[int, str]:
    """Names of processes by pid, or of threads by tid."""
    key = "pid" if what == "process_name" else "tid"
    return {e[key]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == what}


# ---- real sessions ----


def test_a_chrome_trace_holds_every_event_and_every_open_span_of_a_real_session(run):
    session = run(EVERYTHING).session
    data = check_chrome(text_of(session, "chrome"))
    base = min(shard.start_ns for shard in session.shards)
    pids = [shard.pid for shard in session.shards]
    events = session.events
    expected = Counter(
        (pids[shard], session.shards[shard].label_of(path).name[:200], start - base, dur)
        for shard, path, start, dur in zip(
            events.shard.tolist(), events.path.tolist(), events.start_ns.tolist(), events.dur_ns.tolist(), strict=True
        )
    )
    for shard in session.shards:
        for span in shard.open_spans:
            expected[shard.pid, shard.label_of(span.path).name[:200], span.start_ns - base, shard.end_ns - span.start_ns] += 1
    expected = Counter({(p, n.replace("\ud800", "\ufffd"), s, d): count for (p, n, s, d), count in expected.items()})
    found = Counter((e["pid"], e["name"][:200], int(e["ts"] * 1000), int(e["dur"] * 1000)) for e in spans_of(data))
    assert found == expected
    assert data["otherData"]["events_written"] == sum(expected.values())
    assert data["otherData"]["events_left_out"] == 0


def test_tracks_are_named_and_the_dead_are_said_to_be(run):
    session = run(EVERYTHING).session
    data = check_chrome(text_of(session, "chrome"))
    assert set(named(data, "process_name").values()) == {"run1", "env-0 (died)"}
    threads = set(named(data, "thread_name").values())
    assert {"MainThread", "iterations"} <= threads
    assert any(name.startswith("env-") for name in threads)
    opened = {e["name"]: e for e in spans_of(data) if e["args"].get("open")}
    assert set(opened) == {"open at death", "inner"}
    dead = session.shards[1]
    assert int(opened["inner"]["ts"] * 1000 + opened["inner"]["dur"] * 1000) == dead.end_ns - session.shards[0].start_ns


def test_waits_generators_and_paths_can_be_told(run):
    session = run(EVERYTHING).session
    spans = spans_of(check_chrome(text_of(session, "chrome")))
    assert {e["cat"] for e in spans if e["name"].startswith("(waiting")} == {"wait"}
    assert {e["args"].get("segment") for e in spans if e["name"].endswith("frames")} == {True}
    assert {e["args"]["path"].split(" > ")[-2:] == ["frames", "decode"] for e in spans if e["name"] == "decode"} == {True}
    assert {e["args"]["iteration"] for e in spans if e["name"] == "rollout"} == {0, 1, 2}


def test_tasks_that_overlap_get_lanes_of_their_own(run):
    session = run(EVERYTHING).session
    data = check_chrome(text_of(session, "chrome"))
    threads = named(data, "thread_name")
    lanes = {threads[e["tid"]] for e in spans_of(data) if e["name"] == "fetch"}
    assert lanes == {"MainThread", "MainThread (overlapping)", "MainThread (overlapping 2)", "MainThread (overlapping 3)"}
    for e in spans_of(data):
        if e["name"] == "parse":
            around = [f for f in spans_of(data) if f["name"] == "fetch" and f["tid"] == e["tid"]]
            assert any(f["ts"] <= e["ts"] and e["ts"] + e["dur"] <= f["ts"] + f["dur"] for f in around)


def test_iterations_and_counters_are_tracks(run):
    session = run(EVERYTHING).session
    main_shard = session.shards[0]
    data = check_chrome(text_of(session, "chrome"))
    rows = [e for e in data["traceEvents"] if e.get("cat") == "iteration"]
    assert [e["name"] for e in rows] == ["iteration 0", "iteration 1", "iteration 2"]
    assert [int(e["ts"] * 1000) for e in rows] == [i.start_ns - main_shard.start_ns for i in main_shard.iterations]
    assert [e["args"]["counts"]["env_steps"] for e in rows] == [10, 10, 10]
    counters = defaultdict(list)
    for e in data["traceEvents"]:
        if e["ph"] == "C":
            counters[e["name"]] += [float(value) for value in e["args"].values()]
    assert counters["SPS"] == pytest.approx([10e9 / (i.end_ns - i.start_ns) for i in main_shard.iterations])
    assert [value > 0 for value in counters["updates per second"]] == [False, True, True]
    assert counters["memory"] == pytest.approx([s.rss_bytes / 2**20 for s in main_shard.snapshots])
    assert len(counters["memory"]) == 3


def test_a_speedscope_file_holds_the_whole_run_and_the_latest_events(run):
    session = run(EVERYTHING).session
    data = check_speedscope(text_of(session, "speedscope"))
    tracks = sum(len(shard.tracks) for shard in session.shards)
    sampled = [p for p in data["profiles"] if p["type"] == "sampled"]
    assert len(sampled) == tracks
    lifetimes = sorted(track.lifetime_ns for shard in session.shards for track in shard.tracks)
    assert sorted(p["endValue"] for p in sampled) == lifetimes
    opened = sum(e["type"] == "O" for p in data["profiles"] if p["type"] == "evented" for e in p["events"])
    assert opened == len(session.events) + sum(len(shard.open_spans) for shard in session.shards)
    assert {"rollout", "fetch", "(unattributed)"} <= {frame["name"] for frame in data["shared"]["frames"]}


def test_collapsed_stacks_add_up_to_the_thread_time(run):
    session = run(EVERYTHING).session
    stacks = check_collapsed(text_of(session, "collapsed"))
    assert sum(stacks.values()) == sum(track.lifetime_ns for shard in session.shards for track in shard.tracks)
    assert "rollout;big" in stacks
    hostile = [stack for stack in stacks if "<b>" in stack]
    assert all("\\u0000\\u001b[31m" in stack and "\\u003b\\u000a" in stack and stack.count(";") <= 2 for stack in hostile)
    assert hostile


def test_a_process_that_still_runs_can_be_exported(run):
    done = run("""
        from hotloop import *
        from hotloop.store.reader import read_session
        from hotloop.present.trace import export
        path = start()
        with profile("rollout"), profile("env_step"):
            session = read_session(path)
            print("".join(export(session, "chrome").pieces))
        stop()
    """)
    data = check_chrome(done.stdout)
    assert {e["name"] for e in spans_of(data) if e["args"].get("open")} == {"rollout", "env_step"}
    assert all(name.endswith("(running)") for name in named(data, "process_name").values())


# ---- made by hand ----

ROOT = m.Label("(root)", m.ROOT, 0, 0)


def make_session(
    rows: list[tuple[int, int, int, int, int]],
    parents: tuple[int, ...] = (0,),
    shards: int = 1,
    tracks: int = 1,
    name: str = "label",
    **more: Any,
) -> SessionData:
    """Events (shard, track, path, start, duration); path 0 is the root, `parents` are those of the others."""
    labels = (ROOT, *(m.Label(f"{name}{i}", m.USER, 0, 0) for i in range(1, len(parents) + 1)))
    paths = (m.Path(0, 0), *(m.Path(parent, i) for i, parent in enumerate(parents, 1)))
    lifetime = 10**6
    shard = m.Shard(
        id=1, pid=7, parent_pid=0, parent_shard=0, name="", epoch=1, native=True, clock=4, start_ns=1000, start_unix_ns=0,
        end_ns=1000 + lifetime, ended=True, process_start=1, paused_ns=0, cost_inside_ps=0, cost_outside_ps=0,
        cost_error_ps=0, peak_method=0, disk_errno=0, first_work_ns=0, last_work_ns=0, iterations_closed=0, ring_events=0,
        logged_events=len(rows), labels=labels, paths=paths,
        nodes=tuple(m.Node(t, 0, 0, lifetime, 0, 0, 0, 0.0, (0,) * 160) for t in range(tracks)),
        tracks=tuple(m.Track(t, f"thread-{t}", 7 + t, False, 1, lifetime, 1000 + lifetime, 0, 0) for t in range(tracks)),
        open_spans=(), lifted=0, iterations=(), counters={}, losses={}, snapshots=(),
    )  # fmt: skip
    shard = replace(shard, **more)
    columns = np.array(sorted(rows, key=lambda row: row[3]), np.int64).reshape(-1, 5).T
    small = columns[:3].astype(np.uint32)
    zeros = np.zeros(len(rows), np.uint32)
    return SessionData(
        path=Path("run1"), meta={}, shards=tuple(replace(shard, id=1 + i) for i in range(shards)),
        processes=tuple(Process(i, 7, "", ENDED) for i in range(shards)),
        events=Events(small[0], small[1], small[2], columns[3] + 1000, columns[4], zeros, zeros), problems=(),
    )  # fmt: skip


random_trees = st.lists(st.integers(0, 10**6), max_size=6).map(lambda xs: (0, *(x % (i + 2) for i, x in enumerate(xs))))


@st.composite
def random_sessions(draw: st.DrawFn) -> SessionData:
    parents = draw(random_trees)
    row = st.tuples(
        st.integers(0, 1), st.integers(0, 1), st.integers(1, len(parents)), st.integers(0, 60), st.integers(0, 30)
    )  # fmt: skip
    session = make_session(draw(st.lists(row, max_size=40)), parents, shards=2, tracks=2)
    flags = np.array([draw(st.integers(0, 2**32 - 1)) for _ in range(len(session.events))], np.uint32)
    opened = draw(st.lists(st.tuples(st.integers(-1, 1), st.integers(1, len(parents)), st.integers(0, 2000)), max_size=5))
    first, second = session.shards
    first = replace(first, open_spans=tuple(m.OpenSpan(*span) for span in opened))
    return replace(session, shards=(first, second), events=replace(session.events, flags=flags))


@given(random_sessions(), st.integers(1, 60))
def test_any_events_become_a_valid_trace_within_the_limit(session, limit):
    there = len(session.events) + len(session.shards[0].open_spans)
    for format in ("chrome", "speedscope"):
        made = export(session, format, limit)
        text = "".join(made.pieces)
        if format == "chrome":
            data = check_chrome(text)
            written = len(spans_of(data))
            assert data["otherData"]["events_written"] == written
            assert data["otherData"]["events_left_out"] == there - written
        else:
            written = text.count('"type":"O"')
            check_speedscope(text)
        assert made.written == written <= limit
        assert made.left_out == there - written
        if there <= limit:
            assert written == there
        else:
            assert f"{there - written:,} left out" in made.summary


def nested(
    depth: int, begin: int, parent: int, draw: Any, rows: list[tuple[int, int, int, int, int]], parents: list[int]
) -> int:
    """A stretch of a program's life whose spans nest; answers when it ended."""
    at = begin
    for _ in range(draw(st.integers(0, 3)) if depth else 0):
        at += draw(st.integers(0, 2))
        parents.append(parent)
        own = len(parents)
        end = nested(depth - 1, at, own, draw, rows, parents)
        rows.append((0, 0, own, at, end - at))
        at = end
    return at + draw(st.integers(0, 2))


@given(st.data())
def test_spans_that_nest_stay_on_one_lane_below_their_parents(data):
    rows: list[tuple[int, int, int, int, int]] = []
    parents: list[int] = []
    nested(4, 0, 0, data.draw, rows, parents)
    spans = spans_of(check_chrome(text_of(make_session(rows, tuple(parents)), "chrome")))
    assert len({e["tid"] for e in spans}) <= 1
    assert len(spans) == len(rows)
    order = [int(e["name"].removeprefix("label")) for e in spans]
    for place, path in enumerate(order):
        assert parents[path - 1] == 0 or parents[path - 1] in order[:place]


def test_the_limit_keeps_the_first_and_the_latest_with_all_that_is_around_them():
    rows = [(0, 0, 1, 0, 100_000)]  # the whole run
    for i in range(100):
        rows.append((0, 0, 2, 1000 * i, 1000))
        rows += [(0, 0, 3, 1000 * i + 10 * j, 10) for j in range(100)]
    session = make_session(rows, (0, 1, 2))
    made = export(session, "chrome", 404)
    data = check_chrome("".join(made.pieces))
    spans = spans_of(data)
    iterations = sorted(int(e["ts"]) for e in spans if e["name"] == "label2")
    steps = Counter(int(e["ts"]) for e in spans if e["name"] == "label3")
    assert any(e["name"] == "label1" for e in spans)
    assert iterations == [0, 97, 98, 99]
    assert steps[0] == 99 and steps[98] == steps[99] == 100
    assert made.written + made.left_out == len(rows)
    assert 400 <= made.written <= 404
    (gap,) = [e for e in data["traceEvents"] if e.get("cat") == "left out"]
    assert f"{made.left_out:,} events left out" in gap["name"]
    assert gap["ts"] <= 1
    assert 97 <= gap["ts"] + gap["dur"] < 98
    late = spans_within(text_of(session, "speedscope", 404))
    assert min(late) >= 95_000


def spans_within(text: str) -> list[int]:
    """When the short spans of a speedscope file began."""
    data = check_speedscope(text)
    name = {frame["name"]: i for i, frame in enumerate(data["shared"]["frames"])}
    events = [e for p in data["profiles"] if p["type"] == "evented" for e in p["events"]]
    return [e["at"] for e in events if e["type"] == "O" and e["frame"] == name["label3"]]


def test_what_crosses_in_more_lanes_than_a_viewer_shows_is_counted(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_LANES", 5)
    made = export(make_session([(0, 0, 1, i, 100) for i in range(20)]), "chrome")
    data = check_chrome("".join(made.pieces))
    assert (made.written, made.left_out) == (5, 15)
    assert data["otherData"]["events_left_out"] == 15


def test_processes_and_threads_of_the_same_number_are_kept_apart():
    session = make_session([(s, t, 1, 5, 5) for s in range(2) for t in range(2)], shards=2, tracks=2)
    data = check_chrome(text_of(session, "chrome"))
    assert len({e["pid"] for e in spans_of(data)}) == 2
    assert len({e["tid"] for e in spans_of(data)}) == 4


def test_impossible_numbers_from_a_damaged_file_still_give_a_valid_trace():
    session = make_session([(0, 0, 1, -(10**18), 5), (0, 0, 1, 2**63 - 2000, 2**62), (0, 0, 1, 3, -7)], pid=2**64 - 1)
    row = m.Iteration(0, 1, 2**61, 2**62, {}, {}, {"env_steps": -(2**63), "\ud800": 2**63 - 1})
    shard = replace(
        session.shards[0], iterations=(row, replace(row, start_ns=5, end_ns=5)), end_ns=2**64 - 1, start_unix_ns=2**64 - 1,
        open_spans=(m.OpenSpan(0, 1, 2**62 - 1), m.OpenSpan(-1, 1, 0)), snapshots=(m.Snapshot(2**64 - 1, 1, 2**64 - 1, 0),),
    )  # fmt: skip
    session = replace(session, shards=(shard,), processes=(Process(0, 1, "", DIED),))
    assert len(spans_of(check_chrome(text_of(session, "chrome")))) == 5
    check_speedscope(text_of(session, "speedscope"))
    check_collapsed(text_of(session, "collapsed"))


def test_gpu_memory_is_shown_where_it_was_measured():
    session = make_session([])
    shard = session.shards[0]
    with_gpu = replace(shard, nodes=(replace(shard.nodes[0], gpu_peak_bytes=3 << 20),))
    data = check_chrome(text_of(replace(session, shards=(with_gpu,)), "chrome"))
    assert [e["args"]["MB"] for e in data["traceEvents"] if e["name"].startswith("GPU memory")] == [3, 3]


def test_a_very_deep_stack_loses_its_middle_and_no_time():
    depth = 1000
    session = make_session([(0, 0, depth, 0, 5)], tuple(range(depth)))
    nodes = tuple(m.Node(0, path, 1, 10, 10, 10, 10, 0.0, (0,) * 160) for path in range(depth + 1))
    session = replace(session, shards=(replace(session.shards[0], nodes=nodes),))
    stacks = check_collapsed(text_of(session, "collapsed"))
    assert sum(stacks.values()) == 10 * (depth + 1)
    deepest = next(stack for stack in stacks if stack.endswith(f"label{depth}")).split(";")
    assert deepest[0] == "label1"
    assert "…" in deepest
    assert len(deepest) < 300
    (span,) = spans_of(check_chrome(text_of(session, "chrome")))
    assert span["args"]["path"].endswith(f"label{depth}")


def test_names_of_megabytes_do_not_make_traces_of_terabytes():
    session = make_session([(0, 0, 1, i, 1) for i in range(100)], name="x" * 1_000_000)
    for format in ("chrome", "speedscope", "collapsed"):
        assert len(text_of(session, format)) < 200_000


def test_mutated_sessions_give_valid_traces_or_one_sentence(run_native, tmp_path):
    import random

    path = run_native("""
        from hotloop import *
        start(name="run1", log_events=64, ring_events=32)
        for i in range(3):
            with profile("rollout"):
                with profile("env_step"): pass
            count("env_steps", 1); step()
        stop()
    """).session.path
    (file,) = (path / "shards").iterdir()
    original = file.read_bytes()
    words = [at for at in range(0, len(original) - 8, 8) if any(original[at : at + 8])]
    chance = random.Random(3)
    opened = 0
    for _ in range(150):
        data = bytearray(original)
        for _ in range(chance.choice([1, 4, 40])):
            at = chance.choice(words)
            data[at : at + 8] = chance.choice([b"\xff" * 8, bytes(8), chance.randbytes(8), (2**62 - 1).to_bytes(8, "little")])
        file.write_bytes(data)
        try:
            session = read_session(path)
        except HotloopError:
            continue
        opened += 1
        check_chrome(text_of(session, "chrome", chance.choice([1, 5, 10**6])))
        check_speedscope(text_of(session, "speedscope"))
        text_of(session, "collapsed").encode()
    assert opened > 50


@given(
    st.lists(st.lists(st.integers(0, 40) | st.integers(0, 2**63 - 1), max_size=30), max_size=4),
    st.sampled_from([1, 7, 1 << 19]),
)
def test_events_of_several_processes_are_merged_in_order_with_nothing_mixed_up(starts, size):
    tables = []
    for number, column in enumerate(starts):
        table = np.zeros(len(column), reader._EVENT)
        table["start"], table["track"] = column, number
        table["dur"] = table["path"] = np.arange(len(column))
        table["dur"] <<= np.uint64(33)
        tables.append(table)
    expected = sorted(
        ((start, number, i) for number, column in enumerate(starts) for i, start in enumerate(column)), key=lambda row: row[0]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_SLICE", size)
        events = reader._merge_events(tables)
    assert list(zip(events.start_ns.tolist(), events.shard.tolist(), events.path.tolist(), strict=True)) == expected
    assert (events.track == events.shard).all()
    assert (events.dur_ns >> 33 == events.path).all()
    assert all(not getattr(events, name).flags.writeable for name in Events.__slots__)


# ---- the command ----


@pytest.fixture
def recorded(run_native: Any) -> Path:
    return run_native("""
        from hotloop import *
        start(name="run1")
        for _ in range(2000):
            with profile("env_step"): pass
        stop()
    """).session.path


@pytest.mark.parametrize(
    ("format", "check"), [("chrome", check_chrome), ("speedscope", check_speedscope), ("collapsed", check_collapsed)]
)
def test_the_command_writes_the_file_and_says_what_and_what_next(recorded, tmp_path, capsys, format, check):
    target = tmp_path / "out"
    assert main(["trace", str(recorded), "--format", format, "-o", str(target)]) == 0
    wrote, following = capsys.readouterr().out.splitlines()
    assert wrote.startswith(f"wrote {target}: ")
    assert following.startswith("next: ")
    assert check(target.read_text())
    if format == "chrome":
        assert "2,000 events" in wrote


def test_the_printed_line_says_what_the_limit_left_out(recorded, tmp_path, capsys):
    assert main(["trace", str(recorded), "-o", str(tmp_path / "out"), "--limit", "100"]) == 0
    said = capsys.readouterr().out
    assert "100 events of 2,000; 1,900 left out by --limit 100" in said
    assert len(spans_of(check_chrome((tmp_path / "out").read_text()))) == 100


def test_standard_output_gets_the_trace_and_nothing_else(recorded):
    command = [sys.executable, "-m", "hotloop", "trace", str(recorded), "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    check_chrome(done.stdout)
    assert done.stderr.startswith("wrote standard output: 2,000 events")


def test_a_reader_that_has_seen_enough_is_no_error(recorded):
    command = [sys.executable, "-m", "hotloop", "trace", str(recorded), "-o", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_nothing_is_overwritten_unless_forced(recorded, tmp_path, capsys):
    target = tmp_path / "out.json"
    target.write_text("precious")
    assert main(["trace", str(recorded), "-o", str(target)]) == 2
    assert "--force" in capsys.readouterr().err
    assert target.read_text() == "precious"
    assert main(["trace", str(recorded), "-o", str(target), "--force"]) == 0
    check_chrome(target.read_text())


def test_a_link_stays_a_link_and_a_device_a_device(recorded, tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert main(["trace", str(recorded), "-o", str(tmp_path / "link"), "--force"]) == 0
    assert (tmp_path / "link").is_symlink()
    check_chrome((tmp_path / "real").read_text())
    assert main(["trace", str(recorded), "-o", os.devnull, "--force"]) == 0
    assert not os.path.isfile(os.devnull)


def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(recorded, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    limited = """if True:
        import resource, sys
        from hotloop.cli.main import main
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        sys.exit(main())
    """
    command = [sys.executable, "-c", limited, "trace", str(recorded), "-o", str(folder / "trace.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "could not be written (File too large)" in done.stderr
    assert list(folder.iterdir()) == []


def test_an_interrupted_export_leaves_the_old_file_and_no_other(recorded, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "trace.json").write_text("precious")

    def interrupted(*parts: Any) -> Iterator[str]:
        yield '{"traceEvents":['
        raise KeyboardInterrupt

    monkeypatch.setattr("hotloop.present.trace.chrome_trace", interrupted)
    assert main(["trace", str(recorded), "-o", str(folder / "trace.json"), "--force"]) == 130
    assert [file.name for file in folder.iterdir()] == ["trace.json"]
    assert (folder / "trace.json").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nothing", "-o", "x"], 3, "does not exist"),
        (["nothing"], 2, "Missing option"),
        (["nothing", "-o", "."], 2, "is a directory"),
        (["nothing", "-o", "no/such/folder/x"], 2, "is not a directory"),
        (["nothing", "-o", "x", "--limit", "0"], 2, "--limit"),
        (["nothing", "-o", "x", "--format", "pdf"], 2, "--format"),
    ],
)
def test_wrong_calls_are_told_apart(arguments, code, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["trace", *arguments]) == code
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_segments_are_flagged_and_other_flags_ignored():
    session = make_session([(0, 0, 1, 0, 5), (0, 0, 1, 5, 5)])
    flags = np.array([SEGMENT | 1 << 31, 1 << 31], np.uint32)
    spans = spans_of(check_chrome(text_of(replace(session, events=replace(session.events, flags=flags)), "chrome")))
    assert [e["args"].get("segment") for e in spans] == [True, None]
