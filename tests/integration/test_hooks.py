"""`hotloop run` on scripts that know nothing of it: phases, counters, children, lines, and nothing changed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.model.phase import phase_name
from hotloop.store.reader import read_session

DQN = """
import collections, hashlib, random
import numpy as np, torch, torch.nn as nn
torch.set_num_threads(1); torch.manual_seed(0); random.seed(0)

class Corridor:                       # no base class
    def __init__(self): self.x = 0
    def reset(self):
        self.x = 0
        return np.zeros(4, np.float32)
    def step(self, action):
        self.x += 1
        for _ in range(200): pass
        return np.full(4, self.x, np.float32), float(action), self.x >= 10, {}

class Memory:
    def __init__(self): self.items = collections.deque(maxlen=500)
    def push(self, *item): self.items.append(item)
    def sample(self, n): return random.sample(self.items, n)

class Agent:
    def __init__(self):
        self.net, self.target = make(), make()
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.memory, self.losses = Memory(), []
    def act(self, state):
        with torch.no_grad():
            return int(self.net(torch.from_numpy(state)).argmax())
    def learn(self):
        batch = self.memory.sample(16)
        s = torch.tensor(np.stack([b[0] for b in batch])); s2 = torch.tensor(np.stack([b[3] for b in batch]))
        with torch.no_grad(): goal = self.target(s2).max(1).values
        loss = nn.functional.mse_loss(self.net(s).max(1).values, goal)
        self.optimizer.zero_grad(); loss.backward(); self.optimizer.step()
        self.losses.append(loss.item())

def make(): return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

def evaluate(agent):
    env = Corridor(); state, done = env.reset(), False
    while not done: state, _, done, _ = env.step(agent.act(state))

def main():
    env, agent = Corridor(), Agent()
    state = env.reset()
    for t in range(400):
        action = agent.act(state)
        state2, reward, done, _ = env.step(action)
        agent.memory.push(state, action, reward, state2)
        state = env.reset() if done else state2
        if t >= 100: agent.learn()
        if t % 100 == 99: evaluate(agent); torch.save(agent.net.state_dict(), "model.pt"); print("step", t)
    print("digest", hashlib.sha256(np.array(agent.losses).tobytes()).hexdigest())
main()
"""


def run(
    folder: Path, code: str, *options: str, arguments: tuple[str, ...] = (), bare: bool = False
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(code)
    hotloop = [] if bare else ["-m", "hotloop", "run", "--quiet", "--out", "session", *options]
    return subprocess.run(
        [sys.executable, *hotloop, "train.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=900
    )


def read(folder: Path) -> Diagnosis:
    return diagnose(read_session(folder / "session"))


def calls(report: Diagnosis, name: str) -> int:
    return sum(o.calls for o in report.operations if o.name == name)


@pytest.fixture(scope="module")
def dqn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dqn")
    done = run(folder, DQN)
    assert done.returncode == 0, done.stderr
    return folder, done, read(folder)


def test_work_is_counted_by_itself(dqn):
    _, _, report = dqn
    assert report.counters["env_steps"] == 400
    assert report.counters["updates"] == 300
    assert report.counters["samples"] == 300 * 16
    assert report.counters["episodes"] == 40
    assert report.counters["eval_env_steps"] == 4 * 10
    assert report.iterations_closed > 0


AGENT = """
import torch
from torch import nn
torch.manual_seed(0)
class Env:
    def reset(self): return torch.zeros(4, 3)
    def step(self, action): return torch.rand(4, 3), torch.ones(4), torch.zeros(4, dtype=bool), {}
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(3, 2), nn.Linear(3, 1)
    def act(self, x):
        logits = self.actor(x)
        return logits.argmax(1), torch.log_softmax(logits, 1), self.critic(x)
