"""The gap between two runs: split exactly, whatever the numbers, and the planted cause first."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.analyse.gap import CALLS, COST, EPISODES, OUTSIDE, STEPS, Side, explain_gap
from hotloop.errors import UsageError
from hotloop.present.gap import gap_data, gap_page, gap_text


def side(episodes, steps, parts, name="s"):
    """`parts`: name -> (calls, nanoseconds a call); the rest is a thousandth of a second of untracked time."""
    components = {n: calls * ns for n, (calls, ns) in parts.items()} | {"(untracked)": 1_000_000}
    calls = {n: calls for n, (calls, _) in parts.items()}
    return Side(name, sum(components.values()), components, calls, episodes, steps, "env_steps")


SMALL = side(
    1024, 50_000, {"env_step": (50_000, 1000), "backward": (10_000, 4000), "optimizer": (10_000, 2000), "log": (1024, 500)}
)


def larger(episodes=5000, per_episode=1.0, calls=None, cost=None):
    steps = int(50_000 / 1024 * episodes * per_episode)
    base = {"env_step": (1.0, 1000), "backward": (0.2, 4000), "optimizer": (0.2, 2000), "log": (1024 / 50_000, 500)}
    parts = {n: (round(k * steps * (calls or {}).get(n, 1)), round(ns * (cost or {}).get(n, 1))) for n, (k, ns) in base.items()}
    return side(episodes, steps, parts, "large")


def check_exact(gap):
    assert sum(gap.by_factor.values()) == gap.large.total_ns - gap.small.total_ns
    for part in gap.parts:
        assert sum(part.by_factor.values()) == part.large_ns - part.small_ns
    for factor, ns in gap.by_factor.items():
        assert sum(part.by_factor.get(factor, 0) for part in gap.parts) == ns
    assert math.prod(gap.factors.values()) == pytest.approx(gap.ratio, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "factor", "names"),
    [
        ({"per_episode": 14.0}, STEPS, ()),
        ({"calls": {"backward": 8, "optimizer": 8}}, CALLS, ("backward", "optimizer")),
        ({"cost": {"env_step": 5}}, COST, ("env_step",)),
        ({"cost": {"log": 2000}}, COST, ("log",)),
    ],
)
def test_the_planted_cause_comes_first(change, factor, names):
    gap = explain_gap(SMALL, larger(**change))
    check_exact(gap)
    assert gap.causes[0].factor == factor
    assert set(gap.causes[0].components) == set(names)
    assert gap.expected_ratio == pytest.approx(5000 / 1024)


def test_the_puzzle_of_the_seed_is_divided_among_its_factors():
    """1,024 episodes in 175 s, 5,000 in 199 min: 68 times, of which 4.9 are episodes."""
    small = Side("a", 175 * 10**9, {"step": 175 * 10**9}, {"step": 1000}, 1024, 50_000, "env_steps")
    large = Side("b", 199 * 60 * 10**9, {"step": 199 * 60 * 10**9}, {"step": 62_000}, 5000, 3_100_000, "env_steps")
    gap = explain_gap(small, large)
    check_exact(gap)
    assert gap.ratio / gap.expected_ratio == pytest.approx(13.97, abs=0.01)
    assert gap.factors[EPISODES] == pytest.approx(5000 / 1024)
    assert gap.factors[STEPS] == pytest.approx(62 / (5000 / 1024))
    assert "it is 14 times that" in gap_text(gap)


def test_what_is_in_one_run_only_is_all_calls():
    large = larger()
    new = Side(
        "n",
        large.total_ns + 10**9,
        {**large.components, "flood_fill": 10**9},
        {**large.calls, "flood_fill": 7},
        5000,
        large.steps,
        "env_steps",
    )
    gap = explain_gap(SMALL, new)
    check_exact(gap)
    assert gap.causes[0].components == ("flood_fill",)
    assert gap_data(gap)["causes"][0]["ratio"] is None
    check_exact(explain_gap(new, SMALL))


ROWS = st.lists(st.tuples(*(st.integers(0, 10**12),) * 2, *(st.integers(0, 10**6),) * 2), min_size=1, max_size=6)


@settings(max_examples=100)
@given(ROWS, st.tuples(*(st.integers(0, 10**5),) * 2), st.tuples(*(st.integers(1, 10**8),) * 2))
def test_the_split_is_exact_for_any_numbers(rows, episodes, steps):
    sides = []
    for k in (0, 1):
        components = {f"c{i}": row[k] for i, row in enumerate(rows)} | {"(untracked)": 1}
        calls = {f"c{i}": row[2 + k] for i, row in enumerate(rows)}
        sides.append(Side("s", sum(components.values()), components, calls, episodes[k], steps[k], "env_steps"))
    gap = explain_gap(*sides)
    check_exact(gap)
    json.dumps(gap_data(gap), allow_nan=False)


def test_without_episodes_the_steps_are_what_was_expected():
    gap = explain_gap(side(0, 100, {"x": (100, 10)}), side(0, 300, {"x": (300, 30)}))
    check_exact(gap)
    assert gap.expected_ratio == 3
    assert STEPS not in gap.by_factor
    assert gap.causes[0].components == ("x",)


@pytest.mark.parametrize(("small", "large"), [(10, 0), (0, 10)])
def test_episodes_that_only_one_run_counted_are_not_compared(small, large):
    gap = explain_gap(side(small, 100, {"x": (100, 10)}), side(large, 300, {"x": (300, 30)}))
    check_exact(gap)
    assert gap.expected_ratio == 3
    assert "in proportion to the steps (×3)" in gap_text(gap)


def test_set_up_is_a_fixed_cost_and_takes_no_part_in_longer_episodes():
    small, large = (
        replace(s, total_ns=s.total_ns + 10**10, components={**s.components, OUTSIDE: 10**10})
        for s in (SMALL, larger(per_episode=14.0))
    )
    gap = explain_gap(small, large)
    check_exact(gap)
    without = explain_gap(SMALL, larger(per_episode=14.0))
    assert gap.by_factor == without.by_factor
    (part,) = (p for p in gap.parts if p.name == OUTSIDE)
    assert part.by_factor == {COST: 0}


def test_a_slow_start_is_reported_apart_and_is_no_cause():
    base = larger(cost={"env_step": 3})
    small = replace(SMALL, total_ns=SMALL.total_ns + 10**6, components={**SMALL.components, OUTSIDE: 10**6})
    large = replace(base, total_ns=base.total_ns + 10**12, components={**base.components, OUTSIDE: 10**12})
    gap = explain_gap(small, large)
    check_exact(gap)
    assert gap.causes[0].components == ("env_step",)
    assert all(OUTSIDE not in cause.components for cause in gap.causes)
    assert "outside the loop: 1.00 ms → 16:40 min" in gap_text(gap)


def test_runs_that_count_different_things_are_one_sentence():
    other = Side("u", 10, {"x": 10}, {}, 0, 5, "updates")
    with pytest.raises(UsageError, match="counts env steps"):
        explain_gap(SMALL, other)


def test_names_are_shown_and_never_parsed():
    evil = "<script>\x1b[1m"
    gap = explain_gap(side(1, 10, {evil: (10, 100)}, evil), side(2, 20, {evil: (20, 500)}, evil))
    assert "\x1b" not in gap_text(gap) + gap_page(gap)
    assert "<script" not in gap_page(gap)
