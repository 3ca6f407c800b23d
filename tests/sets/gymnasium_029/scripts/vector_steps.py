"""Three environments of gymnasium 0.29, stepped one after the other as one vector."""

import gymnasium as gym
import numpy as np

environments = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
environments.reset(seed=0)
episodes = 0
for _ in range(200):
    _, _, terminated, truncated, _ = environments.step(np.zeros(3, dtype=int))
    episodes += int((terminated | truncated).sum())
environments.close()
print("steps", 600, "episodes", episodes)
