"""Environments in Python: which one a call is of, which are parts of others, what steps count; see `native/environments.h`.

Invariant: no environment is kept alive, and none of its code runs here. What is held back until it is known to be part of
another is counted as soon as it is not, at the latest when recording ends.
"""

from __future__ import annotations

import weakref
from typing import Any

from ...model import role as r
from ...model import shard as m
from ...model.phase import EVAL
from ...store import schema as s
from .readings import charge, settle
from .rows import count, work_done
from .spans import Zone, current_track
from .tree import Track, state

UNKNOWN, INSIDE, OUTERMOST = range(3)
ENDS_UNKNOWN, ENDS_TOLD, ENDS_INSIDE = range(3)  # does its result say which episodes ended, or only those of what it steps?
HELD_BY_NONE, HELD_INSIDE, HELD_PERHAPS = range(3)
SWEEP_FROM = 64
_ENV_STEPS, _, _, _EPISODES, _RESETS, _AUTORESETS = (s.H_COUNTERS + i * s.COUNTER_WORDS + 2 for i in range(len(s.COUNTERS)))
_NUMBERS = tuple("fdiIlLqQ")  # of arrays that may have flags in them
_FOR_OTHERS = ("(waiting: lock)", "(waiting: queue)")


class Env:
    """One environment, for as long as it lives."""

    def __init__(self, target: Any) -> None:
        self.weak: Any = None
        try:
            self.weak = weakref.ref(target)
        except TypeError:
            pass  # its class allows none: address and class must do
        self.kind = type(target)
        state.env_serial += 1
        self.serial: int = state.env_serial
        self.slot: int | None = None  # None: there are more than the header has room for
        self.numbered = False
        self.nest = UNKNOWN
        self.ends = ENDS_UNKNOWN
        self.mode: bool | None = None  # does it reset itself in the step after the last one? None: not asked
        self.holder = 0  # the serial of the environment it was found in
        self.asked_of: list[int] = []
        self.contained = self.waited = 0
        self.held_steps = self.held_episodes = 0  # not counted, because another environment's step holds them
        self.done: list[bool] = []  # which of its environments ended an episode in the last step

    def is_of(self, target: Any) -> bool:
        return self.weak() is target if self.weak is not None else self.kind is type(target)

    def is_gone(self) -> bool:
        return self.weak is not None and self.weak() is None

    def be_outermost(self) -> None:
        """It is part of no other: what was held back counts."""
        self.nest = OUTERMOST
        if self.held_steps or self.held_episodes:
            state.head[_ENV_STEPS] += self.held_steps
            state.head[_EPISODES] += self.held_episodes
            state.hook_counts.add("env_steps")
            state.episode_ended = state.episode_ended or self.held_episodes > 0
        self.held_steps = self.held_episodes = 0

    def close(self) -> None:
        if self.nest == UNKNOWN:
            self.be_outermost()

    def record(self) -> int | None:
        """Its row of steps; they are numbered as they begin."""
        if not self.numbered:
            self.numbered = True
            if state.env_rows < s.ENV_SLOTS:
                self.slot = state.env_rows
                state.env_rows += 1
        return self.slot


def env_of(target: Any) -> Env:
    """The environment, by itself and not by its address alone: that of one that is gone is soon another's."""
    known: Env | None = state.envs.get(id(target))
    if known is not None and known.is_of(target):
        return known
    made = Env(target)
    with state.lock:
        if known is not None:
            known.close()
        if len(state.envs) >= state.envs_sweep:
            for key, env in list(state.envs.items()):
                if env.is_gone():
                    env.close()
                    del state.envs[key]
            state.envs_sweep = max(SWEEP_FROM, 2 * len(state.envs))
        state.envs[id(target)] = made
    return made


def envs_start() -> None:
    state.envs, state.env_rows, state.envs_sweep = {}, 0, SWEEP_FROM


def envs_end() -> None:
    """Recording ends: what nobody could decide counts."""
    for env in state.envs.values():
        env.close()


def count_env(slot: int, track: Track, layer: Zone | None, ns: int) -> None:
    """Steps by environment, so that one slow one among many can be named."""
    at = s.H_ENVS + slot * s.ENV_WORDS
    state.head[at] += 1
    state.head[at + 1] += ns
    state.head[at + 2] = track.id + 1
    state.head[at + 3] = layer.label.id + 1 if layer is not None and layer.label is not None else 0


# ---- questions that others answer; their time is ours ----


def _ask(whom: Any, *args: Any) -> bool:
    if whom is None or current_track() is None:
        return False
    settle()
    try:
        answer = whom(*args) is True
    except Exception:
        state.lose("internal")
        answer = False
    charge()
    return answer


# ---- inside another, on another thread ----


class Holder:
    """An environment's call that is open on another thread."""

    __slots__ = ("call", "gen", "track", "waited")

    def __init__(self, track: Track, waited: bool = False) -> None:
        self.track, self.call, self.gen, self.waited = track, track.env_calls, state.gen, waited

    def is_open(self) -> bool:
        track = self.track
        return not track.retired and state.gen == self.gen and track.env is not None and track.env_calls == self.call


def _waits_for_others(track: Track) -> bool:
    """Sleep, sockets and the like wait for something else."""
    zone = track.frames[-1].zone if track.frames else None
    return zone is not None and zone.kind == m.WAIT and zone.name in _FOR_OTHERS


