"""d3rlpy: drawing from a dataset, updates, evaluation, logger. Offline, so there may be no environment at all.

Networks and optimizers are recognised as any others are; what is said here is what the library calls by names of its own.
"""

from __future__ import annotations

from ..model import role as r
from ..model.adapter import Adapter, Kind, Target

_DRAWING = ("sample_transition_batch", "sample_trajectory_batch")
_EVALUATIONS = ("evaluate_qlearning_with_environment", "evaluate_transformer_with_environment")

ADAPTER = Adapter(
    "d3rlpy",
    "RL framework",
    packages=("d3rlpy",),
    tried="d3rlpy 2.8",
    targets=(
        *(Target("d3rlpy.metrics.utility", name, r.EVALUATE) for name in _EVALUATIONS),
        Target("d3rlpy.logging.logger", "D3RLPyLogger.commit", r.LOGGING),
        Target("d3rlpy.logging.logger", "D3RLPyLogger.save_model", r.SAVE),
    ),
    kinds=(
        Kind("ReplayBufferBase", {**dict.fromkeys(_DRAWING, r.SAMPLE), "append": r.STORE}),
        Kind("LearnableBase", {"update": r.TRAIN}),
    ),
)
