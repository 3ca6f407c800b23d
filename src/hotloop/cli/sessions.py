"""`hotloop list`: the sessions of a folder, and which one is the latest."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import HotloopError, UnreadableError
from .files import dump

if TYPE_CHECKING:
    from ..analyse.diagnosis import Diagnosis


def find_sessions(folder: str) -> list[Path]:
    """The sessions in a folder, the latest last."""
    try:
        found = [
            Path(entry.path) for entry in os.scandir(folder) if entry.is_dir() and os.path.isdir(Path(entry.path, "shards"))
        ]
    except OSError:
        return []
    return sorted(found, key=lambda path: (path.stat().st_mtime, path.name))


def latest_session(folder: str = "runs") -> str:
    found = find_sessions(folder)
    if not found:
        raise UnreadableError(
            f"there is no session in ./{folder}; record one (`hotloop run train.py`, or `hotloop demo`), or name its directory"
        )
    return str(found[-1])


@click.command(name="list")
@click.argument("folder", type=click.Path(), default="runs")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many, the latest ones.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def list_sessions(folder: str, last: int, as_json: bool) -> None:
    """List the sessions in a folder, side by side.

    \b
    hotloop list
    hotloop list runs --last 5
    """
    if not os.path.isdir(folder):
        raise UnreadableError(
            f"{folder} is not a directory; sessions are kept in ./runs by default; record one: hotloop run train.py"
        )
    found = find_sessions(folder)
    rows = [_describe(path) for path in found[-last:]]
    if as_json:
        click.echo(dump(rows))
        return
    if not rows:
        click.echo(f"no session in {folder}; record one: hotloop run train.py, or hotloop demo")
        return
    from rich.console import Console

    from ..present.listing import list_table
    from ..printing.text import escape

    Console(legacy_windows=False).print(list_table(rows))
    for row in rows:
        if "problem" in row:
            click.echo(f"unreadable: {escape(str(row['problem']))}")
    if len(found) > last:
        click.echo(f"… {len(found) - last} earlier ones: --last {len(found)}")
    readable = [str(row["session"]) for row in rows if "problem" not in row]
    if readable:
        click.echo(f"\nnext: hotloop report {escape(shlex.quote(readable[-1]))}")


def _describe(path: Path) -> dict[str, object]:
    """A row, as it was kept when the session was last read by the same rules; else made now, and kept once the run is over."""
    from ..store.summaries import read_summary

    kept = read_summary(path)
    if kept is not None:
        return {**kept, "session": str(path)}
    from ..present.listing import list_row
    from .reading import read_diagnosis

    try:
        diagnosis = read_diagnosis(path)
    except HotloopError as error:
        return {"session": str(path), "problem": str(error)}
    keep_summary(diagnosis)
    return list_row(str(path), diagnosis)


def keep_summary(diagnosis: Diagnosis) -> None:
    """Beside the session, once it is over; where that cannot be written, the session is read again the next time."""
    from ..model.session import RUNNING
    from ..present.listing import list_row
    from ..store.summaries import write_summary

    if all(process.state != RUNNING for process in diagnosis.processes):
        with contextlib.suppress(OSError):
            write_summary(diagnosis.path, list_row(diagnosis.path, diagnosis))
