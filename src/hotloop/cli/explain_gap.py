"""`hotloop explain-gap SMALL LARGE`: why the long run took more than its share."""

from __future__ import annotations

import click

from .files import check_target, dump, save_shown


@click.command(name="explain-gap")
@click.argument("small", type=click.Path(), metavar="SESSION_SMALL")
@click.argument("large", type=click.Path(), metavar="SESSION_LARGE")
@click.option("--json", "as_json", is_flag=True, help="Print the split as JSON.")
@click.option("--html", type=click.Path(), metavar="FILE", help="Write it as a page.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def explain_gap(small: str, large: str, as_json: bool, html: str | None, force: bool) -> None:
    """Split the ratio of two runs into episodes × steps/episode × calls/step × seconds/call, exactly, per component.

    \b
    hotloop explain-gap runs/train-1024 runs/train-5000
    hotloop explain-gap runs/train-1024 runs/train-5000 --html gap.html
    """
    from ..analyse.gap import explain_gap as explain
    from ..analyse.gap import read_side
    from ..present.gap import gap_data, gap_page, gap_text
    from .reading import read_diagnosis

    check_target(html, force)
    gap = explain(*(read_side(read_diagnosis(path)) for path in (small, large)))
    if html is not None:
        save_shown(html, gap_page(gap).encode(), as_json)
    click.echo(dump(gap_data(gap)) if as_json else gap_text(gap))
