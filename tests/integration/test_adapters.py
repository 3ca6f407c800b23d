"""Adapters of other packages: the page's example, word for word, and what becomes of those that are broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hotloop.adapters import ADAPTERS
from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.store.reader import read_session

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adapters.md"
BLOCKS = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", PAGE.read_text("utf-8"), re.S))
ADAPTER = "snakepit_hotloop.py"


def install(folder: Path, adapter: str = BLOCKS[ADAPTER]) -> None:
    """The library and the adapter, as pip would leave them."""
    site = folder / "site-packages"
    for name, text in (("snakepit/__init__.py", BLOCKS["snakepit/__init__.py"]), (ADAPTER, adapter)):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    entry = BLOCKS["pyproject.toml"].replace("project.entry-points.", "").replace('"', "")
    info = site / "snakepit_hotloop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: snakepit-hotloop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry)


def run(folder: Path, *options: str, code: str = BLOCKS["train.py"]) -> tuple[subprocess.CompletedProcess[str], Diagnosis]:
    (folder / "train.py").write_text(code)
    path = os.pathsep.join(filter(None, [str(folder / "site-packages"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", "session", *options, "train.py"],
        cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done, diagnose(read_session(folder / "session"))


def calls(report: Diagnosis) -> dict[str, int]:
    return {o.name: o.calls for o in report.operations if o.calls}


def rows(report: Diagnosis, *states: str) -> list[str]:
    return [row["detail"] for row in report.hooks if row["integration"] == "snakepit" and row["state"] in states]


def test_the_example_of_the_page_does_what_the_page_says(tmp_path):
    install(tmp_path)
    done, report = run(tmp_path)
    assert done.returncode == 0, done.stderr
    said = {"env_steps": 3200, "updates": 60, "samples": 960, "apples": 400, "resets": 20}
    assert {name: report.counters[name] for name in said} == said
    expected = {"collect/env_step": 200, "collect/env_reset": 20, "learn/train": 20, "learn/optimizer": 60}
    assert {name: calls(report)[name] for name in expected} == expected
    assert report.iterations_closed == 20
    assert report.owners["env library"] > 0.5 * report.loop_ns
    assert max(report.owners, key=report.owners.get) == "env library"
    assert rows(report, "live") == ["snakepit: 3 hooks, snakepit 1.2"]
    assert rows(report, "note", "failed") == []
    text = (tmp_path / "session" / "report.txt").read_text()
    assert all(word in text for word in ("env_step", "optimizer", "env library"))


@pytest.mark.parametrize(("hooks", "steps"), [("torch,classes", 0), ("snakepit", 3200)])
def test_it_is_chosen_as_any_other(tmp_path, hooks, steps):
    install(tmp_path)
    _, report = run(tmp_path, "--hooks", hooks)
    assert report.counters.get("env_steps", 0) == steps
    assert report.meta["options"]["adapters"] == ({"snakepit": "snakepit_hotloop:ADAPTER"} if steps else {})
    assert bool(rows(report, "live", "owns")) is bool(steps)


def test_it_is_imported_only_with_its_library(tmp_path):
    install(tmp_path)
    done, report = run(tmp_path, code="import sys\nprint([m for m in sys.modules if 'snakepit' in m])\n")
    assert done.stdout == "[]\n"
    assert rows(report, "live", "owns", "note", "failed") == []


LATE = "\nimport dataclasses\nADAPTER = dataclasses.replace(ADAPTER, "
BROKEN = {
    "it cannot be imported": ("import nothing_of_that_name\n", "nothing_of_that_name"),
    "it ends the program": ("raise SystemExit(3)\n", "SystemExit"),
    "it is not there": ("", "no attribute 'ADAPTER'"),
    "it is something else": ("ADAPTER = 3\n", "that is no Adapter"),
    "its install fails": (LATE + "modules=('snakepit',), install=lambda patches, module: 1 / 0)\n", "ZeroDivisionError"),
    "its counts fail": ("\ndef moved(args, result):\n    return 1 / 0\n" + LATE + "targets=(Target('snakepit', 'Pit.advance', "
                        "role.COUNTED_STEP, moved),))\n", "is counted no more"),
    "its kinds are none": (LATE + "kinds=(3,))\n", "AttributeError"),
    "a target is gone": (LATE + "targets=(Target('snakepit', 'Hole.dig', role.STEP),))\n", "snakepit.Hole.dig is not there"),
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_adapter_is_one_note_and_the_script_runs(tmp_path, how):
    code, said = BROKEN[how]
    install(tmp_path, BLOCKS[ADAPTER] + code if code.startswith("\n") else code)
    done, report = run(tmp_path, code=BLOCKS["train.py"] + "print('trained')\n")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    (note,) = rows(report, "note", "failed")
    assert said in note


D3RLPY = {  # it wants another gymnasium than the other libraries: the names it has, without the work
    "__init__.py": "__version__ = '2.8.1'\nfrom . import algos, dataset, logging, metrics\n",
    "logging/__init__.py": "from .logger import D3RLPyLogger\n",
    "logging/logger.py": "class D3RLPyLogger:\n    def commit(self): pass\n    def save_model(self): pass\n",
    "metrics/__init__.py": "from .utility import evaluate_qlearning_with_environment as evaluate\n",
    "metrics/utility.py": "def evaluate_qlearning_with_environment(algo): pass\n"
    "def evaluate_transformer_with_environment(algo): pass\n",
    "dataset.py": "class ReplayBufferBase: pass\nclass ReplayBuffer(ReplayBufferBase):\n"
    "    def sample_transition_batch(self, n): return [0] * n\n",
    "algos.py": "class LearnableBase: pass\nclass QLearningAlgoBase(LearnableBase):\n    def update(self, batch): pass\n"
    "class DQN(QLearningAlgoBase): pass\n",
}


def test_d3rlpy_is_known(tmp_path):
    for name, text in D3RLPY.items():
        (tmp_path / "site-packages/d3rlpy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site-packages/d3rlpy" / name).write_text(text)
    code = """
        import d3rlpy
        buffer, algo, log = d3rlpy.dataset.ReplayBuffer(), d3rlpy.algos.DQN(), d3rlpy.logging.D3RLPyLogger()
        for _ in range(5):
            algo.update(buffer.sample_transition_batch(8))
        log.commit(), log.save_model(), d3rlpy.metrics.evaluate(algo)
    """
    _, report = run(tmp_path, code=textwrap.dedent(code))
    expected = {"learn/sample": 5, "learn/train": 5, "log/logging": 1, "checkpoint/save": 1, "eval/evaluate": 1}
    assert {name: calls(report).get(name) for name in expected} == expected
    assert not [row for row in report.hooks if row["state"] in ("note", "failed")]


def test_the_list_has_one_adapter_for_every_package():
    packages = [package for adapter in ADAPTERS for package in adapter.packages]
    assert len(packages) == len(set(packages)) > 50
    assert len({adapter.name for adapter in ADAPTERS}) == len(ADAPTERS)
    for adapter in ADAPTERS:
        assert (adapter.install is None) == (not adapter.modules)
        assert not (adapter.opaque and adapter.kinds), "they would never be looked for"
