"""What the measurements after a run take and touch: time, memory, files, sockets, env steps, output, exit code.

    python benchmarks/probing
    (pip install -c constraints.txt torch gymnasium stable-baselines3; about two minutes)

Each training runs with and without them. Seconds are those inside the measurements; the exit as a whole is compared too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.measure import Table, clean_env
from benchmarks.run.programs import HOTLOOP, run_command

HERE = Path(__file__).resolve().parent
KINDS = ("ppo", "dqn", "recurrent", "pixels", "large")
MOST_S, MOST_MEMORY = 3.0, 1.10


def run_kind(kind: str, folder: Path, *options: str) -> tuple[int, str]:
    folder.mkdir()
    words = [*HOTLOOP, "run", "--quiet", *options, "--out", str(folder / "session"), str(HERE / "train.py")]
    code, output, _ = run_command([*words, kind, str(folder / "facts.json")], folder, clean_env(), 300)
    return code, output


def main() -> int:
    table = Table("measurements after the run")
    for kind in KINDS:
        with tempfile.TemporaryDirectory(prefix="probing-") as scratch:
            one = run_kind(kind, Path(scratch) / "with")
            two = run_kind(kind, Path(scratch) / "without", "--no-probe")
            facts = json.loads((Path(scratch) / "with" / "facts.json").read_text())
        note = "; ".join(facts["notes"])
        table.add(f"{kind}: seconds after the run", facts["seconds"], MOST_S, "s", note=f"{facts['curves']} curves {note}")
        table.add(f"{kind}: memory against the run's peak", facts["memory"], MOST_MEMORY)
        table.add(
            f"{kind}: files, sockets, processes asked for", len(facts["touched"]), 0, "", note=" ".join(facts["touched"][:4])
        )
        table.add(f"{kind}: env steps taken", facts["steps"], 0, "")
        table.add(f"{kind}: exit code or output differ", int(one != two), 0, "", note=f"exit code {one[0]}")
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
