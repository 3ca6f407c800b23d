"""`hotloop report SESSION`: what a session says, on the terminal, as JSON, as a text file or as one HTML page."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .files import check_target, dump, save_shown
from .sessions import latest_session

if TYPE_CHECKING:
    from ..analyse.diagnosis import Diagnosis


@click.command()
@click.argument("session", type=click.Path(), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--html", type=click.Path(), metavar="FILE", help="Write one self-contained page with tree, timeline and series.")
@click.option("--charts", type=click.Path(), metavar="FILE.png", help="Draw speed, phases, tree and threads.")
@click.option("--text", type=click.Path(), metavar="FILE", help="Write the terminal report as plain text.")
@click.option("--view", type=click.Choice(["components", "episodes", "rollout"]), help="Print one block instead of the report.")
@click.option(
    "--logs", type=click.Path(), metavar="DIR", help="Write DIR/raw/NAME_TIME.json and DIR/reports/NAME_TIME_summary.txt."
)
@click.option("--width", type=click.IntRange(40, 400), help="Columns of the text.  [default: the terminal's]")
@click.option("--force", is_flag=True, help="Replace files that exist.")
def report(
    session: str | None,
    as_json: bool,
    html: str | None,
    charts: str | None,
    text: str | None,
    view: str | None,
    logs: str | None,
    width: int | None,
    force: bool,
) -> None:
    """Show where the time of a recorded session went. Without SESSION: the latest in ./runs.

    \b
    hotloop report runs/run1-20260101-120000
    hotloop report runs/run1-20260101-120000 --html report.html
    hotloop report runs/run1-20260101-120000 --view components
    """
    from ..printing.text import escape
    from .reading import read_diagnosis

    for target in (html, charts, text):
        check_target(target, force)
    diagnosis = read_diagnosis(session or latest_session())
    if as_json:
        from ..present.json import report_data

        click.echo(dump(report_data(diagnosis)))
    if view is not None:
        click.echo(_view(diagnosis, view))
    if logs is not None:
        _write_logs(diagnosis, logs, as_json)
    if html is not None:
        from ..present.html import html_bytes

        save_shown(html, html_bytes(diagnosis), as_json, ": open it in a browser; it needs no network")
    if charts is not None:
        from ..present.run_charts import draw_run

        save_shown(charts, draw_run(diagnosis), as_json)
    if text is not None:
        from ..present.terminal import report_text

        save_shown(text, report_text(diagnosis, width or 100).encode(), as_json)
    if not (as_json or view or logs or html or charts or text):
        from rich.console import Console

        from ..present.terminal import show_report

        show_report(Console(width=width, legacy_windows=False), diagnosis)
        shown = os.path.relpath(diagnosis.path) if not os.path.isabs(session or "") else diagnosis.path
        click.echo(f"\nnext: hotloop report {escape(shlex.quote(shown))} --html report.html")


def _view(diagnosis: Diagnosis, view: str) -> str:
    from ..printing.blocks import view_text

    return view_text(view, diagnosis.learner, diagnosis.ledger, diagnosis.resources)


def _write_logs(diagnosis: Diagnosis, folder: str, as_json: bool) -> None:
    from ..errors import HotloopError
    from ..present.json import report_data
    from ..printing.logs import write_logs

    try:
        written = write_logs(Path(folder), diagnosis.name, report_data(diagnosis), _view(diagnosis, "episodes"))
    except OSError as error:
        raise HotloopError(f"{folder} could not be written to ({error.strerror or error}); choose another place") from None
    for path in written:
        click.echo(f"wrote {path}", err=as_json)
