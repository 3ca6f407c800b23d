"""Seed 003's rollout: a student's forward pass and a blocking `.cpu()`. Copy and wait against a torch.profiler trace. Bar: 5 %.

    python benchmarks/gpu/rollout.py

Runs of 100, 600 and 2,000 calls: short ones are measured whole, long ones in windows, and a first copy that is several times
as slow must weigh what it took in each. Both look at the same calls of one run. In the trace the time from a `.cpu()`'s
beginning to the end of the last kernel queued before it is the wait, the rest of the call the copy.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.runs import need_cuda, run_session, show

CALLS = (100, 600, 2000)
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
    rollout(int(sys.argv[3]))
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


def compare(calls: int) -> list[bool]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        _, report = run_session(CODE, str(trace), str(calls))
        wait_s, copy_s = truth(trace)
    row = next(row for row in report["device"]["spans"] if row["name"] == "to_cpu")
    found = {name: row[name] / row["count"] for name in ("blocked_s", "copy_s")}
    found_wait = found["blocked_s"] - found["copy_s"]
    print(
        f"  {calls} calls: wait {found_wait * 1e6:.0f} µs (truth {wait_s * 1e6:.0f}), "
        f"copy {found['copy_s'] * 1e6:.0f} µs (truth {copy_s * 1e6:.0f})"
    )
    return [
        show(f"{calls} calls, {what} against the truth", abs(value / true - 1), 0.05, False)
        for what, value, true in (("wait", found_wait, wait_s), ("copy", found["copy_s"], copy_s),
                                  ("both", found["blocked_s"], wait_s + copy_s))
    ]  # fmt: skip


def main() -> int:
    need_cuda()
    met = [ok for calls in CALLS for ok in compare(calls)]
    return int(not all(met))


if __name__ == "__main__":
    raise SystemExit(main())
