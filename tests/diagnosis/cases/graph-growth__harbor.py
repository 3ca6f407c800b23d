"""Recurrent actor-critic that berths ships in a drifting tide (batched environment, GRU policy)."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"


class Berths:
    """B ships side by side; only a noisy bearing and the last thrust are visible, the tide is not."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, (self.n, 2))
        self.vel = np.zeros((self.n, 2))
        self.tide = self.rng.normal(0, 0.02, (self.n, 2))
        self.last = np.zeros((self.n, 2))
        return self.look()

    def look(self):
        noisy = self.pos + self.rng.normal(0, 0.05, self.pos.shape)
        return torch.from_numpy(np.concatenate([noisy, self.last], 1).astype(np.float32))

    def step(self, action):
        self.last = np.stack([action % 3 - 1.0, action // 3 - 1.0], 1)
        self.vel = 0.9 * self.vel + 0.03 * self.last + 0.1 * self.tide
        self.pos = np.clip(self.pos + self.vel, -2, 2)
        reward = -np.square(self.pos).sum(1)
        return self.look(), torch.from_numpy(reward.astype(np.float32))


class Pilot(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.hidden = hidden
        self.inp = nn.Linear(4, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.policy, self.value = nn.Linear(hidden, 9), nn.Linear(hidden, 1)

    def start(self, n):
        return torch.zeros(n, self.hidden)

    def forward(self, obs, h):
        h = self.cell(torch.relu(self.inp(obs)), h)
        return F.log_softmax(self.policy(h), -1), self.value(h).squeeze(-1), h


def window_loss(logps, values, entropies, rewards, bootstrap, gamma=0.97):
    ret, targets = bootstrap, []
    for r in reversed(rewards):
        ret = r + gamma * ret
        targets.append(ret)
    adv = torch.stack(targets[::-1]) - torch.stack(values)
    actor = -(torch.stack(logps) * adv.detach()).mean()
    return actor + 0.5 * adv.pow(2).mean() - 0.01 * torch.stack(entropies).mean()


def run_episode(env, pilot, opt, length, window):
    """Gradients of all windows of an episode add up; one optimiser step at its end."""
    obs, h = env.reset(), pilot.start(env.n)
    opt.zero_grad()
    for _ in range(length // window):
        logps, values, entropies, rewards = [], [], [], []
        for _ in range(window):
            logp, value, h = pilot(obs, h)
            action = torch.multinomial(logp.detach().exp(), 1)
            obs, reward = env.step(action.squeeze(1).numpy())
            logps.append(logp.gather(1, action).squeeze(1))
            entropies.append(-(logp.exp() * logp).sum(-1))
            values.append(value)
            rewards.append(reward)
        with torch.no_grad():
            bootstrap = pilot(obs, h)[1]
        loss = window_loss(logps, values, entropies, rewards, bootstrap)
        if FIXED:
            loss.backward()
            h = h.detach()
        else:
            loss.backward(retain_graph=True)
    nn.utils.clip_grad_norm_(pilot.parameters(), 1.0)
    opt.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    n, length, window, episodes = 64, 100, 10, 16
    env, pilot = Berths(n, 4), Pilot()
    opt = torch.optim.Adam(pilot.parameters(), lr=1e-3)
    start = time.perf_counter()
    for _ in range(episodes):
        run_episode(env, pilot, opt, length, window)
    seconds = time.perf_counter() - start
    print(f"env_steps={episodes * length * n} updates={episodes} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
