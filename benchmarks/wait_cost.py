"""How late does recording a wait make the thread that wakes up? The origin of `LATE_NS` in analyse/runs.py.

    python benchmarks/wait_cost.py [--rounds 8]
    (pip install -c constraints.txt torch stable-baselines3; about ten minutes on two cores; let it run alone)

Programs of benchmarks/ab that wait for one another run bare and under `hotloop run --lines few`, in turns. What their loop
takes longer, less the own cost that HotLoop knows of and takes out, is divided by the waits that may have held it up
(`count_waits`). Neighbours on the machine make single figures negative or large: read the pooled one.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.ab_truth import SCRIPTS, read_loop, run
from benchmarks.measure import Table
from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.runs import LATE_NS, count_waits
from hotloop.store.reader import read_session

PROGRAMS = (
    "workers.py --pool processes --work sleep:1 --envs 4 --steps 6400",
    "threads.py --pool threads --work sleep:1 --envs 4 --steps 6400",
    "vector.py --vec async --work sleep:1 --envs 4 --steps 6400",
    "sb3.py --vec subproc --algo ppo --work sleep:2 --envs 4 --n-steps 64 --steps 2048",
)


def run_recorded(program: str) -> tuple[float, int]:
    """Seconds of the loop without what HotLoop takes out itself, and its waits."""
    with tempfile.TemporaryDirectory(prefix="wait-cost-") as scratch:
        session = Path(scratch) / "session"
        words = [sys.executable, "-m", "hotloop", "run", "--quiet", "--lines", "few", "--out", str(session)]
        seconds, _, _ = read_loop(run([*words, *program.split()]))
        diagnosis = diagnose(read_session(session))
        return seconds - diagnosis.numbers.profiler_ns / 1e9, count_waits(diagnosis)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    table = Table(f"microseconds that a recorded wait makes its thread late, {options.rounds} rounds in {SCRIPTS.name}/")
    means = []
    for program in PROGRAMS:
        late = []
        for _ in range(options.rounds):
            times: dict[str, float] = {}
            for way in random.sample(("bare", "recorded"), 2):
                if way == "bare":
                    times[way] = read_loop(run([sys.executable, *program.split()]))[0]
                else:
                    times[way], waits = run_recorded(program)
            late.append((times["recorded"] - times["bare"]) / waits * 1e6)
        error = statistics.stdev(late) / math.sqrt(len(late))
        means.append((statistics.mean(late), error**-2))
        table.add(program.split(" --steps")[0], means[-1][0], None, "µs", note=f"± {error:.1f}, {waits:,} waits")
    pooled = sum(mean * weight for mean, weight in means) / sum(weight for _, weight in means)
    table.add("all of them, weighted by their errors", pooled, LATE_NS / 1e3, "µs")
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
