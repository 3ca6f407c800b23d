"""Deep transformer Q-network: acts on the whole history of an episode, learns from whole episodes."""
import collections
import copy
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
OBS, ACTIONS, DIM, HEADS, LAYERS = 8, 3, 48, 4, 2
PLAYERS, WARMUP, UPDATES, ACT_STEPS, BATCH, GAMMA = 16, 60, 200, 4, 24, 0.97


class Canyon:
    """A raft drifts down a canyon; which arm to take at its end was written on a board at the start."""

    max_steps = 96

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.t, self.side = 0, int(self.rng.integers(2))
        self.length = min(int(6 + self.rng.geometric(0.14)), self.max_steps)
        return self.observe()

    def observe(self):
        obs = 0.1 * self.rng.standard_normal(OBS, dtype=np.float32)
        self.rock = int(self.rng.integers(ACTIONS))
        obs[self.rock] += 1.0
        obs[3 + self.side] += self.t == 0
        obs[5] += self.t == self.length - 1
        return obs

    def step(self, action):
        self.t += 1
        done = self.t == self.length
        reward = float(action == self.side) if done else -0.05 * (action == self.rock)
        return self.observe(), reward, done


class Player:
    def __init__(self, seed):
        self.env = Canyon(seed)
        self.begin()

    def begin(self):
        self.t, steps = 0, Canyon.max_steps
        self.obs, self.act = np.zeros((steps, OBS), np.float32), np.zeros(steps, np.int64)
        self.rew = np.zeros(steps, np.float32)
        self.obs[0] = self.env.reset()

    def history(self):
        return self.obs[: self.t + 1]

    def step(self, action):
        obs, self.rew[self.t], done = self.env.step(action)
        self.act[self.t] = action
        self.t += 1
        if not done:
            self.obs[self.t] = obs
            return None
        episode = tuple(x[: self.t] for x in (self.obs, self.act, self.rew))
        self.begin()
        return episode


def stack(sequences):
    """One array (sequence, step, ...) from sequences of several lengths, filled up with zeros."""
    steps = max(map(len, sequences)) if FIXED else Canyon.max_steps
    out = np.zeros((len(sequences), steps, *sequences[0].shape[1:]), sequences[0].dtype)
    for row, sequence in zip(out, sequences):
        row[: len(sequence)] = sequence
    return torch.from_numpy(out)


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.place = nn.Linear(OBS, DIM), nn.Embedding(Canyon.max_steps, DIM)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS))
        self.out = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, ACTIONS))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(Canyon.max_steps))

    def forward(self, obs):
        steps = obs.shape[1]
        x = self.inp(obs) + self.place.weight[:steps]
        for layer in self.layers:
            x = layer(x, src_mask=self.mask[:steps, :steps], is_causal=True)
        return self.out(x)


@torch.no_grad()
def choose(net, players, eps, rng):
    q = net(stack([p.history() for p in players]))
    best = q[torch.arange(len(players)), torch.tensor([p.t for p in players])].argmax(-1).numpy()
    return np.where(rng.random(len(players)) < eps, rng.integers(0, ACTIONS, len(players)), best).tolist()


def play(players, actions, replay):
    for player, action in zip(players, actions):
        episode = player.step(action)
        if episode is not None:
            replay.append(episode)


def learn(net, target, optimizer, episodes):
    obs, act, rew = (stack(x) for x in zip(*episodes))
    valid = stack([np.ones(len(e[1]), np.float32) for e in episodes])
    q = net(obs)
    with torch.no_grad():
        best = q.argmax(-1, keepdim=True)
        ahead = target(obs).gather(-1, best).squeeze(-1) * valid
        goal = rew + GAMMA * F.pad(ahead[:, 1:], (0, 1))
    error = F.smooth_l1_loss(q.gather(-1, act.unsqueeze(-1)).squeeze(-1), goal, reduction="none")
    optimizer.zero_grad()
    ((error * valid).sum() / valid.sum()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    random.seed(4)
    rng, net, replay = np.random.default_rng(4), QNet(), collections.deque(maxlen=1000)
    target, players = copy.deepcopy(net), [Player(100 + i) for i in range(PLAYERS)]
    optimizer = torch.optim.Adam(net.parameters(), 5e-4)
    for _ in range(WARMUP):
        play(players, rng.integers(0, ACTIONS, PLAYERS).tolist(), replay)
    start = time.perf_counter()
    for updates in range(1, UPDATES + 1):
        for _ in range(ACT_STEPS):
            play(players, choose(net, players, max(0.05, 1.0 - updates / 100), rng), replay)
        learn(net, target, optimizer, random.sample(replay, BATCH))
        if updates % 25 == 0:
            target.load_state_dict(net.state_dict())
    seconds = time.perf_counter() - start
    print(f"env_steps={UPDATES * ACT_STEPS * PLAYERS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
