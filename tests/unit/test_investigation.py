"""Hypotheses against their expectations, goals, and the documents made of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hotloop.analyse.compare import compare_runs
from hotloop.analyse.investigation import Hypothesis, make_investigation
from hotloop.present.investigation import investigation_data, investigation_markdown, investigation_page, investigation_text

from .replicates import arms


def investigate(*cases, goals=None):
    """`cases`: name, ratio of `env_step` (None: failed), expected speed-up."""
    results = []
    for name, ratio, expected in cases:
        comparison = None if ratio is None else compare_runs(*arms(ratio))
        results.append((Hypothesis(name, f"train.py --{name}", expected, "high"), comparison, "" if comparison else "it broke"))
    return make_investigation("test", "train.py", results, goals or {}, 10, 0.02)


@pytest.mark.parametrize(
    ("ratio", "expected", "against"),
    [
        (0.25, (2.0, 3.0), "as expected"), (0.25, (5.0, 6.0), "less than expected"), (0.25, (1.1, 1.2), "more than expected"),
        (1.0, (2.0, 3.0), "no effect"), (1.5, (2.0, 3.0), "slower instead"), (1.0, (1.0, 1.1), "as expected"), (1.0, None, ""),
    ],
)  # fmt: skip
def test_the_measured_gain_is_held_against_the_expected_one(ratio, expected, against):
    assert investigate(("x", ratio, expected)).results[0].against == against


def test_too_few_rounds_leave_everything_open():
    few = compare_runs(*arms(0.25, n=3))
    x = make_investigation("t", "b", [(Hypothesis("h", "c", (2.0, 3.0)), few, "")], {"minimum": 2.0}, 3, 0.02)
    assert x.results[0].against == "open"
    assert x.actions == ()


def test_actions_are_ordered_by_measured_gain_and_only_gains_are_actions():
    x = investigate(("a", 0.8, None), ("b", 0.25, None), ("c", 1.0, None), ("d", 1.5, None), ("e", None, None))
    assert [r.hypothesis.name for r in x.actions] == ["b", "a"]


def test_goals_are_judged_on_the_interval():
    rate = 1e9 / compare_runs(*arms(0.25)).b[0].ns_per_unit
    goals = {"minimum": 2.0, "stretch": 10.0, "within": 2.0, "expected_per_second": rate * 1.5}
    x = investigate(("b", 0.25, None), ("a", 0.9, None), goals=goals)
    assert [(g.name, g.status) for g in x.goals] == [("minimum", "met"), ("stretch", "missed"), ("within", "met")]
    assert all(g.best.startswith("b: ") for g in x.goals)
    assert investigate(("b", 0.25, None), goals={"minimum": x.results[0].comparison.speedup.mid}).goals[0].status == "open"
    assert investigate(("b", None, None), goals={"minimum": 2.0}).goals[0].status == "open"


def test_what_is_no_option_is_measured_but_in_no_goal_and_no_action():
    cases = [(Hypothesis("ceiling", "c", is_option=False), 0.1), (Hypothesis("fix", "d"), 0.5)]
    x = make_investigation("t", "b", [(h, compare_runs(*arms(ratio)), "") for h, ratio in cases], {"minimum": 1.1}, 10, 0.02)
    assert [r.hypothesis.name for r in x.actions] == ["fix"]
    assert x.goals[0].best.startswith("fix: ")
    assert len(x.results) == 2


def test_every_document_says_the_same_and_none_parses_a_name():
    evil = "a|b <script>alert(1)</script> \x1b[1m`x`"
    x = investigate((evil, 0.25, (2.0, 3.0)), ("fails", None, (1.0, 1.1)), goals={"minimum": 2.0})
    text, markdown, page = investigation_text(x), investigation_markdown(x), investigation_page(x)
    for document in (text, markdown, page):
        assert "it broke" in document
        assert "\x1b" not in document
    assert "<script" not in page
    assert "<script" not in markdown.replace("\\<", "")
    row = next(line for line in markdown.splitlines() if line.startswith("| a"))
    assert row.replace("\\|", "").count("|") == 8
    data = json.loads(json.dumps(investigation_data(x), allow_nan=False))
    assert data["actions"] == [evil]
    assert data["goals"][0]["status"] == "met"
    assert data["results"][1]["problem"] == "it broke"


def test_the_baselines_speed_is_told_in_the_users_own_counter():
    for unit, words in (("frames", " frames a second"), ("env_steps", " env steps a second")):
        comparison = compare_runs(*arms(0.25, unit=unit))
        x = make_investigation("t", "b", [(Hypothesis("h", "c"), comparison, "")], {}, 10, 0.02)
        assert words in investigation_text(x)


def test_a_changed_return_is_among_the_doubts():
    a, b = arms(0.25)
    c = compare_runs(
        [replace(r, returned=10 + i / 100) for i, r in enumerate(a)], [replace(r, returned=i / 100) for i, r in enumerate(b)]
    )
    x = make_investigation("t", "b", [(Hypothesis("h", "c"), c, "")], {}, 10, 0.02)
    assert "return is worse" in investigation_text(x)
