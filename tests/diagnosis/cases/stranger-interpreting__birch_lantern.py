"""A2C on a small planar drone that has to hover over a pad in gusty wind."""
import math
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
SEED, N_ENVS, N_STEPS, UPDATES = 11, 32, 8, 400
GAMMA, LR, ENT, VF = 0.98, 7e-4, 0.01, 0.5
THRUST = ((0.2, 0.2), (0.55, 0.55), (0.9, 0.9), (0.45, 0.6), (0.6, 0.45))


class Hover(gym.Env):
    dt, gravity, limit = 0.05, 9.81, 200

    def __init__(self):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (8,), np.float32)
        self.action_space = gym.spaces.Discrete(len(THRUST))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.y, self.tilt = self.np_random.uniform(-0.5, 0.5, 3).tolist()
        self.vx = self.vy = self.spin = self.wind = 0.0
        self.battery, self.t = 1.0, 0
        return self._obs(), {}

    def _obs(self):
        return np.array([self.x, self.y, self.vx, self.vy, math.sin(self.tilt), math.cos(self.tilt),
                         self.spin, self.wind], dtype=np.float32)

    def _diagnostics(self, left, right, terms):
        return {
            "reward_terms": terms,
            "state": {"x": self.x, "y": self.y, "vx": self.vx, "vy": self.vy, "tilt": self.tilt, "spin": self.spin},
            "motors": {"left": left, "right": right, "sum": left + right},
            "wind": self.wind, "battery": self.battery,
            "time": self.t * self.dt,
        }

    def step(self, action):
        left, right = THRUST[int(action)]
        lift = 2.0 * self.gravity * (left + right) / 2.2
        self.wind += -0.1 * self.wind + 0.3 * self.np_random.standard_normal()
        self.spin += (6.0 * (right - left) - 0.5 * self.spin) * self.dt
        self.tilt += self.spin * self.dt
        self.vx += (-lift * math.sin(self.tilt) + 0.4 * self.wind - 0.1 * self.vx) * self.dt
        self.vy += (lift * math.cos(self.tilt) - self.gravity - 0.1 * self.vy) * self.dt
        self.x += self.vx * self.dt
        self.y += self.vy * self.dt
        self.battery -= 0.002 * (left + right)
        self.t += 1
        terms = {
            "distance": -math.hypot(self.x, self.y),
            "speed": -0.1 * math.hypot(self.vx, self.vy),
            "tilt": -0.2 * abs(self.tilt),
            "energy": -0.05 * (left + right),
            "alive": 1.0,
        }
        terminated = abs(self.x) > 3.0 or abs(self.y) > 3.0 or abs(self.tilt) > 1.2
        truncated = self.t >= self.limit
        ended = terminated or truncated
        info = self._diagnostics(left, right, terms) if ended or not FIXED else {}
        return self._obs(), sum(terms.values()), terminated, truncated, info


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, n_act), nn.Linear(64, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


class TermLog:
    """Reward terms at the end of episodes, averaged for the console."""

    def __init__(self):
        self.sums, self.count = {}, 0

    def add(self, infos, ended):
        for name, values in infos["reward_terms"].items():
            if not name.startswith("_"):
                self.sums[name] = self.sums.get(name, 0.0) + float(values[ended].sum())
        self.count += int(ended.sum())

    def __str__(self):
        return " ".join(f"{k}={v / max(1, self.count):.2f}" for k, v in self.sums.items())


def collect(envs, net, obs, log):
    batch = {k: [] for k in ("obs", "act", "rew", "done")}
    for _ in range(N_STEPS):
        with torch.no_grad():
            logits, _ = net(obs)
            act = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
        next_obs, rew, terminated, truncated, infos = envs.step(act.numpy())
        ended = terminated | truncated
        if ended.any():
            log.add(infos, ended)
        for key, value in zip(batch, (obs, act, torch.from_numpy(rew).float(), torch.from_numpy(ended).float())):
            batch[key].append(value)
        obs = torch.from_numpy(next_obs)
    return {k: torch.stack(v) for k, v in batch.items()}, obs


def update(net, opt, batch, last_obs):
    with torch.no_grad():
        ret = net(last_obs)[1]
        targets = []
        for rew, done in zip(batch["rew"].flip(0), batch["done"].flip(0)):
            ret = rew + GAMMA * (1.0 - done) * ret
            targets.append(ret)
        targets = torch.stack(targets[::-1])
    logits, values = net(batch["obs"])
    dist = Categorical(logits=logits)
    adv = targets - values
    loss = -(dist.log_prob(batch["act"]) * adv.detach()).mean() + VF * adv.pow(2).mean() - ENT * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    envs = gym.vector.SyncVectorEnv([Hover for _ in range(N_ENVS)])
    net = ActorCritic(8, len(THRUST))
    opt = torch.optim.RMSprop(net.parameters(), lr=LR, alpha=0.99, eps=1e-5)
    log = TermLog()
    obs = torch.from_numpy(envs.reset(seed=SEED)[0])
    start = time.perf_counter()
    for _ in range(UPDATES):
        batch, obs = collect(envs, net, obs, log)
        update(net, opt, batch, obs)
    seconds = time.perf_counter() - start
    print(log)
    print(f"env_steps={UPDATES * N_STEPS * N_ENVS} updates={UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
