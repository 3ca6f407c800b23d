# TD3 on Pendulum-v1, one environment, one file
import copy
import gc
import os
import resource
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

seed = 7
total_steps, learn_start, round_len, rounds_updates = 2700, 300, 100, 45
batch_size, gamma, tau, policy_delay = 64, 0.98, 0.01, 2
noise_std, target_noise, noise_clip = 0.2, 0.2, 0.5


def mlp(*sizes, out=None):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    layers.append(nn.Linear(sizes[-2], sizes[-1]))
    if out is not None:
        layers.append(out)
    return nn.Sequential(*layers)


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1, self.q2 = mlp(4, 64, 64, 1), mlp(4, 64, 64, 1)

    def forward(self, o, a):
        x = torch.cat([o, a], dim=1)
        return self.q1(x).squeeze(1), self.q2(x).squeeze(1)


class Ring:
    def __init__(self, n):
        self.data = torch.zeros(n, 3 + 1 + 1 + 3)
        self.n, self.i, self.full = n, 0, False

    def push(self, o, a, r, o2):
        self.data[self.i] = torch.from_numpy(np.concatenate([o, a, [r], o2]).astype(np.float32))
        self.i = (self.i + 1) % self.n
        self.full |= self.i == 0

    def sample(self, k):
        rows = self.data[torch.randint(0, self.n if self.full else self.i, (k,))]
        return rows.split([3, 1, 1, 3], dim=1)


class Monitor:
    """Keeps one row per round: step, return, losses, resident memory."""

    def __init__(self):
        self.rows = []

    @staticmethod
    def memory_mb():
        if not FIXED:
            gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def row(self, step, ret, q_loss, pi_loss):
        self.rows.append((step, ret, q_loss, pi_loss, self.memory_mb()))
        if len(self.rows) % 10 == 0:
            print("step %5d  return %8.1f  q %.3f  pi %.3f  mem %.0f MB" % self.rows[-1])


def main():
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make("Pendulum-v1")
    actor, critic = mlp(3, 64, 64, 1, out=nn.Tanh()), Twin()
    actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
    a_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
    c_opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
    ring, monitor = Ring(10_000), Monitor()
    obs, _ = env.reset(seed=seed)
    ret, last_ret, updates, pi_loss = 0.0, 0.0, 0, torch.zeros(())
    began = time.perf_counter()
    for step in range(1, total_steps + 1):
        if step <= learn_start:
            act = rng.uniform(-1, 1, 1).astype(np.float32)
        else:
            with torch.no_grad():
                act = actor(torch.from_numpy(obs)).numpy()
            act = np.clip(act + noise_std * rng.standard_normal(1), -1, 1).astype(np.float32)
        nxt, rew, term, trunc, _ = env.step(2.0 * act)
        ring.push(obs, act, rew / 10, nxt)
        obs, ret = nxt, ret + rew
        if term or trunc:
            last_ret, ret = ret, 0.0
            obs, _ = env.reset()
        if step < learn_start or step % round_len:
            continue
        for _ in range(rounds_updates):
            o, a, r, o2 = ring.sample(batch_size)
            with torch.no_grad():
                eps = (torch.randn_like(a) * target_noise).clamp(-noise_clip, noise_clip)
                t1, t2 = critic_t(o2, (actor_t(o2) + eps).clamp(-1, 1))
                y = r.squeeze(1) + gamma * torch.min(t1, t2)
            q1, q2 = critic(o, a)
            q_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
            c_opt.zero_grad()
            q_loss.backward()
            c_opt.step()
            updates += 1
            if updates % policy_delay == 0:
                pi_loss = -critic(o, actor(o))[0].mean()
                a_opt.zero_grad()
                pi_loss.backward()
                a_opt.step()
                with torch.no_grad():
                    for src, dst in ((actor, actor_t), (critic, critic_t)):
                        torch._foreach_lerp_(list(dst.parameters()), list(src.parameters()), tau)
        monitor.row(step, last_ret, q_loss.item(), pi_loss.item())
    seconds = time.perf_counter() - began
    env.close()
    print(f"env_steps={total_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
