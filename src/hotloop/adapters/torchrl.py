"""TorchRL: environments and collectors, whose classes are `nn.Module`s or hide behind them, advantages and replay buffers.

Invariant: env steps are counted once, by the outermost environment.
"""

from __future__ import annotations

import functools
from typing import Any

from ..model import role as r
from ..model.adapter import Adapter, Target

_ENVS, _BUFFERS = "torchrl.envs.common", "torchrl.data.replay_buffers.replay_buffers"
state = {"collects": False}  # has a collector been at work?


def _steps(args: tuple[Any, ...], result: Any) -> dict[str, int]:
    size = getattr(args[0], "batch_size", None)
    return {"env_steps": size.numel() if size else 1}


def _install(patches: Any, module: Any) -> None:
    if module.__name__ == _ENVS:
        patches.exchange(module.EnvBase, "rollout", lambda function: _rollout(patches, function))
    elif module.__name__.endswith("advantages"):
        base = module.ValueEstimatorBase
        # `__call__` is nn.Module's: an attribute of this class that goes around it
        patches.put(base, "__call__", patches.hooked(base.__call__, r.ADVANTAGE))
    else:
        for kind in ("Collector", "SyncDataCollector"):
            cls = getattr(module, kind, None)
            if cls is not None and "rollout" in vars(cls):
                patches.wrap(cls, "rollout", r.ROLLOUT, _collected)
                if "_update_traj_ids" in vars(cls):
                    patches.wrap(cls, "_update_traj_ids", r.BOOKKEEPING)


def _collected(args: tuple[Any, ...], result: Any, phase: int) -> None:
    state["collects"] = True


def _rollout(patches: Any, original: Any) -> Any:
    evaluation = patches.hooked(original, r.EVALUATE)

    @functools.wraps(original)
    def rollout(env: Any, *args: Any, **keywords: Any) -> Any:
        """Beside a collector, a rollout is an evaluation; without one, it is how the script collects."""
        return (evaluation if state["collects"] else original)(env, *args, **keywords)

    return rollout


ADAPTER = Adapter(
    "torchrl",
    "RL framework",
    packages=("torchrl", "tensordict"),
    tried="torchrl 0.14",
    opaque=True,
    targets=(
        Target(_ENVS, "EnvBase.step", r.COUNTED_STEP, _steps),
        Target(_ENVS, "EnvBase.step_and_maybe_reset", r.COUNTED_STEP, _steps),
        Target(_ENVS, "EnvBase.reset", r.RESET),
        Target(_BUFFERS, "ReplayBuffer.extend", r.STORE),
        Target(_BUFFERS, "ReplayBuffer.add", r.STORE),
        Target(_BUFFERS, "ReplayBuffer.sample", r.SAMPLE),
    ),
    modules=(_ENVS, "torchrl.objectives.value.advantages", "torchrl.collectors._single", "torchrl.collectors.collectors"),
    install=_install,
)
