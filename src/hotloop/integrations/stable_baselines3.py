"""Stable-Baselines3 and sb3-contrib: rollouts, training, buffers, evaluation, callbacks, logger.

What lives here: their hook points. Environments, policies and replay buffers are recognised as any others are; what is said
here is which methods are whole phases. Invariant: a class that is none of theirs, nor derived from one, is left to `classes`.
"""

from __future__ import annotations

from typing import Any

from . import _patch as p

MODULES = ("stable_baselines3.common.evaluation", "stable_baselines3.common.logger", "stable_baselines3.common.env_util")
_PACKAGES = ("stable_baselines3", "sb3_contrib")
_METHODS = {
    "collect_rollouts": p.ROLLOUT,
    "train": p.TRAIN,
    "compute_returns_and_advantage": p.ADVANTAGE,
    "get": p.SAMPLE,
    "save": p.SAVE,
    "on_step": p.CALLBACK,
    "on_rollout_start": p.CALLBACK,
    "on_rollout_end": p.CALLBACK,
    "update_locals": p.CALLBACK,
    "_update_info_buffer": p.BOOKKEEPING,
    "_store_transition": p.STORE,
    "_sample_action": p.FORWARD,
}
_LOGS = ("dump_logs", "_dump_logs")


def install(patches: p.Patches, module: Any) -> None:
    if module.__name__.endswith("evaluation"):
        patches.wrap(module, "evaluate_policy", p.EVALUATE)
    elif module.__name__.endswith("logger"):
        patches.wrap(module.Logger, "dump", p.LOGGING)
    else:
        patches.wrap(module, "make_vec_env", p.ENV_MAKE)


def look_at(patches: p.Patches, cls: type) -> bool:
    """A class of the library, or an algorithm derived from one of its; True if there is nothing more to say about it."""
    bases = {base.__name__ for base in cls.__mro__ if base.__module__.partition(".")[0] in _PACKAGES}
    algorithm = "BaseAlgorithm" in bases
    if not algorithm and cls.__module__.partition(".")[0] not in _PACKAGES:
        return False
    for name, value in vars(cls).items():
        role = _METHODS.get(name)
        if role is p.CALLBACK and "BaseCallback" not in bases:
            continue
        if name in _LOGS and algorithm:
            role = p.LOGGING
        elif name == "train" and not algorithm:
            role = None  # a policy's `train` is nn.Module's
        elif name == "get" and "BaseBuffer" not in bases:
            role = None
        if role is not None and callable(value):
            patches.wrap(cls, name, role)
    return algorithm
