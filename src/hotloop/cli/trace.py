"""`hotloop trace SESSION`: a session for Perfetto, Chrome, speedscope or a flame graph."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import IO

import click

from .files import check_target, open_target

NEXT = {
    "chrome": "open it at https://ui.perfetto.dev or in chrome://tracing; both read it locally",
    "speedscope": "open it at https://www.speedscope.app, which reads it locally",
    "collapsed": "draw it with `flamegraph.pl --countname ns` or `inferno-flamegraph --countname ns`, or open it in speedscope",
}


@click.command()
@click.argument("session", type=click.Path())
@click.option("--format", type=click.Choice(tuple(NEXT)), default="chrome", show_default=True, help="For which viewer.")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write; - is standard output.")
@click.option("--limit", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="At most so many events.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def trace(session: str, format: str, output: str, limit: int, force: bool) -> None:
    """Write a session's timeline, or its stacks, for another viewer.

    \b
    hotloop trace runs/run1-20260101-120000 -o trace.json
    hotloop trace runs/run1-20260101-120000 --format speedscope -o run1.speedscope.json
    hotloop trace runs/run1-20260101-120000 --format collapsed -o - | flamegraph.pl --countname ns > run1.svg
    """
    if output != "-":
        check_target(output, force)
    from ..present.trace import export
    from ..store.reader import read_session

    result = export(read_session(session), format, limit)
    try:
        with open_target(output) as file:
            size = _write(result.pieces, file)
    except BrokenPipeError:
        return  # the reader has seen enough, as `head` does
    wrote = "standard output" if output == "-" else output
    click.echo(f"wrote {wrote}: {result.summary}, {size / 1e6:.1f} MB", err=output == "-")
    click.echo(f"next: {NEXT[format]}", err=output == "-")


def _write(pieces: Iterable[str], file: IO[bytes]) -> int:
    """Everything, with a word on the terminal when it takes longer than a second."""
    size, shown, begin = 0, False, time.monotonic()
    for piece in pieces:
        data = piece.encode()
        size += len(data)
        file.write(data)
        if sys.stderr.isatty() and time.monotonic() > begin + 1:
            click.echo(f"\r{size / 1e6:.0f} MB", nl=False, err=True)
            shown = True
    if shown:
        click.echo("\r          \r", nl=False, err=True)
    return size
