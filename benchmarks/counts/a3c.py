"""A3C: three threads, each with an environment and a copy of the network, and one network that all of them update.

python a3c.py
"""

import copy
import threading

import numpy as np
import torch
from tally import Tally, Walk
from torch import nn
from torch.distributions import Categorical

THREADS, ROLLOUTS, STEPS = 3, 40, 20


def train(number, shared, optimizer, lock, tally):
    env, local = Walk(tally), copy.deepcopy(shared)
    observation, _ = env.reset(seed=number)
    for _ in range(ROLLOUTS):
        with lock:
            local.load_state_dict(shared.state_dict())
        observations, actions, rewards = [], [], []
        for _ in range(STEPS):
            with torch.no_grad():
                action = int(Categorical(logits=local(torch.as_tensor(observation))).sample())
            observations.append(observation)
            actions.append(action)
            observation, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            if terminated or truncated:
                observation, _ = env.reset()
        logits = local(torch.as_tensor(np.stack(observations)))
        loss = -(Categorical(logits=logits).log_prob(torch.tensor(actions)) * torch.tensor(rewards)).mean()
        local.zero_grad()
        loss.backward()
        with lock:
            for ours, all in zip(local.parameters(), shared.parameters(), strict=True):
                all.grad = ours.grad.clone()
            optimizer.step()
            tally.updates += 1


def main():
    torch.set_num_threads(1)
    tally, lock = Tally(), threading.Lock()
    shared = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(shared.parameters(), lr=1e-3)
    threads = [threading.Thread(target=train, args=(n, shared, optimizer, lock, tally)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tally.iterations = None  # every thread alternates by itself
    tally.say(THREADS * ROLLOUTS * STEPS, THREADS * ROLLOUTS)


if __name__ == "__main__":
    main()
