"""A sample of the diagnosis cases, whole: the script runs, the cause is named first, at the right place. The rest of them, and
how well the gain is predicted, is benchmarks/diagnosis.py."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRUTH = {case["case"]: case for case in json.loads((HERE / "truth.json").read_text())}
SAMPLE = ["env-step-hot__rover", "logging-heavy__audit", "prioritized-sum__harvest", "none__table_lake"]


def find(folder: Path, case: str) -> list[dict]:
    """The findings of a case, under a name that says nothing."""
    shutil.copy(HERE / "cases" / f"{case}.py", folder / "train.py")
    command = [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", "session", "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "session" / "findings.json").read_text())["findings"]


@pytest.mark.parametrize("case", SAMPLE)
def test_the_cause_is_named_first_at_the_right_place(tmp_path, case):
    findings, truth = find(tmp_path, case), TRUTH[case]
    if truth["cause"] == "none":
        assert [f["cause"] for f in findings if f["severity"] != "note"] == []
        return
    first = findings[0]
    assert first["cause"] in {truth["cause"], *truth["accept_causes"]}
    assert first["file"] == "train.py"
    assert first["function"] in {place["function"] for place in truth["where"]}
    gain = first["predicted_speedup"]
    assert 1 < gain["low"] <= gain["mid"] <= gain["high"]


@pytest.mark.parametrize("half", [HERE, HERE / "unseen"], ids=["cases", "unseen"])
def test_every_case_is_a_program_and_has_its_truth_once(half):
    cases = [case["case"] for case in json.loads((half / "truth.json").read_text())]
    assert sorted(cases) == sorted(path.stem for path in (half / "cases").glob("*.py"))
    for path in (half / "cases").glob("*.py"):
        compile(path.read_text(), path.name, "exec")