env, agent = Env(), Agent()
optimizer = torch.optim.SGD(agent.parameters(), 0.01)
obs = env.reset()
for _ in range(30):
    batch = []
    for _ in range(16):
        with torch.no_grad(): action, *_ = agent.act(obs)
        obs, *_ = env.step(action)
        batch.append(obs)
    with torch.no_grad(): after = agent.critic(obs)
    states = torch.cat(batch)
    for i in range(4):
        _, logp, value = agent.act(states[16 * i : 16 * i + 16])
        loss = value.pow(2).mean() - logp.mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_a_batch_is_what_the_agents_own_methods_are_trained_with(tmp_path):
    done = run(tmp_path, AGENT)
    assert done.returncode == 0, done.stderr
    report = read(tmp_path)
    assert report.counters["updates"] == 120
    assert report.counters["samples"] == 120 * 16  # not the 4 of the value after the last step
    assert report.facts["learn_calls"] >= 5
    assert report.facts["collect_calls"] >= 20
    assert report.facts.get("collect_grad", 0) == 0


def test_every_hooked_part_has_its_label_and_its_calls(dqn):
    _, _, report = dqn
    expected = {
        "collect/env_step": 400, "collect/policy": 400, "collect/store": 400, "learn/sample": 300, "learn/backward": 300,
        "learn/optimizer": 300, "learn/zero_grad": 300, "learn/loss": 300, "learn/forward": 600, "eval/evaluate": 4,
        "eval/env_step": 40, "eval/policy": 40, "checkpoint/save": 4,
    }  # fmt: skip
    assert {name: calls(report, name) for name in expected} == expected


def test_phases_add_up_to_the_loop_and_start_up_is_apart(dqn):
    _, _, report = dqn
    phases = report.phases
    named = {phase_name(p.code) for p in phases.phases}
    assert {"collect", "learn", "eval", "checkpoint", "log"} <= named
    assert sum(p.total_ns for p in phases.phases) + phases.unattributed_ns + phases.profiler_ns == phases.loop_ns
    assert phases.startup_ns > 0.3 * report.wall_ns  # importing torch
    assert phases.loop_ns + phases.startup_ns == report.sheet.wall_ns
    assert 0.4 < phases.numbers.measured_share <= 1


def test_results_are_the_same_to_the_last_bit(dqn, tmp_path):
    _, done, _ = dqn
    bare = run(tmp_path, DQN, bare=True)
    assert bare.stdout == done.stdout


def test_the_lines_of_a_hot_function_are_found(tmp_path):
    code = (
        "import numpy as np\n"
        "class Env:\n"
        "    def reset(self): return 0\n"
        "    def step(self, action):\n"
        "        return hot(action), 1.0, False, {}\n"
        "def hot(n):\n"
        "    total = 0\n"
        "    for i in range(20000):\n"
        "        total += i * n\n"
        "    return total\n"
        "env = Env(); env.reset()\n"
        "for i in range(1500): env.step(1)\n"
    )
    assert run(tmp_path, code).returncode == 0
    report = read(tmp_path)
    seen = sum(line.samples for line in report.lines)
    hot = [line for line in report.lines if line.function == "hot"]
    assert seen > 30
    assert sum(line.samples for line in hot) > 0.5 * seen  # 0.98 on a machine that does nothing else
    assert all(7 <= line.line <= 10 and line.first_line == 6 for line in hot)


def test_batched_tensor_environments_count_by_the_leading_dimension(tmp_path):
    code = (
        "import torch\n"
        "class Field:\n"
        "    def reset(self): return torch.zeros(32, 3)\n"
        "    def step(self, actions): return torch.zeros(32, 3), torch.ones(32), torch.zeros(32, dtype=torch.bool), {}\n"
        "env = Field(); env.reset()\n"
        "for _ in range(50): env.step(None)\n"
    )
    assert run(tmp_path, code).returncode == 0
    assert read(tmp_path).counters["env_steps"] == 50 * 32


