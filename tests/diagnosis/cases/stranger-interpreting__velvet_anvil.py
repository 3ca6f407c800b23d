"""PPO on gliders; every simulator is an asyncio task that answers commands from its inbox."""
import asyncio
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Config:
    seed: int = 21
    simulators: int = 8
    horizon: int = 32
    iterations: int = 88
    epochs: int = 3
    minibatch: int = 128
    episode: int = 150
    debug: bool = not FIXED


class Glider:
    THRUST = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])

    def __init__(self, seed, episode):
        self.rng, self.episode = np.random.default_rng(seed), episode

    def reset(self):
        self.pos, self.goal = self.rng.uniform(-1, 1, (2, 2))
        self.vel, self.t = np.zeros(2), 0
        return self.observe()

    def observe(self):
        return np.concatenate((self.pos, self.vel, self.goal - self.pos)).astype(np.float32)

    def step(self, action):
        for _ in range(3):
            wind = 0.1 * np.sin(3.0 * self.pos[::-1])
            self.vel = 0.95 * self.vel + 0.02 * (self.THRUST[action] + wind)
            self.pos = np.clip(self.pos + 0.3 * self.vel, -1.5, 1.5)
        self.t += 1
        reward = -float(np.hypot(*(self.goal - self.pos)))
        done = self.t >= self.episode
        return (self.reset() if done else self.observe()), reward, done


class Simulator:
    def __init__(self, env):
        self.env = env
        self.inbox = asyncio.Queue()

    async def run(self):
        while True:
            command, reply = await self.inbox.get()
            if command is None:
                break
            reply.set_result(self.env.reset() if command == "reset" else self.env.step(command))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, obs):
        h = self.body(obs)
        return F.log_softmax(self.pi(h), dim=-1), self.v(h).squeeze(-1)


class Trainer:
    def __init__(self, cfg):
        self.cfg, self.net, self.updates = cfg, ActorCritic(), 0
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-4)

    async def ask(self, commands):
        loop = asyncio.get_running_loop()
        replies = [loop.create_future() for _ in commands]
        for simulator, command, reply in zip(self.simulators, commands, replies):
            simulator.inbox.put_nowait((command, reply))
        return await asyncio.gather(*replies)

    async def collect(self, obs):
        rows = []
        for _ in range(self.cfg.horizon):
            with torch.no_grad():
                logp, value = self.net(obs)
                action = torch.multinomial(logp.exp(), 1)
            results = await self.ask(action.squeeze(1).tolist())
            next_obs, reward, done = zip(*results)
            old = logp.gather(1, action)
            rows.append((obs, action, old, value, torch.tensor(reward), torch.tensor(done).float()))
            obs = torch.from_numpy(np.stack(next_obs))
        return obs, [torch.stack(column) for column in zip(*rows)]

    def update(self, last_obs, batch):
        obs, action, old, value, reward, done = batch
        with torch.no_grad():
            goal = self.net(last_obs)[1]
        goals = torch.empty_like(reward)
        for t in reversed(range(len(reward))):
            goal = goals[t] = reward[t] + 0.98 * (1 - done[t]) * goal
        adv = (goals - value).flatten()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        obs, action = obs.flatten(0, 1), action.flatten(0, 1)
        old, goals = old.flatten(), goals.flatten()
        for _ in range(self.cfg.epochs):
            for i in torch.randperm(len(adv)).split(self.cfg.minibatch):
                logp, v = self.net(obs[i])
                ratio = (logp.gather(1, action[i]).squeeze(1) - old[i]).exp()
                gain = torch.minimum(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean()
                entropy = -(logp.exp() * logp).sum(-1).mean()
                loss = 0.5 * F.mse_loss(v, goals[i]) - gain - 0.01 * entropy
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.updates += 1

    async def run(self):
        cfg = self.cfg
        self.simulators = [Simulator(Glider(cfg.seed + k, cfg.episode)) for k in range(cfg.simulators)]
        tasks = [asyncio.create_task(simulator.run()) for simulator in self.simulators]
        obs = torch.from_numpy(np.stack(await self.ask(["reset"] * cfg.simulators)))
        start = time.perf_counter()
        for _ in range(cfg.iterations):
            obs, batch = await self.collect(obs)
            self.update(obs, batch)
        seconds = time.perf_counter() - start
        for simulator in self.simulators:
            simulator.inbox.put_nowait((None, None))
        await asyncio.gather(*tasks)
        print(f"mean reward of the last rollout {batch[4].mean():.3f}")
        steps = cfg.iterations * cfg.horizon * cfg.simulators
        print(f"env_steps={steps} updates={self.updates} seconds={seconds:.3f}")


def main():
    cfg = Config()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    asyncio.run(Trainer(cfg).run(), debug=cfg.debug)


if __name__ == "__main__":
    main()
