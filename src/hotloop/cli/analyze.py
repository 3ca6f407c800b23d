"""`hotloop analyze`: the ranking of operations, over a session or a profiling report."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from ..errors import UsageError


@click.command()
@click.option(
    "-i", "--input", "source", default="profiling_report.json", show_default=True, metavar="PATH",
    help="A session directory, or a profiling report (JSON).",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Write the text analysis here instead of standard output.")
@click.option("-c", "--charts", metavar="FILE.png", help="Draw the charts.")
@click.option("-d", "--detailed", metavar="FILE.json", help="Write everything as JSON.")
@click.option(
    "--min-calls", type=click.IntRange(min=0), default=10, show_default=True,
    help="Rank operations with at least so many calls; the time of the others is shown as a sum.",
)  # fmt: skip
@click.option(
    "--category", "categories", multiple=True, metavar="NAME=PATTERN",
    help="Operations whose name matches PATTERN (* and ?) belong to NAME; may be repeated.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print what --detailed writes.")
def analyze(
    source: str,
    output: str | None,
    charts: str | None,
    detailed: str | None,
    min_calls: int,
    categories: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Rank the operations of a run by what they cost, and say what to do about them.

    \b
    hotloop analyze -i runs/run1-20260101-120000
    hotloop analyze -i profiling_report.json -o analysis.txt -c performance.png -d detailed.json
    hotloop analyze -i runs/run1-20260101-120000 --category "Search=mcts_*"
    """
    patterns = [_pattern(text) for text in categories]
    targets = [path for path in (output, charts, detailed) if path is not None]
    _check_targets(source, targets, charts, force)

    from ..analyse.bottlenecks import find_bottlenecks
    from ..present.analysis import analysis_text
    from ..present.detailed import detailed_data
    from ..printing.text import escape
    from .files import dump, save_bytes

    listing, raw_data = _read(source)
    analysis = find_bottlenecks(listing, min_calls, patterns)
    data = detailed_data(analysis, raw_data) if as_json or detailed else None
    if charts:
        from ..present.charts import draw_bottlenecks

        save_bytes(charts, draw_bottlenecks(analysis))
    if detailed:
        save_bytes(detailed, (dump(data) + "\n").encode())
    if output:
        save_bytes(output, (analysis_text(analysis) + "\n").encode())
    if as_json:
        click.echo(dump(data))
    elif not output:
        click.echo(analysis_text(analysis) + "\n")
    for path in targets:
        click.echo(f"wrote {escape(path)}", err=as_json)
    click.echo(f"next: {_next(source, charts, detailed)}", err=as_json)


def _pattern(text: str) -> tuple[str, str]:
    name, equals, pattern = text.partition("=")
    if not equals or not name.strip() or not pattern:
        raise UsageError(f"--category {text!r} is not NAME=PATTERN; for example --category 'Search=mcts_*'")
    return name.strip(), pattern


def _check_targets(source: str, targets: list[str], charts: str | None, force: bool) -> None:
    from .files import check_target

    if charts is not None and not charts.lower().endswith(".png"):
        raise UsageError(f"the charts are a PNG image; name the file {charts}.png")
    real = [os.path.realpath(path) for path in targets]
    if len(set(real)) < len(real):
        raise UsageError("--output, --charts and --detailed must be different files")
    for path in targets:
        if os.path.realpath(path) == os.path.realpath(source):
            raise UsageError(f"{path} is the input; give another name for the result")
        check_target(path, force)


def _read(source: str) -> tuple[Any, dict[str, Any]]:
    """The operations, and the report they came from."""
    if not os.path.isdir(source) and os.path.basename(source) != "session.json":
        from ..store.foreign import read_report

        return read_report(source)
    from ..present.detailed import session_report
    from ..store.foreign import parse_report
    from .reading import read_diagnosis

    diagnosis = read_diagnosis(source)
    data = session_report(diagnosis)
    return parse_report(diagnosis.path, data), data


def _next(source: str, charts: str | None, detailed: str | None) -> str:
    from ..printing.text import escape

    name = escape(shlex.quote(source))
    if charts is None:
        return f"hotloop analyze -i {name} --charts performance.png"
    if os.path.isdir(source):
        return f"hotloop report {name}"
    if detailed is None:
        return f"hotloop analyze -i {name} --detailed detailed_analysis.json"
    return "record a session with hotloop.start(), then `hotloop report` it: it holds more than this file"
