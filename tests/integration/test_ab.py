"""`hotloop compare` and `hotloop ab`: real processes, their order, files, exit codes, one sentence for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hotloop as hotloop_package

SCRIPT = """
import argparse, time
from hotloop import count, profile, step
p = argparse.ArgumentParser()
p.add_argument("--sleep", type=float, default=0.002)
p.add_argument("--seed", default="none")
p.add_argument("--steps", type=int, default=15)
a = p.parse_args()
with open("ran.txt", "a") as f: f.write(f"{a.sleep} {a.seed}\\n")
def wait(): time.sleep(a.sleep)
for _ in range(a.steps):
    with profile("env_step"): wait()
    with profile("learn"): time.sleep(0.001)
    count("env_steps", 4); step()
print("mean_return=3.5")
"""


def hotloop(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "hotloop", *words], cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Five pairs in which B sleeps ten times as long."""
    folder = tmp_path_factory.mktemp("ab")
    (folder / "train.py").write_text(SCRIPT)
    commands = "python train.py --seed {seed}", "train.py --seed {seed} --sleep 0.02"
    done = hotloop(folder, "ab", *commands, "--pairs", "5", "--seed", "7", "--out", "runs/one", "--json", "--detailed")
    return folder, done


def test_the_arms_take_turns_in_fresh_processes_with_the_same_seed_within_a_pair(compared):
    folder, _ = compared
    ran = [line.split() for line in (folder / "ran.txt").read_text().splitlines()][:10]
    for pair in range(5):
        two = ran[2 * pair : 2 * pair + 2]
        assert {sleep for sleep, _ in two} == {"0.002", "0.02"}
        assert [seed for _, seed in two] == [str(8 + pair)] * 2
    order = [sleep for sleep, _ in ran]
    assert order[2:4] == order[:2][::-1]
    pids = {json.loads(p.read_text())["pid"] for p in (folder / "runs/one").glob("0*/session.json")}
    assert len(pids) == 10


def test_the_answer_names_the_component_and_adds_up(compared):
    folder, done = compared
    data = json.loads(done.stdout)
    assert data["verdict"] == "slower"
    assert data["unit"] == "env_steps"
    assert data["pairs"] == 5
    assert data["method"] == "paired"
    assert data["ratio"]["low"] > 1.5
    assert data["components"][0]["name"] == "env_step"
    assert data["components"][0]["verdict"] == "slower"
    assert sum(part["delta_ns"] for part in data["components"]) == data["total"]["delta_ns"]
    assert data["return"]["a"] == data["return"]["b"] == 3.5
    assert json.loads((folder / "runs/one/comparison.json").read_text()) == data
    page = (folder / "runs/one/comparison.html").read_text()
    assert "Content-Security-Policy" in page
    assert page.count("<svg") == 2


def test_progress_and_time_left_are_on_standard_error(compared):
    _, done = compared
    assert "run 1/10" in done.stderr
    assert "left" in done.stderr
    assert "hotloop compare" in done.stderr


def test_detailed_gives_a_function_profile_per_arm(compared):
    folder, _ = compared
    for letter in "AB":
        text = (folder / f"runs/one/functions-{letter}.txt").read_text()
        assert "Top 50 functions by cumulative time" in text
        assert "(wait)" in text
    assert not list(folder.glob("runs/*/functions.prof"))


def test_recorded_sessions_are_compared_again_by_pattern(compared):
    folder, done = compared
    again = json.loads(hotloop(folder, "compare", "runs/one/*-A", "runs/one/*-B", "--json").stdout)
    assert again["ratio"] == json.loads(done.stdout)["ratio"]
    text = hotloop(folder, "compare", "runs/one/*-A", "runs/one/*-B", "--html", "c.html").stdout
    assert "verdict: SLOWER" in text
    assert "5 ABBA pairs" in text
    assert (folder / "c.html").exists()
    assert "exists" in hotloop(folder, "compare", "runs/one/*-A", "runs/one/*-B", "--html", "c.html", code=2).stderr
    block = hotloop(folder, "compare", "runs/one/*-A", "runs/one/*-B", "--view", "components").stdout
    assert "Component-Level Comparison:" in block


def test_the_gate_fails_with_one_only_where_it_is_slower(compared):
    folder, _ = compared
    failed = hotloop(folder, "compare", "runs/one/*-A", "runs/one/*-B", "--fail-if-slower", "3%", code=1)
    assert "B is slower by" in failed.stderr
    hotloop(folder, "compare", "runs/one/*-B", "runs/one/*-A", "--fail-if-slower", "3%")
    one = sorted((folder / "runs/one").glob("*-A"))[0]
    two = sorted((folder / "runs/one").glob("*-B"))[0]
    assert "no verdict" in hotloop(folder, "compare", str(one), str(two), "--fail-if-slower", "3%").stderr


def test_single_sessions_are_described_with_the_pairs_needed(compared):
    folder, _ = compared
    one, two = (str(sorted((folder / "runs/one").glob(f"*-{letter}"))[0]) for letter in "AB")
    data = json.loads(hotloop(folder, "compare", one, two, "--json").stdout)
    assert data["verdict"] == "undecided"
    assert data["ratio"]["low"] is None
    assert data["needed_pairs"] >= 5
    assert data["needed_pairs_is_least"] is True


def test_findings_of_the_baseline_stand_beside_the_gain(compared):
    folder, _ = compared
    base = sorted((folder / "runs/one").glob("*-B"))[0]
    data = json.loads(hotloop(folder, "compare", "runs/one/*-B", "runs/one/*-A", "--json").stdout)
    expected = [row.cause for row in hotloop_package.load(base).findings]
    assert [row["cause"] for row in data["predictions"]] == expected


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["compare", "runs/none-*", "runs/one/*-B"], 3, "matches no session"),
        (["compare", ".", "runs/one/*-B"], 3, "not a session directory"),
        (["compare", "runs/one/*-A", "runs/one/*-A"], 2, "both sides"),
        (["compare", "runs/one/*-A", "runs/one/*-B", "--unit", "updates"], 2, "did not count updates"),
        (["compare", "runs/one/*-A", "runs/one/*-B", "--margin", "much"], 2, "no percentage"),
        (["ab", "python train.py", "python 'train.py"], 2, "close the quotes"),
        (["ab", "python train.py", "python missing.py", "--pairs", "1"], 2, "missing.py"),
        (["ab", "train.py --wrong", "train.py", "--pairs", "1"], 2, "unrecognized arguments: --wrong"),
        (["ab", "idle.py", "idle.py", "--pairs", "1"], 2, "missing unit of work"),
    ],
)
def test_every_mistake_is_one_sentence(compared, words, code, says):
    folder, _ = compared
    (folder / "idle.py").write_text("import time; time.sleep(0.01)")
    done = hotloop(folder, *words, code=code)
    last = [line for line in done.stderr.splitlines() if not line.startswith("hotloop: run ")][-1]
    assert says in last
