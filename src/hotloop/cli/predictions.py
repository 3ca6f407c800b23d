"""`hotloop predictions`: how well HotLoop has predicted on this machine."""

from __future__ import annotations

import statistics
import time

import click

from .files import dump

SHOWN = 20


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print all of them as JSON.")
def predictions(as_json: bool) -> None:
    """List what findings predicted, beside what `hotloop ab` measured after the change.

    \b
    hotloop predictions
    hotloop predictions --json
    """
    from ..store.predictions import predictions_file, read_outcomes

    outcomes = read_outcomes()
    if as_json:
        click.echo(dump([outcome.as_dict() | {"held": outcome.held} for outcome in outcomes]))
        return
    if not outcomes:
        click.echo(
            "no prediction was put to the test yet: act on a finding of `hotloop run`, then run the command behind its `check:`"
        )
        return
    click.echo(f"{'when':<11} {'cause':<24} {'predicted':>20} {'measured':>20}  held")
    for x in outcomes[-SHOWN:]:
        said, got = f"{x.mid:.2f} ({x.low:.2f}-{x.high:.2f})", f"{x.actual:.2f} ({x.actual_low:.2f}-{x.actual_high:.2f})"
        day = time.strftime("%Y-%m-%d", time.localtime(x.unix_s))
        click.echo(f"{day:<11} {x.cause[:24]:<24} {said:>20} {got:>20}  {'yes' if x.held else 'no'}")
    near = statistics.median(abs(x.mid / x.actual - 1) for x in outcomes)
    held = sum(x.held for x in outcomes)
    click.echo(
        f"{held} of {len(outcomes)} intervals held; the middle one was off by {near * 100:.0f} %. Kept in {predictions_file()}"
    )
