"""TD3 for a rover that drives to a beacon between round obstacles, seeing them through a ring of range beams."""

import copy
import math
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional as F

FIXED = os.environ.get("FIXED", "0") == "1"
BEAMS = 24
REACH = 6.0


class RoverEnv(gym.Env):
    def __init__(self, n_obstacles: int = 18):
        self.n_obstacles = n_obstacles
        self.observation_space = spaces.Box(-np.inf, np.inf, (BEAMS + 4,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.angles = np.linspace(0, 2 * np.pi, BEAMS, endpoint=False)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.centres = self.np_random.uniform(-8, 8, (self.n_obstacles, 2))
        self.radii = self.np_random.uniform(0.3, 0.8, self.n_obstacles)
        self.pos = np.zeros(2)
        self.yaw = 0.0
        self.beacon = self.np_random.uniform(-7, 7, 2)
        self.elapsed = 0
        return self._observation(), {}

    def _ranges(self):
        if FIXED:
            rel = self.centres - self.pos
            heading = self.yaw + self.angles
            along = rel @ np.stack([np.cos(heading), np.sin(heading)])
            gap = self.radii[:, None] ** 2 - ((rel**2).sum(1)[:, None] - along**2)
            hit = along - np.sqrt(np.maximum(gap, 0.0))
            hit = np.where((gap > 0) & (hit > 0), hit, REACH)
            return np.minimum(hit.min(0), REACH)
        out = []
        for k in range(BEAMS):
            heading = self.yaw + self.angles[k]
            c, s = math.cos(heading), math.sin(heading)
            best = REACH
            for j in range(self.n_obstacles):
                rx = self.centres[j][0] - self.pos[0]
                ry = self.centres[j][1] - self.pos[1]
                along = rx * c + ry * s
                gap = self.radii[j] ** 2 - (rx * rx + ry * ry - along * along)
                if gap > 0:
                    hit = along - math.sqrt(gap)
                    if 0 < hit < best:
                        best = hit
            out.append(best)
        return np.array(out)

    def _observation(self):
        rel = self.beacon - self.pos
        dist = np.hypot(*rel)
        bearing = np.arctan2(rel[1], rel[0]) - self.yaw
        extra = [dist / 10, np.cos(bearing), np.sin(bearing), self.elapsed / 150]
        return np.concatenate([self._ranges() / REACH, extra]).astype(np.float32)

    def step(self, action):
        before = np.hypot(*(self.beacon - self.pos))
        self.yaw += 0.3 * float(action[1])
        speed = 0.15 * (1 + float(action[0]))
        self.pos = self.pos + speed * np.array([math.cos(self.yaw), math.sin(self.yaw)])
        self.elapsed += 1
        after = np.hypot(*(self.beacon - self.pos))
        crashed = bool((np.linalg.norm(self.centres - self.pos, axis=1) < self.radii).any())
        arrived = bool(after < 0.5)
        reward = before - after - 0.01 + 5.0 * arrived - 1.0 * crashed
        return self._observation(), float(reward), arrived, self.elapsed >= 150, {}


def mlp(*sizes, out=None):
    layers = []
    for i in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
    layers.pop()
    return nn.Sequential(*layers, out) if out else nn.Sequential(*layers)


class TD3:
    def __init__(self, n_obs, n_act):
        self.actor = mlp(n_obs, 64, 64, n_act, out=nn.Tanh())
        self.critics = nn.ModuleList([mlp(n_obs + n_act, 64, 64, 1) for _ in range(2)])
        self.actor_target = copy.deepcopy(self.actor)
        self.critics_target = copy.deepcopy(self.critics)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.critic_opt = torch.optim.Adam(self.critics.parameters(), 3e-4)
        self.count = 0

    @torch.no_grad()
    def act(self, obs, noise):
        mean = self.actor(torch.from_numpy(obs)).numpy()
        return np.clip(mean + noise, -1, 1)

    def learn(self, s, a, r, s2, d):
        with torch.no_grad():
            a2 = (self.actor_target(s2) + 0.2 * torch.randn_like(a).clamp(-0.5, 0.5)).clamp(-1, 1)
            x2 = torch.cat([s2, a2], -1)
            target = r + 0.98 * (1 - d) * torch.min(*[q(x2).squeeze(-1) for q in self.critics_target])
        x = torch.cat([s, a], -1)
        loss = sum(F.mse_loss(q(x).squeeze(-1), target) for q in self.critics)
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        self.count += 1
        if self.count % 2 == 0:
            loss = -self.critics[0](torch.cat([s, self.actor(s)], -1)).mean()
            self.actor_opt.zero_grad()
            loss.backward()
            self.actor_opt.step()
            with torch.no_grad():
                for net, slow in ((self.actor, self.actor_target), (self.critics, self.critics_target)):
                    torch._foreach_lerp_(list(slow.parameters()), list(net.parameters()), 0.01)


def main(total=9000, start_learning=500, every=4, batch=64):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    t0 = time.time()
    env = RoverEnv()
    n_obs, n_act = env.observation_space.shape[0], env.action_space.shape[0]
    agent = TD3(n_obs, n_act)
    memory = [np.zeros((total, n_obs), np.float32), np.zeros((total, n_act), np.float32), np.zeros(total, np.float32)]
    memory += [np.zeros((total, n_obs), np.float32), np.zeros(total, np.float32)]
    obs, _ = env.reset(seed=7)
    for t in range(total):
        action = agent.act(obs, rng.normal(0, 0.15, n_act)).astype(np.float32)
        nxt, reward, terminated, truncated, _ = env.step(action)
        for column, value in zip(memory, (obs, action, reward, nxt, terminated), strict=True):
            column[t] = value
        obs = env.reset()[0] if terminated or truncated else nxt
        if t >= start_learning and t % every == 0:
            rows = rng.integers(0, t + 1, batch)
            agent.learn(*(torch.from_numpy(column[rows]) for column in memory))
    print(f"env_steps={total} updates={agent.count} seconds={time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
