"""DAgger: a recurrent student without velocities imitates a state-feedback controller (double integrators)."""
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

SEED, ENVS, LENGTH, HIDDEN = 17, 64, 40, 96
ROUNDS, EPOCH_BATCHES, BATCH_SEQ = 14, 16, 64


class Carts:
    """A batch of carts on rails; the student sees only position and goal, with noise."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, self.n)
        self.vel = self.rng.uniform(-0.5, 0.5, self.n)
        self.goal = self.rng.uniform(-1, 1, self.n)
        return self.observe()

    def observe(self):
        seen = np.stack([self.pos, self.goal, self.pos - self.goal], axis=1)
        return (seen + self.rng.normal(0, 0.02, seen.shape)).astype(np.float32)

    def teacher(self):
        return np.clip(4.0 * (self.goal - self.pos) - 2.5 * self.vel, -1, 1).astype(np.float32)

    def step(self, force):
        self.vel = self.vel + 0.1 * force - 0.01 * self.vel
        self.pos = self.pos + 0.1 * self.vel
        return self.observe(), -np.abs(self.goal - self.pos)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, HIDDEN)
        self.head = nn.Sequential(nn.Linear(HIDDEN, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs, hidden=None):
        feats, hidden = self.gru(obs, hidden)
        return self.head(feats).squeeze(-1), hidden


class Aggregate:
    """Room for all rounds is taken at the beginning."""

    def __init__(self, sequences):
        self.obs = torch.zeros(LENGTH, sequences, 3)
        self.label = torch.zeros(LENGTH, sequences)
        self.size = 0

    def columns(self):
        here = slice(self.size, self.size + ENVS)
        self.size += ENVS
        return self.obs[:, here], self.label[:, here]

    def batches(self, count):
        for _ in range(count):
            idx = torch.randint(0, self.size, (BATCH_SEQ,))
            yield self.obs[:, idx], self.label[:, idx]


@torch.no_grad()
def collect(carts, student, store, beta):
    obs_out, label_out = store.columns()
    obs, hidden, total = carts.reset(), None, 0.0
    lead = carts.rng.random(ENVS) < beta
    for t in range(LENGTH):
        seen = torch.from_numpy(obs)
        advice = carts.teacher()
        obs_out[t], label_out[t] = seen, torch.from_numpy(advice)
        action, hidden = student(seen.unsqueeze(0), hidden)
        force = np.where(lead, advice, action[0].clamp(-1, 1).numpy())
        obs, reward = carts.step(force)
        total += reward.mean()
    return total


def fit(student, opt, store):
    running = 0.0
    for obs, label in store.batches(EPOCH_BATCHES):
        action, _ = student(obs)
        loss = (action - label).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        opt.step()
        running += loss.item()
    return running / EPOCH_BATCHES


def main():
    torch.manual_seed(SEED)
    carts = Carts(ENVS, np.random.default_rng(SEED))
    student = Student()
    opt = torch.optim.Adam(student.parameters(), lr=4e-3)
    store = Aggregate(ROUNDS * ENVS)
    env_steps = updates = 0
    start = time.perf_counter()
    for k in range(ROUNDS):
        score = collect(carts, student, store, beta=0.6 ** k)
        env_steps += ENVS * LENGTH
        loss = fit(student, opt, store)
        updates += EPOCH_BATCHES
        print(f"round {k} score {score:.2f} loss {loss:.4f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
