"""What only a real device can show. Skipped without one; run on it by `python -m pytest tests/gpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def fresh_cache(folder: Path) -> dict[str, str]:
    """A compiler keeps in it which shapes have changed, and makes other graphs the next time."""
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}


def run(tmp_path: Path, code: str, *options: str) -> tuple[str, dict]:
    """The script's own output and the JSON report, under `hotloop run`."""
    (tmp_path / "train.py").write_text(code)
    hotloop = [sys.executable, "-m", "hotloop"]
    done = subprocess.run(
        [*hotloop, "run", "--quiet", "--out", "session", *options, "train.py"], capture_output=True, text=True, cwd=tmp_path,
        timeout=900, env=fresh_cache(tmp_path / "cache"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report = subprocess.run([*hotloop, "report", "session", "--json"], capture_output=True, text=True, cwd=tmp_path)
    hooks = (tmp_path / "session" / "hooks.jsonl").read_text()
    assert "switched off" not in hooks
    assert "could not be" not in hooks
    return done.stdout, json.loads(report.stdout)


def bare(tmp_path: Path, code: str) -> str:
    (tmp_path / "bare.py").write_text(code)
    command, cache = [sys.executable, "bare.py"], fresh_cache(tmp_path / "bare_cache")
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=900, env=cache)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


NET = """
import torch, sys, threading
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).cuda()
opt = torch.optim.Adam(net.parameters())
x = torch.rand(32, 8, device="cuda")
def update(net=net):
    loss = net(x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss
"""

SAME = {
    "AMP": """
scaler = torch.amp.GradScaler("cuda")
for _ in range(20):
    with torch.autocast("cuda", dtype=torch.float16): loss = net(x).pow(2).mean()
    opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
print(loss.item(), scaler.get_scale())
""",
    "cudnn.benchmark": """
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
conv = torch.nn.Conv2d(3, 8, 3).cuda()
y = torch.rand(4, 3, 16, 16, device="cuda")
for _ in range(10): z = conv(y).sum()
print(z.shape, torch.backends.cudnn.benchmark)
""",
    "compile": """
import torch._dynamo
fast = torch.compile(net)
def step(y):
    z = fast(y)
    if z.sum().item() > 1e9: return z
    return z.to("cpu") * 2
compiled = torch.compile(step)
with torch.no_grad():
    for size in (8, 8, 16): out = compiled(torch.ones(size, 8, device="cuda"))
for _ in range(5): loss = update(fast)
print(out.shape, round(loss.item(), 5), dict(torch._dynamo.utils.counters["stats"]))
print(sum(torch._dynamo.utils.counters["graph_break"].values()))
""",
    "CUDA graph": """
static = torch.rand(32, 8, device="cuda")
side = torch.cuda.Stream(); side.wait_stream(torch.cuda.current_stream())
with torch.no_grad(), torch.cuda.stream(side):
    for _ in range(3): net(static)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph): out = net(static)
static.fill_(1.0); graph.replay()
print(torch.allclose(out, net(static)), round(out.sum().item(), 4))
for _ in range(10): loss = update()
print(round(loss.item(), 5))
""",
    "lazy modules": """
lazy = torch.nn.Sequential(torch.nn.LazyLinear(16), torch.nn.LazyBatchNorm1d()).cuda()
print(lazy(x).shape, lazy.to("cpu")(torch.ones(4, 8)).shape)
""",
    "streams and threads": """
streams = [torch.cuda.Stream() for _ in range(4)]
def work(s):
    with torch.cuda.stream(s):
        for _ in range(20): y = x @ x.T
    s.synchronize()
threads = [threading.Thread(target=work, args=(s,)) for s in streams]
[t.start() for t in threads]; [t.join() for t in threads]
for _ in range(20): loss = update()
print(round(loss.item(), 5))
""",
    "readings": """
for _ in range(10): loss = update()
a = torch.arange(6, device="cuda")
print(a.tolist(), int(a[3]), float(a[2]), bool(a[1]), [10, 20, 30][a[1]], a.cpu().numpy(), a.to("cpu", non_blocking=True).shape)
b = torch.empty(6, dtype=torch.long).pin_memory(); b.copy_(a, non_blocking=True)
torch.cuda.synchronize(); print(b.is_pinned(), b.sum())
print(torch.cuda.max_memory_allocated() > 0, torch.Tensor.item.__name__)
""",
}


@pytest.mark.parametrize("what", SAME)
def test_the_script_says_the_same_with_and_without_us(tmp_path, what):
    said, report = run(tmp_path, NET + SAME[what])
    assert said == bare(tmp_path, NET + SAME[what])
    assert report["device"]["names"]


def test_a_fork_after_cuda_goes_on_in_both_processes(tmp_path):
    code = (
        NET
        + """
import os
update()
pid = os.fork()
if not pid:
    sum(range(1000)); os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for _ in range(5): loss = update()
print(round(loss.item(), 5))
"""
    )
    said, _ = run(tmp_path, code)
    assert said == bare(tmp_path, code)


def test_spans_of_an_api_session_have_device_times(tmp_path):
    code = (
        NET
        + """
import hotloop
path = hotloop.start("api", out="runs", device=True)
for _ in range(200):
    with hotloop.profile("update"): update()
    with hotloop.profile("read"): x.sum().item()
print(hotloop.stop())
assert torch.Tensor.item.__class__.__name__ == "method_descriptor", "as it was"
"""
    )
    path = bare(tmp_path, code).strip().splitlines()[-1]
    out = subprocess.run(
        [sys.executable, "-m", "hotloop", "report", path, "--json"], capture_output=True, text=True, cwd=tmp_path
    )
    device = json.loads(out.stdout)["device"]
    rows = {row["name"]: row for row in device["spans"]}
    assert rows["update"]["count"] > 0
    assert rows["read"]["blocked_s"] > 0
    assert device["transfers"][0]["count"] == 200


def test_a_deep_window_has_kernels_under_our_labels(tmp_path):
    code = NET + "from hotloop import profile, step\nfor _ in range(30):\n    with profile('mine'): update()\n    step()\n"
    _, report = run(tmp_path, code, "--torch-trace", "wait=2,warmup=2,active=4")
    assert report["operators"]["folded"] > 0.9
    assert report["operators"]["device_busy_s"] > 0


def test_compilations_are_start_up(tmp_path):
    code = NET + "fast = torch.compile(net)\nfor _ in range(30): update(fast)\n"
    _, report = run(tmp_path, code)
    names = [row["name"] for row in report["operations"]]
    assert "start-up/compile" in names
