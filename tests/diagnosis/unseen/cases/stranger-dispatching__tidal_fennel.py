# Pendulum swing-up with a learned probabilistic model and CEM planning (PETS-like).
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

MEMBERS, HIDDEN, BATCH = 7, 32, 32
EPISODES, EP_LEN, FIT_STEPS = 9, 50, 120
PLAN_H, POP, ELITE, CEM_ITERS = 8, 24, 6, 2


def simulate(state, u):
    """One step of the true pendulum."""
    th, thdot = state
    u = float(np.clip(u, -1, 1)) * 2.0
    cost = ((th + np.pi) % (2 * np.pi) - np.pi) ** 2 + 0.1 * thdot ** 2 + 0.001 * u ** 2
    thdot = np.clip(thdot + (15.0 * np.sin(th) + 3.0 * u) * 0.05, -8, 8)
    return (th + thdot * 0.05, thdot), -cost


def features(state):
    return np.array([np.cos(state[0]), np.sin(state[0]), state[1] / 8.0], dtype=np.float32)


class DynamicsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(4, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 6)

    def forward(self, x):
        out = self.l3(F.silu(self.l2(F.silu(self.l1(x)))))
        mean, logvar = out.chunk(2, dim=-1)
        return mean, logvar.clamp(-8, 2)


class MemberList(nn.Module):
    def __init__(self, nets):
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def forward(self, x):  # (members, batch, 4)
        outs = [net(x[k]) for k, net in enumerate(self.nets)]
        return torch.stack([m for m, _ in outs]), torch.stack([v for _, v in outs])


class MemberStack(nn.Module):
    def __init__(self, nets):
        super().__init__()
        layers = [[getattr(n, name) for n in nets] for name in ("l1", "l2", "l3")]
        self.w = nn.ParameterList([torch.stack([l.weight.detach().t() for l in ls]) for ls in layers])
        self.b = nn.ParameterList([torch.stack([l.bias.detach() for l in ls])[:, None] for ls in layers])

    def forward(self, x):
        h = F.silu(torch.baddbmm(self.b[0], x, self.w[0]))
        h = F.silu(torch.baddbmm(self.b[1], h, self.w[1]))
        mean, logvar = torch.baddbmm(self.b[2], h, self.w[2]).chunk(2, dim=-1)
        return mean, logvar.clamp(-8, 2)


nets = [DynamicsNet() for _ in range(MEMBERS)]
model = MemberStack(nets) if FIXED else MemberList(nets)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
inputs = torch.zeros(EPISODES * EP_LEN, 4)
deltas = torch.zeros(EPISODES * EP_LEN, 3)
size = 0


def fit():
    idx = torch.randint(0, size, (MEMBERS, BATCH))
    mean, logvar = model(inputs[idx])
    loss = (((mean - deltas[idx]) ** 2) * (-logvar).exp() + logvar).mean(dim=(1, 2)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def plan(obs, mu):
    std = torch.full((PLAN_H,), 0.6)
    for _ in range(CEM_ITERS):
        seqs = (mu + std * torch.randn(POP, PLAN_H)).clamp(-1, 1)
        state = torch.from_numpy(obs).expand(MEMBERS, POP, 3)
        total = torch.zeros(MEMBERS, POP)
        for t in range(PLAN_H):
            act = seqs[:, t].expand(MEMBERS, POP).unsqueeze(-1)
            mean, _ = model(torch.cat([state, act], dim=-1))
            state = state + mean
            angle = torch.atan2(state[..., 1], state[..., 0])
            total -= angle ** 2 + 6.4 * state[..., 2] ** 2
        top = seqs[total.mean(0).topk(ELITE).indices]
        mu, std = top.mean(0), top.std(0) + 0.05
    return mu


env_steps = updates = 0
started = time.perf_counter()
for episode in range(EPISODES):
    state = (np.pi + rng.normal(0, 0.1), rng.normal(0, 0.1))
    obs, ret = features(state), 0.0
    mu = torch.zeros(PLAN_H)
    for step in range(EP_LEN):
        if episode == 0:
            u = rng.uniform(-1, 1)
        else:
            mu = plan(obs, mu)
            u = float(mu[0])
            mu = torch.cat([mu[1:], torch.zeros(1)])
        state, reward = simulate(state, u)
        new = features(state)
        inputs[size, :3], inputs[size, 3] = torch.from_numpy(obs), u
        deltas[size] = torch.from_numpy(new - obs)
        obs, ret, size = new, ret + reward, size + 1
        env_steps += 1
    for _ in range(FIT_STEPS):
        loss = fit()
        updates += 1
    print(f"episode {episode} return {ret:.1f} nll {loss.item() / MEMBERS:.3f}")
seconds = time.perf_counter() - started
print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")
