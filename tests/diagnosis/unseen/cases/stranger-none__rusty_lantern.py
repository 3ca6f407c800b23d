"""Planning with a learned model: an ensemble of dynamics nets and the cross-entropy method swing up a batch of pendulums."""
import math
import time

import numpy as np
import torch
import torch.nn as nn

ENVS = 8
ENSEMBLE = 3
WIDTH = 96
HORIZON = 12
CANDIDATES = 128
ELITES = 12
SWEEPS = 3
STEPS = 75
FIT_EVERY = 4
FIT_STEPS = 12
BATCH = 512


class Pendulums:
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.angle = torch.from_numpy(rng.uniform(-math.pi, math.pi, n)).float()
        self.speed = torch.from_numpy(rng.uniform(-1, 1, n)).float()

    def observe(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed / 8], -1)

    def step(self, torque):
        wrapped = torch.remainder(self.angle + math.pi, 2 * math.pi) - math.pi
        cost = wrapped ** 2 + 0.1 * self.speed ** 2 + 0.001 * torque ** 2
        self.speed = (self.speed + 0.05 * (15 * self.angle.sin() + 3 * torque)).clamp(-8, 8)
        self.angle = self.angle + 0.05 * self.speed
        return self.observe(), -cost


class Dynamics(nn.Module):
    """All members of the ensemble in one batched product; each predicts the change of the observation."""

    def __init__(self):
        super().__init__()
        sizes = [4, WIDTH, WIDTH, 3]
        self.w = nn.ParameterList(torch.randn(ENSEMBLE, i, o) * (1.5 / i) ** 0.5 for i, o in zip(sizes, sizes[1:]))
        self.b = nn.ParameterList(torch.zeros(ENSEMBLE, 1, o) for o in sizes[1:])

    def forward(self, obs, act):
        x = torch.cat([obs, act], -1)
        for i, (w, b) in enumerate(zip(self.w, self.b)):
            x = torch.baddbmm(b, x, w)
            if i < 2:
                x = torch.relu(x)
        return obs + 0.1 * x


class Experience:
    def __init__(self, capacity):
        self.rows = torch.zeros(capacity, 7)
        self.size = 0

    def add(self, obs, act, nxt):
        end = self.size + len(obs)
        self.rows[self.size:end] = torch.cat([obs, act[:, None], nxt], 1)
        self.size = end

    def draw(self, count):
        return self.rows[torch.randint(0, self.size, (ENSEMBLE, count))].split([3, 1, 3], -1)


class Planner:
    def __init__(self, model):
        self.model = model
        self.plan = torch.zeros(ENVS, HORIZON)

    @torch.no_grad()
    def value(self, obs, plans):
        n = plans.shape[1]
        state = obs[None, :, None].expand(ENSEMBLE, ENVS, n, 3).reshape(ENSEMBLE, ENVS * n, 3)
        total = torch.zeros(ENSEMBLE, ENVS * n)
        acts = plans.reshape(1, ENVS * n, HORIZON, 1).expand(ENSEMBLE, -1, -1, -1)
        for t in range(HORIZON):
            state = self.model(state, acts[:, :, t] / 2)
            tilt = torch.atan2(state[..., 1], state[..., 0])
            total -= tilt ** 2 + 6.4 * state[..., 2] ** 2
        return total.mean(0).view(ENVS, n)

    def act(self, obs):
        mean, std = self.plan, torch.full((ENVS, HORIZON), 1.2)
        for _ in range(SWEEPS):
            plans = (mean[:, None] + std[:, None] * torch.randn(ENVS, CANDIDATES, HORIZON)).clamp(-2, 2)
            best = self.value(obs, plans).topk(ELITES, dim=1).indices
            elite = plans.gather(1, best[..., None].expand(-1, -1, HORIZON))
            mean, std = elite.mean(1), elite.std(1) + 0.05
        self.plan = torch.cat([mean[:, 1:], torch.zeros(ENVS, 1)], 1)
        return mean[:, 0]


def fit(model, opt, data):
    for _ in range(FIT_STEPS):
        obs, act, nxt = data.draw(BATCH)
        loss = 100 * (model(obs, act) - nxt).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(9)
    torch.set_num_threads(1)
    world, model = Pendulums(ENVS, 3), Dynamics()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    planner, data = Planner(model), Experience((STEPS + 20) * ENVS)
    steps = updates = 0
    start = time.perf_counter()
    obs = world.observe()
    for step in range(STEPS + 20):
        act = planner.act(obs) if step >= 20 else torch.empty(ENVS).uniform_(-2, 2)
        nxt, reward = world.step(act)
        data.add(obs, act / 2, nxt)
        obs = nxt
        steps += ENVS
        if step % FIT_EVERY == FIT_EVERY - 1:
            error = fit(model, opt, data)
            updates += FIT_STEPS
    seconds = time.perf_counter() - start
    print(f"reward {reward.mean().item():.3f}, model error {error:.4f}")
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
