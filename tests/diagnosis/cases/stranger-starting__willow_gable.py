"""Behaviour cloning of a CartPole controller from demonstrations on disk."""
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"
SEED = 21
EPOCHS = 50
DEMO_STEPS = 1024
BATCH = 64
EVAL_STEPS = 60


def controller(obs):
    return int(0.02 * obs[0] + 0.05 * obs[1] + obs[2] + 0.4 * obs[3] > 0)


def record_demos(folder):
    env = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=SEED)
    observations = np.empty((DEMO_STEPS, 4), np.float32)
    actions = np.empty(DEMO_STEPS, np.int64)
    for i in range(DEMO_STEPS):
        observations[i], actions[i] = obs, controller(obs)
        obs, _, terminated, truncated, _ = env.step(int(actions[i]))
        if terminated or truncated:
            obs, _ = env.reset()
    np.save(os.path.join(folder, "obs.npy"), observations)
    np.save(os.path.join(folder, "act.npy"), actions)


class Demonstrations(Dataset):
    """Memory-mapped state-action pairs with jittered, whitened states."""

    def __init__(self, folder, jitter=0.05):
        self.obs = np.load(os.path.join(folder, "obs.npy"), mmap_mode="r")
        self.act = np.load(os.path.join(folder, "act.npy"), mmap_mode="r")
        self.mean = torch.from_numpy(self.obs.mean(0))
        self.std = torch.from_numpy(self.obs.std(0)) + 1e-4
        self.jitter = jitter

    def __len__(self):
        return len(self.act)

    def __getitem__(self, index):
        obs = torch.from_numpy(np.array(self.obs[index]))
        obs = (obs - self.mean) / self.std
        return obs + self.jitter * torch.randn(4), int(self.act[index])


def make_loader(dataset):
    return DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=4,
        persistent_workers=FIXED,
        generator=torch.Generator().manual_seed(SEED),
    )


class Cloner:
    def __init__(self, dataset):
        self.mean, self.std = dataset.mean, dataset.std
        self.policy = nn.Sequential(
            nn.Linear(4, 64), nn.Tanh(),
            nn.Linear(64, 64), nn.Tanh(),
            nn.Linear(64, 2),
        )
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=1e-3, weight_decay=1e-5)

    def run_epoch(self, loader):
        losses = []
        for obs, act in loader:
            loss = F.cross_entropy(self.policy(obs), act)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.detach())
        return torch.stack(losses).mean().item(), len(losses)

    @torch.no_grad()
    def evaluate(self, env, epoch):
        obs, _ = env.reset(seed=SEED + epoch)
        falls = 0
        for _ in range(EVAL_STEPS):
            x = (torch.from_numpy(obs) - self.mean) / self.std
            obs, _, terminated, truncated, _ = env.step(int(self.policy(x).argmax()))
            if terminated or truncated:
                falls += int(terminated)
                obs, _ = env.reset()
        return falls


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        record_demos(folder)
        dataset = Demonstrations(folder)
        loader = make_loader(dataset)
        cloner = Cloner(dataset)
        env = gym.make("CartPole-v1")
        env_steps = updates = 0
        start = time.perf_counter()
        for epoch in range(EPOCHS):
            loss, n = cloner.run_epoch(loader)
            falls = cloner.evaluate(env, epoch)
            updates += n
            env_steps += EVAL_STEPS
            if epoch % 10 == 0:
                print(f"epoch {epoch} loss {loss:.4f} falls {falls}")
        seconds = time.perf_counter() - start
        del loader
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
