"""Tabular Q-learning on FrozenLake (8x8)."""

import time

import gymnasium as gym
import numpy as np


def main(steps=700_000, alpha=0.2, gamma=0.98):
    rng = np.random.default_rng(0)
    env = gym.make("FrozenLake-v1", map_name="8x8")
    start = time.time()
    q = np.zeros((env.observation_space.n, env.action_space.n))
    state, _ = env.reset(seed=0)
    noise = rng.random(steps)
    random_actions = rng.integers(0, env.action_space.n, steps)
    for t in range(steps):
        action = random_actions[t] if noise[t] < 0.1 else q[state].argmax()
        nxt, reward, terminated, truncated, _ = env.step(int(action))
        target = reward if terminated else reward + gamma * q[nxt].max()
        q[state, action] += alpha * (target - q[state, action])
        state = env.reset()[0] if terminated or truncated else nxt
    print(f"env_steps={steps} updates={steps} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
