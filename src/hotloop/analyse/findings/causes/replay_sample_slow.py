"""Object-by-object replay sampling or collation.

Batches are put together from single transitions in Python: `random.sample` over a deque, `zip(*batch)`, `np.stack` of many
small arrays, a DataLoader that collates objects.

Recognised by: the share of the loop inside a buffer's `sample`, or in collating functions.

What to do: keep transitions in preallocated arrays and index them with one array of indices.
"""

from __future__ import annotations

import re

from ..evidence import Evidence, Slice
from ..rule import Candidate, function_name, per_call, percent

ACTION = "keep transitions in preallocated arrays and take a batch with one index array"
LEAST_SHARE = 0.15
_NAMES = re.compile(r"sample|collate|get_batch|make_batch|minibatch|_stack_batch|to_batch|assemble|fetch|gather_batch", re.I)
_OF_MODEL = re.compile(r"[/\\\\]torch[/\\\\]distributions[/\\\\]")


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _samples(e, x))
    share = e.share(found)
    if share < LEAST_SHARE:
        return None
    where = e.blame(found, {p.function.rpartition(".")[2] for x in found for p in x.places if _NAMES.search(p.function)})
    if not e.is_script(where):  # a library's buffer: what counts is where the script samples from it
        where = e.blame(found)
    return Candidate(
        f"{percent(share)} of the training loop puts batches together, in {function_name(where)}",
        where,
        "learn/sample",
        tuple(found),
        removes=0.92,
        evidence=(f"a batch takes {per_call(e, 'learn/sample') / 1e6:,.2f} ms",),
    )


def _samples(e: Evidence, piece: Slice) -> bool:
    if any(label.endswith("learn/sample") for label in piece.labels):
        return True
    if any(label.endswith(("env_step", "env_reset", "policy", "forward", "backward", "optimizer")) for label in piece.labels):
        return False
    if any("torch/utils/data" in p.file for p in piece.places):
        return True
    last = [p.function.rpartition(".")[2] for p in piece.places if e.is_yours(p)]
    return any(_NAMES.search(name) for name in last) and not any(_OF_MODEL.search(p.file) for p in piece.places)
