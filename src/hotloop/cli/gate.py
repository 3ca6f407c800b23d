"""`hotloop gate`: fail where a session has a finding that is too severe, for builds that train a little."""

from __future__ import annotations

import click

from ..model.finding import CRITICAL, NOTE, WARNING

SEVERITIES = (NOTE, WARNING, CRITICAL)


@click.command()
@click.argument("session", required=False)
@click.option(
    "--on", "least", type=click.Choice(SEVERITIES), default=CRITICAL, show_default=True, help="From which severity on."
)
def gate(session: str | None, least: str) -> None:
    """Fail (exit code 1) if a session has a finding this severe. Without SESSION: the latest in ./runs.

    \b
    hotloop gate
    hotloop gate runs/train-20260101-120000 --on warning
    """
    from .reading import read_diagnosis
    from .sessions import latest_session

    path = session or latest_session()
    findings = read_diagnosis(path).findings
    severe = [f for f in findings if SEVERITIES.index(f.severity) >= SEVERITIES.index(least)]
    for finding in severe:
        click.echo(f"{finding.severity}: {finding.cause}: {finding.title}")
    if severe:
        click.echo(f"next: hotloop report {path}")
        raise click.exceptions.Exit(1)
    click.echo(f"passed: no finding of {path} is {least}{' or more' if least != CRITICAL else ''}")
