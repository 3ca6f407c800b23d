"""A training loop with a planted hot function: its lines are known, and its share of the loop is timed by hand.

python hot_function.py [--steps 6000]
"""

import argparse
import inspect
import random
import time

import torch
from torch import nn
from truth import Truth


class Gridworld:
    """Five by five cells, a goal that moves; the reward is shaped by a function that is far too slow."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.shaping_s = 0.0
        self.reset()

    def reset(self):
        self.cell, self.goal, self.ticks = [0, 0], [self.random.randrange(5), self.random.randrange(5)], 0
        return self.observe()

    def observe(self):
        return [self.cell[0] / 5, self.cell[1] / 5, self.goal[0] / 5, self.goal[1] / 5]

    def step(self, action):
        dx, dy = ((0, 1), (0, -1), (1, 0), (-1, 0))[action]
        self.cell = [min(max(self.cell[0] + dx, 0), 4), min(max(self.cell[1] + dy, 0), 4)]
        self.ticks += 1
        begin = time.perf_counter()
        shaped = shape_reward(self.cell, self.goal)
        self.shaping_s += time.perf_counter() - begin
        done = self.cell == self.goal or self.ticks >= 50
        return self.observe(), shaped + 10.0 * (self.cell == self.goal), done, {}


def shape_reward(cell, goal):
    """The planted hot function: a potential summed over a needlessly fine grid."""
    potential = 0.0
    for i in range(30):
        for j in range(30):
            x = i / 6 - goal[0]
            y = j / 6 - goal[1]
            near = (cell[0] - i / 6) ** 2 + (cell[1] - j / 6) ** 2
            if near < 25.0:
                potential -= (x * x + y * y) / (1.0 + near)
    return potential / 900


def choose(policy, observation):
    chosen = torch.distributions.Categorical(logits=policy(torch.tensor(observation)))
    action = chosen.sample()
    return action.item(), chosen.log_prob(action)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    truth = Truth()
    env = Gridworld(1)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    observation, scores = env.reset(), []
    truth.start()
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        action, log_prob = choose(policy, observation)
        observation, reward, done, _ = env.step(action)
        truth.keep(reward)
        scores.append(log_prob * reward)
        if done:
            observation = env.reset()
        if step % 32 == 0:
            loss = -torch.stack(scores).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            truth.keep(loss.item())
            scores.clear()
    share = env.shaping_s / (time.perf_counter() - begin)
    truth.stop()
    truth.keep_weights(policy.parameters())
    source, first_line = inspect.getsourcelines(shape_reward)
    planted = {"function": "shape_reward", "first_line": first_line, "last_line": first_line + len(source) - 1, "share": share}
    truth.tell(env_steps=args.steps, planted=planted)


if __name__ == "__main__":
    main()
