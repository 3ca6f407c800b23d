"""A small policy gradient for the hand-written loops beside this file."""

import torch
from torch import nn
from torch.distributions import Categorical


class Learner:
    """Updates are counted where the optimizer is called."""

    def __init__(self, tally, updates=10):
        torch.set_num_threads(1)
        self.tally, self.each = tally, updates
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)

    def act(self, observations):
        with torch.no_grad():
            return Categorical(logits=self.policy(torch.as_tensor(observations))).sample().numpy()

    def learn(self, observations, actions, rewards):
        observations, actions = torch.as_tensor(observations), torch.as_tensor(actions)
        rewards = torch.as_tensor(rewards, dtype=torch.float32)
        for _ in range(self.each):
            loss = -(Categorical(logits=self.policy(observations)).log_prob(actions) * rewards).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.tally.updates += 1
        self.tally.iterations += 1
