"""Actor-critic beside a thread that sends the newest weights to an archive; both share the weights."""

import os
import threading
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
ROUNDS, HORIZON, WIDTH = 330, 64, 12


class Gusts:
    def __init__(self, seed, count):
        self.rng, self.count = np.random.default_rng(seed), count

    def reset(self):
        self.air = self.rng.normal(0, 1, (self.count, WIDTH)).astype(np.float32)
        return self.air

    def step(self, action):
        self.air = 0.95 * self.air + self.rng.normal(0, 0.1, self.air.shape).astype(np.float32)
        self.air[:, 0] += 0.1 * (action - 1)
        return self.air, -np.abs(self.air[:, 0])


class Shelf:
    """The weights, and their way to the archive."""

    def __init__(self, model):
        self.model, self.lock, self.open = model, threading.Lock(), True
        self.sent = 0
        self.thread = threading.Thread(target=self.send_all, daemon=True)
        self.thread.start()

    def upload(self, weights):
        self.sent += sum(w.nbytes for w in weights)
        time.sleep(0.02)

    def send_all(self):
        while self.open:
            with self.lock:
                weights = [p.detach().numpy().copy() for p in self.model.parameters()]
                if not FIXED:
                    self.upload(weights)
            if FIXED:
                self.upload(weights)
            time.sleep(0.012)

    def close(self):
        self.open = False
        self.thread.join()


def collect(model, gusts, seen):
    rows = []
    for _ in range(HORIZON):
        with torch.no_grad():
            logits, _ = model(torch.from_numpy(seen)).split((3, 1), dim=1)
            action = torch.distributions.Categorical(logits=logits).sample()
        after, reward = gusts.step(action.numpy())
        rows.append((torch.from_numpy(seen), action, torch.from_numpy(reward)))
        seen = after
    return seen, [torch.stack(column) for column in zip(*rows, strict=True)]


def improve(model, optimizer, shelf, seen, action, reward):
    gain = reward.flip(0).cumsum(0).flip(0)
    logits, value = model(seen).split((3, 1), dim=2)
    log = torch.distributions.Categorical(logits=logits).log_prob(action)
    edge = gain - value[..., 0]
    loss = -(log * edge.detach()).mean() + edge.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    with shelf.lock:
        optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 128), nn.Tanh(), nn.Linear(128, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gusts, shelf = Gusts(0, 8), Shelf(model)
    seen = gusts.reset()
    start = time.perf_counter()
    for _ in range(ROUNDS):
        seen, batch = collect(model, gusts, seen)
        improve(model, optimizer, shelf, *batch)
    seconds = time.perf_counter() - start
    shelf.close()
    print(f"env_steps={ROUNDS * HORIZON * 8} updates={ROUNDS} seconds={seconds:.2f}")


if __name__ == "__main__":
    main()
