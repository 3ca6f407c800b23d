"""Exporting a session of 10⁷ events: how much memory and time the whole command takes.

python benchmarks/trace_export.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table

# Ten processes that record at the same time, a million events each; a quarter of them in a nested span.
MAKE = """
import multiprocessing, sys, hotloop
from hotloop import profile

def record():
    for _ in range(250):
        with profile("rollout"):
            for _ in range(1000):
                with profile("policy"), profile("forward"): pass
                with profile("env_step"): pass
                with profile("store"): pass

path = hotloop.start(out=sys.argv[1], budget=80 << 20, child_budget=48 << 20, log_events=2_100_000, child_log_events=2_100_000)
context = multiprocessing.get_context("fork")
children = [context.Process(target=record, name=f"env-{i}") for i in range(9)]
for child in children: child.start()
record()
for child in children: child.join()
print(path)
hotloop.stop()
"""

EXPORT = """
import resource, sys
from hotloop.cli.main import main
if main(["trace", *sys.argv[1:]]): sys.exit("the export failed")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def export(session: str, target: Path, *options: str) -> tuple[float, float, float]:
    """Seconds, peak resident megabytes and the file's megabytes of one export in a process of its own."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", EXPORT, session, "-o", str(target), "--force", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begin
    *said, peak = done.stdout.splitlines()
    print("\n".join(said))
    return seconds, int(peak) / 1e6, os.path.getsize(target) / 1e6


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", MAKE, folder], capture_output=True, text=True, check=True)
        session = done.stdout.strip()
        table = Table("exporting 10⁷ events of 10 processes")
        for format, options in (
            ("chrome", ()), ("chrome", ("--limit", "100000")), ("speedscope", ()), ("collapsed", ()),
        ):  # fmt: skip
            seconds, peak, size = export(session, Path(folder, "out"), "--format", format, *options)
            what = " ".join((format, *options))
            table.add(f"{what}: peak memory", peak, 500, "MB", note=f"a file of {size:.0f} MB")
            table.add(f"{what}: time", seconds, None, "s")
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
