"""Evolution strategies for a fruit-picking arm, rollouts in two processes."""
import multiprocessing as mp
import os
import time

import numpy as np
import torch

FIXED = os.environ.get("FIXED") == "1"
OBS, HID, ACT = 6, 24, 2
SIZE = OBS * HID + HID + HID * ACT + ACT
torch.set_num_threads(1)


class Arm:
    """Two-joint arm that reaches for a fruit in the plane."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.q = self.rng.uniform(-1, 1, 2)
        self.dq = np.zeros(2)
        self.fruit = self.rng.uniform(0.3, 1.2, 2)
        return self.observe()

    def tip(self):
        a, b = self.q[0], self.q[0] + self.q[1]
        return np.array([np.cos(a) + np.cos(b), np.sin(a) + np.sin(b)])

    def observe(self):
        return np.concatenate([self.q, self.dq, self.fruit])

    def step(self, torque):
        self.dq = 0.9 * self.dq + 0.2 * torque
        self.q = self.q + 0.1 * self.dq
        gap = self.tip() - self.fruit
        return self.observe(), -float(np.sqrt(gap @ gap))


def act(theta, obs):
    a, b = OBS * HID, OBS * HID + HID
    hidden = np.tanh(obs @ theta[:a].reshape(OBS, HID) + theta[a:b])
    return np.tanh(hidden @ theta[b:b + HID * ACT].reshape(HID, ACT) + theta[b + HID * ACT:])


def episode(theta, seed, length=40):
    env = Arm(np.random.default_rng(seed))
    obs, total = env.reset(), 0.0
    for _ in range(length):
        obs, rew = env.step(act(theta, obs))
        total += rew
    return total


def score_part(job):
    thetas, seed = job
    return [episode(theta, seed) for theta in thetas]


def serve(conn):
    while (job := conn.recv()) is not None:
        conn.send(score_part(job))


class Evaluator:
    def __init__(self, n_procs):
        self.n, self.ctx, self.team = n_procs, mp.get_context("fork"), []

    def launch(self):
        for _ in range(self.n):
            ours, theirs = self.ctx.Pipe()
            proc = self.ctx.Process(target=serve, args=(theirs,), daemon=True)
            proc.start()
            self.team.append((proc, ours))

    def dismiss(self):
        for proc, conn in self.team:
            conn.send(None)
            proc.join()
        self.team = []

    def scores(self, thetas, seed):
        if not self.team:
            self.launch()
        for (_, conn), part in zip(self.team, np.array_split(thetas, self.n)):
            conn.send((part, seed))
        out = [s for _, conn in self.team for s in conn.recv()]
        if not FIXED:
            self.dismiss()
        return np.array(out)


def main(generations=200, pairs=8, sigma=0.1, lr=0.05):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    mean = torch.nn.Parameter(0.1 * torch.randn(SIZE, generator=gen))
    opt = torch.optim.Adam([mean], lr=lr)
    evaluator = Evaluator(2)
    steps = updates = 0
    start = time.perf_counter()
    for g in range(generations):
        noise = torch.randn(pairs, SIZE, generator=gen)
        noise = torch.cat([noise, -noise])
        thetas = (mean.detach() + sigma * noise).double().numpy()
        score = evaluator.scores(thetas, seed=g)
        steps += len(thetas) * 40
        ranks = torch.from_numpy(score.argsort().argsort()).float() / (len(score) - 1) - 0.5
        mean.grad = -(ranks @ noise) / (len(score) * sigma)
        opt.step()
        updates += 1
    seconds = time.perf_counter() - start
    evaluator.dismiss()
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
