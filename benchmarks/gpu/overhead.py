"""Slow-down of small PPO and DQN loops on the GPU with device spans on, in ABBA pairs. Bar: geometric mean ≤ 1.03.

    python benchmarks/gpu/overhead.py [PAIRS]

torch.profiler over the whole loop is run beside it for comparison. Each run times its own updates, so start-up does not count.
"""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.common import need_cuda, run_bare, run_hooked, show
from benchmarks.gpu.loops import DQN, PPO

TIMED = """
train(300); torch.cuda.synchronize()
begin = time.perf_counter(); train(4000); torch.cuda.synchronize(); print(time.perf_counter() - begin)
"""
TRACED = """
from torch.profiler import ProfilerActivity, profile as trace
train(300); torch.cuda.synchronize()
with trace(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    begin = time.perf_counter(); train(1000); torch.cuda.synchronize(); print(4 * (time.perf_counter() - begin))
"""


def seconds(text: str) -> float:
    return float(text.strip().splitlines()[-1])


def main() -> int:
    need_cuda()
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    ok = []
    for name, loop in (("DQN", DQN), ("PPO", PPO)):
        ratios, bares = [], []
        for i in range(pairs):  # ABBA: the order turns round from pair to pair, so drift cancels
            order = ("bare", "hooked") if i % 2 == 0 else ("hooked", "bare")
            took = {}
            for which in order:
                took[which] = seconds(run_bare(loop + TIMED) if which == "bare" else run_hooked(loop + TIMED)[0])
            ratios.append(took["hooked"] / took["bare"])
            bares.append(took["bare"])
        mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
        spread = f"[{min(ratios):.3f}, {max(ratios):.3f}] over {pairs} pairs"
        ok.append(show(f"{name}: with hotloop run / bare, geometric mean {spread}", mean, 1.03, False, "×"))
        print(f"       {name}: with torch.profiler / bare: {seconds(run_bare(loop + TRACED)) / statistics.median(bares):.2f} ×")
    return int(not all(ok))


if __name__ == "__main__":
    raise SystemExit(main())
