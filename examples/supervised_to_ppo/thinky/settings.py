"""The settings of a run, and `key=value` arguments that change them.

What lives here: one dataclass per group, each field declared once. Invariant: an unknown key, an unreadable value or settings
that do not fit together end in one sentence and exit code 2, before anything is computed.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch

from .losses import ActionSupervisedAndCriticConfig, PPOConfig
from .world import MISSIONS


class SettingsError(ValueError):
    """One sentence for the user."""


@dataclass
class ProfilerConfig:
    enabled: bool = False  # record with HotLoop, and write PyTorch traces of the scheduled rollouts
    wait_steps: int = 2  # per phase: rollouts before the trace,
    warmup_steps: int = 2  # traced and thrown away,
    active_steps: int = 4  # traced and kept
    record_shapes: bool = False


@dataclass
class TrainerConfig:
    total_timesteps: int = 2_000_000  # agent steps
    num_envs: int = 8
    batch_size: int = 512  # agent steps per rollout
    minibatch_size: int = 256
    update_epochs: int = 2
    gamma: float = 0.98
    gae_lambda: float = 0.9
    max_grad_norm: float = 0.5
    hidden: int = 128
    mixed_precision: bool = False  # forward and backward in bfloat16
    pinned_buffers: bool = False  # copy to and from the teacher through buffers made once, page-locked on a GPU
    expected_sps: int = 0  # compare with this instead of the table of expected performance
    profiler: ProfilerConfig = field(default_factory=ProfilerConfig)


@dataclass
class EvaluatorConfig:
    evaluate_local: bool = True  # play whole episodes with the student every `epoch_interval` rollouts
    epoch_interval: int = 10
    num_envs: int = 16


@dataclass
class TeacherConfig:
    backend: str = "auto"  # auto, compiled or numpy


@dataclass
class WorldConfig:
    num_agents: int = 8  # per environment
    max_steps: int = 128  # per episode


@dataclass
class Settings:
    run: str = "thinky"
    base_missions: str = "extractor_hub_30"  # several with commas
    supervised_steps: int = 1_000_000  # agent steps with the teacher; PPO without it afterwards
    seed: int = 1
    device: str = ""  # empty: cuda where there is one, else cpu
    threads: int = 1  # of torch, on the CPU
    out: str = "."  # train_dir/ and runs/ are made below it
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    world: WorldConfig = field(default_factory=WorldConfig)
    loss: ActionSupervisedAndCriticConfig = field(default_factory=ActionSupervisedAndCriticConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)

    @property
    def missions(self) -> list[str]:
        return [name.strip() for name in self.base_missions.split(",")]

    @property
    def timing_every(self) -> int:
        """HotLoop's timing block comes every so many rollouts; 0: HotLoop is off."""
        return self.loss.timing_every or (10 if self.trainer.profiler.enabled else 0)

    @property
    def horizon(self) -> int:
        """Steps of every environment in one rollout."""
        return self.trainer.batch_size // (self.trainer.num_envs * self.world.num_agents)


def list_settings(group: Any, prefix: str = "") -> dict[str, Any]:
    """Every key with its value.

    >>> list_settings(EvaluatorConfig(), "evaluator.")["evaluator.epoch_interval"]
    10
    """
    out: dict[str, Any] = {}
    for f in fields(group):
        value = getattr(group, f.name)
        out |= list_settings(value, f"{prefix}{f.name}.") if is_dataclass(value) else {prefix + f.name: value}
    return out


def apply_arguments(settings: Settings, arguments: list[str]) -> None:
    """Change the settings by `key=value` arguments, then check that they fit together.

    >>> s = Settings()
    >>> apply_arguments(s, ["supervised_steps=5_000", "trainer.profiler.enabled=True"])
    >>> s.supervised_steps, s.trainer.profiler.enabled
    (5000, True)
    """
    known = list_settings(settings)
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise SettingsError(f"{argument!r} is not of the form key=value, for example trainer.batch_size=1024.")
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else "--help lists them."
            raise SettingsError(f"There is no setting {key!r}; {hint}")
        *path, name = key.split(".")
        group: Any = settings
        for part in path:
            group = getattr(group, part)
        setattr(group, name, _read(key, text, known[key]))
    check(settings)


def _read(key: str, text: str, default: Any) -> Any:
    """The text as a value of the default's type."""
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "1", "0"):
            raise SettingsError(f"{key} takes True or False, not {text!r}.")
        return text.lower() in ("true", "1")
    try:
        return type(default)(text)
    except ValueError:
        kind = "a whole number such as 5_000" if isinstance(default, int) else "a number"
        raise SettingsError(f"{key} takes {kind}, not {text!r}.") from None


def check(settings: Settings) -> None:
    trainer, agents = settings.trainer, settings.trainer.num_envs * settings.world.num_agents
    for key, value in list_settings(settings).items():
        may_be_zero = key in (
            "supervised_steps",
            "seed",
            "loss.timing_every",
            "trainer.expected_sps",
            "trainer.profiler.wait_steps",
            "trainer.profiler.warmup_steps",
        )
        if type(value) is int and value < (0 if may_be_zero else 1):
            raise SettingsError(f"{key} is {value}; it must be at least {0 if may_be_zero else 1}.")
    unknown = [name for name in settings.missions if name not in MISSIONS]
    if unknown:
        raise SettingsError(f"There is no mission {unknown[0]!r}; base_missions takes {', '.join(MISSIONS)}.")
    if trainer.batch_size % agents:
        raise SettingsError(
            f"trainer.batch_size={trainer.batch_size} must be a multiple of {agents} (trainer.num_envs × world.num_agents)."
        )
    if trainer.batch_size % trainer.minibatch_size:
        raise SettingsError(
            f"trainer.batch_size={trainer.batch_size} must be a multiple of trainer.minibatch_size={trainer.minibatch_size}."
        )
    if settings.world.num_agents > 100:
        raise SettingsError(f"world.num_agents is {settings.world.num_agents}; the map has room for 100.")
    if settings.teacher.backend not in ("auto", "compiled", "numpy"):
        raise SettingsError(f"teacher.backend is {settings.teacher.backend!r}; it must be auto, compiled or numpy.")
    if settings.device and settings.device != "cpu":
        try:
            torch.empty(0, device=settings.device)
        except (RuntimeError, AssertionError):
            raise SettingsError(
                f"The device {settings.device!r} cannot be used here; leave it out, or use device=cpu."
            ) from None
    if not settings.run or "/" in settings.run:
        raise SettingsError(f"run is {settings.run!r}; it must be a plain name, because it names a folder.")


def read_command_line(settings: Settings, arguments: list[str], doc: str) -> Settings:
    """Settings changed by `key=value` and by the flags that every example has; ends the process with code 2 on a mistake."""
    listed = "\n".join(f"  {key}={value}" for key, value in list_settings(settings).items())
    parser = argparse.ArgumentParser(
        description=doc, epilog=f"settings and their defaults:\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag in ("seed", "device", "out", "threads"):
        parser.add_argument(f"--{flag}", help=f"the same as {flag}=")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    given = parser.parse_intermixed_args(arguments)
    flags = [f"{flag}={value}" for flag in ("seed", "device", "out", "threads") if (value := getattr(given, flag)) is not None]
    try:
        apply_arguments(settings, [*flags, *given.settings])
    except SettingsError as error:
        sys.exit(_fail(str(error)))
    return settings


def _fail(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2