VECTOR = """
import sys, gymnasium as gym, numpy as np
class Scale(gym.ObservationWrapper):
    def observation(self, observation): return observation * 0.5
if __name__ == "__main__":
    kind, context = sys.argv[1], sys.argv[2]
    makers = [lambda: Scale(gym.make("CartPole-v1"))] * 3
    envs = gym.vector.SyncVectorEnv(makers) if kind == "sync" else gym.vector.AsyncVectorEnv(makers, context=context)
    envs.reset(seed=0)
    for _ in range(100): envs.step(np.zeros(3, dtype=int))
    envs.close()
"""


@pytest.mark.parametrize(("kind", "context"), [("sync", "-"), ("async", "fork"), ("async", "spawn"), ("async", "forkserver")])
def test_vector_environments_are_counted_in_every_kind_of_process(tmp_path, kind, context):
    done = run(tmp_path, VECTOR, arguments=(kind, context))
    assert done.returncode == 0, done.stderr
    report = read(tmp_path)
    assert report.counters["env_steps"] + report.counters["autoresets"] == 300
    assert report.counters["autoresets"] > 10, "a step that only resets is none"
    names = {o.name for o in report.operations}
    assert {"Scale.step", "TimeLimit.step", "CartPoleEnv.step"} <= names
    if kind == "async":
        workers = [s for s in read_session(tmp_path / "session").shards[1:] if s.envs]
        assert len(workers) == 3
        assert all(s.counters["env_steps"] >= 80 for s in workers)


def test_stable_baselines_is_told_apart_by_its_phases(tmp_path):
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from stable_baselines3 import PPO\n"
        "model = PPO('MlpPolicy', 'CartPole-v1', n_steps=128, batch_size=64, n_epochs=2, seed=0, device='cpu')\n"
        "model.learn(512)\n"
        "print(sum(p.double().sum().item() for p in model.policy.parameters()))\n"
    )
    recorded, bare = run(tmp_path, code), run(tmp_path, code, bare=True)
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout == bare.stdout
    report = read(tmp_path)
    assert report.counters["env_steps"] == 512
    assert report.counters["updates"] == 4 * 2 * 2
    assert calls(report, "collect/rollout") == 4
    assert calls(report, "learn/train") == 4
    assert calls(report, "learn/advantage") == 4
    assert report.numbers.measured_share > 0.7
    assert report.iterations_closed >= 3


def test_threads_that_step_environments_are_lanes_and_the_slow_one_is_named(tmp_path):
    code = (
        "import time\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "class Env:\n"
        "    def __init__(self, delay): self.delay = delay\n"
        "    def reset(self): return 0\n"
        "    def step(self, action):\n"
        "        time.sleep(self.delay)\n"
        "        return 0, 1.0, False, {}\n"
        "envs = [Env(0.002), Env(0.002), Env(0.02), Env(0.002)]\n"
        "for env in envs: env.reset()\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    for _ in range(60): list(pool.map(lambda env: env.step(0), envs))\n"
    )
    assert run(tmp_path, code).returncode == 0
    report = read(tmp_path)
    assert report.counters["env_steps"] == 240
    findings = json.loads((tmp_path / "session" / "findings.json").read_text())["findings"]
    assert findings[0]["cause"] in ("env-straggler", "env-io-wait")
    assert any(f["cause"] == "env-straggler" for f in findings)


