"""Every promise about comparing and scaling, on data whose truth is known: the figures next to their bars.

    python benchmarks/statistics                 # all rows, 20 real A/A comparisons; about ten minutes
    python benchmarks/statistics --real 100      # as promised: a hundred of them
    python benchmarks/statistics --quick         # a tenth of the simulations, no real runs
    python benchmarks/statistics --seeds 0       # without the recorded Snake DQN replays (4 seeds of 5 causes)

(The folder has no `__init__.py` on purpose: scripts beside it import the standard library's `statistics`.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Table
from benchmarks.statistics.calibration import calibrate, claim, cover, detect
from benchmarks.statistics.growth import fit_exponents
from benchmarks.statistics.real import compare_real
from benchmarks.statistics.replay import replay, simulate

QUICK = "--quick" in sys.argv
COUNT = 200 if QUICK else 2000


def main() -> int:
    real = int(sys.argv[sys.argv.index("--real") + 1]) if "--real" in sys.argv else 0 if QUICK else 20
    seeds = int(sys.argv[sys.argv.index("--seeds") + 1]) if "--seeds" in sys.argv else 0 if QUICK else 4
    table = Table(f"comparing and scaling: {COUNT} simulated comparisons a row")
    parts: list[Callable[[Table], None]] = [
        *(partial(part, count=COUNT) for part in (calibrate, cover, detect, fit_exponents, simulate)),
        partial(claim, count=COUNT // 10),
        *([partial(replay, seeds=seeds)] if seeds else []),
        *([partial(compare_real, count=real)] if real else []),
    ]
    for part in parts:
        shown = len(table.rows)
        part(table)
        for row in table.rows[shown:]:  # a first look: all of it takes minutes
            print(f"  … {row['what']}: {row['value']:.3f} {row['note']}", file=sys.stderr, flush=True)
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
