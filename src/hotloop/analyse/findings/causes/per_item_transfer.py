"""`.item()`, `.cpu()`, `.numpy()` per element in a loop.

What to do: convert the whole batch once, then index or compute on the array. If you need only a few, select them first.

    rewards = [r.item() for r in batch]   # before
    rewards = batch.cpu().numpy()         # after

Each call costs a microsecond or more on the CPU, and on a GPU a wait until all queued work is done. Recognised by: lines in
loops that convert tensors, by the share of stack samples in the converting call itself, and by counting such calls: in short
windows on the CPU, all of them on a GPU."""

from __future__ import annotations

import re
from collections import Counter

from ....model.phase import EVAL
from ....model.shard import Place
from ...mechanisms import callee
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim

TURN = 140
REWRITES = True
ACTION = "convert the whole batch once (.cpu().numpy()) and compute on the array"
TITLE = "{share} of the training loop takes tensors apart one element at a time, in {function}"
LEAST_SHARE = 0.12
_CONVERTS = re.compile(r"\.item\(\)|\.cpu\(\)|\.numpy\(\)|\.tolist\(\)|\b(float|int|bool)\([^()]*\[[^\]]*\]")
_GOES_ON, _IS_MADE = re.compile(r"\.(item|cpu|numpy|tolist)\(\)"), re.compile(r"\b(float|int|bool)\($")
_COMPREHENSION = re.compile(r"<(listcomp|genexpr|dictcomp|setcomp)>$")
_FOR = re.compile(r"\bfor\b")


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _converts(e, x))
    span = next((x.label for x in found), "") or "collect/other"
    where = e.blame(found, share=0.6)
    said = "{share} of the loop is in calls that convert single elements", *_counted(e, where)
    return claim(e, found, span, TITLE, LEAST_SHARE, *said, where=where)


def _counted(e: Evidence, where: Place) -> tuple[str, ...]:
    """How often the tensors' own methods were called in that function, where that was counted."""
    calls: Counter[str] = Counter()
    for t in e.diagnosis.reads:
        if (t.file, t.function.rpartition(".<locals>")[0] or t.function) == (where.file, where.function):
            calls[t.call] += t.count
    if not calls:
        return ()
    each = f", {sum(calls.values()) / e.env_steps:.1f} per env step" if e.env_steps else ""
    said = ", ".join(f"{count:,} × {call}" for call, count in calls.most_common(3))
    return (f"about {said}{each}",)


def _converts(e: Evidence, piece: Slice) -> bool:
    if piece.phase == EVAL or any(label.endswith(("env_step", "env_reset", "/evaluate")) for label in piece.labels):
        return False
    place = e.innermost(piece.places)
    if place is None or not _takes_apart(e, place):
        return False
    looped = _per_item(e.loops_around(place)) or _FOR.search(e.text(place)) or _COMPREHENSION.search(place.function)
    return bool(looped)


def _takes_apart(e: Evidence, place: Place) -> bool:
    """Is the call that was at work one that takes a tensor apart? A line may hold several; only its own time is claimed."""
    if place.columns == (0, 0):
        return bool(_CONVERTS.search(e.text(place)))
    text, (first, last) = e.mechanisms.expression(place), place.columns
    line = e.text(place).encode()
    name = callee(text)
    if not name and (
        _GOES_ON.match(line[last:].decode(errors="replace")) or _IS_MADE.search(line[:first].decode(errors="replace"))
    ):
        return True  # what is taken apart: `x[i, j]` of `x[i, j].item()` and of `float(x[i, j])`
    return name in ("item", "cpu", "numpy", "tolist") or (name in ("float", "int", "bool") and bool(_CONVERTS.search(text)))


def _per_item(loops: list[str]) -> bool:
    """The innermost loop goes over elements, not over updates, episodes or steps of the training."""
    return bool(loops) and not re.search(
        r"epoch|episode|step|update|iteration|while|batch(es)?\b|total|rollout|horizon", loops[0]
    )
