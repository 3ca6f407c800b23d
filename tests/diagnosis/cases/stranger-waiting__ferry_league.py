"""Two actor processes fill shared memory, the learner in the parent trains on what they bring."""
import multiprocessing as mp
import os
import time
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
ACTORS, LENGTH, GAMES, DIM, ACTIONS, ROUNDS = 2, 32, 8, 10, 4, 90
RECORD = DIM + 3  # observation, action, reward, end


class Drift:
    """Balance a drifting vector with one of four pushes."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.mix = np.random.default_rng(0).normal(0, 0.3, (DIM, DIM)) / np.sqrt(DIM)
        self.push = np.random.default_rng(1).normal(0, 0.4, (ACTIONS, DIM))
        self.s = self.rng.normal(0, 1, (GAMES, DIM))

    def step(self, a):
        self.s = 0.97 * self.s + self.s @ self.mix + self.push[a] + self.rng.normal(0, 0.05, self.s.shape)
        size = np.sqrt((self.s ** 2).sum(1))
        end = size > 6
        self.s[end] = self.rng.normal(0, 1, (int(end.sum()), DIM))
        return -0.1 * size, end


def actor(rank, block_name, weights_name, weights_len, go, ready):
    block, weights = SharedMemory(block_name), SharedMemory(weights_name)
    slab = np.ndarray((ACTORS, LENGTH, GAMES, RECORD), np.float32, block.buf)[rank]
    theta = np.ndarray((weights_len,), np.float32, weights.buf)
    env, rng = Drift(rank + 10), np.random.default_rng(rank)
    while go.get():
        w = theta.copy()
        w1, b1 = w[:DIM * 64].reshape(64, DIM), w[DIM * 64:DIM * 64 + 64]
        w2, b2 = w[-65 * ACTIONS:-ACTIONS].reshape(ACTIONS, 64), w[-ACTIONS:]
        for t in range(LENGTH):
            slab[t, :, :DIM] = env.s
            logits = np.tanh(env.s @ w1.T + b1) @ w2.T + b2
            a = (logits + rng.gumbel(size=logits.shape)).argmax(1)
            slab[t, :, DIM], (slab[t, :, DIM + 1], slab[t, :, DIM + 2]) = a, env.step(a)
        ready.release()
    del slab, theta


class Learner:
    def __init__(self):
        self.pi = nn.Sequential(nn.Linear(DIM, 64), nn.Tanh(), nn.Linear(64, ACTIONS))
        self.v = nn.Sequential(nn.Linear(DIM, 64), nn.Tanh(), nn.Linear(64, 1))
        self.opt = torch.optim.Adam([*self.pi.parameters(), *self.v.parameters()], 1e-3)

    def flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.pi.parameters()]).numpy()

    def returns(self, rew, end, gamma=0.97):
        out, run = np.zeros_like(rew), np.zeros(rew.shape[1:], np.float32)
        for t in reversed(range(LENGTH)):
            run = rew[t] + gamma * (1 - end[t]) * run
            out[t] = run
        return out

    def update(self, slab):
        data = slab.transpose(1, 0, 2, 3).reshape(LENGTH, -1, RECORD)
        ret = torch.from_numpy(self.returns(data[..., DIM + 1], data[..., DIM + 2]))
        obs, act = torch.from_numpy(data[..., :DIM]), torch.from_numpy(data[..., DIM]).long()
        for _ in range(5):
            logp = torch.log_softmax(self.pi(obs), -1)
            value = self.v(obs).squeeze(-1)
            pg = -(logp.gather(-1, act[..., None]).squeeze(-1) * (ret - value.detach())).mean()
            self.opt.zero_grad()
            (pg + 0.5 * (value - ret).pow(2).mean() + 0.01 * (logp.exp() * logp).sum(-1).mean()).backward()
            self.opt.step()


def collect(gos, ready):
    for go in gos:
        go.put(True)
    arrived = 0
    while arrived < ACTORS:
        if ready.acquire(block=FIXED):
            arrived += 1
        else:
            time.sleep(0.02)


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    ctx, learner = mp.get_context("fork"), Learner()
    first = learner.flat()
    block, weights = SharedMemory(create=True, size=ACTORS * LENGTH * GAMES * RECORD * 4), SharedMemory(create=True, size=first.nbytes)
    slab = np.ndarray((ACTORS, LENGTH, GAMES, RECORD), np.float32, block.buf)
    theta = np.ndarray(first.shape, np.float32, weights.buf)
    gos, ready = [ctx.SimpleQueue() for _ in range(ACTORS)], ctx.Semaphore(0)
    crew = [ctx.Process(target=actor, args=(i, block.name, weights.name, len(first), gos[i], ready)) for i in range(ACTORS)]
    [p.start() for p in crew]
    steps, start = 0, time.perf_counter()
    for _ in range(ROUNDS):
        theta[:] = learner.flat()
        collect(gos, ready)
        learner.update(slab.copy())
        steps += ACTORS * LENGTH * GAMES
    seconds = time.perf_counter() - start
    for p, go in zip(crew, gos):
        go.put(False)
        p.join()
    del slab, theta
    for shm in (block, weights):
        shm.close()
        shm.unlink()
    print(f"env_steps={steps} updates={ROUNDS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