def test_a_killed_script_leaves_a_report_with_all_finished_steps(tmp_path):
    code = (
        "import os\n"
        "class Env:\n"
        "    def reset(self): return 0\n"
        "    def step(self, action): return 0, 1.0, False, {}\n"
        "env = Env(); env.reset()\n"
        "for i in range(1000): env.step(0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = run(tmp_path, code)
    assert done.returncode == 137
    assert "killed by SIGKILL" in done.stderr
    report = read(tmp_path)
    assert report.counters["env_steps"] == 1000
    assert calls(report, "collect/env_step") == 1000


def test_a_killed_supervisor_loses_nothing(tmp_path):
    code = (
        "import time\n"
        "class Env:\n"
        "    def reset(self): return 0\n"
        "    def step(self, action): time.sleep(0.01); return 0, 1.0, False, {}\n"
        "env = Env(); env.reset()\n"
        "print('ready', flush=True)\n"
        "for i in range(100): env.step(0)\n"
    )
    (tmp_path / "train.py").write_text(code)
    command = [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", "session", "train.py"]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and read(tmp_path).counters.get("env_steps", 0) < 100:
        time.sleep(0.2)
    assert read(tmp_path).counters["env_steps"] == 100


@pytest.mark.parametrize(
    ("options", "labels", "lines"),
    [(("--no-hooks",), False, True), (("--lines", "off"), True, False), (("--hooks", "torch"), False, True)],
)
def test_hooks_and_lines_can_be_switched_off(tmp_path, options, labels, lines):
    code = (
        "class Env:\n"
        "    def reset(self): return 0\n"
        "    def step(self, action):\n"
        "        for _ in range(3000): pass\n"
        "        return 0, 1.0, False, {}\n"
        "from hotloop import profile\n"
        "env = Env(); env.reset()\n"
        "with profile('all'):\n"
        "    for _ in range(3000): env.step(0)\n"
    )
    assert run(tmp_path, code, *options).returncode == 0
    report = read(tmp_path)
    assert (calls(report, "collect/env_step") == 3000) is labels
    assert bool(report.lines) is lines


def test_settings_come_from_pyproject_and_the_command_line_wins(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hotloop]\nname = "mine"\nlines = false\nhooks = ["torch"]\n')
    assert run(tmp_path, "print(1)\n", "--lines", "on").returncode == 0
    meta = json.loads((tmp_path / "session" / "session.json").read_text())
    assert meta["name"] == "mine"
    assert meta["options"]["hooks"] == "torch"
    assert meta["options"]["sample_us"] > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.hotloop]\nspeed = 3\n", "knows no `speed`"),
        ("[tool.hotloop]\nhooks = ['tensorflow']\n", "no hooks for tensorflow"),
        ("[tool.hotloop]\nduration = -1\n", "must be more than 0"),
        ("[tool.hotloop]\nselect = ['nope']\n", "nope is no cause"),
        ("[tool.hotloop]\nlines = 1\n", "it takes true or false"),
        ("[tool]\nhotloop = 3\n", "write [tool.hotloop]"),
        ("[tool.hotloop\n", "cannot be read"),
    ],
)
def test_bad_settings_get_one_sentence(tmp_path, text, said):
    (tmp_path / "pyproject.toml").write_text(text)
    done = run(tmp_path, "print(1)\n")
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "session").exists()


def test_a_library_of_an_unknown_shape_is_a_note_and_the_script_runs(tmp_path):
    package = tmp_path / "gymnasium" / "envs"
    package.mkdir(parents=True)
    (tmp_path / "gymnasium" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "registration.py").write_text("version = 99\n")
    env = "class Env:\n    def reset(self): pass\n    def step(self, a): return 0, 1, False\n"
    code = "import gymnasium.envs.registration as r\n" + env
    done = run(tmp_path, code + "env = Env(); env.reset(); env.step(0); print(r.version)\n")
    assert done.returncode == 0
    assert done.stdout == "99\n"
    notes = [row for row in read_session(tmp_path / "session").hooks if row["state"] == "note"]
    assert any("make is not there" in row["detail"] for row in notes)


def test_arguments_that_look_like_secrets_are_not_kept(tmp_path):
    run(tmp_path, "print(1)\n", arguments=("--wandb-api-key", "hunter2", "--token=abc", "--lr", "0.1"))
    text = (tmp_path / "session" / "session.json").read_text()
    assert "hunter2" not in text
    assert "abc" not in json.loads(text)["command"]
    assert "0.1" in json.loads(text)["command"]


