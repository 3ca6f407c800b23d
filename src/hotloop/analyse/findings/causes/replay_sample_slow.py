"""Replay batches are put together transition by transition.

What to do: keep transitions in preallocated arrays, one per field, and index them with one array of indices:

    obs = np.stack([t.obs for t in random.sample(memory, 64)])   # before; zip(*batch) is as slow
    index = rng.integers(size, size=64); obs = all_obs[index]    # after: all_obs = np.empty((capacity, obs_size), np.float32)

Each object costs Python calls: `random.sample` over a deque, `np.stack` of many small arrays, a DataLoader that collates
objects. Recognised by: the share of the loop inside a buffer's `sample`, measured directly, or, while learning, in functions
that gather items (stack, zip, a loop) and whose names say that they make batches (sample, collate, fetch, …)."""

from __future__ import annotations

import re

from ....model.phase import COLLECT
from ....model.shard import WAIT
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim, per_call

TURN = 210
REWRITES = True
ACTION = "keep transitions in preallocated arrays and take a batch with one index array"
TITLE = "{share} of the training loop puts batches together, in {function}"
LEAST_SHARE = 0.15
_NAMES = re.compile(r"sample|collate|get_batch|make_batch|minibatch|_stack_batch|to_batch|assemble|fetch|gather_batch", re.I)
_GATHERS = re.compile(
    r"stack\(|concatenate\(|\bcat\(|np\.array\(|zip\(\*|random\.sample|torch\.tensor\(|as_tensor\(|\bfor\b.+\bin\b"
)
_OF_MODEL = re.compile(r"[/\\\\]torch[/\\\\]distributions[/\\\\]")


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _samples(e, x))
    names = {p.function.rpartition(".")[2] for x in found for p in x.places if _NAMES.search(p.function)}
    where = e.blame(found, names, through=True)
    if not e.is_script(where):  # a library's buffer: what counts is where the script samples from it
        where = e.blame(found, through=True)
    said = f"putting a batch together takes {per_call(e, 'learn/sample') / 1e6:,.2f} ms"
    return claim(e, found, "learn/sample", TITLE, LEAST_SHARE, said, where=where, removes=0.92)


def _samples(e: Evidence, piece: Slice) -> bool:
    if any(label.endswith("learn/sample") for label in piece.labels):
        return True
    if any(label.endswith(("env_step", "env_reset", "policy", "forward", "backward", "optimizer")) for label in piece.labels):
        return False
    if piece.phase == COLLECT or piece.kind == WAIT or any(_OF_MODEL.search(p.file) for p in piece.places):
        return False
    named = (p for p in piece.places if e.is_yours(p) and _NAMES.search(p.function.rpartition(".")[2]))
    return any(_GATHERS.search(line) for place in named for line in e.text_around(place))
