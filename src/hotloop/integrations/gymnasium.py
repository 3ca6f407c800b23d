"""Gymnasium: making environments. Their classes are recognised by `classes`, as any environment's are."""

from __future__ import annotations

from typing import Any

from . import _patch as p

MODULES = ("gymnasium.envs.registration",)


def install(patches: p.Patches, module: Any) -> None:
    for name in ("make", "make_vec"):
        patches.wrap(module, name, p.ENV_MAKE)
