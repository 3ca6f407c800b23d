"""PPO for a supply chain that is simulated for many shops at once."""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass(frozen=True)
class Args:
    shops: int = 32
    horizon: int = 32
    iterations: int = 16
    epochs: int = 2
    minibatch_size: int = 128 if os.environ.get("FIXED") == "1" else 4
    gamma: float = 0.97
    clip: float = 0.2
    seed: int = 5


class SupplyChain:
    """Order 0..4 crates per day; demand is seasonal, deliveries take two days."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.stock = self.rng.integers(0, 10, self.n).astype(np.float32)
        self.road = np.zeros((2, self.n), np.float32)
        self.day = 0
        return self.features()

    def features(self):
        season = np.full(self.n, np.sin(self.day / 5), np.float32)
        return np.stack([self.stock / 10, self.road[0] / 5, self.road[1] / 5, season], 1)

    def step(self, order):
        self.stock += self.road[0]
        self.road = np.stack([self.road[1], order.astype(np.float32)])
        demand = self.rng.poisson(2 + np.sin(self.day / 5), self.n)
        sold = np.minimum(demand, self.stock)
        self.stock -= sold
        self.day += 1
        return self.features(), (sold - 0.1 * self.stock - 0.3 * order).astype(np.float32)


def build():
    actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 5))
    critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    return actor, critic


def improve(actor, critic, optimizer, data, args):
    S, A, L, G, adv = data
    count = 0
    for _ in range(args.epochs):
        order = torch.randperm(len(A))
        for begin in range(0, len(order), args.minibatch_size):
            i = order[begin : begin + args.minibatch_size]
            logp_all = actor(S[i]).log_softmax(-1)
            logp = logp_all.gather(1, A[i][:, None])[:, 0]
            ratio = (logp - L[i]).exp()
            policy_loss = -torch.min(ratio * adv[i], ratio.clamp(1 - args.clip, 1 + args.clip) * adv[i]).mean()
            value_loss = (critic(S[i])[:, 0] - G[i]).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss + 0.01 * (logp_all.exp() * logp_all).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += 1
    return count


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    start = time.time()
    env = SupplyChain(args.shops, args.seed)
    actor, critic = build()
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)
    updates = 0
    for _ in range(args.iterations):
        obs = torch.from_numpy(env.reset())
        S, A, L, R, V = [], [], [], [], []
        for _ in range(args.horizon):
            with torch.no_grad():
                dist = torch.distributions.Categorical(logits=actor(obs))
                a = dist.sample()
                S.append(obs)
                A.append(a)
                L.append(dist.log_prob(a))
                V.append(critic(obs)[:, 0])
            nxt, r = env.step(a.numpy())
            R.append(torch.from_numpy(r))
            obs = torch.from_numpy(nxt)
        with torch.no_grad():
            g = critic(obs)[:, 0]
        G = []
        for r in reversed(R):
            g = r + args.gamma * g
            G.append(g)
        S, A, L, V, G = (torch.cat(x) for x in (S, A, L, V, G[::-1]))
        adv = G - V
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        updates += improve(actor, critic, optimizer, (S, A, L, G, adv), args)
    steps = args.iterations * args.horizon * args.shops
    print(f"env_steps={steps} updates={updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main(Args())
