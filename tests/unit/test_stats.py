"""The statistics against SciPy, against each other, and against what is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from hotloop.analyse import stats
from hotloop.analyse.trend import correct_by_holm


def test_pairs_and_sets_are_scipys_tests():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, 9), rng.normal(0.5, 2, 9)
    (pairs,) = stats.estimate(a, b, stats.PAIRED)
    theirs = scipy_stats.ttest_rel(b, a)
    assert pairs.p == pytest.approx(theirs.pvalue)
    assert (pairs.low, pairs.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    (sets,) = stats.estimate(a, b[:6], stats.WELCH)
    theirs = scipy_stats.ttest_ind(b[:6], a, equal_var=False)
    assert sets.p == pytest.approx(theirs.pvalue)
    assert (sets.inner_low, sets.inner_high) == pytest.approx(tuple(theirs.confidence_interval(0.90)))


def test_a_drift_that_hits_one_side_only_is_not_taken_for_a_difference():
    rng = np.random.default_rng(2)
    found = {stats.WELCH: 0, stats.ADJUSTED: 0}
    for _ in range(200):
        level = np.linspace(0, 0.05, 20) + rng.normal(0, 0.005, 20)
        for method in found:
            (x,) = stats.estimate(level[:10], level[10:], method, list(range(20)))
            found[method] += x.p < 0.05
    assert found[stats.WELCH] > 190
    assert found[stats.ADJUSTED] < 25


def test_one_run_a_side_has_a_difference_and_no_interval():
    for method in (stats.PAIRED, stats.WELCH, stats.ADJUSTED):
        (x,) = stats.estimate([1.0], [3.0], method, [0.0, 1.0])
        assert (x.mid, x.low, x.p) == (2.0, None, None)


def test_runs_that_do_not_vary_give_no_warning_and_no_nan():
    same, other = stats.estimate(np.ones((5, 2)), np.array([[1.0, 2.0]] * 5), stats.PAIRED)
    assert (same.p, same.low, same.high) == (1.0, 0.0, 0.0)
    assert (other.p, other.low, other.high) == (0.0, 1.0, 1.0)


def test_holm_is_never_below_the_p_values_and_keeps_their_order():
    assert correct_by_holm([0.001, 0.5, 0.02]) == [0.003, 0.5, 0.04]
    assert correct_by_holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_stays_between_the_value_and_one(values):
    corrected = correct_by_holm(values)
    assert all(p <= c <= 1 for p, c in zip(values, corrected, strict=True))


def test_the_detectable_effect_is_found_four_times_in_five():
    rng = np.random.default_rng(3)
    sd, n = 0.05, 10
    effect = stats.find_detectable(sd / math.sqrt(n), n - 1)
    data = rng.normal(effect, sd, (4000, n))
    found = np.mean(scipy_stats.ttest_1samp(data, 0, axis=1).pvalue < 0.05)
    assert found == pytest.approx(0.8, abs=0.02)


def test_the_needed_pairs_are_the_fewest_that_do():
    n = stats.count_needed_pairs(0.05, 0.02)
    assert stats.power_of(0.02, 0.05 / math.sqrt(n), n - 1) >= 0.8 > stats.power_of(0.02, 0.05 / math.sqrt(n - 1), n - 2)
    assert stats.count_needed_pairs(0.0, 0.02) == 2
    assert stats.count_needed_pairs(1.0, 1e-9) == stats.MOST_PAIRS


def test_the_permutation_check_is_exact_for_few_runs():
    assert stats.check_by_permutation([1.0] * 5, [2.0] * 5, paired=True) == pytest.approx(2 / 2**5)
    assert stats.check_by_permutation([1, 2, 3], [4, 5, 6], paired=False) == pytest.approx(2 / 20)


def test_a_drift_is_measured_whatever_the_arms_do():
    arms = [0, 1, 1, 0, 0, 1, 1, 0]
    values = [0.1 * i / 7 + 0.5 * arm for i, arm in enumerate(arms)]
    assert stats.find_drift(values, arms, range(8))[0] == pytest.approx(0.1)
    assert stats.find_drift([1.0, 2.0], [0, 1], [0, 1]) == (0.0, 1.0)
