"""Proximal policy optimisation for a docking boat, with gymnasium's vector environments."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)
ENVS, LENGTH, ITERATIONS = 8, 128, 38


class Boat(gym.Env):
    """Drift along one axis, three engine settings, a berth at zero."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v, self.t = float(self.np_random.uniform(-2, 2)), 0.0, 0
        return self._obs(), {}

    def _obs(self):
        return np.array((self.x, self.v, self.t / 100), np.float32)

    def step(self, action):
        self.v = 0.95 * self.v + 0.05 * (int(action) - 1)
        self.x += 0.2 * self.v
        self.t += 1
        return self._obs(), -abs(self.x), abs(self.x) > 4, self.t >= 100, {}


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
        self.vf = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        return Categorical(logits=self.pi(x), validate_args=False), self.vf(x).squeeze(-1)


def make_envs():
    makers = [Boat for _ in range(ENVS)]
    return SyncVectorEnv(makers) if FIXED else AsyncVectorEnv(makers)


def rollout(envs, net, obs):
    out = {k: np.zeros((LENGTH, ENVS), np.float32) for k in ("logp", "value", "reward", "done")}
    out["obs"], out["act"] = np.zeros((LENGTH, ENVS, 3), np.float32), np.zeros((LENGTH, ENVS), np.int64)
    with torch.no_grad():
        for t in range(LENGTH):
            dist, value = net(torch.from_numpy(obs))
            act = dist.sample()
            out["obs"][t], out["act"][t] = obs, act.numpy()
            out["logp"][t], out["value"][t] = dist.log_prob(act).numpy(), value.numpy()
            obs, reward, term, trunc, _ = envs.step(out["act"][t])
            obs = obs.copy()
            out["reward"][t], out["done"][t] = reward, term | trunc
        last = net(torch.from_numpy(obs))[1].numpy()
    adv, run = np.zeros((LENGTH, ENVS), np.float32), np.zeros(ENVS, np.float32)
    for t in reversed(range(LENGTH)):
        live = 1 - out["done"][t]
        run = out["reward"][t] + 0.99 * live * last - out["value"][t] + 0.95 * 0.99 * live * run
        adv[t], last = run, out["value"][t]
    out["adv"], out["ret"] = adv, adv + out["value"]
    return {k: torch.from_numpy(v.reshape(-1, *v.shape[2:])) for k, v in out.items()}, obs


def improve(net, opt, data, epochs=4, size=256):
    count = 0
    for _ in range(epochs):
        for pick in torch.randperm(LENGTH * ENVS).split(size):
            b = {k: v[pick] for k, v in data.items()}
            dist, value = net(b["obs"])
            ratio = (dist.log_prob(b["act"]) - b["logp"]).exp()
            adv = (b["adv"] - b["adv"].mean()) / (b["adv"].std() + 1e-8)
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            loss = loss + 0.5 * (value - b["ret"]).pow(2).mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            count += 1
    return count


def main():
    torch.manual_seed(4)
    envs, net = make_envs(), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), 3e-4)
    obs, updates = envs.reset(seed=4)[0].copy(), 0
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        data, obs = rollout(envs, net, obs)
        updates += improve(net, opt, data)
    seconds = time.perf_counter() - start
    envs.close()
    print(f"env_steps={ITERATIONS * LENGTH * ENVS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
