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

from ....model.phase import CHECKPOINT, EVAL, LOG
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim

TURN = 152
REWRITES = True
ACTION = "do not pack what stays in the process; between processes use shared memory, or pack seldom"
TITLE = "{share} of the training loop packs or unpacks data, in {function}"
LEAST_SHARE = 0.10
_CALLS = re.compile(
    r"\b(pickle|cPickle|dill|cloudpickle|json|ujson|orjson|simplejson|marshal|msgpack|zlib|gzip|bz2|lzma|lz4(\.frame)?|zstd|zstandard"
    r"|snappy|blosc|base64|yaml|joblib)\.\w+\("
)
_FILES = re.compile(r"[/\\](pickle|_compat_pickle|json|gzip|bz2|lzma|base64|cloudpickle|dill|msgpack|yaml|joblib)([/\\]|\.py)")


def find(e: Evidence) -> Candidate | None:
    return claim(e, [x for x in e.left if _packs(e, x)], "between calls", TITLE, LEAST_SHARE, held=0.6, removes=0.9)


def _packs(e: Evidence, piece: Slice) -> bool:
    if piece.phase in (LOG, CHECKPOINT, EVAL) or not piece.places:
        return False
    own = e.innermost(piece.places)
    if own is None:
        return False
    inner = piece.places[piece.places.index(own) + 1 :]
    return any(_FILES.search(p.file) for p in inner) or bool(_CALLS.search(e.mechanisms.expression(own)))
