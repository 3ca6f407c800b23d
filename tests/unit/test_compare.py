"""Two sets of runs: the four verdicts, the exact sum, what is refused, what is said."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hotloop.analyse.compare import compare_runs
from hotloop.analyse.predictions import judge_predictions
from hotloop.analyse.refusals import REASONS
from hotloop.analyse.stats import ADJUSTED, PAIRED, WELCH
from hotloop.cli.compare import DESPITE
from hotloop.errors import UsageError
from hotloop.present.comparison import comparison_data, comparison_text, guide_text
from hotloop.present.comparison_page import comparison_page

from .loops import finding
from .replicates import arms, run


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict"),
    [(1.3, 0.01, "slower"), (0.7, 0.01, "faster"), (1.0, 0.005, "equivalent"), (1.0, 0.2, "undecided")],
)
def test_the_four_verdicts(ratio, spread, verdict):
    c = compare_runs(*arms(ratio, spread=spread))
    assert c.verdict == verdict
    assert c.ratio.low <= c.ratio.mid <= c.ratio.high
    assert c.detectable is not None
    assert c.needed_pairs is not None
    assert c.method == PAIRED


def test_the_ratio_is_of_time_per_unit_of_work():
    a = [run(i, {"x": 1_000_000 + i}, work=100) for i in range(0, 10, 2)]
    b = [run(i, {"x": 2_000_000 + i}, work=200) for i in range(1, 11, 2)]
    c = compare_runs(a, b, despite=["work"])
    assert c.ratio.mid == pytest.approx(1.0, abs=1e-3)
    assert c.verdict == "equivalent"


def test_fewer_than_five_runs_are_described_without_a_verdict():
    c = compare_runs(*arms(2.0, n=4))
    assert c.verdict == "undecided"
    assert "at least 5" in c.reason
    assert all(part.verdict == "undecided" for part in c.components)
    assert c.ratio.mid > 1.5


def test_the_claim_of_one_percent_from_five_batches_is_undecided_and_says_what_it_would_take():
    """Seed 001: 5.48 s without turbo, 5.41 s with, 5 batches a side, timing noise of 5 % a batch."""
    rng = np.random.default_rng(1)
    sides = []
    for i, seconds in enumerate((5.48, 5.41)):
        batches = seconds / 5 * np.exp(rng.normal(0, 0.05, 5)) * 1e9
        sides.append([run(i, {"all": int(seconds * 1e9)}, work=5, row_ns=batches, row_weights=np.ones(5), unit="iterations")])
    c = compare_runs(*sides)
    assert c.verdict == "undecided"
    assert c.ratio.mid == pytest.approx(5.41 / 5.48)
    assert c.needed_pairs >= 5
    assert c.needed_is_least
    assert "needs at least" in " ".join(comparison_text(c).split())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 8), st.booleans())
@example(seed=309, left=2, right=4, apart=False)  # one side's runs agree to the last bits
def test_component_differences_sum_exactly_to_the_total(seed, left, right, apart):
    rng = np.random.default_rng(seed)
    names = ["env", "net", "tiny", "(untracked)"]

    def make(number):
        parts = {n: int(rng.integers(0, 10 ** int(rng.integers(1, 12)))) for n in names if rng.random() < 0.8} or {"env": 7}
        parts["env"] = parts.get("env", 0) + 1
        return run(number, parts, work=int(rng.integers(1, 1000)))

    a = [make(i if apart else 2 * i) for i in range(left)]
    b = [make(100 + i if apart else 2 * i + 1) for i in range(right)]
    c = compare_runs(a, b)
    assert sum(part.delta_ns for part in c.components) == c.total.delta_ns
    assert sum(part.a_ns for part in c.components) == c.total.a_ns
    json.dumps(comparison_data(c), allow_nan=False)


def test_the_component_that_changed_is_named_and_the_others_are_not():
    c = compare_runs(*arms(1.1, spread=0.01))
    assert c.components[0].name == "env_step"
    assert c.components[0].verdict == "slower"
    assert {part.verdict for part in c.components[1:]} <= {"equivalent", "undecided"}


def test_small_components_are_gathered_and_nothing_is_lost():
    a = [run(i, {"big": 10**9, **{f"s{k}": 10 for k in range(50)}}, pair=i) for i in range(5)]
    b = [run(i + 0.5, {"big": 10**9 + 7, "s1": 20}, pair=i) for i in range(5)]
    c = compare_runs(a, b)
    assert {part.name for part in c.components} == {"big", "(others)"}
    assert sum(part.delta_ns for part in c.components) == c.total.delta_ns == 7 + 20 - 500


def test_what_recording_may_have_added_to_one_side_is_allowed_for():
    a, b = arms(1.01, spread=0.001)
    assert compare_runs(a, b, margin=0.001).verdict == "slower"
    late = [replace(run, late_share=0.05) for run in b]
    comparison = compare_runs(a, late, margin=0.001)
    plain = compare_runs(a, b, margin=0.001)
    assert comparison.verdict == "undecided"
    assert comparison.ratio.high == plain.ratio.high and comparison.ratio.mid == plain.ratio.mid
    assert comparison.ratio.low == pytest.approx(plain.ratio.low * 0.95)
    assert "may have slowed A by up to 0.0% and B by up to 5.0%" in " ".join(comparison.quality.notes)
    both = compare_runs([replace(run, late_share=0.05) for run in a], late, margin=0.001)
    assert both.ratio == plain.ratio and both.verdict == "slower"  # what slows both sides alike cancels out


def test_pairs_are_matched_by_their_number_not_by_their_place():
    a, b = arms(1.0, n=6, spread=0.3)
    assert compare_runs(a, b).ratio == compare_runs(a[::-1], b).ratio


def test_the_method_follows_from_the_order_of_the_runs():
    a, b = arms(1.0, n=5)
    loose = [[replace(r, pair=None) for r in arm] for arm in (a, b)]
    assert compare_runs(*loose).method == WELCH
    assert compare_runs(*loose, paired=True).method == PAIRED
    late = [replace(r, start_s=r.start_s + 1000) for r in loose[1]]
    c = compare_runs(loose[0], late)
    assert c.method == ADJUSTED
    assert any("hotloop ab" in note for note in c.quality.notes)
    with pytest.raises(UsageError, match="no pairs"):
        compare_runs(loose[0], loose[1][:4], paired=True)


def test_different_work_machines_and_losses_are_refused_unless_overruled():
    a, b = arms(1.3)
    for reason, changed in (
        ("work", {"all_work": 200}),
        ("machine", {"host": {"cpu": "another", "usable_cores": 2}}),
        ("dropped", {"dropped_share": 0.002}),
    ):
        other = [replace(r, **changed) for r in b]
        c = compare_runs(a, other)
        assert (c.verdict, c.refused) == ("undecided", True), reason
        assert c.reason
        assert compare_runs(a, other, despite=[reason]).verdict == "slower"
    with pytest.raises(UsageError, match="different units"):
        compare_runs(a, [replace(r, unit="updates") for r in b])
    with pytest.raises(UsageError, match="no run"):
        compare_runs(a, [])


def test_a_counter_of_the_users_own_keeps_its_name():
    a, b = arms(1.0, unit="frames")
    assert "A did 100 frames a run" in compare_runs(a, [replace(r, all_work=200) for r in b]).reason


def test_the_command_line_can_overrule_every_refusal():
    assert DESPITE == REASONS


def test_small_differences_of_work_drift_and_configuration_are_notes():
    a, b = arms(1.0)
    b = [replace(r, all_work=110, host={**r.host, "python": "3.12"}) for r in b]
    drifting = [[replace(r, total_ns=int(r.total_ns * 1.02**r.start_s)) for r in arm] for arm in (a, b)]
    drifting = [[replace(r, components={"env_step": r.total_ns}) for r in arm] for arm in drifting]
    notes = " ".join(compare_runs(*drifting).quality.notes)
    assert "different amounts of work" in notes
    assert "Python 3.11 and 3.12" in notes
    assert "drifted" in notes
    assert "not a constant unit" in " ".join(
        compare_runs(*[[replace(r, unit="episodes") for r in x] for x in (a, b)]).quality.notes
    )


def test_a_faster_learner_that_learns_less_is_said_to():
    a, b = arms(0.7)
    a = [replace(r, returned=10 + i * 0.01) for i, r in enumerate(a)]
    b = [replace(r, returned=5 + i * 0.02) for i, r in enumerate(b)]
    c = compare_runs(a, b)
    assert c.returned.verdict == "worse"
    assert "no win" in comparison_text(c)
    assert compare_runs(a, [replace(b[0], returned=None), *b[1:]]).returned is None


def test_the_text_has_the_shape_of_the_answer():
    text = comparison_text(compare_runs(*arms(1.0, spread=0.2)))
    assert "per env step: B/A = " in text
    assert "95 % CI [" in text
    assert "10 ABBA pairs" in text
    assert "verdict: UNDECIDED  (p = " in text
    flat = " ".join(text.split())
    assert "four times in five; ±2 % needs about" in flat
    assert "quality: dropped 0 | drift " in text
    assert "left out as warm-up: 3 iterations | profiler 1.0 ± 0.0 %" in text
    block = guide_text(compare_runs(*arms(0.5)))
    assert "Overall Performance:" in block
    assert re.search(r"Speedup:      \+(39|40)\.\d% \[", block)


def test_json_has_the_contracts_keys_and_closes():
    data = json.loads(json.dumps(comparison_data(compare_runs(*arms(1.1))), allow_nan=False))
    assert data["version"] == 1
    assert {"verdict", "unit", "ratio", "p", "pairs", "detectable", "needed_pairs", "components", "quality"} <= data.keys()
    assert data["ratio"].keys() == {"mid", "low", "high"}
    assert all({"name", "delta_s", "low", "high", "verdict"} <= part.keys() for part in data["components"])
    assert sum(part["delta_ns"] for part in data["components"]) == data["total"]["delta_ns"]


def test_the_page_shows_names_and_never_parses_them():
    evil = "</style><script>alert(1)</script>\x1b[31m\u202e"
    a, b = (
        [replace(r, components={evil: r.total_ns}, name=evil, host={**r.host, "python": evil}) for r in arm]
        for arm in arms(1.1)
    )
    page = comparison_page(compare_runs(a, b), (), (evil, evil))
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "default-src 'none'; style-src 'sha256-" in page
    assert " style=" not in page
    assert page.count("<svg") == 2
    assert "\x1b" not in comparison_text(compare_runs(a, b), (), (evil, evil))


def test_a_finding_is_acted_on_where_the_time_below_its_span_fell():
    """The hooks' span holds next to nothing itself: the time is in the environment's own `step` below it."""

    def below(r):
        ns = r.components["env_step"]
        inside = {"collect": ns, "collect/env_step": ns, "Maze.step": ns, "log/print": r.components["log"]}
        return replace(r, components={"Maze.step": ns, "log/print": r.total_ns - ns}, spans=inside)

    predictions = [finding(mid=1.3, span=name) for name in ("collect/env_step", "collect", "log", "memory")]
    a, b = ([below(r) for r in arm] for arm in arms(0.5))
    assert [x.acted_on for x in judge_predictions(predictions, compare_runs(a, b))] == [True, True, False, False]
    assert not any(x.acted_on for x in judge_predictions(predictions, compare_runs(b, a)))
    assert not any(x.acted_on for x in judge_predictions(predictions, compare_runs(a[:4], b[:4])))


def test_predictions_stand_beside_what_was_measured():
    predictions = [finding("env-step-hot", 1.3), finding("logging-heavy", 1.2, span="log")]
    c = compare_runs(*arms(0.7))
    first, second = judge_predictions(predictions, c)
    assert (first.acted_on, first.held) == (True, True)
    assert (second.acted_on, second.held) == (False, None)
    assert "env-step-hot" in comparison_text(c, (first, second))
    assert comparison_data(c, (first,))["predictions"][0]["held"] is True
    b = [replace(r, script="other.py") for r in c.b]
    assert judge_predictions(predictions, compare_runs(c.a, b)) == ()
