"""Real short A/A comparisons: the same command on both sides, run by the code behind `hotloop ab`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Table

from hotloop.analyse.compare import Comparison, compare_runs
from hotloop.experiment.command import parse_command
from hotloop.experiment.reading import read_recorded, reduce_arms
from hotloop.experiment.runner import Arm, Setting, run_slots
from hotloop.experiment.schedule import make_schedule

SCRIPT = """
import random
from hotloop import count, profile, step
for i in range(120):
    with profile("env_step"): sorted(random.random() for _ in range(600))
    with profile("learn"): sum(x * x for x in range(4000))
    count("env_steps", 1); step()
"""


def compare_once(number: int, pairs: int) -> Comparison:
    with tempfile.TemporaryDirectory(prefix="hotloop-") as scratch:
        folder = Path(scratch)
        (folder / "train.py").write_text(SCRIPT)
        arms = {letter: Arm(letter, parse_command("train.py"), folder) for letter in "AB"}
        slots = make_schedule("AB", pairs, number)
        sessions, _ = run_slots(slots, arms, Setting(folder / "runs", f"aa-{number}", number, essential="AB"), lambda _: None)
        return compare_runs(*reduce_arms(*([read_recorded(p) for p in sessions[letter]] for letter in "AB")))


def compare_real(table: Table, count: int, pairs: int = 5) -> None:
    alarms = words = unexact = 0
    for number in range(count):
        c = compare_once(number, pairs)
        alarms += c.p is not None and c.p < 0.05
        words += c.verdict in ("faster", "slower")
        unexact += sum(part.delta_ns for part in c.components) != c.total.delta_ns
        print(f"\r  real A/A {number + 1}/{count}: {alarms} alarms", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    note = f"({count} comparisons of {pairs} pairs; said faster or slower {words}; the first run counts)"
    table.add(
        "real A/A: alarms, of 100" if count == 100 else f"real A/A: alarms, of {count}",
        alarms,
        max(1, count / 10),
        "",
        note=note,
    )
    table.add("real A/A: component differences that do not sum exactly", unexact, 0, "")
