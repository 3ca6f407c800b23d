"""QMIX with recurrent agents: five agents look for their own plates, thirty-two worlds in step."""
import copy
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

WORLDS, AGENTS, SIDE, HORIZON = 32, 5, 10, 25
OBS, STATE, ACTIONS = 2 + 2 + 2 + AGENTS, 4 * AGENTS, 5
HIDDEN, EMBED, GAMMA, SYNC = 128, 32, 0.97, 10
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
ITERATIONS, UPDATES, BATCH, CAPACITY = 34, 2, 32, 512


class Plates:
    def __init__(self, rng):
        self.rng = rng
        self.badge = np.broadcast_to(np.eye(AGENTS, dtype=np.float32), (WORLDS, AGENTS, AGENTS))

    def reset(self):
        self.pos = self.rng.integers(SIDE, size=(WORLDS, AGENTS, 2))
        self.plate = self.rng.integers(SIDE, size=(WORLDS, AGENTS, 2))

    def observe(self):
        here = (self.pos / SIDE).astype(np.float32)
        way = np.sign(self.plate - self.pos).astype(np.float32)
        crowd = np.broadcast_to(here.mean(1, keepdims=True), here.shape)
        return np.concatenate([here, way, crowd - here, self.badge], -1)

    def state(self):
        both = np.concatenate([self.pos, self.plate], -1).reshape(WORLDS, STATE)
        return both.astype(np.float32) / SIDE

    def step(self, action):
        self.pos = np.clip(self.pos + MOVES[action], 0, SIDE - 1)
        gap = np.abs(self.pos - self.plate).sum(-1)
        home = gap == 0
        return (home.mean(1) + home.all(1) - 0.02 * gap.mean(1)).astype(np.float32)


class AgentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(OBS, HIDDEN)
        self.gru = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.out = nn.Linear(HIDDEN, ACTIONS)

    def forward(self, obs, memory=None):
        x, memory = self.gru(F.relu(self.inp(obs)), memory)
        return self.out(x), memory


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.b1 = nn.Linear(STATE, AGENTS * EMBED), nn.Linear(STATE, EMBED)
        self.w2 = nn.Linear(STATE, EMBED)
        self.b2 = nn.Sequential(nn.Linear(STATE, EMBED), nn.ReLU(), nn.Linear(EMBED, 1))

    def forward(self, q, state):
        w1 = self.w1(state).abs().unflatten(-1, (AGENTS, EMBED))
        h = F.elu((q.unsqueeze(-2) @ w1).squeeze(-2) + self.b1(state))
        return (h * self.w2(state).abs()).sum(-1) + self.b2(state).squeeze(-1)


class Episodes:
    def __init__(self):
        self.obs = np.zeros((CAPACITY, HORIZON + 1, AGENTS, OBS), np.float32)
        self.state = np.zeros((CAPACITY, HORIZON + 1, STATE), np.float32)
        self.action = np.zeros((CAPACITY, HORIZON, AGENTS), np.int64)
        self.reward = np.zeros((CAPACITY, HORIZON), np.float32)
        self.head = self.size = 0

    def claim(self):
        rows = slice(self.head, self.head + WORLDS)
        self.head = (self.head + WORLDS) % CAPACITY
        self.size = min(self.size + WORLDS, CAPACITY)
        return rows

    def sample(self, rng):
        idx = rng.integers(self.size, size=BATCH)
        return [torch.from_numpy(a[idx]) for a in (self.obs, self.state, self.action, self.reward)]


@torch.no_grad()
def collect(env, net, store, rng, epsilon):
    rows, memory = store.claim(), None
    env.reset()
    for t in range(HORIZON):
        obs = env.observe()
        store.obs[rows, t], store.state[rows, t] = obs, env.state()
        q, memory = net(torch.from_numpy(obs).view(WORLDS * AGENTS, 1, OBS), memory)
        greedy = q.argmax(-1).view(WORLDS, AGENTS).numpy()
        explore = rng.random((WORLDS, AGENTS)) < epsilon
        action = np.where(explore, rng.integers(ACTIONS, size=(WORLDS, AGENTS)), greedy)
        store.action[rows, t], store.reward[rows, t] = action, env.step(action)
    store.obs[rows, HORIZON], store.state[rows, HORIZON] = env.observe(), env.state()
    return float(store.reward[rows].sum(1).mean())


class Learner:
    def __init__(self):
        self.net, self.mixer = AgentNet(), Mixer()
        self.target_net, self.target_mixer = copy.deepcopy(self.net), copy.deepcopy(self.mixer)
        self.params = list(self.net.parameters()) + list(self.mixer.parameters())
        self.opt = torch.optim.Adam(self.params, lr=7e-4)
        self.updates = 0

    def update(self, obs, state, action, reward):
        rows = obs.transpose(1, 2).reshape(BATCH * AGENTS, HORIZON + 1, OBS)
        q = self.net(rows)[0].view(BATCH, AGENTS, HORIZON + 1, ACTIONS).transpose(1, 2)
        chosen = q[:, :-1].gather(-1, action[..., None]).squeeze(-1)
        with torch.no_grad():
            later = self.target_net(rows)[0].view(BATCH, AGENTS, HORIZON + 1, ACTIONS).transpose(1, 2)
            best = q[:, 1:].argmax(-1, keepdim=True)
            later = later[:, 1:].gather(-1, best).squeeze(-1)
            goal = reward + GAMMA * self.target_mixer(later, state[:, 1:])
        loss = F.mse_loss(self.mixer(chosen, state[:, :-1]), goal)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.params, 10.0)
        self.opt.step()
        self.updates += 1
        if self.updates % SYNC == 0:
            self.target_net.load_state_dict(self.net.state_dict())
            self.target_mixer.load_state_dict(self.mixer.state_dict())


def main():
    torch.set_num_threads(1)
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    env, learner, store, returns = Plates(rng), Learner(), Episodes(), []
    start = time.perf_counter()
    for i in range(ITERATIONS):
        returns.append(collect(env, learner.net, store, rng, max(0.05, 1.0 - i / 20)))
        for _ in range(UPDATES):
            learner.update(*store.sample(rng))
    seconds = time.perf_counter() - start
    print(f"return first={returns[0]:.2f} last={returns[-1]:.2f}")
    print(f"env_steps={ITERATIONS * WORLDS * HORIZON} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
