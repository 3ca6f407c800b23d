"""`hotloop demo [NAME]`: a training run of a minute at most, recorded, with its findings and its report.

What lives here: which demos there are. The quickest is part of the package and needs nothing else; the others are the examples
of a checkout. All go through `hotloop run`, as your own script would.
"""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from ..errors import UsageError
from .run import run

SHIPPED = Path(__file__).parents[1] / "demos"
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Demo:
    script: str  # below the folder of its kind
    arguments: tuple[str, ...] = ()  # {out}: where it may write
    fix: tuple[str, ...] = ()  # these arguments more, and the slow part is gone
    needs: tuple[str, ...] = ()  # packages
    shipped: bool = False  # with the package; otherwise in examples/


DEMOS = {
    "maze": Demo("maze.py", fix=("--fixed",), shipped=True),
    "quickstart": Demo("quickstart.py"),
    "battle_threads": Demo(
        "battle_threads/train.py", ("--episodes", "640", "--no-profile", "--out", "{out}"),
        needs=("torch", "yaml", "websockets"),
    ),
    "petri_ppo": Demo(
        "petri_ppo/train.py", ("--batches", "8", "--episodes", "20", "--no-turbo", "--out", "{out}"), ("--turbo",),
        needs=("torch", "torchrl"),
    ),
    "ricochet_rgb": Demo(
        "ricochet_rgb/train_agent.py", ("--convlstm", "--timesteps", "4096", "--out", "{out}"), ("--cache-static",),
        needs=("torch", "PIL"),
    ),
    "snake_dqn": Demo(
        "snake_dqn/scripts/training/train_dqn_mlp.py", ("--env-steps", "12800", "--envs", "32", "--out", "{out}"),
        ("--push", "batch"), needs=("torch",),
    ),
    "supervised_to_ppo": Demo(
        "supervised_to_ppo/profile_thinky_supervised.py", ("--out", "{out}", "trainer.profiler.enabled=False"), needs=("torch",)
    ),
}  # fmt: skip
QUICKEST = "maze"


@click.command()
@click.argument("name", default=QUICKEST)
@click.pass_context
def demo(context: click.Context, name: str) -> None:
    """Record a small training run, show what slows it and where its report is. It takes a minute at most.

    \b
    maze               tabular Q-learning; the default: some seconds, needs nothing else
    quickstart         Q-learning with eight environments on a thread pool
    battle_threads     PPO in battles that a server in another process referees
    petri_ppo          TorchRL PPO learns to schedule a job shop
    ricochet_rgb       recurrent PPO from drawn pictures
    snake_dqn          DQN on 32 games of Snake side by side
    supervised_to_ppo  imitation of a teacher, then PPO

    All but the first are in the examples/ of a checkout; those from battle_threads on need torch.

    \b
    hotloop demo
    hotloop demo snake_dqn
    """
    from ..record.recorder import new_session_directory

    chosen = DEMOS.get(name)
    if chosen is None:
        raise UsageError(f"there is no demo {name}; there are: {', '.join(DEMOS)}")
    source = find_script(name, chosen)
    session = new_session_directory(Path("runs"), f"demo-{name}")
    files = session.with_name(f"{session.name}-files")
    script = _copy(source, files) if chosen.shipped else source
    words = (str(script), *(word.format(out=files) for word in chosen.arguments))
    click.echo(f"hotloop: {shlex.join(('hotloop', 'run', *words))}", err=True)
    code = 0
    try:
        context.invoke(run, name=f"demo-{name}", out=session, duration=LIMIT_S, command=words)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    if code not in (0, 130):  # 130: the minute was over
        context.exit(code)
    click.echo(f"\nthe report as a page: {session / 'report.html'}")
    click.echo(f"next: {_next(words, chosen.fix) or f'hotloop report {session}'}")


def find_script(name: str, demo: Demo) -> Path:
    """Where its script is, if all it needs is here."""
    if demo.shipped:
        return SHIPPED / demo.script
    examples = find_examples(Path.cwd())
    if examples is None:
        raise UsageError(
            f"{name} is in the examples/ of HotLoop's repository: clone it and run `hotloop demo {name}` there; "
            "`hotloop demo` alone works anywhere"
        )
    missing = [package for package in demo.needs if find_spec(package) is None]
    if missing:
        raise UsageError(
            f"{name} needs {missing[0]}: pip install -c constraints.txt '.[demo]' in {examples.parent}; "
            "`hotloop demo` alone needs nothing"
        )
    return examples / demo.script


def find_examples(folder: Path) -> Path | None:
    """The examples of the checkout that a folder belongs to, or that this very file is part of."""
    for place in (folder, *folder.parents, Path(__file__).parents[3]):
        if (place / "examples" / "quickstart.py").is_file() and (place / "src" / "hotloop").is_dir():
            return place / "examples"
    return None


def _copy(source: Path, folder: Path) -> Path:
    """A copy to read and to change; and what lies in our own package would not count as the user's code."""
    folder.mkdir(parents=True)
    return Path(shutil.copy(source, folder))


def _next(words: tuple[str, ...], fix: tuple[str, ...]) -> str:
    """The command that shows that the fix helps, where there is one."""
    if not fix:
        return ""
    before, after = (shlex.quote(shlex.join(("python", *command))) for command in (words, (*words, *fix)))
    return f"hotloop ab {before} {after} --pairs 5"
