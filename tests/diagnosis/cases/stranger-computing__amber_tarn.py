"""TD3+BC on logged flights of a point mass that has to reach a goal in 3-D."""
import copy
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SEED, UPDATES, EVAL_EVERY, BATCH, HIDDEN = 4, 550, 110, 256, 256
OBS_DIM, ACT_DIM = 11, 3
GAMMA, TAU, BC_WEIGHT = 0.98, 0.005, 2.5


class PointMass:
    horizon = 50

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos, self.goal = self.rng.uniform(-1, 1, (2, 3))
        self.vel = np.zeros(3)
        self.t = 0
        return self.observe()

    def observe(self):
        gap = self.goal - self.pos
        tail = [np.linalg.norm(gap), self.t / self.horizon]
        return np.concatenate([self.pos, self.vel, gap, tail])

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.1 * np.clip(action, -1, 1)
        self.pos = self.pos + 0.5 * self.vel
        self.t += 1
        obs = self.observe()
        return obs, -obs[9], self.t >= self.horizon


def log_flights(path, episodes=300):
    env, rng = PointMass(SEED), np.random.default_rng(SEED)
    rows = {"obs": [], "act": [], "rew": [], "next_obs": [], "done": []}
    for _ in range(episodes):
        obs, done = env.reset(), False
        while not done:
            act = np.clip(1.5 * obs[6:9] - obs[3:6] + rng.normal(0, 0.4, 3), -1, 1)
            next_obs, rew, done = env.step(act)
            for key, value in zip(rows, (obs, act, [rew], next_obs, [float(done)])):
                rows[key].append(value)
            obs = next_obs
    np.savez(path, **{key: np.array(value) for key, value in rows.items()})


def load_flights(path):
    with np.load(path) as archive:
        data = {key: archive[key] for key in archive.files}
    mean, std = data["obs"].mean(0), data["obs"].std(0) + 1e-3
    for key in ("obs", "next_obs"):
        data[key] = (data[key] - mean) / std
    if FIXED:
        data = {key: value.astype(np.float32) for key, value in data.items()}
    return {key: torch.from_numpy(value) for key, value in data.items()}, mean, std


def mlp(n_in, n_out, *last):
    return nn.Sequential(nn.Linear(n_in, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                         nn.Linear(HIDDEN, n_out), *last)


class TD3BC:
    def __init__(self, data):
        self.data = data
        like = data["obs"]
        self.actor = mlp(OBS_DIM, ACT_DIM, nn.Tanh()).to(like)
        self.critics = nn.ModuleList(mlp(OBS_DIM + ACT_DIM, 1) for _ in range(2)).to(like)
        self.actor_target = copy.deepcopy(self.actor)
        self.critics_target = copy.deepcopy(self.critics)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.critic_opt = torch.optim.Adam(self.critics.parameters(), 3e-4)
        self.pick = torch.Generator().manual_seed(SEED)

    def update_critics(self, b):
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(b["act"])).clamp(-0.5, 0.5)
            next_act = (self.actor_target(b["next_obs"]) + noise).clamp(-1, 1)
            pair = torch.cat([b["next_obs"], next_act], 1)
            next_q = torch.min(self.critics_target[0](pair), self.critics_target[1](pair))
            target = b["rew"] + GAMMA * (1 - b["done"]) * next_q
        pair = torch.cat([b["obs"], b["act"]], 1)
        loss = sum(F.mse_loss(critic(pair), target) for critic in self.critics)
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()

    def update_actor(self, b):
        act = self.actor(b["obs"])
        q = self.critics[0](torch.cat([b["obs"], act], 1))
        loss = F.mse_loss(act, b["act"]) - BC_WEIGHT * q.mean() / q.abs().mean().detach()
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()
        with torch.no_grad():
            for net, slow in ((self.actor, self.actor_target), (self.critics, self.critics_target)):
                for p, q in zip(net.parameters(), slow.parameters()):
                    q.lerp_(p, TAU)

    def update(self, i):
        rows = torch.randint(len(self.data["obs"]), (BATCH,), generator=self.pick)
        batch = {key: value[rows] for key, value in self.data.items()}
        self.update_critics(batch)
        if i % 2 == 0:
            self.update_actor(batch)

    @torch.no_grad()
    def evaluate(self, env, mean, std):
        obs, done, total = env.reset(), False, 0.0
        while not done:
            x = torch.as_tensor((obs - mean) / std).to(self.data["obs"])
            obs, rew, done = env.step(self.actor(x).numpy())
            total += rew
        return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        log_flights(os.path.join(folder, "flights.npz"))
        data, mean, std = load_flights(os.path.join(folder, "flights.npz"))
    agent, env = TD3BC(data), PointMass(SEED + 1)
    env_steps = 0
    start = time.perf_counter()
    for i in range(UPDATES):
        agent.update(i)
        if (i + 1) % EVAL_EVERY == 0:
            print(f"update {i + 1} return {agent.evaluate(env, mean, std):.2f}")
            env_steps += env.horizon
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
