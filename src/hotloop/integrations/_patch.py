"""Exchanging functions for hooked ones, and putting them back.

What lives here: the zones of hooks, and the list of what was exchanged. Who may touch it: the adapters, each of which gets one
`Patches`. Invariant: `undo()` leaves every class and module as it was found, newest first; a target that is not
there is a note, never an exception.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..model import role as r
from ..model import shard as m
from ..model.phase import COLLECT, EVAL, LEARN, NONE, PHASE_NAMES, STARTUP
from .environments import Trial

if TYPE_CHECKING:
    from ..model.adapter import Adapter, Target
    from ..model.trace import TraceSettings
    from ..record._zone import Zone

_ABSENT = object()
# Parts with device times, see `cuda`: phase-level calls, and those that queue much.
MARKED = frozenset({"env_step", "env_reset", "forward", "policy", "loss", "backward", "optimizer", "clip_grad", "sample",
                    "advantage", "state_copy", "rollout", "train", "evaluate"})  # fmt: skip
_parts: dict[str, list[Patches]] = {}


def undo_parts(name: str) -> bool:
    """Undo all patches that were made under a name, for good; were there any?"""
    parts = _parts.pop(name, [])
    for part in parts:
        part.undo()
        part.closed = True
    return bool(parts)


EVERY = 39  # of so many model calls, LOOK_BURST neighbours are looked at


class Patches:
    """What was exchanged for one adapter."""

    def __init__(
        self, recorder: Any, note: Callable[[str], None], session: str = "", trace: TraceSettings | None = None
    ) -> None:
        self.recorder = recorder
        self.note = note
        self.session, self.trace = session, trace  # where to write, and the deep window, for those who do
        # by a method's name: what looks at one in EVERY calls of it; torch's integration sets it
        self.looker: Callable[[str], Callable[..., None]] | None = None
        self._undo: list[Callable[[], None]] = []
        self.count = 0
        self.closed = False  # nothing more is exchanged

    def part(self, name: str) -> Patches:
        """Patches that can be undone by that name before the rest."""
        made = Patches(self.recorder, self.note)
        _parts.setdefault(name, []).append(made)
        self._undo.append(made.undo)
        return made

    # ---- making ----

    def zone(self, part: str, phase: int, owns: bool = True, kind: int = m.USER) -> Zone:
        name = f"{PHASE_NAMES[phase]}/{part}" if phase else part
        zone: Zone = self.recorder.zone(name, kind, phase, owns, part in MARKED)
        return zone

    def hooked(self, function: Any, role: r.Role, after: Callable[..., Any] | None = None, every: int = 1) -> Any:
        """The function with its role. Generators keep their spans over their running stretches."""
        code = getattr(function, "__code__", None)
        if code is not None and code.co_flags & 0x220:
            from ..record.functions import decorate

            return decorate(self.recorder, self.zone(role.part, role.phase, role.owns), function)
        if role.kind == r.TRIAL and after is None:
            after = Trial()
        zones = [self.zone(role.part, role.phase, role.owns), None, None, None]
        if role.phase == NONE:
            zones[1:] = [self.zone(_part(role, phase), phase, role.owns) for phase in (COLLECT, LEARN, EVAL)]
            zones[0] = zones[COLLECT]
        elif role.phase == COLLECT:
            zones[EVAL] = self.zone(role.part, EVAL, role.owns)
        made = self.recorder.hook(
            function, role.kind, tuple(zones), role.event, role.inside, role.within, role.counts, after, every
        )
        made.role = role  # for those who pickle it by value, see revive()
        return made

    def waiting(self, function: Any, name: str, after: Callable[..., Any] | None = None) -> Any:
        """The function as a known wait; of some calls, `after` is told."""
        zone = self.recorder.zone(f"(waiting: {name})", m.WAIT, NONE, True)
        return self.recorder.hook(function, r.SPAN, (zone, None, None, None), NONE, 0, 0, r.COUNT_NOTHING, after, EVERY)

    # ---- exchanging ----

    def wrap(self, owner: Any, name: str, role: r.Role, after: Callable[..., Any] | None = None, every: int = 1) -> None:
        """Exchange one attribute of a class or module; what it inherits is left alone."""
        self.exchange(owner, name, lambda function: self.hooked(function, role, after, every))

    def apply(self, adapter: Adapter, module: Any) -> None:
        """All that an adapter says of one module."""
        for target in adapter.targets:
            if target.module == module.__name__:
                self._hook(module, target)
        if adapter.install is not None and module.__name__ in adapter.modules:
            adapter.install(self, module)

    def _hook(self, module: Any, target: Target) -> None:
        *path, name = target.path.split(".")
        owner = functools.reduce(lambda inside, part: getattr(inside, part, None), path, module)
        if owner is None:
            self.note(f"{module.__name__}.{target.path} is not there")
        else:
            self.wrap(owner, name, target.role, self._counting(target) if target.counts is not None else None)

    def _counting(self, target: Target) -> Callable[..., None]:
        """Adds what a call counts. The first time that fails is the last."""
        counts, tell = target.counts, self.recorder.count_seen

        def after(args: tuple[Any, ...], result: Any, phase: int) -> None:
            nonlocal counts
            try:
                for name, number in counts(args, result).items() if counts is not None else ():
                    tell("eval_env_steps" if name == "env_steps" and phase == EVAL else name, number)
            except Exception as error:
                counts = None
                self.note(f"{target.module}.{target.path} is counted no more ({type(error).__name__}: {error})")

        return after

    def try_out(self, owner: Any, name: str) -> None:
        """A method that may be an environment's step; where its results show that it is none, it is put back."""
        trial = Trial()
        made = len(self._undo)
        self.wrap(owner, name, r.MAYBE_STEP, trial)
        trial.give_up = self._undo[-1] if len(self._undo) > made else None

    def exchange(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        if self.closed:
            return
        found = vars(owner).get(name, _ABSENT)
        if found is _ABSENT:
            self.note(f"{getattr(owner, '__name__', owner)}.{name} is not there")
            return
        function = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        if is_ours(function):
            return
        try:
            made = make(function)
            self.put(owner, name, type(found)(made) if isinstance(found, (staticmethod, classmethod)) else made)
        except Exception as error:  # whatever a library does to forbid it
            self.note(f"{getattr(owner, '__name__', owner)}.{name} cannot be hooked ({type(error).__name__}: {error})")

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until `undo()`."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self.count += 1

        def back() -> None:
            if vars(owner).get(name) is value:  # somebody else's patch on top of ours stays
                if before is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)

        self._undo.append(back)

    def later(self, action: Callable[[], None]) -> None:
        """Something else to do at `undo()`."""
        self._undo.append(action)

    def undo(self) -> None:
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                self.note(f"a hook could not be removed ({error})")


