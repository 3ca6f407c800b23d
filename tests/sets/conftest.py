"""A test of a library set runs where `tests/sets/run.py` made its environment; its script runs bare and under HotLoop."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.store.reader import read_session

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.path.parent.name
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(900))  # two whole runs, and whatever else the machine does
        if name != os.environ.get("LIBRARY_SET"):
            item.add_marker(pytest.mark.skip(reason=f"needs the library set {name}: python tests/sets/run.py {name}"))


@dataclass(frozen=True)
class Pair:
    """The same script, bare and recorded."""

    bare: subprocess.CompletedProcess[str]
    recorded: subprocess.CompletedProcess[str]
    folder: Path

    @property
    def report(self) -> Diagnosis:
        return diagnose(read_session(self.folder / "session"))

    def check(self) -> None:
        """Both ended alike and well, and the reports are there."""
        assert self.bare.returncode == 0, self.bare.stderr
        assert self.recorded.returncode == 0, self.recorded.stderr
        assert "Traceback" not in self.recorded.stderr, self.recorded.stderr
        for name in ("report.html", "findings.json"):
            assert (self.folder / "session" / name).stat().st_size, name


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Runs a script of the set, once for all tests of a module."""
    made: dict[str, Pair] = {}

    def run(script: str) -> Pair:
        if script not in made:
            folders = [tmp_path_factory.mktemp(f"{script}-{how}") for how in ("bare", "recorded")]
            for folder in folders:
                shutil.copy(request.path.parent / "scripts" / f"{script}.py", folder / "train.py")
            hotloop = ["-m", "hotloop", "run", "--quiet", "--out", "session"]
            made[script] = Pair(
                *(call(folder, words) for folder, words in zip(folders, ([], hotloop), strict=True)), folders[1]
            )
        return made[script]

    return run


def call(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words, "train.py"], cwd=folder, capture_output=True, text=True, timeout=400,
        env=os.environ | {"RAY_DEDUP_LOGS": "0", "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled"},
    )  # fmt: skip
