"""`hotloop report SESSION`: what a session says."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("session", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def report(session: str, as_json: bool) -> None:
    """Show where the time of a recorded session went.

    \b
    hotloop report runs/run1-20260101-120000
    hotloop report runs/run1-20260101-120000 --json
    """
    from ..analyse.report import make_report
    from ..present.json import report_data
    from ..present.text import report_text
    from ..store.reader import Session

    result = make_report(Session.load(session))
    if as_json:
        click.echo(json.dumps(report_data(result), indent=1, allow_nan=False))
    else:
        click.echo(report_text(result))
