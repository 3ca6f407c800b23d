"""What the document says about the numbers: expected speed, and its checklist with what applies to this run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .settings import Settings


@dataclass(frozen=True, slots=True)
class Expected:
    configuration: str
    device: str  # part of the device's name
    phase: str
    low: int
    high: int
    source: str


@dataclass(frozen=True, slots=True)
class Pace:
    phase: str
    sps: float
    rollouts: int  # it is the median of


_CPU = "macbook cpu" if sys.platform == "darwin" else "cpu"
# The document's rows were measured on its own, much heavier environment; ours here, the README says how.
TABLE = (
    Expected("CPU (MacBook)", "macbook", "supervised", 150, 250, "document"),
    Expected("CPU (1 thread) supervised", "cpu", "supervised", 15_000, 25_000, "measured"),
    Expected("CPU (1 thread) PPO", "cpu", "ppo", 15_000, 25_000, "measured"),
    Expected("GPU (H200) supervised", "h200", "supervised", 9_000, 12_000, "measured"),
    Expected("GPU (H200) PPO", "h200", "ppo", 8_500, 11_500, "measured"),
    Expected("GPU (V100) supervised", "v100", "supervised", 800, 1200, "document"),
    Expected("GPU (V100) PPO", "v100", "ppo", 2000, 3000, "document"),
    Expected("GPU (A100) supervised", "a100", "supervised", 1500, 2500, "document"),
    Expected("GPU (A100) PPO", "a100", "ppo", 4000, 6000, "document"),
)


def find_expected(device_name: str, phase: str) -> Expected | None:
    """The row for this device and phase.

    >>> find_expected("NVIDIA A100-SXM4-40GB", "ppo").low
    4000
    """
    return next((row for row in TABLE if row.device in device_name.lower() and row.phase == phase), None)


def closing_words(
    settings: Settings, device: torch.device, paces: list[Pace], teacher_calls_in_ppo: int, summary: dict[str, Any] | None
) -> Iterator[str]:
    """Speed against expectation and, where HotLoop recorded, the checklist."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _CPU
    yield from ["", "Speed (median of the rollouts that no trace slowed down)"]
    for pace in paces:
        yield judge_pace(pace, name, settings.trainer.expected_sps)
    if summary is not None:
        yield from ["", "Optimization checklist ([x]: worth a measured try here)"]
        yield from check_list(settings, device.type == "cuda", teacher_calls_in_ppo, summary)


def judge_pace(pace: Pace, device_name: str, asked_for: int) -> str:
    """One line: the speed, what was expected, and a warning under half of it.

    >>> judge_pace(Pace("ppo", 2500.0, 9), "NVIDIA A100", 0)
    '  ppo         2,500 SPS, expected 4,000-6,000 on GPU (A100) PPO (document)'
    """
    said = f"  {pace.phase:<11}{pace.sps:>6,.0f} SPS"
    if asked_for:
        low, text = asked_for, f"{asked_for:,} by trainer.expected_sps"
    elif (row := find_expected(device_name, pace.phase)) is not None:
        low, text = row.low, f"{row.low:,}-{row.high:,} on {row.configuration} ({row.source})"
    else:
        return f"{said}, no expectation for {device_name}: give one with trainer.expected_sps=N"
    warning = "  WARNING: under 50 %, likely a configuration issue" if pace.sps < low / 2 else ""
    return f"{said}, expected {text}{warning}"


def check_list(settings: Settings, cuda: bool, teacher_calls_in_ppo: int, summary: dict[str, Any]) -> Iterator[str]:
    """The document's advice in its order, each with the number it rests on."""
    operations, wall = summary["operations"], summary["wall_time"]

    def share(*labels: str) -> float:
        return sum(operations[label]["total_time"] for label in labels if label in operations) / wall

    evaluating, copying, calling = share("evaluate"), share("GPU->CPU", "Stack+Back"), share("nim_calls")
    trainer, interval = settings.trainer, settings.evaluator.epoch_interval
    computing = share("student_forward", "loss", "backward")
    yield _item(
        evaluating > 0.1,
        f"1. Evaluate less often: evaluator.epoch_interval={interval * 5} (is {interval})",
        f"evaluation took {evaluating:.1%} of the time" if settings.evaluator.evaluate_local else "evaluation is off",
    )
    yield _item(
        copying > 0.1 and not trainer.pinned_buffers,
        "2. Pre-allocate the buffers to and from the teacher: trainer.pinned_buffers=True",
        f"GPU->CPU and Stack+Back took {copying:.1%} of the time"
        + (", the wait for the student included" if cuda else ", on the CPU"),
    )
    yield _item(
        cuda and _memory_used() < 0.5,
        f"3. Increase the batch: trainer.batch_size={trainer.batch_size * 2} (is {trainer.batch_size})",
        f"{_memory_used():.1%} of the GPU's memory was used" if cuda else "pays where a GPU is underused; this is a CPU",
    )
    yield _item(
        teacher_calls_in_ppo > 0,
        "4. Disable the teacher in the PPO phase: the schedule does",
        f"verified, {teacher_calls_in_ppo} teacher calls in the PPO phase",
    )
    yield _item(
        cuda and computing > 0.1 and not trainer.mixed_precision,
        "5. Use mixed precision: trainer.mixed_precision=True",
        f"the network took {computing:.1%} of the time" if cuda else "pays on a GPU; this is a CPU",
    )
    yield _item(
        calling > 0.3,
        f"6. Fewer environments: trainer.num_envs={max(1, trainer.num_envs // 2)} (is {trainer.num_envs})",
        f"nim_calls, compiled already, took {calling:.1%} of the time",
    )
    yield _item(share("replay_store") > 0.1, "7. Replay store", f"took {share('replay_store'):.1%} of the time")


def _item(applies: bool, what: str, why: str) -> str:
    return f"  [{'x' if applies else ' '}] {what}\n        {why}"


def _memory_used() -> float:
    """Share of the GPU's memory that torch took at most."""
    return torch.cuda.max_memory_reserved() / torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else 0.0
