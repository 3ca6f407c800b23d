"""Return-then-explore in a maze with keys: an archive of cells, and a softmax policy trained on the best trajectories."""
import copy
import os
import time

import numpy as np

FIXED = os.environ.get("FIXED") == "1"


class KeyMaze:
    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self, size=15, keys=6, seed=0):
        rng = np.random.default_rng(seed)
        walls = (rng.random((size, size)) < 0.2)
        walls[0, 0] = False
        self.size, self.walls = size, walls.tolist()
        free = np.argwhere(~walls)
        self.homes = [tuple(int(v) for v in free[i]) for i in rng.choice(len(free), keys, replace=False)]
        self.reset()

    def reset(self):
        self.state = {
            "agent": {"pos": (0, 0), "bag": [], "energy": 200},
            "keys": {i: {"pos": home, "taken": False} for i, home in enumerate(self.homes)},
            "score": 0.0,
        }
        return self.observe()

    def observe(self):
        agent = self.state["agent"]
        return agent["pos"][0] * self.size + agent["pos"][1]

    def step(self, action):
        agent = self.state["agent"]
        r, c = agent["pos"][0] + self.moves[action][0], agent["pos"][1] + self.moves[action][1]
        if 0 <= r < self.size and 0 <= c < self.size and not self.walls[r][c]:
            agent["pos"] = (r, c)
        agent["energy"] -= 1
        reward = 0.0
        for i, key in self.state["keys"].items():
            if not key["taken"] and key["pos"] == agent["pos"]:
                key["taken"] = True
                agent["bag"].append(i)
                reward += 1.0
        self.state["score"] += reward
        return self.observe(), reward, agent["energy"] <= 0


class Explorer:
    def __init__(self, env, seed=1):
        self.env, self.rng = env, np.random.default_rng(seed)
        self.logits = np.zeros((env.size ** 2, 4))
        self.archive, self.order, self.steps, self.updates = {}, [], 0, 0

    def snapshot(self):
        s = self.env.state
        if FIXED:
            agent = s["agent"]
            return {
                "agent": {"pos": agent["pos"], "bag": agent["bag"][:], "energy": agent["energy"]},
                "keys": {i: {"pos": k["pos"], "taken": k["taken"]} for i, k in s["keys"].items()},
                "score": s["score"],
            }
        return copy.deepcopy(s)

    def cell(self):
        agent = self.env.state["agent"]
        return agent["pos"], tuple(sorted(agent["bag"]))

    def choose(self, obs):
        z = self.logits[obs]
        p = np.exp(z - z.max())
        p /= p.sum()
        return int(np.searchsorted(np.cumsum(p), self.rng.random() * 0.999999))

    def restore(self, saved):
        self.env.state = copy.deepcopy(saved)
        return self.env.observe()

    def explore(self, length):
        if self.order:
            obs = self.restore(self.archive[self.order[self.rng.integers(len(self.order))]][0])
        else:
            obs = self.env.reset()
        path = []
        for _ in range(length):
            action = self.choose(obs)
            nxt, reward, done = self.env.step(action)
            self.steps += 1
            path.append((obs, action, reward, self.cell(), self.snapshot()))
            obs = nxt
            if done:
                break
        for _, _, _, cell, saved in path:
            known = self.archive.get(cell)
            if known is None:
                self.order.append(cell)
            if known is None or saved["agent"]["energy"] > known[1]:
                self.archive[cell] = (saved, saved["agent"]["energy"])
        return path

    def improve(self, path, lr=0.05, gamma=0.97):
        ret, n = 0.0, len(path)
        states, actions, gains = np.empty(n, int), np.empty(n, int), np.empty(n)
        for i in range(n - 1, -1, -1):
            states[i], actions[i] = path[i][:2]
            ret = path[i][2] + gamma * ret
            gains[i] = ret
        z = self.logits[states]
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        grad = -p * gains[:, None]
        grad[np.arange(n), actions] += gains
        np.add.at(self.logits, states, lr * grad)
        np.clip(self.logits, -3, 3, out=self.logits)
        self.updates += 1

    def run(self, rounds, length=40):
        for _ in range(rounds):
            self.improve(self.explore(length))


if __name__ == "__main__":
    explorer = Explorer(KeyMaze())
    start = time.perf_counter()
    explorer.run(rounds=3800)
    seconds = time.perf_counter() - start
    print(f"env_steps={explorer.steps} updates={explorer.updates} seconds={seconds:.3f}")
