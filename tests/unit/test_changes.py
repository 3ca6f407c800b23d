"""Change points and warm-up: planted ones are found where they are, and noise is left whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.analyse.changes import LEAST_ROWS, find_arrivals, find_changes, find_warm_up, merge_rows

from .test_trend import noise, steady


def test_rows_are_merged_to_equal_weight():
    rows = merge_rows([1.0, 3.0, 2.0, 8.0], [1, 1, 2, 4], 2)
    assert rows.mean.tolist() == [2.0, 8.0]
    assert rows.weight.tolist() == [4.0, 4.0]
    assert rows.middle.tolist() == [2.0, 6.0]


def test_merging_keeps_the_total():
    rng = np.random.default_rng(1)
    values, weights = rng.random(777), 2.0 ** rng.integers(0, 5, 777)
    rows = merge_rows(values, weights, 30)
    assert len(rows) <= 30
    assert rows.values == 777
    assert (rows.mean * rows.weight).sum() == pytest.approx((values * weights).sum())


def test_values_and_weights_must_match():
    with pytest.raises(ValueError, match="3 values but 2 weights"):
        merge_rows([1, 2, 3], [1, 2], 10)


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_jump_is_found_where_it_is(phi):
    errors = []
    for values in np.exp(0.2 * noise(1, 30, 300, phi)):
        values[120:] *= 2
        changes = find_changes(values)
        errors.append(min((abs(c.row - 120) for c in changes), default=300))
    assert np.quantile(errors, 0.9) <= 3


def test_levels_before_and_after_are_told():
    values = steady(2, 300)
    values[100:200] *= 4
    up, down = find_changes(values)
    assert (up.row, down.row) == (100, 200)
    assert (up.iteration, down.iteration) == (100, 200)
    assert up.ratio == pytest.approx(4, rel=0.1)
    assert down.ratio == pytest.approx(0.25, rel=0.1)
    assert up.after == down.before


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_noise_is_left_whole(phi):
    assert sum(bool(find_changes(np.exp(0.3 * v))) for v in noise(3, 60, 200, phi)) <= 4


def test_one_slow_iteration_and_small_jumps_are_no_changes():
    values = steady(4, 300, 0.01)
    values[77] = 50
    values[200:] *= 1.03
    assert find_changes(values) == ()


def test_slow_growth_is_no_jump():
    assert find_changes(steady(5, 500, 0.02) * np.linspace(1, 2, 500)) == ()


def test_merged_rows_are_counted_in_full():
    values = np.r_[np.full(40, 1.0), np.full(40, 3.0)] * steady(6, 80, 0.02)
    (change,) = find_changes(values, np.r_[np.full(60, 8), np.ones(20)])
    assert (change.row, change.iteration) == (40, 320)


def test_absent_rows_keep_their_numbers():
    values = np.r_[np.full(60, 1.0), np.full(60, 3.0)] * steady(7, 120, 0.02)
    (change,) = find_changes(np.insert(values, 10, [np.nan] * 5))
    assert change.row == 65


@pytest.mark.parametrize("slow", [1, 2, 3, 8, 30])
def test_slow_first_iterations_are_warm_up(slow):
    values = steady(8, 200)
    values[:slow] *= 5
    warm_up = find_warm_up(values)
    assert warm_up.settled
    assert warm_up.iterations == slow
    assert warm_up.seconds == pytest.approx(values[:slow].sum())


def test_fast_first_iterations_are_warm_up_too():
    values = steady(9, 200)
    values[:20] /= 3
    assert find_warm_up(values).iterations == 20


def test_merged_rows_of_a_warm_up_count_in_full():
    values = steady(10, 100)
    values[:10] *= 4
    warm_up = find_warm_up(values, np.r_[np.full(50, 4), np.ones(50)])
    assert warm_up.iterations == 40
    assert warm_up.seconds == pytest.approx(4 * values[:10].sum())


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_noise_has_no_warm_up(phi):
    found = [find_warm_up(np.exp(0.3 * v)) for v in noise(11, 60, 200, phi)]
    assert sum(w.iterations > 0 for w in found) <= 4
    assert sum(not w.settled for w in found) <= 4


def test_training_that_starts_later_is_a_phase_not_warm_up():
    act, train = steady(12, 300), np.r_[np.full(90, np.nan), 5 * steady(13, 210)]
    durations = act + np.nan_to_num(train)
    arrivals = find_arrivals({"act": act, "train": train}, durations)
    assert arrivals == (90,)
    assert find_warm_up(durations).iterations == 90  # without the phase it cannot be told
    warm_up = find_warm_up(durations, arrivals=arrivals)
    assert (warm_up.iterations, warm_up.settled) == (0, True)
    durations[:3] *= 10
    assert find_warm_up(durations, arrivals=arrivals).iterations == 3


def test_a_label_that_is_rare_or_cheap_starts_no_phase():
    durations = np.ones(100)
    rare, cheap, early = np.zeros(100), np.zeros(100), np.zeros(100)
    rare[50::10] = 0.5
    cheap[50:] = 0.01
    early[:40] = 0.5
    assert find_arrivals({"rare": rare, "cheap": cheap, "early": early, "never": np.zeros(100)}, durations) == ()


def test_a_run_without_a_steady_state_is_said_so():
    growing = steady(14, 400, 0.02) * np.linspace(1, 4, 400)
    late = steady(15, 400)
    late[250:] *= 3
    late[320:] *= 3
    for values in (growing, late):
        warm_up = find_warm_up(values)
        assert (warm_up.settled, warm_up.iterations, warm_up.seconds) == (False, 0, 0.0)
        assert "no steady state" in warm_up.reason


def test_too_few_iterations_are_not_judged():
    for n in range(LEAST_ROWS):
        warm_up = find_warm_up(np.linspace(1, 5, n))
        assert (warm_up.settled, warm_up.iterations) == (False, 0)
        assert str(LEAST_ROWS) in warm_up.reason
        assert find_changes(np.linspace(1, 5, n)) == ()


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e308, 5e-324, math.nan, math.inf])
def test_constants_have_neither_changes_nor_warm_up(value):
    assert find_changes(np.full(100, value)) == ()
    assert find_warm_up(np.full(100, value)).iterations == 0


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, 1e-12, 1e308, math.nan])


@settings(max_examples=150, deadline=None)
@given(st.lists(numbers, max_size=60), st.randoms(use_true_random=False))
def test_no_series_breaks_it(values, random):
    values = [v if random.random() < 0.5 else random.random() for v in values] * random.choice([1, 1, 4])
    weights = [random.choice([1, 2, 64, 0, math.nan, 1e300]) for _ in values]
    arrivals = [random.randrange(-5, 300) for _ in range(random.randrange(4))]
    for change in find_changes(values, weights):
        assert 0 < change.row < len(values)
        assert change.before > 0 and change.after > 0 and math.isfinite(change.before + change.after)
    warm_up = find_warm_up(values, weights, arrivals)
    assert warm_up.iterations >= 0 and 0 <= warm_up.seconds < math.inf and warm_up.reason
    assert all(0 < start < len(values) for start in find_arrivals({"a": values, "b": weights}, values))
