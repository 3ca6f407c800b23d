"""A policy gradient that steps its environments in a ThreadPoolExecutor, one of them slower than the others.

python threads.py [--steps 4096]
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from truth import Truth

SLOW = 2


class Lagging(gym.Wrapper):
    """An environment that takes its time."""

    def step(self, action):
        time.sleep(0.003)
        return super().step(action)


def step_one(env, action):
    observation, reward, terminated, truncated, _ = env.step(int(action))
    if terminated or truncated:
        observation, _ = env.reset()
    return observation, reward, terminated


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4_096)
    parser.add_argument("--envs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    truth = Truth()

    envs = [gym.make("CartPole-v1") for _ in range(args.envs)]
    envs[SLOW] = Lagging(envs[SLOW])
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    observations = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    env_steps, scores = 0, []
    with ThreadPoolExecutor(max_workers=args.envs) as pool:
        truth.start()
        while env_steps < args.steps:
            chosen = torch.distributions.Categorical(logits=policy(torch.as_tensor(observations)))
            actions = chosen.sample()
            results = list(pool.map(step_one, envs, actions))
            observations = np.stack([observation for observation, _, _ in results])
            rewards = torch.tensor([reward - 10.0 * terminated for _, reward, terminated in results])
            env_steps += args.envs
            truth.keep(*rewards)
            scores.append(chosen.log_prob(actions) * rewards)
            if len(scores) == 32:
                loss = -torch.stack(scores).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                truth.keep(loss.item())
                scores.clear()
        truth.stop()
    truth.keep_weights(policy.parameters())
    truth.tell(env_steps=env_steps, workers=args.envs, slow=SLOW)


if __name__ == "__main__":
    main()
