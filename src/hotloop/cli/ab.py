"""`hotloop ab "cmd A" "cmd B"`: run both in turns, in fresh processes, and say which is faster."""

from __future__ import annotations

import random
import time
from pathlib import Path

import click

from ..errors import UsageError
from .compare import check_gate, compare_sets, despite_option, gate_option, keep_outcomes, margin_option, show_comparison
from .files import check_target, dump, save_bytes
from .numbers import say


@click.command()
@click.argument("a", metavar="'COMMAND A'")
@click.argument("b", metavar="'COMMAND B'")
@click.option("--pairs", type=click.IntRange(1, 1000), default=10, show_default=True, help="Runs of each; a verdict needs 5.")
@margin_option
@click.option(
    "--unit", help="Unit of work: env_steps, updates, iterations, or a counter's name.  [default: the first both have]"
)
@click.option("--seed", type=int, help="Of the order, and of {seed} in the commands: pair i gets SEED + i.  [default: random]")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the sessions go.  [default: runs/ab-TIME]")
@click.option("--a-in", type=click.Path(path_type=Path), metavar="DIR", help="Run A in that folder.  [default: here]")
@click.option("--b-in", type=click.Path(path_type=Path), metavar="DIR", help="Run B in that folder.  [default: here]")
@click.option("--detailed", is_flag=True, help="Also run each once under cProfile: DIR/functions-A.txt, the top 50.")
@despite_option
@gate_option
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option("--html", type=click.Path(), metavar="FILE", help="Where the page goes.  [default: DIR/comparison.html]")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def ab(
    a: str,
    b: str,
    pairs: int,
    margin: float,
    unit: str | None,
    seed: int | None,
    out: Path | None,
    a_in: Path | None,
    b_in: Path | None,
    detailed: bool,
    despite: tuple[str, ...],
    fail_if_slower: float | None,
    as_json: bool,
    html: str | None,
    force: bool,
) -> None:
    """Run two commands in turns (ABBA), each time in a fresh process, and compare them.

    \b
    hotloop ab "python train.py" "python train.py --fast" --pairs 10
    hotloop ab "train.py --seed {seed}" "train.py --seed {seed} --envs 8" --margin 2% --fail-if-slower 3%
    hotloop ab "python -m package.train" "python -m package.train" --a-in ../before
    """
    from ..analyse.runs import find_script
    from ..experiment.command import parse_command
    from ..experiment.functions import write_functions
    from ..experiment.reading import read_recorded
    from ..experiment.runner import Arm, Setting, run_slots
    from ..experiment.schedule import make_schedule
    from ..present.comparison import comparison_data
    from ..record.recorder import new_session_directory

    check_target(html, force)
    for folder in (a_in, b_in):
        if folder is not None and not folder.is_dir():
            raise UsageError(f"{folder} is not a folder; give the one the command is to run in")
    sides = (("A", a, a_in), ("B", b, b_in))
    arms = {letter: Arm(letter, parse_command(text), (folder or Path.cwd()).resolve()) for letter, text, folder in sides}
    seed = random.SystemRandom().randrange(10_000) if seed is None else seed
    folder = out or new_session_directory(Path("runs"), "ab")
    schedule = make_schedule("AB", pairs, seed)
    experiment = f"ab-{seed}-{time.time_ns()}" if out is None else f"ab-{seed}-{out.name}"
    sessions, _ = run_slots(schedule, arms, Setting(folder, experiment, seed, unit, essential="AB"), say)
    if detailed:
        for letter, arm in arms.items():
            say(f"{letter} once more, under cProfile")
            say(f"wrote {write_functions(arm, folder / f'functions-{letter}.txt', seed + 1)}")
    one, two = ([read_recorded(path) for path in sessions[letter]] for letter in "AB")
    comparison, outcomes = compare_sets(one, two, margin, unit, despite=despite)
    data = dump(comparison_data(comparison, outcomes, (a, b)))
    save_bytes(str(folder / "comparison.json"), data.encode())
    show_comparison(comparison, outcomes, (a, b), as_json, html or str(folder / "comparison.html"))
    keep_outcomes(outcomes, find_script(one[0].diagnosis.meta))
    say(f"seed {seed}; sessions in {folder}; next: hotloop compare '{folder}/*-A' '{folder}/*-B'")
    check_gate(comparison, fail_if_slower)
