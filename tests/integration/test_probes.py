"""After the script has ended: its networks at other sizes, and nothing else touched."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")

from hotloop.integrations.probes import MOST_S

TRAIN = """
    import atexit, os, sys
    import gymnasium as gym, numpy as np, torch

    torch.set_num_threads(1)

    class Env(gym.Env):
        observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        action_space = gym.spaces.Discrete(2)
        steps = 0
        def reset(self, *, seed=None, options=None):
            return np.zeros(4, np.float32), {}
        def step(self, action):
            Env.steps += 1
            return np.zeros(4, np.float32), 0.0, Env.steps % 50 == 0, False, {}

    NET

    def main():
        net = Net()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        env = Env()
        env.reset()
        for _ in range(200):
            with torch.no_grad():
                net(torch.zeros(SHAPE))
            env.step(0)
            net(torch.rand(16, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    atexit.register(lambda: print("handler", Env.steps, torch.rand(1).item()))
    torch.manual_seed(3)
    main()
    print("done", Env.steps)
    END
"""
PLAIN = """
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        def forward(self, x):
            return self.body(x)
"""


def run(
    folder: Path, net: str = PLAIN, end: str = "", *options: str, shape: str = "1, 4"
) -> tuple[subprocess.CompletedProcess[str], dict]:
    script = folder / "train.py"
    body = textwrap.dedent(TRAIN).replace("NET", textwrap.dedent(net)).replace("END", end).replace("SHAPE", shape)
    script.write_text(body)
    words = [sys.executable, "-m", "hotloop", "run", "--quiet", *options, "--out", "session", "train.py"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    probes = folder / "session" / "probes.json"
    return done, json.loads(probes.read_text()) if probes.exists() else {}


def test_the_networks_are_measured_at_other_sizes_when_the_script_has_ended(tmp_path):
    done, probes = run(tmp_path)
    assert done.returncode == 0, done.stderr
    by_phase = {row["phase"]: row for row in probes["curves"]}
    assert [rows for rows, _, _ in by_phase[1]["points"]] == [1, 2, 4, 8, 16, 32, 64]
    assert [rows for rows, _, _ in by_phase[2]["points"]] == [16, 64, 256]
    assert by_phase[2]["grad"] and not by_phase[1]["grad"]
    assert {"foreach", "fused"} <= set(probes["optimizers"][0]["variants"])
    assert probes["seconds"] <= MOST_S + 2  # one measurement may have begun right before the end
    counters = json.loads(
        subprocess.run(
            [sys.executable, "-m", "hotloop", "report", "--json", "session"], cwd=tmp_path, capture_output=True, text=True
        ).stdout
    )["counters"]
    assert (counters["env_steps"], counters["updates"]) == (200, 200), "what is measured afterwards is no part of the run"


def test_output_exit_code_and_random_numbers_are_as_without_it(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    probed, found = run(tmp_path / "a", end="sys.exit(3)")
    bare, nothing = run(tmp_path / "b", PLAIN, "sys.exit(3)", "--no-probe")
    assert found["curves"] and not nothing
    assert (probed.returncode, probed.stdout) == (3, bare.stdout) and bare.returncode == 3
    assert "done 200" in probed.stdout and "handler 200" in probed.stdout


def test_a_script_that_failed_is_not_measured(tmp_path):
    done, probes = run(tmp_path, end="raise ValueError('no')")
    assert done.returncode == 1 and "ValueError" in done.stderr
    assert not probes


def test_ctrl_c_is_a_way_to_end_a_script(tmp_path):
    done, probes = run(tmp_path, end="raise KeyboardInterrupt")
    assert done.returncode == 130
    assert probes["curves"]


@pytest.mark.parametrize(
    "wish",
    [
        "open('trace.txt', 'w')",
        "__import__('socket').socket().bind(('127.0.0.1', 0))",
        "os.system('true')",
        "os.fork() or os._exit(0)",
    ],
    ids=["file", "socket", "command", "process"],
)
def test_a_network_that_wants_a_file_socket_or_process_when_called_ends_its_measurement(tmp_path, wish):
    net = PLAIN + f"            return self.body(x) if Env.steps < 199 else [{wish}] and self.body(x)\n"
    net = net.replace("            return self.body(x)\n            return", "            return")
    done, probes = run(tmp_path, net)
    assert done.returncode == 0, done.stderr
    trace = tmp_path / "trace.txt"
    assert not probes["curves"] and any("it wanted" in note for note in probes["notes"])
    assert not trace.exists() or trace.stat().st_mtime <= (tmp_path / "session" / "session.json").stat().st_mtime


def test_networks_that_keep_results_of_a_computation_can_be_copied(tmp_path):
    net = PLAIN.replace("return self.body(x)", "self.latest = self.body(x)\n            return self.latest")
    _, probes = run(tmp_path, net)
    assert len(probes["curves"]) == 2


def test_a_recurrent_network_has_its_rows_second_in_its_state(tmp_path):
    net = """
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.GRU(4, 8, batch_first=True)
        def step(self, x, state):
            return self.body(x[:, None], state)
        def forward(self, x):
            return self.step(x, torch.zeros(1, len(x), 8))[0]
    """
    done, probes = run(tmp_path, net)
    assert done.returncode == 0, done.stderr
    assert [len(row["points"]) for row in probes["curves"]] == [7, 3] or {len(r["points"]) for r in probes["curves"]} == {7, 3}


def test_a_vector_without_its_batch_is_one_row(tmp_path):
    done, probes = run(tmp_path, shape="4")
    assert done.returncode == 0, done.stderr
    (collect,) = (row for row in probes["curves"] if row["phase"] == 1)
    assert (collect["mean_rows"], [rows for rows, _, _ in collect["points"]]) == (1.0, [1, 2, 4, 8, 16, 32, 64])


def test_what_is_compiled_or_scripted_is_left_out(tmp_path):
    done, probes = run(tmp_path, PLAIN + "    Net = lambda kind=Net: torch.jit.script(kind())\n")
    assert done.returncode == 0, done.stderr
    assert not probes.get("curves")
