"""PPO for a batch of simulated batteries trading on a price curve. Settings as on the cluster's 16-core nodes."""

import os
import time

import torch
from torch import nn
from torch.distributions import Normal

FIXED = os.environ.get("FIXED") == "1"

CONFIG = {
    "num_threads": 1 if FIXED else 16,
    "batteries": 512,
    "horizon": 24,
    "iterations": 8,
    "epochs": 3,
    "minibatch": 4096,
    "lr": 3e-4,
    "seed": 21,
}


class Market:
    def __init__(self, n, generator):
        self.n, self.generator = n, generator

    def reset(self):
        self.charge = torch.rand(self.n, generator=self.generator)
        self.phase = torch.rand(self.n, generator=self.generator) * 6.28
        self.hour = 0
        return self.state()

    def price(self):
        return 0.5 + 0.4 * torch.sin(self.phase + self.hour * 6.28 / 24)

    def state(self):
        p = self.price()
        return torch.stack(
            [self.charge, p, torch.sin(self.phase), torch.cos(self.phase), torch.full_like(p, self.hour / 24)], -1
        )

    def step(self, flow):
        flow = flow.clamp(-0.25, 0.25)
        nxt = (self.charge + flow).clamp(0, 1)
        reward = -(nxt - self.charge) * self.price() - 0.01 * flow.abs()
        self.charge = nxt
        self.hour += 1
        return self.state(), reward


class TraderNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.mu, self.v = nn.Linear(32, 1), nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.full((1,), -1.5))

    def forward(self, s):
        z = self.enc(s)
        return Normal(self.mu(z)[..., 0], self.log_std.exp()), self.v(z)[..., 0]


def main(cfg):
    torch.set_num_threads(cfg["num_threads"])
    torch.manual_seed(cfg["seed"])
    start = time.time()
    market = Market(cfg["batteries"], torch.Generator().manual_seed(cfg["seed"]))
    net = TraderNet()
    opt = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    updates = 0
    for _ in range(cfg["iterations"]):
        s = market.reset()
        rows = []
        for _ in range(cfg["horizon"]):
            with torch.no_grad():
                dist, v = net(s)
                a = dist.sample()
                logp = dist.log_prob(a)
            s2, r = market.step(a)
            rows.append((s, a, logp, r, v))
            s = s2
        g = torch.zeros(cfg["batteries"])
        returns = []
        for row in reversed(rows):
            g = row[3] + g
            returns.append(g)
        S, A, L, _, V = (torch.cat(column) for column in zip(*rows, strict=True))
        G = torch.cat(returns[::-1])
        adv = G - V
        for _ in range(cfg["epochs"]):
            for i in torch.randperm(len(G)).split(cfg["minibatch"]):
                dist, v = net(S[i])
                ratio = (dist.log_prob(A[i]) - L[i]).exp()
                loss = -torch.min(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean() + 0.5 * (v - G[i]).pow(2).mean()
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                updates += 1
    steps = cfg["iterations"] * cfg["horizon"] * cfg["batteries"]
    print(f"env_steps={steps} updates={updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main(CONFIG)
