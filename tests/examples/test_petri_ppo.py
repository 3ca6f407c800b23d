"""Seed 001's guide, followed: every command of its Quick Start and Usage, run in a process of its own at small size."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "petri_ppo"
SIZES = {"frames-per-batch": 256, "shops": 8, "minibatch": 128, "epochs": 1, "jobs": 4, "machines": 4}
SMALL = ["--device", "cpu", *(word for name, value in SIZES.items() for word in (f"--{name}", str(value)))]
COMPONENTS = ("Data Collection", "GAE Computation", "Replay Buffer Ops", "Training Loop")
LEARNING = ("Loss Computation", "Backward Pass", "Optimizer Step")
COLLECTING = ("Env Step", "Policy Forward", "TensorDict Ops", "Env Reset")


def run(folder: Path, *command: str) -> str:
    """The output of a script of the example, started in `folder`."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def report(session: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "hotloop", "report", str(session), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def blocks(out: str) -> list[str]:
    """The component breakdowns of an output."""
    return [block.split("owned by:")[0] for block in out.split("Component Breakdown:")[1:]]


def check_breakdown(block: str, with_parts: bool) -> None:
    for name in COMPONENTS:
        assert re.search(rf"^\d\. {name} +\d+\.\d\ds \( *\d+\.\d%\)  █", block, re.M), name
    for name in LEARNING:
        assert re.search(rf"^   - {name} +\d+\.\d\ds \( *\d+\.\d%\)", block, re.M), name
    assert all(bool(re.search(rf"^   - {name} ", block, re.M)) == with_parts for name in COLLECTING[:3])
    assert ("(includes env steps + policy forward passes)" in block) != with_parts
    tops = re.findall(r"^(?:\d\.|   (?=[UP])) ?\S.*?\(( *\d+\.\d)%\)", block, re.M)
    assert sum(map(float, tops)) == pytest.approx(100), "one denominator: the components, unattributed and profiler are all"
    assert all(float(value) <= 100 for value in re.findall(r"(\d+\.\d)%", block))


def check_comparison(out: str, with_parts: bool, with_interval: bool = True) -> None:
    title = out.index("=" * 80 + "\nTurbo Mode Comparison Report\n" + "=" * 80)
    table = out[title:]
    base, turbo = (float(re.search(rf"{name}: +(\d+\.\d\d)s", table)[1]) for name in (r"\(turbo OFF\)", r"\(turbo ON\)"))
    shown = float(re.search(r"Speedup: +([+-]\d+\.\d)%", table)[1])
    assert shown == pytest.approx((base - turbo) / base * 100, abs=1 / base + 0.1), "up to the rounding of the seconds"
    rows = re.findall(r"^ *(\S.*?) +\d+\.\d\ds +\d+\.\d\ds +(?:[+-]\d+\.\d%|-)", table, re.M)
    assert set(rows) >= {*COMPONENTS, *LEARNING}
    assert (set(rows) >= set(COLLECTING)) == with_parts
    assert ("95% CI: of the speedup" in " ".join(table.split())) == with_interval
    assert "Verdict: " in table
    assert "Recommendations:" in table


@pytest.mark.parametrize(
    ("flags", "pairs"), [("--compare --batches 5", 5), ("--compare --batches 5 --breakdown --repetitions 2", 2)]
)
def test_turbo_on_and_off_are_compared_in_interleaved_sessions(tmp_path: Path, flags: str, pairs: int) -> None:
    out = run(tmp_path, str(EXAMPLE / "scripts" / "profile_training_time.py"), *flags.split(), *SMALL)
    order = ["OFF", "ON", "ON", "OFF", "OFF", "ON", "ON", "OFF", "OFF", "ON"][: 2 * pairs]
    assert re.findall(rf"^session \d+/{2 * pairs}: turbo (\w+)", out, re.M) == order
    with_parts = "--breakdown" in flags
    assert len(blocks(out)) == 2
    for block in blocks(out):
        check_breakdown(block, with_parts)
    check_comparison(out, with_parts, with_interval=pairs >= 5)
    assert out.count("owned by:") == 2
    assert "Host timing" in out
    sessions = sorted(re.sub(r"-\d{8}-\d{6}(-\d+)?$", "", path.name) for path in (tmp_path / "runs").iterdir())
    assert sessions == ["petri_ppo_turbo_off"] * pairs + ["petri_ppo_turbo_on"] * pairs


