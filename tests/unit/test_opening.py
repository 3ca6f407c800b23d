"""The first screen of a run's report: findings, phases, lines."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.phases import BETWEEN, Part, Phases
from hotloop.model import shard as m
from hotloop.model.numbers import Numbers
from hotloop.model.sheet import SPAN
from hotloop.present.detailed import session_report
from hotloop.present.html.data import Limits, page_data
from hotloop.present.json import report_data
from hotloop.present.loop import fold_rows, inferred_share, list_rows, short_file, show_lines
from hotloop.present.opening import nothing_text
from hotloop.present.sentences import inferred_text
from hotloop.present.terminal import report_text
from hotloop.store.sources import read_sources

from .loops import FILE, MS, finding, make_loop, with_findings


@pytest.fixture(scope="module")
def loop():
    return make_loop()


def text_of(loop, findings=None, width=100):
    _, report = loop
    return report_text(report if findings is None else with_findings(report, findings), width)


def test_the_phases_add_up_to_the_loop_and_their_parts_to_them(loop):
    _, report = loop
    rows = list_rows(report)
    assert sum(row.ns for row in rows) == report.phases.loop_ns == 1000 * MS
    assert sum(row.share for row in rows) == 1000
    for row in rows:
        if row.parts:
            assert sum(part.ns for part in row.parts) == row.ns
            assert sum(part.share for part in row.parts) == row.share
            assert sum(part.waiting_ns for part in row.parts) == row.waiting_ns


def test_wrappers_count_for_the_call_they_are_in_and_containers_hand_down_to_their_parts(loop):
    _, report = loop
    learn, collect, *_ = list_rows(report)
    assert [(part.name, part.ns // MS, part.waiting_ns // MS) for part in learn.parts] == [
        ("backward", 400, 0),
        ("optimizer", 120, 0),
        (BETWEEN, 20, 0),
    ]
    assert [(part.name, part.ns // MS, part.waiting_ns // MS) for part in collect.parts] == [
        ("env_step", 350, 50),
        ("policy", 50, 0),
        (BETWEEN, 30, 0),
    ]
    assert inferred_share(collect) == 30


def test_small_parts_are_gathered_and_still_add_up(loop):
    _, report = loop
    learn = list_rows(report)[0]
    folded = fold_rows(learn.parts, least_share=150, most=8)
    assert [part.name for part in folded] == ["backward", "(2 more)"]
    assert sum(part.ns for part in folded) == learn.ns and sum(part.share for part in folded) == learn.share
    assert fold_rows(learn.parts, least_share=999, most=8) == ()


def test_lines_are_merged_over_comprehensions_and_carry_their_source(loop):
    _, report = loop
    spots = show_lines(report, report.main_lines)
    assert [(x.where, x.function, x.samples, x.text, x.phase) for x in spots] == [
        ("train.py:30", "learn", 40, "loss.backward()", "learn"),
        ("train.py:11", "Grid.step", 30, "return sum(x * x for x in board)", "collect"),
    ]
    assert spots[0].inner == "Linear.forward (torch/nn/linear.py:134)"
    assert sum(x.share for x in spots) == pytest.approx(1)
    assert [(x.where, x.samples) for x in show_lines(report, report.other_lines)] == [("train.py:11", 5)]


def test_what_runs_below_the_deep_window_is_nobodys_line(loop):
    """`profiler.step()` was called from the user's line, by us; our own other files are passed over."""
    session, _ = loop
    shard = session.shards[0]
    ours = "/x/site-packages/hotloop/"
    deep = m.Place(ours + "integrations/deep_window.py", "DeepWindow._step", 90, 80)
    reads = m.Place(ours + "integrations/device/transfers.py", "read", 50, 40)
    torch = m.Place("/x/site-packages/torch/profiler/profiler.py", "profile.step", 900, 880)
    places = (*shard.samples.places, deep, reads, torch)
    first = len(shard.samples.stacks)
    n = len(shard.samples.places)
    stacks = (*shard.samples.stacks, (1, n), (first, n + 2), (1, n + 1))
    counts = (*shard.samples.counts, m.Sample(first, 7, 0, 50, False), m.Sample(first + 1, 7, 0, 60, False),
              m.Sample(first + 2, 7, 0, 7, False))  # fmt: skip
    samples = replace(shard.samples, places=places, stacks=stacks, counts=counts)
    session = replace(session, shards=(replace(shard, samples=samples), *session.shards[1:]))
    report = diagnose(session)
    seen = {x.where: x.samples for x in show_lines(report, report.main_lines)}
    assert seen == {"train.py:30": 40 + 7, "train.py:11": 30}


