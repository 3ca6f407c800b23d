"""One slow environment makes all others wait.

What to do: find out what the named environment does more than the others (a harder level, finer physics) and make it cheaper.
Or group environments of similar cost. Or step without lockstep: fast ones then give more of the data.

In lockstep a round takes as long as the slowest environment, and the others idle. Recognised by: the time a step takes in each
worker; the slowest against the median, and how long the main thread waits."""

from __future__ import annotations

from statistics import median

from ....model.shard import WAIT
from ...environments import LEAST_RATIO, Environment
from ..evidence import ENV_METHODS, Evidence, Slice
from ..rule import Candidate, percent, predict

TURN = 30
ACTION = "make the slow environment cheaper, group environments of similar cost, or step without lockstep"
LEAST_SHARE = 0.10
GOES = 0.9  # of it: then the next slowest is waited for (0.88 and 0.93 of it went in two cases)


def find(e: Evidence) -> Candidate | None:
    lanes = e.env_lanes
    if len(lanes) < 2:
        return None
    typical = median(lane.step_ns for lane in lanes)
    worst = max(lanes, key=lambda lane: lane.step_ns)
    name, calls, slowest = worst.name, worst.steps, worst.step_ns
    steps = e.where_label("env_step") or e.where(lambda x: x.kind == WAIT)
    share = e.share(steps)
    if not typical or slowest / typical < LEAST_RATIO or share < LEAST_SHARE:
        return None
    rounds = calls * slowest / e.loop_ns  # of the loop, the slowest was stepping
    lost = min(share, rounds) * (1 - typical / slowest)
    if lost < LEAST_SHARE:
        return None
    where = e.blame(_slices(e, worst), ENV_METHODS)
    return Candidate(
        f"{name} takes {slowest / typical:.1f} × as long for a step as the others, "
        f"which wait for it {percent(lost)} of the loop",
        where,
        "collect/env_step",
        tuple(steps),
        share=lost,
        gain=predict(lost, GOES),
        evidence=(f"{name}: {slowest / 1e6:.2f} ms a step; the median of {len(lanes)} environments is {typical / 1e6:.2f} ms",),
    )


def _slices(e: Evidence, lane: Environment) -> list[Slice]:
    return [x for x in e.lane(lane.shard, lane.track) if any(label.endswith("env_step") for label in x.labels)]