def revive(function: Any, role: r.Role) -> Any:
    """In another process: a function that was hooked where it was pickled."""
    from ..record.backend import recorder

    return Patches(recorder, lambda text: None).hooked(function, role) if recorder.is_on() else function


def is_ours(function: Any) -> bool:
    return type(function).__name__ == "Hooked"


def _skipper(torch: Any) -> Callable[[types.CodeType], None] | None:
    """What makes dynamo run a function as it is, without importing dynamo (seconds). Versions of torch name it differently."""
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    found: Callable[[types.CodeType], None] | None = getattr(frames, "skip_code", None)
    if found is None and hasattr(frames, "set_code_exec_strategy"):
        # This frame as it is; the ones it calls (the user's) as ever.
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        return lambda code: frames.set_code_exec_strategy(code, strategy)
    return found


def hide_from_dynamo(torch: Any, module: Any) -> None:
    """`torch.compile` looks into every Python frame that runs below what it compiles; ours it is to leave alone."""
    skip = _skipper(torch)
    owners = [
        module,
        *(value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__),
    ]
    waiting = [value.__code__ for owner in owners for value in vars(owner).values() if isinstance(value, types.FunctionType)]
    while waiting and skip is not None:
        code = waiting.pop()
        skip(code)
        waiting += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]


def is_plain(function: Any) -> bool:
    """A function that a span may stand around: no coroutine, nothing compiled."""
    return isinstance(function, types.FunctionType) and not function.__code__.co_flags & 0x2A0


def _part(role: r.Role, phase: int) -> str:
    return "policy" if role.part == "forward" and phase != LEARN else role.part


def gap_zones(recorder: Any) -> None:
    """The labels of what lies between two events."""
    pairs = []
    for after in (COLLECT, LEARN, EVAL):
        for before in (COLLECT, LEARN, EVAL):
            phase = after if before == EVAL else before
            part = "other" if phase == after else f"other after {PHASE_NAMES[after]}"
            name = f"{PHASE_NAMES[phase]}/{part}"
            mark = phase | (after << 4 if phase != after else 0)
            pairs.append((after, before, recorder.zone(name, m.INFERRED, mark, True)))
    start = recorder.zone("(start-up)", m.USER, STARTUP, True)
    end = recorder.zone("(shut-down)", m.USER, STARTUP, True)
    recorder.phases_start(pairs, start, end)
