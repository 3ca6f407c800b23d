"""Self-play DQN on a two-player coin grid, playing against a league of its former selves."""
import copy
import os
import time
from collections import deque

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SIZE, COINS, HORIZON = 9, 12, 30
OBS = 3 * SIZE * SIZE
MOVES = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
CAPACITY = 30_000
EPISODES, LEAGUE_EVERY, TRAIN_EVERY, GAMMA = 340, 2, 8, 0.95


class CoinDuel:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        cells = self.rng.permutation(SIZE * SIZE)[: 2 + COINS]
        self.players = [divmod(int(c), SIZE) for c in cells[:2]]
        self.coins = np.zeros((SIZE, SIZE), np.float32)
        self.coins.flat[cells[2:]] = 1.0
        self.t = 0
        return self.view(0), self.view(1)

    def view(self, me):
        planes = np.zeros((3, SIZE, SIZE), np.float32)
        planes[0][self.players[me]] = 1.0
        planes[1][self.players[1 - me]] = 1.0
        planes[2] = self.coins
        return planes.ravel()

    def step(self, actions):
        gain = [0.0, 0.0]
        for i, action in enumerate(actions):
            r, c = self.players[i]
            dr, dc = MOVES[action]
            cell = (min(max(r + dr, 0), SIZE - 1), min(max(c + dc, 0), SIZE - 1))
            self.players[i] = cell
            if self.coins[cell] > 0:
                self.coins[cell] = 0.0
                gain[i] += 1.0
        self.t += 1
        return (self.view(0), self.view(1)), gain[0] - gain[1], self.t >= HORIZON


class Memory:
    def __init__(self, capacity):
        self.obs = np.zeros((capacity, OBS), np.float32)
        self.nxt = np.zeros((capacity, OBS), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward, self.alive = np.zeros((2, capacity), np.float32)
        self.size = self.head = 0

    def add(self, obs, action, reward, nxt, done):
        i = self.head
        self.obs[i], self.nxt[i] = obs, nxt
        self.action[i], self.reward[i], self.alive[i] = action, reward, 1.0 - done
        self.head = (i + 1) % len(self.obs)
        self.size = min(self.size + 1, len(self.obs))

    def sample(self, rng, count):
        idx = rng.integers(self.size, size=count)
        return [torch.from_numpy(a[idx]) for a in (self.obs, self.action, self.reward, self.nxt, self.alive)]


class Duelist:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(OBS, 128), nn.ReLU(), nn.Linear(128, len(MOVES)))
        self.target = copy.deepcopy(self.net)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.memory = Memory(CAPACITY)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, rng, epsilon):
        if rng.random() < epsilon:
            return int(rng.integers(len(MOVES)))
        return int(self.net(torch.from_numpy(obs)).argmax())

    def train(self, rng):
        obs, action, reward, nxt, alive = self.memory.sample(rng, 64)
        with torch.no_grad():
            goal = reward + GAMMA * alive * self.target(nxt).amax(1)
        q = self.net(obs).gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % 100 == 0:
            self.target.load_state_dict(self.net.state_dict())

    def snapshot(self):
        if FIXED:
            twin = copy.copy(self)
            twin.net = copy.deepcopy(self.net)
            return twin
        return copy.deepcopy(self)


class League:
    def __init__(self, size):
        self.past = deque(maxlen=size)

    def admit(self, agent):
        self.past.append(agent.snapshot())

    def draw(self, rng):
        return self.past[int(rng.integers(len(self.past)))]


def play(env, agent, rival, rng):
    mine, theirs = env.reset()
    total, done = 0.0, False
    while not done:
        action = agent.act(mine, rng, 0.15)
        (nxt, theirs), reward, done = env.step((action, rival.act(theirs, rng, 0.05)))
        agent.memory.add(mine, action, reward, nxt, done)
        mine, total = nxt, total + reward
        if agent.memory.size >= 256 and env.t % TRAIN_EVERY == 0:
            agent.train(rng)
    return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    env, agent, league = CoinDuel(rng), Duelist(), League(6)
    league.admit(agent)
    scores = []
    start = time.perf_counter()
    for episode in range(1, EPISODES + 1):
        scores.append(play(env, agent, league.draw(rng), rng))
        if episode % LEAGUE_EVERY == 0:
            league.admit(agent)
    seconds = time.perf_counter() - start
    print(f"score first50={np.mean(scores[:50]):.2f} last50={np.mean(scores[-50:]):.2f}")
    print(f"env_steps={EPISODES * HORIZON} updates={agent.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