@pytest.mark.parametrize(("flag", "word"), [("--turbo", "ON"), ("--no-turbo", "OFF")])
def test_one_mode_is_profiled_alone(tmp_path: Path, flag: str, word: str) -> None:
    out = run(tmp_path, str(EXAMPLE / "scripts" / "profile_training_time.py"), flag, "--batches", "10", *SMALL)
    assert f"Turbo {word}: 10 batches, 2,560 decisions" in out
    assert "Comparison" not in out
    (block,) = blocks(out)
    check_breakdown(block, False)
    (session,) = (tmp_path / "runs").iterdir()
    assert report(session)["iterations"]["closed"] == 10


def test_detailed_writes_a_file_per_arm_with_the_call_hierarchy(tmp_path: Path) -> None:
    command = ["--compare", "--batches", "10", "--detailed", "--repetitions", "1"]
    out = run(tmp_path, str(EXAMPLE / "scripts" / "profile_training_time.py"), *command, *SMALL)
    check_comparison(out, False, with_interval=False)
    for word in ("off", "on"):
        file = tmp_path / f"profile_training_turbo_{word}.txt"
        text = file.read_text()
        assert f"wrote {file.name}" in out
        assert f"turbo {word.upper()}, 10 batches" in text
        table = text.partition("ncalls  tottime  percall  cumtime  percall")[2].partition("====")[0]
        cumulative = [float(line.split()[3]) for line in table.splitlines() if re.match(r" *\d+(/\d+)? +\d", line)]
        assert len(cumulative) == 50
        assert cumulative == sorted(cumulative, reverse=True)
        assert "was called by..." in text
        assert "called..." in text
        assert ("PlainNet" in text or "_observe_shop" in text) == (word == "off"), "each arm ran its own environment"


def test_the_environment_alone_gives_identical_trajectories(tmp_path: Path) -> None:
    out = run(tmp_path, str(EXAMPLE / "scripts" / "profile_turbo_mode.py"), "--steps", "60", "--shops", "4")
    assert "Trajectories: identical in 4 sessions" in out
    assert len(re.findall(r"[\d,]+ decisions a second of simulation", out)) == 2
    assert re.search(r"^Env Step +\d+\.\d\ds", out, re.M)
    assert "Turbo Mode Comparison Report" in out


def test_training_reports_itself_and_its_books_close(tmp_path: Path) -> None:
    """At the real size: what is unattributed, the counters and what the spans cost."""
    out = run(tmp_path, str(EXAMPLE / "train.py"), "--batches", "3", "--episodes", "20", "--device", "cpu")
    random, learned = (float(re.search(rf"^  {name} +(-\d\.\d+)", out, re.M)[1]) for name in ("random", "learned, greedy"))
    assert learned > random, "three batches are enough to stop waiting for nothing"
    assert (tmp_path / "petri_ppo_curve.png").read_bytes().startswith(b"\x89PNG")
    (session,) = (tmp_path / "runs").iterdir()
    told = report(session)
    assert told["coverage"] >= 0.5  # 0.95 is a bar of benchmarks/examples.py: a busy machine adds to the rest
    assert told["counters"] == {
        "env_steps": 3 * 1024, "updates": 3 * 16, "samples": 3 * 16 * 256,
        "episodes": told["counters"]["episodes"], "resets": told["counters"]["resets"],
    }  # fmt: skip
    assert told["counters"]["resets"] == told["counters"]["episodes"] > 0, "a shop that is done is opened again at once"
    rows = told["balance"]
    for i, row in enumerate(rows):
        below = [r["ns"] for r in rows if r["parent"] == i]
        assert not below or sum(below) == row["ns"], row["name"]
    assert told["quality"]["recorded"] * 64e-9 <= 0.01 * told["wall_s"]
    assert told["quality"]["losses"] == {}
    assert {"RL framework", "tensor runtime", "your code"} <= set(told["owners"])
    sites = {o["name"]: o["site"] for o in told["operations"]}
    assert "torchrl" in sites["tensordict_ops"]
    assert sites["env_step"].startswith(str(EXAMPLE))


def test_settings_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    script = str(EXAMPLE / "scripts" / "profile_training_time.py")
    done = subprocess.run([sys.executable, script, "--shops", "7"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("--frames-per-batch must be a multiple of --shops and of --minibatch")


def test_the_examples_own_tests_pass(tmp_path: Path) -> None:
    """`tests/test_turbo_training.py` and `tests/test_performance.py` of the guide, and the proof that turbo changes nothing."""
    out = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"))
    assert re.search(r"^\d+ passed in", out, re.M), out
