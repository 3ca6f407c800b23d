"""Double DQN with proportional prioritised replay on CartPole (single file)."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

SEED, TOTAL_STEPS, WARMUP = 3, 3000, 600
CAPACITY, BATCH = 2 ** 17, 256
GAMMA, TARGET_EVERY = 0.98, 250
ALPHA, BETA0, EPS_P = 0.6, 0.4, 1e-3


class SumTree:
    def __init__(self, capacity):
        self.capacity = capacity
        self.depth = capacity.bit_length() - 1
        self.nodes = np.zeros(2 * capacity, dtype=np.float64)

    def _propagate(self, idx, change):
        parent = idx // 2
        self.nodes[parent] += change
        if parent > 1:
            self._propagate(parent, change)

    def _retrieve(self, idx, s):
        if idx >= self.capacity:
            return idx
        left = 2 * idx
        if s <= self.nodes[left]:
            return self._retrieve(left, s)
        return self._retrieve(left + 1, s - self.nodes[left])

    def write(self, slots, priorities):
        if FIXED and len(slots) > 1:
            idx = slots + self.capacity
            self.nodes[idx] = priorities
            for _ in range(self.depth):
                idx = idx // 2
                self.nodes[idx] = self.nodes[2 * idx] + self.nodes[2 * idx + 1]
            return
        for slot, p in zip(slots, priorities):
            idx = int(slot) + self.capacity
            change = p - self.nodes[idx]
            self.nodes[idx] = p
            self._propagate(idx, change)

    def find(self, values):
        if FIXED:
            idx = np.ones(len(values), dtype=np.int64)
            s = values.copy()
            for _ in range(self.depth):
                idx = 2 * idx
                mass = self.nodes[idx]
                right = s > mass
                s -= mass * right
                idx += right
            return idx - self.capacity
        return np.array([self._retrieve(1, s) - self.capacity for s in values])


class PrioritisedReplay:
    def __init__(self, obs_dim, rng):
        self.tree = SumTree(CAPACITY)
        shapes = [((obs_dim,), "f4"), ((), "i8"), ((), "f4"), ((obs_dim,), "f4"), ((), "f4")]
        self.columns = [np.zeros((CAPACITY, *s), t) for s, t in shapes]
        self.pos, self.size, self.max_p, self.rng = 0, 0, 1.0, rng

    def add(self, *transition):
        i = self.pos
        for column, value in zip(self.columns, transition):
            column[i] = value
        self.tree.write(np.array([i]), np.array([self.max_p]))
        self.pos, self.size = (i + 1) % CAPACITY, min(self.size + 1, CAPACITY)

    def sample(self, beta):
        values = (np.arange(BATCH) + self.rng.random(BATCH)) * self.tree.nodes[1] / BATCH
        idx = np.minimum(self.tree.find(values), self.size - 1)
        prob = self.tree.nodes[idx + CAPACITY] / self.tree.nodes[1]
        w = (self.size * np.maximum(prob, 1e-9)) ** -beta
        arrays = (*(x[idx] for x in self.columns), (w / w.max()).astype(np.float32))
        return idx, [torch.from_numpy(x) for x in arrays]

    def reprioritise(self, idx, td):
        p = (np.abs(td) + EPS_P) ** ALPHA
        self.max_p = max(self.max_p, float(p.max()))
        self.tree.write(idx, p)


def make_q(obs_dim, n_act):
    return nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, n_act))


def learn(q, target, opt, replay, beta):
    idx, (o, a, r, o2, d, w) = replay.sample(beta)
    with torch.no_grad():
        best = q(o2).argmax(1, keepdim=True)
        y = r + GAMMA * (1 - d) * target(o2).gather(1, best).squeeze(1)
    pred = q(o).gather(1, a[:, None]).squeeze(1)
    loss = (w * F.smooth_l1_loss(pred, y, reduction="none")).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    replay.reprioritise(idx, (y - pred.detach()).numpy())


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    env = gym.make("CartPole-v1")
    q, target = make_q(4, 2), make_q(4, 2)
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=5e-4, foreach=True)
    replay = PrioritisedReplay(4, rng)
    updates, start = 0, time.perf_counter()
    obs, _ = env.reset(seed=SEED)
    for step in range(TOTAL_STEPS):
        action = int(rng.integers(2))
        if rng.random() > max(0.05, 1.0 - step / 2000):
            with torch.no_grad():
                action = int(q(torch.from_numpy(obs)[None]).argmax())
        nxt, reward, term, trunc, _ = env.step(action)
        replay.add(obs, action, reward, nxt, float(term))
        obs = env.reset()[0] if term or trunc else nxt
        if step >= WARMUP:
            learn(q, target, opt, replay, min(1.0, BETA0 + step / TOTAL_STEPS))
            updates += 1
        if step % TARGET_EVERY == 0:
            target.load_state_dict(q.state_dict())
    print(f"env_steps={TOTAL_STEPS} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
