"""Seed 003's rollout: a student's forward pass and a blocking `.cpu()`. Copy and wait against a torch.profiler trace. Bar: 5 %.

    python benchmarks/gpu/rollout.py

Both look at the same calls of one run. In the trace the time from a `.cpu()`'s beginning to the end of the last kernel
queued before it is the wait, the rest of the call the copy.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.runs import need_cuda, run_session, show

CODE = """
import sys, torch, hotloop
from torch.profiler import ProfilerActivity, profile as trace
torch.manual_seed(0)
class Student(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 5), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 5), torch.nn.ReLU())
        self.head = torch.nn.Linear(64 * 56 * 56, 5)
    def forward(self, x):
        features = self.body(x)
        return self.head(features.flatten(1)), features[:16]
student = Student().cuda()
frames = torch.rand(512, 3, 64, 64, device="cuda")
def rollout(n):
    with torch.no_grad():
        for _ in range(n):
            with hotloop.profile("student_forward"): logits, features = student(frames)
            with hotloop.profile("to_cpu"): features.cpu()   # 13 MB
rollout(20); torch.cuda.synchronize()
activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with trace(activities=activities): rollout(3)   # its own start-up
with trace(activities=activities) as t:
    hotloop.start("rollout", out=sys.argv[1], device=True)
    rollout(2000)
    hotloop.stop()
t.export_chrome_trace(sys.argv[2])
"""


def truth(path: Path) -> tuple[float, float]:
    """Seconds per `.cpu()`: waiting for kernels, and the rest."""
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    kernels = sorted((e["ts"] + e["dur"], e["ts"]) for e in events if e.get("cat") == "kernel")
    copies = [e for e in events if e.get("cat") == "cpu_op" and e["name"] == "aten::to" and e["dur"] > 100]
    wait = own = 0.0
    for copy in copies:
        begin, end = copy["ts"], copy["ts"] + copy["dur"]
        done = max((stop for stop, _ in kernels if stop <= end), default=begin)
        wait += max(0.0, done - begin)
        own += end - max(begin, done)
    return wait / len(copies) / 1e6, own / len(copies) / 1e6


def main() -> int:
    need_cuda()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        _, report = run_session(CODE, str(trace))
        wait_s, copy_s = truth(trace)
    rows = {row["name"]: row for row in report["device"]["spans"]}
    spans = rows["to_cpu"]["count"]
    found_wait = (rows["to_cpu"]["blocked_s"] - rows["to_cpu"]["copy_s"]) / spans
    found = rows["to_cpu"]["blocked_s"] / spans
    print(f"  wait {found_wait * 1e6:.0f} µs (truth {wait_s * 1e6:.0f})")
    own = rows["to_cpu"]["copy_s"] / spans
    print(f"  copy {own * 1e6:.0f} µs (truth {copy_s * 1e6:.0f})")
    ok = [
        show("wait against the truth", abs(found_wait / wait_s - 1), 0.05, False),
        show("copy against the truth", abs(own / copy_s - 1), 0.05, False),
        show("copy and wait together against the truth", abs(found / (wait_s + copy_s) - 1), 0.05, False),
    ]
    return int(not all(ok))


if __name__ == "__main__":
    raise SystemExit(main())
