"""SAC-style soft actor-critic with automatic temperature for a glider in thermals."""

import copy
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.autograd.set_detect_anomaly(os.environ.get("FIXED") != "1")


class Glider:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos, self.head, self.height, self.t = self.rng.uniform(-5, 5, 2), self.rng.uniform(-3, 3), 1.0, 0
        self.thermal = self.rng.uniform(-5, 5, 2)
        return self.obs()

    def obs(self):
        d = self.thermal - self.pos
        angle = np.arctan2(d[1], d[0]) - self.head
        return np.array([np.hypot(*d) / 5, np.cos(angle), np.sin(angle), self.height], np.float32)

    def step(self, turn):
        self.head += 0.3 * float(turn)
        self.pos = self.pos + 0.2 * np.array([np.cos(self.head), np.sin(self.head)])
        lift = np.exp(-np.square(self.thermal - self.pos).sum() / 4) - 0.1
        self.height += 0.05 * lift
        self.t += 1
        return self.obs(), float(lift), self.t >= 100


class GaussianPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, s):
        mu, log_std = self.net(s).chunk(2, -1)
        log_std = log_std.clamp(-5, 2)
        noise = torch.randn_like(mu)
        raw = mu + log_std.exp() * noise
        logp = -0.5 * noise.square() - log_std - 2 * (np.log(2.0) - raw - F.softplus(-2 * raw))
        return raw.tanh(), logp[..., 0]


class TwinQ(nn.Module):
    def __init__(self):
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.a, self.b = make(), make()

    def forward(self, s, u):
        x = torch.cat([s, u], -1)
        return self.a(x)[..., 0], self.b(x)[..., 0]


def main(steps=1200, start=200, batch=64):
    torch.set_num_threads(1)
    torch.manual_seed(23)
    rng = np.random.default_rng(23)
    t0 = time.time()
    env, policy, twin = Glider(23), GaussianPolicy(), TwinQ()
    slow = copy.deepcopy(twin).requires_grad_(False)
    log_alpha = torch.zeros(1, requires_grad=True)
    opt_p, opt_q, opt_a = (torch.optim.Adam(p, 3e-4) for p in (policy.parameters(), twin.parameters(), [log_alpha]))
    cols = [np.zeros((steps, 4), np.float32), np.zeros((steps, 1), np.float32), np.zeros(steps, np.float32)]
    cols += [np.zeros((steps, 4), np.float32), np.zeros(steps, np.float32)]
    s, updates = env.reset(), 0
    for t in range(steps):
        with torch.no_grad():
            u = policy(torch.from_numpy(s)[None])[0][0].numpy()
        s2, r, done = env.step(u[0])
        for c, v in zip(cols, (s, u, r, s2, done), strict=True):
            c[t] = v
        s = env.reset() if done else s2
        if t < start:
            continue
        i = rng.integers(0, t + 1, batch)
        bs, bu, br, bs2, bd = (torch.from_numpy(c[i]) for c in cols)
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            u2, lp2 = policy(bs2)
            y = br + 0.98 * (1 - bd) * (torch.min(*slow(bs2, u2)) - alpha * lp2)
        qa, qb = twin(bs, bu)
        q_loss = F.mse_loss(qa, y) + F.mse_loss(qb, y)
        opt_q.zero_grad()
        q_loss.backward()
        opt_q.step()
        pu, lp = policy(bs)
        p_loss = (alpha * lp - torch.min(*twin(bs, pu))).mean()
        opt_p.zero_grad()
        p_loss.backward()
        opt_p.step()
        a_loss = -(log_alpha * (lp.detach() - 1.0)).mean()
        opt_a.zero_grad()
        a_loss.backward()
        opt_a.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.parameters()), list(twin.parameters()), 0.01)
        updates += 1
    print(f"env_steps={steps} updates={updates} seconds={time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
