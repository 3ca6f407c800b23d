"""Stable-Baselines3, sb3-contrib and the zoo: rollouts, training, buffers, evaluation, callbacks, logger.

Environments, policies and replay buffers are recognised as any others are; what is said here is which methods are whole phases.
"""

from __future__ import annotations

from ..model import role as r
from ..model.adapter import Adapter, Kind, Target

_ALGORITHM = {
    "collect_rollouts": r.ROLLOUT,
    "train": r.TRAIN,
    "save": r.SAVE,
    "save_replay_buffer": r.SAVE,
    "dump_logs": r.LOGGING,
    "_dump_logs": r.LOGGING,
    "_update_info_buffer": r.BOOKKEEPING,
    "_store_transition": r.STORE,
    "_sample_action": r.FORWARD,
}
_CALLBACK = ("on_step", "on_rollout_start", "on_rollout_end", "update_locals")

ADAPTER = Adapter(
    "stable_baselines3",
    "RL framework",
    packages=("stable_baselines3", "sb3_contrib", "rl_zoo3"),
    tried="stable_baselines3 2.3 to 2.9",
    targets=(
        Target("stable_baselines3.common.evaluation", "evaluate_policy", r.EVALUATE),
        Target("stable_baselines3.common.logger", "Logger.dump", r.LOGGING),
        Target("stable_baselines3.common.env_util", "make_vec_env", r.ENV_MAKE),
    ),
    kinds=(
        Kind("BaseAlgorithm", _ALGORITHM, derived=True),
        Kind("BaseBuffer", {"get": r.SAMPLE, "compute_returns_and_advantage": r.ADVANTAGE}),
        Kind("BaseCallback", dict.fromkeys(_CALLBACK, r.CALLBACK)),
        Kind("", {"save": r.SAVE}),
    ),
)
