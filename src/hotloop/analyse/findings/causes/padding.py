"""Batches of sequences carry filler that no sequence needs.

What to do: make each batch as long as its own longest sequence, not as long as the longest there could be; put sequences of
like length together.

    batch = np.zeros((n, env.max_steps, obs_size), np.float32)            # before
    batch = np.zeros((n, max(map(len, episodes)), obs_size), np.float32)   # after

When to ignore it: the shape has to stay the same (a compiled network, a CUDA graph); then a few fixed lengths do.

Recognised by: the first tensor of calls of networks with recurrent, attention or embedding layers, looked at now and then on
the CPU: steps at its end or beginning that are zero (of whole numbers: one and the same) in all sequences of the batch,
for a fifth of its length or more. Predicted: that part of the arithmetic of these calls and of their backward passes."""

from __future__ import annotations

from ....model.mechanism import COMPUTING, MOVING
from ..evidence import Evidence
from ..rule import Candidate, claim, percent, total

TURN = 192
MECHANISM = COMPUTING
ACTION = "make each batch as long as its own longest sequence, not as long as the longest there could be"
# A fifth of the arithmetic gone is 1.25 x at best, from where a finding is a warning; batches cut to their own longest sequence
# have none. Fewer than four looks may all have met one odd batch.
LEAST_FILLER, LEAST_LOOKED, LEAST_SHARE = 0.2, 4, 0.10
_DOING = {"learn": "learning", "collect": "collecting"}
_CALLS = {"learn": ("learn/forward", "learn/backward"), "collect": ("collect/policy",)}


def find(e: Evidence) -> Candidate | None:
    filler = {phase: part for phase in _CALLS if (part := _filler(e, phase)) >= LEAST_FILLER}
    found = [(x, part) for phase, part in filler.items() for x in e.left if any(label in x.labels for label in _CALLS[phase])]
    if not found:
        return None
    goes = sum(x.ns * (x.part(COMPUTING) + x.part(MOVING)) * part for x, part in found)
    slices = [x for x, _ in found]
    said = " and ".join(f"{percent(part)} filler while {_DOING[phase]}" for phase, part in filler.items())
    title = f"sequences are {said}; the networks that get them take {{share}} of the loop"
    where = e.blame([x for x in slices if "learn/backward" not in x.labels])
    seen = "the same filler at one end of all sequences of a batch, in the calls that were looked at"
    return claim(e, slices, slices[0].label, title, LEAST_SHARE, seen, where=where, removes=goes / total(slices))


def _filler(e: Evidence, phase: str) -> float:
    looked = e.facts.get(f"{phase}_sequences", 0) / 1000
    return e.facts.get(f"{phase}_filler", 0) / 1000 / looked if looked >= LEAST_LOOKED else 0.0
