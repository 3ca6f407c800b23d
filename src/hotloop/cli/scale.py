"""`hotloop scale "cmd --episodes {n}" --n 64,128,…`: how each component grows with the size of the run."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from .files import check_target, dump, save_bytes
from .numbers import say, sizes


@click.command()
@click.argument("command", metavar="'COMMAND {n}'")
@click.option(
    "--n",
    "chosen",
    type=sizes,
    required=True,
    metavar="64,128,256,512,1024",
    help="The sizes; 5 over a factor of 16 give exponents.",
)
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs of each size.")
@click.option("--predict", type=click.IntRange(1), metavar="N", help="Say what a run of this size would take.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the order, and of {seed} in the command.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the sessions go.  [default: runs/scale-TIME]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the laws as JSON.")
@click.option(
    "--html", type=click.Path(), metavar="FILE", help="Where the page with the plots goes.  [default: DIR/scaling.html]"
)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def scale(
    command: str,
    chosen: tuple[int, ...],
    runs: int,
    predict: int | None,
    seed: int,
    out: Path | None,
    as_json: bool,
    html: str | None,
    force: bool,
) -> None:
    """Run a command at several sizes, in turns, and fit a law to each component. With the same DIR it goes on where it was.

    \b
    hotloop scale "train.py --episodes {n}" --n 64,128,256,512,1024 --predict 5000
    hotloop scale "train.py --steps {n} --seed {seed}" --n 1000,4000,16000 --runs 2 --out runs/scaling
    """
    from ..analyse.runs import whole_run
    from ..analyse.sweep import Sized, read_sweep
    from ..experiment.command import parse_command, placeholders
    from ..experiment.runner import Arm, Setting, run_slots
    from ..experiment.schedule import make_schedule
    from ..present.sweep import sweep_data, sweep_page, sweep_text
    from ..record.recorder import new_session_directory
    from .reading import read_diagnosis

    check_target(html, force)
    parsed = parse_command(command)
    if "n" not in placeholders(parsed):
        raise UsageError(f"the command {command!r} must hold {{n}} for the size")
    unknown = placeholders(parsed) - {"n", "seed"}
    if unknown:
        raise UsageError(f"the command {command!r} holds {{{min(unknown)}}}; only {{n}} and {{seed}} are known")
    arms = {f"n={n}": Arm(f"n={n}", parsed, Path.cwd(), values={"n": n}) for n in chosen}
    folder = out or new_session_directory(Path("runs"), "scale")
    schedule = make_schedule(list(arms), runs, seed)
    sessions, _ = run_slots(schedule, arms, Setting(folder, f"scale-{seed}", seed, needs_unit=False, essential=list(arms)), say)
    found, trends = [], []
    for n in chosen:
        for path in sessions[f"n={n}"]:
            diagnosis = read_diagnosis(path)
            found.append(Sized(n, *whole_run(diagnosis)))
            if n == chosen[-1] and path == sessions[f"n={n}"][-1]:
                history = diagnosis.iterations
                growing = [t for t in history.trends if t.trend.verdict == "grows"] if history else []
                trends = [
                    f"{t.name} grows ×{t.trend.growth:.2f} (calls ×{t.calls_growth:.2f}, time per call ×{t.cost_growth:.2f})"
                    for t in growing
                ]
    sweep = read_sweep(found, predict, trends)
    data = dump(sweep_data(sweep))
    save_bytes(str(folder / "scaling.json"), data.encode())
    target = html or str(folder / "scaling.html")
    save_bytes(target, sweep_page(sweep).encode())
    click.echo(data if as_json else sweep_text(sweep))
    say(f"wrote {target}; sessions in {folder}")
    first, last = sessions[f"n={chosen[0]}"][0], sessions[f"n={chosen[-1]}"][-1]
    say(f"next: hotloop explain-gap {first} {last}")
