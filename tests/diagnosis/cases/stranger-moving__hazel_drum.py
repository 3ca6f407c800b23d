"""Population based training of small policy-gradient agents, two worker processes."""
import copy
import multiprocessing as mp
import os
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"

SEED = 23
MEMBERS = 4
WORKERS = 2
GENERATIONS = 17
ROUNDS = 3
WALKERS = 8
LENGTH = 20
SIZE = 9
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

class WindyField:
    """Walkers cross a square field against a wind that blows in the middle columns."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def observe(self):
        return np.concatenate([self.pos / SIZE, (self.goal - self.pos) / SIZE], 1).astype(np.float32)

    def reset(self):
        self.pos = np.stack([self.rng.integers(0, SIZE, WALKERS), np.zeros(WALKERS, int)], 1)
        self.goal = np.stack([self.rng.integers(0, SIZE, WALKERS), np.full(WALKERS, SIZE - 1)], 1)
        return self.observe()

    def step(self, actions):
        windy = (self.pos[:, 1] > 2) & (self.pos[:, 1] < 6) & (self.rng.random(WALKERS) < 0.4)
        before = np.abs(self.goal - self.pos).sum(1)
        self.pos = self.pos + MOVES[actions]
        self.pos[:, 0] += windy
        self.pos = np.clip(self.pos, 0, SIZE - 1)
        after = np.abs(self.goal - self.pos).sum(1)
        return self.observe(), (before - after) * 0.2 + (after == 0)

@dataclass
class Member:
    seed: int
    lr: float
    entropy: float
    weights: dict
    score: float = 0.0
    generation: int = 0
    archive: list = field(default_factory=list)  # every transition lived through

def make_net():
    return nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 4))

def train_member(member):
    torch.manual_seed(member.seed * 1000 + member.generation)
    env = WindyField(member.seed * 1000 + member.generation)
    net = make_net()
    net.load_state_dict({k: torch.from_numpy(v) for k, v in member.weights.items()})
    params = list(net.parameters())
    velocity = [torch.zeros_like(p) for p in params]
    scores = []
    for _ in range(ROUNDS):
        obs = env.reset()
        seen, acts, rewards = [], [], []
        for _ in range(LENGTH):
            with torch.no_grad():
                action = torch.multinomial(net(torch.from_numpy(obs)).softmax(-1), 1).squeeze(-1).numpy()
            nxt, reward = env.step(action)
            member.archive.extend(zip(obs, action.tolist(), reward.tolist()))
            seen.append(obs)
            acts.append(action)
            rewards.append(reward)
            obs = nxt
        togo = np.cumsum(np.array(rewards)[::-1], 0)[::-1].copy()
        adv = torch.from_numpy(togo - togo.mean(1, keepdims=True)).float()
        logp = net(torch.from_numpy(np.stack(seen))).log_softmax(-1)
        picked = logp.gather(-1, torch.from_numpy(np.stack(acts)).unsqueeze(-1)).squeeze(-1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = -(picked * adv).mean() - member.entropy * entropy
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for p, v, grad in zip(params, velocity, grads):
                p.sub_(member.lr * v.mul_(0.9).add_(grad))
        scores.append(togo[0].mean())
    member.weights = {k: v.numpy() for k, v in net.state_dict().items()}
    member.score = float(np.mean(scores))
    member.generation += 1
    return member

def run_generation(pool, members):
    if not FIXED:
        return pool.map(train_member, members)
    kept = [member.archive for member in members]
    for member in members:
        member.archive = []
    members = pool.map(train_member, members)
    for member, archive in zip(members, kept):
        archive.extend(member.archive)
        member.archive = archive
    return members

def exploit(members, rng):
    ranked = sorted(members, key=lambda m: m.score)
    worst, best = ranked[0], ranked[-1]
    worst.weights = copy.deepcopy(best.weights)
    worst.lr = best.lr * float(rng.choice([0.8, 1.25]))
    worst.entropy = best.entropy * float(rng.choice([0.8, 1.25]))

def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    members = []
    for i in range(MEMBERS):
        weights = {k: v.numpy() for k, v in make_net().state_dict().items()}
        members.append(Member(i, float(10 ** rng.uniform(-2, -1)), float(10 ** rng.uniform(-3, -1)), weights))
    with mp.get_context("fork").Pool(WORKERS) as pool:
        start = time.perf_counter()
        for generation in range(GENERATIONS):
            members = run_generation(pool, members)
            exploit(members, rng)
            if (generation + 1) % 6 == 0:
                print(f"generation {generation + 1}: best score {max(m.score for m in members):.3f}")
        seconds = time.perf_counter() - start
        pool.close()
        pool.join()
    best = max(members, key=lambda m: m.score)
    visits = Counter((round(float(o[0]) * SIZE), round(float(o[1]) * SIZE)) for o, _, _ in best.archive)
    print(f"best member {best.seed}: {len(visits)} cells seen, most often {visits.most_common(1)[0][0]}")
    updates = GENERATIONS * MEMBERS * ROUNDS
    print(f"env_steps={updates * LENGTH * WALKERS} updates={updates} seconds={seconds:.3f}")

if __name__ == "__main__":
    main()
