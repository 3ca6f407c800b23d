"""The RL library's own plumbing dominates.

Most of the time is in the library around your environment and network: containers, checks, conversions.

Recognised by: the innermost frames of the samples that belong to the RL library, outside models and environments.

What to do: larger batches or more environments per call, so that the same plumbing carries more; or a leaner loop.
"""

from __future__ import annotations

from ....model.shard import WAIT
from ...owners import FRAMEWORK, owner_of
from ..evidence import Evidence, Slice
from ..rule import Candidate, percent

ACTION = "give each call more to carry: more environments, larger batches, fewer callbacks"
LEAST_SHARE, LEAST_SHARE_SINGLE = 0.35, 0.28  # the second where one environment is stepped at a time


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _plumbing(e, x))
    share = e.share(found)
    calls = sum(o.calls for o in e.diagnosis.operations if o.name == "collect/env_step")
    single = calls and e.env_steps < 1.5 * calls
    if share < (LEAST_SHARE_SINGLE if single else LEAST_SHARE):
        return None
    where = e.blame(found)
    # one environment a call: with more, what is paid per call (the network's launch cost too) is shared among them
    paid = e.where(lambda x: _plumbing(e, x) or x.label == "collect/policy") if single else found
    return Candidate(
        f"{percent(share)} of the training loop is the RL library's own code, outside networks and environments",
        where,
        "collect",
        tuple(paid),
        removes=0.95 if single else 0.6,
        evidence=(f"{percent(share)} of the samples end in the library's own functions",),
    )


def _plumbing(e: Evidence, piece: Slice) -> bool:
    if not piece.places or piece.kind == WAIT or any(label.endswith(("backward", "optimizer")) for label in piece.labels):
        return False
    return owner_of(piece.places[-1].file, e.owners) == FRAMEWORK
