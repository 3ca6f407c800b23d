"""Balancing rigs: four simulators live in processes of their own, one learner trains a Gaussian policy on all of them."""
import multiprocessing as mp
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

RIGS = 4
HORIZON = 32
ITERATIONS = 10
GAMMA = 0.97


class Rig:
    """A cart on a rail that has to be brought to a marked position. The controller board answers after one tick."""

    tick = 0.0025

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos, self.vel = self.rng.uniform(-1, 1), 0.0
        self.mark = self.rng.uniform(-1, 1)
        self.t = 0
        return self.observe()

    def observe(self):
        return np.array([self.pos, self.vel, self.mark, self.mark - self.pos], dtype=np.float32)

    def step(self, force):
        started = time.perf_counter()
        for _ in range(5):
            self.vel += 0.05 * float(np.clip(force, -2, 2)) - 0.02 * self.vel
            self.pos += 0.05 * self.vel
        self.t += 1
        reward = -abs(self.mark - self.pos) - 0.01 * force ** 2
        done = self.t >= 40
        obs = self.reset() if done else self.observe()
        time.sleep(max(0.0, self.tick - (time.perf_counter() - started)))  # the board's clock
        return obs, float(reward), done


def serve(conn, seed):
    rig = Rig(seed)
    while True:
        command, value = conn.recv()
        if command == "reset":
            conn.send(rig.reset())
        elif command == "step":
            conn.send(rig.step(value))
        else:
            conn.close()
            return


class RigPool:
    def __init__(self, count):
        context = mp.get_context("fork")
        self.conns, self.procs = [], []
        for i in range(count):
            ours, theirs = context.Pipe()
            proc = context.Process(target=serve, args=(theirs, 100 + i), daemon=True)
            proc.start()
            theirs.close()
            self.conns.append(ours)
            self.procs.append(proc)

    def call(self, conn, command, value=None):
        conn.send((command, value))
        return conn.recv()

    def reset(self):
        return np.stack([self.call(c, "reset") for c in self.conns])

    def step(self, actions):
        if FIXED:
            for conn, action in zip(self.conns, actions):
                conn.send(("step", action))
            results = [conn.recv() for conn in self.conns]
        else:
            results = [self.call(conn, "step", action) for conn, action in zip(self.conns, actions)]
        obs, rewards, dones = zip(*results)
        return np.stack(obs), np.array(rewards, dtype=np.float32), np.array(dones)

    def close(self):
        for conn, proc in zip(self.conns, self.procs):
            conn.send(("close", None))
            proc.join()


def main():
    torch.manual_seed(3)
    pool = RigPool(RIGS)
    actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    log_std = nn.Parameter(torch.zeros(1))
    opt = torch.optim.Adam([*actor.parameters(), *critic.parameters(), log_std], lr=3e-3)
    env_steps = updates = 0
    start = time.perf_counter()
    obs = pool.reset()
    for _ in range(ITERATIONS):
        all_obs, all_act, all_rew, all_done = [], [], [], []
        for _ in range(HORIZON):
            with torch.no_grad():
                x = torch.from_numpy(obs)
                act = actor(x) + log_std.exp() * torch.randn(RIGS, 1)
            nxt, rew, done = pool.step(act[:, 0].tolist())
            all_obs.append(x), all_act.append(act), all_rew.append(rew), all_done.append(done)
            obs = nxt
            env_steps += RIGS
        with torch.no_grad():
            ret = critic(torch.from_numpy(obs))[:, 0].numpy()
        returns = np.zeros((HORIZON, RIGS), dtype=np.float32)
        for t in reversed(range(HORIZON)):
            ret = all_rew[t] + GAMMA * ret * (1 - all_done[t])
            returns[t] = ret
        xs, acts, rets = torch.cat(all_obs), torch.cat(all_act), torch.from_numpy(returns).reshape(-1)
        for _ in range(8):
            value = critic(xs)[:, 0]
            adv = (rets - value).detach()
            logp = torch.distributions.Normal(actor(xs), log_std.exp()).log_prob(acts)[:, 0]
            loss = -(logp * adv).mean() * 0.2 + (rets - value).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            updates += 1
    seconds = time.perf_counter() - start
    pool.close()
    print(f"mean reward in the last rollout {np.mean(all_rew):.3f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
