"""Recurrent PPO with attention over the animals of a pasture; the dog drives the sheep to the gate."""
import copy
import json
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SHEEP, FEATURES, ACTIONS, HID = 11, 7, 5, 32
N_ENVS, STEPS, ROLLOUTS, EPOCHS, MINIBATCHES, GAMMA = 8, 64, 70, 2, 2, 0.97
MOVES = [(0.0, 0.0), (0.1, 0.0), (-0.1, 0.0), (0.0, 0.1), (0.0, -0.1)]


class Pasture:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        places = self.rng.uniform(-1, 1, (SHEEP + 1, 2)).tolist()
        self.t, self.entities = 0, [
            {"kind": "sheep" if i else "dog", "pos": pos, "vel": [0.0, 0.0], "fear": 0.0, "in": False, "seen": 0}
            for i, pos in enumerate(places)]
        return self.observe()

    def observe(self):
        x, y = self.entities[0]["pos"]
        rows = []
        for e in self.entities:
            (px, py), (vx, vy) = e["pos"], e["vel"]
            near = abs(px - x) + abs(py - y) < 1.0
            e["seen"] = self.t if near else e["seen"]
            rows.append((px - x, py - y, vx, vy, e["fear"], e["in"], 1.0) if near else (0.0,) * FEATURES)
        return np.array(rows, np.float32)

    def step(self, action):
        dog, *sheep = self.entities
        dog["vel"] = list(MOVES[action])
        dog["pos"] = [min(1.0, max(-1.0, p + v)) for p, v in zip(dog["pos"], dog["vel"])]
        (x, y), far = dog["pos"], 0.0
        for e in sheep:
            (px, py), dist = e["pos"], math.dist(e["pos"], dog["pos"]) + 1e-3
            e["fear"] = 0.8 * e["fear"] + 0.2 * (dist < 0.5)
            e["vel"] = [0.05 * e["fear"] * (px - x) / dist, 0.05 * e["fear"] * (py - y) / dist]
            e["pos"] = [min(1.0, max(-1.0, px + e["vel"][0])), min(1.0, max(-1.0, py + e["vel"][1]))]
            away = math.dist(e["pos"], (1.0, 0.0))
            e["in"] = away < 0.3
            far += away
        self.t += 1
        return self.observe(), -far / SHEEP, self.t >= 60


class Recorder:
    """Keeps the course of an episode for the replay viewer."""

    def __init__(self, env):
        self.env, self.frames, self.finished = env, [], []

    def frame(self):
        return copy.deepcopy(self.env.entities)

    def reset(self):
        obs = self.env.reset()
        self.finished, self.frames = self.frames, [self.frame()]
        return obs

    def step(self, action):
        result = self.env.step(action)
        self.frames.append(self.frame())
        return result

    def dump(self, path):
        with open(path, "w") as f:
            json.dump(self.finished, f)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.qkv = nn.Linear(FEATURES, HID), nn.Linear(HID, 3 * HID)
        self.cell, self.pi, self.v = nn.GRUCell(HID, HID), nn.Linear(HID, ACTIONS), nn.Linear(HID, 1)

    def forward(self, obs, h):
        q, k, v = self.qkv(F.relu(self.inp(obs))).chunk(3, -1)
        h = self.cell(F.scaled_dot_product_attention(q[:, :1], k, v).squeeze(1), h)
        return F.log_softmax(self.pi(h), -1), self.v(h).squeeze(-1), h


def rollout(agent, envs, obs, h):
    rows = []
    for _ in range(STEPS):
        with torch.no_grad():
            logp, value, following = agent(obs, h)
            act = torch.multinomial(logp.exp(), 1)
        seen, reward, done = zip(*(env.step(a) for env, a in zip(envs, act.squeeze(1).tolist())))
        seen = [env.reset() if d else o for env, o, d in zip(envs, seen, done)]
        keep = 1.0 - torch.tensor(done, dtype=torch.float32)
        rows.append((obs, h, act, logp.gather(1, act).squeeze(1), value, torch.tensor(reward), keep))
        obs, h = torch.from_numpy(np.stack(seen)), following * keep.unsqueeze(1)
    return obs, h, [torch.stack(x) for x in zip(*rows)]


def learn(agent, optimizer, last_value, batch):
    obs, h, act, logp, value, reward, keep = batch
    returns, ret = torch.empty_like(reward), last_value
    for t in reversed(range(STEPS)):
        returns[t] = ret = reward[t] + GAMMA * keep[t] * ret
    adv = returns - value
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    data = [x.flatten(0, 1) for x in (obs, h, act, logp, returns, adv)]
    for _ in range(EPOCHS):
        for idx in torch.randperm(STEPS * N_ENVS).chunk(MINIBATCHES):
            o, s, a, old, ret, ad = (x[idx] for x in data)
            new, v, _ = agent(o, s)
            ratio = (new.gather(1, a).squeeze(1) - old).exp()
            gain = torch.min(ratio * ad, ratio.clamp(0.8, 1.2) * ad).mean() - 0.01 * (new.exp() * new).sum(1).mean()
            optimizer.zero_grad()
            (F.mse_loss(v, ret) * 0.5 - gain).backward()
            optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    envs = [Pasture(i) if FIXED and i else Recorder(Pasture(i)) for i in range(N_ENVS)]
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), 1e-3)
    obs, h = torch.from_numpy(np.stack([env.reset() for env in envs])), torch.zeros(N_ENVS, HID)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        for n in range(ROLLOUTS):
            obs, h, batch = rollout(agent, envs, obs, h)
            with torch.no_grad():
                last_value = agent(obs, h)[1]
            learn(agent, optimizer, last_value, batch)
            if n % 20 == 9:
                envs[0].dump(os.path.join(folder, f"episode_{n}.json"))
        seconds = time.perf_counter() - start
    print(f"env_steps={ROLLOUTS * STEPS * N_ENVS} updates={ROLLOUTS * EPOCHS * MINIBATCHES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
