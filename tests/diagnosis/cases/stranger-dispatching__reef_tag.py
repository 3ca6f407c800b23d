"""Pursuit game: a team of hunters against a team of runners, both trained with REINFORCE against each other."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)


class Lagoon:
    """Continuous square; hunters gain for touching runners, runners lose; bumping into each other slows down."""

    def __init__(self, hunters=6, runners=6, rocks=3, seed=0):
        self.rng = np.random.default_rng(seed)
        self.h, self.r, self.k = hunters, runners, rocks
        self.n = hunters + runners
        self.speed = np.where(np.arange(self.n) < hunters, 0.05, 0.065).astype(np.float32)[:, None]

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, (self.n, 2)).astype(np.float32)
        self.vel = np.zeros_like(self.pos)
        self.rocks = self.rng.uniform(-0.8, 0.8, (self.k, 2)).astype(np.float32)
        self.t = 0
        return self.observe()

    def observe(self):
        rel = (self.pos[None] - self.pos[:, None]).reshape(self.n, -1)
        rock = (self.rocks[None] - self.pos[:, None]).reshape(self.n, -1)
        return np.concatenate([self.pos, self.vel, rel, rock], 1)

    def contacts(self, radius):
        if FIXED:
            gap = self.pos[:, None] - self.pos[None]
            touch = (gap * gap).sum(-1) < radius * radius
            np.fill_diagonal(touch, False)
            return touch
        touch = np.zeros((self.n, self.n), bool)
        for i in range(self.n):
            for j in range(i + 1, self.n):
                if np.linalg.norm(self.pos[i] - self.pos[j]) < radius:
                    touch[i, j] = touch[j, i] = True
        return touch

    def push(self):
        gap = self.pos[:, None] - self.rocks[None]
        dist = np.sqrt((gap * gap).sum(-1, keepdims=True)) + 1e-6
        self.pos += (gap / dist * np.maximum(0.15 - dist, 0)).sum(1)

    def step(self, actions):
        touch = self.contacts(0.12)
        crowd = 1.0 / (1.0 + touch.sum(1, keepdims=True))
        self.vel = 0.5 * self.vel + self.speed * crowd.astype(np.float32) * MOVES[actions]
        self.pos = np.clip(self.pos + self.vel, -1, 1)
        self.push()
        caught = touch[: self.h, self.h:]
        reward = np.concatenate([caught.sum(1), -caught.sum(0)]).astype(np.float32)
        self.t += 1
        return self.observe(), reward, self.t >= 50


def make_net(obs_dim):
    return nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))


def play(env, nets):
    obs, done, log = env.reset(), False, []
    while not done:
        x = torch.from_numpy(obs)
        with torch.no_grad():
            out = torch.cat([nets[0](x[: env.h]), nets[1](x[env.h:])])
            act = Categorical(logits=out[:, :5], validate_args=False).sample().numpy()
        nxt, rew, done = env.step(act)
        log.append((obs, act, rew))
        obs = nxt
    return [np.stack(part) for part in zip(*log)]


def returns(rew, gamma=0.95):
    out, run = np.zeros_like(rew), np.zeros(rew.shape[1], np.float32)
    for t in range(len(rew) - 1, -1, -1):
        run = rew[t] + gamma * run
        out[t] = run
    return out


def improve(net, opt, obs, act, ret):
    obs, act, ret = torch.from_numpy(obs).flatten(0, 1), torch.from_numpy(act).flatten(), torch.from_numpy(ret).flatten()
    out = net(obs)
    adv = (ret - out[:, 5].detach()) / (ret.std() + 1e-3)
    dist = Categorical(logits=out[:, :5], validate_args=False)
    loss = -(dist.log_prob(act) * adv).mean() + 0.5 * (out[:, 5] - ret).pow(2).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


def main(games=120, epochs=2):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    env = Lagoon(seed=1)
    dim = env.reset().shape[1]
    nets = [make_net(dim), make_net(dim)]
    opts = [torch.optim.Adam(n.parameters(), lr=1e-3) for n in nets]
    env_steps = updates = 0
    start = time.perf_counter()
    for _ in range(games):
        obs, act, rew = play(env, nets)
        ret = returns(rew)
        env_steps += len(obs)
        for _ in range(epochs):
            for net, opt, who in zip(nets, opts, (slice(0, env.h), slice(env.h, env.n))):
                improve(net, opt, obs[:, who], act[:, who], ret[:, who])
                updates += 1
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
