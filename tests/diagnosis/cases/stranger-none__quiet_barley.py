"""PPO on pendulums: two actor processes fill shared-memory slots while the learner works on the previous ones."""
import multiprocessing as mp
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

SEED = 53
ROUNDS = 60
ACTORS = 2
SLOTS = 2
ENVS, HORIZON = 32, 64
HIDDEN = 128
EPOCHS, MINIBATCH = 4, 512
GAMMA, LAMBDA, STD = 0.97, 0.95, 0.5
ROW = 6  # cos, sin, speed, action, log-probability, reward


def array(raw, *shape):
    return np.frombuffer(raw, dtype=np.float32).reshape(shape)


class Pendulums:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.t = self.rng.integers(0, 200, ENVS)
        self.angle, self.speed = np.zeros(ENVS), np.zeros(ENVS)
        self.restart(np.ones(ENVS, dtype=bool))

    def restart(self, mask):
        n = int(mask.sum())
        self.angle[mask] = self.rng.uniform(-np.pi, np.pi, n)
        self.speed[mask] = self.rng.uniform(-1, 1, n)

    def observe(self, out):
        out[:, 0], out[:, 1], out[:, 2] = np.cos(self.angle), np.sin(self.angle), self.speed / 8

    def step(self, action):
        torque = np.clip(2 * action, -2, 2)
        wrapped = (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(wrapped**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = np.clip(self.speed + 0.05 * (15 * np.sin(self.angle) + 3 * torque), -8, 8)
        self.angle = self.angle + 0.05 * self.speed
        self.t += 1
        if (over := self.t >= 200).any():
            self.restart(over)
            self.t[over] = 0
        return reward / 16


def mlp():
    return nn.Sequential(nn.Linear(3, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))


def log_prob(action, mean):
    return -((action - mean) ** 2) / (2 * STD**2)


def mean_action(flat, obs):
    """The policy network in numpy, on parameters laid out as parameters_to_vector does."""
    a, b = 3 * HIDDEN, 4 * HIDDEN
    c, d = b + HIDDEN * HIDDEN, b + HIDDEN * HIDDEN + HIDDEN
    h = np.tanh(obs @ flat[:a].reshape(HIDDEN, 3).T + flat[a:b])
    h = np.tanh(h @ flat[b:c].reshape(HIDDEN, HIDDEN).T + flat[c:d])
    return h @ flat[d : d + HIDDEN] + flat[-1]


def act(index, rollouts, weights, free, full):
    """Round k goes to slot k % SLOTS, with the parameters published in that slot."""
    slots, params = array(rollouts, SLOTS, HORIZON + 1, ENVS, ROW), array(weights, SLOTS, -1)
    env, rng = Pendulums(SEED + index), np.random.default_rng(100 + index)
    for k in range(ROUNDS):
        free.acquire()
        rows, flat = slots[k % SLOTS], params[k % SLOTS]
        for row in rows[:HORIZON]:
            env.observe(row)
            mean = mean_action(flat, row[:, :3])
            row[:, 3] = mean + STD * rng.standard_normal(ENVS)
            row[:, 4] = log_prob(row[:, 3], mean)
            row[:, 5] = env.step(row[:, 3])
        env.observe(rows[HORIZON])
        full.release()


def learn(actor, critic, optimizer, data):
    with torch.no_grad():
        values = critic(data[..., :3]).squeeze(-1).numpy()
    reward = data[..., 5].numpy()
    adv, last = np.zeros_like(reward[:-1]), 0.0
    for t in reversed(range(HORIZON)):
        delta = reward[t] + GAMMA * values[t + 1] - values[t]
        adv[t] = last = delta + GAMMA * LAMBDA * last
    goal = torch.from_numpy((adv + values[:-1]).ravel())
    adv = torch.from_numpy(adv.ravel())
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    flat = data[:-1].reshape(-1, ROW)
    for _ in range(EPOCHS):
        for i in torch.randperm(len(flat)).split(MINIBATCH):
            rows, gae = flat[i], adv[i]
            obs = rows[:, :3]
            ratio = (log_prob(rows[:, 3], actor(obs).squeeze(1)) - rows[:, 4]).exp()
            gain = torch.minimum(ratio * gae, ratio.clamp(0.8, 1.2) * gae).mean()
            loss = 0.5 * (critic(obs).squeeze(1) - goal[i]).pow(2).mean() - gain
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    actor, critic = mlp(), mlp()
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)
    size = sum(p.numel() for p in actor.parameters())
    weights = mp.RawArray("f", SLOTS * size)
    params = array(weights, SLOTS, size)
    params[:] = parameters_to_vector(actor.parameters()).detach().numpy()
    free = [mp.Semaphore(SLOTS) for _ in range(ACTORS)]
    full = [mp.Semaphore(0) for _ in range(ACTORS)]
    raws = [mp.RawArray("f", SLOTS * (HORIZON + 1) * ENVS * ROW) for _ in range(ACTORS)]
    slots = [array(raw, SLOTS, HORIZON + 1, ENVS, ROW) for raw in raws]
    actors = [mp.Process(target=act, args=(k, raws[k], weights, free[k], full[k]), daemon=True) for k in range(ACTORS)]
    for process in actors:
        process.start()
    rewards = []
    start = time.perf_counter()
    for k in range(ROUNDS):
        for filled in full:
            filled.acquire()
        data = torch.from_numpy(np.concatenate([slot[k % SLOTS] for slot in slots], axis=1))
        learn(actor, critic, optimizer, data)
        params[k % SLOTS] = parameters_to_vector(actor.parameters()).detach().numpy()
        for emptied in free:
            emptied.release()
        rewards.append(data[:-1, :, 5].mean().item())
    seconds = time.perf_counter() - start
    for process in actors:
        process.join()
    steps = ROUNDS * ACTORS * HORIZON * ENVS
    print(f"reward per step: first {rewards[0]:.3f} last {np.mean(rewards[-5:]):.3f}")
    print(f"env_steps={steps} updates={ROUNDS * EPOCHS * ACTORS * ENVS * HORIZON // MINIBATCH} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
