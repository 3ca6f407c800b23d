"""From a session to a replicate: the set-up and the warm-up left out, the books closed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from types import SimpleNamespace

import numpy as np
import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.gap import OUTSIDE, read_side
from hotloop.analyse.runs import (
    UNTRACKED,
    check_loop,
    choose_unit,
    find_script,
    find_warm_ups,
    measure_iterations,
    measure_spans,
    reduce_run,
    whole_run,
)
from hotloop.errors import UsageError
from hotloop.model import shard as m
from hotloop.model.session import ENDED, Events, Process, SessionData

from .loops import MS, make_loop
from .shards import ROOT, WAIT, node, shard

LABELS = (ROOT, m.Label("collect", m.USER, 0, 0), m.Label("env_step", m.USER, 0, 0), WAIT, m.Label("learn", m.USER, 0, 0))
PATHS = (m.Path(0, 0), m.Path(0, 1), m.Path(1, 2), m.Path(2, 3), m.Path(0, 4))  # root, collect, env_step, its wait, learn


def make(iterations=30, counts=True, first_ns=50_000, learn_from=0):
    rows, at = [], 0
    for i in range(iterations):
        parts = {0: 10, 1: 5, 2: 600, 3: 200, 4: 185 if i >= learn_from else 0}
        if i == 0:
            parts[0] += first_ns
        end = at + sum(parts.values())
        rows.append(m.Iteration(i, 1, at, end, parts, {2: 4, 4: 1}, {"env_steps": 8} if counts else {}))
        at = end
    sums = {p: sum(r.self_ns[p] for r in rows) for p in range(5)}
    nodes = [node(0, p, ns, 0 if p in (0, 3) else iterations, ns) for p, ns in sums.items()]
    made = shard(
        LABELS, PATHS, nodes, iterations=tuple(rows), iterations_closed=iterations, end_ns=at, last_work_ns=at, first_work_ns=1,
        counters={"env_steps": 8 * iterations} if counts else {},
    )  # fmt: skip
    empty = np.empty(0, np.int64)
    events = Events(*(empty.astype(np.uint32),) * 3, empty, empty, *(empty.astype(np.uint32),) * 2)
    meta = {"command": ["/usr/bin/python3", "train.py", "--x"], "host": {"cpu": "c"}, "git": {"commit": "abc"}}
    return diagnose(SessionData(FilePath("s"), meta, (made,), (Process(0, 1, "", ENDED),), events, ()))


def reduce(report, unit=None):
    warm_ups, cut = find_warm_ups([report])
    return reduce_run(report, choose_unit([report], unit), warm_ups[0], cut)


def test_the_first_iteration_holds_the_set_up_and_never_counts():
    run = reduce(make())
    assert run.total_ns == 29 * 1000
    assert (run.work, run.all_work) == (29 * 8, 240)
    assert run.ns_per_unit == 125.0


def test_components_close_and_a_wait_belongs_to_its_span():
    run = reduce(make())
    assert sum(run.components.values()) == run.total_ns
    assert run.components["env_step"] == 29 * 800
    assert run.components["learn"] == 29 * 185
    assert run.components[UNTRACKED] == 29 * 10
    assert run.components["collect"] == 29 * 5


def test_what_begins_to_learn_later_is_a_phase_and_stays_in():
    run = reduce(make(iterations=60, learn_from=20))
    assert run.work == 59 * 8
    assert run.components["learn"] == 40 * 185


def test_all_runs_lose_the_same_number_of_iterations():
    short, slow = make(), make()
    slow = with_learner(slow, iterations=tuple(_slow_start(slow.rows)))
    warm_ups, cut = find_warm_ups([short, slow])
    assert [w.iterations for w in warm_ups] == [1, 3]
    assert cut == 3
    assert reduce_run(short, "env_steps", warm_ups[0], cut).work == 27 * 8


def with_learner(diagnosis, **changes):
    """The same, of another learner."""
    session = diagnosis.session
    return replace(diagnosis, session=replace(session, shards=(replace(session.shards[0], **changes), *session.shards[1:])))


def _slow_start(rows):
    """The first three iterations take five times as long; the others are moved back."""
    out, at = [], 0
    for i, r in enumerate(rows):
        length = (r.end_ns - r.start_ns) * (5 if 0 < i < 3 else 1)
        out.append(replace(r, start_ns=at, end_ns=at + length))
        at += length
    return out


def test_the_unit_is_env_steps_then_updates_then_iterations_then_a_refusal():
    assert choose_unit([make()]) == "env_steps"
    assert choose_unit([make(counts=False)]) == "iterations"
    assert choose_unit([make(), make(counts=False)]) == "iterations"
    none = with_learner(make(counts=False), iterations_closed=0)
    with pytest.raises(UsageError, match="missing unit of work"):
        choose_unit([none])
    with pytest.raises(UsageError, match="did not count updates"):
        choose_unit([make()], "updates")


def test_without_iterations_the_loop_as_a_whole_is_measured():
    report = replace(with_learner(make(), iterations=(), iterations_closed=0), loop_ns=40_000)
    run = reduce_run(report, "env_steps", find_warm_ups([report])[0][0], 1)
    assert run.total_ns == 40_000
    assert sum(run.components.values()) == 40_000
    assert run.work == 240


def test_the_whole_run_closes_too():
    total, components = whole_run(make())
    assert sum(components.values()) == total == 50_000 + 30 * 1000


def test_the_loop_leaves_the_set_up_out_and_counts_its_calls():
    total, components, calls = measure_iterations(make())
    assert sum(components.values()) == total == 29 * 1000
    assert (calls["env_step"], calls["learn"]) == (29 * 4, 29)
    side = read_side(make())
    assert side.components[OUTSIDE] == 51_000
    assert sum(side.components.values()) == side.total_ns


def test_the_script_is_found_in_the_command():
    assert find_script({"command": ["/v/bin/python3.11", "train.py", "--lr", "1"]}) == "train.py"
    assert find_script({"command": ["/v/bin/python", "-m", "pkg.train"]}) == "pkg.train"
    assert find_script({"command": "rm -rf"}) == find_script({}) == ""


def test_the_time_of_a_span_is_what_lies_in_and_below_it_and_a_phase_is_told_too():
    spans = reduce(make()).spans
    assert (spans["collect"] * 800, spans["learn"] * 800) == (spans["env_step"] * 805, spans["env_step"] * 185)
    _, report = make_loop()
    ms = {name: ns / MS for name, ns in measure_spans(report.sheet).items()}
    assert (ms["collect/env_step"], ms["Grid.step"], ms["(waiting: sleep)"]) == (350, 250, 50)
    assert (ms["collect"], ms["learn"], ms["learn/train"], ms["log"]) == (430, 540, 540, 10)


@pytest.mark.parametrize(("late_ms", "own_ms", "agrees"), [(0, 0, True), (70, 0, False), (70, 60, True), (200, 60, False)])
def test_what_the_recorder_did_before_the_loop_is_no_disagreement_about_its_time(late_ms, own_ms, agrees):
    """The process and the spans have `late_ms` more than the clock between the first work and the last."""
    loop_ns, late_ns = 2_000_000_000, late_ms * 1_000_000
    learner = SimpleNamespace(first_work_ns=10, last_work_ns=10 + loop_ns, start_ns=0, end_ns=loop_ns + late_ns, pid=1)
    diagnosis = SimpleNamespace(
        learner=learner, phases=SimpleNamespace(known=True), loop_ns=loop_ns + late_ns, first_work_ns=10, meta={}, name="train",
        numbers=SimpleNamespace(startup_ns=0, profiler_ns=own_ms * 1_000_000),
    )  # fmt: skip
    assert (check_loop(diagnosis) == "") == agrees
