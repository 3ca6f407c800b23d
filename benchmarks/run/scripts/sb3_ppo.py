"""PPO of stable-baselines3 on CartPole with four environments.

python sb3_ppo.py [--steps 20000] [--eval-every 5000]
"""

import argparse

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from truth import Truth

truth = Truth()


class Curve(BaseCallback):
    """Keeps what was learned, rollout by rollout."""

    def _on_training_start(self):
        truth.start()

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        truth.keep(*(value for name, value in self.logger.name_to_value.items() if name.startswith("train/")))
        truth.keep(*(episode["r"] for episode in self.model.ep_info_buffer))


# With HAND_TIMES=1 these take the places of the library's classes.


class TimedPPO(PPO):
    def collect_rollouts(self, *args, **kwargs):
        before = truth.enter("collect")
        try:
            return super().collect_rollouts(*args, **kwargs)
        finally:
            truth.enter(before)

    def train(self):
        before = truth.enter("learn")
        super().train()
        truth.enter(before)

    def dump_logs(self, iteration=0):
        before = truth.enter("log")
        super().dump_logs(iteration)
        truth.enter(before)


class TimedRolloutBuffer(RolloutBuffer):
    def compute_returns_and_advantage(self, *args, **kwargs):
        before = truth.enter("learn")
        super().compute_returns_and_advantage(*args, **kwargs)
        truth.enter(before)


class TimedEval(EvalCallback):
    def _on_step(self):
        if self.n_calls % self.eval_freq:
            return super()._on_step()
        before = truth.enter("eval")
        go_on = super()._on_step()
        truth.enter(before)
        return go_on


class TimedCheckpoint(CheckpointCallback):
    def _on_step(self):
        if self.n_calls % self.save_freq:
            return super()._on_step()
        before = truth.enter("checkpoint")
        go_on = super()._on_step()
        truth.enter(before)
        return go_on


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--eval-every", type=int, default=0, help="environment steps between evaluations and checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)

    algorithm, buffer, evaluation, checkpoint = PPO, RolloutBuffer, EvalCallback, CheckpointCallback
    if truth.by_hand:
        algorithm, buffer, evaluation, checkpoint = TimedPPO, TimedRolloutBuffer, TimedEval, TimedCheckpoint

    env = make_vec_env("CartPole-v1", n_envs=4, seed=args.seed)
    model = algorithm(
        "MlpPolicy", env, n_steps=512, batch_size=64, n_epochs=10, rollout_buffer_class=buffer,
        seed=args.seed, device="cpu", verbose=1,
    )  # fmt: skip
    callbacks = [Curve()]
    if args.eval_every:
        every = max(args.eval_every // env.num_envs, 1)
        held_out = make_vec_env("CartPole-v1", n_envs=1, seed=args.seed + 100)
        callbacks.append(evaluation(held_out, n_eval_episodes=5, eval_freq=every, verbose=0))
        callbacks.append(checkpoint(save_freq=every, save_path="checkpoints"))
    model.learn(args.steps, callback=callbacks)
    truth.stop()
    truth.keep_weights(model.policy.parameters())
    truth.tell(env_steps=model.num_timesteps, updates=model._n_updates)


if __name__ == "__main__":
    main()
