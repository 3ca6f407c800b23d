"""Offline fitted Q iteration on logged data from an inventory simulator."""
import copy
import gc
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

STORES, LOG_STEPS, PRODUCTS = 128, 80, 4
ORDERS = 6
ROUNDS, PASSES, BATCH, GAMMA = 18, 100, 512, 0.95


class InventoryVec:
    """Many stores at once: stock per product, noisy seasonal demand, holding and stock-out cost."""

    def __init__(self, n, seed):
        self.n, self.rng, self.day = n, np.random.default_rng(seed), 0
        self.stock = self.rng.uniform(2, 8, (n, PRODUCTS)).astype(np.float32)
        self.base = self.rng.uniform(0.5, 2.5, (n, PRODUCTS)).astype(np.float32)

    def obs(self):
        phase = 2 * np.pi * self.day / 28
        season = np.tile(np.float32([np.sin(phase), np.cos(phase)]), (self.n, 1))
        return np.concatenate([self.stock / 10, self.base / 2.5, season], 1)

    def step(self, order):
        scarce = self.stock.argmin(1)
        self.stock[np.arange(self.n), scarce] += 1.5 * order
        want = self.rng.poisson(self.base * (1 + 0.4 * np.sin(2 * np.pi * self.day / 28))).astype(np.float32)
        sold = np.minimum(self.stock, want)
        self.stock -= sold
        self.day += 1
        rew = sold.sum(1) - 0.5 * (want - sold).sum(1) - 0.05 * self.stock.sum(1) - 0.2 * order
        return self.obs(), rew.astype(np.float32)


def log_data(env, rng):
    rows = []
    obs = env.obs()
    for _ in range(LOG_STEPS):
        order = np.where(rng.random(STORES) < 0.4, rng.integers(ORDERS, size=STORES), 3)
        nxt, rew = env.step(order)
        rows.append((obs, order, rew, nxt))
        obs = nxt
    return [torch.from_numpy(np.concatenate(col)) for col in zip(*rows)]


class FittedQ:
    def __init__(self, obs_dim):
        self.q = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, ORDERS))
        self.opt = torch.optim.Adam(self.q.parameters(), lr=1e-3)
        self.history = []

    def targets(self, rew, nxt):
        frozen = copy.deepcopy(self.q).requires_grad_(False)
        with torch.inference_mode():
            best = frozen(nxt).amax(1)
        y = (rew + GAMMA * best).clone()
        self.release(frozen, best)
        return y

    def release(self, *old):
        del old
        if not FIXED:
            gc.collect()

    def regress(self, obs, act, y, gen):
        order = torch.randint(len(obs), (PASSES, BATCH), generator=gen)
        for idx in order:
            pred = self.q(obs[idx]).gather(1, act[idx, None]).squeeze(1)
            loss = nn.functional.mse_loss(pred, y[idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        self.history.append(loss.item())


def evaluate(agent, seed):
    env, total = InventoryVec(STORES, seed), 0.0
    obs = env.obs()
    for _ in range(28):
        with torch.no_grad():
            order = agent.q(torch.from_numpy(obs)).argmax(1).numpy()
        obs, rew = env.step(order)
        total += rew.mean()
    return total


def main():
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(21)
    env = InventoryVec(STORES, seed=21)
    start = time.perf_counter()
    obs, act, rew, nxt = log_data(env, np.random.default_rng(22))
    rew = rew / 10
    agent = FittedQ(obs.shape[1])
    for r in range(ROUNDS):
        y = agent.targets(rew, nxt)
        agent.regress(obs, act, y, gen)
        if r % 6 == 5:
            print(f"round {r + 1} loss {agent.history[-1]:.4f} profit {evaluate(agent, 99):.2f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={STORES * LOG_STEPS} updates={ROUNDS * PASSES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
