"""The `hotloop` command: one thin module per verb, errors with their exit codes caught once, here.

Exit codes: 0 ok, 1 a gate failed, 2 usage, 3 unreadable input, 4 internal error.
"""

from __future__ import annotations

import os
import sys

import click

from .. import __version__
from ..errors import HotloopError
from .ab import ab
from .analyze import analyze
from .compare import compare
from .doctor import doctor
from .experiment import experiment
from .explain import explain
from .explain_gap import explain_gap
from .report import report
from .run import run
from .scale import scale
from .sessions import list_sessions
from .trace import trace
from .whatif import whatif


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="hotloop", message="%(prog)s %(version)s")
def cli() -> None:
    """Where reinforcement-learning training time goes, what to change, and whether it helped."""


for command in (
    run,
    report,
    explain,
    whatif,
    compare,
    ab,
    experiment,
    scale,
    explain_gap,
    analyze,
    trace,
    list_sessions,
    doctor,
):
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
