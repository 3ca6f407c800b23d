"""PyTorch: backward passes, gradients, copies of states, saves. What needs the recorder itself (model calls, optimizers,
compilers, devices) is in `integrations/torch.py`."""

from __future__ import annotations

import importlib
from typing import Any

from ..model import role as r
from ..model.adapter import Adapter, Target


def _install(patches: Any, torch: Any) -> None:
    importlib.import_module("hotloop.integrations.torch").install(patches, torch)  # by name: it lies above this room


ADAPTER = Adapter(
    "torch",
    "tensor runtime",
    packages=("torch", "torchgen", "functorch"),
    tried="torch 2.13",
    opaque=True,
    targets=(
        Target("torch", "autograd.grad", r.BACKWARD),
        Target("torch", "optim.Optimizer.zero_grad", r.ZERO_GRAD),
        Target("torch", "nn.Module.load_state_dict", r.STATE_COPY),
        Target("torch", "nn.Module.state_dict", r.STATE_COPY),
        Target("torch", "save", r.SAVE),
        Target("torch", "load", r.LOAD),
    ),
    modules=("torch",),
    install=_install,
)
