"""An environment wrapper does the heavy work.

What to do: make the wrapper cheaper (no copies, running statistics instead of recomputing), or put it around the vector
environment, so that it works on batches. Statistics are then shared by all environments, which changes the numbers a little.

    envs = SyncVectorEnv([lambda: NormalizeObservation(make())] * 8)             # before: 8 calls a step
    envs = gym.wrappers.vector.NormalizeObservation(SyncVectorEnv([make] * 8))   # after: 1; SB3: VecNormalize

The environment itself is cheap; a wrapper (frame stacking, normalising, scaling, copying) takes the time. Recognised by: the
time every layer of an environment takes itself, wrapper by wrapper."""

from __future__ import annotations

import re
from collections import defaultdict

from ....model.shard import WAIT
from ..evidence import ENV_METHODS, Evidence, Slice
from ..places import is_vector
from ..rule import Candidate, function_name, percent, total

TURN = 90
ACTION = "make the wrapper cheaper, or put it around the vector environment, where it works on whole batches"
_LAYER = re.compile(r"[^/()]+\.(step|reset|step_and_maybe_reset)")
LEAST_SHARE = 0.12
LEAST_PART = 0.25  # of what the heaviest wrapper takes: another that takes less is not worth moving


def find(e: Evidence) -> Candidate | None:
    layers: dict[str, list[Slice]] = defaultdict(list)
    holders: set[str] = set()
    for piece in e.where_label("env_step"):
        names = [label for label in piece.labels if _LAYER.fullmatch(label)]
        if names:
            layers[names[-1]].append(piece)
            holders.update(names[:-1])
    wrappers = {name: slices for name, slices in layers.items() if name in holders and _is_wrapper(slices)}
    if not wrappers:
        return None
    name = max(wrappers, key=lambda n: total(wrappers[n]))
    heavy = [n for n in wrappers if total(wrappers[n]) >= LEAST_PART * total(wrappers[name])]
    slices = [x for n in heavy for x in wrappers[n] if x.kind != WAIT]
    share = e.share(slices)
    core = e.share(x for n, found in layers.items() if n not in holders for x in found)
    if share < LEAST_SHARE or share < core:
        return None
    where = e.blame(wrappers[name], ENV_METHODS)
    return Candidate(
        f"{_names(heavy)} {percent(share)} of the loop, the environment inside {percent(core)}",
        where,
        name,
        tuple(slices),
        evidence=(
            f"each layer without those inside it: {', '.join(f'{n} {percent(e.share(x))}' for n, x in layers.items())}",
            f"most of it in {function_name(where)}",
        ),
    )


def _names(labels: list[str]) -> str:
    names = list(dict.fromkeys(label.partition(".")[0] for label in labels))
    return f"the wrapper {names[0]} takes" if len(names) == 1 else f"the wrappers {', '.join(names)} take"


def _is_wrapper(slices: list[Slice]) -> bool:
    """One environment around another; a vector environment is around many."""
    return not any(is_vector(x.labels[-1]) for x in slices[:1])
