"""Stable-Baselines3, sb3-contrib and the zoo: rollouts, training, buffers, evaluation, callbacks, logger.

Environments, policies and replay buffers are recognised as any others are; what is said here is which methods are whole phases.
"""

from __future__ import annotations

from ..model import roles
from ..model.adapter import Adapter, Kind, Target

_ALGORITHM = {
    "collect_rollouts": roles.ROLLOUT,
    "train": roles.TRAIN,
    "save": roles.SAVE,
    "dump_logs": roles.LOGGING,
    "_dump_logs": roles.LOGGING,
    "_update_info_buffer": roles.BOOKKEEPING,
    "_store_transition": roles.STORE,
    "_sample_action": roles.FORWARD,
}
_CALLBACK = ("on_step", "on_rollout_start", "on_rollout_end", "update_locals")

ADAPTER = Adapter(
    "stable_baselines3",
    "RL framework",
    packages=("stable_baselines3", "sb3_contrib", "rl_zoo3"),
    tried="stable_baselines3 2.3 to 2.9",
    noted=("stable_baselines3", "sb3_contrib"),
    targets=(
        Target("stable_baselines3.common.evaluation", "evaluate_policy", roles.EVALUATE),
        Target("stable_baselines3.common.logger", "Logger.dump", roles.LOGGING),
        Target("stable_baselines3.common.env_util", "make_vec_env", roles.ENV_MAKE),
    ),
    kinds=(
        Kind("BaseAlgorithm", _ALGORITHM, derived=True),
        Kind("BaseBuffer", {"get": roles.SAMPLE, "compute_returns_and_advantage": roles.ADVANTAGE}),
        Kind("BaseCallback", dict.fromkeys(_CALLBACK, roles.CALLBACK)),
        Kind("", {"save": roles.SAVE}),
    ),
)
