"""Hindsight experience replay on bit flipping, the classic: DQN reaches goals it has never been rewarded for."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

BITS = 8
EPISODES = 2800
BATCH = 64
GAMMA = 0.95


class BitFlip(gym.Env):
    """Flip one bit per step until the word equals the goal."""

    def __init__(self, bits=BITS, goal=None):
        self.bits, self.goal = bits, goal
        self.action_space = spaces.Discrete(bits)
        words = {name: spaces.Box(0.0, 1.0, (bits,), np.float32) for name in ("goal", "state")}
        self.observation_space = spaces.Dict(words)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if options and "goal" in options:
            self.goal = options["goal"]
        self.state = self.np_random.integers(0, 2, self.bits).astype(np.float32)
        return self._obs(), {}

    def _obs(self):
        return {"goal": np.array(self.goal, dtype=np.float32), "state": self.state.copy()}

    def step(self, action):
        self.state[action] = 1.0 - self.state[action]
        reached = bool((self.state == self.goal).all())
        return self._obs(), 0.0 if reached else -1.0, reached, False, {}


gym.register("BitFlip-v0", entry_point=BitFlip, max_episode_steps=BITS)


def make_task(goal):
    env = gym.wrappers.RecordEpisodeStatistics(gym.make("BitFlip-v0", bits=BITS, goal=goal.tolist()))
    return gym.wrappers.FlattenObservation(env)


class Replay:
    def __init__(self, capacity=20000):
        self.obs = np.zeros((capacity, 2 * BITS), np.float32)
        self.next_obs = np.zeros_like(self.obs)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.capacity, self.count = capacity, 0

    def add(self, obs, action, reward, next_obs, done):
        at = self.count % self.capacity
        self.obs[at], self.next_obs[at] = obs, next_obs
        self.action[at], self.reward[at], self.done[at] = action, reward, done
        self.count += 1

    def add_episode(self, episode):
        """The episode as it was, and once more as if the word it ended with had been asked for."""
        achieved = episode[-1][3][BITS:]
        for obs, action, reward, next_obs, done in episode:
            self.add(obs, action, reward, next_obs, done)
            hit = bool((next_obs[BITS:] == achieved).all())
            self.add(np.concatenate([achieved, obs[BITS:]]), action, 0.0 if hit else -1.0,
                     np.concatenate([achieved, next_obs[BITS:]]), hit)

    def sample(self, rng):
        idx = rng.integers(0, min(self.count, self.capacity), BATCH)
        return [torch.from_numpy(x[idx]) for x in (self.obs, self.action, self.reward, self.next_obs, self.done)]


def q_net():
    return nn.Sequential(nn.Linear(2 * BITS, 128), nn.ReLU(), nn.Linear(128, BITS))


def learn(net, target, optimizer, batch):
    obs, action, reward, next_obs, done = batch
    with torch.no_grad():
        goal = reward + GAMMA * (1 - done) * target(next_obs).amax(1)
    loss = nn.functional.mse_loss(net(obs).gather(1, action[:, None]).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    rng = np.random.default_rng(5)
    torch.manual_seed(5)
    net, target = q_net(), q_net()
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    replay, solved = Replay(), []
    steps = updates = 0
    env = make_task(np.zeros(BITS, np.int64))
    start = time.perf_counter()
    for number in range(EPISODES):
        goal = rng.integers(0, 2, BITS)
        seed = int(rng.integers(2**31))
        if FIXED:
            obs, _ = env.reset(seed=seed, options={"goal": goal.tolist()})
        else:
            env.close()
            env = make_task(goal)
            obs, _ = env.reset(seed=seed)
        episode, epsilon = [], max(0.1, 1.0 - number / 900)
        for _ in range(BITS):
            if rng.random() < epsilon:
                action = int(rng.integers(BITS))
            else:
                with torch.no_grad():
                    action = int(net(torch.from_numpy(obs)).argmax())
            next_obs, reward, terminated, truncated, _ = env.step(action)
            episode.append((obs, action, reward, next_obs, terminated))
            obs = next_obs
            steps += 1
            if terminated or truncated:
                break
        solved.append(terminated)
        replay.add_episode(episode)
        if number >= 20:
            learn(net, target, optimizer, replay.sample(rng))
            updates += 1
        if number % 40 == 0:
            target.load_state_dict(net.state_dict())
    seconds = time.perf_counter() - start
    print("solved lately:", np.mean(solved[-100:]))
    print(f"env_steps={steps} updates={updates} seconds={seconds:.2f}")


main()
