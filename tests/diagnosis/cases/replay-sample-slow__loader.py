"""Fitted Q iteration in rounds: collect with the current policy, then train from a DataLoader over the replay."""

import os
import time

import gymnasium as gym
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

FIXED = os.environ.get("FIXED") == "1"


class ReplayDataset(Dataset):
    def __init__(self):
        self.rows = []

    def extend(self, rows):
        self.rows.extend(rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        obs, action, reward, nxt, done = self.rows[i]
        return {
            "obs": torch.as_tensor(obs, dtype=torch.float32),
            "action": torch.as_tensor(action),
            "reward": torch.as_tensor(reward, dtype=torch.float32),
            "next": torch.as_tensor(nxt, dtype=torch.float32),
            "done": torch.as_tensor(done, dtype=torch.float32),
        }


class ReplayArrays(Dataset):
    def __init__(self):
        self.columns = None

    def extend(self, rows):
        kinds = (np.float32, np.int64, np.float32, np.float32, np.float32)
        new = [np.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        old = self.columns
        self.columns = new if old is None else [np.concatenate(pair) for pair in zip(old, new, strict=True)]

    def __len__(self):
        return len(self.columns[1])

    def __getitem__(self, rows):
        return dict(
            zip(("obs", "action", "reward", "next", "done"), (torch.from_numpy(c[rows]) for c in self.columns), strict=True)
        )


def make_loader(replay, batch_size, batches):
    sampler = RandomSampler(replay, replacement=True, num_samples=batch_size * batches)
    if FIXED:
        return DataLoader(replay, sampler=BatchSampler(sampler, batch_size, drop_last=True), batch_size=None)
    return DataLoader(replay, sampler=sampler, batch_size=batch_size)


def collect(env, q, state, count, epsilon, rng):
    rows, obs = [], state
    for _ in range(count):
        if rng.random() < epsilon:
            action = int(rng.integers(2))
        else:
            with torch.no_grad():
                action = int(q(torch.from_numpy(obs)).argmax())
        nxt, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, nxt, terminated))
        obs = env.reset()[0] if terminated or truncated else nxt
    return rows, obs


def fit(q, q_old, optimizer, loader):
    n = 0
    for batch in loader:
        with torch.no_grad():
            y = batch["reward"] + 0.99 * (1 - batch["done"]) * q_old(batch["next"]).max(1).values
        loss = torch.nn.functional.mse_loss(q(batch["obs"]).gather(1, batch["action"][:, None])[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += 1
    return n


def main(rounds=45, per_round=400, batches=50):
    torch.set_num_threads(1)
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    start = time.time()
    env = gym.make("CartPole-v1")
    net = lambda: torch.nn.Sequential(torch.nn.Linear(4, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2))
    q, q_old = net(), net()
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    replay = ReplayArrays() if FIXED else ReplayDataset()
    state, _ = env.reset(seed=4)
    updates = 0
    for i in range(rounds):
        rows, state = collect(env, q, state, per_round, max(0.05, 1 - i / 15), rng)
        replay.extend(rows)
        q_old.load_state_dict(q.state_dict())
        updates += fit(q, q_old, optimizer, make_loader(replay, 128, batches))
    print(f"env_steps={rounds * per_round} updates={updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
