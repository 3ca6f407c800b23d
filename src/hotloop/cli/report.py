"""`hotloop report SESSION`: what a session says, on the terminal, as JSON, as a text file or as one HTML page."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .files import check_target, save_bytes
from .sessions import latest_session

if TYPE_CHECKING:
    from ..analyse.report import Report
    from ..model.finding import Finding
    from ..model.session import SessionData


@click.command()
@click.argument("session", type=click.Path(), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--html", type=click.Path(), metavar="FILE", help="Write one self-contained page with tree, timeline and series.")
@click.option("--charts", type=click.Path(), metavar="FILE.png", help="Draw speed, phases, tree and lanes.")
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
    from ..analyse.report import make_report
    from ..record.summary import escape
    from ..store.reader import Session
    from .deep import keep_operators

    for target in (html, charts, text):
        if target is not None:
            check_target(target, force)
    folder = Path(session or latest_session())
    if folder.is_dir():
        keep_operators(folder)
    data = Session.load(folder)
    result = make_report(data)
    if as_json:
        click.echo(_json(data, result))
    if view is not None:
        click.echo(_view(result, view))
    if logs is not None:
        _write_logs(result, logs, as_json)
    if html is not None:
        save_bytes(html, _html(data, result))
        click.echo(f"wrote {html}: open it in a browser; it needs no network", err=as_json)
    if charts is not None:
        save_bytes(charts, _charts(result))
        click.echo(f"wrote {charts}", err=as_json)
    if text is not None:
        save_bytes(text, _text(data, result, width or 100).encode())
        click.echo(f"wrote {text}", err=as_json)
    if not (as_json or view or logs or html or charts or text):
        _show(data, result, width)
        shown = os.path.relpath(result.path) if not os.path.isabs(session or "") else result.path
        click.echo(f"\nnext: hotloop report {escape(shlex.quote(shown))} --html report.html")


def load_findings(session: Path) -> tuple[Finding, ...] | None:
    """What was found when the run ended; None where nobody looked."""
    from ..errors import UnreadableError
    from ..store.findings import FINDINGS_FILE, MOST_BYTES, read_findings
    from ..store.reader import read_json

    try:
        return read_findings(read_json(session / FINDINGS_FILE, MOST_BYTES))
    except UnreadableError:
        return None


def _json(data: SessionData, result: Report) -> str:
    import json

    from ..analyse.iterations import read_iterations
    from ..present.json import report_data

    content = report_data(result, read_iterations(result.learner), load_findings(data.path), data.sources)
    return json.dumps(content, indent=1, allow_nan=False)


def _show(data: SessionData, result: Report, width: int | None) -> None:
    from rich.console import Console

    from ..analyse.iterations import read_iterations
    from ..present.terminal import show_report

    console = Console(width=width, legacy_windows=False)
    show_report(console, result, read_iterations(result.learner), load_findings(data.path), data.sources)


def _text(data: SessionData, result: Report, width: int) -> str:
    from ..analyse.iterations import read_iterations
    from ..present.terminal import report_text

    return report_text(result, read_iterations(result.learner), width, load_findings(data.path), data.sources)


def _html(data: SessionData, result: Report) -> bytes:
    from ..analyse.iterations import read_iterations
    from ..analyse.timeline import make_timeline
    from ..present.html import html_bytes

    history = read_iterations(result.learner)
    return html_bytes(result, make_timeline(data), history, load_findings(data.path), data.sources)


def _charts(result: Report) -> bytes:
    from ..analyse.iterations import read_iterations
    from ..present.run_charts import draw_run

    return draw_run(result, read_iterations(result.learner))


def _view(result: Report, view: str) -> str:
    from ..record.blocks import view_text

    return view_text(view, result.learner, result.ledger, result.resources)


def _write_logs(result: Report, folder: str, as_json: bool) -> None:
    from ..errors import HotloopError
    from ..present.json import report_data
    from ..record.logs import write_logs

    try:
        written = write_logs(Path(folder), result.name, report_data(result, None), _view(result, "episodes"))
    except OSError as error:
        raise HotloopError(f"{folder} could not be written to ({error.strerror or error}); choose another place") from None
    for path in written:
        click.echo(f"wrote {path}", err=as_json)
