"""Who owns the time: your code, the environment's library, the RL framework, the tensor runtime, IPC, logging.

What lives here: from the place a span was opened (file) to an owner, and the sum over a sheet. Known only where a label has a
place; the rest is "unknown", never guessed from a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model.sheet import SPAN, Sheet

YOURS, ENV, FRAMEWORK, TENSOR, IPC, LOGGING, LIBRARY, UNKNOWN = (
    "your code", "env library", "RL framework", "tensor runtime", "IPC", "logging", "other library", "unknown",
)  # fmt: skip

_PACKAGES = {
    ENV: "gymnasium gym ale_py atari_py mujoco dm_control pettingzoo minigrid procgen envpool gym3 brax highway_env box2d "
    "pybullet shimmy supersuit nle poke_env pufferlib_envs crafter",
    FRAMEWORK: "stable_baselines3 sb3_contrib torchrl tensordict tianshou rllib ray pufferlib cleanrl skrl rl_games "
    "sample_factory acme dopamine rlax lightning pytorch_lightning",
    TENSOR: "torch numpy jax jaxlib flax optax tensorflow scipy triton cupy numba",
    IPC: "multiprocessing concurrent socket socketserver ssl selectors asyncio threading queue subprocess websockets "
    "aiohttp zmq grpc requests urllib3 http cloudpickle pickle",
    LOGGING: "logging tensorboard tensorboardX wandb mlflow neptune loguru tqdm csv print aim comet_ml",
}
_OWNER_OF = {package: owner for owner, names in _PACKAGES.items() for package in names.split()}
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]+)")
_STANDARD = re.compile(r"[/\\]lib[/\\]python3[^/\\]*[/\\]([^/\\]+)|[/\\][Ll]ib[/\\]([^/\\]+)")


def owner_of(file: str) -> str:
    """The owner of a source file.

    >>> owner_of("/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py"), owner_of("/home/me/train.py")
    ('tensor runtime', 'your code')
    """
    if not file:
        return UNKNOWN
    installed = _INSTALLED.search(file)
    if installed:
        return _OWNER_OF.get(installed[1].removesuffix(".py"), LIBRARY)
    standard = _STANDARD.search(file)
    if standard:
        return _OWNER_OF.get((standard[1] or standard[2]).removesuffix(".py"), LIBRARY)
    return LIBRARY if file.startswith("<frozen") else YOURS


def share_out(sheet: Sheet, files: Mapping[str, str]) -> dict[str, int]:
    """Nanoseconds by owner, with waiting, unattributed and profiler beside them; they add up to the sheet."""
    totals: dict[str, int] = {}
    owners: list[str] = []
    for row in sheet.rows:
        own = owner_of(files.get(row.name, "")) if row.kind == SPAN and row.branch >= 0 else UNKNOWN
        inherited = owners[row.parent] if row.parent >= 0 else UNKNOWN
        owners.append(own if own != UNKNOWN else inherited)
        if row.leaf:
            key = owners[-1] if row.kind == SPAN else row.kind
            totals[key] = totals.get(key, 0) + row.ns
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
