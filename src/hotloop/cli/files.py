"""Files a verb writes: checked before the work begins, then written whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from ..errors import HotloopError, UsageError


def check_target(path: str | None, force: bool) -> None:
    """Refuse, in one sentence, a file that exists (unless forced) or cannot be. None: none is asked for."""
    if path is None:
        return
    if os.path.isdir(path):
        raise UsageError(f"{path} is a directory; give the name of a file")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} exists; give another name, or --force to replace it")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UsageError(f"{folder} is not a directory; make it first, or give another place")


@contextmanager
def open_target(output: str) -> Iterator[IO[bytes]]:
    """Where the bytes go; `-` is standard output. A file appears whole or not at all; trouble with it is one sentence."""
    draft = ""
    try:
        if output == "-":
            yield sys.stdout.buffer
            sys.stdout.flush()
            return
        target = os.path.realpath(output)  # a link stays a link
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            with open(target, "wb") as device:  # a pipe or a device is written to, never replaced
                yield device
            return
        draft = f"{target}.{os.getpid()}.part"
        if os.path.lexists(draft):  # of a process with our number that was killed
            os.unlink(draft)
        with open(draft, "xb") as file:
            yield file
        os.replace(draft, target)
    except BrokenPipeError:
        if output == "-":  # what is still buffered goes nowhere, instead of failing again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
    except OSError as error:
        where = "standard output" if output == "-" else output
        why = error.strerror or error
        raise HotloopError(f"{where} could not be written ({why}); make room or choose another place") from None
    finally:
        if draft and os.path.lexists(draft):
            os.unlink(draft)


def dump(data: Any) -> str:
    """As JSON, the way every verb prints and writes it."""
    return json.dumps(data, indent=1, allow_nan=False)


def save_bytes(path: str, data: bytes) -> None:
    with open_target(path) as file:
        file.write(data)


def save_shown(path: str, data: bytes, as_json: bool, hint: str = "") -> None:
    """Save it and say so; beside JSON on standard error."""
    save_bytes(path, data)
    click.echo(f"wrote {path}{hint}", err=as_json)
