"""`hotloop compare A B`: is B faster than A, and where?"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import GateError, UnreadableError, UsageError
from .files import check_target, dump, save_shown
from .numbers import percent, say

if TYPE_CHECKING:
    from ..analyse.compare import Comparison
    from ..analyse.predictions import Outcome
    from ..experiment.reading import Recorded

DESPITE = ("work", "machine", "dropped", "loop")  # analyse.refusals.REASONS; importing them would load SciPy for every `--help`

# What `ab` takes too.
margin_option = click.option(
    "--margin", type=percent, default="2%", metavar="PERCENT", show_default=True, help="What counts as no difference."
)
despite_option = click.option("--despite", type=click.Choice(DESPITE), multiple=True, help="Give a verdict all the same.")
gate_option = click.option(
    "--fail-if-slower", type=percent, metavar="PERCENT", help="Exit with 1 if B is slower by that much or more."
)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@margin_option
@click.option(
    "--unit", help="Unit of work: env_steps, updates, iterations, or a counter's name.  [default: the first all have]"
)
@click.option("--paired", is_flag=True, help="The runs of A and B were made in pairs, in the order of their start.")
@despite_option
@gate_option
@click.option("--view", type=click.Choice(["components"]), help="Print the block with baseline, new and speed-up instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option("--html", type=click.Path(), metavar="FILE", help="Write one page with distributions and bars.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def compare(
    a: str,
    b: str,
    margin: float,
    unit: str | None,
    paired: bool,
    despite: tuple[str, ...],
    fail_if_slower: float | None,
    view: str | None,
    as_json: bool,
    html: str | None,
    force: bool,
) -> None:
    """Compare recorded sessions: B with A. Each is a session, or several by a pattern in quotes (or commas between them).

    \b
    hotloop compare runs/base-20260101-120000 runs/new-20260101-120500
    hotloop compare 'runs/base-*' 'runs/new-*' --margin 2%
    hotloop compare 'runs/ab-1/*-A' 'runs/ab-1/*-B' --html comparison.html
    """
    check_target(html, force)
    one, two = (read_set(text) for text in (a, b))
    comparison, outcomes = compare_sets(one, two, margin, unit, paired, despite)
    show_comparison(comparison, outcomes, (a, b), as_json, html, view)
    check_gate(comparison, fail_if_slower)


def read_set(text: str) -> list[Recorded]:
    from ..experiment.reading import read_recorded

    return [read_recorded(path) for path in find_set(text)]


def find_set(text: str) -> list[Path]:
    """The session directories a word stands for, each once."""
    found: list[Path] = []
    for part in text.split(",") if not os.path.exists(text) else [text]:
        matches = [part] if os.path.exists(part) else sorted(glob.glob(part))
        folders = [Path(match) for match in matches if os.path.isdir(os.path.join(match, "shards"))]
        if not folders:
            if not matches:
                raise UnreadableError(f"{part} matches no session; `hotloop list` shows the sessions there are")
            raise UnreadableError(f"{part} is not a session directory; give the folder that holds session.json")
        found += [folder for folder in folders if folder not in found]
    return found


def compare_sets(
    one: Sequence[Recorded],
    two: Sequence[Recorded],
    margin: float,
    unit: str | None,
    paired: bool = False,
    despite: Sequence[str] = (),
) -> tuple[Comparison, tuple[Outcome, ...]]:
    from ..analyse.compare import compare_runs
    from ..analyse.predictions import judge_predictions
    from ..experiment.reading import reduce_arms

    both = {recorded.path.resolve() for recorded in one} & {recorded.path.resolve() for recorded in two}
    if both:
        raise UsageError(f"{min(both)} is on both sides; a run cannot be compared with itself")
    comparison = compare_runs(*reduce_arms(one, two, unit), margin, paired, despite)
    return comparison, judge_predictions(one[0].diagnosis.findings, comparison)


def show_comparison(
    comparison: Comparison,
    outcomes: Sequence[Outcome],
    names: tuple[str, str],
    as_json: bool,
    html: str | None,
    view: str | None = None,
) -> None:
    from ..present.comparison import comparison_data, comparison_text, guide_text
    from ..present.comparison_page import comparison_page

    if html is not None:
        save_shown(html, comparison_page(comparison, outcomes, names).encode(), as_json)
    if as_json:
        click.echo(dump(comparison_data(comparison, outcomes, names)))
    elif view is not None:
        click.echo(guide_text(comparison, names))
    else:
        click.echo(comparison_text(comparison, outcomes, names))


def keep_outcomes(outcomes: Sequence[Outcome], script: str) -> None:
    """What came of predictions that were acted on, for `hotloop predictions`."""
    import time

    from ..model.history import Outcome as Kept
    from ..store.predictions import add_outcomes

    kept = [
        Kept(
            x.finding.cause, x.finding.mechanism, script, x.finding.share, x.finding.gain.low, x.finding.gain.mid,
            x.finding.gain.high, x.actual.mid, x.actual.low, x.actual.high, time.time(),
        )
        for x in outcomes
        if x.acted_on and x.actual.low is not None and x.actual.high is not None
    ]  # fmt: skip
    try:
        add_outcomes(kept)
    except OSError as error:
        say(f"the predictions could not be kept ({error.strerror or error})")


def check_gate(comparison: Comparison, limit: float | None) -> None:
    """A gate fails where B is shown to be slower, and by the limit or more."""
    if limit is None:
        return
    from ..analyse.compare import LEAST_RUNS

    low = comparison.ratio.low
    if comparison.refused or low is None or comparison.pairs < LEAST_RUNS:
        cure = "remove its reason, or overrule it with --despite" if comparison.refused else f"make {LEAST_RUNS} runs a side"
        say(f"--fail-if-slower says nothing: there is no verdict; {cure}")
        return
    if low > 1 and comparison.ratio.mid >= 1 + limit:
        raise GateError(f"B is slower by {(comparison.ratio.mid - 1) * 100:.1f} %, and {limit * 100:g} % are allowed")
    if comparison.detectable is not None and comparison.detectable > limit:
        caught, allowed = comparison.detectable * 100, limit * 100
        say(f"the gate is blunt: this design catches {caught:.1f} %, not {allowed:g} %; use more pairs")
