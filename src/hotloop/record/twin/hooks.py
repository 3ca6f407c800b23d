"""Hooked functions in Python: calls that mean something in a training loop; see `record/native/hooks.h`.

Invariant: the function is called exactly as it was called, its result and exceptions pass unchanged, and whatever goes wrong
on our side is swallowed and counted.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from types import CodeType, MethodType
from typing import Any

from ...model.phase import COLLECT, EVAL
from ...store import schema as s
from .phases import Pending, Site, begin_loop, note_wait, resolve
from .readings import charge, settle
from .rows import close_iteration, count, work_done
from .spans import GC_PAUSE, Zone, current_track, outside, wake_for_span, zone_of
from .tree import BUSY, Track, state

LOCAL = state.local
ROLE_SPAN, ROLE_ENV, ROLE_MODEL, ROLE_LISTS, ROLE_PHASE = range(5)
IN_MODEL, IN_LEARN = 2, 4  # of what may be open on a track, what means something here
COUNT_NOTHING, COUNT_STEP, COUNT_RESET, COUNT_UPDATE = range(4)
DECIDING = EVAL + 1  # the phases an event can decide, and none
ITERATION_LEAST_NS = 20_000_000  # loops that learn after every step would otherwise close thousands a second
MOST_SITES = 4096
BY_VALUE = ("cloudpickle", "dill")
_ENV_STEPS, _EPISODES, _RESETS = (s.H_COUNTERS + index * s.COUNTER_WORDS + 2 for index in (0, 3, 4))

_sites: dict[tuple[int, int], Site] = {}  # by code object and instruction
_revive: list[Any] = []


class Hooked:
    """A function whose calls mean something in a training loop."""

    __slots__ = (
        "__dict__", "__weakref__", "_after", "_calls", "_counts", "_event", "_every", "_function", "_inside", "_layers",
        "_role", "_transparent", "_within", "_zones",
    )  # fmt: skip

    def __init__(
        self, function: Any, role: int, zones: tuple[Zone | None, ...], event: int, inside: int, within: int, counts: int,
        after: Any, every: int,
    ) -> None:  # fmt: skip
        self._function, self._role, self._zones = function, role, zones
        self._event, self._inside, self._within, self._counts = event, inside, within, counts
        self._after, self._every, self._calls = after, every or 1, 0
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
        if _revive and role is not None and any(name in file for name in BY_VALUE):
            return _revive[0], (self._function, role)
        return self._function.__qualname__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:
        track: Track | None = LOCAL.track
        if track is None or track.gen != state.gen_on:
            track = wake_for_span(track)
            if track is None:
                return self._function(*args, **keywords)
        if self._role == ROLE_ENV:
            return self._call_env(track, args, keywords)
        if track.inside & self._within or self._transparent:
            return self._function(*args, **keywords)
        if self._role == ROLE_LISTS and not (args and isinstance(args[0], (list, tuple))):
            return self._function(*args, **keywords)
        if self._role in (ROLE_MODEL, ROLE_LISTS):
            return self._call_model(track, args, keywords)
        return self._call_span(track, args, keywords)

    # ---- roles ----

    def _call_env(self, track: Track, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        layer = self._layer_of(args)
        gen = track.gen
        if track.inside & self._within:  # a layer of an environment
            if layer is None or (track.depth and track.frames[track.depth - 1].zone is layer):  # super().step()
                return self._function(*args, **keywords)
            layer.__enter__()
            try:
                return self._function(*args, **keywords)
            finally:
                layer.__exit__()
        _event_begins(track, self._event)
        if not state.in_loop and self._counts != COUNT_RESET:
            _begin_loop(track)
        if track.depth and track.frames[0].zone is state.reserved["(handed over)"]:
            _change(track, _tell_waiting, self._event)
        if track.within_phase != EVAL:
            _maybe_iterate(track)
        before = track.inside
        zone = self._zone_in(track.within_phase)
        track.inside |= self._inside
        zone.__enter__()
        began = track.last
        collects = self._counts == COUNT_STEP and track.within_phase != EVAL and bool(args) and track.gen == state.gen_on
        slot = _env_slot(args[0]) if collects else None
        if layer is not None:
            layer.__enter__()
        try:
            result = self._function(*args, **keywords)
        finally:
            if layer is not None:
                layer.__exit__()
            zone.__exit__()
            track.inside = before
        if track.gen == gen == state.gen_on:
            if slot is not None:
                _count_env(slot, track, layer, track.last - began)
            self._finish(track, args, result, track.phase)
        return result

    def _call_model(self, track: Track, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        before, model, gen, iteration = track.inside, track.model, track.gen, state.iteration
        site = None if track.within_phase else _site_here()
        phase: int = track.within_phase if site is None else site.phase
        if self._inside & IN_MODEL:
            track.model = self
        track.inside |= self._inside
        zone = self._zone_in(phase or COLLECT)
        zone.__enter__()
        node = track.top if track.gen == state.gen_on else None
        own, total = (node.self_ns, node.total) if node is not None else (0, 0)
        try:
            result = self._function(*args, **keywords)
        finally:
            zone.__exit__()
            track.inside, track.model = before, model
            alive = track.gen == gen == state.gen_on
            # over the end of an iteration it stays as guessed: part of its time is in a row already
            waits = alive and not self._transparent and state.iteration == iteration and len(track.pending) < Pending.MOST
            if waits and site is not None and node is not None:
                span = Pending(node, self._zones, site, phase or COLLECT, node.self_ns - own, node.total - total)
                track.pending.append(span)
        if alive and node is not None:
            self._call_after(args, result, phase)
        return result

    def _call_span(self, track: Track, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        gen = track.gen
        if self._event:
            _event_begins(track, self._event)
        if not state.in_loop and self._inside & IN_LEARN:
            _begin_loop(track)
        before, phase = track.inside, track.within_phase
        zone = self._zone_in(phase)
        track.inside |= self._inside
        if self._role == ROLE_PHASE and phase != EVAL:
            track.within_phase = self._event
        zone.__enter__()
        if zone.kind == s.KIND_WAIT and track.gen == state.gen_on:
            note_wait(track)
        try:
            result = self._function(*args, **keywords)
        finally:
            zone.__exit__()
            track.inside, track.within_phase = before, phase
            if self._role == ROLE_PHASE and track.gen == gen == state.gen_on:
                _change(track, resolve, phase or self._event)
        if track.gen == gen == state.gen_on:
            self._finish(track, args, result, track.phase)
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
        try:
            return self._layers[kind]
        except KeyError:
            pass
        method = getattr(self._function, "__name__", None)
        zone = zone_of(f"{kind.__name__.rpartition('.')[2]}.{method}") if method is not None else None
        if zone is not None:
            zone.owns = True
            zone.marks = False
            _site_of_function(zone, self._function)
        self._layers[kind] = zone
        return zone

    def _finish(self, track: Track, args: tuple[Any, ...], result: Any, phase: int) -> None:
        try:
            if self._counts == COUNT_STEP:
                _count_step(track, result)
            elif self._counts == COUNT_RESET:
                state.head[_RESETS] += 1
            elif self._counts == COUNT_UPDATE:
                state.learned = state.learns = True
                work_done(track.last)
        except Exception:
            state.lose("internal")
        self._call_after(args, result, phase)

    def _call_after(self, args: tuple[Any, ...], result: Any, phase: int) -> None:
        """After every so many calls, the Python part: it gets the arguments, the result and the phase. Our time."""
        if self._after is None:
            return
        self._calls += 1
        if self._calls % self._every or current_track() is None:
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


# ---- events ----


def _change(track: Track, action: Callable[..., None], *args: Any) -> None:
    """Change a track's books: a signal handler's spans are dropped meanwhile, and a fault of ours is counted."""
    gen = track.gen
    track.gen = BUSY
    try:
        with state.lock:
            action(track, *args)
    except Exception:
        state.lose("internal")
    finally:
        track.gen = gen


def _event_begins(track: Track, event: int) -> None:
    """A model's method that holds events is no phase: from now on it is looked through."""
    if track.inside & IN_MODEL and track.model is not None:
        track.model._transparent = True
        track.inside &= ~IN_MODEL
    _change(track, resolve, track.within_phase or event)


