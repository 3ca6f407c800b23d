"""`hotloop explain CAUSE`: what a finding means, how it is recognised, what to do."""

from __future__ import annotations

import click


@click.command()
@click.argument("cause", required=False)
def explain(cause: str | None) -> None:
    """Explain a cause that findings name; without one, list them all.

    \b
    hotloop explain
    hotloop explain env-step-hot
    """
    from ..analyse.findings.engine import causes, title
    from ..errors import UsageError

    known = causes()
    if cause is None:
        wide = max(map(len, known))
        for name, module in known.items():
            click.echo(f"{name:<{wide}}  {title(module)}")
        click.echo("\nnext: hotloop explain CAUSE")
        return
    if cause not in known:
        near = [name for name in known if cause in name or any(part in name for part in cause.split("-"))]
        raise UsageError(
            f"{cause} is no cause; did you mean {near[0]}?" if near else f"{cause} is no cause; `hotloop explain` lists them"
        )
    click.echo(f"{cause}\n{'=' * len(cause)}\n")
    click.echo((known[cause].__doc__ or "").strip())
