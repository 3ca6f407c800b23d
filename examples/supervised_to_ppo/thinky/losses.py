"""What the student learns from: the teacher's actions and its own returns first, PPO afterwards.

What lives here: the two losses, their settings and the advantages. `metta.rl.loss` gives them the document's import paths.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Categorical
from torch.nn import functional


@dataclass
class ActionSupervisedAndCriticConfig:
    """Imitate the teacher's actions; teach the critic the student's own returns, so that PPO starts with a critic."""

    action_coef: float = 1.0
    value_coef: float = 0.5
    learning_rate: float = 1e-3
    timing_every: int = 0  # print the timing of the rollouts every N of them; 0: HotLoop stays off


@dataclass
class PPOConfig:
    """Clipped policy gradient, without the teacher."""

    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.003
    learning_rate: float = 3e-4


@dataclass(slots=True)
class Batch:
    """Flat tensors of one rollout, or of a part of it."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    taught: Tensor  # the teacher's actions; meaningless in the PPO phase

    def part(self, rows: Tensor) -> Batch:
        return Batch(*(getattr(self, name)[rows] for name in self.__slots__))


def estimate_advantages(rewards: Tensor, dones: Tensor, values: Tensor, gamma: float, trace: float) -> Tensor:
    """Generalised advantages. rewards, dones: (steps, agents); values: (steps + 1, agents)."""
    ahead, out = torch.zeros_like(rewards[0]), torch.empty_like(rewards)
    for t in reversed(range(len(rewards))):
        alive = 1 - dones[t]
        error = rewards[t] + gamma * alive * values[t + 1] - values[t]
        out[t] = ahead = error + gamma * trace * alive * ahead
    return out


def supervised_loss(
    logits: Tensor, values: Tensor, batch: Batch, config: ActionSupervisedAndCriticConfig
) -> tuple[Tensor, Tensor]:
    """The loss and, for the log, how often the student's best action is the teacher's."""
    imitation = functional.cross_entropy(logits, batch.taught)
    critic = functional.mse_loss(values, batch.returns)
    agreement = (logits.detach().argmax(1) == batch.taught).float().mean()
    return config.action_coef * imitation + config.value_coef * critic, agreement


def ppo_loss(logits: Tensor, values: Tensor, batch: Batch, config: PPOConfig) -> tuple[Tensor, Tensor]:
    """The loss and, for the log, how much the policy moved (approximate KL divergence)."""
    policy = Categorical(logits=logits, validate_args=False)
    change = policy.log_prob(batch.actions) - batch.log_probs
    ratio = change.exp()
    gain = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    surrogate = torch.min(gain * ratio, gain * ratio.clamp(1 - config.clip, 1 + config.clip)).mean()
    critic = functional.mse_loss(values, batch.returns)
    loss = -surrogate + config.value_coef * critic - config.entropy_coef * policy.entropy().mean()
    return loss, ((ratio - 1) - change).mean().detach()
