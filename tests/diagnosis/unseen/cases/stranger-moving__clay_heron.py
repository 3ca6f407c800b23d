"""Rover on a hill map: plan by rolling out candidate action sequences, distil the plans into a policy."""
import copy
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


class HillRover:
    """Drive to the beacon while avoiding steep ground."""

    size = 448
    headings = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]], dtype=np.float64)

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        x = np.linspace(0, 12, self.size)
        self.height = np.sin(x)[:, None] * np.cos(1.3 * x)[None, :] + 0.05 * rng.standard_normal((self.size, self.size))
        self.slope = np.hypot(*np.gradient(self.height))
        self.pos = np.zeros(2)
        self.goal = np.zeros(2)
        self.t = 0

    def reset(self, rng):
        self.pos = rng.uniform(20, self.size - 20, 2)
        self.goal = rng.uniform(20, self.size - 20, 2)
        self.t = 0
        return self.observe()

    def observe(self):
        i, j = int(self.pos[0]), int(self.pos[1])
        near = self.slope[[i - 4, i + 4, i, i], [j, j, j - 4, j + 4]]
        away = (self.goal - self.pos) / self.size
        return np.concatenate([away, self.pos / self.size, near]).astype(np.float32)

    def move(self, action):
        before = self.goal - self.pos
        steep = self.slope[int(self.pos[0]), int(self.pos[1])]
        self.pos = np.clip(self.pos + self.headings[action] * 10.0 / (1 + steep), 5, self.size - 6)
        after = self.goal - self.pos
        self.t += 1
        gain = (before @ before) ** 0.5 - (after @ after) ** 0.5
        return 0.1 * gain - 0.5 * steep, bool(after @ after < 150.0)

    def step(self, action):
        reward, reached = self.move(action)
        return self.observe(), reward, reached, self.t >= 60


class Planner:
    def __init__(self, policy, candidates=12, depth=8, seed=0):
        self.policy, self.candidates, self.depth = policy, candidates, depth
        self.rng = np.random.default_rng(seed)

    def branch(self, env):
        if FIXED:
            twin = copy.copy(env)
            twin.pos = env.pos.copy()
            return twin
        return copy.deepcopy(env)

    def rollout(self, env, plan):
        sim = self.branch(env)
        total, weight = 0.0, 1.0
        for action in plan:
            reward, reached = sim.move(action)
            total += weight * reward
            weight *= 0.97
            if reached:
                break
        return total

    def choose(self, env, obs):
        with torch.no_grad():
            prior = torch.softmax(self.policy(torch.from_numpy(obs)), -1).numpy().astype(np.float64)
        prior = 0.6 * prior / prior.sum() + 0.4 / 8
        plans = self.rng.choice(8, size=(self.candidates, self.depth), p=prior)
        scores = [self.rollout(env, plan) for plan in plans]
        return int(plans[int(np.argmax(scores))][0])


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    env = HillRover(seed=5)
    policy = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    planner = Planner(policy)
    memory_obs, memory_act = [], []
    env_steps = updates = 0
    rewards = []
    start = time.perf_counter()
    obs = env.reset(rng)
    while env_steps < 1400:
        action = planner.choose(env, obs)
        memory_obs.append(obs)
        memory_act.append(action)
        obs, reward, reached, timeout = env.step(action)
        rewards.append(reward)
        env_steps += 1
        if reached or timeout:
            obs = env.reset(rng)
        if env_steps % 20 == 0:
            xs, ys = torch.from_numpy(np.stack(memory_obs)), torch.tensor(memory_act)
            for _ in range(10):
                rows = torch.randint(env_steps, (256,))
                loss = nn.functional.cross_entropy(policy(xs[rows]), ys[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                updates += 1
    seconds = time.perf_counter() - start
    print(f"mean reward {np.mean(rewards[-100:]):.3f}, imitation loss {loss.item():.3f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