def test_compiled_and_scripted_models_are_left_alone(tmp_path):
    code = (
        "import torch, torch.nn as nn, torch.nn.functional as F\n"
        "torch.manual_seed(0); torch.set_num_threads(1)\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)\n"
        "    def features(self, x): return torch.relu(self.a(x))\n"
        "    def forward(self, x): return self.b(self.features(x)) + torch.tensor([1.0, 2.0])\n"
        "class Env:\n"
        "    def reset(self): return torch.zeros(4)\n"
        "    def step(self, a): return torch.rand(4), 1.0, False, {}\n"
        "net = Net(); optimizer = torch.optim.Adam(net.parameters())\n"
        "fast = torch.compile(net, backend='eager', fullgraph=True)\n"
        "measure = torch.compile(lambda x, y: F.mse_loss(net(x), y), backend='eager', fullgraph=True)\n"
        "env = Env(); state = env.reset()\n"
        "for _ in range(20):\n"
        "    with torch.no_grad(): state = env.step(fast(state))[0]\n"
        "    loss = measure(torch.rand(16, 4), torch.rand(16, 2))\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
        "print(loss.item(), torch.jit.script(Net())(torch.ones(4)).sum().item())\n"
    )
    bare, recorded = run(tmp_path, code, bare=True), run(tmp_path, code)
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout == bare.stdout
    report = read(tmp_path)
    assert (report.counters["env_steps"], report.counters["updates"]) == (20, 20)
    assert calls(report, "collect/policy") >= 20


def test_networks_that_are_traced_exported_or_mapped_over_are_left_alone(tmp_path):
    """All of these record or transform the calls of tensors: a look at one of them would become part of what is made."""
    code = (
        "import torch, torch.nn as nn\n"
        "from torch.fx.experimental.proxy_tensor import make_fx\n"
        "torch.manual_seed(0); torch.set_num_threads(1)\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.word, self.cell, self.out = nn.Embedding(9, 4), nn.GRU(4, 8), nn.Linear(8, 2)\n"
        "    def forward(self, x): return self.out(self.cell(self.word(x))[0])\n"
        "class Plain(nn.Sequential): pass\n"
        "class Env:\n"
        "    def reset(self): return torch.zeros(4)\n"
        "    def step(self, a): return torch.rand(4), 1.0, False, {}\n"
        "net, plain, words = Net(), Plain(nn.Linear(4, 2)), torch.zeros(5, 3, dtype=torch.long)\n"
        "optimizer = torch.optim.SGD(plain.parameters(), 0.1)\n"
        "env = Env(); state = env.reset(); sizes = set()\n"
        "for _ in range(100):\n"
        "    state = env.step(plain(state))[0]\n"
        "    loss = plain(torch.rand(8, 4)).sum(); optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
        "    traced = torch.jit.trace(net, (words,), check_trace=False)\n"
        "    sizes.add(('trace', len(list(traced.inlined_graph.nodes()))))\n"
        "    sizes.add(('fx', len(make_fx(net)(words).graph.nodes)))\n"
        "    torch.func.vmap(plain)(torch.rand(3, 8, 4))\n"
        "sizes.add(('export', len(torch.export.export(net, (words,), strict=False).graph.nodes)))\n"
        "print(sorted(sizes), loss.item())\n"
    )
    bare, recorded = run(tmp_path, code, bare=True), run(tmp_path, code)
    assert bare.returncode == 0, bare.stderr
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout == bare.stdout
    assert "integrations" not in recorded.stderr  # a warning of what was done with the traced tensors


def test_steps_that_the_script_counts_too_are_not_counted_twice(tmp_path):
    code = (
        "from hotloop import count\n"
        "class Env:\n"
        "    def reset(self): return 0\n"
        "    def step(self, action): return 0, 1.0, False, {}\n"
        "env = Env(); env.reset()\n"
        "for _ in range(100):\n"
        "    env.step(0)\n"
        "    count('env_steps')\n"
    )
    assert run(tmp_path, code).returncode == 0
    report = read(tmp_path)
    assert report.counters["env_steps"] == 100
    assert report.facts["said_env_steps"] == 100
