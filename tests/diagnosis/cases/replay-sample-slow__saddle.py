"""Recurrent Q-learning (DRQN) on a pole whose velocities are hidden."""
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
SEQ, BATCH, GAMMA = 10, 128, 0.99


class HiddenPole:
    """Cart-pole dynamics; only the positions are seen."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s[[0, 2]].astype(np.float32)

    def step(self, a):
        x, v, th, w = self.s
        force = 10.0 if a else -10.0
        c, sn = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w * w * sn) / 1.1
        acc = (9.8 * sn - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        self.s = np.array([x + 0.02 * v, v + 0.02 * (tmp - 0.05 * acc * c / 1.1), th + 0.02 * w, w + 0.02 * acc])
        self.t += 1
        over = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.6 or self.t >= 200
        return self.s[[0, 2]].astype(np.float32), 1.0, over


class EpisodeMemory:
    """Keeps whole episodes, hands out windows of SEQ transitions."""

    def __init__(self, seed):
        self.episodes = []
        self.rng = np.random.default_rng(seed)

    def add(self, episode):
        if len(episode) >= SEQ:
            self.episodes.append(episode)

    def sample(self):
        lengths = np.array([len(e) for e in self.episodes], dtype=np.float64)
        picks = self.rng.choice(len(self.episodes), BATCH, p=lengths / lengths.sum())
        windows = []
        for k in picks:
            i = self.rng.integers(0, len(self.episodes[k]) - SEQ + 1)
            windows.append(self.episodes[k][i:i + SEQ])
        return [torch.as_tensor(np.array([[step[f] for step in w] for w in windows])) for f in range(5)]


class FlatMemory:
    """The same windows out of preallocated arrays."""

    def __init__(self, seed, size=50_000):
        self.fields = [np.zeros((size, 2), np.float32), np.zeros(size, np.int64), np.zeros(size, np.float32),
                       np.zeros((size, 2), np.float32), np.zeros(size, np.float32)]
        self.starts = np.zeros(size, np.int64)
        self.n = self.n_starts = 0
        self.rng = np.random.default_rng(seed)
        self.span = np.arange(SEQ)

    def add(self, episode):
        if len(episode) < SEQ:
            return
        for f, column in enumerate(zip(*episode)):
            self.fields[f][self.n:self.n + len(episode)] = column
        k = len(episode) - SEQ + 1
        self.starts[self.n_starts:self.n_starts + k] = np.arange(self.n, self.n + k)
        self.n, self.n_starts = self.n + len(episode), self.n_starts + k

    def sample(self):
        rows = self.starts[self.rng.integers(0, self.n_starts, BATCH)][:, None] + self.span
        return [torch.from_numpy(x[rows]) for x in self.fields]


class Net(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn, self.q = nn.GRU(2, hidden, batch_first=True), nn.Linear(hidden, 2)

    def forward(self, x, h=None):
        y, h = self.rnn(x, h)
        return self.q(y), h


def learn(net, target, opt, memory):
    o, a, r, o2, d = memory.sample()
    with torch.no_grad():
        y = r.float() + GAMMA * (1 - d.float()) * target(o2)[0].amax(-1)
    opt.zero_grad()
    q = net(o)[0].gather(-1, a.long().unsqueeze(-1)).squeeze(-1)
    nn.functional.smooth_l1_loss(q, y).backward()
    opt.step()


def main(total=4400):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    env, net, target = HiddenPole(3), Net(), Net()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    memory = FlatMemory(3) if FIXED else EpisodeMemory(3)
    updates, obs, h, episode, start = 0, env.reset(), None, [], time.perf_counter()
    for step in range(total):
        with torch.no_grad():
            q, h = net(torch.from_numpy(obs).view(1, 1, 2), h)
        a = int(q.argmax()) if rng.random() > 0.2 else int(rng.integers(2))
        nxt, r, done = env.step(a)
        episode.append((obs, a, r, nxt, float(done)))
        obs = nxt
        if done:
            memory.add(episode)
            obs, h, episode = env.reset(), None, []
        if step >= 200 and step % 4 == 0:
            learn(net, target, opt, memory)
            updates += 1
            if updates % 200 == 0:
                target.load_state_dict(net.state_dict())
    print(f"env_steps={total} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
