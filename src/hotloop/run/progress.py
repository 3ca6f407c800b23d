"""The live line: how far the run is, read from the shards while they are written.

What lives here: reading a few numbers of the main process, and drawing them on the terminal's last row, which is taken out of
the scrolling region for that time so that the script's own output is not disturbed.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import UnreadableError
from ..model import shard as m
from ..model.ledger import fold, windowed_rate
from ..record.summary import escape
from ..store import schema
from ..store.shard import decode

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    iterations: int
    sps: float | None
    shares: tuple[tuple[str, float], ...]  # the largest labels on the main track, itself, of its lifetime


def read_progress(session: Path, pid: int) -> Progress | None:
    """What the main process has recorded so far; None before its first span."""
    try:
        (path, *_) = (session / schema.SHARD_DIR).glob(f"{pid}-*{schema.SHARD_SUFFIX}")
        with open(path, "rb") as file:
            shard = decode(file.read(_MOST_BYTES))
    except (OSError, ValueError, UnreadableError):
        return None
    ledger = fold([shard])
    if not ledger.balances or not ledger.balances[0].lifetime_ns:
        return None
    own: dict[str, int] = {}
    for _, track, branch, ns in ledger.self_by_track:
        if track == ledger.balances[0].track and ledger.tree[branch].kind in (m.USER, m.WAIT):
            own[ledger.tree[branch].name] = own.get(ledger.tree[branch].name, 0) + ns
    largest = sorted(own.items(), key=lambda item: -item[1])[:3]
    lifetime = ledger.balances[0].lifetime_ns
    shares = tuple((name, ns / lifetime) for name, ns in largest)
    return Progress(shard.iterations_closed, windowed_rate(shard.iterations, "env_steps"), shares)


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
        text = shorten_line(status_text(elapsed_s, progress), columns)
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
    >>> status_text(75, Progress(12, 1234.5, (("env_step", 0.6),)))
    'HotLoop 1:15 | iteration 12 | 1,234 steps/s | env_step 60 %'
    """
    parts = [f"HotLoop {int(elapsed_s) // 60}:{int(elapsed_s) % 60:02}"]
    if progress is None:
        return parts[0] + " | nothing recorded yet"
    if progress.iterations:
        parts.append(f"iteration {progress.iterations:,}")
    if progress.sps is not None:
        parts.append(f"{progress.sps:,.0f} steps/s")
    parts += [f"{escape(name)} {share * 100:.0f} %" for name, share in progress.shares]
    return " | ".join(parts)


def shorten_line(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: max(0, columns - 1)] + "…"
