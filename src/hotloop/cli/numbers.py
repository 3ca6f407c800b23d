"""Numbers as people type them, as types of click's: 2%, 64,128,256; and what a verb says meanwhile."""

from __future__ import annotations

import math

import click


def percent(text: str) -> float:
    """`2%` or `0.02`, as a share.

    >>> percent("2%"), percent("0.5")
    (0.02, 0.5)
    """
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no percentage; write e.g. 2%") from None
    if not math.isfinite(share) or not 0 < share < 1:
        raise click.BadParameter(f"{text!r} is not between 0 and 100 %; write e.g. 2%")
    return share


def sizes(text: str) -> tuple[int, ...]:
    """
    >>> sizes("256,64,128")
    (64, 128, 256)
    """
    try:
        found = {int(word) for word in text.split(",") if word.strip()}
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of whole numbers; write e.g. 64,128,256,512,1024") from None
    if len(found) < 2 or min(found) < 1:
        raise click.BadParameter("give at least two different sizes, each 1 or more, e.g. 64,128,256,512,1024")
    return tuple(sorted(found))


def say(text: str) -> None:
    """Progress goes to standard error: standard output is for the answer."""
    click.echo(f"hotloop: {text}", err=True)
