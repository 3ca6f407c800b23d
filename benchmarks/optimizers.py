"""Does a fused optimizer gain what `small-optimizer` says? The scripts of tests/diagnosis/cases run as they are and fused.

    python benchmarks/optimizers.py [--only CASE ...] [--keep DIR] [--repeats N]
    (pip install -c constraints.txt torch gymnasium stable-baselines3 pandas pillow tensorboard; half an hour)

Each case is recorded once; with `--keep DIR` the session is left there, and one that is there already is used (as by
`benchmarks/diagnosis.py --keep DIR`).

Fused: `torch.optim.Adam` and `AdamW` get fused=True where the script says nothing else. Both run in turns; the gain is the
ratio of the seconds the script itself says. Beside it what the finding had predicted from the run as it is, and what became of
it on the scale of analyse/findings/residuals.py.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.diagnosis import CASES, LAST_LINE, CaseFailed, copy_neutrally, load_truths, profile_case
from benchmarks.measure import clean_env
from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.findings.residuals import residual, told_from
from hotloop.store.reader import read_session

LEAST = 1.05  # a smaller gain cannot be told from noise
FUSED = """
import runpy, sys, torch
for kind in (torch.optim.Adam, torch.optim.AdamW):
    def init(self, *args, _plain=kind.__init__, **options):
        if options.get("foreach") is None:
            options.setdefault("fused", True)
        _plain(self, *args, **options)
    kind.__init__ = init
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def seconds(script: Path, fused: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_neutrally(script, folder)
        words = [sys.executable, *(["-c", FUSED] if fused else []), str(copy)]
        done = subprocess.run(words, cwd=folder, env=clean_env(), capture_output=True, text=True, timeout=600)
    lines = LAST_LINE.findall(done.stdout)
    if done.returncode or not lines:
        raise CaseFailed(done.stderr[-500:])
    return float(lines[-1][2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="CASE", help="cases whose names begin so")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the sessions there")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return compare(options.keep or Path(folder), tuple(options.only), options.repeats)


def compare(keep: Path, only: tuple[str, ...], repeats: int) -> int:
    found = []
    print(f"{'case':<40} predicted           measured  residual")
    for truth in load_truths(CASES):
        if not truth.case.startswith(only):
            continue
        script = CASES / "cases" / f"{truth.case}.py"
        try:
            profile_case(script, truth, 1.0, keep)
            findings = diagnose(read_session(keep / truth.case)).findings
            said = next((f for f in findings if f.cause == "small-optimizer"), None)
            if said is None or said.gain.mid < LEAST:
                continue
            pairs = [(seconds(script, False), seconds(script, True)) for _ in range(repeats)]
        except CaseFailed as failure:
            print(f"{truth.case:<40} failed: {failure}", file=sys.stderr)
            continue
        actual = statistics.median(plain / fused for plain, fused in pairs)
        u = residual(told_from(said.known_by, said.gain.mid), actual)
        held = said.gain.low <= actual <= said.gain.high
        found.append((u, held, abs(said.gain.mid / actual - 1)))
        print(
            f"{truth.case:<40} {said.gain.mid:.2f} ({said.gain.low:.2f}–{said.gain.high:.2f})  {actual:8.2f}  {u:8.2f}",
            flush=True,
        )
    if not found:
        print("nothing was said of optimizers")
        return 0
    print(f"inside {sum(held for _, held, _ in found)} of {len(found)}, within 25 % {sum(x <= 0.25 for _, _, x in found)}")
    print("residuals:", ", ".join(f"{u:.2f}" for u, _, _ in sorted(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
