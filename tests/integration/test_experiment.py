"""`hotloop experiment`, `scale` and `explain-gap` on real processes: resumed, patched, failing, and adding up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .test_ab import SCRIPT, hotloop

PLAN = """
name = "toy"
command = "python train.py --seed {seed}"
rounds = 5
margin = "5%"
[goals]
minimum = "1.5x"
stretch = "1000x"
[[hypothesis]]
name = "shorter sleep"
expected = "2-20x"
confidence = "high"
arguments = "--sleep 0.0001"
[[hypothesis]]
name = "patched"
patch = "longer.patch"
[[hypothesis]]
name = "bad patch"
patch = "bad.patch"
[[hypothesis]]
name = "broken"
arguments = "--wrong"
[[hypothesis]]
name = "counts nothing"
command = "python idle.py"
"""
PATCH = """--- a/train.py
+++ b/train.py
@@ -9,3 +9,3 @@
 with open("ran.txt", "a") as f: f.write(f"{a.sleep} {a.seed}\\n")
-def wait(): time.sleep(a.sleep)
+def wait(): time.sleep(0.03)
 for _ in range(a.steps):
"""


def make_folder(folder: Path) -> Path:
    (folder / "train.py").write_text(SCRIPT.replace("default=0.002", "default=0.01"))
    (folder / "idle.py").write_text("import time; time.sleep(0.01)")
    (folder / "longer.patch").write_text(PATCH)
    (folder / "bad.patch").write_text(PATCH.replace("wait()", "elsewhere()"))
    (folder / "plan.toml").write_text(PLAN)
    return folder


@pytest.fixture(scope="module")
def investigated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, str]:
    folder = make_folder(tmp_path_factory.mktemp("experiment"))
    before = (folder / "train.py").read_bytes()
    done = hotloop(folder, "experiment", "plan.toml", "--json", code=1)
    assert (folder / "train.py").read_bytes() == before
    return folder, json.loads(done.stdout), done.stderr


def test_hypotheses_are_judged_and_those_that_fail_do_not_stop_the_others(investigated):
    _, data, said = investigated
    results = {r["name"]: r for r in data["results"]}
    assert results["shorter sleep"]["comparison"]["verdict"] == "faster"
    assert results["shorter sleep"]["against_expectation"] in ("as expected", "less than expected")
    assert results["patched"]["comparison"]["verdict"] == "slower"
    assert "does not fit" in results["bad patch"]["problem"]
    assert "unrecognized arguments: --wrong" in results["broken"]["problem"]
    assert "missing unit of work" in results["counts nothing"]["problem"]
    assert data["actions"] == ["shorter sleep"]
    assert {g["name"]: g["status"] for g in data["goals"]}["stretch"] == "missed"
    assert all("\n" not in r["problem"] for r in data["results"] if r["problem"])
    assert "left" in said


def test_what_failed_is_tried_once_and_what_was_measured_is_in_pairs(investigated):
    folder, data, _ = investigated
    out = folder / "runs" / "experiment-toy"
    names = [path.name.split("-", 1)[1] for path in out.iterdir() if path.is_dir()]
    assert names.count("broken") == names.count("counts_nothing") == 1
    assert names.count("baseline") == names.count("patched") == 5
    (comparison,) = (r["comparison"] for r in data["results"] if r["name"] == "patched")
    assert (comparison["method"], comparison["pairs"]) == ("paired", 5)
    assert {"results.md", "results.html", "results.json"} <= {path.name for path in out.iterdir()}


def test_started_again_nothing_is_measured_twice(investigated):
    folder, data, _ = investigated
    notes = {p: p.stat().st_mtime_ns for p in folder.glob("runs/experiment-toy/*/trial.json") if '"ok"' in p.read_text()}
    ran = len((folder / "ran.txt").read_text().splitlines())
    again = json.loads(hotloop(folder, "experiment", "plan.toml", "--json", code=1).stdout)
    assert again["results"][0]["comparison"]["ratio"] == data["results"][0]["comparison"]["ratio"]
    assert len((folder / "ran.txt").read_text().splitlines()) == ran
    assert {p: p.stat().st_mtime_ns for p in notes} == notes


def test_a_plan_that_changed_is_not_mixed_with_what_was_measured(investigated):
    folder, _, _ = investigated
    (folder / "other.toml").write_text(PLAN.replace("--sleep 0.0001", "--sleep 0.0002"))
    done = hotloop(folder, "experiment", "other.toml", code=2)
    assert "another command" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_experiment_goes_on_where_it_was(tmp_path, number, code):
    folder = make_folder(tmp_path)
    (folder / "plan.toml").write_text(PLAN.split('[[hypothesis]]\nname = "patched"')[0])
    words = [sys.executable, "-m", "hotloop", "experiment", "plan.toml", "--out", "out"]
    child = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while len(list(folder.glob("out/*/trial.json"))) < 3 and time.monotonic() < end:
        time.sleep(0.05)
    child.send_signal(number)
    assert child.wait(60) == code
    notes = {p: p.stat().st_mtime_ns for p in folder.glob("out/*/trial.json")}
    assert 3 <= len(notes) < 10
    done = hotloop(folder, "experiment", "plan.toml", "--out", "out", "--json")
    assert {p: p.stat().st_mtime_ns for p in notes} == notes, "what was measured was not touched"
    assert len(list(folder.glob("out/*/trial.json"))) == 10
    ran = (folder / "ran.txt").read_text().splitlines()
    assert 10 <= len(ran) <= 11, "at most the run that was interrupted was begun twice"
    (result,) = json.loads(done.stdout)["results"]
    assert result["comparison"]["pairs"] == 5


def test_bad_plans_are_one_sentence_before_anything_runs(tmp_path):
    folder = make_folder(tmp_path)
    (folder / "plan.toml").write_text(PLAN.replace('expected = "2-20x"', 'expected = "lots"'))
    done = hotloop(folder, "experiment", "plan.toml", code=2)
    assert done.stderr.count("\n") == 1
    assert "no speed-up" in done.stderr
    assert "cannot be read" in hotloop(folder, "experiment", "none.toml", code=3).stderr
    assert not (folder / "runs").exists()


def test_a_baseline_that_fails_ends_it_with_one_sentence(tmp_path):
    folder = make_folder(tmp_path)
    (folder / "plan.toml").write_text(PLAN.replace("--seed {seed}", "--sneed {seed}"))
    done = hotloop(folder, "experiment", "plan.toml", code=2)
    assert "baseline: train.py --sneed {seed}: ended with exit code 2" in done.stderr.splitlines()[-1]
    assert len(list(folder.glob("runs/*/*/session.json"))) < 7, "and does so at once"


def test_scale_fits_laws_and_explain_gap_splits_exactly(tmp_path):
    folder = make_folder(tmp_path)
    command = "train.py --steps {n} --sleep 0.001"
    done = hotloop(folder, "scale", command, "--n", "4,8,16", "--runs", "2", "--predict", "100", "--out", "out", "--json")
    data = json.loads(done.stdout)
    assert [run["size"] for run in data["runs"]] == [4, 4, 8, 8, 16, 16]
    assert all(sum(run["components"].values()) == run["total_ns"] for run in data["runs"])
    assert data["prediction"]["size"] == 100
    assert "an exponent needs 5" in data["note"]
    assert "Content-Security-Policy" in (folder / "out/scaling.html").read_text()
    text = hotloop(folder, "scale", command, "--n", "4,8,16", "--runs", "2", "--out", "out").stdout
    assert "env_step" in text
    small, large = (str(sorted(folder.glob(f"out/*n={n}"))[0]) for n in (4, 16))
    gap = json.loads(hotloop(folder, "explain-gap", small, large, "--json").stdout)
    assert sum(gap["by_factor_ns"].values()) == gap["difference_ns"]
    assert gap["expected_ratio"] == 4
    assert "split exactly" in hotloop(folder, "explain-gap", small, large, "--html", "gap.html").stdout
    assert "must hold {n}" in hotloop(folder, "scale", "train.py", "--n", "4,8", code=2).stderr
    assert "two different sizes" in hotloop(folder, "scale", command, "--n", "4", code=2).stderr
