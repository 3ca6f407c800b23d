"""Population based training of actor-critic members on a vectorised cart-pole: train, rank, copy the best, perturb."""
import copy
import os
import time
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
warnings.filterwarnings("ignore", category=DeprecationWarning)

MEMBERS = 5
GENERATIONS = 6
ROUNDS = 5
ENVS = 32
ROLLOUT = 32


class CartPoles:
    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.s = self.rng.uniform(-0.05, 0.05, (n, 4))
        self.age = np.zeros(n, dtype=np.int64)

    def obs(self):
        return torch.from_numpy(self.s.astype(np.float32))

    def step(self, act):
        x, v, a, w = self.s.T
        force = np.where(act == 1, 10.0, -10.0)
        sin, cos = np.sin(a), np.cos(a)
        temp = (force + 0.05 * w * w * sin) / 1.1
        acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        xacc = temp - 0.05 * acc * cos / 1.1
        self.s = np.stack([x + 0.02 * v, v + 0.02 * xacc, a + 0.02 * w, w + 0.02 * acc], 1)
        self.age += 1
        fell = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.21)
        done = fell | (self.age >= 300)
        ages = self.age[done]
        self.s[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        self.age[done] = 0
        return self.obs(), torch.from_numpy(np.where(fell, -1.0, 0.1).astype(np.float32)), torch.from_numpy(done).float(), ages


class ActorCritic(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi, self.v = nn.Linear(width, 2), nn.Linear(width, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


class Member:
    def __init__(self, index):
        self.net = ActorCritic()
        self.lr, self.entropy = 10 ** np.random.uniform(-3.5, -2.3), 10 ** np.random.uniform(-3, -1.5)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=self.lr)
        self.envs = CartPoles(ENVS, 50 + index)
        self.lengths = []

    def player(self):
        if FIXED:
            return self.net
        still = copy.deepcopy(self.net).eval()
        return torch.jit.freeze(torch.jit.trace(still, self.envs.obs()))

    @torch.no_grad()
    def collect(self):
        play, obs, rows = self.player(), self.envs.obs(), []
        for _ in range(ROLLOUT):
            logits, value = play(obs)
            act = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
            nxt, rew, done, ages = self.envs.step(act.numpy())
            self.lengths.extend(ages.tolist())
            rows.append((obs, act, rew, done, value))
            obs = nxt
        run, returns = play(obs)[1], []
        for _, _, rew, done, _ in reversed(rows):
            run = rew + 0.98 * (1 - done) * run
            returns.append(run)
        return torch.cat([r[0] for r in rows]), torch.cat([r[1] for r in rows]), torch.cat(returns[::-1]), torch.cat([r[4] for r in rows])

    def improve(self):
        obs, act, ret, value = self.collect()
        logits, v = self.net(obs)
        logp = logits.log_softmax(-1)
        adv = ret - value
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        loss = -(adv * logp.gather(1, act[:, None]).squeeze(1)).mean() + 0.5 * F.mse_loss(v, ret)
        loss = loss + self.entropy * (logp.exp() * logp).sum(-1).mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.opt.step()

    def fitness(self):
        return float(np.mean(self.lengths[-40:])) if self.lengths else 0.0

    def copy_from(self, other):
        self.net.load_state_dict(other.net.state_dict())
        self.opt.load_state_dict(copy.deepcopy(other.opt.state_dict()))
        self.lr, self.entropy = other.lr * np.random.choice([0.8, 1.25]), other.entropy * np.random.choice([0.8, 1.25])
        for group in self.opt.param_groups:
            group["lr"] = self.lr


def main():
    torch.manual_seed(1)
    np.random.seed(1)
    torch.set_num_threads(1)
    population = [Member(i) for i in range(MEMBERS)]
    steps = updates = 0
    start = time.perf_counter()
    for _ in range(GENERATIONS):
        for member in population:
            for _ in range(ROUNDS):
                member.improve()
                steps += ENVS * ROLLOUT
                updates += 1
        population.sort(key=Member.fitness, reverse=True)
        population[-1].copy_from(population[0])
    seconds = time.perf_counter() - start
    print(f"best member holds the pole for {population[0].fitness():.1f} steps")
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
