"""What a script writes: print, logging, TensorBoard, and text written to files and terminals; and who else writes logs.

Invariant: what is written stays as it is; of it, only the step that a script says it is at is read.
"""

from __future__ import annotations

from typing import Any

from ..model import role as r
from ..model.adapter import Adapter, Target

_PACKAGES = ("logging", "tensorboard", "tensorboardX", "wandb", "mlflow", "neptune", "loguru", "tqdm", "csv", "aim",
             "comet_ml")  # fmt: skip
_WRITER = ("add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_video", "add_figure", "add_text",
           "add_hparams", "add_graph", "flush")  # fmt: skip


def _install(patches: Any, module: Any) -> None:
    if module.__name__ == "builtins":
        patches.recorder.hook_writes()
        return
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
            patches.wrap(module.SummaryWriter, name, r.TENSORBOARD, wrote if name == "add_scalar" else None)


ADAPTER = Adapter(
    "logs",
    "logging",
    packages=_PACKAGES,
    tried="tensorboard 2.21",
    opaque=True,
    targets=(Target("builtins", "print", r.PRINT), Target("logging", "Logger.handle", r.LOGGING)),
    modules=("builtins", "torch.utils.tensorboard.writer", "tensorboardX.writer"),
    install=_install,
)
