"""Shared by all tests: run a script in a process of its own, as a user would, and read what it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.model.session import SessionData
from hotloop.store.reader import read_session


def pytest_configure() -> None:
    """Whatever the caller set for HotLoop, or for the cases of the diagnosis, is not what the tests are about: but for the
    recorder, which tests/matrix.py chooses."""
    for name in [name for name in os.environ if name.startswith("HOTLOOP") or name in ("FIXED", "COLUMNS")]:
        if name != "HOTLOOP_RECORDER":
            del os.environ[name]
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell started us in the background: children would inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["OMP_NUM_THREADS"] = "1"  # threads of torch that wait for a core change which part of a loop is the slow one


# What a test may be skipped for. Anything else that is missing is a failure: a skip would hide that nothing was tested.
REASONS = (
    "needs a CUDA device",
    "needs chromium and chromedriver",
    "needs the library set",  # tests/sets/run.py makes it
    "needs Node.js",  # and a simulator; with -m full only
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in hidden(terminalreporter):
        terminalreporter.write_line(f"NOT A REASON TO SKIP A TEST: {report.longrepr}", red=True)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and hidden(reporter) and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def hidden(reporter: Any) -> list[Any]:
    """The tests that were skipped for no good reason."""
    skipped = [report for report in reporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    return [report for report in skipped if not any(reason in report.longrepr[2] for reason in REASONS)]


@dataclass(frozen=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def session(self) -> SessionData:
        (only,) = (self.folder / "runs").iterdir()
        return read_session(only)

    @property
    def report(self) -> Diagnosis:
        return diagnose(self.session)

    def operation(self, name: str) -> Any:
        return next(o for o in self.report.operations if o.name == name)


@dataclass(frozen=True)
class Runner:
    folder: Path
    recorder: str

    def __call__(
        self,
        code: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        check: bool = True,
        timeout: float = 900,
        flags: tuple[str, ...] = (),
    ) -> Ran:
        script = self.folder / "train.py"
        script.write_text(textwrap.dedent(code))
        environment = os.environ | {"HOTLOOP_RECORDER": self.recorder, "PYTHONWARNINGS": "error"} | (env or {})
        done = subprocess.run(
            [sys.executable, *flags, str(script), *arguments],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        if check:
            assert done.returncode == 0, done.stderr
            assert done.stderr == "", done.stderr
        return Ran(done.returncode, done.stdout, done.stderr, self.folder)


@pytest.fixture(params=["native", "python"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    """Runs a script with the native recorder and with its twin."""
    return Runner(tmp_path, request.param)


@pytest.fixture
def run_native(tmp_path: Path) -> Runner:
    return Runner(tmp_path, "native")
