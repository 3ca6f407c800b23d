"""TD3 on a batch of planar arms (gymnasium VectorEnv), torchrl replay buffer with tensor storage."""
import copy
import time

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from tensordict import TensorDict
from torch import nn
from torch.nn import functional as F
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

torch.set_num_threads(1)

N_ENVS = 64
ITERATIONS = 200
BATCH = 1024
GAMMA = 0.95
TAU = 0.01


class ArmVectorEnv(VectorEnv):
    """Two-link arms reach for targets, 50 steps per episode; all arms advance together."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs, seed):
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (8,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.rng = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        self.angle = self.rng.uniform(-np.pi, np.pi, (self.num_envs, 2))
        self.speed = np.zeros((self.num_envs, 2))
        self.target = self.rng.uniform(-1.2, 1.2, (self.num_envs, 2))
        self.age = self.rng.integers(0, 50, self.num_envs)
        return self._observe(), {}

    def _tip(self):
        both = self.angle.sum(axis=1)
        return np.stack([np.cos(self.angle[:, 0]) + np.cos(both), np.sin(self.angle[:, 0]) + np.sin(both)], axis=1)

    def _observe(self):
        return np.concatenate([np.cos(self.angle), np.sin(self.angle), self.speed, self.target - self._tip()],
                              axis=1).astype(np.float32)

    def step(self, actions):
        self.speed = 0.8 * self.speed + 0.08 * actions
        self.angle += self.speed
        distance = np.linalg.norm(self.target - self._tip(), axis=1)
        reward = (-distance - 0.01 * np.square(actions).sum(axis=1)).astype(np.float32)
        self.age += 1
        last = self._observe()
        over = self.age >= 50
        if over.any():
            n = int(over.sum())
            self.angle[over] = self.rng.uniform(-np.pi, np.pi, (n, 2))
            self.speed[over] = 0.0
            self.target[over] = self.rng.uniform(-1.2, 1.2, (n, 2))
            self.age[over] = 0
        return self._observe(), reward, np.zeros(self.num_envs, bool), over, {"final_obs": last}


def mlp(n_in, n_out, *tail):
    return nn.Sequential(nn.Linear(n_in, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, n_out), *tail)


class TD3(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.q1, self.q2 = mlp(8, 2, nn.Tanh()), mlp(10, 1), mlp(10, 1)
        self.old = copy.deepcopy(nn.ModuleList([self.actor, self.q1, self.q2])).requires_grad_(False)
        self.critics = nn.ModuleList([self.q1, self.q2])
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=1e-3)

    def update(self, batch, with_actor):
        obs, following = batch["obs"], batch["next_obs"]
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(batch["action"])).clamp(-0.5, 0.5)
            pair = torch.cat([following, (self.old[0](following) + noise).clamp(-1, 1)], dim=1)
            goal = batch["reward"].unsqueeze(1) + GAMMA * torch.minimum(self.old[1](pair), self.old[2](pair))
        pair = torch.cat([obs, batch["action"]], dim=1)
        loss = F.mse_loss(self.q1(pair), goal) + F.mse_loss(self.q2(pair), goal)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if with_actor:
            self.critics.requires_grad_(False)
            loss = -self.q1(torch.cat([obs, self.actor(obs)], dim=1)).mean()
            self.actor_optimizer.zero_grad()
            loss.backward()
            self.actor_optimizer.step()
            self.critics.requires_grad_(True)
            current = [*self.actor.parameters(), *self.q1.parameters(), *self.q2.parameters()]
            with torch.no_grad():
                torch._foreach_lerp_(list(self.old.parameters()), current, TAU)


def main():
    torch.manual_seed(9)
    envs = ArmVectorEnv(N_ENVS, seed=9)
    agent = TD3()
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(50_000), batch_size=BATCH)
    obs, _ = envs.reset()
    updates, rewards = 0, []
    start = time.perf_counter()
    for iteration in range(ITERATIONS):
        with torch.no_grad():
            action = agent.actor(torch.from_numpy(obs))
            action = (action + 0.2 * torch.randn_like(action)).clamp(-1, 1)
        following, reward, _, _, info = envs.step(action.numpy())
        buffer.extend(TensorDict({"obs": torch.from_numpy(obs), "action": action, "reward": torch.from_numpy(reward),
                                  "next_obs": torch.from_numpy(info["final_obs"])}, batch_size=[N_ENVS]))
        obs = following
        rewards.append(reward.mean())
        if iteration >= 20:
            agent.update(buffer.sample(), with_actor=updates % 2 == 0)
            updates += 1
        if (iteration + 1) % 50 == 0:
            print(f"iteration {iteration + 1:4d}  mean reward {np.mean(rewards[-50:]):.3f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={ITERATIONS * N_ENVS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
