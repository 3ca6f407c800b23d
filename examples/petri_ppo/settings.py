"""The settings of the training system. No torch here: the profiling script reads them without loading it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from typing import Any

from shop import Size


def setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every field is a flag of the same name."""

    turbo: bool = setting(True, "the fast environment, or the plain one (--no-turbo)")
    batches: int = setting(120, "rounds of collecting and learning")
    frames_per_batch: int = setting(1024, "decisions per batch, over all shops")
    shops: int = setting(16, "environments stepped together")
    jobs: int = setting(6, "jobs per shop")
    machines: int = setting(6, "machines per shop")
    epochs: int = setting(4, "passes over each batch")
    minibatch: int = setting(256, "decisions per gradient step")
    hidden: int = setting(64, "width of the networks")
    learning_rate: float = setting(1e-3, "Adam's at the start; it falls linearly to zero")
    gae_lambda: float = setting(0.95, "GAE's lambda")
    clip: float = setting(0.2, "PPO's clipping of the probability ratio")
    entropy: float = setting(0.005, "weight of the entropy bonus")
    seed: int = setting(1, "of the orders, the networks and the actions")
    device: str = setting("", "of the networks: cpu or cuda (default: cuda when there is one)")
    threads: int = setting(1, "torch's threads on the CPU")

    def __post_init__(self) -> None:
        if min(self.batches, self.shops, self.jobs, self.machines, self.epochs, self.minibatch, self.hidden, self.threads) < 1:
            raise ValueError("batches, shops, jobs, machines, epochs, minibatch, hidden and threads are at least 1")
        if self.frames_per_batch < 1 or self.frames_per_batch % self.shops or self.frames_per_batch % self.minibatch:
            raise ValueError("--frames-per-batch must be a multiple of --shops and of --minibatch")

    @property
    def size(self) -> Size:
        return Size(self.jobs, self.machines)

    @property
    def updates_per_batch(self) -> int:
        return self.epochs * (self.frames_per_batch // self.minibatch)


def add_flags(parser: argparse.ArgumentParser, leave_out: tuple[str, ...] = (), **defaults: Any) -> None:
    """A flag per setting; `defaults` replace the fields' own."""
    for f in fields(Settings):
        if f.name in leave_out:
            continue
        default = defaults.get(f.name, f.default)
        flag, text = "--" + f.name.replace("_", "-"), f.metadata["help"]
        if isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help=text)
        else:
            text += f" (default: {default})" if default != "" else ""
            parser.add_argument(flag, type=type(default), metavar=type(default).__name__.upper(), default=default, help=text)
