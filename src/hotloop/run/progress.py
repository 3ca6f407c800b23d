"""The live line: how far the run is, read from the shards while they are written.

What lives here: reading a few numbers of the job, and drawing them on the terminal's last row, which is taken out of
the scrolling region for that time so that the script's own output is not disturbed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..analyse.phases import find_phases
from ..errors import UnreadableError
from ..model import shard as m
from ..model.job import count_work, fold_job, job_loop_ns, order_processes
from ..model.ledger import Ledger
from ..model.numbers import rate_of, take_numbers
from ..model.phase import phase_name
from ..printing.text import escape, shorten
from ..store import schema
from ..store.shard import decode

_MOST_BYTES = 64 << 20
_LATEST_NS = 5_000_000_000
_LEAST_SHARE = 0.005  # of the loop; less reads 0 %


@dataclass(frozen=True, slots=True)
class Progress:
    iterations: int
    sps: float | None  # env steps of the job a second, over its whole loop
    shares: tuple[tuple[str, float], ...]  # the phases of the loop; without any, the largest labels of the main track
    starting: bool = False  # hooked, and the loop has not begun
    latest: float | None = None  # env steps a second in the last seconds
    env_steps: int = 0


class ProgressReader:
    """What the processes of a session have recorded so far."""

    def __init__(self, session: Path, root_pid: int) -> None:
        self._folder, self._root_pid = session / schema.SHARD_DIR, root_pid
        self._steps: deque[tuple[int, int]] = deque()  # (loop time, env steps) of the last seconds

    def read(self) -> Progress | None:
        """None before the first span."""
        shards = self._decode()
        shards = [shards[i] for i in order_processes(shards, self._root_pid)]
        progress = take_progress(shards)
        if progress is None or progress.starting:
            return progress
        return replace(progress, latest=self._latest(shards[0].end_ns, progress.env_steps))

    def _decode(self) -> list[m.Shard]:
        shards = []
        for path in sorted(self._folder.glob(f"*{schema.SHARD_SUFFIX}")):
            try:
                with open(path, "rb") as file:
                    shards.append(decode(file.read(_MOST_BYTES)))
            except (OSError, ValueError, UnreadableError):
                continue
        return shards

    def _latest(self, at_ns: int, steps: int) -> float | None:
        self._steps.append((at_ns, steps))
        while len(self._steps) > 2 and at_ns - self._steps[1][0] >= _LATEST_NS:
            self._steps.popleft()
        before_ns, before = self._steps[0]
        return rate_of(steps - before, at_ns - before_ns)


def take_progress(shards: Sequence[m.Shard]) -> Progress | None:
    """How far the job is, the learner first; None before its first span."""
    if not shards:
        return None
    learner, ledger = shards[0], fold_job(shards)
    if not ledger.balances or not ledger.balances[0].lifetime_ns:
        return None
    if not learner.first_work_ns and any(label.phase for label in learner.labels):
        return Progress(learner.iterations_closed, None, (), starting=True)
    steps = count_work(shards).get("env_steps", 0)
    rate = rate_of(steps, job_loop_ns(shards, take_numbers(ledger)))
    return Progress(learner.iterations_closed, rate, _phase_shares(ledger) or _label_shares(ledger), env_steps=steps)


def _phase_shares(ledger: Ledger) -> tuple[tuple[str, float], ...]:
    """The phases of the loop so far; the stacks are left to the report, dividing by them takes too long for a line."""
    phases = find_phases(ledger, (), {})
    if not phases.known or phases.loop_ns <= 0:
        return ()
    shares = [(phase_name(p.code) or "other", p.total_ns / phases.loop_ns) for p in phases.phases]
    return tuple((name, share) for name, share in shares if share >= _LEAST_SHARE)


def _label_shares(ledger: Ledger) -> tuple[tuple[str, float], ...]:
    """The own time of the largest labels, of the track's lifetime."""
    own: dict[str, int] = {}
    for shard, track, branch, ns in ledger.self_by_track:
        if (shard, track) == (0, ledger.balances[0].track) and ledger.tree[branch].kind in (m.USER, m.WAIT):
            own[ledger.tree[branch].name] = own.get(ledger.tree[branch].name, 0) + ns
    largest = sorted(own.items(), key=lambda item: -item[1])[:3]
    return tuple((name, ns / ledger.balances[0].lifetime_ns) for name, ns in largest)


class StatusLine:
    """One line at the bottom of a terminal; nothing where standard error is none."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._rows = 0

    def show(self, elapsed_s: float, progress: Progress | None) -> None:
        if not self.enabled:
            return
        columns, rows = shutil.get_terminal_size()
        if rows != self._rows:
            self._reserve(rows)
        text = shorten(status_text(elapsed_s, progress), columns)
        self._write(f"\x1b7\x1b[{rows};1H\x1b[2K\x1b[7m{text}\x1b[0m\x1b8")

    def close(self) -> None:
        if self._rows:
            self._write(f"\x1b7\x1b[r\x1b[{self._rows};1H\x1b[2K\x1b8")
            self._rows = 0

    def _reserve(self, rows: int) -> None:
        """Scroll up by one, so that nothing is covered, and keep the last row out of what scrolls."""
        self._rows = rows
        self._write(f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self.enabled = False


def status_text(elapsed_s: float, progress: Progress | None) -> str:
    """
    >>> status_text(75, Progress(12, 1234.5, (("collect", 0.6), ("learn", 0.38)), latest=1300.2))
    'HotLoop 1:15 | iteration 12 | 1,234 steps/s, now 1,300 | collect 60 %  learn 38 %'
    """
    parts = [f"HotLoop {int(elapsed_s) // 60}:{int(elapsed_s) % 60:02}"]
    if progress is None:
        return parts[0] + " | nothing recorded yet"
    if progress.starting:
        return parts[0] + " | starting up"
    if progress.iterations:
        parts.append(f"iteration {progress.iterations:,}")
    if progress.sps is not None:
        now = f", now {progress.latest:,.0f}" if progress.latest is not None else ""
        parts.append(f"{progress.sps:,.0f} steps/s{now}")
    if progress.shares:
        parts.append("  ".join(f"{escape(name)} {share * 100:.0f} %" for name, share in progress.shares))
    return " | ".join(parts)
