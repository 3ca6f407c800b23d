"""PPO for a fleet of drones that fly to a point; the points move away as the fleet gets better."""
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

FLEET = 128
HORIZON = 64
ITERATIONS = 18
EPOCHS = 4
MINIBATCH = 1024
GAMMA, LAMBDA, CLIP = 0.98, 0.95, 0.2
OBS, ACT = 9, 2


class Fleet:
    """All the drones at once, as arrays; each starts anew when it has arrived or run out of time."""

    def __init__(self, rng, limit=60):
        self.rng, self.limit, self.reach = rng, limit, 1.0
        self.pos, self.vel, self.goal = np.zeros((FLEET, 2)), np.zeros((FLEET, 2)), np.zeros((FLEET, 2))
        self.wind, self.t = np.zeros((FLEET, 2)), np.zeros(FLEET, int)
        self.restart(np.ones(FLEET, bool))

    def restart(self, which):
        n = int(which.sum())
        self.pos[which], self.vel[which], self.t[which] = 0.0, 0.0, 0
        angle = self.rng.uniform(0, 2 * np.pi, n)
        radius = self.reach * self.rng.uniform(0.5, 1.0, n)
        self.goal[which] = np.stack([np.cos(angle), np.sin(angle)], 1) * radius[:, None]
        self.wind[which] = self.rng.normal(0, 0.01, (n, 2))

    def observe(self):
        left = (1 - self.t / self.limit)[:, None]
        return np.concatenate([self.pos / 3, 5 * self.vel, self.goal - self.pos, 50 * self.wind, left], 1).astype(np.float32)

    def step(self, action):
        before = np.linalg.norm(self.goal - self.pos, axis=1)
        self.vel = 0.85 * self.vel + 0.05 * np.clip(action, -1, 1) + self.wind
        self.pos = self.pos + self.vel
        self.t += 1
        distance = np.linalg.norm(self.goal - self.pos, axis=1)
        arrived = (distance < 0.15) & (np.abs(self.vel).max(1) < 0.15)
        reward = 2 * (before - distance) - 0.01 + arrived
        over = arrived | (self.t >= self.limit)
        if over.any():
            self.restart(over)
        return self.observe(), reward.astype(np.float32), over, arrived


class Curriculum:
    def __init__(self, fleet):
        self.fleet, self.rate = fleet, 0.0

    def update(self, arrived, over):
        self.rate = arrived / max(over, 1)
        if self.rate > 0.7:
            self.fleet.reach = min(self.fleet.reach + 0.4, 3.0)


def mlp(n_out):
    return nn.Sequential(nn.Linear(OBS, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, n_out))


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.value = mlp(ACT), mlp(1)
        self.log_std = nn.Parameter(torch.full((ACT,), -0.5))

    def log_prob(self, obs, action):
        return (-0.5 * ((action - self.mean(obs)) / self.log_std.exp()) ** 2 - self.log_std).sum(-1)


def gae(rewards, values, over):
    result, running = np.zeros_like(rewards), np.zeros(FLEET, np.float32)
    alive = 1.0 - over
    delta = rewards + GAMMA * values[1:] * alive - values[:-1]
    for t in range(HORIZON - 1, -1, -1):
        running = delta[t] + GAMMA * LAMBDA * alive[t] * running
        result[t] = running
    return result


def main():
    rng = np.random.default_rng(12)
    torch.manual_seed(12)
    fleet, pilot = Fleet(rng), Pilot()
    curriculum = Curriculum(fleet)
    optimizer = torch.optim.Adam(pilot.parameters(), lr=1e-3)
    obs, updates = fleet.observe(), 0
    all_obs = np.zeros((HORIZON + 1, FLEET, OBS), np.float32)
    all_actions = np.zeros((HORIZON, FLEET, ACT), np.float32)
    all_rewards, all_over = np.zeros((HORIZON, FLEET), np.float32), np.zeros((HORIZON, FLEET), np.float32)
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        arrivals = 0
        std = pilot.log_std.detach().exp().numpy()
        for t in range(HORIZON):
            with torch.no_grad():
                mean = pilot.mean(torch.from_numpy(obs)).numpy()
            action = mean + std * rng.standard_normal(mean.shape, dtype=np.float32)
            all_obs[t], all_actions[t] = obs, action
            obs, all_rewards[t], all_over[t], arrived = fleet.step(action)
            arrivals += int(arrived.sum())
        all_obs[HORIZON] = obs
        curriculum.update(arrivals, int(all_over.sum()))
        flat_obs = torch.from_numpy(all_obs[:-1]).flatten(0, 1)
        actions = torch.from_numpy(all_actions).flatten(0, 1)
        with torch.no_grad():
            values = pilot.value(torch.from_numpy(all_obs)).squeeze(-1).numpy()
            old = pilot.log_prob(flat_obs, actions)
        advantage = gae(all_rewards, values, all_over)
        returns = torch.from_numpy(advantage + values[:-1]).flatten()
        advantage = torch.from_numpy((advantage - advantage.mean()) / (advantage.std() + 1e-6)).flatten()
        for _ in range(EPOCHS):
            for idx in torch.randperm(len(flat_obs)).split(MINIBATCH):
                batch, gain = flat_obs[idx], advantage[idx]
                ratio = (pilot.log_prob(batch, actions[idx]) - old[idx]).exp()
                surrogate = torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
                value_loss = nn.functional.mse_loss(pilot.value(batch).squeeze(-1), returns[idx])
                optimizer.zero_grad()
                (0.5 * value_loss - surrogate - 0.002 * pilot.log_std.sum()).backward()
                optimizer.step()
                updates += 1
    seconds = time.perf_counter() - start
    print("reach", round(fleet.reach, 1), "arrived", round(curriculum.rate, 2))
    print(f"env_steps={ITERATIONS * HORIZON * FLEET} updates={updates} seconds={seconds:.2f}")


if __name__ == "__main__":
    main()
