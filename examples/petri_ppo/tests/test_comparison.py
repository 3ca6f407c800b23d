"""The reports: one denominator, rows that add up, the speedup's formula, and every combination of flags."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import profile_training_time
import pytest
from arms import interleave
from comparison import Measured, add_up, breakdown_text, comparison_text, interval, owners_text, recommendations, speedup

MS = 1_000_000


def arm(env_ms: int, wall_ms: int = 1000) -> Measured:
    tree = {
        ("data_collection",): 100 + env_ms, ("data_collection", "env_step"): env_ms, ("data_collection", "env_reset"): 0,
        ("data_collection", "policy_forward"): 90, ("data_collection", "unattributed"): 10,
        ("data_collection", "policy_forward", "network_forward"): 30, ("data_collection", "policy_forward", "torchrl"): 60,
        ("training_loop",): 200, ("training_loop", "backward_pass"): 200, ("unattributed",): wall_ms - 300 - env_ms,
    }  # fmt: skip
    owners = {"your code": env_ms * MS, "RL framework": 60 * MS, "tensor runtime": (wall_ms - 60 - env_ms) * MS}
    return Measured(1, wall_ms * MS, {path: ms * MS for path, ms in tree.items()}, owners, 1000)


@pytest.mark.parametrize("breakdown", [False, True])
def test_rows_add_up_to_the_wall_and_the_rest_is_called_unattributed(breakdown: bool) -> None:
    text = breakdown_text(arm(333), breakdown)
    rows = [line for line in text.splitlines() if re.match(r"(\d\.| {3}U| {3}P)", line)]
    assert sum(float(re.search(r"\(\s*([\d.]+)%\)", row)[1]) for row in rows) == pytest.approx(100)
    assert "   Unattributed             0.37s ( 36.7%)" in text
    assert "1. Data Collection          0.43s ( 43.3%)  ████████████████" in text
    assert ("   - Env Step               0.33s ( 33.3%)" in text) == breakdown
    assert ("      · Network Forward     0.03s (  3.0%)" in text) == breakdown
    assert "unattributed on all levels together: 37.7%" in text


def test_speedup_is_the_saved_share_of_the_baseline() -> None:
    assert speedup(4.0, 3.0) == 25.0
    assert speedup(2.0, 3.0) == -50.0
    assert speedup(0.0, 3.0) is None


def test_the_comparison_shows_both_arms_the_ratio_and_the_spread_of_the_pairs() -> None:
    off, on = [arm(600), arm(400)], [arm(300, 800), arm(100, 600)]
    text = comparison_text(off, on, breakdown=True)
    assert "Baseline (turbo OFF): 1.00s   (mean of 2 sessions, 1.00 to 1.00s)" in text
    assert "Turbo (turbo ON):     0.70s   (mean of 2 sessions, 0.60 to 0.80s)" in text
    assert "Speedup:              +30.0%   (1.43x; pairs +20.0 to +40.0%)" in text
    row = next(line for line in text.splitlines() if "Env Step" in line)
    assert row.split() == ["Env", "Step", "0.50s", "0.20s", "+60.0%", "2.50x", "+50.0", "to", "+75.0%"]
    assert next(line for line in text.splitlines() if "Env Reset" in line).split()[-3:] == ["-", "-", "-"]
    assert "not a confidence interval" in text
    assert max(map(len, text.splitlines())) <= 80


def test_seconds_are_means_and_shares_have_the_arms_own_wall() -> None:
    both = add_up([arm(200), arm(400, 2000)])
    assert both.wall_s == 1.5
    assert both.seconds(("data_collection", "env_step")) == pytest.approx(0.3)
    assert "(100.0%)" in breakdown_text(both, True)
    assert owners_text(both).startswith("owned by: tensor runtime 76.0 % · your code 20.0 % · RL framework 4.0 %")


@pytest.mark.parametrize(
    ("turbo_ms", "says"), [([500, 500], "keep it on"), ([2000, 2000], "do not use it"), ([500, 2000], "pairs disagree")]
)
def test_advice_follows_the_pairs(turbo_ms: list[int], says: str) -> None:
    text = " ".join(recommendations([arm(100), arm(100)], [arm(100, wall) for wall in turbo_ms]).split())
    assert says in text
    assert "cannot gain more than that" in text


def judged(verdict: str, **more: object) -> dict[str, object]:
    base = {"verdict": verdict, "ratio": {"mid": 0.6, "low": 0.5, "high": 0.7}, "p": 0.001, "reason": None, "margin": 0.02}
    return {**base, "needed_pairs": 12, **more}


def test_five_pairs_have_intervals_and_a_verdict() -> None:
    off, on = [arm(300, 1000 + i) for i in range(5)], [arm(100, 600 - i) for i in range(5)]
    text = comparison_text(off, on, True, judged("faster"))
    assert "95% CI +40.0 to +40.6%" in text
    assert "Verdict: faster, turbo/baseline per decision 0.600, 95% CI 0.500 to 0.700 (p = 0.001)" in " ".join(text.split())
    row = next(line for line in text.splitlines() if "Env Step" in line)
    assert row.split()[-3:] == ["+66.7", "to", "+66.7%"]
    assert max(map(len, text.splitlines())) <= 80
    assert "keep it on" in " ".join(recommendations(off, on, judged("faster")).split())
    assert "do not use it" in " ".join(recommendations(off, on, judged("slower")).split())
    assert "needs about 12 pairs" in " ".join(recommendations(off, on, judged("undecided")).split())


def test_an_interval_is_that_of_a_t_test_on_logarithms() -> None:
    assert interval([1.0] * 5, [0.5] * 5) == "+50.0 to +50.0%"
    assert interval([1.0] * 5, [0.5] * 4 + [0.0]) == "-"


def test_pairs_are_turned_round_so_that_drift_hits_both_arms() -> None:
    assert interleave(3) == [False, True, True, False, False, True]


FLAGS = ("--compare", "--turbo", "--no-turbo", "--breakdown", "--detailed")


@pytest.mark.parametrize("chosen", list(product([False, True], repeat=len(FLAGS))))
def test_every_combination_of_flags_works(
    chosen: tuple[bool, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def here() -> Iterator[Callable[..., object]]:
        yield lambda function, *arguments: function(*arguments)

    ran: list[bool] = []
    monkeypatch.setattr(profile_training_time, "fresh_processes", here)
    monkeypatch.setattr(profile_training_time, "record_arm", lambda settings, out: ran.append(settings.turbo) or settings.turbo)
    monkeypatch.setattr(profile_training_time, "read_session", lambda turbo: arm(100 if turbo else 500, 700 if turbo else 1000))
    monkeypatch.setattr(profile_training_time, "judge", lambda off, on: judged("faster"))
    monkeypatch.setattr(profile_training_time, "write_functions", lambda settings, file: file.write_text("functions"))
    flags = [flag for flag, on in zip(FLAGS, chosen, strict=True) if on]
    monkeypatch.setattr(sys, "argv", ["profile_training_time.py", *flags, "--batches", "1", "--out", str(tmp_path)])
    profile_training_time.main()
    out = capsys.readouterr().out
    compare, turbo, plain, breakdown, detailed = chosen
    both = compare or turbo == plain
    assert ran == ([False, True, True, False, False, True, True, False, False, True] if both else [turbo])
    assert ("Turbo Mode Comparison Report" in out) == both
    assert ("- Env Step" in out) == breakdown
    names = {f"profile_training_turbo_{word}.txt" for word, on in (("off", both or plain), ("on", both or turbo)) if on}
    assert {p.name for p in tmp_path.iterdir()} == (names if detailed else set())
