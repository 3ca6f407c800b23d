"""Costs that rise with the run: through all of it, or through its beginning only."""

from __future__ import annotations

import random

from hotloop.analyse.findings.growth import _soon_grown, find_growth

STEPS = [100] * 200
RAMP = [20.0, 40, 60, 80, 95, *[100.0] * 195]


def noisy(costs: list[float], spread: float = 0.05) -> list[float]:
    rng = random.Random(1)
    return [100 * cost * rng.uniform(1 - spread, 1 + spread) for cost in costs]


def test_a_rise_that_ends_early_is_growth_too():
    early, late, excess = _soon_grown(noisy(RAMP), STEPS)
    assert 15 < early < 25
    assert 95 < late < 105
    assert 0.75 < excess < 0.85
    assert find_growth({"x": noisy(RAMP), "rest": noisy([1000.0] * 200)}, STEPS) == {}


def test_what_begins_later_is_no_growth():
    assert _soon_grown(noisy([20.0] * 10 + [100.0] * 190), STEPS) is None
    assert _soon_grown(noisy([20.0, 60.0] + [100.0] * 198), STEPS) is None


def test_a_steady_cost_and_a_slow_beginning_are_no_growth():
    assert _soon_grown(noisy([100.0] * 200, 0.3), STEPS) is None
    assert _soon_grown(noisy([400.0, 300, 200, 150, *[100.0] * 196]), STEPS) is None


def test_what_fills_and_empties_with_each_episode_is_no_growth():
    assert _soon_grown(noisy([20.0 + 20 * (i % 10) for i in range(200)]), STEPS) is None
    assert _soon_grown(noisy([20.0 + 5 * (i % 40) for i in range(200)]), STEPS) is None


def test_a_cost_that_goes_on_rising_is_for_the_other_test():
    rising = noisy([20 + 80 * i / 200 for i in range(200)])
    assert _soon_grown(rising, STEPS) is None
    assert set(find_growth({"x": rising, "rest": noisy([1000.0] * 200)}, STEPS)) == {"x"}


def test_cost_that_rises_is_growth_and_a_busy_machine_is_not():
    steps, flat = [10] * 64, noisy([1.0] * 64)
    rising = noisy([1.0 + 0.1 * i for i in range(64)])
    busy = [200.0 if 20 < i < 40 else 100.0 for i in range(64)]
    late = [0.0] * 32 + [100.0] * 32  # begins when the buffer is full: a phase, no growth
    early, late_us, excess = find_growth({"x": rising, "rest": flat}, steps)["x"]
    assert late_us > 3 * early
    assert excess > 0.5
    assert find_growth({"x": flat, "rest": flat}, steps) == {}
    assert find_growth({"x": busy, "rest": [2 * b for b in busy]}, steps) == {}
    assert find_growth({"x": late, "rest": flat}, steps) == {}
