"""The plain supervised loss: no timing."""

from thinky.losses import ActionSupervisedAndCriticConfig

__all__ = ["ActionSupervisedAndCriticConfig"]
