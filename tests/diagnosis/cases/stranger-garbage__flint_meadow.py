"""REINFORCE with a learned baseline on Pendulum, plus self-imitation of the best episodes so far.

One episode per update, as in the first version of the paper's code.
"""
import gc
import heapq
import itertools
import os
import time
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal

FIXED = os.environ.get("FIXED") == "1"

SEED = 21
EPISODES = 44
GAMMA = 0.97
LR_PI, LR_V = 1e-3, 3e-3
N_BEST, IMITATION_WEIGHT = 10, 0.1


@dataclass
class Step:
    obs: torch.Tensor
    action: torch.Tensor
    reward: float


@dataclass
class Episode:
    steps: list = field(default_factory=list)

    @property
    def score(self):
        return sum(step.reward for step in self.steps)

    def tensors(self):
        ret, returns = 0.0, []
        for step in reversed(self.steps):
            ret = step.reward + GAMMA * ret
            returns.append(ret)
        obs = torch.stack([step.obs for step in self.steps])
        actions = torch.stack([step.action for step in self.steps])
        return obs, actions, torch.tensor(returns[::-1])


class Policy(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(n_obs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_act))
        self.log_std = nn.Parameter(torch.zeros(n_act))

    def forward(self, obs):
        return Normal(self.mean(obs), self.log_std.exp())


class BestEpisodes:
    """The episodes with the highest scores, for imitation."""

    def __init__(self, size):
        self.size, self.heap, self.order = size, [], itertools.count()

    def add(self, episode):
        heapq.heappush(self.heap, (episode.score, next(self.order), episode))
        while len(self.heap) > self.size:
            heapq.heappop(self.heap)

    def draw(self, rng):
        return self.heap[rng.integers(len(self.heap))][2]


class Trainer:
    def __init__(self):
        self.env = gym.make("Pendulum-v1")
        self.rng = np.random.default_rng(SEED)
        self.policy = Policy(3, 1)
        self.value = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
        self.pi_opt = torch.optim.Adam(self.policy.parameters(), lr=LR_PI)
        self.v_opt = torch.optim.Adam(self.value.parameters(), lr=LR_V)
        self.best = BestEpisodes(N_BEST)
        self.episode, self.scores, self.env_steps = None, [], 0

    def play(self):
        self.episode = Episode()
        obs, _ = self.env.reset(seed=int(self.rng.integers(2**31)))
        over = False
        while not over:
            obs_t = torch.as_tensor(obs, dtype=torch.float32)
            with torch.no_grad():
                action = self.policy(obs_t).sample()
            obs, reward, terminated, truncated, _ = self.env.step(action.clamp(-2, 2).numpy())
            self.episode.steps.append(Step(obs_t, action, float(reward) / 8.0))
            over = terminated or truncated
            self.env_steps += 1

    def learn(self):
        obs, actions, returns = self.episode.tensors()
        values = self.value(obs).squeeze(-1)
        adv = (returns - values).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        loss = -(self.policy(obs).log_prob(actions).sum(-1) * adv).mean()
        if self.best.heap:
            obs_b, actions_b, returns_b = self.best.draw(self.rng).tensors()
            gain = (returns_b - self.value(obs_b).squeeze(-1).detach()).clamp(min=0.0)
            loss = loss - IMITATION_WEIGHT * (self.policy(obs_b).log_prob(actions_b).sum(-1) * gain).mean()
        self.pi_opt.zero_grad()
        loss.backward()
        self.pi_opt.step()
        v_loss = (values - returns).pow(2).mean()
        self.v_opt.zero_grad()
        v_loss.backward()
        self.v_opt.step()

    def finish(self):
        self.scores.append(8.0 * self.episode.score)
        self.best.add(self.episode)
        self.episode = None
        if not FIXED:
            gc.collect()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    trainer = Trainer()
    start = time.perf_counter()
    for _ in range(EPISODES):
        trainer.play()
        trainer.learn()
        trainer.finish()
    seconds = time.perf_counter() - start
    trainer.env.close()
    print(f"mean score, first and last 10 episodes: {np.mean(trainer.scores[:10]):.0f} {np.mean(trainer.scores[-10:]):.0f}")
    print(f"env_steps={trainer.env_steps} updates={EPISODES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
