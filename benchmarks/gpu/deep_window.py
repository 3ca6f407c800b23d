"""A deep window of four iterations. Bars: ≤ 50 MB gzipped, phases present, ≥ 99 % of the kernels' time under phases.

python benchmarks/gpu/deep_window.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.loops import PPO
from benchmarks.gpu.runs import need_cuda, run_hooked, show


def main() -> int:
    need_cuda()
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder, "session")
        options = ("--torch-trace", "wait=2,warmup=2,active=4,record_shapes,gzip")
        _, report = run_hooked(PPO + "train(1600)\n", options=options, keep=session)
        size = (session / "torch_trace.json.gz").stat().st_size
    operators = report["operators"]
    labels = {row["label"].partition("/")[0] for row in operators["labels"]}
    ok = [
        show("gzipped trace", size / (1 << 20), 50, False, "MB"),
        show("kernel time under our labels", operators["folded"], 0.99, True),
        show("phases present (collect, learn)", len(labels & {"collect", "learn"}), 2, True),
    ]
    return int(not all(ok))


if __name__ == "__main__":
    raise SystemExit(main())
