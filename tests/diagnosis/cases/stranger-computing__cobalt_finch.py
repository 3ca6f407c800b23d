"""Munchausen DQN on a numpy batch of cart-poles."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"

SEED = 5
N_ENVS = 64
CAPACITY = 400_000
WARMUP = 4_700  # random batched steps before learning starts
ITERATIONS = 900
BATCH = 256
GAMMA, LR = 0.99, 5e-4
TAU, ALPHA, CLIP = 0.03, 0.9, -1.0  # entropy temperature and Munchausen scaling
TARGET_EVERY = 100


class CartPoles:
    gravity, m_cart, m_pole, length, force, dt = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.state = rng.uniform(-0.05, 0.05, (n, 4))
        self.t = np.zeros(n, dtype=np.int64)

    @property
    def obs(self):
        return self.state.astype(np.float32)

    def step(self, act):
        x, v, th, w = self.state.T
        total = self.m_cart + self.m_pole
        cos, sin = np.cos(th), np.sin(th)
        tmp = (np.where(act == 1, self.force, -self.force) + self.m_pole * self.length * w**2 * sin) / total
        th_acc = (self.gravity * sin - cos * tmp) / (self.length * (4 / 3 - self.m_pole * cos**2 / total))
        x_acc = tmp - self.m_pole * self.length * th_acc * cos / total
        self.state = np.stack([x + self.dt * v, v + self.dt * x_acc, th + self.dt * w, w + self.dt * th_acc], 1)
        self.t += 1
        fell = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.209)
        next_obs, lengths = self.obs, self.t[fell]
        over = fell | (self.t >= 500)
        self.state[over] = self.rng.uniform(-0.05, 0.05, (int(over.sum()), 4))
        self.t[over] = 0
        return next_obs, np.ones(self.n, np.float32), fell, lengths


class ReplayBuffer:
    def __init__(self, capacity, obs_dim, seed):
        self.capacity, self.pos, self.size = capacity, 0, 0
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.next_obs = np.zeros((capacity, obs_dim), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.rew = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.rng = np.random.default_rng(seed) if FIXED else np.random.RandomState(seed)

    def add(self, obs, act, rew, next_obs, done):
        idx = (self.pos + np.arange(len(act))) % self.capacity
        self.obs[idx], self.next_obs[idx] = obs, next_obs
        self.act[idx], self.rew[idx], self.done[idx] = act, rew, done
        self.pos = int(idx[-1] + 1) % self.capacity
        self.size = min(self.size + len(act), self.capacity)

    def sample(self, batch_size):
        idx = self.rng.choice(self.size, batch_size, replace=False)
        return [torch.from_numpy(a[idx]) for a in (self.obs, self.act, self.rew, self.next_obs, self.done)]


def make_net():
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


@torch.no_grad()
def act_greedy(net, obs, rng, eps):
    act = net(torch.from_numpy(obs)).argmax(1).numpy()
    explore = rng.random(len(act)) < eps
    act[explore] = rng.integers(0, 2, int(explore.sum()))
    return act


def learn(net, target, opt, buffer):
    obs, act, rew, next_obs, done = buffer.sample(BATCH)
    with torch.no_grad():
        log_pi = F.log_softmax(target(obs) / TAU, 1).gather(1, act[:, None]).squeeze(1)
        bonus = ALPHA * (TAU * log_pi).clamp(CLIP, 0.0)
        q_next = target(next_obs)
        log_pi_next = F.log_softmax(q_next / TAU, 1)
        v_next = (log_pi_next.exp() * (q_next - TAU * log_pi_next)).sum(1)
        y = rew + bonus + GAMMA * (1.0 - done) * v_next
    q = net(obs).gather(1, act[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(q, y)
    opt.zero_grad()
    loss.backward()
    opt.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    env = CartPoles(N_ENVS, rng)
    buffer = ReplayBuffer(CAPACITY, 4, SEED)
    net, target = make_net(), make_net()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=LR)
    for _ in range(WARMUP):
        obs, act = env.obs, rng.integers(0, 2, N_ENVS)
        next_obs, rew, fell, _ = env.step(act)
        buffer.add(obs, act, rew, next_obs, fell)

    recent = []
    start = time.perf_counter()
    for it in range(ITERATIONS):
        obs = env.obs
        act = act_greedy(net, obs, rng, max(0.05, 1.0 - it / 400))
        next_obs, rew, fell, lengths = env.step(act)
        buffer.add(obs, act, rew, next_obs, fell)
        recent.extend(lengths.tolist())
        learn(net, target, opt, buffer)
        if it % TARGET_EVERY == 0:
            target.load_state_dict(net.state_dict())
    seconds = time.perf_counter() - start

    print(f"mean length of the last 50 falls: {np.mean(recent[-50:] or [0]):.1f}")
    print(f"env_steps={ITERATIONS * N_ENVS} updates={ITERATIONS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