def test_a_file_outside_the_folder_keeps_its_last_parts():
    assert short_file("/home/me/other/rl/train.py", "/home/me/rl") == "…/rl/train.py"
    assert short_file("train.py", "/") == "train.py"
    assert short_file("C:\\me\\rl\\train.py", "C:\\me\\rl") == "train.py"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_findings_phases_and_lines_come_first_and_fit(loop, width):
    text = text_of(loop, (finding(), finding("logging-heavy", 1.04)), width)
    assert max(map(len, text.splitlines())) <= width
    sections = ["FINDINGS", "PHASES OF THE LOOP", "LINES ", "WHERE", "OPERATIONS", "QUALITY"]
    places = [text.index(name) for name in sections]
    assert places == sorted(places)
    words = " ".join(text.split())
    assert "1. critical · env-step-hot" in words and "2. note · logging-heavy" in words
    assert "train.py:11 Grid.step" in words and "predicted 2.40× faster (1.92–2.64×)" in words
    assert "do: Vectorise the board." in words and "hotloop explain env-step-hot" in words
    assert "100 env steps · 10 updates · 3,200 samples" in words and "replay ratio 32.0" in words
    assert "nothing stands out" not in words
    assert re.search(r"\(start-up, shut-down\) +250 ms", text)


def test_without_a_finding_the_report_says_where_the_work_is(loop):
    words = " ".join(text_of(loop, ()).split())
    assert "nothing stands out: compute-bound in learn, 54.0 % of the loop; its largest part is backward, 40.0 %" in words
    notes = " ".join(text_of(loop, (finding("warm-up", 3.0),)).split())
    assert "nothing stands out" in notes and "1. note · warm-up" in notes


def test_a_run_that_ended_before_its_loop_is_not_judged(loop):
    session, report = loop
    text = text_of((session, replace(report, counters={"resets": 1})), ())
    assert "nothing to judge" in text and "compute-bound" not in text


def test_a_session_without_phases_looks_as_before(loop):
    session, report = loop
    bare = replace(report, phases=Phases(Numbers(0, 0, 0, 0, 0, 0, 0), ()), lines=())
    text = text_of((session, bare), ())
    assert text.splitlines()[4].startswith("WHERE THE TIME WENT")
    assert "10 updates" in text.splitlines()[1] and "replay ratio" not in text
    data = page_data(with_findings(bare, ()), Limits())
    assert data["findings"] is None and data["phases"] is None and data["lines"] is None


def test_hooks_that_failed_are_a_note_of_the_quality_once(loop):
    text = text_of(loop)
    (line,) = [line for line in text.splitlines() if "torchrl" in line]
    assert line == "  note: the hooks for torchrl failed in 2 processes: torchrl: ImportError: \\x1b[31mno"
    assert text.index("QUALITY") < text.index("torchrl") and "27 hooks" not in text


def test_how_the_script_died_is_said_at_the_top():
    text = text_of(make_loop(exit={"code": 137, "how": "killed by SIGKILL"}), ())
    assert "the script was killed by SIGKILL" in text[: text.index("FINDINGS")]
    assert "the script" not in text_of(make_loop(exit={"code": 0, "how": "ended by itself"}), None)


def test_the_footnote_tells_the_two_kinds_of_inferred_time_apart(loop):
    _, report = loop
    assert report.numbers.inferred_ns == 50 * MS  # between calls, and in a phase outside its parts
    assert report.sheet.total_ns(SPAN, inferred=True) == 50 * MS
    said = inferred_text(report)
    assert "lies between two measured calls" in said and "handed over" not in said


def test_nothing_from_a_session_can_drive_the_terminal(loop):
    nasty = "\x1b[2J\u202e[red]x"
    evil = finding(cause=nasty, title=nasty, file=nasty, function=nasty, evidence=(nasty,), action=nasty, verify=nasty)
    text = text_of(loop, (evil, *[evil] * 6))
    assert "\x1b" not in text and "\u202e" not in text and "[red]x" in text


def test_json_holds_findings_phases_and_lines(loop):
    _, report = loop
    data = json.loads(json.dumps(report_data(with_findings(report, (finding(),))), allow_nan=False))
    assert data["findings"][0]["severity"] == "critical"
    assert data["findings"][0]["predicted_speedup"]["mid"] == 2.4
    assert data["phases"][0]["phase"] == "learn"
    assert [part["name"] for part in data["phases"][0]["parts"]] == ["backward", "optimizer", BETWEEN]
    assert data["lines"][0]["text"] == "loss.backward()" and data["lines"][0]["file"] == FILE
    summary = session_report(with_findings(report, ()))["summary"]
    assert summary["findings"] == [] and summary["startup_time"] == 0.25 and summary["loop_time"] == 1.0
    assert summary["phases"]["learn"]["share"] == pytest.approx(0.54)


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}', '{"files": {"a.py": {"blocks": [[1e999, 2]]}}}'])
def test_sources_that_are_not_ours_are_none(text):
    assert read_sources(text.encode()) == {}


def test_without_a_finding_and_without_calls_the_line_is_named(loop):
    _, report = loop
    phases = tuple(replace(p, parts=(Part(BETWEEN, 0, p.total_ns),)) for p in report.phases.phases)
    alone = replace(report, phases=replace(report.phases, phases=phases))
    text = nothing_text(alone)
    line = show_lines(report, report.main_lines)[0]
    assert f"the line that takes most is {line.where} {line.function}" in text
