"""TD3 on a small reaching task, going back to the last good agent when the return collapses."""
import copy
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

EPISODES, EP_LEN, BATCH = 200, 30, 128
CAPACITY, GAMMA, TAU = 1_000_000, 0.98, 0.01


class Reacher:
    obs_dim, act_dim = 6, 2

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos, self.vel = self.rng.uniform(-1, 1, 2), np.zeros(2)
        self.goal, self.t = self.rng.uniform(-1, 1, 2), 0
        return self._obs()

    def _obs(self):
        return np.concatenate([self.pos, self.vel, self.goal - self.pos]).astype(np.float32)

    def step(self, a):
        self.vel = 0.9 * self.vel + 0.08 * a
        self.pos = np.clip(self.pos + self.vel, -1.5, 1.5)
        self.t += 1
        gap = self.goal - self.pos
        return self._obs(), -float(np.sqrt(gap @ gap)) - 0.02 * float(a @ a), self.t >= EP_LEN


class Replay:
    def __init__(self, obs_dim, act_dim, capacity):
        self.obs = np.empty((capacity, obs_dim), np.float32)
        self.nxt = np.empty((capacity, obs_dim), np.float32)
        self.act = np.empty((capacity, act_dim), np.float32)
        self.rew = np.empty((capacity, 1), np.float32)
        self.capacity, self.n = capacity, 0

    def add(self, o, a, r, o2):
        i = self.n % self.capacity
        self.obs[i], self.act[i], self.rew[i], self.nxt[i] = o, a, r, o2
        self.n += 1

    def sample(self, rng, k):
        idx = rng.integers(min(self.n, self.capacity), size=k)
        return [torch.from_numpy(x[idx]) for x in (self.obs, self.act, self.rew, self.nxt)]


def mlp(i, o, *tail):
    return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, o), *tail)


class TD3:
    def __init__(self, obs_dim, act_dim):
        self.pi = mlp(obs_dim, act_dim, nn.Tanh())
        self.q1, self.q2 = mlp(obs_dim + act_dim, 1), mlp(obs_dim + act_dim, 1)
        self.pi_t, self.q1_t, self.q2_t = (copy.deepcopy(m) for m in (self.pi, self.q1, self.q2))
        self.replay = Replay(obs_dim, act_dim, CAPACITY)
        self.make_optimisers()

    def nets(self):
        return [self.pi, self.q1, self.q2, self.pi_t, self.q1_t, self.q2_t]

    def make_optimisers(self):
        self.pi_opt = torch.optim.Adam(self.pi.parameters(), lr=1e-3)
        self.q_opt = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=1e-3)

    @torch.no_grad()
    def act(self, obs, noise):
        return np.clip(self.pi(torch.from_numpy(obs)).numpy() + noise, -1, 1)

    def snapshot(self):
        if FIXED:
            return [copy.deepcopy(m.state_dict()) for m in self.nets()]
        return copy.deepcopy(self)

    def restore(self, saved):
        states = saved if FIXED else [m.state_dict() for m in saved.nets()]
        for net, state in zip(self.nets(), states):
            net.load_state_dict(state)
        self.make_optimisers()

    def update(self, rng, k):
        o, a, r, o2 = self.replay.sample(rng, BATCH)
        with torch.no_grad():
            a2 = (self.pi_t(o2) + (0.2 * torch.randn_like(a)).clamp(-0.5, 0.5)).clamp(-1, 1)
            x2 = torch.cat([o2, a2], 1)
            y = r + GAMMA * torch.min(self.q1_t(x2), self.q2_t(x2))
        x = torch.cat([o, a], 1)
        q_loss = F.mse_loss(self.q1(x), y) + F.mse_loss(self.q2(x), y)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()
        if k % 2 == 0:
            pi_loss = -self.q1(torch.cat([o, self.pi(o)], 1)).mean()
            self.pi_opt.zero_grad()
            pi_loss.backward()
            self.pi_opt.step()
            with torch.no_grad():
                for net, tgt in ((self.pi, self.pi_t), (self.q1, self.q1_t), (self.q2, self.q2_t)):
                    torch._foreach_lerp_(list(tgt.parameters()), list(net.parameters()), TAU)


def main():
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    env = Reacher(seed=2)
    agent = TD3(env.obs_dim, env.act_dim)
    steps = updates = 0
    start = time.perf_counter()
    good, average = agent.snapshot(), None
    for ep in range(EPISODES):
        obs, done, ret = env.reset(), False, 0.0
        while not done:
            a = agent.act(obs, rng.normal(0, 0.3 if ep > 3 else 1.0, 2).astype(np.float32))
            nxt, r, done = env.step(a)
            agent.replay.add(obs, a, r, nxt)
            obs, ret, steps = nxt, ret + r, steps + 1
            if steps > 200 and steps % 5 == 0:
                agent.update(rng, updates)
                updates += 1
        average = ret if average is None else 0.8 * average + 0.2 * ret
        if ret < 3.0 * average:
            agent.restore(good)
        else:
            good = agent.snapshot()
    print(f"return {average:.1f}\nenv_steps={steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
