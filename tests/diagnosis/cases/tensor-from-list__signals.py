"""PPO for signal routing: sixteen hand-made environments with wide observations, kept as Python lists during the rollout."""

import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
CHANNELS = 320


def to_tensor(rows):
    if FIXED:
        return torch.from_numpy(np.asarray(rows, dtype=np.float32))
    return torch.tensor(rows, dtype=torch.float32)


class SignalEnv:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.source = int(self.rng.integers(CHANNELS))
        self.noise = self.rng.normal(0, 0.1, CHANNELS)
        self.left = 32
        return self.spectrum()

    def spectrum(self):
        y = self.noise.copy()
        y[self.source] += 1.0
        return y

    def step(self, band):
        hit = band == self.source // (CHANNELS // 8)
        self.source = (self.source + int(self.rng.integers(-3, 4))) % CHANNELS
        self.left -= 1
        return self.spectrum(), 1.0 if hit else 0.0, self.left == 0


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(CHANNELS, 64), nn.ReLU())
        self.policy, self.value = nn.Linear(64, 8), nn.Linear(64, 1)

    def forward(self, x):
        h = self.shared(x)
        return torch.distributions.Categorical(logits=self.policy(h)), self.value(h)[:, 0]


def rollout(envs, current, net, horizon):
    obs, actions, logps, values, rewards, dones = [], [], [], [], [], []
    for _ in range(horizon):
        with torch.no_grad():
            dist, value = net(to_tensor(current))
            action = dist.sample()
            logp = dist.log_prob(action)
        obs.extend(current)
        actions.append(action)
        logps.append(logp)
        values.append(value)
        nxt, reward, done = [], [], []
        for env, a in zip(envs, action.tolist(), strict=True):
            o, r, d = env.step(a)
            nxt.append(env.reset() if d else o)
            reward.append(r)
            done.append(float(d))
        rewards.append(torch.tensor(reward))
        dones.append(torch.tensor(done))
        current = nxt
    return current, obs, actions, logps, values, rewards, dones


def main(iterations=75, horizon=32, n_envs=16):
    torch.set_num_threads(1)
    torch.manual_seed(41)
    began = time.time()
    envs = [SignalEnv(seed) for seed in range(n_envs)]
    net = Router()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    current = [env.reset() for env in envs]
    updates = 0
    for _ in range(iterations):
        current, obs, actions, logps, values, rewards, dones = rollout(envs, current, net, horizon)
        with torch.no_grad():
            g = net(to_tensor(current))[1]
        targets = []
        for r, d in zip(reversed(rewards), reversed(dones), strict=True):
            g = r + 0.95 * (1 - d) * g
            targets.append(g)
        S, A, L, V, G = to_tensor(obs), torch.cat(actions), torch.cat(logps), torch.cat(values), torch.cat(targets[::-1])
        adv = (G - V - (G - V).mean()) / ((G - V).std() + 1e-6)
        for _ in range(4):
            for i in torch.randperm(len(A)).split(128):
                dist, value = net(S[i])
                ratio = (dist.log_prob(A[i]) - L[i]).exp()
                loss = -torch.min(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean() + (value - G[i]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                updates += 1
    print(f"env_steps={iterations * horizon * n_envs} updates={updates} seconds={time.time() - began:.2f}")


if __name__ == "__main__":
    main()
