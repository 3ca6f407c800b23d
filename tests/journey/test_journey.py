"""The way of someone who reads no documentation: run → finding → whatif → fix → ab, with scripts in styles of their own.

The scripts are slow for one reason each; FIXED=1 removes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
# gymnasium's RecordVideo needs moviepy and calls gc.collect() after every film, which takes longer than filming.
FILMING = "gc-pressure" if find_spec("moviepy") else "render-in-loop"
SWITCH = 'os.environ.get("FIXED", "0")'


@dataclass(frozen=True)
class Story:
    script: str
    cause: str
    functions: tuple[str, ...]  # where the finding may point: any of these is a place at which its user would look
    part: str  # for whatif


STORIES = {
    story.script: story
    for story in (
        Story("reinforce_video", FILMING, ("Lander.render", "RecordFrames.step", "main"), "collect"),
        Story("sac_features", "per-item-transfer", ("Fourier.waves",), "Fourier.waves"),
        Story("torchrl_dqn", "replay-sample-slow", ("main", "stack_fn"), "learn/sample"),
    )
}


def hotloop(
    folder: Path, *words: str, environment: dict[str, str] | None = None, timeout_s: float = 900
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hotloop", *words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | (environment or {}), capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def findings(folder: Path, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / session / "findings.json").read_text())["findings"]
    return found


@dataclass(frozen=True)
class Walk:
    """A story, the folder in which its `train.py` was recorded into `before`, and what was said."""

    story: Story
    folder: Path
    said: str


@pytest.fixture(scope="module", params=STORIES)
def walk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    story = STORIES[request.param]
    folder = tmp_path_factory.mktemp(story.script)
    (folder / "train.py").write_text((SCRIPTS / f"{story.script}.py").read_text())
    return Walk(story, folder, hotloop(folder, "run", "--out", "before", "train.py").stderr)


def test_the_first_finding_names_the_cause_and_the_place(walk):
    first = findings(walk.folder, "before")[0]
    assert first["cause"] == walk.story.cause
    assert any(name in first["function"] for name in walk.story.functions), first
    assert first["predicted_speedup"]["mid"] > 1.1


def test_the_screen_leads_on_to_the_next_command(walk):
    assert f"· {walk.story.cause}" in walk.said
    assert f"hotloop explain {walk.story.cause}" in walk.said
    said = " ".join(walk.said.split())
    assert "make the change; hotloop ab" in said and "'python train.py" in said
    assert "report.html" in walk.said


def test_what_the_finding_names_can_be_asked_about(walk):
    answer = json.loads(hotloop(walk.folder, "whatif", "before", f"{walk.story.part}=0", "--json").stdout)
    (effect,) = answer["effects"]
    assert effect["share"] > 0.1
    assert answer["predicted_speedup"]["mid"] > 1.1


def test_after_the_fix_the_finding_is_gone(walk):
    hotloop(walk.folder, "run", "--quiet", "--out", "after", "train.py", environment={"FIXED": "1"})
    assert walk.story.cause not in {finding["cause"] for finding in findings(walk.folder, "after")}


@pytest.mark.full
@pytest.mark.timeout(900)
def test_ab_shows_that_the_fix_helped(walk):
    text = (walk.folder / "train.py").read_text()
    assert SWITCH in text
    (walk.folder / "fixed.py").write_text(text.replace(SWITCH, '"1"'))
    options = ("--pairs", "5", "--seed", "1", "--out", "ab", "--json")
    done = hotloop(walk.folder, "ab", "train.py", "fixed.py", *options, timeout_s=850)
    comparison = json.loads(done.stdout)
    assert comparison["verdict"] == "faster", comparison["ratio"]
