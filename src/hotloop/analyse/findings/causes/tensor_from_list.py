"""Tensors built from lists of arrays.

What to do: make one NumPy array first, or fill a preallocated one. For a list of tensors use `torch.stack`.

    obs = torch.tensor(arrays)                                    # before
    obs = torch.from_numpy(np.stack(arrays).astype(np.float32))   # after: NumPy makes float64 of Python floats

`torch.tensor([array, array, …])` and its like go through every number as a Python object. Recognised by: time in tensor
constructors whose argument is a list, measured directly, and at lines that build such lists."""

from __future__ import annotations

import re

from ....model.shard import WAIT
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim, join, percent

TURN = 180
REWRITES = True
ACTION = "make one NumPy array first (torch.from_numpy(np.stack(...))), or fill a preallocated one"
TITLE = "{share} of the training loop builds tensors out of Python lists, in {function}"
LEAST_SHARE = 0.10
_TEXT = re.compile(r"torch\.(tensor|as_tensor|Tensor|FloatTensor|LongTensor|DoubleTensor|stack)\(\s*(\[|list\(|\w+\s*[,)])")


def find(e: Evidence) -> Candidate | None:
    direct = e.where_label("tensor_from_list")
    found = join(direct, e.where(lambda x: _constructs(e, x)))
    if e.share(direct) < 0.3 * e.share(found):
        return None
    said = f"{percent(e.share(direct))} of the loop was measured in torch.tensor and its like, called with lists"
    return claim(e, found, "tensor_from_list", TITLE, LEAST_SHARE, said, removes=0.93)


def _constructs(e: Evidence, piece: Slice) -> bool:
    own = e.innermost(piece.places)
    return own is not None and bool(_TEXT.search(e.text(own))) and piece.kind != WAIT
