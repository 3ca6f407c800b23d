"""The last profiling sessions side by side, from `logs/profiling/raw`.

    python compare_sessions.py
    python compare_sessions.py --last 3 --folder logs/profiling/raw

Seconds are wall seconds per episode in which at least one thread was inside the operation; the percentage is of the session's
wall time and never above 100. The last column compares the last session's seconds per episode with those of the one before it:
one run against one run, so a difference may be chance.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS = (
    "env_reset", "env_step", "env_send", "env_server_wait", "env_parse", "env_parallel_execution",
    "gradient_calculation", "loss_calculation", "optimizer_step",
    "agent_action_selection", "agent_value_calculation",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One session's file."""

    name: str
    timestamp: str
    summary: dict[str, Any]

    @property
    def episodes(self) -> int:
        return max(1, self.summary["counters"].get("episodes", 0))

    @property
    def wall_s(self) -> float:
        return float(self.summary["wall_time"])

    def union_s(self, metric: str) -> float | None:
        operation = self.summary["operations"].get(metric)
        return None if operation is None else min(operation["union_time"], self.wall_s)


def read_runs(folder: Path, last: int) -> tuple[list[Run], list[str]]:
    """The latest sessions, the latest last, and a sentence for each file that is none."""
    runs, problems = [], []
    for path in folder.glob("*.json"):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            run = Run(path.stem, data["timestamp"], data["summary"])
            _ = run.wall_s, run.episodes, [run.union_s(metric) for metric in METRICS]
            runs.append(run)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(f"left out {path}: not a session's file ({type(error).__name__}: {error})")
    return sorted(runs, key=lambda run: (run.timestamp, run.name))[-last:], problems


def cell(seconds: float | None, run: Run) -> str:
    if seconds is None:
        return "-"
    share = seconds / run.wall_s if run.wall_s else 0.0
    return f"{seconds / run.episodes:.4f}s {share:6.1%}"


def change(runs: list[Run], values: list[float | None]) -> str:
    """The last against the one before, per episode."""
    if len(runs) < 2 or not values[-2] or values[-1] is None:
        return "-"
    ratio = (values[-1] / runs[-1].episodes) / (values[-2] / runs[-2].episodes)
    return f"{ratio - 1:+.0%}"


def table(runs: list[Run]) -> str:
    unattributed = [float(run.summary["unattributed_time"]) for run in runs]
    rows = [["", *(run.name for run in runs), "last/before"]]
    rows.append(["episodes", *(f"{run.episodes:,}" for run in runs), ""])
    rows.append(["env steps/s", *(f"{run.summary['counters'].get('env_steps', 0) / run.wall_s:,.0f}" for run in runs), ""])
    rows.append(["episode time", *(cell(run.wall_s, run) for run in runs), change(runs, [run.wall_s for run in runs])])
    for metric in METRICS:
        values = [run.union_s(metric) for run in runs]
        rows.append([metric, *(cell(value, run) for value, run in zip(values, runs, strict=True)), change(runs, values)])
    rows.append(["(unattributed)", *map(cell, unattributed, runs), change(runs, unattributed)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))) for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def main() -> int:
    parser = argparse.ArgumentParser(description="The last profiling sessions side by side.")
    parser.add_argument("--folder", type=Path, default=Path("logs/profiling/raw"), help="where train.py --profile wrote them")
    parser.add_argument("--last", type=int, default=5, help="how many, the latest ones (default: 5)")
    settings = parser.parse_args()
    if settings.last < 1:
        parser.error("--last must be at least 1")
    runs, problems = read_runs(settings.folder, settings.last)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not runs:
        print(f"no session in {settings.folder}; record one: python train.py --profile --profile-name NAME", file=sys.stderr)
        return 3
    print(table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
