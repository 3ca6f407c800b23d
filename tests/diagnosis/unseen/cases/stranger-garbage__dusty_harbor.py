"""A league of agents trades blows on a ring: matches are coroutines, each agent answers all its waiting matches at once."""
import asyncio
import gc
import os
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
RING, TURNS, MATCHES, AGENTS = 12, 80, 4, 4
ROUNDS, UPDATES, MEMORY = 6, 16, 30_000


@dataclass
class Experience:
    agent: int
    obs: list
    action: int
    ret: float
    info: dict


class Duel:
    def __init__(self, rng):
        self.rng = rng
        self.pos = [rng.randrange(RING), rng.randrange(RING)]
        self.power = [3.0, 3.0]

    def view(self, side):
        gap = (self.pos[1 - side] - self.pos[side]) % RING
        return [float(gap == i) for i in range(RING)] + [self.power[side] / 5, self.power[1 - side] / 5]

    def turn(self, acts):
        reward = [0.0, 0.0]
        for side, act in enumerate(acts):
            if act < 2:
                self.pos[side] = (self.pos[side] + (1, -1)[act]) % RING
        near = min((self.pos[0] - self.pos[1]) % RING, (self.pos[1] - self.pos[0]) % RING) <= 1
        for side, act in enumerate(acts):
            if act == 2 and self.power[side] >= 1:
                self.power[side] -= 1
                hit = near and self.rng.random() < 0.8
                reward[side] += 1.0 if hit else -0.3
                reward[1 - side] -= 1.0 if hit else 0.0
            elif act == 3:
                self.power[side] = min(5.0, self.power[side] + 1)
        return reward


class Agent:
    def __init__(self, index):
        self.index = index
        self.net = nn.Sequential(nn.Linear(RING + 2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.waiting = []

    async def act(self, obs):
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        if not self.waiting:
            loop.call_soon(self.answer_all)
        self.waiting.append((obs, answer))
        return await answer

    @torch.no_grad()
    def answer_all(self):
        batch, self.waiting = self.waiting, []
        logits = self.net(torch.tensor([obs for obs, _ in batch]))[:, :4]
        for (_, answer), act in zip(batch, torch.multinomial(logits.softmax(-1), 1)[:, 0].tolist()):
            answer.set_result(act)

    def learn(self, rows):
        obs = torch.tensor([r.obs for r in rows])
        act = torch.tensor([r.action for r in rows])
        ret = torch.tensor([r.ret for r in rows])
        out = self.net(obs)
        logp, value = out[:, :4].log_softmax(-1), out[:, 4]
        adv = (ret - value).detach()
        loss = -(adv * logp.gather(1, act[:, None])[:, 0]).mean() + 0.5 * F.mse_loss(value, ret)
        loss = loss + 0.02 * (logp.exp() * logp).sum(-1).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


class Match:
    def __init__(self, number, home, away, rng):
        self.number, self.duel, self.agents, self.log = number, Duel(rng), (home, away), ([], [])

    async def run(self, memory):
        for turn in range(TURNS):
            views = [self.duel.view(0), self.duel.view(1)]
            acts = await asyncio.gather(*(agent.act(v) for agent, v in zip(self.agents, views)))
            rewards = self.duel.turn(acts)
            for side in (0, 1):
                self.log[side].append((views[side], acts[side], rewards[side], turn))
        for side in (0, 1):
            ret = 0.0
            for obs, act, rew, turn in reversed(self.log[side]):
                ret = rew + 0.9 * ret
                memory.append(Experience(self.agents[side].index, obs, act, ret, {"match": self.number, "turn": turn}))
        self.close()

    def close(self):
        self.agents, self.duel, self.log = None, None, None
        if not FIXED:
            gc.collect()


async def league():
    rng = random.Random(2)
    agents = [Agent(i) for i in range(AGENTS)]
    memory = []
    for rnd in range(ROUNDS):
        matches = [Match(rnd * MATCHES + k, *rng.sample(agents, 2), rng) for k in range(MATCHES)]
        await asyncio.gather(*(match.run(memory) for match in matches))
        del memory[:-MEMORY]
        for agent in agents:
            mine = [row for row in memory[-6 * MATCHES * TURNS:] if row.agent == agent.index]
            for _ in range(UPDATES):
                agent.learn(rng.sample(mine, min(256, len(mine))))
    return memory


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    start = time.perf_counter()
    memory = asyncio.run(league())
    seconds = time.perf_counter() - start
    print(f"mean return {sum(row.ret for row in memory[-1000:]) / 1000:.3f}")
    print(f"env_steps={ROUNDS * MATCHES * TURNS} updates={ROUNDS * AGENTS * UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
