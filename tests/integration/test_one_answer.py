"""Recorded sessions, every view: what a run says of itself is the same everywhere."""

from __future__ import annotations

import pytest

from hotloop.cli.main import main
from hotloop.store.reader import read_session

from ..one_answer import check_one_answer

API = """
    import time
    from concurrent.futures import ThreadPoolExecutor
    from hotloop import count, profile, start, step, stop

    def work(ms):
        with profile("env_step"):
            time.sleep(ms / 1000)

    start(name="spans")
    with ThreadPoolExecutor(2) as pool, profile("train"):
        for _ in range(5):
            with profile("collect"):
                list(pool.map(work, [1, 2, 3]))
                count("env_steps", 3)
            with profile("learn"):
                sum(range(20000))
            step()
    stop()
"""
LOOP = """
    import sys
    import numpy as np
    import gymnasium as gym

    if __name__ == "__main__":
        kind = {"sync": gym.vector.SyncVectorEnv, "async": gym.vector.AsyncVectorEnv}[sys.argv[1]]
        envs = kind([lambda: gym.make("CartPole-v1")] * 3)
        envs.reset(seed=0)
        for _ in range(400):
            envs.step(np.random.default_rng(0).integers(0, 2, 3))
        envs.close()
"""
PPO = """
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, n_epochs=2, device="cpu", seed=0)
    model.learn(256)
    evaluate_policy(model, model.get_env(), n_eval_episodes=2)
"""


def test_a_session_of_spans_and_a_pool(run):
    check_one_answer(run(API).session)


@pytest.mark.parametrize(("code", "argument"), [(LOOP, "sync"), (LOOP, "async"), (PPO, "")])
def test_a_script_that_was_run(tmp_path, monkeypatch, code, argument):
    import textwrap

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(textwrap.dedent(code))
    assert main(["run", "--quiet", "--out", "session", "train.py", *filter(None, [argument])]) == 0
    session = read_session(tmp_path / "session")
    assert {process.state for process in session.processes} == {"ended"}
    check_one_answer(session)
