"""A hundred thousand damaged sessions, and one cut off at every byte: is each read in part or refused, in bounds?

python benchmarks/fuzz_reader.py                                  all of it: 10⁵ mutations, then every size of a small shard
python benchmarks/fuzz_reader.py --count 5000 --step 997          a sample
python benchmarks/fuzz_reader.py --first 100000 --keep faults     other seeds; sessions that find a fault are kept in a folder

The sessions come from `tests/faults/hostile.py`, the damage from `mutations.py`, the limits from `fuzz_worker.py` beside it.
Time is processor time: the machines are shared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.faults.fuzz_worker import MEMORY_BYTES, SECONDS, Tally, run_workers
from tests.faults.hostile import make_corpus

from benchmarks.measure import Table

CUT = "tasks-native"  # the smallest


class Progress:
    """A line that is written over, once in a while."""

    def __init__(self, what: str, whole: int) -> None:
        self.what, self.whole = what, whole
        self.begin = self.shown = time.monotonic()

    def __call__(self, tally: Tally) -> None:
        now = time.monotonic()
        if now - self.shown > 5:
            self.shown = now
            left = (now - self.begin) * (self.whole / max(1, tally.count) - 1)
            line = f"{self.what}: {tally.count:,} of {self.whole:,}, {len(tally.faults)} faults, {left / 60:.0f} min left"
            print(line, end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


def add_rows(table: Table, what: str, tally: Tally, whole: int) -> None:
    outcomes = ", ".join(f"{name} {count:,}" for name, count in sorted(tally.outcomes.items()))
    table.add(f"{what}: sessions", tally.count, whole, "", above=True, note=outcomes)
    table.add(f"{what}: faults", len(tally.faults), 0, "")
    table.add(f"{what}: the slowest", tally.slowest[0], SECONDS, "s", note=tally.slowest[1])
    table.add(f"{what}: the largest", tally.largest[0] / 2**20, MEMORY_BYTES / 2**20, "MB", note=tally.largest[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--step", type=int, default=1, help="cut at every so many bytes; 0: do not cut")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="a folder for the sessions that find a fault")
    parser.add_argument("--json", type=Path, help="write the table there")
    options = parser.parse_args()
    keep = options.keep.resolve() if options.keep else None
    table = Table("reading what anyone hands us")
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        sessions = make_corpus(Path(folder))
        size = max(path.stat().st_size for path in sessions[CUT].rglob("*.hls"))
        tasks = [("mutations", "mutations", range(options.first, options.first + options.count))]
        if options.step:
            tasks.append(("cuts", CUT, range(0, size, options.step)))
        for name, what, numbers in tasks:
            tally = run_workers(Path(folder), what, numbers, options.workers, keep, Progress(name, len(numbers)))
            add_rows(table, name, tally, len(numbers))
            print(*(f"{row['what']} {row['value']:,.3f} {row['note']}" for row in table.rows[-4:]), sep="\n", file=sys.stderr)
            faults += tally.faults
    for text in faults[:10]:
        print(text, file=sys.stderr)
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
