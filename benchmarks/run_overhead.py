"""What `hotloop run` costs a training loop: bare and recorded in turns, with a bare/bare control, and peers beside them.

    python benchmarks/run_overhead.py [--pairs 10] [--peers] [--before FOLDER/src] [--scripts sb3_ppo …] [--json FILE]
    (pip install -c constraints.txt torch stable-baselines3 tensorboard; peers: py-spy pyinstrument viztracer; half an hour)

In a round bare, recorded and control take turns of a fifth of a second, in random order, the others stopped meanwhile: all
meet the same machine. Ratios are formed within a round; their geometric mean stands with a 95 % t-interval on the
logarithms. Peers cannot all be stopped, so they run one after the other, with a bare run of their own.
Three ratios: wall time of the loop, processor time of the training process inside the loop, and processor time of
everything that was started (with imports, supervisor and reports). The machines are shared: where wall and processor
time disagree, look at the control. `--before`: the source folder of another HotLoop (a checkout of an earlier commit, its
extension built in place), which takes its turns in the same rounds.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scipy import stats

from benchmarks.measure import Table
from benchmarks.run.programs import HOTLOOP, Failure, Outcome, run_in_turns, run_script

MEAN_BAR, UPPER_BAR = 1.03, 1.05
DEFAULT_SCRIPTS = ("sb3_ppo", "cleanrl_ppo", "cleanrl_dqn")
TORCH_PROFILED = str(Path(__file__).resolve().parent / "run" / "torch_profiled.py")
BARE = [sys.executable]
PEERS = {
    "py-spy record": ["py-spy", "record", "-f", "raw", "-o", "profile.txt", "--", sys.executable],
    "pyinstrument": [sys.executable, "-m", "pyinstrument", "-r", "json", "-o", "profile.json"],
    "viztracer": [sys.executable, "-m", "viztracer", "--quiet", "-o", "profile.json", "--"],
    "cProfile": [sys.executable, "-m", "cProfile", "-o", "profile.prof"],
    "torch.profiler": [sys.executable, TORCH_PROFILED],
}
PEERS_BARE = "bare beside the peers"
BEFORE = "hotloop run before"
CLOCKS = {"loop_s": "loop wall", "loop_cpu_s": "loop processor time", "tree_cpu_s": "whole tree's processor time"}


@dataclass(frozen=True, slots=True)
class Ratio:
    """A geometric mean with its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def note(self) -> str:
        if self.pairs < 2:
            return "1 pair, no interval"
        return f"95 % {self.low:.3f}–{self.high:.3f}, {self.pairs} pairs"


def geometric_ratio(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Ratios pair by pair; one pair has no interval."""
    logs = [math.log(a / b) for a, b in zip(over, under, strict=True)]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(mean), 0.0, math.inf, len(logs))
    half = float(stats.t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


@dataclass
class Series:
    """The rounds of one script: variant by variant, absent where it was not run or gave no figure."""

    rounds: list[dict[str, Outcome]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, outcomes: Mapping[str, Outcome | Failure]) -> None:
        self.rounds.append({variant: outcome for variant, outcome in outcomes.items() if isinstance(outcome, Outcome)})
        self.failures |= {variant: str(failure) for variant, failure in outcomes.items() if isinstance(failure, Failure)}

    def ratio(self, variant: str, clock: str, bare: str = "") -> Ratio | None:
        bare = bare or (PEERS_BARE if variant in PEERS else "bare")
        pairs = [(r[variant], r[bare]) for r in self.rounds if variant in r and bare in r]
        if not pairs:
            return None
        return geometric_ratio([getattr(a, clock) for a, _ in pairs], [getattr(b, clock) for _, b in pairs])

    def digests(self, variant: str) -> list[str]:
        return [r[variant].digest for r in self.rounds if variant in r]


def measure(script: str, options: argparse.Namespace, folder: Path) -> Series:
    recorded = [*HOTLOOP, "run", "--quiet", "--out", "session"]
    arguments = ["--steps", str(options.steps)] if options.steps else []
    series = Series()
    variants = {"bare": BARE, "hotloop run": recorded, "control": BARE}
    if options.before:
        variants[BEFORE] = ["env", f"PYTHONPATH={Path(options.before).resolve()}", *recorded]
    for number in range(options.pairs):
        place = folder / script
        series.add(run_in_turns(script, place, arguments, variants))
        shown = "  ".join(f"{variant} {outcome.loop_s:.2f}" for variant, outcome in series.rounds[-1].items())
        print(f"  {script} {number + 1}/{options.pairs}: {shown}", file=sys.stderr, flush=True)
        if options.peers and number < options.peer_pairs:
            beside = {PEERS_BARE: BARE, **PEERS}
            order = list(beside) if number % 2 == 0 else list(beside)[::-1]
            series.add({peer: run_alone(script, place / peer.replace(" ", "-"), arguments, beside[peer]) for peer in order})
        shutil.rmtree(place)
    return series


def run_alone(script: str, folder: Path, arguments: Sequence[str], under: Sequence[str]) -> Outcome | Failure:
    try:
        return run_script(script, folder, arguments, under)
    except Failure as failure:
        return failure


def add_rows(table: Table, script: str, series: Series) -> None:
    ours = series.ratio("hotloop run", "loop_s")
    if ours is not None:
        table.add(f"{script}: hotloop run / bare, loop wall", ours.mean, MEAN_BAR, note=ours.note)
        table.add("  upper 95 % limit", ours.high, UPPER_BAR)
    for variant in ("control", "hotloop run"):
        for clock, what in CLOCKS.items():
            ratio = series.ratio(variant, clock)
            if ratio is not None and (variant, clock) != ("hotloop run", "loop_s"):
                table.add(f"  {variant} / bare, {what}", ratio.mean, None, note=ratio.note)
    for clock in ("loop_s", "loop_cpu_s"):
        change = series.ratio("hotloop run", clock, BEFORE)
        if change is not None:
            table.add(f"  now / before, {CLOCKS[clock]}", change.mean, None, note=change.note)
            if clock == "loop_cpu_s":
                table.add("  its lower 95 % limit: not above before", change.low, 1.0)
    digests = {digest for variant in ("bare", "control", "hotloop run") for digest in series.digests(variant)}
    compared = len(series.digests("hotloop run"))
    if compared:
        table.add("  different results among all runs", len(digests) - 1, 0, "", note=f"{compared} recorded runs")
    for peer in PEERS:
        ratio = series.ratio(peer, "loop_s")
        if ratio is not None:
            table.add(f"  {peer} / bare, loop wall", ratio.mean, None, note=ratio.note)
    for variant, why in series.failures.items():
        table.add(f"  runs without a figure: {variant}", 1, None if variant in PEERS else 0, "", note=why)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--scripts", nargs="+", default=list(DEFAULT_SCRIPTS))
    parser.add_argument("--steps", type=int, default=0, help="environment steps of every script; 0: its own default")
    parser.add_argument("--before", metavar="SRC", help="the src folder of another HotLoop, to be measured in the same rounds")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--peer-pairs", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.pairs < 2:
        parser.error("an interval needs at least two pairs")
    table = Table(f"hotloop run against bare, {options.pairs} rounds in turns")
    with tempfile.TemporaryDirectory(prefix="run-overhead-") as folder:
        for script in options.scripts:
            add_rows(table, script, measure(script, options, Path(folder)))
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
