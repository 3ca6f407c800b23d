"""Saving to files, by whatever a script or a library saves with: pickle, NumPy, joblib, h5py. torch's own is torch's.

Invariant: what is written stays as it is.
"""

from __future__ import annotations

from ..model import role as r
from ..model.adapter import Adapter, Target

ADAPTER = Adapter(
    "saving",
    "logging",
    packages=("joblib", "h5py", "zarr"),
    tried="Python 3.11 to 3.13, numpy 2.4",
    opaque=True,
    targets=(
        Target("pickle", "dump", r.SAVE),
        *(Target("numpy", name, r.SAVE) for name in ("save", "savez", "savez_compressed", "savetxt")),
        Target("joblib", "dump", r.SAVE),
        Target("h5py", "File.flush", r.SAVE),
    ),
)
