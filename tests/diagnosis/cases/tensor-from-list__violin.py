"""Offline Q-learning with a conservative penalty on logged tuning sessions, then a short online finetune."""
import os
import random
import time
import warnings

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STRINGS, BINS, BATCH = 4, 40, 128


class TuningEnv:
    """Turn one of four pegs up or down until the spectrum matches."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.axis = np.linspace(0, 1, BINS)

    def spectrum(self):
        lines = np.exp(-((self.axis[None] - self.pitch[:, None]) ** 2) / 0.002)
        return np.concatenate([lines.sum(0), self.goal]).astype(np.float32)

    def reset(self):
        self.goal = np.sort(self.rng.uniform(0.1, 0.9, STRINGS))
        self.pitch = np.clip(self.goal + self.rng.normal(0, 0.1, STRINGS), 0, 1)
        self.t = 0
        return self.spectrum()

    def step(self, action):
        string, up = divmod(action, 2)
        self.pitch[string] = np.clip(self.pitch[string] + (0.02 if up else -0.02), 0, 1)
        self.t += 1
        error = float(np.abs(self.pitch - self.goal).sum())
        return self.spectrum(), -error, error < 0.05 or self.t >= 60


def log_sessions(env, n):
    """Half-random scripted sessions."""
    data, obs = [], env.reset()
    for _ in range(n):
        worst = int(np.argmax(np.abs(env.pitch - env.goal)))
        action = 2 * worst + int(env.goal[worst] > env.pitch[worst])
        if random.random() < 0.4:
            action = random.randrange(2 * STRINGS)
        nxt, reward, done = env.step(action)
        data.append((obs, action, reward, nxt, float(done)))
        obs = env.reset() if done else nxt
    return data


def collate(batch):
    obs, act, rew, nxt, done = zip(*batch)
    if FIXED:
        obs, nxt = torch.from_numpy(np.stack(obs)), torch.from_numpy(np.stack(nxt))
    else:
        obs, nxt = torch.tensor(obs), torch.tensor(nxt)
    return obs, torch.tensor(act), torch.tensor(rew), nxt, torch.tensor(done)


def make_net():
    return nn.Sequential(nn.Linear(BINS + STRINGS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                         nn.Linear(128, 2 * STRINGS))


def update(net, target, opt, data):
    obs, act, rew, nxt, done = collate(random.sample(data, BATCH))
    with torch.no_grad():
        best = net(nxt).argmax(1, keepdim=True)
        y = rew + 0.98 * (1 - done) * target(nxt).gather(1, best).squeeze(1)
    q = net(obs)
    taken = q.gather(1, act.unsqueeze(1)).squeeze(1)
    loss = nn.functional.mse_loss(taken, y) + 0.5 * (q.logsumexp(1) - taken).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), 0.01)


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    random.seed(2)
    torch.manual_seed(2)
    env = TuningEnv(2)
    data = log_sessions(env, 8000)
    net, target = make_net(), make_net()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=3e-4, foreach=True)
    offline, online, updates = 1100, 3000, 0

    start = time.perf_counter()
    for _ in range(offline):
        update(net, target, opt, data)
        updates += 1
    obs = env.reset()
    for step in range(online):
        with torch.no_grad():
            action = int(net(torch.from_numpy(obs)).argmax())
        if random.random() < 0.05:
            action = random.randrange(2 * STRINGS)
        nxt, reward, done = env.step(action)
        data.append((obs, action, reward, nxt, float(done)))
        obs = env.reset() if done else nxt
        if step % 4 == 0:
            update(net, target, opt, data)
            updates += 1
    seconds = time.perf_counter() - start
    print(f"env_steps={online} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
