"""Intervals that follow from what became of earlier predictions."""

from __future__ import annotations

import math

import pytest

from hotloop.analyse.findings.residuals import COVERED, RESIDUALS, interval, quantile, residual, told_from


@pytest.mark.parametrize("kind", RESIDUALS)
def test_the_interval_holds_as_many_of_the_outcomes_it_was_made_of_as_it_says(kind):
    known = RESIDUALS[kind]
    assert list(known) == sorted(known)
    gain = interval(kind, 4.0, samples=0)
    held = sum(gain.low <= 4.0 * math.exp(u * math.sqrt(math.log(4.0))) <= gain.high for u in known) / len(known)
    assert held >= COVERED - 1 / len(known)


@pytest.mark.parametrize("kind", RESIDUALS)
@pytest.mark.parametrize("expected", [1.1, 2.0, 9.0])
def test_what_was_expected_is_found_again_from_what_was_told(kind, expected):
    assert told_from(kind, interval(kind, expected, samples=0).mid) == pytest.approx(expected)
    assert residual(expected, expected) == 0


@pytest.mark.parametrize("kind", RESIDUALS)
def test_few_samples_make_it_wider(kind):
    sure, unsure = interval(kind, 2.0, samples=1000), interval(kind, 2.0, samples=10)
    assert unsure.low < sure.low < 2.0 < sure.high < unsure.high
    assert interval(kind, 3.0, samples=1).low == 1.0, "at worst a change gains nothing"


def test_a_quantile_allows_for_how_few_outcomes_there_are():
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == pytest.approx(2.5)
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.95) == 4.0
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.05) == 1.0
