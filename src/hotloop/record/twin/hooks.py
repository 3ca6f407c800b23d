"""Hooked functions in Python: calls that mean something in a training loop; see `record/native/hooks.h`.

Invariant: the function is called exactly as it was called, its result and exceptions pass unchanged, and whatever goes wrong
on our side is swallowed and counted.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import CodeType, MethodType
from typing import Any

from ...model import role as r
from ...model import shard as m
from ...model.phase import COLLECT, EVAL
from ...store import schema as s
from . import environments as e
from .lifting import adopt
from .phases import Pending, Site, begin_loop, resolve
from .readings import charge, settle
from .rows import iterate, work_done
from .spans import Zone, awake, current_track, outside, zone_of
from .tree import BUSY, Track, state

DECIDING = EVAL + 1  # the phases an event can decide, and none
MOST_SITES = 4096
NO_LAYER = nullcontext()
BY_VALUE = ("cloudpickle", "dill")

_sites: dict[tuple[int, int], Site] = {}  # by code object and instruction
_revive: list[Any] = []


class Hooked:
    """A function whose calls mean something in a training loop."""

    __slots__ = (
        "__dict__", "__weakref__", "_after", "_aside", "_calls", "_counts", "_event", "_every", "_function", "_inside",
        "_layers", "_role", "_trained", "_transparent", "_within", "_zones",
    )  # fmt: skip

    def __init__(
        self, function: Any, role: int, zones: tuple[Zone | None, ...], event: int, inside: int, within: int, counts: int,
        after: Any, every: int,
    ) -> None:  # fmt: skip
        self._function, self._role, self._zones = function, role, zones
        self._event, self._inside, self._within, self._counts = event, inside, within, counts
        self._after, self._every, self._calls = after, every or 1, 0
        self._trained = -1  # env steps outside, when it was first called
        self._aside = False  # shown not to be what it was taken for: passed by for good
        self._transparent = False  # holds an event of its own: no span, only what is in it
        self._layers: dict[type, Zone | None] = {}
        for name in ("__doc__", "__module__"):  # a class has these itself; the rest is found by __getattr__
            self.__dict__[name] = getattr(function, name, None)

    @property
    def __wrapped__(self) -> Any:
        return self._function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce__(self) -> Any:
        """Pickled by name, as functions are; by value where classes are (a name would then lead to another class)."""
        role = self.__dict__.get("role")
        file = sys._getframe(1).f_code.co_filename
        if _revive and role is not None and _path_has(file, BY_VALUE):
            return _revive[0], (self._function, role)
        return self._function.__qualname__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:
        track = awake()
        if track is None or self._aside:
            return self._function(*args, **keywords)
        if self._role == r.ENV:
            return self._call_env(track, args, keywords)
        if self._role == r.TRIAL:
            return self._call_trial(track, args, keywords)
        if track.inside & self._within or self._transparent:
            return self._function(*args, **keywords)
        if self._role == r.LISTS and not (args and isinstance(args[0], (list, tuple))):
            return self._function(*args, **keywords)
        if self._role in (r.MODEL, r.LISTS):
            return self._call_model(track, args, keywords)
        return self._call_span(track, args, keywords)

    # ---- roles ----

    def _call_env(self, track: Track, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        gen = track.gen
        env = None
        if track.inside & self._within:
            if track.env is None and args and self._counts:
                return self._call_inside(track, e.env_of(args[0]), None, args, keywords)
            return self._call_layer(track, args, keywords)
        layer = self._layer_of(args)
        held, holder = e.HELD_BY_NONE, None
        if args and self._counts:
            env = e.env_of(args[0])
            if env.nest != e.OUTERMOST:
                held, holder = e.find_holder(track, env, args[0], self._counts in (r.COUNT_STEP, r.COUNT_ENDS))
                if not track.gen == gen == state.gen_on:
                    return self._function(*args, **keywords)
                if held == e.HELD_INSIDE:
                    return self._call_inside(track, env, holder, args, keywords)
        _event_begins(track, self._event)
        if not state.in_loop and self._counts != r.COUNT_RESET:
            _begin_loop(track)
        if track.frames and track.frames[0].zone is state.reserved["(handed over)"]:
            _change(track, _tell_waiting, self._event)
        if track.within_phase != EVAL and not held:
            _maybe_iterate(track)
        before = track.inside
        zone = self._zone_in(track.within_phase)
        track.inside |= self._inside
        zone.__enter__()
        began, resets, outer = track.last, track.resets, track.env
        track.env = args[0] if args else ...
        track.env_calls += 1
        listened, heard = track.listens, track.heard
        tells = env is None or env.ends == e.ENDS_TOLD
        track.listens = env is not None and (self._counts == r.COUNT_ENDS or (self._counts == r.COUNT_STEP and not tells))
        track.heard = 0
        collects = self._counts == r.COUNT_STEP and track.within_phase != EVAL and gen == state.gen_on
        slot = env.record() if env is not None and collects else None
        try:
            with layer or NO_LAYER:
                result = self._function(*args, **keywords)
        finally:
            zone.__exit__()
            track.inside, track.env = before, outer
            ends, track.listens, track.heard = track.heard, listened, heard  # what was heard belongs to this call
        if track.gen == gen == state.gen_on:
            if slot is not None:
                e.count_env(slot, track, layer, track.last - began)
            track.heard = ends
            if self._counts == r.COUNT_STEP:
                _guard(e.count_step, track, gen, env, args[0] if args else None, result, held != e.HELD_BY_NONE)
            elif self._counts == r.COUNT_RESET:
                _guard(e.count_reset, track, env, resets)
            elif self._counts == r.COUNT_ENDS and not held:
                e.count_ends(track)
            if held and env is not None and holder is not None and gen == state.gen_on:
                _guard(e.watch_step, env, holder)
            track.heard = heard
            self._call_after(args, result, track.phase)
        return result

    def _call_inside(
        self, track: Track, env: e.Env, holder: e.Holder | None, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """The outermost call of an environment on this thread that is part of another's call on another one."""
        layer = self._layer_of(args)
        gen, resets, depth, before, phase = track.gen, track.resets, len(track.frames), track.inside, track.within_phase
        outer = holder.track if holder is not None else _track_by_id(track.handed_by)
        if holder is not None and outer is not None:
            node = outer.top
            while node.label.kind == m.WAIT and node.parent is not None:
                node = node.parent
            adopt(state.head[s.H_SHARD_ID], node.path)
            track.inside |= self._inside
            if outer.within_phase == EVAL:
                track.within_phase = EVAL
        handed, opened = len(track.frames) > depth, track.env
        track.env = args[0]
        track.env_calls += 1
        slot = env.record() if self._counts == r.COUNT_STEP and track.within_phase != EVAL else None
        done, result = False, None
        try:
            with layer or NO_LAYER:
                began = track.last
                result = self._function(*args, **keywords)
                done = True
        finally:
            ended = track.last
            if handed:
                state.reserved["(handed over)"].__exit__()
            track.env = opened
            if done and track.gen == gen == state.gen_on:
                if self._counts == r.COUNT_RESET:
                    _guard(e.count_reset, track, env, resets)
                    if outer is not None:
                        outer.resets += 1  # it holds this one
                else:
                    if slot is not None:
                        e.count_env(slot, track, layer, ended - began)
                    if outer is not None and outer.listens:
                        _guard(e.hear_ends, outer, gen, outer.heard, result)
                    if holder is not None:
                        _guard(e.count_step, track, gen, env, args[0], result, True)
                        if gen == state.gen_on:
                            _guard(e.watch_step, env, holder)
            track.inside, track.within_phase = before, phase
        return result

    def _call_layer(self, track: Track, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Within an environment, on the same thread."""
        layer = self._layer_of(args)
        gen, resets, heard = track.gen, track.resets, track.heard
        if layer is not None and track.frames and track.frames[-1].zone is layer:  # super().step()
            layer = None
        with layer or NO_LAYER:
            result = self._function(*args, **keywords)
        if track.listens and self._counts == r.COUNT_STEP and track.gen == gen == state.gen_on:
            _guard(e.hear_ends, track, gen, heard, result)
        if self._counts == r.COUNT_RESET and track.gen == gen == state.gen_on:
            _guard(e.count_reset, track, None, resets)
        return result

    def _call_trial(self, track: Track, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Perhaps an environment's step. The call that shows it to be one counts, unless steps within it did."""
        gen, counted, before = track.gen, state.trial_counted, track.inside
        track.inside |= r.IN_TRIAL
        try:
            result = self._function(*args, **keywords)
        finally:
            track.inside = before
        if not track.gen == gen == state.gen_on or self._role != r.TRIAL:
            return result
        verdict = self._judge(result)
        self._aside = verdict < 0
        if verdict <= 0 or not track.gen == gen == state.gen_on:
            return result
        self._role, self._after = r.ENV, None
        if before & self._within or state.trial_counted != counted or not args:
            return result
        _event_begins(track, self._event)
        if not state.in_loop:
            _begin_loop(track)
        if track.gen == gen == state.gen_on:
            _guard(e.count_step, track, gen, e.env_of(args[0]), args[0], result, False)
        return result

    def _judge(self, result: Any) -> int:
        """Looks at the result: 1 it is an environment's, -1 it never will be, 0 not known yet."""
        if self._after is None:
            return -1
        settle()
        try:
            verdict = self._after(result)
        except Exception:
            state.lose("internal")
            verdict = -1
        charge()
        return verdict if isinstance(verdict, int) else -1

    def _call_model(self, track: Track, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        before, model, gen, row = track.inside, track.model, track.gen, state.row
        site = None if track.within_phase else _site_here()
        phase: int = track.within_phase if site is None else site.phase
        if self._inside & r.IN_MODEL:
            track.model = self
        track.inside |= self._inside
        zone = self._zone_in(phase or COLLECT)
        zone.__enter__()
        node = track.top if track.gen == state.gen_on else None
        own, total = (node[s.N_SELF_NS], node[s.N_TOTAL_NS]) if node is not None else (0, 0)
        try:
            result = self._function(*args, **keywords)
        finally:
            zone.__exit__()
            track.inside, track.model = before, model
            alive = track.gen == gen == state.gen_on
            # over the end of a row it stays as guessed: part of its time is in a row already
            waits = alive and not self._transparent and state.row == row and len(track.pending) < s.PENDING
            if waits and site is not None and node is not None:
                own, total = node[s.N_SELF_NS] - own, node[s.N_TOTAL_NS] - total
                track.pending.append(Pending(node, self._zones, site, phase or COLLECT, own, total))
        if alive and node is not None:
            self._call_after(args, result, phase)
        return result

    def _collects(self) -> bool:
        """Is what may be an evaluation, by its name, all that has stepped environments since it was first called?"""
        if self._counts == r.COUNT_EVAL_STEPS and not state.in_loop:
            self._counts = r.COUNT_EVAL_FIRST
        if self._counts != r.COUNT_EVAL_FIRST:
            return False
        if self._trained < 0:
            self._trained = state.trained
        return self._trained == state.trained

    def _call_span(self, track: Track, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self._counts in (r.COUNT_EVAL_STEPS, r.COUNT_EVAL_FIRST) and self._collects():
            before, track.inside = track.inside, track.inside | r.IN_TEST
            try:
                return self._function(*args, **keywords)
            finally:
                track.inside = before
        gen, evaluated = track.gen, state.eval_counted
        if self._event:
            _event_begins(track, self._event)
        if not state.in_loop and self._inside & r.IN_LEARN:
            _begin_loop(track)
        before, phase = track.inside, track.within_phase
        zone = self._zone_in(phase)
        track.inside |= self._inside
        if self._role == r.PHASE and phase != EVAL:
            track.within_phase = self._event
        zone.__enter__()
        try:
            result = self._function(*args, **keywords)
        finally:
            zone.__exit__()
            track.inside, track.within_phase = before, phase
            if self._role == r.PHASE and track.gen == gen == state.gen_on:
                _change(track, resolve, phase or self._event)
        if track.gen == gen == state.gen_on:
            if self._counts in (r.COUNT_EVAL_STEPS, r.COUNT_EVAL_FIRST) and state.eval_counted == evaluated:
                self._aside = True
            if self._counts == r.COUNT_UPDATE:
                state.learned = state.learns = True
                work_done(track.last)
            self._call_after(args, result, track.phase)
        return result

    # ---- their parts ----

    def _zone_in(self, phase: int) -> Zone:
        zone = self._zones[phase] or self._zones[0]
        assert zone is not None
        return zone

    def _layer_of(self, args: tuple[Any, ...]) -> Zone | None:
        if not args:
            return None
        kind = type(args[0])
        if kind in self._layers:
            return self._layers[kind]
        method = getattr(self._function, "__name__", None)
        zone = zone_of(f"{kind.__name__.rpartition('.')[2]}.{method}") if method is not None else None
        if zone is not None:
            zone.owns = True
            zone.marks = False
            _site_of_function(zone, self._function)
        self._layers[kind] = zone
        return zone

    def _call_after(self, args: tuple[Any, ...], result: Any, phase: int) -> None:
        """After every so many calls, the Python part: it gets the arguments, the result and the phase. Our time."""
        if self._after is None:
            return
        self._calls += 1
        if self._calls % self._every >= s.LOOK_BURST or current_track() is None:
            return
        settle()
        try:
            self._after(args, result, phase)
        except Exception:
            state.lose("internal")
        charge()


def hook(
    function: Any, role: int, zones: tuple[Zone | None, ...], event: int, inside: int, within: int, counts: int, after: Any,
    every: int, /,
) -> Hooked:  # fmt: skip
    if not 0 <= event < DECIDING or len(zones) != DECIDING or not isinstance(zones[0], Zone):
        raise ValueError("zones: one per phase, the first always")
    _site_of_function(zones[0], function)
    return Hooked(function, role, zones, event, inside, within, counts, after, every)


def _guard(action: Callable[..., None], *args: Any) -> None:
    """A fault of ours is counted, not raised."""
    try:
        action(*args)
    except Exception:
        state.lose("internal")


def _track_by_id(id_plus_one: int) -> Track | None:
    return next((track for track in state.tracks if track.id + 1 == id_plus_one), None) if id_plus_one else None


def _path_has(path: str, names: tuple[str, ...]) -> bool:
    """Is one of them a folder of the path, or the module it leads to?"""
    parts = path.replace("\\", "/").removesuffix(".py").split("/")
    return any(name in parts for name in names)


# ---- events ----


def _change(track: Track, action: Callable[..., None], *args: Any) -> None:
    """Change a track's books: a signal handler's spans are dropped meanwhile, and a fault of ours is counted."""
    gen = track.gen
    track.gen = BUSY
    try:
        with state.lock:
            if gen == state.gen_on:  # else another thread began another recording meanwhile
                action(track, *args)
    except Exception:
        state.lose("internal")
    finally:
        track.gen = gen


def _event_begins(track: Track, event: int) -> None:
    """A model's method that holds events is no phase: from now on it is looked through."""
    if track.inside & r.IN_MODEL and track.model is not None:
        track.model._transparent = True
        track.inside &= ~r.IN_MODEL
    _change(track, resolve, track.within_phase or event)


def _tell_waiting(track: Track, event: int) -> None:
    """An env step of work that was handed over: for those who wait for it, this is the event."""
    for other in state.tracks:
        if other is track or other.retired or other.gen != state.gen or len(other.frames) != 1 or other.within_phase:
            continue
        if other.top.label.kind == m.WAIT and (other.pending or other.root[s.N_SELF_NS] > other.gap_mark):
            resolve(other, event)


def _begin_loop(track: Track) -> None:
    state.in_loop = True
    if state.on_loop is not None:
        try:
            state.on_loop()
        except Exception:
            state.lose("internal")
        if track.gen != state.gen_on:
            return
        track.charge(state.clock())
    _change(track, begin_loop)


def _maybe_iterate(track: Track) -> None:
    if state.iteration_due() and not state.manual_steps:
        _change(track, iterate)


def _site_here() -> Site:
    """The place in the script that calls a model, by the instruction."""
    frame = outside(sys._getframe(1))
    key = (id(frame.f_code), frame.f_lasti)
    site = _sites.get(key)
    if site is None:
        if len(_sites) >= MOST_SITES:
            _sites.clear()
        site = _sites[key] = Site()
    return site


def _site_of_function(zone: Zone, function: Any) -> None:
    """Where a label comes from: the function, not who calls it."""
    code = getattr(function, "__code__", None)
    if zone.site is None and isinstance(code, CodeType):
        zone.site = f"{code.co_filename}:{code.co_firstlineno}"


def expect_updates() -> None:
    """Something is going to learn, so episodes close no iterations."""
    state.learns = state.expects = True


# ---- classes, garbage, phases by hand ----

_watch: dict[str, Any] = {}  # the original of builtins.__build_class__, the names, the callback


def watch_classes(names: tuple[str, ...], callback: Callable[[type], None] | None) -> None:
    """The callback gets every class made from now on that defines one of the names. None: stop."""
    original = _watch.setdefault("original", builtins.__build_class__)
    _watch.update(names=names, callback=callback)
    if callback is None:
        builtins.__build_class__ = original
        return

    def build_class(function: Any, name: str, /, *bases: Any, **keywords: Any) -> Any:
        made = original(function, name, *bases, **keywords)
        notify = _watch["callback"]
        if notify is not None and isinstance(made, type) and any(each in vars(made) for each in _watch["names"]):
            try:
                notify(made)
            except Exception:
                state.lose("internal")
        return made

    builtins.__build_class__ = build_class


def gc_pause(phase: str, info: Any = None, /) -> None:
    """For gc.callbacks: a collection is a pause of the span it falls into."""
    if current_track() is None or not isinstance(phase, str):
        return
    if phase == "start":
        state.reserved[m.GC_PAUSE].__enter__()
    else:
        state.reserved[m.GC_PAUSE].__exit__()


def within(phase: int) -> int:
    """This thread works for one phase until told otherwise (0). Answers what it was."""
    track = awake()
    if track is None:
        return 0
    before = track.within_phase
    track.within_phase = phase if 0 <= phase < DECIDING else 0
    return before


def zone(name: str, kind: int, phase: int, owns: bool, marks: bool = False) -> Zone:
    """The zone of a hook; a label in use keeps its meaning."""
    made = zone_of(name)
    if made.label is None and made is not state.reserved["(more labels)"]:
        made.kind, made.phase, made.owns, made.marks = kind, phase, bool(owns), bool(marks)
    return made


def set_revive(function: Any) -> None:
    """(function, role) -> the function, hooked again in another process."""
    _revive[:] = [] if function is None else [function]
