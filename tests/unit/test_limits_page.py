"""The page's data of limits: mechanisms that add up, headroom in words, curves and optimizers as they were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.limits import Limit, Limits
from hotloop.analyse.phases import Phases
from hotloop.model import phase as ph
from hotloop.model.numbers import Numbers
from hotloop.model.probe import OptimizerCost, Probes
from hotloop.present.html.limits import limits_data
from hotloop.present.html.page import escape_json

from .loops import MS, PROBES, curve, make_loop, make_session, with_findings, with_limits


def data_of(probes=PROBES):
    return limits_data(diagnose(replace(make_session(), probes=probes)))


def test_the_mechanisms_of_a_phase_add_up_to_it():
    data = data_of()
    assert [row["name"] for row in data["rows"]] == ["learn", "collect", "log"]
    for row in data["rows"]:
        assert sum(ns for _, ns, _ in row["spent"]) == row["ns"]
        assert sum(share for _, _, share in row["spent"]) == 1000
        assert row["batched_ns"] <= row["limit_ns"] <= row["ns"]
    assert sum(share for _, _, share in data["spent"]) == 1000
    assert sum(ns for _, ns, _ in data["spent"]) == 980 * MS  # the loop without our own cost


@pytest.mark.parametrize(
    ("headroom", "batched", "said"),
    [
        (1.08, 1.1, "headroom of the loop: 1.08 × with learning unchanged"),
        (1.5, 3.256, "headroom of the loop: 1.50 × with learning unchanged, 3.26 × with more samples per call "
         "(more environments, larger minibatches), which may change what is learnt"),
    ],
)  # fmt: skip
def test_both_headrooms_of_the_loop_are_said_where_they_differ(headroom, batched, said):
    _, report = make_loop()
    limits = replace(report.limits, headroom=headroom, batched=batched)
    assert limits_data(with_limits(report, limits))["said"] == said


def test_phases_that_hardly_count_are_counted_only():
    _, report = make_loop()
    rows = (Limit(ph.LEARN, 900 * MS, {"computing": 900 * MS}, 0, 0), Limit(ph.LOG, 4 * MS, {"waiting": 4 * MS}, 1, 1))
    data = limits_data(with_limits(report, Limits(rows, 1.0, 1.0, 1.0, {"computing": 900 * MS, "waiting": 4 * MS})))
    assert [row["name"] for row in data["rows"]] == ["learn"]
    assert data["more_rows"] == 1


def test_a_curve_has_its_points_the_one_of_the_run_and_a_sentence():
    policy, learner = data_of()["curves"]
    assert (policy["name"], policy["phase"], policy["now"]) == ("Net", "collect", 0)
    assert policy["points"] == [[1, 226_000, 2000], [2, 228_000, 2000], [4, 230_000, 2000], [8, 234_000, 2000]]
    assert policy["said"] == "226 µs for 1 row; 8 rows cost 234 µs"
    assert (learner["name"], learner["phase"]) == ("Net.evaluate", "learn")
    assert learner["said"] == "700 µs for 64 rows; 512 rows cost 2.10 ms (with its backward pass)"


@pytest.mark.parametrize(
    ("changed", "now", "said"),
    [
        (curve(costs=(226,)), 0, "226 µs for 1 row"),
        (curve(costs=(226, 228)), 0, "226 µs for 1 row; 2 rows cost 228 µs"),
        (curve(rows=2), 0, "226 µs for 2 rows; 16 rows cost 234 µs"),
        (replace(curve(), rows=4), 2, "230 µs for 4 rows; 8 rows cost 234 µs"),
        (replace(curve(), rows=3), -1, "226 µs for 1 row; 8 rows cost 234 µs"),
    ],
)
def test_a_curve_of_any_length_says_what_was_measured(changed, now, said):
    (data,) = data_of(Probes((changed,)))["curves"]
    assert (data["now"], data["said"]) == (now, said)


def test_an_optimizer_is_one_sentence():
    assert data_of()["optimizers"] == [
        "Adam: a step over 12 tensors takes 307 µs as it is, 231 µs with foreach=True, 83.0 µs with fused=True",
        "Lion: a step over 1 tensor takes 20.0 µs",
    ]


def test_without_phases_there_is_no_section_and_without_probes_no_chart():
    _, report = make_loop()
    bare = with_findings(replace(report, phases=Phases(Numbers(0, 0, 0, 0, 0, 0, 0), ()), lines=()), ())
    assert limits_data(bare) is None
    data = limits_data(report)
    assert data["rows"]
    assert data["curves"] == data["optimizers"] == []


def test_many_long_hostile_names_are_shown_short_and_counted():
    nasty = "\x1b[2J\u202e" + "n" * 2000
    curves = tuple(curve(nasty, method=nasty) for _ in range(20))
    costs = tuple(OptimizerCost(nasty, 1, 1, 1.0, {f"{nasty}{i}": 1.0 for i in range(60)}) for _ in range(15))
    data = data_of(Probes(curves, costs))
    assert (len(data["curves"]), data["more_curves"], len(data["optimizers"]), data["more_optimizers"]) == (12, 8, 12, 3)
    text = escape_json(data)
    assert len(text) < 30_000
    assert "\\u001b" not in text and "\\u202e" not in text.replace("\\\\u202e", "")
