"""Packing and unpacking data (pickle, json, compression) takes much of the loop.

What to do: do not pack what stays in the process. Between processes send arrays through shared memory
(`multiprocessing.shared_memory`, torch's shared tensors), or pack large pieces seldom. Compress when you save, not when you
store.

    self.data.append(zlib.compress(pickle.dumps(transition)))   # before: at every step
    self.obs[self.at] = transition.obs                          # after: into an array made once

When to ignore it: memory would not hold the data otherwise.

Recognised by: stack samples in calls of pickle, json, zlib and their like, by your own code or by what it calls, for 10 % of
the loop or more."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....model.mechanism import MOVING
from ....model.phase import CHECKPOINT, EVAL, LOG
from ....model.shard import Place
from ..evidence import Evidence
from ..others import find_culprit
from ..rule import Candidate, claim, function_name, percent

TURN = 152
REWRITES = True
ACTION = "do not pack what stays in the process; between processes use shared memory, or pack seldom"
TITLE = "{share} of the training loop packs or unpacks data, in {function}"
LEAST_SHARE = 0.10
_CALLS = re.compile(
    r"\b(pickle|cPickle|dill|cloudpickle|json|ujson|orjson|simplejson|marshal|msgpack|zlib|gzip|bz2|lzma|lz4(\.frame)?|zstd|zstandard"
    r"|snappy|blosc|base64|yaml|joblib)\.\w+\("
)
_FILES = re.compile(
    r"[/\\](multiprocessing[/\\]reduction|pickle|_compat_pickle|json|zipfile|gzip|bz2|lzma|base64|cloudpickle|dill|msgpack|yaml"
    r"|joblib|numpy[/\\]lib[/\\]_?(format|npyio)(_impl)?)([/\\]|\.py)"
)
_SENDS = re.compile(r"[/\\\\]multiprocessing[/\\\\](connection|queues)\.py$")


def find(e: Evidence) -> list[Candidate]:
    own = [x for x in e.left if x.phase not in (LOG, CHECKPOINT, EVAL) and _packs(e, x.places)]
    found = claim(e, own, "between calls", TITLE, LEAST_SHARE, held=0.6, removes=0.9), _in_others(e)
    return [x for x in found if x is not None]


def _packs(e: Evidence, places: Sequence[Place]) -> bool:
    """Below code of the user's; or, in a thread that has none of it, anywhere."""
    own = e.innermost(places)
    if own is None:
        return any(_FILES.search(p.file) for p in places)
    inner = places[places.index(own) + 1 :]
    return any(_FILES.search(p.file) for p in inner) or bool(_CALLS.search(e.mechanisms.expression(own)))


def _in_others(e: Evidence) -> Candidate | None:
    """Another thread or process packs, and the loop waits for it."""
    culprit = find_culprit(e)
    packing = [x for x in culprit.places if any(_packs(e, stack.places) for stack in x.stacks)] if culprit else []
    if culprit is None or not packing:
        return None
    sending = [x for x in culprit.places if x not in packing and _SENDS.search(x.where.file)]  # what was packed
    share = e.share(culprit.waits) * (1 - culprit.limits) * sum(x.share for x in (*packing, *sending))
    if share < LEAST_SHARE:
        return None
    return Candidate(
        f"for {percent(share)} of the training loop {culprit.name} packs or unpacks data, and the training waits for it",
        packing[0].where, culprit.waits[0].label, culprit.waits, share=share, removes=0.9, mechanism=MOVING,
        evidence=(f"the training waits in {function_name(e.blame(culprit.waits))}",),
    )  # fmt: skip
