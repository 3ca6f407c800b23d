"""`hotloop run train.py …`: record an unmodified script, and say where its time went, why, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .settings import read_settings

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
@click.option(
    "--lines",
    type=click.Choice(["on", "few", "off"]),
    help="Sample the lines of all Python threads; few: seldom, and in the main process only.  [default: on]",
)
@click.option("--hooks", metavar="LIST", help="Only these integrations, e.g. torch,gymnasium.  [default: all]")
@click.option("--no-hooks", is_flag=True, help="Hook nothing: only spans of your own and lines.")
@click.option("--select", metavar="CAUSES", help="Look for these causes only.")
@click.option("--ignore", metavar="CAUSES", help="Do not look for these causes.")
@click.option(
    "--torch-trace",
    metavar="WINDOW",
    help="Run torch.profiler over a few iterations: wait=2,warmup=2,active=4[,record_shapes][,gzip].",
)
@click.option(
    "--no-probe", is_flag=True, help="Do not measure the script's networks at other sizes after it has ended (3 s at most)."
)
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
    lines: str | None,
    hooks: str | None,
    no_hooks: bool,
    select: str | None,
    ignore: str | None,
    torch_trace: str | None,
    no_probe: bool,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Run a training script and record it. Its own arguments follow it; its exit code is ours.

    Defaults can be set in pyproject.toml, under [tool.hotloop].

    \b
    hotloop run train.py --lr 0.1
    hotloop run -m package.train --epochs 3
    hotloop run --duration 60 --out runs/short train.py
    """
    from ..analyse.findings.engine import check_causes
    from ..model.trace import parse_trace
    from ..run.machine import constants_for
    from ..run.supervisor import Plan, resolve_command, run_child

    given: dict[str, Any] = {
        "name": name, "duration": duration, "max_iterations": max_iterations, "hooks": [] if no_hooks else split(hooks),
        "lines": None if lines is None else lines != "off", "select": split(select), "ignore": split(ignore),
        "quiet": quiet or None, "probe": False if no_probe else None,
    }  # fmt: skip
    settings = read_settings(Path.cwd(), given)
    words = resolve_command(command, module)
    label = settings.name or (module or Path(command[0]).stem)
    check_causes((*settings.select, *settings.ignore))  # before the run, not after it
    trace = parse_trace(torch_trace) if torch_trace is not None else None
    if trace is not None and "torch" not in settings.hooks:
        raise UsageError("--torch-trace needs the hooks for torch; leave --no-hooks away, or add torch to --hooks")
    rate = "few" if lines == "few" else "on" if settings.lines else "off"
    plan = Plan(
        words,
        label,
        out,
        settings.duration,
        settings.max_iterations,
        settings.quiet,
        settings.hooks,
        rate,
        trace,
        settings.probe,
    )
    outcome = run_child(plan)
    if settings.probe:
        constants_for(outcome.session)
    _write_reports(outcome, settings.quiet, settings.select, settings.ignore)
    context.exit(outcome.code)


def split(text: str | None) -> list[str] | None:
    """A list as it is given on the command line; None where it is not given."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _write_reports(outcome: Outcome, quiet: bool, select: tuple[str, ...], ignore: tuple[str, ...]) -> None:
    """The files of the session, and the report on standard error: standard output belongs to the script."""
    from rich.console import Console

    from ..errors import HotloopError
    from ..present.detailed import session_report
    from ..present.html import html_bytes
    from ..present.sentences import how_text
    from ..present.terminal import report_text, show_report
    from ..store.findings import write_findings
    from .files import dump, save_bytes
    from .reading import read_diagnosis
    from .sessions import keep_summary

    try:
        diagnosis = read_diagnosis(outcome.session, select, ignore, ended=True)
        try:  # a full disk costs this file; the report is still shown
            write_findings(outcome.session, diagnosis.findings, diagnosis.wall_ns / 1e9, diagnosis.loop_ns / 1e9)
        except OSError as error:
            click.echo(f"hotloop: a file of the session could not be written ({error.strerror or error})", err=True)
        files = {
            "report.txt": report_text(diagnosis).encode(),
            "report.html": html_bytes(diagnosis),
            "profiling_report.json": dump(session_report(diagnosis)).encode(),
        }
        for name, data in files.items():
            save_bytes(str(outcome.session / name), data)
        keep_summary(diagnosis)
    except HotloopError as error:
        click.echo(f"hotloop: {how_text(outcome.how)}; {error}", err=True)
        return
    if not quiet:
        click.echo("", err=True)
        show_report(Console(stderr=True, legacy_windows=False), diagnosis)
    click.echo(f"hotloop: {how_text(outcome.how)}; wrote {outcome.session} (report.html, report.txt)", err=True)
