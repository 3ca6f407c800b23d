"""PPO for water tanks, one process per tank (gymnasium AsyncVectorEnv). Tanks differ in how finely they are integrated."""

import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
SUBSTEPS = (1000, 1000, 1000, 1000) if FIXED else (1000, 1000, 10000, 1000)


class TankEnv(gym.Env):
    def __init__(self, substeps):
        self.substeps = substeps
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = self.np_random.uniform(0.5, 1.5, 2)
        self.goal = float(self.np_random.uniform(0.5, 1.5))
        self.t = 0
        return self._obs(), {}

    def _obs(self):
        return np.array([*self.level, self.goal, self.t / 100], np.float32)

    def step(self, action):
        upper, lower = float(self.level[0]), float(self.level[1])
        inflow, dt = 0.4 * int(action), 0.5 / self.substeps
        for _ in range(self.substeps):
            between = 0.5 * max(upper, 0.0) ** 0.5
            out = 0.4 * max(lower, 0.0) ** 0.5
            upper += dt * (inflow - between)
            lower += dt * (between - out)
        self.level = np.array([upper, lower])
        self.t += 1
        return self._obs(), -abs(lower - self.goal), False, self.t >= 100, {}


def make(substeps):
    return lambda: TankEnv(substeps)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))

    def forward(self, x):
        y = self.f(x)
        return torch.distributions.Categorical(logits=y[..., :3]), y[..., 3]


def main(rollouts=15, horizon=128, epochs=2):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    envs = gym.vector.AsyncVectorEnv([make(n) for n in SUBSTEPS], context="fork")
    start = time.time()
    k = envs.num_envs
    net = Net()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    obs = torch.from_numpy(envs.reset(seed=5)[0])
    updates = 0
    for _ in range(rollouts):
        S, A, L, R, V = [], [], [], [], []
        for _ in range(horizon):
            with torch.no_grad():
                dist, v = net(obs)
                a = dist.sample()
                logp = dist.log_prob(a)
            nxt, r, _, _, _ = envs.step(a.numpy())
            S.append(obs), A.append(a), L.append(logp), R.append(torch.from_numpy(r).float()), V.append(v)
            obs = torch.from_numpy(nxt)
        with torch.no_grad():
            g = net(obs)[1]
        G = []
        for r in reversed(R):
            g = r + 0.95 * g
            G.append(g)
        S, A, L, V, G = (torch.cat(x) for x in (S, A, L, V, G[::-1]))
        adv = G - V
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        for _ in range(epochs):
            for i in torch.randperm(horizon * k).split(256):
                dist, v = net(S[i])
                ratio = (dist.log_prob(A[i]) - L[i]).exp()
                loss = -torch.minimum(ratio * adv[i], ratio.clip(0.8, 1.2) * adv[i]).mean() + (v - G[i]).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                updates += 1
    print(f"env_steps={rollouts * horizon * k} updates={updates} seconds={time.time() - start:.2f}")
    envs.close()


if __name__ == "__main__":
    main()
