"""What a script writes: print, logging, TensorBoard, and text written to files and terminals.

What lives here: the hook points of writing. Invariant: what is written stays as it is; of it, only the step
that a script says it is at is read.
"""

from __future__ import annotations

from typing import Any

from . import _patch as p

MODULES = ("builtins", "logging", "torch.utils.tensorboard.writer", "tensorboardX.writer")
_WRITER = ("add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_video", "add_figure", "add_text",
           "add_hparams", "add_graph", "flush")  # fmt: skip


def install(patches: p.Patches, module: Any) -> None:
    if module.__name__ == "builtins":
        patches.recorder.hook_writes()
        patches.wrap(module, "print", p.PRINT)
    elif module.__name__ == "logging":
        patches.wrap(module.Logger, "handle", p.LOGGING)
    else:
        count = patches.recorder.count
        latest = 0

        def wrote(args: tuple[Any, ...], result: Any, phase: int) -> None:
            """The step the script says it is at, where it says so: add_scalar(tag, value, global_step)."""
            nonlocal latest
            step = args[3] if len(args) > 3 else None
            if isinstance(step, int) and step > latest:
                count("~said_steps", step - latest)
                latest = step

        for name in _WRITER:
            if name in vars(module.SummaryWriter):
                after = wrote if name == "add_scalar" else None
                patches.wrap(module.SummaryWriter, name, p.TENSORBOARD, after)
