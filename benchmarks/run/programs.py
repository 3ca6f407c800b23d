"""Starting the scripts beside this file, bare or under a profiler, and reading what they say about themselves.

Every run gets a folder of its own as working directory, so that checkpoints, scalars and sessions go with it. Runs that are
to be compared take turns: one goes on for a moment while the others are stopped, so that all of them meet the same machine.
Invariant: a script that failed, or that did not say what a caller needs, is an error and never a figure.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent / "scripts"
TIMEOUT_S = 900
TURN_S = 0.2
HOTLOOP = [sys.executable, "-m", "hotloop"]


class Failure(Exception):
    """A run that gives no figure, and why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a script said and cost."""

    loop_s: float
    loop_cpu_s: float  # of the training process, inside the loop
    tree_cpu_s: float  # of everything that was started: the script, its children, the profiler, imports and reports too
    digest: str
    facts: dict[str, Any]  # the other `name=value` lines
    hand: dict[str, float]  # seconds by phase, empty without HAND_TIMES=1


def run_script(
    name: str, folder: Path, arguments: Sequence[str] = (), under: Sequence[str] = (), by_hand: bool = False
) -> Outcome:
    """Run `under... NAME.py arguments...` in `folder`; `under` defaults to the plain interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [*(under or [sys.executable]), str(SCRIPTS / f"{name}.py"), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HAND_TIMES": "1" if by_hand else "0"}
    before = _children_cpu_s()
    code, output, errors = run_command(command, folder, environment)
    return _parse(name, code, output, errors, _children_cpu_s() - before)


def run_in_turns(
    name: str, folder: Path, arguments: Sequence[str], variants: Mapping[str, Sequence[str]]
) -> dict[str, Outcome | Failure]:
    """Run the script under each variant, all at once and one at a time, in an order that is drawn anew for every turn. `loop_s`
    is the time for which a run had the machine while it was in its loop."""
    places = {variant: folder / f"{name}-{variant.replace(' ', '-')}" for variant in variants}
    runs = {variant: _Turns(name, places[variant], arguments, under) for variant, under in variants.items()}
    order, draw = list(runs.values()), random.Random(str(folder))
    until = time.monotonic() + TIMEOUT_S * len(runs)
    while any(not run.is_done for run in order) and time.monotonic() < until:
        draw.shuffle(order)
        for run in order:
            run.go_on()
    return {variant: run.outcome() for variant, run in runs.items()}


class _Turns:
    """One run that is stopped and goes on, with everything it starts."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str], under: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name, self._output, self._errors = name, folder / "stdout.txt", folder / "stderr.txt"
        command = [*under, str(SCRIPTS / f"{name}.py"), *arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HAND_TIMES": "0"}
        with open(self._output, "w") as output, open(self._errors, "w") as errors:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        os.killpg(self._process.pid, signal.SIGSTOP)
        self._turns: list[tuple[float, float]] = []
        self._cpu_s = 0.0
        self.is_done = False

    def go_on(self) -> None:
        if self.is_done:
            return
        begin = time.perf_counter()
        os.killpg(self._process.pid, signal.SIGCONT)
        time.sleep(TURN_S)
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            self.is_done = True
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._cpu_s = usage.ru_utime + usage.ru_stime
        else:
            os.killpg(self._process.pid, signal.SIGSTOP)
        self._turns.append((begin, time.perf_counter()))

    def outcome(self) -> Outcome | Failure:
        if not self.is_done:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            return Failure(f"{self._name} took longer than {TIMEOUT_S} s")
        try:
            code, output, errors = self._process.returncode, self._output.read_text(), self._errors.read_text()
            said = _parse(self._name, code, output, errors, self._cpu_s)
        except Failure as failure:
            return failure
        begin = said.facts["loop_began"]
        end = begin + said.loop_s
        return replace(said, loop_s=sum(max(0.0, min(b, end) - max(a, begin)) for a, b in self._turns))


def run_recorded(
    name: str, folder: Path, arguments: Sequence[str] = (), by_hand: bool = False
) -> tuple[Outcome, dict[str, Any]]:
    """Run a script under `hotloop run`; its outcome and the JSON report of the session, which stays in folder/session."""
    under = [*HOTLOOP, "run", "--quiet", "--out", "session"]
    outcome = run_script(name, folder, arguments, under, by_hand)
    code, output, errors = run_command([*HOTLOOP, "report", "session", "--json"], folder, dict(os.environ))
    if code:
        raise Failure(f"no report of {name}: {_last_line(errors)}")
    return outcome, json.loads(output)


def run_command(
    command: Sequence[str], folder: Path, environment: dict[str, str], limit_s: float = TIMEOUT_S
) -> tuple[int, str, str]:
    """Exit code, standard output, standard error. In a group of its own, so that a time-out ends the children too."""
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Failure(f"{command[0]} could not be started ({error.strerror})") from None
    try:
        output, errors = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise Failure(f"{Path(command[-1]).name} took longer than {limit_s:g} s") from None
    return child.returncode, output, errors


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _parse(name: str, code: int, output: str, errors: str, cpu_s: float) -> Outcome:
    if code:
        raise Failure(f"{name} ended with {code}: {_last_line(errors)}")
    facts: dict[str, Any] = {}
    hand: dict[str, float] = {}
    for line in output.splitlines()[-12:]:
        if line.startswith("hand {"):
            hand = json.loads(line.removeprefix("hand "))
        elif "=" in line and " " not in line.partition("=")[0]:
            key, _, text = line.partition("=")
            try:
                facts[key] = json.loads(text)
            except ValueError:
                facts[key] = text
    try:
        return Outcome(
            loop_s=facts.pop("loop_seconds"),
            loop_cpu_s=facts.pop("loop_cpu_seconds"),
            tree_cpu_s=cpu_s,
            digest=str(facts.pop("digest")),
            facts=facts,
            hand=hand,
        )
    except KeyError as missing:
        raise Failure(f"{name} did not print {missing.args[0]}") from None


def _last_line(text: str) -> str:
    """What went wrong: the script's own last line stands before the profiler's."""
    lines = text.strip().splitlines() or ["it said nothing"]
    own = [line for line in lines if not line.startswith(("hotloop:", "py-spy>"))]
    return " | ".join(dict.fromkeys([*own[-1:], lines[-1]]))
