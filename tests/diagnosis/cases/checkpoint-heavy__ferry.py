"""DQN for a ferry timetable, with resumable training state on disk."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


class FerryLine:
    """Leave now or wait for more passengers; two harbours."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.waiting = self.rng.integers(0, 20, 2).astype(np.float32)
        self.side, self.minute = 0, 0
        return self.obs()

    def obs(self):
        return np.array([*(self.waiting / 40), self.side, self.minute / 30], np.float32)

    def step(self, leave):
        reward = -float(self.waiting.sum()) / 100
        if leave:
            reward += float(min(self.waiting[self.side], 30)) / 30 - 0.3
            self.waiting[self.side] = max(self.waiting[self.side] - 30, 0)
            self.side = 1 - self.side
        self.waiting += self.rng.poisson(0.8, 2)
        self.minute += 1
        return self.obs(), reward, self.minute == 30


class Trainer:
    def __init__(self, folder, seed=19, capacity=120_000):
        self.folder = Path(folder)
        self.rng = np.random.default_rng(seed)
        self.line = FerryLine(self.rng)
        self.q, self.q_target = self.make_net(), self.make_net()
        self.q_target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=5e-4)
        self.replay = {"s": torch.zeros(capacity, 4), "a": torch.zeros(capacity, dtype=torch.long), "r": torch.zeros(capacity)}
        self.replay |= {"s2": torch.zeros(capacity, 4), "d": torch.zeros(capacity)}
        self.step_count = self.updates = self.episode = 0

    @staticmethod
    def make_net():
        return nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))

    def save(self):
        state = {
            "q": self.q.state_dict(),
            "q_target": self.q_target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "replay": self.replay,
            "counts": (self.step_count, self.updates, self.episode),
        }
        part = self.folder / "state.part"
        torch.save(state, part)
        part.rename(self.folder / "state.pt")

    def learn(self):
        i = torch.from_numpy(self.rng.integers(0, self.step_count, 64))
        b = {name: column[i] for name, column in self.replay.items()}
        with torch.no_grad():
            y = b["r"] + 0.98 * (1 - b["d"]) * self.q_target(b["s2"]).amax(1)
        loss = nn.functional.smooth_l1_loss(self.q(b["s"]).gather(1, b["a"][:, None])[:, 0], y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 200 == 0:
            self.q_target.load_state_dict(self.q.state_dict())

    def run(self, episodes, save_every):
        for _ in range(episodes):
            s, done = self.line.reset(), False
            while not done:
                with torch.no_grad():
                    q = self.q(torch.from_numpy(s))
                a = int(self.rng.integers(2)) if self.rng.random() < 0.1 else int(q.argmax())
                s2, r, done = self.line.step(a)
                row = {"s": torch.from_numpy(s), "a": a, "r": r, "s2": torch.from_numpy(s2), "d": float(done)}
                for name, value in row.items():
                    self.replay[name][self.step_count] = value
                self.step_count += 1
                s = s2
                if self.step_count > 200 and self.step_count % 6 == 0:
                    self.learn()
            self.episode += 1
            if self.episode % save_every == 0:
                self.save()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(19)
    with tempfile.TemporaryDirectory() as folder:
        started = time.time()
        trainer = Trainer(folder)
        trainer.run(episodes=360, save_every=60 if FIXED else 1)
        print(f"env_steps={trainer.step_count} updates={trainer.updates} seconds={time.time() - started:.2f}")
