"""Counts of work in scripts that count it themselves: each prints what it did, and the recording must say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotloop.store.reader import read_session

from .test_hooks import run

pytest.importorskip("gymnasium")


def counted(folder: Path, code: str, *arguments: str) -> tuple[dict[str, int], dict[str, int], Any]:
    """What the script says, what its main process counted, and that process's shard."""
    done = run(folder, code, arguments=arguments)
    assert done.returncode == 0, done.stderr
    shard = read_session(folder / "session").shards[0]
    assert shard.problems == ()
    for row in shard.iterations:
        assert row.end_ns <= shard.last_work_ns
    return json.loads(done.stdout), {**shard.counters, "iterations": shard.iterations_closed}, shard


def agree(said: dict[str, int], found: dict[str, int]) -> None:
    assert {name: found.get(name, 0) for name in said} == said


VECTOR = """
import json, sys, gymnasium as gym, numpy as np
from gymnasium.vector import AutoresetMode
said = {"env_steps": 0, "autoresets": 0, "episodes": 0}
class Counted(gym.vector.VectorWrapper):
    pass
def main():
    kind, mode, wrapped = sys.argv[1:]
    mode = AutoresetMode[mode]
    cls = {"sync": gym.vector.SyncVectorEnv, "async": gym.vector.AsyncVectorEnv}[kind]
    envs = cls([lambda: gym.make("CartPole-v1")] * 4, autoreset_mode=mode)
    if wrapped == "wrapped": envs = gym.wrappers.vector.RecordEpisodeStatistics(Counted(envs))
    rng = np.random.default_rng(0)
    for round in range(2):
        envs.reset(seed=0)
        over = np.zeros(4, bool)
        for _ in range(150):
            _, _, ended, cut, _ = envs.step(rng.integers(0, 2, 4))
            resetting = over.sum() if mode == AutoresetMode.NEXT_STEP else 0
            over = ended | cut
            said["env_steps"] += int(4 - resetting); said["autoresets"] += int(resetting); said["episodes"] += int(over.sum())
    envs.close()
    print(json.dumps(said))
if __name__ == "__main__": main()
"""


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(("mode", "wrapped"), [("NEXT_STEP", "bare"), ("NEXT_STEP", "wrapped"), ("SAME_STEP", "bare")])
def test_steps_of_gymnasiums_vectors_that_only_reset_are_counted_apart(tmp_path, kind, mode, wrapped):
    said, found, _ = counted(tmp_path, VECTOR, kind, mode, wrapped)
    assert said["episodes"] > 10
    assert (said["autoresets"] > 0) is (mode == "NEXT_STEP")
    agree(said, found)


def test_gymnasiums_wrapper_that_resets_by_itself_is_known(tmp_path):
    code = """
import json, gymnasium as gym
env = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.Autoreset(gym.make("CartPole-v1")))
env.reset(seed=0); env.action_space.seed(0)
said, over = {"env_steps": 0, "autoresets": 0, "resets": 1}, False
for _ in range(300):
    _, _, ended, cut, _ = env.step(env.action_space.sample())
    said["autoresets" if over else "env_steps"] += 1
    said["resets"] += over
    over = ended or cut
print(json.dumps(said))
"""
    said, found, _ = counted(tmp_path, code)
    assert said["autoresets"] > 3
    agree(said, found)


def test_resets_are_those_that_stable_baselines_monitor_saw(tmp_path):
    pytest.importorskip("stable_baselines3")
    code = """
import json, torch; torch.set_num_threads(1)
import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
resets = 0
class Counting(Monitor):
    def reset(self, **keywords):
        global resets
        resets += 1
        return super().reset(**keywords)
envs = DummyVecEnv([lambda: Counting(gym.make("CartPole-v1"))] * 3)
PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=2, seed=0, device="cpu").learn(5 * 192)
print(json.dumps({"env_steps": 5 * 192, "resets": resets, "updates": 5 * 3 * 2, "autoresets": 0, "iterations": 5}))
"""
    said, found, shard = counted(tmp_path, code)
    assert said["resets"] > 20
    agree(said, found)
    assert sum(row.merged for row in shard.iterations) == 5


