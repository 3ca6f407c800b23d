"""PPO over environments in worker processes (SubprocVecEnv), one of which is slower than the others.

python subproc.py [--start fork|spawn|forkserver] [--steps 4096]
"""

import argparse
import time

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv
from truth import Truth

truth = Truth()
SLOW = 2


class Lagging(gym.Wrapper):
    """An environment that takes its time."""

    def step(self, action):
        time.sleep(0.003)
        return super().step(action)


class MakeEnv:
    def __init__(self, index):
        self.index = index

    def __call__(self):
        env = gym.make("CartPole-v1")
        return Monitor(Lagging(env) if self.index == SLOW else env)


class Curve(BaseCallback):
    def _on_training_start(self):
        truth.start()

    def _on_step(self):
        truth.keep(*self.locals["rewards"])
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", choices=["fork", "spawn", "forkserver"], default="forkserver")
    parser.add_argument("--steps", type=int, default=4_096)
    parser.add_argument("--envs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    env = SubprocVecEnv([MakeEnv(i) for i in range(args.envs)], start_method=args.start)
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=128, n_epochs=4, seed=1, device="cpu")
    model.learn(args.steps, callback=Curve())
    truth.stop()
    env.close()
    truth.keep_weights(model.policy.parameters())
    truth.tell(env_steps=model.num_timesteps, workers=args.envs, slow=SLOW)


if __name__ == "__main__":
    main()
