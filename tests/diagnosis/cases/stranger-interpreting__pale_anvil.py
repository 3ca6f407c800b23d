"""Value decomposition for three carriers, with a recurrent agent network and window replay."""
import copy
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"

SEED, GAMMA = 41, 0.95
AGENTS, OBS, ACTIONS, SIZE = 3, 7, 4, 6
WINDOW, BATCH, CAPACITY = 8, 16, 8000
WARMUP, STEPS, TRAIN_EVERY = 4500, 7000, 6
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

class Carriers:
    """Three carriers have to stand on the load together; the load moves away after each success."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def _observe(self):
        rel = (self.load - self.pos) / SIZE
        others = (self.pos.sum(0) - self.pos) / (2 * SIZE)
        clock = np.full((AGENTS, 1), self.t / 40)
        return np.concatenate([rel, others, self.pos / SIZE, clock], 1).astype(np.float32)

    def reset(self):
        self.pos = self.rng.integers(0, SIZE, (AGENTS, 2))
        self.load = self.rng.integers(0, SIZE, 2)
        self.t = 0
        return self._observe()

    def step(self, actions):
        before = np.abs(self.load - self.pos).sum()
        self.pos = np.clip(self.pos + MOVES[actions], 0, SIZE - 1)
        after = np.abs(self.load - self.pos).sum()
        reward = 0.1 * float(before - after)
        if after <= 2:
            reward += 3.0
            self.load = self.rng.integers(0, SIZE, 2)
        self.t += 1
        return self._observe(), reward, self.t >= 40 or self.rng.random() < 0.01

class WindowReplay:
    """One flat store of joint steps; learns from windows that lie inside an episode."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.obs = np.zeros((CAPACITY, AGENTS, OBS), np.float32)
        self.act = np.zeros((CAPACITY, AGENTS), np.int64)
        self.rew = np.zeros(CAPACITY, np.float32)
        self.done = np.zeros(CAPACITY, bool)
        self.size = 0

    def add(self, obs, act, rew, done):
        i = self.size
        self.obs[i], self.act[i], self.rew[i], self.done[i] = obs, act, rew, done
        self.size += 1

    def starts(self):
        last = self.size - WINDOW + 1
        if FIXED:
            ends = np.concatenate([[0], np.cumsum(self.done[:self.size])])
            return np.flatnonzero(ends[WINDOW - 1:WINDOW - 1 + last] == ends[:last])
        return [i for i in range(last) if not any(self.done[i:i + WINDOW - 1])]

    def sample(self, n):
        first = self.rng.choice(self.starts(), n)
        rows = first[:, None] + np.arange(WINDOW)
        parts = self.obs[rows], self.act[rows], self.rew[rows], self.done[rows].astype(np.float32)
        return [torch.from_numpy(part) for part in parts]

class AgentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(OBS + AGENTS, 48)
        self.core = nn.GRU(48, 48)
        self.q = nn.Linear(48, ACTIONS)

    def forward(self, obs, state=None):
        """obs: (steps, batch, agents, OBS) -> (steps, batch, agents, ACTIONS)"""
        steps, batch = obs.shape[:2]
        who = torch.eye(AGENTS).expand(steps, batch, AGENTS, AGENTS)
        x = torch.relu(self.enter(torch.cat([obs, who], -1)))
        z, state = self.core(x.reshape(steps, batch * AGENTS, -1), state)
        return self.q(z).view(steps, batch, AGENTS, ACTIONS), state

def update(net, target, optim, replay):
    obs, act, rew, done = (part.transpose(0, 1) for part in replay.sample(BATCH))
    chosen = net(obs)[0].gather(-1, act.unsqueeze(-1)).squeeze(-1).sum(-1)
    with torch.no_grad():
        ahead = target(obs)[0].amax(-1).sum(-1)[1:]
    goal = rew[:-1] + GAMMA * (1 - done[:-1]) * ahead
    loss = F.smooth_l1_loss(chosen[:-1], goal)
    optim.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    optim.step()

def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    env, replay = Carriers(SEED), WindowReplay(SEED)
    net = AgentNet()
    target = copy.deepcopy(net)
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    updates, episode, returns = 0, 0.0, []
    obs, state = env.reset(), None
    start = time.perf_counter()
    for step in range(STEPS):
        if step < WARMUP:
            act = rng.integers(0, ACTIONS, AGENTS)
        else:
            with torch.no_grad():
                q, state = net(torch.from_numpy(obs).view(1, 1, AGENTS, OBS), state)
            epsilon = max(0.05, 1.0 - (step - WARMUP) / 2000)
            random_act = rng.integers(0, ACTIONS, AGENTS)
            act = np.where(rng.random(AGENTS) < epsilon, random_act, q[0, 0].argmax(-1).numpy())
        nxt, rew, done = env.step(act)
        replay.add(obs, act, rew, done)
        episode += rew
        obs = nxt
        if done:
            returns.append(episode)
            obs, state, episode = env.reset(), None, 0.0
        if step >= WARMUP and step % TRAIN_EVERY == 0:
            update(net, target, optim, replay)
            updates += 1
            if updates % 50 == 0:
                target.load_state_dict(net.state_dict())
    seconds = time.perf_counter() - start
    print(f"return, first episodes {np.mean(returns[:20]):.2f}, last episodes {np.mean(returns[-20:]):.2f}")
    print(f"env_steps={STEPS} updates={updates} seconds={seconds:.3f}")

if __name__ == "__main__":
    main()
