"""`hotloop whatif SESSION env_step=2x`: what would it gain?"""

from __future__ import annotations

import click


@click.command()
@click.argument("session")
@click.argument("changes", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the prediction as JSON.")
def whatif(session: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Predict the training loop's speed-up if parts of it were faster.

    A part is a label (env_step), a phase (collect) or a function (replay.push); =2x is twice as fast, =0 gone, =-30% that much
    less time. Settings: envs=8 (environments stepped at once), minibatch=x4 (four times as large, as many fewer updates),
    threads=1 (of torch), policy=compiled.

    \b
    hotloop whatif runs/train-20260101-120000 envs=8
    hotloop whatif runs/train-20260101-120000 env_step=2x
    hotloop whatif runs/train-20260101-120000 replay.push=0 backward=1.5x
    """
    from ..analyse.whatif import parse_change, predict_change
    from ..errors import UsageError
    from ..present.tables import pick
    from .files import dump
    from .reading import read_diagnosis

    wanted = [parse_change(text) for text in changes]
    diagnosis = read_diagnosis(session)
    if not diagnosis.phases.known:
        raise UsageError(f"{session} knows no training loop; record it with `hotloop run`")
    result = predict_change(diagnosis.evidence, wanted)
    gain = result.gain
    if as_json:
        effects = [{**pick(x.change, "part left"), **pick(x, "share matched")} for x in result.effects]
        click.echo(
            dump({"effects": effects, "predicted_speedup": pick(gain, "low mid high"), **pick(result, "loop_s after_s")})
        )
        return
    for effect in result.effects:
        click.echo(f"{effect.change.describe()}: now {effect.share * 100:.1f} % of the loop ({', '.join(effect.matched)})")
        if effect.changes_learning:
            click.echo("  this may change what is learnt: compare the return too")
    click.echo(
        f"the loop: {result.loop_s:.2f} s → {result.after_s:.2f} s, {gain.mid:.2f} × as fast ({gain.low:.2f}-{gain.high:.2f})"
    )
    click.echo('next: make the change, then hotloop ab "before" "after"')
