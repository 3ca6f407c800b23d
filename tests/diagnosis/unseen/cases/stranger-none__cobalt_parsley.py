"""Pixel pursuit with a prioritised double DQN: all games advance together, frames stay bytes until they are used."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE = 20
GAMES = 32
CAPACITY = 8_192
STEPS = 170
BATCH = 128
GAMMA = 0.95
MOVES = np.array([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])


class Pursuit:
    """A hunter chases a drifting prey past walls; three planes of pixels."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n, self.rows = n, np.arange(n)
        self.walls = self.rng.random((n, SIDE, SIDE)) < 0.08
        self.hunter = self.rng.integers(0, SIDE, (n, 2))
        self.prey = self.rng.integers(0, SIDE, (n, 2))

    def render(self):
        out = np.zeros((self.n, 3, SIDE, SIDE), dtype=np.uint8)
        out[:, 0] = self.walls * np.uint8(255)
        out[self.rows, 1, self.hunter[:, 0], self.hunter[:, 1]] = 255
        out[self.rows, 2, self.prey[:, 0], self.prey[:, 1]] = 255
        return out

    def step(self, act):
        before = np.abs(self.hunter - self.prey).sum(1)
        goal = np.clip(self.hunter + MOVES[act], 0, SIDE - 1)
        blocked = self.walls[self.rows, goal[:, 0], goal[:, 1]]
        self.hunter = np.where(blocked[:, None], self.hunter, goal)
        after = np.abs(self.hunter - self.prey).sum(1)
        caught = after <= 1
        reward = (0.1 * (before - after) + caught).astype(np.float32)
        drift = MOVES[self.rng.integers(0, 5, self.n)] * (self.rng.random((self.n, 1)) < 0.3)
        self.prey = np.clip(self.prey + drift, 0, SIDE - 1)
        self.prey[caught] = self.rng.integers(0, SIDE, (int(caught.sum()), 2))
        return self.render(), reward, caught


class Replay:
    def __init__(self, capacity, seed):
        self.rng = np.random.default_rng(seed)
        self.capacity, self.size, self.head, self.peak = capacity, 0, 0, 1.0
        self.obs = torch.zeros(capacity, 3, SIDE, SIDE, dtype=torch.uint8)
        self.nxt = torch.zeros_like(self.obs)
        self.act = torch.zeros(capacity, dtype=torch.long)
        self.rew, self.end = torch.zeros(capacity), torch.zeros(capacity)
        self.weight = np.zeros(capacity)

    def add(self, obs, act, rew, nxt, end):
        here = slice(self.head, self.head + len(act))
        for store, rows in ((self.obs, obs), (self.nxt, nxt), (self.act, act), (self.rew, rew), (self.end, end)):
            store[here] = torch.from_numpy(rows)
        self.weight[here] = self.peak
        self.head = (self.head + len(act)) % self.capacity
        self.size = min(self.size + len(act), self.capacity)

    def sample(self, count):
        mass = np.cumsum(self.weight[:self.size])
        slots = np.searchsorted(mass, self.rng.random(count) * mass[-1]).clip(0, self.size - 1)
        importance = (self.size * self.weight[slots] / mass[-1]) ** -0.5
        pick = torch.from_numpy(slots)
        rows = [store[pick] for store in (self.obs, self.act, self.rew, self.nxt, self.end)]
        return slots, torch.from_numpy((importance / importance.max()).astype(np.float32)), rows

    def refresh(self, slots, errors):
        self.weight[slots] = (errors + 1e-2) ** 0.6
        self.peak = max(self.peak, float(self.weight[slots].max()))


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                  nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(32 * 25, 128), nn.ReLU(), nn.Linear(128, 5))

    def forward(self, frames):
        return self.head(self.conv(frames.float().div_(255.0)))


def learn(net, target, opt, replay):
    slots, importance, (obs, act, rew, nxt, end) = replay.sample(BATCH)
    with torch.no_grad():
        best = net(nxt).argmax(1, keepdim=True)
        goal = rew + GAMMA * (1 - end) * target(nxt).gather(1, best).squeeze(1)
    q = net(obs).gather(1, act[:, None]).squeeze(1)
    loss = (importance * F.smooth_l1_loss(q, goal, reduction="none")).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    replay.refresh(slots, (goal - q).detach().abs().numpy())


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    rng = np.random.default_rng(7)
    games, replay = Pursuit(GAMES, 1), Replay(CAPACITY, 2)
    net, target = QNet(), QNet()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=7e-4)
    updates, recent = 0, 0.0
    start = time.perf_counter()
    obs = games.render()
    for step in range(STEPS):
        with torch.no_grad():
            act = net(torch.from_numpy(obs)).argmax(1).numpy()
        act = np.where(rng.random(GAMES) < max(0.05, 1 - step / 80), rng.integers(0, 5, GAMES), act)
        nxt, reward, caught = games.step(act)
        replay.add(obs, act, reward, nxt, caught.astype(np.float32))
        obs = nxt
        recent = 0.95 * recent + 0.05 * float(reward.mean())
        if step >= 10:
            learn(net, target, opt, replay)
            updates += 1
            if updates % 40 == 0:
                target.load_state_dict(net.state_dict())
    seconds = time.perf_counter() - start
    print(f"reward per step {recent:.3f}")
    print(f"env_steps={STEPS * GAMES} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
