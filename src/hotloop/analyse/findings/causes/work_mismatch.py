"""Counters disagree with the work done.

The script's own step counter (as it logs it) is not the number of env steps taken: a vector step counted as one, frames counted
as steps.

Recognised by: the step the script passes to its logger against the env steps counted here.

What to do: count num_envs per vector step, and state which of the two a budget means.
"""

from __future__ import annotations

import re

from ....model.finding import Gain
from ..evidence import Evidence, Where
from ..rule import Candidate, Cause

CAUSE = Cause(
    "work-mismatch", "counters disagree with the work done", "count env steps as vector steps × environments, everywhere"
)
_COUNTS = re.compile(r"(\w*steps?|frames?|total_?steps|global_step|t)\s*\+=\s*1\b")


def look(e: Evidence) -> Candidate | None:
    said = e.facts.get("said_steps", 0)
    vectors = sum(o.calls for o in e.report.operations if o.name == "collect/env_step")
    if not e.env_steps or not vectors or (len(e.session.shards) > 1 and not e.session.shards[0].counters.get("env_steps")):
        return None
    envs = e.env_steps / vectors
    line = _counting_line(e) if envs > 1.5 else None
    if not (said and envs > 1.5 and abs(said - vectors) < 0.1 * vectors) and line is None:
        return None
    where = line or e.blame(e.where_label("env_step"), share=0.9)
    return Candidate(
        CAUSE,
        f"the script counts {vectors:,} steps where {e.env_steps:,} env steps were taken: "
        f"a vector step of {envs:.0f} counted as one",
        where,
        "collect/env_step",
        (),
        share=0.0,
        gain=Gain(1.0, 1.0, envs),
        evidence=(f"{vectors:,} calls of step, {e.env_steps:,} env steps",),
    )


def _counting_line(e: Evidence) -> Where | None:
    """A line that adds one to a step counter, right after a vector step."""
    called = {(p.file, p.function): p.line for x in e.where_label("env_step") for p in x.places if e.is_yours(p)}
    for (file, function), line in called.items():
        source = e.session.sources.get(file)
        if source is None or function.rpartition(".")[2] in ("step", "reset"):
            continue
        for near in range(line, line + 12):
            if _COUNTS.search(source.text.get(near, "")):
                return Where(file, near, function)
    return None
