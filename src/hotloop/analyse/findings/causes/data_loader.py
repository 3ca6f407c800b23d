"""Batches come from a data loader more slowly than they are learnt from.

What to do: for data in memory use no loader; index arrays with one array of indices. Else give it workers that stay
(`num_workers=2, persistent_workers=True`), and a data set that answers for a whole batch (`__getitems__`).

    for batch in DataLoader(TensorDataset(obs, act), batch_size=64, shuffle=True): ...         # before: item by item
    for index in torch.randperm(len(obs)).split(64): batch = obs[index], act[index]            # after

When to ignore it: items are read from disk and the loader's workers keep up.

Recognised by: the share of the loop inside `torch.utils.data`, waiting for its workers included, 10 % or more."""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 205
ACTION = "index arrays in memory with one array of indices, or give the loader workers that stay"
TITLE = "{share} of the training loop waits for a data loader or makes its batches, in {function}"
LEAST_SHARE = 0.10


def find(e: Evidence) -> Candidate | None:
    found = [x for x in e.left if any("torch/utils/data" in p.file.replace("\\", "/") for p in x.places)]
    return claim(e, found, "learn/sample", TITLE, LEAST_SHARE, removes=0.9)
