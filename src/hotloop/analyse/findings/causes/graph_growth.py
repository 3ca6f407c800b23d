"""Tensors are kept with their graphs.

What to do: keep numbers (`losses.append(loss.item())`) or detached tensors (`loss.detach()`, which does not wait for a GPU),
not `loss` itself. Write `hidden = hidden.detach()` between updates, and drop `retain_graph=True`.

A list of losses, a running mean or a hidden state keeps every graph it came from alive: backward passes get longer, memory
grows. Recognised by: backward time per env step, growing with the run. Ignore it if sequences are meant to grow."""

from __future__ import annotations

from ..evidence import Evidence
from ..growth import memory_growth
from ..rule import Candidate, function_name, percent

TURN = 80
ACTION = "keep numbers (`.item()`, `.detach()`), not tensors with their graphs"


def find(e: Evidence) -> Candidate | None:
    growing = [g for g in e.growing if g.label in ("learn/backward", "learn/forward", "collect/policy")]
    memory = memory_growth(e)
    backward = e.where_label("backward")
    if not growing or growing[0].label != "learn/backward" or e.share(backward) < 0.15:
        return None
    where = e.blame(backward)
    grown = growing[0]
    return Candidate(
        f"backward passes take {grown.factor:.1f} × as long at the end as at the beginning; "
        f"they are {percent(e.share(backward))} of the loop",
        where,
        "learn/backward",
        tuple(backward),
        share=e.share(backward) * grown.excess,
        removes=1.0,
        evidence=(f"memory grew by {memory:.0f} MB in the later part of the run", f"called from {function_name(where)}"),
    )
