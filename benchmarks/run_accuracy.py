"""Do the phases of `hotloop run` agree with timing by hand inside the same script, and how much is measured directly?

    python benchmarks/run_accuracy.py [--scripts sb3_ppo …] [--runs 1] [--json FILE]
    (pip install -c constraints.txt torch stable-baselines3 torchrl tensorboard; about two minutes)

Each script runs once, recorded, and times its own phases (HAND_TIMES=1). Both sides are put as points of their own loop
wall and compared phase by phase; time that a side gives to no phase is the phase "(none)". The total variation is half
the sum of the differences. A session that holds no phases is a miss, not a skip.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table
from benchmarks.run.programs import Failure, Outcome, run_recorded

PHASE_BAR, VARIATION_BAR = 2.0, 3.0
COVERAGE_BARS = {"sb3_ppo": 90.0, "torchrl_ppo": 88.0, "cleanrl_ppo": 82.0, "cleanrl_dqn": 79.0, "plain_dqn": 79.0}
ARGUMENTS = {"sb3_ppo": ["--eval-every", "5000"]}
REST = "(none)"


def hand_points(outcome: Outcome) -> dict[str, float]:
    points = {phase: 100 * seconds / outcome.loop_s for phase, seconds in outcome.hand.items()}
    return points | {REST: 100 - sum(points.values())}


def measured_points(report: dict[str, Any]) -> dict[str, float]:
    """Direct and inferred time of a phase together, in points of the loop."""
    loop_s = report["loop_s"]
    points = {row["phase"]: 100 * (row["direct_s"] + row["inferred_s"]) / loop_s for row in report["phases"]}
    return points | {REST: 100 - sum(points.values())}


def compare(table: Table, script: str, outcome: Outcome, report: dict[str, Any]) -> None:
    if not report.get("phases") or not report.get("loop_s"):
        raise Failure("the report holds no phases")
    hand, ours = hand_points(outcome), measured_points(report)
    phases = sorted(hand.keys() | ours.keys(), key=lambda phase: -hand.get(phase, 0.0))
    differences = {phase: ours.get(phase, 0.0) - hand.get(phase, 0.0) for phase in phases}
    for phase in phases:
        note = f"hand {hand.get(phase, 0.0):.2f}, hotloop {ours.get(phase, 0.0):.2f}"
        table.add(f"{script}: {phase}, off by", abs(differences[phase]), PHASE_BAR, "pt", note=note)
    table.add(f"{script}: total variation", sum(map(abs, differences.values())) / 2, VARIATION_BAR, "pt")
    loop_note = f"script {outcome.loop_s:.3f} s, hotloop {report['loop_s']:.3f} s"
    table.add(f"{script}: loop, hotloop / script", report["loop_s"] / outcome.loop_s, None, note=loop_note)
    coverage = report.get("direct_coverage")
    if coverage is None:
        raise Failure("the report holds no direct_coverage")
    table.add(f"{script}: direct coverage", 100 * coverage, COVERAGE_BARS.get(script), "%", above=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", nargs="+", default=list(COVERAGE_BARS))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="environment steps of every script; 0: its own default")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    table = Table("phases of hotloop run against timing by hand, in points of loop wall")
    size = ["--steps", str(options.steps)] if options.steps else []
    with tempfile.TemporaryDirectory(prefix="run-accuracy-") as folder:
        for script in options.scripts:
            for number in range(options.runs):
                print(f"  {script} {number + 1}/{options.runs}", file=sys.stderr, flush=True)
                place = Path(folder) / f"{script}-{number}"
                try:
                    compare(table, script, *run_recorded(script, place, [*ARGUMENTS.get(script, []), *size], by_hand=True))
                except Failure as failure:
                    table.add(f"{script}: runs without a figure", 1, 0, "", note=str(failure))
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
