"""Laws of growth: what was planted is found, and nothing is named without the data for it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hotloop.analyse.scaling import fit_law, is_enough, predict_time, summarise_sizes
from hotloop.analyse.sweep import Sized, read_sweep
from hotloop.present.sweep import sweep_data, sweep_page, sweep_text

SIZES = np.repeat([64.0, 128.0, 256.0, 512.0, 1024.0], 3)


def planted(b, c=0.2, seed=0, noise=0.02, sizes=SIZES):
    rng = np.random.default_rng(seed)
    return (c + (sizes / 1024) ** b) * np.exp(rng.normal(0, noise, len(sizes)))


@pytest.mark.parametrize("b", [0.5, 1.0, 1.2, 2.0])
def test_the_planted_exponent_is_in_the_interval(b):
    laws = [fit_law("x", SIZES, planted(b, seed=seed)) for seed in range(20)]
    assert sum(b in law.exponent_bounds for law in laws) >= 17


def test_a_fixed_cost_does_not_lower_the_exponent():
    law = fit_law("x", SIZES, planted(2.0, c=0.05, noise=0.01))
    line = np.polyfit(np.log(SIZES), np.log(planted(2.0, c=0.05, noise=0.01)), 1)[0]
    assert line < 1.9 < law.exponent
    assert law.growth == "super-linear"
    assert law.agrees


def test_linear_growth_is_called_linear_and_constant_is_constant():
    assert fit_law("x", SIZES, planted(1.0)).growth == "linear"
    law = fit_law("x", SIZES, np.full(15, 0.5) * np.exp(np.random.default_rng(1).normal(0, 0.02, 15)))
    assert law.model == "constant"
    assert law.growth in ("constant", "undecided")


def test_a_knee_is_told_from_a_power():
    n = np.repeat([64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0], 3)
    y = (1e-3 * np.minimum(n, 512) + 2e-2 * np.maximum(n - 512, 0)) * np.exp(np.random.default_rng(0).normal(0, 0.01, len(n)))
    law = fit_law("x", n, y)
    assert law.model == "piecewise"
    assert law.knee == 512
    assert law.predict(4096) == pytest.approx(y[-1], rel=0.05)


def test_a_largest_size_out_of_line_is_not_called_super_linear():
    y = planted(1.0, noise=0.005)
    y[SIZES == 1024] *= 4
    law = fit_law("x", SIZES, y)
    assert law.agrees is False
    assert law.growth == "undecided"


def test_two_sizes_give_a_slope_and_name_nothing():
    law = fit_law("x", [10, 10, 20, 20], [1.0, 1.0, 4.0, 4.0])
    assert law.exponent == pytest.approx(2.0)
    assert (law.exponent_bounds, law.agrees, law.growth) == (None, None, "undecided")
    assert "no law" in summarise_sizes([10, 10, 20, 20])


def test_few_sizes_or_runs_or_a_short_reach_give_no_interval():
    assert is_enough(SIZES)
    assert not is_enough(np.repeat([64, 128, 256, 512], 3))
    assert not is_enough(np.repeat([64, 128, 256, 512, 1024], 2))
    assert not is_enough(np.repeat([64, 80, 100, 120, 200], 3))
    few = np.repeat([64.0, 128.0, 256.0], 3)
    assert fit_law("x", few, planted(1.0, sizes=few)).exponent_bounds is None


def test_a_prediction_covers_what_a_larger_run_takes():
    inside = 0
    for seed in range(40):
        p = predict_time(SIZES, planted(1.5, seed=seed, noise=0.05), 5000)
        inside += p.low <= (0.2 + (5000 / 1024) ** 1.5) <= p.high
    assert inside >= 36


def test_zero_times_are_no_trouble():
    law = fit_law("x", SIZES, np.zeros(15))
    assert law.predict(5000) == pytest.approx(0.0, abs=1e-6)


def test_the_laws_of_a_sweep_are_shown_with_names_escaped():
    evil = "<script>\x1b"
    runs = [Sized(int(n), int(1e9 * y) + 5, {evil: int(1e9 * y), "tiny": 5}) for n, y in zip(SIZES, planted(2.0), strict=True)]
    sweep = read_sweep(runs, 5000, ["train grows ×2.00"])
    text, page = sweep_text(sweep), sweep_page(sweep)
    assert "prediction for n = 5,000" in text
    assert "super-linear" in text
    assert "train grows" in text
    assert "\x1b" not in text + page
    assert "<script" not in page
    assert {law.name for law in sweep.laws} == {evil, "(others)"}
    data = json.loads(json.dumps(sweep_data(sweep), allow_nan=False))
    assert data["components"][0]["exponent"]["low"] > 1
    assert data["prediction"]["low"] < data["prediction"]["seconds"] < data["prediction"]["high"]
