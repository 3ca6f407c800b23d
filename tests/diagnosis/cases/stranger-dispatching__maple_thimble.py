"""PPO on a swarm of pendulums, data kept in tensordicts, advantages by torchrl."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.objectives.value import GAE

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

ENVS, HORIZON, ITERATIONS, EPOCHS, MINIBATCH = 2, 2048, 9, 10, 2048
CLIP, ENTROPY = 0.2, 1e-3


class Pendulums:
    """Torque-limited pendulums; an episode is 200 steps long."""

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.theta = self.rng.uniform(-np.pi, np.pi, count)
        self.omega = self.rng.uniform(-1, 1, count)
        self.age = self.rng.integers(0, 200, count)

    def observe(self):
        return np.stack([np.cos(self.theta), np.sin(self.theta), self.omega / 8], axis=1).astype(np.float32)

    def step(self, torque):
        torque = np.clip(torque, -2, 2)
        angle = (self.theta + np.pi) % (2 * np.pi) - np.pi
        reward = -(angle ** 2 + 0.1 * self.omega ** 2 + 0.001 * torque ** 2)
        self.omega = np.clip(self.omega + (15 * np.sin(self.theta) + 3 * torque) * 0.05, -8, 8)
        self.theta = self.theta + self.omega * 0.05
        self.age += 1
        following, done = self.observe(), self.age >= 200
        if done.any():
            self.theta[done] = self.rng.uniform(-np.pi, np.pi, done.sum())
            self.omega[done] = self.rng.uniform(-1, 1, done.sum())
            self.age[done] = 0
        return following, reward.astype(np.float32) / 8, done


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, obs):
        return self.net(obs), self.log_std

    def log_prob(self, obs, action):
        mean, log_std = self(obs)
        return (-0.5 * ((action - mean) / log_std.exp()) ** 2 - log_std - 0.919).sum(-1)


def collect(env, actor):
    obs, columns = env.observe(), {k: [] for k in ("obs", "act", "nxt", "rew", "end")}
    for _ in range(HORIZON):
        with torch.no_grad():
            mean, log_std = actor(torch.from_numpy(obs))
        action = mean.numpy() + log_std.detach().exp().item() * env.rng.standard_normal((ENVS, 1)).astype(np.float32)
        following, reward, done = env.step(2 * action[:, 0])
        for key, item in zip(columns, (obs, action, following, reward[:, None], done[:, None])):
            columns[key].append(item)
        obs = env.observe() if done.any() else following
    cols = {k: torch.from_numpy(np.stack(v, axis=1)) for k, v in columns.items()}
    with torch.no_grad():
        log_prob = actor.log_prob(cols["obs"], cols["act"])
    return TensorDict({
        "observation": cols["obs"], "action": cols["act"], "log_prob": log_prob,
        "next": {"observation": cols["nxt"], "reward": cols["rew"], "done": cols["end"],
                 "terminated": torch.zeros_like(cols["end"])},
    }, batch_size=[ENVS, HORIZON])


def improve(data, actor, critic, gae, optimizer):
    updates = 0
    for _ in range(EPOCHS):
        with torch.no_grad():
            gae(data)
        flat = data.select("observation", "action", "log_prob", "advantage", "value_target").reshape(-1)
        for rows in torch.randperm(flat.shape[0]).split(MINIBATCH):
            mini = flat[rows]
            adv = mini["advantage"].squeeze(-1)
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
            ratio = (actor.log_prob(mini["observation"], mini["action"]) - mini["log_prob"]).exp()
            gain = torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            miss = (critic.module(mini["observation"]) - mini["value_target"]).pow(2).mean()
            loss = -gain + 0.5 * miss - ENTROPY * actor.log_std.sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
            optimizer.step()
            updates += 1
    return updates


def main():
    torch.manual_seed(11)
    env, actor = Pendulums(ENVS, 11), Actor()
    value_net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    critic = TensorDictModule(value_net, in_keys=["observation"], out_keys=["state_value"])
    gae = GAE(gamma=0.98, lmbda=0.95, value_network=critic)
    if FIXED:
        gae.vectorized = True
    optimizer = torch.optim.Adam([*actor.parameters(), *value_net.parameters()], lr=1e-3)
    steps = updates = 0
    begin = time.perf_counter()
    for iteration in range(ITERATIONS):
        data = collect(env, actor)
        steps += ENVS * HORIZON
        updates += improve(data, actor, critic, gae, optimizer)
        print(f"iteration {iteration}: reward {data['next', 'reward'].mean().item():.3f}")
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
