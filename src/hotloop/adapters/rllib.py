"""RLlib: where an iteration ends. Its driver learns while its env runners, other processes, step the environments: an iteration
cannot be told there by the env step that follows learning, but RLlib has a word for it.

Invariant: what `step` returns or raises passes unchanged.
"""

from __future__ import annotations

import functools
from typing import Any

from ..model.adapter import Adapter


def _install(patches: Any, module: Any) -> None:
    patches.exchange(module.Algorithm, "step", lambda function: _closing(patches.recorder, function))


def _closing(recorder: Any, function: Any) -> Any:
    """What `Algorithm.train()` calls once an iteration, with the iteration closed after it."""

    @functools.wraps(function)
    def step(*args: Any, **keywords: Any) -> Any:
        result = function(*args, **keywords)
        try:
            recorder.step()
        except Exception:
            pass  # a fault of ours costs this iteration's row, never the training
        return result

    return step


ADAPTER = Adapter(
    "rllib",
    "RL framework",
    packages=("ray", "rllib"),
    tried="ray 2.60, new API stack",
    opaque=True,
    modules=("ray.rllib.algorithms.algorithm",),
    install=_install,
)
