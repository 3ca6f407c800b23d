"""IQL on logged Pendulum swings, with scalars to TensorBoard and periodic checkpoints."""
import copy
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from tensordict import TensorDict
from torch.utils.tensorboard import SummaryWriter
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

SEED = 29
UPDATES, LOG_EVERY, EVAL_EVERY, BATCH, HIDDEN = 550, 50, 110, 256, 256
GAMMA, TAU, EXPECTILE, BETA, EVAL_STEPS = 0.97, 0.005, 0.8, 2.0, 200


def swing(obs, rng):
    """Pumps energy while hanging, stabilises near the top, with a lot of noise."""
    cos, sin, speed = obs
    torque = -8 * sin - 2 * speed if cos > 0.9 else 2 * np.sign(speed)
    return np.clip(np.array([torque + rng.normal(0, 0.7)], np.float32), -2, 2)


def record(steps=15_000):
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(SEED)
    data = {
        "obs": np.empty((steps, 3), np.float32), "act": np.empty((steps, 1), np.float32),
        "rew": np.empty((steps, 1), np.float32), "next_obs": np.empty((steps, 3), np.float32),
    }
    obs, _ = env.reset(seed=SEED)
    for i in range(steps):
        act = swing(obs, rng)
        next_obs, rew, terminated, truncated, _ = env.step(act)
        data["obs"][i], data["act"][i], data["next_obs"][i] = obs, act / 2, next_obs
        data["rew"][i] = rew / 10
        obs = env.reset()[0] if terminated or truncated else next_obs
    return {key: torch.from_numpy(value) for key, value in data.items()}


def make_buffer(data):
    size = len(data["obs"])
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=BATCH)
    buffer.extend(TensorDict(data, batch_size=[size]))
    return buffer


def mlp(n_in, n_out, *last):
    return nn.Sequential(nn.Linear(n_in, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
                         nn.Linear(HIDDEN, n_out), *last)


class IQL:
    def __init__(self):
        self.value, self.policy = mlp(3, 1), mlp(3, 1, nn.Tanh())
        self.q1, self.q2 = mlp(4, 1), mlp(4, 1)
        self.slow1, self.slow2 = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.q_params = [*self.q1.parameters(), *self.q2.parameters()]
        self.slow_params = [*self.slow1.parameters(), *self.slow2.parameters()]
        params = [*self.value.parameters(), *self.policy.parameters(), *self.q_params]
        self.opt = torch.optim.Adam(params, 3e-4, fused=True)

    def update(self, batch):
        obs, act, rew, next_obs = (batch[key] for key in ("obs", "act", "rew", "next_obs"))
        pair = torch.cat([obs, act], 1)
        with torch.no_grad():
            slow = torch.min(self.slow1(pair), self.slow2(pair))
            backup = rew + GAMMA * self.value(next_obs)
        advantage = slow - self.value(obs)
        weight = torch.where(advantage > 0, EXPECTILE, 1 - EXPECTILE).detach()
        value_loss = (weight * advantage.square()).mean()
        q_loss = (self.q1(pair) - backup).square().mean() + (self.q2(pair) - backup).square().mean()
        gain = (BETA * advantage.detach()).exp().clamp(max=50.0)
        policy_loss = (gain * (self.policy(obs) - act).square()).mean()
        self.opt.zero_grad()
        (value_loss + q_loss + policy_loss).backward()
        self.opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.slow_params, self.q_params, TAU)
        return {"value": value_loss.detach(), "q": q_loss.detach(), "policy": policy_loss.detach()}

    def state(self):
        return {"policy": self.policy.state_dict(), "value": self.value.state_dict(),
                "q1": self.q1.state_dict(), "q2": self.q2.state_dict()}

    @torch.no_grad()
    def evaluate(self, env):
        obs, _ = env.reset(seed=SEED)
        total = 0.0
        for _ in range(EVAL_STEPS):
            act = 2 * self.policy(torch.from_numpy(obs)).numpy()
            obs, rew, _, _, _ = env.step(act)
            total += float(rew)
        return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    buffer, agent, env = make_buffer(record()), IQL(), gym.make("Pendulum-v1")
    env_steps = 0
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        start = time.perf_counter()
        for i in range(1, UPDATES + 1):
            losses = agent.update(buffer.sample())
            if i % LOG_EVERY == 0:
                for key, loss in losses.items():
                    writer.add_scalar(f"loss/{key}", loss.item(), i)
            if i % EVAL_EVERY == 0:
                score = agent.evaluate(env)
                env_steps += EVAL_STEPS
                writer.add_scalar("eval/return", score, i)
                torch.save(agent.state(), os.path.join(folder, "latest.pt"))
                print(f"update {i} return {score:.1f}")
        seconds = time.perf_counter() - start
        writer.close()
    print(f"env_steps={env_steps} updates={UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
