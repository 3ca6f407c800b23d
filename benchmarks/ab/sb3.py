"""stable-baselines3 with its environments in worker processes, or one after the other.

python sb3.py --algo ppo --vec subproc --envs 4 --work cartpole --steps 4096
"""

import argparse
import time

import torch
from parts import make_env
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from torch.optim.optimizer import register_optimizer_step_post_hook


class Count(BaseCallback):
    """Env steps by this script's own count."""

    steps = 0

    def _on_step(self):
        self.steps += self.training_env.num_envs
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=("ppo", "a2c", "dqn"), required=True)
    parser.add_argument("--vec", choices=("subproc", "dummy"), required=True)
    parser.add_argument("--start", default="fork", help="start method of the workers; default: stable-baselines3's own")
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--work", default="cartpole")
    parser.add_argument("--n-steps", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4096)
    args = parser.parse_args()
    torch.set_num_threads(1)

    makers = [lambda: make_env(args.work)] * args.envs
    if args.vec == "subproc":
        envs = SubprocVecEnv(makers, start_method=None if args.start == "default" else args.start)
    else:
        envs = DummyVecEnv(makers)
    if args.algo == "ppo":
        model = PPO("MlpPolicy", envs, n_steps=args.n_steps, batch_size=64, n_epochs=4, seed=1, device="cpu")
    elif args.algo == "a2c":
        model = A2C("MlpPolicy", envs, n_steps=args.n_steps, seed=1, device="cpu")
    else:
        model = DQN("MlpPolicy", envs, learning_starts=0, train_freq=1, gradient_steps=1, batch_size=64, seed=1, device="cpu")
    updates = []
    register_optimizer_step_post_hook(lambda *_: updates.append(1))
    count = Count()
    began = time.perf_counter()
    model.learn(args.steps, callback=count)
    seconds = time.perf_counter() - began
    print("LOOP", seconds, count.steps, len(updates))
    envs.close()


if __name__ == "__main__":
    main()
