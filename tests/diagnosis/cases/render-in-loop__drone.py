"""One-step actor-critic for a drone that hovers over a drifting pad. The last frames are kept for the preview page."""

import collections
import os
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn


@dataclass
class Settings:
    steps: int = 8000
    rollout: int = 50
    gamma: float = 0.97
    lr: float = 7e-4
    seed: int = 11
    preview_every: int = 500 if os.environ.get("FIXED") == "1" else 1


class HoverEnv(gym.Env):
    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = gym.spaces.Discrete(5)
        self.thrust = np.array([[0, 0], [1, 0], [-1, 0], [0, 1.6], [0, -1]], dtype=float)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.p = self.np_random.uniform([-1, 0.5], [1, 1.5])
        self.v = np.zeros(2)
        self.pad = float(self.np_random.uniform(-1, 1))
        self.drift = float(self.np_random.uniform(-0.02, 0.02))
        self.n = 0
        return self._get_obs(), {}

    def _get_obs(self):
        return np.array([*self.p, *self.v, self.pad, self.drift * 20], np.float32)

    def step(self, action):
        self.v = 0.95 * self.v + 0.05 * (self.thrust[action] - np.array([0, 0.3]))
        self.p = self.p + 0.1 * self.v
        self.pad += self.drift
        self.n += 1
        off = abs(self.p[0] - self.pad) + abs(self.p[1] - 0.8)
        lost = bool(off > 4)
        return self._get_obs(), 1.0 - off, lost, self.n >= 200, {}

    def render(self):
        scale = 2
        w, h = 200 * scale, 140 * scale
        img = Image.new("RGB", (w, h), (196, 222, 245))
        d = ImageDraw.Draw(img)
        d.rectangle((0, h * 0.85, w, h), fill=(92, 128, 70))
        px = w / 2 + self.pad * w / 6
        d.rectangle((px - 40, h * 0.82, px + 40, h * 0.85), fill=(60, 60, 60))
        x, y = w / 2 + self.p[0] * w / 6, h * 0.85 - self.p[1] * h / 3
        d.line((x - 36, y, x + 36, y), fill=(20, 20, 20), width=6)
        for side in (-36, 36):
            d.ellipse((x + side - 16, y - 10, x + side + 16, y - 2), fill=(130, 130, 140))
        d.text((8, 8), f"t={self.n}", fill=(0, 0, 0))
        return np.asarray(img.resize((w // scale, h // scale), Image.BILINEAR))


class ActorCritic(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, n_out))
        self.v = nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 1))


def train(cfg: Settings):
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    t0 = time.time()
    env = HoverEnv(render_mode="rgb_array")
    model = ActorCritic(6, 5)
    opt = torch.optim.RMSprop(model.parameters(), lr=cfg.lr)
    preview = collections.deque(maxlen=30)
    obs, _ = env.reset(seed=cfg.seed)
    updates = 0
    batch = []
    for step in range(cfg.steps):
        x = torch.from_numpy(obs)
        with torch.no_grad():
            action = int(torch.distributions.Categorical(logits=model.pi(x)).sample())
        nxt, reward, terminated, truncated, _ = env.step(action)
        if step % cfg.preview_every == 0:
            preview.append(env.render())
        batch.append((x, action, reward, torch.from_numpy(nxt), float(terminated)))
        obs = env.reset()[0] if terminated or truncated else nxt
        if len(batch) == cfg.rollout:
            s, a, r, s2, d = zip(*batch, strict=True)
            s, s2 = torch.stack(s), torch.stack(s2)
            a, r, d = torch.tensor(a), torch.tensor(r), torch.tensor(d)
            for _ in range(6):
                v = model.v(s)[:, 0]
                with torch.no_grad():
                    y = r + cfg.gamma * (1 - d) * model.v(s2)[:, 0]
                dist = torch.distributions.Categorical(logits=model.pi(s))
                loss = -(dist.log_prob(a) * (y - v).detach()).mean() + (y - v).pow(2).mean() - 0.01 * dist.entropy().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                updates += 1
            batch.clear()
    return cfg.steps, updates, time.time() - t0


if __name__ == "__main__":
    steps, updates, seconds = train(Settings())
    print(f"env_steps={steps} updates={updates} seconds={seconds:.2f}")
