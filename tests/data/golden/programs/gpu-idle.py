"""Policy gradient on CartPole: the environments are stepped one after the other while the GPU has nothing to do."""

import os
import time

import gymnasium as gym
import made_up_device as gpu
import numpy as np
import torch
from torch import nn

MODE = "vector_entry_point" if os.environ.get("FIXED") == "1" else "sync"


def main(updates=40, horizon=32, count=128):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    gpu.begin()
    start = time.time()
    envs = gym.make_vec("CartPole-v1", num_envs=count, vectorization_mode=MODE)
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    obs, _ = envs.reset(seed=1)
    for _ in range(updates):
        states, rewards, actions = [], [], []
        for _ in range(horizon):
            with torch.no_grad():
                action = torch.multinomial(net(torch.from_numpy(obs)).softmax(1), 1)[:, 0]
            gpu.queue(50)
            states.append(obs), actions.append(action)
            obs, reward, _, _, _ = envs.step(action.numpy())
            rewards.append(reward)
        weight = torch.from_numpy(np.concatenate(rewards).astype(np.float32))
        logp = net(torch.from_numpy(np.concatenate(states))).log_softmax(1)
        loss = -(logp.gather(1, torch.cat(actions)[:, None])[:, 0] * (weight - weight.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        gpu.queue(5000)
        optimizer.step()
        gpu.put(loss).item()
    print(f"env_steps={updates * horizon * count} updates={updates} seconds={time.time() - start:.2f}")
    envs.close()


if __name__ == "__main__":
    main()
