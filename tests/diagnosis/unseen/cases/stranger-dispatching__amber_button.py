"""PETS-style model-based control: probabilistic dynamics models + CEM planning on a torque pendulum."""
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

MEMBERS, HIDDEN = 7, 32
POP, ELITE, HORIZON, CEM_ITERS = 28, 6, 8, 2
EPISODES, EP_LEN, BATCH, FIT_STEPS = 13, 40, 64, 30


class Pendulum:
    def reset(self):
        self.th, self.om = rng.uniform(-0.9, 0.9), 0.0
        return self.obs()

    def obs(self):
        return np.array([math.cos(self.th), math.sin(self.th), self.om / 8.0], np.float32)

    def step(self, u):
        u = max(-2.0, min(2.0, 2.0 * u))
        angle = (self.th + math.pi) % (2 * math.pi) - math.pi
        cost = angle ** 2 + 0.1 * self.om ** 2 + 0.001 * u * u
        self.om = max(-8.0, min(8.0, self.om + 0.05 * (15.0 * math.sin(self.th) + 3.0 * u)))
        self.th += 0.05 * self.om
        return self.obs(), -cost


class Dynamics(nn.Module):
    """MEMBERS independent Gaussian MLPs, s,a -> delta s."""

    def __init__(self, obs_dim=3, act_dim=1):
        super().__init__()
        sizes = [obs_dim + act_dim, HIDDEN, HIDDEN, HIDDEN, 2 * obs_dim]
        self.w = nn.ParameterList(
            [nn.Parameter(torch.randn(MEMBERS, i, o) / math.sqrt(i)) for i, o in zip(sizes, sizes[1:])])
        self.b = nn.ParameterList([nn.Parameter(torch.zeros(MEMBERS, 1, o)) for o in sizes[1:]])

    def member(self, k, h):
        last = len(self.w) - 1
        for n in range(last + 1):
            h = torch.addmm(self.b[n][k], h, self.w[n][k])
            if n < last:
                h = F.silu(h)
        return h

    def forward(self, x):
        # x: [MEMBERS, N, obs+act]
        if FIXED:
            h, last = x, len(self.w) - 1
            for n, (w, b) in enumerate(zip(self.w, self.b)):
                h = torch.baddbmm(b, h, w)
                if n < last:
                    h = F.silu(h)
            out = h
        else:
            out = torch.stack([self.member(k, x[k]) for k in range(MEMBERS)])
        mean, logvar = out.chunk(2, dim=-1)
        return mean, -4.0 + 4.0 * torch.tanh(logvar)


@torch.no_grad()
def imagine(model, obs, plans):
    # plans: [POP, HORIZON], particles are split evenly over the members
    s = obs.expand(MEMBERS, POP, 3)
    total = torch.zeros(MEMBERS, POP)
    for t in range(HORIZON):
        a = plans[:, t].expand(MEMBERS, POP).unsqueeze(-1)
        mean, logvar = model(torch.cat([s, a], -1))
        s = s + mean + (0.5 * logvar).exp() * torch.randn_like(mean)
        total += s[..., 0] - 0.1 * (s[..., 2] * 2.5).square() - 0.01 * a[..., 0].square()
    return total.mean(0)


def plan(model, obs, mu):
    obs = torch.from_numpy(obs)
    std = torch.full_like(mu, 0.7)
    for _ in range(CEM_ITERS):
        plans = (mu + std * torch.randn(POP, HORIZON)).clamp(-1, 1)
        top = plans[imagine(model, obs, plans).topk(ELITE).indices]
        mu, std = top.mean(0), top.std(0) + 0.05
    return mu


def fit(model, opt, X, Y):
    for _ in range(FIT_STEPS):
        idx = torch.randint(len(X), (MEMBERS, BATCH))
        mean, logvar = model(X[idx])
        loss = ((mean - Y[idx]).square() * (-logvar).exp() + logvar).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    env, model = Pendulum(), Dynamics()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    xs, ys, steps, updates = [], [], 0, 0
    start = time.perf_counter()
    for ep in range(EPISODES):
        obs, ret, mu = env.reset(), 0.0, torch.zeros(HORIZON)
        for _ in range(EP_LEN):
            if ep == 0:
                act = float(rng.uniform(-1, 1))
            else:
                mu = plan(model, obs, mu)
                act = float(mu[0])
                mu = torch.cat([mu[1:], torch.zeros(1)])
            nxt, rew = env.step(act)
            xs.append(np.append(obs, np.float32(act)))
            ys.append(nxt - obs)
            obs, ret, steps = nxt, ret + rew, steps + 1
        loss = fit(model, opt, torch.from_numpy(np.stack(xs)), torch.from_numpy(np.stack(ys)))
        updates += FIT_STEPS
        print(f"episode {ep} return {ret:.1f} nll {loss:.3f}")
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
