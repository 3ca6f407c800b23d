"""stable-baselines3: PPO on one environment, on four in worker processes, beside an evaluation; A2C on eight; DQN.

python sb3.py ppo|ppo_subproc|ppo_eval|a2c|dqn
"""

import sys

import torch
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from tally import Tally, Walk

WARM_UP = 256  # steps of DQN before it learns


class Iterations(BaseCallback):
    """A rollout that is followed by learning is an iteration."""

    def __init__(self, tally, after=0):
        super().__init__()
        self.tally, self.after = tally, after

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.tally.iterations += self.num_timesteps > self.after


def main():
    torch.set_num_threads(1)
    which, tally = sys.argv[1], Tally()
    tally.watch_updates()
    callback = Iterations(tally, WARM_UP if which == "dqn" else 0)
    maker = lambda: Walk(tally)
    if which == "ppo":
        steps, updates = 2048, 4 * 2 * 8
        model = PPO("MlpPolicy", maker(), n_steps=512, batch_size=64, n_epochs=2)
    elif which == "ppo_subproc":
        steps, updates = 4096, 4 * 2 * 4
        model = PPO("MlpPolicy", SubprocVecEnv([maker] * 4, start_method="fork"), n_steps=256, batch_size=256, n_epochs=2)
    elif which == "ppo_eval":
        steps, updates = 2048, 4 * 2 * 8
        model = PPO("MlpPolicy", maker(), n_steps=512, batch_size=64, n_epochs=2)
        evaluation = EvalCallback(Monitor(Walk()), n_eval_episodes=3, eval_freq=700, verbose=0)
        callback = CallbackList([callback, evaluation])
    elif which == "a2c":
        steps, updates = 8 * 256 * 5, 5
        model = A2C("MlpPolicy", DummyVecEnv([maker] * 8), n_steps=256)
    else:
        steps, updates = 2048, (2048 - WARM_UP) // 128 * 32
        model = DQN("MlpPolicy", maker(), learning_starts=WARM_UP, train_freq=128, gradient_steps=32, batch_size=64)
    model.learn(steps, callback=callback)
    model.get_env().close()
    tally.say(steps, updates)


if __name__ == "__main__":
    main()
