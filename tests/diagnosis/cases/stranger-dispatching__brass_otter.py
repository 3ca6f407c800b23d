"""Six conveyor lines, one agent: double DQN with a shared trunk and an output layer per line."""
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

TASKS = 6
ACTIONS = 5
TOTAL_ROUNDS = 1100
BATCH = 48
GAMMA = 0.97


class ConveyorLines:
    """Each line has its own load, friction and direction of the lever; keep the crate at the mark."""

    def __init__(self, rng):
        self.rng = rng
        self.load = np.linspace(0.7, 1.6, TASKS)
        self.friction = np.linspace(0.02, 0.15, TASKS)
        self.lever = np.where(np.arange(TASKS) % 2 == 0, 1.0, -1.0)
        self.push = np.linspace(-1.0, 1.0, ACTIONS)
        self.reset()

    def reset(self):
        self.place = self.rng.uniform(-1.5, 1.5, TASKS)
        self.speed = self.rng.uniform(-0.2, 0.2, TASKS)
        self.mark = self.rng.uniform(-1.0, 1.0, TASKS)
        self.t = 0
        return self.observe()

    def observe(self):
        return np.stack([self.place, 4 * self.speed, self.mark, self.mark - self.place], 1).astype(np.float32)

    def step(self, actions):
        force = 0.08 * self.lever * self.push[actions] / self.load
        self.speed = (1 - self.friction) * self.speed + force
        self.place = np.clip(self.place + self.speed, -2.5, 2.5)
        self.t += 1
        reward = 0.5 - np.minimum(np.abs(self.mark - self.place), 1.5) - 0.01 * np.abs(self.push[actions])
        return self.observe(), reward.astype(np.float32), self.t >= 50


class SharedMemory:
    """All the lines write here; a sample mixes them."""

    def __init__(self, capacity=24000):
        self.obs = np.zeros((capacity, 4), np.float32)
        self.next_obs = np.zeros((capacity, 4), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.task = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.capacity, self.count = capacity, 0

    def add(self, obs, actions, rewards, next_obs):
        at = (self.count + np.arange(TASKS)) % self.capacity
        self.obs[at], self.next_obs[at] = obs, next_obs
        self.action[at], self.reward[at], self.task[at] = actions, rewards, np.arange(TASKS)
        self.count += TASKS

    def sample(self, rng):
        idx = rng.integers(0, min(self.count, self.capacity), BATCH)
        fields = (self.obs, self.task, self.action, self.reward, self.next_obs)
        return [torch.from_numpy(field[idx]) for field in fields]


class LineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(96, ACTIONS) for _ in range(TASKS)])

    def forward(self, obs, task):
        features = self.trunk(obs)
        if FIXED:
            every = torch.stack([head(features) for head in self.heads], dim=1)
            return every[torch.arange(len(obs)), task]
        return torch.stack([self.heads[int(line)](row) for row, line in zip(features, task)])


class Learner:
    def __init__(self):
        self.net, self.target = LineNet(), LineNet()
        self.target.load_state_dict(self.net.state_dict())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=8e-4)
        self.lines = torch.arange(TASKS)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs):
        return self.net(torch.from_numpy(obs), self.lines).argmax(1).numpy()

    def update(self, batch):
        obs, task, action, reward, next_obs = batch
        with torch.no_grad():
            best = self.net(next_obs, task).argmax(1, keepdim=True)
            goal = reward + GAMMA * self.target(next_obs, task).gather(1, best).squeeze(1)
        loss = nn.functional.smooth_l1_loss(self.net(obs, task).gather(1, action[:, None]).squeeze(1), goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 150 == 0:
            self.target.load_state_dict(self.net.state_dict())
        return loss


def main():
    rng = np.random.default_rng(8)
    torch.manual_seed(8)
    lines, memory, learner = ConveyorLines(rng), SharedMemory(), Learner()
    per_line, episode = [], np.zeros(TASKS)
    obs = lines.observe()
    start = time.perf_counter()
    for number in range(TOTAL_ROUNDS):
        epsilon = max(0.05, 1 - number / 600)
        explore = rng.random(TASKS) < epsilon
        actions = np.where(explore, rng.integers(0, ACTIONS, TASKS), learner.act(obs))
        next_obs, rewards, over = lines.step(actions)
        memory.add(obs, actions, rewards, next_obs)
        episode += rewards
        obs = next_obs
        if over:
            per_line.append(episode)
            obs, episode = lines.reset(), np.zeros(TASKS)
        if number >= 30:
            learner.update(memory.sample(rng))
    seconds = time.perf_counter() - start
    print("return per line:", np.round(np.mean(per_line[-4:], axis=0), 1))
    print(f"env_steps={TOTAL_ROUNDS * TASKS} updates={learner.updates} seconds={seconds:.2f}")


main()
