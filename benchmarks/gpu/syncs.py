"""Synchronisations with and without the tool, counted by the CUDA runtime's own trace. Bar: the same number.

    python benchmarks/gpu/syncs.py

Counted are all calls of cudaStreamSynchronize, cudaDeviceSynchronize and cudaEventSynchronize that torch.profiler sees in the
same training loop; both runs use torch.profiler in the same way.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.loops import DQN
from benchmarks.gpu.runs import need_cuda, run_bare, run_hooked

CODE = (
    DQN
    + """
from torch.profiler import ProfilerActivity, profile as trace
train(50)
with trace(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as t: train(500)
t.export_chrome_trace(sys.argv[1])
"""
)


def count(path: Path) -> Counter[str]:
    events = json.loads(path.read_text())["traceEvents"]
    return Counter(e["name"] for e in events if "Synchronize" in str(e.get("name")) and e.get("cat") == "cuda_runtime")


def main() -> int:
    need_cuda()
    with tempfile.TemporaryDirectory() as folder:
        bare, hooked = Path(folder, "bare.json"), Path(folder, "hooked.json")
        run_bare(CODE, str(bare))
        run_hooked(CODE, str(hooked))
        without, with_us = count(bare), count(hooked)
    print(f"  without {dict(without)}\n  with    {dict(with_us)}")
    same = without == with_us and sum(without.values()) > 0
    print(f"  {'ok  ' if same else 'MISS'} the same synchronisations with and without the tool")
    return int(not same)


if __name__ == "__main__":
    raise SystemExit(main())
