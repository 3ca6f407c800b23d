"""What the hand-placed spans cost the five examples: counted, and by running each with profiling on and off in turns.

    python benchmarks/examples.py [PAIRS]        (pip install -c constraints.txt ".[demo]"; about two minutes a pair)

Every session is also drawn in all views, which must say the same (tests/one_answer.py).
Counted: spans × calibrated cost ÷ wall. In turns: processor time with ÷ without, ABBA, the median over the pairs; processor
time, because the machines are shared.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.one_answer import check_one_answer

from benchmarks.measure import Table
from hotloop.analyse.diagnosis import diagnose
from hotloop.store.reader import read_session

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = {
    "ricochet_rgb": "train_agent.py --obs-mode rgb_image --convlstm --timesteps 1024 --image-size 32 --enable-profiling",
    "petri_ppo": "train.py --batches 6 --turbo",
    "battle_threads": "train.py --episodes 256 --profile --profile-name bench",
    "supervised_to_ppo": "tools/run.py cvc.thinky_supervised_to_ppo trainer.total_timesteps=60_000 supervised_steps=30_000",
    "snake_dqn": "scripts/training/train_dqn_mlp.py --env-steps 40000 --push batch --train-steps 1",
}

# The same script, in which start() does nothing: every span is there and off.
OFF = """
import pathlib, runpy, sys, hotloop
hotloop.start = lambda *args, **options: pathlib.Path("not-recorded")
hotloop.stop = lambda: pathlib.Path("not-recorded")
sys.argv = sys.argv[1:]
sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(name: str, on: bool) -> tuple[float, list[tuple[float, float, float]]]:
    """Processor seconds of the command and its children, and what its sessions say."""
    script, *rest = EXAMPLES[name].split()
    words = [str(ROOT / "examples" / name / script), *rest, *(["loss.timing_every=1000"] if on and "thinky" in rest[0] else [])]
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *words] if on else [sys.executable, "-c", OFF, *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(f"{name} ({'on' if on else 'off'}) failed:\n{done.stderr[-2000:]}")
        if on and not list(Path(folder).rglob("session.json")):
            raise SystemExit(f"{name} left no session:\n{done.stdout[-2000:]}")
        shares = [counted(path.parent) for path in Path(folder).rglob("session.json")]
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, shares


def counted(path: Path) -> tuple[float, float, float]:
    """Spans × cost ÷ wall, coverage, profiler share of a session; all its views must say the same."""
    session = read_session(path)
    check_one_answer(session)
    report = diagnose(session)
    cost_ns = report.quality.recorded * report.quality.own_cost_ns
    profiler = report.ledger.balances[0].profiler_ns / report.wall_ns
    return cost_ns / report.wall_ns * 100, report.numbers.coverage * 100, profiler * 100


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 3
    os.environ["OMP_NUM_THREADS"] = "1"
    table = Table(f"the examples, {pairs} pairs each")
    for name in EXAMPLES:
        ratios, shares = [], []
        for pair in range(pairs):
            times = {}
            for on in (True, False) if pair % 2 == 0 else (False, True):
                times[on], seen = run(name, on)
                shares += seen
            ratios.append(times[True] / times[False])
        spans, coverage, profiler = (statistics.median(column) for column in zip(*shares, strict=True))
        table.add(f"{name}: spans × cost ÷ wall", spans, 1.0, "%")
        table.add(f"{name}: unattributed", 100 - coverage, 5.0, "%", note=f"profiler {profiler:.2f} %")
        note = f"{min(ratios):.3f}–{max(ratios):.3f}" if pairs > 1 else ""
        table.add(f"{name}: processor time on / off", statistics.median(ratios), None, "×", note=note)
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
