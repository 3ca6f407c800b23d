"""Recurrent PPO (meta-RL): a GRU policy has to find out within a trial which of the berths pay in which weather."""
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
BERTHS, WEATHERS, HID = 6, 3, 256
OBS = BERTHS + WEATHERS + 1
TASKS, TRIAL, ITERATIONS, EPOCHS, MINIBATCHES = 64, 32, 48, 2, 2
GAMMA, LAMBDA = 0.9, 0.95


class Harbors:
    """One harbor per row, all stepped together; a trial is one unknown harbor."""

    def __init__(self, n, seed):
        self.n, self.rng, self.rows = n, np.random.default_rng(seed), np.arange(n)
        self.obs = np.zeros((n, OBS), np.float32)

    def reset(self):
        self.pay = self.rng.random((self.n, WEATHERS, BERTHS), dtype=np.float32) ** 3
        self.obs[:] = 0.0
        return self.turn()

    def turn(self):
        self.weather = self.rng.integers(0, WEATHERS, self.n)
        self.obs[self.rows, BERTHS + self.weather] = 1.0
        return self.obs

    def step(self, action):
        reward = self.pay[self.rows, self.weather, action]
        reward += 0.1 * self.rng.standard_normal(self.n, dtype=np.float32)
        self.obs[:] = 0.0
        self.obs[self.rows, action] = 1.0
        self.obs[:, -1] = reward
        return self.turn(), reward


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.gru = nn.Linear(OBS, HID), nn.GRU(HID, HID)
        self.pi, self.v = nn.Linear(HID, BERTHS), nn.Linear(HID, 1)

    def forward(self, obs, h=None):
        x, h = self.gru(F.relu(self.inp(obs)), h)
        return F.log_softmax(self.pi(x), -1), self.v(x).squeeze(-1), h


class Rollout:
    """Buffers of one iteration, time first, filled in place."""

    def __init__(self):
        self.obs = torch.zeros(TRIAL, TASKS, OBS)
        self.act = torch.zeros(TRIAL, TASKS, dtype=torch.long)
        self.logp, self.value, self.rew, self.adv = (torch.zeros(TRIAL, TASKS) for _ in range(4))

    @torch.no_grad()
    def collect(self, policy, envs):
        obs, h = envs.reset(), None
        for t in range(TRIAL):
            self.obs[t] = torch.from_numpy(obs)
            logp, self.value[t : t + 1], h = policy(self.obs[t : t + 1], h)
            act = torch.multinomial(logp[0].exp(), 1)
            self.act[t], self.logp[t] = act.squeeze(1), logp[0].gather(1, act).squeeze(1)
            obs, reward = envs.step(self.act[t].numpy())
            self.rew[t] = torch.from_numpy(reward)

    def advantages(self):
        rew, value = self.rew.numpy(), self.value.numpy()
        adv, ahead, following = self.adv.numpy(), np.zeros(TASKS, np.float32), np.zeros(TASKS, np.float32)
        for t in range(TRIAL - 1, -1, -1):
            ahead = rew[t] + GAMMA * following - value[t] + GAMMA * LAMBDA * ahead
            adv[t], following = ahead, value[t]
        return self.adv + self.value

    def batches(self, returns):
        adv = (self.adv - self.adv.mean()) / (self.adv.std() + 1e-6)
        for columns in torch.randperm(TASKS).chunk(MINIBATCHES):
            yield tuple(x[:, columns] for x in (self.obs, self.act, self.logp, adv, returns))


def learn(policy, optimizer, rollout):
    returns = rollout.advantages()
    updates = 0
    for _ in range(EPOCHS):
        for obs, act, old, adv, goal in rollout.batches(returns):
            logp, value, _ = policy(obs)
            ratio = (logp.gather(-1, act.unsqueeze(-1)).squeeze(-1) - old).exp()
            gain = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            entropy = -(logp.exp() * logp).sum(-1).mean()
            loss = 0.5 * F.mse_loss(value, goal) - gain - 0.01 * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
            updates += 1
    return updates


def main():
    torch.set_num_threads(1)
    torch.manual_seed(6)
    policy, envs, rollout = Policy(), Harbors(TASKS, 6), Rollout()
    optimizer = torch.optim.Adam(policy.parameters(), 5e-4, fused=True)
    env_steps, updates, scores = 0, 0, []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        rollout.collect(policy, envs)
        updates += learn(policy, optimizer, rollout)
        env_steps += TRIAL * TASKS
        scores.append(float(rollout.rew.mean()))
    seconds = time.perf_counter() - start
    print(f"score={np.mean(scores[-5:]):.3f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
