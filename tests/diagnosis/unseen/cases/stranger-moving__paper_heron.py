"""Six gatherers share one value net (parameter sharing, double Q-learning) and a prioritised memory of joint steps."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
AGENTS, FEATURES, ACTIONS = 6, 22, 5
ENVS, CAPACITY, STEPS, BATCH, GAMMA = 36, 32_768, 730, 48, 0.95
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32)


class Gathering:
    def __init__(self, n, seed):
        self.rng, self.n = np.random.default_rng(seed), n
        self.pos = self.rng.uniform(0, 8, (n, AGENTS, 2)).astype(np.float32)
        self.food = self.rng.uniform(0, 8, (n, 5, 2)).astype(np.float32)

    def gaps(self, targets):
        return (targets[:, None] - self.pos[:, :, None] + 4) % 8 - 4

    def observe(self):
        return np.concatenate([self.gaps(self.food), self.gaps(self.pos)], 2).reshape(self.n, AGENTS, FEATURES) / 4

    def step(self, act):
        self.pos = (self.pos + 0.5 * MOVES[act]) % 8
        close = (self.gaps(self.food) ** 2).sum(-1) < 0.6
        single = close.sum(1) == 1
        reward = (close & single[:, None]).sum(-1).astype(np.float32) - 0.02
        env, piece = np.nonzero(single)
        self.food[env, piece] = self.rng.uniform(0, 8, (len(env), 2))
        return self.observe(), reward


class Priorities:
    """A binary tree of sums in one array; reads and writes go level by level for the whole batch."""

    def __init__(self, capacity):
        self.leaves, self.levels = capacity, capacity.bit_length() - 1
        self.tree = np.zeros(2 * capacity)

    def write(self, slots, values):
        node = np.unique(slots + self.leaves)
        self.tree[slots + self.leaves] = values
        for _ in range(self.levels):
            node = np.unique(node >> 1)
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def find(self, mass):
        node = np.ones(len(mass), dtype=np.int64)
        for _ in range(self.levels):
            left = self.tree[2 * node]
            right = mass >= left
            mass = np.where(right, mass - left, mass)
            node = 2 * node + right
        return node - self.leaves


class Memory:
    def __init__(self, capacity, seed):
        self.rng = np.random.default_rng(seed)
        self.capacity, self.size, self.top = capacity, 0, 1.0
        self.priorities = Priorities(capacity)
        wide, narrow = (capacity, AGENTS, FEATURES), (capacity, AGENTS)
        self.columns = {"obs": np.zeros(wide, np.float32), "next_obs": np.zeros(wide, np.float32),
                        "action": np.zeros(narrow, np.int64), "reward": np.zeros(narrow, np.float32)}

    def add(self, **rows):
        slots = self.size + np.arange(len(rows["obs"]))
        for name, values in rows.items():
            self.columns[name][slots] = values
        self.priorities.write(slots, np.full(len(slots), self.top))
        self.size += len(slots)

    def column(self, name):
        filled = self.columns[name][:self.size]
        return torch.from_numpy(filled) if FIXED else torch.tensor(filled)

    def sample(self, count, beta):
        total = self.priorities.tree[1]
        slots = self.priorities.find((np.arange(count) + self.rng.random(count)) * total / count)
        weight = (self.size * self.priorities.tree[slots + self.capacity] / total) ** -beta
        pick = torch.from_numpy(slots)
        batch = {name: self.column(name)[pick] for name in self.columns}
        return slots, torch.from_numpy((weight / weight.max()).astype(np.float32)), batch

    def reprioritise(self, slots, errors):
        values = (errors + 1e-3) ** 0.6
        self.top = max(self.top, float(values.max()))
        self.priorities.write(slots, values)


def make_net():
    return nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, ACTIONS))


def learn(net, target, opt, memory, beta):
    slots, weight, batch = memory.sample(BATCH, beta)
    q = net(batch["obs"]).gather(2, batch["action"][..., None]).squeeze(-1)
    with torch.no_grad():
        best = net(batch["next_obs"]).argmax(-1, keepdim=True)
        goal = batch["reward"] + GAMMA * target(batch["next_obs"]).gather(2, best).squeeze(-1)
    loss = (weight[:, None] * F.smooth_l1_loss(q, goal, reduction="none")).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    memory.reprioritise(slots, (goal - q).detach().abs().mean(1).numpy())


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    rng, world, memory = np.random.default_rng(4), Gathering(ENVS, 8), Memory(CAPACITY, 9)
    net, target = make_net(), make_net()
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    mean = 0.0
    start = time.perf_counter()
    obs = world.observe()
    for step in range(STEPS):
        with torch.no_grad():
            act = net(torch.from_numpy(obs)).argmax(-1).numpy()
        explore = rng.random(act.shape) < max(0.05, 1 - step / 200)
        act = np.where(explore, rng.integers(0, ACTIONS, act.shape), act)
        nxt, reward = world.step(act)
        memory.add(obs=obs, next_obs=nxt, action=act, reward=reward)
        obs = nxt
        mean = 0.98 * mean + 0.02 * float(reward.mean())
        learn(net, target, opt, memory, 0.4 + 0.6 * step / STEPS)
        if step % 100 == 0:
            target.load_state_dict(net.state_dict())
    seconds = time.perf_counter() - start
    print(f"food per agent and step {mean:.3f}")
    print(f"env_steps={STEPS * ENVS} updates={STEPS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