def _is_held_by(env: Env, target: Any, outer: Any, serial: int) -> bool:
    """Is it reachable from that one? Asked once of each, and of a few only."""
    if env.holder:
        return env.holder == serial
    if serial in env.asked_of or len(env.asked_of) == s.ASKED_MOST:
        return False
    env.asked_of.append(serial)
    return _ask(state.on_holds, outer, target)


def find_holder(track: Track, env: Env, target: Any, steps: bool) -> tuple[int, Holder | None]:
    """Which environment's call on another thread holds this one? Of several, the one that another of them holds. An environment
    that is ever stepped outside of all others is part of none, for good. Asking may end the recording."""
    gen, opened, found, closest = state.gen_on, None, None, 0
    for other in list(state.tracks):
        outer = other.env
        if other is track or other.retired or outer is None or outer is target:
            continue
        holder = Holder(other)
        known = env_of(outer) if state.on_holds is not None and outer is not ... else None
        held = known is not None and _is_held_by(env, target, outer, known.serial)
        if state.gen_on != gen:
            return HELD_BY_NONE, None
        if not holder.is_open():
            continue
        if held and known is not None and (not closest or known.holder == closest):
            found, closest = holder, known.serial
        holder.waited = _waits_for_others(other)
        if opened is None or (holder.waited and not opened.waited):
            opened = holder
    if found is not None:
        env.holder, env.nest = closest, INSIDE
        return HELD_INSIDE, found
    if opened is not None and not env.holder:
        return (HELD_INSIDE if env.nest == INSIDE else HELD_PERHAPS if steps else HELD_BY_NONE), opened
    if steps:
        env.be_outermost()
    return HELD_BY_NONE, None


def watch_step(env: Env, holder: Holder) -> None:
    """A step ended that another environment's call held when it began: was it open all the while, and did it wait for this?"""
    if not holder.is_open():
        env.be_outermost()
        return
    if env.nest != UNKNOWN:
        return
    env.contained += 1
    env.waited += holder.waited or _waits_for_others(holder.track)
    if env.contained >= s.INSIDE_LEAST and 2 * env.waited >= env.contained:
        env.nest = INSIDE
    elif env.contained >= s.WATCHED_MOST:
        env.be_outermost()


# ---- what a step did ----


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
        if not view.c_contiguous:
            return None
        if view.itemsize == 1:
            return [byte != 0 for byte in view.tobytes()[:n]]
        if view.ndim != 1 or view.format not in _NUMBERS:
            return None
        numbers = view.tolist()[:n]
        return [number == 1 for number in numbers] if all(number in (0, 1) for number in numbers) else None


def _read_ends(result: Any) -> tuple[list[bool], bool]:
    """Which of the environments of a result ended an episode, and whether it says so at all."""
    items = list(tuple.__iter__(result)) if isinstance(result, tuple) else []
    n = _length_of(items[1]) if len(items) >= 2 else 1
    done, known = [False] * n, False
    for value in (*items[2:3], *(items[3:4] if len(items) >= 5 else ())):
        flags = _read_flags(value, n)
        known = known or flags is not None
        for index, flag in enumerate(flags or ()):
            done[index] = done[index] or flag
    return done, known


def hear_ends(outer: Track, gen: int, before: int, result: Any) -> None:
    """The result of what an environment steps, where its own does not tell: of those within one another, the outermost that
    does."""
    done, known = _read_ends(result)
    if known and outer.gen == gen == state.gen_on:
        outer.heard = before + sum(done)


def count_step(track: Track, gen: int, env: Env | None, target: Any, result: Any, held: bool) -> None:
    """Looking at a result may run its own code, which may end the recording: first look, then write. `held`: by another's."""
    done, known = _read_ends(result)
    n, episodes = len(done), sum(done)
    if env is not None and not held and state.gen_on == gen:
        env.ends = ENDS_TOLD if known else ENDS_INSIDE
        if not known:
            episodes = track.heard
    if env is not None and env.mode is None and state.gen_on == gen:
        env.mode = False
        env.mode = _ask(state.on_mode, target)
    if not track.gen == gen == state.gen_on:
        return
    resets = 0
    if env is not None and env.mode and not held:  # what ended in the last step did nothing but reset in this one
        resets = sum(env.done) if len(env.done) == n else 0
        env.done = done
    if track.inside & r.IN_TRIAL:
        state.trial_counted += 1
    n -= resets
    if held:
        assert env is not None
        env.held_steps += n
        env.held_episodes += episodes
    elif track.within_phase == EVAL:
        state.eval_counted += 1
        count("eval_env_steps", n)
    else:
        state.trained += not track.inside & r.IN_TEST
        state.head[_ENV_STEPS] += n
        state.head[_EPISODES] += episodes
        state.head[_AUTORESETS] += resets
        state.hook_counts.add("env_steps")
        work_done(track.last)
        if episodes:
            state.episode_ended = True


def count_ends(track: Track) -> None:
    """Of a step that somebody else counts: the episodes that ended in it."""
    if track.within_phase != EVAL and track.heard:
        state.head[_EPISODES] += track.heard
        state.episode_ended = True


def count_reset(track: Track, env: Env | None, before: int) -> None:
    """A reset counts where it holds no other, wherever it is called."""
    if env is not None:
        env.done = []
    if track.resets != before:
        return
    track.resets += 1
    if track.within_phase != EVAL:
        state.head[_RESETS] += 1


def set_on_env(mode: Any, holds: Any) -> None:
    """Who answers questions about environments: does it reset itself in the step after the last one; is it held by another."""
    state.on_mode, state.on_holds = mode, holds
