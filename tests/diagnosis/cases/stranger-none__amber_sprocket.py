"""Double DQN with prioritised replay; one actor process plays ahead while the learner trains."""
import copy
import multiprocessing as mp
import os
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

SEED, GAMMA, HIDDEN = 13, 0.98, 192
GLIDERS, CHUNK, ROUNDS = 64, 16, 70
UPDATES_PER_ROUND, BATCH, CAPACITY = 8, 384, 1 << 15

class Gliders:
    """Many gliders at once: stay in the lift and off the ground with three elevator settings."""

    OBS, ACTIONS = 5, 3

    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)
        self.state = self._fresh(n)

    def _fresh(self, n):
        s = self.rng.uniform(-1, 1, (n, self.OBS)).astype(np.float32)
        s[:, 0] = 1.0
        return s

    def step(self, actions):
        height, sink, pitch, drift, lift = self.state.T
        pitch = np.clip(0.8 * pitch + 0.3 * (actions - 1), -1, 1)
        lift_here = np.exp(-(drift - lift) ** 2)
        sink = 0.9 * sink + 0.1 * (lift_here - 0.5 - 0.4 * pitch ** 2)
        drift = np.clip(drift + 0.1 * pitch, -2, 2)
        height = height + 0.2 * sink
        self.state = np.stack([height, sink, pitch, drift, lift], 1).astype(np.float32)
        reward = (lift_here - 0.2 * np.abs(pitch)).astype(np.float32)
        done = (height < 0) | (self.rng.random(self.n) < 0.01)
        nxt = self.state.copy()
        self.state[done] = self._fresh(int(done.sum()))
        return nxt, reward, done.astype(np.float32)

def actor_process(pipe, seed):
    env = Gliders(GLIDERS, seed)
    rng = np.random.default_rng(seed + 1)
    while True:
        order = pipe.recv()
        if order is None:
            break
        layers, epsilon = order
        rows = []
        for _ in range(CHUNK):
            x = obs = env.state.copy()
            for w, b in layers[:-1]:
                x = np.maximum(x @ w.T + b, 0)
            x = x @ layers[-1][0].T + layers[-1][1]
            act = np.where(rng.random(GLIDERS) < epsilon, rng.integers(0, Gliders.ACTIONS, GLIDERS), x.argmax(1))
            nxt, rew, done = env.step(act)
            rows.append((obs, act, rew, nxt, done))
        pipe.send([np.concatenate(part) for part in zip(*rows)])
    pipe.close()

class PrioritisedReplay:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.tree = np.zeros(2 * CAPACITY)
        self.columns = None
        self.head = self.size = 0

    def _set(self, rows, priority):
        nodes = rows + CAPACITY
        self.tree[nodes] = priority
        while nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self.tree[nodes] = self.tree[2 * nodes] + self.tree[2 * nodes + 1]

    def extend(self, parts):
        if self.columns is None:
            self.columns = [torch.zeros((CAPACITY, *p.shape[1:]), dtype=torch.from_numpy(p).dtype) for p in parts]
        rows = (self.head + np.arange(len(parts[0]))) % CAPACITY
        for column, part in zip(self.columns, parts):
            column[rows] = torch.from_numpy(part)
        self._set(rows, 1.0)
        self.head = (self.head + len(rows)) % CAPACITY
        self.size = min(self.size + len(rows), CAPACITY)

    def sample(self, n):
        mass = (np.arange(n) + self.rng.random(n)) * (self.tree[1] / n)
        nodes = np.ones(n, dtype=np.int64)
        while nodes[0] < CAPACITY:
            nodes = nodes << 1
            right = mass >= self.tree[nodes]
            mass = mass - np.where(right, self.tree[nodes], 0.0)
            nodes = nodes + right
        rows = np.minimum(nodes - CAPACITY, self.size - 1)
        weights = (self.size * self.tree[rows + CAPACITY] / self.tree[1]) ** -0.4
        index = torch.from_numpy(rows)
        return rows, torch.from_numpy((weights / weights.max()).astype(np.float32)), [c[index] for c in self.columns]

    def update(self, rows, errors):
        self._set(rows, (np.abs(errors) + 1e-3) ** 0.6)

def learn(net, target, optim, replay):
    rows, weights, (obs, act, rew, nxt, done) = replay.sample(BATCH)
    with torch.no_grad():
        best = net(nxt).argmax(1, keepdim=True)
        goal = rew + GAMMA * (1 - done) * target(nxt).gather(1, best).squeeze(1)
    error = goal - net(obs).gather(1, act.unsqueeze(1)).squeeze(1)
    loss = (weights * error.pow(2)).mean()
    optim.zero_grad()
    loss.backward()
    optim.step()
    replay.update(rows, error.detach().numpy())
    return rew.mean().item()

def numpy_layers(net):
    return [(m.weight.detach().numpy().copy(), m.bias.detach().numpy().copy()) for m in net if isinstance(m, nn.Linear)]

def main():
    torch.manual_seed(SEED)
    ctx = mp.get_context("fork")
    ours, theirs = ctx.Pipe()
    actor = ctx.Process(target=actor_process, args=(theirs, SEED), daemon=True)
    actor.start()
    try:
        net = nn.Sequential(nn.Linear(Gliders.OBS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                            nn.Linear(HIDDEN, Gliders.ACTIONS))
        target = copy.deepcopy(net)
        optim = torch.optim.Adam(net.parameters(), lr=5e-4)
        replay = PrioritisedReplay(SEED)
        start = time.perf_counter()
        ours.send((numpy_layers(net), 1.0))
        for round_ in range(ROUNDS):
            replay.extend(ours.recv())
            if round_ < ROUNDS - 1:
                ours.send((numpy_layers(net), max(0.05, 1.0 - round_ / 30)))
            mean = np.mean([learn(net, target, optim, replay) for _ in range(UPDATES_PER_ROUND)])
            if (round_ + 1) % 5 == 0:
                target.load_state_dict(net.state_dict())
            if (round_ + 1) % 20 == 0:
                print(f"round {round_ + 1}: mean reward in the replay {mean:.3f}")
        seconds = time.perf_counter() - start
    finally:
        ours.send(None)
        actor.join(timeout=5)
        if actor.is_alive():
            actor.terminate()
    print(f"env_steps={ROUNDS * CHUNK * GLIDERS} updates={ROUNDS * UPDATES_PER_ROUND} seconds={seconds:.3f}")

if __name__ == "__main__":
    main()