POOL = """
import json, queue, sys, threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
class Env:
    def __init__(self): self.t = 0
    def reset(self): self.t = 0; return 0
    def step(self, action):
        self.t += 1
        return self.t, 1.0, self.t % 10 == 0, {}
def collate(results): return [list(part) for part in zip(*results)]
class Executor:
    def __init__(self, n): self.envs, self.pool = [Env() for _ in range(n)], ThreadPoolExecutor(n)
    def reset(self): return list(self.pool.map(lambda env: env.reset(), self.envs))
    def step(self, actions): return tuple(collate(self.pool.map(lambda env: env.step(0), self.envs)))
class Pooled(Executor):
    def __init__(self, n): self.envs, self.pool = [Env() for _ in range(n)], ThreadPool(n)
class Queues:
    def __init__(self, n):
        self.inbox, self.outbox = [queue.Queue() for _ in range(n)], [queue.Queue() for _ in range(n)]
        for i in range(n): threading.Thread(target=self.work, args=(i,), daemon=True).start()
    def work(self, i):
        env = Env()
        while True:
            what = self.inbox[i].get()
            self.outbox[i].put(env.reset() if what == "reset" else env.step(what))
    def ask(self, what):
        for box in self.inbox: box.put(what)
        return [box.get() for box in self.outbox]
    def reset(self): return self.ask("reset")
    def step(self, actions): return tuple(collate(self.ask(0)))
class NoReset:
    def __init__(self, n): self.inner = Queues(n)
    def step(self, actions): return self.inner.step(actions)
n = 4
vector = globals()[sys.argv[1]](n)
if hasattr(vector, "reset"): vector.reset()
for _ in range(100): vector.step([0] * n)
print(json.dumps({"env_steps": 100 * n, "episodes": 10 * n}))
"""


@pytest.mark.parametrize("kind", ["Executor", "Pooled", "Queues", "NoReset"])
def test_environments_stepped_in_threads_of_a_vector_count_once(tmp_path, kind):
    said, found, shard = counted(tmp_path, POOL, kind)
    agree(said, found)
    assert sorted(env.steps for env in shard.envs)[-4:] == [100] * 4, "each is known by itself"


def test_actors_in_threads_count_all_their_steps(tmp_path):
    code = """
import json, threading, time
class Env:
    def __init__(self, delay): self.delay = delay
    def reset(self): return 0
    def step(self, action):
        time.sleep(self.delay) if self.delay else sum(range(1000))
        return 0, 1.0, False, {}
def act(delay, steps):
    env = Env(delay); env.reset()
    for _ in range(steps): env.step(0)
threads = [threading.Thread(target=act, args=x) for x in ((0.01, 50), (0.001, 300), (0, 2000), (0, 2000))]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps({"env_steps": 50 + 300 + 4000, "resets": 4}))
"""
    said, found, shard = counted(tmp_path, code)
    agree(said, found)
    assert sorted(env.steps for env in shard.envs) == [50, 300, 2000, 2000]


def test_an_environment_without_a_reset_is_one(tmp_path):
    code = """
import json
import numpy as np
class World:
    def __init__(self): self.t = 0
    def step(self, action):
        self.t += 1
        done = self.t % 20 == 0
        return np.zeros(3), float(action), done, {}
class Clockwork:
    def step(self, dt): return dt * 2
class Machine:
    def step(self, state, force): return state, force
world, clockwork, machine = World(), Clockwork(), Machine()
for i in range(500):
    world.step(1); clockwork.step(0.1); machine.step(0, 1)
print(json.dumps({"env_steps": 500, "episodes": 25}))
"""
    said, found, shard = counted(tmp_path, code)
    agree(said, found)
    names = {label.name for label in shard.labels}
    assert "World.step" in names
    assert not names & {"Clockwork.step", "Machine.step"}


def test_environments_made_anew_for_every_episode_are_told_apart(tmp_path):
    code = """
import json
class Env:
    def __init__(self): self.t = 0
    def reset(self): return 0
    def step(self, action):
        self.t += 1
        return 0, 1.0, self.t >= 7, {}
for _ in range(200):
    env, done = Env(), False
    env.reset()
    while not done: _, _, done, _ = env.step(0)
    del env
print(json.dumps({"env_steps": 1400, "episodes": 200, "resets": 200, "iterations": 200}))
"""
    said, found, shard = counted(tmp_path, code)
    agree(said, found)
    assert [env.steps for env in shard.envs] == [7] * 64


@pytest.mark.parametrize("ms", [0, 30])
def test_iterations_are_the_scripts(tmp_path, ms):
    pytest.importorskip("torch")
    code = f"""
import json, time, torch
torch.set_num_threads(1)
class Env:
    def reset(self): return 0
    def step(self, action): time.sleep({ms / 1000 / 3}); return 0, 1.0, False, {{}}
net = torch.nn.Linear(2, 2); optimizer = torch.optim.SGD(net.parameters(), 0.1)
env = Env(); env.reset()
for _ in range(5):
    for _ in range(3): env.step(0)
    loss = net(torch.ones(4, 2)).sum(); optimizer.zero_grad(); loss.backward(); optimizer.step()
time.sleep(0.2)
print(json.dumps({{"iterations": 5, "updates": 5, "env_steps": 15}}))
"""
    said, found, shard = counted(tmp_path, code)
    agree(said, found)
    assert sum(row.merged for row in shard.iterations) == 5
    assert shard.end_ns - shard.iterations[-1].end_ns > 150_000_000
