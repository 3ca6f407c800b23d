#!/usr/bin/env python3
"""Profile the supervised-to-PPO recipe: 10,000 agent steps, half of them with the teacher.

    python recipes/experiment/cvc/profile_thinky_supervised.py [--seed N] [--device cuda] [--out DIR] [key=value …]

Prints the timing of the rollouts every 10 of them, writes a PyTorch trace of each phase, and says which advice applies.
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # as a script, Python knows only this folder
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from metta.rl.loss.action_supervised_and_critic_profiled import ActionSupervisedAndCriticConfig
from thinky.settings import EvaluatorConfig, ProfilerConfig, Settings, TrainerConfig, read_command_line
from thinky.trainer import train


def make_settings() -> Settings:
    return Settings(
        run="profile_thinky_supervised",
        supervised_steps=5_000,
        loss=ActionSupervisedAndCriticConfig(),
        trainer=TrainerConfig(total_timesteps=10_000, profiler=ProfilerConfig(enabled=True, record_shapes=True)),
        evaluator=EvaluatorConfig(evaluate_local=False),
    )


if __name__ == "__main__":
    train(read_command_line(make_settings(), sys.argv[1:], __doc__ or ""))
