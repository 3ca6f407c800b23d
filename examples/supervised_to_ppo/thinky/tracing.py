"""PyTorch traces of the scheduled rollouts, one per phase; Perfetto and chrome://tracing open them."""

from __future__ import annotations

from pathlib import Path

import torch

from .settings import ProfilerConfig


class Tracer:
    """Waits, warms up and traces at the start of each phase, then gets out of the way: tracing slows training down."""

    def __init__(self, config: ProfilerConfig, folder: Path, device: torch.device) -> None:
        self.config, self.folder, self.device = config, folder, device
        self.files: list[Path] = []
        self._profiler: torch.profiler.profile | None = None
        self._rollouts = 0

    @property
    def active(self) -> bool:
        """Is the rollout that comes now warmed up or traced, so that its speed says nothing?"""
        return self._profiler is not None and self._rollouts >= self.config.wait_steps

    def begin(self, phase: str) -> None:
        self.end()
        if not self.config.enabled:
            return
        config, cuda = self.config, self.device.type == "cuda"
        activities = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if cuda else [])]
        self._rollouts = 0
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(
                wait=config.wait_steps, warmup=config.warmup_steps, active=config.active_steps, repeat=1
            ),
            on_trace_ready=lambda profiler: self._write(profiler, phase),
            record_shapes=config.record_shapes,
            acc_events=True,  # there is one cycle; without it torch warns about the others
        )
        self._profiler.start()

    def step(self) -> None:
        """At the end of each rollout."""
        if self._profiler is not None:
            self._rollouts += 1
            self._profiler.step()
            if self._rollouts == self.config.wait_steps + self.config.warmup_steps + self.config.active_steps:
                self.end()

    def end(self) -> None:
        """At the end of a phase; a trace that was begun is written."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()

    def _write(self, profiler: torch.profiler.profile, phase: str) -> None:
        path = self.folder / f"profiler_trace_{phase}.json"
        profiler.export_chrome_trace(str(path))
        self.files.append(path)
