"""R2D2-like recurrent Q-learning on CartPole without velocities; stored sequences are exported for offline study."""
import collections
import copy
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
OBS, ACTIONS, HID = 2, 2, 64
CAPACITY, LENGTH, BURN_IN, BATCH = 1500, 20, 5, 16
WARMUP, SEQUENCES, UPDATES_PER_SEQUENCE, KEEP = 20, 200, 2, 4


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.cell, self.out = nn.Linear(OBS, HID), nn.LSTMCell(HID, HID), nn.Linear(HID, ACTIONS)

    def step(self, obs, state):
        h, c = self.cell(F.relu(self.inp(obs)), state)
        return self.out(h), (h, c)

    def unroll(self, obs, first, state):
        x, keep, hs = F.relu(self.inp(obs)), (1.0 - first).unsqueeze(-1), []
        for xt, kt in zip(x.unbind(1), keep.unbind(1)):
            state = self.cell(xt, (state[0] * kt, state[1] * kt))
            hs.append(state[0])
        return self.out(torch.stack(hs, 1))


class SequenceStore:
    """Ring of sequences of LENGTH steps, with the recurrent state before every step."""

    def __init__(self):
        shape = (CAPACITY, LENGTH)
        self.data = {
            "obs": torch.zeros(*shape, OBS), "action": torch.zeros(shape, dtype=torch.long),
            "reward": torch.zeros(shape), "first": torch.zeros(shape), "state": torch.zeros(*shape, 2, HID),
        }
        self.count = 0

    def add(self, steps):
        row = self.count % CAPACITY
        for key, values in steps.items():
            self.data[key][row] = torch.stack(values) if torch.is_tensor(values[0]) else torch.tensor(values)
        self.count += 1
        return row

    def sequence(self, row):
        part = {key: values[row] for key, values in self.data.items()}
        return {key: values.clone() for key, values in part.items()} if FIXED else part

    def sample(self, n):
        rows = torch.randint(min(self.count, CAPACITY), (n,))
        return {key: values[rows] for key, values in self.data.items() if key != "state"}, self.data["state"][rows, 0]


class Exporter:
    """Writes sequences to a folder and keeps the newest few."""

    def __init__(self, folder):
        self.folder, self.paths = folder, collections.deque()

    def write(self, number, sequence):
        path = os.path.join(self.folder, f"sequence_{number:05d}.pt")
        torch.save(sequence, path)
        self.paths.append(path)
        if len(self.paths) > KEEP:
            os.unlink(self.paths.popleft())


class Actor:
    def __init__(self, net):
        self.env, self.net = gym.make("CartPole-v1").unwrapped, net
        self.rng = np.random.default_rng(7)
        self.begin(self.env.reset(seed=7)[0])

    def begin(self, obs):
        self.obs, self.first, self.state = obs, 1.0, (torch.zeros(1, HID), torch.zeros(1, HID))

    @torch.no_grad()
    def collect(self, eps):
        steps = collections.defaultdict(list)
        for _ in range(LENGTH):
            seen = torch.from_numpy(self.obs[[0, 2]])
            q, following = self.net.step(seen.unsqueeze(0), self.state)
            action = int(self.rng.integers(ACTIONS)) if self.rng.random() < eps else int(q.argmax())
            obs, reward, done, _, _ = self.env.step(action)
            for key, value in (("obs", seen), ("action", action), ("reward", reward), ("first", self.first),
                               ("state", torch.cat(self.state))):
                steps[key].append(value)
            self.obs, self.first, self.state = obs, 0.0, following
            if done:
                self.begin(self.env.reset()[0])
        return steps


def learn(net, target, optimizer, batch, state):
    state = (state[:, 0], state[:, 1])
    q = net.unroll(batch["obs"], batch["first"], state)
    with torch.no_grad():
        ahead = target.unroll(batch["obs"], batch["first"], state).max(-1).values[:, 1:]
        goal = batch["reward"][:, :-1] + 0.97 * (1.0 - batch["first"][:, 1:]) * ahead
    value = q[:, :-1].gather(-1, batch["action"][:, :-1].unsqueeze(-1)).squeeze(-1)
    loss = F.smooth_l1_loss(value[:, BURN_IN:], goal[:, BURN_IN:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    net = QNet()
    target, store, actor = copy.deepcopy(net), SequenceStore(), Actor(net)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(WARMUP):
        store.add(actor.collect(1.0))
    updates = 0
    with tempfile.TemporaryDirectory() as folder:
        exporter = Exporter(folder)
        start = time.perf_counter()
        for n in range(SEQUENCES):
            row = store.add(actor.collect(max(0.05, 0.5 - n / 200)))
            exporter.write(n, store.sequence(row))
            for _ in range(UPDATES_PER_SEQUENCE):
                learn(net, target, optimizer, *store.sample(BATCH))
                updates += 1
            if n % 20 == 19:
                target.load_state_dict(net.state_dict())
        seconds = time.perf_counter() - start
    print(f"env_steps={SEQUENCES * LENGTH} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
