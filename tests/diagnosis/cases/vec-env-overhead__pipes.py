"""Parallel REINFORCE on a small pendulum, with worker processes that own the environments."""

import multiprocessing
import os
import time

import numpy as np
import torch


class TorquePendulum:
    def __init__(self, seed):
        self.random = np.random.RandomState(seed)

    def reset(self):
        self.angle, self.speed, self.left = self.random.uniform(-3, 3), 0.0, 120
        return self.look()

    def look(self):
        return (np.cos(self.angle), np.sin(self.angle), self.speed / 8)

    def step(self, torque):
        self.speed += 0.05 * (15 * np.sin(self.angle) + 3 * torque)
        self.speed = min(max(self.speed, -8.0), 8.0)
        self.angle += 0.05 * self.speed
        self.left -= 1
        return self.look(), np.cos(self.angle) - 0.001 * torque**2, self.left == 0


def work(pipe, seed):
    env = TorquePendulum(seed)
    pipe.send(env.reset())
    while True:
        torque = pipe.recv()
        if torque is None:
            break
        obs, reward, done = env.step(torque)
        if done:
            obs = env.reset()
        pipe.send((obs, reward, done))


class ProcessEnvs:
    def __init__(self, count):
        ctx = multiprocessing.get_context("fork")
        self.pipes, self.processes = [], []
        for seed in range(count):
            ours, theirs = ctx.Pipe()
            process = ctx.Process(target=work, args=(theirs, seed), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def reset(self):
        return [pipe.recv() for pipe in self.pipes]

    def step(self, torques):
        for pipe, torque in zip(self.pipes, torques, strict=True):
            pipe.send(torque)
        return zip(*[pipe.recv() for pipe in self.pipes], strict=True)

    def close(self):
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


class LocalEnvs:
    def __init__(self, count):
        self.envs = [TorquePendulum(seed) for seed in range(count)]

    def reset(self):
        return [env.reset() for env in self.envs]

    def step(self, torques):
        rows = []
        for env, torque in zip(self.envs, torques, strict=True):
            obs, reward, done = env.step(torque)
            rows.append((env.reset() if done else obs, reward, done))
        return zip(*rows, strict=True)

    def close(self):
        pass


def run(count=12, rollouts=45, length=120):
    torch.set_num_threads(1)
    torch.manual_seed(2)
    envs = LocalEnvs(count) if os.environ.get("FIXED") == "1" else ProcessEnvs(count)
    began = time.time()
    policy = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    log_std = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([*policy.parameters(), log_std], lr=3e-3)
    obs = envs.reset()
    for _ in range(rollouts):
        seen, done_actions, rewards = [], [], []
        for _ in range(length):
            x = torch.tensor(obs, dtype=torch.float32)
            with torch.no_grad():
                torque = policy(x)[:, 0] + log_std.exp() * torch.randn(count)
            obs, reward, _ = envs.step(torque.clamp(-2, 2).tolist())
            seen.append(x)
            done_actions.append(torque)
            rewards.append(reward)
        returns = np.cumsum(np.array(rewards, np.float32)[::-1], 0)[::-1].copy()
        returns = torch.from_numpy((returns - returns.mean(1, keepdims=True)) / (returns.std() + 1e-6))
        dist = torch.distributions.Normal(policy(torch.stack(seen))[..., 0], log_std.exp())
        loss = -(dist.log_prob(torch.stack(done_actions)) * returns).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"env_steps={count * rollouts * length} updates={rollouts} seconds={time.time() - began:.2f}")
    envs.close()


if __name__ == "__main__":
    run()
