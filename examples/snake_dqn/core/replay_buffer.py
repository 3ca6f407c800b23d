"""Where transitions are kept: on the host as NumPy arrays (the document's), or on the training device.

What lives here: two rings of the same size and meaning. Invariant: the newest `capacity` transitions, in order of arrival.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # states, actions, rewards, next_states, dones


class ReplayBuffer:
    """On the host: `push` one transition, `push_batch` many; `sample` sends a batch to the device."""

    def __init__(self, capacity: int, num_features: int, device: torch.device, seed: int = 1) -> None:
        self.capacity, self.device = capacity, device
        self.at = self.size = 0
        self.random = np.random.default_rng(seed)
        self.states, self.next_states = (np.zeros((capacity, num_features), np.float32) for _ in range(2))
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, np.bool_)

    def __len__(self) -> int:
        return self.size

    def push(self, state: np.ndarray, action: int, reward: float, next_state: np.ndarray, done: bool) -> None:
        at = self.at
        self.states[at], self.actions[at], self.rewards[at] = state, action, reward
        self.next_states[at], self.dones[at] = next_state, done
        self._advance(1)

    def push_batch(
        self, states: np.ndarray, actions: np.ndarray, rewards: np.ndarray, next_states: np.ndarray, dones: np.ndarray
    ) -> None:
        where = (self.at + np.arange(len(states))) % self.capacity
        self.states[where], self.actions[where], self.rewards[where] = states, actions, rewards
        self.next_states[where], self.dones[where] = next_states, dones
        self._advance(len(states))

    def sample(self, batch_size: int) -> Batch:
        pick = self.random.integers(self.size, size=batch_size)
        arrays = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(array[pick]).to(self.device) for array in arrays)

    def _advance(self, n: int) -> None:
        self.at = (self.at + n) % self.capacity
        self.size = min(self.size + n, self.capacity)


class DeviceReplayBuffer:
    """On the training device: nothing is copied to the host or back."""

    def __init__(self, capacity: int, num_features: int, device: torch.device, seed: int = 1) -> None:
        self.capacity, self.device = capacity, device
        self.at = self.size = 0
        self.random = torch.Generator(device).manual_seed(seed)
        self.states, self.next_states = (torch.zeros(capacity, num_features, device=device) for _ in range(2))
        self.actions = torch.zeros(capacity, dtype=torch.int64, device=device)
        self.rewards = torch.zeros(capacity, device=device)
        self.dones = torch.zeros(capacity, dtype=torch.bool, device=device)

    def __len__(self) -> int:
        return self.size

    def push_batch(self, states: Tensor, actions: Tensor, rewards: Tensor, next_states: Tensor, dones: Tensor) -> None:
        where = (self.at + torch.arange(len(states), device=self.device)) % self.capacity
        self.states[where], self.actions[where], self.rewards[where] = states, actions, rewards
        self.next_states[where], self.dones[where] = next_states, dones
        self.at = (self.at + len(states)) % self.capacity
        self.size = min(self.size + len(states), self.capacity)

    def sample(self, batch_size: int) -> Batch:
        pick = torch.randint(self.size, (batch_size,), generator=self.random, device=self.device)
        return tuple(x[pick] for x in (self.states, self.actions, self.rewards, self.next_states, self.dones))
