"""Is every second's mechanism right? A loop whose parts take their own times, under `hotloop run`.

    python benchmarks/mechanisms [--seconds 16]
    (pip install -c constraints.txt torch gymnasium; two minutes)

Each mix of parts runs once; for every mechanism, its share of the loop by HotLoop is compared with the stopwatch's, in points.
The mechanisms must also add up to the loop in whole nanoseconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.measure import Table, clean_env
from benchmarks.run.programs import Failure, run_command
from hotloop.analyse.diagnosis import diagnose
from hotloop.store.reader import read_session

HERE = Path(__file__).resolve().parent
MECHANISMS = {
    "i": "interpreting", "d": "dispatching", "c": "computing", "m": "moving", "w": "waiting", "g": "garbage", "s": "starting",
}  # fmt: skip
MIXES = ("idcmwgs", "iidd", "ccmm", "idw", "ddgs", "ic")
POINTS = 3.0


def run_mix(seconds: float, mix: str) -> tuple[dict[str, float], dict[str, float], int]:
    """Shares of the loop by the stopwatch and by HotLoop, and what the parts are off their sum, in nanoseconds."""
    with tempfile.TemporaryDirectory(prefix="mechanisms-") as scratch:
        session = Path(scratch) / "session"
        words = [sys.executable, "-m", "hotloop", "run", "--quiet", "--no-probe", "--out", str(session), "planted.py"]
        code, output, errors = run_command([*words, str(seconds), mix], HERE, clean_env() | {"OMP_NUM_THREADS": "1"}, 300)
        line = next((x for x in output.splitlines() if x.startswith("PLANTED ")), None)
        if code or line is None:
            raise Failure(f"ended with {code}: {errors[-500:]}")
        truth = json.loads(line.removeprefix("PLANTED "))
        diagnosis = diagnose(read_session(session))
    limits = diagnosis.limits
    said = sum(limits.mechanisms.values())
    missing = diagnosis.phases.loop_ns - diagnosis.phases.profiler_ns - said
    spent = {MECHANISMS[letter]: s / truth["loop"] for letter, s in truth["spent"].items()}
    return spent, {name: ns / said for name, ns in limits.mechanisms.items()}, missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=16.0, help="of each mix (default 16)")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    table = Table("mechanisms against a stopwatch, points of the loop")
    for mix in MIXES:
        truth, said, missing = run_mix(options.seconds, mix)
        for letter in dict.fromkeys(mix):
            name = MECHANISMS[letter]
            off = abs(said.get(name, 0.0) - truth[name]) * 100
            note = f"{said.get(name, 0.0) * 100:.1f} % where {truth[name] * 100:.1f} % is true"
            table.add(f"{mix}: {name}", off, POINTS, "pts", note=note)
        table.add(f"{mix}: off the loop", abs(missing), 0, "ns")
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
