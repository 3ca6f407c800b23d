"""What 8 environments in place of one gain: HotLoop's prediction from a run with one, against bare runs with both.

python benchmarks/envs [--pairs 5]
(pip install -c constraints.txt torch stable-baselines3; about four minutes)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.measure import Table, clean_env
from benchmarks.run.programs import HOTLOOP, Failure, run_command
from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.whatif import parse_change, predict_change
from hotloop.store.reader import read_session

HERE = Path(__file__).resolve().parent
ENVS, NEAR = 8, 20.0


def seconds(kind: str, envs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, str(HERE / "train.py"), kind, str(envs)]
        code, output, errors = run_command(words, Path(folder), clean_env(), 300)
    if code:
        raise Failure(errors[-500:])
    return float(output.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    table = Table(f"{ENVS} environments in place of one, predicted and measured")
    for kind in ("PPO", "A2C"):
        ratios = [seconds(kind, 1) / seconds(kind, ENVS) for _ in range(options.pairs)]
        measured = statistics.median(ratios)
        with tempfile.TemporaryDirectory() as folder:
            session = Path(folder) / "session"
            words = [*HOTLOOP, "run", "--quiet", "--out", str(session), str(HERE / "train.py"), kind, "1"]
            run_command(words, Path(folder), clean_env(), 300)
            diagnosis = diagnose(read_session(session))
        said = predict_change(diagnosis.evidence, [parse_change(f"envs={ENVS}")]).gain
        first = diagnosis.findings[0] if diagnosis.findings else None
        named = first is not None and first.cause in ("batch-one-policy", "framework-overhead")
        note = f"{first.cause} {first.gain.mid:.2f} ({first.gain.low:.2f}-{first.gain.high:.2f})" if first else "no finding"
        table.add(f"{kind}: named", int(named), 1, "", above=True, note=note)
        off = abs(said.mid / measured - 1) * 100
        between = f"{min(ratios):.2f}-{max(ratios):.2f}"
        table.add(
            f"{kind}: prediction off", off, NEAR, "%", note=f"predicted {said.mid:.2f}, measured {measured:.2f} ({between})"
        )
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
