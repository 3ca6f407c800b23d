"""A command as a user writes it, and what `hotloop run` gets of it.

What lives here: words from a string, by the shell's quoting rules but without a shell; placeholders; the two ways to start a
Python program. Invariant: what a command holds is only ever an argument, never looked at by a shell.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import UsageError

_PYTHON = re.compile(r"python(w)?(\d+(\.\d+)*)?(\.exe)?$", re.IGNORECASE)
_PLAIN = re.compile(r"[\w@%+=:,./{}-]+")
_PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*)\}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Command:
    """A Python program with its arguments."""

    words: tuple[str, ...]  # the script, or the module, first
    is_module: bool = False

    @property
    def arguments(self) -> list[str]:
        """What follows the options of `hotloop run`, or of the interpreter."""
        return ["-m", *self.words] if self.is_module else [*self.words]

    @property
    def text(self) -> str:
        """As a person would type it, placeholders as they are."""
        return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in self.arguments)


def parse_command(text: str) -> Command:
    """`python train.py --x`, `train.py --x`, `python -m package.train`.

    >>> parse_command("python train.py --name 'a b'").words
    ('train.py', '--name', 'a b')
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the command {text!r} cannot be split into words ({error}); close the quotes") from None
    if words and _PYTHON.match(os.path.basename(words[0])):
        _check_interpreter(words[0])
        words = words[1:]
    if words[:1] == ["-m"]:
        if len(words) < 2:
            raise UsageError(f"the command {text!r} names no module after -m; give e.g. 'python -m package.train'")
        return Command(tuple(words[1:]), is_module=True)
    if not words:
        raise UsageError(f"the command {text!r} names no script; give e.g. 'python train.py --seed {{seed}}'")
    if words[0].startswith("-"):
        raise UsageError(f"options of the interpreter ({words[0]}) are not passed on; set them by environment (PYTHON...)")
    return Command(tuple(words))


def _check_interpreter(word: str) -> None:
    """A path to another interpreter would not be followed: say so instead."""
    if os.sep in word and os.path.exists(word):
        here = os.path.dirname(os.path.abspath(sys.executable))
        if os.path.dirname(os.path.abspath(word)) != here:
            raise UsageError(
                f"{word} is another interpreter than HotLoop's ({sys.executable}); install HotLoop there, or say python"
            )


def fill(command: Command, values: Mapping[str, object]) -> Command:
    """The command with `{name}` replaced, word by word, so that a value stays one argument.

    >>> fill(parse_command("train.py --seed {seed}"), {"seed": 3}).words
    ('train.py', '--seed', '3')
    """
    put = lambda found: str(values[found[1]]) if found[1] in values else found[0]
    return Command(tuple(_PLACEHOLDER.sub(put, word) for word in command.words), command.is_module)


def placeholders(command: Command) -> set[str]:
    return {found[1] for word in command.words for found in _PLACEHOLDER.finditer(word)}


def add_arguments(command: Command, arguments: str) -> Command:
    try:
        return Command((*command.words, *shlex.split(arguments)), command.is_module)
    except ValueError as error:
        raise UsageError(f"the arguments {arguments!r} cannot be split into words ({error}); close the quotes") from None
