"""Offline discrete CQL from pictures: catch the falling ball, data from a sloppy paddle player."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

SIDE, DATASET, UPDATES, BATCH = 20, 3600, 640, 64
GAMMA, ALPHA, TARGET_EVERY, EVAL_EVERY = 0.97, 0.5, 50, 160


class Catch:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.row, self.col = 0, int(self.rng.integers(SIDE))
        self.drift = int(self.rng.integers(-1, 2))
        self.paddle = SIDE // 2
        return self.picture()

    def picture(self):
        img = np.zeros((SIDE, SIDE), np.uint8)
        img[self.row, self.col] = 255
        img[-1, max(0, self.paddle - 1):self.paddle + 2] = 160
        return img

    def step(self, action):
        self.paddle = min(max(self.paddle + action - 1, 0), SIDE - 1)
        self.row += 1
        self.col = min(max(self.col + self.drift, 0), SIDE - 1)
        done = self.row == SIDE - 1
        reward = (1.0 if abs(self.col - self.paddle) <= 1 else -1.0) if done else 0.0
        return self.picture(), reward, done


def sloppy_player(env, rng):
    if rng.random() < 0.4:
        return int(rng.integers(3))
    return int(np.sign(env.col - env.paddle)) + 1


class OfflineData:
    def __init__(self, n):
        self.frames = np.zeros((n, SIDE, SIDE), np.uint8)
        self.next_frames = np.zeros((n, SIDE, SIDE), np.uint8)
        self.actions = np.zeros(n, np.int64)
        self.rewards = np.zeros(n, np.float32)
        self.dones = np.zeros(n, np.float32)

    def record(self, env, rng):
        obs = env.reset()
        for i in range(len(self.actions)):
            a = sloppy_player(env, rng)
            nxt, r, done = env.step(a)
            self.frames[i], self.next_frames[i] = obs, nxt
            self.actions[i], self.rewards[i], self.dones[i] = a, r, done
            obs = env.reset() if done else nxt

    @staticmethod
    def pictures(store, idx):
        if FIXED:
            return torch.from_numpy(store[idx]).float().div_(255).flatten(1)
        images = torch.from_numpy(store).float().div(255).flatten(1)
        return images[idx]

    def minibatch(self, rng):
        idx = rng.integers(0, len(self.actions), BATCH)
        return (self.pictures(self.frames, idx), torch.from_numpy(self.actions[idx]),
                torch.from_numpy(self.rewards[idx]), self.pictures(self.next_frames, idx),
                torch.from_numpy(self.dones[idx]))


def make_q():
    return nn.Sequential(nn.Linear(SIDE * SIDE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))


@torch.no_grad()
def evaluate(q, env, episodes=10):
    total, steps = 0.0, 0
    for _ in range(episodes):
        obs, done = env.reset(), False
        while not done:
            x = torch.from_numpy(obs).float().div_(255).view(1, -1)
            obs, r, done = env.step(int(q(x).argmax()))
            total, steps = total + r, steps + 1
    return total / episodes, steps


def main():
    torch.manual_seed(21)
    rng = np.random.default_rng(21)
    env = Catch(rng)
    q, q_target = make_q(), make_q()
    q_target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=5e-4)
    start = time.perf_counter()
    data = OfflineData(DATASET)
    data.record(env, rng)
    env_steps = DATASET
    for update in range(1, UPDATES + 1):
        obs, act, rew, nxt, done = data.minibatch(rng)
        with torch.no_grad():
            pick = q(nxt).argmax(1, keepdim=True)
            y = rew + GAMMA * (1 - done) * q_target(nxt).gather(1, pick).squeeze(1)
        values = q(obs)
        chosen = values.gather(1, act[:, None]).squeeze(1)
        conservative = (values.logsumexp(1) - chosen).mean()
        loss = F.mse_loss(chosen, y) + ALPHA * conservative
        opt.zero_grad()
        loss.backward()
        opt.step()
        if update % TARGET_EVERY == 0:
            q_target.load_state_dict(q.state_dict())
        if update % EVAL_EVERY == 0:
            score, steps = evaluate(q, env)
            env_steps += steps
            print(f"update {update} loss {loss.item():.3f} score {score:.2f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
