"""Device times "at least" and "at most": does the truth lie between? Three loops, traced by torch.profiler in the same run.

    python benchmarks/gpu/bounds.py

A loop of small kernels (the device mostly waits for launches), one that keeps the queue full, one that waits for its env. The
truth of a span is the time of the kernels and copies that were launched inside it. Bar: every bound holds, with 2 % of slack
of the busy time (a span's kernels may differ between the calls that were measured and the others).
"""

from __future__ import annotations

import bisect
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.gpu.runs import need_cuda, run_session, show

SLACK = 0.02
LOOPS = {"small kernels": (64, 4, 0.0, 800), "a full queue": (4096, 60, 0.0, 60), "waits for its env": (64, 4, 0.004, 400)}
LAUNCHES = ("cuda_runtime", "cuda_driver")
SPANS = ("env", "forward", "backward", "optimizer", "read")
CODE = """
import sys, time, torch, hotloop
from torch.profiler import ProfilerActivity, profile as trace, record_function
width, layers, env_s, updates = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
torch.manual_seed(0)
net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).cuda()
optimizer = torch.optim.Adam(net.parameters())
x = torch.rand(256, width, device="cuda")
def train(n):
    for _ in range(n):
        with hotloop.profile("env"), record_function("env"): time.sleep(env_s) if env_s else None
        with hotloop.profile("forward"), record_function("forward"): loss = net(x).pow(2).mean()
        with hotloop.profile("backward"), record_function("backward"): optimizer.zero_grad(); loss.backward()
        with hotloop.profile("optimizer"), record_function("optimizer"): optimizer.step()
        with hotloop.profile("read"), record_function("read"): loss.item()
activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with trace(activities=activities): torch.ones(1, device="cuda").add_(1)   # its own start-up
with trace(activities=activities) as t:
    hotloop.start("bounds", out=sys.argv[1], device=True)
    train(updates)   # with the slow first calls
    hotloop.stop()
t.export_chrome_trace(sys.argv[2])
"""


def truth(path: Path) -> tuple[dict[str, float], float]:
    """Seconds of the device's work by the span that launched it, and of all of it together."""
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    spans = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in events
                   if e.get("cat") == "user_annotation" and e["name"] in SPANS)  # fmt: skip
    starts = [span[0] for span in spans]
    launched = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") in LAUNCHES and "correlation" in e["args"]}
    by_span, upto, whole = dict.fromkeys(SPANS, 0.0), 0.0, 0.0
    for event in sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"]):
        begin, end = event["ts"], event["ts"] + event["dur"]
        whole += max(0.0, end - max(begin, upto)) / 1e6
        upto = max(upto, end)
        at = launched.get(event["args"].get("correlation"), 0.0)
        place = bisect.bisect(starts, at) - 1
        if place >= 0 and at <= spans[place][1]:
            by_span[spans[place][2]] += event["dur"] / 1e6
    return by_span, whole


def compare(name: str, settings: tuple[float, ...]) -> list[bool]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        _, report = run_session(CODE, str(trace), *(f"{n:g}" for n in settings))
        by_span, whole = truth(trace)
    device = report["device"]
    busy = device["busy_least"] * device["lifetime_s"]
    rows = {row["name"]: row for row in device["spans"]}
    print(f"  {name}: the device was busy {whole * 1e3:.1f} ms, at least {busy * 1e3:.1f} by us")
    for span in SPANS:
        row = rows.get(span)
        if row is not None:
            print(f"    {span:<10} {row['sure_s'] * 1e3:8.1f} ≤ {by_span[span] * 1e3:8.1f} ≤ {row['most_s'] * 1e3:8.1f} ms")
    over = max((row["sure_s"] - by_span[span] for span in SPANS if (row := rows.get(span))), default=0.0)
    under = max((by_span[span] - row["most_s"] for span in SPANS if (row := rows.get(span))), default=0.0)
    return [
        show(f"{name}: busy at least, beyond the truth (of the busy time)", (busy - whole) / whole, SLACK, False),
        show(f"{name}: a span's least, beyond the truth", over / whole, SLACK, False),
        show(f"{name}: the truth, beyond a span's most", under / whole, SLACK, False),
    ]


def main() -> int:
    need_cuda()
    met = [ok for name, settings in LOOPS.items() for ok in compare(name, settings)]
    return int(not all(met))


if __name__ == "__main__":
    raise SystemExit(main())
