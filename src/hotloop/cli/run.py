"""`hotloop run train.py …`: record an unmodified script, and say where its time went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..run.supervisor import Outcome


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.option("--name", help="Name of the session.  [default: the script's]")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="The session directory.  [default: runs/NAME-TIME]")
@click.option(
    "--duration", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop the script after that time."
)
@click.option("--max-iterations", type=click.IntRange(1), metavar="N", help="Stop the script after N iterations.")
@click.option("--quiet", is_flag=True, help="No live line, no report on the terminal.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context,
    module: str | None,
    name: str | None,
    out: Path | None,
    duration: float | None,
    max_iterations: int | None,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Run a training script and record it. Its own arguments follow it; its exit code is ours.

    \b
    hotloop run train.py --lr 0.1
    hotloop run -m package.train --epochs 3
    hotloop run --duration 60 --out runs/short train.py
    """
    from ..run.supervisor import Plan, resolve_command, run_child

    words = resolve_command(command, module)
    label = name or (module or Path(command[0]).stem)
    outcome = run_child(Plan(words, label, out, duration, max_iterations, quiet))
    _write_reports(outcome, quiet)
    context.exit(outcome.code)


def _write_reports(outcome: Outcome, quiet: bool) -> None:
    """The files of the session, and the report on standard error: standard output belongs to the script."""
    from rich.console import Console

    from ..analyse.bottlenecks import find_bottlenecks, list_operations
    from ..analyse.iterations import read_iterations
    from ..analyse.lines import script_lines
    from ..analyse.report import make_report
    from ..analyse.timeline import make_timeline
    from ..errors import HotloopError
    from ..present.detailed import session_report
    from ..present.html import html_bytes
    from ..present.terminal import report_text, show_report
    from ..store.reader import Session
    from ..store.sources import keep_sources
    from .files import save_bytes

    try:
        keep_sources(outcome.session, script_lines(Session.load(outcome.session)))
        session = Session.load(outcome.session)
        report = make_report(session)
        history = read_iterations(report.counting)
        analysis = find_bottlenecks(list_operations(report), 0)
        loop = {"wall_s": report.wall_ns / 1e9, "loop_s": report.loop_ns / 1e9}
        findings = {"version": 1, "session": str(outcome.session), **loop, "findings": []}
        files = {
            "report.txt": report_text(report, history, analysis).encode(),
            "report.html": html_bytes(report, make_timeline(session), history),
            "profiling_report.json": json.dumps(session_report(session, report), indent=1, allow_nan=False).encode(),
            "findings.json": json.dumps(findings, indent=1, allow_nan=False).encode(),
        }
        for name, data in files.items():
            save_bytes(str(outcome.session / name), data)
    except HotloopError as error:
        click.echo(f"hotloop: the script {outcome.how}; {error}", err=True)
        return
    if not quiet:
        click.echo("", err=True)
        show_report(Console(stderr=True, legacy_windows=False), report, history, analysis)
    click.echo(f"hotloop: the script {outcome.how}; wrote {outcome.session} (report.html, report.txt)", err=True)