def _tell_waiting(track: Track, event: int) -> None:
    """An env step of work that was handed over: for those who wait for it, this is the event."""
    for other in state.tracks:
        if other is track or other.retired or other.gen != state.gen or other.depth != 1 or other.within_phase:
            continue
        if other.top.label.kind == s.KIND_WAIT and (other.pending or other.root.self_ns > other.gap_mark):
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
    """An env step begins: was something learned since the last iteration did? Without any learning, an episode ends one."""
    if not (state.learned or (state.episode_ended and not state.learns)) or state.manual_steps:
        return
    if track.last - state.head[s.H_ITER_START_NS] >= ITERATION_LEAST_NS:
        state.learned = state.episode_ended = False
        _change(track, close_iteration)


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


# ---- what a step did ----


def _env_slot(env: Any) -> int | None:
    """Its number, in the order they begin."""
    return state.envs.setdefault(id(env), len(state.envs)) if len(state.envs) < s.ENV_SLOTS else state.envs.get(id(env))


def _count_env(slot: int, track: Track, layer: Zone | None, ns: int) -> None:
    """Steps by environment, so that one slow one among many can be named."""
    at = s.H_ENVS + slot * s.ENV_WORDS
    state.head[at] += 1
    state.head[at + 1] += ns
    state.head[at + 2] = track.id + 1
    state.head[at + 3] = layer.label.id + 1 if layer is not None and layer.label is not None else 0


