"""A policy gradient over gymnasium's AsyncVectorEnv, with one environment slower than the others.

python async_vec.py [--context fork|spawn|forkserver] [--steps 4096]
"""

import argparse
import time

import gymnasium as gym
import torch
from torch import nn
from truth import Truth

SLOW = 2


class Lagging(gym.Wrapper):
    """An environment that takes its time."""

    def step(self, action):
        time.sleep(0.003)
        return super().step(action)


class MakeEnv:
    def __init__(self, index):
        self.index = index

    def __call__(self):
        env = gym.make("CartPole-v1")
        return Lagging(env) if self.index == SLOW else env


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", choices=["fork", "spawn", "forkserver"], default="fork")
    parser.add_argument("--steps", type=int, default=4_096)
    parser.add_argument("--envs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    truth = Truth()

    envs = gym.vector.AsyncVectorEnv(
        [MakeEnv(i) for i in range(args.envs)], context=args.context, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    observations, _ = envs.reset(seed=1)
    env_steps, scores = 0, []
    truth.start()
    while env_steps < args.steps:
        chosen = torch.distributions.Categorical(logits=policy(torch.as_tensor(observations)))
        actions = chosen.sample()
        observations, rewards, terminations, _, _ = envs.step(actions.numpy())
        env_steps += args.envs
        truth.keep(*rewards)
        scores.append(chosen.log_prob(actions) * torch.as_tensor(rewards - 10.0 * terminations))
        if len(scores) == 32:
            loss = -torch.stack(scores).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            truth.keep(loss.item())
            scores.clear()
    truth.stop()
    envs.close()
    truth.keep_weights(policy.parameters())
    truth.tell(env_steps=env_steps, workers=args.envs, slow=SLOW)


if __name__ == "__main__":
    main()
