"""PPO from pixels: catch the falling nut with a paddle, several screens at once."""
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
H = W = 64


class CatchScreens:
    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.row = self.rng.integers(0, H // 2, n)
        self.col = self.rng.integers(2, W - 2, n)
        self.paddle = np.full(n, W // 2)
        self.stack = np.zeros((n, 4, H, W), np.uint8)
        self.idx = np.arange(n)

    def draw(self):
        self.stack[:, :-1] = self.stack[:, 1:]
        top = self.stack[:, -1]
        top[:] = 0
        for d in (-1, 0, 1):
            top[self.idx, self.row, (self.col + d) % W] = 255
            top[self.idx, H - 1, (self.paddle + d) % W] = 180
        return self.stack.copy()

    def step(self, act):
        self.paddle = np.clip(self.paddle + 3 * (act - 1), 0, W - 1)
        self.row = self.row + 2
        landed = self.row >= H - 1
        reward = np.where(landed, np.where(np.abs(self.col - self.paddle) < 6, 1.0, -1.0), 0.0)
        self.row = np.where(landed, 0, self.row)
        self.col = np.where(landed, self.rng.integers(2, W - 2, self.n), self.col)
        return self.draw(), reward.astype(np.float32), landed.astype(np.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 8, 8, stride=8), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(8 * 64, 64), nn.ReLU())
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        out = self.head(self.body(x))
        return out[:, :3].log_softmax(-1), out[:, 3]


class Rollout:
    def __init__(self):
        self.frames, self.act, self.logp, self.rew, self.end, self.val = [], [], [], [], [], []
        self.packed = None

    def finish(self, last_value, gamma=0.98):
        ret, out = last_value, []
        for rew, end in zip(reversed(self.rew), reversed(self.end)):
            ret = rew + gamma * (1 - end) * ret
            out.append(ret)
        self.ret = torch.from_numpy(np.concatenate(out[::-1]))
        self.acts = torch.from_numpy(np.concatenate(self.act))
        self.old = torch.from_numpy(np.concatenate(self.logp))
        adv = self.ret - torch.from_numpy(np.concatenate(self.val))
        self.adv = (adv - adv.mean()) / (adv.std() + 1e-6)

    def minibatch(self, idx):
        if FIXED:
            if self.packed is None:
                self.packed = np.concatenate(self.frames)
            obs = self.packed[idx].astype(np.float32) / 255.0
        else:
            obs = (np.concatenate(self.frames).astype(np.float32) / 255.0)[idx]
        return torch.from_numpy(obs), self.acts[idx], self.old[idx], self.adv[idx], self.ret[idx]


def collect(env, net, obs, horizon):
    roll = Rollout()
    for _ in range(horizon):
        with torch.no_grad():
            logp, val = net(torch.from_numpy(obs.astype(np.float32) / 255.0))
            act = torch.multinomial(logp.exp(), 1)
        roll.frames.append(obs)
        roll.act.append(act[:, 0].numpy())
        roll.logp.append(logp.gather(1, act)[:, 0].numpy())
        roll.val.append(val.numpy())
        obs, rew, end = env.step(roll.act[-1])
        roll.rew.append(rew)
        roll.end.append(end)
    with torch.no_grad():
        roll.finish(net(torch.from_numpy(obs.astype(np.float32) / 255.0))[1].numpy())
    return roll, obs


def improve(net, opt, roll, rng, epochs, size):
    count = 0
    for _ in range(epochs):
        for idx in np.split(rng.permutation(len(roll.acts)), len(roll.acts) // size):
            obs, act, old, adv, ret = roll.minibatch(idx)
            logp, val = net(obs)
            ratio = (logp.gather(1, act[:, None])[:, 0] - old).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            loss = loss + 0.5 * (val - ret).pow(2).mean() + 0.01 * (logp.exp() * logp).sum(1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            count += 1
    return count


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    envs, horizon, iterations = 16, 32, 14
    env, net = CatchScreens(envs, 2), Net()
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    obs, updates = env.draw(), 0
    start = time.perf_counter()
    for _ in range(iterations):
        roll, obs = collect(env, net, obs, horizon)
        updates += improve(net, opt, roll, rng, epochs=4, size=64)
    seconds = time.perf_counter() - start
    print(f"env_steps={iterations * horizon * envs} updates={updates} seconds={seconds:.3f}")
