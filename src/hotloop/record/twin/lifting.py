"""Spans are lifted off a stack and put back; work is handed over. See `record/native/lift.h` for the reasons."""

from __future__ import annotations

from typing import Any

from ...model import role as r
from ...model.phase import EVAL
from ...store import schema as s
from .spans import awake, close_top, current_track, push, put_event
from .tree import Frame, Track, add_node, find_child, label_of, node_by_path, path_of, state, touch

CARRIED = r.IN_ENV | r.IN_TRIAL | r.IN_TEST  # of what is open on a track, what goes with work that is handed over


class Token:
    """Spans lifted off a stack; give it to lower()."""

    __slots__ = ("frames", "gen", "lifts", "running", "slots", "track")

    def __init__(self, track: Track, frames: list[Frame], running: bool) -> None:
        self.track, self.frames, self.running = track, frames, running
        self.gen, self.lifts = track.gen, state.lifts
        self.slots: list[int] = []

    def valid(self) -> bool:
        return bool(self.frames) and state.gen_on == self.gen and self.lifts == state.lifts

    def __del__(self) -> None:
        """The task or generator is gone: its spans end here, and say so."""
        try:
            track = current_track()
            if track is None or not self.valid():
                return
            depth = len(track.frames)
            lower(self)
            while len(track.frames) > depth:
                close_top(track, state.clock())
                state.lose("abandoned")
        except (AttributeError, TypeError):
            pass  # the interpreter is going down and has cleared this module


def suspended_put(path: int, start: int) -> int:
    words = state.head
    for at in range(s.H_SUSPENDED, s.H_SUSPENDED + 2 * s.SUSPENDED_SLOTS, 2):
        if not words[at]:
            words[at + 1] = start
            words[at] = path + 1
            return at
    return 0


def depth() -> int:
    track = current_track()
    return len(track.frames) if track else 0


def lift(depth: int, running: bool) -> Token | None:
    """Take the spans above `depth` off this thread's stack; None when there are none."""
    track = current_track()
    if track is None or len(track.frames) <= depth:
        return None
    with state.lock:
        token = Token(track, track.frames[depth:], running)
        at = state.clock()
        track.settle(at)
        for frame in reversed(token.frames):
            touch(frame.node)
            if running:
                token.slots.insert(0, suspended_put(frame.node.path, frame.start))
                continue
            begin = frame.resumed or frame.start
            put_event(track, frame.node, begin, at - begin, s.EVENT_SEGMENT)
            frame.start = at - frame.start  # until it goes on: how long it has run
            if not frame.reentry:
                frame.node.label.suspended(at)
        track.top = token.frames[0].below
        del track.frames[depth:]
        state.head[s.H_LIFTED] += len(token.frames)
        track.state -= 2 * len(token.frames)
        track.words[track.at + s.T_STATE] = track.state
    return token


def lower(token: Any) -> None:
    """Put lifted spans back on the stack of the thread that runs now."""
    if not isinstance(token, Token):
        return
    track = awake()
    if track is None:
        return
    if not token.valid():
        track.inherited += len(token.frames)
        token.frames = []
        return
    with state.lock:
        at = state.clock()
        track.settle(at)
        for index, frame in enumerate(token.frames):
            if track is not token.track:
                frame.node = node_by_path(track, frame.node.path, frame.node.label) or frame.node
            if token.running:
                if token.slots[index]:
                    state.head[token.slots[index]] = 0
            else:
                frame.start = at - frame.start
                frame.resumed = at
                if not frame.reentry:
                    frame.node.label.opened(at)
            track.put(frame)
        track.state += 2 * len(token.frames)
        track.words[track.at + s.T_STATE] = track.state
        state.head[s.H_LIFTED] -= len(token.frames)
        token.frames = []


# ---- handing over ----


def here() -> tuple[int, int] | None:
    """Where this thread is now, as work handed over from here must know it."""
    track = current_track()
    return (state.head[s.H_SHARD_ID], track.top.path) if track else None


def _around(track: Track) -> int:
    eval_bits = EVAL << 16 if track.within_phase == EVAL else 0
    return track.inside & CARRIED | eval_bits | track.handed_by << 32


def _be_around(track: Track, what: int) -> None:
    track.inside = track.inside & ~CARRIED | what & CARRIED
    if track.within_phase in (0, EVAL):
        track.within_phase = what >> 16 & 0xFF
    track.handed_by = what >> 32


def origin() -> tuple[int, int, int] | None:
    """What work that is handed over from here must know: where, and whether it is part of an environment or an evaluation."""
    track = current_track()
    if track is None:
        return None
    what = _around(track) & 0xFFFFFFFF
    return (state.head[s.H_SHARD_ID], track.top.path, what | (track.id + 1) << 32 if what & r.IN_ENV else what)


def adopt(shard: int, path: int, around: int = 0) -> int | None:
    """Work handed over from elsewhere: spans hang below the path that handed it over until release(), which is to be given
    the answer. In another process environments count by themselves."""
    _adopt(shard, path)
    track = current_track()
    if track is None:
        return None
    before = _around(track)
    if around and shard == state.head[s.H_SHARD_ID]:
        _be_around(track, around)
    return before


def _adopt(shard: int, path: int) -> None:
    track = awake()
    if track is None:
        return
    assert state.shard is not None
    handoff = state.reserved["(handed over)"]
    with state.lock:
        node = None
        if shard == state.head[s.H_SHARD_ID] and path < state.shard.items[s.PATHS]:
            anchor = node_by_path(track, path, track.root.label)
            if anchor is not None:
                node = find_child(track, anchor, handoff)
        else:
            label = label_of(handoff)
            remote = path_of(0, label.id, origin=(shard, path))
            node = node_by_path(track, remote, label) if remote is not None else None
        at = state.clock()
        track.settle(at)
        push(track, handoff, node or track.overflow, at)


def release(before: int | None = None) -> None:
    """The work is done; until the next piece the thread is an idle worker, which is waiting."""
    if before is not None and state.local.track is not None:
        _be_around(state.local.track, before)
    track = current_track()
    if track is None:
        return
    state.reserved["(handed over)"].__exit__()
    if track.frames:
        return
    if track.idle is None:
        with state.lock:
            label = label_of(state.reserved["(waiting: idle worker)"])
            track.idle = add_node(track, path_of(0, label.id), label, track.root)
    if track.idle is not None:
        track.top = track.idle
        track.words[track.at + s.T_BASE] = track.idle.id
