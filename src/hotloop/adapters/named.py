"""Libraries of which we know whose their time is, and no more. One that gets hooks moves to a file of its own."""

from __future__ import annotations

from ..model.adapter import Adapter, Owner

_NAMES: dict[Owner, str] = {
    "env library": "ale_py atari_py mujoco dm_control pettingzoo minigrid procgen envpool gym3 brax highway_env box2d pybullet "
    "shimmy supersuit nle poke_env pufferlib_envs crafter",
    "RL framework": "tianshou pufferlib cleanrl cleanrl_utils skrl rl_games sample_factory acme dopamine rlax lightning "
    "pytorch_lightning",
    "tensor runtime": "numpy jax jaxlib flax optax tensorflow scipy triton cupy numba",
}
_OPAQUE = ("numpy", "scipy")

ADAPTERS = tuple(
    Adapter(name, owner, (name,), opaque=name in _OPAQUE) for owner, names in _NAMES.items() for name in names.split()
)
