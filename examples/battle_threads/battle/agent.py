"""The player: two small networks, what they choose, and how they learn (PPO with a clipped ratio and masked actions)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hotloop import count, profile

from .view import ACTIONS, FEATURES, Mask, Observation


@dataclass(slots=True)
class Episode:
    """One battle as it was played."""

    observations: list[Observation] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    last_value: float = 0.0  # of the state where a battle was cut off; a battle that ended is worth no more
    won: bool = False

    def add(self, observation: Observation, mask: Mask, action: int, log_prob: float, value: float, reward: float) -> None:
        self.observations.append(observation)
        self.masks.append(mask)
        self.actions.append(action)
        self.log_probs.append(log_prob)
        self.values.append(value)
        self.rewards.append(reward)


def network(hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, out))


class Agent:
    """Shared by all threads while they play; the networks change only between rounds."""

    def __init__(self, hidden: int, learning_rate: float, device: torch.device) -> None:
        self.device = device
        self.policy, self.value = network(hidden, ACTIONS).to(device), network(hidden, 1).to(device)
        with torch.no_grad():
            self.policy[-1].weight.mul_(0.01)  # begin with nearly equal chances
        self.parameters = [*self.policy.parameters(), *self.value.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=learning_rate)

    @torch.inference_mode()
    def select_action(self, observation: Observation, mask: Mask, luck: random.Random) -> tuple[int, float]:
        """An action and its log-probability; chance comes from the battle's own generator, so threads cannot reorder it."""
        log_probs = masked_log_probs(self.policy(self._tensor(observation)), torch.tensor(mask, device=self.device)).tolist()
        action = luck.choices(range(ACTIONS), [2.718281828459045**x for x in log_probs])[0]
        return action, log_probs[action]

    @torch.inference_mode()
    def calculate_value(self, observation: Observation) -> float:
        return float(self.value(self._tensor(observation)))

    def _tensor(self, data: object) -> Tensor:
        return torch.tensor(data, dtype=torch.float32, device=self.device)


def masked_log_probs(logits: Tensor, mask: Tensor) -> Tensor:
    """Log-probabilities that leave nothing to what is not allowed."""
    return logits.masked_fill(~mask, -1e9).log_softmax(-1)


def advantages_of(episode: Episode, gamma: float, lam: float) -> list[float]:
    """Generalised advantage estimation over one battle."""
    advantages, running, after = [], 0.0, episode.last_value
    for reward, value in zip(reversed(episode.rewards), reversed(episode.values), strict=True):
        running = reward + gamma * after - value + gamma * lam * running
        advantages.append(running)
        after = value
    return advantages[::-1]


@dataclass(frozen=True, slots=True)
class Batch:
    observations: Tensor
    masks: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor

    def __getitem__(self, index: Tensor) -> Batch:
        return Batch(*(getattr(self, name)[index] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class LearningSettings:
    gamma: float
    gae_lambda: float
    clip: float
    entropy: float
    epochs: int
    batch_size: int
    buffer_capacity: int


def make_batch(agent: Agent, episodes: list[Episode], s: LearningSettings) -> Batch:
    """All transitions of a round, the latest `buffer_capacity` of them."""
    advantages = [a for e in episodes for a in advantages_of(e, s.gamma, s.gae_lambda)]
    values = [v for e in episodes for v in e.values]
    keep = slice(-s.buffer_capacity, None)
    gain = agent._tensor(advantages[keep])
    return Batch(
        observations=agent._tensor([o for e in episodes for o in e.observations][keep]),
        masks=torch.tensor([m for e in episodes for m in e.masks][keep], device=agent.device),
        actions=torch.tensor([a for e in episodes for a in e.actions][keep], device=agent.device),
        log_probs=agent._tensor([x for e in episodes for x in e.log_probs][keep]),
        advantages=(gain - gain.mean()) / (gain.std(correction=0) + 1e-8),
        returns=gain + agent._tensor(values[keep]),
    )


def loss_of(agent: Agent, batch: Batch, s: LearningSettings) -> Tensor:
    log_probs = masked_log_probs(agent.policy(batch.observations), batch.masks)
    chosen = log_probs.gather(1, batch.actions[:, None])[:, 0]
    ratio = (chosen - batch.log_probs).exp()
    clipped = ratio.clamp(1 - s.clip, 1 + s.clip)
    policy_loss = -torch.minimum(ratio * batch.advantages, clipped * batch.advantages).mean()
    value_loss = (agent.value(batch.observations)[:, 0] - batch.returns).pow(2).mean()
    entropy = -(log_probs.exp() * log_probs).sum(1).mean()
    return policy_loss + 0.5 * value_loss - s.entropy * entropy


def learn(agent: Agent, episodes: list[Episode], s: LearningSettings, generator: torch.Generator) -> None:
    """One update. `optimizer_step` is a part of `gradient_calculation`, and HotLoop counts it once."""
    with profile("gradient_calculation"):
        with profile("gae_calculation"):
            batch = make_batch(agent, episodes, s)
        size = len(batch.actions)
        for _ in range(s.epochs):
            with profile("update_shuffle"):
                order = torch.randperm(size, generator=generator).to(agent.device).split(s.batch_size)
            for index in order:
                with profile("loss_calculation"):
                    loss = loss_of(agent, batch[index], s)
                with profile("backward"):
                    agent.optimizer.zero_grad()
                    loss.backward()
                with profile("optimizer_step"):
                    nn.utils.clip_grad_norm_(agent.parameters, 0.5)
                    agent.optimizer.step()
                count("updates")
                count("samples", len(index))
