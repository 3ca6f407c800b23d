"""The job shops as a TorchRL environment: tensors in and out of `shop.py`, nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from shop import FEATURES, Size, make_shops
from spans import called_back
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Binary, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from hotloop import count, profile_function


class PetriEnv(EnvBase):
    """`shops` job shops stepped together; those that are done get new orders when the collector asks for it.

    Without a device TorchRL copies nothing between its tensordicts and ours: give it one only where the policy has another.
    """

    def __init__(self, turbo: bool, shops: int, size: Size, seed: int, device: str | None = None) -> None:
        super().__init__(device=device, batch_size=[shops])
        self.shops = make_shops(turbo, shops, size, seed)
        rows = size.jobs + 1
        self.observation_spec = Composite(
            observation=Unbounded((shops, rows, len(FEATURES)), device=device),
            action_mask=Binary(shape=(shops, rows), dtype=torch.bool, device=device),
            shape=(shops,),
            device=device,
        )
        self.action_spec = Categorical(rows, shape=(shops,), device=device)
        self.reward_spec = Unbounded((shops, 1), device=device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        return TensorDict(self._play(tensordict.get("action")), self.batch_size, device=self.device)

    def _reset(self, tensordict: TensorDictBase | None = None, **_: object) -> TensorDictBase:
        asked = None if tensordict is None else tensordict.get("_reset", None)
        which = range(len(self.shops)) if asked is None else asked.flatten().nonzero().flatten().tolist()
        count("resets", len(which))
        return TensorDict(self._restart(which), self.batch_size, device=self.device)

    @called_back
    @profile_function("env_step")
    def _play(self, action: torch.Tensor) -> dict[str, torch.Tensor]:
        self.shops.step(action.tolist())
        return {**self._see(), "reward": torch.from_numpy(self.shops.reward.copy()).unsqueeze(1)}

    @called_back
    @profile_function("env_reset")
    def _restart(self, which: Sequence[int]) -> dict[str, torch.Tensor]:
        self.shops.reset(which)
        return self._see()

    def _see(self) -> dict[str, torch.Tensor]:
        """Copies: the shops fill the same arrays again at the next step."""
        done = torch.from_numpy(self.shops.done.copy()).unsqueeze(1)
        return {
            "observation": torch.from_numpy(self.shops.observation.copy()),
            "action_mask": torch.from_numpy(self.shops.mask.copy()),
            "done": done,
            "terminated": done.clone(),
        }

    def _set_seed(self, seed: int | None) -> None:
        """The shops were seeded when they were made; TorchRL asks for the method."""
