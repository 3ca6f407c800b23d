"""Model-predictive control with the cross-entropy method over an ensemble of learned dynamics (PETS style)."""
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

ENVS, MEMBERS, HIDDEN = 4, 4, 96
CANDIDATES, ELITES, HORIZON, ROUNDS = 128, 16, 10, 3
WARMUP, STEPS, FIT_EVERY, FIT_STEPS, BATCH = 40, 140, 10, 30, 128


class Pendulums:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.theta, self.omega = rng.uniform(-np.pi, np.pi, ENVS), rng.uniform(-1, 1, ENVS)

    def observe(self):
        stacked = np.stack([np.cos(self.theta), np.sin(self.theta), self.omega / 8], axis=1)
        return torch.from_numpy(stacked.astype(np.float32))

    def step(self, torque):
        self.omega = np.clip(self.omega + (15 * np.sin(self.theta) + 6 * torque) * 0.05, -8, 8)
        self.theta = self.theta + self.omega * 0.05
        return self.observe()


def cost(obs, action):
    angle = torch.atan2(obs[..., 1], obs[..., 0])
    return angle ** 2 + 6.4 * obs[..., 2] ** 2 + 0.004 * action ** 2


class Ensemble(nn.Module):
    """All members as batched layers: x is (members, rows, features)."""

    def __init__(self):
        super().__init__()
        sizes = [4, HIDDEN, HIDDEN, 3]
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(MEMBERS, i, o) / i ** 0.5)
                                        for i, o in zip(sizes, sizes[1:]))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(MEMBERS, 1, o)) for o in sizes[1:])

    def forward(self, x):
        h = x
        for k, (w, b) in enumerate(zip(self.weights, self.biases)):
            h = torch.baddbmm(b, h, w)
            if k < 2:
                h = torch.relu(h)
        return x[..., :3] + 0.2 * h


class Memory:
    def __init__(self, capacity):
        self.inputs, self.outputs, self.size = torch.zeros(capacity, 4), torch.zeros(capacity, 3), 0

    def add(self, obs, action, following):
        end = self.size + len(obs)
        self.inputs[self.size:end] = torch.cat([obs, action[:, None]], -1)
        self.outputs[self.size:end] = following
        self.size = end


def fit(model, optimizer, memory):
    for _ in range(FIT_STEPS):
        rows = torch.randint(memory.size, (MEMBERS, BATCH))
        loss = (model(memory.inputs[rows]) - memory.outputs[rows]).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def plan(model, obs, mean):
    """Best first actions for all environments at once; mean is (envs, horizon)."""
    std = torch.full_like(mean, 0.7)
    start = obs.repeat_interleave(CANDIDATES, 0).expand(MEMBERS, -1, -1)
    for _ in range(ROUNDS):
        plans = mean[:, None] + std[:, None] * torch.randn(ENVS, CANDIDATES, HORIZON)
        plans = plans.clamp_(-1, 1)
        flat = plans.view(ENVS * CANDIDATES, HORIZON)
        state, total = start, torch.zeros(MEMBERS, ENVS * CANDIDATES)
        for t in range(HORIZON):
            action = flat[:, t].expand(MEMBERS, -1)
            state = model(torch.cat([state, action[..., None]], -1))
            total += cost(state, action)
        best = total.mean(0).view(ENVS, CANDIDATES).topk(ELITES, largest=False).indices
        elite = plans.gather(1, best[..., None].expand(-1, -1, HORIZON))
        mean, std = elite.mean(1), elite.std(1) + 0.05
    return mean


def main():
    torch.manual_seed(41)
    env, model, memory = Pendulums(41), Ensemble(), Memory((WARMUP + STEPS) * ENVS)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    obs, mean, updates, spent = env.observe(), torch.zeros(ENVS, HORIZON), 0, []
    begin = time.perf_counter()
    for step in range(WARMUP + STEPS):
        if step < WARMUP:
            action = torch.rand(ENVS) * 2 - 1
        else:
            if (step - WARMUP) % FIT_EVERY == 0:
                loss = fit(model, optimizer, memory)
                updates += FIT_STEPS
                print(f"step {step}: model loss {loss:.4f} cost {np.mean(spent[-10:]):.3f}")
            mean = plan(model, obs, mean)
            action = mean[:, 0]
            mean = torch.cat([mean[:, 1:], torch.zeros(ENVS, 1)], 1)
        following = env.step(action.numpy().astype(np.float64))
        memory.add(obs, action, following)
        spent.append(cost(following, action).mean().item())
        obs = following
    print(f"env_steps={memory.size} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
