"""cvc.thinky_supervised_to_ppo: learn from the teacher for `supervised_steps`, then by PPO without it."""

from metta.rl.loss.action_supervised_and_critic import ActionSupervisedAndCriticConfig
from thinky.settings import Settings


def make_settings() -> Settings:
    return Settings(loss=ActionSupervisedAndCriticConfig())
