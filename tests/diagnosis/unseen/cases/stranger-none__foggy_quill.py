"""Planning with a learned model: an ensemble of dynamics networks and the cross-entropy method on a pendulum."""
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

MEMBERS, WIDTH = 4, 64
CANDIDATES, ELITE, DEPTH, ROUNDS = 96, 12, 10, 3


class Swing(gym.Env):
    """Pendulum with a weak motor, observed as cos, sin and speed."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-8, 8, (3,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.angle, self.speed, self.t = self.np_random.uniform(-np.pi, np.pi), 0.0, 0
        return self.observe(), {}

    def observe(self):
        return np.array([np.cos(self.angle), np.sin(self.angle), self.speed], dtype=np.float32)

    def step(self, action):
        force = float(np.clip(action, -1, 1))
        self.speed = float(np.clip(self.speed + 0.1 * (7.5 * np.sin(self.angle) + 6.0 * force), -8, 8))
        self.angle += 0.1 * self.speed
        self.t += 1
        reward = np.cos(self.angle) - 0.01 * self.speed ** 2
        return self.observe(), reward, False, self.t >= 50, {}


class Ensemble(nn.Module):
    """All members in one batched product per layer."""

    def __init__(self):
        super().__init__()
        sizes = [(4, WIDTH), (WIDTH, WIDTH), (WIDTH, 3)]
        self.weights = nn.ParameterList(torch.randn(MEMBERS, i, o) / i ** 0.5 for i, o in sizes)
        self.biases = nn.ParameterList(torch.zeros(MEMBERS, 1, o) for _, o in sizes)

    def forward(self, obs, act):
        x = h = torch.cat([obs, act], -1)
        for k, (w, b) in enumerate(zip(self.weights, self.biases)):
            h = torch.baddbmm(b, h, w)
            if k < 2:
                h = torch.relu(h)
        return x[..., :3] + h


class CrossEntropyPlanner:
    def __init__(self, model):
        self.model = model
        self.mean = torch.zeros(DEPTH)

    @torch.no_grad()
    def act(self, obs):
        mean, std = self.mean, torch.full((DEPTH,), 0.7)
        first = torch.from_numpy(obs).expand(MEMBERS, CANDIDATES, 3)
        for _ in range(ROUNDS):
            plans = (mean + std * torch.randn(CANDIDATES, DEPTH)).clamp(-1, 1)
            state, score = first, torch.zeros(CANDIDATES)
            for t in range(DEPTH):
                state = self.model(state, plans[:, t].expand(MEMBERS, -1).unsqueeze(-1))
                score += (state[..., 0] - 0.01 * state[..., 2] ** 2).mean(0)
            best = plans[score.topk(ELITE).indices]
            mean, std = best.mean(0), best.std(0) + 0.05
        self.mean = torch.cat([mean[1:], mean.new_zeros(1)])
        return mean[0].item()


def main():
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    env, model = Swing(), Ensemble()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    planner = CrossEntropyPlanner(model)
    store = np.zeros((2000, 7), dtype=np.float32)
    env_steps = updates = 0
    returns = []
    start = time.perf_counter()
    for episode in range(10):
        obs, _ = env.reset(seed=6 if episode == 0 else None)
        planner.mean.zero_()
        total, over = 0.0, False
        while not over:
            action = rng.uniform(-1, 1) if episode == 0 else planner.act(obs)
            nxt, reward, _, over, _ = env.step(action)
            store[env_steps, :3], store[env_steps, 3], store[env_steps, 4:] = obs, action, nxt
            obs = nxt
            total += reward
            env_steps += 1
        returns.append(total)
        data = torch.from_numpy(store[:env_steps])
        for _ in range(150):
            batch = data[torch.randint(env_steps, (MEMBERS, 256))]
            guess = model(batch[..., :3], batch[..., 3:4])
            loss = (guess - batch[..., 4:]).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            updates += 1
    seconds = time.perf_counter() - start
    print("returns", " ".join(f"{x:.1f}" for x in returns))
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
