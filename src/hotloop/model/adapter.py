"""What HotLoop knows of one library, as one object.

What lives here: `Adapter` and what it is made of. Who may touch it: `hotloop.adapters` and packages of others make them; hooks
and ownership are read from them. Invariant: an adapter imports nothing of the library it is for; what it
works on is handed to its functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .role import Role

Owner = Literal["env library", "RL framework", "tensor runtime", "IPC", "logging"]
OWNERS: frozenset[str] = frozenset(get_args(Owner))
OWNS = "owns"  # the state of a row in the hooks file that says what another package's adapter owns: "env library: snakes pits"


@dataclass(frozen=True, slots=True)
class Target:
    """A function, or a method of a class, that is hooked once its module is imported."""

    module: str
    path: str  # in it: "make", "Logger.dump"
    role: Role
    counts: Callable[[tuple[Any, ...], Any], Mapping[str, int]] | None = None  # what a call adds, by its arguments and result


@dataclass(frozen=True, slots=True)
class Kind:
    """The library's classes below one base class; of their own methods, those with these names are hooked."""

    base: str  # its name; "": any class of the library
    methods: Mapping[str, Role]
    derived: bool = False  # classes that others derive from it too; with that, all is said about them


@dataclass(frozen=True, slots=True)
class Adapter:
    name: str  # as `--hooks` takes it
    owner: Owner
    packages: tuple[str, ...]  # top-level names: their files are the owner's, their classes `kinds` are looked for among
    tried: str = ""  # with which versions
    opaque: bool = False  # no environment, buffer or model of a training loop is defined there: its classes are passed by
    targets: tuple[Target, ...] = ()
    kinds: tuple[Kind, ...] = ()
    modules: tuple[str, ...] = ()  # `install(patches, module)` is called when one of these is imported,
    install: Callable[[Any, Any], None] | None = None  # for what targets and kinds cannot say
    resets_in_next_step: Callable[[Any], bool] | None = None  # is it an environment that ends an episode a step late?

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The modules whose import it waits for, each once."""
        return tuple(dict.fromkeys((*self.modules, *(target.module for target in self.targets))))
