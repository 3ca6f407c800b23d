"""Double DQN on a batch of cart-poles; mini-batches are prepared by a helper thread."""
import os
import threading
import time
from queue import Queue

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

SEED, N_ENVS, ITERS, WARMUP = 1, 8, 200, 20
GRAD_STEPS, BATCH, GAMMA, SYNC = 6, 192, 0.98, 100


class Replay:
    def __init__(self, capacity, obs_dim):
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.nxt = np.zeros((capacity, obs_dim), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.rew, self.end = np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
        self.capacity, self.pos, self.size = capacity, 0, 0

    def extend(self, obs, act, rew, nxt, end):
        where = (self.pos + np.arange(len(act))) % self.capacity
        self.obs[where], self.act[where], self.rew[where] = obs, act, rew
        self.nxt[where], self.end[where] = nxt, end
        self.pos = (self.pos + len(act)) % self.capacity
        self.size = min(self.size + len(act), self.capacity)

    def draw(self, rng, n):
        i = rng.integers(0, self.size, n)
        return [torch.from_numpy(x[i]) for x in (self.obs, self.act, self.rew, self.nxt, self.end)]


class Feeder:
    """Prepares the next mini-batch beside the gradient step."""

    def __init__(self, replay, rng):
        self.replay, self.rng = replay, rng
        self.pending, self.slot, self.running = False, None, True
        self.orders, self.goods = Queue(), Queue()
        self.thread = threading.Thread(target=self._serve_queue if FIXED else self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while self.running:
            if self.pending:
                self.pending = False
                self.slot = self.replay.draw(self.rng, BATCH)
            else:
                time.sleep(0.003)

    def _serve_queue(self):
        while self.orders.get():
            self.goods.put(self.replay.draw(self.rng, BATCH))

    def order(self):
        if FIXED:
            self.orders.put(True)
        else:
            self.pending = True

    def take(self):
        if FIXED:
            return self.goods.get()
        while self.slot is None:
            time.sleep(0.001)
        batch, self.slot = self.slot, None
        return batch

    def close(self):
        self.running = False
        self.orders.put(False)
        self.thread.join()


def q_net(obs_dim, n_act):
    return nn.Sequential(nn.Linear(obs_dim, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, n_act))


def gradient_step(q, target, opt, batch):
    obs, act, rew, nxt, end = batch
    with torch.no_grad():
        best = q(nxt).argmax(1, keepdim=True)
        y = rew + GAMMA * (1 - end) * target(nxt).gather(1, best).squeeze(1)
    loss = nn.functional.smooth_l1_loss(q(obs).gather(1, act[:, None]).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(N_ENVS)])
    q, target = q_net(4, 2), q_net(4, 2)
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    replay = Replay(20_000, 4)
    feeder = Feeder(replay, np.random.default_rng(SEED + 1))
    obs, _ = envs.reset(seed=SEED)
    env_steps = updates = 0
    alive = np.ones(N_ENVS, bool)
    t0 = time.perf_counter()
    for it in range(ITERS):
        eps = max(0.05, 1 - it / 60)
        for _ in range(4):
            with torch.no_grad():
                act = q(torch.from_numpy(obs)).argmax(1).numpy()
            act = np.where(rng.random(N_ENVS) < eps, rng.integers(0, 2, N_ENVS), act)
            nxt, rew, term, trunc, _ = envs.step(act)
            replay.extend(obs[alive], act[alive], rew[alive], nxt[alive], term[alive])
            alive = ~(term | trunc)
            obs, env_steps = nxt, env_steps + N_ENVS
        if it < WARMUP:
            continue
        feeder.order()
        for g in range(GRAD_STEPS):
            batch = feeder.take()
            if g + 1 < GRAD_STEPS:
                feeder.order()
            loss = gradient_step(q, target, opt, batch)
            updates += 1
            if updates % SYNC == 0:
                target.load_state_dict(q.state_dict())
        if it % 20 == 0:
            print(f"iter {it} eps {eps:.2f} loss {loss:.4f}")
    seconds = time.perf_counter() - t0
    feeder.close()
    envs.close()
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
