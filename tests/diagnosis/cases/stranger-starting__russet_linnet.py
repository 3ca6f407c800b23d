"""Actor-critic on procedurally carved caves; every iteration trains on a new batch of levels."""
import os
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SIDE, VIEW = 24, 3
LEVELS, STEPS, ITERATIONS, WORKERS = 32, 32, 55, 6
EPOCHS, MINIBATCH, GAMMA = 3, 256, 0.97
MOVES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])
OBS = (2 * VIEW + 1) ** 2 + 2


def carve(seed):
    """Drunkard's walk for the cave, breadth-first search for the farthest cell as the exit."""
    rng = np.random.default_rng(seed)
    cave = np.ones((SIDE, SIDE), np.int8)
    row = col = SIDE // 2
    cave[row, col] = 0
    for move in rng.integers(0, 4, 260).tolist():
        step_row, step_col = ((0, 1), (0, -1), (1, 0), (-1, 0))[move]
        row = min(max(row + step_row, 1), SIDE - 2)
        col = min(max(col + step_col, 1), SIDE - 2)
        cave[row, col] = 0
    open_cells = cave.tolist()
    start = (SIDE // 2, SIDE // 2)
    depth, queue, last = {start: 0}, deque([start]), start
    while queue:
        last = r, c = queue.popleft()
        for cell in ((r, c + 1), (r, c - 1), (r + 1, c), (r - 1, c)):
            if cell not in depth and not open_cells[cell[0]][cell[1]]:
                depth[cell] = depth[(r, c)] + 1
                queue.append(cell)
    return cave, last


def draw_levels(iteration, pool):
    seeds = range(iteration * LEVELS, (iteration + 1) * LEVELS)
    if pool is not None:
        return list(pool.map(carve, seeds, chunksize=4))
    with ProcessPoolExecutor(max_workers=WORKERS) as workers:
        return list(workers.map(carve, seeds, chunksize=4))


class CaveBatch:
    """A batch of caves played side by side, one agent in each."""

    def __init__(self, levels):
        caves = np.stack([cave for cave, _ in levels])
        self.caves = np.pad(caves, ((0, 0), (VIEW, VIEW), (VIEW, VIEW)), constant_values=1)
        self.exits = np.array([cell for _, cell in levels])
        self.pos = np.full((LEVELS, 2), SIDE // 2)
        self.rows = np.arange(LEVELS)
        self.window = np.arange(2 * VIEW + 1)

    def observe(self):
        r = self.pos[:, 0, None, None] + self.window[None, :, None]
        c = self.pos[:, 1, None, None] + self.window[None, None, :]
        patch = self.caves[self.rows[:, None, None], r, c].reshape(LEVELS, -1)
        return torch.from_numpy(np.concatenate((patch, (self.exits - self.pos) / SIDE), 1).astype(np.float32))

    def step(self, action):
        before = np.abs(self.exits - self.pos).sum(1)
        target = self.pos + MOVES[action]
        free = self.caves[self.rows, target[:, 0] + VIEW, target[:, 1] + VIEW] == 0
        self.pos = np.where(free[:, None], target, self.pos)
        after = np.abs(self.exits - self.pos).sum(1)
        done = after == 0
        self.pos[done] = SIDE // 2
        reward = 0.1 * (before - GAMMA * after) + done - 0.05 * ~free
        return torch.from_numpy(reward.astype(np.float32)), torch.from_numpy(done.astype(np.float32))


class Net(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(OBS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.Linear(width, len(MOVES) + 1)

    def forward(self, obs):
        out = self.heads(self.trunk(obs))
        return out[..., :-1].log_softmax(-1), out[..., -1]


@torch.no_grad()
def play(net, batch):
    rows, obs = [], batch.observe()
    for _ in range(STEPS):
        logits, _ = net(obs)
        action = torch.multinomial(logits.exp(), 1)
        reward, done = batch.step(action.squeeze(1).numpy())
        rows.append((obs, action, logits.gather(1, action).squeeze(1), reward, done))
        obs = batch.observe()
    seen, acts, logp, reward, done = (torch.stack(column) for column in zip(*rows))
    target, ret = torch.empty_like(reward), net(obs)[1]
    for t in reversed(range(STEPS)):
        ret = reward[t] + GAMMA * (1 - done[t]) * ret
        target[t] = ret
    adv = target - net(seen)[1]
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    return [x.flatten(0, 1) for x in (seen, acts, logp, adv, target)], reward.mean().item()


def optimise(net, optim, data, updates):
    for _ in range(EPOCHS):
        for index in torch.randperm(LEVELS * STEPS).split(MINIBATCH):
            obs, act, logp, adv, target = (x[index] for x in data)
            logits, value = net(obs)
            ratio = (logits.gather(1, act).squeeze(1) - logp).exp()
            gain = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            entropy = -(logits.exp() * logits).sum(-1).mean()
            loss = 0.5 * (value - target).pow(2).mean() - gain - 0.01 * entropy
            optim.zero_grad()
            loss.backward()
            optim.step()
            updates += 1
    return updates


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    net = Net()
    optim = torch.optim.Adam(net.parameters(), lr=5e-4)
    pool = ProcessPoolExecutor(max_workers=WORKERS) if FIXED else None
    updates = 0

    start = time.perf_counter()
    for iteration in range(ITERATIONS):
        data, reward = play(net, CaveBatch(draw_levels(iteration, pool)))
        updates = optimise(net, optim, data, updates)
    seconds = time.perf_counter() - start

    if pool is not None:
        pool.shutdown()
    print(f"mean_reward={reward:.4f}")
    print(f"env_steps={ITERATIONS * LEVELS * STEPS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
