"""The `hotloop` command: one thin module per verb, errors with their exit codes caught once, here.

Exit codes: 0 ok, 1 a gate failed, 2 usage, 3 unreadable input, 4 internal error.
"""

from __future__ import annotations

import os
import shlex
import sys

import click

from ..errors import HotloopError
from ..version import __version__
from .ab import ab
from .analyze import analyze
from .calibrate import calibrate
from .compare import compare
from .demo import demo
from .doctor import doctor
from .experiment import experiment
from .explain import explain
from .explain_gap import explain_gap
from .predictions import predictions
from .report import report
from .run import run
from .scale import scale
from .sessions import list_sessions
from .trace import trace
from .whatif import whatif

CONTENTS: dict[str, tuple[tuple[click.Command, str], ...]] = {
    "Record": (
        (demo, "see it work: a small training run with its findings and report"),
        (run, "record a training script as it is, and say why it is slow"),
    ),
    "Understand": (
        (report, "where the time of a session went: terminal, page, picture, JSON"),
        (explain, "what a finding means and what to do about it"),
        (predictions, "how well HotLoop has predicted here: predicted beside measured"),
        (whatif, "what the loop would gain if a part of it were faster"),
        (analyze, "rank the operations of a session or of a profiling report"),
    ),
    "Prove": (
        (ab, "run two commands in turns and say which is faster"),
        (compare, "compare sessions that were recorded before"),
        (experiment, "test several hypotheses against a baseline"),
        (scale, "how each part grows with the size of the run"),
        (explain_gap, "why the long run takes more than its share"),
    ),
    "Housekeeping": (
        (list_sessions, "the sessions of a folder, side by side"),
        (trace, "a session for Perfetto, speedscope or a flame graph"),
        (calibrate, "what calls, copies and hand-overs cost on this machine"),
        (doctor, "what works on this machine, and with your script"),
    ),
}


class TableOfContents(click.Group):
    """The verbs by purpose, one line each; a script in the place of a verb gets told which one records it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(len(command.name or "") for rows in CONTENTS.values() for command, _ in rows)
        for title, rows in CONTENTS.items():
            with formatter.section(title):
                formatter.write_dl([((command.name or "").ljust(widest), line) for command, line in rows])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].endswith(".py"):
                ctx.fail(f"{error.message} To record it: hotloop run {shlex.join(args)}")
            raise


@click.group(cls=TableOfContents, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="hotloop", message="%(prog)s %(version)s")
def cli() -> None:
    """Where reinforcement-learning training time goes, what to change, and whether it helped.

    \b
    hotloop demo               a first look, in some seconds
    hotloop run train.py       your own script, unchanged

    Every command explains itself with examples: hotloop COMMAND --help
    """


for rows in CONTENTS.values():
    for command, _ in rows:
        cli.add_command(command)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; answers the exit code."""
    try:
        # Not `cli.main()`, which turns a closed pipe into a failure.
        with cli.make_context("hotloop", list(sys.argv[1:] if arguments is None else arguments)) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except HotloopError as error:
        print(f"hotloop: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader has seen enough, as `head` does; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        print(f"hotloop: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        return 4
    return 0


def entry() -> None:
    sys.exit(main())
