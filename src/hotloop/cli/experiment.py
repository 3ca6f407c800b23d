"""`hotloop experiment plan.toml`: test hypotheses against a baseline, all in turns, and say which helped."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import HotloopError
from .files import dump, save_bytes
from .numbers import say

if TYPE_CHECKING:
    from ..analyse.investigation import Investigation
    from ..experiment.plan import Plan, Variant
    from ..experiment.runner import Arm


@click.command()
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--quick", is_flag=True, help="Fewer rounds and the plan's [quick] arguments.")
@click.option("--rounds", type=click.IntRange(1, 1000), help="Runs of each variant; a verdict needs 5.  [default: the plan's]")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the sessions go.  [default: runs/experiment-NAME]"
)
@click.option("--detailed", is_flag=True, help="Run each variant once more under cProfile: DIR/functions-NN-NAME.txt.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def experiment(plan: Path, quick: bool, rounds: int | None, out: Path | None, detailed: bool, as_json: bool) -> None:
    """Run an investigation. Started again with the same DIR, it goes on where it was interrupted.

    \b
    hotloop experiment investigation.toml --quick
    hotloop experiment investigation.toml
    """
    from ..experiment.functions import write_functions
    from ..experiment.plan import BASELINE, read_plan
    from ..experiment.runner import Setting, name_file, run_slots
    from ..experiment.schedule import make_schedule
    from ..present.investigation import investigation_data, investigation_markdown, investigation_page, investigation_text

    read = read_plan(plan, quick)
    count = rounds or read.rounds
    folder = out or Path("runs") / f"experiment-{name_file(read.name)}{'-quick' * quick}"
    with tempfile.TemporaryDirectory(prefix="hotloop-") as scratch:
        arms, problems = _make_arms(read, Path(scratch))
        for name, problem in problems.items():
            say(f"{name}: {problem}; it is left out")
        schedule = make_schedule(list(arms), count, read.seed)
        setting = Setting(folder, f"{read.name}-{read.seed}", read.seed, read.unit, essential=(BASELINE,))
        sessions, failed = run_slots(schedule, arms, setting, say)
        problems |= failed
        if detailed:
            for i, (name, arm) in enumerate(arms.items()):
                if name not in failed:
                    file = folder / f"functions-{i:02}-{name_file(name)}.txt"
                    say(f"wrote {write_functions(arm, file, read.seed + 1)}")
    result = _judge(read, sessions, problems, count)
    texts = {
        "results.md": investigation_markdown(result),
        "results.html": investigation_page(result),
        "results.json": dump(investigation_data(result)),
    }
    for name, text in texts.items():
        save_bytes(str(folder / name), text.encode())
    click.echo(texts["results.json"] if as_json else investigation_text(result))
    say(f"wrote {folder}/results.html, results.md, results.json")
    if problems:
        raise click.exceptions.Exit(1)


def _make_arms(plan: Plan, scratch: Path) -> tuple[dict[str, Arm], dict[str, str]]:
    """The arms that can be run, and what is wrong with the others."""
    from ..experiment.copies import make_patched_copy
    from ..experiment.runner import Arm

    arms: dict[str, Arm] = {}
    problems: dict[str, str] = {}
    for i, v in enumerate((plan.baseline, *plan.variants)):
        folder, patch = plan.folder, b""
        try:
            if v.patch is not None:
                folder, patch = make_patched_copy(plan.folder, v.patch, scratch / f"{i:03}"), v.patch.read_bytes()
        except (HotloopError, OSError) as error:
            problems[v.name] = str(error)
            continue
        arms[v.name] = Arm(v.name, v.command, folder, v.environment, patch=patch)
    return arms, problems


def _judge(plan: Plan, sessions: dict[str, list[Path]], problems: dict[str, str], rounds: int) -> Investigation:
    from ..analyse.compare import Comparison
    from ..analyse.investigation import Hypothesis, make_investigation
    from ..experiment.plan import BASELINE
    from ..experiment.reading import read_recorded
    from .compare import compare_sets

    base = {r.note.round: r for r in map(read_recorded, sessions[BASELINE]) if r.note}
    results: list[tuple[Hypothesis, Comparison | None, str]] = []
    for v in plan.variants:
        comparison, problem = None, problems.get(v.name, "")
        if not problem:
            try:
                recorded = [read_recorded(path) for path in sessions[v.name]]
                paired = [base[r.note.round] for r in recorded if r.note and r.note.round in base]
                comparison, _ = compare_sets(paired, recorded, plan.margin, plan.unit)
            except HotloopError as error:
                problem = problems[v.name] = str(error)
        results.append((Hypothesis(v.name, _text(v), v.expected, v.confidence, v.note, v.is_option), comparison, problem))
    return make_investigation(plan.name, plan.baseline.command.text, results, asdict(plan.goals), rounds, plan.margin)


def _text(v: Variant) -> str:
    changes = [f"{key}={value}" for key, value in v.environment.items()]
    return " ".join([*changes, v.command.text, *([f"with {v.patch.name}"] if v.patch else [])])