def _length_of(value: Any) -> int:
    """How many of them: the leading dimension of an array or tensor, else one."""
    if isinstance(value, (float, int, dict)) or not hasattr(type(value), "__len__"):
        return 1
    try:
        return max(1, len(value))
    except Exception:
        return 1


def _read_flags(value: Any, n: int) -> list[bool] | None:
    """A flag, or an array of them; None when they cannot be read without touching a device."""
    if isinstance(value, bool):
        return [value]
    if isinstance(value, list):
        return [flag is True for flag in list.__iter__(value)][:n]
    try:
        view = memoryview(value)
    except Exception:
        return None
    with view:
        if view.itemsize != 1 or not view.c_contiguous:
            return None
        return [byte != 0 for byte in view.tobytes()[:n]]


def _count_step(track: Track, result: Any) -> None:
    """Looking at a result may run its own code, which may end the recording: first look, then write."""
    parts = tuple.__iter__(result) if isinstance(result, tuple) else ()
    items = list(parts)
    n = _length_of(items[1]) if len(items) >= 2 else 1
    if track.within_phase == EVAL:
        count("eval_env_steps", n)
        return
    done: set[int] = set()
    for value in (*items[2:3], *(items[3:4] if len(items) >= 5 else ())):
        done.update(index for index, flag in enumerate(_read_flags(value, n) or ()) if flag)
    if track.gen != state.gen_on:
        return
    state.head[_ENV_STEPS] += n
    state.hook_counts.add("env_steps")
    state.head[_EPISODES] += len(done)
    work_done(track.last)
    if done:
        state.episode_ended = True


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
        state.reserved[GC_PAUSE].__enter__()
    else:
        state.reserved[GC_PAUSE].__exit__()


def within(phase: int) -> int:
    """This thread works for one phase until told otherwise (0). Answers what it was."""
    track = current_track() or wake_for_span(LOCAL.track)
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
