"""The same loss, and HotLoop prints where the rollouts' time went, every 10 of them.

The spans are in the code anyway and cost next to nothing while off, so there is no second copy of the loss to maintain.
"""

from dataclasses import dataclass

from thinky import losses


@dataclass
class ActionSupervisedAndCriticConfig(losses.ActionSupervisedAndCriticConfig):
    timing_every: int = 10


__all__ = ["ActionSupervisedAndCriticConfig"]
