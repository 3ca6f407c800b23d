"""The deep window on the CPU, and torch's own modes under the hooks."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

LOOP = """
import time
import torch
torch.set_num_threads(1); torch.manual_seed(0)

class Env:
    def reset(self): return torch.zeros(3)
    def step(self, action):
        time.sleep(0.003)
        return torch.ones(3), 1.0, False, {}

net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
env = Env(); state = env.reset()
for _ in range(12):
    for _ in range(8):
        with torch.no_grad(): net(state)
        state, *_ = env.step(0)
    loss = (net(state) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print("loss", float(loss))
"""


def run(folder: Path, code: str, *options: str, command: tuple[str, ...] = ("-m", "hotloop", "run", "--out", "session")):
    (folder / "train.py").write_text(code)
    return subprocess.run(
        [sys.executable, *command, *options, "train.py"], cwd=folder, capture_output=True, text=True, timeout=900,
    )  # fmt: skip


def events_of(path: Path) -> list[dict]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(data)["traceEvents"]


def test_a_window_of_automatic_iterations_has_our_spans_and_folds_under_phases(tmp_path):
    done = run(tmp_path, LOOP, "--torch-trace", "wait=1,warmup=1,active=3,record_shapes")
    assert done.returncode == 0, done.stderr
    session = tmp_path / "session"
    events = events_of(session / "torch_trace.json")
    ours = [e for e in events if e.get("cat") == "hotloop"]
    assert {"collect/env_step", "collect/policy", "learn/backward", "learn/optimizer"} <= {e["name"] for e in ours}
    assert len([e for e in ours if e["name"] == "learn/optimizer"]) in (3, 4), "three cycles from update to update"
    ops = json.loads((session / "torch_ops.json").read_text())
    assert ops["iterations"] == 3
    labelled = sum(row[4] for row in ops["rows"] if row[2])
    assert labelled >= 0.98 * sum(row[4] for row in ops["rows"])
    backward = {row[1] for row in ops["rows"] if row[2] == "learn/backward"}
    assert any("Backward" in name for name in backward)
    assert any("addmm" in row[1] and row[2] == "collect/policy" for row in ops["rows"])
    assert "OPERATORS" in done.stderr
    assert json.loads((session / "session.json").read_text())["options"]["torch_trace"]["active_steps"] == 3
    shapes = [e for e in events if e.get("cat") == "cpu_op" and "Input Dims" in e.get("args", {})]
    assert shapes


def test_a_window_that_the_script_does_not_reach_is_a_note(tmp_path):
    done = run(tmp_path, LOOP, "--torch-trace", "wait=500")
    assert done.returncode == 0
    assert not (tmp_path / "session" / "torch_trace.json").exists()
    assert "the deep window never began" in (tmp_path / "session" / "hooks.jsonl").read_text()


@pytest.mark.parametrize("first", ["import torch, hotloop", "import hotloop"], ids=["torch before", "torch after"])
def test_the_api_takes_the_same_settings_and_mirrors_spans_of_the_user(tmp_path, first):
    code = (
        f"{first}\n"
        + """
path = hotloop.start("deep", out="runs", torch_trace={"enabled": True, "wait_steps": 1, "warmup_steps": 1, "active_steps": 2,
                                                      "record_shapes": False, "gzip": True})
import torch
for i in range(8):
    with hotloop.profile("student forward"):
        x = torch.ones(8, 8) @ torch.ones(8, 8)
    with hotloop.profile("loss"):
        x.sum()
    hotloop.step()
print(hotloop.stop())
"""
    )
    done = run(tmp_path, code, command=())
    assert done.returncode == 0, done.stderr
    session = tmp_path / done.stdout.strip().splitlines()[-1]
    events = events_of(session / "torch_trace.json.gz")
    assert [e["name"] for e in events if e.get("cat") == "hotloop"] == ["student forward", "loss"] * 2
    shown = subprocess.run(
        [sys.executable, "-m", "hotloop", "report", str(session), "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    operators = json.loads(shown.stdout)["operators"]
    assert {"student forward", "loss"} <= {row["label"] for row in operators["labels"]}
    assert any(row["name"] == "aten::mm" and row["label"] == "student forward" for row in operators["rows"])


def test_wrong_settings_are_told_before_training(tmp_path):
    done = run(tmp_path, LOOP, "--torch-trace", "active=0")
    assert done.returncode == 2
    assert "active iterations" in done.stderr
    assert not (tmp_path / "session").exists()
    done = run(tmp_path, LOOP, "--no-hooks", "--torch-trace", "active=1")
    assert done.returncode == 2
    assert "needs the hooks for torch" in done.stderr


MODES = """
import torch, warnings
warnings.simplefilter("ignore")
torch.set_num_threads(1); torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
compiled = torch.compile(net, backend="eager")

@torch.compile(backend="eager")
def loss_of(x): return ((net(x) - 1.0) ** 2).mean()

for n in (4, 4, 5, 6):                                   # other sizes: a recompilation
    with torch.autocast("cpu", dtype=torch.bfloat16): loss = compiled(torch.ones(n, 3)).float().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    loss = loss_of(torch.ones(n, 3))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
with torch.autograd.set_detect_anomaly(True):
    optimizer.zero_grad(); loss_of(torch.ones(4, 3)).backward(); optimizer.step()
with torch.inference_mode(): y = net(torch.ones(2, 3))
from torch._dynamo.utils import counters
print(y.tolist(), loss.item(), y.is_inference(), sorted(counters["stats"].items()), sum(counters["graph_break"].values()))
"""


def test_compile_amp_anomaly_and_inference_mode_give_the_same_results_and_graphs(tmp_path):
    bare = run(tmp_path, MODES, command=())
    hooked = run(tmp_path, MODES, "--quiet")
    assert bare.returncode == hooked.returncode == 0, hooked.stderr
    assert hooked.stdout == bare.stdout
    hooks = (tmp_path / "session" / "hooks.jsonl").read_text()
    assert '"failed"' not in hooks
