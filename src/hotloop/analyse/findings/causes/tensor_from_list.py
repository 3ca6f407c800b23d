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
from ..rule import Candidate, function_name, join, percent

ACTION = "make one NumPy array first (torch.from_numpy(np.stack(...))), or fill a preallocated one"
LEAST_SHARE = 0.10
_TEXT = re.compile(r"torch\.(tensor|as_tensor|Tensor|FloatTensor|LongTensor|DoubleTensor|stack)\(\s*(\[|list\(|\w+\s*[,)])")


def find(e: Evidence) -> Candidate | None:
    direct = e.where_label("tensor_from_list")
    found = join(direct, e.where(lambda x: _constructs(e, x)))
    share = e.share(found)
    if share < LEAST_SHARE or e.share(direct) < 0.3 * share:
        return None
    where = e.blame(found)
    return Candidate(
        f"{percent(share)} of the training loop builds tensors out of Python lists, in {function_name(where)}",
        where,
        "tensor_from_list",
        tuple(found),
        removes=0.93,
        evidence=(f"{percent(e.share(direct))} of the loop was measured in torch.tensor and its like, called with lists",),
    )


def _constructs(e: Evidence, piece: Slice) -> bool:
    own = e.innermost(piece.places)
    return own is not None and bool(_TEXT.search(e.text(own))) and piece.kind != WAIT
