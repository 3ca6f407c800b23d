"""10⁸ spans: memory stays, the file stays, the cost per span stays.

python benchmarks/long_run.py [SPANS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import hotloop
from benchmarks.measure import Table
from hotloop import profile, step


def anonymous_mb() -> float:
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Anonymous:")) / 1024


def mapped_mb() -> float:
    total = 0
    with open("/proc/self/maps") as file:
        for line in file:
            if ".hls" in line:
                begin, end = line.split()[0].split("-")
                total += int(end, 16) - int(begin, 16)
    return total / 2**20


def burst(n: int) -> None:
    for _ in range(n):
        with profile("x"):
            pass


def main() -> int:
    spans = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 100_000_000
    chunk = spans // 100
    with tempfile.TemporaryDirectory() as folder:
        path = hotloop.start(out=folder)
        burst(200_000)
        step()
        before = anonymous_mb()
        costs = []
        for _ in range(100):
            begin = time.perf_counter_ns()
            burst(chunk)
            costs.append((time.perf_counter_ns() - begin) / chunk)
            step()
        grown, mapped = anonymous_mb() - before, mapped_mb()
        disk = sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) / 2**20
        hotloop.stop()
        recorded = hotloop.get_profiler().summary()["operations"]["x"]["call_count"]
    table = Table(f"{recorded:,} spans")
    table.add("anonymous memory growth", grown, 8, "MB")
    table.add("mapped shards", mapped, 64, "MB")
    table.add("session on disk", disk, 64, "MB")
    first, last = sorted(costs[:20])[10], sorted(costs[-20:])[10]
    table.add("cost per span, last fifth / first fifth (median)", last / first, 1.1)
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
