"""Implicit Q-learning from logged drone-hover data, hand-written, in one file."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

DRONES, LOG_STEPS, BATCH = 512, 100, 512
UPDATES, GAMMA, TAU, EXPECTILE, TEMP = 720, 0.98, 0.01, 0.8, 3.0
OBS, ACT = 6, 2


class HoverVec:
    """Planar quadrotors asked to stay at the origin; two rotor thrusts each."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.s = rng.normal(0, 0.5, (n, OBS)).astype(np.float32)

    def step(self, act):
        s = self.s
        lift, turn = 1.0 + 0.5 * (act[:, 0] + act[:, 1]), act[:, 1] - act[:, 0]
        acc = np.stack([-np.sin(s[:, 4]) * lift, np.cos(s[:, 4]) * lift - 1.0], 1)
        s[:, 2:4] += 0.05 * acc
        s[:, :2] += 0.05 * s[:, 2:4]
        s[:, 5] += 0.1 * turn
        s[:, 4] += 0.05 * s[:, 5]
        rew = -np.square(s[:, :2]).sum(1) - 0.1 * np.square(s[:, 4])
        done = (np.abs(s) > 4).any(1)
        nxt = s.copy()
        if done.any():
            s[done] = self.rng.normal(0, 0.5, (int(done.sum()), OBS))
        return nxt, rew - 5.0 * done, done


def behaviour(s, rng):
    lift = np.clip(-0.8 * s[:, 1] - 0.9 * s[:, 3], -1, 1)
    want = np.clip(0.4 * s[:, 0] + 0.6 * s[:, 2], -0.5, 0.5)
    turn = np.clip(2.0 * (want - s[:, 4]) - 1.0 * s[:, 5], -1, 1)
    act = np.stack([lift - turn / 2, lift + turn / 2], 1) + rng.normal(0, 0.3, (len(s), ACT))
    return np.clip(act, -1, 1).astype(np.float32)


def log_data(rng):
    env = HoverVec(DRONES, rng)
    obs, nxt = (np.zeros((LOG_STEPS, DRONES, OBS), np.float32) for _ in range(2))
    act = np.zeros((LOG_STEPS, DRONES, ACT), np.float32)
    rew, done = (np.zeros((LOG_STEPS, DRONES), np.float32) for _ in range(2))
    for t in range(LOG_STEPS):
        obs[t] = env.s
        act[t] = behaviour(env.s, rng)
        nxt[t], rew[t], done[t] = env.step(act[t])
    flat = [obs.reshape(-1, OBS), act.reshape(-1, ACT), rew.reshape(-1), nxt.reshape(-1, OBS), done.reshape(-1)]
    return [torch.from_numpy(x) for x in flat]


def mlp(i, o, *tail):
    return nn.Sequential(nn.Linear(i, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, o), *tail)


class IQL:
    def __init__(self):
        self.q1, self.q2, self.v = mlp(OBS + ACT, 1), mlp(OBS + ACT, 1), mlp(OBS, 1)
        self.t1, self.t2 = mlp(OBS + ACT, 1), mlp(OBS + ACT, 1)
        self.t1.load_state_dict(self.q1.state_dict())
        self.t2.load_state_dict(self.q2.state_dict())
        self.pi = mlp(OBS, ACT, nn.Tanh())
        self.online = [*self.q1.parameters(), *self.q2.parameters()]
        self.target = [*self.t1.parameters(), *self.t2.parameters()]
        self.opt = torch.optim.Adam([*self.online, *self.v.parameters(), *self.pi.parameters()], lr=5e-4)

    def update(self, o, a, r, o2, d):
        x = torch.cat([o, a], 1)
        with torch.no_grad():
            qt = torch.min(self.t1(x), self.t2(x)).squeeze(1)
            y = r + GAMMA * (1 - d) * self.v(o2).squeeze(1)
        v = self.v(o).squeeze(1)
        gap = qt - v
        v_loss = (torch.where(gap > 0, EXPECTILE, 1 - EXPECTILE) * gap.square()).mean()
        q_loss = F.mse_loss(self.q1(x).squeeze(1), y) + F.mse_loss(self.q2(x).squeeze(1), y)
        weight = (TEMP * gap.detach()).exp().clamp(max=100.0)
        pi_loss = (weight * (self.pi(o) - a).square().sum(1)).mean()
        loss = v_loss + q_loss + pi_loss
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.target, self.online, TAU)
        return loss.detach()


def main():
    torch.manual_seed(17)
    rng = np.random.default_rng(17)
    start = time.perf_counter()
    data = log_data(rng)
    agent = IQL()
    for k in range(UPDATES):
        idx = torch.randint(len(data[0]), (BATCH,))
        loss = agent.update(*(x[idx] for x in data))
        if k % 100 == 0:
            print(f"update {k} loss {loss.item():.3f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={DRONES * LOG_STEPS} updates={UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
