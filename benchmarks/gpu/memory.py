"""GPU memory peaks of spans on a planted sequence, against the allocator's own counters. Bar: equal.

python benchmarks/gpu/memory.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.runs import need_cuda, run_bare, run_hooked

CODE = """
import contextlib, json, sys, torch
hooked = len(sys.argv) > 1
from hotloop import profile
span = (lambda name: profile(name, track_memory=True)) if hooked else (lambda name: contextlib.nullcontext())
MB = 1 << 20
peaks = {}
keep = [torch.zeros(50 * MB, dtype=torch.uint8, device="cuda")]
def planted(name, sizes):
    if not hooked: torch.cuda.reset_peak_memory_stats()
    with span(name):
        for size in sizes: torch.zeros(size * MB, dtype=torch.uint8, device="cuda")
    if not hooked: peaks[name] = torch.cuda.max_memory_allocated()
planted("small", [1, 2]); planted("large", [300]); planted("again", [20, 100, 10])
if hooked: peaks["whole"] = torch.cuda.max_memory_allocated()
print(json.dumps(peaks))
"""


def main() -> int:
    need_cuda()
    truth = json.loads(run_bare(CODE).strip().splitlines()[-1])
    said, report = run_hooked(CODE, "hooked")
    found = report["device"]["memory"]["peaks"]
    whole = json.loads(said.strip().splitlines()[-1])["whole"]
    print(f"  allocator {truth}\n  spans     {found}\n  the script's own reading of the whole run: {whole}")
    same = found == truth and whole == max(truth.values())
    print(f"  {'ok  ' if same else 'MISS'} equal")
    return int(not same)


if __name__ == "__main__":
    raise SystemExit(main())
