"""REINFORCE with a linear policy; the loss holds a running mean of the policy's entropy."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


class Signs:
    """Name the largest of the numbers on the sign."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.sign, self.clock = self.rng.normal(0, 1, 8).astype(np.float32), 0
        return self.sign

    def step(self, action):
        reward = float(int(action) == int(self.sign.argmax()))
        self.sign, self.clock = self.rng.normal(0, 1, 8).astype(np.float32), self.clock + 1
        return self.sign, reward, self.clock >= 24, {}


class Agent:
    def __init__(self):
        self.policy = nn.Linear(8, 8)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), 0.05)
        self.entropy = torch.zeros(())

    def act(self, obs):
        with torch.no_grad():
            return int(torch.multinomial(self.policy(torch.from_numpy(obs)).softmax(0), 1))

    def learn(self, states, actions, rewards):
        logp = self.policy(torch.from_numpy(np.stack(states))).log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(1).mean()
        self.entropy = 0.999 * self.entropy + 0.001 * entropy
        gain = torch.from_numpy(np.array(rewards, np.float32))
        loss = -(logp[torch.arange(len(actions)), torch.from_numpy(np.array(actions))] * (gain - gain.mean())).mean()
        self.optimizer.zero_grad()
        self.improve(loss - 0.01 * self.entropy)
        if FIXED:
            self.entropy = self.entropy.detach()

    def improve(self, loss):
        loss.backward(retain_graph=not FIXED)
        self.optimizer.step()


def main(episodes=300):
    torch.set_num_threads(1)
    torch.manual_seed(6)
    start = time.time()
    env, agent = Signs(6), Agent()
    steps = 0
    for _ in range(episodes):
        obs, done = env.reset(), False
        states, actions, rewards = [], [], []
        while not done:
            action = agent.act(obs)
            states.append(obs), actions.append(action)
            obs, reward, done, _ = env.step(action)
            rewards.append(reward)
            steps += 1
        agent.learn(states, actions, rewards)
    print(f"env_steps={steps} updates={episodes} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
