"""Discrete CQL with an automatically tuned penalty weight on pickled CartPole trajectories."""
import copy
import os
import pickle
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SEED, UPDATES, REPORT_EVERY, BATCH = 11, 1000, 100, 128
GAMMA, TAU = 0.99, 0.01


def record(path, steps=12_000):
    """Trajectories of a shaky controller, one dict per episode."""
    env = gym.make("CartPole-v1")
    rng = np.random.default_rng(SEED)
    trajectories, obs = [], env.reset(seed=SEED)[0]
    current = {"obs": [obs], "act": [], "rew": [], "end": []}
    for _ in range(steps):
        act = int(obs[2] + 0.4 * obs[3] > 0) if rng.random() > 0.3 else int(rng.integers(2))
        obs, rew, terminated, truncated, _ = env.step(act)
        for key, value in (("obs", obs), ("act", act), ("rew", rew), ("end", terminated)):
            current[key].append(value)
        if terminated or truncated:
            trajectories.append(current)
            obs = env.reset()[0]
            current = {"obs": [obs], "act": [], "rew": [], "end": []}
    with open(path, "wb") as f:
        pickle.dump(trajectories, f)


def load(path):
    with open(path, "rb") as f:
        trajectories = pickle.load(f)
    obs = np.concatenate([np.stack(t["obs"][:-1]) for t in trajectories])
    next_obs = np.concatenate([np.stack(t["obs"][1:]) for t in trajectories])
    act, rew, end = (np.concatenate([t[key] for t in trajectories]) for key in ("act", "rew", "end"))
    return {
        "obs": torch.from_numpy(obs), "next_obs": torch.from_numpy(next_obs),
        "act": torch.from_numpy(act.astype(np.int64)),
        "rew": torch.from_numpy(rew.astype(np.float32)),
        "end": torch.from_numpy(end.astype(np.float32)),
    }


class PenaltyWeight:
    """Lagrange multiplier of the conservative term, smoothed over updates."""

    def __init__(self, budget, lr=3e-3, smoothing=0.95):
        self.budget, self.smoothing = budget, smoothing
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.opt = torch.optim.Adam([self.log_alpha], lr)
        self.value = torch.ones(())

    def refresh(self):
        last = self.value.detach() if FIXED else self.value
        self.value = self.smoothing * last + (1 - self.smoothing) * self.log_alpha.exp()

    def step(self, gap):
        self.refresh()
        loss = -self.value * (gap - self.budget)
        self.opt.zero_grad()
        loss.backward(retain_graph=True)
        self.opt.step()


class CQL:
    def __init__(self, data):
        self.data = data
        self.q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.target = copy.deepcopy(self.q)
        self.opt = torch.optim.Adam(self.q.parameters(), 5e-4)
        self.penalty = PenaltyWeight(budget=0.4)

    def update(self):
        rows = torch.randint(len(self.data["obs"]), (BATCH,))
        b = {key: value[rows] for key, value in self.data.items()}
        with torch.no_grad():
            best = self.q(b["next_obs"]).argmax(1, keepdim=True)
            next_q = self.target(b["next_obs"]).gather(1, best).squeeze(1)
            backup = b["rew"] + GAMMA * (1 - b["end"]) * next_q
        q = self.q(b["obs"])
        taken = q.gather(1, b["act"].unsqueeze(1)).squeeze(1)
        gap = (torch.logsumexp(q, 1) - taken).mean()
        loss = F.smooth_l1_loss(taken, backup) + self.penalty.value.detach() * gap
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.penalty.step(gap.detach())
        with torch.no_grad():
            for p, slow in zip(self.q.parameters(), self.target.parameters()):
                slow.lerp_(p, TAU)
        return loss.detach(), gap.detach()

    @torch.no_grad()
    def evaluate(self, env, steps=200):
        obs, episodes = env.reset(seed=SEED)[0], 1
        for _ in range(steps):
            act = int(self.q(torch.from_numpy(obs)).argmax())
            obs, _, terminated, truncated, _ = env.step(act)
            if terminated or truncated:
                obs = env.reset()[0]
                episodes += 1
        return steps, steps / episodes


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        record(os.path.join(folder, "cartpole.pkl"))
        data = load(os.path.join(folder, "cartpole.pkl"))
    agent, env = CQL(data), gym.make("CartPole-v1")
    env_steps = 0
    start = time.perf_counter()
    for i in range(1, UPDATES + 1):
        loss, gap = agent.update()
        if i % REPORT_EVERY == 0:
            steps, length = agent.evaluate(env)
            env_steps += steps
            print(f"{i:5d} loss {loss.item():.3f} gap {gap.item():.3f} "
                  f"weight {agent.penalty.value.item():.3f} length {length:.0f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
