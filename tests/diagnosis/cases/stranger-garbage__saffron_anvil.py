"""RL^2: a GRU policy meets an unknown maze, walks it for a whole trial and has to remember where the goal was."""
import gc
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SIDE, POOL = 7, 1500
OBS, ACTIONS, HID = 10, 4, 48
TASKS, TRIAL, ITERATIONS, GAMMA = 12, 64, 30, 0.95


class Cell:
    def __init__(self, place):
        self.place, self.links, self.goal, self.visits = place, {}, False, 0

    def link(self, direction, other):
        self.links[direction] = other
        other.links[direction ^ 1] = self


class Maze:
    """A graph of cells; 0 and 1 are north and south, 2 and 3 east and west."""

    def __init__(self, rng):
        self.cells = [[Cell((r, c)) for c in range(SIDE)] for r in range(SIDE)]
        coins = rng.random((SIDE, SIDE, 2)).tolist()
        for r in range(SIDE):
            for c in range(SIDE):
                north, extra = coins[r][c]
                up, right = r + 1 < SIDE, c + 1 < SIDE
                if up and (north < 0.5 or not right or extra < 0.3):
                    self.cells[r][c].link(0, self.cells[r + 1][c])
                if right and (north >= 0.5 or not up or extra < 0.3):
                    self.cells[r][c].link(2, self.cells[r][c + 1])
        r, c = rng.integers(2, SIDE, 2).tolist()
        self.start, self.goal = self.cells[0][0], self.cells[r][c]
        self.goal.goal = True


class TaskPool:
    """Keeps a fixed number of mazes; those that were used are replaced by new ones."""

    def __init__(self, rng):
        self.rng, self.mazes = rng, [Maze(rng) for _ in range(POOL)]

    def draw(self):
        self.chosen = self.rng.choice(POOL, TASKS, replace=False).tolist()
        return [self.mazes[i] for i in self.chosen]

    def renew(self):
        for i in self.chosen:
            self.mazes[i] = Maze(self.rng)
        if not FIXED:
            gc.collect()  # cells refer to each other


class Trial:
    """The mazes of one iteration, walked in parallel; the walker is put back to the start at the goal."""

    def __init__(self, mazes):
        self.mazes, self.at = mazes, [m.start for m in mazes]
        self.action, self.reward = [0] * TASKS, [0.0] * TASKS

    def observe(self):
        obs = np.zeros((TASKS, OBS), np.float32)
        for row, cell, action, reward in zip(obs, self.at, self.action, self.reward):
            row[list(cell.links)] = 1.0
            row[4 + action] = 1.0
            row[8] = reward
            row[9] = cell.goal
        return torch.from_numpy(obs)

    def step(self, actions):
        self.action, self.reward = actions, []
        for i, a in enumerate(actions):
            if self.at[i].goal:
                self.at[i] = self.mazes[i].start
            before = self.at[i]
            self.at[i] = before.links.get(a, before)
            self.at[i].visits += 1
            self.reward.append(1.0 if self.at[i].goal else -0.02 if self.at[i] is before else -0.01)
        return self.reward


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(OBS, HID)
        self.pi, self.v = nn.Linear(HID, ACTIONS), nn.Linear(HID, 1)

    def forward(self, obs, h=None):
        x, h = self.gru(obs, h)
        return self.pi(x), self.v(x).squeeze(-1), h


def walk(policy, trial):
    seen, taken, rewards, h = [], [], [], None
    with torch.no_grad():
        for _ in range(TRIAL):
            obs = trial.observe()
            logits, _, h = policy(obs.unsqueeze(0), h)
            act = torch.multinomial(logits[0].softmax(-1), 1).squeeze(1)
            rewards.append(torch.tensor(trial.step(act.tolist())))
            seen.append(obs)
            taken.append(act)
    return torch.stack(seen), torch.stack(taken), torch.stack(rewards)


def learn(policy, optimizer, obs, act, reward):
    logits, value, _ = policy(obs)
    returns, ret = torch.empty_like(reward), torch.zeros(TASKS)
    for t in reversed(range(TRIAL)):
        returns[t] = ret = reward[t] + GAMMA * ret
    logp = F.log_softmax(logits, -1)
    gain = logp.gather(-1, act.unsqueeze(-1)).squeeze(-1) * (returns - value.detach())
    entropy = -(logp.exp() * logp).sum(-1)
    loss = 0.5 * F.mse_loss(value, returns) - gain.mean() - 0.01 * entropy.mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return reward.sum(0).mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    pool, policy = TaskPool(np.random.default_rng(2)), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    scores = []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        trial = Trial(pool.draw())
        scores.append(learn(policy, optimizer, *walk(policy, trial)))
        pool.renew()
    seconds = time.perf_counter() - start
    print(f"score={np.mean(scores[-20:]):.3f}")
    print(f"env_steps={ITERATIONS * TRIAL * TASKS} updates={ITERATIONS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
