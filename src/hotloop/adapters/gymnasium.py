"""Gymnasium: making environments, and which of them reset themselves a step late. Their classes are recognised by what they can
do, as any environment's are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ..model import role as r
from ..model.adapter import Adapter, Target

_INNER = ("env", "venv", "_env", "envs", "vec_env")  # where wrappers keep what they wrap
MOST_WRAPPERS = 32


def resets_in_next_step(env: Any) -> bool:
    """From 1.0 on: a vector environment in that mode, or `wrappers.Autoreset`, below any number of wrappers. None of the
    script's code runs for the answer; only gymnasium's own `metadata` is read."""
    version = _version(getattr(sys.modules.get("gymnasium"), "__version__", ""))
    if version < (1, 0):
        return False
    for layer in _layers(env):
        names = {(base.__module__.partition(".")[0], base.__name__) for base in type(layer).__mro__}
        if ("gymnasium", "Autoreset") in names:
            return True
        if ("gymnasium", "VectorEnv") in names and ("gymnasium", "VectorWrapper") not in names:
            if version < (1, 1):
                return True
            mode = layer.metadata.get("autoreset_mode")
            return str(getattr(mode, "name", mode)) in ("NEXT_STEP", "NextStep")
    return False


def _version(text: str) -> tuple[int, int]:
    parts = [part for part in text.split(".")[:2] if part.isdigit()]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 else (0, 0)


def _layers(env: Any) -> Iterator[Any]:
    """The environment, and what it wraps."""
    for _ in range(MOST_WRAPPERS):
        yield env
        own = _dictionary(env)
        inner = next((own[name] for name in _INNER if hasattr(type(own.get(name)), "step")), None)
        if inner is None:
            return
        env = inner


def _dictionary(target: Any) -> dict[str, Any]:
    try:
        own = object.__getattribute__(target, "__dict__")
    except AttributeError:
        return {}
    return own if isinstance(own, dict) else {}


ADAPTER = Adapter(
    "gymnasium",
    "env library",
    packages=("gymnasium", "gym"),
    tried="gymnasium 0.29 to 1.4",
    targets=tuple(Target("gymnasium.envs.registration", name, r.ENV_MAKE) for name in ("make", "make_vec")),
    resets_in_next_step=resets_in_next_step,
)
