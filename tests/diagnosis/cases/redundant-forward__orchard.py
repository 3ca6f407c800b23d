"""PPO with a small convolutional net: a picker collects ripe fruit in a row of trees (vectorised in numpy)."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


class OrchardBatch:
    """N copies of a 10x10 orchard; planes: ripeness, picker, basket level."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.index = np.arange(n)
        self.moves = np.array([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])

    def reset(self):
        self.ripe = self.rng.random((self.n, 10, 10)).astype(np.float32)
        self.pos = self.rng.integers(0, 10, (self.n, 2))
        self.basket = np.zeros(self.n, np.float32)
        self.t = 0
        return self.planes()

    def planes(self):
        obs = np.zeros((self.n, 3, 10, 10), np.float32)
        obs[:, 0] = self.ripe
        obs[self.index, 1, self.pos[:, 0], self.pos[:, 1]] = 1.0
        obs[:, 2] = self.basket[:, None, None]
        return obs

    def step(self, actions):
        self.pos = np.clip(self.pos + self.moves[actions], 0, 9)
        here = (self.index, self.pos[:, 0], self.pos[:, 1])
        gain = np.where(self.ripe[here] > 0.7, self.ripe[here], -0.05).astype(np.float32)
        self.ripe[here] = 0.0
        self.ripe = np.minimum(self.ripe + 0.01, 1.0)
        self.basket = np.minimum(self.basket + 0.02 * (gain > 0), 1.0)
        self.t += 1
        done = self.t >= 64
        return (self.reset() if done else self.planes()), gain, done


class PickerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
                                   nn.Flatten(), nn.Linear(32 * 16, 128), nn.ReLU())
        self.actor, self.critic = nn.Linear(128, 5), nn.Linear(128, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.actor(h), validate_args=False), self.critic(h).squeeze(-1)


class PPO:
    def __init__(self, n_envs=16, horizon=64, gamma=0.97, lam=0.95):
        self.env = OrchardBatch(n_envs, 17)
        self.horizon, self.gamma, self.lam = horizon, gamma, lam
        self.net = PickerNet()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-4, fused=True)
        self.obs = self.env.reset()
        self.steps = self.updates = 0

    @torch.no_grad()
    def collect(self):
        T, n = self.horizon, self.env.n
        data = {"obs": np.zeros((T, n, 3, 10, 10), np.float32), "act": np.zeros((T, n), np.int64),
                "logp": np.zeros((T, n), np.float32), "adv": np.zeros((T, n), np.float32)}
        val, rew, live = np.zeros((T + 1, n), np.float32), np.zeros((T, n), np.float32), np.ones(T, np.float32)
        for t in range(T):
            dist, value = self.net(torch.from_numpy(self.obs))
            action = dist.sample()
            data["obs"][t], data["act"][t], val[t] = self.obs, action.numpy(), value.numpy()
            data["logp"][t] = dist.log_prob(action).numpy()
            self.obs, rew[t], done = self.env.step(data["act"][t])
            live[t] = 1.0 - done
            self.steps += n
        val[T] = self.net(torch.from_numpy(self.obs))[1].numpy()
        run = 0.0
        for t in range(T - 1, -1, -1):
            run = rew[t] + self.gamma * live[t] * val[t + 1] - val[t] + self.gamma * self.lam * live[t] * run
            data["adv"][t] = run
        data["ret"] = data["adv"] + val[:-1]
        return {k: torch.from_numpy(v.reshape(T * n, *v.shape[2:])) for k, v in data.items()}

    def policy_loss(self, dist, b):
        ratio = (dist.log_prob(b["act"]) - b["logp"]).exp()
        adv = (b["adv"] - b["adv"].mean()) / (b["adv"].std() + 1e-6)
        return -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()

    def losses(self, b):
        if FIXED:
            dist, value = self.net(b["obs"])
            return self.policy_loss(dist, b), (value - b["ret"]).pow(2).mean(), dist.entropy().mean()
        actor = self.policy_loss(self.net(b["obs"])[0], b)
        critic = (self.net(b["obs"])[1] - b["ret"]).pow(2).mean()
        entropy = self.net(b["obs"])[0].entropy().mean()
        return actor, critic, entropy

    def learn(self, data, epochs=3, size=128):
        for _ in range(epochs):
            for rows in torch.randperm(len(data["act"])).split(size):
                actor, critic, entropy = self.losses({k: v[rows] for k, v in data.items()})
                self.optimizer.zero_grad()
                (actor + 0.5 * critic - 0.01 * entropy).backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.optimizer.step()
                self.updates += 1


if __name__ == "__main__":
    torch.manual_seed(17)
    agent = PPO()
    start = time.perf_counter()
    for _ in range(17):
        agent.learn(agent.collect())
    print(f"env_steps={agent.steps} updates={agent.updates} seconds={time.perf_counter() - start:.3f}")
