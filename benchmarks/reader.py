"""Reading a session of 10⁶ events and 10⁴ labels, and the terminal report of it.

python benchmarks/reader.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table

MAKE = """
import sys, hotloop
from hotloop import profile
path = hotloop.start(out=sys.argv[1], budget=96 << 20, log_events=2_000_000, ring_events=65536)
names = [f"label/{i:05d}" for i in range(10_000)]
for i in range(102):
    for name in names:
        with profile(name): pass
    if i == 100:  # the timeline keeps the first iterations in full
        hotloop.count("env_steps", 256); hotloop.step()
print(path)
hotloop.stop()
"""

READ = """
import sys, time
begin = time.perf_counter()
from hotloop.store.reader import read_session
from hotloop.analyse.diagnosis import diagnose
imported = time.perf_counter()
session = read_session(sys.argv[1])
loaded = time.perf_counter()
report = diagnose(session)
import json
print(json.dumps({"events": len(session.events), "labels": len(report.operations), "import": imported - begin,
                  "load": loaded - imported, "report": time.perf_counter() - loaded}))
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", MAKE, folder], capture_output=True, text=True, check=True)
        path = done.stdout.strip()
        size = sum(f.stat().st_size for f in Path(path).rglob("*") if f.is_file()) / 2**20
        runs = []
        for _ in range(5):
            done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout))
        commands = []
        for _ in range(5):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-m", "hotloop", "report", path], capture_output=True, check=True)
            commands.append(time.perf_counter() - begin)
    best = min(runs, key=lambda r: r["load"] + r["report"])
    table = Table(f"reading {best['events']:,} events and {best['labels']:,} labels ({size:.0f} MB)")
    table.add("reading", best["load"], 1.0, "s")
    table.add("diagnosis from it", best["report"], None, "s")
    table.add("`hotloop report`, from command to text", min(commands), 1.5, "s", note=f"of {len(commands)}")
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
