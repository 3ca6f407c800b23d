"""50 ms of kernels queued in span A, `.item()` in span B: who gets the time? Bar: A ≥ 95 %, B its own copy.

python benchmarks/gpu/attribution.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.common import need_cuda, run_hooked, show

CODE = """
import time, torch
from hotloop import profile
x = torch.zeros(1, device="cuda")
torch.cuda._sleep(1000); x.item()
begin = time.perf_counter(); torch.cuda._sleep(10_000_000); torch.cuda.synchronize()
cycles = int(10_000_000 * 0.005 / (time.perf_counter() - begin))   # 5 ms
for _ in range(20):
    with profile("A", track_memory=True):
        for _ in range(10): torch.cuda._sleep(cycles)
        x += 1
    with profile("B", track_memory=True):
        x.item()
    time.sleep(0.01)
"""


def main() -> int:
    need_cuda()
    _, report = run_hooked(CODE)
    rows = {row["name"]: row for row in report["device"]["spans"]}
    whole = rows["B"]["blocked_s"]
    ok = [
        show("share of the time blocked in B that is charged to A", rows["A"]["waited_s"] / whole, 0.95, True),
        show("share that remains B's own copy", rows["B"]["copy_s"] / whole, 0.05, False),
        show("device time of A for each 50 ms, at least", rows["A"]["sure_s"] / rows["A"]["count"] / 0.05, 0.95, True, "×"),
    ]
    return int(not all(ok))


if __name__ == "__main__":
    raise SystemExit(main())
