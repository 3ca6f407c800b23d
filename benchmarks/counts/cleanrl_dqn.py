"""DQN in one file: a replay buffer in arrays, an update every fourth step, a target network.

python cleanrl_dqn.py
"""

import copy
import random

import numpy as np
import torch
from tally import Tally, Walk
from torch import nn

STEPS, STARTS, EVERY, SIZE = 3000, 200, 4, 2000


class ReplayBuffer:
    def __init__(self):
        self.obs, self.next_obs = np.zeros((SIZE, 4), np.float32), np.zeros((SIZE, 4), np.float32)
        self.actions, self.rewards, self.dones = (
            np.zeros(SIZE, np.int64),
            np.zeros(SIZE, np.float32),
            np.zeros(SIZE, np.float32),
        )
        self.added = 0

    def add(self, obs, next_obs, action, reward, done):
        i = self.added % SIZE
        self.obs[i], self.next_obs[i], self.actions[i], self.rewards[i], self.dones[i] = obs, next_obs, action, reward, done
        self.added += 1

    def sample(self, count):
        i = np.random.randint(0, min(self.added, SIZE), count)
        return [torch.as_tensor(a[i]) for a in (self.obs, self.next_obs, self.actions, self.rewards, self.dones)]


def main():
    torch.set_num_threads(1)
    tally = Tally()
    env, buffer = Walk(tally), ReplayBuffer()
    network = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    target = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    obs, _ = env.reset(seed=1)
    for step in range(STEPS):
        if random.random() < 0.1:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = int(network(torch.as_tensor(obs)).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs, next_obs, action, reward, terminated)
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step >= STARTS and step % EVERY == 0:
            states, following, actions, rewards, dones = buffer.sample(64)
            with torch.no_grad():
                goal = rewards + 0.99 * target(following).max(1).values * (1 - dones)
            loss = nn.functional.mse_loss(goal, network(states).gather(1, actions[:, None]).squeeze(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tally.updates += 1
        if step % 500 == 0:
            target.load_state_dict(network.state_dict())
    tally.iterations = None  # it learns every millisecond: HotLoop closes an iteration every 20 ms at most
    tally.say(STEPS, (STEPS - STARTS) // EVERY)


if __name__ == "__main__":
    main()
