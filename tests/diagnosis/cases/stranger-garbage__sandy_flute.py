"""MAP-Elites over neural controllers of a wheeled robot in an arena with pillars."""
import gc
import os
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"


@dataclass
class SearchConfig:
    batches: int = 60
    batch_size: int = 48
    warmup: int = 4
    horizon: int = 170
    trail_every: int = 3
    cells: int = 20
    hidden: int = 16
    iso_sigma: float = 0.15
    line_sigma: float = 0.25
    seed: int = 8


class Waypoint(NamedTuple):
    step: int
    x: float
    y: float
    heading: float


@dataclass
class Elite:
    genome: torch.Tensor
    fitness: float
    trail: list = field(default_factory=list)


class Arena:
    pillars = torch.tensor([[0.3, 0.4], [-0.4, 0.2], [0.1, -0.5]])

    def __init__(self, count):
        self.pose = torch.zeros(count, 3)
        self.energy = torch.zeros(count)

    def observe(self):
        x, y, h = self.pose.unbind(1)
        gap = torch.cdist(self.pose[:, :2], self.pillars)
        return torch.cat([torch.stack([x, y, h.cos(), h.sin()], 1), gap], 1)

    def step(self, wheels):
        left, right = wheels.clamp(-1, 1).unbind(1)
        heading = self.pose[:, 2] + 0.4 * (right - left)
        move = 0.03 * (left + right)[:, None] * torch.stack([heading.cos(), heading.sin()], 1)
        place = (self.pose[:, :2] + move).clamp(-1, 1)
        blocked = torch.cdist(place, self.pillars).amin(1, keepdim=True) < 0.12
        self.pose = torch.cat([torch.where(blocked, self.pose[:, :2], place), heading[:, None]], 1)
        self.energy += 0.01 * wheels.pow(2).sum(1) + 0.05 * blocked[:, 0]


class Controllers:
    def __init__(self, genomes, hidden):
        n, cut = len(genomes), 8 * hidden
        self.first = genomes[:, :cut].view(n, 8, hidden)
        self.second = genomes[:, cut:].view(n, hidden + 1, 2)
        self.one = torch.ones(n, 1)

    def act(self, obs):
        h = torch.bmm(torch.cat([obs, self.one], 1)[:, None], self.first).tanh()[:, 0]
        return torch.bmm(torch.cat([h, self.one], 1)[:, None], self.second).tanh()[:, 0]


class MemoryWatch:
    """Notes the process's resident memory after each batch."""

    def __init__(self):
        self.history = []

    def on_batch_end(self, search):
        if not FIXED:
            gc.collect()
        with open("/proc/self/statm") as file:
            self.history.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)


class CoverageLog:
    def __init__(self):
        self.rows = []

    def on_batch_end(self, search):
        self.rows.append((len(search.archive), sum(e.fitness for e in search.archive.values())))


class MapElites:
    def __init__(self, cfg, hooks):
        self.cfg, self.hooks, self.archive, self.steps = cfg, hooks, {}, 0
        self.genes = 8 * cfg.hidden + 2 * (cfg.hidden + 1)

    def ask(self, batch):
        if batch < self.cfg.warmup:
            return torch.randn(self.cfg.batch_size, self.genes) * 0.7
        pool = torch.stack([elite.genome for elite in self.archive.values()])
        a, b = pool[torch.randint(len(pool), (2, self.cfg.batch_size))]
        return a + self.cfg.iso_sigma * torch.randn_like(a) + self.cfg.line_sigma * (b - a) * torch.randn(len(a), 1)

    def tell(self, genomes, arena, trail):
        where = ((arena.pose[:, :2] + 1) / 2 * (self.cfg.cells - 1)).round().long().tolist()
        poses = torch.stack(trail, 1).tolist()
        for i, (cell, fitness) in enumerate(zip(map(tuple, where), (-arena.energy).tolist())):
            if cell not in self.archive or self.archive[cell].fitness < fitness:
                points = [Waypoint(t * self.cfg.trail_every, *pose) for t, pose in enumerate(poses[i])]
                self.archive[cell] = Elite(genomes[i].clone(), fitness, points)

    def run(self):
        for batch in range(self.cfg.batches):
            genomes, arena, trail = self.ask(batch), Arena(self.cfg.batch_size), []
            controllers = Controllers(genomes, self.cfg.hidden)
            for t in range(self.cfg.horizon):
                arena.step(controllers.act(arena.observe()))
                if t % self.cfg.trail_every == 0:
                    trail.append(arena.pose)
            self.steps += self.cfg.horizon * self.cfg.batch_size
            self.tell(genomes, arena, trail)
            for hook in self.hooks:
                hook.on_batch_end(self)


cfg = SearchConfig()
torch.manual_seed(cfg.seed)
watch, coverage = MemoryWatch(), CoverageLog()
search = MapElites(cfg, [coverage, watch])
start = time.perf_counter()
with torch.inference_mode():
    search.run()
seconds = time.perf_counter() - start
print(f"cells {coverage.rows[0][0]} -> {coverage.rows[-1][0]}, memory {max(watch.history):.0f} MB")
print(f"env_steps={search.steps} updates={cfg.batches} seconds={seconds:.3f}")
