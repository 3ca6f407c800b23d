"""Pursuit with shared parameters: every hunter is a coroutine that asks one brain for its moves."""
import asyncio
import os
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"

SEED = 5
SIZE = 7
HUNTERS = 4
ARENAS = 3
TICKS = 25
ROUNDS = 38
GAMMA = 0.95
MOVES = np.array([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])


class Arena:
    """Four hunters and one prey on a torus; the team is paid for every hunter next to the prey."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def _observe(self):
        rel = (self.prey - self.hunters + SIZE // 2) % SIZE - SIZE // 2
        team = (self.hunters.mean(0) - self.hunters) / SIZE
        return np.concatenate([rel / SIZE, np.abs(rel) <= 1, team, self.hunters / SIZE], 1).astype(np.float32)

    def reset(self):
        self.hunters = self.rng.integers(0, SIZE, (HUNTERS, 2))
        self.prey = self.rng.integers(0, SIZE, 2)
        return self._observe()

    def step(self, actions):
        self.hunters = (self.hunters + MOVES[actions]) % SIZE
        if self.rng.random() < 0.5:
            self.prey = (self.prey + MOVES[self.rng.integers(5)]) % SIZE
        rel = (self.prey - self.hunters + SIZE // 2) % SIZE - SIZE // 2
        near = np.abs(rel).sum(1) <= 1
        return self._observe(), float(near.sum()) - 0.1


class Brain:
    """Answers the hunters' questions together, up to max_batch in one forward pass."""

    def __init__(self, net, max_batch=32, window=0.002):
        self.net = net
        self.max_batch = max_batch
        self.window = window
        self.inbox = asyncio.Queue()

    async def ask(self, obs):
        answer = asyncio.get_running_loop().create_future()
        await self.inbox.put((obs, answer))
        return await answer

    async def next_batch(self):
        loop = asyncio.get_running_loop()
        batch = [await self.inbox.get()]
        deadline = loop.time() + self.window
        while len(batch) < self.max_batch:
            if not self.inbox.empty():
                batch.append(self.inbox.get_nowait())
                continue
            left = deadline - loop.time()
            if left <= 0:
                break
            try:
                batch.append(await asyncio.wait_for(self.inbox.get(), left))
            except asyncio.TimeoutError:
                break
        return batch

    async def serve(self):
        while True:
            batch = await self.next_batch()
            obs = torch.from_numpy(np.stack([o for o, _ in batch]))
            with torch.no_grad():
                actions = torch.multinomial(self.net(obs).softmax(-1), 1).squeeze(-1)
            for (_, answer), action in zip(batch, actions.tolist()):
                answer.set_result(action)


async def play(arena, brain):
    obs = arena.reset()
    seen, acts, rewards = [], [], []
    for _ in range(TICKS):
        actions = await asyncio.gather(*(brain.ask(o) for o in obs))
        seen.append(obs)
        acts.append(actions)
        obs, reward = arena.step(np.array(actions))
        rewards.append(reward)
    ret, returns = 0.0, []
    for reward in reversed(rewards):
        ret = reward + GAMMA * ret
        returns.append(ret)
    return np.stack(seen), np.array(acts), np.array(returns[::-1], np.float32)


def learn(net, optim, games):
    obs, acts, returns = (torch.from_numpy(np.stack(part)) for part in zip(*games))
    adv = (returns - returns.mean(0)) / (returns.std() + 1e-6)
    logp = net(obs).log_softmax(-1)
    picked = logp.gather(-1, acts.unsqueeze(-1)).squeeze(-1)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = -(picked * adv.unsqueeze(-1)).mean() - 0.01 * entropy
    optim.zero_grad()
    loss.backward()
    optim.step()


async def main():
    torch.manual_seed(SEED)
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    optim = torch.optim.Adam(net.parameters(), lr=3e-3)
    arenas = [Arena(SEED + i) for i in range(ARENAS)]
    brain = Brain(net, max_batch=HUNTERS * ARENAS) if FIXED else Brain(net)
    server = asyncio.create_task(brain.serve())
    start = time.perf_counter()
    for round_ in range(ROUNDS):
        games = await asyncio.gather(*(play(arena, brain) for arena in arenas))
        learn(net, optim, games)
        if (round_ + 1) % 8 == 0:
            print(f"round {round_ + 1}: return {np.mean([g[2][0] for g in games]):.2f}")
    seconds = time.perf_counter() - start
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)
    print(f"env_steps={ROUNDS * ARENAS * TICKS} updates={ROUNDS} seconds={seconds:.3f}")


if __name__ == "__main__":
    asyncio.run(main())
