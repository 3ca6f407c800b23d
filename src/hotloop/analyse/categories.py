"""What kind of work an operation is, judged by its name.

What lives here: the one list of categories and the words that lead to them. The user's patterns come first, then the
first line below that has a word of the name. Invariant: every name has exactly one category.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

ENVIRONMENT, RENDERING, MODEL, POLICY, TRAINING = "Environment", "Rendering", "Model", "Policy", "Training"
DATA, TRANSFER, EVALUATION, LOGGING, OTHER = "Data", "Transfer", "Evaluation", "Logging", "Other"

# Order matters: `env_rgb_draw_walls` is drawing, `policy_loss` is training, `replay_update` is data, `evaluate_actions` is
# the policy at work but `evaluate_policy` an evaluation. A word is looked for in the name as `_words_of_it_`.
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (POLICY, ("_evaluate_action", "_log_prob", "_logits_")),
    (EVALUATION, ("_eval_", "_evaluat", "_validation_")),
    (LOGGING, ("_log_", "_logs_", "_logging_", "_logger_", "_checkpoint", "_tensorboard_", "_wandb_", "_save_", "_print_")),
    (RENDERING, ("render", "_draw", "resiz", "_rgb_", "_image", "_pixel")),
    (ENVIRONMENT, ("_env_", "_envs_", "environment", "_vec_env", "_simulator_", "_physics_", "_battle_", "_game_")),
    (DATA, ("_replay", "buffer", "_dataloader_", "_data_loader_")),
    (TRANSFER, ("_to_cpu_", "_to_gpu_", "_to_device_", "_gpu_cpu_", "_cpu_gpu_", "_transfer", "_h2d_", "_d2h_", "_pinned_")),
    (
        TRAINING,
        ("_train", "_update", "_optimizer_", "_optimiser_", "_backward_", "_backprop", "_loss", "_grad", "_learn", "_gae_",
         "_advantage"),
    ),
    (POLICY, ("_policy_", "_act_", "_action", "_actor_", "_critic_", "_value", "_agent_", "_hidden_state")),
    (
        MODEL,
        ("convlstm", "_model_", "_forward_", "_network_", "_net_", "encoder_", "decoder_", "_conv", "lstm_", "_attention_",
         "_inference_", "_predict", "_student_", "_teacher_", "_embedding"),
    ),
    (DATA, ("_collect", "_rollout", "_batch", "_sampl", "_dataset_", "_data_", "_tensordict", "_stack_")),
    (ENVIRONMENT, ("_reset_", "_step_")),
)  # fmt: skip

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")
_LONGEST = 1000  # a name may be megabytes long; its beginning says enough


def categorise(name: str, patterns: Sequence[tuple[str, str]] = ()) -> str:
    """The category of a name; `patterns` are the user's (category, glob) pairs, upper and lower case alike.

    >>> categorise("env_rgb_draw_walls"), categorise("PPOTrainer.policyLoss"), categorise("flood_fill")
    ('Rendering', 'Training', 'Other')
    >>> categorise("flood_fill", [("Environment", "flood*")])
    'Environment'
    """
    name = name[:_LONGEST]
    for category, pattern in patterns:
        if fnmatchcase(name.lower(), pattern.lower()):
            return category
    words = "_" + _BETWEEN_WORDS.sub("_", _CAMEL.sub("_", name).lower()) + "_"
    for category, keys in _WORDS:
        if any(key in words for key in keys):
            return category
    return OTHER
