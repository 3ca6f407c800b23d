"""What `hotloop run` sees in child processes and threads, and where its samples land.

    python benchmarks/run_children.py [--only subproc async_vec threads hot_function] [--json FILE]
    (pip install -c constraints.txt torch stable-baselines3; about three minutes)

Environment steps under every start method against the number the script made; the lanes (a process, or a thread, per
worker); the straggler by name; the share of samples in a planted hot function against its share by the clock, and its
lines; the size of each session on disk. What a report does not hold is a miss, not a skip.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table
from benchmarks.run.programs import Failure, Outcome, run_recorded

SIZE_BAR_MB = 64.0
LANDED_BAR = 90.0
START_UP = {"startup", "start-up", "start_up", "start"}
CASES = {
    "subproc": ("--start", ("fork", "spawn", "forkserver")),
    "async_vec": ("--context", ("fork", "spawn", "forkserver")),
    "threads": ("", ("",)),
}


def session_size_mb(folder: Path) -> float:
    """What the files take on disk: shards are mapped, so length alone would flatter or frighten."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 2**20


def check_steps(table: Table, case: str, outcome: Outcome, report: dict[str, Any]) -> None:
    true, counted = outcome.facts["env_steps"], report["counters"].get("env_steps", 0)
    table.add(f"{case}: env steps off by", abs(counted - true), 0, "", note=f"true {true}, counted {counted}")


def check_lanes(table: Table, case: str, outcome: Outcome, report: dict[str, Any]) -> None:
    """One lane per worker besides the main one: a process each, or a thread each in one process."""
    workers = outcome.facts["workers"]
    if case == "threads":
        main = report["processes"][0]["pid"] if report["processes"] else None
        lanes = sum(track["process"] == main for track in report["tracks"]) - 1
    else:
        lanes = len(report["processes"]) - 1
    lanes = max(lanes, 0)  # a session without any shard
    note = f"{workers} workers, {lanes} lanes"
    table.add(f"{case}: lanes of workers off by", abs(lanes - workers), 0, "", note=note)


def check_straggler(table: Table, case: str, outcome: Outcome, report: dict[str, Any]) -> None:
    """The slow environment is named by its number or its class."""
    slow = outcome.facts["slow"]
    named = report.get("stragglers")
    text = json.dumps(named)
    found = bool(named) and (str(slow) in re.findall(r"\d+", text) or "Lagging" in text)
    table.add(f"{case}: stragglers missed", int(not found), 0, "", note=f"environment {slow} is slow, report says {text}")


def check_children(table: Table, options: argparse.Namespace, folder: Path) -> None:
    for script, (flag, methods) in CASES.items():
        if script not in options.only:
            continue
        for method in methods:
            case = f"{script} {method}".strip()
            print(f"  {case}", file=sys.stderr, flush=True)
            place = folder / case.replace(" ", "-")
            arguments = [*([flag, method] if flag else []), *(["--steps", str(options.steps)] if options.steps else [])]
            try:
                outcome, report = run_recorded(script, place, arguments)
            except Failure as failure:
                table.add(f"{case}: runs without a figure", 1, 0, "", note=str(failure))
                continue
            check_steps(table, case, outcome, report)
            check_lanes(table, case, outcome, report)
            check_straggler(table, case, outcome, report)
            table.add(f"{case}: session on disk", session_size_mb(place / "session"), SIZE_BAR_MB, "MB")


def check_lines(table: Table, options: argparse.Namespace, folder: Path) -> None:
    """Samples inside the loop, wherever they fell, against the planted function's own clock."""
    print("  hot_function", file=sys.stderr, flush=True)
    place = folder / "hot_function"
    outcome, report = run_recorded("hot_function", place, ["--steps", str(options.steps)] if options.steps else [])
    planted = outcome.facts["planted"]
    rows = [row for row in report.get("lines") or [] if str(row["phase"]).lower() not in START_UP]
    samples = sum(row["samples"] for row in rows)
    if not samples:
        raise Failure("the report holds no lines")
    named = [row for row in rows if row["function"].split(".")[-1] == planted["function"]]
    inside = [row for row in named if row["file"].endswith("hot_function.py")]
    landed = sum(row["samples"] for row in inside)
    expected = planted["share"] * samples
    note = f"{landed} of {samples} samples, {100 * landed / samples:.1f} %; by the clock {100 * planted['share']:.1f} %"
    table.add("hot_function: samples that landed in it", 100 * landed / expected, LANDED_BAR, "%", above=True, note=note)
    lines = range(planted["first_line"], planted["last_line"] + 1)
    astray = sum(row["samples"] for row in inside if row["line"] not in lines or row["first_line"] != planted["first_line"])
    note = f"lines {planted['first_line']}–{planted['last_line']}"
    table.add("hot_function: samples outside its lines", astray, 0, "", note=note)
    table.add("hot_function: session on disk", session_size_mb(place / "session"), SIZE_BAR_MB, "MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[*CASES, "hot_function"])
    parser.add_argument("--steps", type=int, default=0, help="environment steps of every script; 0: its own default")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    table = Table("children, threads and lines under hotloop run")
    with tempfile.TemporaryDirectory(prefix="run-children-") as folder:
        check_children(table, options, Path(folder))
        if "hot_function" in options.only:
            try:
                check_lines(table, options, Path(folder))
            except Failure as failure:
                table.add("hot_function: runs without a figure", 1, 0, "", note=str(failure))
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
