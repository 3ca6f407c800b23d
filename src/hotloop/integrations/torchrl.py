"""TorchRL: environments and collectors, whose classes are `nn.Module`s or hide behind them, advantages and replay buffers.

What lives here: their hook points. Invariant: env steps are counted once, by the outermost environment.
"""

from __future__ import annotations

import functools
from typing import Any

from ..model import role as r
from ..model.phase import EVAL
from . import _patch as p

MODULES = ("torchrl.envs.common", "torchrl.data.replay_buffers.replay_buffers", "torchrl.objectives.value.advantages",
           "torchrl.collectors._single", "torchrl.collectors.collectors")  # fmt: skip


def install(patches: p.Patches, module: Any) -> None:
    name = module.__name__
    if name.endswith("envs.common"):
        _envs(patches, module)
    elif name.endswith("replay_buffers"):
        for method, role in (("extend", p.STORE), ("add", p.STORE), ("sample", p.SAMPLE)):
            patches.wrap(module.ReplayBuffer, method, role)
    elif name.endswith("advantages"):
        base = module.ValueEstimatorBase
        # `__call__` is nn.Module's: an attribute of this class that goes around it
        patches.put(base, "__call__", patches.hooked(base.__call__, p.ADVANTAGE))
    else:
        for kind in ("Collector", "SyncDataCollector"):
            cls = getattr(module, kind, None)
            if cls is not None and "rollout" in vars(cls):
                patches.wrap(cls, "rollout", p.ROLLOUT, _collected)
                if "_update_traj_ids" in vars(cls):
                    patches.wrap(cls, "_update_traj_ids", p.BOOKKEEPING)


state = {"collects": False}  # has a collector been at work?


def _collected(args: tuple[Any, ...], result: Any, phase: int) -> None:
    state["collects"] = True


def _envs(patches: p.Patches, module: Any) -> None:
    count = patches.recorder.count_seen

    def stepped(args: tuple[Any, ...], result: Any, phase: int) -> None:
        size = getattr(args[0], "batch_size", None)
        count("eval_env_steps" if phase == EVAL else "env_steps", size.numel() if size else 1)

    step = p.Role("env_step", p.STEP.phase, r.ENV, p.STEP.event, r.IN_ENV, r.IN_ENV, r.COUNT_ENDS)
    reset = p.Role("env_reset", p.RESET.phase, r.ENV, p.RESET.event, r.IN_ENV, r.IN_ENV, r.COUNT_RESET)
    for name in ("step", "step_and_maybe_reset"):
        patches.wrap(module.EnvBase, name, step, stepped)
    patches.wrap(module.EnvBase, "reset", reset)
    original = vars(module.EnvBase)["rollout"]
    evaluation = patches.hooked(original, p.EVALUATE)

    def rollout(env: Any, *args: Any, **keywords: Any) -> Any:
        """Beside a collector, a rollout is an evaluation; without one, it is how the script collects."""
        return (evaluation if state["collects"] else original)(env, *args, **keywords)

    patches.put(module.EnvBase, "rollout", functools.wraps(original)(rollout))
