"""50 ms of kernels queued in span A, `.item()` in span B: who gets the time? Bar: A ≥ 95 %, B its own copy.

    python benchmarks/gpu/attribution.py

The truth is the script's own: events around the same kernels, without spans, in turn with them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.runs import need_cuda, run_session, show

CODE = """
import sys, time, torch, hotloop
x = torch.zeros(1, device="cuda")
first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
def kernels(cycles):
    for _ in range(10): torch.cuda._sleep(cycles)
    x.add_(1)
def measured(cycles):
    first.record(); kernels(cycles); last.record(); torch.cuda.synchronize()
    return first.elapsed_time(last)
for _ in range(20): measured(5_000_000)   # until the clocks are up and the kernels loaded
x.item()
cycles = int(5_000_000 * 50 / measured(5_000_000))   # ten of them: 50 ms
hotloop.start("attribution", out=sys.argv[1], device=True)
truth = []
for _ in range(20):
    with hotloop.profile("A"):
        kernels(cycles)
    with hotloop.profile("B"):
        x.item()
    time.sleep(0.01)
    truth.append(measured(cycles))
hotloop.stop()
print(sum(truth) / len(truth) / 1000)
"""


def main() -> int:
    need_cuda()
    said, report = run_session(CODE)
    truth = float(said.strip().splitlines()[-1])
    device = report["device"]
    rows = {row["name"]: row for row in device["spans"]}
    a, b = rows["A"], rows["B"]
    print(f"  the kernels of A take {truth * 1000:.2f} ms, by events of the script's own; {a['count']} were measured")
    for pair in device["blocked"][:5]:
        print(f"  blocked in {pair['in']} for {pair['for']}: {pair['s'] * 1000:.1f} ms")
    ok = [
        show("share of the time blocked in B that is charged to A", a["waited_s"] / b["blocked_s"], 0.95, True),
        show("share that remains B's own copy", b["copy_s"] / b["blocked_s"], 0.05, False),
        show("device time of A, at least, over the truth", a["sure_s"] / a["count"] / truth, 0.95, True, "×"),
        show("device time of A, at most, over the truth", a["most_s"] / a["count"] / truth, 1.05, False, "×"),
    ]
    return int(not all(ok))


if __name__ == "__main__":
    raise SystemExit(main())
