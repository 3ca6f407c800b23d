"""Actor-critic on a batch of torque-limited pendulums, driven by one experiment config."""
import os
import time
from dataclasses import asdict, dataclass, field
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"


@dataclass
class PhysicsConfig:
    dt: float = 0.05
    gravity: float = 10.0
    max_torque: float = 6.0
    max_speed: float = 8.0
    weights: dict = field(default_factory=lambda: {"angle": 1.0, "speed": 0.1, "effort": 0.001})
    reward_scale: float = 0.1


@dataclass
class AlgoConfig:
    lr: float = 2e-3
    gamma: float = 0.95
    rollout: int = 20
    iterations: int = 220
    hidden: tuple = (48, 48)


@dataclass
class ExperimentConfig:
    name: str = "pendulum_a2c"
    seed: int = 3
    num_envs: int = 64
    horizon: int = 160
    milestones: list = field(default_factory=lambda: [20, 50, 100, 150, 200])
    physics: PhysicsConfig = field(default_factory=PhysicsConfig)
    algo: AlgoConfig = field(default_factory=AlgoConfig)


class Settings:
    def __init__(self, config, overrides=None):
        self.config, self.overrides = config, dict(overrides or {})
        self._tree = self._resolve() if FIXED else None

    def _resolve(self):
        tree = asdict(self.config)
        for dotted, value in self.overrides.items():
            *parents, leaf = dotted.split(".")
            node = tree
            for part in parents:
                node = node[part]
            node[leaf] = value
        return tree

    def __getitem__(self, dotted):
        node = self._tree if FIXED else self._resolve()
        for part in dotted.split("."):
            node = node[part]
        return node


class PendulumBatch:
    def __init__(self, settings):
        self.s, self.n = settings, settings["num_envs"]
        self.rng = np.random.default_rng(settings["seed"])
        self.state, self.clock = np.zeros((self.n, 2)), np.zeros(self.n, dtype=np.int64)

    def reset(self, mask):
        k = int(mask.sum())
        self.state[mask] = self.rng.uniform([-np.pi, -1.0], [np.pi, 1.0], (k, 2))
        self.clock[mask] = self.rng.integers(0, 20, k)
        return self.observe()

    def observe(self):
        theta, speed = self.state.T
        return np.stack([np.cos(theta), np.sin(theta), speed / self.s["physics.max_speed"]], axis=1).astype(np.float32)

    def step(self, action):
        s, w = self.s, self.s["physics.weights"]
        torque = np.clip(action, -1, 1) * s["physics.max_torque"]
        theta, speed = self.state.T
        angle = (theta + np.pi) % (2 * np.pi) - np.pi
        cost = w["angle"] * angle**2 + w["speed"] * speed**2 + w["effort"] * torque**2
        accel = 1.5 * s["physics.gravity"] * np.sin(theta) + 3.0 * torque
        speed = np.clip(speed + accel * s["physics.dt"], -s["physics.max_speed"], s["physics.max_speed"])
        self.state = np.stack([theta + speed * s["physics.dt"], speed], axis=1)
        self.clock += 1
        done = self.clock >= self.s["horizon"]
        obs = self.reset(done) if done.any() else self.observe()
        return obs, (-cost * self.s["physics.reward_scale"]).astype(np.float32), done


class Trainer:
    def __init__(self, settings):
        self.s, self.env = settings, PendulumBatch(settings)
        a, b = settings["algo.hidden"]
        self.net = nn.Sequential(nn.Linear(3, a), nn.Tanh(), nn.Linear(a, b), nn.Tanh(), nn.Linear(b, 2))
        self.log_std = nn.Parameter(torch.tensor(-0.3))
        self.opt = torch.optim.Adam([*self.net.parameters(), self.log_std], lr=settings["algo.lr"])
        self.obs = self.env.reset(np.ones(self.env.n, dtype=bool))

    def collect(self):
        batch = []
        for _ in range(self.s["algo.rollout"]):
            x = torch.from_numpy(self.obs)
            with torch.no_grad():
                act = self.net(x)[:, 0] + self.log_std.exp() * torch.randn(self.env.n)
            self.obs, rew, done = self.env.step(act.numpy())
            batch.append((x, act, torch.from_numpy(rew), torch.from_numpy(~done).float()))
        return [torch.stack(column) for column in zip(*batch)]

    def update(self):
        obs, act, rew, alive = self.collect()
        target = torch.empty_like(rew)
        with torch.no_grad():
            run = self.net(torch.from_numpy(self.obs))[:, 1]
        for t in reversed(range(len(rew))):
            run = target[t] = rew[t] + self.s["algo.gamma"] * alive[t] * run
        mean, value = self.net(obs).unbind(-1)
        dist = torch.distributions.Normal(mean, self.log_std.exp(), validate_args=False)
        adv = (target - value - (target - value).mean()).detach()
        loss = -(dist.log_prob(act) * adv / (adv.std() + 1e-6)).mean() + 0.5 * (target - value).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return float(rew.mean())


settings = Settings(ExperimentConfig(), {"algo.lr": 4e-3, "physics.reward_scale": 0.03})
torch.manual_seed(settings["seed"])
trainer = Trainer(settings)
iterations, frames = settings["algo.iterations"], settings["algo.rollout"] * settings["num_envs"]
start = time.perf_counter()
history = [trainer.update() for _ in range(iterations)]
seconds = time.perf_counter() - start
print(f"reward first {np.mean(history[:10]):.3f} last {np.mean(history[-10:]):.3f}")
print(f"env_steps={iterations * frames} updates={iterations} seconds={seconds:.3f}")
