"""The script's step counter is not the number of env steps.

What to do: `global_step += envs.num_envs` instead of `global_step += 1`. Schedules, logging and evaluation that go by the
counter then come num_envs times as soon: adapt them. If you mean to count vector steps, say so where a budget is stated.

A step of a vector environment is counted as one. Nothing is slow, but the run is longer than its budget says, and its curves
cannot be compared. Recognised by: the step the script passes to its logger against the env steps that HotLoop counted, or a
line beside the vector step that adds one to a counter of steps."""

from __future__ import annotations

import re

from ....model.shard import Place
from ..evidence import ENV_METHODS, Evidence
from ..rule import Candidate, Expected

TURN = 330
ACTION = "count env steps as vector steps × environments, everywhere"
_COUNTS = re.compile(r"(?P<name>\w*(?:step|frame|interaction)s?\w*)\s*\+=\s*1\b")


def find(e: Evidence) -> Candidate | None:
    said = e.facts.get("said_steps", 0)
    vectors = sum(o.calls for o in e.diagnosis.operations if o.name == "collect/env_step")
    if not e.env_steps or not vectors or e.env_steps < 1.5 * vectors:
        return None
    envs = e.env_steps / vectors
    line = _counting_line(e)
    if not (said and abs(said - vectors) < 0.1 * vectors) and line is None:
        return None
    budget = line is not None and line[1]  # the counter decides how long the run is
    return Candidate(
        f"the script counts {vectors:,} steps where {e.env_steps:,} env steps were taken: "
        f"a vector step of {envs:.0f} counted as one",
        line[0] if line else e.blame(e.where_label("env_step"), share=0.9),
        "collect/env_step",
        share=0.0,
        gain=Expected(0.9 * envs if budget else 1.0, envs),
        evidence=(f"{vectors:,} calls of step, {e.env_steps:,} env steps",),
    )


def _counting_line(e: Evidence) -> tuple[Place, bool] | None:
    """A line near a vector step that adds one to a counter of steps, and whether a loop or a condition ends at that counter."""
    callers = set()
    for piece in e.where_label("env_step"):
        inner = piece.inside(ENV_METHODS)
        outer = piece.places[: len(piece.places) - len(inner)] if inner else piece.places
        own = e.innermost(outer)
        if own is not None:
            callers.add((own.file, own.function, own.line, own.first_line))
    for file, function, line, first in sorted(callers):
        source = e.session.sources.get(file)
        for near in range(line, line + 12) if source else ():
            found = _COUNTS.search(source.text.get(near, "")) if source else None
            if found and source:
                last = next((b for _, a, b in source.functions if a == first), line + 60)
                text = "\n".join(source.text.get(n, "") for n in range(first, last + 1))
                ends = re.search(rf"(while|if)\b[^\n]*\b{re.escape(found['name'])}\b\s*(<|>=|>|==)", text)
                return Place(file, function, near), bool(ends)
    return None
