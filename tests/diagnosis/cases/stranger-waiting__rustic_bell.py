"""A2C from stable-baselines3 on a batched fruit-catching game, with a streaming metrics log."""
import json
import os
import queue
import tempfile
import threading
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecEnv

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"
NUM_ENVS, N_STEPS, ITERATIONS = 16, 5, 320


class CatchVecEnv(VecEnv):
    width, height, horizon = 7, 6, 60

    def __init__(self, num_envs, seed):
        self.rng = np.random.default_rng(seed)
        super().__init__(num_envs, gym.spaces.Box(-1, 1, (5,), np.float32), gym.spaces.Discrete(3))
        self.basket, self.fruit = np.zeros(num_envs, int), np.zeros((num_envs, 2), int)
        self.drift, self.clock = np.zeros(num_envs, int), np.zeros(num_envs, int)

    def spawn(self, mask):
        k = int(mask.sum())
        self.fruit[mask] = np.stack([self.rng.integers(0, self.width, k), np.zeros(k, int)], axis=1)
        self.drift[mask] = self.rng.integers(-1, 2, k)

    def observe(self):
        x, y = self.fruit.T
        gap = (x - self.basket) / self.width
        columns = (self.basket / self.width, x / self.width, y / self.height, self.drift, gap)
        return np.stack(columns, axis=1).astype(np.float32)

    def reset(self):
        everyone = np.ones(self.num_envs, bool)
        self.spawn(everyone)
        self.fruit[:, 1] = self.rng.integers(0, self.height, self.num_envs)
        self.basket[:], self.clock[:] = self.width // 2, self.rng.integers(0, 30, self.num_envs)
        return self.observe()

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        self.basket = np.clip(self.basket + self.actions - 1, 0, self.width - 1)
        self.fruit[:, 0] = (self.fruit[:, 0] + self.drift) % self.width
        self.fruit[:, 1] += 1
        landed = self.fruit[:, 1] == self.height
        reward = np.where(landed, np.where(np.abs(self.basket - self.fruit[:, 0]) <= 1, 1.0, -1.0), 0.0)
        self.spawn(landed)
        self.clock += 1
        done, infos = self.clock >= self.horizon, [{} for _ in range(self.num_envs)]
        obs = self.observe()
        for i in np.flatnonzero(done):
            infos[i] = {"terminal_observation": obs[i]}
        self.clock[done] = 0
        return obs, reward.astype(np.float32), done, infos

    def close(self):
        pass

    def get_attr(self, attr_name, indices=None):
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name, value, indices=None):
        setattr(self, attr_name, value)

    def env_method(self, method_name, *args, indices=None, **kwargs):
        return [getattr(self, method_name)(*args, **kwargs)]

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


class StreamWriter(KVWriter):
    """Appends metric rows to a json-lines file from a background thread."""

    def __init__(self, path, window=0.008):
        self.file, self.window, self.rows = open(path, "w"), window, queue.Queue()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (row := self.rows.get()) is not None:
            chunk, until = [row], time.monotonic() + self.window
            while (left := until - time.monotonic()) > 0:
                try:
                    chunk.append(self.rows.get(timeout=left))
                except queue.Empty:
                    break
            self.file.write("".join(json.dumps(r) + "\n" for r in chunk))
            self.file.flush()
            for _ in chunk:
                self.rows.task_done()

    def write(self, key_values, key_excluded, step=0):
        self.rows.put({"step": step, **{k: float(v) for k, v in key_values.items()}})
        if not FIXED:
            self.rows.join()

    def close(self):
        self.rows.join()
        self.rows.put(None)
        self.thread.join()
        self.file.close()


class CatchRate(BaseCallback):
    def _on_training_start(self):
        self.rates, self.seen = [], []

    def _on_step(self):
        self.seen.append(self.locals["rewards"])
        return True

    def _on_rollout_end(self):
        rewards, self.seen = np.concatenate(self.seen), []
        self.rates.append((rewards > 0).sum() / max(1, (rewards != 0).sum()))
        self.logger.record("catch/rate", self.rates[-1])


env, rate = CatchVecEnv(NUM_ENVS, seed=4), CatchRate()
model = A2C("MlpPolicy", env, n_steps=N_STEPS, learning_rate=2e-3, gamma=0.97, seed=4, device="cpu")
with tempfile.TemporaryDirectory() as folder:
    writer = StreamWriter(os.path.join(folder, "progress.jsonl"))
    model.set_logger(Logger(folder=None, output_formats=[writer]))
    start = time.perf_counter()
    model.learn(ITERATIONS * N_STEPS * NUM_ENVS, callback=rate, log_interval=1)
    writer.close()
    seconds = time.perf_counter() - start
print(f"catch rate {np.mean(rate.rates[:40]):.2f} -> {np.mean(rate.rates[-40:]):.2f}")
print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")
